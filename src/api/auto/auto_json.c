/*
 * auto_json.c — the answer of `onq auto` as JSON, and its page.
 */
#include "api/auto/auto_job.h"

#include "base/system/file.h"
#include "debug/page/report.h"
#include "samples/grade.h"
#include "tune/auto_page.h"

#include <math.h>

static void figures_json(const oq_auto *a, oq_jw *w, const oq_score *s, bool exact) {
    static const char *const keys[] = {"figure", "figure_without_close_calls", "bound"};
    for (size_t k = 0; k < OQ_COUNT(keys); k++) {
        oq_jw_begin_object(w, keys[k]);
        for (size_t i = 0; i < a->tune.targets.n; i++) {
            const oq_metric m = a->tune.targets.v[i].metric;
            const oq_figure *f = &s->figures[m];
            oq_jw_real(w, oq_metric_of(m)->name,
                       k == 0 || exact ? f->value
                       : k == 1        ? f->clear
                                       : oq_score_promise(s, m));
        }
        oq_jw_end_object(w);
    }
}

static void worst_json(oq_jw *w, const oq_score *s) {
    oq_jw_real(w, "worst_tenth_sqnr", s->worst_tenth);
    oq_jw_begin_array(w, "worst_samples");
    for (size_t i = 0; i < s->n_worst; i++) {
        oq_jw_begin_object(w, NULL);
        oq_jw_uint(w, "sample", s->worst[i]);
        oq_jw_real(w, "sqnr", s->worst_db[i]);
        oq_jw_end_object(w);
    }
    oq_jw_end_array(w);
}

static void score_json(const oq_auto *a, oq_jw *w, const oq_score *s, bool exact) {
    static const oq_metric others[] = {
        OQ_METRIC_TEXT_AGREEMENT, OQ_METRIC_NEIGHBOURS, OQ_METRIC_IOU,
        OQ_METRIC_DETECTIONS,     OQ_METRIC_KL,         OQ_METRIC_PERPLEXITY_RISE,
        OQ_METRIC_METRIC};
    figures_json(a, w, s, exact);
    oq_jw_real(w, "agreement", oq_score_of(s, OQ_METRIC_AGREEMENT));
    oq_jw_real(w, "sample_agreement", oq_score_of(s, OQ_METRIC_SAMPLE_AGREEMENT));
    oq_jw_real(w, "expected_agreement", s->expected);
    oq_jw_real(w, "sqnr", oq_score_of(s, OQ_METRIC_SQNR)); /* null: no difference at all */
    oq_jw_real(w, "cosine", oq_score_of(s, OQ_METRIC_COSINE));
    for (size_t i = 0; i < OQ_COUNT(others); i++)
        if (!isnan(oq_score_of(s, others[i])))
            oq_jw_real(w, oq_metric_of(others[i])->name, oq_score_of(s, others[i]));
    if (!isnan(oq_score_of(s, OQ_METRIC_KL)))
        oq_jw_cstr(w, "verdict", oq_grade_text(oq_auto_grade(s)));
    if (!isnan(s->accuracy))
        oq_jw_real(w, "accuracy", s->accuracy);
    if (oq_score_is_wrong(s))
        oq_jw_bool(w, "wrong", true);
}

static void commands_json(const oq_auto *a, const oq_candidate *c, oq_jw *w) {
    oq_buf text;
    oq_buf_init(&text, &a->job->env->alloc);
    oq_auto_commands(a, c, &text);
    oq_jw_begin_array(w, "commands");
    for (const char *p = text.p; p != NULL && *p != '\0';) {
        const size_t n = strcspn(p, "\n");
        oq_jw_str(w, NULL, (oq_str){p, n});
        p += n + (p[n] == '\n');
    }
    oq_jw_end_array(w);
    oq_buf_release(&text);
}

