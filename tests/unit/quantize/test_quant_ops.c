/*
 * test_quant_ops.c — operator cases as text: tests/ops/quant_ops.txt.
 *
 * A case names an operator, builds a graph and lists the nodes that QDQ makes of it. Every row of
 * operators.def with a QDQ slot must have a case, or the test fails by name. With ONQ_ACCEPT=1 in the
 * environment the expected lines are written anew; read the difference before you commit it.
 *
 *     == Conv 13 per_channel          operator, opset, options
 *     input x 1,3,8,8                 float input of the graph (int64:NAME for another type)
 *     weight w 4,3,3,3                float initializer (also: ints NAME v v v, float NAME v)
 *     node Conv x,w -> y attr=1       attributes as build_model.h has them
 *     output y
 *     --
 *     DequantizeLinear w_quantized,w_scale,w_zero_point -> w_DequantizeLinear_Output axis=0
 */
#include "quantize/qdq/qdq.h"
#include "quantize/rules.h"

#include "build_model.h"
#include "onnx/attr.h"
#include "onnx/check.h"
#include "testing.h"

#include <stdio.h>
#include <stdlib.h>

#define LINES 64

typedef struct text_case {
    char head[200];
    char build[LINES][200];
    size_t n_build;
    char want[LINES][400];
    size_t n_want;
} text_case;

/* "a,b" to "a b". */
static char *spaces(char *s) {
    for (char *p = s; *p != '\0'; p++)
        if (*p == ',')
            *p = ' ';
    return s;
}

static bool add_line(bm *b, char *line) {
    char word[32] = "", name[64] = "", rest[160] = "";
    if (sscanf(line, "%31s %63s %159[^\n]", word, name, rest) < 2)
        return false;
    if (strcmp(word, "input") == 0) {
        const bool is_int = strncmp(name, "int64:", 6) == 0;
        return bm_input(b, is_int ? name + 6 : name, is_int ? OQ_INT64 : OQ_FLOAT, rest) != NULL;
    }
    if (strcmp(word, "output") == 0)
        return bm_output(b, name, OQ_FLOAT, NULL) != NULL;
    if (strcmp(word, "weight") == 0)
        return bm_weight(b, name, rest, 3) != NULL;
    if (strcmp(word, "float") == 0) {
        const float v = strtof(rest, NULL);
        return bm_f32(b, name, "", &v) != NULL;
    }
    if (strcmp(word, "ints") == 0) {
        int64_t v[16];
        size_t n = 0;
        for (char *p = strtok(rest, " "); p != NULL && n < 16; p = strtok(NULL, " "))
            v[n++] = strtoll(p, NULL, 10);
        char shape[16];
        snprintf(shape, sizeof shape, "%zu", n);
        return bm_i64(b, name, shape, v) != NULL;
    }
    if (strcmp(word, "node") == 0) {
        char in[128] = "", out[64] = "", attrs[128] = "";
        if (sscanf(rest, "%127s -> %63s %127[^\n]", in, out, attrs) < 2)
            return false;
        return bm_node(b, name, out, spaces(in), spaces(out), attrs) != NULL;
    }
    return false;
}

static void set_options(oq_qconfig *c, const char *head) {
    c->activation_type = strstr(head, "int8") != NULL ? OQ_INT8 : OQ_UINT8;
    c->per_channel = strstr(head, "per_channel") != NULL;
    c->force_quantize_no_input_check = strstr(head, "force") != NULL;
    c->dedicated_qdq_pair = strstr(head, "dedicated") != NULL;
    c->keep_removable_activations = strstr(head, "keep") != NULL;
    c->add_qdq_pair_to_weight = strstr(head, "weight_pair") != NULL;
}

/* Every float tensor that is no initializer gets the range -1 to 2; what comes out of a Relu or
 * Clip, 0 to 2. */
static void set_ranges(oq_ranges *r, bm *b) {
    for (size_t i = 0; i < b->g->node.n; i++) {
        const oq_node *n = b->g->node.v[i];
        for (size_t k = 0; k < n->input.n + n->output.n; k++) {
            const oq_str name = k < n->input.n ? n->input.v[k] : n->output.v[k - n->input.n];
            const bool clipped = k >= n->input.n && oq_op_traits_of(n->op_type)->clips;
            if (oq_ranges_find(r, name) != NULL)
                continue;
            oq_range *t = oq_ranges_add(r, name);
            assert_true(
                oq_num_make_one(&r->arena, &t->lowest, OQ_FLOAT, true, clipped ? 0.0 : -1.0) &&
                oq_num_make_one(&r->arena, &t->highest, OQ_FLOAT, true, 2.0));
        }
    }
}

static void print_node(const oq_node *n, char *out, size_t size) {
    size_t at = (size_t)snprintf(out, size, "%.*s ", OQ_STR(n->op_type));
    for (size_t i = 0; i < n->input.n; i++)
        at += (size_t)snprintf(out + at, size - at, "%s%.*s", i > 0 ? "," : "",
                               OQ_STR(n->input.v[i]));
    at += (size_t)snprintf(out + at, size - at, " -> ");
    for (size_t i = 0; i < n->output.n; i++)
        at += (size_t)snprintf(out + at, size - at, "%s%.*s", i > 0 ? "," : "",
                               OQ_STR(n->output.v[i]));
    if (oq_attr_find(n, "axis") != NULL && oq_str_ends(n->op_type, OQ_S("uantizeLinear")))
        snprintf(out + at, size - at, " axis=%lld", (long long)oq_attr_int(n, "axis", 0));
}

