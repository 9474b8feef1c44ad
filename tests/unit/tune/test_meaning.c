/*
 * test_meaning.c — what the outputs of a model are, and how samples are divided.
 */
#include "tune/judge/meaning.h"

#include "build_model.h"
#include "testing.h"
#include "tune/judge/bound.h"
#include "tune/judge/divide.h"

#include <math.h>

/* A model whose only output `y` comes from these nodes; the target that is taken by default. */
typedef struct ending {
    const char *nodes[8][4]; /* operator, inputs, outputs, attributes */
    const char *why;         /* it holds classes; NULL: it does not */
    oq_link link;
} ending;

static const ending endings[] = {
    {{{"Softmax", "x", "s", ""}, {"Identity", "s", "y", ""}}, "from a Softmax", OQ_LINK_SOFTMAX},
    {{{"Exp", "x", "e", ""}, {"ReduceSum", "e", "t", ""}, {"Div", "e t", "y", ""}},
     "written out",
     OQ_LINK_SOFTMAX},
    {{{"Exp", "x", "e", ""},
      {"ReduceSum", "e", "t", ""},
      {"Identity", "t", "u", ""},
      {"Expand", "u shape", "v", ""},
      {"Div", "e v", "y", ""}},
     "written out",
     OQ_LINK_SOFTMAX},
    {{{"Exp", "x", "e", ""},
      {"ReduceSum", "e", "t", ""},
      {"Reciprocal", "t", "r", ""},
      {"Mul", "e r", "y", ""}},
     "written out",
     OQ_LINK_SOFTMAX},
    {{{"Exp", "x", "e", ""},
      {"ReduceSum", "e", "t", ""},
      {"Log", "t", "l", ""},
      {"Sub", "x l", "y", ""}},
     "LogSoftmax",
     OQ_LINK_NONE},
    {{{"LogSoftmax", "x", "y", ""}}, "LogSoftmax", OQ_LINK_NONE},
    {{{"MatMul", "x w", "m", ""}, {"Sigmoid", "m", "y", ""}}, "Sigmoid", OQ_LINK_SIGMOID},
    {{{"MatMul", "x w", "m", ""}, {"Add", "m b", "y", ""}}, "linear", OQ_LINK_NONE},
    {{{"ArgMax", "x", "y", ""}}, "number of a class", OQ_LINK_NONE},
    {{{"TopK", "x k", "v y", ""}}, "numbers of the best classes", OQ_LINK_NONE},
    {{{"Sigmoid", "x", "y", ""}}, NULL, OQ_LINK_SIGMOID},
    {{{"Relu", "x", "y", ""}}, NULL, OQ_LINK_NONE},
    /* The sum of something else is no Softmax. */
    {{{"Exp", "x", "e", ""}, {"ReduceSum", "x", "t", ""}, {"Div", "e t", "y", ""}},
     NULL,
     OQ_LINK_NONE},
};

static void outputs(void **state) {
    (void)state;
    for (size_t i = 0; i < OQ_COUNT(endings); i++) {
        const ending *x = &endings[i];
        oq_meaning m;
        bm b;
        onq_error err = ONQ_ERROR_INIT;
        const float zeros[9] = {0};
        bm_begin(&b, NULL, 13);
        bm_input(&b, "x", OQ_FLOAT, "1,3");
        bm_f32(&b, "w", "3,3", zeros);
        bm_f32(&b, "b", "3", zeros);
        bm_i64(&b, "shape", "2", (const int64_t[]){1, 3});
        for (size_t k = 0; x->nodes[k][0] != NULL; k++)
            bm_node(&b, x->nodes[k][0], "", x->nodes[k][1], x->nodes[k][2], x->nodes[k][3]);
        bm_output(&b, "y", OQ_FLOAT, "1,3");
        assert_ok(oq_meaning_find(b.m, NULL, b.a, &m, &err), err);
        assert_int_equal(m.links[0], x->link);
        assert_int_equal(m.classes, x->why != NULL ? 0 : 1);
        if (x->why != NULL)
            assert_non_null(strstr(m.why, x->why));
        bm_end(&b);
    }
}

