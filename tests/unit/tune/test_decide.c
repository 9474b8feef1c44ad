/*
 * test_decide.c — one probability as an answer: where it is found, and what agreement means there.
 */
#include "tune/judge/score.h"

#include "build_model.h"
#include "testing.h"

#include <math.h>

/* A model whose output is what `fill` makes; at which place an output is that is a probability. */
static size_t decides(bm_fill *fill, oq_link *link) {
    bm b;
    oq_meaning m;
    onq_error err = ONQ_ERROR_INIT;
    bm_begin(&b, NULL, 17);
    bm_input(&b, "x", OQ_FLOAT, "1,3");
    bm_input(&b, "state", OQ_FLOAT, "1,3");
    bm_input(&b, "which", OQ_BOOL, "");
    fill(&b);
    assert_ok(oq_meaning_find(b.m, NULL, b.a, &m, &err), err);
    const size_t at = m.decides;
    *link = at < m.n ? m.links[at] : OQ_LINK_NONE;
    bm_end(&b);
    return at;
}

static void plain(bm *b) {
    bm_node(b, "Tanh", "", "x", "stateN", "");
    bm_node(b, "Sigmoid", "", "x", "s", "");
    bm_node(b, "Unsqueeze", "", "s", "u", "");
    bm_node(b, "ReduceMean", "", "u", "r", "");
    bm_node(b, "Squeeze", "", "r", "y", "");
    bm_output(b, "stateN", OQ_FLOAT, "1,3");
    bm_output(b, "y", OQ_FLOAT, NULL);
}

static void with_branches(bm *b, const char *other) {
    oq_node *n = bm_node(b, "If", "", "which", "z y", "");
    static const char *const names[] = {"then_branch", "else_branch"};
    const char *const ops[] = {"Sigmoid", other};
    for (int i = 0; i < 2; i++) {
        oq_graph *around = bm_enter(b, n, names[i]);
        bm_node(b, "Tanh", "", "x", i == 0 ? "z0" : "z1", "");
        bm_node(b, ops[i], "", "x", i == 0 ? "y0" : "y1", "");
        bm_output(b, i == 0 ? "z0" : "z1", OQ_FLOAT, NULL);
        bm_output(b, i == 0 ? "y0" : "y1", OQ_FLOAT, NULL);
        bm_leave(b, around);
    }
    bm_output(b, "z", OQ_FLOAT, NULL);
    bm_output(b, "y", OQ_FLOAT, NULL);
}

static void branches(bm *b) {
    with_branches(b, "Sigmoid");
}

/* The Sigmoid comes before the If, whose branches have other shapes. */
static void moved_in_branches(bm *b) {
    bm_node(b, "Sigmoid", "", "x", "s", "");
    oq_node *n = bm_node(b, "If", "", "which", "i", "");
    oq_graph *around = bm_enter(b, n, "then_branch");
    bm_node(b, "Squeeze", "", "s", "i0", "");
    bm_output(b, "i0", OQ_FLOAT, NULL);
    bm_leave(b, around);
    around = bm_enter(b, n, "else_branch");
    bm_node(b, "Identity", "", "s", "i1", "");
    bm_output(b, "i1", OQ_FLOAT, NULL);
    bm_leave(b, around);
    bm_node(b, "ReduceMean", "", "i", "y", "");
    bm_output(b, "y", OQ_FLOAT, NULL);
}

static void other_branch(bm *b) {
    with_branches(b, "Relu");
}

static void mean_of_others(bm *b) {
    bm_node(b, "ReduceMean", "", "x", "y", "");
    bm_output(b, "y", OQ_FLOAT, NULL);
}

static void a_state(bm *b) {
    bm_node(b, "Sigmoid", "", "state", "stateN", "");
    bm_node(b, "Relu", "", "x", "y", "");
    bm_output(b, "stateN", OQ_FLOAT, "1,3");
    bm_output(b, "y", OQ_FLOAT, "1,3");
}

static void found(void **state) {
    oq_link link;
    (void)state;
    assert_int_equal(decides(plain, &link), 1);
    assert_int_equal(link, OQ_LINK_SIGMOID);
    assert_int_equal(decides(branches, &link), 1);
    assert_int_equal(link, OQ_LINK_SIGMOID);
    assert_int_equal(decides(moved_in_branches, &link), 0);
    assert_int_equal(link, OQ_LINK_SIGMOID);
    assert_int_equal(decides(other_branch, &link), 2);
    assert_int_equal(decides(mean_of_others, &link), 1);
    assert_int_equal(decides(a_state, &link), 2);
}

static oq_datum numbers(const float *v, const int64_t *dims, size_t rank) {
    oq_datum d = {.kind = OQ_DATUM_TENSOR,
                  .dtype = OQ_FLOAT,
                  .rank = rank,
                  .dims = dims,
                  .data = v,
                  .count = 1};
    for (size_t i = 0; i < rank; i++)
        d.count *= (uint64_t)dims[i];
    d.size_bytes = d.count * sizeof *v;
    return d;
}

