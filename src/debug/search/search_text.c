/*
 * search_text.c — what a search found: for a terminal, as JSON, as an overrides file.
 */
#include "debug/search/search.h"

static void db(oq_buf *out, double v) {
    if (isinf(v))
        oq_buf_adds(out, v > 0 ? "exact" : "NaN or infinity");
    else
        oq_buf_addf(out, "%.1f dB", v);
}

static void quality(oq_buf *out, double sqnr, double agreement) {
    db(out, sqnr);
    if (!isnan(agreement))
        oq_buf_addf(out, ", same top-1 %.2f %%", 100 * agreement);
}

/* Nodes of the set that must be named: not those that a type names. */
static bool is_listed(const oq_debug_search *s, size_t i) {
    return s->nodes.v[i].excluded && !oq_str_among(s->nodes.v[i].op, s->types.v, s->types.n);
}

static bool is_control(char c) {
    return (unsigned char)c < 0x20 || c == 0x7f;
}

/* A name as an item of a list that is read again. One that is not a line, or that would be taken
 * for a pattern, is written as the pattern of itself. */
static void add_item(oq_buf *out, oq_str name) {
    bool plain = !oq_str_starts(name, OQ_S("re:"));
    for (size_t i = 0; i < name.n; i++)
        plain = plain && !is_control(name.p[i]);
    if (plain) {
        oq_buf_add_str(out, name);
        return;
    }
    oq_buf_adds(out, "re:^");
    for (size_t i = 0; i < name.n; i++) {
        const char c = name.p[i];
        if (!is_control(c) && strchr(".[]{}()*+?|^$\\", c) != NULL)
            oq_buf_addc(out, '\\');
        oq_buf_addc(out, is_control(c) ? '.' : c);
    }
    oq_buf_addc(out, '$');
}

/* The same as a word of a command line, where items may be divided by commas, and begin with what
 * stands for a file or a list. */
static void add_item_word(oq_buf *out, oq_str name) {
    oq_buf item, word;
    oq_buf_init(&item, out->alloc);
    oq_buf_init(&word, out->alloc);
    add_item(&item, name);
    for (size_t i = 0; i < item.n; i++) {
        if (item.p[i] == ',' || (i == 0 && strchr("@[({", item.p[i]) != NULL))
            oq_buf_addc(&word, '\\');
        oq_buf_addc(&word, item.p[i]);
    }
    oq_buf_add_word(out, (oq_str){word.p, word.n});
    out->failed |= item.failed || word.failed;
    oq_buf_release(&item);
    oq_buf_release(&word);
}

void oq_debug_search_list(const oq_debug_search *s, oq_buf *out) {
    for (size_t i = 0; i < s->nodes.n; i++)
        if (is_listed(s, i)) {
            add_item(out, s->nodes.v[i].name);
            oq_buf_addc(out, '\n');
        }
}

void oq_debug_search_methods(const oq_debug_search *s, oq_jw *w) {
    for (size_t i = 0; i < s->nodes.n; i++)
        if (s->nodes.v[i].excluded) {
            oq_jw_key(w, s->nodes.v[i].name);
            oq_jw_cstr(w, NULL, "float");
        }
}

/* Options of `onq static` that leave the set float. */
static void options_text(const oq_debug_search *s, const char *list, oq_buf *out) {
    size_t n = 0;
    if (s->types.n > 0)
        oq_buf_adds(out, " --op_types_to_exclude ");
    for (size_t i = 0; i < s->types.n; i++) {
        oq_buf_adds(out, i > 0 ? "," : "");
        oq_buf_add_word(out, s->types.v[i]);
    }
    for (size_t i = 0; i < s->nodes.n; i++)
        n += is_listed(s, i);
    if (n > 0)
        oq_buf_adds(out, " --nodes_to_exclude");
    if (n > 0 && list != NULL) {
        oq_buf_adds(out, " @");
        oq_buf_add_word(out, oq_str_of(list));
    }
    for (size_t i = 0; n > 0 && list == NULL && i < s->nodes.n; i++) {
        if (!is_listed(s, i))
            continue;
        oq_buf_addc(out, ' ');
        add_item_word(out, s->nodes.v[i].name);
    }
    oq_buf_adds(out, " --keep_excluded_float");
}

void oq_debug_search_options(const oq_debug_search *s, const char *list, oq_buf *out) {
    OQ_SCRATCH_BUF(text, out->alloc);
    options_text(s, list, &text);
    if (text.n > 1)
        oq_buf_add(out, text.p + 1, text.n - 1);
    out->failed |= text.failed;
}

/* What the model has that was made. */
static void made_text(const oq_debug_search *s, const char *list, oq_buf *out) {
    if (isnan(s->quantized_sqnr))
        return;
    oq_buf_adds(out, "Made and measured in a default session: ");
    quality(out, s->quantized_sqnr, s->quantized_agreement);
    oq_buf_addf(out, " over %llu sample%s", (unsigned long long)s->quantized_samples,
                OQ_NOUN_S(s->quantized_samples));
    if (!isnan(s->macs))
        oq_buf_addf(out, "; still in integers: %.1f %% of the multiply-accumulates", 100 * s->macs);
    if (!isnan(s->weights))
        oq_buf_addf(out, ", %.1f %% of the weights", 100 * s->weights);
    oq_buf_adds(out, "\nTo make it, add to the options of onq static:\n");
    oq_debug_search_options(s, list, out);
    oq_buf_addc(out, '\n');
    if (isnan(s->wide_sqnr))
        return;
    oq_buf_adds(out, "With 16 bits for their tensors instead (--overrides): ");
    db(out, s->wide_sqnr);
    oq_buf_adds(out, s->wide_sqnr + 1 < s->quantized_sqnr
                         ? "; 16 bits do not help as much as float does\n"
                         : "; slower than float on most CPUs\n");
}