static oq_datum shaped(const int64_t *dims, size_t rank) {
    oq_datum d = {
        .kind = OQ_DATUM_TENSOR, .dtype = OQ_FLOAT, .rank = rank, .dims = dims, .count = 1};
    for (size_t i = 0; i < rank; i++)
        d.count *= (uint64_t)dims[i];
    return d;
}

/* One row: agreement. A sequence: of whole samples. A map, or one number: dB. */
static void default_targets(void **state) {
    static const oq_link links[] = {OQ_LINK_SOFTMAX};
    static const struct {
        int64_t dims[4];
        size_t rank;
        int64_t batch;
        bool alone;
        oq_metric metric;
    } cases[] = {
        {{1, 10}, 2, 1, false, OQ_METRIC_AGREEMENT},
        {{8, 10}, 2, 8, false, OQ_METRIC_AGREEMENT},
        {{1, 40, 10}, 3, 1, false, OQ_METRIC_SAMPLE_AGREEMENT},
        {{40, 1, 10}, 3, 1, false, OQ_METRIC_SAMPLE_AGREEMENT},
        {{4, 1, 10}, 3, 4, false, OQ_METRIC_AGREEMENT},
        {{1, 1}, 2, 1, false, OQ_METRIC_SQNR},
        {{1, 3, 8, 8}, 4, 1, false, OQ_METRIC_SQNR},
        {{1, 5}, 2, 1, true, OQ_METRIC_AGREEMENT},
        {{1, 40, 5}, 3, 1, true, OQ_METRIC_SQNR},
    };
    (void)state;
    for (size_t i = 0; i < OQ_COUNT(cases); i++) {
        const oq_meaning m = {
            .links = links, .n = 1, .why = "because", .scores_alone = cases[i].alone};
        const oq_datum d = shaped(cases[i].dims, cases[i].rank);
        const oq_default_target t = oq_meaning_target(&m, &d, 1, cases[i].batch);
        assert_int_equal(t.metric, cases[i].metric);
        assert_float_equal(t.value,
                           t.metric == OQ_METRIC_SQNR               ? 30
                           : t.metric == OQ_METRIC_SAMPLE_AGREEMENT ? 98
                                                                    : 99,
                           0);
        assert_non_null(t.why);
    }
    const oq_meaning none = {.links = links, .n = 1, .classes = 1};
    assert_int_equal(oq_meaning_target(&none, NULL, 0, 0).metric, OQ_METRIC_SQNR);
    const oq_meaning speaks = {.links = links, .n = 1, .why = "it", .language = {.is = true}};
    const oq_datum logits = shaped((const int64_t[]){1, 16, 4000}, 3);
    assert_int_equal(oq_meaning_target(&speaks, &logits, 1, 1).metric, OQ_METRIC_KL);
}

/* Several numbers of classes for each sample of the batch are a sequence; a map of them is none. */
static void numbers_in_a_row(void **state) {
    static const struct {
        const char *op;
        int64_t dims[3];
        size_t rank;
        int64_t batch;
        oq_metric metric;
    } cases[] = {
        {"ArgMax", {1, 30}, 2, 1, OQ_METRIC_SAMPLE_AGREEMENT},
        {"ArgMax", {4, 30}, 2, 4, OQ_METRIC_SAMPLE_AGREEMENT},
        {"ArgMax", {4, 1}, 2, 4, OQ_METRIC_AGREEMENT},
        {"ArgMax", {4}, 1, 4, OQ_METRIC_AGREEMENT},
        {"ArgMax", {1, 8, 8}, 3, 1, OQ_METRIC_AGREEMENT},
        {"ArgMax", {8, 8}, 2, 1, OQ_METRIC_AGREEMENT},
        {"TopK", {1, 5}, 2, 1, OQ_METRIC_AGREEMENT},
    };
    (void)state;
    for (size_t i = 0; i < OQ_COUNT(cases); i++) {
        oq_meaning m;
        bm b;
        onq_error err = ONQ_ERROR_INIT;
        oq_datum d = shaped(cases[i].dims, cases[i].rank);
        d.dtype = OQ_INT64;
        bm_begin(&b, NULL, 13);
        bm_input(&b, "x", OQ_FLOAT, "1,3");
        bm_node(&b, cases[i].op, "", "x", "y", "");
        bm_output(&b, "y", OQ_INT64, "1,1");
        assert_ok(oq_meaning_find(b.m, NULL, b.a, &m, &err), err);
        assert_int_equal(oq_meaning_target(&m, &d, 1, cases[i].batch).metric, cases[i].metric);
        bm_end(&b);
    }
}

