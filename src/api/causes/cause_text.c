/*
 * cause_text.c — a diagnosis for a terminal and as JSON.
 */
#include "api/causes/cause_choice.h"
#include "api/causes/causes.h"

#include <math.h>
#include <stdlib.h>

#define MANY 12 /* nodes on one line */

/* ---- the figures of a model ---- */

static double agreement_of(const oq_remade *m) {
    return m->agreement;
}

static double kl_of(const oq_remade *m) {
    return m->text.rows > 0 ? oq_lm_kl(&m->text) : (double)NAN;
}

static double top1_of(const oq_remade *m) {
    return m->text.rows > 0 ? oq_lm_top1(&m->text) : (double)NAN;
}

static double macs_of(const oq_remade *m) {
    return m->macs;
}

static double ms_of(const oq_remade *m) {
    return m->ms;
}

/* A figure beside the SQNR: its key in JSON, and the words around it in the text. */
typedef struct figure {
    const char *key;
    double (*of)(const oq_remade *m); /* NAN: it has none */
    const char *before, *after;
    double times; /* the text shows it so many times as large */
    int digits;   /* after the point; negative: so many in all */
    bool is_cost;
} figure;

static const figure figures[] = {
    {"top1_agreement", agreement_of, ", same top-1 ", " %", 100, 1, false},
    {"kl", kl_of, ", KL ", "", 1, 4, false},
    {"top1", top1_of, ", the same token first in ", " %", 100, 1, false},
    {"integer_macs", macs_of, "; ", " % of the multiply-accumulates are in integers", 100, 0, true},
    {"ms", ms_of, "; one run takes ", " ms", 1, -3, true},
};

static void figures_text(const oq_remade *m, bool of_cost, oq_buf *out) {
    for (size_t i = 0; i < OQ_COUNT(figures); i++) {
        const figure *f = &figures[i];
        const bool is_said = !(f->of == agreement_of && m->text.rows > 0); /* top1 says it better */
        if (f->is_cost == of_cost && is_said && !isnan(f->of(m)))
            oq_buf_addf(out, f->digits < 0 ? "%s%.*g%s" : "%s%.*f%s", f->before, abs(f->digits),
                        f->times * f->of(m), f->after);
    }
}

static void measured_json(oq_jw *w, const oq_remade *m) {
    oq_jw_real(w, "sqnr", m->sqnr);
    for (size_t i = 0; i < OQ_COUNT(figures); i++)
        if (!isnan(figures[i].of(m)))
            oq_jw_real(w, figures[i].key, figures[i].of(m));
}

static void decibels(oq_buf *out, double sqnr) {
    if (isnan(sqnr))
        oq_buf_adds(out, "NaN or infinity");
    else if (isinf(sqnr))
        oq_buf_adds(out, "the same as float");
    else
        oq_buf_addf(out, "%.1f dB", sqnr);
}

static void quality(oq_buf *out, const oq_remade *m) {
    decibels(out, m->sqnr);
    figures_text(m, false, out);
}

/* ---- text ---- */

static void command_text(const char *command, oq_buf *out) {
    for (const char *p = command; *p != '\0';) {
        const size_t n = strcspn(p, "\n");
        oq_buf_adds(out, "  ");
        oq_buf_add(out, p, n);
        oq_buf_addc(out, '\n');
        p += n + (p[n] == '\n');
    }
}

/* What a model costs, beside the one that there is. */
static void cost(oq_buf *out, const oq_remade *now, const oq_remade *m) {
    figures_text(m, true, out);
    if (!isnan(m->ms) && !isnan(now->ms))
        oq_buf_addf(out, " instead of %.3g ms", now->ms);
}

/* What a remedy that takes ranges or scales from samples gains on others. */
static void gain_apart(oq_buf *out, double before, double after) {
    decibels(out, after);
    oq_buf_adds(out, " instead of ");
    decibels(out, before);
    oq_buf_adds(out, " on samples that did not calibrate");
}

/* What each of several causes costs: those before it are removed already. */
static void gain(oq_buf *out, const oq_cause *c, const oq_cause *first) {
    if (c->also && c->made.path == first->made.path) {
        oq_buf_adds(out, " It goes away with the first remedy.");
        return;
    }
    oq_buf_adds(out, c->also ? " Mended alone: " : " Mended: ");
    if (!isnan(c->apart)) {
        gain_apart(out, c->apart_before, c->apart);
    } else {
        decibels(out, c->made.sqnr);
        oq_buf_adds(out, " instead of ");
        decibels(out, c->before);
    }
    oq_buf_addc(out, '.');
}

