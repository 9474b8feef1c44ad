/*
 * test_agreement.c — figures of agreement worked out by hand: signal to noise, cosine, the largest
 * difference, the place of the largest value, and what is left out.
 */
#include "samples/agreement.h"

#include "testing.h"

#include <math.h>
#include <string.h>

static oq_datum tensor(oq_dtype type, const void *data, const int64_t *dims, size_t rank) {
    oq_datum d = {.kind = OQ_DATUM_TENSOR, .dtype = type, .dims = dims, .rank = rank, .count = 1};
    for (size_t i = 0; i < rank; i++)
        d.count *= (uint64_t)dims[i];
    assert_true(oq_dtype_bytes(type, d.count, &d.size_bytes));
    d.data = data;
    return d;
}

static void decibels(void **state) {
    (void)state;
    assert_true(oq_decibels(100) == 20);
    assert_true(oq_signal_to_noise(3000, 3) == 30);
    assert_true(oq_signal_to_noise(0, 3) == -(double)INFINITY);
    assert_true(oq_signal_to_noise(7, 0) == (double)INFINITY);
    assert_true(oq_signal_to_noise(0, 0) == (double)INFINITY);
    assert_true(isnan(oq_signal_to_noise(1, NAN)));
}

/* 2 x 3: in the second row the largest value moves. */
static const int64_t SIZE[] = {2, 3};
static const float X[] = {1, 2, 3, 6, 5, 4}, Y[] = {1, 2, 4, 4, 5, 4};

static void check(const oq_agree *s) {
    assert_int_equal(s->n, 6);
    assert_true(s->aa == 91 && s->bb == 78 && s->noise == 5 && s->dot == 82);
    assert_true(s->largest == 2);
    assert_int_equal(s->rows, 2);
    assert_int_equal(s->same, 1);
    assert_false(s->differs || s->wrecked);
    assert_true(oq_agree_top1(s) == 0.5);
    assert_true(oq_agree_sqnr(s) == 10 * log10(91.0 / 5.0));
    assert_true(fabs(oq_agree_cosine(s) - 82 / sqrt(91.0 * 78.0)) < 1e-15);
}

static void by_hand(void **state) {
    (void)state;
    oq_agree s = {0};
    oq_datum x = tensor(OQ_FLOAT, X, SIZE, 2), y = tensor(OQ_FLOAT, Y, SIZE, 2);
    oq_agree_add(&s, &x, &y);
    check(&s);
    double xs[6];
    int8_t ys[6];
    for (size_t i = 0; i < 6; i++) {
        xs[i] = (double)X[i];
        ys[i] = (int8_t)Y[i];
    }
    s = (oq_agree){0};
    x = tensor(OQ_DOUBLE, xs, SIZE, 2);
    y = tensor(OQ_INT8, ys, SIZE, 2);
    oq_agree_add(&s, &x, &y);
    check(&s);
    oq_agree_add(&s, &x, &x);
    assert_int_equal(s.n, 12);
    assert_int_equal(s.same, 3);
    assert_true(s.noise == 5);
}

static void not_comparable(void **state) {
    (void)state;
    static const int64_t turned[] = {3, 2};
    const oq_datum x = tensor(OQ_FLOAT, X, SIZE, 2), y = tensor(OQ_FLOAT, Y, turned, 2),
                   list = {.kind = OQ_DATUM_SEQUENCE, .dtype = OQ_FLOAT},
                   text = {.kind = OQ_DATUM_TENSOR, .dtype = OQ_STRING, .rank = 2, .dims = SIZE};
    const oq_datum *const others[] = {&y, &list, &text};
    for (size_t i = 0; i < OQ_COUNT(others); i++) {
        oq_agree s = {0};
        oq_agree_add(&s, &x, others[i]);
        assert_true(s.differs);
        assert_int_equal(s.n, 0);
    }
}

static void numbers_that_are_none(void **state) {
    (void)state;
    static const float a[] = {1, NAN, 3, INFINITY}, b[] = {1, 2, 3, 4};
    static const int64_t four[] = {4};
    const oq_datum x = tensor(OQ_FLOAT, a, four, 1), y = tensor(OQ_FLOAT, b, four, 1);
    oq_agree s = {0};
    oq_agree_add(&s, &x, &y);
    assert_int_equal(s.n, 2);
    assert_true(s.aa == 10 && s.noise == 0);
    assert_false(s.wrecked);
    s = (oq_agree){0};
    oq_agree_add(&s, &y, &x);
    assert_int_equal(s.n, 4);
    assert_true(s.wrecked);
}

/* Of a state that grew from [2, 1, 2] to [2, 3, 2] the last two places of three count. */
static void grown(void **state) {
    (void)state;
    static const int64_t before[] = {2, 1, 2}, after[] = {2, 3, 2}, none[] = {2, 0, 2};
    static const float a[] = {9, 9, 1, 2, 3, 4, 9, 9, 5, 6, 7, 8};
    static const float b[] = {0, 0, 1, 2, 3, 5, 0, 0, 5, 6, 7, 8};
    const oq_datum x = tensor(OQ_FLOAT, a, after, 3), y = tensor(OQ_FLOAT, b, after, 3),
                   past = tensor(OQ_FLOAT, a, before, 3), empty = tensor(OQ_FLOAT, a, none, 3);
    oq_agree s = {0};
    oq_agree_add_state(&s, &x, &y, &past);
    assert_true(s.n == 8 && s.noise == 1 && s.rows == 4);
    const oq_datum *const whole[] = {&empty, &x, NULL};
    for (size_t i = 0; i < OQ_COUNT(whole); i++) {
        s = (oq_agree){0};
        oq_agree_add_state(&s, &x, &y, whole[i]);
        assert_int_equal(s.n, 12);
    }
}

static void nothing(void **state) {
    (void)state;
    const oq_agree s = {0};
    assert_true(oq_agree_cosine(&s) == 1);
    assert_true(oq_agree_sqnr(&s) == (double)INFINITY);
    assert_true(isnan(oq_agree_top1(&s)));
}

static void top(void **state) {
    (void)state;
    static const uint16_t halves[] = {0x3c00, 0x4000, 0x4000, 0xbc00}; /* 1 2 2 -1 */
    static const int64_t four[] = {4};
    const oq_datum x = tensor(OQ_FLOAT, X, SIZE, 2), h = tensor(OQ_FLOAT16, halves, four, 1);
    assert_int_equal(oq_datum_top(&x, 0, 3), 2);
    assert_int_equal(oq_datum_top(&x, 3, 3), 0);
    assert_int_equal(oq_datum_top(&h, 0, 4), 1); /* the first of two */
    assert_int_equal(oq_datum_top(&h, 2, 2), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decibels),       cmocka_unit_test(by_hand),
        cmocka_unit_test(not_comparable), cmocka_unit_test(numbers_that_are_none),
        cmocka_unit_test(nothing),        cmocka_unit_test(top),
        cmocka_unit_test(grown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
