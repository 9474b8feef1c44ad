/*
 * test_rotate.c — hidden states that are turned: the model computes what it did, its weights are
 * others, and what cannot be turned is refused by name. tests/parity/test_nbits_rotate.py has the
 * norms that are operators.
 */
#include "prepare/rotate.h"

#include "build_model.h"
#include "compute.h"
#include "testing.h"

#define WIDTH "12" /* 4 x 3: a Hadamard matrix and a cosine transform */

/* An RMS norm of x, called after `name`. */
static void norm(bm *b, const char *name, const char *x, const char *gain, const char *out) {
    char text[8][32];
    static const char *const parts[] = {"sq", "mean", "eps", "root", "over", "unit"};
    for (size_t i = 0; i < OQ_COUNT(parts); i++)
        snprintf(text[i], sizeof text[i], "%s_%s", name, parts[i]);
    char in[64];
    snprintf(in, sizeof in, "%s two", x);
    bm_node(b, "Pow", text[0], in, text[0], "");
    bm_node(b, "ReduceMean", text[1], text[0], text[1], "axes=[-1] keepdims=1");
    snprintf(in, sizeof in, "%s tiny", text[1]);
    bm_node(b, "Add", text[2], in, text[2], "");
    bm_node(b, "Sqrt", text[3], text[2], text[3], "");
    snprintf(in, sizeof in, "one %s", text[3]);
    bm_node(b, "Div", text[4], in, text[4], "");
    snprintf(in, sizeof in, "%s %s", x, text[4]);
    bm_node(b, "Mul", text[5], in, text[5], "");
    snprintf(in, sizeof in, "%s %s", gain, text[5]);
    bm_node(b, "Mul", name, in, out, "");
}

/* A decoder of one layer without attention; `tied`: the table is the last layer, too. */
static void fill_with(bm *b, bool tied) {
    const float two = 2, tiny = 1e-3f, one = 1;
    const int64_t ids[] = {3, 0, 4};
    bm_input(b, "x", OQ_FLOAT, "3,5");
    bm_f32(b, "two", "", &two);
    bm_f32(b, "tiny", "", &tiny);
    bm_f32(b, "one", "", &one);
    bm_i64(b, "ids", "3", ids);
    bm_weight(b, "table", "6," WIDTH, 1);
    bm_weight(b, "in", "5," WIDTH, 2);
    bm_weight(b, "bias", WIDTH, 3);
    bm_weight(b, "g1", WIDTH, 4);
    bm_weight(b, "g2", WIDTH, 5);
    bm_weight(b, "up", WIDTH ",7", 6);
    bm_weight(b, "down", "7," WIDTH, 7);
    bm_node(b, "Gather", "embed", "table ids", "h0", "");
    bm_node(b, "MatMul", "enter", "x in", "m0", "");
    bm_node(b, "Add", "add_bias", "m0 bias", "m1", "");
    bm_node(b, "Add", "add_input", "h0 m1", "h1", "");
    norm(b, "n1", "h1", "g1", "y1");
    bm_node(b, "MatMul", "up_proj", "y1 up", "u", "");
    bm_node(b, "Relu", "act", "u", "v", "");
    bm_node(b, "MatMul", "down_proj", "v down", "d", "");
    bm_node(b, "Mul", "scaled", "d two", "d2", "");
    bm_node(b, "Add", "residual", "h1 d2", "h2", "");
    norm(b, "n2", "h2", "g2", "y2");
    if (tied)
        bm_node(b, "Transpose", "turned", "table", "head", "perm=[1,0]");
    else
        bm_weight(b, "head", WIDTH ",6", 8);
    bm_node(b, "MatMul", "lm_head", "y2 head", "logits", "");
    bm_output(b, "logits", OQ_FLOAT, "3,6");
}

static void fill(bm *b) {
    fill_with(b, true);
}

static float first_of(bm *b, const char *name) {
    float *v = NULL;
    size_t n = 0;
    onq_error err = ONQ_ERROR_INIT;
    assert_ok(oq_tensor_floats(b->m, oq_graph_find_init(b->g, oq_str_of(name)), b->a, &v, &n, &err),
              err);
    return v[0];
}