void oq_diagnosis_floats(const oq_diagnosis *x, oq_buf *out) {
    const oq_cause *last = oq_diagnosis_last(x);
    const char *list = last != NULL ? last->floats : NULL;
    for (const char *p = list; p != NULL && *p != '\0'; p++) {
        if (*p == '\\' && p[1] != '\0')
            oq_buf_addc(out, *p++);
        oq_buf_addc(out, *p == ',' && (p == list || p[-1] != '\\') ? '\n' : *p);
    }
    if (list != NULL)
        oq_buf_addc(out, '\n');
}

static size_t count_floats(const char *list) {
    size_t n = list != NULL;
    for (const char *p = list; p != NULL && *p != '\0'; p++)
        n += *p == ',' && (p == list || p[-1] != '\\');
    return n;
}

/* All causes, and the command against all of them. */
static void causes_text(const oq_diagnosis *x, oq_buf *out) {
    const oq_cause *last = oq_diagnosis_last(x);
    for (size_t i = 0; i < x->causes.n; i++) {
        oq_buf_addf(out, "%s: %s", i == 0 ? "Cause" : "  and", x->causes.v[i].text);
        if (x->causes.n > 1)
            gain(out, &x->causes.v[i], &x->causes.v[0]);
        oq_buf_addc(out, '\n');
    }
    const oq_remade *now = x->half.path != NULL ? &x->half : &x->now;
    oq_buf_addf(out, "Remedy%s, made and measured", x->causes.n > 1 ? " against all of it" : "");
    if (x->half.path != NULL)
        oq_buf_adds(out, " with half of the samples");
    else if (x->n_samples < x->n_judged)
        oq_buf_addf(out, " over the first %zu sample%s", x->n_samples, OQ_NOUN_S(x->n_samples));
    oq_buf_adds(out, ": ");
    if (!isnan(x->apart) && !isnan(x->apart_before)) {
        gain_apart(out, x->apart_before, x->apart);
        oq_buf_adds(out, "; on those that did, ");
    }
    quality(out, &last->made);
    oq_buf_adds(out, " instead of ");
    quality(out, now);
    cost(out, &x->now, &last->made);
    oq_buf_addc(out, '\n');
    command_text(last->command, out);
    const size_t n = count_floats(last->floats);
    if (n > MANY && strstr(last->command, "--nodes_to_exclude @") == NULL)
        oq_buf_addf(out, "  (With --exclude_list FILE, debug writes the %zu nodes to a file.)\n",
                    n);
}

static bool is_named(const oq_diagnosis *x, const char *cause) {
    for (size_t i = 0; i < x->causes.n; i++)
        if (strcmp(x->causes.v[i].cause, cause) == 0)
            return true;
    return false;
}

/* The best try that gains, of a cause that is neither named nor that of one of n; NULL: there is
 * none. */
static const oq_try *next_best(const oq_diagnosis *x, const oq_try *const *not_these, size_t n) {
    const oq_try *best = NULL;
    for (size_t i = 0; i < x->tries.n; i++) {
        const oq_try *t = &x->tries.v[i];
        bool other = !is_named(x, t->cause) && !t->dismissed &&
                     oq_gain_over(t->before, t->made.sqnr) >= OQ_MIN_GAIN;
        for (size_t k = 0; k < n; k++)
            other &= strcmp(t->cause, not_these[k]->cause) != 0;
        if (other && (best == NULL || t->made.sqnr > best->made.sqnr))
            best = t;
    }
    return best;
}

/* "channels (--equalize)" */
static void remedy_text(const oq_try *t, oq_buf *out) {
    oq_buf_adds(out, t->cause);
    for (size_t i = 0; t->row < oq_remedy_count && i < OQ_COUNT(oq_remedies[0].options); i++) {
        const oq_recipe_option *o = &oq_remedies[t->row].options[i];
        if (o->name == NULL)
            break;
        oq_buf_addf(out, " %s--%s", i == 0 ? "(" : "", o->name);
        if (o->value != NULL)
            oq_buf_addf(out, " %s", o->value);
        if (i + 1 == OQ_COUNT(oq_remedies[0].options) || o[1].name == NULL)
            oq_buf_addc(out, ')');
    }
}

/* Remedies that gain too, but less, or nothing on top of those that were taken; or a little, where
 * the model is good. */
static void others_text(const oq_diagnosis *x, oq_buf *out) {
    const oq_try *shown[3];
    size_t n = 0;
    while (n < OQ_COUNT(shown) && (shown[n] = next_best(x, shown, n)) != NULL)
        n++;
    if (n == 0)
        return;
    oq_buf_adds(out, x->causes.n > 0 ? "Other remedies that gained, and would gain less: "
                                     : " It can be better still: ");
    for (size_t i = 0; i < n; i++) {
        oq_buf_adds(out, i > 0 ? ", " : "");
        remedy_text(shown[i], out);
        oq_buf_addc(out, ' ');
        if (isnan(shown[i]->apart))
            decibels(out, shown[i]->made.sqnr);
        else
            gain_apart(out, shown[i]->apart_before, shown[i]->apart);
    }
    oq_buf_adds(out, " (\"tried\" in --json has their options)");
}

