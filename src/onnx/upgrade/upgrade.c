/*
 * upgrade.c — the driver of the opset upgrader: opset by opset, graph by graph, node by node.
 *
 * What is special is the names. The converter imports the model into a graph whose values are
 * numbered as they are made: the omitted input, the graph's inputs, its initializers, the outputs
 * of its nodes, names captured from outside. A number is skipped when a value that is already there
 * (in the graph or in one inside it) has the name _v_N. import_graph repeats that count; see
 * onnx/common/ir_pb_converter.cc and ir.h (getNextUnique).
 */
#include "onnx/upgrade/upgrade.h"

#include "onnx/operators.h"
#include "onnx/upgrade/upgrade_parts.h"

typedef struct row {
    int64_t to;
    oq_str op;
    oq_up_adapter adapt;
} row;

/* Rows without an adapter are OQ_UP_SAME's. */
static const row rows[] = {
#define OQ_UP_SAME(to, op)     {to, {op, sizeof(op) - 1}, NULL},
#define OQ_UP(to, op, adapter) {to, {op, sizeof(op) - 1}, oq_up_##adapter},
#include "onnx/upgrade/upgrade.def"
#undef OQ_UP
#undef OQ_UP_SAME
};

static const row *find_row(int64_t to, oq_str op) {
    for (size_t i = 0; i < OQ_COUNT(rows); i++)
        if (rows[i].to == to && oq_str_eq(rows[i].op, op))
            return &rows[i];
    return NULL;
}

bool oq_opset_changed(oq_str op, int64_t to) {
    return find_row(to, op) != NULL;
}

static bool any_adapter(int64_t to) {
    for (size_t i = 0; i < OQ_COUNT(rows); i++)
        if (rows[i].to == to && rows[i].adapt != NULL)
            return true;
    return false;
}

/* ---- numbered names ---- */

/* True and the number for exactly the text "_v_N". */
static bool number_of(oq_str name, uint64_t *out) {
    if (name.n < 4 || name.n > 3 + 18 || memcmp(name.p, "_v_", 3) != 0)
        return false;
    uint64_t v = 0;
    for (size_t i = 3; i < name.n; i++) {
        if (name.p[i] < '0' || name.p[i] > '9')
            return false;
        v = v * 10 + (uint64_t)(name.p[i] - '0');
    }
    *out = v;
    return name.n == 4 || name.p[3] != '0';
}

/* A value of that name is there. Only numbered names matter. */
static bool note_name(oq_up_graph *g, oq_str name) {
    uint64_t n = 0;
    if (!number_of(name, &n))
        return true;
    for (oq_up_graph *at = g; at != NULL; at = at->parent)
        at->numbered_most = at->numbered_most > n ? at->numbered_most : n;
    return oq_map_put(&g->numbered, name, 0);
}

static bool is_taken(const oq_up_graph *g, oq_str name, uint64_t n) {
    if (n > g->numbered_most)
        return false;
    if (oq_map_has(&g->numbered, name))
        return true;
    for (size_t i = 0; i < g->inner.n; i++)
        if (is_taken(g->inner.v[i], name, n))
            return true;
    return false;
}

static void next_number(oq_up_graph *g) {
    char text[32];
    oq_str name;
    do {
        g->count++;
        name = (oq_str){
            text, (size_t)snprintf(text, sizeof text, "_v_%llu", (unsigned long long)g->count)};
    } while (is_taken(g, name, g->count));
}

void oq_up_skip_value(oq_up_graph *g) {
    next_number(g);
}

bool oq_up_take_over(oq_up_graph *g, oq_str name) {
    oq_map_remove(&g->numbered, name);
    next_number(g);
    return note_name(g, name);
}

/* ---- types ---- */

const oq_up_type *oq_up_type_of(const oq_up_graph *g, oq_str name) {
    static const oq_up_type nothing = {0};
    const uint32_t renamed = oq_map_find(&g->renamed, name);
    if (renamed != OQ_MAP_NONE)
        name = g->rename_to.v[renamed];
    const uint32_t at = oq_map_find(&g->types, name);
    return at != OQ_MAP_NONE ? &g->type_list.v[at] : &nothing;
}

