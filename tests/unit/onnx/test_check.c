/* test_check.c — each way in which a model can be broken gets its own error. */
#include "build_model.h"
#include "onnx/attr.h"
#include "onnx/check/check.h"
#include "testing.h"

#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* A valid model: x -> Conv(w) -> Clip -> y, and an If with an outer name. */
static void good(bm *b) {
    bm_begin(b, NULL, 13);
    bm_input(b, "x", OQ_FLOAT, "N,1,4,4");
    bm_input(b, "c", OQ_BOOL, "");
    bm_weight(b, "w", "2,1,3,3", 1);
    bm_node(b, "Conv", "conv", "x w", "t", "pads=[1,1,1,1]");
    bm_node(b, "Clip", "clip", "t _ _", "y", "");
    oq_node *n = bm_node(b, "If", "if", "c", "r", "");
    oq_graph *around = bm_enter(b, n, "then_branch");
    bm_node(b, "Neg", "neg", "t", "u", "");
    bm_output(b, "u", OQ_FLOAT, NULL);
    bm_leave(b, around);
    around = bm_enter(b, n, "else_branch");
    bm_output(b, "t", OQ_FLOAT, NULL);
    bm_leave(b, around);
    bm_output(b, "y", OQ_FLOAT, "N,2,4,4");
    bm_output(b, "r", OQ_FLOAT, NULL);
}

static oq_graph *inner_of(bm *b) {
    return b->g->node.v[2]->attribute.v[0]->g;
}

static void a_good_model_passes(void **state) {
    (void)state;
    bm b;
    onq_error err = ONQ_ERROR_INIT;
    good(&b);
    if (oq_model_check(b.m, &err) != ONQ_OK)
        fail_msg("%s", err.text);
    bm_end(&b);
}

