/*
 * plan_read.c — reading a plan, and asking it.
 */
#include "quantize/plan_read.h"

#include "onnx/graph.h"
#include "onnx/operators.h"
#include "quantize/number/qtype.h"

/* ---- reading ---- */

static oq_str text_of(oq_arena *a, const json_t *row, const char *key) {
    const json_t *v = json_object_get(row, key);
    return json_is_string(v) ? oq_str_copy(a, (oq_str){json_string_value(v), json_string_length(v)})
                             : OQ_S("");
}

/* Which of `n` names the text is; -1: none. */
static int choice(const char *text, const char *(*name)(int i), int n) {
    for (int i = 0; text != NULL && i < n; i++)
        if (strcmp(text, name(i)) == 0)
            return i;
    return -1;
}

static const char *fate_at(int i) {
    return oq_fate_name((oq_plan_fate)i);
}
static const char *by_at(int i) {
    return oq_plan_by_name((oq_plan_by)i);
}
static const char *role_at(int i) {
    return oq_plan_role_name((oq_plan_role)i);
}

/* How a weight of few bits is quantized; which numbers there are is known to nbits.h. */
static onq_code read_bits(const oq_given *g, const json_t *j, oq_plan_node *row, onq_error *err) {
    const json_t *bits = json_object_get(j, "bits"), *block = json_object_get(j, "block_size");
    const json_t *level = json_object_get(j, "accuracy_level");
    const json_t *symmetric = json_object_get(j, "symmetric");
    if (bits == NULL)
        return ONQ_OK;
    if (json_integer_value(bits) < 1 || json_integer_value(bits) > 32 ||
        (block != NULL && json_integer_value(block) < 1 && json_integer_value(block) != -1) ||
        (symmetric != NULL && !json_is_boolean(symmetric)) ||
        (level != NULL && (!json_is_integer(level) || json_integer_value(level) < 0 ||
                           json_integer_value(level) > 4)))
        return oq_fail(err, ONQ_E_CONFIG,
                       "node '%.*s': 'bits', 'block_size', 'accuracy_level' or 'symmetric' is not "
                       "such a number or true or false",
                       OQ_STR(row->name));
    row->bits = (unsigned)json_integer_value(bits);
    row->block =
        block == NULL || json_integer_value(block) < 0 ? 0 : (uint64_t)json_integer_value(block);
    row->symmetric = json_is_true(symmetric);
    row->method = text_of(g->arena, j, "method");
    row->accuracy_level = json_integer_value(level);
    return ONQ_OK;
}

static onq_code read_node(oq_given *g, const json_t *j, onq_error *err) {
    oq_plan_node row = {.name = text_of(g->arena, j, "name"),
                        .op_type = text_of(g->arena, j, "op_type"),
                        .output = text_of(g->arena, j, "output")};
    const oq_str why = text_of(g->arena, j, "why");
    const int fate = choice(json_string_value(json_object_get(j, "treatment")), fate_at, 3);
    const int by = choice(json_string_value(json_object_get(j, "by")), by_at, 3);
    if (fate < 0)
        return oq_fail(err, ONQ_E_CONFIG,
                       "node '%.*s': 'treatment' is not one of quantized, removed, float",
                       OQ_STR(row.name));
    row.fate = (oq_plan_fate)fate;
    OQ_TRY(read_bits(g, j, &row, err));
    /* A row that somebody set to float has no `by`: that is a choice. */
    row.by = by >= 0 ? (oq_plan_by)by : OQ_BY_CHOICE;
    row.why = why.n > 0 ? why.p : "left float by the plan";
    if (row.name.p == NULL || row.op_type.p == NULL || row.output.p == NULL || why.p == NULL ||
        !oq_plan_add_node(&g->plan, row))
        return oq_fail_nomem(err);
    return ONQ_OK;
}

static const json_t *item(const json_t *list, size_t i) {
    return json_is_array(list) ? json_array_get(list, i) : list;
}