/* Builds, quantizes, and lists the nodes. */
static size_t run_case(text_case *c, char got[LINES][400]) {
    char op[64];
    int opset;
    bm b;
    oq_arena a;
    oq_qconfig config;
    oq_ranges ranges;
    oq_plan plan;
    oq_shapes *shapes;
    onq_error err = ONQ_ERROR_INIT;
    if (sscanf(c->head, "== %63s %d", op, &opset) != 2)
        fail_msg("'%s' is not '== OPERATOR OPSET OPTIONS'", c->head);
    bm_begin(&b, NULL, opset);
    for (size_t i = 0; i < c->n_build; i++) {
        char line[200];
        snprintf(line, sizeof line, "%s", c->build[i]);
        if (!add_line(&b, line))
            fail_msg("%s: bad line '%s'", c->head, c->build[i]);
    }
    oq_arena_init(&a, oq_alloc_default());
    oq_qconfig_init(&config, &a);
    oq_ranges_init(&ranges, oq_alloc_default(), OQ_CAL_MINMAX);
    oq_plan_init(&plan, &a);
    set_options(&config, c->head);
    set_ranges(&ranges, &b);
    assert_ok(oq_shapes_infer(b.m, NULL, &shapes, &err), err);
    const oq_qdq_job job = {
        .model = b.m, .config = &config, .ranges = &ranges, .shapes = shapes, .plan = &plan};
    assert_ok(oq_qdq_run(&job, &err), err);
    assert_ok(oq_model_check(b.m, &err), err);
    const size_t n = b.g->node.n < LINES ? b.g->node.n : LINES;
    for (size_t i = 0; i < n; i++)
        print_node(b.g->node.v[i], got[i], 400);
    oq_shapes_free(shapes);
    oq_ranges_release(&ranges);
    oq_qconfig_release(&config);
    oq_arena_release(&a);
    bm_end(&b);
    return n;
}

static FILE *open_cases(const char *mode) {
    char path[1000];
    const char *root = getenv("ONQ_ROOT");
    snprintf(path, sizeof path, "%s/tests/ops/quant_ops.txt", root != NULL ? root : ".");
    FILE *f = fopen(path, mode);
    if (f == NULL)
        fail_msg("%s cannot be opened", path);
    return f;
}

/* The next case; `pending` holds the head of the one behind it. */
static bool next_case(FILE *f, text_case *c, char *pending) {
    char line[400];
    bool building = true;
    c->n_build = c->n_want = 0;
    snprintf(c->head, sizeof c->head, "%s", pending);
    while (fgets(line, sizeof line, f) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        if (strncmp(line, "== ", 3) == 0) {
            if (c->head[0] != '\0') {
                snprintf(pending, 200, "%.199s", line);
                return true;
            }
            snprintf(c->head, sizeof c->head, "%.199s", line);
        } else if (strcmp(line, "--") == 0) {
            building = false;
        } else if (line[0] != '\0' && line[0] != '#' && c->head[0] != '\0') {
            assert_true(c->n_build < LINES && c->n_want < LINES);
            if (building)
                snprintf(c->build[c->n_build++], 200, "%.199s", line);
            else
                snprintf(c->want[c->n_want++], 400, "%s", line);
        }
    }
    pending[0] = '\0';
    return c->head[0] != '\0';
}

static void accept_all(void) {
    static text_case all[200];
    static char got[LINES][400];
    char pending[200] = "";
    size_t n = 0;
    FILE *f = open_cases("r");
    while (n < OQ_COUNT(all) && next_case(f, &all[n], pending))
        n++;
    fclose(f);
    f = open_cases("w");
    fprintf(f, "# What QDQ makes of each operator. tests/unit/quantize/test_quant_ops.c says how "
               "to read this;\n"
               "# ONQ_ACCEPT=1 writes the lines behind -- anew.\n");
    for (size_t i = 0; i < n; i++) {
        fprintf(f, "\n%s\n", all[i].head);
        for (size_t k = 0; k < all[i].n_build; k++)
            fprintf(f, "%s\n", all[i].build[k]);
        fprintf(f, "--\n");
        const size_t lines = run_case(&all[i], got);
        for (size_t k = 0; k < lines; k++)
            fprintf(f, "%s\n", got[k]);
    }
    fclose(f);
}

static void cases(void **state) {
    (void)state;
    static text_case c;
    static char got[LINES][400];
    char pending[200] = "";
    size_t n_cases = 0;
    bool seen[256] = {false};
    assert_true(oq_operator_count <= sizeof(seen));
    if (getenv("ONQ_ACCEPT") != NULL)
        accept_all();
    FILE *f = open_cases("r");
    while (next_case(f, &c, pending)) {
        char op[64];
        n_cases++;
        assert_int_equal(sscanf(c.head, "== %63s", op), 1);
        const oq_operator *row = oq_operator_find(oq_str_of(op));
        assert_non_null(row);
        seen[row - oq_operators] = true;
        const size_t n = run_case(&c, got);
        for (size_t i = 0; i < n || i < c.n_want; i++)
            if (i >= n || i >= c.n_want || strcmp(got[i], c.want[i]) != 0)
                fail_msg("%s: node %zu is\n  %s\nwanted\n  %s", c.head, i,
                         i < n ? got[i] : "(none)", i < c.n_want ? c.want[i] : "(none)");
    }
    fclose(f);
    assert_true(n_cases > 0);
    for (size_t i = 0; i < oq_operator_count; i++)
        if (oq_rules_of(oq_str_of(oq_operators[i].type))->qdq != NULL && !seen[i])
            fail_msg("%s has no case in tests/ops/quant_ops.txt", oq_operators[i].type);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(cases)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
