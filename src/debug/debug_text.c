/*
 * debug_text.c — what was found, for a terminal and as JSON.
 */
#include "debug/debug.h"

#include <math.h>

/* ---- JSON ---- */

static void range_json(oq_jw *w, const char *key, double lo, double hi) {
    if (!(lo <= hi))
        return;
    oq_jw_begin_array(w, key);
    oq_jw_real(w, NULL, lo);
    oq_jw_real(w, NULL, hi);
    oq_jw_end_array(w);
}

static void real_json(oq_jw *w, const char *key, double v) {
    if (!isnan(v))
        oq_jw_real(w, key, v);
}

static void verdict_json(oq_jw *w, const oq_debug_verdict *v) {
    oq_jw_uint(w, "rank", v->rank);
    oq_jw_cstr(w, "reason", oq_debug_reason_text(v->reason));
    if (oq_debug_reason_advice(v->reason)[0] != '\0')
        oq_jw_cstr(w, "advice", oq_debug_reason_advice(v->reason));
    oq_jw_real(w, "excess", v->excess);
    real_json(w, "effect", v->effect); /* dB of the outputs, null: exact */
}

static void weight_json(oq_jw *w, const oq_debug_weight *x) {
    oq_jw_key(w, x->name);
    oq_jw_begin_object(w, NULL);
    oq_jw_real(w, "sqnr", x->sqnr);
    real_json(w, "reference_sqnr", x->reference_sqnr);
    real_json(w, "rescaled_sqnr", x->rescaled);
    oq_jw_real(w, "cosine", oq_sums_cosine(&x->sums));
    oq_jw_real(w, "max_abs_err", x->sums.abs_max);
    oq_jw_real(w, "mean_abs_err", oq_sums_mean_error(&x->sums));
    oq_jw_real(w, "saturated", x->saturated);
    range_json(w, "range", (double)x->lo, (double)x->hi);
    range_json(w, "quantized_range", x->q_lo, x->q_hi);
    real_json(w, "ideal_sqnr", x->ideal);
    oq_jw_cstr(w, "type", oq_dtype_name(x->type));
    if (x->layout >= OQ_DEBUG_NBITS)
        oq_jw_int(w, "bits", x->bits);
    if (x->axis >= 0)
        oq_jw_int(w, "axis", x->axis);
    if (x->block > 0)
        oq_jw_uint(w, "block_size", x->block);
    oq_jw_str(w, "quantized", x->quantized_name);
    oq_jw_str(w, "op_type", x->op);
    oq_jw_str(w, "node", x->node);
    if (x->n_channels > 0) {
        oq_jw_uint(w, "channels", x->n_channels);
        oq_jw_uint(w, "worst_channel", x->worst_channel);
        oq_jw_real(w, "worst_channel_sqnr", x->channel_sqnr[x->worst_channel]);
        oq_jw_uint(w, "largest_channel", x->largest_channel);
    }
    if (x->per_channel && x->n_channels > 0) {
        oq_jw_begin_array(w, "channel_sqnr");
        for (uint64_t c = 0; c < x->n_channels; c++)
            oq_jw_real(w, NULL, x->channel_sqnr[c]);
        oq_jw_end_array(w);
    }
    if (x->pairs > 0)
        oq_jw_real(w, "pairs_past_16_bits", (double)x->hot_pairs / (double)x->pairs);
    verdict_json(w, &x->verdict);
    oq_jw_end_object(w);
}

