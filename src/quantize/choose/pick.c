/*
 * pick.c — lists of names and patterns.
 */
#include "quantize/choose/pick.h"

#include "base/text/nearest.h"
#include "onnx/graph.h"
#include "quantize/rules.h"

#include <stdlib.h>

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

/* ---- patterns ---- */

enum {
    MAX_GROUPS = 64,
    MAX_PARTS = 4000,       /* a few kilobytes each, once compiled */
    LONGEST_MATCHED = 1024, /* the time grows with the square of a name's length */
};

/* The place after a bracket expression, in which "]" may come first and [:classes:] are. */
static const char *after_bracket(const char *p) {
    p += p[1] == '^' ? 2 : 1;
    if (*p == ']')
        p++;
    for (; *p != '\0' && *p != ']'; p++) {
        if (*p != '[' || p[1] == '\0' || strchr(":.=", p[1]) == NULL)
            continue;
        const char close[] = {p[1], ']', '\0'}, *end = strstr(p + 2, close);
        p = end != NULL ? end + 1 : p;
    }
    return *p != '\0' ? p + 1 : p;
}

/* How often "{m,n}" repeats what is before it; *end is after it. */
static size_t repeats(const char *p, const char **end) {
    char *rest;
    unsigned long n = strtoul(p + 1, &rest, 10);
    if (*rest == ',') {
        const unsigned long most = strtoul(rest + 1, &rest, 10);
        n = most > n ? most : n + (n < MAX_PARTS);
    }
    *end = rest + (*rest == '}');
    return n > MAX_PARTS ? MAX_PARTS + 1 : n > 0 ? n : 1;
}

/* What the C library makes of a pattern has a part for each character with repetitions written
 * out, so that a short one can take gigabytes; and back-references take time without end. Says
 * what is wrong with a pattern of that kind, or NULL. */
static const char *too_much(const char *p) {
    size_t sums[MAX_GROUPS] = {0}, last = 0, depth = 0;
    while (*p != '\0') {
        size_t times = 1;
        if (*p == '(') {
            if (++depth == MAX_GROUPS)
                return "groups are too deep";
            sums[depth] = last = 0;
            p++;
            continue;
        }
        if (*p == ')' && depth > 0) {
            last = sums[depth--] + 1;
            p++;
        } else if (*p == '{') {
            times = repeats(p, &p);
        } else if (*p == '+') {
            times = 2; /* a+ is aa* */
            p++;
        } else if (*p == '*' || *p == '?') {
            p++;
            continue;
        } else if (*p == '\\' && p[1] >= '1' && p[1] <= '9') {
            return "back-references are not for patterns";
        } else {
            last = 1;
            p = *p == '[' ? after_bracket(p) : p + (*p == '\\' && p[1] != '\0' ? 2 : 1);
        }
        sums[depth] += times > 1 ? last * (times - 1) : last;
        last *= times;
        if (sums[depth] > MAX_PARTS)
            return "its repetitions are too many";
    }
    return NULL;
}

static onq_code add_pattern(oq_pick *p, oq_pick_entry *e, onq_error *err) {
    const oq_str body = {e->text.p + 3, e->text.n - 3};
    const char *c = oq_str_cstr(p->arena, body);
    regex_t *re = OQ_NEW(p->arena, regex_t);
    if (c == NULL || re == NULL)
        return oq_fail_nomem(err);
    const char *wrong = too_much(c);
    if (wrong != NULL)
        return oq_fail(err, ONQ_E_OPTION, "pattern '%.*s': %s", OQ_STR(e->text), wrong);
    const int rc = regcomp(re, c, REG_EXTENDED | REG_NOSUB);
    if (rc != 0) {
        char why[128];
        regerror(rc, re, why, sizeof why);
        return oq_fail(err, ONQ_E_OPTION, "pattern '%.*s': %s", OQ_STR(e->text), why);
    }
    e->pattern = re;
    p->n_patterns++;
    return ONQ_OK;
}

static onq_code add_entry(oq_pick *p, oq_str text, bool pattern, onq_error *err) {
    oq_pick_entry e = {.text = oq_str_copy(p->arena, text)};
    if (e.text.p == NULL)
        return oq_fail_nomem(err);
    if (pattern)
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

onq_code oq_pick_add(oq_pick *p, oq_str text, onq_error *err) {
    return add_entry(p, text, oq_str_starts(text, OQ_S("re:")), err);
}

onq_code oq_pick_add_name(oq_pick *p, oq_str name, onq_error *err) {
    return add_entry(p, name, false, err);
}

/* A pattern sees a name up to its first NUL byte. */
static bool matches(const regex_t *re, oq_str name) {
    char text[LONGEST_MATCHED + 1];
    if (name.n > LONGEST_MATCHED)
        return false;
    if (name.n > 0)
        memcpy(text, name.p, name.n);
    text[name.n] = '\0';
    return regexec(re, text, 0, NULL, 0) == 0;
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

/* ---- what matched nothing ---- */

/* Goes over the nodes of all graphs: by their names, or by their operator types. */
typedef struct look {
    oq_pick *pick;
    bool types;
    oq_nearest near;
} look;

static oq_str name_of(const look *l, const oq_node *n) {
    return l->types ? n->op_type : n->name;
}

static onq_code see_hits(void *ctx, oq_graph *g, onq_error *err) {
    look *l = ctx;
    (void)err;
    for (size_t i = 0; i < g->node.n; i++)
        oq_pick_has(l->pick, name_of(l, g->node.v[i]));
    return ONQ_OK;
}

static onq_code see_near(void *ctx, oq_graph *g, onq_error *err) {
    look *l = ctx;
    (void)err;
    for (size_t i = 0; i < g->node.n; i++)
        oq_nearest_offer(&l->near, name_of(l, g->node.v[i]));
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
        OQ_TRY(oq_walk_graphs(g, see_near, l, err));
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
    OQ_TRY(oq_walk_graphs(g, see_hits, l, err));
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
