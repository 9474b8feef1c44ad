/*
 * test_nbits_methods.c — the methods of weight-only quantization beside rounding to the nearest
 * (test_nbits.c): by hand where a block comes out exactly, else beside a slow copy of what the
 * method is said to do, in double.
 */
#include "nbits_rig.h"

#include "onnx/attr.h"
#include "quantize/nbits_method/nb_learn.h"
#include "quantize/nbits_method/nb_stream.h"
#include "testing.h"

#include <math.h>
#include <string.h>

static void run(nbits_rig *r) {
    assert_ok(nbits_rig_run(r, &r->q.err), r->q.err);
}

static void assert_bytes(const void *got, const uint8_t *want, size_t n) {
    assert_memory_equal(got, want, n);
}

#define BYTES(got, ...)                                                                            \
    do {                                                                                           \
        const uint8_t want[] = {__VA_ARGS__};                                                      \
        assert_bytes(got, want, sizeof want);                                                      \
    } while (0)

static void assert_near(double got, double want, double within) {
    if (!(fabs(got - want) <= within))
        fail_msg("%.9g, wanted %.9g", got, want);
}

static void assert_floats(const float *got, const float *want, size_t n) {
    for (size_t i = 0; i < n; i++)
        assert_near((double)got[i], (double)want[i], 0);
}

#define FLOATS(got, ...)                                                                           \
    do {                                                                                           \
        const float want[] = {__VA_ARGS__};                                                        \
        assert_floats(got, want, OQ_COUNT(want));                                                  \
    } while (0)

static double clip(double v, double most) {
    return v < 0 ? 0 : v > most ? most : v;
}

/* Integer k of column n of MatMulNBits' 4 bits, with `blocks` blocks of `block` to a column. */
static unsigned integer(const uint8_t *q, size_t block, size_t blocks, size_t k, size_t n) {
    const uint8_t byte = q[(n * blocks + k / block) * block / 2 + k % block / 2];
    return k % 2 == 0 ? byte & 15u : byte >> 4;
}

/* ---- rtn ---- */

/* Symmetric: scale = 2 peak / 15, zero point 8. Halves go to even, and the last block is filled up
 * with zeros, which are stored. */
static void rtn_symmetric(void **state) {
    (void)state;
    static const float w[] = {7.5f, -7.5f, 3, -2.5f, 15, -4};
    nbits_rig r;
    nbits_rig_begin(&r, NULL, "rtn", 4, 4, true);
    nbits_rig_product(&r, "6,1", w);
    run(&r);
    /* 15.5 0.5 11 5.5 | 15.5 6 and zeros */
    BYTES(nbits_rig_part(&r, "w_Q4G4", OQ_UINT8, "1,2,2"), 15 | 0 << 4, 11 | 6 << 4, 15 | 6 << 4,
          0x88);
    FLOATS(nbits_rig_part(&r, "w_scale", OQ_FLOAT, "1,2"), 1, 2);
    assert_null(oq_graph_find_init(r.q.b.g, OQ_S("w_zp")));
    assert_non_null(bm_find_node(&r.q.b, "mm_Q4"));
    nbits_rig_end(&r);
}

/* The range is that of the values and the zeros that fill the block, no more; a ratio cuts it. */
static void rtn_asymmetric(void **state) {
    (void)state;
    static const float w[] = {-3, 0, 12, 5, 5, 15};
    nbits_rig r;
    for (int cut = 0; cut < 2; cut++) {
        nbits_rig_begin(&r, NULL, "rtn", 4, 4, false);
        nbits_rig_product(&r, "6,1", w);
        const oq_nb_ratio ratio = {OQ_S("w"), false, 0.5};
        if (cut)
            assert_true(OQ_PUSH(&r.q.arena, &r.config.ratios, ratio));
        run(&r);
        const uint8_t *q = nbits_rig_part(&r, "w_Q4G4", OQ_UINT8, "1,2,2");
        const float *scale = nbits_rig_part(&r, "w_scale", OQ_FLOAT, "1,2");
        if (cut) { /* -1.5 .. 6 and 0 .. 7.5: what lies outside goes to an end */
            BYTES(q, 0 | 3 << 4, 15 | 13 << 4, 10 | 15 << 4, 0);
            FLOATS(scale, 0.5f, 0.5f);
            assert_true(r.config.ratios.v[0].used);
        } else {
            BYTES(q, 0 | 3 << 4, 15 | 8 << 4, 5 | 15 << 4, 0);
            FLOATS(scale, 1, 1);
        }
        BYTES(nbits_rig_part(&r, "w_zp", OQ_UINT8, "1,1"), 3 | 0 << 4);
        nbits_rig_end(&r);
    }
    /* A range without 0, and one value only: scale 1. */
    static const float far[] = {20, 22.5f, 25, 35, 4, 4, 4, 4};
    nbits_rig_begin(&r, NULL, "rtn", 4, 4, false);
    nbits_rig_product(&r, "8,1", far);
    run(&r);
    FLOATS(nbits_rig_part(&r, "w_scale", OQ_FLOAT, "1,2"), 1, 1);
    BYTES(nbits_rig_part(&r, "w_zp", OQ_UINT8, "1,1"), 0);
    BYTES(nbits_rig_part(&r, "w_Q4G4", OQ_UINT8, "1,2,2"), 0xff, 0xff, 0x44, 0x44);
    nbits_rig_end(&r);
}

