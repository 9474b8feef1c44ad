/*
 * node_method.c — reading methods of nodes.
 */
#include "quantize/choose/node_method.h"

#include "base/text/json.h"
#include "onnx/graph.h"
#include "quantize/choose/pick.h"

static const struct {
    const char *name;
    bool samples;
} rows[OQ_METHODS] = {
    [OQ_METHOD_GENERAL] = {.name = ""},
#define OQ_METHOD(id, name, samples, what) [OQ_METHOD_##id] = {name, samples},
#include "quantize/choose/node_method.def"
#undef OQ_METHOD
};

static const char all_names[] =
#define OQ_METHOD(id, name, samples, what) ", " name
#include "quantize/choose/node_method.def"
#undef OQ_METHOD
    ;

const char *oq_method_name(oq_method method) {
    return rows[method].name;
}

bool oq_method_needs_samples(oq_method method) {
    return rows[method].samples;
}

void oq_node_methods_init(oq_node_methods *m, oq_arena *arena) {
    *m = (oq_node_methods){.arena = arena};
    oq_map_init(&m->map, arena);
}

const oq_node_method *oq_node_methods_find(const oq_node_methods *m, const oq_node *n) {
    const uint32_t i = m->all.n > 0 ? oq_map_find(&m->map, oq_node_label(n)) : OQ_MAP_NONE;
    return i != OQ_MAP_NONE ? &m->all.v[i] : NULL;
}

onq_code oq_method_parse(oq_str text, oq_node_method *out, onq_error *err) {
    const char *colon = text.n > 0 ? memchr(text.p, ':', text.n) : NULL;
    const oq_str name = {text.p, colon != NULL ? (size_t)(colon - text.p) : text.n};
    int64_t n = OQ_OUTLIERS_DEFAULT;
    for (size_t i = 1; i < OQ_COUNT(rows); i++) {
        if (!oq_str_is(name, rows[i].name))
            continue;
        const oq_str count = {text.p + name.n + 1, colon != NULL ? text.n - name.n - 1 : 0};
        if (colon != NULL &&
            (i != OQ_METHOD_OUTLIERS || !oq_str_to_i64(count, &n) || n < 1 || n > OQ_MAX_OUTLIERS))
            break;
        out->method = (oq_method)i;
        out->channels = i == OQ_METHOD_OUTLIERS ? (uint32_t)n : 0;
        return ONQ_OK;
    }
    return oq_fail(err, ONQ_E_CONFIG, "'%.*s' is not a method (%s, outliers:N)", OQ_STR(text),
                   all_names + 2);
}

static onq_code read_node(oq_node_methods *m, oq_str node, const json_t *v, onq_error *err) {
    oq_node_method row = {.node = oq_str_copy(m->arena, node)};
    OQ_TRY_ALLOC(row.node.p != NULL, err);
    if (!json_is_string(v))
        return oq_fail(err, ONQ_E_CONFIG, "its method is not a text");
    OQ_TRY(oq_method_parse((oq_str){json_string_value(v), json_string_length(v)}, &row, err));
    if (!oq_map_put(&m->map, row.node, (uint32_t)m->all.n) || !OQ_PUSH(m->arena, &m->all, row))
        return oq_fail_nomem(err);
    return ONQ_OK;
}

onq_code oq_node_methods_load(oq_node_methods *m, const onq_allocator *alloc, const char *path,
                              onq_error *err) {
    json_t *root = NULL;
    OQ_TRY(oq_json_read(alloc, path, &root, err));
    onq_code rc =
        json_is_object(root)
            ? ONQ_OK
            : oq_fail(err, ONQ_E_CONFIG, "%s: it must be a dictionary of nodes and methods", path);
    for (void *it = json_object_iter(root); it != NULL && rc == ONQ_OK;
         it = json_object_iter_next(root, it)) {
        const oq_str node = oq_str_of(json_object_iter_key(it));
        rc = read_node(m, node, json_object_iter_value(it), err);
        if (rc != ONQ_OK)
            oq_error_in(err, rc, "%s: node '%.*s'", path, OQ_STR(node));
    }
    json_decref(root);
    return rc;
}

typedef struct look {
    const oq_node_methods *methods;
    bool *hit;
} look;

static onq_code see_hits(void *ctx, oq_graph *g, onq_error *err) {
    const look *l = ctx;
    (void)err;
    for (size_t i = 0; i < g->node.n; i++) {
        const oq_node_method *found = oq_node_methods_find(l->methods, g->node.v[i]);
        if (found != NULL)
            l->hit[found - l->methods->all.v] = true;
    }
    return ONQ_OK;
}

onq_code oq_node_methods_report(const oq_node_methods *m, const onq_env *env, oq_graph *g,
                                bool strict, onq_error *err) {
    oq_pick names;
    look l = {m, OQ_NEW_ARRAY(m->arena, bool, m->all.n + 1)};
    OQ_TRY_ALLOC(l.hit != NULL, err);
    oq_pick_init(&names, m->arena);
    onq_code rc = oq_walk_graphs(g, see_hits, &l, err);
    for (size_t i = 0; i < m->all.n && rc == ONQ_OK; i++)
        if (!l.hit[i])
            rc = oq_pick_add_name(&names, m->all.v[i].node, err);
    if (rc == ONQ_OK)
        rc = oq_pick_report(&names, env, g, "--node_methods", strict, err);
    return rc;
}
