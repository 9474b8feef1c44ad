/*
 * compare_rename.c — two graphs when the names of tensors do not count. See compare.h.
 *
 * Every value gets two fingerprints, made from what computes it: `exact` with the values of
 * constants, `form` without them. Nodes are matched by the exact one first, what is left by form,
 * in order. That a match is right is then checked pair by pair: same operator, inputs that
 * correspond, equal constants. So a wrong match can only report too many differences, never too
 * few.
 *
 * A node that finds no partner takes all that follow from it along; only the first of such a chain
 * is reported, the rest is counted.
 */
#include "onnx/compare/compare_parts.h"
#include "onnx/tensor.h"

/* ---- fingerprints: 128 bits, mixed by multiplication ---- */

typedef struct print {
    uint64_t x, y;
} print;

static print mix(print p, uint64_t v) {
    p.x = (p.x ^ v) * 0x9E3779B97F4A7C15u;
    p.x ^= p.x >> 29;
    p.y = (p.y + v) * 0xD6E8FEB86659FD93u;
    p.y ^= p.y >> 32;
    p.y += p.x;
    return p;
}

static print mix_print(print p, print q) {
    return mix(mix(p, q.x), q.y);
}

static print mix_bytes(print p, const void *data, uint64_t n) {
    const uint8_t *b = data;
    p = mix(p, n);
    for (; n >= 8; n -= 8, b += 8) {
        uint64_t v;
        memcpy(&v, b, 8);
        p = mix(p, v);
    }
    uint64_t v = 0;
    if (n > 0)
        memcpy(&v, b, n);
    return mix(p, v);
}

static print mix_str(print p, oq_str s) {
    return mix_bytes(p, s.p, s.n);
}

/* ---- scopes ---- */

typedef struct value {
    oq_str name;
    print exact, form;
    oq_tensor *init;   /* or NULL */
    uint32_t input;    /* position among the graph's inputs, or OQ_MAP_NONE */
    uint32_t producer; /* node, or OQ_NO_NODE */
    uint32_t slot;
} value;

struct oq_cmp_scope {
    const oq_cmp_scope *parent;
    oq_model *model;
    oq_graph *graph;
    int depth;
    oq_map map;
    OQ_VEC(value) values;
    print *exact, *form; /* of each node */
    uint32_t *to;        /* of each node: its partner in the other graph, or OQ_NO_NODE */
};

static const value *look_up(const oq_cmp_scope *s, oq_str name, const oq_cmp_scope **in) {
    for (; s != NULL; s = s->parent) {
        const uint32_t at = oq_map_find(&s->map, name);
        if (at != OQ_MAP_NONE) {
            *in = s;
            return &s->values.v[at];
        }
    }
    *in = NULL;
    return NULL;
}

static onq_code add_value(oq_cmp *c, oq_cmp_scope *s, const value *v, onq_error *err) {
    const uint32_t at = oq_map_find(&s->map, v->name);
    if (at != OQ_MAP_NONE && v->name.n > 0 &&
        (s->values.v[at].init == NULL || v->input == OQ_MAP_NONE))
        return oq_fail(err, ONQ_E_INVALID,
                       "%s: tensor '%.*s' occurs twice, so what its readers compute is not known",
                       s->model->path, OQ_STR(v->name));
    if (at != OQ_MAP_NONE)
        return ONQ_OK; /* an initializer is the default of the input */
    if (!oq_map_put(&s->map, v->name, (uint32_t)s->values.n) || !OQ_PUSH(c->arena, &s->values, *v))
        return oq_fail_nomem(err);
    return ONQ_OK;
}

static onq_code print_tensor(oq_model *m, oq_tensor *t, bool exact, print *p, onq_error *err) {
    *p = mix(mix(*p, (uint64_t)t->data_type.v), t->dims.n);
    for (size_t i = 0; i < t->dims.n; i++)
        *p = mix(*p, (uint64_t)t->dims.v[i]);
    if (!exact)
        return ONQ_OK;
    if (t->data_type.v == OQ_STRING) {
        for (size_t i = 0; i < t->string_data.n; i++)
            *p = mix_str(*p, t->string_data.v[i]);
        return ONQ_OK;
    }
    oq_span data;
    OQ_TRY_IN(oq_model_data(m, t, &data, err), err, "%s", m->path);
    *p = mix_bytes(*p, data.p, data.n);
    if (data.n > (1u << 20))
        oq_model_drop_pages(m);
    return ONQ_OK;
}

