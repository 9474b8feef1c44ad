/*
 * test_qweight.c — weights: every division into groups, every type, against a plain loop over
 * elements.
 */
#include "quantize/number/qweight.h"

#include "base/text/real.h"
#include "build_model.h"
#include "flaky_alloc.h"
#include "testing.h"

#include <math.h>
#include <stdlib.h>

static const oq_dtype types[] = {OQ_INT8, OQ_UINT8, OQ_INT16, OQ_UINT16, OQ_INT4, OQ_UINT4};

/* The group of element i, by its indices. */
static uint64_t group_of(const oq_qweight *w, uint64_t i) {
    const uint64_t at = i / w->inner % w->along, behind = i % w->inner,
                   before = i / w->inner / w->along;
    if (w->group == OQ_QGROUP_TENSOR)
        return 0;
    if (w->group == OQ_QGROUP_CHANNEL)
        return at;
    return (before * w->n_blocks + at / w->block) * w->inner + behind;
}

static int32_t stored(oq_dtype type, const uint8_t *p, uint64_t i) {
    switch (type) {
    case OQ_INT8:
        return (int8_t)p[i];
    case OQ_UINT8:
        return p[i];
    case OQ_INT16:
        return (int16_t)(p[2 * i] | p[2 * i + 1] << 8);
    case OQ_UINT16:
        return p[2 * i] | p[2 * i + 1] << 8;
    case OQ_INT4:
        return oq_get_i4(p, i);
    default:
        return oq_get_u4(p, i);
    }
}

static float element(const oq_qweight *w, uint64_t i) {
    float x;
    oq_reals_read(w->real, w->data.p, i, 1, &x);
    return x;
}

/* Parameters and values of one division, checked element by element. */
static void check(bm *b, oq_tensor *t, oq_qgroup group, int64_t axis, uint64_t block, oq_dtype type,
                  bool symmetric) {
    onq_error err = ONQ_ERROR_INIT;
    oq_qweight w;
    oq_qparams p;
    uint64_t bytes;
    const oq_qspec spec = {.type = type, .symmetric = symmetric};
    assert_ok(oq_qweight_init(&w, b->m, t, group, axis, block, &err), err);
    assert_ok(oq_qparams_init(&p, b->a, w.n_params, &err), err);
    assert_ok(oq_qweight_params(&w, &spec, NULL, oq_alloc_default(), &p, &err), err);
    assert_ok(oq_qweight_bytes(&w, type, &bytes, &err), err);
    uint8_t *out = calloc(1, bytes + 1);
    out[bytes] = 0xa5;
    assert_ok(oq_qweight_quantize(&w, type, &p, out, &err), err);
    assert_int_equal(out[bytes], 0xa5);

    for (uint64_t g = 0; g < w.n_params; g++) {
        float lo = INFINITY, hi = -INFINITY;
        for (uint64_t i = 0; i < w.count; i++) {
            if (group_of(&w, i) == g) {
                lo = fminf(lo, element(&w, i));
                hi = fmaxf(hi, element(&w, i));
            }
        }
        oq_qspec own = spec;
        oq_qparam want;
        own.real = oq_qweight_scale_type(&w);
        assert_ok(group == OQ_QGROUP_BLOCK ? oq_qparam_block(&own, lo, hi, &want, &err)
                                           : oq_qparam_compute(&own, lo, hi, &want, &err),
                  err);
        assert_true(p.scale[g] == want.scale && p.zero[g] == want.zero_point);
    }
    const oq_qrange q = oq_qtype_range(type, false, false);
    for (uint64_t i = 0; i < w.count; i++) {
        const uint64_t g = group_of(&w, i);
        float v = rintf(element(&w, i) / p.scale[g]) + (float)p.zero[g];
        v = v < (float)q.min ? (float)q.min : v > (float)q.max ? (float)q.max : v;
        assert_int_equal(stored(type, out, i), (int32_t)v);
    }
    free(out);
}

static void all_divisions(void **state) {
    (void)state;
    static const char *const shapes[] = {"7", "5,9", "3,4,5", "2,3,3,3", "1,1", "33,34"};
    for (size_t s = 0; s < OQ_COUNT(shapes); s++) {
        bm b;
        bm_begin(&b, NULL, 21);
        oq_tensor *t = bm_weight(&b, "w", shapes[s], (unsigned)s + 1);
        for (size_t k = 0; k < OQ_COUNT(types); k++) {
            check(&b, t, OQ_QGROUP_TENSOR, 0, 0, types[k], false);
            check(&b, t, OQ_QGROUP_TENSOR, 0, 0, types[k], true);
            for (int64_t axis = -(int64_t)t->dims.n; axis < (int64_t)t->dims.n; axis++) {
                check(&b, t, OQ_QGROUP_CHANNEL, axis, 0, types[k], true);
                check(&b, t, OQ_QGROUP_CHANNEL, axis, 0, types[k], false);
                check(&b, t, OQ_QGROUP_BLOCK, axis, 2, types[k], true);
                check(&b, t, OQ_QGROUP_BLOCK, axis, 16, types[k], false);
            }
        }
        bm_end(&b);
    }
}

