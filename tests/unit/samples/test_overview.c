/*
 * test_overview.c — what samples have in common, worked out by hand: one value everywhere, copies,
 * whole numbers, rows; and how sure a model is of its classes.
 */
#include "samples/agreement.h"
#include "samples/overview.h"

#include "testing.h"

#include <math.h>

static oq_datum floats(const float *v, const int64_t *dims, size_t rank) {
    oq_datum d = {.kind = OQ_DATUM_TENSOR,
                  .dtype = OQ_FLOAT,
                  .dims = dims,
                  .rank = rank,
                  .count = 1,
                  .data = v};
    for (size_t i = 0; i < rank; i++)
        d.count *= (uint64_t)dims[i];
    d.size_bytes = d.count * sizeof *v;
    return d;
}

static void add(oq_overview *w, const oq_datum *inputs, size_t n) {
    oq_look l;
    oq_look_make(&l, inputs, n);
    oq_overview_add(w, &l);
}

static const int64_t SIZE[] = {2, 3};

static void plain(void **state) {
    (void)state;
    static const float a[] = {0, 1, 2, 3, 4, 255}, b[] = {0, 1, 2, 3, 4, -0.5f};
    oq_overview w;
    oq_overview_init(&w, 1);
    const oq_datum x = floats(a, SIZE, 2), y = floats(b, SIZE, 2);
    add(&w, &x, 1);
    assert_true(w.inputs[0].whole && w.inputs[0].least == 0 && w.inputs[0].greatest == 255);
    add(&w, &x, 1);
    assert_int_equal(w.distinct, 1);
    add(&w, &y, 1);
    assert_true(!w.inputs[0].whole && w.inputs[0].least == -0.5);
    assert_int_equal(w.samples, 3);
    assert_int_equal(w.compared, 3);
    assert_int_equal(w.distinct, 2);
    assert_int_equal(w.rows, 6);
    assert_int_equal(w.constant, 0);
    assert_false(oq_overview_is_constant(&w));
}

/* Two samples of one value each are constant by themselves, and not together. */
static void constant(void **state) {
    (void)state;
    static const float a[] = {2, 2, 2, 2, 2, 2}, b[] = {3, 3, 3, 3, 3, 3};
    const oq_datum x = floats(a, SIZE, 2), y = floats(b, SIZE, 2);
    oq_overview w;
    oq_overview_init(&w, 1);
    assert_false(oq_overview_is_constant(&w)); /* there is none */
    add(&w, &x, 1);
    add(&w, &x, 1);
    assert_true(oq_overview_is_constant(&w));
    add(&w, &y, 1);
    assert_false(oq_overview_is_constant(&w));
    assert_int_equal(w.constant, 3);
}

/* A mask of ones beside tokens that differ is nothing to warn of; neither are texts. */
static void several_inputs(void **state) {
    (void)state;
    static const int64_t ids[] = {5, 9, 7}, ones[] = {1, 1, 1}, size[] = {1, 3};
    static const oq_str words[] = {{"a", 1}, {"a", 1}, {"a", 1}};
    oq_datum in[2] = {floats((const float *)(const void *)ids, size, 2),
                      floats((const float *)(const void *)ones, size, 2)};
    oq_overview w;
    for (size_t i = 0; i < 2; i++) {
        in[i].dtype = OQ_INT64;
        in[i].size_bytes = sizeof ids;
    }
    oq_overview_init(&w, 2);
    add(&w, in, 2);
    assert_true(w.inputs[0].least == 5 && w.inputs[0].greatest == 9 && w.inputs[1].least == 1);
    assert_false(oq_overview_is_constant(&w));
    in[0] = (oq_datum){.kind = OQ_DATUM_TENSOR,
                       .dtype = OQ_STRING,
                       .dims = size,
                       .rank = 2,
                       .count = 3,
                       .strings = words};
    oq_overview_init(&w, 2);
    add(&w, in, 2);
    assert_false(oq_overview_is_constant(&w));
}

/* More samples than are compared, and more values than are converted at a time. */
static void many(void **state) {
    (void)state;
    enum { N = 3000 };
    static float v[N];
    static const int64_t size[] = {N};
    oq_overview w;
    oq_overview_init(&w, 1);
    for (size_t i = 0; i < OQ_OVERVIEW_SAMPLES + 10; i++) {
        v[N - 1] = (float)i;
        const oq_datum x = floats(v, size, 1);
        add(&w, &x, 1);
    }
    assert_int_equal(w.samples, OQ_OVERVIEW_SAMPLES + 10);
    assert_int_equal(w.rows, w.samples);
    assert_int_equal(w.distinct, OQ_OVERVIEW_SAMPLES);
    assert_true(w.inputs[0].greatest == OQ_OVERVIEW_SAMPLES + 9);
}

/* Rows that are distributions count as they are, others after a Softmax. */
static void confidence(void **state) {
    (void)state;
    static const float p[] = {0.25f, 0.5f, 0.25f, 1, 0, 0}, logits[] = {1, 1, 1, 0, 0, 0};
    const oq_datum x = floats(p, SIZE, 2), y = floats(logits, SIZE, 2);
    double sum = 0;
    uint64_t rows = 0;
    oq_confidence_add(&x, &sum, &rows);
    assert_true(sum == 1.5);
    assert_int_equal(rows, 2);
    oq_confidence_add(&y, &sum, &rows);
    assert_true(fabs(sum - (1.5 + 2.0 / 3)) < 1e-12);
    assert_int_equal(rows, 4);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain), cmocka_unit_test(constant),   cmocka_unit_test(several_inputs),
        cmocka_unit_test(many),  cmocka_unit_test(confidence),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
