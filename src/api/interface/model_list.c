/*
 * model_list.c — onq_model: the nodes and values of a model, with types, shapes and quantization.
 */
#include "onnx/attr.h"
#include "onnx/graph.h"
#include "onnx/operators.h"
#include "shape/shape.h"

/* A value and where its bytes are. */
typedef struct value {
    onq_value shown;
    oq_tensor *tensor; /* initializers */
} value;

struct onq_model {
    onq_env *env;
    oq_arena arena;
    oq_model *m;
    OQ_VEC(onq_node) nodes;
    OQ_VEC(value) values;
};

/* What listing needs and the caller does not. */
typedef struct listing {
    onq_model *h;
    oq_arena *a; /* of the handle */
    oq_shapes *shapes;
    oq_graph *g;
    size_t graph;
    oq_map map; /* names of this graph -> index in values */
} listing;

/* ---- nodes ---- */

static const char *text(listing *l, oq_str s) {
    return s.n > 0 ? oq_str_cstr(l->a, s) : "";
}

static const char *const *texts(listing *l, const oq_str *v, size_t n) {
    const char **out = OQ_NEW_ARRAY(l->a, const char *, n + 1);
    for (size_t i = 0; out != NULL && i < n; i++)
        if ((out[i] = text(l, v[i])) == NULL)
            return NULL;
    return out;
}

static bool add_node(listing *l, const oq_node *n) {
    const onq_node x = {.name = text(l, n->name),
                        .op_type = text(l, n->op_type),
                        .domain = text(l, n->domain),
                        .inputs = texts(l, n->input.v, n->input.n),
                        .outputs = texts(l, n->output.v, n->output.n),
                        .n_inputs = n->input.n,
                        .n_outputs = n->output.n,
                        .graph = l->graph};
    return x.name != NULL && x.op_type != NULL && x.domain != NULL && x.inputs != NULL &&
           x.outputs != NULL && OQ_PUSH(l->a, &l->h->nodes, x);
}

/* ---- values ---- */

static bool set_shape(listing *l, onq_value *v, const oq_tensor_info *info) {
    v->rank = info->rank;
    int64_t *dims = OQ_NEW_ARRAY(l->a, int64_t, info->rank + 1);
    const char **symbols = OQ_NEW_ARRAY(l->a, const char *, info->rank + 1);
    if (dims == NULL || symbols == NULL)
        return false;
    for (size_t i = 0; i < info->rank; i++) {
        oq_str name = {NULL, 0};
        dims[i] = oq_sdim_is_num(info->dims[i]) ? info->dims[i].n : -1;
        symbols[i] = oq_sdim_is_name(info->dims[i], &name) ? text(l, name) : "";
        if (symbols[i] == NULL)
            return false;
    }
    v->dims = dims;
    v->symbols = symbols;
    return true;
}

/* The value of a name of this graph; a new one if the name is new. */
static bool touch_value(listing *l, oq_str name, unsigned kind, oq_tensor *tensor) {
    const uint32_t at = name.n > 0 ? oq_map_find(&l->map, name) : 0;
    oq_tensor_info info = {0};
    if (name.n == 0)
        return true;
    if (at != OQ_MAP_NONE) {
        l->h->values.v[at].shown.kind |= kind;
        if (tensor != NULL)
            l->h->values.v[at].tensor = tensor;
        return true;
    }
    value x = {.shown = {.name = text(l, name), .kind = kind, .graph = l->graph, .rank = ONQ_NONE},
               .tensor = tensor};
    if (x.shown.name == NULL)
        return false;
    if (oq_shapes_tensor(l->shapes, l->g, name, &info)) {
        x.shown.dtype = info.elem_type;
        if (info.has_shape && !set_shape(l, &x.shown, &info))
            return false;
    }
    return oq_map_put(&l->map, name, (uint32_t)l->h->values.n) && OQ_PUSH(l->a, &l->h->values, x);
}

/* Parameters of a QuantizeLinear or DequantizeLinear for the tensor that it reads. */
static bool note_quantized(listing *l, const oq_node *n) {
    const bool quantize = oq_node_is_quantize(n);
    if (!oq_node_is_pair(n) || n->input.n < 2)
        return true;
    const uint32_t at = oq_map_find(&l->map, n->input.v[0]);
    if (at == OQ_MAP_NONE || l->h->values.v[at].shown.scale != NULL)
        return true; /* of an outer graph, or read by another before */
    const bool zero = n->input.n > 2 && n->input.v[2].n > 0;
    onq_value *v = &l->h->values.v[at].shown;
    v->scale = text(l, n->input.v[1]);
    v->zero_point = zero ? text(l, n->input.v[2]) : NULL;
    v->axis = oq_attr_int(n, "axis", 1);
    v->block_size = oq_attr_int(n, "block_size", 0);
    v->quantized = !quantize ? v->dtype
                   : zero    ? oq_shapes_elem_type(l->shapes, l->g, n->input.v[2])
                             : (int32_t)oq_attr_int(n, "output_dtype", OQ_UINT8);
    return v->scale != NULL && (!zero || v->zero_point != NULL);
}

