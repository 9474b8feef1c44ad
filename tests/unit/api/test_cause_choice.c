/*
 * test_cause_choice.c — which of the remedies that were tried names the cause: every row of the table at
 * both sides of the gain and of the share that it needs.
 */
#include "api/causes/cause_choice.h"

#include "testing.h"

#include <math.h>

#define MAX_TRIES 3
#define STEP      0.01 /* dB, at both sides of a threshold */

typedef struct scene {
    oq_debug d;
    oq_diagnosis x;
    oq_diagnosing g;
    oq_try tries[MAX_TRIES];
} scene;

/* A model with `now` dB, nothing taken so far. */
static void begin(scene *s, double now) {
    *s = (scene){.g = {.again = OQ_NOT_MADE, .current = OQ_NOT_MADE}};
    s->g.d = &s->d;
    s->g.out = &s->x;
    s->x.tries.v = s->tries;
    s->x.now = s->g.current = OQ_NOT_MADE;
    s->x.now.sqnr = s->g.current.sqnr = now;
}

static oq_try *tried(scene *s, size_t row, double sqnr) {
    assert_true(s->x.tries.n < MAX_TRIES);
    oq_try *t = &s->tries[s->x.tries.n++];
    *t = (oq_try){.row = row, .made = OQ_NOT_MADE};
    t->made.sqnr = sqnr;
    return t;
}

static bool is_cause(double now, size_t row, double sqnr) {
    scene s;
    begin(&s, now);
    return oq_is_cause(&s.g, tried(&s, row, sqnr));
}

/* 8 bits for weights that have 4. */
static bool drops_weight_type(const oq_remedy *r) {
    return r->drops != NULL && strcmp(r->drops, "weight_type") == 0;
}

static void every_row_needs_a_gain(void **state) {
    (void)state;
    for (size_t i = 0; i <= oq_remedy_count; i++) {
        const bool easy = i < oq_remedy_count &&
                          (oq_remedies[i].is_free || strcmp(oq_remedies[i].cause, "mask") == 0 ||
                           drops_weight_type(&oq_remedies[i]));
        const double least = easy ? OQ_SMALL_GAIN : OQ_MIN_GAIN;
        assert_false(is_cause(10, i, 10 + least - STEP));
        assert_true(is_cause(10, i, 10 + least + STEP));
        assert_true(is_cause(OQ_GOOD - STEP, i, OQ_GOOD + OQ_MIN_GAIN));
    }
}

/* On top of a cause a small gain is worth what leaves nothing float, until the model is good. */
static void small_gains_come_on_top(void **state) {
    (void)state;
    for (size_t i = 0; i <= oq_remedy_count; i++) {
        const bool costs = i == oq_remedy_count || oq_remedies[i].leaves_float;
        const double least = costs ? OQ_MIN_GAIN : OQ_SMALL_GAIN;
        scene s;
        begin(&s, 10);
        s.x.causes.n = 1;
        assert_false(oq_is_cause(&s.g, tried(&s, i, 10 + least - STEP)));
        assert_true(oq_is_cause(&s.g, tried(&s, i, 10 + least + STEP)));
        s.g.current.sqnr = OQ_GOOD;
        assert_false(oq_is_cause(&s.g, tried(&s, i, OQ_GOOD + OQ_MIN_GAIN - STEP)));
    }
}

/* Remedies that cost nothing, and parameters that are wrong, are worth a small gain; a mask is not,
 * though it is beyond doubt. */
static void a_good_model_needs_a_large_gain(void **state) {
    (void)state;
    for (size_t i = 0; i <= oq_remedy_count; i++) {
        const bool free = i == oq_remedy_count || oq_remedies[i].is_free;
        const double least = free ? OQ_MIN_GAIN : OQ_GOOD_GAIN;
        assert_false(is_cause(OQ_GOOD, i, OQ_GOOD + least - STEP));
        assert_true(is_cause(OQ_GOOD, i, OQ_GOOD + least + STEP));
    }
}

/* What began below is good only at 30 dB. */
static void remedies_are_put_together_up_to_the_aim(void **state) {
    scene s;
    (void)state;
    begin(&s, 10);
    s.g.current.sqnr = OQ_AIM - STEP;
    assert_false(oq_is_good_enough(&s.g));
    s.g.current.sqnr = OQ_AIM;
    assert_true(oq_is_good_enough(&s.g));
}

/* The rows that the page of documents calls free or local. */
static bool is_named(const char *cause, const char *const *names, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (strcmp(cause, names[i]) == 0)
            return true;
    return false;
}