/* ---- k_quant ---- */

typedef struct line {
    double scale, least, error;
} line;

/* sum of weight x (scale q + least - x)^2 */
static double error_of(const double *x, const double *weight, const double *q, size_t n, line l) {
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        const double d = l.scale * q[i] + l.least - x[i];
        sum += weight[i] * d * d;
    }
    return sum;
}

static line fit(const double *x, const double *weight, const double *q, size_t n) {
    double w = 0, wx = 0, wq = 0, wqq = 0, wqx = 0;
    for (size_t i = 0; i < n; i++) {
        w += weight[i];
        wx += weight[i] * x[i];
        wq += weight[i] * q[i];
        wqq += weight[i] * q[i] * q[i];
        wqx += weight[i] * q[i] * x[i];
    }
    const double d = w * wqq - wq * wq;
    return (line){.scale = (w * wqx - wx * wq) / d, .least = (wqq * wx - wq * wqx) / d};
}

/* Values weigh as much as their size and the root of their mean square. The plain range is tried,
 * then 20 with 14 to 15.9 steps in it, each replaced by the line that fits its integers best; where
 * that is better, the range begins at the line's least value from then on. */
static line k_quant(const double *x, size_t n) {
    double weight[32], q[32], mean = 0, lo = x[0], hi = x[0];
    for (size_t i = 0; i < n; i++) {
        mean += x[i] * x[i] / (double)n;
        lo = fmin(lo, x[i]);
        hi = fmax(hi, x[i]);
    }
    for (size_t i = 0; i < n; i++)
        weight[i] = sqrt(mean) + fabs(x[i]);
    line best = {.least = lo};
    for (int step = -1; step < 20; step++) {
        const double factor = (step < 0 ? 15 : 14 + 0.1 * step) / (hi - best.least);
        for (size_t i = 0; i < n; i++)
            q[i] = rint(clip(factor * (x[i] - best.least), 15));
        line l = step < 0 ? (line){.scale = 1 / factor, .least = lo} : fit(x, weight, q, n);
        l.error = error_of(x, weight, q, n, l);
        if (step < 0 || l.error < best.error)
            best = l;
    }
    return best;
}

static void check_k_quant(const float *w, size_t k, size_t block, const char *shape,
                          const char *q_shape, const char *scale_shape) {
    nbits_rig r;
    const size_t blocks = (k + block - 1) / block;
    nbits_rig_begin(&r, NULL, "k_quant", 4, block, true); /* has zero points all the same */
    nbits_rig_product(&r, shape, w);
    run(&r);
    char name[32];
    snprintf(name, sizeof name, "w_Q4G%zu", block);
    const uint8_t *q = nbits_rig_part(&r, name, OQ_UINT8, q_shape);
    const float *scale = nbits_rig_part(&r, "w_scale", OQ_FLOAT, scale_shape);
    const uint8_t *zero = nbits_rig_part(&r, "w_zp", OQ_UINT8, blocks > 2 ? "2,2" : "2,1");
    for (size_t n = 0; n < 2; n++)
        for (size_t b = 0; b < blocks; b++) {
            double x[32] = {0};
            for (size_t i = 0; i < block && b * block + i < k; i++)
                x[i] = (double)w[(b * block + i) * 2 + n];
            const line l = k_quant(x, block);
            const double z = clip(rint(-l.least / l.scale), 15);
            const double s = (double)scale[n * blocks + b];
            assert_near(s, l.scale, 1e-5 * l.scale);
            assert_int_equal(zero[n * ((blocks + 1) / 2) + b / 2] >> (b % 2 * 4) & 15, (int)z);
            for (size_t i = 0; i < block; i++)
                assert_int_equal(integer(q, block, blocks, b * block + i, n),
                                 (int)rint(clip(x[i] / s + z, 15)));
        }
    nbits_rig_end(&r);
}