static void computes_the_same(void **state) {
    (void)state;
    for (int tied = 0; tied < 2; tied++) {
        bm b;
        computed before;
        oq_rotated done;
        onq_error err = ONQ_ERROR_INIT;
        bm_begin(&b, NULL, 13);
        fill_with(&b, tied != 0);
        const float was = first_of(&b, "up"), table = first_of(&b, "table");
        compute(&b, &before);
        assert_ok(oq_rotate(b.m, &done, &err), err);
        assert_computes(&b, &before, 1e-6);
        computed_release(&before);
        assert_int_equal(done.width, 12);
        assert_int_equal(done.n_weights, 6);
        assert_int_equal(done.n_norms, 2);
        assert_int_equal(done.untied, tied);
        assert_true(first_of(&b, "up") != was && first_of(&b, "table") != table);
        assert_null(bm_find_node(&b, "n1")); /* its gain is in `up` */
        assert_null(oq_graph_find_init(b.g, OQ_S("g1")));
        bm_end(&b);
    }
}

/* Each has one node more than the decoder. */
static void refused(void **state) {
    static const struct {
        const char *op, *in, *out, *why;
    } cases[] = {
        {"Relu", "h1", "more", "node 'more' (Relu) reads them"},
        {"Relu", "y1", "more", "node 'more' (Relu) reads them after a gain"},
        {"Mul", "h1 h2", "more", "multiplies them with"},
        {"Identity", "up", "more", "node 'up_proj' (MatMul) shares its weight"},
        {"Identity", "table", "more", "shares its table with another node"},
        {"Add", "h1 h2", "more", "'more' is an input or output of the model"},
    };
    (void)state;
    for (size_t i = 0; i < OQ_COUNT(cases); i++) {
        bm b;
        oq_rotated done;
        onq_error err = ONQ_ERROR_INIT;
        bm_begin(&b, NULL, 13);
        fill(&b);
        const float was = first_of(&b, "up");
        bm_node(&b, cases[i].op, "more", cases[i].in, cases[i].out, "");
        bm_output(&b, cases[i].out, OQ_FLOAT, NULL);
        assert_fails(oq_rotate(b.m, &done, &err), ONQ_E_INVALID, err, cases[i].why);
        assert_true(first_of(&b, "up") == was);
        bm_end(&b);
    }
}

static void makes_nothing(void **state) {
    static const struct {
        const char *op, *in, *why;
    } cases[] = {
        {"Mul", "h1 g1", "multiplies them with"},
        {"Mul", "h1 two", "has an input or output without a name"},
        {"Add", "h1 h2", "has an input or output without a name"},
    };
    (void)state;
    for (size_t i = 0; i < OQ_COUNT(cases); i++) {
        bm b;
        oq_rotated done;
        onq_error err = ONQ_ERROR_INIT;
        bm_begin(&b, NULL, 13);
        fill(&b);
        bm_node(&b, cases[i].op, "more", cases[i].in, "_", "");
        assert_fails(oq_rotate(b.m, &done, &err), ONQ_E_INVALID, err, cases[i].why);
        bm_end(&b);
    }
}

static void no_decoder(void **state) {
    bm b;
    oq_rotated done;
    onq_error err = ONQ_ERROR_INIT;
    (void)state;
    bm_begin(&b, NULL, 13);
    bm_input(&b, "x", OQ_FLOAT, "3,5");
    bm_weight(&b, "w", "5,4", 1);
    bm_node(&b, "MatMul", "product", "x w", "y", "");
    bm_output(&b, "y", OQ_FLOAT, "3,4");
    assert_fails(oq_rotate(b.m, &done, &err), ONQ_E_INVALID, err, "no Gather takes rows");
    bm_end(&b);
}

static onq_code rotate(bm *b, void *ctx, onq_error *err) {
    oq_rotated done;
    (void)ctx;
    return oq_rotate(b->m, &done, err);
}

static void out_of_memory(void **state) {
    (void)state;
    assert_true(bm_sweep(13, fill, rotate, NULL) > 20);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(computes_the_same),
                                       cmocka_unit_test(refused), cmocka_unit_test(makes_nothing),
                                       cmocka_unit_test(no_decoder),
                                       cmocka_unit_test(out_of_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