static void unit_text(const oq_debug_search *s, const oq_debug_unit *u, oq_buf *out) {
    oq_buf_adds(out, "  ");
    if (isnan(u->sqnr))
        oq_buf_adds(out, "       -");
    else if (isinf(u->sqnr))
        oq_buf_adds(out, u->sqnr > 0 ? "   exact" : "     nan");
    else
        oq_buf_addf(out, "%5.1f dB", u->sqnr);
    oq_buf_addf(out, " %5.1f %%%s", 100 * u->macs, u->excluded ? " *  " : "    ");
    oq_buf_add_safe(out, u->name);
    if (s->grouped)
        oq_buf_addf(out, " (%zu node%s", u->nodes.n, OQ_NOUN_S(u->nodes.n));
    if (u->op.n > 0 && !oq_str_eq(u->op, u->name)) {
        oq_buf_adds(out, s->grouped ? ", " : " (");
        oq_buf_add_safe(out, u->op);
    }
    oq_buf_adds(out, s->grouped || u->op.n > 0 ? ")\n" : "\n");
}

static void table_text(const oq_debug_search *s, size_t most, oq_buf *out) {
    const char *what = s->grouped ? "group" : "unit";
    oq_buf_addf(out,
                "\nSensitivity over %llu samples; as it is: ", (unsigned long long)s->n_samples);
    quality(out, s->whole_sqnr, s->whole_agreement);
    oq_buf_addf(out,
                "\nOutputs when one %s alone is quantized, worst first, and its share of the "
                "multiply-accumulates:\n",
                what);
    for (size_t i = 0; i < s->units.n && (most == 0 || i < most); i++)
        unit_text(s, &s->units.v[i], out);
    if (most > 0 && s->units.n > most)
        oq_buf_addf(out, "  and %zu more (--top 0 shows all)\n", s->units.n - most);
    if (s->late)
        oq_buf_addf(out, "The time limit ended it: %zu of %zu %ss were measured\n", s->n_measured,
                    s->units.n, what);
}

void oq_debug_search_text(const oq_debug_search *s, size_t most, const char *list, oq_buf *out) {
    const char *what = s->grouped ? "group" : "unit";
    table_text(s, most, out);
    if (!s->bisected) {
        oq_buf_addf(out, "\nWithout the worst %s:\n", what);
        made_text(s, list, out);
        return;
    }
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
        made_text(s, list, out);
}

static void unit_json(const oq_debug_search *s, const oq_debug_unit *u, oq_jw *w) {
    oq_jw_begin_object(w, NULL);
    oq_jw_str(w, s->grouped ? "group" : "node", u->name);
    if (u->op.n > 0)
        oq_jw_str(w, "op_type", u->op);
    oq_jw_real(w, "sqnr", u->sqnr); /* null: exact */
    if (!isnan(u->agreement))
        oq_jw_real(w, "top1_agreement", u->agreement);
    oq_jw_real(w, "macs", u->macs);
    if (s->grouped || u->nodes.n > 1) {
        oq_jw_begin_array(w, "nodes_to_exclude");
        for (size_t i = 0; i < u->nodes.n; i++)
            oq_jw_str(w, NULL, s->nodes.v[u->nodes.v[i]].name);
        oq_jw_end_array(w);
    }
    oq_jw_end_object(w);
}

/* The set as a model that was made. */
static void made_json(const oq_debug_search *s, oq_jw *w) {
    oq_buf options;
    if (s->late)
        oq_jw_bool(w, "time_limit_reached", true);
    if (isnan(s->quantized_sqnr))
        return;
    oq_jw_begin_object(w, "verified");
    oq_jw_real(w, "sqnr", s->quantized_sqnr);
    if (!isnan(s->quantized_agreement))
        oq_jw_real(w, "top1_agreement", s->quantized_agreement);
    oq_jw_uint(w, "samples", s->quantized_samples);
    if (!isnan(s->wide_sqnr))
        oq_jw_real(w, "overrides_sqnr", s->wide_sqnr);
    oq_jw_begin_object(w, "integer_share");
    if (!isnan(s->weights))
        oq_jw_real(w, "weights", s->weights);
    if (!isnan(s->macs))
        oq_jw_real(w, "macs", s->macs);
    oq_jw_end_object(w);
    oq_jw_begin_array(w, "op_types_to_exclude");
    for (size_t i = 0; i < s->types.n; i++)
        oq_jw_str(w, NULL, s->types.v[i]);
    oq_jw_end_array(w);
    oq_buf_init(&options, &s->d->env->alloc);
    oq_debug_search_options(s, NULL, &options);
    oq_jw_str(w, "options", (oq_str){options.p, options.n});
    w->out->failed |= options.failed;
    oq_buf_release(&options);
    oq_jw_end_object(w);
}

void oq_debug_search_json(const oq_debug_search *s, oq_jw *w) {
    oq_jw_begin_array(w, "sensitivity");
    for (size_t i = 0; i < s->units.n; i++)
        unit_json(s, &s->units.v[i], w);
    oq_jw_end_array(w);
    made_json(s, w);
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

void oq_debug_search_overrides(const oq_debug_search *s, oq_jw *w) {
    const oq_debug *d = s->d;
    for (size_t i = 0; i < s->nodes.n; i++) {
        const oq_node *n = oq_debug_node_of(&s->nodes.v[i]);
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