enum { LOOKED = 12, WIDE = 6 };

/* What a linear operator gives: scores of classes, coordinates of a shape that moves a little, grades
 * between 1 and 5, or words of a sentence that are nearly all of the first class. */
static float linear_value(size_t kind, size_t sample, size_t column) {
    const float wave = (float)((sample * 7 + column * 5) % 11) - 5;
    return kind == 0   ? wave
           : kind == 1 ? 40 * (float)column - 30 + wave
           : kind == 2 ? 3 + wave / 4
           : kind == 4 ? (column + 1 == WIDE ? 1 - 15 / 36.0F : (float)(column + 1) / 36)
                       : (column == 0 ? 30.0F : -6.0F) + wave;
}

/* Coordinates and grades come from a linear operator as well, but are no classes. An output after a
 * Softmax is taken then, and another linear one is not. */
static void numbers_are_no_classes(void **state) {
    static const struct {
        size_t kind, n, rank;
        bool softmax; /* the second output comes after one */
        oq_metric metric;
        size_t classes;
        const char *why;
    } cases[] = {
        {0, LOOKED, 2, false, OQ_METRIC_AGREEMENT, 0, "as scores of classes do"},
        {1, LOOKED, 2, false, OQ_METRIC_SQNR, 2, "as in coordinates"},
        {2, LOOKED, 2, false, OQ_METRIC_SQNR, 2, "one sign"},
        {1, LOOKED, 2, true, OQ_METRIC_AGREEMENT, 1, "Softmax"},
        {1, 7, 2, false, OQ_METRIC_AGREEMENT, 0, "as scores of classes do"},
        {3, LOOKED, 3, false, OQ_METRIC_SAMPLE_AGREEMENT, 0, "as scores of classes do"},
        {2, LOOKED, 3, false, OQ_METRIC_SQNR, 2, "one sign"},
        {4, LOOKED, 2, false, OQ_METRIC_AGREEMENT, 0, "adds up to one"},
        {4, LOOKED, 3, false, OQ_METRIC_SQNR, 2, "one sign"},
    };
    (void)state;
    for (size_t k = 0; k < OQ_COUNT(cases); k++) {
        const bool sequence = cases[k].rank == 3;
        const int64_t dims[3] = {1, sequence ? 2 : WIDE, WIDE};
        float values[LOOKED][2 * WIDE];
        oq_datum out[LOOKED][2];
        const oq_datum *samples[LOOKED];
        oq_meaning m;
        bm b;
        onq_error err = ONQ_ERROR_INIT;
        const float zeros[WIDE * WIDE] = {0};
        bm_begin(&b, NULL, 13);
        bm_input(&b, "x", OQ_FLOAT, "1,6");
        bm_f32(&b, "w", "6,6", zeros);
        bm_node(&b, "MatMul", "", "x w", "y", "");
        bm_node(&b, "MatMul", "", "y w", "logits", "");
        bm_node(&b, cases[k].softmax ? "Softmax" : "Identity", "", "logits", "z", "");
        bm_output(&b, "y", OQ_FLOAT, "1,6");
        bm_output(&b, "z", OQ_FLOAT, "1,6");
        assert_ok(oq_meaning_find(b.m, NULL, b.a, &m, &err), err);
        assert_int_equal(m.classes, 0);
        for (size_t i = 0; i < LOOKED; i++) {
            for (size_t c = 0; c < 2 * WIDE; c++)
                values[i][c] = linear_value(cases[k].kind, i + c / WIDE, c % WIDE);
            out[i][0] = out[i][1] = (oq_datum){
                .kind = OQ_DATUM_TENSOR,
                .dtype = OQ_FLOAT,
                .rank = cases[k].rank,
                .dims = dims,
                .count = sequence ? 2 * WIDE : WIDE,
                .data = values[i],
                .size_bytes = sizeof values[i],
            };
            samples[i] = out[i];
        }
        assert_ok(oq_meaning_look(&m, samples, cases[k].n, b.a, &err), err);
        assert_ok(oq_meaning_find_parts(&m, samples, cases[k].n, b.a, &err), err);
        assert_int_equal(m.classes, cases[k].classes);
        if (cases[k].kind == 4 && cases[k].rank == 2)
            assert_int_equal(m.links[0], OQ_LINK_SOFTMAX);
        const oq_default_target t = oq_meaning_target(&m, out[0], 2, 1);
        assert_int_equal(t.metric, cases[k].metric);
        assert_non_null(strstr(t.why, cases[k].why));
        bm_end(&b);
    }
}