static void k_quant_search(void **state) {
    (void)state;
    /* -3 .. 12 come out exactly in column 0; column 1 has a value far out. */
    static const float exact[] = {-3, 1, 12, 1.25f, 0, 1.5f, 5, -20};
    check_k_quant(exact, 4, 4, "4,2", "2,1,2", "2,1");
    float w[40 * 2];
    for (unsigned seed = 1; seed < 200; seed += 10) { /* so that early and late tries win */
        unsigned at = seed;
        for (size_t i = 0; i < OQ_COUNT(w); i++) {
            at = at * 1664525u + 1013904223u;
            const float u = (float)(at >> 8) / (float)(1u << 24) - 0.5f;
            w[i] = u * u * u * 8;
        }
        check_k_quant(w, 40, 16, "40,2", "2,3,8", "2,3");
    }
}

/* ---- hqq ---- */

enum { HQQ_K = 24, HQQ_N = 3, HQQ_BLOCK = 16, HQQ_BLOCKS = 2 };

/* One step of one block: rounds, takes from each error what is large, and moves the zero point to
 * the mean of what is left. Returns the sum of the errors' sizes. */
static double hqq_step(const double *x, double factor, double beta, double *zero) {
    double sum = 0, error = 0;
    for (size_t i = 0; i < HQQ_BLOCK; i++) {
        const double q = rint(clip(x[i] * factor + *zero, 15));
        const double e = x[i] - (q - *zero) / factor, size = fabs(e);
        const double left = fmax(0, size - pow(size + 1e-8, 0.7 - 1) / beta);
        error += size;
        sum += q - (x[i] - copysign(left, e)) * factor;
    }
    *zero = sum / HQQ_BLOCK;
    return error;
}

/* Zero points are not rounded. All blocks take the same number of steps: up to 20, until the error
 * of the whole weight no longer falls. */
static void hqq_search(void **state) {
    (void)state;
    nbits_rig r;
    nbits_rig_begin(&r, NULL, "hqq", 4, HQQ_BLOCK, true);
    float w[HQQ_K * HQQ_N];
    for (size_t i = 0; i < OQ_COUNT(w); i++)
        w[i] = sinf((float)i * 1.7f) *
               (i % 11 == 0 ? 60.0f : 20.0f);         /* steps large enough to shrink */
    double x[HQQ_N][HQQ_BLOCKS][HQQ_BLOCK] = {{{0}}}; /* zeros fill the last block */
    double factor[HQQ_N][HQQ_BLOCKS], zero[HQQ_N][HQQ_BLOCKS];
    for (size_t i = 0; i < OQ_COUNT(w); i++)
        x[i % HQQ_N][i / HQQ_N / HQQ_BLOCK][i / HQQ_N % HQQ_BLOCK] = (double)w[i];
    for (size_t n = 0; n < HQQ_N; n++)
        for (size_t b = 0; b < HQQ_BLOCKS; b++) {
            double lo = x[n][b][0], hi = lo;
            for (size_t i = 0; i < HQQ_BLOCK; i++) {
                lo = fmin(lo, x[n][b][i]);
                hi = fmax(hi, x[n][b][i]);
            }
            factor[n][b] = 15 / (hi - lo);
            zero[n][b] = rint(-lo * factor[n][b]);
        }
    double best = INFINITY, beta = 10;
    for (unsigned step = 0; step < 20; step++, beta *= 1.01) {
        double error = 0;
        for (size_t n = 0; n < HQQ_N; n++)
            for (size_t b = 0; b < HQQ_BLOCKS; b++)
                error += hqq_step(x[n][b], factor[n][b], beta, &zero[n][b]);
        if (!(error < best))
            break;
        best = error;
    }
    nbits_rig_product(&r, "24,3", w);
    run(&r);
    const uint8_t *q = nbits_rig_part(&r, "w_Q4", OQ_UINT8, "3,2,8");
    const float *scale = nbits_rig_part(&r, "w_scales", OQ_FLOAT, "6");
    const float *zeros = nbits_rig_part(&r, "w_zero_points", OQ_FLOAT, "6");
    for (size_t n = 0; n < HQQ_N; n++)
        for (size_t b = 0; b < HQQ_BLOCKS; b++) {
            assert_near((double)scale[n * HQQ_BLOCKS + b], 1 / factor[n][b], 1e-6);
            assert_near((double)zeros[n * HQQ_BLOCKS + b], zero[n][b], 1e-4);
            for (size_t i = 0; i < HQQ_BLOCK; i++)
                assert_int_equal(integer(q, HQQ_BLOCK, HQQ_BLOCKS, b * HQQ_BLOCK + i, n),
                                 (int)rint(clip(x[n][b][i] * factor[n][b] + zero[n][b], 15)));
        }
    nbits_rig_end(&r);
}

