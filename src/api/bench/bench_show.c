/*
 * bench_show.c — what bench found, as text and as JSON: times, agreement with the first model and,
 * for a quantized model that is slow, why.
 */
#include "api/bench/bench_show.h"

#include "base/keyed.h"
#include "samples/grade.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

/* Fewer do not tell which of two models is slower. */
#define ENOUGH_RUNS 5

typedef oq_bench_contender contender;
typedef oq_bench bench;

/* ---- times ---- */

/* The value that a part p of the sorted times does not pass; the middle of two for the median. */
static double quantile(const contender *c, double p) {
    assert(p >= 0 && p <= 1);
    const size_t n = c->times.n;
    if (p == 0.5 && n % 2 == 0)
        return (c->times.v[n / 2 - 1] + c->times.v[n / 2]) / 2;
    const size_t i = (size_t)ceil(p * (double)n);
    return c->times.v[i > 0 ? i - 1 : 0];
}

/* ---- agreement ---- */

static void json_agree(oq_jw *w, const oq_agree *s) {
    if (s->differs || s->n == 0) {
        oq_jw_null(w, "cosine");
        oq_jw_null(w, "sqnr");
        oq_jw_null(w, "top1");
        oq_jw_null(w, "max_difference");
        return;
    }
    oq_jw_real(w, "cosine", oq_agree_cosine(s));
    oq_jw_real(w, "sqnr", oq_agree_sqnr(s)); /* null: no difference at all, or not finite */
    oq_jw_bool(w, "finite", !s->wrecked);
    oq_jw_real(w, "top1", oq_agree_top1(s));
    oq_jw_real(w, "max_difference", s->largest);
}

/* Lower is worse: outputs of another kind, then those with NaN, then by noise. */
static double quality(const oq_agree *s) {
    if (s->differs || s->n == 0)
        return -INFINITY;
    return isnan(s->noise) ? -1e300 : oq_agree_sqnr(s);
}

static bool is_worse(const bench *b, const contender *c, size_t i, size_t than) {
    if (b->roles.states[i] != b->roles.states[than])
        return b->roles.states[than];
    return quality(&c->tally.outputs[i]) < quality(&c->tally.outputs[than]);
}

size_t *oq_bench_worst_first(bench *b, const contender *c) {
    const size_t n = b->v[0].session->outputs.n;
    size_t *order = OQ_NEW_ARRAY(&b->job->arena, size_t, n + 1);
    for (size_t i = 0; order != NULL && i < n; i++) {
        size_t at = i;
        for (; at > 0 && is_worse(b, c, i, order[at - 1]); at--)
            order[at] = order[at - 1];
        order[at] = i;
    }
    return order;
}

/* Slower than the first, by the median and by the fastest run: one busy moment of the machine does
 * not make both. A few runs say nothing of it. */
static bool is_slower(const bench *b, const contender *c) {
    return c->times.n >= ENOUGH_RUNS && b->v[0].times.n >= ENOUGH_RUNS &&
           quantile(c, 0.5) > 1.02 * quantile(b->v, 0.5) &&
           c->times.v[0] > 1.02 * b->v[0].times.v[0];
}

/* How many outputs come first in the order: those that are not states, or all if all are. */
static size_t n_answers(const bench *b) {
    const size_t n = b->v[0].session->outputs.n;
    return b->roles.n_states < n ? n - b->roles.n_states : n;
}

static void json_outputs(bench *b, const contender *c, size_t from, size_t end) {
    oq_jw *w = &b->job->json;
    for (size_t k = from; k < end; k++) {
        oq_jw_begin_object(w, NULL);
        oq_jw_str(w, "name", b->v[0].session->outputs.v[c->order[k]].name);
        json_agree(w, &c->tally.outputs[c->order[k]]);
        oq_jw_end_object(w);
    }
}

static void json_language(oq_jw *w, const oq_lm_score *s) {
    oq_grade grade;
    oq_jw_begin_object(w, "language");
    oq_jw_uint(w, "rows", s->rows);
    oq_jw_real(w, "kl", oq_lm_kl(s));
    oq_jw_real(w, "top1", oq_lm_top1(s));
    oq_jw_uint(w, "predictions", s->predictions);
    oq_jw_real(w, "perplexity", oq_lm_perplexity(s));
    oq_jw_real(w, "perplexity_rise", oq_lm_perplexity_rise(s));
    if (oq_grade_of_text(s, &grade))
        oq_jw_cstr(w, "verdict", oq_grade_text(grade));
    oq_jw_end_object(w);
}

/* ---- targets ---- */