bool oq_up_set_type(oq_upgrade *u, oq_up_graph *g, oq_str name, oq_up_type type) {
    const uint32_t at = oq_map_find(&g->types, name);
    if (at != OQ_MAP_NONE) {
        g->type_list.v[at] = type;
        return true;
    }
    return OQ_PUSH(&u->scratch, &g->type_list, type) &&
           oq_map_put(&g->types, name, (uint32_t)(g->type_list.n - 1));
}

bool oq_up_is_known(const oq_up_graph *g, oq_str name) {
    return oq_map_has(&g->types, name);
}

/* What a value_info adds to what is known. */
static bool add_info(oq_upgrade *u, oq_up_graph *g, oq_value_info *info, bool keep) {
    oq_up_type type = *oq_up_type_of(g, info->name);
    const oq_tensor_type *tensor = info->type != NULL ? info->type->tensor_type : NULL;
    if (tensor != NULL && tensor->elem_type.has)
        type.elem = tensor->elem_type.v;
    if (tensor != NULL && tensor->shape != NULL) {
        type.has_sizes = true;
        type.shape = tensor->shape;
        type.rank = tensor->shape->dim.n;
    }
    if (keep)
        type.info = info;
    return oq_up_set_type(u, g, info->name, type);
}

/* ---- import: the count and the types ---- */

static onq_code import_graph(oq_upgrade *u, oq_graph *g, oq_up_graph *parent, oq_up_graph **out,
                             int depth, onq_error *err);

/* One more value, of this name. */
static bool import_value(oq_upgrade *u, oq_up_graph *g, oq_str name, oq_up_type type) {
    next_number(g);
    return note_name(g, name) && oq_up_set_type(u, g, name, type);
}

static bool import_given(oq_upgrade *u, oq_up_graph *x) {
    const oq_graph *g = x->g;
    bool ok = import_value(u, x, OQ_S(""), (oq_up_type){0});
    for (size_t i = 0; i < g->input.n && ok; i++)
        ok = import_value(u, x, g->input.v[i]->name, (oq_up_type){0}) &&
             add_info(u, x, g->input.v[i], false);
    for (size_t i = 0; i < g->initializer.n && ok; i++) {
        const oq_tensor *t = g->initializer.v[i];
        ok = note_name(x, t->name);
        if (ok && u->m->proto->ir_version.v >= 4 && !oq_up_is_known(x, t->name))
            ok = import_value(
                u, x, t->name,
                (oq_up_type){.elem = t->data_type.v, .has_sizes = true, .rank = t->dims.n});
    }
    for (size_t i = 0; i < g->sparse_initializer.n && ok; i++) {
        const oq_sparse *s = g->sparse_initializer.v[i];
        if (s->values != NULL && !oq_up_is_known(x, s->values->name))
            ok = import_value(
                u, x, s->values->name,
                (oq_up_type){.elem = s->values->data_type.v, .has_sizes = true, .rank = s->dims.n});
    }
    return ok;
}

static onq_code import_node(oq_upgrade *u, oq_up_graph *x, oq_node *n, int depth, onq_error *err) {
    for (size_t k = 0; k < n->output.n; k++)
        OQ_TRY_ALLOC(import_value(u, x, n->output.v[k], (oq_up_type){0}), err);
    oq_graph_cursor at = {0};
    for (oq_graph *sub; (sub = oq_node_next_graph(n, &at)) != NULL;) {
        oq_up_graph *inner = NULL;
        OQ_TRY(import_graph(u, sub, x, &inner, depth + 1, err));
        if (!OQ_PUSH(&u->scratch, &x->inner, inner) || !OQ_PUSH(&u->scratch, &x->owners, n))
            return oq_fail_nomem(err);
    }
    return ONQ_OK;
}

/* Names that are not defined here come from outside; each takes a number, too. */
static bool import_captured(oq_upgrade *u, oq_up_graph *x) {
    const oq_graph *g = x->g;
    for (size_t i = 0; i < g->node.n; i++) {
        const oq_node *n = g->node.v[i];
        for (size_t k = 0; k < n->input.n; k++)
            if (!oq_up_is_known(x, n->input.v[k]) &&
                !import_value(u, x, n->input.v[k], (oq_up_type){0}))
                return false;
    }
    for (size_t i = 0; i < g->output.n; i++)
        if (!oq_up_is_known(x, g->output.v[i]->name) &&
            !import_value(u, x, g->output.v[i]->name, (oq_up_type){0}))
            return false;
    return true;
}