static void break_ir_missing(bm *b) {
    b->m->proto->ir_version = (oq_opt_i64){0};
}
static void break_ir_zero(bm *b) {
    b->m->proto->ir_version = OQ_I64(0);
}
static void break_ir_negative(bm *b) {
    b->m->proto->ir_version = OQ_I64(-1);
}
static void break_ir_huge(bm *b) {
    b->m->proto->ir_version = OQ_I64(999);
}
static void break_opset_missing(bm *b) {
    b->m->proto->opset_import.n = 0;
}
static void break_opset_zero(bm *b) {
    b->m->proto->opset_import.v[0]->version = OQ_I64(0);
}
static void break_opset_huge(bm *b) {
    b->m->proto->opset_import.v[0]->version = OQ_I64(999);
}
static void break_opset_twice(bm *b) {
    oq_opset *o = OQ_NEW(b->a, oq_opset);
    o->version = OQ_I64(14);
    (void)OQ_PUSH(b->a, &b->m->proto->opset_import, o);
}
static void break_domain(bm *b) {
    b->g->node.v[0]->domain = OQ_S("com.nobody");
}
static void break_op_type(bm *b) {
    b->g->node.v[0]->op_type = (oq_str){NULL, 0};
}
static void break_duplicate_initializer(bm *b) {
    bm_weight(b, "w", "1", 2);
}
static void break_duplicate_input(bm *b) {
    bm_input(b, "x", OQ_FLOAT, "1");
}
static void break_nameless_input(bm *b) {
    bm_input(b, "", OQ_FLOAT, "1");
}
static void break_nameless_initializer(bm *b) {
    bm_weight(b, "", "1", 1);
}
static void break_two_producers(bm *b) {
    bm_node(b, "Neg", "again", "x", "t", "");
}
static void break_output_is_input(bm *b) {
    bm_node(b, "Neg", "again", "t", "x", "");
}
static void break_output_is_initializer(bm *b) {
    bm_node(b, "Neg", "again", "x", "w", "");
}
static void break_missing_input(bm *b) {
    b->g->node.v[1]->input.v[0] = OQ_S("nowhere");
}
static void break_inner_missing_input(bm *b) {
    inner_of(b)->node.v[0]->input.v[0] = OQ_S("nowhere");
}
static void break_branch(bm *b) {
    b->g->node.v[2]->attribute.n--;
}
static void break_body(bm *b) {
    b->g->node.v[2]->op_type = OQ_S("Loop");
}
static void break_list_of_inputs(bm *b) {
    b->g->node.v[1]->op_type = OQ_S("Sum");
}
static void break_list_of_outputs(bm *b) {
    oq_node *n = b->g->node.v[1];
    n->op_type = OQ_S("Split");
    assert_true(oq_node_add_output(b->a, n, OQ_S("")));
}
static void break_training(bm *b) {
    break_list_of_outputs(b);
    b->g->node.v[1]->op_type = OQ_S("BatchNormalization");
    assert_true(oq_attr_set_int(b->a, b->g->node.v[1], OQ_S("training_mode"), 1));
}
static void break_inner_output(bm *b) {
    inner_of(b)->output.v[0]->name = OQ_S("nothing");
}
static void break_output(bm *b) {
    bm_output(b, "nothing", OQ_FLOAT, NULL);
}
static void break_cycle(bm *b) {
    b->g->node.v[0]->input.v[0] = OQ_S("y");
}
static void break_cycle_through_inner(bm *b) {
    b->g->node.v[0]->input.v[0] = OQ_S("r");
}
static void break_attribute_twice(bm *b) {
    oq_attribute *a = OQ_NEW(b->a, oq_attribute);
    *a = *b->g->node.v[0]->attribute.v[0];
    (void)OQ_PUSH(b->a, &b->g->node.v[0]->attribute, a);
}
static void break_attribute_empty(bm *b) {
    b->g->node.v[0]->attribute.v[0]->type = OQ_I32(OQ_ATTR_TENSOR);
}
static void break_attribute_type(bm *b) {
    b->g->node.v[0]->attribute.v[0]->type = OQ_I32(99);
}
static void break_dims_short(bm *b) {
    b->g->initializer.v[0]->dims.v[0] = 3;
}
static void break_dims_negative(bm *b) {
    b->g->initializer.v[0]->dims.v[0] = -2;
}
static void break_dims_overflow(bm *b) {
    b->g->initializer.v[0]->dims.v[0] = INT64_MAX;
    b->g->initializer.v[0]->dims.v[1] = 4;
}
static void break_data_type(bm *b) {
    b->g->initializer.v[0]->data_type = OQ_I32(77);
}
static void break_data_type_missing(bm *b) {
    b->g->initializer.v[0]->data_type = OQ_I32(0);
}
static void break_no_payload(bm *b) {
    oq_tensor_clear_data(b->g->initializer.v[0]);
}
static void break_string_count(bm *b) {
    oq_tensor *t = b->g->initializer.v[0];
    oq_tensor_clear_data(t);
    t->data_type = OQ_I32(OQ_STRING);
}
static void break_elem_type(bm *b) {
    b->g->input.v[0]->type->tensor_type->elem_type = OQ_I32(77);
}
static void break_rank(bm *b) {
    oq_shape *s = b->g->input.v[0]->type->tensor_type->shape;
    for (size_t i = 0; i < 8192; i++)
        assert_true(OQ_PUSH(b->a, &s->dim, s->dim.v[0]));
}
static void add_function(bm *b, const char *name, const char *calls) {
    oq_function *f = OQ_NEW(b->a, oq_function);
    oq_opset *o = OQ_NEW(b->a, oq_opset);
    oq_node *n = oq_node_new(b->a, bm_str(b, calls).p, OQ_S("call"));
    f->name = bm_str(b, name);
    f->domain = n->domain = o->domain = OQ_S("local");
    o->version = OQ_I64(1);
    assert_true(OQ_PUSH(b->a, &f->node, n) && OQ_PUSH(b->a, &f->opset_import, o) &&
                OQ_PUSH(b->a, &b->m->proto->functions, f));
}
static void break_function_recursion(bm *b) {
    add_function(b, "f", "g");
    add_function(b, "g", "f");
}
static void break_function_twice(bm *b) {
    add_function(b, "f", "g");
    add_function(b, "f", "h");
}
static void break_function_input(bm *b) {
    add_function(b, "f", "g");
    assert_true(oq_node_add_input(b->a, b->m->proto->functions.v[0]->node.v[0], OQ_S("nowhere")));
}
static void break_sparse(bm *b) {
    oq_sparse *s = OQ_NEW(b->a, oq_sparse);
    s->values = bm_tensor(b, "sv", OQ_FLOAT, "1", "\0\0\0\0", 4);
    (void)OQ_PUSH(b->a, &b->g->sparse_initializer, s);
}
static void add_sparse(bm *b, const char *shape, const int64_t *indices, size_t n) {
    break_sparse(b);
    oq_sparse *s = b->g->sparse_initializer.v[0];
    (void)(OQ_PUSH(b->a, &s->dims, 2) && OQ_PUSH(b->a, &s->dims, 3));
    s->indices = bm_tensor(b, "si", OQ_INT64, shape, indices, n * sizeof *indices);
}
static void break_sparse_place(bm *b) {
    add_sparse(b, "1", (const int64_t[]){6}, 1);
}
static void break_sparse_coordinate(bm *b) {
    add_sparse(b, "1,2", (const int64_t[]){0, -1}, 2);
}
static void break_sparse_size(bm *b) {
    add_sparse(b, "1", (const int64_t[]){5}, 1);
    b->g->sparse_initializer.v[0]->dims.v[0] = INT64_MAX;
}

