/*
 * cuts.c — see cuts.h.
 */
#include "engine/slice/cuts.h"

/* ---- where to cut ---- */

static bool crosses(const oq_cuts *c, uint32_t value, uint32_t place) {
    const uint32_t made = oq_slicer_made_at(c->s, value);
    return (made == OQ_NO_VALUE || made < place) && c->last[value] > place;
}

static bool is_varying(const oq_slicer *s, uint32_t value) {
    const uint32_t node = s->ix.values.v[value].producer;
    return node != OQ_NO_NODE ? s->varies[node] : oq_slicer_is_fed(s, value);
}

static onq_code find_last(oq_cuts *c, onq_error *err) {
    oq_slicer *s = c->s;
    const oq_graph *g = s->ix.graph;
    c->last = OQ_NEW_ARRAY(&s->arena, uint32_t, s->n_values + 1);
    OQ_TRY_ALLOC(c->last != NULL, err);
    for (uint32_t p = 0; p < s->n_nodes; p++)
        for (size_t k = 0; k < s->reads[s->order[p]].n; k++)
            c->last[s->reads[s->order[p]].v[k]] = p + 1;
    for (size_t i = 0; i < g->output.n; i++) {
        const uint32_t v = oq_slicer_value(s, g->output.v[i]->name);
        OQ_TRY_ALLOC(OQ_PUSH(&s->arena, &c->outputs, v), err);
        if (v != OQ_NO_VALUE)
            c->last[v] = (uint32_t)s->n_nodes + 1;
    }
    return ONQ_OK;
}

/* At about equal distances, each where the fewest tensors cross. */
static onq_code choose_places(oq_cuts *c, onq_error *err) {
    oq_slicer *s = c->s;
    const size_t n = s->n_nodes;
    uint32_t *across = OQ_NEW_ARRAY(&s->arena, uint32_t, n + 2);
    OQ_TRY_ALLOC(across != NULL, err);
    for (uint32_t v = 0; v < s->n_values; v++) {
        const uint32_t made = oq_slicer_made_at(s, v), from = made == OQ_NO_VALUE ? 0 : made + 1;
        if (!is_varying(s, v) || from >= c->last[v])
            continue;
        across[from]++; /* differences first; they wrap around and back */
        across[c->last[v] <= n ? c->last[v] : n + 1]--;
    }
    for (size_t p = 1; p <= n; p++)
        across[p] += across[p - 1];
    const size_t wide = n / (OQ_MAX_CUTS + 1) + 1;
    c->place[c->n++] = 0;
    for (size_t from = wide / 2 + 1; from + wide / 2 < n && c->n <= OQ_MAX_CUTS; from += wide) {
        size_t best = from;
        for (size_t p = from; p < from + wide && p < n; p++)
            best = across[p] < across[best] ? p : best;
        if (best > c->place[c->n - 1])
            c->place[c->n++] = (uint32_t)best;
    }
    c->place[c->n++] = (uint32_t)n;
    return ONQ_OK;
}

/* Leaves every other cut. */
static void halve(oq_cuts *c) {
    size_t n = 1;
    for (size_t k = 2; k + 1 < c->n; k += 2)
        c->place[n++] = c->place[k];
    c->place[n++] = c->place[c->n - 1];
    c->n = n;
}

/* ---- what is kept ---- */

/* Outputs of the graph, and what crosses a cut; not its inputs, which are kept already. */
static onq_code choose_values(const oq_cuts *c, oq_arena *a, oq_numbers *out, onq_error *err) {
    const oq_slicer *s = c->s;
    for (uint32_t v = 0; v < s->n_values; v++) {
        bool wanted = s->ix.values.v[v].is_output;
        for (size_t k = 1; !wanted && is_varying(s, v) && k + 1 < c->n; k++)
            wanted = crosses(c, v, c->place[k]);
        if (wanted && !oq_slicer_is_fed(s, v) && !OQ_PUSH(a, out, v))
            return oq_fail_nomem(err);
    }
    return ONQ_OK;
}

/* *fits is false when more cuts than none are too many. */
static onq_code run_samples(const oq_cuts *c, oq_slice *p, uint64_t memory, bool *fits,
                            onq_error *err) {
    oq_slicer *s = c->s;
    OQ_TRY(oq_slice_open(p, OQ_OPT_NONE, err));
    for (size_t i = 0; i < s->n_samples && *fits; i++) {
        uint64_t bytes = 0;
        OQ_TRY(oq_slice_run(p, NULL, i, err));
        for (size_t k = 0; i == 0 && k < p->got.n; k++)
            bytes += p->got.v[k].size_bytes;
        *fits = c->n <= 2 || bytes <= memory / (s->n_loaded + 1);
        for (size_t k = 0; k < p->got.n && *fits; k++)
            OQ_TRY(oq_slicer_keep(s, p->out.v[k], i, &p->got.v[k], err));
    }
    return ONQ_OK;
}

