/* test_compare.c — planted differences are each found, what has no effect is soft, and equal
 * models are equal. */
#include "build_model.h"
#include "onnx/compare/compare.h"
#include "testing.h"

#include <stdio.h>
#include <string.h>

/* x -> Conv(w, b) -> Relu -> Add(c) -> y; and an If that uses t. */
static void make(bm *b) {
    static const float bias[] = {0.5f, -0.25f}, c[] = {1.0f};
    static const int64_t shape[] = {1, -1};
    bm_begin(b, NULL, 13);
    bm_input(b, "x", OQ_FLOAT, "N,1,4,4");
    bm_input(b, "cond", OQ_BOOL, "");
    bm_weight(b, "w", "2,1,3,3", 1);
    bm_f32(b, "b", "2", bias);
    bm_f32(b, "c", "1", c);
    bm_i64(b, "shape", "2", shape);
    bm_node(b, "Conv", "conv", "x w b", "t", "pads=[1,1,1,1] auto_pad='NOTSET'");
    bm_node(b, "Relu", "relu", "t", "u", "");
    bm_node(b, "Add", "add", "u c", "v", "");
    bm_node(b, "Reshape", "reshape", "v shape", "y", "allowzero=0");
    bm_node(b, "LeakyRelu", "leaky", "t", "k", "alpha=0.125");
    oq_node *n = bm_node(b, "If", "if", "cond", "r", "");
    oq_graph *around = bm_enter(b, n, "then_branch");
    bm_node(b, "Neg", "neg", "t", "i", "");
    bm_output(b, "i", OQ_FLOAT, NULL);
    bm_leave(b, around);
    around = bm_enter(b, n, "else_branch");
    bm_f32(b, "e", "1", c);
    bm_node(b, "Mul", "mul", "t e", "j", "");
    bm_output(b, "j", OQ_FLOAT, NULL);
    bm_leave(b, around);
    bm_info(b, "t", OQ_FLOAT, "N,2,4,4");
    bm_output(b, "y", OQ_FLOAT, "1,M");
    bm_output(b, "r", OQ_FLOAT, NULL);
    bm_output(b, "k", OQ_FLOAT, NULL);
}

typedef struct found {
    uint64_t count[OQ_DIFF_COUNT];
    char text[4000];
} found;

static onq_code on_found(void *ctx, const oq_difference *d, onq_error *err) {
    found *f = ctx;
    (void)err;
    f->count[d->kind]++;
    const size_t n = strlen(f->text);
    snprintf(f->text + n, sizeof f->text - n, "%s|%.*s|%.*s|%.*s\n", oq_diff_name(d->kind),
             (int)d->where.n, d->where.p, (int)d->name.n, d->name.p, (int)d->text.n, d->text.p);
    return ONQ_OK;
}

static found compare(bm *a, bm *b, oq_compare how) {
    found f = {0};
    onq_error err = ONQ_ERROR_INIT;
    oq_arena scratch;
    oq_arena_init(&scratch, &a->env->alloc);
    how.found = on_found;
    how.ctx = &f;
    assert_ok(oq_compare_models(&how, &scratch, a->m, b->m, &err), err);
    oq_arena_release(&scratch);
    return f;
}

static uint64_t hard(const found *f) {
    uint64_t n = 0;
    for (int k = 0; k < OQ_DIFF_NODE_NAME; k++)
        n += f->count[k];
    return n;
}

static uint64_t all(const found *f) {
    uint64_t n = 0;
    for (int k = 0; k < OQ_DIFF_COUNT; k++)
        n += f->count[k];
    return n;
}

/* ---- what is planted ---- */

static oq_node *node(bm *b, const char *name) {
    for (size_t i = 0; i < b->g->node.n; i++)
        if (oq_str_is(b->g->node.v[i]->name, name))
            return b->g->node.v[i];
    fail_msg("no node %s", name);
    return NULL;
}

static float *weights(bm *b, const char *name) {
    oq_tensor *t = oq_graph_find_init(b->g, oq_str_of(name));
    return (float *)(uintptr_t)t->raw_data.p;
}