static onq_code import_graph(oq_upgrade *u, oq_graph *g, oq_up_graph *parent, oq_up_graph **out,
                             int depth, onq_error *err) {
    if (depth > OQ_MAX_GRAPH_DEPTH)
        return oq_fail(err, ONQ_E_LIMIT, "graphs are nested more than %d deep", OQ_MAX_GRAPH_DEPTH);
    oq_up_graph *x = OQ_NEW(&u->scratch, oq_up_graph);
    OQ_TRY_ALLOC(x != NULL, err);
    x->g = g;
    x->parent = parent;
    oq_map_init(&x->numbered, &u->scratch);
    oq_map_init(&x->types, &u->scratch);
    oq_map_init(&x->renamed, &u->scratch);
    oq_map_init(&x->outputs, &u->scratch);
    oq_map_init(&x->used, &u->scratch);
    for (size_t i = 0; i < g->output.n; i++)
        OQ_TRY_ALLOC(oq_map_put(&x->outputs, g->output.v[i]->name, 0), err);
    OQ_TRY_ALLOC(import_given(u, x), err);
    for (size_t i = 0; i < g->node.n; i++)
        OQ_TRY(import_node(u, x, g->node.v[i], depth, err));
    bool ok = import_captured(u, x);
    for (size_t i = 0; i < g->output.n && ok; i++)
        ok = add_info(u, x, g->output.v[i], false);
    for (size_t i = 0; i < g->value_info.n && ok; i++)
        if (oq_up_is_known(x, g->value_info.v[i]->name))
            ok = add_info(u, x, g->value_info.v[i], true);
    *out = x;
    return ok ? ONQ_OK : oq_fail_nomem(err);
}

/* ---- renames ----
 *
 * A rename is noted and done later, for all at once. Until then no new value may take the old
 * name. */

static onq_code flush_renames(oq_upgrade *u, oq_up_graph *x, onq_error *err) {
    if (x->rename_to.n == 0)
        return ONQ_OK;
    /* In the middle of a step nodes are in the old list, in the new one, or in both. */
    oq_graph step = {0};
    step.node.v = x->out.v;
    step.node.n = x->out.n;
    OQ_TRY(oq_graph_replace_many(u->m, x->g, &x->renamed, x->rename_to.v, err));
    OQ_TRY(oq_graph_replace_many(u->m, &step, &x->renamed, x->rename_to.v, err));
    for (size_t i = 0; i < x->rename_from.n; i++)
        OQ_TRY_ALLOC(oq_up_set_type(u, x, x->rename_from.v[i], (oq_up_type){0}), err);
    oq_map_init(&x->renamed, &u->scratch);
    x->rename_to.n = x->rename_from.n = 0;
    return ONQ_OK;
}

oq_str oq_up_value(oq_upgrade *u, oq_up_graph *g) {
    const oq_str none = {NULL, 0};
    next_number(g);
    const oq_str name = oq_str_format(u->arena, "_v_%llu", (unsigned long long)g->count);
    if (name.p == NULL)
        return none;
    for (oq_up_graph *at = g; at != NULL; at = at->parent)
        if (oq_map_has(&at->renamed, name) && flush_renames(u, at, NULL) != ONQ_OK)
            return none;
    return note_name(g, name) ? name : none;
}

/* ---- what adapters call ---- */

bool oq_up_before(oq_upgrade *u, oq_up_graph *g, oq_node *n) {
    return OQ_PUSH(&u->scratch, &g->out, n);
}

oq_node *oq_up_node(oq_upgrade *u, oq_up_graph *g, const char *op) {
    oq_node *n = oq_node_new(u->arena, op, (oq_str){NULL, 0});
    if (n == NULL)
        return NULL;
    const oq_str name = oq_up_value(u, g);
    return name.p != NULL && oq_node_add_output(u->arena, n, name) ? n : NULL;
}

/* A Constant that holds `t`, in front of the node. */
static oq_str constant(oq_upgrade *u, oq_up_graph *g, oq_tensor *t) {
    oq_node *n = oq_up_node(u, g, OQ_CONSTANT);
    if (n == NULL || !oq_attr_set_tensor(u->arena, n, OQ_S("value"), t) || !oq_up_before(u, g, n))
        return (oq_str){NULL, 0};
    return n->output.v[0];
}

