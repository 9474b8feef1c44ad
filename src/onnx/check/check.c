/*
 * check.c — the model as a whole: versions, opset imports, functions; then its graphs and tensors.
 *
 * Graphs are check_graph.c's, payloads check_tensor.c's. Functions are never expanded: that
 * they do not call themselves is found on their call graph.
 */
#include "onnx/check/check.h"

#include "onnx/check/check_parts.h"
#include "onnx/operators.h"

enum {
    IR_NEWEST = 14,
    OPSET_NEWEST = 28, /* of the default domain, onnx 1.23 */
};

/* ---- versions ---- */

onq_code oq_imports_agree(const oq_opset *a, const oq_opset *b, onq_error *err) {
    if (a->version.v == b->version.v ||
        !oq_str_eq(oq_domain_plain(a->domain), oq_domain_plain(b->domain)))
        return ONQ_OK;
    return oq_fail(err, ONQ_E_INVALID,
                   "domain '%.*s' is imported as version %lld and as version %lld",
                   OQ_STR(b->domain), (long long)a->version.v, (long long)b->version.v);
}

static onq_code check_imports(const oq_imports *imports, onq_error *err) {
    for (size_t i = 0; i < imports->n; i++) {
        const oq_opset *o = imports->v[i];
        if (o->version.v < 1)
            return oq_fail(err, ONQ_E_INVALID, "opset version %lld of domain '%.*s' is not valid",
                           (long long)o->version.v, OQ_STR(o->domain));
        if (oq_domain_is_onnx(o->domain) && o->version.v > OPSET_NEWEST)
            return oq_fail(err, ONQ_E_UNSUPPORTED, "opset %lld is not known (the newest is %d)",
                           (long long)o->version.v, OPSET_NEWEST);
        for (size_t k = 0; k < i && imports->n <= 1000; k++)
            OQ_TRY(oq_imports_agree(imports->v[k], o, err));
    }
    if (imports->n > 1000)
        return oq_fail(err, ONQ_E_LIMIT, "%zu opset imports", imports->n);
    return ONQ_OK;
}

static onq_code check_versions(const oq_model_proto *p, const oq_imports *imports, onq_error *err) {
    if (!p->ir_version.has)
        return oq_fail(err, ONQ_E_INVALID, "the model has no ir_version");
    if (p->ir_version.v < 1)
        return oq_fail(err, ONQ_E_INVALID, "ir_version %lld", (long long)p->ir_version.v);
    if (p->ir_version.v > IR_NEWEST)
        return oq_fail(err, ONQ_E_UNSUPPORTED, "ir_version %lld is not known (the newest is %d)",
                       (long long)p->ir_version.v, IR_NEWEST);
    if (imports->n == 0 && !imports->implied)
        return oq_fail(err, ONQ_E_INVALID, "the model imports no opset");
    return check_imports(imports, err);
}

/* ---- functions ---- */

/* What a function is called by: domain, name and overload, with lengths so that nothing is
 * ambiguous. */
static oq_str function_key(oq_arena *a, oq_str domain, oq_str name, oq_str overload) {
    domain = oq_domain_plain(domain);
    oq_str key = oq_str_format(a, "%zu,%zu,", domain.n, name.n);
    if (key.p != NULL)
        key = oq_str_cat(a, key, domain);
    if (key.p != NULL)
        key = oq_str_cat(a, key, name);
    return key.p != NULL ? oq_str_cat(a, key, overload) : key;
}

typedef struct calls {
    oq_arena *arena;
    oq_map ids;      /* key -> function number */
    oq_i64s *edges;  /* functions that function i calls; the main graph comes after the last */
    uint64_t *nodes; /* nodes of its body; with those of its callees once they are counted */
    size_t caller;
} calls;

static onq_code add_call(calls *s, const oq_node *n, onq_error *err) {
    const oq_str key = function_key(s->arena, n->domain, n->op_type, n->overload);
    OQ_TRY_ALLOC(key.p != NULL, err);
    const uint32_t callee = oq_map_find(&s->ids, key);
    if (callee != OQ_MAP_NONE && !OQ_PUSH(s->arena, &s->edges[s->caller], (int64_t)callee))
        return oq_fail_nomem(err);
    return ONQ_OK;
}

static onq_code add_calls(void *ctx, oq_graph *g, onq_error *err) {
    calls *s = ctx;
    s->nodes[s->caller] += g->node.n;
    for (size_t i = 0; i < g->node.n; i++)
        OQ_TRY(add_call(s, g->node.v[i], err));
    return ONQ_OK;
}

/* Depth first with a stack of our own. state: 0 new, 1 on the path, 2 done. */
static onq_code check_recursion(calls *s, const oq_model_proto *p, onq_error *err) {
    const size_t n = p->functions.n + 1;
    uint8_t *state = OQ_NEW_ARRAY(s->arena, uint8_t, n);
    size_t *path = OQ_NEW_ARRAY(s->arena, size_t, n), *next = OQ_NEW_ARRAY(s->arena, size_t, n);
    OQ_TRY_ALLOC(state != NULL && path != NULL && next != NULL, err);
    for (size_t root = 0; root < n; root++) {
        if (state[root] != 0)
            continue;
        size_t depth = 0;
        path[depth++] = root;
        state[root] = 1;
        while (depth != 0) {
            const size_t at = path[depth - 1];
            if (next[at] == s->edges[at].n) {
                state[at] = 2;
                depth--;
                for (size_t i = 0; i < s->edges[at].n; i++)
                    if (__builtin_add_overflow(s->nodes[at], s->nodes[s->edges[at].v[i]],
                                               &s->nodes[at]))
                        s->nodes[at] = UINT64_MAX;
                continue;
            }
            const size_t callee = (size_t)s->edges[at].v[next[at]++];
            if (state[callee] == 1)
                return oq_fail(err, ONQ_E_INVALID, "function '%.*s' calls itself",
                               OQ_STR(p->functions.v[callee]->name));
            if (state[callee] == 0) {
                state[callee] = 1;
                path[depth++] = callee;
            }
        }
    }
    return ONQ_OK;
}

