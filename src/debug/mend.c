/*
 * mend.c — see mend.h.
 */
#include "debug/mend.h"

#include "base/map.h"

#include <ctype.h>

#define NEAR_STEPS 4 /* from a made node to the source's: a pair, and what a format adds to it */
#define SAME_TYPE  2 /* so many nodes of one operator at fault: the operator is */

/* ---- what a message speaks of ---- */

static bool is_name_char(char c) {
    return isalnum((unsigned char)c) || c == '_' || c == '/' || c == '.' || c == '-' ||
           (unsigned char)c >= 0x80;
}

/* Where the text has the name as a word of its own, or SIZE_MAX. Names of one or two letters are
 * words of a sentence too, so they count in quotes and parentheses only. */
static size_t find_mention(const char *text, oq_str name) {
    for (const char *p = text; name.n > 0 && (p = strchr(p, name.p[0])) != NULL; p++) {
        if (strncmp(p, name.p, name.n) != 0)
            continue;
        const char before = p > text ? p[-1] : ' ', after = p[name.n];
        const bool quoted = before == '\'' || before == '"' || before == '(';
        if (!is_name_char(before) && !is_name_char(after) && (name.n > 2 || quoted))
            return (size_t)(p - text);
    }
    return SIZE_MAX;
}

typedef struct search {
    oq_mend *m;
    const char *text;
    oq_mend_nodes *out;
    oq_index ix;      /* of the result */
    oq_map by_output; /* source tensor -> index in nodes */
    oq_map by_name;   /* source node -> index in nodes */
    oq_mend_nodes nodes;
} search;

static bool holds(const oq_mend_nodes *list, const oq_node *n) {
    for (size_t i = 0; i < list->n; i++)
        if (list->v[i] == n)
            return true;
    return false;
}

static onq_code suspect(search *s, const oq_node *n, onq_error *err) {
    if (holds(s->out, n) || !s->m->can_leave(s->m->ctx, n))
        return ONQ_OK;
    return OQ_PUSH(s->m->arena, s->out, n) ? ONQ_OK : oq_fail_nomem(err);
}

/* The source's node that makes a tensor, or NULL. */
static const oq_node *maker(const search *s, oq_str tensor) {
    const uint32_t i = oq_map_find(&s->by_output, tensor);
    return i == OQ_MAP_NONE ? NULL : s->nodes.v[i];
}

static onq_code note_nodes(void *ctx, oq_graph *g, onq_error *err) {
    search *s = ctx;
    for (size_t i = 0; i < g->node.n; i++) {
        const oq_node *n = g->node.v[i];
        const uint32_t at = (uint32_t)s->nodes.n;
        bool fits = OQ_PUSH(s->m->arena, &s->nodes, n);
        for (size_t k = 0; fits && k < n->output.n; k++)
            fits = n->output.v[k].n == 0 || oq_map_put(&s->by_output, n->output.v[k], at);
        if (fits && n->name.n > 0 && !oq_map_has(&s->by_name, n->name))
            fits = oq_map_put(&s->by_name, n->name, at);
        OQ_TRY_ALLOC(fits, err);
    }
    return ONQ_OK;
}

typedef struct mention {
    size_t at;
    const oq_node *node;
} mention;
typedef OQ_VEC(mention) mentions;

static int by_place(const void *a, const void *b) {
    const mention *x = a, *y = b;
    return (x->at > y->at) - (x->at < y->at);
}

static onq_code note_mention(search *s, mentions *list, oq_str name, const oq_node *n,
                             onq_error *err) {
    const size_t at = find_mention(s->text, name);
    if (at == SIZE_MAX || OQ_PUSH(s->m->arena, list, ((mention){at, n})))
        return ONQ_OK;
    return oq_fail_nomem(err);
}

/* The source's nodes that are named, in the order of the text. */
static onq_code add_named(search *s, onq_error *err) {
    mentions list = {0};
    for (size_t i = 0; i < s->nodes.n; i++)
        OQ_TRY(note_mention(s, &list, s->nodes.v[i]->name, s->nodes.v[i], err));
    if (list.n > 0)
        qsort(list.v, list.n, sizeof *list.v, by_place);
    for (size_t i = 0; i < list.n; i++)
        OQ_TRY(suspect(s, list.v[i].node, err));
    return ONQ_OK;
}