static void each_fault_is_found(void **state) {
    (void)state;
    const struct {
        void (*make)(bm *);
        onq_code code;
        const char *word; /* in the message */
    } rows[] = {
        {break_ir_missing, ONQ_E_INVALID, "ir_version"},
        {break_ir_zero, ONQ_E_INVALID, "ir_version 0"},
        {break_ir_negative, ONQ_E_INVALID, "ir_version -1"},
        {break_ir_huge, ONQ_E_UNSUPPORTED, "999"},
        {break_opset_missing, ONQ_E_INVALID, "imports no opset"},
        {break_opset_zero, ONQ_E_INVALID, "version 0"},
        {break_opset_huge, ONQ_E_UNSUPPORTED, "999"},
        {break_opset_twice, ONQ_E_INVALID, "version 14"},
        {break_domain, ONQ_E_INVALID, "com.nobody"},
        {break_op_type, ONQ_E_INVALID, "op_type"},
        {break_duplicate_initializer, ONQ_E_INVALID, "initializer 'w'"},
        {break_duplicate_input, ONQ_E_INVALID, "input 'x'"},
        {break_nameless_input, ONQ_E_INVALID, "input 2 has no name"},
        {break_nameless_initializer, ONQ_E_INVALID, "initializer 1 has no name"},
        {break_two_producers, ONQ_E_INVALID, "output of node 'conv' (Conv)"},
        {break_output_is_input, ONQ_E_INVALID, "graph input"},
        {break_output_is_initializer, ONQ_E_INVALID, "an initializer"},
        {break_missing_input, ONQ_E_INVALID, "'clip' (Clip): input 'nowhere'"},
        {break_inner_missing_input, ONQ_E_INVALID,
         "'if' (If): inner graph 'then_branch': node 'neg'"},
        {break_branch, ONQ_E_INVALID, "'if' (If): it has no graph 'else_branch'"},
        {break_body, ONQ_E_INVALID, "'if' (Loop): it has no graph 'body'"},
        {break_list_of_inputs, ONQ_E_INVALID, "'clip' (Sum): input 1 has no name"},
        {break_list_of_outputs, ONQ_E_INVALID, "'clip' (Split): output 1 has no name"},
        {break_training, ONQ_E_INVALID, "'clip' (BatchNormalization): output 1 has no name"},
        {break_inner_output, ONQ_E_INVALID, "output 'nothing'"},
        {break_output, ONQ_E_INVALID, "output 'nothing'"},
        {break_cycle, ONQ_E_INVALID, "cycle"},
        {break_cycle_through_inner, ONQ_E_INVALID, "cycle"},
        {break_attribute_twice, ONQ_E_INVALID, "attribute 'pads' occurs twice"},
        {break_attribute_empty, ONQ_E_INVALID, "attribute 'pads' is empty"},
        {break_attribute_type, ONQ_E_INVALID, "type 99"},
        {break_dims_short, ONQ_E_INVALID, "need 108"},
        {break_dims_negative, ONQ_E_INVALID, "-2"},
        {break_dims_overflow, ONQ_E_INVALID, "overflow"},
        {break_data_type, ONQ_E_INVALID, "type 77"},
        {break_data_type_missing, ONQ_E_INVALID, "no data type"},
        {break_no_payload, ONQ_E_INVALID, "holds 0 values"},
        {break_string_count, ONQ_E_INVALID, "0 strings"},
        {break_elem_type, ONQ_E_INVALID, "input 'x': unknown element type 77"},
        {break_rank, ONQ_E_LIMIT, "input 'x': 8196 axes"},
        {break_function_recursion, ONQ_E_INVALID, "calls itself"},
        {break_function_twice, ONQ_E_INVALID, "function 'f'"},
        {break_function_input, ONQ_E_INVALID, "function 'f': node 'call' (g): input 'nowhere'"},
        {break_sparse, ONQ_E_INVALID, "lacks its indices"},
        {break_sparse_place, ONQ_E_INVALID, "index 6 is not within 0 and 5"},
        {break_sparse_coordinate, ONQ_E_INVALID, "index -1 is not within 0 and 2"},
        {break_sparse_size, ONQ_E_INVALID, "its size overflows"},
    };
    for (size_t i = 0; i < OQ_COUNT(rows); i++) {
        bm b;
        onq_error err = ONQ_ERROR_INIT;
        good(&b);
        rows[i].make(&b);
        const onq_code rc = oq_model_check(b.m, &err);
        if (rc != rows[i].code || strstr(err.text, rows[i].word) == NULL)
            fail_msg("row %zu: code %d, \"%s\", wanted code %d and \"%s\"", i, (int)rc, err.text,
                     (int)rows[i].code, rows[i].word);
        bm_end(&b);
    }
}