/* ---- dividing ---- */

#define SAMPLES 16

/* Samples of two kinds that alternate; `turn` puts them in another order. */
static void hash_all(uint64_t *hashes, size_t turn) {
    for (size_t i = 0; i < SAMPLES; i++) {
        const size_t k = (i * turn) % SAMPLES;
        const float v[] = {(float)(k % 2), (float)k};
        const int64_t dims[] = {2};
        oq_datum d = shaped(dims, 1);
        d.data = v;
        d.size_bytes = sizeof v;
        const oq_sample s = {.number = i, .inputs = &d, .n_inputs = 1};
        hashes[i] = oq_sample_hash(&s);
    }
}

static void divide(bm *b, size_t turn, size_t parts, uint64_t salt, oq_division *out) {
    uint64_t hashes[SAMPLES], numbers[SAMPLES];
    onq_error err = ONQ_ERROR_INIT;
    hash_all(hashes, turn);
    for (size_t i = 0; i < SAMPLES; i++)
        numbers[i] = 100 + i;
    assert_ok(oq_divide(b->a, hashes, numbers, SAMPLES, parts, salt, out, &err), err);
}

/* Each sample judges once and calibrates all other folds; parts are equally large. */
static void folds(void **state) {
    bm b;
    (void)state;
    bm_begin(&b, NULL, 13);
    for (size_t parts = 2; parts <= 5; parts++) {
        size_t judged[SAMPLES] = {0};
        oq_division d;
        divide(&b, 1, parts, 0, &d);
        assert_int_equal(d.n, parts);
        assert_true(d.apart);
        for (size_t k = 0; k < d.n; k++) {
            const oq_fold *f = &d.folds[k];
            assert_int_equal(f->n_judge + f->n_calibrate, SAMPLES);
            assert_true(f->n_judge >= SAMPLES / parts && f->n_judge <= SAMPLES / parts + 1);
            for (size_t i = 0; i < f->n_judge; i++) {
                judged[f->judge[i]]++;
                for (size_t c = 0; c < f->n_calibrate; c++)
                    assert_int_not_equal(f->calibrate[c], 100 + f->judge[i]);
            }
            for (size_t c = 1; c < f->n_calibrate; c++)
                assert_true(f->calibrate[c - 1] < f->calibrate[c]);
        }
        for (size_t i = 0; i < SAMPLES; i++)
            assert_int_equal(judged[i], 1);
    }
    bm_end(&b);
}

/* In another order the same samples judge together, and in the same order; kinds that alternate are in both parts; another
 * salt divides otherwise. */
static void order_does_not_matter(void **state) {
    oq_division first, turned, other;
    bool in_first[SAMPLES] = {false};
    size_t odd = 0, moved = 0;
    bm b;
    (void)state;
    bm_begin(&b, NULL, 13);
    divide(&b, 1, 2, 0, &first);
    divide(&b, 5, 2, 0, &turned);
    divide(&b, 1, 2, 1, &other);
    for (size_t i = 0; i < first.folds[0].n_judge; i++) {
        in_first[first.folds[0].judge[i]] = true;
        odd += first.folds[0].judge[i] % 2;
    }
    assert_true(odd > 0 && odd < first.folds[0].n_judge);
    for (size_t i = 0; i < turned.folds[0].n_judge; i++) /* one after the other the same ones */
        assert_int_equal(turned.folds[0].judge[i] * 5 % SAMPLES, first.folds[0].judge[i]);
    for (size_t i = 0; i < other.folds[0].n_judge; i++)
        moved += !in_first[other.folds[0].judge[i]];
    assert_true(moved > 0);
    bm_end(&b);
}

