/*
 * test_nbits.c — weight-only quantization: the integers, scales and zero points of rounding to the
 * nearest, worked out by hand, and how each format packs and places them.
 *
 * The numbers are chosen such that every scale is exact. What a block should become:
 *
 *     symmetric   scale = -peak / 2^(bits-1), where peak is the value farthest from zero with its
 *                 sign; zero point 2^(bits-1), not stored
 *     asymmetric  scale = (hi - lo) / (2^bits - 1), zero point = round(-lo / scale), where the
 *                 range holds 0
 *     integer     round(value / scale) + zero point
 */
#include "nbits_rig.h"

#include "flaky_alloc.h"
#include "onnx/attr.h"
#include "quantize/nbits/nb_panel.h"
#include "testing.h"

#include <math.h>
#include <string.h>

static void assert_bytes(const void *got, const uint8_t *want, size_t n) {
    assert_memory_equal(got, want, n);
}

static void assert_floats(const void *got, const float *want, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (((const float *)got)[i] != want[i])
            fail_msg("number %zu: %.9g, wanted %.9g", i, (double)((const float *)got)[i],
                     (double)want[i]);
}

#define BYTES(got, ...)                                                                            \
    do {                                                                                           \
        const uint8_t want[] = {__VA_ARGS__};                                                      \
        assert_bytes(got, want, sizeof want);                                                      \
    } while (0)
#define FLOATS(got, ...)                                                                           \
    do {                                                                                           \
        const float want[] = {__VA_ARGS__};                                                        \
        assert_floats(got, want, OQ_COUNT(want));                                                  \
    } while (0)

static bool has(const nbits_rig *r, const char *name) {
    return oq_graph_find_init(r->q.b.g, oq_str_of(name)) != NULL;
}

/* The node, with its inputs as "a b _": "_" is an empty one. */
static const oq_node *node(const nbits_rig *r, const char *name, const char *op_type,
                           const char *inputs) {
    char got[200] = "";
    const oq_node *n = bm_find_node(&r->q.b, name);
    if (n == NULL)
        fail_msg("there is no node '%s'", name);
    assert_true(oq_str_is(n->op_type, op_type));
    for (size_t i = 0; i < n->input.n; i++) {
        const size_t at = strlen(got);
        snprintf(got + at, sizeof got - at, "%s%.*s", i > 0 ? " " : "",
                 n->input.v[i].n > 0 ? (int)n->input.v[i].n : 1,
                 n->input.v[i].n > 0 ? n->input.v[i].p : "_");
    }
    assert_string_equal(got, inputs);
    return n;
}

static void run(nbits_rig *r) {
    assert_ok(nbits_rig_run(r, &r->q.err), r->q.err);
}

/* 6 rows and 2 columns in blocks of 4: the second block of a column has 2 rows.
 *
 *     column 0   -8 -3 0 7 | 2 -1              scales 1, -1/4
 *     column 1   4 3.5 -3.5 0.5 | -0.5 0.25    scales -1/2, 1/16 */
static const float even[] = {-8, 4, -3, 3.5f, 0, -3.5f, 7, 0.5f, 2, -0.5f, -1, 0.25f};

/* 5 rows and 2 columns, ranges that hold 0:
 *
 *     column 0   -3 0 12 5 | 6         scales 1, 6/15, zero points 3, 0
 *     column 1   -15 -10 -5 0 | -30    scales 1, 2, zero points 15, 15 */
static const float ranges[] = {-3, -15, 0, -10, 12, -5, 5, 0, 6, -30};

/* ---- MatMulNBits ---- */

/* A column is blocks of bytes, one after another; two integers to a byte, the first one low. */
static void four_bits_symmetric(void **state) {
    (void)state;
    nbits_rig r;
    nbits_rig_begin(&r, NULL, "default", 4, 4, true);
    r.config.how.accuracy_level = 4;
    nbits_rig_product(&r, "6,2", even);
    run(&r);
    /* column 0: 0 5 8 15 | 0 12; column 1: 0 1 15 7 | 0 12; what is left of a block is 0 */
    BYTES(nbits_rig_part(&r, "w_Q4", OQ_UINT8, "2,2,2"), 0x50, 0xf8, 0xc0, 0, 0x10, 0x7f, 0xc0, 0);
    FLOATS(nbits_rig_part(&r, "w_scales", OQ_FLOAT, "2,2"), 1, -0.25f, -0.5f, 0.0625f);
    assert_false(has(&r, "w_zero_points"));
    assert_false(has(&r, "w"));
    const oq_node *n = node(&r, "mm_Q4", "MatMulNBits", "x w_Q4 w_scales");
    assert_true(oq_str_is(n->domain, "com.microsoft") && oq_str_is(n->output.v[0], "y"));
    assert_int_equal(oq_attr_int(n, "K", 0), 6);
    assert_int_equal(oq_attr_int(n, "N", 0), 2);
    assert_int_equal(oq_attr_int(n, "bits", 0), 4);
    assert_int_equal(oq_attr_int(n, "block_size", 0), 4);
    assert_int_equal(oq_attr_int(n, "accuracy_level", 0), 4);
    assert_int_equal(oq_model_opset(r.q.b.m, OQ_S("com.microsoft")), 1);
    nbits_rig_end(&r);
}