static void p_value(bm *b) {
    float *w = weights(b, "w");
    uint32_t bits; /* by the last bit */
    memcpy(&bits, &w[7], 4);
    bits ^= 1;
    memcpy(&w[7], &bits, 4);
}
static void p_value_sign_of_zero(bm *b) {
    weights(b, "c")[0] = -0.0f;
}
static void p_dims(bm *b) {
    oq_graph_find_init(b->g, OQ_S("b"))->dims.v[0] = 1;
    oq_graph_find_init(b->g, OQ_S("b"))->raw_data.n = 4;
}
static void p_dtype(bm *b) {
    oq_graph_find_init(b->g, OQ_S("b"))->data_type = OQ_I32(OQ_INT32);
}
static void p_init_missing(bm *b) {
    assert_true(oq_graph_remove_init(b->g, OQ_S("b")));
}
static void p_init_more(bm *b) {
    bm_weight(b, "more", "2", 3);
}
static void p_op_type(bm *b) {
    node(b, "relu")->op_type = OQ_S("Sigmoid");
}
static void p_domain(bm *b) {
    node(b, "relu")->domain = OQ_S("com.example");
}
static void p_input(bm *b) {
    node(b, "add")->input.v[0] = OQ_S("t");
}
static void p_input_count(bm *b) {
    node(b, "conv")->input.n = 2;
}
static void p_node_missing(bm *b) {
    oq_node *n = node(b, "leaky");
    bool drop[16] = {0};
    for (size_t i = 0; i < b->g->node.n; i++)
        drop[i] = b->g->node.v[i] == n;
    oq_graph_remove_nodes(b->g, drop);
}
static void p_node_more(bm *b) {
    bm_node(b, "Abs", "abs", "t", "z", "");
}
static void p_tensor_renamed(bm *b) {
    node(b, "relu")->output.v[0] = OQ_S("u2");
    node(b, "add")->input.v[0] = OQ_S("u2");
}
static void p_attr_ints(bm *b) {
    oq_attr_find(node(b, "conv"), "pads")->ints.v[2] = 2;
}
static void p_attr_string(bm *b) {
    oq_attr_find(node(b, "conv"), "auto_pad")->s = OQ_S("VALID");
}
static void p_attr_float(bm *b) {
    oq_attr_find(node(b, "leaky"), "alpha")->f = OQ_F32(0.25f);
}
static void p_attr_int(bm *b) {
    oq_attr_find(node(b, "reshape"), "allowzero")->i = OQ_I64(1);
}
static void p_attr_missing(bm *b) {
    assert_true(oq_attr_remove(node(b, "conv"), "pads"));
}
static void p_attr_more(bm *b) {
    bm_attributes(b, node(b, "conv"), "group=1");
}
static void p_attr_type(bm *b) {
    oq_attribute *a = oq_attr_find(node(b, "reshape"), "allowzero");
    a->type = OQ_I32(OQ_ATTR_FLOAT);
}
static void p_inner_op(bm *b) {
    oq_attr_find(node(b, "if"), "then_branch")->g->node.v[0]->op_type = OQ_S("Abs");
}
static void p_inner_value(bm *b) {
    oq_graph *g = oq_attr_find(node(b, "if"), "else_branch")->g;
    *(float *)(uintptr_t)g->initializer.v[0]->raw_data.p = 2.0f;
}
static void p_input_type(bm *b) {
    b->g->input.v[0]->type->tensor_type->elem_type = OQ_I32(OQ_DOUBLE);
}
static void p_input_dim(bm *b) {
    b->g->input.v[0]->type->tensor_type->shape->dim.v[2]->dim_value = OQ_I64(8);
}
static void p_input_rank(bm *b) {
    b->g->input.v[0]->type->tensor_type->shape->dim.n = 3;
}
static void p_input_name(bm *b) {
    b->g->input.v[1]->name = OQ_S("condition");
    node(b, "if")->input.v[0] = OQ_S("condition");
}
static void p_outputs_swapped(bm *b) {
    oq_value_info *v = b->g->output.v[0];
    b->g->output.v[0] = b->g->output.v[2];
    b->g->output.v[2] = v;
}
static void p_output_missing(bm *b) {
    b->g->output.n = 2;
}
static void p_opset(bm *b) {
    b->m->proto->opset_import.v[0]->version = OQ_I64(14);
}
static void p_opset_more(bm *b) {
    onq_error err = ONQ_ERROR_INIT;
    assert_ok(oq_model_set_opset(b->m, OQ_S("com.microsoft"), 1, &err), err);
}
static oq_function *add_function(bm *b, const char *domain) {
    oq_function *f = OQ_NEW(b->a, oq_function);
    f->name = OQ_S("F");
    f->domain = oq_str_of(domain);
    assert_true(OQ_PUSH(b->a, &f->input, OQ_S("p")));
    assert_true(OQ_PUSH(b->a, &f->node,
                        oq_node_make(b->a, "Neg", OQ_S("n"), &OQ_S("p"), 1, &OQ_S("q"), 1)));
    assert_true(OQ_PUSH(b->a, &b->m->proto->functions, f));
    return f;
}
static void p_function(bm *b) {
    add_function(b, "com.example");
}
static void p_training(bm *b) {
    assert_true(OQ_PUSH(b->a, &b->m->proto->training_info, OQ_NEW(b->a, oq_training)));
}

