/*
 * test_text.c — the rows of a recogniser as texts.
 */
#include "tune/judge/text.h"

#include "build_model.h"
#include "testing.h"
#include "tune/judge/score.h"

#include <math.h>

#define CLASSES 6
#define BLANK   '_'
#define MOST    16 /* rows */

static uint64_t class_of(char c) {
    return c == BLANK ? 0 : (uint64_t)(c - 'a') + 1;
}

/* Scores whose best classes are these; the second best ones are `second`, by this margin. */
static oq_datum scores_of(const char *text, const char *second, float margin, float *v,
                          int64_t *dims) {
    const size_t n = strlen(text);
    assert_true(n <= MOST);
    memset(v, 0, n * CLASSES * sizeof *v);
    for (size_t i = 0; i < n; i++) {
        v[i * CLASSES + class_of(text[i])] = 10;
        if (second[i] != ' ')
            v[i * CLASSES + class_of(second[i])] = 10 - margin;
    }
    dims[0] = 1;
    dims[1] = (int64_t)n;
    dims[2] = CLASSES;
    return (oq_datum){.kind = OQ_DATUM_TENSOR,
                      .dtype = OQ_FLOAT,
                      .rank = 3,
                      .dims = dims,
                      .count = n * CLASSES,
                      .data = v,
                      .size_bytes = n * CLASSES * sizeof *v};
}

static size_t broken(const oq_text_events *e) {
    size_t n = 0;
    for (size_t i = 0; i < e->errors.n; i++)
        n += e->errors.v[i] > e->margins.v[i];
    return n;
}

/* Blanks go and equal rows merge: what is another text, and what is not. The events say the same. */
static void same_texts(void **state) {
    static const struct {
        const char *flt, *other;
        bool changed;
    } cases[] = {
        {"_a_b_", "_a_b_", false}, {"_a_b_", "aa_bb", false},  /* characters grow into blanks */
        {"_aab_", "_abb_", false}, {"_aa_b", "__a_b", false},  /* a border moves */
        {"_a_b_", "_a___", true},  {"_a_b_", "_a_c_", true},   /* one is lost, or another one */
        {"_a_a_", "_aaa_", true},  {"_a__a", "_aa_a", false},  /* no blank is left, or one is */
        {"_a_b_", "ca_b_", true},  {"_aa_b_", "____b_", true}, /* one too many; both rows lost */
        {"_____", "__a__", true},  {"a_a_a", "a_a_a", false},
    };
    (void)state;
    for (size_t i = 0; i < OQ_COUNT(cases); i++) {
        float a[MOST * CLASSES], b[MOST * CLASSES];
        int64_t da[3], db[3];
        uint64_t changed = 0;
        oq_text_events e = {0};
        bm m;
        onq_error err = ONQ_ERROR_INIT;
        bm_begin(&m, NULL, 13);
        const oq_datum flt = scores_of(cases[i].flt, "                ", 0, a, da),
                       other = scores_of(cases[i].other, "                ", 0, b, db);
        const oq_text_pair x = {&flt, &other, OQ_LINK_NONE, 0, 1};
        assert_ok(oq_text_add(&x, m.a, &e, &changed, &err), err);
        assert_int_equal(changed, cases[i].changed);
        assert_int_equal(broken(&e) > 0, cases[i].changed);
        assert_int_equal(e.counts.n, 1);
        assert_int_equal(e.counts.v[0], e.margins.n);
        bm_end(&m);
    }
}

/* A row that may as well be a blank or its neighbour is no close call: only what would be another
 * text has a small margin, and what would be one for two reasons has it once. */
static void margins_of_events(void **state) {
    static const struct {
        const char *text, *second;
        size_t small;
    } cases[] = {
        {"_aa_b_", "a_ ___", 1}, /* a may be blank in one row; b is the only row that says b */
        {"_aa_b_", " c    ", 1}, /* a wrong character in one row */
        {"_a_b__", " c    ", 1}, /* the same, and it is the only row of a: one event */
        {"_a_a__", "  a   ", 1}, /* the blank between them */
        {"_a_b__", "a ab__", 0},
    };
    (void)state;
    for (size_t i = 0; i < OQ_COUNT(cases); i++) {
        float a[MOST * CLASSES];
        int64_t dims[3];
        size_t small = 0;
        oq_text_events e = {0};
        bm m;
        onq_error err = ONQ_ERROR_INIT;
        bm_begin(&m, NULL, 13);
        const oq_datum flt = scores_of(cases[i].text, cases[i].second, 0.5F, a, dims);
        const oq_text_pair x = {&flt, NULL, OQ_LINK_NONE, 0, 1};
        assert_ok(oq_text_add(&x, m.a, &e, NULL, &err), err);
        for (size_t k = 0; k < e.margins.n; k++)
            small += e.margins.v[k] < 1;
        assert_int_equal(small, cases[i].small);
        assert_int_equal(e.errors.n, 0);
        bm_end(&m);
    }
}

/* Texts of a batch stand one after the other, and each is one. Values that are no numbers are another
 * text. */