static void four_bits_asymmetric(void **state) {
    (void)state;
    nbits_rig r;
    nbits_rig_begin(&r, NULL, "default", 4, 4, false);
    nbits_rig_product(&r, "5,2", ranges);
    run(&r);
    /* column 0: 0 3 15 8 | 15; column 1: 0 5 10 15 | 0. MLAS leaves the free half of the odd byte
     * as it was in the byte before: 0x8f, 0xf0. */
    BYTES(nbits_rig_part(&r, "w_Q4", OQ_UINT8, "2,2,2"), 0x30, 0x8f, 0x8f, 0, 0x50, 0xfa, 0xf0, 0);
    FLOATS(nbits_rig_part(&r, "w_scales", OQ_FLOAT, "2,2"), 1, 6.0f / 15.0f, 1, 2);
    BYTES(nbits_rig_part(&r, "w_zero_points", OQ_UINT8, "2,1"), 0x03, 0xff);
    const oq_node *n = node(&r, "mm_Q4", "MatMulNBits", "x w_Q4 w_scales w_zero_points");
    assert_int_equal(oq_attr_int(n, "accuracy_level", -1), -1);
    nbits_rig_end(&r);
}

/* Zero points of a column begin a byte; what is left of the last one is 2^(bits-1). */
static void zero_points_of_three_blocks(void **state) {
    (void)state;
    static const float w[] = {-3, 0, 12, 5, -15, -10, -5, 0, 0, 1, 2, 15};
    nbits_rig r;
    nbits_rig_begin(&r, NULL, "default", 4, 4, false);
    nbits_rig_product(&r, "12,1", w);
    run(&r);
    BYTES(nbits_rig_part(&r, "w_zero_points", OQ_UINT8, "1,2"), 3 | 15 << 4, 0 | 8 << 4);
    nbits_rig_end(&r);
}

static void two_bits(void **state) {
    (void)state;
    /* four integers to a byte: 0 1 2 3 and 3 0 1 2 */
    static const float w[] = {-2, 2, -1, -1, 0, 0, 1, 1};
    nbits_rig r;
    nbits_rig_begin(&r, NULL, "default", 2, 4, true);
    nbits_rig_product(&r, "4,2", w);
    run(&r);
    /* column 1 has peak 2 and scale -1: 2 -> 0, -1 -> 3, 0 -> 2, 1 -> 1 */
    BYTES(nbits_rig_part(&r, "w_Q2", OQ_UINT8, "2,1,1"), 0 | 1 << 2 | 2 << 4 | 3 << 6,
          0 | 3 << 2 | 2 << 4 | 1 << 6);
    FLOATS(nbits_rig_part(&r, "w_scales", OQ_FLOAT, "2,1"), 1, -1);
    nbits_rig_end(&r);
    nbits_rig_begin(&r, NULL, "default", 2, 4, false);
    static const float two[] = {-1, 0, 1, 2, 0, 3, 6, 9}; /* zero points 1 and 0 */
    nbits_rig_product(&r, "8,1", two);
    run(&r);
    BYTES(nbits_rig_part(&r, "w_Q2", OQ_UINT8, "1,2,1"), 0xe4, 0xe4);
    FLOATS(nbits_rig_part(&r, "w_scales", OQ_FLOAT, "1,2"), 1, 3);
    BYTES(nbits_rig_part(&r, "w_zero_points", OQ_UINT8, "1,1"), 1 | 0 << 2 | 2 << 4 | 2 << 6);
    nbits_rig_end(&r);
}

static void eight_bits(void **state) {
    (void)state;
    static const float w[] = {-55, 0, 200, 7, -128, -1};
    nbits_rig r;
    nbits_rig_begin(&r, NULL, "default", 8, 4, false);
    nbits_rig_product(&r, "6,1", w);
    run(&r);
    /* -128 .. 0 in 255 steps: -1 is 1.99 of them below the zero point 255 */
    BYTES(nbits_rig_part(&r, "w_Q8", OQ_UINT8, "1,2,4"), 0, 55, 255, 62, 0, 253, 0, 0);
    FLOATS(nbits_rig_part(&r, "w_scales", OQ_FLOAT, "1,2"), 1, 128.0f / 255.0f);
    BYTES(nbits_rig_part(&r, "w_zero_points", OQ_UINT8, "1,2"), 55, 255);
    nbits_rig_end(&r);
    nbits_rig_begin(&r, NULL, "default", 8, 4, true);
    nbits_rig_product(&r, "6,1", w);
    run(&r);
    /* peak 200: the scale is -200/128; -55 is 35.2 steps, 7 is -4.48 */
    BYTES(nbits_rig_part(&r, "w_Q8", OQ_UINT8, "1,2,4"), 163, 128, 0, 124, 0, 127, 0, 0);
    FLOATS(nbits_rig_part(&r, "w_scales", OQ_FLOAT, "1,2"), -200.0f / 128.0f, 1);
    nbits_rig_end(&r);
}

/* Scales are stored in the type of the weight: 1/15 of a float16. */
static void float16_scales(void **state) {
    (void)state;
    static const uint16_t w[] = {0x0000, 0x3c00, 0x3800, 0x3400}; /* 0 1 0.5 0.25 */
    nbits_rig r;
    nbits_rig_begin(&r, NULL, "default", 4, 4, false);
    bm_input(&r.q.b, "x", OQ_FLOAT16, "m,4");
    bm_raw(&r.q.b, "w", OQ_FLOAT16, "4,1", w, sizeof w);
    bm_node(&r.q.b, "MatMul", "mm", "x w", "y", "");
    bm_output(&r.q.b, "y", OQ_FLOAT16, NULL);
    run(&r);
    /* 1/15 = 1.0667 / 16: a mantissa of 68 of 1024 steps. 0.5 is 7.502 of it, 0.25 is 3.751. */
    const uint16_t scale = 0x2c00 | 68;
    assert_memory_equal(nbits_rig_part(&r, "w_scales", OQ_FLOAT16, "1,1"), &scale, 2);
    BYTES(nbits_rig_part(&r, "w_Q4", OQ_UINT8, "1,1,2"), 0 | 15 << 4, 8 | 4 << 4);
    nbits_rig_end(&r);
}