/* Soft ones. */
static void s_node_name(bm *b) {
    node(b, "relu")->name = OQ_S("other");
}
static void s_dim_name(bm *b) {
    b->g->input.v[0]->type->tensor_type->shape->dim.v[0]->dim_param = OQ_S("batch");
}
static void s_dim_known(bm *b) {
    oq_dim *d = b->g->input.v[0]->type->tensor_type->shape->dim.v[0];
    d->dim_param = (oq_str){NULL, 0};
    d->dim_value = OQ_I64(1);
}
static void s_value_info(bm *b) {
    b->g->value_info.n = 0;
}
static void s_value_info_type(bm *b) {
    b->g->value_info.v[0]->type->tensor_type->elem_type = OQ_I32(OQ_DOUBLE);
}
static void s_order(bm *b) {
    oq_node *n = b->g->node.v[4]; /* leaky is alone after conv */
    b->g->node.v[4] = b->g->node.v[3];
    b->g->node.v[3] = n;
}
static void s_init_order(bm *b) {
    oq_tensor *t = b->g->initializer.v[0];
    b->g->initializer.v[0] = b->g->initializer.v[1];
    b->g->initializer.v[1] = t;
}
static void s_ir_version(bm *b) {
    b->m->proto->ir_version = OQ_I64(9);
}
static void s_producer(bm *b) {
    b->m->proto->producer_name = OQ_S("another tool");
}
static void s_doc(bm *b) {
    node(b, "relu")->doc_string = OQ_S("said otherwise");
}
static void s_metadata(bm *b) {
    onq_error err = ONQ_ERROR_INIT;
    assert_ok(oq_model_set_metadata(b->m, OQ_S("key"), OQ_S("value"), &err), err);
}
static void s_graph_name(bm *b) {
    b->g->name = OQ_S("another name");
}
static void s_annotation(bm *b) {
    oq_annotation *a = OQ_NEW(b->a, oq_annotation);
    a->tensor_name = OQ_S("t");
    assert_true(OQ_PUSH(b->a, &b->g->quantization_annotation, a));
}
static void s_model_version(bm *b) {
    b->m->proto->model_version = OQ_I64(7);
}
static void s_unknown(bm *b) {
    static const uint8_t field[] = {0xfa, 0x07, 0x01, 0x41}; /* number 127, one byte */
    oq_unknown *u = OQ_NEW(b->a, oq_unknown);
    u->span = (oq_span){field, sizeof field};
    b->g->m.unknown = u;
}

typedef struct plant {
    const char *name;
    void (*change)(bm *b);
    oq_diff_kind kind;
    const char *says; /* part of what is reported */
} plant;

