/*
 * test_qparam.c — scale and zero point against numbers that the reference made (compute_scale_zp,
 * snap_zero_point_to_uint8, compute_scale_zp_float8 of onnxruntime 1.31.1), bit for bit.
 */
#include "quantize/number/qparam.h"

#include "testing.h"

#include <math.h>
#include <string.h>

typedef struct row {
    oq_dtype type, real;
    int symmetric, reduced;
    double min_range; /* negative: none */
    float rmin, rmax, scale;
    int32_t zero;
} row;

static const row rows[] = {
    {OQ_INT8, OQ_FLOAT, 0, 0, -1.0, 0x1.1281fc0000000p-1f, 0x1.b8ba960000000p-1f,
     0x1.ba750c0000000p-9f, -128},
    {OQ_INT8, OQ_FLOAT16, 0, 0, 0.0001, -0x1.6940000000000p-13f, -0x1.fcc0000000000p-14f,
     0x1.0000000000000p+0f, 0},
    {OQ_INT8, OQ_FLOAT, 0, 1, -1.0, -0x1.96c5e80000000p+9f, -0x1.3c0d6a0000000p+9f,
     0x1.96c5e80000000p+2f, 64},
    {OQ_INT8, OQ_FLOAT16, 0, 1, 0.0001, -0x1.4500000000000p-12f, -0x1.5fc0000000000p-13f,
     0x1.0000000000000p+0f, 0},
    {OQ_INT8, OQ_FLOAT, 1, 0, 0.0001, -0x1.ac76aa0000000p+1f, -0x1.6edcd60000000p-2f,
     0x1.afd6560000000p-6f, 0},
    {OQ_INT8, OQ_FLOAT16, 1, 0, 0.5, -0x1.1940000000000p+3f, -0x1.1940000000000p+3f,
     0x1.1b80000000000p-4f, 0},
    {OQ_INT8, OQ_FLOAT, 1, 1, -1.0, -0x1.431bf20000000p-6f, -0x1.7759200000000p-8f,
     0x1.431bf20000000p-12f, 0},
    {OQ_INT8, OQ_FLOAT16, 1, 1, -1.0, -0x1.5b40000000000p+5f, 0x1.6e80000000000p+5f,
     0x1.6e80000000000p-1f, 0},
    {OQ_UINT8, OQ_FLOAT, 0, 0, -1.0, 0x1.8b6cfa0000000p-2f, 0x1.974a5e0000000p-2f,
     0x1.98e3420000000p-10f, 0},
    {OQ_UINT8, OQ_FLOAT16, 0, 0, 0.5, -0x1.6c00000000000p-5f, 0x1.2840000000000p-5f,
     0x1.0100000000000p-9f, 23},
    {OQ_UINT8, OQ_FLOAT, 0, 1, 0.5, -0x1.08360c0000000p-8f, 0x1.c76c520000000p-8f,
     0x1.0204080000000p-8f, 1},
    {OQ_UINT8, OQ_FLOAT16, 0, 1, 0.5, -0x1.dc40000000000p+0f, -0x1.dc40000000000p+0f,
     0x1.e000000000000p-7f, 127},
    {OQ_UINT8, OQ_FLOAT, 1, 0, -1.0, -0x1.a66cca0000000p-1f, -0x1.a66cca0000000p-1f,
     0x1.a814de0000000p-8f, 128},
    {OQ_UINT8, OQ_FLOAT16, 1, 0, 0.5, -0x1.ad80000000000p+0f, 0x1.9940000000000p-3f,
     0x1.af40000000000p-7f, 128},
    {OQ_UINT8, OQ_FLOAT, 1, 1, 0.5, -0x1.8b0c3e0000000p-10f, 0x1.29db9e0000000p-10f,
     0x1.013cf40000000p-7f, 64},
    {OQ_UINT8, OQ_FLOAT16, 1, 1, 0.0001, -0x1.4600000000000p+9f, -0x1.0e40000000000p+9f,
     0x1.4880000000000p+3f, 64},
    {OQ_INT16, OQ_FLOAT, 0, 0, 0.0001, -0x1.2be7020000000p+0f, -0x1.236b580000000p-6f,
     0x1.2be82e0000000p-16f, 32767},
    {OQ_INT16, OQ_FLOAT16, 0, 0, -1.0, -0x1.a980000000000p+6f, -0x1.a980000000000p+6f,
     0x1.a980000000000p-10f, 32767},
    {OQ_INT16, OQ_FLOAT, 0, 1, 0.5, -0x1.6d6d960000000p+5f, -0x1.6d6d960000000p+5f,
     0x1.6d6d960000000p-10f, 16384},
    {OQ_INT16, OQ_FLOAT16, 0, 1, -1.0, 0x1.1680000000000p-12f, 0x1.1440000000000p-10f,
     0x1.0000000000000p+0f, 0},
    {OQ_INT16, OQ_FLOAT, 1, 0, -1.0, -0x1.9cb89a0000000p-14f, -0x1.9cb89a0000000p-14f,
     0x1.9cbbd40000000p-29f, 0},
    {OQ_INT16, OQ_FLOAT16, 1, 0, 0.5, 0x1.e100000000000p-8f, 0x1.4dc0000000000p-3f,
     0x1.0000000000000p+0f, 0},
    {OQ_INT16, OQ_FLOAT, 1, 1, 0.0001, -0x1.34d10e0000000p-4f, 0x1.05e7f60000000p-6f,
     0x1.34d10e0000000p-18f, 0},
    {OQ_INT16, OQ_FLOAT16, 1, 1, 0.0001, 0x1.e900000000000p-15f, 0x1.e900000000000p-14f,
     0x1.0000000000000p+0f, 0},
    {OQ_UINT16, OQ_FLOAT, 0, 0, -1.0, 0x1.aa14ce0000000p-14f, 0x1.9117880000000p-13f,
     0x1.91191a0000000p-29f, 0},
    {OQ_UINT16, OQ_FLOAT16, 0, 0, 0.5, -0x1.3700000000000p-4f, 0x1.e080000000000p-5f,
     0x1.0000000000000p+0f, 0},
    {OQ_UINT16, OQ_FLOAT, 0, 1, 0.0001, 0x1.7c0f400000000p-4f, 0x1.b6fa200000000p+3f,
     0x1.b6fd8e0000000p-12f, 0},
    {OQ_UINT16, OQ_FLOAT16, 0, 1, -1.0, 0x1.8c80000000000p-2f, 0x1.0700000000000p+4f,
     0x1.0700000000000p-11f, 0},
    {OQ_UINT16, OQ_FLOAT, 1, 0, -1.0, -0x1.4c27aa0000000p-13f, 0x1.4d8fe00000000p-12f,
     0x1.4d912e0000000p-27f, 32768},
    {OQ_UINT16, OQ_FLOAT16, 1, 0, 0.5, 0x1.e800000000000p-5f, 0x1.2bc0000000000p-2f,
     0x1.0000000000000p+0f, 0},
    {OQ_UINT16, OQ_FLOAT, 1, 1, 0.0001, -0x1.90d8d00000000p-3f, 0x1.0dfa3c0000000p-5f,
     0x1.90dbf20000000p-17f, 16384},
    {OQ_UINT16, OQ_FLOAT16, 1, 1, 0.0001, -0x1.a100000000000p+9f, 0x1.84c0000000000p+9f,
     0x1.a100000000000p-5f, 16384},
    {OQ_INT4, OQ_FLOAT, 0, 0, -1.0, 0x1.57dc240000000p-9f, 0x1.57dc240000000p-8f,
     0x1.6ec8ae0000000p-12f, -8},
    {OQ_INT4, OQ_FLOAT16, 0, 0, -1.0, 0x1.c380000000000p+1f, 0x1.20c0000000000p+4f,
     0x1.3400000000000p+0f, -8},
    {OQ_INT4, OQ_FLOAT, 0, 1, -1.0, -0x1.45d7660000000p-2f, -0x1.7d66d40000000p-3f,
     0x1.7463e20000000p-5f, 3},
    {OQ_INT4, OQ_FLOAT16, 0, 1, -1.0, -0x1.2640000000000p-9f, 0x1.5580000000000p-10f,
     0x1.09c0000000000p-11f, 0},
    {OQ_INT4, OQ_FLOAT, 1, 0, 0.0001, -0x1.38b6ac0000000p-11f, -0x1.e8da7a0000000p-12f,
     0x1.4d8fa60000000p-14f, 0},
    {OQ_INT4, OQ_FLOAT16, 1, 0, -1.0, 0x1.0000000000000p-24f, 0x1.efc0000000000p-9f,
     0x1.0880000000000p-11f, 0},
    {OQ_INT4, OQ_FLOAT, 1, 1, 0.0001, -0x1.c6feca0000000p-9f, -0x1.e8279c0000000p-11f,
     0x1.03ff4e0000000p-10f, 0},
    {OQ_INT4, OQ_FLOAT16, 1, 1, -1.0, -0x1.0ac0000000000p+2f, 0x1.0dc0000000000p+5f,
     0x1.3440000000000p+3f, 0},
    {OQ_UINT4, OQ_FLOAT, 0, 0, -1.0, -0x1.b546e20000000p+0f, 0x1.ce1e5c0000000p+5f,
     0x1.fb809c0000000p+1f, 0},
    {OQ_UINT4, OQ_FLOAT16, 0, 0, 0.0001, -0x1.38c0000000000p+8f, 0x1.5000000000000p+7f,
     0x1.0080000000000p+5f, 10},
    {OQ_UINT4, OQ_FLOAT, 0, 1, 0.0001, 0x1.4bc34c0000000p-7f, 0x1.3d025e0000000p-6f,
     0x1.6a4bda0000000p-9f, 0},
    {OQ_UINT4, OQ_FLOAT16, 0, 1, 0.0001, 0x1.25c0000000000p-11f, 0x1.7d40000000000p-10f,
     0x1.b3c0000000000p-13f, 0},
    {OQ_UINT4, OQ_FLOAT, 1, 0, 0.5, 0x1.c4b1aa0000000p+3f, 0x1.c4b1aa0000000p+4f,
     0x1.e2dfa40000000p+1f, 8},
    {OQ_UINT4, OQ_FLOAT16, 1, 0, 0.5, 0x1.8500000000000p-6f, 0x1.32c0000000000p-3f,
     0x1.1100000000000p-4f, 8},
    {OQ_UINT4, OQ_FLOAT, 1, 1, 0.0001, -0x1.4eb0fc0000000p-3f, -0x1.4eb0fc0000000p-3f,
     0x1.7e81200000000p-5f, 4},
    {OQ_UINT4, OQ_FLOAT16, 1, 1, 0.5, 0x1.4240000000000p-6f, 0x1.ce40000000000p-6f,
     0x1.2480000000000p-3f, 4},
};