static void half_text(const oq_diagnosis *x, oq_buf *out) {
    oq_buf_addf(out,
                "Too few samples: calibrated with every other one and judged on %zu of the others, "
                "the outputs have ",
                x->n_half);
    quality(out, &x->half);
    oq_buf_adds(out, ". Expect this on new samples, and calibrate with more.");
}

static void set_text(const oq_diagnosis *x, oq_buf *out) {
    oq_buf_addf(out, "With %zu of %zu units left float, made and measured: ", x->set.units,
                x->set.of);
    quality(out, &x->set.made);
    cost(out, &x->now, &x->set.made);
    oq_buf_addc(out, '\n');
    command_text(x->set.command, out);
}

static double best_of(const oq_diagnosis *x) {
    double best = -INFINITY;
    for (size_t i = 0; i < x->tries.n; i++)
        if (x->tries.v[i].made.sqnr > best)
            best = x->tries.v[i].made.sqnr;
    return best;
}

/* Over all samples; remedies are measured over the first of them. */
static void verdict_text(const oq_diagnosis *x, oq_buf *out) {
    oq_remade all = OQ_NOT_MADE;
    all.sqnr = x->judged.sqnr;
    all.text = *x->judged.text;
    if (x->judged.rows > 0)
        all.agreement = (double)x->judged.same / (double)x->judged.rows;
    oq_buf_addf(out, "Verdict: %s; the output SQNR is ", oq_grade_text(oq_grade_of(&x->judged)));
    quality(out, &all);
    oq_buf_addf(out, " over %llu sample%s%s\n", (unsigned long long)x->n_judged,
                OQ_NOUN_S(x->n_judged),
                x->optimised ? ", as ONNX Runtime runs the model"
                             : ", without the runtime's optimisations");
}

/* Where no cause was found. */
static void none_text(const oq_diagnosis *x, oq_buf *out) {
    if (x->healthy) {
        oq_buf_adds(out, "Cause: no fault was found.");
        others_text(x, out);
    } else if (x->now.sqnr >= OQ_GOOD) {
        oq_buf_addf(out,
                    "Cause: none was found on the first %zu samples, where the model is good "
                    "(%.1f dB). Others lose more: with --data of the worst samples debug looks "
                    "for their cause.",
                    x->n_samples, x->now.sqnr);
    } else {
        oq_buf_addf(out,
                    "Cause: none was found. %zu ways to make the model were tried; the best has "
                    "%.1f dB.",
                    x->tries.n, best_of(x));
    }
}

static bool is_none(const oq_diagnosis *x) {
    return x->causes.n == 0 && x->half.path == NULL && (x->healthy || x->tries.n > 0);
}

void oq_diagnosis_text(const oq_diagnosis *x, oq_buf *out) {
    if (!x->done)
        return;
    verdict_text(x, out);
    if (x->half.path != NULL) {
        half_text(x, out);
        oq_buf_addc(out, '\n');
    }
    if (x->causes.n > 0) {
        causes_text(x, out);
        const size_t before = out->n;
        others_text(x, out);
        if (out->n > before)
            oq_buf_addc(out, '\n');
    }
    if (is_none(x)) {
        none_text(x, out);
        oq_buf_addc(out, '\n');
    }
    if (x->set.units > 0)
        set_text(x, out);
    if (x->late)
        oq_buf_adds(out, "Not every remedy was tried: that would have taken too long.\n");
    oq_buf_addc(out, '\n');
}

/* ---- JSON ---- */

/* On samples that did not calibrate. */
static void apart_json(oq_jw *w, double before, double after) {
    if (isnan(before) || isnan(after))
        return;
    oq_jw_begin_object(w, "apart");
    oq_jw_real(w, "sqnr_before", before);
    oq_jw_real(w, "sqnr", after);
    oq_jw_end_object(w);
}

static void cause_json(oq_jw *w, const oq_cause *c) {
    oq_jw_begin_object(w, NULL);
    oq_jw_cstr(w, "cause", c->cause);
    oq_jw_cstr(w, "text", c->text);
    oq_jw_cstr(w, "command", c->command);
    oq_jw_real(w, "sqnr_before", c->before);
    measured_json(w, &c->made);
    apart_json(w, c->apart_before, c->apart);
    oq_jw_end_object(w);
}