static void zeros_and_bad_numbers(void **state) {
    (void)state;
    static const float none[4] = {0};
    static const float bad[] = {1, 2, NAN, 4};
    nbits_rig r;
    for (int symmetric = 0; symmetric < 2; symmetric++) {
        nbits_rig_begin(&r, NULL, "default", 4, 4, symmetric != 0);
        nbits_rig_product(&r, "4,1", none);
        run(&r);
        const unsigned zero = symmetric ? 0x88 : 0; /* the zero point, which any scale makes 0 */
        BYTES(nbits_rig_part(&r, "w_Q4", OQ_UINT8, "1,1,2"), (uint8_t)zero, (uint8_t)zero);
        FLOATS(nbits_rig_part(&r, "w_scales", OQ_FLOAT, "1,1"), 0);
        nbits_rig_end(&r);
    }
    nbits_rig_begin(&r, NULL, "default", 4, 4, true);
    nbits_rig_product(&r, "4,1", bad);
    run(&r);
    oq_span data;
    assert_fails(oq_model_data(r.q.b.m, oq_graph_find_init(r.q.b.g, OQ_S("w_Q4")), &data, &r.q.err),
                 ONQ_E_INVALID, r.q.err, "weight 'w' holds NaN in row 2, column 0");
    nbits_rig_end(&r);
}

/* ---- halves ---- */

/* MatMulNBits rounds what the zero point was added to, QDQ what it was not, both away from zero;
 * GatherBlockQuantized rounds to even. */
static void halves(void **state) {
    (void)state;
    static const float w[] = {-8, 0.5f, -0.5f, 1.5f};
    nbits_rig r;
    nbits_rig_begin(&r, NULL, "default", 4, 4, true);
    nbits_rig_product(&r, "4,1", w);
    run(&r);
    BYTES(nbits_rig_part(&r, "w_Q4", OQ_UINT8, "1,1,2"), 0 | 9 << 4, 8 | 10 << 4);
    nbits_rig_end(&r);
    nbits_rig_begin(&r, NULL, "default", 4, 4, true);
    r.config.qdq = true;
    nbits_rig_product(&r, "4,1", w);
    run(&r);
    /* signed: -8 1 -1 2 */
    BYTES(nbits_rig_part(&r, "w_DQ_Q4", OQ_INT4, "4,1"), 0x18, 0x2f);
    nbits_rig_end(&r);
    nbits_rig_begin(&r, NULL, "default", 4, 4, true);
    assert_ok(oq_pick_add(&r.q.config.op_types, OQ_S("Gather"), &r.q.err), r.q.err);
    bm_input(&r.q.b, "ids", OQ_INT64, "n");
    bm_f32(&r.q.b, "w", "1,4", w);
    bm_node(&r.q.b, "Gather", "embed", "w ids", "y", "");
    bm_output(&r.q.b, "y", OQ_FLOAT, NULL);
    run(&r);
    /* signed: -8 0 0 2 */
    BYTES(nbits_rig_part(&r, "w_Q4", OQ_INT4, "1,4"), 0x08, 0x20);
    nbits_rig_end(&r);
}

/* ---- DequantizeLinear ---- */

/* The weight keeps its rows and columns; symmetric integers are signed. Parameters are [blocks, N]. */
static void qdq_symmetric(void **state) {
    (void)state;
    nbits_rig r;
    nbits_rig_begin(&r, NULL, "default", 4, 4, true);
    r.config.qdq = true;
    nbits_rig_product(&r, "6,2", even);
    run(&r);
    /* column 0: -8 -3 0 7 -8 4; column 1: -8 -7 7 -1 -8 4 */
    BYTES(nbits_rig_part(&r, "w_DQ_Q4", OQ_INT4, "6,2"), 0x88, 0x9d, 0x70, 0xf7, 0x88, 0x44);
    FLOATS(nbits_rig_part(&r, "w_DQ_scales", OQ_FLOAT, "2,2"), 1, -0.5f, -0.25f, 0.0625f);
    const oq_node *n = node(&r, "mm_DQ_Q4", "DequantizeLinear", "w_DQ_Q4 w_DQ_scales");
    assert_int_equal(oq_attr_int(n, "axis", -1), 0);
    assert_int_equal(oq_attr_int(n, "block_size", -1), 4);
    n = node(&r, "mm_matmul_Q4", "MatMul", "x w_DQ_Q4_output");
    assert_true(oq_str_is(n->output.v[0], "y"));
    nbits_rig_end(&r);
}

static void qdq_asymmetric(void **state) {
    (void)state;
    nbits_rig r;
    nbits_rig_begin(&r, NULL, "default", 4, 4, false);
    r.config.qdq = true;
    nbits_rig_product(&r, "5,2", ranges);
    run(&r);
    /* column 0: 0 3 15 8 | 15; column 1: 0 5 10 15 | 0 */
    BYTES(nbits_rig_part(&r, "w_DQ_Q4", OQ_UINT4, "5,2"), 0x00, 0x53, 0xaf, 0xf8, 0x0f);
    FLOATS(nbits_rig_part(&r, "w_DQ_scales", OQ_FLOAT, "2,2"), 1, 1, 6.0f / 15.0f, 2);
    BYTES(nbits_rig_part(&r, "w_DQ_zero_points", OQ_UINT4, "2,2"), 3 | 15 << 4, 0 | 15 << 4);
    node(&r, "mm_DQ_Q4", "DequantizeLinear", "w_DQ_Q4 w_DQ_scales w_DQ_zero_points");
    nbits_rig_end(&r);
}

