/*
 * auto_show.c — the answer of `onq auto` as text, as JSON and as commands.
 */
#include "api/auto/auto_job.h"

#include "api/quantizing/quant_config.h"
#include "base/system/file.h"
#include "debug/page/report.h"
#include "tune/auto_page.h"

#include <inttypes.h>
#include <math.h>

static const char *input_path(const oq_auto *a) {
    return oq_job_input(a->job);
}

static const char *output_path(const oq_auto *a) {
    return oq_opt_str(a->job->opts, "output");
}

/* ---- commands ---- */

/* Where a model on the way goes: next to the result. NULL when out of memory. */
static const char *path_on_the_way(const oq_auto *a, const char *what) {
    static const char ending[] = ".onnx";
    oq_str path = oq_str_of(output_path(a));
    if (oq_str_ends(path, oq_str_of(ending)))
        path.n -= sizeof ending - 1;
    return oq_str_format(&a->job->arena, "%.*s.%s%s", (int)path.n, path.p, what, ending).p;
}

/* The commands of a recipe, one a line; the last line is not ended. */
static void add_commands(const oq_auto *a, const oq_recipe *r, const char *output, oq_buf *out) {
    const bool prepared = r->after == NULL && a->prepare.command != NULL;
    const char *input = r->after != NULL ? path_on_the_way(a, "quantized")
                        : prepared       ? path_on_the_way(a, "prepared")
                                         : input_path(a);
    if (input == NULL) {
        out->failed = true;
        return;
    }
    if (r->after != NULL)
        add_commands(a, r->after, input, out);
    else if (prepared)
        oq_recipe_text(&a->prepare, input_path(a), input, out);
    if (r->after != NULL || prepared)
        oq_buf_addc(out, '\n');
    oq_recipe_text(r, input, output, out);
}

void oq_auto_commands(const oq_auto *a, const oq_candidate *c, oq_buf *out) {
    const bool as_given = c == a->tune.truth || a->prepare.command == NULL;
    if (c->recipe.command != NULL) {
        add_commands(a, &c->recipe, output_path(a), out);
    } else if (!as_given) {
        oq_recipe_text(&a->prepare, input_path(a), output_path(a), out);
    } else {
        oq_buf_adds(out, "cp ");
        oq_buf_add_exact_word(out, oq_str_of(input_path(a)));
        oq_buf_addc(out, ' ');
        oq_buf_add_exact_word(out, oq_str_of(output_path(a)));
    }
    if ((c->recipe.command != NULL || !as_given) &&
        oq_opt_flag(a->job->opts, "use_external_data_format"))
        oq_buf_adds(out, " --use_external_data_format");
    oq_buf_addc(out, '\n');
}

onq_code oq_auto_write_recipe(const oq_auto *a, const char *path, onq_error *err) {
    oq_buf text;
    oq_buf_init(&text, &a->job->env->alloc);
    oq_auto_commands(a, a->chosen, &text);
    const onq_code rc =
        text.failed ? oq_fail_nomem(err) : oq_out_text(&a->job->env->alloc, path, &text, err);
    oq_buf_release(&text);
    return rc;
}

/* ---- JSON ---- */

