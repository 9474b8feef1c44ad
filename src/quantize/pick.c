/*
 * pick.c — lists of names and patterns.
 */
#include "quantize/pick.h"

#include "onnx/graph.h"
#include "quantize/rules.h"

#define NEAR_MOST 24 /* a name with more edits than that is not near */

void oq_pick_init(oq_pick *p, oq_arena *arena) {
    *p = (oq_pick){.arena = arena};
    oq_map_init(&p->names, arena);
}

void oq_pick_release(oq_pick *p) {
    for (size_t i = 0; i < p->entries.n; i++)
        if (p->entries.v[i].pattern != NULL)
            regfree(p->entries.v[i].pattern);
    p->entries.n = 0;
}

static onq_code add_pattern(oq_pick *p, oq_pick_entry *e, onq_error *err) {
    const oq_str body = {e->text.p + 3, e->text.n - 3};
    const char *c = oq_str_cstr(p->arena, body);
    regex_t *re = OQ_NEW(p->arena, regex_t);
    if (c == NULL || re == NULL)
        return oq_fail_nomem(err);
    const int rc = regcomp(re, c, REG_EXTENDED | REG_NOSUB);
    if (rc != 0) {
        char why[128];
        regerror(rc, re, why, sizeof(why));
        return oq_fail(err, ONQ_E_OPTION, "pattern '%.*s': %s", OQ_STR(e->text), why);
    }
    e->pattern = re;
    p->n_patterns++;
    return ONQ_OK;
}

onq_code oq_pick_add(oq_pick *p, oq_str text, onq_error *err) {
    oq_pick_entry e = {.text = oq_str_copy(p->arena, text)};
    if (e.text.p == NULL)
        return oq_fail_nomem(err);
    if (oq_str_starts(text, OQ_S("re:")))
        OQ_TRY(add_pattern(p, &e, err));
    else if (oq_map_has(&p->names, e.text))
        return ONQ_OK;
    else if (!oq_map_put(&p->names, e.text, (uint32_t)p->entries.n))
        return oq_fail_nomem(err);
    if (!OQ_PUSH(p->arena, &p->entries, e)) {
        if (e.pattern != NULL)
            regfree(e.pattern);
        return oq_fail_nomem(err);
    }
    return ONQ_OK;
}

/* A pattern sees a name up to its first NUL byte. */
static bool matches(const regex_t *re, oq_str name) {
    regmatch_t whole = {.rm_so = 0, .rm_eo = (regoff_t)name.n};
    return regexec(re, name.n > 0 ? name.p : "", 1, &whole, REG_STARTEND) == 0;
}

bool oq_pick_has(oq_pick *p, oq_str name) {
    bool found = false;
    const uint32_t i = oq_map_find(&p->names, name);
    if (i != OQ_MAP_NONE)
        found = p->entries.v[i].hit = true;
    if (p->n_patterns == 0)
        return found;
    for (size_t k = 0; k < p->entries.n; k++) {
        oq_pick_entry *e = &p->entries.v[k];
        if (e->pattern != NULL && matches(e->pattern, name))
            found = e->hit = true;
    }
    return found;
}

/* ---- what matched nothing */

typedef struct nearest {
    oq_pick *pick;
    bool types; /* of operator types, not of names */
    oq_str wanted, best;
    size_t distance;
} nearest;

static onq_code see_names(void *ctx, oq_graph *g, oq_node *owner, onq_error *err) {
    (void)owner;
    (void)err;
    for (size_t i = 0; i < g->node.n; i++)
        oq_pick_has(ctx, g->node.v[i]->name);
    return ONQ_OK;
}

static onq_code see_distance(void *ctx, oq_graph *g, oq_node *owner, onq_error *err) {
    nearest *near = ctx;
    (void)owner;
    (void)err;
    for (size_t i = 0; i < g->node.n && near->distance > 0; i++) {
        const oq_str name = near->types ? g->node.v[i]->op_type : g->node.v[i]->name;
        if (name.n == 0)
            continue;
        const size_t d = oq_str_distance(near->wanted, name, near->distance);
        if (d < near->distance) {
            near->distance = d;
            near->best = name;
        }
    }
    return ONQ_OK;
}

static onq_code report_one(const oq_pick_entry *e, const onq_env *env, oq_graph *g,
                           const char *option, bool strict, onq_error *err) {
    nearest near = {.wanted = e->text, .distance = NEAR_MOST};
    if (e->pattern == NULL)
        OQ_TRY(oq_walk_graphs(g, see_distance, &near, err));
    const char *what = e->pattern != NULL ? "pattern" : "name";
    if (strict && near.best.p != NULL)
        return oq_fail(err, ONQ_E_INVALID, "%s: no node is called '%.*s' (did you mean '%.*s'?)",
                       option, OQ_STR(e->text), OQ_STR(near.best));
    if (strict)
        return oq_fail(err, ONQ_E_INVALID, "%s: no node matches the %s '%.*s'", option, what,
                       OQ_STR(e->text));
    if (near.best.p != NULL)
        oq_warn(env, "%s: no node is called '%.*s'; the nearest is '%.*s'", option, OQ_STR(e->text),
                OQ_STR(near.best));
    else
        oq_warn(env, "%s: no node matches the %s '%.*s'", option, what, OQ_STR(e->text));
    return ONQ_OK;
}

static onq_code see_types(void *ctx, oq_graph *g, oq_node *owner, onq_error *err) {
    (void)owner;
    (void)err;
    for (size_t i = 0; i < g->node.n; i++)
        oq_pick_has(ctx, g->node.v[i]->op_type);
    return ONQ_OK;
}

onq_code oq_pick_report_types(oq_pick *p, const onq_env *env, oq_graph *g, bool strict,
                              onq_error *err) {
    static const char option[] = "--op_types_to_quantize";
    OQ_TRY(oq_walk_graphs(g, see_types, p, err));
    for (size_t i = 0; i < p->entries.n; i++) {
        const oq_pick_entry *e = &p->entries.v[i];
        nearest near = {.wanted = e->text, .types = true, .distance = NEAR_MOST};
        if (e->hit || (e->pattern == NULL && oq_rules_modes(e->text) != 0))
            continue;
        if (e->pattern == NULL)
            OQ_TRY(oq_walk_graphs(g, see_distance, &near, err));
        const oq_str best = near.best.p != NULL ? near.best : OQ_S("");
        if (strict)
            return oq_fail(err, ONQ_E_INVALID, "%s: no node is a '%.*s'%s%.*s%s", option,
                           OQ_STR(e->text), best.n > 0 ? " (did you mean '" : "", OQ_STR(best),
                           best.n > 0 ? "'?)" : "");
        oq_warn(env, "%s: no node is a '%.*s'%s%.*s%s", option, OQ_STR(e->text),
                best.n > 0 ? "; the nearest is '" : "", OQ_STR(best), best.n > 0 ? "'" : "");
    }
    return ONQ_OK;
}

onq_code oq_pick_report(oq_pick *p, const onq_env *env, oq_graph *g, const char *option,
                        bool strict, onq_error *err) {
    if (oq_pick_is_empty(p))
        return ONQ_OK;
    OQ_TRY(oq_walk_graphs(g, see_names, p, err));
    for (size_t i = 0; i < p->entries.n; i++)
        if (!p->entries.v[i].hit)
            OQ_TRY(report_one(&p->entries.v[i], env, g, option, strict, err));
    return ONQ_OK;
}