static void floats_json(const oq_auto *a, const oq_candidate *c, oq_jw *w) {
    const oq_candidate *p = oq_auto_point(a, c);
    if (p == NULL)
        return;
    oq_jw_begin_array(w, "float_units");
    for (size_t i = 0; i < p->floats.n; i++) {
        oq_jw_begin_object(w, NULL);
        oq_jw_cstr(w, "node", p->floats.v[i].node);
        oq_jw_real(w, "sqnr_alone", p->floats.v[i].sqnr);
        oq_jw_real(w, "gain_ms", p->floats.v[i].gain);
        oq_jw_bool(w, "guessed", p->floats.v[i].guessed);
        oq_jw_end_object(w);
    }
    oq_jw_end_array(w);
}

/* `score` is NULL for one that could not be made. */
static void candidate_json(const oq_auto *a, const oq_candidate *c, const oq_score *score,
                           const char *key, oq_jw *w) {
    oq_jw_begin_object(w, key);
    oq_jw_cstr(w, "label", c->label);
    oq_recipe_json(&c->recipe, w, "options");
    if (score == NULL) {
        oq_jw_cstr(w, "why_not", oq_auto_reason(a, c));
    } else {
        score_json(a, w, score, c->exact);
        oq_jw_real(w, "latency_ms", c->ms);
        oq_jw_real(w, "latency_noise_ms", c->ms_noise);
        if (c->prefill_ms > 0) {
            oq_jw_real(w, "prefill_tokens_per_second", oq_auto_prefill_speed(a, c));
            oq_jw_real(w, "decode_tokens_per_second", 1e3 / c->ms);
        }
        oq_jw_uint(w, "size", c->size);
        oq_jw_real(w, "objective", score->objective);
        if (!isnan(c->predicted))
            oq_jw_real(w, "predicted_objective", c->predicted);
        oq_jw_bool(w, "reached", c->reached);
        oq_jw_uint(w, "judged", score->samples);
        if (c->partly)
            oq_jw_bool(w, "judged_partly", true);
        if (c->doubted)
            oq_jw_bool(w, "doubted", true);
        floats_json(a, c, w);
        if (score->n_worst > 0)
            worst_json(w, score);
    }
    commands_json(a, c, w);
    oq_jw_end_object(w);
}

static void targets_json(const oq_auto *a, oq_jw *w) {
    oq_jw_begin_object(w, "target");
    for (size_t i = 0; i < a->tune.targets.n; i++)
        oq_jw_real(w, oq_metric_of(a->tune.targets.v[i].metric)->name, a->tune.targets.v[i].value);
    oq_jw_end_object(w);
    if (a->by_default.why != NULL)
        oq_jw_cstr(w, "target_why", a->by_default.why);
}

static void samples_json(const oq_auto *a, oq_jw *w) {
    oq_jw_begin_object(w, "samples");
    oq_jw_uint(w, "given", a->choose.all.n + a->choose.left_out);
    oq_jw_uint(w, "used", a->choose.all.n);
    if (a->choose.steps.n > a->choose.all.n) /* samples are sequences */
        oq_jw_uint(w, "steps", a->choose.steps.n);
    oq_jw_uint(w, "parts", a->folds.apart ? (a->choose.all.n < 2 ? 1 : a->folds.n) : 0);
    oq_jw_uint(w, "judged", a->chosen->report.samples);
    oq_jw_uint(w, "eval_data", a->eval_data ? a->report.all.n : 0);
    oq_jw_uint(w, "rows", a->chosen->report.rows);
    oq_jw_uint(w, "close_calls", a->chosen->report.close_calls);
    oq_jw_uint(w, "close_calls_that_changed", a->chosen->report.close_flips);
    if (a->needed > 0)
        oq_jw_uint(w, "needed", a->needed);
    oq_jw_end_object(w);
}

static void curve_json(const oq_auto *a, oq_jw *w) {
    const oq_candidates *all = &a->tune.all;
    size_t *order = OQ_NEW_ARRAY(&a->job->arena, size_t, all->n + 1);
    const size_t n = order != NULL ? oq_curve(all, &a->tune.targets, order) : 0;
    oq_jw_begin_array(w, "curve");
    for (size_t i = 0; i < n; i++) {
        const oq_candidate *c = all->v[order[i]];
        candidate_json(a, c, &c->score, NULL, w);
    }
    oq_jw_end_array(w);
}