static void rows_have_the_shares_that_are_documented(void **state) {
    static const char *const early[] = {"not_prepared", "per_channel", "symmetric", "input_range"};
    (void)state;
    for (size_t i = 0; i < oq_remedy_count; i++) {
        scene s;
        begin(&s, 10);
        const oq_remedy *r = &oq_remedies[i];
        const double share = oq_share_needed(&s.g, tried(&s, i, 20));
        if (strcmp(r->cause, "mask") == 0 || drops_weight_type(r))
            assert_true(share == 0);
        else if (strcmp(r->cause, "amplified") == 0)
            assert_true(share == (r->is_local ? OQ_FREE : OQ_NEARLY));
        else
            assert_true(share ==
                        (is_named(r->cause, early, OQ_COUNT(early)) ? OQ_FREE : OQ_NEARLY));
    }
}

/* Two tries: the row gains `share` of the second, which is a later one. */
static bool comes_first(size_t row, double share) {
    scene s;
    begin(&s, 0);
    tried(&s, row, share * 15);
    tried(&s, oq_remedy_count, 15);
    return oq_choose_cause(&s.g, 0) == &s.tries[0];
}

static void every_row_is_taken_at_its_share_of_the_best_gain(void **state) {
    (void)state;
    for (size_t i = 0; i < oq_remedy_count; i++) {
        scene s;
        begin(&s, 0);
        const double share = oq_share_needed(&s.g, tried(&s, i, 15));
        assert_true(comes_first(i, share + 0.2 < 1 ? share + 0.2 : 1));
        const double least = (share == 0 ? OQ_SMALL_GAIN : OQ_MIN_GAIN) / 15; /* sure, or not */
        assert_true(comes_first(i, fmax(share, least) + 0.001));
        assert_false(comes_first(i, fmax(share, least) - 0.001));
    }
}

/* Rows are not tried in the order of the table, but it decides. */
static void the_order_of_tries_does_not_matter(void **state) {
    scene s;
    (void)state;
    for (size_t i = 1; i < oq_remedy_count; i++) {
        begin(&s, 10);
        tried(&s, i, 20);
        tried(&s, i - 1, 20);
        assert_ptr_equal(oq_choose_cause(&s.g, 0), &s.tries[1]);
    }
}

/* Scales for each channel come first where one channel stretches the range of the others. */
static void outlier_channels_make_per_channel_sure(void **state) {
    oq_debug_weight w = {.verdict = {.reason = OQ_DEBUG_CHANNEL}};
    scene s;
    size_t row = 0;
    (void)state;
    begin(&s, 10);
    while (strcmp(oq_remedies[row].cause, "per_channel") != 0)
        row++;
    const oq_try *t = tried(&s, row, 20);
    assert_true(oq_share_needed(&s.g, t) == OQ_FREE);
    s.d.weights.v = &w;
    s.d.weights.n = 1;
    assert_true(oq_share_needed(&s.g, t) == 0);
}

static void a_model_with_little_in_integers_is_no_answer(void **state) {
    scene s;
    (void)state;
    begin(&s, 10);
    s.g.again.macs = 0.5;
    oq_try *t = tried(&s, 0, 40);
    t->made.macs = OQ_MIN_MACS * 0.5 - 0.001;
    assert_false(oq_is_cause(&s.g, t));
    assert_null(oq_choose_cause(&s.g, 0));
    t->made.macs = OQ_MIN_MACS * 0.5 + 0.001;
    assert_true(oq_is_cause(&s.g, t));
    assert_ptr_equal(oq_choose_cause(&s.g, 0), t);
}

/* A method that the model does not show makes another model: that is no fault of a good one. */
static void a_good_model_with_scaled_weights_has_no_wrong_parameters(void **state) {
    scene s;
    (void)state;
    begin(&s, OQ_GOOD);
    s.g.rescaled = true;
    assert_false(oq_is_cause(&s.g, tried(&s, oq_remedy_count, 50)));
    begin(&s, OQ_GOOD - STEP);
    s.g.rescaled = true;
    assert_true(oq_is_cause(&s.g, tried(&s, oq_remedy_count, 50)));
}

static void gains_end_where_outputs_are_lost_or_exact(void **state) {
    (void)state;
    assert_true(oq_gain_over(-300, 0) == -OQ_LOWEST_SQNR);
    assert_true(oq_gain_over(NAN, 0) == -OQ_LOWEST_SQNR);
    assert_true(oq_gain_over(50, INFINITY) == OQ_BEST_SQNR - 50);
    assert_true(oq_gain_over(50, NAN) < -1000);
}

/* What takes ranges or scales from the samples, costs something and is not beyond doubt is judged on
 * others. */
