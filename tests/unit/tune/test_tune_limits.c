/*
 * test_tune_limits.c — the search within its limits: time and processor time that end, and going on
 * from a file.
 */
#include "tune_rig.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Samples for which there is no time are left out, but not all of them. */
static void filling_ends(void **state) {
    tune_rig r;
    oq_source *source = NULL;
    oq_session *flt = NULL;
    oq_trials few, fewer;
    tune_rig_begin(&r, *state, false);
    const oq_source_options so = {.spec = "random:8:1", .model = r.b.m};
    const oq_session_options o = {.model = r.b.m};
    oq_trials_init(&few, oq_alloc_default(), &r.meaning);
    few.until = oq_seconds() - 1;
    few.latest = few.until + 1000;
    assert_ok(oq_source_open(r.b.env, &so, &source, &r.err), r.err);
    assert_ok(oq_session_open(&r.engine.base, &o, &flt, &r.err), r.err);
    assert_ok(oq_trials_fill(&few, source, flt, 1 << 20, &r.err), r.err);
    assert_in_range(few.all.n, OQ_TRIALS_MIN, 7); /* several may be on their way */
    assert_int_equal(few.all.n + few.left_out, 8);
    oq_trials_release(&few);
    oq_trials_init(&fewer, oq_alloc_default(), &r.meaning);
    fewer.until = fewer.latest = oq_seconds() - 1;
    assert_ok(oq_source_seek(source, 0, &r.err), r.err);
    assert_ok(oq_trials_fill(&fewer, source, flt, 1 << 20, &r.err), r.err);
    assert_in_range(fewer.all.n, 1, OQ_TRIALS_MIN - 1);
    oq_trials_release(&fewer);
    oq_session_close(flt);
    oq_source_close(source);
    tune_rig_end(&r);
}

/* ---- time ---- */

static void time_ends(void **state) {
    tune_rig r;
    tune_rig_begin(&r, *state, false);
    r.t.deadline = oq_seconds() - 1;
    tune_rig_search(&r);
    assert_true(r.t.stopped);
    assert_int_equal(r.n_made, 0); /* not even float was measured */
    assert_true(r.t.flt != NULL && r.t.flt->ok && r.t.flt->score.samples == 0 && r.t.flt->ms > 0);
    assert_int_equal(r.t.missed, 1U << OQ_WAY_STATIC | 1U << OQ_WAY_DYNAMIC);
    assert_int_equal(r.t.turned, 0);
    tune_rig_end(&r);
    tune_rig_begin(&r, *state, false);
    r.stop_after = 2;
    tune_rig_search(&r);
    assert_true(r.t.stopped);
    assert_int_equal(r.n_made, 2); /* the second was begun in time, and given up */
    assert_int_equal(r.t.all.n, 3);
    assert_true(r.t.all.v[1]->ok && !r.t.all.v[2]->ok);
    assert_string_equal(r.t.all.v[2]->why_not, OQ_TUNE_NO_TIME);
    tune_rig_end(&r);
}

/* Whatever the limit is, the answer is made by then: with all samples, and looked at. Where making
 * takes long and where running does. */
static void a_limit_is_kept(void **state) {
    static const double costs[][2] = {{1, 0.01}, {0.01, 1}, {0.5, 0.5}};
    for (size_t i = 0; i < OQ_COUNT(costs); i++) {
        for (double limit = 20; limit < 400; limit += 60) {
            tune_rig r;
            oq_candidate *chosen = NULL;
            bool reached = false;
            tune_rig_begin(&r, *state, false);
            r.t.prefer = OQ_PREFER_SPEED;
            r.slow = "pays";
            r.calibrating = costs[i][0];
            r.running = costs[i][1];
            r.t.now = tune_rig_now;
            r.t.begin = tune_rig_now(&r);
            r.t.deadline = r.t.begin + limit;
            tune_rig_want(&r, 24);
            tune_rig_search(&r);
            assert_ok(oq_tune_settle(&r.t, &chosen, &reached, &r.err), r.err);
            const bool made = chosen != r.t.flt && oq_recipe_calibrates(&chosen->recipe);
            const double answer = made ? 8 * (r.calibrating + r.running) : 0;
            const double step = 4 * r.running + r.calibrating; /* between two looks */
            assert_true(tune_rig_now(&r) + answer <= r.t.deadline + step);
            tune_rig_end(&r);
        }
    }
}