/* Samples of one hash, such as the steps of a sequence, judge together; where all have the same they
 * are cut all the same. */
static void equal_ones_stay_together(void **state) {
    uint64_t hashes[SAMPLES], numbers[SAMPLES];
    oq_division d;
    bm b;
    onq_error err = ONQ_ERROR_INIT;
    (void)state;
    bm_begin(&b, NULL, 13);
    for (size_t i = 0; i < SAMPLES; i++) {
        hashes[i] = 1000 + i / 3; /* five sequences of three steps, and one more */
        numbers[i] = i;
    }
    assert_ok(oq_divide(b.a, hashes, numbers, SAMPLES, 2, 0, &d, &err), err);
    for (size_t k = 0; k < 2; k++) {
        size_t of[SAMPLES] = {0};
        assert_true(d.folds[k].n_judge > 3 && d.folds[k].n_calibrate > 3);
        for (size_t i = 0; i < d.folds[k].n_judge; i++)
            of[d.folds[k].judge[i] / 3]++;
        for (size_t i = 0; i < 5; i++)
            assert_true(of[i] == 0 || of[i] == 3);
    }
    for (size_t i = 0; i < SAMPLES; i++)
        hashes[i] = 7;
    assert_ok(oq_divide(b.a, hashes, numbers, SAMPLES, 2, 0, &d, &err), err);
    assert_int_equal(d.folds[0].n_judge, SAMPLES / 2);
    bm_end(&b);
}

/* One sample has to do for both, and is said to. */
static void one_sample(void **state) {
    const uint64_t hash = 7, number = 3;
    oq_division d;
    bm b;
    onq_error err = ONQ_ERROR_INIT;
    (void)state;
    bm_begin(&b, NULL, 13);
    assert_ok(oq_divide(b.a, &hash, &number, 1, 2, 0, &d, &err), err);
    assert_true(d.n == 1 && !d.apart);
    assert_int_equal(d.folds[0].n_calibrate, 1);
    assert_int_equal(d.folds[0].n_judge, 1);
    bm_end(&b);
}

/* ---- bounds ---- */

static void student(void **state) {
    (void)state;
    assert_true(isinf(oq_student(0)));
    assert_float_equal(oq_student(1), 6.314, 1e-3);
    assert_float_equal(oq_student(11), 1.796, 2e-3);
    assert_float_equal(oq_student(30), 1.697, 2e-3);
    assert_float_equal(oq_student(100000), 1.645, 1e-3);
}

/* The bound of a mean, and folds that differ by more than their samples say. */
static void ratios(void **state) {
    oq_loss v[16];
    (void)state;
    for (size_t i = 0; i < 16; i++)
        v[i] = (oq_loss){1 + 0.1 * (double)(i % 4), 10, (unsigned)(i % 2)};
    const oq_ratio even = oq_ratio_of(v, 16);
    assert_float_equal(even.value, 0.115, 1e-12);
    assert_true(oq_ratio_bound(&even) > even.value && oq_ratio_bound(&even) < 0.13);
    for (size_t i = 0; i < 16; i++)
        v[i].lost = i % 2 == 0 ? 1 : 3;
    const oq_ratio apart = oq_ratio_of(v, 16);
    assert_float_equal(apart.error, 0.1, 1e-12); /* of two folds with 0.1 and 0.3 */
    for (size_t i = 0; i < 16; i++)
        v[i] = (oq_loss){.lost = i % 4 == 0 ? 1 : -1, .of = 10, .fold = (unsigned)(i % 2)};
    const oq_ratio gain = oq_ratio_of(v, 16);
    assert_true(gain.value < 0 && oq_ratio_bound(&gain) > gain.error);
    const oq_ratio one = oq_ratio_of(v, 1);
    assert_true(isinf(oq_ratio_bound(&one)));
    v[3].lost = INFINITY;
    const oq_ratio lost = oq_ratio_of(v, 16);
    assert_true(isinf(oq_ratio_bound(&lost)));
}