/* Processor time: what was spent until the answer was written, and may be. */
static void effort_json(const oq_auto *a, oq_jw *w) {
    const oq_tune *t = &a->tune;
    oq_jw_begin_object(w, "effort");
    oq_jw_real(w, "cpu_seconds", a->cpu_seconds);
    oq_jw_real(w, "quiet_cpu_seconds", a->counted_seconds);
    oq_jw_real(w, "limit_cpu_seconds", t->spending.limit);
    oq_jw_real(w, "float_cpu_seconds", t->spending.bare);
    oq_jw_begin_array(w, "left_out");
    for (size_t i = 0; i < t->left_out.n; i++)
        oq_jw_cstr(w, NULL, t->left_out.v[i]);
    oq_jw_end_array(w);
    oq_jw_end_object(w);
}

static void cheaper_json(const oq_auto *a, oq_jw *w) {
    oq_jw_begin_object(w, "with_lower_target");
    oq_jw_cstr(w, "label", a->cheaper->label);
    oq_jw_begin_object(w, "target");
    oq_jw_real(w, oq_metric_of(oq_auto_shown(a))->name, a->lower_target);
    oq_jw_end_object(w);
    oq_jw_real(w, "latency_ms", a->cheaper->ms);
    oq_jw_end_object(w);
}

void oq_auto_json(const oq_auto *a, oq_jw *w) {
    const oq_candidates *all = &a->tune.all;
    oq_jw_cstr(w, "input", oq_job_input(a->job));
    oq_jw_cstr(w, "output", oq_opt_str(a->job->opts, "output"));
    oq_jw_bool(w, "target_reached", a->reached);
    if (a->eval_data)
        oq_jw_bool(w, "target_reached_eval_data",
                   a->chosen->exact || oq_targets_hold(&a->tune.targets, &a->chosen->report));
    targets_json(a, w);
    candidate_json(a, a->chosen, &a->chosen->report, "chosen", w);
    candidate_json(a, a->tune.flt, &a->tune.flt->report, "float", w);
    oq_jw_begin_array(w, "candidates");
    for (size_t i = 1; i < all->n; i++)
        candidate_json(a, all->v[i], all->v[i]->ok ? &all->v[i]->score : NULL, NULL, w);
    oq_jw_end_array(w);
    curve_json(a, w);
    if (a->cheaper != NULL)
        cheaper_json(a, w);
    samples_json(a, w);
    if (a->choose.decoding.length > 0)
        oq_jw_uint(w, "prefill_tokens", a->choose.decoding.length);
    oq_jw_bool(w, "stopped_by_time_limit", a->tune.stopped);
    oq_jw_begin_array(w, "not_tried");
    for (oq_way way = OQ_WAY_STATIC; way < OQ_WAYS; way++)
        if (oq_auto_had_no_turn(a, way))
            oq_jw_cstr(w, NULL, oq_way_name(way));
    oq_jw_end_array(w);
    effort_json(a, w);
    oq_jw_real(w, "seconds", a->seconds);
}

onq_code oq_auto_write_report(const oq_auto *a, const char *path, onq_error *err) {
    const onq_allocator *alloc = &a->job->env->alloc;
    oq_buf json, page;
    oq_jw w;
    oq_buf_init(&json, alloc);
    oq_buf_init(&page, alloc);
    oq_jw_init(&w, &json, false);
    oq_jw_begin_object(&w, NULL);
    oq_auto_json(a, &w);
    oq_jw_end_object(&w);
    onq_code rc = oq_report_fill(oq_auto_page, oq_auto_page_size, &json, &page, err);
    if (rc == ONQ_OK)
        rc = oq_out_text(alloc, path, &page, err);
    oq_buf_release(&json);
    oq_buf_release(&page);
    return rc;
}