static void batches(void **state) {
    float a[2 * 4 * CLASSES], b[2 * 4 * CLASSES];
    int64_t dims[3], other[3];
    uint64_t changed = 0;
    oq_text_events e = {0};
    bm m;
    onq_error err = ONQ_ERROR_INIT;
    (void)state;
    bm_begin(&m, NULL, 13);
    oq_datum flt = scores_of("_a__b_c_", "        ", 0, a, dims),
             quantized = scores_of("_a____c_", "        ", 0, b, other);
    dims[0] = other[0] = 2;
    dims[1] = other[1] = 4;
    const oq_text_pair x = {&flt, &quantized, OQ_LINK_NONE, 0, 2};
    assert_ok(oq_text_add(&x, m.a, &e, &changed, &err), err);
    assert_int_equal(changed, 1);
    assert_int_equal(e.counts.n, 2);
    assert_int_equal(e.counts.v[0] + e.counts.v[1], e.margins.n);
    for (size_t i = 0; i < OQ_COUNT(b); i++)
        b[i] = NAN;
    changed = 0;
    assert_ok(oq_text_add(&x, m.a, &e, &changed, &err), err);
    assert_int_equal(changed, 2);
    bm_end(&m);
}

/* Figure and bound of a scoring: of 20 samples one has another text, though rows differ in all. */
static void figures(void **state) {
    const oq_link links[] = {OQ_LINK_NONE};
    const oq_meaning meaning = {
        .links = links, .n = 1, .is_text = true, .wanted = {[OQ_METRIC_TEXT_AGREEMENT] = true}};
    float a[MOST * CLASSES], b[MOST * CLASSES];
    int64_t da[3], db[3];
    bm m;
    oq_scoring s;
    oq_score out;
    onq_error err = ONQ_ERROR_INIT;
    (void)state;
    bm_begin(&m, NULL, 13);
    assert_ok(oq_scoring_init(&s, m.a, &meaning, 1, &err), err);
    for (uint64_t i = 0; i < 20; i++) {
        const oq_datum flt = scores_of("_aa_b_", "      ", 0, a, da),
                       other = scores_of(i == 7 ? "_aa_c_" : "_a__bb", "      ", 0, b, db);
        s.fold = (unsigned)(i % 2);
        assert_ok(
            oq_scoring_add(
                &s,
                &(oq_pair){
                    .number = i, .flt = &flt, .quantized = &other, .n_quantized = 1, .batch = 1},
                &err),
            err);
    }
    assert_ok(oq_scoring_end(&s, &out, &err), err);
    assert_float_equal(out.figures[OQ_METRIC_TEXT_AGREEMENT].value, 95, 1e-9);
    assert_true(out.figures[OQ_METRIC_TEXT_AGREEMENT].bound < 95);
    assert_float_equal(out.figures[OQ_METRIC_SAMPLE_AGREEMENT].value, 0, 1e-9);
    /* Of 180 events 9 count and those with the same margin, 10: two of them lost 20. */
    assert_true(out.objective < 20 && out.objective > 0);
    bm_end(&m);
}

/* What rows are a text. Labels of steps, long stretches of one class, and pictures that are cut into
 * pieces with a class each are none. */
static void blanks(void **state) {
    static const struct {
        const char *text;
        int64_t input[4];
        size_t rank;
        uint64_t blank;
    } cases[] = {
        {"_a_b_cab_d_c_d__", {1, 3, 48, 128}, 4, 0},
        {"_a_b_cab_d_c_d__", {1, 8, 64, 0}, 3, 0},
        {"_a_b_cab_d_c_d__", {1, 5000, 0, 0}, 2, 0},
        {"eaebecabedecedee", {1, 3, 48, 128}, 4, CLASSES - 1},
        {"_a_b_cab_d_c_d__", {1, 16, 80, 0}, 3, OQ_NO_BLANK},
        {"_a_b_cab_d_c_d__", {1, 16, 0, 0}, 2, OQ_NO_BLANK},
        {"aaaaaaa__bbbbbbb", {1, 3, 48, 128}, 4, OQ_NO_BLANK},
        {"_abcabcabdabcd__", {1, 3, 48, 128}, 4, OQ_NO_BLANK}, /* no blank between them */
        {"_a____________b_", {1, 3, 48, 128}, 4, OQ_NO_BLANK}, /* too few to say */
        {"________________", {1, 3, 48, 128}, 4, OQ_NO_BLANK},
    };
    (void)state;
    for (size_t i = 0; i < OQ_COUNT(cases); i++) {
        float v[MOST * CLASSES];
        int64_t dims[3];
        uint64_t blank = 99;
        bm m;
        onq_error err = ONQ_ERROR_INIT;
        bm_begin(&m, NULL, 13);
        const oq_datum scores = scores_of(cases[i].text, "                ", 0, v, dims);
        const oq_datum input = {.kind = OQ_DATUM_TENSOR,
                                .dtype = OQ_FLOAT,
                                .rank = cases[i].rank,
                                .dims = cases[i].input};
        const oq_text_step steps[] = {{&input, &scores}, {&input, &scores}};
        assert_ok(oq_text_blank(steps, 1, m.a, &blank, &err), err);
        if (cases[i].blank == OQ_NO_BLANK || blank == OQ_NO_BLANK)
            assert_true(blank == OQ_NO_BLANK);
        assert_true(blank == cases[i].blank);
        assert_ok(oq_text_blank(steps, 0, m.a, &blank, &err), err);
        assert_true(blank == OQ_NO_BLANK);
        bm_end(&m);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_texts), cmocka_unit_test(margins_of_events),
        cmocka_unit_test(batches),    cmocka_unit_test(figures),
        cmocka_unit_test(blanks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