/* ---- the 4-bit floats of bitsandbytes ---- */

/* The values of the codes. NF4: quantiles of the normal distribution; FP4: a sign (8) and these. */
static const double nf4[16] = {
    -1.0,       -0.69619280, -0.52507305, -0.39491749, -0.28444138, -0.18477343, -0.09105004, 0.0,
    0.07958030, 0.16093020,  0.24611230,  0.33791524,  0.44070983,  0.56261700,  0.72295684,  1.0};
static const double fp4[16] = {0,   0.0625 / 12,  2.0 / 3,  1,  1.0 / 3,  0.5,  1.0 / 6,  0.25,
                               -0., -0.0625 / 12, -2.0 / 3, -1, -1.0 / 3, -0.5, -1.0 / 6, -0.25};

static unsigned nearest(const double *codes, double v) {
    unsigned best = 0;
    for (unsigned i = 1; i < 16; i++)
        if (fabs(codes[i] - v) < fabs(codes[best] - v))
            best = i;
    return best;
}

/* A block is values of the transposed weight one after another, over the end of a column too; they
 * are divided by the largest. Two codes to a byte, the first one high; what is left of the last byte
 * is the code of 0. */
static void check_bnb4(const char *method, const double *codes, const float *w, size_t k, size_t n,
                       size_t block, const char *shape, const char *q_shape,
                       const char *most_shape) {
    nbits_rig r;
    nbits_rig_begin(&r, NULL, method, 4, block, true);
    nbits_rig_product(&r, shape, w);
    run(&r);
    const uint8_t *q = nbits_rig_part(&r, "w_Bnb4", OQ_UINT8, q_shape);
    const float *most = nbits_rig_part(&r, "w_absmax", OQ_FLOAT, most_shape);
    for (size_t i = 0; i < k * n + k * n % 2; i++) {
        const size_t first = i / block * block;
        double peak = 0;
        for (size_t j = first; j < first + block && j < k * n; j++)
            peak = fmax(peak, (double)fabsf(w[j % k * n + j / k]));
        const bool fills = i == k * n;
        if (!fills)
            assert_near((double)most[i / block], peak, 0);
        const double v = fills ? 0 : (double)w[i % k * n + i / k] / peak;
        assert_int_equal(i % 2 == 0 ? q[i / 2] >> 4 : q[i / 2] & 15, nearest(codes, v));
    }
    const oq_node *node = bm_find_node(&r.q.b, "mm_Bnb4");
    assert_non_null(node);
    assert_int_equal(oq_attr_int(node, "quant_type", -1), codes == nf4);
    assert_int_equal(oq_attr_int(node, "K", -1), k);
    assert_int_equal(oq_attr_int(node, "N", -1), n);
    assert_int_equal(oq_attr_int(node, "block_size", -1), block);
    nbits_rig_end(&r);
}

static void bnb4(void **state) {
    (void)state;
    float all[16], w[21];
    for (size_t i = 0; i < 16; i++) /* every code once, in its order */
        all[i] = (float)(4 * nf4[i]);
    check_bnb4("nf4", nf4, all, 16, 1, 16, "16,1", "8", "1");
    for (size_t i = 0; i < OQ_COUNT(w); i++)
        w[i] = sinf((float)i * 2.3f) * (1 + (float)i);
    check_bnb4("nf4", nf4, w, 4, 5, 4, "4,5", "10", "5");
    check_bnb4("fp4", fp4, w, 4, 5, 4, "4,5", "10", "5");
    check_bnb4("nf4", nf4, w, 7, 3, 4, "7,3", "11", "6"); /* blocks over the ends of columns */
    check_bnb4("fp4", fp4, w, 7, 3, 16, "7,3", "11", "2");
}