static void act_json(oq_jw *w, const oq_debug_act *a) {
    const oq_sums *s = a->cross.n > 0 ? &a->cross : &a->qdq;
    oq_jw_key(w, a->name);
    oq_jw_begin_object(w, NULL);
    if (a->qdq.n > 0)
        oq_jw_real(w, "qdq_err", a->qdq_err); /* null: there are NaN or infinities */
    if (a->cross.n > 0)
        oq_jw_real(w, "xmodel_err", a->xmodel_err);
    if (a->local.n > 0)
        oq_jw_real(w, "local_err", a->local_err);
    real_json(w, "ideal_err", a->ideal);
    oq_jw_real(w, "cosine", oq_sums_cosine(s));
    oq_jw_real(w, "max_abs_err", s->abs_max);
    oq_jw_real(w, "mean_abs_err", oq_sums_mean_error(s));
    oq_jw_real(w, "saturated", a->seen > 0 ? (double)a->clipped / (double)a->seen : 0);
    range_json(w, "range", (double)a->lo, (double)a->hi);
    if (a->n_params > 0) {
        range_json(w, "quantized_range", a->q_lo, a->q_hi);
        oq_jw_float(w, "scale", a->scale[0]);
        oq_jw_int(w, "zero_point", a->zero[0]);
        oq_jw_cstr(w, "type", oq_dtype_name(a->type));
    }
    oq_jw_str(w, "op_type", a->op);
    oq_jw_str(w, "node", a->node);
    if (a->masked > 0)
        oq_jw_uint(w, "mask_values", a->masked);
    if (a->rest_qdq.n > 0)
        oq_jw_real(w, "qdq_err_without_mask", oq_sums_sqnr(&a->rest_qdq));
    if (a->rest_cross.n > 0)
        oq_jw_real(w, "xmodel_err_without_mask", oq_sums_sqnr(&a->rest_cross));
    if (a->by_place && a->flt.p != NULL)
        oq_jw_str(w, "float_tensor", a->flt);
    verdict_json(w, &a->verdict);
    oq_jw_end_object(w);
}

static void outputs_json(oq_jw *w, const oq_debug *d) {
    oq_jw_begin_object(w, "outputs");
    for (size_t i = 0; i < d->outputs.n; i++) {
        const oq_debug_output *o = &d->outputs.v[i];
        if (o->plain.n == 0)
            continue;
        oq_jw_key(w, o->name);
        oq_jw_begin_object(w, NULL);
        oq_jw_real(w, "sqnr", oq_sums_sqnr(&o->plain));
        oq_jw_real(w, "cosine", oq_sums_cosine(&o->plain));
        if (o->state)
            oq_jw_bool(w, "state", true);
        if (o->rows > 0)
            oq_jw_real(w, "top1_agreement", (double)o->same_plain / (double)o->rows);
        if (o->optimised.n > 0) {
            oq_jw_real(w, "sqnr_optimised", oq_sums_sqnr(&o->optimised));
            if (o->rows_optimised > 0)
                oq_jw_real(w, "top1_agreement_optimised",
                           (double)o->same_optimised / (double)o->rows_optimised);
        }
        oq_jw_end_object(w);
    }
    oq_jw_end_object(w);
}

void oq_debug_json(const oq_debug *d, oq_jw *w) {
    oq_jw_begin_object(w, "weights");
    for (size_t i = 0; i < d->weights.n; i++)
        weight_json(w, &d->weights.v[i]);
    oq_jw_end_object(w);
    oq_jw_begin_object(w, "activations");
    for (size_t i = 0; i < d->acts.n && d->n_samples > 0; i++)
        act_json(w, &d->acts.v[i]);
    oq_jw_end_object(w);
    oq_jw_begin_array(w, "unmatched");
    for (size_t i = 0; i < d->unmatched.n; i++) {
        oq_jw_begin_object(w, NULL);
        oq_jw_str(w, "name", d->unmatched.v[i].name);
        oq_jw_cstr(w, "kind", d->unmatched.v[i].weight ? "weight" : "activation");
        oq_jw_cstr(w, "reason", d->unmatched.v[i].why);
        oq_jw_end_object(w);
    }
    oq_jw_end_array(w);
    oq_jw_begin_array(w, "ranking");
    for (size_t i = 0; i < d->n_ranking; i++) {
        const uint32_t at = d->ranking[i];
        oq_jw_str(w, NULL,
                  at < d->weights.n ? d->weights.v[at].name : d->acts.v[at - d->weights.n].name);
    }
    oq_jw_end_array(w);
    oq_jw_uint(w, "samples", d->n_samples);
    if (d->n_samples > 0) {
        outputs_json(w, d);
        oq_debug_worst_json(d, w);
    }
    if (d->along.tally != NULL)
        oq_tally_json(d->along.tally, d->along.output, d->along.name, w);
    if (d->has_kernel)
        oq_debug_kernel_json(d, w);
}