static void ranges(void **state) {
    (void)state;
    for (size_t i = 0; i < OQ_COUNT(rows); i++) {
        const row *r = &rows[i];
        const oq_qspec spec = {.type = r->type,
                               .real = r->real,
                               .symmetric = r->symmetric,
                               .reduced = r->reduced,
                               .has_min_range = r->min_range >= 0,
                               .min_range = r->min_range};
        onq_error err = ONQ_ERROR_INIT;
        oq_qparam p;
        assert_ok(oq_qparam_compute(&spec, r->rmin, r->rmax, &p, &err), err);
        /* Where the reference gives up and takes 1 for float16, the smallest normal one is
         * taken. */
        if (r->real == OQ_FLOAT16 && r->scale == 1.0f) {
            assert_true(p.scale == 0x1p-14f);
            continue;
        }
        if (p.scale != r->scale || p.zero_point != r->zero)
            fail_msg("row %zu: %a %d, wanted %a %d", i, (double)p.scale, (int)p.zero_point,
                     (double)r->scale, (int)r->zero);
    }
}

static void degenerate_ranges(void **state) {
    (void)state;
    const oq_qspec spec = {.type = OQ_UINT8, .real = OQ_FLOAT};
    onq_error err = ONQ_ERROR_INIT;
    oq_qparam p;
    assert_ok(oq_qparam_compute(&spec, 0.0f, 0.0f, &p, &err), err);
    assert_true(p.scale == 1.0f && p.zero_point == 0);
    assert_ok(oq_qparam_compute(&spec, -1e-39f, 1e-39f, &p, &err), err);
    assert_true(p.scale == 1.0f && p.zero_point == 0);
    const oq_qspec half = {.type = OQ_UINT8, .real = OQ_FLOAT16};
    assert_ok(oq_qparam_compute(&half, 0.0f, 0.0f, &p, &err), err);
    assert_true(p.scale == 1.0f && p.zero_point == 0);
    assert_ok(oq_qparam_compute(&half, -0x1p-8f, 0x1p-8f, &p, &err), err);
    assert_true(p.scale == 0x1p-14f && p.zero_point == 64);
    /* Wider than a float: the difference is taken in double. */
    assert_ok(oq_qparam_compute(&spec, -3.4e38f, 3.4e38f, &p, &err), err);
    assert_true(isfinite(p.scale) && p.zero_point == 127);
    assert_fails(oq_qparam_compute(&spec, NAN, 1.0f, &p, &err), ONQ_E_INVALID, err, "NaN");
    assert_fails(oq_qparam_compute(&spec, -INFINITY, 1.0f, &p, &err), ONQ_E_INVALID, err,
                 "not finite");
}

