/*
 * search_text.c — what a search found: for a terminal, as JSON, as an overrides file.
 */
#include "debug/search.h"

#include <math.h>

static void db(oq_buf *out, double v) {
    if (isinf(v))
        oq_buf_adds(out, "exact");
    else
        oq_buf_addf(out, "%.1f dB", v);
}

static void quality(oq_buf *out, double sqnr, double agreement) {
    db(out, sqnr);
    if (!isnan(agreement))
        oq_buf_addf(out, ", same top-1 %.2f %%", 100 * agreement);
}

/* A ready list: of the set that was found, or of one unit. */
static void exclude_text(const oq_debug_search *s, const oq_debug_unit *u, oq_buf *out) {
    oq_buf_adds(out, "--nodes_to_exclude");
    for (size_t i = 0; i < (u != NULL ? u->nodes.n : s->nodes.n); i++) {
        const oq_debug_node *n = &s->nodes.v[u != NULL ? u->nodes.v[i] : i];
        if (u == NULL && !n->excluded)
            continue;
        oq_buf_addc(out, ' ');
        oq_buf_add_word(out, n->name);
    }
    oq_buf_addc(out, '\n');
}

static void unit_text(const oq_debug_search *s, const oq_debug_unit *u, oq_buf *out) {
    oq_buf_adds(out, "  ");
    if (isinf(u->sqnr))
        oq_buf_adds(out, "   exact");
    else
        oq_buf_addf(out, "%5.1f dB", u->sqnr);
    oq_buf_adds(out, u->excluded ? " *  " : "    ");
    oq_buf_add_safe(out, u->name);
    if (s->grouped)
        oq_buf_addf(out, " (%zu node%s", u->nodes.n, u->nodes.n == 1 ? "" : "s");
    if (u->op.n > 0 && !oq_str_eq(u->op, u->name)) {
        oq_buf_adds(out, s->grouped ? ", " : " (");
        oq_buf_add_safe(out, u->op);
    }
    oq_buf_adds(out, s->grouped || u->op.n > 0 ? ")\n" : "\n");
}

static void table_text(const oq_debug_search *s, size_t most, oq_buf *out) {
    const char *what = s->grouped ? "group" : "node";
    oq_buf_addf(out,
                "\nSensitivity over %llu samples; as it is: ", (unsigned long long)s->n_samples);
    quality(out, s->whole_sqnr, s->whole_agreement);
    oq_buf_addf(out, "\nOutputs when one %s alone is quantized, worst first:\n", what);
    for (size_t i = 0; i < s->units.n && (most == 0 || i < most); i++)
        unit_text(s, &s->units.v[i], out);
    if (most > 0 && s->units.n > most)
        oq_buf_addf(out, "  and %zu more (--top 0 shows all)\n", s->units.n - most);
    if (s->bisected || s->units.n == 0)
        return;
    oq_buf_addf(out, "Without the worst %s:\n", what);
    exclude_text(s, &s->units.v[0], out);
}

void oq_debug_search_text(const oq_debug_search *s, size_t most, oq_buf *out) {
    const char *what = s->grouped ? "group" : "node";
    table_text(s, most, out);
    if (!s->bisected)
        return;
    if (!s->reached) {
        oq_buf_addf(out, "\nThe target is not reached even with every %s excluded: ", what);
        quality(out, s->found_sqnr, s->found_agreement);
        oq_buf_addc(out, '\n');
        return;
    }
    oq_buf_addf(out, "\nThe target is reached with %zu of %zu %ss excluded: ", s->n_excluded,
                s->units.n, what);
    quality(out, s->found_sqnr, s->found_agreement);
    oq_buf_addc(out, '\n');
    if (s->n_excluded > 0)
        exclude_text(s, NULL, out);
}

static void unit_json(const oq_debug_search *s, const oq_debug_unit *u, oq_jw *w) {
    oq_jw_begin_object(w, NULL);
    oq_jw_str(w, s->grouped ? "group" : "node", u->name);
    if (u->op.n > 0)
        oq_jw_str(w, "op_type", u->op);
    oq_jw_real(w, "sqnr", u->sqnr); /* null: exact */
    if (!isnan(u->agreement))
        oq_jw_real(w, "top1_agreement", u->agreement);
    if (s->grouped) {
        oq_jw_begin_array(w, "nodes_to_exclude");
        for (size_t i = 0; i < u->nodes.n; i++)
            oq_jw_str(w, NULL, s->nodes.v[u->nodes.v[i]].name);
        oq_jw_end_array(w);
    }
    oq_jw_end_object(w);
}

void oq_debug_search_json(const oq_debug_search *s, oq_jw *w) {
    oq_jw_begin_array(w, "sensitivity");
    for (size_t i = 0; i < s->units.n; i++)
        unit_json(s, &s->units.v[i], w);
    oq_jw_end_array(w);
    if (!s->bisected)
        return;
    oq_jw_begin_object(w, "bisect");
    oq_jw_bool(w, "reached", s->reached);
    oq_jw_real(w, "sqnr_before", s->whole_sqnr);
    oq_jw_real(w, "sqnr", s->found_sqnr);
    if (!isnan(s->found_agreement)) {
        oq_jw_real(w, "top1_agreement_before", s->whole_agreement);
        oq_jw_real(w, "top1_agreement", s->found_agreement);
    }
    oq_jw_begin_array(w, "nodes_to_exclude");
    for (size_t i = 0; i < s->nodes.n; i++)
        if (s->nodes.v[i].excluded)
            oq_jw_str(w, NULL, s->nodes.v[i].name);
    oq_jw_end_array(w);
    if (s->grouped) {
        oq_jw_begin_array(w, "groups");
        for (size_t i = 0; i < s->units.n; i++)
            if (s->units.v[i].excluded)
                oq_jw_str(w, NULL, s->units.v[i].name);
        oq_jw_end_array(w);
    }
    oq_jw_begin_object(w, "overrides");
    oq_debug_search_overrides(s, w);
    oq_jw_end_object(w);
    oq_jw_uint(w, "runs", s->n_runs);
    oq_jw_end_object(w);
}

static void override(oq_jw *w, oq_str name, const char *type) {
    oq_jw_key(w, name);
    oq_jw_begin_array(w, NULL);
    oq_jw_begin_object(w, NULL);
    oq_jw_cstr(w, "quant_type", type);
    oq_jw_end_object(w);
    oq_jw_end_array(w);
}

/* In the set that was found; without bisection, in the worst unit. */
static bool is_chosen(const oq_debug_search *s, size_t i) {
    if (s->bisected || s->units.n == 0)
        return s->nodes.v[i].excluded;
    for (size_t k = 0; k < s->units.v[0].nodes.n; k++)
        if (s->units.v[0].nodes.v[k] == i)
            return true;
    return false;
}

void oq_debug_search_overrides(const oq_debug_search *s, oq_jw *w) {
    const oq_debug *d = s->d;
    for (size_t i = 0; i < s->nodes.n; i++) {
        const oq_node *n = d->made_index.graph->node.v[s->nodes.v[i].node];
        if (!is_chosen(s, i))
            continue;
        for (size_t k = 0; k < d->weights.n; k++)
            if (d->weights.v[k].type != OQ_INT32 && oq_str_eq(d->weights.v[k].node, n->name))
                override(w, d->weights.v[k].name, "QInt16");
        for (size_t k = 0; k < d->acts.n; k++)
            for (size_t o = 0; o < n->output.n; o++)
                if (oq_str_eq(d->acts.v[k].pre, n->output.v[o]))
                    override(w, d->acts.v[k].name, "QUInt16");
    }
}