/* ---- methods that look at samples ---- */

/* The range that loses least, of the whole one and 16 down to 0.6 of it; a weight counts as much as
 * the mean square of its inputs. */
static void awq_range(void **state) {
    (void)state;
    static const float mean[] = {1, 1, 1, 0.0001f, 4, 4, 1, 1};
    static const float w[] = {1.2f, -0.4f, 0.9f, -8, 3, 0.1f, -2.2f, 1.3f};
    for (int weighed = 0; weighed < 2; weighed++) {
        nbits_rig r;
        nbits_rig_begin(&r, NULL, "awq", 4, 4, false);
        nbits_rig_product(&r, "8,1", w);
        if (weighed) {
            assert_true(OQ_PUSH(&r.q.arena, &r.config.means, mean));
            assert_true(oq_map_put(&r.config.mean_map, OQ_S("w"), 0));
        }
        run(&r);
        const uint8_t *q = nbits_rig_part(&r, "w_Q4", OQ_UINT8, "1,2,2");
        const float *scale = nbits_rig_part(&r, "w_scales", OQ_FLOAT, "1,2");
        const uint8_t *zero = nbits_rig_part(&r, "w_zero_points", OQ_UINT8, "1,1");
        for (size_t b = 0; b < 2; b++) {
            double best = INFINITY, step = 0, at = 0;
            for (int i = 0; i <= 8; i++) {
                const double part = 1 - 0.4 * i / 8;
                double lo = 0, hi = 0, error = 0;
                for (size_t k = 0; k < 4; k++) {
                    lo = fmin(lo, part * (double)w[b * 4 + k]);
                    hi = fmax(hi, part * (double)w[b * 4 + k]);
                }
                const double s = (double)(float)((hi - lo) / 15), z = rint(-lo / s);
                for (size_t k = 0; k < 4; k++) {
                    const double x = (double)w[b * 4 + k];
                    const double lost = (clip(rint(x / s) + z, 15) - z) * s - x;
                    error += (weighed ? (double)mean[b * 4 + k] : 1) * lost * lost;
                }
                if (error < best) {
                    best = error;
                    step = s;
                    at = z;
                }
            }
            /* The scale that is best for these integers, and so on while that lowers the error. */
            bool better = true;
            for (int i = 0; i < 2 && better; i++) {
                double up = 0, down = 0, error = 0;
                for (size_t k = 0; k < 4; k++) {
                    const double x = (double)w[b * 4 + k],
                                 p = weighed ? (double)mean[b * 4 + k] : 1;
                    const double u = clip(rint(x / step) + at, 15) - at;
                    up += p * u * x;
                    down += p * u * u;
                }
                const double s = (double)(float)(up / down);
                for (size_t k = 0; k < 4; k++) {
                    const double x = (double)w[b * 4 + k];
                    const double lost = (clip(rint(x / s) + at, 15) - at) * s - x;
                    error += (weighed ? (double)mean[b * 4 + k] : 1) * lost * lost;
                }
                better = error < best;
                step = better ? s : step;
                best = better ? error : best;
            }
            assert_near((double)scale[b], step, 0);
            assert_int_equal(zero[0] >> (b * 4) & 15, (int)at);
            for (size_t k = 0; k < 4; k++)
                assert_int_equal(integer(q, 4, 2, b * 4 + k, 0),
                                 (int)clip(rint((double)w[b * 4 + k] / step) + at, 15));
            /* Inputs that are nearly 0 let the range be cut. */
            assert_true(b != 0 || !weighed || step < 9.2 / 15);
        }
        nbits_rig_end(&r);
    }
}