static const struct {
    float rmin, rmax;
    int reduced;
    double min_range;
    float scale;
    int32_t zero;
} snaps[] = {
    {0.0f, 6.0f, 0, -1.0, 0x1.818182p-6f, 0},    {-1.5f, 2.0f, 0, -1.0, 0x1.020408p-6f, 128},
    {-3.0f, 0.5f, 0, 0.0001, 0x1.8p-6f, 128},    {0.0f, 0.0f, 0, -1.0, 0x1.010102p-8f, 0},
    {0.0f, 0.0f, 0, 0.0001, 0x1.a51342p-22f, 0}, {1.0f, 1.0f, 0, -1.0, 0x1.010102p-8f, 0},
    {-1.0f, 2.0f, 1, -1.0, 0x1.041042p-5f, 64},  {0.0f, 1e-06f, 0, 0.0001, 0x1.a51342p-22f, 0},
};

static void snapped(void **state) {
    (void)state;
    for (size_t i = 0; i < OQ_COUNT(snaps); i++) {
        const oq_qspec spec = {.type = OQ_UINT8,
                               .real = OQ_FLOAT,
                               .reduced = snaps[i].reduced,
                               .has_min_range = snaps[i].min_range >= 0,
                               .min_range = snaps[i].min_range};
        oq_qparam p;
        oq_qparam_snap(&spec, snaps[i].rmin, snaps[i].rmax, &p);
        if (p.scale != snaps[i].scale || p.zero_point != snaps[i].zero)
            fail_msg("row %zu: %a %d", i, (double)p.scale, (int)p.zero_point);
    }
}