static bool list_graph(listing *l) {
    const oq_graph *g = l->g;
    bool ok = true;
    for (size_t i = 0; ok && i < g->input.n; i++)
        ok = touch_value(l, g->input.v[i]->name, ONQ_VALUE_INPUT, NULL);
    for (size_t i = 0; ok && i < g->initializer.n; i++)
        ok = touch_value(l, g->initializer.v[i]->name, ONQ_VALUE_INITIALIZER, g->initializer.v[i]);
    for (size_t i = 0; ok && i < g->node.n; i++) {
        ok = add_node(l, g->node.v[i]);
        for (size_t k = 0; ok && k < g->node.v[i]->output.n; k++)
            ok = touch_value(l, g->node.v[i]->output.v[k], 0, NULL);
    }
    for (size_t i = 0; ok && i < g->output.n; i++)
        ok = touch_value(l, g->output.v[i]->name, ONQ_VALUE_OUTPUT, NULL);
    for (size_t i = 0; ok && i < g->node.n; i++)
        ok = note_quantized(l, g->node.v[i]);
    return ok;
}

static onq_code see_graph(void *ctx, oq_graph *g, onq_error *err) {
    listing *l = ctx;
    l->g = g;
    oq_map_init(&l->map, l->a);
    const bool ok = list_graph(l);
    l->graph++;
    return ok ? ONQ_OK : oq_fail_nomem(err);
}

/* ---- the handle ---- */

static onq_code open_model(onq_model *h, const char *path, const onq_bytes *bytes, onq_error *err) {
    listing l = {.h = h, .a = &h->arena};
    const oq_open_options open = {
        .label = bytes != NULL ? bytes->label : NULL,
        .base_dir = bytes != NULL ? bytes->folder : NULL,
        .open = {bytes != NULL ? bytes->open : NULL, bytes != NULL ? bytes->ctx : NULL}};
    OQ_TRY(bytes != NULL ? oq_model_open_memory(h->env, bytes->data, bytes->size, &open, &h->m, err)
                         : oq_model_open(h->env, path, NULL, &h->m, err));
    OQ_TRY(oq_shapes_infer(h->m, NULL, &l.shapes, err));
    const onq_code rc = oq_walk_graphs(h->m->proto->graph, see_graph, &l, err);
    oq_shapes_free(l.shapes);
    return rc == ONQ_OK ? rc : oq_error_in(err, rc, "%s", h->m->path);
}

onq_code onq_model_open(onq_env *env, const char *path, const onq_bytes *bytes, onq_model **out,
                        onq_error *err) {
    onq_model *h = oq_calloc(&env->alloc, 1, sizeof *h);
    *out = NULL;
    OQ_TRY_ALLOC(h != NULL, err);
    h->env = env;
    oq_arena_init(&h->arena, &env->alloc);
    const onq_code rc = open_model(h, path, bytes, err);
    if (rc == ONQ_OK)
        *out = h;
    else
        onq_model_free(h);
    return rc;
}

void onq_model_free(onq_model *model) {
    if (model == NULL)
        return;
    const onq_allocator *alloc = &model->env->alloc;
    oq_model_free(model->m);
    oq_arena_release(&model->arena);
    oq_free(alloc, model, sizeof *model);
}

int64_t onq_model_opset(const onq_model *model, const char *domain) {
    return oq_model_opset(model->m, oq_str_of(domain));
}

const onq_node *onq_model_node(const onq_model *model, size_t i) {
    return i < model->nodes.n ? &model->nodes.v[i] : NULL;
}

const onq_value *onq_model_value(const onq_model *model, size_t i) {
    return i < model->values.n ? &model->values.v[i].shown : NULL;
}

onq_code onq_model_data(onq_model *model, size_t i, onq_tensor *out, onq_error *err) {
    value *v = i < model->values.n ? &model->values.v[i] : NULL;
    oq_span data = {NULL, 0};
    *out = (onq_tensor){0};
    if (v == NULL || v->tensor == NULL)
        return oq_fail(err, ONQ_E_INVALID, "value %zu is not an initializer", i);
    oq_tensor *t = v->tensor;
    *out = (onq_tensor){
        .name = v->shown.name, .dtype = t->data_type.v, .rank = t->dims.n, .dims = t->dims.v};
    if (t->data_type.v == OQ_STRING) {
        out->strings = texts(&(listing){.a = &model->arena}, t->string_data.v, t->string_data.n);
        return out->strings != NULL ? ONQ_OK : oq_fail_nomem(err);
    }
    OQ_TRY(oq_model_data(model->m, t, &data, err));
    out->data = data.p;
    out->size = (size_t)data.n;
    return ONQ_OK;
}