static onq_code keep_values(const oq_cuts *c, uint64_t memory, bool *fits, onq_error *err) {
    oq_slicer *s = c->s;
    oq_slice p = {0};
    oq_numbers wanted = {0};
    OQ_SCRATCH(scratch, &s->env->alloc);
    *fits = true;
    onq_code rc = choose_values(c, &scratch, &wanted, err);
    if (rc == ONQ_OK)
        rc = oq_slice_make(s, &wanted, OQ_EVERY_PLACE, &p, err);
    if (rc == ONQ_OK)
        rc = run_samples(c, &p, memory, fits, err);
    for (size_t i = 0; rc != ONQ_OK && i < wanted.n; i++)
        oq_slicer_drop(s, wanted.v[i]);
    oq_slice_close(&p);
    return rc;
}

onq_code oq_cuts_make(oq_cuts *c, oq_slicer *s, uint64_t memory, onq_error *err) {
    bool fits = false;
    *c = (oq_cuts){.s = s};
    OQ_TRY(find_last(c, err));
    OQ_TRY(choose_places(c, err));
    while (!fits) {
        const onq_code rc = keep_values(c, memory, &fits, err);
        if (rc == ONQ_E_RUNTIME && c->n > 2) {
            oq_error_clear(err);
            c->place[1] = c->place[c->n - 1];
            c->n = 2;
            fits = false;
            continue;
        }
        OQ_TRY(rc);
        if (!fits)
            halve(c);
    }
    return ONQ_OK;
}

/* ---- a change ---- */

static bool is_made_after(const oq_cuts *c, uint32_t value, uint32_t place) {
    const uint32_t at = value != OQ_NO_VALUE ? oq_slicer_made_at(c->s, value) : OQ_NO_VALUE;
    return at != OQ_NO_VALUE && at >= place;
}

/* Marks values that differ from those that are kept, from the first changed node on. */
static void spread(const oq_slicer *s, const bool *changed, uint32_t first, bool *differs) {
    for (uint32_t p = first; p < s->n_nodes; p++) {
        const uint32_t node = s->order[p];
        bool on = changed[node];
        for (size_t k = 0; k < s->reads[node].n && !on; k++)
            on = differs[s->reads[node].v[k]];
        for (size_t k = 0; k < s->makes[node].n; k++)
            differs[s->makes[node].v[k]] = on;
    }
}

/* The first cut past the last changed node over which no value goes that differs and is not
 * kept. */
static size_t find_end(const oq_cuts *c, uint32_t last, const bool *differs) {
    size_t k = 1;
    while (k + 1 < c->n && c->place[k] <= last)
        k++;
    for (; k + 1 < c->n; k++) {
        bool good = true;
        for (uint32_t v = 0; good && v < c->s->n_values; v++)
            good = !differs[v] || oq_slicer_keeps(c->s, v) || !crosses(c, v, c->place[k]);
        if (good)
            break;
    }
    return k;
}

onq_code oq_cuts_find(const oq_cuts *c, const bool *changed, oq_arena *a, oq_change *out,
                      onq_error *err) {
    const oq_slicer *s = c->s;
    uint32_t first = OQ_NO_VALUE, last = 0;
    *out = (oq_change){0};
    for (uint32_t p = 0; p < s->n_nodes; p++) {
        if (!changed[s->order[p]])
            continue;
        first = p < first ? p : first;
        last = p;
    }
    if (first == OQ_NO_VALUE)
        return ONQ_OK;
    bool *differs = OQ_NEW_ARRAY(a, bool, s->n_values + 1);
    OQ_TRY_ALLOC(differs != NULL, err);
    spread(s, changed, first, differs);
    out->end = find_end(c, last, differs);
    for (size_t i = 0; i < c->outputs.n && out->end + 1 < c->n; i++)
        out->tail |= is_made_after(c, c->outputs.v[i], c->place[out->end]);
    while (out->begin + 1 < c->n && c->place[out->begin + 1] <= first)
        out->begin++;
    const uint32_t end = c->place[out->end];
    for (uint32_t v = 0; v < s->n_values; v++)
        if (differs[v] && oq_slicer_keeps(s, v) && !is_made_after(c, v, end) &&
            (s->ix.values.v[v].is_output || (out->tail && crosses(c, v, end))) &&
            !OQ_PUSH(a, &out->out, v))
            return oq_fail_nomem(err);
    out->tail &= out->out.n > 0;
    return ONQ_OK;
}

onq_code oq_cuts_head(const oq_cuts *c, const oq_change *change, oq_slice *p, onq_error *err) {
    return oq_slice_make(c->s, &change->out, c->place[change->begin], p, err);
}

onq_code oq_cuts_tail(const oq_cuts *c, size_t cut, oq_slice *p, onq_error *err) {
    oq_numbers wanted = {0};
    assert(cut < c->n);
    OQ_SCRATCH(scratch, &c->s->env->alloc);
    for (size_t i = 0; i < c->outputs.n; i++)
        if (is_made_after(c, c->outputs.v[i], c->place[cut]))
            OQ_TRY_ALLOC(OQ_PUSH(&scratch, &wanted, c->outputs.v[i]), err);
    return oq_slice_make(c->s, &wanted, c->place[cut], p, err);
}
