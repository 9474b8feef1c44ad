/*
 * report.c — one HTML file with everything in it: the page (report.html) and the data as compact
 * JSON.
 *
 * Rows are arrays, in the order that report.js names in COLUMNS. Histograms are base64 of
 * OQ_DEBUG_BINS bytes each, logarithms of the counts from 0 to 255; channel ranges are two bytes a
 * channel, fractions of the tensor's range. Names come from the model and may hold anything: inside
 * the JSON every '<' is written \u003c, and the page shows them as text only.
 */
#include "debug/page/report.h"

#include "debug/search/search.h"
#include "samples/agreement.h"

#include <math.h>

#define CHANNELS_SHOWN 512
#define MARK           "/*DATA*/"

/* ---- bytes as base64 ---- */

static void base64(oq_buf *out, const uint8_t *p, size_t n) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < n; i += 3) {
        const uint32_t a = p[i], b = i + 1 < n ? p[i + 1] : 0u, c = i + 2 < n ? p[i + 2] : 0u;
        const uint32_t v = a << 16 | b << 8 | c;
        oq_buf_addc(out, digits[v >> 18]);
        oq_buf_addc(out, digits[v >> 12 & 63]);
        oq_buf_addc(out, i + 1 < n ? digits[v >> 6 & 63] : '=');
        oq_buf_addc(out, i + 2 < n ? digits[v & 63] : '=');
    }
}

typedef struct page {
    const oq_debug *d;
    oq_profile profile; /* of the float model */
    oq_map values;      /* names of its values -> index in the profile */
    oq_jw w;
    oq_buf json, word;
} page;

static void bytes_json(page *p, const uint8_t *v, size_t n) {
    p->word.n = 0;
    base64(&p->word, v, n);
    oq_jw_str(&p->w, NULL, (oq_str){p->word.p, p->word.n});
}

static void hist_json(page *p, const oq_debug_hist *h) {
    uint8_t v[2 * OQ_DEBUG_BINS];
    uint32_t most = 1;
    if (h->flt == NULL) {
        oq_jw_int(&p->w, NULL, 0);
        return;
    }
    for (size_t i = 0; i < OQ_DEBUG_BINS; i++) {
        most = h->flt[i] > most ? h->flt[i] : most;
        most = h->quantized[i] > most ? h->quantized[i] : most;
    }
    for (size_t i = 0; i < 2 * OQ_DEBUG_BINS; i++) {
        const uint32_t c = i < OQ_DEBUG_BINS ? h->flt[i] : h->quantized[i - OQ_DEBUG_BINS];
        v[i] = (uint8_t)lrint(255 * log1p((double)c) / log1p((double)most));
    }
    oq_jw_begin_array(&p->w, NULL);
    oq_jw_float(&p->w, NULL, h->lo);
    oq_jw_float(&p->w, NULL, h->hi);
    bytes_json(p, v, sizeof v);
    oq_jw_end_array(&p->w);
}

static uint8_t part_of(float v, float lo, float hi) {
    const float at = hi > lo ? (v - lo) / (hi - lo) : 0;
    return at > 0 ? (uint8_t)lrintf(255 * (at < 1 ? at : 1)) : 0;
}

static void channels_json(page *p, const oq_debug_weight *w) {
    uint8_t v[2 * CHANNELS_SHOWN];
    if (w->n_channels < 2) {
        oq_jw_int(&p->w, NULL, 0);
        return;
    }
    const uint64_t n = w->n_channels < CHANNELS_SHOWN ? w->n_channels : CHANNELS_SHOWN;
    for (uint64_t i = 0; i < n; i++) {
        const uint64_t from = i * w->n_channels / n, to = (i + 1) * w->n_channels / n;
        float lo = w->channel_lo[from], hi = w->channel_hi[from];
        for (uint64_t c = from; c < to; c++) {
            lo = w->channel_lo[c] < lo ? w->channel_lo[c] : lo;
            hi = w->channel_hi[c] > hi ? w->channel_hi[c] : hi;
        }
        v[2 * i] = part_of(lo, w->lo, w->hi);
        v[2 * i + 1] = part_of(hi, w->lo, w->hi);
    }
    oq_jw_begin_array(&p->w, NULL);
    const bool outlier = w->verdict.reason == OQ_DEBUG_CHANNEL;
    oq_jw_uint(&p->w, NULL, w->n_channels);
    oq_jw_uint(&p->w, NULL, outlier ? w->largest_channel : w->worst_channel);
    bytes_json(p, v, 2 * (size_t)n);
    oq_jw_end_array(&p->w);
}