/* Whatever it may cost, the answer is made within the limit; what a step takes is not known before.
 * Where nothing was left out, no limit would have found anything else. */
static void an_effort_is_kept(void **state) {
    static const double costs[][2] = {{0.004, 0.001}, {0.05, 0.01}, {0.3, 0.001}, {0.002, 0.02}};
    size_t n_left_out = 0, n_all = 0;
    for (size_t i = 0; i < OQ_COUNT(costs); i++) {
        char *unlimited = NULL;
        for (double effort = 0; effort < 200; effort += effort < 20 ? 5 : 30) {
            tune_rig r;
            oq_candidate *chosen = NULL;
            bool reached = false;
            tune_rig_begin(&r, *state, false);
            r.t.prefer = OQ_PREFER_SPEED;
            r.slow = "pays";
            r.t.again = &r.again;
            r.calibrating = costs[i][0];
            r.running = costs[i][1];
            r.t.cpu = tune_rig_now;
            r.t.spending.began = tune_rig_now(&r);
            r.t.effort = effort;
            tune_rig_want(&r, 24);
            tune_rig_search(&r);
            assert_ok(oq_tune_settle(&r.t, &chosen, &reached, &r.err), r.err);
            const bool made = chosen != r.t.flt && oq_recipe_calibrates(&chosen->recipe);
            const double answer = made ? 8 * r.calibrating + 4 * r.running : 0;
            const double base = 24 * r.running; /* float, as it was given and prepared */
            const double spent = oq_tune_spent(&r.t) + answer;
            /* Runs of candidates are foreseen as float's, of which the rig saw half as many. */
            const double unseen = r.calibrating + 4 * r.running;
            assert_true(effort == 0 || spent <= fmax(r.t.spending.limit, base) + unseen);
            n_left_out += r.t.left_out.n > 0;
            n_all += effort > 0 && r.t.left_out.n == 0;
            if (effort == 0)
                unlimited = strdup(chosen->label);
            assert_true(effort > 0 || r.t.left_out.n == 0);
            if (r.t.left_out.n == 0)
                assert_string_equal(chosen->label, unlimited);
            tune_rig_end(&r);
        }
        free(unlimited);
    }
    assert_true(n_left_out > 5 && n_all > 5);
}

typedef struct machine {
    double busy, from;  /* everything takes so many times as long, from then on */
    bool seen;          /* by float's time */
    const char *resume; /* or NULL */
} machine;

/* What was tried and left out, and the answer: a text on the heap. */
static char *decisions(scratch *files, double effort, const machine *m) {
    tune_rig r;
    oq_buf b;
    oq_candidate *chosen = NULL;
    bool reached = false;
    tune_rig_begin(&r, files, false);
    oq_buf_init(&b, oq_alloc_default());
    r.t.prefer = OQ_PREFER_SPEED;
    r.slow = "pays";
    r.t.again = &r.again;
    r.calibrating = 0.03;
    r.running = 0.004;
    r.busy = m->busy;
    r.busy_from = m->from;
    r.t.cpu = tune_rig_cpu;
    r.t.slowness = m->seen ? tune_rig_slowness : NULL;
    r.t.spending.began = tune_rig_cpu(&r);
    r.t.effort = effort;
    tune_rig_want(&r, 24);
    assert_ok(oq_state_open(&r.t.state, r.b.env, m->resume, "a job", &r.err), r.err);
    tune_rig_search(&r);
    assert_ok(oq_tune_settle(&r.t, &chosen, &reached, &r.err), r.err);
    for (size_t i = 0; i < r.t.all.n; i++)
        oq_buf_addf(&b, "%s\n", r.t.all.v[i]->label);
    for (size_t i = 0; i < r.t.left_out.n; i++)
        oq_buf_addf(&b, "without %s\n", r.t.left_out.v[i]);
    oq_buf_addf(&b, "%s", chosen->label);
    assert_true(oq_tune_spent(&r.t) <= r.t.spending.limit + r.calibrating);
    assert_true(!m->seen || m->busy == 1 || m->from > 0 ||
                oq_tune_cpu(&r.t) > 1.8 * oq_tune_spent(&r.t));
    tune_rig_end(&r);
    assert_false(b.failed);
    char *text = strdup(b.p);
    oq_buf_release(&b);
    return text;
}