/* One sample of many has nearly all of what is lost: the others say little of the next such one. One
 * more counts as much as the worst, or as one that nobody decided. */
static void sums_of_few(void **state) {
    oq_loss v[40];
    (void)state;
    for (size_t i = 0; i < 40; i++)
        v[i] = (oq_loss){1 + 0.1 * (double)(i % 4), 10, (unsigned)(i % 2)};
    const oq_ratio even = oq_ratio_of(v, 40);
    assert_int_equal(even.alike, 40);
    const double more = (1.3 - 1.15) / 10 / 41; /* one like the worst */
    assert_true(fabs(oq_ratio_bound_of_sums(&even, 0) - oq_ratio_bound(&even) - more) < 1e-12);
    assert_true(fabs(oq_ratio_bound_of_sums(&even, 1) - oq_ratio_bound(&even) - more) < 1e-12);
    assert_true(fabs(oq_ratio_bound_of_sums(&even, 5.25) - oq_ratio_bound(&even) - .01) < 1e-12);
    v[7].lost = 60;
    const oq_ratio one = oq_ratio_of(v, 40);
    assert_int_equal(one.alike, 3);
    const double bound = (40 * one.value + 6) / 41 + oq_student(2) * one.error;
    assert_true(fabs(oq_ratio_bound_of_sums(&one, 0) - bound) < 1e-9);
    assert_true(oq_ratio_bound_of_sums(&one, 0) - one.value >
                1.7 * (oq_ratio_bound(&one) - one.value));
}

#define ROWS 24

/* One row a sample. */
static oq_ratio expect(bm *b, const float *margins, const float *errors, size_t n) {
    const oq_flips f = {margins, errors, n};
    oq_flip_rows rows[ROWS];
    oq_ratio r;
    onq_error err = ONQ_ERROR_INIT;
    for (size_t i = 0; i < n; i++)
        rows[i] = (oq_flip_rows){i, 1, (unsigned)(i % 2), 1};
    assert_ok(oq_flips_expect(&f, rows, n, b->a, &r, &err), err);
    return r;
}

/* Of 24 rows the least 6 margins count as spread from zero to the next: where exactly they lie says
 * nothing, and one of nearly nothing is no worse than one of a sixth. */
static void margins_are_spread(void **state) {
    float margins[ROWS], close[ROWS], errors[ROWS];
    bm b;
    (void)state;
    bm_begin(&b, NULL, 13);
    for (size_t i = 0; i < ROWS; i++) {
        margins[i] = close[i] = 1 + (float)i; /* the seventh is 7 */
        errors[i] = 0.07F;
    }
    close[0] = 1e-6F;
    /* 6 of 24 margins lie evenly below 7, and 0.07 reaches so many of them; half of that, for a loss
     * may as well be a gain. One error is twice as large, beside 12 rows with smaller margins. */
    const oq_ratio r = expect(&b, margins, errors, ROWS), c = expect(&b, close, errors, ROWS);
    const double each = 0.07 / 7 * 6 / 24 / 2;
    assert_float_equal(r.value, (12 * each + 2 * each) / 13, 1e-8);
    assert_float_equal(c.value, r.value, 1e-12);
    assert_float_equal(c.error, r.error, 1e-12);
    /* The spread of errors is nothing here; six small margins and the half say how uncertain it is. */
    const double density = sqrt(0.25 * 0.75 / 23) / 0.25;
    assert_float_equal(r.error, (r.value * hypot(density, 0.5)), 1e-6);
    bm_end(&b);
}

/* Where all answers are clear, errors that are far smaller reach none of them; one that is not clear
 * says that others may come, and margins count as spread evenly again. */