/* ---- rows ---- */

static void db_json(page *p, double v) {
    oq_jw_float(&p->w, NULL, (float)(isinf(v) && v > 0 ? 999 : v)); /* 999: exact */
}

/* Of an output: null where it was not measured, -999 where NaN or infinity came out. */
static void output_json(page *p, const oq_sums *s) {
    const double sqnr = s->ee == 0 ? (double)INFINITY : oq_sums_sqnr(s);
    db_json(p, s->n == 0 ? (double)NAN : isnan(sqnr) || sqnr < -999 ? -999.0 : sqnr);
}

static void sums_json(page *p, const oq_sums *s) {
    oq_jw_float(&p->w, NULL, (float)oq_sums_cosine(s));
    oq_jw_float(&p->w, NULL, (float)s->abs_max);
    oq_jw_float(&p->w, NULL, (float)oq_sums_mean_error(s));
}

static void ranges_json(page *p, double saturated, double lo, double hi, double q_lo, double q_hi) {
    oq_jw_float(&p->w, NULL, (float)saturated);
    oq_jw_float(&p->w, NULL, (float)lo);
    oq_jw_float(&p->w, NULL, (float)hi);
    oq_jw_float(&p->w, NULL, (float)q_lo);
    oq_jw_float(&p->w, NULL, (float)q_hi);
}

static void verdict_json(page *p, const oq_debug_verdict *v, uint32_t position) {
    oq_jw_int(&p->w, NULL, v->reason);
    oq_jw_float(&p->w, NULL, (float)v->excess);
    oq_jw_uint(&p->w, NULL, v->rank);
    oq_jw_uint(&p->w, NULL, position);
}

/* ---- what a remedy would make of it ---- */

/* dB of the weight with a scale for each channel: of equal signal, noise goes with the square of
 * the scale. NAN: it has one already, or no channels. */
static double per_channel_sqnr(const oq_debug_weight *x) {
    double sum = 0, most = 0;
    if (x->per_channel || x->block > 0 || x->layout >= OQ_DEBUG_NBITS || x->type == OQ_INT32)
        return NAN;
    for (uint64_t c = 0; c < x->n_channels; c++) {
        const double top = fmax(fabs((double)x->channel_lo[c]), fabs((double)x->channel_hi[c]));
        sum += top * top;
        most = fmax(most, top);
    }
    return sum > 0 ? x->sqnr + oq_decibels(most * most * (double)x->n_channels / sum) : NAN;
}

/* dB that would be kept if the reason were removed; NAN: nobody knows before it is tried. */
static double weight_after(const oq_debug_weight *x) {
    switch (x->verdict.reason) {
    case OQ_DEBUG_CHANNEL:
        return per_channel_sqnr(x);
    case OQ_DEBUG_SCALE_WRONG:
    case OQ_DEBUG_CLIPPED:
    case OQ_DEBUG_WIDE:
    case OQ_DEBUG_SKEWED:
        return x->ideal;
    default:
        return NAN;
    }
}

static double act_after(const oq_debug_act *a) {
    switch (a->verdict.reason) {
    case OQ_DEBUG_SCALE_WRONG:
    case OQ_DEBUG_CLIPPED:
    case OQ_DEBUG_WIDE:
    case OQ_DEBUG_SKEWED:
        return a->ideal;
    default:
        return NAN;
    }
}

/* dB that counts for what comes after: the mean of a weight's channels, whose outputs weigh alike.
 * It is what ranks (rank.c). */
static double weight_felt(const oq_debug_weight *x) {
    const bool whole = x->type == OQ_INT32 || x->verdict.reason == OQ_DEBUG_SMALL;
    return whole || !isfinite(x->spread) ? x->verdict.own : x->verdict.own - x->spread;
}