static void rows_that_follow_samples_are_judged_apart(void **state) {
    static const char *const names[] = {"stretched_ranges", "channels", "shifted_means"};
    (void)state;
    for (size_t i = 0; i <= oq_remedy_count; i++) {
        scene s;
        begin(&s, 10);
        s.g.base.recipe.command = "static";
        const oq_remedy *r = i < oq_remedy_count ? &oq_remedies[i] : NULL;
        const bool named = r != NULL && is_named(r->cause, names, OQ_COUNT(names));
        const bool nbits = r != NULL && r->commands == OQ_FOR_NBITS;
        oq_try *t = tried(&s, i, 50);
        assert_true(nbits || oq_fits_samples(&s.g, t) == named);
        s.g.base.recipe.command = "dynamic"; /* without ranges of samples */
        assert_false(oq_fits_samples(&s.g, t));
        assert_true(oq_is_cause(&s.g, t));
        t->dismissed = true;
        assert_false(oq_is_cause(&s.g, t));
        assert_null(oq_choose_cause(&s.g, 0));
    }
}

/* A poor model must gain a little on other samples, a good one more. */
static void gains_on_other_samples_decide(void **state) {
    scene s;
    (void)state;
    begin(&s, OQ_GOOD - STEP);
    assert_false(oq_is_overfit(&s.g, OQ_APART_LEAST + STEP));
    assert_true(oq_is_overfit(&s.g, OQ_APART_LEAST - STEP));
    assert_false(oq_is_overfit(&s.g, NAN));
    begin(&s, OQ_GOOD);
    assert_false(oq_is_overfit(&s.g, OQ_APART_GAIN + STEP));
    assert_true(oq_is_overfit(&s.g, OQ_APART_GAIN - STEP));
    assert_true(oq_is_overfit(&s.g, NAN)); /* there are no others */
}

/* What a good model is told: remedies by their options, and what they gain on other samples. */
static void a_good_model_is_told_what_gains_a_little(void **state) {
    scene s;
    size_t row = 0;
    const oq_lm_score none = {0};
    (void)state;
    begin(&s, 26);
    while (strcmp(oq_remedies[row].cause, "channels") != 0)
        row++;
    s.x.done = s.x.healthy = true;
    s.x.half = s.x.set.made = OQ_NOT_MADE;
    s.x.judged = (oq_graded){.sqnr = 24, .floor = 8, .text = &none};
    s.x.n_judged = 40;
    s.x.n_samples = 8;
    for (size_t i = 0; i < 2; i++) {
        oq_try *t = tried(&s, row + i, 30);
        t->cause = oq_remedies[row].cause;
        t->before = 26;
        t->apart_before = 25.5;
        t->apart = 29.25;
        t->dismissed = i == 1;
    }
    oq_buf text;
    oq_buf_init(&text, oq_alloc_default());
    oq_diagnosis_text(&s.x, &text);
    oq_buf_addc(&text, '\0');
    assert_false(text.failed);
    assert_string_equal(text.p,
                        "Verdict: good; the output SQNR is 24.0 dB over 40 samples, without "
                        "the runtime's optimisations\n"
                        "Cause: no fault was found. It can be better still: channels "
                        "(--equalize) 29.2 dB instead of 25.5 dB on samples that did not "
                        "calibrate (\"tried\" in --json has their options)\n\n");
    oq_buf_release(&text);
}

/* A long list of nodes is better in a file. */
static void nodes_are_listed_one_a_line(void **state) {
    oq_cause c = {.cause = "amplified", .floats = "a,b\\,c,\\@d"};
    oq_diagnosis x = {.causes = {&c, 1, 1}};
    oq_buf text;
    (void)state;
    oq_buf_init(&text, oq_alloc_default());
    oq_diagnosis_floats(&x, &text);
    oq_buf_addc(&text, '\0');
    assert_false(text.failed);
    assert_string_equal(text.p, "a\nb\\,c\n\\@d\n");
    text.n = 0;
    c.floats = NULL;
    oq_diagnosis_floats(&x, &text);
    assert_int_equal(text.n, 0);
    oq_buf_release(&text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_row_needs_a_gain),
        cmocka_unit_test(small_gains_come_on_top),
        cmocka_unit_test(a_good_model_needs_a_large_gain),
        cmocka_unit_test(remedies_are_put_together_up_to_the_aim),
        cmocka_unit_test(rows_have_the_shares_that_are_documented),
        cmocka_unit_test(every_row_is_taken_at_its_share_of_the_best_gain),
        cmocka_unit_test(the_order_of_tries_does_not_matter),
        cmocka_unit_test(outlier_channels_make_per_channel_sure),
        cmocka_unit_test(a_model_with_little_in_integers_is_no_answer),
        cmocka_unit_test(a_good_model_with_scaled_weights_has_no_wrong_parameters),
        cmocka_unit_test(rows_that_follow_samples_are_judged_apart),
        cmocka_unit_test(gains_on_other_samples_decide),
        cmocka_unit_test(a_good_model_is_told_what_gains_a_little),
        cmocka_unit_test(nodes_are_listed_one_a_line),
        cmocka_unit_test(gains_end_where_outputs_are_lost_or_exact),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