static const plant plants[] = {
    {"value", p_value, OQ_DIFF_VALUE, "value||w|1 of 18 values differ"},
    {"sign of zero", p_value_sign_of_zero, OQ_DIFF_VALUE, "value||c|1 of 1"},
    {"dims", p_dims, OQ_DIFF_INITIALIZER, "initializer||b|FLOAT[2] vs FLOAT[1]"},
    {"dtype", p_dtype, OQ_DIFF_INITIALIZER, "initializer||b|FLOAT[2] vs INT32[2]"},
    {"initializer missing", p_init_missing, OQ_DIFF_INITIALIZER,
     "||b|initializer only in the first"},
    {"initializer more", p_init_more, OQ_DIFF_INITIALIZER, "||more|initializer only in the second"},
    {"op_type", p_op_type, OQ_DIFF_NODE, "node||relu|operator Relu vs Sigmoid"},
    {"domain", p_domain, OQ_DIFF_NODE, "operator Relu vs com.example:Relu"},
    {"input", p_input, OQ_DIFF_NODE, "node||add|input 0: 'u' vs 't'"},
    {"input count", p_input_count, OQ_DIFF_NODE, "node||conv|3 inputs vs 2 inputs"},
    {"node missing", p_node_missing, OQ_DIFF_NODE, "node||leaky|LeakyRelu, only in the first"},
    {"node more", p_node_more, OQ_DIFF_NODE, "node||abs|Abs, only in the second"},
    {"tensor renamed", p_tensor_renamed, OQ_DIFF_NODE, "node||relu|output 0: 'u' vs 'u2'"},
    {"attribute ints", p_attr_ints, OQ_DIFF_ATTRIBUTE, "||conv|pads: [1, 1, 1, 1] vs [1, 1, 2, 1]"},
    {"attribute string", p_attr_string, OQ_DIFF_ATTRIBUTE, "auto_pad: 'NOTSET' vs 'VALID'"},
    {"attribute float", p_attr_float, OQ_DIFF_ATTRIBUTE, "alpha: 0.125 vs 0.25"},
    {"attribute int", p_attr_int, OQ_DIFF_ATTRIBUTE, "allowzero: 0 vs 1"},
    {"attribute missing", p_attr_missing, OQ_DIFF_ATTRIBUTE, "pads: only in the first"},
    {"attribute more", p_attr_more, OQ_DIFF_ATTRIBUTE, "group: only in the second"},
    {"attribute type", p_attr_type, OQ_DIFF_ATTRIBUTE, "allowzero: type INT vs FLOAT"},
    {"inner op", p_inner_op, OQ_DIFF_NODE, "node|then_branch of 'if'|neg|operator Neg vs Abs"},
    {"inner value", p_inner_value, OQ_DIFF_VALUE, "value|else_branch of 'if'|e|1 of 1"},
    {"input type", p_input_type, OQ_DIFF_INPUT, "FLOAT[N, 1, 4, 4] vs DOUBLE[N, 1, 4, 4]"},
    {"input dim", p_input_dim, OQ_DIFF_INPUT, "FLOAT[N, 1, 4, 4] vs FLOAT[N, 1, 8, 4]"},
    {"input rank", p_input_rank, OQ_DIFF_INPUT, "FLOAT[N, 1, 4, 4] vs FLOAT[N, 1, 4]"},
    {"input name", p_input_name, OQ_DIFF_INPUT, "input 1: 'cond' vs 'condition'"},
    {"outputs swapped", p_outputs_swapped, OQ_DIFF_OUTPUT, "output 0: 'y' vs 'k'"},
    {"output missing", p_output_missing, OQ_DIFF_OUTPUT, "3 outputs vs 2 outputs"},
    {"opset", p_opset, OQ_DIFF_OPSET, "version 13 vs 14"},
    {"opset more", p_opset_more, OQ_DIFF_OPSET, "opset||com.microsoft|version 0 vs 1"},
    {"function", p_function, OQ_DIFF_FUNCTION,
     "function||com.example:F|function only in the second"},
    {"training", p_training, OQ_DIFF_TRAINING, "0 training_info vs 1"},
    {"node name", s_node_name, OQ_DIFF_NODE_NAME, "'relu' vs 'other'"},
    {"dim name", s_dim_name, OQ_DIFF_DIMENSION, "FLOAT[N, 1, 4, 4] vs FLOAT[batch, 1, 4, 4]"},
    {"dim known", s_dim_known, OQ_DIFF_DIMENSION, "FLOAT[N, 1, 4, 4] vs FLOAT[1, 1, 4, 4]"},
    {"value_info", s_value_info, OQ_DIFF_VALUE_INFO, "||t|value_info only in the first"},
    {"value_info type", s_value_info_type, OQ_DIFF_VALUE_INFO, "FLOAT[N, 2, 4, 4] vs DOUBLE"},
    {"order", s_order, OQ_DIFF_ORDER, "the nodes are in another order"},
    {"initializer order", s_init_order, OQ_DIFF_ORDER, "the initializers are in another order"},
    {"IR version", s_ir_version, OQ_DIFF_IR_VERSION, "8 vs 9"},
    {"producer", s_producer, OQ_DIFF_PRODUCER, "another tool"},
    {"doc", s_doc, OQ_DIFF_DOC, "doc_string of the node"},
    {"metadata", s_metadata, OQ_DIFF_METADATA, "metadata_props of the model"},
    {"graph name", s_graph_name, OQ_DIFF_METADATA, "another name"},
    {"annotation", s_annotation, OQ_DIFF_ANNOTATION, "||t|"},
    {"model version", s_model_version, OQ_DIFF_OTHER, "model_version"},
    {"unknown field", s_unknown, OQ_DIFF_OTHER, "unknown fields of the graph"},
};