oq_str oq_up_ints(oq_upgrade *u, oq_up_graph *g, const int64_t *v, size_t n, bool scalar) {
    const int64_t dims[] = {(int64_t)n};
    oq_tensor *t = oq_tensor_new(u->arena, (oq_str){NULL, 0}, OQ_INT64, dims, scalar ? 0 : 1);
    if (t == NULL || oq_tensor_set_typed_i(u->arena, t, v, n, NULL) != ONQ_OK)
        return (oq_str){NULL, 0};
    return constant(u, g, t);
}

oq_str oq_up_floats(oq_upgrade *u, oq_up_graph *g, const double *v, size_t n, bool scalar,
                    oq_dtype type) {
    const int64_t dims[] = {(int64_t)n};
    oq_tensor *t = oq_tensor_new(u->arena, (oq_str){NULL, 0}, type, dims, scalar ? 0 : 1);
    if (t == NULL || oq_tensor_set_typed_f(u->arena, t, v, n, NULL) != ONQ_OK)
        return (oq_str){NULL, 0};
    return constant(u, g, t);
}

bool oq_up_is_output(const oq_up_graph *g, oq_str name) {
    return oq_map_has(&g->outputs, name);
}

static onq_code note_use(void *ctx, oq_str *name, onq_error *err) {
    return oq_map_put(ctx, *name, 0) ? ONQ_OK : oq_fail_nomem(err);
}

onq_code oq_up_is_used(oq_upgrade *u, oq_up_graph *g, oq_str name, bool *out, onq_error *err) {
    for (size_t i = 0; !g->used_made && i < g->g->node.n; i++) {
        oq_node *n = g->g->node.v[i];
        for (size_t k = 0; k < n->input.n; k++)
            OQ_TRY(note_use(&g->used, &n->input.v[k], err));
        OQ_TRY(oq_walk_outer_names(&u->m->env->alloc, n, note_use, &g->used, err));
    }
    g->used_made = true;
    *out = name.n != 0 && (oq_map_has(&g->used, name) || oq_up_is_output(g, name));
    return ONQ_OK;
}

/* Graphs inside that take `from` have a value of the new name then. */
static bool rename_captured(oq_up_graph *g, oq_str from, oq_str to) {
    for (size_t i = 0; i < g->inner.n; i++) {
        oq_up_graph *inner = g->inner.v[i];
        if (oq_up_is_known(inner, from)) {
            oq_map_remove(&inner->numbered, from);
            if (!note_name(inner, to))
                return false;
        }
        if (!rename_captured(inner, from, to))
            return false;
    }
    return true;
}

bool oq_up_rename(oq_upgrade *u, oq_up_graph *g, oq_str from, oq_str to) {
    const oq_up_type type = *oq_up_type_of(g, from);
    oq_map_remove(&g->numbered, from); /* its number is free again */
    return OQ_PUSH(&u->scratch, &g->rename_from, from) && OQ_PUSH(&u->scratch, &g->rename_to, to) &&
           oq_map_put(&g->renamed, from, (uint32_t)(g->rename_to.n - 1)) &&
           oq_up_set_type(u, g, to,
                          (oq_up_type){.elem = type.elem,
                                       .has_sizes = type.has_sizes,
                                       .rank = type.rank,
                                       .shape = type.shape}) &&
           rename_captured(g, from, to);
}

/* ---- one step ---- */

static onq_code adapt_node(oq_upgrade *u, oq_up_graph *x, oq_node **node, oq_node **after,
                           onq_error *err) {
    oq_node *n = *node;
    const row *change = oq_domain_is_onnx(n->domain) ? find_row(u->to, n->op_type) : NULL;
    if (change == NULL || change->adapt == NULL)
        return ONQ_OK;
    const onq_code rc = change->adapt(u, x, node, after, err);
    if (rc == ONQ_E_NOMEM)
        return oq_fail_nomem(err);
    return rc == ONQ_OK ? rc
                        : oq_error_in(err, rc, "opset %lld: node '%.*s' (%.*s)", (long long)u->to,
                                      OQ_STR(oq_node_label(n)), OQ_STR(n->op_type));
}