static void qdq_eight_bits(void **state) {
    (void)state;
    static const float w[] = {-55, -128, 0, 127, 200, 64, 7, 0};
    nbits_rig r;
    nbits_rig_begin(&r, NULL, "default", 8, 4, false);
    r.config.qdq = true;
    nbits_rig_product(&r, "4,2", w);
    run(&r);
    /* both scales are 1; zero points 55 and 128 */
    BYTES(nbits_rig_part(&r, "w_DQ_Q8", OQ_UINT8, "4,2"), 0, 0, 55, 255, 255, 192, 62, 128);
    BYTES(nbits_rig_part(&r, "w_DQ_zero_points", OQ_UINT8, "1,2"), 55, 128);
    nbits_rig_end(&r);
    nbits_rig_begin(&r, NULL, "default", 8, 4, true);
    r.config.qdq = true;
    nbits_rig_product(&r, "4,2", w);
    run(&r);
    /* scales -200/128 and 1: 35 -128, 0 127, -128 64, -4 0 */
    BYTES(nbits_rig_part(&r, "w_DQ_Q8", OQ_INT8, "4,2"), 35, 0x80, 0, 127, 0x80, 64, 0xfc, 0);
    nbits_rig_end(&r);
}

/* One block for a column: transposed when it is symmetric, and turned back by a Transpose. */
static void channel_wise(void **state) {
    (void)state;
    static const float w[] = {-8, 4, 7, -1, 1, 0.5f};
    nbits_rig r;
    nbits_rig_begin(&r, NULL, "default", 4, 4, true);
    r.config.qdq = r.config.channel_wise = true;
    nbits_rig_product(&r, "3,2", w);
    run(&r);
    /* column 0: -8 7 1; column 1, scale -1/2: -8 2 -1 */
    BYTES(nbits_rig_part(&r, "w_DQ_Q4", OQ_INT4, "2,3"), 0x78, 0x81, 0xf2);
    FLOATS(nbits_rig_part(&r, "w_DQ_scales", OQ_FLOAT, "2,1"), 1, -0.5f);
    const oq_node *n = node(&r, "mm_DQ_Q4", "DequantizeLinear", "w_DQ_Q4 w_DQ_scales");
    assert_int_equal(oq_attr_int(n, "axis", -1), 1);
    assert_int_equal(oq_attr_int(n, "block_size", -1), 3);
    node(&r, "mm_matmul_Q4", "MatMul", "x w_DQ_Q4_output_transposed");
    assert_int_equal(r.q.b.g->node.n, 3);
    nbits_rig_end(&r);
    nbits_rig_begin(&r, NULL, "default", 4, 0, false); /* block 0 says the same */
    r.config.qdq = true;
    static const float v[] = {-3, 0, 12, 30, 5, 14};
    nbits_rig_product(&r, "3,2", v);
    run(&r);
    BYTES(nbits_rig_part(&r, "w_DQ_Q4", OQ_UINT4, "3,2"), 0x00, 0xff, 0x78);
    FLOATS(nbits_rig_part(&r, "w_DQ_scales", OQ_FLOAT, "1,2"), 1, 2);
    BYTES(nbits_rig_part(&r, "w_DQ_zero_points", OQ_UINT4, "1,2"), 0x03);
    node(&r, "mm_matmul_Q4", "MatMul", "x w_DQ_Q4_output");
    nbits_rig_end(&r);
}

/* ---- other operators ---- */

/* A table: blocks along its rows, which stay as they are. */
static void gather(void **state) {
    (void)state;
    static const float w[] = {-8, -3, 0, 7, 2, -1, 4, 3.5f, -3.5f, 0.5f, -0.5f, 0.25f};
    for (int symmetric = 0; symmetric < 2; symmetric++) {
        nbits_rig r;
        nbits_rig_begin(&r, NULL, "default", 4, 4, symmetric != 0);
        assert_ok(oq_pick_add(&r.q.config.op_types, OQ_S("Gather"), &r.q.err), r.q.err);
        bm_input(&r.q.b, "ids", OQ_INT64, "n");
        bm_f32(&r.q.b, "w", "2,6", w);
        bm_node(&r.q.b, "Gather", "embed", "w ids", "y", "");
        bm_output(&r.q.b, "y", OQ_FLOAT, NULL);
        run(&r);
        const oq_node *n = NULL;
        if (symmetric) {
            n = node(&r, "embed_Q4", "GatherBlockQuantized", "w_Q4 ids w_scales");
            /* -8 -3 0 7 | -8 4; -8 -7 7 -1 | -8 4 */
            BYTES(nbits_rig_part(&r, "w_Q4", OQ_INT4, "2,6"), 0xd8, 0x70, 0x48, 0x98, 0xf7, 0x48);
            FLOATS(nbits_rig_part(&r, "w_scales", OQ_FLOAT, "2,2"), 1, -0.25f, -0.5f, 0.0625f);
        } else {
            n = node(&r, "embed_Q4", "GatherBlockQuantized", "w_Q4 ids w_scales w_zero_points");
            /* ranges -8..7, -1..2, -3.5..4, -0.5..0.25: zero points 8, 5, 7, 10 */
            FLOATS(nbits_rig_part(&r, "w_scales", OQ_FLOAT, "2,2"), 1, 3.0f / 15.0f, 0.5f,
                   0.75f / 15.0f);
            BYTES(nbits_rig_part(&r, "w_zero_points", OQ_UINT4, "2,2"), 8 | 5 << 4, 7 | 10 << 4);
            /* 0 5 8 15 | 15 0; 15 14 0 8 | 0 15 */
            BYTES(nbits_rig_part(&r, "w_Q4", OQ_UINT4, "2,6"), 0x50, 0xf8, 0x0f, 0xef, 0x80, 0xf0);
        }
        assert_int_equal(oq_attr_int(n, "gather_axis", -1), 0);
        assert_int_equal(oq_attr_int(n, "quantize_axis", -1), 1);
        assert_int_equal(oq_attr_int(n, "block_size", -1), 4);
        nbits_rig_end(&r);
    }
}