/* Makes the weight from the inputs of a layer: `rows` rows of 4. */
static const uint8_t *learn(nbits_rig *r, const float *x, size_t rows) {
    static const float w[] = {15, 0, 7.4f, 7.4f}; /* scale 1, zero point 0 */
    oq_pool *pool = NULL;
    oq_linear linear;
    oq_hessian h;
    nbits_rig_begin(r, NULL, "gptq", 4, 4, false);
    nbits_rig_product(r, "4,1", w);
    run(r);
    assert_int_equal(r->made.readers.n, 1);
    assert_true(oq_str_is(r->made.readers.v[0].input, "x"));
    if (x != NULL) {
        oq_linear_open(&linear, true);
        assert_ok(oq_pool_new(r->q.b.env, &pool, &r->q.err), r->q.err);
        const oq_nb_learn_job job = {.model = r->q.b.m, .damp = 0.01};
        oq_round_factor factor = {0};
        const oq_nb_learned learned = {
            .hessian = &h, .factor = &factor, .job = &job, .linear = &linear, .pool = pool};
        assert_ok(
            oq_hessian_init(&h, &linear, pool, &r->q.b.env->alloc, 4, 0, UINT64_MAX, &r->q.err),
            r->q.err);
        assert_ok(oq_hessian_add(&h, x, NULL, rows, 4, &r->q.err), r->q.err);
        assert_ok(oq_hessian_finish(&h, &r->q.err), r->q.err);
        assert_ok(oq_nb_lazy_make(r->made.readers.v[0].weight, &learned, &r->q.err), r->q.err);
        oq_round_factor_release(&factor, &h);
        oq_hessian_release(&h);
        oq_pool_free(pool);
    }
    FLOATS(nbits_rig_part(r, "w_scales", OQ_FLOAT, "1,1"), 1);
    BYTES(nbits_rig_part(r, "w_zero_points", OQ_UINT8, "1,1"), 0 | 8 << 4);
    return nbits_rig_part(r, "w_Q4", OQ_UINT8, "1,1,2");
}

/* Two inputs that are always the same: what the one weight lost the other makes up for, 7.4 + 0.4 is
 * nearer to 8. Inputs that have nothing to do with each other, or none: the nearest integers. */
static void gptq_makes_up(void **state) {
    (void)state;
    static const float same[] = {1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 1};
    static const float apart[] = {1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1};
    nbits_rig r;
    BYTES(learn(&r, same, 3), 15, 7 | 8 << 4);
    nbits_rig_end(&r);
    BYTES(learn(&r, apart, 4), 15, 7 | 7 << 4);
    nbits_rig_end(&r);
    BYTES(learn(&r, NULL, 0), 15, 7 | 7 << 4);
    nbits_rig_end(&r);
}

static void assert_stream(const char *value, const char *want, bm *b) {
    oq_index ix;
    onq_error err = ONQ_ERROR_INIT;
    assert_ok(oq_index_build(&ix, b->a, b->g, NULL, &err), err);
    const oq_str got = oq_nb_stream_of(&ix, (oq_str){value, strlen(value)});
    assert_true(oq_str_is(got, want));
}

/* A product is added to what the other input of an Add is, or of a norm that adds; a bias may lie
 * between. What two nodes read, an output, and what is not added have no stream. */
static void gptq_finds_streams(void **state) {
    (void)state;
    bm b;
    bm_begin(&b, NULL, 17);
    bm_input(&b, "x", OQ_FLOAT, "N,4");
    bm_weight(&b, "w", "4,4", 1);
    bm_weight(&b, "bias", "4", 2);
    bm_node(&b, "MatMul", "m1", "x w", "y1", "");
    bm_node(&b, "Add", "a1", "bias y1", "y1b", "");
    bm_node(&b, "Add", "a2", "x y1b", "s1", "");
    bm_node(&b, "MatMul", "m2", "s1 w", "y2", "");
    bm_node(&b, "SkipSimplifiedLayerNormalization", "n", "s1 y2 bias", "normed _ _ s2", "");
    bm_node(&b, "MatMul", "m3", "normed w", "y3", "");
    bm_node(&b, "SkipSimplifiedLayerNormalization", "n2", "y3 bias bias", "normed2", "");
    bm_node(&b, "MatMul", "m4", "normed2 w", "y4", "");
    bm_node(&b, "Mul", "mul", "y4 s2", "product", "");
    bm_node(&b, "Add", "a3", "product s2", "out", "");
    bm_node(&b, "Relu", "r", "product", "out2", "");
    bm_output(&b, "out", OQ_FLOAT, "N,4");
    bm_output(&b, "out2", OQ_FLOAT, "N,4");
    assert_stream("y1", "x", &b);
    assert_stream("y2", "s1", &b);
    assert_stream("y3", "", &b);
    assert_stream("y4", "", &b);
    assert_stream("product", "", &b);
    assert_stream("out", "", &b);
    bm_end(&b);
}