static void each_planted_difference_is_found(void **state) {
    (void)state;
    for (size_t i = 0; i < OQ_COUNT(plants); i++) {
        bm a, b;
        make(&a);
        make(&b);
        plants[i].change(&b);
        const found f = compare(&a, &b, (oq_compare){0});
        if (f.count[plants[i].kind] == 0 || strstr(f.text, plants[i].says) == NULL)
            fail_msg("%s: not found in:\n%s", plants[i].name, f.text);
        if (plants[i].kind >= OQ_DIFF_FIRST_SOFT && hard(&f) != 0)
            fail_msg("%s: counts as a difference:\n%s", plants[i].name, f.text);
        /* The other way round as well. */
        const found g = compare(&b, &a, (oq_compare){0});
        if (g.count[plants[i].kind] == 0)
            fail_msg("%s: not found from the other side:\n%s", plants[i].name, g.text);
        bm_end(&a);
        bm_end(&b);
    }
}

static void equal_models_are_equal(void **state) {
    (void)state;
    bm a, b;
    make(&a);
    make(&b);
    found f = compare(&a, &b, (oq_compare){0});
    assert_int_equal(all(&f), 0);
    f = compare(&a, &a, (oq_compare){.rename = true});
    assert_int_equal(all(&f), 0);
    f = compare(&a, &b, (oq_compare){.rename = true});
    assert_int_equal(all(&f), 0);
    bm_end(&a);
    bm_end(&b);
}

/* Storage, explicit defaults and trailing empty inputs are no difference. */
static void ways_of_writing_are_equal(void **state) {
    (void)state;
    static const double bias[] = {0.5, -0.25};
    onq_error err = ONQ_ERROR_INIT;
    bm a, b;
    make(&a);
    make(&b);
    oq_tensor *t = oq_graph_find_init(b.g, OQ_S("b"));
    oq_tensor_clear_data(t);
    assert_ok(oq_tensor_set_typed_f(b.a, t, bias, 2, &err), err);
    assert_true(oq_node_add_input(b.a, node(&b, "relu"), OQ_S("")));
    node(&b, "relu")->domain = OQ_S("ai.onnx");
    b.m->proto->opset_import.v[0]->domain = OQ_S("ai.onnx");
    node(&b, "add")->doc_string = OQ_S("");
    const found f = compare(&a, &b, (oq_compare){0});
    if (all(&f) != 0)
        fail_msg("%s", f.text);
    bm_end(&a);
    bm_end(&b);
}