static oq_score score_of(const bench *b, const contender *c) {
    size_t first = SIZE_MAX; /* of the outputs that have rows of scores */
    oq_score s = oq_score_none();
    double sqnr = (double)INFINITY, cosine = 1;
    for (size_t k = 0; k < n_answers(b); k++) {
        const oq_agree *a = &c->tally.outputs[c->order[k]];
        const bool same_kind = !a->differs && a->n > 0;
        const bool there = same_kind && !isnan(a->noise);
        sqnr = fmin(sqnr, there ? oq_agree_sqnr(a) : -(double)INFINITY);
        cosine = fmin(cosine, there ? oq_agree_cosine(a) : -1);
        if (same_kind && a->rows > 0 && c->order[k] < first) {
            first = c->order[k];
            oq_score_set(&s, OQ_METRIC_AGREEMENT, 100 * oq_agree_top1(a));
        }
    }
    oq_score_set(&s, OQ_METRIC_SAMPLE_AGREEMENT, oq_tally_kept(&c->tally));
    oq_score_set(&s, OQ_METRIC_SQNR, sqnr);
    oq_score_set(&s, OQ_METRIC_COSINE, cosine);
    if (c->rows > 0 && b->v[0].rows > 0)
        oq_score_set(&s, OQ_METRIC_ACCURACY_DROP,
                     100.0 * ((double)b->v[0].right / (double)b->v[0].rows -
                              (double)c->right / (double)c->rows));
    return s;
}

onq_code oq_bench_check_targets(bench *b, onq_error *err) {
    for (size_t i = 1; i < b->n; i++) {
        const oq_score s = score_of(b, &b->v[i]);
        OQ_TRY(oq_gate_check(&b->targets, &s, err));
    }
    return ONQ_OK;
}

/* ---- rows ---- */

static void show_json(bench *b, const contender *c) {
    oq_jw *w = &b->job->json;
    oq_jw_begin_object(w, NULL);
    oq_jw_cstr(w, "model", c->path);
    oq_jw_uint(w, "size", c->size_bytes);
    oq_jw_real(w, "load_ms", c->load_seconds * 1e3);
    oq_jw_uint(w, "runs", c->times.n);
    oq_jw_begin_object(w, "latency_ms");
    oq_jw_real(w, "median", quantile(c, 0.5) * 1e3);
    oq_jw_real(w, "p90", quantile(c, 0.9) * 1e3);
    oq_jw_real(w, "min", c->times.v[0] * 1e3);
    oq_jw_real(w, "max", c->times.v[c->times.n - 1] * 1e3);
    oq_jw_real(w, "mean", c->total / (double)c->times.n * 1e3);
    oq_jw_end_object(w);
    oq_jw_real(w, "throughput", (double)c->times.n / c->total);
    if (c->flight.jobs > 0)
        oq_bench_flight_json(&c->flight, w);
    if (c->decode.measured)
        oq_bench_decode_json(&c->decode, w);
    if (c != b->v && b->v[0].session->outputs.n > 0) {
        const size_t worst = c->order[0];
        oq_jw_begin_object(w, "agreement");
        json_agree(w, &c->tally.outputs[worst]);
        oq_jw_str(w, "worst_output", b->v[0].session->outputs.v[worst].name);
        oq_jw_uint(w, "sequences", c->tally.sequences);
        oq_jw_real(w, "sample_agreement", oq_tally_kept(&c->tally));
        oq_tally_json(&c->tally, worst, b->v[0].session->outputs.v[worst].name, w);
        oq_jw_begin_array(w, "outputs");
        json_outputs(b, c, 0, n_answers(b));
        oq_jw_end_array(w);
        oq_jw_begin_array(w, "states");
        json_outputs(b, c, n_answers(b), b->v[0].session->outputs.n);
        oq_jw_end_array(w);
        oq_jw_end_object(w);
    }
    if (b->roles.language.is)
        json_language(w, &c->tally.text[OQ_FREE]);
    if (c->why.quantized) {
        if (c != b->v)
            oq_jw_bool(w, "slower_than_first", is_slower(b, c));
        oq_jw_begin_array(w, "slow_parts");
        for (size_t i = 0; i < c->why.reasons.n; i++)
            oq_jw_str(w, NULL, c->why.reasons.v[i]);
        oq_jw_end_array(w);
    }
    if (c != b->v) {
        const oq_score s = score_of(b, c);
        oq_gate_json(b->job, &b->targets, &s);
    }
    if (c->rows > 0) {
        oq_jw_uint(w, "labelled", c->rows);
        oq_jw_real(w, "accuracy", (double)c->right / (double)c->rows);
    }
    oq_jw_end_object(w);
}