/* The float sum 3 4 0 0 has the size 2.5 by root mean square: all is divided by that. */
static void gptq_weighs_rows(void **state) {
    (void)state;
    static const float x[] = {5, -10}, sum[] = {3, 4, 0, 0}, stream[] = {0.5f, 4, 0, 2.5f},
                       none[4] = {0};
    float inputs[2], outputs[4];
    oq_nb_stream_weigh(&(oq_nb_stream_row){x, sum, stream, 2, 4}, inputs, outputs);
    FLOATS(inputs, 2, -4);
    FLOATS(outputs, 1, 0, 0, -1);
    oq_nb_stream_weigh(&(oq_nb_stream_row){x, none, stream, 2, 4}, inputs, outputs);
    FLOATS(inputs, 5, -10);
    FLOATS(outputs, -0.5f, -4, 0, -2.5f);
    oq_nb_stream_weigh(&(oq_nb_stream_row){x, sum, NULL, 2, 4}, inputs, outputs);
    FLOATS(outputs, 1.2f, 1.6f, 0, 0);
}

/* ---- packed weights ---- */

static const char *const widen_2[] = {"BitShift",  "Cast",    "BitwiseAnd",
                                      "BitwiseOr", "Reshape", "MatMulNBits"};
static const char *const widen_3[] = {"BitwiseAnd", "Cast",       "BitShift", "Split",
                                      "BitwiseOr",  "BitwiseOr",  "Concat",   "BitwiseOr",
                                      "Reshape",    "MatMulNBits"};

static void assert_nodes(const nbits_rig *r, const char *const *types, size_t n) {
    const oq_graph *g = r->q.b.g;
    assert_int_equal(g->node.n, n);
    for (size_t i = 0; i < n; i++)
        assert_true(oq_str_is(g->node.v[i]->op_type, types[i]));
    assert_int_equal(oq_attr_int(g->node.v[n - 1], "bits", 0), 4);
}

/* The values 0, 1 ... less the middle come out exactly. 3 bits: 0 to 7 become 1, 3 ... 15 of 4 bits,
 * in bytes 31 75 b9 fd 31 75 b9 fd; the last two lie in the first bits of the nibbles of the others.
 * 2 bits: 2 6 10 14, in bytes 62 ea ..., the second half two bits below the first. */
static void packed_by_hand(void **state) {
    (void)state;
    for (unsigned bits = 2; bits <= 3; bits++) {
        float w[16];
        nbits_rig r;
        for (unsigned i = 0; i < 16; i++)
            w[i] = (float)(i % (1u << bits)) - (float)((1u << bits) - 1) / 2;
        nbits_rig_begin(&r, NULL, "default", bits, 16, true);
        r.config.form = OQ_NB_FORM_PACKED;
        nbits_rig_product(&r, "16,1", w);
        run(&r);
        if (bits == 2) {
            BYTES(nbits_rig_part(&r, "w_Q2", OQ_UINT8, "1,4"), 0x50, 0xfa, 0x50, 0xfa);
            BYTES(nbits_rig_part(&r, "w_scales", OQ_FLOAT16, "1,1"), 0x00, 0x34); /* 1 / 4 */
            assert_nodes(&r, widen_2, OQ_COUNT(widen_2));
        } else {
            BYTES(nbits_rig_part(&r, "w_Q3", OQ_UINT8, "3,2"), 0x30, 0x74, 0xa8, 0xfd, 0x31, 0x75);
            BYTES(nbits_rig_part(&r, "w_scales", OQ_FLOAT16, "1,1"), 0x00, 0x38); /* 1 / 2 */
            assert_nodes(&r, widen_3, OQ_COUNT(widen_3));
        }
        nbits_rig_end(&r);
    }
}

/* Rounded weights are the same whether inputs are known or not: noise that was measured with what is
 * known of them is then that of what is written. */
static void packed_without_samples(void **state) {
    (void)state;
    float w[16], mean[16];
    uint8_t first[6];
    for (unsigned i = 0; i < 16; i++) {
        w[i] = sinf((float)i) * (i == 3 ? 2 : 1);
        mean[i] = i == 5 ? 1000.0f : 1.0f;
    }
    for (int known = 0; known < 2; known++) {
        nbits_rig r;
        nbits_rig_begin(&r, NULL, "default", 3, 16, true);
        r.config.form = OQ_NB_FORM_PACKED;
        nbits_rig_product(&r, "16,1", w);
        if (known)
            assert_true(oq_map_put(&r.config.mean_map, OQ_S("w"), 0) &&
                        OQ_PUSH(&r.q.arena, &r.config.means, mean));
        run(&r);
        const uint8_t *q = nbits_rig_part(&r, "w_Q3", OQ_UINT8, "3,2");
        if (known)
            assert_memory_equal(q, first, sizeof first);
        memcpy(first, q, sizeof first);
        nbits_rig_end(&r);
    }
}