static void value_json(page *p, oq_str name) {
    const uint32_t at = name.n > 0 ? oq_map_find(&p->values, name) : OQ_MAP_NONE;
    oq_jw_int(&p->w, NULL, at != OQ_MAP_NONE ? (int64_t)at : -1);
}

static void weight_row(page *p, const oq_debug_weight *x) {
    oq_jw *w = &p->w;
    oq_jw_begin_array(w, NULL);
    oq_jw_int(w, NULL, 0);
    oq_jw_str(w, NULL, x->name);
    oq_jw_str(w, NULL, x->op);
    oq_jw_cstr(w, NULL, oq_dtype_name(x->type));
    db_json(p, x->verdict.own);
    db_json(p, NAN);
    db_json(p, NAN);
    sums_json(p, &x->sums);
    ranges_json(p, x->saturated, (double)x->lo, (double)x->hi, x->q_lo, x->q_hi);
    verdict_json(p, &x->verdict, x->position);
    hist_json(p, &x->hist);
    channels_json(p, x);
    oq_jw_float(w, NULL, x->pairs > 0 ? (float)((double)x->hot_pairs / (double)x->pairs) : 0);
    oq_jw_str(w, NULL, x->node);
    db_json(p, x->verdict.effect);
    value_json(p, x->name);
    db_json(p, weight_after(x));
    db_json(p, weight_felt(x));
    db_json(p, per_channel_sqnr(x));
    oq_jw_end_array(w);
}

static void act_row(page *p, const oq_debug_act *a) {
    oq_jw *w = &p->w;
    oq_jw_begin_array(w, NULL);
    oq_jw_int(w, NULL, 1);
    oq_jw_str(w, NULL, a->name);
    oq_jw_str(w, NULL, a->op);
    oq_jw_cstr(w, NULL, a->n_params > 0 ? oq_dtype_name(a->type) : "");
    db_json(p, a->verdict.own);
    db_json(p, a->qdq_err);
    db_json(p, a->xmodel_err);
    sums_json(p, a->cross.n > 0 ? &a->cross : &a->qdq);
    ranges_json(p, a->seen > 0 ? (double)a->clipped / (double)a->seen : 0, (double)a->lo,
                (double)a->hi, a->n_params > 0 ? a->q_lo : NAN, a->n_params > 0 ? a->q_hi : NAN);
    verdict_json(p, &a->verdict, a->position);
    hist_json(p, &a->hist);
    oq_jw_int(w, NULL, 0);
    oq_jw_int(w, NULL, 0);
    oq_jw_str(w, NULL, a->node);
    db_json(p, a->verdict.effect);
    value_json(p, a->flt);
    db_json(p, act_after(a));
    db_json(p, a->verdict.own);
    db_json(p, NAN);
    oq_jw_end_array(w);
}

/* ---- what a search found ---- */

static void named_db(page *p, const char *key, double v) {
    if (!isnan(v))
        oq_jw_float(&p->w, key, (float)(isinf(v) && v > 0 ? 999 : v));
}

static void search_json(page *p) {
    const oq_debug_search *s = p->d->search;
    oq_jw *w = &p->w;
    if (s == NULL)
        return;
    oq_jw_begin_object(w, "search");
    oq_jw_uint(w, "samples", s->n_samples);
    oq_jw_bool(w, "grouped", s->grouped);
    oq_jw_bool(w, "bisected", s->bisected);
    oq_jw_bool(w, "reached", s->reached);
    named_db(p, "whole", s->whole_sqnr);
    named_db(p, "made", s->quantized_sqnr);
    oq_jw_uint(w, "made_samples", s->quantized_samples);
    named_db(p, "macs", s->macs);
    named_db(p, "weights", s->weights);
    p->word.n = 0;
    oq_debug_search_options(s, NULL, &p->word);
    oq_jw_str(w, "options", (oq_str){p->word.p, p->word.n});
    oq_jw_begin_array(w, "units");
    for (size_t i = 0; i < s->units.n; i++) {
        const oq_debug_unit *u = &s->units.v[i];
        oq_jw_begin_array(w, NULL);
        oq_jw_str(w, NULL, u->name);
        oq_jw_str(w, NULL, u->op);
        db_json(p, u->sqnr);
        oq_jw_float(w, NULL, (float)u->macs);
        oq_jw_bool(w, NULL, s->bisected ? u->excluded : i == 0);
        oq_jw_begin_array(w, NULL);
        for (size_t k = 0; k < u->nodes.n; k++)
            oq_jw_str(w, NULL, s->nodes.v[u->nodes.v[k]].name);
        oq_jw_end_array(w);
        oq_jw_end_array(w);
    }
    oq_jw_end_array(w);
    oq_jw_end_object(w);
}

