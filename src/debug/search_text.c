/*
 * search_text.c — what a search found: for a terminal, as JSON, as an overrides file.
 */
#include "debug/search.h"

#include <math.h>

/* A word for a shell: in single quotes unless it is plain. */
static void shell_word(oq_buf *out, oq_str s) {
    bool plain = s.n > 0;
    for (size_t i = 0; i < s.n && plain; i++) {
        const char c = s.p[i];
        plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                c == '_' || c == '.' || c == '/' || c == '-' || c == ':' || c == '+';
    }
    if (plain) {
        oq_buf_add_str(out, s);
        return;
    }
    oq_buf_addc(out, '\'');
    for (size_t i = 0; i < s.n; i++) {
        if (s.p[i] == '\'')
            oq_buf_adds(out, "'\\''");
        else
            oq_buf_add_safe(out, (oq_str){s.p + i, 1});
    }
    oq_buf_addc(out, '\'');
}

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

void oq_dbg_search_text(const oq_dbg_search *s, size_t most, oq_buf *out) {
    oq_buf_addf(out,
                "\nSensitivity over %llu samples; as it is: ", (unsigned long long)s->n_samples);
    quality(out, s->whole_sqnr, s->whole_agreement);
    oq_buf_adds(out, "\nOutputs when one node alone is quantized, worst first:\n");
    for (size_t i = 0; i < s->nodes.n && (most == 0 || i < most); i++) {
        const oq_dbg_node *n = &s->nodes.v[i];
        oq_buf_adds(out, "  ");
        if (isinf(n->sqnr))
            oq_buf_adds(out, "   exact");
        else
            oq_buf_addf(out, "%5.1f dB", n->sqnr);
        oq_buf_adds(out, n->excluded ? " *  " : "    ");
        oq_buf_add_safe(out, n->name);
        oq_buf_adds(out, " (");
        oq_buf_add_safe(out, n->op);
        oq_buf_adds(out, ")\n");
    }
    if (most > 0 && s->nodes.n > most)
        oq_buf_addf(out, "  and %zu more (--top 0 shows all)\n", s->nodes.n - most);
    if (!s->bisected)
        return;
    if (!s->reached) {
        oq_buf_adds(out, "\nThe target is not reached even with every node excluded: ");
        quality(out, s->found_sqnr, s->found_agreement);
        oq_buf_addc(out, '\n');
        return;
    }
    oq_buf_addf(out, "\nThe target is reached with %zu of %zu nodes excluded: ", s->n_excluded,
                s->nodes.n);
    quality(out, s->found_sqnr, s->found_agreement);
    oq_buf_addc(out, '\n');
    if (s->n_excluded == 0)
        return;
    oq_buf_adds(out, "--nodes_to_exclude");
    for (size_t i = 0; i < s->nodes.n; i++) {
        if (!s->nodes.v[i].excluded)
            continue;
        oq_buf_addc(out, ' ');
        shell_word(out, s->nodes.v[i].name);
    }
    oq_buf_addc(out, '\n');
}

void oq_dbg_search_json(const oq_dbg_search *s, oq_jw *w) {
    oq_jw_begin_array(w, "sensitivity");
    for (size_t i = 0; i < s->nodes.n; i++) {
        const oq_dbg_node *n = &s->nodes.v[i];
        oq_jw_begin_object(w, NULL);
        oq_jw_str(w, "node", n->name);
        oq_jw_str(w, "op_type", n->op);
        oq_jw_real(w, "sqnr", n->sqnr); /* null: exact */
        if (!isnan(n->agreement))
            oq_jw_real(w, "top1_agreement", n->agreement);
        oq_jw_end_object(w);
    }
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
    oq_jw_begin_object(w, "overrides");
    oq_dbg_search_overrides(s, w);
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

void oq_dbg_search_overrides(const oq_dbg_search *s, oq_jw *w) {
    const oq_debug *d = s->d;
    for (size_t i = 0; i < s->nodes.n; i++) {
        const oq_node *n = d->made_index.graph->node.v[s->nodes.v[i].node];
        if (!s->nodes.v[i].excluded)
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