/* ---- text ---- */

static void db(oq_buf *out, double v) {
    if (isnan(v))
        oq_buf_adds(out, "      -");
    else if (isinf(v))
        oq_buf_adds(out, v > 0 ? "  exact" : "    nan");
    else
        oq_buf_addf(out, " %6.1f", v);
}

/* Bytes of a text that are no character of their own, or only part of one. */
static bool goes_on(const char *text, size_t at) {
    return ((unsigned char)text[at] & 0xc0u) == 0x80u;
}

/* A name in at most `width` columns: of a longer one both ends, which is where names differ. */
static void name(oq_buf *out, oq_str s, size_t width) {
    char text[1024];
    const oq_str tail = s.n > 800 ? (oq_str){s.p + s.n - 800, 800} : s;
    const size_t n = oq_text_escape(text, sizeof text, tail.p, tail.n);
    if (n <= width) {
        oq_buf_addf(out, "%-*s", (int)width, text);
        return;
    }
    size_t head = (width - 3) / 3, from = n - (width - 3 - head);
    while (head > 0 && goes_on(text, head))
        head--;
    while (from < n && goes_on(text, from))
        from++;
    oq_buf_add(out, text, head);
    oq_buf_adds(out, "...");
    oq_buf_adds(out, text + from);
}

/* What a row is about. */
typedef struct about {
    const oq_debug_weight *w; /* or */
    const oq_debug_act *a;
    const oq_debug_verdict *v;
    oq_str name, node;
} about;

static about about_of(const oq_debug *d, uint32_t at) {
    if (at < d->weights.n) {
        const oq_debug_weight *w = &d->weights.v[at];
        return (about){w, NULL, &w->verdict, w->name, w->node};
    }
    const oq_debug_act *a = &d->acts.v[at - d->weights.n];
    return (about){NULL, a, &a->verdict, a->name, a->node};
}

/* Columns of names: as wide as the longest that is shown, within bounds. */
typedef struct widths {
    size_t node, tensor;
    bool effect; /* there is a column of what a search measured */
} widths;

#define NARROW 12
#define WIDE   52

static size_t fit(size_t width, size_t n) {
    return n <= width ? width : n > WIDE ? WIDE : n;
}

static widths widths_of(const oq_debug *d, size_t most) {
    widths w = {NARROW, NARROW, false};
    for (size_t i = 0; i < d->n_ranking && (most == 0 || i < most); i++) {
        const about r = about_of(d, d->ranking[i]);
        w.node = fit(w.node, r.node.n);
        w.tensor = fit(w.tensor, r.name.n);
        w.effect |= !isnan(r.v->effect);
    }
    return w;
}

static void reason(const about *r, oq_buf *out) {
    const oq_debug_verdict *v = r->v;
    if (r->w != NULL && v->reason == OQ_DEBUG_CHANNEL)
        oq_buf_addf(out, "outlier channel %llu", (unsigned long long)r->w->largest_channel);
    else
        oq_buf_adds(out, oq_debug_reason_text(v->reason));
    if (v->reason == OQ_DEBUG_CLIPPED)
        oq_buf_addf(
            out, " (%.3g %% of the values)",
            100 * (r->w != NULL ? r->w->saturated : (double)r->a->clipped / (double)r->a->seen));
    if (r->a != NULL && v->reason == OQ_DEBUG_MASK)
        oq_buf_addf(out, " (%.3g to %.3g; the other values are %.3g to %.3g)", r->a->q_lo,
                    r->a->q_hi, (double)r->a->lo, (double)r->a->hi);
    if (oq_debug_reason_advice(v->reason)[0] != '\0')
        oq_buf_addf(out, ": %s", oq_debug_reason_advice(v->reason));
}