static onq_code step_graph(oq_upgrade *u, oq_up_graph *x, onq_error *err) {
    size_t inner = 0;
    x->out.n = 0;
    for (size_t i = 0; i < x->g->node.n; i++) {
        oq_node *n = x->g->node.v[i], *node = n, *after = NULL;
        OQ_TRY(adapt_node(u, x, &node, &after, err));
        if (!oq_up_before(u, x, node) || (after != NULL && !oq_up_before(u, x, after)))
            return oq_fail_nomem(err);
        for (; inner < x->inner.n && x->owners.v[inner] == n; inner++)
            OQ_TRY(step_graph(u, x->inner.v[inner], err));
    }
    if (x->out.n == x->g->node.n) {
        if (x->out.n != 0)
            memcpy(x->g->node.v, x->out.v, x->out.n * sizeof *x->out.v);
        return ONQ_OK;
    }
    OQ_TRY_ALLOC(oq_graph_set_nodes(u->arena, x->g, x->out.v, x->out.n), err);
    return ONQ_OK;
}

/* ---- the end ---- */

/* The value_infos of node outputs, in the order of the nodes; nothing else, and none that says
 * nothing. */
static onq_code rebuild_infos(oq_upgrade *u, oq_up_graph *x, onq_error *err) {
    oq_graph *g = x->g;
    g->value_info.v = NULL;
    g->value_info.n = g->value_info.cap = 0;
    for (size_t i = 0; i < g->node.n; i++) {
        const oq_node *n = g->node.v[i];
        for (size_t k = 0; k < n->output.n; k++) {
            const oq_str name = n->output.v[k];
            const oq_up_type *type = oq_up_type_of(x, name);
            if (oq_up_is_output(x, name) || (type->elem == 0 && type->rank == 0))
                continue;
            oq_value_info *info = type->info;
            if (info == NULL) {
                info = oq_value_info_new(u->arena, name, type->elem, NULL, 0, false);
                OQ_TRY_ALLOC(info != NULL, err);
                if (type->elem == 0)
                    info->type->tensor_type->elem_type = (oq_opt_i32){0};
                info->type->tensor_type->shape = (oq_shape *)(uintptr_t)type->shape;
            }
            OQ_TRY_ALLOC(OQ_PUSH(u->arena, &g->value_info, info), err);
        }
    }
    return ONQ_OK;
}

static oq_shape *shape_of(const oq_value_info *info) {
    return info->type != NULL && info->type->tensor_type != NULL ? info->type->tensor_type->shape
                                                                 : NULL;
}

/* To the converter an input or a constant that is an output too is one value, which has the sizes
 * of the output, or where it has none those of the input or of the constant. */
static onq_code share_sizes(oq_upgrade *u, oq_up_graph *x, onq_error *err) {
    for (size_t i = 0; i < x->g->output.n; i++) {
        oq_value_info *out = x->g->output.v[i];
        const oq_tensor *t = oq_graph_find_init(x->g, out->name);
        for (size_t k = 0; k < x->g->input.n; k++) {
            oq_value_info *in = x->g->input.v[k];
            if (!oq_str_eq(in->name, out->name))
                continue;
            if (shape_of(out) != NULL)
                in->type = out->type;
            else
                out->type = in->type;
        }
        if (t == NULL || shape_of(out) != NULL)
            continue;
        const oq_value_info *sized =
            oq_value_info_new(u->arena, out->name, t->data_type.v, t->dims.v, t->dims.n, true);
        OQ_TRY_ALLOC(sized != NULL, err);
        out->type = sized->type;
    }
    return ONQ_OK;
}

static onq_code finish_graph(oq_upgrade *u, oq_up_graph *x, onq_error *err) {
    for (size_t i = 0; i < x->inner.n; i++)
        OQ_TRY(finish_graph(u, x->inner.v[i], err));
    x->out.n = 0;
    OQ_TRY(flush_renames(u, x, err));
    OQ_TRY(share_sizes(u, x, err));
    return rebuild_infos(u, x, err);
}

/* One graph and all inside it, from opset `from` to `to`. */
static onq_code upgrade_graph(oq_model *m, oq_graph *g, int64_t from, int64_t to, onq_error *err) {
    oq_upgrade u = {.m = m, .arena = &m->arena};
    oq_arena_init(&u.scratch, &m->env->alloc);
    oq_up_graph *x = NULL;
    onq_code rc = import_graph(&u, g, NULL, &x, 1, err);
    for (u.to = from + 1; rc == ONQ_OK && u.to <= to; u.to++)
        if (any_adapter(u.to))
            rc = step_graph(&u, x, err);
    if (rc == ONQ_OK)
        rc = finish_graph(&u, x, err);
    oq_arena_release(&u.scratch);
    return rc;
}