/* ---- reasons, outputs, what was left out ---- */

/* How a reason is treated, and the option that removes it. */
typedef enum reason_class {
    CLASS_PLAIN, /* of the type and the values */
    CLASS_FAULT, /* other parameters would be better */
    CLASS_HARMLESS,
    CLASS_INHERITED,
    CLASS_NODE, /* leaving its node float is the remedy */
    CLASS_MASK  /* ... and an option does it */
} reason_class;

static const struct {
    reason_class class;
    const char *option; /* of onq static */
} remedies[OQ_DEBUG_REASONS] = {
    [OQ_DEBUG_SCALE_WRONG] = {CLASS_FAULT, ""},
    [OQ_DEBUG_CLIPPED] = {CLASS_FAULT, "--calibration_method minmax"},
    [OQ_DEBUG_WIDE] = {CLASS_FAULT, "--calibration_method percentile"},
    [OQ_DEBUG_OUTLIERS] = {CLASS_PLAIN, "--calibration_method percentile"},
    [OQ_DEBUG_CHANNEL] = {CLASS_PLAIN, "--per_channel"},
    [OQ_DEBUG_SKEWED] = {CLASS_FAULT, "--activation_type quint8"},
    [OQ_DEBUG_SMALL] = {CLASS_HARMLESS, ""},
    [OQ_DEBUG_BIAS] = {CLASS_FAULT, ""},
    [OQ_DEBUG_FEW_BITS] = {CLASS_NODE, ""},
    [OQ_DEBUG_INHERITED] = {CLASS_INHERITED, ""},
    [OQ_DEBUG_BELOW_STEP] = {CLASS_HARMLESS, ""},
    [OQ_DEBUG_MASK] = {CLASS_MASK, "--masks float"},
    [OQ_DEBUG_NOT_FINITE] = {CLASS_NODE, ""},
};

static void reasons_json(page *p) {
    oq_jw_begin_array(&p->w, "reasons");
    for (int r = OQ_DEBUG_FINE; r < OQ_DEBUG_REASONS; r++) {
        oq_jw_begin_array(&p->w, NULL);
        oq_jw_cstr(&p->w, NULL, oq_debug_reason_text((oq_debug_reason)r));
        oq_jw_cstr(&p->w, NULL, oq_debug_reason_advice((oq_debug_reason)r));
        oq_jw_int(&p->w, NULL, remedies[r].class);
        oq_jw_cstr(&p->w, NULL, remedies[r].option != NULL ? remedies[r].option : "");
        oq_jw_end_array(&p->w);
    }
    oq_jw_end_array(&p->w);
}

/* The worst samples, and how many there are from each dB on. */
static void worst_json(page *p) {
    const oq_debug_worst *x = &p->d->worst;
    oq_jw *w = &p->w;
    oq_jw_begin_array(w, "worst_samples");
    for (size_t i = 0; i < x->n; i++) {
        const oq_debug_sample *s = &x->v[i];
        oq_jw_begin_array(w, NULL);
        oq_jw_cstr(w, NULL, s->name);
        oq_jw_uint(w, NULL, s->number);
        db_json(p, s->sqnr);
        oq_jw_float(w, NULL, s->rows > 0 ? (float)((double)s->same / (double)s->rows) : NAN);
        oq_jw_end_array(w);
    }
    oq_jw_end_array(w);
    oq_jw_begin_array(w, "spread");
    for (size_t i = 0; i < OQ_DEBUG_SPREAD && x->measured > 0; i++) {
        if (x->spread[i] == 0)
            continue;
        oq_jw_begin_array(w, NULL);
        oq_jw_int(w, NULL, (int)i + OQ_DEBUG_MIN_SPREAD);
        oq_jw_uint(w, NULL, x->spread[i]);
        oq_jw_end_array(w);
    }
    oq_jw_end_array(w);
}