static double without_mask(const oq_sums *rest, double all) {
    return rest->n > 0 ? oq_sums_sqnr(rest) : all;
}

static void row(const oq_debug *d, uint32_t at, const widths *wide, oq_buf *out) {
    const about r = about_of(d, at);
    oq_buf_addf(out, "%4u ", r.v->rank);
    if (wide->effect)
        db(out, r.v->effect);
    db(out, r.v->own);
    db(out, r.w != NULL ? NAN : without_mask(&r.a->rest_qdq, r.a->qdq_err));
    db(out, r.w != NULL ? NAN : without_mask(&r.a->rest_cross, r.a->xmodel_err));
    oq_buf_addf(out, "  %-10s ", r.w != NULL ? "weight" : "activation");
    name(out, r.node, wide->node);
    oq_buf_adds(out, "  ");
    name(out, r.name, wide->tensor);
    oq_buf_adds(out, "  ");
    reason(&r, out);
    oq_buf_addc(out, '\n');
}

void oq_debug_text(const oq_debug *d, size_t most, oq_buf *out) {
    oq_buf_addf(out, "%zu weights", d->weights.n);
    if (d->n_samples > 0)
        oq_buf_addf(out, ", %zu activations over %llu samples", d->acts.n,
                    (unsigned long long)d->n_samples);
    oq_buf_addf(out, "; %zu not matched\n", d->unmatched.n);
    if (d->n_samples == 0)
        oq_buf_adds(out, "Only weights were compared: with --data SOURCE, debug also compares "
                         "activations and outputs, and looks for the cause.\n");
    for (size_t i = 0; i < d->outputs.n; i++) {
        const oq_debug_output *o = &d->outputs.v[i];
        if (o->plain.n == 0)
            continue;
        oq_buf_adds(out, o->state ? "state " : "output ");
        name(out, o->name, o->name.n < 44 ? o->name.n : 44);
        const oq_sums *judged = oq_debug_output_judged(o);
        const bool fast = judged != &o->plain;
        const uint64_t rows = fast ? o->rows_optimised : o->rows;
        oq_buf_addf(out, ": %.1f dB", oq_sums_sqnr(judged));
        if (fast)
            oq_buf_addf(out, " (%.1f dB without the runtime's optimisations)",
                        oq_sums_sqnr(&o->plain));
        if (rows > 0)
            oq_buf_addf(out, ", same top-1 %.2f %%",
                        100 * (double)(fast ? o->same_optimised : o->same_plain) / (double)rows);
        oq_buf_addc(out, '\n');
    }
    oq_debug_worst_text(d, out);
    if (d->along.tally != NULL)
        oq_tally_text(d->along.tally, d->along.output, d->along.name, out);
    const widths wide = widths_of(d, most);
    if (d->n_ranking > 0)
        oq_buf_addf(out, "\nrank %s   here    qdq  cross  kind       %-*s  %-*s  likely reason\n",
                    wide.effect ? " effect" : "", (int)wide.node, "node", (int)wide.tensor,
                    "tensor");
    for (size_t i = 0; i < d->n_ranking && (most == 0 || i < most); i++)
        row(d, d->ranking[i], &wide, out);
    if (most > 0 && d->n_ranking > most)
        oq_buf_addf(out, "and %zu more (--top 0 shows all)\n", d->n_ranking - most);
    if (d->n_ranking > 0) /* what the columns are */
        oq_buf_addf(out,
                    "dB, higher is better, 6 dB is about one bit. %shere: lost by this quantizer "
                    "alone. qdq: before and after it,\nin the quantized model. cross: against the "
                    "float model, with what the layers before have lost.\n",
                    wide.effect ? "effect: of the outputs if only this is quantized. " : "");
    if (d->has_kernel)
        oq_debug_kernel_text(d, out);
}