/* A table that is the last layer too is stored once: its rows are the columns of the product. */
static void tied_table(void **state) {
    (void)state;
    static const float w[] = {-8, -3, 0, 7, 4, 3.5f, -3.5f, 0.5f};
    nbits_rig r;
    nbits_rig_begin(&r, NULL, "default", 4, 4, true);
    r.config.all_weights = true;
    r.q.config.op_types_all = true;
    bm *b = &r.q.b;
    bm_input(b, "ids", OQ_INT64, "n");
    bm_f32(b, "w", "2,4", w);
    bm_node(b, "Gather", "embed", "w ids", "e", "");
    bm_node(b, "Transpose", "turn", "w", "t", "perm=[1,0]");
    bm_node(b, "MatMul", "head", "e t", "y", "");
    bm_output(b, "y", OQ_FLOAT, NULL);
    run(&r);
    BYTES(nbits_rig_part(&r, "w_Q4", OQ_UINT8, "2,1,2"), 0x50, 0xf8, 0x10, 0x7f);
    FLOATS(nbits_rig_part(&r, "w_scales", OQ_FLOAT, "2,1"), 1, -0.5f);
    node(&r, "head_Q4", "MatMulNBits", "e w_Q4 w_scales");
    const oq_node *n = node(&r, "embed_Q4", "GatherBlockQuantized", "w_Q4_rows ids w_scales");
    assert_int_equal(oq_attr_int(n, "bits", 0), 4);
    assert_false(has(&r, "w"));
    assert_null(bm_find_node(b, "turn"));
    nbits_rig_end(&r);
}

/* MatMulNBits takes a vector as a bias; any other third input is added by a node. */
static void gemm(void **state) {
    (void)state;
    static const float turned[] = {-8, -3, 0, 7, 4, 3.5f, -3.5f, 0.5f}; /* [N, K] */
    static const float bias[] = {1, 2};
    for (int vector = 0; vector < 2; vector++) {
        nbits_rig r;
        nbits_rig_begin(&r, NULL, "default", 4, 4, true);
        assert_ok(oq_pick_add(&r.q.config.op_types, OQ_S("Gemm"), &r.q.err), r.q.err);
        bm *b = &r.q.b;
        bm_input(b, "x", OQ_FLOAT, "m,4");
        bm_f32(b, "w", "2,4", turned);
        bm_f32(b, "c", vector ? "2" : "1,2", bias);
        bm_node(b, "Gemm", "gemm", "x w c", "y", "transB=1");
        bm_output(b, "y", OQ_FLOAT, NULL);
        run(&r);
        BYTES(nbits_rig_part(&r, "w_Q4", OQ_UINT8, "2,1,2"), 0x50, 0xf8, 0x10, 0x7f);
        const oq_node *n = node(&r, "gemm_Q4", "MatMulNBits",
                                vector ? "x w_Q4 w_scales _ _ c" : "x w_Q4 w_scales");
        assert_int_equal(oq_attr_int(n, "K", 0), 4);
        if (!vector)
            node(&r, "gemm_Add", "Add", "y_product c");
        nbits_rig_end(&r);
    }
}

/* A batch of matrices has no MatMulNBits: DequantizeLinear along the rows of each. */
static void batch(void **state) {
    (void)state;
    static const float w[] = {-8, 7, 0, 1, -3, 12, 4, 0.5f, 3.5f, -3.5f, 1, -1};
    nbits_rig r;
    nbits_rig_begin(&r, NULL, "default", 4, 4, true);
    bm *b = &r.q.b;
    bm_input(b, "x", OQ_FLOAT, "2,1,3");
    bm_f32(b, "w", "2,3,2", w);
    bm_node(b, "MatMul", "mm", "x w", "y", "");
    bm_output(b, "y", OQ_FLOAT, NULL);
    run(&r);
    assert_true(has(&r, "w")); /* only where all weights are asked for */
    assert_string_equal(r.q.plan.nodes.v[0].why, OQ_NB_WHY_BATCH);
    r.q.plan.nodes.n = 0;
    r.config.all_weights = true;
    run(&r);
    /* scales 1, -3/2, -1/2, 7/16; -8 -5 | 0 -1 | -3 -8 and -8 1 | -7 -8 | -2 -2 */
    BYTES(nbits_rig_part(&r, "w_DQ_Q4", OQ_INT4, "2,3,2"), 0xb8, 0xf0, 0x8d, 0x18, 0x89, 0xee);
    FLOATS(nbits_rig_part(&r, "w_DQ_scales", OQ_FLOAT, "2,1,2"), 1, -1.5f, -0.5f, 0.4375f);
    const oq_node *n = node(&r, "mm_DQ_Q4", "DequantizeLinear", "w_DQ_Q4 w_DQ_scales");
    assert_int_equal(oq_attr_int(n, "axis", -1), 1);
    nbits_rig_end(&r);
}

/* More columns than a panel has, in two steps of the same integers: placement is by column. */
static void many_columns(void **state) {
    (void)state;
    enum { K = 24, N = 2 * OQ_NB_TILE + 5, BLOCK = 16 };
    static float w[K * N];
    for (size_t k = 0; k < K; k++)
        for (size_t n = 0; n < N; n++) /* scale 1: integers of their own, and one peak a block */
            w[k * N + n] = k % BLOCK == 0 ? -8 : (float)((int)((k * 5 + n * 3) % 16) - 8);
    nbits_rig r;
    nbits_rig_begin(&r, NULL, "default", 4, BLOCK, true);
    nbits_rig_product(&r, "24,261", w);
    run(&r);
    const uint8_t *q = nbits_rig_part(&r, "w_Q4", OQ_UINT8, "261,2,8");
    for (size_t k = 0; k < K; k++)
        for (size_t n = 0; n < N; n++) {
            const uint8_t byte = q[(n * 2 + k / BLOCK) * 8 + k % BLOCK / 2];
            assert_int_equal(k % 2 == 0 ? byte & 15 : byte >> 4, (int)w[k * N + n] + 8);
        }
    nbits_rig_end(&r);
}