static void rest_json(page *p) {
    const oq_debug *d = p->d;
    oq_jw *w = &p->w;
    oq_jw_begin_array(w, "outputs");
    for (size_t i = 0; i < d->outputs.n; i++) {
        const oq_debug_output *o = &d->outputs.v[i];
        if (o->plain.n == 0)
            continue;
        oq_jw_begin_array(w, NULL);
        oq_jw_str(w, NULL, o->name);
        output_json(p, &o->plain);
        output_json(p, &o->optimised);
        const bool fast = oq_debug_output_judged(o) != &o->plain;
        const uint64_t rows = fast ? o->rows_optimised : o->rows;
        const uint64_t same = fast ? o->same_optimised : o->same_plain;
        oq_jw_float(w, NULL, rows > 0 ? (float)((double)same / (double)rows) : NAN);
        oq_jw_bool(w, NULL, o->state);
        oq_jw_end_array(w);
    }
    oq_jw_end_array(w);
    worst_json(p);
    if (p->d->along.tally != NULL)
        oq_tally_json(p->d->along.tally, p->d->along.output, p->d->along.name, &p->w);
    const oq_grade grade = oq_debug_grade(d);
    oq_jw_uint(w, "bits", oq_debug_bits(d));
    oq_jw_int(w, "grade", grade);
    oq_jw_cstr(w, "grade_text", oq_grade_text(grade));
    oq_jw_cstr(w, "grade_meaning", oq_grade_meaning(grade));
    oq_jw_real(w, "kl", oq_lm_kl(&d->text));
    oq_jw_begin_array(w, "unmatched");
    for (size_t i = 0; i < d->unmatched.n; i++) {
        oq_jw_begin_array(w, NULL);
        oq_jw_str(w, NULL, d->unmatched.v[i].name);
        oq_jw_cstr(w, NULL, d->unmatched.v[i].why);
        oq_jw_end_array(w);
    }
    oq_jw_end_array(w);
}

static void text_json(oq_jw *w, const char *key, const char *text) {
    if (text != NULL)
        oq_jw_cstr(w, key, text);
}

static void causes_json(page *p, const oq_debug_about *a) {
    oq_jw *w = &p->w;
    oq_jw_begin_array(w, "causes");
    for (size_t i = 0; i < a->causes.n; i++) {
        oq_jw_begin_array(w, NULL);
        oq_jw_cstr(w, NULL, a->causes.v[i].text);
        oq_jw_cstr(w, NULL, a->causes.v[i].command);
        db_json(p, a->causes.v[i].before);
        db_json(p, a->causes.v[i].after);
        oq_jw_int(w, NULL, a->causes.v[i].row != UINT32_MAX ? (int64_t)a->causes.v[i].row : -1);
        oq_jw_bool(w, NULL, a->causes.v[i].apart);
        oq_jw_end_array(w);
    }
    oq_jw_end_array(w);
}

static void about_json(page *p) {
    const oq_debug_about *a = p->d->about;
    oq_jw *w = &p->w;
    if (a == NULL)
        return;
    oq_jw_begin_object(w, "about");
    text_json(w, "onq", a->onq);
    text_json(w, "runtime", a->runtime);
    text_json(w, "cpu", a->cpu);
    text_json(w, "date", a->date);
    oq_jw_uint(w, "float_size", a->float_size);
    oq_jw_uint(w, "quantized_size", a->quantized_size);
    if (!isnan(a->float_ms) && !isnan(a->quantized_ms)) {
        oq_jw_float(w, "float_ms", (float)a->float_ms);
        oq_jw_float(w, "quantized_ms", (float)a->quantized_ms);
    }
    text_json(w, "data", a->data);
    text_json(w, "again", a->again);
    text_json(w, "command", a->command);
    if (a->diagnosed) {
        causes_json(p, a);
        oq_jw_uint(w, "cause_samples", a->n_cause_samples);
        oq_jw_bool(w, "healthy", a->healthy);
        text_json(w, "none", a->none);
        text_json(w, "half", a->half);
    }
    oq_jw_begin_array(w, "options");
    for (size_t i = 0; i + 1 < a->options.n; i += 2) {
        oq_jw_begin_array(w, NULL);
        oq_jw_str(w, NULL, a->options.v[i]);
        oq_jw_str(w, NULL, a->options.v[i + 1]);
        oq_jw_end_array(w);
    }
    oq_jw_end_array(w);
    oq_jw_begin_array(w, "samples");
    for (size_t i = 0; i < a->n_samples; i++)
        oq_jw_cstr(w, NULL, a->samples[i]);
    oq_jw_end_array(w);
    oq_jw_end_object(w);
}

