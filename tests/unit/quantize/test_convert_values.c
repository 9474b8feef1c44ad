/*
 * test_convert_values.c — constants that are converted while they are written: floats beside what
 * the definition says element by element, slices beside the whole, and turned matrices of every
 * number of bits.
 */
#include "quantize/convert/cv.h"
#include "quantize/convert/values.h"

#include "build_model.h"
#include "testing.h"

static void nbits_node(bm *b, const char *in, const char *attributes) {
    bm_node(b, "MatMulNBits", "n", in, "y", attributes)->domain = oq_str_of(OQ_MICROSOFT);
}

static void must(bm *b, oq_convert_to to) {
    onq_error err = ONQ_ERROR_INIT;
    oq_convert_job job = {.model = b->m, .to = to};
    assert_ok(oq_convert_run(&job, &err), err);
}

/* ---- floats ---- */

enum { OUTER = 2, MOST = 70000 }; /* more parameters than are kept at a time */

/* Integers of outer x along x inner with parameters as `v` says, beside the definition. */
static void check_values(oq_cv_values *v) {
    const uint64_t n = v->outer * v->along * v->inner;
    bm b;
    onq_error err = ONQ_ERROR_INIT;
    bm_begin(&b, NULL, 21);
    oq_tensor t = {.data_type = OQ_I32(OQ_FLOAT)};
    int64_t dims[1] = {(int64_t)n};
    t.dims.v = dims;
    t.dims.n = 1;
    int8_t *q = test_malloc((size_t)n), *zero = test_malloc((size_t)n);
    float *scale = test_malloc((size_t)n * sizeof *scale);
    float *out = test_malloc((size_t)n * sizeof *out);
    for (uint64_t i = 0; i < n; i++) {
        q[i] = (int8_t)(i * 7 % 251);
        zero[i] = (int8_t)(i * 3 % 101);
        scale[i] = 0.001f * (float)(i % 977 + 1);
    }
    v->type = v->zero_type = OQ_INT8;
    v->scale_type = v->real = OQ_FLOAT;
    v->zero_outer = v->per_outer;
    v->zero_along = v->per_along;
    v->zero_inner = v->per_inner;
    v->data = (oq_span){(const uint8_t *)q, n};
    v->zero = (oq_span){(const uint8_t *)zero, n};
    v->scale = (oq_span){(const uint8_t *)scale, n * sizeof *scale};
    assert_ok(oq_cv_values_payload(b.m, &t, v, &err), err);
    const oq_producer *p = t.raw_data.producer;
    assert_ok(p->make(p, (uint8_t *)out, &err), err);
    for (uint64_t i = 0; i < n; i++) {
        const uint64_t k = i / v->inner % v->along, o = i / v->inner / v->along;
        const uint64_t at = o * v->per_outer + i % v->inner * v->per_inner +
                            (v->groups != NULL ? v->groups[k] : k / v->block) * v->per_along;
        if (out[i] != (float)(q[i] - zero[at]) * scale[at])
            fail_msg("%llu x %llu x %llu: element %llu", (unsigned long long)v->outer,
                     (unsigned long long)v->along, (unsigned long long)v->inner,
                     (unsigned long long)i);
    }
    test_free(q);
    test_free(zero);
    test_free(scale);
    test_free(out);
    bm_end(&b);
}

static void values(void **state) {
    (void)state;
    static const uint32_t groups[6] = {1, 0, 1, 2, 0, 2};
    oq_cv_values cases[] = {
        {.along = MOST, .inner = 1, .block = 1},                 /* one for all */
        {.along = MOST, .inner = 1, .block = 1, .per_along = 1}, /* each column */
        {.along = 6, .inner = MOST, .block = 1, .per_along = 1}, /* each row */
        {.along = 6,
         .inner = MOST,
         .block = 4,
         .per_along = MOST,
         .per_inner = 1,
         .per_outer = 2 * MOST},
        {.along = 70, .inner = 33, .block = 32, .per_along = 1, .per_inner = 3, .per_outer = 99},
        {.along = 70, .inner = 1, .block = 32, .per_along = 1, .per_outer = 3},
        {.along = 6, .inner = 5, .block = 2, .groups = groups, .per_along = 1, .per_inner = 3},
        {.along = 6, .inner = 1, .block = 2, .groups = groups, .per_along = 1, .per_outer = 3}};
    for (size_t i = 0; i < OQ_COUNT(cases); i++) {
        cases[i].outer = OUTER;
        check_values(&cases[i]);
    }
}

/* ---- slices ---- */