/* Fills `s` with the calls. The main graph counts as a function after the last. */
static onq_code find_calls(calls *s, oq_arena *a, const oq_model_proto *p, onq_error *err) {
    *s = (calls){.arena = a,
                 .edges = OQ_NEW_ARRAY(a, oq_i64s, p->functions.n + 1),
                 .nodes = OQ_NEW_ARRAY(a, uint64_t, p->functions.n + 1)};
    oq_map_init(&s->ids, a);
    OQ_TRY_ALLOC(s->edges != NULL && s->nodes != NULL, err);
    for (size_t i = 0; i < p->functions.n; i++) {
        const oq_function *f = p->functions.v[i];
        const oq_str key = function_key(a, f->domain, f->name, f->overload);
        OQ_TRY_ALLOC(key.p != NULL, err);
        if (oq_map_has(&s->ids, key))
            return oq_fail(err, ONQ_E_INVALID, "function '%.*s' of domain '%.*s' occurs twice",
                           OQ_STR(f->name), OQ_STR(f->domain));
        OQ_TRY_ALLOC(oq_map_put(&s->ids, key, (uint32_t)i), err);
    }
    for (size_t i = 0; i < p->functions.n; i++) {
        s->caller = i;
        oq_graph body = {0};
        body.node.v = p->functions.v[i]->node.v;
        body.node.n = p->functions.v[i]->node.n;
        OQ_TRY(oq_walk_graphs(&body, add_calls, s, err));
    }
    s->caller = p->functions.n;
    return oq_walk_graphs(p->graph, add_calls, s, err);
}

static onq_code check_functions(oq_check *c, onq_error *err) {
    const oq_model_proto *p = c->m->proto;
    if (p->functions.n == 0)
        return ONQ_OK;
    calls s;
    OQ_TRY(find_calls(&s, &c->arena, p, err));
    OQ_TRY(check_recursion(&s, p, err));
    for (size_t i = 0; i < p->functions.n; i++) {
        oq_function *f = p->functions.v[i];
        const oq_imports imports = {.v = f->opset_import.v, .n = f->opset_import.n};
        onq_code rc = check_imports(&imports, err);
        if (rc == ONQ_OK)
            rc = oq_check_function(c, f, &imports, err);
        if (rc != ONQ_OK)
            return oq_error_in(err, rc, "function '%.*s'", OQ_STR(f->name));
    }
    return ONQ_OK;
}

/* ---- all ---- */

static onq_code check_all(oq_check *c, onq_error *err) {
    const oq_model_proto *p = c->m->proto;
    const oq_imports imports = {.v = p->opset_import.v,
                                .n = p->opset_import.n,
                                .implied = p->opset_import.n == 0 && p->ir_version.v < 3};
    if (p->graph == NULL)
        return oq_fail(err, ONQ_E_INVALID, "the model has no graph");
    OQ_TRY(check_versions(p, &imports, err));
    OQ_TRY(oq_check_graph(c, p->graph, &imports, err));
    OQ_TRY(check_functions(c, err));
    return oq_walk_tensors(c->m, oq_check_tensor, c, err);
}

static onq_code check(oq_model *m, oq_index *index, onq_error *err) {
    oq_check c = {.m = m, .main = index};
    oq_arena_init(&c.arena, &m->env->alloc);
    const onq_code rc = check_all(&c, err);
    oq_arena_release(&c.arena);
    return rc == ONQ_OK ? rc : oq_error_in(err, rc, "%s", m->path);
}

onq_code oq_model_check(oq_model *m, onq_error *err) {
    return check(m, NULL, err);
}

onq_code oq_model_check_index(oq_model *m, oq_arena *arena, oq_index *out, onq_error *err) {
    *out = (oq_index){.arena = arena};
    return check(m, out, err);
}

#ifndef NDEBUG
void oq_assert_valid(oq_model *m, const char *who) {
    onq_error err = ONQ_ERROR_INIT;
    oq_check c = {.m = m};
    oq_arena_init(&c.arena, &m->env->alloc);
    const onq_code rc = oq_check_graph(&c, m->proto->graph, NULL, &err);
    oq_arena_release(&c.arena);
    if (rc == ONQ_OK || rc == ONQ_E_NOMEM)
        return;
    fprintf(stderr, "%s left a model that is not valid: %s\n", who, err.text);
    abort();
}
#endif

onq_code oq_model_expanded(const oq_model *m, uint64_t *stored, uint64_t *expanded,
                           onq_error *err) {
    const oq_model_proto *p = m->proto;
    calls s;
    OQ_SCRATCH(arena, &m->env->alloc);
    *stored = *expanded = 0;
    OQ_TRY(find_calls(&s, &arena, p, err));
    for (size_t i = 0; i <= p->functions.n; i++)
        *stored += s.nodes[i];
    OQ_TRY(check_recursion(&s, p, err));
    *expanded = s.nodes[p->functions.n];
    return ONQ_OK;
}
