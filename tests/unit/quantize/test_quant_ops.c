/*
 * test_quant_ops.c — operator cases as text: tests/ops/quant_ops.txt.
 *
 * A case names an operator and a mode, builds a graph and lists the nodes that the mode makes of
 * it. Every operator must have a case for every mode that knows it, or the test fails by name. With
 * ONQ_ACCEPT=1 in the environment the expected lines are written anew; read the difference before
 * you commit it.
 *
 *     == Conv qdq 13 per_channel      operator, mode, opset, options
 *     input x 1,3,8,8                 float input of the graph (int64:NAME, bool:NAME)
 *     weight w 4,3,3,3                float initializer (also: ints NAME v v v, float NAME v,
 *                                     uint8 NAME v, int8 NAME v)
 *     node Conv x,w -> y attr=1       attributes as build_model.h has them; DOMAIN:TYPE
 *     output y
 *     --
 *     DequantizeLinear w_quantized,w_scale,w_zero_point -> w_DequantizeLinear_Output axis=0
 *
 * Modes: qdq, qlinear (static, QOperator format), integer (dynamic), listed (dynamic, the operator
 * listed by the user); legacy with the mode's name as an option; trained with the format as an
 * option; preset_qdq and preset_qnn.
 */
#include "quantize/legacy/legacy.h"
#include "quantize/override/preset.h"
#include "quantize/qdq/qdq.h"
#include "quantize/qoperator/qoperator.h"
#include "quantize/rules.h"
#include "quantize/trained/trained.h"
#include "shape/sop.h"