/* ---- bits where they are needed ---- */

/* A weight that 2 bits hold without loss leaves its bits to one that needs them. */
static void budget(void **state) {
    (void)state;
    nbits_rig r;
    float easy[16 * 4];
    for (size_t i = 0; i < OQ_COUNT(easy); i++)
        easy[i] = (float)((int)(i % 4) - 2);
    nbits_rig_begin(&r, NULL, "default", 4, 16, true);
    bm *b = &r.q.b;
    bm_input(b, "x", OQ_FLOAT, "m,16");
    bm_f32(b, "easy", "16,4", easy);
    bm_weight(b, "hard", "16,4", 3);
    bm_node(b, "MatMul", "one", "x easy", "u", "");
    bm_node(b, "MatMul", "two", "x hard", "y", "");
    bm_output(b, "u", OQ_FLOAT, NULL);
    bm_output(b, "y", OQ_FLOAT, NULL);
    const oq_nb_job job = {.model = b->m, .config = &r.config, .plan = &r.q.plan, .made = &r.made};
    oq_nb_budget few = {.target = 3};
    assert_fails(oq_nb_spend(&job, &few, &r.q.err), ONQ_E_OPTION, r.q.err, "4.00 a weight");
    /* A block of 16 has a scale of 32 bits: 2 bits take 4 a weight, 8 bits 10. */
    oq_nb_budget some = {.target = 7};
    assert_ok(oq_nb_spend(&job, &some, &r.q.err), r.q.err);
    assert_int_equal(r.config.shares.n, 2);
    assert_true(oq_str_is(r.config.shares.v[0].weight, "easy"));
    assert_int_equal(r.config.shares.v[0].bits, 2);
    assert_int_equal(r.config.shares.v[1].bits, 8);
    assert_true(some.got == 7);
    assert_true(some.count[2] == 1 && some.count[8] == 1 && some.count[0] + some.count[4] == 0);
    run(&r);
    node(&r, "one_Q2", "MatMulNBits", "x easy_Q2 easy_scales");
    node(&r, "two_Q8", "MatMulNBits", "x hard_Q8 hard_scales");
    nbits_rig_end(&r);
    /* Packed, with scales of 16 bits: 3 bits take 4. */
    nbits_rig_begin(&r, NULL, "default", 4, 16, true);
    r.config.form = OQ_NB_FORM_PACKED;
    for (size_t i = 0; i < OQ_COUNT(easy); i++)
        easy[i] = sinf((float)i);
    nbits_rig_product(&r, "16,4", easy);
    const oq_nb_job small = {
        .model = r.q.b.m, .config = &r.config, .plan = &r.q.plan, .made = &r.made};
    oq_nb_budget packed = {.target = 4};
    assert_ok(oq_nb_spend(&small, &packed, &r.q.err), r.q.err);
    assert_true(packed.got == 4);
    assert_int_equal(packed.count[3], 1);
    nbits_rig_end(&r);
}

/* Without samples no weight gets fewer bits than all of them could have. */
static void floor_of_budget(void **state) {
    (void)state;
    nbits_rig r;
    nbits_rig_begin(&r, NULL, "default", 4, 16, true);
    bm *b = &r.q.b;
    bm_input(b, "x", OQ_FLOAT, "m,16");
    bm_weight(b, "small", "16,2", 3);
    bm_weight(b, "large", "16,64", 4);
    bm_node(b, "MatMul", "one", "x small", "u", "");
    bm_node(b, "MatMul", "two", "x large", "y", "");
    bm_output(b, "u", OQ_FLOAT, NULL);
    bm_output(b, "y", OQ_FLOAT, NULL);
    const oq_nb_job job = {.model = b->m, .config = &r.config, .plan = &r.q.plan, .made = &r.made};
    /* 4 bits take 6; what is left is enough for 8 bits of the small one only. */
    oq_nb_budget some = {.target = 6.2};
    assert_ok(oq_nb_spend(&job, &some, &r.q.err), r.q.err);
    assert_int_equal(some.row.bits, 4);
    assert_int_equal(r.config.shares.v[0].bits, 8);
    assert_int_equal(r.config.shares.v[1].bits, 4);
    nbits_rig_end(&r);
}

/* A weight gets the zero points that suit it, unless they were asked for: what is above zero throughout
 * needs some, what lies evenly around it does not pay for them. */