static void float8(void **state) {
    (void)state;
    onq_error err = ONQ_ERROR_INIT;
    oq_qparam p;
    assert_ok(oq_qparam_float8(OQ_FLOAT, 0x1.f30f84p-1f, &p, &err), err);
    assert_true(p.scale == 0x1.3f36ecp-7f && p.zero_point == 0);
    assert_ok(oq_qparam_float8(OQ_FLOAT16, 0x1.04cp+0f, &p, &err), err);
    assert_true(p.scale == 0x1.4d8p-7f);
    assert_fails(oq_qparam_float8(OQ_FLOAT, 0.0f, &p, &err), ONQ_E_INVALID, err, "no scale");
}

static void type_names(void **state) {
    (void)state;
    oq_dtype dt;
    assert_true(oq_qtype_parse(OQ_S("qint8"), &dt) && dt == OQ_INT8);
    assert_true(oq_qtype_parse(OQ_S("UINT16"), &dt) && dt == OQ_UINT16);
    assert_true(oq_qtype_parse(OQ_S("QFloat8E4M3FN"), &dt) && dt == OQ_FLOAT8E4M3FN);
    assert_false(oq_qtype_parse(OQ_S("int"), &dt));
    assert_false(oq_qtype_parse(OQ_S(""), &dt));
    assert_string_equal(oq_qtype_name(OQ_UINT4), "QUInt4");
    assert_int_equal(oq_qtype_range(OQ_INT8, false, true).min, -127);
    assert_int_equal(oq_qtype_range(OQ_INT8, true, true).max, 64);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranges), cmocka_unit_test(degenerate_ranges), cmocka_unit_test(snapped),
        cmocka_unit_test(float8), cmocka_unit_test(type_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
