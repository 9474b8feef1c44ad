/*
 * test_columns.c — which outputs hold scores of classes: by what their columns are like in all rows.
 */
#include "samples/columns.h"

#include "testing.h"

#include <math.h>

#define WIDE 4
#define ROWS 8

/* What a model may give for a row. */
static float value(char kind, size_t row, size_t column) {
    const double wave = sin(1.7 * (double)row + 2.9 * (double)column); /* -1 to 1 */
    switch (kind) {
    case 'l': /* logits */
        return (float)(3 * wave);
    case 'p': /* probabilities */
        return (float)(0.5 + 0.4 * wave);
    case 'n': /* logarithms of them */
        return (float)(-2 + wave);
    case 's': /* parts of one: of four columns two have what the others lack */
        return (float)(0.25 + 0.2 * (column % 2 == 0 ? 1 : -1) * sin(1.7 * (double)row));
    case 'g': /* grades, from 1 to 5 */
        return (float)(3 + 1.5 * wave);
    default: /* coordinates: each column has its own place */
        return (float)(10 * ((double)column - 1.4) + wave);
    }
}

static void look(char kind, size_t rows, size_t rank, oq_columns *c, oq_arena *a) {
    onq_error err = ONQ_ERROR_INIT;
    for (size_t i = 0; i < rows; i++) {
        const int64_t dims[3] = {rank == 1 ? WIDE : 1, rank == 2 ? WIDE : 1, WIDE};
        float v[WIDE];
        const oq_datum d = {.kind = OQ_DATUM_TENSOR,
                            .dtype = OQ_FLOAT,
                            .rank = rank,
                            .dims = dims,
                            .count = WIDE,
                            .data = v,
                            .size_bytes = sizeof v};
        for (size_t k = 0; k < WIDE; k++)
            v[k] = value(kind, i, k);
        if (i == 0)
            assert_ok(oq_columns_begin(c, &d, a, &err), err);
        assert_true(oq_columns_add(c, &d));
    }
}

/* Nor do a few rows say anything. */
static void parts_of_one(void **state) {
    oq_columns c;
    (void)state;
    OQ_SCRATCH(arena, oq_alloc_default());
    look('s', ROWS - 1, 2, &c, &arena);
    assert_false(oq_columns_are_probabilities(&c));
    look('s', ROWS, 2, &c, &arena);
    assert_true(oq_columns_are_probabilities(&c));
}

static void numbers_are_told_from_scores(void **state) {
    static const struct {
        char kind;
        size_t rows, rank;
        oq_columns_kind linear;
        bool numbers;
    } cases[] = {
        {'l', ROWS, 2, OQ_COLUMNS_SCORES, false},
        {'p', ROWS, 2, OQ_COLUMNS_ONE_SIGN, false},
        {'s', ROWS, 2, OQ_COLUMNS_ONE_SIGN, false},
        {'n', ROWS, 2, OQ_COLUMNS_ONE_SIGN, false},
        {'g', ROWS, 2, OQ_COLUMNS_ONE_SIGN, true},
        {'g', ROWS, 1, OQ_COLUMNS_ONE_SIGN, true},
        {'g', ROWS - 1, 2, OQ_COLUMNS_SCORES, false}, /* too few to tell */
        {'c', ROWS, 2, OQ_COLUMNS_APART, true},
        {'c', ROWS, 3, OQ_COLUMNS_SCORES, false}, /* a sequence may be of one class */
        {'g', ROWS, 3, OQ_COLUMNS_ONE_SIGN, true},
    };
    (void)state;
    for (size_t i = 0; i < OQ_COUNT(cases); i++) {
        oq_columns c;
        OQ_SCRATCH(arena, oq_alloc_default());
        look(cases[i].kind, cases[i].rows, cases[i].rank, &c, &arena);
        assert_int_equal(oq_columns_kind_of(&c), cases[i].linear);
        assert_int_equal(oq_columns_are_numbers(&c), cases[i].numbers);
        assert_int_equal(oq_columns_are_probabilities(&c), cases[i].kind == 's');
    }
}

/* Other shapes, a single number and integers are no columns; nothing is said of them. */
static void other_outputs_are_left_alone(void **state) {
    static const int64_t wide[] = {1, WIDE}, other[] = {1, WIDE + 1}, one[] = {1, 1};
    const float v[WIDE + 1] = {2, 3, 4, 5, 6};
    onq_error err = ONQ_ERROR_INIT;
    oq_columns c;
    (void)state;
    OQ_SCRATCH(arena, oq_alloc_default());
    oq_datum d = {.kind = OQ_DATUM_TENSOR,
                  .dtype = OQ_FLOAT,
                  .rank = 2,
                  .dims = wide,
                  .count = WIDE,
                  .data = v,
                  .size_bytes = WIDE * sizeof *v};
    assert_ok(oq_columns_begin(&c, &d, &arena, &err), err);
    d.dims = other;
    d.count = WIDE + 1;
    d.size_bytes = sizeof v;
    assert_false(oq_columns_add(&c, &d));
    d.dims = one;
    d.count = 1;
    assert_ok(oq_columns_begin(&c, &d, &arena, &err), err);
    assert_false(oq_columns_add(&c, &d));
    d.dtype = OQ_INT64;
    d.dims = wide;
    assert_ok(oq_columns_begin(&c, &d, &arena, &err), err);
    assert_false(oq_columns_add(&c, &d));
    assert_false(oq_columns_are_numbers(&c));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_are_told_from_scores),
        cmocka_unit_test(parts_of_one),
        cmocka_unit_test(other_outputs_are_left_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