/* A payload that is made in slices is the one that is made at once. */
static void slices(void **state) {
    (void)state;
    enum { K = 600, N = 40, BLOCK = 32, BLOCKS = 19 };
    static uint8_t q[N * BLOCKS * BLOCK / 2];
    static float scales[N * BLOCKS];
    bm b;
    onq_error err = ONQ_ERROR_INIT;
    for (size_t i = 0; i < sizeof q; i++)
        q[i] = (uint8_t)(i * 37 + i / 11);
    for (size_t i = 0; i < OQ_COUNT(scales); i++)
        scales[i] = 0.001f * (float)(i + 1);
    for (int to = OQ_TO_FLOAT; to <= OQ_TO_QDQ; to++) {
        bm_begin(&b, NULL, 21);
        bm_input(&b, "x", OQ_FLOAT, "1,600");
        bm_raw(&b, "w_Q4", OQ_UINT8, "40,19,16", q, sizeof q);
        bm_f32(&b, "w_scales", "40,19", scales);
        nbits_node(&b, "x w_Q4 w_scales", "K=600 N=40 bits=4 block_size=32");
        bm_output(&b, "y", OQ_FLOAT, "1,40");
        must(&b, (oq_convert_to)to);
        size_t seen = 0;
        for (size_t i = 0; i < b.g->initializer.n; i++) {
            const oq_producer *p = b.g->initializer.v[i]->raw_data.producer;
            if (p == NULL)
                continue;
            uint8_t *whole = malloc(p->size), *parts = malloc(p->size);
            assert_ok(p->make(p, whole, &err), err);
            for (uint64_t at = 0; at < p->size; at += OQ_SLICE_UNIT) {
                const uint64_t n = p->size - at < OQ_SLICE_UNIT ? p->size - at : OQ_SLICE_UNIT;
                assert_ok(p->slice(p, at, n, parts + at, &err), err);
            }
            assert_memory_equal(whole, parts, p->size);
            free(whole);
            free(parts);
            seen++;
        }
        assert_int_equal(seen, to == OQ_TO_FLOAT ? 1 : 2);
        bm_end(&b);
    }
}

/* ---- turning ---- */

static unsigned element(const uint8_t *p, unsigned bits, uint64_t i) {
    unsigned v = 0;
    for (unsigned k = 0; k < bits; k++)
        v |= (unsigned)(p[(i * bits + k) / 8] >> (i * bits + k) % 8 & 1) << k;
    return v;
}

/* Any range of the turned bytes, beside what the definition says element by element. */
static void check_turn(const bm *b, const oq_cv_turn *u, uint64_t size, uint64_t from, uint64_t n) {
    const unsigned bits = oq_dtype_find(u->type)->bits;
    const uint64_t count = u->batch * u->rows * u->width;
    onq_error err = ONQ_ERROR_INIT;
    uint8_t *out = test_malloc((size_t)n + 1);
    from -= from % 4; /* an element at least */
    n = n < size - from ? n : size - from;
    assert_ok(oq_cv_turn_read(u, &b->env->alloc, from, n, out, &err), err);
    for (uint64_t i = from * 8 / bits; i * bits < (from + n) * 8 && i < count; i++) {
        const uint64_t c = i % u->width, row = i / u->width, m = row / u->rows, r = row % u->rows;
        unsigned want = 0;
        if (c < u->cols)
            want = element(u->data.p, bits, (m * u->step + c * u->stride + r) ^ u->high_first) ^
                   (u->flip ? 1U << (bits - 1) : 0);
        if (element(out, bits, i - from * 8 / bits) != want)
            fail_msg("%u bits, %llu rows, %llu columns: element %llu", bits,
                     (unsigned long long)u->rows, (unsigned long long)u->cols,
                     (unsigned long long)i);
    }
    test_free(out);
}

static void turning(void **state) {
    (void)state;
    static const oq_dtype types[] = {OQ_UINT2, OQ_UINT4, OQ_UINT8, OQ_FLOAT16, OQ_FLOAT};
    static const uint64_t sizes[][4] = {/* rows, columns, more of a column, more of a row */
                                        {1, 1, 0, 0},  {16, 16, 0, 0},   {32, 40, 0, 24},
                                        {7, 5, 0, 0},  {130, 19, 6, 13}, {300, 70, 0, 2},
                                        {9, 33, 1, 0}, {64, 256, 64, 0}};
    bm b;
    bm_begin(&b, NULL, 13);
    for (size_t t = 0; t < OQ_COUNT(types); t++)
        for (size_t i = 0; i < OQ_COUNT(sizes); i++)
            for (unsigned how = 0; how < 4; how++) {
                oq_cv_turn u = {.type = types[t],
                                .rows = sizes[i][0],
                                .cols = sizes[i][1],
                                .stride = sizes[i][0] + sizes[i][2],
                                .width = sizes[i][1] + sizes[i][3],
                                .batch = 2,
                                .flip = (how & 1) != 0,
                                .high_first = (how & 2) != 0 && types[t] == OQ_UINT4};
                u.step = u.stride * u.cols + (u.stride * u.cols) % 2;
                const unsigned bits = oq_dtype_find(u.type)->bits;
                const uint64_t bytes = (u.step * u.batch * bits + 7) / 8;
                const uint64_t size = (u.batch * u.rows * u.width * bits + 7) / 8;
                uint8_t *data = test_malloc((size_t)bytes);
                for (uint64_t k = 0; k < bytes; k++)
                    data[k] = (uint8_t)(k * 37 + k / 256 * 11 + 5);
                u.data = (oq_span){data, bytes};
                check_turn(&b, &u, size, 0, size);
                check_turn(&b, &u, size, size / 3, size / 2);
                check_turn(&b, &u, size, size / 2, size);
                test_free(data);
            }
    bm_end(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(values), cmocka_unit_test(slices),
                                       cmocka_unit_test(turning)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