static void margins_thin_out(void **state) {
    float margins[ROWS], errors[ROWS];
    bm b;
    (void)state;
    bm_begin(&b, NULL, 13);
    for (size_t i = 0; i < ROWS; i++) {
        margins[i] = 10 + 0.01F * (float)i; /* the seventh is 10.06 */
        errors[i] = 1;
    }
    const oq_ratio clear = expect(&b, margins, errors, ROWS);
    assert_true(clear.value > 0 && clear.value < 1e-6 && oq_ratio_bound(&clear) < 1e-6);
    margins[0] = 0.01F;
    const oq_ratio one = expect(&b, margins, errors, ROWS);
    const double each = 1 / 10.06 * 6 / 24 / 2;
    assert_true(fabs(one.value - (12 * each + 2 * each) / 13) < 1e-4);
    bm_end(&b);
}

/* Errors of rows that float is sure of do not count, but the largest of them does; gains count no
 * more than it. */
static void errors_that_count(void **state) {
    float margins[ROWS], errors[ROWS] = {0};
    bm b;
    (void)state;
    bm_begin(&b, NULL, 13);
    for (size_t i = 0; i < ROWS; i++)
        margins[i] = 1 + (float)i;
    assert_float_equal(expect(&b, margins, errors, ROWS).value, 0, 1e-12);
    errors[23] = 0.7F;
    const double each = 0.7 / 7 * 6 / 24 / 2;
    assert_float_equal(expect(&b, margins, errors, ROWS).value, (2 * each / 13), 1e-8);
    errors[2] = -60;
    assert_float_equal(expect(&b, margins, errors, ROWS).value, (each + 2 * each) / 13, 1e-8);
    errors[2] = INFINITY;
    assert_true(expect(&b, margins, errors, ROWS).value > 0.05);
    bm_end(&b);
}

/* Numbers from 0 to 1 that are the same in every run. */
static double draw(uint64_t *state) {
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (double)(*state >> 11) / 9007199254740992.0;
}

/* What is promised holds: margins from many densities, errors with heavy tails, and what the rows
 * would show that nobody has seen. */
static void promises_hold(void **state) {
    static const double shapes[] = {1, 1.5, 3}; /* as many small margins as others, or fewer */
    uint64_t seed = 5;
    (void)state;
    for (size_t k = 0; k < OQ_COUNT(shapes); k++) {
        size_t kept = 0, useful = 0;
        for (size_t i = 0; i < 400; i++) {
            float margins[ROWS], errors[ROWS];
            double future = 0;
            bm b;
            bm_begin(&b, NULL, 13);
            for (size_t r = 0; r < ROWS; r++) {
                margins[r] = (float)(4 * pow(draw(&seed), 1 / shapes[k]));
                errors[r] = (float)((draw(&seed) < 0.5 ? -0.02 : 0.02) / pow(draw(&seed), 0.5));
            }
            for (size_t r = 0; r < 2000; r++)
                future += (draw(&seed) < 0.5 ? -0.02 : 0.02) / pow(draw(&seed), 0.5) >
                          4 * pow(draw(&seed), 1 / shapes[k]);
            const oq_ratio x = expect(&b, margins, errors, ROWS);
            kept += future / 2000 <= oq_ratio_bound(&x) + 0.005;
            useful += oq_ratio_bound(&x) < 0.06;
            bm_end(&b);
        }
        assert_true(kept >= 380);
        assert_true(useful >= 200);
    }
}

#define TEXTS 40
#define EACH  30 /* rows of a text */

static oq_ratio expect_texts(bm *b, const float *margins, const float *errors, size_t texts,
                             size_t each) {
    const oq_flips f = {margins, errors, texts * each};
    oq_flip_rows rows[TEXTS];
    oq_ratio r;
    onq_error err = ONQ_ERROR_INIT;
    for (size_t i = 0; i < texts; i++)
        rows[i] = (oq_flip_rows){i * each, each, (unsigned)(i % 2), 1};
    assert_ok(oq_flips_expect_any(&f, rows, texts, b->a, &r, &err), err);
    return r;
}

/* Of 100 rows in ten texts 4 margins are spread and 9 have errors that count; rows with larger
 * margins have none. Gains count as losses only if they are larger. A text cannot break twice. */