/* float16, bfloat16, and float32 at an odd address. */
static void other_storage(void **state) {
    (void)state;
    enum { N = 9 * 11 };
    bm b;
    uint16_t halves[N], brains[N];
    static uint8_t odd[N * 4 + 1];
    bm_begin(&b, NULL, 13);
    oq_tensor *t = bm_weight(&b, "w", "9,11", 3);
    float *x;
    onq_error err = ONQ_ERROR_INIT;
    assert_ok(oq_tensor_floats(b.m, t, b.a, &x, NULL, &err), err);
    for (size_t i = 0; i < N; i++) {
        halves[i] = oq_f32_to_f16(x[i]);
        brains[i] = oq_f32_to_bf16(x[i]);
    }
    memcpy(odd + 1, x, N * 4);
    oq_tensor *h = bm_raw(&b, "h", OQ_FLOAT16, "9,11", halves, sizeof halves);
    oq_tensor *g = bm_raw(&b, "g", OQ_BFLOAT16, "9,11", brains, sizeof brains);
    const int64_t dims[] = {9, 11};
    oq_tensor *o = oq_tensor_new(b.a, OQ_S("o"), OQ_FLOAT, dims, 2);
    oq_tensor_set_view(o, odd + 1, N * 4);
    for (size_t k = 0; k < OQ_COUNT(types); k++) {
        for (int axis = 0; axis < 2; axis++) {
            check(&b, h, OQ_QGROUP_CHANNEL, axis, 0, types[k], true);
            check(&b, g, OQ_QGROUP_CHANNEL, axis, 0, types[k], true);
            check(&b, o, OQ_QGROUP_CHANNEL, axis, 0, types[k], true);
            check(&b, h, OQ_QGROUP_BLOCK, axis, 4, types[k], false);
        }
        check(&b, h, OQ_QGROUP_TENSOR, 0, 0, types[k], false);
        check(&b, o, OQ_QGROUP_TENSOR, 0, 0, types[k], false);
    }
    bm_end(&b);
}

static void empty_and_bad(void **state) {
    (void)state;
    bm b;
    oq_qweight w;
    oq_qparams p;
    onq_error err = ONQ_ERROR_INIT;
    const oq_qspec spec = {.type = OQ_INT8, .symmetric = true};
    const float bad[4] = {1.0f, NAN, -2.0f, 0.5f};
    const float wide[2] = {1.0f, -INFINITY};
    const int64_t ints[2] = {1, 2};
    bm_begin(&b, NULL, 13);
    oq_tensor *empty = bm_weight(&b, "e", "3,0", 1);
    assert_ok(oq_qweight_init(&w, b.m, empty, OQ_QGROUP_CHANNEL, 0, 0, &err), err);
    assert_ok(oq_qparams_init(&p, b.a, w.n_params, &err), err);
    assert_ok(oq_qweight_params(&w, &spec, NULL, oq_alloc_default(), &p, &err), err);
    assert_true(p.n == 3 && p.scale[2] == 1.0f && p.zero[2] == 0);

    oq_tensor *nan = bm_f32(&b, "n", "4", bad);
    assert_ok(oq_qweight_init(&w, b.m, nan, OQ_QGROUP_TENSOR, 0, 0, &err), err);
    assert_ok(oq_qparams_init(&p, b.a, w.n_params, &err), err);
    assert_fails(oq_qweight_params(&w, &spec, NULL, oq_alloc_default(), &p, &err), ONQ_E_INVALID,
                 err, "'n' holds NaN");
    uint8_t out[4];
    p.scale[0] = 0.25f; /* given, so that nobody looked for a range */
    assert_fails(oq_qweight_quantize(&w, OQ_INT8, &p, out, &err), ONQ_E_INVALID, err,
                 "'n' holds NaN");
    oq_tensor *inf = bm_f32(&b, "i", "2", wide);
    assert_ok(oq_qweight_init(&w, b.m, inf, OQ_QGROUP_TENSOR, 0, 0, &err), err);
    assert_fails(oq_qweight_params(&w, &spec, NULL, oq_alloc_default(), &p, &err), ONQ_E_INVALID,
                 err, "not finite");
    assert_fails(oq_qweight_init(&w, b.m, inf, OQ_QGROUP_CHANNEL, 1, 0, &err), ONQ_E_INVALID, err,
                 "axis 1 is out of range");
    oq_tensor *whole = bm_i64(&b, "k", "2", ints);
    assert_fails(oq_qweight_init(&w, b.m, whole, OQ_QGROUP_TENSOR, 0, 0, &err), ONQ_E_UNSUPPORTED,
                 err, "INT64");
    bm_end(&b);
}

