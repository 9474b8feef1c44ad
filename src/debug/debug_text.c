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
}

static void weight_json(oq_jw *w, const oq_debug_weight *x) {
    oq_jw_key(w, x->name);
    oq_jw_begin_object(w, NULL);
    oq_jw_real(w, "sqnr", x->sqnr);
    real_json(w, "reference_sqnr", x->reference_sqnr);
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
    oq_jw_str(w, "quantized", x->made);
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
    if (a->by_place && a->truth.p != NULL)
        oq_jw_str(w, "float_tensor", a->truth);
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
        if (o->rows > 0)
            oq_jw_real(w, "top1_agreement", (double)o->same_plain / (double)o->rows);
        if (o->optimised.n > 0) {
            oq_jw_real(w, "sqnr_optimised", oq_sums_sqnr(&o->optimised));
            oq_jw_real(w, "sqnr_beside", oq_sums_sqnr(&o->beside)); /* of the same samples */
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
    if (d->n_samples > 0)
        outputs_json(w, d);
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

/* A name in at most `width` columns, its end when it is longer. */
static void name(oq_buf *out, oq_str s, size_t width) {
    char text[512];
    const oq_str tail = s.n > 400 ? (oq_str){s.p + s.n - 400, 400} : s;
    const size_t n = oq_text_escape(text, sizeof text, tail.p, tail.n);
    if (n <= width) {
        oq_buf_addf(out, "%-*s", (int)width, text);
        return;
    }
    size_t from = n - (width - 3);
    while (from < n && ((unsigned char)text[from] & 0xc0u) == 0x80u)
        from++; /* not inside a character */
    oq_buf_addf(out, "...%s", text + from);
}

static void row(const oq_debug *d, uint32_t at, oq_buf *out) {
    const bool weight = at < d->weights.n;
    const oq_debug_weight *w = weight ? &d->weights.v[at] : NULL;
    const oq_debug_act *a = weight ? NULL : &d->acts.v[at - d->weights.n];
    const oq_debug_verdict *v = weight ? &w->verdict : &a->verdict;
    oq_buf_addf(out, "%4u ", v->rank);
    db(out, v->own);
    db(out, weight ? NAN : a->qdq_err);
    db(out, weight ? NAN : a->xmodel_err);
    oq_buf_addf(out, "  %-10s ", weight ? "weight" : "activation");
    name(out, weight ? w->name : a->name, 44);
    oq_buf_adds(out, "  ");
    if (weight && v->reason == OQ_DEBUG_CHANNEL)
        oq_buf_addf(out, "outlier channel %llu", (unsigned long long)w->largest_channel);
    else
        oq_buf_adds(out, oq_debug_reason_text(v->reason));
    if (v->reason == OQ_DEBUG_CLIPPED)
        oq_buf_addf(out, " (%.3g %% of the values)",
                    100 * (weight ? w->saturated : (double)a->clipped / (double)a->seen));
    if (oq_debug_reason_advice(v->reason)[0] != '\0')
        oq_buf_addf(out, ": %s", oq_debug_reason_advice(v->reason));
    oq_buf_addc(out, '\n');
}

void oq_debug_text(const oq_debug *d, size_t most, oq_buf *out) {
    oq_buf_addf(out, "%zu weights", d->weights.n);
    if (d->n_samples > 0)
        oq_buf_addf(out, ", %zu activations over %llu samples", d->acts.n,
                    (unsigned long long)d->n_samples);
    oq_buf_addf(out, "; %zu not matched\n", d->unmatched.n);
    for (size_t i = 0; i < d->outputs.n; i++) {
        const oq_debug_output *o = &d->outputs.v[i];
        if (o->plain.n == 0)
            continue;
        oq_buf_adds(out, "output ");
        name(out, o->name, o->name.n < 44 ? o->name.n : 44);
        oq_buf_addf(out, ": %.1f dB", oq_sums_sqnr(&o->plain));
        if (o->optimised.n > 0)
            oq_buf_addf(out, " (%.1f dB optimised)", oq_sums_sqnr(&o->optimised));
        if (o->rows > 0)
            oq_buf_addf(out, ", same top-1 %.2f %%", 100 * (double)o->same_plain / (double)o->rows);
        oq_buf_addc(out, '\n');
    }
    if (d->n_ranking > 0)
        oq_buf_adds(
            out,
            "\nrank  here dB    qdq  cross  kind       tensor                                  "
            "      likely reason\n");
    for (size_t i = 0; i < d->n_ranking && (most == 0 || i < most); i++)
        row(d, d->ranking[i], out);
    if (most > 0 && d->n_ranking > most)
        oq_buf_addf(out, "and %zu more (--top 0 shows all)\n", d->n_ranking - most);
    if (d->has_kernel)
        oq_debug_kernel_text(d, out);
}