static void any_row(void **state) {
    float margins[100], errors[100];
    bm b;
    (void)state;
    bm_begin(&b, NULL, 13);
    for (size_t i = 0; i < 100; i++) {
        margins[i] = 1 + (float)((i * 37) % 100); /* the fifth is 5 */
        errors[i] = margins[i] <= 9 ? 0.05F : 50;
    }
    const double each = 0.05 / 5 * 4 / 100, last = 2 * each / 2 / 10;
    const oq_ratio even = expect_texts(&b, margins, errors, 10, 10);
    assert_true(fabs(even.value - (10 * each + last * 100 / 9)) < 1e-6);
    assert_true(oq_ratio_bound(&even) > even.value * (1 + 1.8 * 0.25));
    for (size_t i = 0; i < 100; i++)
        errors[i] = margins[i] <= 9 && margins[i] > 1 ? -0.05F : 0.05F;
    const oq_ratio gains = expect_texts(&b, margins, errors, 10, 10);
    assert_true(fabs(gains.value - (10 * each / 2 + last * 100 / 9)) < 1e-6);
    for (size_t i = 0; i < 100; i++)
        errors[i] = INFINITY;
    const oq_ratio all = expect_texts(&b, margins, errors, 10, 10);
    assert_true(all.value >= 1 && all.value < 2 && oq_flips_any(all.value) < 1);
    assert_float_equal(oq_flips_any(0), 0, 1e-12);
    assert_true(fabs(oq_flips_any(0.02) - (1 - exp(-0.02))) < 1e-12);
    assert_true(expect_texts(&b, margins, errors, 1, 1).n == 1);
    bm_end(&b);
}

/* Texts of which some are hard: many small margins, and larger errors. */
static size_t draw_text(uint64_t *seed, float *margins, float *errors) {
    const bool hard = draw(seed) < 0.2;
    size_t broken = 0;
    for (size_t k = 0; k < EACH; k++) {
        const double size = (hard ? 2 : 1) * 0.02;
        margins[k] = (float)(draw(seed) < (hard ? 0.4 : 0.15) ? 4 * draw(seed) : 6);
        errors[k] = (float)((draw(seed) < 0.5 ? -size : size) / pow(draw(seed), 0.4));
        broken += errors[k] > margins[k];
    }
    return broken;
}

static void promises_of_texts_hold(void **state) {
    uint64_t seed = 5;
    size_t kept = 0, useful = 0, future = 0;
    float margins[TEXTS * EACH], errors[TEXTS * EACH];
    (void)state;
    for (size_t i = 0; i < 20000; i++)
        future += draw_text(&seed, margins, errors) > 0;
    for (size_t i = 0; i < 400; i++) {
        bm b;
        bm_begin(&b, NULL, 13);
        for (size_t k = 0; k < TEXTS; k++)
            draw_text(&seed, &margins[k * EACH], &errors[k * EACH]);
        const oq_ratio x = expect_texts(&b, margins, errors, TEXTS, EACH);
        const double bound = oq_flips_any(oq_ratio_bound(&x));
        kept += (double)future / 20000 <= bound + 0.005;
        useful += bound < 2 * (double)future / 20000 + 0.01;
        bm_end(&b);
    }
    assert_true(kept >= 380);
    assert_true(useful >= 200);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(outputs),
        cmocka_unit_test(default_targets),
        cmocka_unit_test(numbers_in_a_row),
        cmocka_unit_test(numbers_are_no_classes),
        cmocka_unit_test(folds),
        cmocka_unit_test(order_does_not_matter),
        cmocka_unit_test(one_sample),
        cmocka_unit_test(equal_ones_stay_together),
        cmocka_unit_test(student),
        cmocka_unit_test(ratios),
        cmocka_unit_test(sums_of_few),
        cmocka_unit_test(margins_are_spread),
        cmocka_unit_test(margins_thin_out),
        cmocka_unit_test(promises_hold),
        cmocka_unit_test(errors_that_count),
        cmocka_unit_test(any_row),
        cmocka_unit_test(promises_of_texts_hold),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