static onq_code print_graph(oq_cmp *c, oq_model *m, oq_graph *g, const oq_cmp_scope *parent,
                            int depth, oq_cmp_scope **out, print *exact, print *form,
                            onq_error *err);

/* Attributes in any order: the sum of their prints. */
static onq_code print_attributes(oq_cmp *c, const oq_cmp_scope *s, const oq_node *n, print *exact,
                                 print *form, onq_error *err) {
    print sum_exact = {0, 0}, sum_form = {0, 0};
    for (size_t i = 0; i < n->attribute.n; i++) {
        const oq_attribute *a = n->attribute.v[i];
        print e = mix(mix_str((print){1, 2}, a->name), (uint64_t)a->type.v);
        e = mix(mix_str(e, a->s), (uint64_t)a->i.v);
        e = mix_bytes(e, a->ints.v, a->ints.n * sizeof *a->ints.v);
        for (size_t k = 0; k < a->strings.n; k++)
            e = mix_str(e, a->strings.v[k]);
        print f = e;
        e = mix_bytes(e, &a->f.v, sizeof a->f.v);
        e = mix_bytes(e, a->floats.v, a->floats.n * sizeof *a->floats.v);
        if (a->t != NULL) {
            OQ_TRY(print_tensor(s->model, a->t, true, &e, err));
            OQ_TRY(print_tensor(s->model, a->t, false, &f, err));
        }
        for (size_t k = 0; k < a->tensors.n; k++)
            OQ_TRY(print_tensor(s->model, a->tensors.v[k], true, &e, err));
        for (size_t k = 0; k <= a->graphs.n; k++) {
            oq_graph *g = k < a->graphs.n ? a->graphs.v[k] : a->g;
            if (g == NULL)
                continue;
            print ge = {0, 0}, gf = {0, 0};
            oq_cmp_scope *inner = NULL;
            OQ_TRY(print_graph(c, s->model, g, s, s->depth + 1, &inner, &ge, &gf, err));
            e = mix_print(e, ge);
            f = mix_print(f, gf);
        }
        sum_exact = (print){sum_exact.x + e.x, sum_exact.y + e.y};
        sum_form = (print){sum_form.x + f.x, sum_form.y + f.y};
    }
    *exact = mix_print(*exact, sum_exact);
    *form = mix_print(*form, sum_form);
    return ONQ_OK;
}

static onq_code print_node(oq_cmp *c, oq_cmp_scope *s, uint32_t at, onq_error *err) {
    const oq_node *n = s->graph->node.v[at];
    print e = mix_str(mix_str((print){3, 4}, oq_domain_plain(n->domain)), n->op_type), f = e;
    for (size_t i = 0; i < oq_cmp_trimmed(&n->input); i++) {
        const oq_cmp_scope *in;
        const value *v = n->input.v[i].n > 0 ? look_up(s, n->input.v[i], &in) : NULL;
        e = v != NULL ? mix_print(e, v->exact) : mix(e, 5);
        f = v != NULL ? mix_print(f, v->form) : mix(f, 5);
    }
    OQ_TRY(print_attributes(c, s, n, &e, &f, err));
    s->exact[at] = mix(e, oq_cmp_trimmed(&n->output));
    s->form[at] = mix(f, oq_cmp_trimmed(&n->output));
    for (size_t i = 0; i < n->output.n; i++) {
        const value v = {
            .name = n->output.v[i],
            .exact = mix(s->exact[at], i),
            .form = mix(s->form[at], i),
            .input = OQ_MAP_NONE,
            .producer = at,
            .slot = (uint32_t)i,
        };
        if (v.name.n > 0)
            OQ_TRY(add_value(c, s, &v, err));
    }
    return ONQ_OK;
}

static onq_code add_sources(oq_cmp *c, oq_cmp_scope *s, onq_error *err) {
    oq_graph *g = s->graph;
    for (size_t i = 0; i < g->initializer.n; i++) {
        value v = {.name = g->initializer.v[i]->name,
                   .exact = {6, 7},
                   .form = {6, 7},
                   .init = g->initializer.v[i],
                   .input = OQ_MAP_NONE,
                   .producer = OQ_NO_NODE};
        OQ_TRY(print_tensor(s->model, v.init, true, &v.exact, err));
        OQ_TRY(print_tensor(s->model, v.init, false, &v.form, err));
        OQ_TRY(add_value(c, s, &v, err));
    }
    for (size_t i = 0; i < g->input.n; i++) {
        const print p = mix(mix((print){8, 9}, (uint64_t)s->depth), i);
        const value v = {.name = g->input.v[i]->name,
                         .exact = p,
                         .form = p,
                         .input = (uint32_t)i,
                         .producer = OQ_NO_NODE};
        OQ_TRY(add_value(c, s, &v, err));
    }
    return ONQ_OK;
}