/* Where other programs make everything take twice as long from some time on, the same is tried, left
 * out and taken, unless it was close; by the clock alone much else would be. */
static void a_busy_machine(void **state) {
    static const machine quiet = {1, 0, true, NULL};
    static const double from[] = {0, 0.5, 1};
    size_t n = 0, same[2] = {0, 0};
    for (double effort = 10; effort < 60; effort += 3)
        for (size_t i = 0; i < OQ_COUNT(from); i++, n++) {
            char *want = decisions(*state, effort, &quiet);
            for (int seen = 0; seen < 2; seen++) {
                const machine busy = {2, from[i], seen == 1, NULL};
                char *got = decisions(*state, effort, &busy);
                if (seen == 1 && from[i] == 0)
                    assert_string_equal(got, want);
                same[seen] += strcmp(want, got) == 0;
                free(got);
            }
            free(want);
        }
    assert_true(same[1] >= n * 7 / 8 && same[0] < n * 3 / 4);
}

/* A search that ended, and goes on from its file, has what it measured for nothing: it does not try
 * what was left out, and ends with the same answer. With more effort it does. */
static void a_search_that_ended(void **state) {
    const char *path = scratch_path(*state, "ended.json");
    size_t n_more = 0;
    for (double effort = 10; effort < 40; effort += 3) {
        const machine m = {1, 0, true, path};
        remove(path);
        char *first = decisions(*state, effort, &m), *second = decisions(*state, effort, &m);
        char *more = decisions(*state, 4 * effort, &m);
        assert_string_equal(second, first);
        n_more += strcmp(more, first) != 0;
        free(first);
        free(second);
        free(more);
    }
    assert_true(n_more > 0);
}

/* What is given up while it is made is named, and is no news for a later search. */
static void what_costs_too_much(void **state) {
    tune_rig r;
    tune_rig_begin(&r, *state, false);
    tune_rig_want(&r, 400);
    r.t.allow_dynamic = false;
    r.t.cpu = tune_rig_now;
    r.calibrating = 0.9; /* the first guess is 0.015 s for a sample */
    r.t.effort = 30;
    tune_rig_search(&r);
    const oq_candidate *c = tune_rig_find(&r, "op_set all");
    assert_false(c->ok);
    assert_string_equal(c->why_not, OQ_TUNE_NO_EFFORT);
    assert_string_equal(r.t.left_out.v[0], "op_set all");
    assert_string_equal(r.t.left_out.v[1], "op_set noout"); /* which was not begun */
    assert_non_null(strstr(r.made[r.n_made - 1], "onq static -i IN -o OUT --per_channel"));
    assert_null(strstr(r.made[r.n_made - 1], "op_set"));
    assert_true(oq_tune_spent(&r.t) <= r.t.spending.limit && !r.t.stopped);
    tune_rig_end(&r);
}

static size_t count_rounded(const tune_rig *r) {
    size_t n = 0;
    for (size_t i = 0; i < r->t.all.n; i++)
        n += oq_recipe_get(&r->t.all.v[i]->recipe, "learned_rounding") != NULL &&
             oq_recipe_get(&r->t.all.v[i]->recipe, "node_methods") != NULL;
    return n;
}

/* Points with double activations are rounded though none of their kind was before. */
static void points_are_rounded(void **state) {
    tune_rig r;
    tune_rig_begin(&r, *state, false);
    r.t.prefer = OQ_PREFER_SPEED;
    r.slow = "pays";
    r.doubled = 0.004;
    tune_rig_want(&r, 22);
    tune_rig_search(&r);
    assert_true(count_rounded(&r) > 0);
    tune_rig_end(&r);
}

