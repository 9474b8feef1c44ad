/*
 * search_groups.c — which nodes a search tries as one: each alone, by operator, by block, or as the
 * caller says.
 */
#include "debug/search/search.h"

#include "onnx/operators.h"
#include "quantize/choose/pick.h"

static onq_code add_unit(oq_debug_search *s, oq_arena *a, oq_str name, oq_str op, onq_error *err) {
    const oq_debug_unit u = {.name = name, .op = op, .sqnr = NAN, .agreement = NAN};
    return OQ_PUSH(a, &s->units, u) ? ONQ_OK : oq_fail_nomem(err);
}

static onq_code add_member(oq_debug_search *s, oq_arena *a, oq_debug_unit *u, uint32_t node,
                           onq_error *err) {
    assert(node < s->nodes.n);
    if (!oq_str_eq(u->op, s->nodes.v[node].op))
        u->op = OQ_S("");
    return OQ_PUSH(a, &u->nodes, node) ? ONQ_OK : oq_fail_nomem(err);
}

static bool has_digit(const char *p, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (p[i] >= '0' && p[i] <= '9')
            return true;
    return false;
}

oq_str oq_debug_block_of(oq_str name) {
    size_t from = 0, last = 0;
    for (size_t i = 0; i < name.n; i++) {
        if (name.p[i] != '/' && name.p[i] != '.')
            continue;
        if (has_digit(name.p + from, i - from))
            return (oq_str){name.p, i};
        last = i;
        from = i + 1;
    }
    return last > 0 ? (oq_str){name.p, last} : name; /* all but the last part */
}

/* Groups by a text of each node: its operator or block. */
static onq_code by_text(oq_debug_search *s, bool block, oq_arena *a, onq_error *err) {
    oq_map seen;
    oq_map_init(&seen, a);
    for (uint32_t i = 0; i < s->nodes.n; i++) {
        const oq_debug_node *n = &s->nodes.v[i];
        const oq_str key = block ? oq_debug_block_of(n->name) : n->op;
        uint32_t at = oq_map_find(&seen, key);
        if (at == OQ_MAP_NONE) {
            at = (uint32_t)s->units.n;
            OQ_TRY_ALLOC(oq_map_put(&seen, key, at), err);
            OQ_TRY(add_unit(s, a, key, n->op, err));
        }
        OQ_TRY(add_member(s, a, &s->units.v[at], i, err));
    }
    return ONQ_OK;
}

/* One group of a name or pattern. */
static onq_code by_pattern(oq_debug_search *s, oq_str text, oq_arena *a, onq_error *err) {
    oq_pick pick;
    oq_pick_init(&pick, a);
    OQ_TRY(add_unit(s, a, text, OQ_S(""), err));
    oq_debug_unit *u = &s->units.v[s->units.n - 1];
    onq_code rc = oq_pick_add(&pick, text, err);
    for (uint32_t i = 0; rc == ONQ_OK && i < s->nodes.n; i++) {
        if (!oq_pick_has(&pick, s->nodes.v[i].name))
            continue;
        if (u->nodes.n == 0)
            u->op = s->nodes.v[i].op;
        rc = add_member(s, a, u, i, err);
    }
    if (rc == ONQ_OK && u->nodes.n == 0)
        rc = oq_fail(
            err, ONQ_E_INVALID,
            "--groups: no quantized node is called '%.*s' (use 're:' before a pattern, op_type or "
            "block)",
            OQ_STR(text));
    return rc;
}

/* The only node that reads a tensor, through a pair of its own; NULL. */
static const oq_node *only_reader(const oq_index *ix, oq_str name, uint32_t *node) {
    for (unsigned steps = 0; steps < 3; steps++) {
        const oq_value *v = oq_index_find(ix, name);
        if (v == NULL || v->uses.n != 1 || v->is_output || v->uses.v[0].slot != 0)
            return NULL;
        const oq_node *n = ix->graph->node.v[v->uses.v[0].node];
        *node = v->uses.v[0].node;
        if (!oq_node_is_pair(n) || n->output.n == 0)
            return n;
        name = n->output.v[0];
    }
    return NULL;
}

/* The row of a node of a graph; OQ_NO_NODE: it has none. */
static uint32_t row_of(const oq_debug_search *s, const oq_index *ix, uint32_t node) {
    for (uint32_t i = 0; i < s->nodes.n; i++)
        if (s->nodes.v[i].ix == ix && s->nodes.v[i].node == node)
            return i;
    return OQ_NO_NODE;
}

/* Each node, a product together with the Relu or Clip that alone reads it: alone, a product would
 * be quantized over a range that nobody uses. */
static onq_code by_node(oq_debug_search *s, oq_arena *a, onq_error *err) {
    bool *taken = OQ_NEW_ARRAY(a, bool, s->nodes.n + 1);
    OQ_TRY_ALLOC(taken != NULL, err);
    for (uint32_t i = 0; i < s->nodes.n; i++) {
        const oq_debug_node *n = &s->nodes.v[i];
        const oq_node *node = oq_debug_node_of(n);
        uint32_t at = 0;
        if (taken[i])
            continue;
        OQ_TRY(add_unit(s, a, n->name, n->op, err));
        oq_debug_unit *u = &s->units.v[s->units.n - 1];
        OQ_TRY(add_member(s, a, u, i, err));
        const oq_node *clip = oq_op_traits_of(n->op)->product != OQ_NO_PRODUCT && node->output.n > 0
                                  ? only_reader(n->ix, node->output.v[0], &at)
                                  : NULL;
        const uint32_t row = clip != NULL && oq_op_traits_of(clip->op_type)->clips
                                 ? row_of(s, n->ix, at)
                                 : OQ_NO_NODE;
        if (row == OQ_NO_NODE)
            continue;
        taken[row] = true;
        OQ_TRY_ALLOC(OQ_PUSH(a, &u->nodes, row), err);
    }
    return ONQ_OK;
}

onq_code oq_debug_search_units(oq_debug_search *s, const oq_debug_target *t, oq_arena *a,
                               onq_error *err) {
    s->grouped = t->n_groups > 0;
    if (t->n_groups == 1 &&
        (oq_str_is(t->groups[0], "op_type") || oq_str_is(t->groups[0], "block")))
        return by_text(s, oq_str_is(t->groups[0], "block"), a, err);
    for (size_t i = 0; i < t->n_groups; i++)
        OQ_TRY(by_pattern(s, t->groups[i], a, err));
    return t->n_groups == 0 ? by_node(s, a, err) : ONQ_OK;
}