/* ---- functions: the converter drops them, onq does not ---- */

static oq_opset *default_opset(oq_opset *const *v, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (oq_domain_is_onnx(v[i]->domain))
            return v[i];
    return NULL;
}

/* An import may be there twice. */
static void set_default_opset(oq_opset *const *v, size_t n, int64_t version) {
    for (size_t i = 0; i < n; i++)
        if (oq_domain_is_onnx(v[i]->domain))
            v[i]->version = OQ_I64(version);
}

/* The converter writes both fields of every import, those that the model left out too. */
static void state_imports(oq_opset *const *v, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (v[i]->domain.p == NULL)
            v[i]->domain = OQ_S("");
        v[i]->version = OQ_I64(v[i]->version.v);
    }
}

static onq_code upgrade_function(oq_model *m, oq_function *f, int64_t target, onq_error *err) {
    const oq_opset *o = default_opset(f->opset_import.v, f->opset_import.n);
    if (o == NULL || o->version.v >= target)
        return ONQ_OK;
    oq_graph body = {0};
    for (size_t i = 0; i < f->input.n; i++) {
        oq_value_info *info = OQ_NEW(&m->arena, oq_value_info);
        OQ_TRY_ALLOC(info != NULL && OQ_PUSH(&m->arena, &body.input, info), err);
        info->name = f->input.v[i];
    }
    for (size_t i = 0; i < f->output.n; i++) {
        oq_value_info *info = OQ_NEW(&m->arena, oq_value_info);
        OQ_TRY_ALLOC(info != NULL && OQ_PUSH(&m->arena, &body.output, info), err);
        info->name = f->output.v[i];
    }
    memcpy(&body.node, &f->node, sizeof body.node);
    memcpy(&body.value_info, &f->value_info, sizeof body.value_info);
    OQ_TRY_IN(upgrade_graph(m, &body, o->version.v, target, err), err, "function '%.*s'",
              OQ_STR(f->name));
    if (body.initializer.n != 0)
        return oq_fail(err, ONQ_E_UNSUPPORTED,
                       "function '%.*s': its Pad cannot be brought to opset 11 inside a function",
                       OQ_STR(f->name));
    memcpy(&f->node, &body.node, sizeof body.node);
    memcpy(&f->value_info, &body.value_info, sizeof body.value_info);
    set_default_opset(f->opset_import.v, f->opset_import.n, target);
    return ONQ_OK;
}

onq_code oq_model_upgrade(oq_model *m, int64_t target, onq_error *err) {
    assert(target > 0);
    const oq_model_proto *p = m->proto;
    const oq_opset *o = default_opset(p->opset_import.v, p->opset_import.n);
    if (o == NULL || o->version.v >= target)
        return ONQ_OK;
    if (target > OQ_OPSET_NEWEST)
        return oq_fail(err, ONQ_E_UNSUPPORTED, "opset %lld is not known (the newest is %d)",
                       (long long)target, OQ_OPSET_NEWEST);
    if (o->version.v < OQ_OPSET_OLDEST)
        return oq_fail(
            err, ONQ_E_UNSUPPORTED,
            "opset %lld is too old to be raised (the oldest is %d); export the model again",
            (long long)o->version.v, OQ_OPSET_OLDEST);
    oq_model_touch(m);
    OQ_TRY(upgrade_graph(m, p->graph, o->version.v, target, err));
    for (size_t i = 0; i < p->functions.n; i++)
        OQ_TRY(upgrade_function(m, p->functions.v[i], target, err));
    for (size_t i = 0; i < p->training_info.n; i++) {
        const oq_training *t = p->training_info.v[i];
        if (t->initialization != NULL)
            OQ_TRY(upgrade_graph(m, t->initialization, o->version.v, target, err));
        if (t->algorithm != NULL)
            OQ_TRY(upgrade_graph(m, t->algorithm, o->version.v, target, err));
    }
    set_default_opset(p->opset_import.v, p->opset_import.n, target);
    state_imports(p->opset_import.v, p->opset_import.n);
    return ONQ_OK;
}