static void what_is_allowed(void **state) {
    (void)state;
    bm b;
    onq_error err = ONQ_ERROR_INIT;
    good(&b);
    /* Not in order; an initializer that gives an input its default; an inner name that hides an
     * outer one; a function that another calls twice; typed storage. */
    oq_node *first = b.g->node.v[0];
    b.g->node.v[0] = b.g->node.v[1];
    b.g->node.v[1] = first;
    bm_input(&b, "w", OQ_FLOAT, "2,1,3,3");
    inner_of(&b)->node.v[0]->output.v[0] = OQ_S("y");
    inner_of(&b)->output.v[0]->name = OQ_S("y");
    add_function(&b, "f", "g");
    add_function(&b, "h", "g");
    add_function(&b, "g", "elsewhere");
    const int64_t nibbles[] = {1, 2, 3};
    const int64_t dims[] = {3};
    oq_tensor *t = oq_tensor_new(b.a, OQ_S("i4"), OQ_INT4, dims, 1);
    assert_int_equal(oq_tensor_set_typed_i(b.a, t, nibbles, 3, &err), ONQ_OK);
    assert_true(oq_graph_add_init(b.a, b.g, t));
    if (oq_model_check(b.m, &err) != ONQ_OK)
        fail_msg("%s", err.text);
    /* A branch that comes with the call of a function. */
    oq_attribute *branch = b.g->node.v[2]->attribute.v[1];
    branch->g = NULL;
    branch->ref_attr_name = OQ_S("otherwise");
    if (oq_model_check(b.m, &err) != ONQ_OK)
        fail_msg("%s", err.text);
    /* IR versions 1 and 2 import no opset. */
    b.m->proto->functions.n = 0;
    b.m->proto->opset_import.n = 0;
    b.m->proto->ir_version = OQ_I64(2);
    if (oq_model_check(b.m, &err) != ONQ_OK)
        fail_msg("%s", err.text);
    bm_end(&b);
}

/* Functions that call each other twice each: 2^60 calls if they were expanded. */
static void functions_are_not_expanded(void **state) {
    (void)state;
    enum { LEVELS = 60 };
    bm b;
    onq_error err = ONQ_ERROR_INIT;
    char name[16], next[16];
    good(&b);
    for (int i = 0; i < LEVELS; i++) {
        snprintf(name, sizeof name, "f%d", i);
        snprintf(next, sizeof next, "f%d", i + 1);
        add_function(&b, name, next);
        oq_function *f = b.m->proto->functions.v[i];
        oq_node *again = oq_node_new(b.a, bm_str(&b, next).p, OQ_S("again"));
        again->domain = OQ_S("local");
        assert_true(OQ_PUSH(b.a, &f->node, again));
    }
    if (oq_model_check(b.m, &err) != ONQ_OK)
        fail_msg("%s", err.text);
    /* The graph calls none of them. */
    const uint64_t own = b.m->proto->graph->node.n + 1; /* and the one inside If */
    uint64_t stored, expanded;
    assert_int_equal(oq_model_expanded(b.m, &stored, &expanded, &err), ONQ_OK);
    assert_true(stored == own + 2 * LEVELS && expanded == own);
    oq_node *call = oq_node_new(b.a, "f50", OQ_S("call"));
    call->domain = OQ_S("local");
    assert_true(OQ_PUSH(b.a, &b.m->proto->graph->node, call));
    assert_int_equal(oq_model_expanded(b.m, &stored, &expanded, &err), ONQ_OK);
    assert_true(expanded == own + 1 + (2u << 10) - 2);
    call->op_type = OQ_S("f0");
    assert_int_equal(oq_model_expanded(b.m, &stored, &expanded, &err), ONQ_OK);
    assert_true(expanded == own + 1 + ((uint64_t)2 << 60) - 2);
    bm_end(&b);
}