/* From a node that quantization made, the first nodes of the source forwards or backwards. */
static onq_code add_near(search *s, const oq_node *n, bool forwards, int steps, onq_error *err) {
    for (size_t k = 0; forwards && k < n->output.n; k++) {
        const oq_node *source = maker(s, n->output.v[k]);
        const oq_value *v = oq_index_find(&s->ix, n->output.v[k]);
        if (source != NULL)
            return suspect(s, source, err);
        for (size_t i = 0; steps > 0 && v != NULL && i < v->uses.n; i++)
            OQ_TRY(add_near(s, s->ix.graph->node.v[v->uses.v[i].node], true, steps - 1, err));
    }
    for (size_t k = 0; !forwards && k < n->input.n; k++) {
        const oq_node *source = maker(s, n->input.v[k]);
        const oq_node *before = oq_index_producer(&s->ix, n->input.v[k]);
        if (source != NULL)
            OQ_TRY(suspect(s, source, err));
        else if (steps > 0 && before != NULL)
            OQ_TRY(add_near(s, before, false, steps - 1, err));
    }
    return ONQ_OK;
}

/* The source's nodes around the nodes and tensors of the result that are named and are not the
 * source's. */
static onq_code add_around(search *s, onq_error *err) {
    const oq_graph *g = s->ix.graph;
    mentions list = {0};
    for (size_t i = 0; i < g->node.n; i++) {
        const oq_node *n = g->node.v[i];
        if (!oq_map_has(&s->by_name, n->name))
            OQ_TRY(note_mention(s, &list, n->name, n, err));
        for (size_t k = 0; k < n->output.n; k++)
            OQ_TRY(note_mention(s, &list, n->output.v[k], n, err));
    }
    if (list.n > 0)
        qsort(list.v, list.n, sizeof *list.v, by_place);
    for (size_t i = 0; i < list.n; i++) {
        OQ_TRY(add_near(s, list.v[i].node, true, NEAR_STEPS, err));
        OQ_TRY(add_near(s, list.v[i].node, false, NEAR_STEPS, err));
    }
    return ONQ_OK;
}

onq_code oq_mend_suspects(oq_mend *m, oq_graph *result, const char *text, oq_mend_nodes *out,
                          onq_error *err) {
    search s = {.m = m, .text = text, .out = out};
    *out = (oq_mend_nodes){0};
    oq_map_init(&s.by_output, m->arena);
    oq_map_init(&s.by_name, m->arena);
    OQ_TRY(oq_walk_graphs(m->source, note_nodes, &s, err));
    OQ_TRY(oq_index_build(&s.ix, m->arena, result, NULL, err));
    OQ_TRY(add_named(&s, err));
    return add_around(&s, err);
}

/* ---- trying ---- */

typedef struct mender {
    oq_mend *m;
    oq_verdict *v; /* of the last attempt */
    oq_graph *result;
    oq_mend_nodes all; /* that can be left, in the order of the graphs */
} mender;

static onq_code note_all(void *ctx, oq_graph *g, onq_error *err) {
    mender *d = ctx;
    for (size_t i = 0; i < g->node.n; i++)
        if (d->m->can_leave(d->m->ctx, g->node.v[i]) &&
            !OQ_PUSH(d->m->arena, &d->all, g->node.v[i]))
            return oq_fail_nomem(err);
    return ONQ_OK;
}

static onq_code attempt(mender *d, const oq_mend_nodes *left, onq_error *err) {
    d->m->n_tries++;
    return d->m->attempt(d->m->ctx, left, d->v, &d->result, err);
}

static bool is_over(const mender *d) {
    return d->v->end == OQ_VERIFY_GOOD || d->m->n_tries >= OQ_MEND_TRIES;
}

