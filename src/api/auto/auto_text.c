/*
 * auto_text.c — the answer of `onq auto` as text.
 */
#include "api/auto/auto_job.h"

#include "base/text/number_text.h"

#include <inttypes.h>
#include <math.h>

#define MAX_LEFT_OUT 4 /* named in a line; --json has all */

#define COLUMN 10 /* of a figure in the table; 0 in a sentence */

static void figure_text(oq_buf *b, oq_metric m, double v, int width) {
    if (isnan(v))
        oq_buf_addf(b, "%*s", width, "-");
    else if (m == OQ_METRIC_SQNR && isinf(v))
        oq_buf_addf(b, "%*s", width, v > 0 ? "exact" : "wrong");
    else if (isinf(v))
        oq_buf_addf(b, "%*s", width, "-");
    else if (m == OQ_METRIC_SQNR)
        oq_buf_addf(b, "%*.1f dB", width > 3 ? width - 3 : 0, v);
    else if (oq_metric_of(m)->percent || m == OQ_METRIC_PERPLEXITY_RISE)
        oq_buf_addf(b, "%*.2f %%", width > 2 ? width - 2 : 0, v);
    else
        oq_buf_addf(b, "%*.3g", width, v);
}

/* Of one sample nothing is certain. */
static void promise_text(oq_buf *b, const oq_score *s, oq_metric m, int width) {
    const double v = oq_score_promise(s, m);
    figure_text(b, m, isinf(v) && v < 0 ? NAN : v, width);
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
        oq_buf_addf(b, "  %9.1f", oq_auto_prefill_speed(a, c));
    else
        oq_buf_addf(b, "  %9s", "-");
    oq_buf_addf(b, " %9.1f", 1e3 / c->ms);
}

static void row_text(const oq_auto *a, const oq_candidate *c, oq_buf *b) {
    const oq_metric m = oq_auto_shown(a);
    char size[32];
    oq_buf_addf(b, "%c ", c == a->chosen ? '*' : c->reached && !c->exact ? '+' : ' ');
    figure_text(b, m, oq_score_of(&c->score, m), COLUMN);
    if (c->exact)
        oq_buf_addf(b, "%10s", "");
    else
        promise_text(b, &c->score, m, COLUMN);
    if (m != OQ_METRIC_SQNR)
        figure_text(b, OQ_METRIC_SQNR, oq_score_of(&c->score, OQ_METRIC_SQNR), COLUMN);
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
    const oq_metric m = oq_auto_shown(a);
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
                        oq_auto_reason(a, a->tune.all.v[i]));
}

/* What is certain of the one that is taken. */
static void sure_text(const oq_auto *a, oq_buf *b) {
    const oq_score *s = &a->chosen->report;
    const oq_trials *set = a->eval_data ? &a->report : &a->choose;
    oq_buf_addf(b, "on %" PRIu64 " %s %s: ", s->samples, oq_trials_word(set),
                a->eval_data ? "of --eval_data" : "that did not calibrate");
    for (size_t i = 0; i < a->tune.targets.n; i++) {
        const oq_metric m = a->tune.targets.v[i].metric;
        oq_buf_addf(b, "%s%s ", i > 0 ? "; " : "", oq_metric_of(m)->name);
        figure_text(b, m, oq_score_of(s, m), 0);
        oq_buf_addf(b, ", of others %s ", oq_metric_of(m)->less ? "at most" : "at least");
        promise_text(b, s, m, 0);
        oq_buf_adds(b, " (95 % certain)");
    }
    if (!isnan(oq_score_of(s, OQ_METRIC_KL)))
        oq_buf_addf(b, ": %s", oq_grade_text(oq_auto_grade(s)));
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
                    c->label, oq_auto_prefill_speed(a, c), c->prefill_ms / flt->prefill_ms,
                    1e3 / c->ms, c->ms / flt->ms);
    else
        oq_buf_addf(b, "%s: %.3f ms (%.2f of float)\n", c->label, c->ms,
                    flt->ms > 0 ? c->ms / flt->ms : NAN);
}

/* Why units stayed float, the noisiest first. */
static void floats_text(const oq_auto *a, oq_buf *b) {
    const oq_candidate *p = oq_auto_point(a, a->chosen);
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
    const char *name = oq_metric_of(oq_auto_shown(a))->name;
    oq_buf_addf(b,
                "a lower target is much faster: %s takes %.2f of float's time, and %s is at least "
                "%g%s (--target %s=%g)\n",
                c->label, c->ms / a->tune.flt->ms, name, a->lower_target,
                oq_auto_shown(a) == OQ_METRIC_SQNR ? " dB" : " %", name, a->lower_target);
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
        oq_buf_addf(b, "nearest: %s, ", a->nearest->label);
        figure_text(b, oq_auto_shown(a), oq_score_of(&a->nearest->score, oq_auto_shown(a)), 0);
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
        if (oq_auto_had_no_turn(a, way))
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