/* Names are data: control bytes are shown escaped, a long one is cut, a NUL ends the name but
 * not the message. */
static void names_in_messages(void **state) {
    (void)state;
    bm b;
    onq_error err = ONQ_ERROR_INIT;
    good(&b);
    b.g->node.v[0]->name = OQ_S("a\xff");
    assert_int_equal(oq_model_check(b.m, &err), ONQ_E_INVALID);
    assert_non_null(strstr(err.text, "'a\\xff' (Conv): name, type or domain is not valid UTF-8"));
    b.g->node.v[0]->name = OQ_S("a\x1b[31m\0b");
    b.g->node.v[0]->input.v[0] = OQ_S("no\xc3\x28");
    assert_int_equal(oq_model_check(b.m, &err), ONQ_E_INVALID);
    assert_non_null(strstr(err.text, "the name of tensor 'no\\xc3(' is not valid UTF-8"));
    b.g->node.v[0]->input.v[0] = OQ_S("no\nwhere");
    assert_int_equal(oq_model_check(b.m, &err), ONQ_E_INVALID);
    assert_non_null(strstr(err.text, "'a\\x1b[31m' (Conv)"));
    assert_non_null(strstr(err.text, "no\\x0awhere"));
    for (const char *p = err.text; *p != '\0'; p++)
        assert_true((unsigned char)*p >= 0x20 && *p != 0x7f);

    const size_t n = 1 << 20;
    char *name = oq_arena_alloc(b.a, n);
    memset(name, 'n', n);
    b.g->node.v[0]->name = (oq_str){name, n};
    assert_int_equal(oq_model_check(b.m, &err), ONQ_E_INVALID);
    assert_true(strlen(err.text) < sizeof err.text);
    assert_non_null(strstr(err.text, "'no\\x0awhere'"));
    bm_end(&b);
}

/* A long chain, a wide fan, a node with many attributes, many initializers: linear time. */
static void large_graphs(void **state) {
    (void)state;
    enum { CHAIN = 50000, FAN = 5000, ATTRIBUTES = 20000 };
    bm b;
    char in[32], out[32];
    onq_error err = ONQ_ERROR_INIT;
    bm_begin(&b, NULL, 13);
    bm_input(&b, "t0", OQ_FLOAT, "1");
    for (int i = 0; i < CHAIN; i++) {
        snprintf(in, sizeof in, "t%d w%d", i, i);
        snprintf(out, sizeof out, "t%d", i + 1);
        bm_node(&b, "Add", out, in, out, "");
        bm_weight(&b, strchr(in, ' ') + 1, "1", 1);
    }
    for (int i = 0; i < FAN; i++) {
        snprintf(out, sizeof out, "f%d", i);
        bm_node(&b, "Neg", out, "t50000", out, "");
    }
    for (int i = 0; i < ATTRIBUTES; i++) {
        oq_attribute *a = OQ_NEW(b.a, oq_attribute);
        a->name = oq_str_format(b.a, "a%d", i);
        a->type = OQ_I32(OQ_ATTR_INT);
        assert_true(OQ_PUSH(b.a, &b.g->node.v[0]->attribute, a));
    }
    const clock_t start = clock();
    if (oq_model_check(b.m, &err) != ONQ_OK)
        fail_msg("%s", err.text);
    assert_cpu_seconds(start, 5.0);
    b.g->node.v[0]->attribute.v[ATTRIBUTES - 1]->name = OQ_S("a7");
    assert_int_equal(oq_model_check(b.m, &err), ONQ_E_INVALID);
    assert_non_null(strstr(err.text, "attribute 'a7' occurs twice"));
    bm_end(&b);
}

/* The check after edits, of a library that has asserts. */
#pragma weak oq_assert_valid

static void broken_edits_abort(void **state) {
    (void)state;
    if (oq_assert_valid == NULL)
        skip();
    bm b;
    good(&b);
    oq_assert_valid(b.m, "a good edit");
    b.g->node.v[1]->input.v[0] = OQ_S("gone");
    fflush(NULL);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        signal(SIGABRT, SIG_DFL);
        oq_assert_valid(b.m, "a bad edit");
        _exit(0);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    bm_end(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_good_model_passes), cmocka_unit_test(each_fault_is_found),
        cmocka_unit_test(what_is_allowed),     cmocka_unit_test(functions_are_not_expanded),
        cmocka_unit_test(names_in_messages),   cmocka_unit_test(large_graphs),
        cmocka_unit_test(broken_edits_abort),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