/* Leaves a node; all of its operator when others of that were at fault before. */
static onq_code leave(mender *d, const oq_node *n, onq_error *err) {
    oq_mend_nodes *left = &d->m->left;
    size_t same = 0;
    for (size_t i = 0; i < left->n; i++)
        same += oq_str_eq(left->v[i]->op_type, n->op_type);
    OQ_TRY_ALLOC(OQ_PUSH(d->m->arena, left, n), err);
    for (size_t i = 0; same >= SAME_TYPE && i < d->all.n; i++)
        if (oq_str_eq(d->all.v[i]->op_type, n->op_type) && !holds(left, d->all.v[i]) &&
            !OQ_PUSH(d->m->arena, left, d->all.v[i]))
            return oq_fail_nomem(err);
    return ONQ_OK;
}

/* Leaves the suspects float one after another until the runtime says something else; *moved says if
 * it did. One that changes nothing is taken back. */
static onq_code try_suspects(mender *d, bool *moved, onq_error *err) {
    oq_mend_nodes suspects;
    const onq_error before = d->v->why;
    const oq_verify_end end = d->v->end;
    *moved = false;
    if (end == OQ_VERIFY_NOT_FINITE)
        return ONQ_OK; /* names an output, not a node */
    OQ_TRY(oq_mend_suspects(d->m, d->result, before.text, &suspects, err));
    for (size_t i = 0; i < suspects.n && !*moved && !is_over(d); i++) {
        const size_t n = d->m->left.n;
        if (holds(&d->m->left, suspects.v[i]))
            continue;
        OQ_TRY(leave(d, suspects.v[i], err));
        OQ_TRY(attempt(d, &d->m->left, err));
        *moved = d->v->end != end || strcmp(d->v->why.text, before.text) != 0;
        if (!*moved)
            d->m->left.n = n;
    }
    return ONQ_OK;
}

/* With the first k of all nodes float, besides what is left already. */
static onq_code try_first(mender *d, size_t k, bool *good, onq_error *err) {
    oq_mend_nodes left = {0};
    for (size_t i = 0; i < d->m->left.n; i++)
        OQ_TRY_ALLOC(OQ_PUSH(d->m->arena, &left, d->m->left.v[i]), err);
    for (size_t i = 0; i < k; i++)
        if (!holds(&d->m->left, d->all.v[i]) && !OQ_PUSH(d->m->arena, &left, d->all.v[i]))
            return oq_fail_nomem(err);
    OQ_TRY(attempt(d, &left, err));
    *good = d->v->end == OQ_VERIFY_GOOD;
    return ONQ_OK;
}

/* Finds one node at fault by halving, and leaves it. *found is false when even the float model is
 * not good, or the tries are used up. */
static onq_code halve(mender *d, bool *found, onq_error *err) {
    size_t bad = 0, good = d->all.n;
    bool is_good = false;
    *found = false;
    OQ_TRY(try_first(d, good, &is_good, err));
    while (is_good && good - bad > 1 && d->m->n_tries < OQ_MEND_TRIES) {
        const size_t middle = bad + (good - bad) / 2;
        bool fine = false;
        OQ_TRY(try_first(d, middle, &fine, err));
        *(fine ? &good : &bad) = middle;
    }
    if (!is_good || good - bad > 1 || d->m->n_tries >= OQ_MEND_TRIES)
        return ONQ_OK;
    *found = true;
    OQ_TRY(leave(d, d->all.v[good - 1], err));
    return attempt(d, &d->m->left, err);
}

onq_code oq_mend_run(oq_mend *m, oq_verdict *v, oq_graph *result, onq_error *err) {
    mender d = {.m = m, .v = v, .result = result};
    const oq_verdict first = *v;
    bool going = true;
    OQ_TRY(oq_walk_graphs(m->source, note_all, &d, err));
    while (going && !is_over(&d)) {
        OQ_TRY(try_suspects(&d, &going, err));
        if (!going && !is_over(&d))
            OQ_TRY(halve(&d, &going, err));
    }
    /* A good result of halving is a step, not an end. */
    if (!going)
        *v = first;
    return ONQ_OK;
}