/* The one that is fastest cannot be measured again for what is left: it is not taken on trust. */
static void no_effort_to_confirm(void **state) {
    tune_rig r;
    oq_candidate *chosen = NULL;
    bool reached = false;
    tune_rig_begin(&r, *state, false);
    r.t.prefer = OQ_PREFER_SPEED;
    r.t.allow_dynamic = false;
    r.t.again = &r.again;
    tune_rig_want(&r, 12);
    tune_rig_search(&r);
    const oq_candidate *first = oq_choose(&r.t.all, &r.t.targets, r.t.prefer, &reached);
    tune_rig_want_more(&r, first);
    r.t.cpu = tune_rig_now;
    r.t.spending.limit = 1e-9;
    assert_ok(oq_tune_settle(&r.t, &chosen, &reached, &r.err), r.err);
    assert_int_equal(r.n_again, 0);
    assert_true(chosen != first && (chosen->exact || oq_tune_is_safe(&r.t, &chosen->score)));
    tune_rig_end(&r);
}

/* A model that reaches the target, and could not be measured again for what it had cost to make. */
static size_t count_wasted(const tune_rig *r) {
    size_t n = 0;
    for (size_t i = 0; i < r->t.all.n; i++) {
        const oq_candidate *c = r->t.all.v[i];
        for (size_t k = 0; k < r->t.left_out.n && c->ok; k++)
            n += oq_targets_hold(&r->t.targets, &c->score) && c->report.samples == 0 &&
                 strcmp(r->t.left_out.v[k], c->label) == 0;
    }
    return n;
}

/* What is made can be measured again, whatever the limit: else it would have cost all for nothing. */
static void what_is_made_can_be_confirmed(void **state) {
    oq_target more = {OQ_METRIC_SQNR, 12};
    size_t n_confirmed = 0, n_left_out = 0;
    for (double effort = 0; effort < 400; effort += effort < 60 ? 2 : 20) {
        tune_rig r;
        oq_candidate *chosen = NULL;
        bool reached = false;
        tune_rig_begin(&r, *state, false);
        r.t.prefer = OQ_PREFER_SPEED;
        r.t.allow_dynamic = false;
        r.t.again = &r.again;
        r.calibrating = 0.02;
        r.running = 0.01;
        r.t.cpu = tune_rig_now;
        r.t.spending.began = tune_rig_now(&r);
        r.t.effort = effort;
        tune_rig_want(&r, more.value);
        tune_rig_search(&r);
        if (effort == 0) {
            tune_rig_want_more(&r, oq_choose(&r.t.all, &r.t.targets, r.t.prefer, &reached));
            more = r.t.targets.v[0];
        } else {
            assert_ok(oq_tune_settle(&r.t, &chosen, &reached, &r.err), r.err);
            assert_int_equal(count_wasted(&r), 0);
            n_confirmed += r.n_again > 0;
            n_left_out += r.t.left_out.n > 0;
        }
        tune_rig_end(&r);
    }
    assert_true(n_confirmed > 2);
    assert_true(n_left_out > 2);
}

/* Candidates that have no time yet need some for it, as much as float took on this machine. */
static void timing_is_counted(void **state) {
    tune_rig r;
    tune_rig_begin(&r, *state, false);
    tune_rig_search(&r);
    r.t.clock = NULL;
    r.t.now = tune_rig_now;
    r.t.flt->ms = 1000;
    r.t.raced = 0;
    const double one = oq_tune_race_seconds(&r.t, 1); /* the next candidate */
    assert_true(one >= 2 * 1.0);
    r.t.deadline = tune_rig_now(&r) + r.t.slowest + one + 1;
    assert_true(oq_tune_has_time(&r.t, 0));
    assert_false(oq_tune_has_time(&r.t, 2));
    r.t.all.v[r.t.all.n - 1]->ms = 0;
    assert_true(r.t.all.v[r.t.all.n - 1]->ok);
    assert_false(oq_tune_has_time(&r.t, 0));
    r.t.raced = 100; /* on a busy machine */
    assert_true(oq_tune_race_seconds(&r.t, 1) >= 200);
    tune_rig_end(&r);
}

/* Wherever the time is over, in whichever stage or while an answer is taken, no other candidate is
 * begun: at most the second half of the one that is being made. */