/* scale and zero_point: a number each, or lists of one length. */
static onq_code read_params(oq_given *g, const json_t *j, oq_plan_tensor *t, onq_error *err) {
    const json_t *scale = json_object_get(j, "scale"), *zero = json_object_get(j, "zero_point");
    t->n = json_is_array(scale) ? json_array_size(scale) : 1;
    if (zero == NULL || json_is_array(scale) != json_is_array(zero) || t->n == 0 ||
        (json_is_array(zero) && json_array_size(zero) != t->n))
        return oq_fail(err, ONQ_E_CONFIG,
                       "'scale' and 'zero_point' must be two numbers or two lists of one length");
    float *s = OQ_NEW_ARRAY(g->arena, float, t->n);
    int32_t *z = OQ_NEW_ARRAY(g->arena, int32_t, t->n);
    OQ_TRY_ALLOC(s != NULL && z != NULL, err);
    const oq_qtype_info *info = oq_qtype_find(t->type);
    for (uint64_t i = 0; i < t->n; i++) {
        double d = 0.0;
        const json_t *whole = item(zero, (size_t)i);
        const json_int_t v = json_integer_value(whole);
        if (!oq_json_real(item(scale, (size_t)i), &d) || !isfinite((float)d) || (float)d <= 0.0f)
            return oq_fail(err, ONQ_E_CONFIG, "a scale is not a positive float");
        if (!json_is_integer(whole) || (t->role != OQ_ROLE_BIAS && !info->is_float &&
                                        (v < info->full.min || v > info->full.max)))
            return oq_fail(err, ONQ_E_CONFIG, "a zero_point is not a value of its type");
        s[i] = (float)d;
        z[i] = (int32_t)v;
    }
    t->scale = s;
    t->zero = z;
    return ONQ_OK;
}

static onq_code read_tensor(oq_given *g, const json_t *j, onq_error *err) {
    const int role = choice(json_string_value(json_object_get(j, "role")), role_at, 3);
    const json_t *axis = json_object_get(j, "axis"), *block = json_object_get(j, "block_size");
    const oq_str type = text_of(g->arena, j, "type");
    oq_plan_tensor t = {.name = text_of(g->arena, j, "name"),
                        .axis = json_is_integer(axis) ? json_integer_value(axis) : -1,
                        .block = json_is_integer(block) ? (uint64_t)json_integer_value(block) : 0,
                        .same_as = text_of(g->arena, j, "same_as"),
                        .computed = json_is_true(json_object_get(j, "computed")),
                        .converted = json_is_true(json_object_get(j, "converted")),
                        .adjusted = json_is_true(json_object_get(j, "adjusted")),
                        .why = "the plan"};
    if (role < 0)
        return oq_fail(err, ONQ_E_CONFIG,
                       "tensor '%.*s': 'role' is not one of activation, weight, bias",
                       OQ_STR(t.name));
    t.role = (oq_plan_role)role;
    onq_code rc = ONQ_OK;
    if (t.role != OQ_ROLE_BIAS && type.n > 0 && !oq_qtype_parse(type, &t.type))
        rc = oq_fail(err, ONQ_E_CONFIG, "type '%.*s' is not one of: %s", OQ_STR(type),
                     oq_qtype_names());
    else if (json_object_get(j, "scale") != NULL)
        rc = t.role != OQ_ROLE_BIAS && t.type == 0
                 ? oq_fail(err, ONQ_E_CONFIG, "it has a scale but no type")
                 : read_params(g, j, &t, err);
    if (rc != ONQ_OK)
        return oq_error_in(err, rc, "tensor '%.*s'", OQ_STR(t.name));
    const uint32_t row = (uint32_t)g->plan.tensors.n, first = oq_map_find(&g->tensors, t.name);
    if (!oq_plan_add_tensor(&g->plan, t) || !OQ_PUSH(g->arena, &g->next, OQ_MAP_NONE) ||
        !OQ_PUSH(g->arena, &g->taken, false))
        return oq_fail_nomem(err);
    if (first == OQ_MAP_NONE)
        return oq_map_put(&g->tensors, t.name, row) ? ONQ_OK : oq_fail_nomem(err);
    uint32_t last = first;
    while (g->next.v[last] != OQ_MAP_NONE)
        last = g->next.v[last];
    g->next.v[last] = row;
    return ONQ_OK;
}