static onq_code find_values(page *p, oq_arena *scratch, onq_error *err) {
    const oq_unit_sizes *sizes = p->d->about != NULL ? &p->d->about->sizes : NULL;
    OQ_TRY(oq_profile_make(&p->profile, scratch, p->d->flt, sizes, err));
    oq_map_init(&p->values, scratch);
    for (uint32_t i = 0; i < p->profile.values.n; i++)
        if (!oq_map_put(&p->values, p->profile.values.v[i].name, i))
            return oq_fail_nomem(err);
    return ONQ_OK;
}

static onq_code data_json(page *p, oq_arena *scratch, onq_error *err) {
    const oq_debug *d = p->d;
    OQ_TRY(find_values(p, scratch, err));
    oq_jw_begin_object(&p->w, NULL);
    oq_jw_cstr(&p->w, "page", "onq debug");
    oq_jw_cstr(&p->w, "float_model", d->flt->path);
    oq_jw_cstr(&p->w, "quantized_model", d->quantized->path);
    oq_jw_uint(&p->w, "samples", d->n_samples);
    oq_jw_bool(&p->w, "kernel_loss", oq_debug_kernel_loss(d) != NULL);
    about_json(p);
    oq_jw_begin_array(&p->w, "rows");
    for (size_t i = 0; i < d->weights.n; i++)
        weight_row(p, &d->weights.v[i]);
    for (size_t i = 0; i < d->acts.n && d->n_samples > 0; i++)
        act_row(p, &d->acts.v[i]);
    oq_jw_end_array(&p->w);
    reasons_json(p);
    rest_json(p);
    search_json(p);
    oq_page_graph(&p->profile, &p->w);
    oq_jw_end_object(&p->w);
    return ONQ_OK;
}

/* JSON inside <script>: no '<' of a name may end it. */
static void add_safe(oq_buf *out, const oq_buf *json) {
    size_t from = 0;
    for (size_t i = 0; i < json->n; i++) {
        if (json->p[i] != '<')
            continue;
        oq_buf_add(out, json->p + from, i - from);
        oq_buf_adds(out, "\\u003c");
        from = i + 1;
    }
    oq_buf_add(out, json->p + from, json->n - from);
}

onq_code oq_report_fill(const unsigned char *html, size_t size, const oq_buf *json, oq_buf *out,
                        onq_error *err) {
    const char *text = (const char *)html, *at = strstr(text, MARK);
    if (at == NULL)
        return oq_fail(err, ONQ_E_INTERNAL, "the report's page has no place for data");
    const size_t head = (size_t)(at - text), tail = head + sizeof MARK - 1;
    oq_buf_add(out, text, head);
    add_safe(out, json);
    oq_buf_add(out, text + tail, size - tail);
    return json->failed || out->failed ? oq_fail_nomem(err) : ONQ_OK;
}

onq_code oq_debug_report(const oq_debug *d, oq_buf *out, onq_error *err) {
    oq_arena scratch;
    oq_arena_init(&scratch, &d->env->alloc);
    page p = {.d = d};
    oq_buf_init(&p.json, &d->env->alloc);
    oq_buf_init(&p.word, &d->env->alloc);
    oq_jw_init(&p.w, &p.json, false);
    onq_code rc = data_json(&p, &scratch, err);
    if (rc == ONQ_OK && p.word.failed)
        rc = oq_fail_nomem(err);
    if (rc == ONQ_OK)
        rc = oq_report_fill(oq_report_page, oq_report_page_size, &p.json, out, err);
    oq_buf_release(&p.json);
    oq_buf_release(&p.word);
    oq_arena_release(&scratch);
    return rc;
}