#include "build_model.h"
#include "onnx/attr.h"
#include "onnx/check/check.h"
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
        const char *colon = strchr(name, ':');
        const int type = colon == NULL ? OQ_FLOAT : name[0] == 'b' ? OQ_BOOL : OQ_INT64;
        return bm_input(b, colon != NULL ? colon + 1 : name, type, rest) != NULL;
    }
    if (strcmp(word, "output") == 0)
        return bm_output(b, name, OQ_FLOAT, NULL) != NULL;
    if (strcmp(word, "weight") == 0)
        return bm_weight(b, name, rest, 3) != NULL;
    if (strcmp(word, "float") == 0) {
        const float v = strtof(rest, NULL);
        return bm_f32(b, name, "", &v) != NULL;
    }
    if (strcmp(word, "uint8") == 0 || strcmp(word, "int8") == 0) {
        const int8_t v = (int8_t)atoi(rest);
        return bm_raw(b, name, word[0] == 'u' ? OQ_UINT8 : OQ_INT8, "", &v, 1) != NULL;
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
        char *colon = strchr(name, ':');
        const char *type = colon != NULL ? colon + 1 : name;
        oq_node *n = bm_node(b, type, out, spaces(in), spaces(out), attrs);
        if (colon != NULL) {
            *colon = '\0';
            n->domain = bm_str(b, name);
            return oq_model_set_opset(b->m, n->domain, 1, NULL) == ONQ_OK;
        }
        return n != NULL;
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

/* Every float tensor that is not an initializer gets the range -1 to 2; what comes out of a Relu or
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

/* What a run needs, whatever the mode. */
typedef struct setting {
    bm b;
    oq_arena arena;
    oq_qconfig config;
    oq_qrun run;
    oq_overrides overrides;
    oq_ranges ranges;
    oq_plan plan;
    oq_shapes *shapes;
    const char *head;
    bool decide_only;
} setting;

static onq_code run_qdq(setting *s, onq_error *err) {
    const oq_qdq_job job = {.model = s->b.m,
                            .run = &s->run,
                            .overrides = &s->overrides,
                            .ranges = &s->ranges,
                            .shapes = s->shapes,
                            .plan = &s->plan,
                            .decide_only = s->decide_only};
    return oq_qdq_run(&job, err);
}

static onq_code run_qlinear(setting *s, onq_error *err) {
    const oq_qo_job job = {.model = s->b.m,
                           .run = &s->run,
                           .ranges = &s->ranges,
                           .plan = &s->plan,
                           .decide_only = s->decide_only};
    return oq_qo_run(&job, err);
}

static onq_code run_integer(setting *s, onq_error *err) {
    const oq_qo_job job = {
        .model = s->b.m, .run = &s->run, .plan = &s->plan, .decide_only = s->decide_only};
    return oq_qo_run(&job, err);
}

static onq_code run_listed(setting *s, onq_error *err) {
    char op[64];
    assert_int_equal(sscanf(s->head, "== %63s", op), 1);
    assert_ok(oq_pick_add(&s->config.op_types, oq_str_of(op), err), *err);
    return run_integer(s, err);
}

/* Every tensor has zero point 10 and scale 0.05. */
static onq_code run_legacy(setting *s, onq_error *err) {
    static const char *const modes[] = {"IntegerOps_Static", "IntegerOps_Dynamic",
                                        "QLinearOps_Static", "QLinearOps_Dynamic"};
    oq_legacy_params params = {.path = "params"};
    oq_legacy_job job = {.model = s->b.m,
                         .shapes = s->shapes,
                         .per_channel = s->config.per_channel,
                         .inputs = &params,
                         .outputs = &params,
                         .plan = &s->plan,
                         .decide_only = s->decide_only};
    oq_map_init(&params.map, &s->arena);
    for (size_t i = 0; i < s->b.g->node.n; i++)
        for (size_t k = 0; k < s->b.g->node.v[i]->input.n + s->b.g->node.v[i]->output.n; k++) {
            const oq_node *n = s->b.g->node.v[i];
            const oq_legacy_param given = {.q = {0.05f, 10}};
            assert_true(oq_map_put(&params.map,
                                   k < n->input.n ? n->input.v[k] : n->output.v[k - n->input.n],
                                   (uint32_t)params.all.n) &&
                        OQ_PUSH(&s->arena, &params.all, given));
        }
    for (size_t i = 0; i < OQ_COUNT(modes); i++)
        if (strstr(s->head, modes[i]) != NULL)
            job.mode = (oq_legacy_mode)i;
    return oq_legacy_run(&job, err);
}

static onq_code run_trained(setting *s, onq_error *err) {
    const oq_trained_format format = strstr(s->head, "qoperator") != NULL ? OQ_TRAINED_QOPERATOR
                                     : strstr(s->head, "qdq") != NULL     ? OQ_TRAINED_QDQ
                                                                          : OQ_TRAINED_INTEGER;
    oq_trained_job strip = {.model = s->b.m,
                            .config = &s->config,
                            .format = format,
                            .overrides = &s->overrides,
                            .ranges = &s->ranges};
    s->config.weight_type = OQ_UINT8;
    oq_ranges_release(&s->ranges);
    oq_ranges_init(&s->ranges, oq_alloc_default(), OQ_CAL_MINMAX);
    OQ_TRY(oq_trained_strip(&strip, err));
    oq_shapes_free(s->shapes);
    s->shapes = NULL;
    OQ_TRY(oq_shapes_infer(s->b.m, NULL, &s->shapes, err));
    if (format == OQ_TRAINED_QDQ) {
        s->config.op_types_all = true;
        return run_qdq(s, err);
    }
    const oq_qo_job job = {.model = s->b.m,
                           .run = &s->run,
                           .overrides = &s->overrides,
                           .ranges = &s->ranges,
                           .plan = &s->plan,
                           .integer = format == OQ_TRAINED_INTEGER,
                           .decide_only = s->decide_only};
    return oq_qo_run(&job, err);
}

static onq_code run_preset(setting *s, onq_error *err) {
    const oq_preset preset = {.model = s->b.m,
                              .shapes = s->shapes,
                              .config = &s->config,
                              .overrides = &s->overrides,
                              .add_converts = true,
                              .arena = &s->arena};
    const bool qnn = strstr(s->head, "preset_qnn") != NULL;
    OQ_TRY(qnn ? oq_preset_qnn(&preset, err) : oq_preset_qdq(&preset, err));
    return run_qdq(s, err);
}

/* The modes, and the bit by which operators.def knows them (0: not by operator). */
static const struct mode {
    const char *name;
    unsigned bit;
    onq_code (*run)(setting *s, onq_error *err);
} modes[] = {
    {"qdq", OQ_QMODE_QDQ, run_qdq},
    {"qlinear", OQ_QMODE_QLINEAR, run_qlinear},
    {"integer", OQ_QMODE_INTEGER, run_integer},
    {"listed", OQ_QMODE_ASKED, run_listed},
    {"legacy", 0, run_legacy},
    {"trained", 0, run_trained},
    {"preset_qdq", 0, run_preset},
    {"preset_qnn", 0, run_preset},
};

/* Operator, mode and opset of the first line. */
static const struct mode *read_head(const char *head, char op[64], int *opset) {
    char name[32];
    if (sscanf(head, "== %63s %31s %d", op, name, opset) != 3)
        fail_msg("'%s' is not '== OPERATOR MODE OPSET OPTIONS'", head);
    for (size_t i = 0; i < OQ_COUNT(modes); i++)
        if (strcmp(modes[i].name, name) == 0)
            return &modes[i];
    fail_msg("'%s': no mode is called %s", head, name);
    return NULL;
}

static size_t list_nodes(const setting *s, char got[LINES][400]) {
    const size_t n = s->b.g->node.n < LINES ? s->b.g->node.n : LINES;
    for (size_t i = 0; i < n; i++)
        print_node(s->b.g->node.v[i], got[i], 400);
    return n;
}

static void begin_case(setting *s, text_case *c, int opset) {
    onq_error err = ONQ_ERROR_INIT;
    bm_begin(&s->b, NULL, opset);
    for (size_t i = 0; i < c->n_build; i++) {
        char line[200];
        snprintf(line, sizeof line, "%s", c->build[i]);
        if (!add_line(&s->b, line))
            fail_msg("%s: bad line '%s'", c->head, c->build[i]);
    }
    oq_arena_init(&s->arena, oq_alloc_default());
    oq_qconfig_init(&s->config, &s->arena);
    oq_qrun_init(&s->run, &s->config);
    oq_overrides_init(&s->overrides, &s->arena);
    oq_ranges_init(&s->ranges, oq_alloc_default(), OQ_CAL_MINMAX);
    oq_plan_init(&s->plan, &s->arena);
    set_options(&s->config, c->head);
    set_ranges(&s->ranges, &s->b);
    assert_ok(oq_shapes_infer(s->b.m, NULL, &s->shapes, &err), err);
    assert_ok(oq_shapes_write(s->shapes, s->b.m, &err), err);
}

/* Ends the case; the plan goes to `text`. */
static void end_case(setting *s, oq_buf *text) {
    oq_jw w;
    oq_buf_init(text, oq_alloc_default());
    oq_jw_init(&w, text, true);
    oq_jw_begin_object(&w, NULL);
    oq_plan_json(&s->plan, &w);
    oq_jw_end_object(&w);
    oq_shapes_free(s->shapes);
    oq_ranges_release(&s->ranges);
    oq_arena_release(&s->arena);
    bm_end(&s->b);
}

/* Only decides. The plan must be that of the whole run, and no node and no initializer may have
 * changed, except by the rewrites that some modes begin with. */
static void decide_case(text_case *c, oq_buf *plan) {
    static char before[LINES][400], after[LINES][400];
    char op[64];
    int opset;
    setting s = {.head = c->head, .decide_only = true};
    onq_error err = ONQ_ERROR_INIT;
    const struct mode *mode = read_head(c->head, op, &opset);
    const bool rewrites = mode->run == run_trained || mode->run == run_preset ||
                          (mode->run == run_integer && strcmp(op, "Gemm") == 0);
    begin_case(&s, c, opset);
    const size_t n = list_nodes(&s, before), inits = s.b.g->initializer.n;
    assert_ok(mode->run(&s, &err), err);
    if (!rewrites) {
        assert_int_equal(list_nodes(&s, after), n);
        assert_int_equal(s.b.g->initializer.n, inits);
        for (size_t i = 0; i < n; i++)
            assert_string_equal(after[i], before[i]);
    }
    end_case(&s, plan);
}

/* A rule that does not fit writes an operator that no runtime has. */
static void check_operators(const setting *s) {
    const oq_graph *g = s->b.m->proto->graph;
    for (size_t i = 0; i < g->node.n; i++) {
        const oq_node *n = g->node.v[i];
        if (oq_sop_find(n->domain, n->op_type, INT64_MAX) == NULL)
            fail_msg("%s: it makes the operator %.*s, which src/shape/sop.def does not have: is "
                     "there one in ONNX Runtime?",
                     s->head, OQ_STR(n->op_type));
    }
}

/* Builds, quantizes, and lists the nodes. */
static size_t run_case(text_case *c, char got[LINES][400]) {
    char op[64];
    int opset;
    setting s = {.head = c->head};
    onq_error err = ONQ_ERROR_INIT;
    oq_buf plan, decided;
    const struct mode *mode = read_head(c->head, op, &opset);
    begin_case(&s, c, opset);
    assert_ok(mode->run(&s, &err), err);
    assert_ok(oq_model_check(s.b.m, &err), err);
    check_operators(&s);
    const size_t n = list_nodes(&s, got);
    end_case(&s, &plan);
    decide_case(c, &decided);
    assert_string_equal(decided.p, plan.p);
    oq_buf_release(&plan);
    oq_buf_release(&decided);
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

/* The next case; `pending` holds the head of the one after it. */
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

/* Writes the file anew, with what comes out now. */
static void accept_all(void) {
    static text_case c;
    static char got[LINES][400];
    char pending[200] = "", *text = NULL;
    size_t size = 0;
    FILE *f = open_cases("r"), *out = open_memstream(&text, &size);
    assert_non_null(out);
    fprintf(out, "# What each mode makes of each operator. tests/unit/quantize/test_quant_ops.c "
                 "says how to read this;\n"
                 "# ONQ_ACCEPT=1 writes the lines after -- anew.\n");
    while (next_case(f, &c, pending)) {
        fprintf(out, "\n%s\n", c.head);
        for (size_t k = 0; k < c.n_build; k++)
            fprintf(out, "%s\n", c.build[k]);
        fprintf(out, "--\n");
        const size_t lines = run_case(&c, got);
        for (size_t k = 0; k < lines; k++)
            fprintf(out, "%s\n", got[k]);
    }
    fclose(f);
    fclose(out);
    f = open_cases("w");
    assert_int_equal(fwrite(text, 1, size, f), size);
    fclose(f);
    free(text);
}

static void cases(void **state) {
    (void)state;
    static text_case c;
    static char got[LINES][400];
    static unsigned seen[256]; /* modes, by row of operators.def */
    char pending[200] = "", op[64];
    int opset;
    assert_true(oq_operator_count <= OQ_COUNT(seen));
    if (getenv("ONQ_ACCEPT") != NULL)
        accept_all();
    FILE *f = open_cases("r");
    while (next_case(f, &c, pending)) {
        const struct mode *mode = read_head(c.head, op, &opset);
        const oq_operator *row = oq_operator_find(oq_str_of(op));
        if (row == NULL)
            fail_msg("%s: no row of operators.def", c.head);
        seen[row - oq_operators] |= mode->bit;
        const size_t n = run_case(&c, got);
        for (size_t i = 0; i < n || i < c.n_want; i++)
            if (i >= n || i >= c.n_want || strcmp(got[i], c.want[i]) != 0)
                fail_msg("%s: node %zu is\n  %s\nwanted\n  %s", c.head, i,
                         i < n ? got[i] : "(none)", i < c.n_want ? c.want[i] : "(none)");
    }
    fclose(f);
    for (size_t i = 0; i < oq_operator_count; i++)
        for (size_t k = 0; k < OQ_COUNT(modes); k++)
            if ((oq_rules_modes(oq_str_of(oq_operators[i].type)) & modes[k].bit & ~seen[i]) != 0)
                fail_msg("%s has no case for %s in tests/ops/quant_ops.txt", oq_operators[i].type,
                         modes[k].name);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(cases)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