static void score_json(oq_jw *w, const oq_score *s) {
    oq_jw_real(w, "agreement", s->agreement);
    oq_jw_real(w, "expected_agreement", s->expected);
    oq_jw_real(w, "sqnr", s->sqnr); /* null: no difference at all */
    oq_jw_real(w, "cosine", s->cosine);
    if (!isnan(s->accuracy))
        oq_jw_real(w, "accuracy", s->accuracy);
    if (!isnan(s->metric))
        oq_jw_real(w, "metric", s->metric);
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

/* `score` is NULL for one that could not be made. */
static void candidate_json(const oq_auto *a, const oq_candidate *c, const oq_score *score,
                           const char *key, oq_jw *w) {
    oq_jw_begin_object(w, key);
    oq_jw_cstr(w, "label", c->label);
    oq_recipe_json(&c->recipe, w, "options");
    if (score == NULL) {
        oq_jw_cstr(w, "why_not", c->why_not);
    } else {
        score_json(w, score);
        oq_jw_real(w, "latency_ms", c->ms);
        oq_jw_real(w, "latency_noise_ms", c->ms_noise);
        oq_jw_uint(w, "size", c->size);
        oq_jw_real(w, "objective", score->objective);
        if (!isnan(c->predicted))
            oq_jw_real(w, "predicted_objective", c->predicted);
        oq_jw_bool(w, "reached", c->reached);
    }
    commands_json(a, c, w);
    oq_jw_end_object(w);
}

static void targets_json(const oq_auto *a, oq_jw *w) {
    oq_jw_begin_object(w, "target");
    for (size_t i = 0; i < a->tune.targets.all.n; i++)
        oq_jw_real(w, oq_metric_name(a->tune.targets.all.v[i].metric),
                   a->tune.targets.all.v[i].value);
    oq_jw_end_object(w);
}

static void curve_json(const oq_auto *a, oq_jw *w) {
    const oq_candidates *all = &a->tune.all;
    size_t *order = OQ_NEW_ARRAY(&a->job->arena, size_t, all->n + 1);
    const size_t n = order != NULL ? oq_curve(all, order) : 0;
    oq_jw_begin_array(w, "curve");
    for (size_t i = 0; i < n; i++) {
        const oq_candidate *c = all->v[order[i]];
        candidate_json(a, c, c->report.samples > 0 ? &c->report : &c->score, NULL, w);
    }
    oq_jw_end_array(w);
}

void oq_auto_json(const oq_auto *a, oq_jw *w) {
    const oq_candidates *all = &a->tune.all;
    oq_jw_cstr(w, "input", input_path(a));
    oq_jw_cstr(w, "output", output_path(a));
    oq_jw_bool(w, "target_reached", a->reached);
    if (a->report_is_own)
        oq_jw_bool(w, "target_reached_held_out",
                   oq_targets_hold(&a->tune.targets, &a->chosen->report, true));
    targets_json(a, w);
    candidate_json(a, a->chosen, &a->chosen->report, "chosen", w);
    candidate_json(a, a->tune.truth, &a->tune.truth->report, "float", w);
    oq_jw_begin_array(w, "candidates");
    for (size_t i = 0; i < all->n; i++)
        candidate_json(a, all->v[i], all->v[i]->ok ? &all->v[i]->score : NULL, NULL, w);
    oq_jw_end_array(w);
    curve_json(a, w);
    oq_jw_uint(w, "samples_choosing", a->choose.all.n);
    oq_jw_uint(w, "samples_reporting", a->report_is_own ? a->report.all.n : 0);
    oq_jw_bool(w, "stopped_by_time_limit", a->tune.stopped);
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

/* ---- text ---- */

/* Where the last axis holds no classes the agreement is of no use. */
static bool has_classes(const oq_auto *a) {
    bool asked = a->classes;
    for (size_t i = 0; i < a->tune.targets.all.n; i++)
        asked |= a->tune.targets.all.v[i].metric == OQ_METRIC_AGREEMENT;
    return asked;
}

static void score_text(const oq_auto *a, oq_buf *b, const oq_score *s) {
    if (!isnan(s->agreement) && has_classes(a))
        oq_buf_addf(b, "%6.2f %%  ", s->agreement);
    if (isfinite(s->sqnr))
        oq_buf_addf(b, "%6.1f dB", s->sqnr);
    else
        oq_buf_adds(b, s->sqnr > 0 ? "    same " : "   wrong ");
    if (!isnan(s->accuracy))
        oq_buf_addf(b, "  %6.2f %% right", s->accuracy);
    if (!isnan(s->metric))
        oq_buf_addf(b, "  metric %g", s->metric);
}

static void row_text(const oq_auto *a, const oq_candidate *c, const oq_score *s, oq_buf *b) {
    char size[32];
    oq_buf_addf(b, "%c ", c == a->chosen ? '*' : c->reached ? '+' : ' ');
    score_text(a, b, s);
    oq_buf_addf(b, "  %9.3f ms  %8s  %s\n", c->ms, oq_size_text(size, c->size), c->label);
}

static void candidates_text(const oq_auto *a, oq_buf *b) {
    size_t failed = 0;
    oq_buf_addf(b, "candidates, on %zu samples (* chosen, + reaches the target):\n",
                a->choose.all.n);
    row_text(a, a->tune.truth, &a->tune.truth->score, b);
    for (size_t i = 0; i < a->tune.all.n; i++) {
        const oq_candidate *c = a->tune.all.v[i];
        failed += !c->ok;
        if (c->ok)
            row_text(a, c, &c->score, b);
    }
    if (failed > 0)
        oq_buf_addf(b, "  %zu more could not be made (--json says why)\n", failed);
}

/* How sure the figures are. */
static void sure_text(const oq_auto *a, oq_buf *b) {
    const oq_score *s = &a->chosen->report;
    if (!a->report_is_own)
        oq_buf_adds(b, "there is one sample only: the figures are of what chose (--eval_data)\n");
    else if (!isnan(s->agreement) && has_classes(a))
        oq_buf_addf(b,
                    "%" PRIu64 " held-out samples with %" PRIu64
                    " rows: the agreement is at least %.1f %% with 95 %% certainty; the noise "
                    "predicts %.2f %%\n",
                    s->samples, s->rows, oq_agreement_bound(s->agreement, s->rows), s->expected);
    else
        oq_buf_addf(b, "%" PRIu64 " held-out samples\n", s->samples);
}

static void verdict_text(const oq_auto *a, oq_buf *b) {
    const oq_candidate *c = a->chosen;
    const double part = a->tune.truth->ms > 0 ? c->ms / a->tune.truth->ms : NAN;
    if (c->recipe.command == NULL)
        oq_buf_adds(b, "leave it float: ");
    oq_buf_addf(b, "%s: ", c->label);
    score_text(a, b, &c->report);
    oq_buf_addf(b, ", %.3f ms (%.2f of float)\n", c->ms, part);
}

void oq_auto_text(const oq_auto *a) {
    oq_buf *b = &a->job->text;
    candidates_text(a, b);
    verdict_text(a, b);
    sure_text(a, b);
    if (!a->reached && a->chosen->recipe.command == NULL)
        oq_alert(a->job->env,
                 "nothing could be quantized: the model stays float (--json says why)");
    else if (!a->reached)
        oq_alert(a->job->env, "no candidate reaches the target: the most accurate was written (%s)",
                 a->chosen->label);
    if (a->reached && a->report_is_own &&
        !oq_targets_hold(&a->tune.targets, &a->chosen->report, true))
        oq_warn(a->job->env, "the target is reached on the samples that chose, not on those held "
                             "out (more samples, or a higher --target)");
    if (a->tune.stopped)
        oq_buf_adds(b, "stopped by --time_limit: the best so far\n");
    oq_auto_commands(a, a->chosen, b);
}