static void zero_points_of_budget(void **state) {
    (void)state;
    for (int any = 0; any < 2; any++) {
        nbits_rig r;
        float around[32 * 8], above[32 * 8];
        for (size_t i = 0; i < OQ_COUNT(around); i++) {
            around[i] = (float)(i / 8 % 16) - 8;
            above[i] = 20 + sinf((float)i);
        }
        nbits_rig_begin(&r, NULL, "range", 4, 32, true);
        r.config.form = OQ_NB_FORM_PACKED;
        bm *b = &r.q.b;
        bm_input(b, "x", OQ_FLOAT, "m,32");
        bm_f32(b, "around", "32,8", around);
        bm_f32(b, "above", "32,8", above);
        bm_node(b, "MatMul", "one", "x around", "u", "");
        bm_node(b, "MatMul", "two", "x above", "y", "");
        bm_output(b, "u", OQ_FLOAT, NULL);
        bm_output(b, "y", OQ_FLOAT, NULL);
        const oq_nb_job job = {
            .model = b->m, .config = &r.config, .plan = &r.q.plan, .made = &r.made};
        oq_nb_budget some = {.target = 5, .any_grid = any == 1};
        assert_ok(oq_nb_spend(&job, &some, &r.q.err), r.q.err);
        assert_true(some.got <= 5);
        const oq_nb_share *share = r.config.shares.v;
        assert_ptr_equal(share[0].method, &oq_nb_methods[OQ_NB_RANGE]);
        assert_ptr_equal(share[1].method,
                         &oq_nb_methods[any == 1 ? OQ_NB_RANGE_REAL : OQ_NB_RANGE]);
        run(&r);
        assert_true((bm_find_node(b, "two_offsets") != NULL) == (any == 1));
        assert_null(bm_find_node(b, "one_offsets"));
        nbits_rig_end(&r);
    }
}

/* Samples that say of every weight the same, and judge a choice by the bits of the larger one. */
static onq_code see_nothing(void *ctx, oq_nb_weighed *w, size_t n, onq_error *err) {
    (void)ctx, (void)w, (void)n, (void)err;
    return ONQ_OK;
}

static onq_code blame_small(void *ctx, oq_nb_weighed *w, size_t n, onq_error *err) {
    (void)ctx, (void)err;
    for (size_t i = 0; i < n; i++)
        w[i].harm = i == 0 ? 1e6 : 1e-6;
    return ONQ_OK;
}

typedef struct judging {
    const oq_nb_config *config;
    int likes; /* 1: few bits of the larger weight do harm, 2: many do, 0: all is one */
    size_t asked;
} judging;

static onq_code judge_large(void *ctx, double *harm, onq_error *err) {
    judging *j = ctx;
    (void)err;
    j->asked++;
    const unsigned bits = j->config->shares.v[1].bits;
    *harm = j->likes == 0 ? 1 : j->likes == 1 ? 32.0 - (double)(bits == 0 ? 32 : bits) : bits;
    return ONQ_OK;
}

/* What weighing says is a guess: a choice that does more harm than the same bits for all is not
 * taken. One that does much less is not looked at further. */
static void judged_budget(void **state) {
    (void)state;
    for (int likes = 0; likes < 3; likes++) {
        nbits_rig r;
        nbits_rig_begin(&r, NULL, "default", 4, 16, true);
        bm *b = &r.q.b;
        bm_input(b, "x", OQ_FLOAT, "m,16");
        bm_weight(b, "small", "16,16", 3);
        bm_weight(b, "large", "16,64", 4);
        bm_node(b, "MatMul", "one", "x small", "u", "");
        bm_node(b, "MatMul", "two", "x large", "y", "");
        bm_output(b, "u", OQ_FLOAT, NULL);
        bm_output(b, "y", OQ_FLOAT, NULL);
        const oq_nb_job job = {
            .model = b->m, .config = &r.config, .plan = &r.q.plan, .made = &r.made};
        judging j = {.config = &r.config, .likes = likes};
        oq_nb_budget some = {
            .target = 6, .see = see_nothing, .weigh = blame_small, .judge = judge_large, .ctx = &j};
        assert_ok(oq_nb_spend(&job, &some, &r.q.err), r.q.err);
        assert_int_equal(j.asked, likes == 2 ? 2 : 3);
        assert_int_equal(r.config.shares.n, 2);
        assert_int_equal(r.config.shares.v[1].bits, likes == 1 ? 4 : 2);
        assert_true(likes == 1 ? r.config.shares.v[0].bits == 4 : r.config.shares.v[0].bits != 4);
        assert_true(some.got <= 6);
        nbits_rig_end(&r);
    }
}

/* Zero points that are not integers as what a block adds for each unit of the sum of its inputs. */
static void sums(void **state) {
    (void)state;
    /* 0 .. 15 in steps of 1 from 0.25 on: the scale is 1 and hqq finds the zero point -0.25. */
    float w[32];
    for (size_t i = 0; i < 32; i++)
        w[i] = (float)(i % 16) + 0.25f;
    nbits_rig r;
    nbits_rig_begin(&r, NULL, "hqq", 4, 16, true);
    nbits_rig_product(&r, "32,1", w);
    run(&r);
    node(&r, "mm_Q4", "MatMulNBits", "x w_Q4 w_scales");
    node(&r, "mm_offsets", "MatMul", "x_block_sums w_offsets");
    node(&r, "mm_Add", "Add", "y_blocks y_offsets");
    const float *scale = nbits_rig_part(&r, "w_scales", OQ_FLOAT, "1,2");
    const float *offset = nbits_rig_part(&r, "w_offsets", OQ_FLOAT, "2,1");
    const uint8_t *q = nbits_rig_part(&r, "w_Q4", OQ_UINT8, "1,2,8");
    for (size_t i = 0; i < 32; i++) {
        const int v = i % 2 == 0 ? q[i / 2] & 15 : q[i / 2] >> 4;
        assert_true(fabsf((float)(v - 8) * scale[i / 16] + offset[i / 16] - w[i]) < 0.26f);
    }
    nbits_rig_end(&r);
}

/* ---- memory that ends ---- */

typedef struct case_of_memory {
    const char *method;
    bool qdq, symmetric, all;
} case_of_memory;