static const oq_link links[] = {OQ_LINK_SIGMOID};

/* What is taken as target, of two samples. */
static oq_metric metric_of(const float *v, const int64_t *dims, size_t rank, oq_meaning *m) {
    const oq_datum d = numbers(v, dims, rank);
    const oq_datum *const samples[] = {&d, &d};
    oq_meaning_decide(m, samples, 2);
    const oq_default_target t = oq_meaning_target(m, &d, 1, 1);
    assert_non_null(t.why);
    return t.metric;
}

#define OF_SIGMOID                                                                                 \
    { .links = links, .n = 1, .classes = 1 }

/* One number in a row: decisions, if float gives both. Rows of more are something else. */
static void targets(void **state) {
    static const float both[10] = {0.9F},
                       one[11] = {0.9F}; /* a tenth on the other side, and less */
    static const struct {
        const float *v;
        int64_t dims[4];
        size_t rank;
        oq_metric metric;
        bool decision;
    } rows[] = {
        {both, {10}, 1, OQ_METRIC_AGREEMENT, true},
        {both, {10, 1}, 2, OQ_METRIC_AGREEMENT, true},
        {both, {1, 10, 1}, 3, OQ_METRIC_AGREEMENT, true},
        {one, {11, 1}, 2, OQ_METRIC_SQNR, true},
        {both, {1, 10}, 2, OQ_METRIC_SQNR, false},
        {both, {1, 1, 10, 1}, 4, OQ_METRIC_SQNR, false}, /* a map */
    };
    (void)state;
    for (size_t i = 0; i < OQ_COUNT(rows); i++) {
        oq_meaning m = OF_SIGMOID;
        assert_int_equal(metric_of(rows[i].v, rows[i].dims, rows[i].rank, &m), rows[i].metric);
        assert_int_equal(m.decision, rows[i].decision);
        assert_int_equal(m.classes, rows[i].decision ? 0 : 1);
    }
    /* Where another output has classes, they count. */
    oq_meaning m = {.links = (oq_link[]){OQ_LINK_SIGMOID, OQ_LINK_SOFTMAX},
                    .n = 2,
                    .classes = 1,
                    .why = "classes"};
    metric_of(both, (const int64_t[]){10, 1}, 2, &m);
    assert_false(m.decision);
    assert_int_equal(m.classes, 1);
}

/* Two of five change sides; the margin is the distance of the logit from zero. */
static void scores(void **state) {
    const float a[] = {0.9F, 0.2F, 0.6F, 0.4F, 0.99F}, c[] = {0.6F, 0.1F, 0.4F, 0.6F, NAN};
    const int64_t dims[] = {5, 1};
    const oq_datum flt = numbers(a, dims, 2), quantized = numbers(c, dims, 2);
    const oq_meaning m = {.links = links, .n = 1, .classes = 0, .decision = true};
    const oq_pair pair = {.flt = &flt, .quantized = &quantized, .n_quantized = 1};
    oq_scoring s;
    oq_score out;
    bm b;
    onq_error err = ONQ_ERROR_INIT;
    (void)state;
    bm_begin(&b, NULL, 13);
    assert_ok(oq_scoring_init(&s, b.a, &m, 1, &err), err);
    assert_ok(oq_scoring_add(&s, &pair, &err), err);
    assert_int_equal(s.margins.n, 5);
    assert_float_equal(s.margins.v[0], 2.19722F, 1e-4);
    assert_float_equal(s.errors.v[0], 1.79176F, 1e-4);
    assert_float_equal(s.margins.v[1], 1.38629F, 1e-4);
    assert_float_equal(s.errors.v[1], -0.81093F, 1e-4); /* clearer than float */
    assert_float_equal(s.errors.v[2], 0.81093F, 1e-4);
    assert_true(isinf(s.errors.v[4]));
    assert_ok(oq_scoring_end(&s, &out, &err), err);
    assert_float_equal(out.figures[OQ_METRIC_AGREEMENT].value, 40, 1e-9);
    bm_end(&b);
}

static onq_code look(bm *b, void *ctx, onq_error *err) {
    oq_meaning m;
    (void)ctx;
    return oq_meaning_find(b->m, NULL, b->a, &m, err);
}

static void fill(bm *b) {
    bm_input(b, "x", OQ_FLOAT, "1,3");
    bm_input(b, "which", OQ_BOOL, "");
    branches(b);
}

static void oom(void **state) {
    (void)state;
    bm_sweep(17, fill, look, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(found), cmocka_unit_test(targets),
                                       cmocka_unit_test(scores), cmocka_unit_test(oom)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