static void text_agree(oq_buf *t, const oq_agree *s) {
    if (s->differs || s->n == 0) {
        oq_buf_adds(t, "   outputs differ in kind");
        return;
    }
    oq_buf_addf(t, " %10.6f", s->wrecked ? (double)NAN : oq_agree_cosine(s));
    if (isinf(oq_agree_sqnr(s)))
        oq_buf_adds(t, s->wrecked ? "     nan" : "   equal");
    else
        oq_buf_addf(t, " %7.2f", oq_agree_sqnr(s));
    if (s->rows > 0)
        oq_buf_addf(t, " %5.1f%%", oq_agree_top1(s) * 100);
    else
        oq_buf_adds(t, "      -");
}

static void show_name(oq_buf *t, const contender *c, size_t width) {
    const size_t from = t->n;
    oq_buf_add_safe(t, oq_str_of(c->path));
    while (!t->failed && t->n - from < width)
        oq_buf_addc(t, ' ');
}

static void show_flights(bench *b, size_t width) {
    oq_buf *t = &b->job->text;
    if (b->v[0].flight.jobs == 0)
        return;
    oq_buf_addf(t, "\n%-*s %6s %12s %12s %9s\n", (int)width, "throughput", "jobs", "one, runs/s",
                "at once", "scaling");
    for (size_t i = 0; i < b->n; i++) {
        show_name(t, &b->v[i], width);
        oq_bench_flight_text(&b->v[i].flight, t);
    }
}

static void show_text(bench *b, const contender *c, size_t width) {
    oq_buf *t = &b->job->text;
    show_name(t, c, width);
    oq_buf_addf(t, " %10.1f %10.3f %10.3f %10.3f %10.1f", (double)c->size_bytes / 1e3,
                c->times.v[0] * 1e3, quantile(c, 0.5) * 1e3, quantile(c, 0.9) * 1e3,
                (double)c->times.n / c->total);
    if (c == b->v || b->v[0].session->outputs.n == 0)
        oq_buf_adds(t, "          -       -      -");
    else
        text_agree(t, &c->tally.outputs[c->order[0]]);
    if (b->labels.v != NULL && c->rows > 0)
        oq_buf_addf(t, " %7.2f%%", 100.0 * (double)c->right / (double)c->rows);
    oq_buf_addc(t, '\n');
}

static void show_output(bench *b, const contender *c, size_t k) {
    oq_buf *t = &b->job->text;
    oq_buf_adds(t, " ");
    text_agree(t, &c->tally.outputs[c->order[k]]);
    oq_buf_adds(t, "  ");
    oq_buf_add_safe(t, b->v[0].session->outputs.v[c->order[k]].name);
    oq_buf_addc(t, '\n');
}

/* Each output by itself, where the row of the model shows the worst of several; of states the
 * worst. */
static void show_outputs(bench *b, const contender *c) {
    oq_buf *t = &b->job->text;
    const size_t n = b->v[0].session->outputs.n, answers = n_answers(b);
    if (c == b->v || n < 2)
        return;
    if (answers > 1) {
        oq_buf_adds(t, "\noutputs of ");
        oq_buf_add_safe(t, oq_str_of(c->path));
        oq_buf_adds(t, ", worst first (the table above shows the worst)\n");
        for (size_t k = 0; k < answers; k++)
            show_output(b, c, k);
    }
    if (answers < n) {
        oq_buf_addf(t, "\nworst of %zu state%s of ", n - answers, OQ_NOUN_S(n - answers));
        oq_buf_add_safe(t, oq_str_of(c->path));
        oq_buf_adds(t, " (only what a run adds to them)\n");
        show_output(b, c, answers);
    }
}

static void show_number(oq_buf *t, int digits, double x, const char *unit) {
    if (isnan(x))
        oq_buf_addf(t, " %10s", "-");
    else
        oq_buf_addf(t, " %*.*f%s", 10 - (int)strlen(unit), digits,
                    fabs(x) < 0.5 * pow(10, -digits) ? 0 : x, unit); /* not -0.00 */
}

/* What counts for language models. */
static void show_language(bench *b, size_t width) {
    oq_buf *t = &b->job->text;
    oq_grade grade;
    if (!b->roles.language.is)
        return;
    oq_buf_addf(t, "\n%-*s %10s %10s %10s %10s\n", (int)width, "language", "perplexity", "rise",
                "KL", "top-1");
    for (size_t i = 0; i < b->n; i++) {
        const oq_lm_score *s = &b->v[i].tally.text[OQ_FREE];
        show_name(t, &b->v[i], width);
        show_number(t, 3, oq_lm_perplexity(s), "");
        show_number(t, 2, i > 0 ? oq_lm_perplexity_rise(s) : (double)NAN, "%");
        show_number(t, 5, i > 0 ? oq_lm_kl(s) : (double)NAN, "");
        show_number(t, 2, i > 0 ? 100 * oq_lm_top1(s) : (double)NAN, "%");
        if (i > 0 && oq_grade_of_text(s, &grade))
            oq_buf_addf(t, "  %s", oq_grade_text(grade));
        oq_buf_addc(t, '\n');
    }
    oq_buf_addf(t, "%" PRIu64 " rows, %" PRIu64 " tokens predicted\n",
                b->v[0].tally.text[OQ_FREE].rows, b->v[0].tally.text[OQ_FREE].predictions);
}

