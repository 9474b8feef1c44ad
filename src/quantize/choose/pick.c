/*
 * pick.c — lists of names and patterns.
 */
#include "quantize/choose/pick.h"

#include "base/text/nearest.h"
#include "onnx/graph.h"
#include "quantize/rules.h"

void oq_pick_init(oq_pick *p, oq_arena *arena) {
    *p = (oq_pick){.arena = arena};
    oq_map_init(&p->names, arena);
}

/* ---- patterns ---- */

static onq_code add_pattern(oq_pick *p, oq_pick_entry *e, onq_error *err) {
    const oq_str body = {e->text.p + 3, e->text.n - 3};
    const char *c = oq_str_cstr(p->arena, body);
    OQ_TRY_ALLOC(c != NULL, err);
    OQ_TRY_IN(oq_regex_compile(p->arena, c, &e->pattern, err), err, "pattern '%.*s'",
              OQ_STR(e->text));
    p->n_patterns++;
    return ONQ_OK;
}

static onq_code add_entry(oq_pick *p, oq_str text, bool pattern, onq_error *err) {
    oq_pick_entry e = {.text = oq_str_copy(p->arena, text)};
    OQ_TRY_ALLOC(e.text.p != NULL, err);
    if (pattern)
        OQ_TRY(add_pattern(p, &e, err));
    else if (oq_map_has(&p->names, e.text))
        return ONQ_OK;
    else if (!oq_map_put(&p->names, e.text, (uint32_t)p->entries.n))
        return oq_fail_nomem(err);
    return OQ_PUSH(p->arena, &p->entries, e) ? ONQ_OK : oq_fail_nomem(err);
}

onq_code oq_pick_add(oq_pick *p, oq_str text, onq_error *err) {
    return add_entry(p, text, oq_str_starts(text, OQ_S("re:")), err);
}

onq_code oq_pick_add_name(oq_pick *p, oq_str name, onq_error *err) {
    return add_entry(p, name, false, err);
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
        if (e->pattern != NULL && oq_regex_match(e->pattern, name, NULL))
            found = e->hit = true;
    }
    return found;
}

/* ---- what matched nothing ---- */

/* Goes over the nodes of all graphs: by their names, or by their operator types. */
typedef struct look {
    oq_pick *pick;
    bool types, looks_near;
    oq_nearest near;
} look;

/* Notes which entries have a node; or, while one is looked for, how near the nodes are to it. */
static onq_code see(void *ctx, oq_graph *g, onq_error *err) {
    look *l = ctx;
    (void)err;
    for (size_t i = 0; i < g->node.n; i++) {
        const oq_str name = l->types ? g->node.v[i]->op_type : g->node.v[i]->name;
        if (l->looks_near)
            oq_nearest_offer(&l->near, name);
        else
            oq_pick_has(l->pick, name);
    }
    return ONQ_OK;
}

static onq_code report_one(look *l, const oq_pick_entry *e, const onq_env *env, oq_graph *g,
                           const char *option, bool strict, onq_error *err) {
    oq_str best = {0};
    const char *what = e->pattern != NULL ? "no node matches the pattern"
                       : l->types         ? "no node is a"
                                          : "no node is called";
    if (e->pattern == NULL) {
        oq_nearest_init(&l->near, e->text);
        l->looks_near = true;
        OQ_TRY(oq_walk_graphs(g, see, l, err));
        best = l->near.n > 0 ? l->near.best[0] : best;
    }
    const bool any = best.n > 0;
    if (strict)
        return oq_fail(err, ONQ_E_INVALID, "%s: %s '%.*s'%s%.*s%s", option, what, OQ_STR(e->text),
                       any ? " (did you mean '" : "", OQ_STR(best), any ? "'?)" : "");
    const char *where = !any && !l->types ? " (onq inspect --nodes lists the names)" : "";
    oq_warn(env, "%s: %s '%.*s'%s%.*s%s%s", option, what, OQ_STR(e->text),
            any ? "; the nearest is '" : "", OQ_STR(best), any ? "'" : "", where);
    return ONQ_OK;
}

static onq_code report(look *l, const onq_env *env, oq_graph *g, const char *option, bool strict,
                       onq_error *err) {
    l->looks_near = false;
    OQ_TRY(oq_walk_graphs(g, see, l, err));
    for (size_t i = 0; i < l->pick->entries.n; i++) {
        const oq_pick_entry *e = &l->pick->entries.v[i];
        const bool known = l->types && e->pattern == NULL && oq_rules_modes(e->text) != 0;
        if (!e->hit && !known)
            OQ_TRY(report_one(l, e, env, g, option, strict, err));
    }
    return ONQ_OK;
}

onq_code oq_pick_report_types(oq_pick *p, const onq_env *env, oq_graph *g, const char *option,
                              bool strict, onq_error *err) {
    look l = {.pick = p, .types = true};
    return report(&l, env, g, option, strict, err);
}

onq_code oq_pick_report(oq_pick *p, const onq_env *env, oq_graph *g, const char *option,
                        bool strict, onq_error *err) {
    look l = {.pick = p};
    return oq_pick_is_empty(p) ? ONQ_OK : report(&l, env, g, option, strict, err);
}