static void time_ends_every_stage(void **state) {
    bool stopped = true;
    size_t most = 0;
    for (size_t calls = 1; stopped; calls++) {
        tune_rig r;
        oq_candidate *chosen = NULL;
        bool reached = false;
        tune_rig_begin(&r, *state, false);
        r.t.prefer = OQ_PREFER_SPEED;
        r.slow = "pays";
        r.idle = "learned_rounding"; /* else it would be enough */
        r.stop_after = calls;
        tune_rig_want(&r, 24);
        tune_rig_search(&r);
        assert_ok(oq_tune_settle(&r.t, &chosen, &reached, &r.err), r.err);
        stopped = r.n_made >= calls;
        assert_true(r.n_made <= calls + 1);
        assert_non_null(chosen);
        most = calls;
        tune_rig_end(&r);
    }
    assert_true(most > 20); /* it went through units and points too */
}

/* Units that gain nothing alone may gain together: where the set of those that pay is slow and
 * another one is fast, methods go on from that one, on all of its units. */
static void a_faster_set_than_what_pays(void **state) {
    tune_rig r;
    oq_candidate *chosen = NULL;
    bool reached = false;
    tune_rig_begin(&r, *state, false);
    r.t.prefer = OQ_PREFER_SPEED;
    r.slow = "pays";
    tune_rig_want(&r, 22);
    tune_rig_search(&r);
    assert_ok(oq_tune_settle(&r.t, &chosen, &reached, &r.err), r.err);
    assert_true(reached && !chosen->exact && chosen->ms < 10);
    assert_string_equal(oq_recipe_get(&chosen->recipe, "op_set"), "noout");
    assert_non_null(tune_rig_find(&r, "op_set noout, double activations"));
    tune_rig_end(&r);
}

/* ---- going on ---- */

/* What was measured is not made again; what failed is not tried again. */
static void goes_on_from_a_file(void **state) {
    tune_rig first, second;
    const char *path = scratch_path(*state, "state.json");
    tune_rig_begin(&first, *state, false);
    first.fails = "dynamic";
    tune_rig_want(&first, 400);
    assert_ok(oq_state_open(&first.t.state, first.b.env, path, "a job", &first.err), first.err);
    first.stop_after = 4; /* prepared, dynamic, all operators, another that is given up */
    tune_rig_search(&first);
    tune_rig_begin(&second, *state, false);
    tune_rig_want(&second, 400);
    assert_ok(oq_state_open(&second.t.state, second.b.env, path, "a job", &second.err), second.err);
    tune_rig_search(&second);
    for (size_t i = 1; i < 4; i++) {
        const oq_candidate *was = first.t.all.v[i], *is = second.t.all.v[i];
        assert_string_equal(is->label, was->label);
        assert_true(is->ok == (i != 2) && is->ms == was->ms && is->size == was->size);
        assert_true(!is->ok || (tune_rig_db(is) == tune_rig_db(was) &&
                                is->score.figures[OQ_METRIC_SQNR].bound ==
                                    was->score.figures[OQ_METRIC_SQNR].bound));
    }
    assert_string_equal(second.t.all.v[2]->why_not, "there is no kernel for it");
    assert_string_equal(second.made[0], "onq preprocess -i IN -o OUT"); /* what others begin with */
    assert_non_null(strstr(second.made[1], "noout"));                   /* the first that is new */
    tune_rig_end(&first);
    tune_rig_end(&second);
    /* Of another job it is refused. */
    tune_rig_begin(&first, *state, false);
    assert_int_not_equal(
        oq_state_open(&first.t.state, first.b.env, path, "another job", &first.err), ONQ_OK);
    tune_rig_end(&first);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, scratch_setup, scratch_teardown)
    const struct CMUnitTest tests[] = {
        TEST(filling_ends),
        TEST(an_effort_is_kept),
        TEST(a_busy_machine),
        TEST(a_search_that_ended),
        TEST(what_costs_too_much),
        TEST(no_effort_to_confirm),
        TEST(what_is_made_can_be_confirmed),
        TEST(time_ends),
        TEST(time_ends_every_stage),
        TEST(a_limit_is_kept),
        TEST(timing_is_counted),
        TEST(goes_on_from_a_file),
        TEST(a_faster_set_than_what_pays),
        TEST(points_are_rounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