/* A domain at two versions: whether that is the other model's, nobody can say. */
static void a_domain_imported_twice(void **state) {
    (void)state;
    bm a, b;
    oq_arena scratch;
    onq_error err = ONQ_ERROR_INIT;
    make(&a);
    make(&b);
    oq_arena_init(&scratch, &a.env->alloc);
    found f = {0};
    const oq_compare how = {.found = on_found, .ctx = &f};
    oq_opset *more = OQ_NEW(b.a, oq_opset);
    more->domain = OQ_S("ai.onnx");
    more->version = OQ_I64(12);
    assert_true(OQ_PUSH(b.a, &b.m->proto->opset_import, more));
    bm *const pairs[][2] = {{&a, &b}, {&b, &a}, {&b, &b}};
    for (size_t i = 0; i < OQ_COUNT(pairs); i++)
        assert_fails(oq_compare_models(&how, &scratch, pairs[i][0]->m, pairs[i][1]->m, &err),
                     ONQ_E_INVALID, err, "as version 13 and as version 12");
    more->version = OQ_I64(13);
    assert_ok(oq_compare_models(&how, &scratch, a.m, b.m, &err), err);
    oq_arena_release(&scratch);
    bm_end(&a);
    bm_end(&b);
}

static void tolerance(void **state) {
    (void)state;
    bm a, b;
    make(&a);
    make(&b);
    weights(&b, "b")[0] = 0.501f;
    oq_attr_find(node(&b, "leaky"), "alpha")->f = OQ_F32(0.1251f);
    found f = compare(&a, &b, (oq_compare){0});
    assert_int_equal(hard(&f), 2);
    f = compare(&a, &b, (oq_compare){.atol = 0.01});
    assert_int_equal(all(&f), 0);
    f = compare(&a, &b, (oq_compare){.atol = 0.0005});
    assert_int_equal(f.count[OQ_DIFF_VALUE], 1);
    assert_int_equal(f.count[OQ_DIFF_ATTRIBUTE], 0);
    f = compare(&a, &b, (oq_compare){.rtol = 0.01});
    assert_int_equal(all(&f), 0);
    weights(&b, "b")[1] = (float)0x1p-200; /* 0 */
    weights(&a, "b")[1] = 0.0f;
    f = compare(&a, &b, (oq_compare){.rtol = 0.01});
    assert_int_equal(all(&f), 0);
    bm_end(&a);
    bm_end(&b);
}

static void not_a_number(void **state) {
    (void)state;
    bm a, b;
    make(&a);
    make(&b);
    const float nan = __builtin_nanf("");
    weights(&a, "b")[0] = nan;
    found f = compare(&a, &b, (oq_compare){.atol = 100});
    assert_int_equal(f.count[OQ_DIFF_VALUE], 1);
    weights(&b, "b")[0] = nan;
    f = compare(&a, &b, (oq_compare){.atol = 100});
    assert_int_equal(all(&f), 0);
    bm_end(&a);
    bm_end(&b);
}

/* Numbers past 2^53 that a double cannot distinguish; packed types whose padding differs. */
static void wide_and_packed(void **state) {
    (void)state;
    static const int64_t one[] = {(1ll << 62) + 1}, other[] = {(1ll << 62) + 2};
    static const uint8_t p[] = {0x21, 0x03}, q[] = {0x21, 0xf3}, r[] = {0x31, 0x03};
    bm a, b;
    bm_begin(&a, NULL, 21);
    bm_begin(&b, NULL, 21);
    bm_i64(&a, "wide", "1", one);
    bm_i64(&b, "wide", "1", other);
    bm_raw(&a, "padding", OQ_UINT4, "3", p, 2);
    bm_raw(&b, "padding", OQ_UINT4, "3", q, 2);
    bm_raw(&a, "nibble", OQ_INT4, "3", p, 2);
    bm_raw(&b, "nibble", OQ_INT4, "3", r, 2);
    const found f = compare(&a, &b, (oq_compare){0});
    assert_int_equal(f.count[OQ_DIFF_VALUE], 2);
    assert_non_null(strstr(f.text, "value||wide|1 of 1"));
    assert_non_null(
        strstr(f.text, "value||nibble|1 of 3 values differ, by up to 1; first at [1]: 2 vs 3"));
    bm_end(&a);
    bm_end(&b);
}