/* 4 bits stay what they are, with scales of float16. A weight that these are too small for is
 * refused. */
static void packed_scales(void **state) {
    (void)state;
    float w[16];
    nbits_rig r;
    for (unsigned i = 0; i < 16; i++)
        w[i] = (float)i - 8;
    nbits_rig_begin(&r, NULL, "default", 4, 16, true);
    r.config.form = OQ_NB_FORM_PACKED;
    nbits_rig_product(&r, "16,1", w);
    run(&r);
    BYTES(nbits_rig_part(&r, "w_Q4", OQ_UINT8, "1,1,8"), 0x10, 0x32, 0x54, 0x76, 0x98, 0xba, 0xdc,
          0xfe);
    BYTES(nbits_rig_part(&r, "w_scales", OQ_FLOAT16, "1,1"), 0x00, 0x3c);
    nbits_rig_end(&r);
    for (unsigned i = 0; i < 16; i++)
        w[i] *= 1e-6f;
    nbits_rig_begin(&r, NULL, "default", 3, 16, true);
    nbits_rig_product(&r, "16,1", w);
    run(&r);
    uint8_t out[6];
    const oq_producer *p = oq_nb_lazy_part(r.made.all.v[0], OQ_NB_Q);
    assert_fails(p->make(p, out, &r.q.err), ONQ_E_INVALID, r.q.err, "too small for scales");
    nbits_rig_end(&r);
}

/* ---- the table of methods ---- */

static void what_fits_together(void **state) {
    (void)state;
    nbits_rig r;
    nbits_rig_begin(&r, NULL, "default", 4, 32, true);
    oq_nb_how how = r.config.how;
    onq_error *err = &r.q.err;
    assert_ok(oq_nb_check(&r.config, &how, ONQ_E_OPTION, err), *err);
    how.bits = 3;
    assert_ok(oq_nb_check(&r.config, &how, ONQ_E_OPTION, err), *err);
    how.method = nbits_method("hqq");
    assert_fails(oq_nb_check(&r.config, &how, ONQ_E_OPTION, err), ONQ_E_OPTION, *err, "no 3 bits");
    how.bits = 5;
    assert_fails(oq_nb_check(&r.config, &how, ONQ_E_CONFIG, err), ONQ_E_CONFIG, *err, "bits: 5");
    how.bits = 2;
    how.method = nbits_method("rtn");
    assert_fails(oq_nb_check(&r.config, &how, ONQ_E_OPTION, err), ONQ_E_OPTION, *err, "rtn");
    how.method = nbits_method("default");
    r.config.qdq = true;
    assert_fails(oq_nb_check(&r.config, &how, ONQ_E_OPTION, err), ONQ_E_OPTION, *err, "2 bits");
    how.bits = 4;
    how.method = nbits_method("hqq");
    assert_fails(oq_nb_check(&r.config, &how, ONQ_E_OPTION, err), ONQ_E_OPTION, *err,
                 "not integers");
    how.method = nbits_method("default");
    how.block = 0;
    assert_ok(oq_nb_check(&r.config, &how, ONQ_E_OPTION, err), *err);
    r.config.qdq = false;
    assert_fails(oq_nb_check(&r.config, &how, ONQ_E_OPTION, err), ONQ_E_OPTION, *err, "QDQ");
    how.block = 48;
    assert_fails(oq_nb_check(&r.config, &how, ONQ_E_OPTION, err), ONQ_E_OPTION, *err,
                 "block size 48");
    nbits_rig_end(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rtn_symmetric),
        cmocka_unit_test(rtn_asymmetric),
        cmocka_unit_test(k_quant_search),
        cmocka_unit_test(hqq_search),
        cmocka_unit_test(bnb4),
        cmocka_unit_test(awq_range),
        cmocka_unit_test(gptq_makes_up),
        cmocka_unit_test(gptq_finds_streams),
        cmocka_unit_test(gptq_weighs_rows),
        cmocka_unit_test(what_fits_together),
        cmocka_unit_test(packed_by_hand),
        cmocka_unit_test(packed_without_samples),
        cmocka_unit_test(packed_scales),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
