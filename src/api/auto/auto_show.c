/*
 * auto_show.c — the answer of `onq auto` as text, as JSON and as commands.
 */
#include "api/auto/auto_job.h"

#include "base/system/file.h"
#include "base/text/number_text.h"
#include "debug/page/report.h"
#include "samples/grade.h"
#include "tune/auto_page.h"

#include <inttypes.h>
#include <math.h>

#define MAX_LEFT_OUT 4 /* named in a line; --json has all */

static const char *input_path(const oq_auto *a) {
    return oq_job_input(a->job);
}

static const char *output_path(const oq_auto *a) {
    return oq_opt_str(a->job->opts, "output");
}

/* The metric of the first target, which the table shows beside dB. */
static oq_metric shown(const oq_auto *a) {
    return a->tune.targets.n > 0 ? a->tune.targets.v[0].metric : OQ_METRIC_SQNR;
}

/* ---- commands ---- */

/* Where a model on the way goes: next to the result. NULL when out of memory. */
static const char *path_on_the_way(const oq_auto *a, const char *what) {
    static const char ending[] = ".onnx";
    oq_str path = oq_str_of(output_path(a));
    (void)oq_str_cut_end(&path, ending);
    return oq_str_format(&a->job->arena, "%.*s.%s%s", (int)path.n, path.p, what, ending).p;
}

/* The commands of a recipe, one a line; the last line is not ended. */
static void add_commands(const oq_auto *a, const oq_recipe *r, const char *output, oq_buf *out) {
    const char *input = r->after == NULL     ? input_path(a)
                        : r->after->prepares ? path_on_the_way(a, "prepared")
                                             : path_on_the_way(a, "quantized");
    if (input == NULL) {
        out->failed = true;
        return;
    }
    if (r->after != NULL) {
        add_commands(a, r->after, input, out);
        oq_buf_addc(out, '\n');
    }
    oq_recipe_text(r, input, output, out);
}

static void add_copy(const oq_auto *a, oq_buf *out, const char *from, const char *to) {
    const bool rewritten = oq_opt_is_set(a->job->opts, "for_runtime");
    oq_buf_adds(out, rewritten ? "onq convert -i " : "cp ");
    oq_buf_add_exact_word(out, oq_str_of(from));
    oq_buf_adds(out, rewritten ? " -o " : " ");
    oq_buf_add_exact_word(out, oq_str_of(to));
}