/* Makes the scope of a graph, and the prints of its outputs together. */
static onq_code print_graph(oq_cmp *c, oq_model *m, oq_graph *g, const oq_cmp_scope *parent,
                            int depth, oq_cmp_scope **out, print *exact, print *form,
                            onq_error *err) {
    if (depth > OQ_MAX_GRAPH_DEPTH)
        return oq_fail(err, ONQ_E_LIMIT, "graphs are nested more than %d deep", OQ_MAX_GRAPH_DEPTH);
    oq_cmp_scope *s = OQ_NEW(c->arena, oq_cmp_scope);
    OQ_TRY_ALLOC(s != NULL, err);
    s->parent = parent;
    s->model = m;
    s->graph = g;
    s->depth = depth;
    oq_map_init(&s->map, c->arena);
    s->exact = OQ_NEW_ARRAY(c->arena, print, g->node.n);
    s->form = OQ_NEW_ARRAY(c->arena, print, g->node.n);
    s->to = OQ_NEW_ARRAY(c->arena, uint32_t, g->node.n);
    OQ_TRY_ALLOC(s->exact != NULL && s->form != NULL && s->to != NULL, err);
    OQ_TRY(add_sources(c, s, err));
    oq_index ix;
    uint32_t *order;
    OQ_TRY(oq_index_build(&ix, c->arena, g, NULL, err));
    OQ_TRY_IN(oq_topo_order(&ix, c->arena, &order, err), err, "%s", m->path);
    for (size_t i = 0; i < g->node.n; i++) {
        s->to[i] = OQ_NO_NODE;
        OQ_TRY(print_node(c, s, order[i], err));
    }
    *exact = *form = mix((print){10, 11}, g->output.n);
    for (size_t i = 0; i < g->output.n; i++) {
        const oq_cmp_scope *in;
        const value *v = look_up(s, g->output.v[i]->name, &in);
        *exact = v != NULL ? mix_print(*exact, v->exact) : mix(*exact, 12);
        *form = v != NULL ? mix_print(*form, v->form) : mix(*form, 12);
    }
    *out = s;
    return ONQ_OK;
}

/* ---- matching ---- */

static onq_code match_nodes(oq_cmp *c, oq_cmp_scope *a, oq_cmp_scope *b, bool exact,
                            onq_error *err) {
    oq_chain chain;
    const size_t n = a->graph->node.n, m = b->graph->node.n;
    const print *pa = exact ? a->exact : a->form, *pb = exact ? b->exact : b->form;
    OQ_TRY_ALLOC(oq_chain_init(&chain, c->arena, m), err);
    for (size_t i = m; i > 0; i--) {
        const oq_str key = {(const char *)&pb[i - 1], sizeof *pb};
        if (b->to[i - 1] == OQ_NO_NODE && !oq_chain_add(&chain, key, (uint32_t)(i - 1)))
            return oq_fail_nomem(err);
    }
    for (size_t i = 0; i < n; i++) {
        if (a->to[i] != OQ_NO_NODE)
            continue;
        const uint32_t k = oq_chain_take(&chain, (oq_str){(const char *)&pa[i], sizeof *pa});
        if (k == OQ_MAP_NONE)
            continue;
        a->to[i] = k;
        b->to[k] = (uint32_t)i;
    }
    return ONQ_OK;
}

/* True if two names, each in its own graph, mean the same value. Constants are compared (and their
 * differences reported). */
static onq_code correspond(oq_cmp *c, const oq_cmp_scope *a, oq_str x, const oq_cmp_scope *b,
                           oq_str y, bool *same, onq_error *err) {
    const oq_cmp_scope *in_a, *in_b;
    const value *u = look_up(a, x, &in_a), *v = look_up(b, y, &in_b);
    *same = true;
    if (x.n == 0 || y.n == 0 || u == NULL || v == NULL) {
        *same = x.n == 0 ? y.n == 0 : u == NULL && v == NULL && oq_str_eq(x, y);
        return ONQ_OK;
    }
    if (u->init != NULL && v->init != NULL)
        return oq_cmp_tensor(c, OQ_DIFF_INITIALIZER, x, "", u->init, v->init, err);
    if (u->producer != OQ_NO_NODE && v->producer != OQ_NO_NODE)
        *same = in_a->depth == in_b->depth && in_a->to[u->producer] == v->producer &&
                u->slot == v->slot;
    else
        *same = in_a->depth == in_b->depth && u->init == v->init && u->producer == v->producer &&
                u->input == v->input;
    return ONQ_OK;
}