/* From place to place of sequences, and whole ones. */
static void show_along(bench *b) {
    oq_buf *t = &b->job->text;
    for (size_t i = 1; i < b->n && b->v[0].session->outputs.n > 0; i++) {
        const contender *c = &b->v[i];
        if (c->tally.seen < 2 || c->walker == NULL)
            continue;
        oq_buf_adds(t, "\nalong the sequences of ");
        oq_buf_add_safe(t, oq_str_of(c->path));
        if (c->tally.sequences > 0)
            oq_buf_addf(t, " (the same classes throughout in %" PRIu64 " of %" PRIu64 ")",
                        c->tally.kept, c->tally.sequences);
        oq_buf_addc(t, '\n');
        oq_tally_text(&c->tally, c->order[0], b->v[0].session->outputs.v[c->order[0]].name, t);
    }
}

/* The command that times the float model's nodes, with the samples of this one. */
static void add_units_command(const bench *b, oq_buf *t) {
    const onq_options *o = b->job->opts;
    const char *data = oq_opt_str(o, "data"), *path = b->v[0].path;
    oq_buf_adds(t, path[0] == '-' ? "onq bench --units ./" : "onq bench --units ");
    oq_buf_add_word(t, oq_str_of(path));
    if (data != NULL && strcmp(data, "-") != 0 && oq_opt_reader(o) == NULL) {
        oq_buf_adds(t, " --data ");
        oq_buf_add_word(t, oq_str_of(data));
    }
}

/* A quantized model that costs time instead of saving it. */
static void show_slow(bench *b, const contender *c) {
    oq_buf *t = &b->job->text;
    if (c == b->v || !c->why.quantized || b->v[0].why.quantized || !is_slower(b, c))
        return;
    oq_buf_addc(t, '\n');
    oq_buf_add_safe(t, oq_str_of(c->path));
    oq_buf_addf(t, " is quantized and slower than float (%.2f times its time)%s",
                quantile(c, 0.5) / quantile(b->v, 0.5),
                c->why.reasons.n > 0 ? "; it has:\n" : ": ");
    for (size_t i = 0; i < c->why.reasons.n; i++) {
        oq_buf_adds(t, "  ");
        oq_buf_add_safe(t, c->why.reasons.v[i]);
        oq_buf_addc(t, '\n');
    }
    if (c->why.reasons.n == 0) {
        add_units_command(b, t);
        oq_buf_adds(t, " shows which nodes gain\n");
    }
}

static void show_decoding(bench *b, size_t width) {
    oq_buf *t = &b->job->text;
    if (!b->v[0].decode.measured)
        return;
    oq_buf_addf(t, "\n%-*s", (int)width, "tokens/s");
    oq_bench_decode_head(t);
    for (size_t i = 0; i < b->n; i++) {
        show_name(t, &b->v[i], width);
        oq_bench_decode_text(&b->v[i].decode, t);
    }
}

void oq_bench_show(bench *b) {
    oq_buf *t = &b->job->text;
    size_t width = 5;
    for (size_t i = 0; i < b->n; i++) {
        const size_t n = strlen(b->v[i].path);
        width = n > width && n <= 60 ? n : width;
        if (b->v[i].times.n > 1)
            qsort(b->v[i].times.v, b->v[i].times.n, sizeof(double), oq_by_double);
    }
    oq_buf_addf(t, "%-*s %10s %10s %10s %10s %10s %10s %7s %6s%s\n", (int)width, "model", "size kB",
                "min ms", "median ms", "p90 ms", "runs/s", "cosine", "SQNR dB", "top-1",
                b->labels.v != NULL ? "    right" : "");
    oq_jw_uint(&b->job->json, "samples", b->n_samples);
    oq_jw_cstr(&b->job->json, "runtime", b->engine->name);
    oq_jw_begin_array(&b->job->json, "models");
    for (size_t i = 0; i < b->n; i++) {
        show_text(b, &b->v[i], width);
        show_json(b, &b->v[i]);
    }
    show_flights(b, width);
    show_language(b, width);
    show_along(b);
    show_decoding(b, width);
    for (size_t i = 0; i < b->n; i++) {
        show_outputs(b, &b->v[i]);
        show_slow(b, &b->v[i]);
    }
    for (size_t i = 1; i < b->n; i++) {
        const oq_score s = score_of(b, &b->v[i]);
        oq_gate_tell(b->job, &b->targets, &s, b->v[i].path);
    }
    oq_jw_end_array(&b->job->json);
}