/* ---- without names ---- */

static void rename_uses(bm *b, oq_str from, oq_str to) {
    onq_error err = ONQ_ERROR_INIT;
    oq_map map;
    oq_map_init(&map, b->a);
    assert_true(oq_map_put(&map, from, 0));
    assert_ok(oq_graph_replace_many(b->m, b->g, &map, &to, &err), err);
}

/* Every tensor, node and initializer called otherwise; nodes and initializers in another order. */
static void rename_all(bm *b) {
    for (size_t i = 0; i < b->g->initializer.n; i++) {
        oq_tensor *t = b->g->initializer.v[i];
        const oq_str to = oq_str_cat(b->a, OQ_S("n_"), t->name);
        rename_uses(b, t->name, to);
        t->name = to;
    }
    for (size_t i = 0; i < b->g->node.n; i++) {
        oq_node *n = b->g->node.v[i];
        n->name = oq_str_cat(b->a, OQ_S("node_"), n->name);
        for (size_t k = 0; k < n->output.n; k++) {
            const oq_str from = n->output.v[k], to = oq_str_cat(b->a, OQ_S("m_"), from);
            rename_uses(b, from, to);
            n->output.v[k] = to;
            for (size_t o = 0; o < b->g->output.n; o++)
                if (oq_str_eq(b->g->output.v[o]->name, from))
                    b->g->output.v[o]->name = to;
        }
    }
    s_order(b);
    s_init_order(b);
}

static void names_may_be_ignored(void **state) {
    (void)state;
    bm a, b;
    make(&a);
    make(&b);
    rename_all(&b);
    found f = compare(&a, &b, (oq_compare){0});
    assert_true(hard(&f) > 5);
    f = compare(&a, &b, (oq_compare){.rename = true});
    if (hard(&f) != 0)
        fail_msg("%s", f.text);
    bm_end(&a);
    bm_end(&b);
}

/* What is planted is found under other names too, and nothing else is reported than what it brings
 * along. */
static void planted_differences_without_names(void **state) {
    (void)state;
    for (size_t i = 0; i < OQ_COUNT(plants); i++) {
        const plant *p = &plants[i];
        /* Names are what these change; an initializer that nothing uses has no place in the
         * graph. */
        if (p->change == p_tensor_renamed || p->change == p_input_name ||
            p->change == p_init_more || p->change == p_init_missing ||
            p->kind >= OQ_DIFF_FIRST_SOFT)
            continue;
        bm a, b;
        make(&a);
        make(&b);
        p->change(&b);
        rename_all(&b);
        const found f = compare(&a, &b, (oq_compare){.rename = true});
        if (hard(&f) == 0)
            fail_msg("%s: not found without names", p->name);
        bm_end(&a);
        bm_end(&b);
    }
}

static void a_changed_weight_is_one_difference(void **state) {
    (void)state;
    bm a, b;
    make(&a);
    make(&b);
    p_value(&b);
    rename_all(&b);
    const found f = compare(&a, &b, (oq_compare){.rename = true});
    if (hard(&f) != 1 || strstr(f.text, "value||w|1 of 18 values differ") == NULL)
        fail_msg("%s", f.text);
    bm_end(&a);
    bm_end(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_planted_difference_is_found),
        cmocka_unit_test(equal_models_are_equal),
        cmocka_unit_test(ways_of_writing_are_equal),
        cmocka_unit_test(a_domain_imported_twice),
        cmocka_unit_test(tolerance),
        cmocka_unit_test(not_a_number),
        cmocka_unit_test(wide_and_packed),
        cmocka_unit_test(names_may_be_ignored),
        cmocka_unit_test(planted_differences_without_names),
        cmocka_unit_test(a_changed_weight_is_one_difference),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