void oq_diagnosis_json(const oq_diagnosis *x, oq_jw *w) {
    if (!x->done)
        return;
    oq_jw_begin_object(w, "diagnosis");
    oq_jw_cstr(w, "verdict", oq_grade_text(oq_grade_of(&x->judged)));
    oq_jw_begin_object(w, "judged");
    oq_jw_uint(w, "samples", x->n_judged);
    oq_jw_real(w, "sqnr", x->judged.sqnr);
    if (x->judged.rows > 0)
        oq_jw_real(w, "top1_agreement", (double)x->judged.same / (double)x->judged.rows);
    oq_jw_end_object(w);
    oq_jw_bool(w, "healthy", x->healthy);
    oq_jw_uint(w, "samples", x->n_samples);
    measured_json(w, &x->now);
    oq_jw_begin_array(w, "causes");
    for (size_t i = 0; i < x->causes.n; i++)
        cause_json(w, &x->causes.v[i]);
    oq_jw_end_array(w);
    if (x->causes.n + x->set.units > 0)
        oq_jw_cstr(w, "command", x->causes.n > 0 ? oq_diagnosis_last(x)->command : x->set.command);
    if (x->causes.n > 0)
        apart_json(w, x->apart_before, x->apart);
    if (x->half.path != NULL) {
        oq_jw_begin_object(w, "half_of_the_samples");
        oq_jw_uint(w, "samples", x->n_half);
        measured_json(w, &x->half);
        oq_jw_end_object(w);
    }
    if (x->set.units > 0) {
        oq_jw_begin_object(w, "float_set");
        oq_jw_uint(w, "units", x->set.units);
        oq_jw_uint(w, "of", x->set.of);
        oq_jw_cstr(w, "command", x->set.command);
        measured_json(w, &x->set.made);
        oq_jw_end_object(w);
    }
    oq_jw_begin_array(w, "tried");
    for (size_t i = 0; i < x->tries.n; i++) {
        oq_jw_begin_object(w, NULL);
        oq_jw_cstr(w, "cause", x->tries.v[i].cause);
        oq_recipe_json(&x->tries.v[i].how.recipe, w, "options");
        measured_json(w, &x->tries.v[i].made);
        apart_json(w, x->tries.v[i].apart_before, x->tries.v[i].apart);
        if (x->tries.v[i].dismissed)
            oq_jw_bool(w, "dismissed", true);
        oq_jw_end_object(w);
    }
    oq_jw_end_array(w);
    if (x->late)
        oq_jw_bool(w, "budget_over", true);
    oq_jw_begin_object(w, "budget");
    oq_jw_real(w, "bare_cpu_seconds", x->bare);
    oq_jw_real(w, "limit_cpu_seconds", x->limit);
    oq_jw_real(w, "cpu_seconds", x->cpu);
    oq_jw_end_object(w);
    oq_jw_real(w, "seconds", x->seconds);
    oq_jw_end_object(w);
}

static onq_code keep_words(const oq_diagnosis *x, void (*say)(const oq_diagnosis *x, oq_buf *out),
                           oq_arena *a, const char **words, onq_error *err) {
    oq_buf b;
    oq_buf_init(&b, a->alloc);
    say(x, &b);
    *words = b.failed ? NULL : oq_arena_strdup(a, b.p, b.n);
    oq_buf_release(&b);
    return *words != NULL ? ONQ_OK : oq_fail_nomem(err);
}

onq_code oq_diagnosis_report(const oq_diagnosis *x, oq_arena *a, oq_debug_about *about,
                             onq_error *err) {
    about->diagnosed = x->tries.n > 0 || x->healthy;
    for (size_t i = 0; i < x->causes.n; i++) {
        const oq_cause *c = &x->causes.v[i];
        const bool apart = !isnan(c->apart) && !isnan(c->apart_before);
        const oq_report_cause row = {c->text,
                                     c->command,
                                     c->row,
                                     apart ? c->apart_before : c->before,
                                     apart ? c->apart : c->made.sqnr,
                                     apart};
        if (!OQ_PUSH(a, &about->causes, row))
            return oq_fail_nomem(err);
    }
    about->n_cause_samples = x->n_samples;
    about->healthy = x->healthy;
    if (x->half.path != NULL)
        OQ_TRY(keep_words(x, half_text, a, &about->half, err));
    if (is_none(x) && x->set.units == 0)
        OQ_TRY(keep_words(x, none_text, a, &about->none, err));
    if (x->set.units == 0)
        return ONQ_OK;
    const oq_str text =
        oq_str_format(a, "none was found. %zu of %zu units must stay float for a good model.",
                      x->set.units, x->set.of);
    const oq_report_cause row = {text.p,      x->set.command,   UINT32_MAX,
                                 x->now.sqnr, x->set.made.sqnr, false};
    return text.p != NULL && OQ_PUSH(a, &about->causes, row) ? ONQ_OK : oq_fail_nomem(err);
}