static onq_code read_options(oq_given *g, const json_t *options, onq_error *err) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)options, key, value) {
        const oq_str name = oq_str_copy(g->arena, oq_str_of(key));
        for (size_t i = 0; i < (json_is_array(value) ? json_array_size(value) : 1); i++) {
            const json_t *one = item(value, i);
            if (!json_is_string(one))
                return oq_fail(err, ONQ_E_CONFIG, "option '%s' is not a text", key);
            const oq_str text =
                oq_str_copy(g->arena, (oq_str){json_string_value(one), json_string_length(one)});
            if (name.p == NULL || text.p == NULL || !OQ_PUSH(g->arena, &g->options, name) ||
                !OQ_PUSH(g->arena, &g->options, text))
                return oq_fail_nomem(err);
        }
    }
    return ONQ_OK;
}

static onq_code read_rows(oq_given *g, const json_t *root, onq_error *err) {
    const json_t *nodes = json_object_get(root, "nodes");
    const json_t *tensors = json_object_get(root, "tensors");
    if (!json_is_array(nodes) || !json_is_array(tensors))
        return oq_fail(
            err, ONQ_E_CONFIG,
            "it is not a plan: 'nodes' or 'tensors' is missing (--plan FILE writes one)");
    g->command = text_of(g->arena, root, "command");
    OQ_TRY_ALLOC(g->command.p != NULL, err);
    for (size_t i = 0; i < json_array_size(nodes); i++)
        OQ_TRY(read_node(g, json_array_get(nodes, i), err));
    for (size_t i = 0; i < json_array_size(tensors); i++)
        OQ_TRY(read_tensor(g, json_array_get(tensors, i), err));
    return read_options(g, json_object_get(root, "options"), err);
}

onq_code oq_given_read(oq_given *g, oq_arena *a, const onq_allocator *alloc, const char *path,
                       onq_error *err) {
    json_t *root = NULL;
    *g = (oq_given){.path = path, .arena = a};
    oq_plan_init(&g->plan, a);
    oq_map_init(&g->tensors, a);
    OQ_TRY(oq_json_read(alloc, path, &root, err));
    const onq_code rc = read_rows(g, root, err);
    json_decref(root);
    return rc == ONQ_OK ? rc : oq_error_in(err, rc, "%s", path);
}

/* ---- nodes ---- */

typedef struct binding {
    oq_given *g;
    oq_map rows;     /* key of a row -> the first row of that key that is still free */
    uint32_t *after; /* row -> the next row of the same key */
} binding;

/* What distinguishes nodes: the output, or the name of a node without outputs. */
static oq_str key_of(oq_str name, oq_str output) {
    return output.n > 0 ? output : name;
}

static onq_code bind_graph(void *ctx, oq_graph *graph, onq_error *err) {
    binding *b = ctx;
    for (size_t i = 0; i < graph->node.n; i++) {
        const oq_node *n = graph->node.v[i];
        const oq_str key = key_of(n->name, n->output.n > 0 ? n->output.v[0] : (oq_str){0});
        const uint32_t row = oq_map_find(&b->rows, key);
        if (row == OQ_MAP_NONE)
            continue;
        const oq_given_bind bind = {n, &b->g->plan.nodes.v[row]};
        if (!oq_str_eq(bind.row->op_type, n->op_type))
            return oq_fail(
                err, ONQ_E_CONFIG, "%s: node '%.*s' is a %.*s in the plan, but a %.*s in the model",
                b->g->path, OQ_STR(bind.row->name), OQ_STR(bind.row->op_type), OQ_STR(n->op_type));
        if (bind.row->fate == OQ_FATE_REMOVED && !oq_op_traits_of(n->op_type)->clips)
            return oq_fail(err, ONQ_E_CONFIG,
                           "%s: node '%.*s' (%.*s) is removed in the plan, and only nodes that "
                           "clip, as Relu does, can be",
                           b->g->path, OQ_STR(bind.row->name), OQ_STR(n->op_type));
        OQ_TRY_ALLOC(OQ_PUSH(b->g->arena, &b->g->of, bind), err);
        /* Branches of an If may use one name twice: the next one gets the next row. */
        if (b->after[row] != OQ_MAP_NONE && !oq_map_put(&b->rows, key, b->after[row]))
            return oq_fail_nomem(err);
    }
    return ONQ_OK;
}