static void all_kinds(bm *b) {
    bm_input(b, "ids", OQ_INT64, "n");
    bm_weight(b, "table", "5,16", 1);
    bm_weight(b, "unit", "1,16,7", 2);
    bm_weight(b, "last", "7,4", 4);
    bm_weight(b, "bias", "4", 5);
    bm_node(b, "Gather", "embed", "table ids", "x", "");
    bm_node(b, "MatMul", "unit", "x unit", "u", "");
    bm_node(b, "Transpose", "turn", "table", "t", "perm=[1,0]");
    bm_node(b, "MatMul", "head", "x t", "h", "");
    bm_node(b, "Gemm", "gemm", "u last bias", "y", "");
    bm_output(b, "h", OQ_FLOAT, NULL);
    bm_output(b, "y", OQ_FLOAT, NULL);
}

/* Decides, edits, and makes the integers. */
static onq_code memory_body(const onq_allocator *a, void *ctx, onq_error *err) {
    const case_of_memory *c = ctx;
    nbits_rig r;
    nbits_rig_begin(&r, a, c->method, 4, 16, c->symmetric);
    r.config.qdq = c->qdq;
    r.config.all_weights = c->all;
    r.q.config.op_types_all = c->all;
    if (!r.q.b.failed)
        all_kinds(&r.q.b);
    onq_code rc = nbits_rig_run(&r, err);
    oq_buf bytes;
    oq_buf_init(&bytes, a);
    if (rc == ONQ_OK)
        rc = oq_model_encode(r.q.b.m, &bytes, err);
    if (rc == ONQ_OK)
        flaky_give(a, bytes.p, bytes.n);
    oq_buf_release(&bytes);
    nbits_rig_end(&r);
    return rc;
}

static void out_of_memory(void **state) {
    (void)state;
    case_of_memory cases[] = {
        {"default", false, false, true}, {"default", true, true, true}, {"rtn", false, true, false},
        {"k_quant", false, false, true}, {"hqq", false, true, false},   {"awq", false, true, false},
        {"gptq", false, false, false},   {"nf4", false, true, false},
    };
    for (size_t i = 0; i < OQ_COUNT(cases); i++)
        assert_true(flaky_sweep(memory_body, &cases[i]) > 5);
}

/* Two experts with [2, 4] and [4, 2]: rows are columns of MatMulNBits, expert by expert. */
static void experts(void **state) {
    (void)state;
    static const float first[] = {-8, 1, 2, 7, 4, -2, 1, 0, 16, 2, -4, 0, -0.5f, 0.25f, 0, 0.125f};
    static const float second[] = {-8, 0, 8, 4, -4, 2, 1, -1, -8, 7, 0, 0, 16, 2, -2, 1};
    for (int with_bias = 0; with_bias < 2; with_bias++) {
        nbits_rig r;
        nbits_rig_begin(&r, NULL, "default", 4, 2, true);
        bm *b = &r.q.b;
        bm_input(b, "x", OQ_FLOAT, "t,4");
        bm_input(b, "p", OQ_FLOAT, "t,2");
        bm_f32(b, "w1", "2,2,4", first);
        bm_f32(b, "w2", "2,4,2", second);
        bm_weight(b, "b1", "2,2", 1);
        oq_node *n = bm_node(b, "MoE", "moe", with_bias ? "x p w1 b1 w2" : "x p w1 _ w2", "y",
                             "k=1 activation_type='silu'");
        n->domain = OQ_S("com.microsoft");
        bm_output(b, "y", OQ_FLOAT, "t,4");
        r.config.lists->op_types_all = true;
        run(&r);
        const oq_node *q = node(&r, "moe_Q4", "QMoE",
                                with_bias ? "x p w1_Q4 w1_scales b1 w2_Q4 w2_scales _"
                                          : "x p w1_Q4 w1_scales _ w2_Q4 w2_scales _");
        assert_int_equal(oq_attr_int(q, "k", 0), 1);
        assert_int_equal(oq_attr_int(q, "expert_weight_bits", 0), 4);
        assert_int_equal(oq_attr_int(q, "block_size", 0), 2);
        assert_true(oq_str_is(oq_attr_str(q, "activation_type", ""), "silu"));
        FLOATS(nbits_rig_part(&r, "w1_scales", OQ_FLOAT, "2,2,2"), 1, -0.875f, -0.5f, -0.125f, -2,
               0.5f, 0.0625f, -0.015625f);
        /* -8 and 1 over scale 1: 0 and 9; 2 and 7 over -0.875: 6 and 0 ... */
        BYTES(nbits_rig_part(&r, "w1_Q4", OQ_UINT8, "2,2,2"), 0x90, 0x06, 0xc0, 0x80, 0x70, 0x80,
              0xc0, 0x08);
        nbits_rig_part(&r, "w2_Q4", OQ_UINT8, "2,4,1");
        nbits_rig_part(&r, "w2_scales", OQ_FLOAT, "2,4,1");
        assert_false(has(&r, "w1"));
        assert_false(has(&r, "w2"));
        nbits_rig_end(&r);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(experts),
        cmocka_unit_test(four_bits_symmetric),
        cmocka_unit_test(four_bits_asymmetric),
        cmocka_unit_test(zero_points_of_three_blocks),
        cmocka_unit_test(two_bits),
        cmocka_unit_test(eight_bits),
        cmocka_unit_test(float16_scales),
        cmocka_unit_test(zeros_and_bad_numbers),
        cmocka_unit_test(halves),
        cmocka_unit_test(qdq_symmetric),
        cmocka_unit_test(qdq_asymmetric),
        cmocka_unit_test(qdq_eight_bits),
        cmocka_unit_test(channel_wise),
        cmocka_unit_test(gather),
        cmocka_unit_test(tied_table),
        cmocka_unit_test(gemm),
        cmocka_unit_test(batch),
        cmocka_unit_test(many_columns),
        cmocka_unit_test(budget),
        cmocka_unit_test(floor_of_budget),
        cmocka_unit_test(zero_points_of_budget),
        cmocka_unit_test(judged_budget),
        cmocka_unit_test(sums),
        cmocka_unit_test(out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