static onq_code compare_pair(oq_cmp *c, const oq_cmp_scope *a, const oq_cmp_scope *b, uint32_t at,
                             onq_error *err) {
    const oq_node *x = a->graph->node.v[at], *y = b->graph->node.v[a->to[at]];
    const size_t n = oq_cmp_trimmed(&x->input);
    for (size_t i = 0; i < n && i < y->input.n; i++) {
        bool same;
        OQ_TRY(correspond(c, a, x->input.v[i], b, y->input.v[i], &same, err));
        if (!same)
            OQ_TRY(oq_cmp_found(c, err, OQ_DIFF_NODE, oq_node_label(x),
                                "input %zu comes from another place ('%.*s' vs '%.*s')", i,
                                OQ_STR(x->input.v[i]), OQ_STR(y->input.v[i])));
    }
    return oq_cmp_operator(c, x, y, err);
}

/* True if the node is the first of its chain without a partner. */
static bool is_root(const oq_cmp_scope *s, uint32_t at) {
    const oq_node *n = s->graph->node.v[at];
    for (size_t i = 0; i < n->input.n; i++) {
        const oq_cmp_scope *in;
        const value *v = look_up(s, n->input.v[i], &in);
        if (v != NULL && v->producer != OQ_NO_NODE && in->to[v->producer] == OQ_NO_NODE)
            return false;
    }
    return true;
}

static onq_code tell_alone(oq_cmp *c, const oq_cmp_scope *s, const char *which, onq_error *err) {
    size_t behind = 0;
    for (uint32_t i = 0; i < s->graph->node.n; i++) {
        if (s->to[i] != OQ_NO_NODE)
            continue;
        const oq_node *n = s->graph->node.v[i];
        if (!is_root(s, i))
            behind++;
        else
            OQ_TRY(oq_cmp_found(c, err, OQ_DIFF_NODE, oq_node_label(n), "%.*s, only in the %s",
                                OQ_STR(n->op_type), which));
    }
    if (behind > 0)
        OQ_TRY(oq_cmp_found(c, err, OQ_DIFF_NODE, OQ_S(""),
                            "%zu further nodes of the %s follow from those", behind, which));
    return ONQ_OK;
}

onq_code oq_cmp_renamed(oq_cmp *c, oq_graph *ga, oq_graph *gb, onq_error *err) {
    oq_cmp_scope *a = NULL, *b = NULL;
    print ignored[2];
    OQ_TRY(print_graph(c, c->a, ga, c->scope_a, c->depth, &a, &ignored[0], &ignored[1], err));
    OQ_TRY(print_graph(c, c->b, gb, c->scope_b, c->depth, &b, &ignored[0], &ignored[1], err));
    OQ_TRY(match_nodes(c, a, b, true, err));
    OQ_TRY(match_nodes(c, a, b, false, err));
    const oq_cmp_scope *outer_a = c->scope_a, *outer_b = c->scope_b;
    c->scope_a = a;
    c->scope_b = b;
    onq_code rc = ONQ_OK;
    for (uint32_t i = 0; i < ga->node.n && rc == ONQ_OK; i++)
        if (a->to[i] != OQ_NO_NODE)
            rc = compare_pair(c, a, b, i, err);
    c->scope_a = outer_a;
    c->scope_b = outer_b;
    OQ_TRY(rc);
    OQ_TRY(tell_alone(c, a, "first", err));
    OQ_TRY(tell_alone(c, b, "second", err));
    for (size_t i = 0; i < ga->output.n && i < gb->output.n; i++) {
        bool same;
        OQ_TRY(correspond(c, a, ga->output.v[i]->name, b, gb->output.v[i]->name, &same, err));
        if (!same)
            OQ_TRY(oq_cmp_found(c, err, OQ_DIFF_OUTPUT, ga->output.v[i]->name,
                                "output %zu is another value", i));
    }
    return ONQ_OK;
}
