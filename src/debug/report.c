/*
 * report.c — one HTML file with everything in it: the page (report.html) and the data as compact
 * JSON.
 *
 * Rows are arrays, in the order that report.html names in COLUMNS. Histograms are base64 of
 * OQ_DEBUG_BINS bytes each, logarithms of the counts from 0 to 255; channel ranges are two bytes a
 * channel, fractions of the tensor's range. Names come from the model and may hold anything: inside
 * the JSON every '<' is written \u003c, and the page shows them as text only.
 */
#include "debug/report.h"

#include "debug/search.h"

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
    if (h->truth == NULL) {
        oq_jw_int(&p->w, NULL, 0);
        return;
    }
    for (size_t i = 0; i < OQ_DEBUG_BINS; i++) {
        most = h->truth[i] > most ? h->truth[i] : most;
        most = h->made[i] > most ? h->made[i] : most;
    }
    for (size_t i = 0; i < 2 * OQ_DEBUG_BINS; i++) {
        const uint32_t c = i < OQ_DEBUG_BINS ? h->truth[i] : h->made[i - OQ_DEBUG_BINS];
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
    named_db(p, "made", s->made_sqnr);
    oq_jw_uint(w, "made_samples", s->made_samples);
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
        oq_jw_end_array(w);
    }
    oq_jw_end_array(w);
    oq_jw_end_object(w);
}

/* ---- the graph: the float model's nodes ---- */

/* op, name, nodes that feed it, rows of its outputs and weights. */
/* Marks the nodes that an input of the graph reaches: what is left computes constants. */
static onq_code reached(const oq_index *ix, oq_arena *a, bool **out, onq_error *err) {
    const oq_graph *g = ix->graph;
    uint32_t *order = NULL;
    OQ_TRY(oq_topo_order(ix, a, &order, err));
    *out = OQ_NEW_ARRAY(a, bool, g->node.n + 1);
    if (*out == NULL)
        return oq_fail_nomem(err);
    for (size_t i = 0; i < g->node.n; i++) {
        const oq_node *n = g->node.v[order[i]];
        bool on = false;
        for (size_t k = 0; k < n->input.n && !on; k++) {
            const oq_value *v = n->input.v[k].n > 0 ? oq_index_find(ix, n->input.v[k]) : NULL;
            on = v != NULL &&
                 (v->producer != OQ_NO_NODE ? (*out)[v->producer] : v->is_input && v->init == NULL);
        }
        (*out)[order[i]] = on;
    }
    return ONQ_OK;
}

static onq_code graph_json(page *p, oq_arena *a, onq_error *err) {
    const oq_debug *d = p->d;
    const oq_index *ix = &d->truth_index;
    const oq_graph *g = ix->graph;
    oq_map rows;
    bool *live = NULL;
    OQ_TRY(reached(ix, a, &live, err));
    oq_map_init(&rows, a);
    for (uint32_t i = 0; i < d->weights.n; i++)
        if (!oq_map_put(&rows, d->weights.v[i].name, i))
            return oq_fail_nomem(err);
    for (uint32_t i = 0; i < d->acts.n && d->n_samples > 0; i++)
        if (d->acts.v[i].truth.p != NULL &&
            !oq_map_put(&rows, d->acts.v[i].truth, (uint32_t)d->weights.n + i))
            return oq_fail_nomem(err);
    oq_jw_begin_array(&p->w, "graph");
    for (size_t i = 0; i < g->node.n; i++) {
        const oq_node *n = g->node.v[i];
        oq_jw_begin_array(&p->w, NULL);
        oq_jw_str(&p->w, NULL, live[i] ? n->op_type : OQ_S("Constant")); /* not drawn */
        oq_jw_str(&p->w, NULL, oq_node_label(n));
        oq_jw_begin_array(&p->w, NULL);
        for (size_t k = 0; k < n->input.n; k++) {
            const oq_value *v = n->input.v[k].n > 0 ? oq_index_find(ix, n->input.v[k]) : NULL;
            if (v != NULL && v->producer != OQ_NO_NODE)
                oq_jw_uint(&p->w, NULL, v->producer);
        }
        oq_jw_end_array(&p->w);
        oq_jw_begin_array(&p->w, NULL);
        for (size_t k = 0; k < n->output.n + n->input.n; k++) {
            const bool out = k < n->output.n;
            const oq_str name = out ? n->output.v[k] : n->input.v[k - n->output.n];
            const uint32_t at = name.n > 0 ? oq_map_find(&rows, name) : OQ_MAP_NONE;
            if (at != OQ_MAP_NONE && (out || at < d->weights.n))
                oq_jw_uint(&p->w, NULL, at);
        }
        oq_jw_end_array(&p->w);
        oq_jw_end_array(&p->w);
    }
    oq_jw_end_array(&p->w);
    return ONQ_OK;
}

static void rest_json(page *p) {
    const oq_debug *d = p->d;
    oq_jw *w = &p->w;
    oq_jw_begin_array(w, "reasons");
    for (int r = OQ_DEBUG_FINE; r < OQ_DEBUG_REASONS; r++) {
        oq_jw_begin_array(w, NULL);
        oq_jw_cstr(w, NULL, oq_debug_reason_text((oq_debug_reason)r));
        oq_jw_cstr(w, NULL, oq_debug_reason_advice((oq_debug_reason)r));
        oq_jw_end_array(w);
    }
    oq_jw_end_array(w);
    oq_jw_begin_array(w, "outputs");
    for (size_t i = 0; i < d->outputs.n; i++) {
        const oq_debug_output *o = &d->outputs.v[i];
        if (o->plain.n == 0)
            continue;
        oq_jw_begin_array(w, NULL);
        oq_jw_str(w, NULL, o->name);
        db_json(p, o->plain.ee > 0 ? oq_sums_sqnr(&o->plain) : INFINITY);
        db_json(p, o->optimised.n == 0   ? (double)NAN
                   : o->optimised.ee > 0 ? oq_sums_sqnr(&o->optimised)
                                         : (double)INFINITY);
        oq_jw_float(w, NULL, o->rows > 0 ? (float)((double)o->same_plain / (double)o->rows) : NAN);
        oq_jw_end_array(w);
    }
    oq_jw_end_array(w);
    oq_jw_begin_array(w, "unmatched");
    for (size_t i = 0; i < d->unmatched.n; i++) {
        oq_jw_begin_array(w, NULL);
        oq_jw_str(w, NULL, d->unmatched.v[i].name);
        oq_jw_cstr(w, NULL, d->unmatched.v[i].why);
        oq_jw_end_array(w);
    }
    oq_jw_end_array(w);
}

static onq_code data_json(page *p, oq_arena *scratch, onq_error *err) {
    const oq_debug *d = p->d;
    oq_jw_begin_object(&p->w, NULL);
    oq_jw_cstr(&p->w, "float_model", d->truth->path);
    oq_jw_cstr(&p->w, "quantized_model", d->made->path);
    oq_jw_uint(&p->w, "samples", d->n_samples);
    oq_jw_bool(&p->w, "kernel_loss", oq_debug_kernel_loss(d) != NULL);
    oq_jw_begin_array(&p->w, "rows");
    for (size_t i = 0; i < d->weights.n; i++)
        weight_row(p, &d->weights.v[i]);
    for (size_t i = 0; i < d->acts.n && d->n_samples > 0; i++)
        act_row(p, &d->acts.v[i]);
    oq_jw_end_array(&p->w);
    rest_json(p);
    search_json(p);
    OQ_TRY(graph_json(p, scratch, err));
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