void oq_auto_commands(const oq_auto *a, const oq_candidate *c, oq_buf *out) {
    const bool copied = c->recipe.command == NULL || c == a->tune.rival_found;
    if (copied)
        add_copy(a, out, c == a->tune.rival_found ? a->tune.rival : input_path(a), output_path(a));
    else
        add_commands(a, &c->recipe, output_path(a), out);
    if (!copied && oq_opt_flag(a->job->opts, "use_external_data_format"))
        oq_buf_adds(out, " --use_external_data_format");
    if (oq_opt_is_set(a->job->opts, "for_runtime"))
        oq_buf_addf(out, " --for_runtime %s", oq_opt_str(a->job->opts, "for_runtime"));
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

/* Of a language model. */
static oq_grade grade_of(const oq_score *s) {
    return oq_grade_of_language(oq_score_of(s, OQ_METRIC_KL),
                                oq_score_of(s, OQ_METRIC_AGREEMENT) / 100);
}

/* What the targets are about, by the name of the metric: figures, and what other samples keep, for
 * which float needs no samples. */
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
        oq_jw_cstr(w, "verdict", oq_grade_text(grade_of(s)));
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

/* Why it could not be made, without the name of a scratch file. */
static const char *reason(const oq_auto *a, const oq_candidate *c) {
    const char *text = c->why_not, *end = NULL;
    if (a->folder != NULL && oq_str_starts(oq_str_of(text), oq_str_of(a->folder)))
        end = strstr(text, ".onnx: ");
    return end != NULL ? end + strlen(".onnx: ") : text;
}

/* The point of the curve that has the same units in integers as `c`, or NULL: it says why the
 * others are float. */
static const oq_candidate *point_of(const oq_auto *a, const oq_candidate *c) {
    const char *ways = oq_recipe_get(&c->recipe, "node_methods");
    for (size_t i = 0; ways != NULL && i < a->tune.all.n; i++) {
        const oq_candidate *p = a->tune.all.v[i];
        const char *same = oq_recipe_get(&p->recipe, "node_methods");
        if (p->floats.n > 0 && same != NULL && strcmp(ways, same) == 0)
            return p;
    }
    return NULL;
}

static void floats_json(const oq_auto *a, const oq_candidate *c, oq_jw *w) {
    const oq_candidate *p = point_of(a, c);
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

/* Tokens a second of the text that is timed. */
static double prefill_speed(const oq_auto *a, const oq_candidate *c) {
    return 1e3 * (double)a->choose.decoding.length / c->prefill_ms;
}

/* `score` is NULL for one that could not be made. */
static void candidate_json(const oq_auto *a, const oq_candidate *c, const oq_score *score,
                           const char *key, oq_jw *w) {
    oq_jw_begin_object(w, key);
    oq_jw_cstr(w, "label", c->label);
    oq_recipe_json(&c->recipe, w, "options");
    if (score == NULL) {
        oq_jw_cstr(w, "why_not", reason(a, c));
    } else {
        score_json(a, w, score, c->exact);
        oq_jw_real(w, "latency_ms", c->ms);
        oq_jw_real(w, "latency_noise_ms", c->ms_noise);
        if (c->prefill_ms > 0) {
            oq_jw_real(w, "prefill_tokens_per_second", prefill_speed(a, c));
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

/* It was allowed, and the time was over before. */
static bool had_no_turn(const oq_auto *a, oq_way way) {
    return (a->tune.missed & ~a->tune.turned) & 1U << way;
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
    oq_jw_real(w, oq_metric_of(shown(a))->name, a->lower_target);
    oq_jw_end_object(w);
    oq_jw_real(w, "latency_ms", a->cheaper->ms);
    oq_jw_end_object(w);
}

void oq_auto_json(const oq_auto *a, oq_jw *w) {
    const oq_candidates *all = &a->tune.all;
    oq_jw_cstr(w, "input", input_path(a));
    oq_jw_cstr(w, "output", output_path(a));
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
        if (had_no_turn(a, way))
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

/* ---- text ---- */

static void figure_text(oq_buf *b, oq_metric m, double v) {
    if (isnan(v))
        oq_buf_addf(b, "%10s", "-");
    else if (m == OQ_METRIC_SQNR && isinf(v))
        oq_buf_addf(b, "%10s", v > 0 ? "exact" : "wrong");
    else if (isinf(v))
        oq_buf_addf(b, "%10s", "-");
    else if (m == OQ_METRIC_SQNR)
        oq_buf_addf(b, "%7.1f dB", v);
    else if (oq_metric_of(m)->percent || m == OQ_METRIC_PERPLEXITY_RISE)
        oq_buf_addf(b, "%8.2f %%", v);
    else
        oq_buf_addf(b, "%10.3g", v);
}

/* Of one sample nothing is certain. */
static void promise_text(oq_buf *b, const oq_score *s, oq_metric m) {
    const double v = oq_score_promise(s, m);
    figure_text(b, m, isinf(v) && v < 0 ? NAN : v);
}

/* What is to be known of how a candidate was judged. Who misses the target has no other doubts. */
static const char *remark(const oq_auto *a, const oq_candidate *c) {
    return c->doubted && oq_targets_hold(&a->tune.targets, &c->score)
               ? " (measured again it falls short, or that costs too much)"
           : c->partly && c->score.samples == 1 ? " (judged by its first sample alone)"
                                                : "";
}

/* One that another run timed has no time for a text. */
static void speeds_text(const oq_auto *a, const oq_candidate *c, oq_buf *b) {
    if (c->prefill_ms > 0)
        oq_buf_addf(b, "  %9.1f", prefill_speed(a, c));
    else
        oq_buf_addf(b, "  %9s", "-");
    oq_buf_addf(b, " %9.1f", 1e3 / c->ms);
}

static void row_text(const oq_auto *a, const oq_candidate *c, oq_buf *b) {
    const oq_metric m = shown(a);
    char size[32];
    oq_buf_addf(b, "%c ", c == a->chosen ? '*' : c->reached && !c->exact ? '+' : ' ');
    figure_text(b, m, oq_score_of(&c->score, m));
    if (c->exact)
        oq_buf_addf(b, "%10s", "");
    else
        promise_text(b, &c->score, m);
    if (m != OQ_METRIC_SQNR)
        figure_text(b, OQ_METRIC_SQNR, oq_score_of(&c->score, OQ_METRIC_SQNR));
    if (a->choose.decoding.length > 0)
        speeds_text(a, c, b);
    else
        oq_buf_addf(b, "  %9.3f ms", c->ms);
    oq_buf_addf(b, "  %9s  %s%s\n", oq_size_text(size, c->size), c->label, remark(a, c));
}

static void target_text(const oq_auto *a, oq_buf *b) {
    const char *word = oq_trials_word(&a->choose);
    oq_buf_adds(b, "target:");
    for (size_t i = 0; i < a->tune.targets.n; i++)
        oq_buf_addf(b, "%s %s=%g", i > 0 ? "," : "",
                    oq_metric_of(a->tune.targets.v[i].metric)->name, a->tune.targets.v[i].value);
    if (a->by_default.why != NULL)
        oq_buf_addf(b, " (the default: %s%s)", a->by_default.why,
                    a->by_default.metric == OQ_METRIC_SAMPLE_AGREEMENT
                        ? ", and a sample has a sequence of classes"
                    : a->by_default.metric == OQ_METRIC_TEXT_AGREEMENT
                        ? ", and its rows are a text with blanks between characters"
                        : "");
    oq_buf_addc(b, '\n');
    if (!a->folds.apart)
        oq_buf_addf(b, "one %s: it calibrates and judges, and nothing can be promised\n",
                    a->choose.steps.n > a->choose.all.n ? "sequence" : "sample");
    else if (a->folds.n > 1)
        oq_buf_addf(b, "%zu %s in %zu parts: each judges what the others calibrated\n",
                    a->choose.all.n, word, a->folds.n);
    else
        oq_buf_addf(b, "%zu %s: one half judges what the other calibrated\n", a->choose.all.n,
                    word);
    const bool carries = a->choose.walker != NULL && a->choose.walker->roles.carry.n > 0;
    if (carries && a->choose.steps.n > a->choose.all.n)
        oq_buf_addf(b,
                    "they have %zu steps; each candidate goes through them with its own states\n",
                    a->choose.steps.n);
    else if (carries && !a->meaning.language.is)
        oq_buf_adds(b, "each is one run of the model: errors that its states carry on to the next "
                       "are not measured (give sequences: docs/guides/state.md)\n");
}

static void candidates_text(const oq_auto *a, oq_buf *b) {
    const oq_metric m = shown(a);
    const char *name = oq_metric_of(m)->name;
    const bool decodes = a->choose.decoding.length > 0;
    if (decodes)
        oq_buf_addf(b, "prefill (%" PRIu64 " at once) and decode (one by one): tokens a second\n",
                    a->choose.decoding.length);
    oq_buf_addf(b, "  %10s%10s%s  %s  %9s  candidate (* chosen, + reaches the target)\n",
                strlen(name) > 9 ? "figure" : name, oq_metric_of(m)->less ? "at most" : "at least",
                m != OQ_METRIC_SQNR ? "      sqnr" : "",
                decodes ? "  prefill    decode" : "        time", "size");
    for (size_t i = 0; i < a->tune.all.n; i++)
        if (a->tune.all.v[i]->ok)
            row_text(a, a->tune.all.v[i], b);
    for (size_t i = 0; i < a->tune.all.n; i++)
        if (!a->tune.all.v[i]->ok)
            oq_buf_addf(b, "  not made: %s: %.200s\n", a->tune.all.v[i]->label,
                        reason(a, a->tune.all.v[i]));
}

/* What is certain of the one that is taken. */
static void sure_text(const oq_auto *a, oq_buf *b) {
    const oq_score *s = &a->chosen->report;
    const oq_trials *set = a->eval_data ? &a->report : &a->choose;
    oq_buf_addf(b, "on %" PRIu64 " %s %s: ", s->samples, oq_trials_word(set),
                a->eval_data ? "of --eval_data" : "that did not calibrate");
    for (size_t i = 0; i < a->tune.targets.n; i++) {
        const oq_metric m = a->tune.targets.v[i].metric;
        oq_buf_addf(b, "%s%s", i > 0 ? "; " : "", oq_metric_of(m)->name);
        figure_text(b, m, oq_score_of(s, m));
        oq_buf_addf(b, ", of others %s ", oq_metric_of(m)->less ? "at most" : "at least");
        promise_text(b, s, m);
        oq_buf_adds(b, " (95 % certain)");
    }
    if (!isnan(oq_score_of(s, OQ_METRIC_KL)))
        oq_buf_addf(b, ": %s", oq_grade_text(grade_of(s)));
    oq_buf_addc(b, '\n');
    if (s->n_worst > 0 && isfinite(s->worst_tenth))
        oq_buf_addf(b, "the worst tenth of the %s: %.1f dB\n", oq_trials_word(set), s->worst_tenth);
    if (s->close_calls > 0)
        oq_buf_addf(b,
                    "%" PRIu64 " of %" PRIu64 " rows %s in float; %" PRIu64 " of these changed%s\n",
                    s->close_calls, s->rows,
                    s->close_calls == 1 ? "is a close call" : "are close calls", s->close_flips,
                    s->close_flips > 0 ? ", which the bound counts and the target does not" : "");
}

/* How fast the one that is taken is. */
static void pace_text(const oq_auto *a, oq_buf *b) {
    const oq_candidate *c = a->chosen, *flt = a->tune.flt;
    if (c->prefill_ms > 0)
        oq_buf_addf(b,
                    "%s: prefill %.1f tokens a second (%.2f of float's time), decode %.1f (%.2f of "
                    "float's time)\n",
                    c->label, prefill_speed(a, c), c->prefill_ms / flt->prefill_ms, 1e3 / c->ms,
                    c->ms / flt->ms);
    else
        oq_buf_addf(b, "%s: %.3f ms (%.2f of float)\n", c->label, c->ms,
                    flt->ms > 0 ? c->ms / flt->ms : NAN);
}

/* Why units stayed float, the noisiest first. */
static void floats_text(const oq_auto *a, oq_buf *b) {
    const oq_candidate *p = point_of(a, a->chosen);
    const size_t most = 3, n = p != NULL ? p->floats.n : 0;
    if (n == 0)
        return;
    oq_buf_addf(b, "%zu unit%s float:", n, n == 1 ? " stays" : "s stay");
    for (size_t i = 0; i < n && i < most; i++) {
        oq_buf_adds(b, i > 0 ? ", '" : " '");
        oq_buf_add_safe(b, oq_str_of(p->floats.v[i].node));
        oq_buf_addf(b, "' (in integers it alone leaves %s%.1f dB%s)",
                    p->floats.v[i].guessed ? "about " : "", p->floats.v[i].sqnr,
                    p->floats.v[i].gain > 0 ? "" : " and saves no time");
    }
    oq_buf_adds(b, n > most ? " ... (--json has all)\n" : "\n");
}

/* What the target costs, where a little less would give much more speed. */
static void cheaper_text(const oq_auto *a, oq_buf *b) {
    const oq_candidate *c = a->cheaper;
    const char *name = oq_metric_of(shown(a))->name;
    oq_buf_addf(b,
                "a lower target is much faster: %s takes %.2f of float's time, and %s is at least "
                "%g%s (--target %s=%g)\n",
                c->label, c->ms / a->tune.flt->ms, name, a->lower_target,
                shown(a) == OQ_METRIC_SQNR ? " dB" : " %", name, a->lower_target);
}

/* Something in integers is faster, and misses the target. */
static bool misses_faster(const oq_auto *a) {
    const oq_candidates *all = &a->tune.all;
    bool any = false;
    for (size_t i = 0; i < all->n; i++) {
        const oq_candidate *c = all->v[i];
        any |= c->ok && !c->exact && c->ms > 0 && !oq_is_as_fast(a->chosen, c);
    }
    return any;
}

static void verdict_text(const oq_auto *a, oq_buf *b) {
    const oq_candidate *c = a->chosen;
    if (c == a->tune.rival_found)
        oq_buf_adds(b, "yours is the best: nothing as fast is more accurate\n");
    else if (c->exact && a->reached)
        oq_buf_adds(b, misses_faster(a)
                           ? "kept float: no quantized model that reaches the target saves "
                             "4 % of the time\n"
                           : "kept float: int8 is no faster here\n");
    else if (c->exact)
        oq_buf_adds(b, "kept float: no quantized model reaches the target\n");
    pace_text(a, b);
    floats_text(a, b);
    if (!c->exact)
        sure_text(a, b);
    if (a->nearest != NULL && a->nearest != c && !a->reached) {
        oq_buf_addf(b, "nearest: %s,", a->nearest->label);
        figure_text(b, shown(a), oq_score_of(&a->nearest->score, shown(a)));
        oq_buf_addf(b, ", %.2f of float (--best_effort writes it)\n",
                    a->nearest->ms / a->tune.flt->ms);
    }
    if (a->needed > 0)
        oq_buf_addf(b, "%zu %s are too few to promise it: about %" PRIu64 " would do\n",
                    a->choose.all.n, oq_trials_word(&a->choose), a->needed);
    if (a->cheaper != NULL)
        cheaper_text(a, b);
}

static void stopped_text(const oq_auto *a, oq_buf *b) {
    size_t n = 0;
    oq_buf_adds(b, "stopped by --time_limit: the best so far");
    for (oq_way way = OQ_WAY_STATIC; way < OQ_WAYS; way++)
        if (had_no_turn(a, way))
            oq_buf_addf(b, "%s%s", n++ == 0 ? "; no time was left to try " : ", ",
                        oq_way_name(way));
    oq_buf_addc(b, '\n');
}

static void effort_text(const oq_auto *a, oq_buf *b) {
    const oq_tune *t = &a->tune;
    const size_t n = t->left_out.n, shown = n < MAX_LEFT_OUT ? n : MAX_LEFT_OUT;
    oq_buf_adds(b, "left out, for it would have cost too much: ");
    for (size_t i = 0; i < shown; i++)
        oq_buf_addf(b, "%s%s", i > 0 ? "; " : "", t->left_out.v[i]);
    if (n > shown)
        oq_buf_addf(b, "; and %zu more", n - shown);
    oq_buf_addf(b,
                " (--effort %g allows %.1f seconds of the processor; more may find a better one)\n",
                t->effort, t->spending.limit);
}

/* It is not slower with tokens, but with a text. */
static bool slower_by_text(const oq_auto *a) {
    return oq_is_as_fast(a->chosen, a->tune.flt);
}

static double slower_part(const oq_auto *a) {
    const oq_candidate *c = a->chosen, *flt = a->tune.flt;
    return slower_by_text(a) ? c->prefill_ms / flt->prefill_ms : c->ms / flt->ms;
}

void oq_auto_text(const oq_auto *a) {
    oq_buf *b = &a->job->text;
    target_text(a, b);
    candidates_text(a, b);
    verdict_text(a, b);
    if (!a->reached && a->nearest == NULL && a->chosen->exact && a->tune.stopped)
        oq_alert(a->job->env,
                 "no integer model could be tried within --time_limit: the model stays "
                 "float (a larger --time_limit, fewer samples by --limit)");
    else if (!a->reached && a->nearest == NULL && a->chosen->exact)
        oq_alert(a->job->env, "nothing could be quantized: the model stays float");
    else if (!a->reached && a->chosen->exact)
        oq_alert(a->job->env, "no candidate reaches the target: the model stays float");
    else if (!a->reached && a->chosen == a->tune.rival_found)
        oq_alert(a->job->env, "no candidate that is as fast as yours reaches the target: yours was "
                              "written");
    else if (!a->reached)
        oq_alert(a->job->env, "no candidate reaches the target: the most accurate was written (%s)",
                 a->chosen->label);
    if (a->reached && a->eval_data && !a->chosen->exact &&
        !oq_targets_hold(&a->tune.targets, &a->chosen->report))
        oq_warn(a->job->env, "the target is not reached on --eval_data (samples of the same kind "
                             "in --data, or a higher --target)");
    if (!oq_is_no_slower(a->chosen, a->tune.flt))
        oq_warn(a->job->env,
                "the model that was written takes %.2f times as long as float%s: nothing in "
                "integers is as fast (--prefer speed keeps it float)",
                slower_part(a), slower_by_text(a) ? " for a text at once" : "");
    if (a->tune.stopped)
        stopped_text(a, b);
    if (a->tune.left_out.n > 0)
        effort_text(a, b);
    oq_auto_commands(a, a->chosen, b);
}