static void overridden_range(void **state) {
    (void)state;
    bm b;
    oq_qweight w;
    oq_qparams p;
    onq_error err = ONQ_ERROR_INIT;
    const oq_qspec spec = {.type = OQ_UINT8};
    const oq_qclamp clamp = {.has_min = true, .has_max = true, .min = -1.0, .max = 1.55};
    bm_begin(&b, NULL, 13);
    oq_tensor *t = bm_weight(&b, "w", "4,4", 1);
    assert_ok(oq_qweight_init(&w, b.m, t, OQ_QGROUP_TENSOR, 0, 0, &err), err);
    assert_ok(oq_qparams_init(&p, b.a, 1, &err), err);
    assert_ok(oq_qweight_params(&w, &spec, &clamp, oq_alloc_default(), &p, &err), err);
    assert_true(p.zero[0] == 100 && fabsf(p.scale[0] - 0.01f) < 1e-8f);
    bm_end(&b);
}

/* The scale from numpy.std of 1000 numbers, as numpy 2.4 adds them up. */
static void deviation(void **state) {
    (void)state;
    float x[1000];
    for (size_t i = 0; i < 1000; i++)
        x[i] = (float)((i * 7919u) % 1009u) * 0.37f - 100.0f;
    bm b;
    oq_qweight w;
    oq_qparams p;
    onq_error err = ONQ_ERROR_INIT;
    const oq_qspec spec = {.type = OQ_FLOAT8E4M3FN};
    bm_begin(&b, NULL, 19);
    oq_tensor *t = bm_f32(&b, "w", "1000", x);
    assert_ok(oq_qweight_init(&w, b.m, t, OQ_QGROUP_TENSOR, 0, 0, &err), err);
    assert_ok(oq_qparams_init(&p, b.a, 1, &err), err);
    assert_ok(oq_qweight_params(&w, &spec, NULL, oq_alloc_default(), &p, &err), err);
    if (p.scale[0] != 0x1.13d0ec0p+0f)
        fail_msg("%a", (double)p.scale[0]);
    uint8_t out[1000];
    assert_ok(oq_qweight_quantize(&w, OQ_FLOAT8E4M3FN, &p, out, &err), err);
    for (size_t i = 0; i < 1000; i++)
        assert_int_equal(out[i], oq_f32_to_fp8(x[i] / p.scale[0], OQ_FP8_E4M3FN, true));
    bm_end(&b);
}

static onq_code lazy_body(const onq_allocator *a, void *ctx, onq_error *err) {
    (void)ctx;
    bm b;
    oq_qweight w;
    oq_qparams p;
    const oq_producer *lazy;
    const oq_qspec spec = {.type = OQ_INT8, .symmetric = true};
    uint8_t bytes[12];
    onq_code rc = ONQ_OK;
    bm_begin(&b, a, 13);
    oq_tensor *t = bm_weight(&b, "w", "3,4", 1);
    if (b.failed) {
        rc = oq_fail_nomem(err);
        goto done;
    }
    OQ_GO(oq_qweight_init(&w, b.m, t, OQ_QGROUP_CHANNEL, 1, 0, err));
    OQ_GO(oq_qparams_init(&p, b.a, w.n_params, err));
    OQ_GO(oq_qweight_params(&w, &spec, NULL, a, &p, err));
    OQ_GO(oq_qweight_producer(b.a, &w, OQ_INT8, &p, &lazy, err));
    assert_int_equal(lazy->size, 12);
    OQ_GO(lazy->make(lazy, bytes, err));
done:
    bm_end(&b);
    return rc;
}

static void out_of_memory(void **state) {
    (void)state;
    assert_true(flaky_sweep(lazy_body, NULL) > 3);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_divisions), cmocka_unit_test(other_storage),
        cmocka_unit_test(empty_and_bad), cmocka_unit_test(overridden_range),
        cmocka_unit_test(deviation),     cmocka_unit_test(out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