static int by_address(const void *a, const void *b) {
    const oq_node *x = ((const oq_given_bind *)a)->node, *y = ((const oq_given_bind *)b)->node;
    return (x > y) - (x < y);
}

onq_code oq_given_bind_nodes(oq_given *g, oq_model *m, onq_error *err) {
    if (g == NULL)
        return ONQ_OK;
    const size_t n = g->plan.nodes.n;
    binding b = {.g = g, .after = OQ_NEW_ARRAY(g->arena, uint32_t, n + 1)};
    oq_map_init(&b.rows, g->arena);
    g->of.n = 0;
    for (size_t i = 0; i < g->taken.n; i++)
        g->taken.v[i] = false;
    OQ_TRY_ALLOC(b.after != NULL, err);
    for (size_t i = n; i-- > 0;) { /* backwards, so that the first row of a key comes first */
        const oq_str key = key_of(g->plan.nodes.v[i].name, g->plan.nodes.v[i].output);
        b.after[i] = oq_map_find(&b.rows, key);
        OQ_TRY_ALLOC(oq_map_put(&b.rows, key, (uint32_t)i), err);
    }
    OQ_TRY(oq_walk_graphs(m->proto->graph, bind_graph, &b, err));
    if (g->of.n > 1)
        qsort(g->of.v, g->of.n, sizeof *g->of.v, by_address);
    g->bound = true;
    return ONQ_OK;
}

const oq_plan_node *oq_given_node(const oq_given *g, const oq_node *n) {
    const oq_given_bind key = {.node = n};
    const oq_given_bind *found =
        g->of.n > 0 ? bsearch(&key, g->of.v, g->of.n, sizeof *g->of.v, by_address) : NULL;
    return found != NULL ? found->row : NULL;
}

const char *oq_given_skip(const oq_given *g, const oq_node *n) {
    const oq_plan_node *row = oq_given_node(g, n);
    if (row == NULL)
        return "not in the plan";
    return row->fate == OQ_FATE_FLOAT && row->by != OQ_BY_RULE ? row->why : NULL;
}

onq_code oq_given_refuse(const oq_given *g, const oq_node *n, const char *why, onq_error *err) {
    const oq_plan_node *row = g != NULL ? oq_given_node(g, n) : NULL;
    if (row == NULL || row->fate == OQ_FATE_FLOAT)
        return ONQ_OK;
    return oq_fail(err, ONQ_E_CONFIG, "%s quantizes it, but this cannot be: %s", g->path, why);
}

/* ---- tensors ---- */

const oq_plan_tensor *oq_given_activation(const oq_given *g, oq_str name, bool converted) {
    for (uint32_t i = oq_map_find(&g->tensors, name); i != OQ_MAP_NONE; i = g->next.v[i]) {
        const oq_plan_tensor *t = &g->plan.tensors.v[i];
        if (t->role == OQ_ROLE_ACTIVATION && t->converted == converted)
            return t;
    }
    return NULL;
}

const oq_plan_tensor *oq_given_weight(oq_given *g, oq_str name, oq_plan_role role) {
    for (uint32_t i = oq_map_find(&g->tensors, name); i != OQ_MAP_NONE; i = g->next.v[i]) {
        const oq_plan_tensor *t = &g->plan.tensors.v[i];
        if (t->role == role && t->scale != NULL && !g->taken.v[i]) {
            g->taken.v[i] = true;
            return t;
        }
    }
    return NULL;
}

uint32_t oq_given_row(const oq_given *g, oq_str name, oq_plan_role role) {
    uint32_t i = oq_map_find(&g->tensors, name);
    while (i != OQ_MAP_NONE && g->plan.tensors.v[i].role != role)
        i = g->next.v[i];
    return i;
}
