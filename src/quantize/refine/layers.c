/*
 * layers.c — see layers.h: which nodes are layers, and what the float model calls their results.
 */
#include "quantize/refine/layers.h"

#include "onnx/attr.h"
#include "onnx/edit.h"
#include "onnx/tensor.h"
#include "quantize/refine/unpack.h"

#define MAX_STEPS 4 /* activations between a product and the tensor it was renamed to */

typedef struct finder {
    oq_layers *l;
    oq_layer_editor e;
    oq_index flt;
    oq_graph stepped; /* the model's graph and the float nodes beside it */
} finder;

static bool has_scale(const oq_node *dq) {
    return oq_node_is_dequantize(dq) && dq->input.n >= 2;
}

/* ---- the counterpart in the float model ---- */

/* The quantizers keep the name of a tensor, or put these after it. */
static const oq_node *maker_of(const oq_index *flt, oq_str quantized) {
    static const char *const suffixes[] = {"", "_QuantizeLinear_Input", "_quantized"};
    for (size_t i = 0; i < OQ_COUNT(suffixes); i++) {
        oq_str name = quantized;
        (void)oq_str_cut_end(&name, suffixes[i]);
        const oq_node *n = oq_index_producer(flt, name);
        if (n != NULL)
            return n;
    }
    return NULL;
}

/* A Relu or Clip that the quantized range replaces gives its name to the tensor before it. */
static const oq_node *counterpart(const oq_index *flt, const oq_layer *l) {
    const oq_node *n = maker_of(flt, l->last->output.v[0]);
    for (int i = 0; n != NULL && i < MAX_STEPS; i++) {
        const oq_op_traits *t = oq_op_traits_of(n->op_type);
        if (t->form == OQ_FORM_FLOAT && t->product == l->product)
            return n->output.n > 0 && n->input.n > 1 ? n : NULL;
        if (!t->clips || n->input.n == 0)
            return NULL;
        n = oq_index_producer(flt, n->input.v[0]);
    }
    return NULL;
}

/* ---- one node ---- */

/* Read by others too, itself or what a DequantizeLinear makes of it. */
static bool is_shared(const oq_index *ix, const oq_layer *l) {
    const oq_value *v = oq_index_find(ix, l->weight->name);
    bool shared = v == NULL || v->uses.n != (l->low != NULL ? 2 : 1);
    for (size_t i = 0; !shared && i < v->uses.n; i++) {
        const oq_node *reader = ix->graph->node.v[v->uses.v[i].node];
        const oq_value *quantized =
            has_scale(reader) ? oq_index_find(ix, reader->output.v[0]) : NULL;
        shared = quantized != NULL && quantized->uses.n != 1;
    }
    return shared;
}

/* The product of the residual, and the Sub that joins both. */
static void find_double(const oq_index *ix, oq_layer *l) {
    const oq_value *v = oq_index_find(ix, l->node->output.v[0]);
    if (l->product != OQ_MATMUL || v == NULL || v->uses.n != 1 || v->uses.v[0].slot != 0)
        return;
    oq_node *sub = ix->graph->node.v[v->uses.v[0].node];
    oq_node *low = oq_str_is(sub->op_type, "Sub") && sub->input.n == 2
                       ? oq_index_producer(ix, sub->input.v[1])
                       : NULL;
    if (low == NULL || !oq_str_is(low->op_type, "MatMul") || low->input.n != 2)
        return;
    const oq_node *dq = oq_index_producer(ix, low->input.v[1]);
    if (!has_scale(dq) || !oq_str_eq(dq->input.v[0], l->weight->name))
        return;
    l->low = low;
    l->last = sub;
}

/* The scale and zero point of a weight and the weight itself, of either form. */
static bool find_weight(const oq_index *ix, const oq_node *n, const oq_op_traits *t, oq_layer *l) {
    const size_t at = (size_t)oq_op_slot(t->weight);
    if (n->input.n <= at || n->output.n == 0 || n->output.v[0].n == 0)
        return false;
    if (t->form == OQ_FORM_FLOAT) {
        const oq_node *dq = oq_index_producer(ix, n->input.v[at]);
        if (!has_scale(dq))
            return false;
        l->weight = oq_index_init(ix, dq->input.v[0]);
        l->weight_scale = dq->input.v[1];
        l->weight_zero = dq->input.n > 2 ? dq->input.v[2] : (oq_str){0};
    } else {
        if (n->input.n < at + 3)
            return false;
        l->weight = oq_index_init(ix, n->input.v[at]);
        l->weight_scale = n->input.v[at + 1];
        l->weight_zero = n->input.v[at + 2];
    }
    l->scale_tensor = oq_index_init(ix, l->weight_scale);
    l->zero_tensor = l->weight_zero.n > 0 ? oq_index_init(ix, l->weight_zero) : NULL;
    return l->weight != NULL;
}

/* False: the weight has none. */
static bool count_channels(const oq_node *n, oq_product product, const oq_tensor *weight,
                           uint64_t *out) {
    const oq_i64s *dims = &weight->dims;
    int64_t channels = 0;
    if (dims->n < 2)
        return false;
    switch (product) {
    case OQ_CONV:
        channels = dims->v[0];
        break;
    case OQ_CONV_TRANSPOSE:
        if (__builtin_mul_overflow(dims->v[1], oq_attr_int(n, "group", 1), &channels))
            return false;
        break;
    case OQ_GEMM:
        channels = dims->v[oq_gemm_turns_b(n) ? 0 : 1];
        break;
    case OQ_MATMUL:
        channels = dims->v[dims->n - 1];
        break;
    case OQ_NO_PRODUCT:
        break;
    }
    *out = channels > 0 ? (uint64_t)channels : 0;
    return channels > 0;
}

static bool has_last_axis(oq_product product) {
    return product == OQ_GEMM || product == OQ_MATMUL;
}

static bool find_layer(const oq_index *ix, oq_node *n, oq_layer *l) {
    const oq_op_traits *t = oq_op_traits_of(n->op_type);
    *l = (oq_layer){.node = n, .last = n, .product = t->product, .product_at = OQ_NO_NODE};
    if (t->product == OQ_NO_PRODUCT || (t->form != OQ_FORM_FLOAT && t->form != OQ_FORM_QLINEAR))
        return false;
    if (!find_weight(ix, n, t, l) || !count_channels(n, l->product, l->weight, &l->channels))
        return false;
    l->last_axis = has_last_axis(l->product);
    find_double(ix, l);
    l->shared_weight = is_shared(ix, l);
    return true;
}

/* ---- what a QLinear operator does not show ---- */

/* Into the graph that is stepped through; the tensor in its place if the node is one. */
static onq_code put_beside(finder *f, oq_node *n, onq_error *err) {
    oq_tensor *constant = NULL;
    OQ_TRY(oq_unpack(f->l->model, f->l->arena, &f->e.ix, n, &constant, err));
    const bool ok = constant != NULL ? OQ_PUSH(f->l->arena, &f->stepped.initializer, constant)
                                     : OQ_PUSH(f->l->arena, &f->stepped.node, n);
    return ok ? ONQ_OK : oq_fail_nomem(err);
}

/* A DequantizeLinear of com.microsoft, which takes an axis at every opset. */
static onq_code put_dq(finder *f, oq_str in, oq_str scale, oq_str zero, int64_t axis, oq_str *out,
                       onq_error *err) {
    const oq_str ins[3] = {in, scale, zero};
    *out = oq_fresh_tensor(&f->e.names, in, "_onq_dequantized");
    oq_node *n = oq_node_make(f->l->arena, OQ_DEQUANTIZE_LINEAR, (oq_str){0}, ins,
                              zero.n > 0 ? 3 : 2, out, 1);
    OQ_TRY_ALLOC(out->p != NULL && n != NULL, err);
    n->domain = OQ_S("com.microsoft");
    if (axis >= 0 && !oq_attr_set_int(f->l->arena, n, OQ_S("axis"), axis))
        return oq_fail_nomem(err);
    return put_beside(f, n, err);
}

/* The scale of the int32 bias is one of no other node. */
static onq_code put_bias(finder *f, const oq_layer *l, oq_str *out, onq_error *err) {
    const int64_t dims[1] = {(int64_t)l->bias.n_scale};
    const bool scalar = l->bias.n_scale == 1;
    oq_arena *a = f->l->arena;
    const oq_str name = oq_fresh_tensor(&f->e.names, l->bias.tensor->name, "_onq_scale");
    oq_tensor *scale =
        name.p != NULL ? oq_tensor_new(a, name, OQ_FLOAT, dims, scalar ? 0 : 1) : NULL;
    OQ_TRY_ALLOC(scale != NULL && OQ_PUSH(a, &f->stepped.initializer, scale), err);
    OQ_TRY(oq_tensor_set_raw(a, scale, l->bias.scale, l->bias.n_scale * sizeof(float), err));
    return put_dq(f, l->bias.tensor->name, name, (oq_str){0}, scalar ? -1 : 0, out, err);
}

/* The float product of the same integers, beside the operator. */
static onq_code put_product(finder *f, oq_layer *l, onq_error *err) {
    const oq_node *n = l->node;
    const oq_op_traits *t = oq_op_traits_of(n->op_type);
    const oq_tensor *scale = oq_index_init(&f->e.ix, l->weight_scale);
    int64_t axis = 0;
    oq_str in[3] = {{0}};
    oq_op_channel_axis(n, &axis);
    if (l->product == OQ_MATMUL)
        axis = (int64_t)l->weight->dims.n - 1;
    const bool whole = scale == NULL || scale->dims.n == 0;
    OQ_TRY(put_dq(f, n->input.v[0], n->input.v[1], n->input.v[2], -1, &in[0], err));
    OQ_TRY(put_dq(f, l->weight->name, l->weight_scale, l->weight_zero, whole ? -1 : axis, &in[1],
                  err));
    if (l->bias.tensor != NULL)
        OQ_TRY(put_bias(f, l, &in[2], err));
    l->input = in[0];
    l->quantized = oq_fresh_tensor(&f->e.names, n->output.v[0], "_onq_product");
    oq_node *product = oq_node_make(f->l->arena, t->stands_for, (oq_str){0}, in,
                                    in[2].n > 0 ? 3 : 2, &l->quantized, 1);
    OQ_TRY_ALLOC(l->quantized.p != NULL && product != NULL, err);
    memcpy(&product->attribute, &n->attribute, sizeof product->attribute);
    l->stop = (uint32_t)f->stepped.node.n;
    return put_beside(f, product, err);
}

/* What both products of double activations see together. */
static onq_code put_input(finder *f, oq_layer *l, onq_error *err) {
    const oq_str in[2] = {l->node->input.v[0], l->low->input.v[0]};
    l->input = oq_fresh_tensor(&f->e.names, l->node->output.v[0], "_onq_input");
    oq_node *n = l->input.p != NULL
                     ? oq_node_make(f->l->arena, "Sub", (oq_str){0}, in, 2, &l->input, 1)
                     : NULL;
    return n != NULL ? put_beside(f, n, err) : oq_fail_nomem(err);
}

/* The shape of a bias of these channels before as many axes as a Conv has. */
static onq_code put_bias_shape(finder *f, const oq_layer *l, oq_str *out, onq_error *err) {
    const size_t rank = l->weight->dims.n - 1;
    const int64_t dims[1] = {(int64_t)rank};
    oq_arena *a = f->l->arena;
    int64_t *shape = OQ_NEW_ARRAY(a, int64_t, rank + 1);
    *out = oq_fresh_tensor(&f->e.names, l->quantized, "_onq_shape");
    oq_tensor *t = out->p != NULL ? oq_tensor_new(a, *out, OQ_INT64, dims, 1) : NULL;
    OQ_TRY_ALLOC(shape != NULL && t != NULL && OQ_PUSH(a, &f->stepped.initializer, t), err);
    for (size_t i = 0; i < rank; i++)
        shape[i] = i == 0 ? (int64_t)l->channels : 1;
    return oq_tensor_set_raw(a, t, shape, rank * sizeof *shape, err);
}

/* A Conv without its bias, and an Add of it: the same numbers, for the runtime adds the bias last,
 * and the Conv need not run again when the bias has changed. */
static onq_code put_split_conv(finder *f, oq_layer *l, onq_error *err) {
    const oq_node *n = l->node;
    oq_arena *a = f->l->arena;
    l->quantized = n->output.v[0];
    oq_str shape = {0};
    OQ_TRY(put_bias_shape(f, l, &shape, err));
    const oq_str bare = oq_fresh_tensor(&f->e.names, l->quantized, "_onq_unbiased");
    const oq_str column = oq_fresh_tensor(&f->e.names, l->quantized, "_onq_bias");
    oq_node *conv = oq_node_make(a, "Conv", n->name, n->input.v, 2, &bare, 1);
    oq_node *reshape = oq_node_make(a, "Reshape", (oq_str){0},
                                    (const oq_str[]){n->input.v[2], shape}, 2, &column, 1);
    oq_node *add =
        oq_node_make(a, "Add", (oq_str){0}, (const oq_str[]){bare, column}, 2, &l->quantized, 1);
    OQ_TRY_ALLOC(!f->e.names.failed && conv != NULL && reshape != NULL && add != NULL, err);
    conv->domain = n->domain;
    memcpy(&conv->attribute, &n->attribute, sizeof conv->attribute);
    l->product_at = (uint32_t)f->stepped.node.n;
    return OQ_PUSH(a, &f->stepped.node, conv) && OQ_PUSH(a, &f->stepped.node, reshape) &&
                   OQ_PUSH(a, &f->stepped.node, add)
               ? ONQ_OK
               : oq_fail_nomem(err);
}

/* ---- products of the float model ---- */

/* To look at a product must not change what the runtime computes: nodes with constants after it may
 * be made one with it. */
static bool may_be_seen(const oq_index *flt, oq_str name) {
    static const char *const apart[] = {"Add", "Mul", "Sigmoid", "HardSigmoid", "HardSwish"};
    const oq_value *v = oq_index_find(flt, name);
    bool may = v != NULL;
    for (size_t i = 0; may && i < v->uses.n; i++) {
        const oq_node *reader = flt->graph->node.v[v->uses.v[i].node];
        const oq_op_traits *t = oq_op_traits_of(reader->op_type);
        may = t->clips || t->product != OQ_NO_PRODUCT ||
              oq_str_is_any(reader->op_type, apart, OQ_COUNT(apart));
        for (size_t k = 0; may && !t->clips && t->product == OQ_NO_PRODUCT && k < reader->input.n;
             k++)
            may = oq_index_init(flt, reader->input.v[k]) == NULL;
    }
    return may;
}

static onq_code find_products(finder *f, onq_error *err) {
    oq_layers *l = f->l;
    for (size_t i = 0; i < f->flt.graph->node.n; i++) {
        const oq_node *n = f->flt.graph->node.v[i];
        const oq_op_traits *t = oq_op_traits_of(n->op_type);
        const oq_tensor *weight = t->product != OQ_NO_PRODUCT && t->form == OQ_FORM_FLOAT &&
                                          n->input.n > 1 && n->output.n > 0
                                      ? oq_index_init(&f->flt, n->input.v[1])
                                      : NULL;
        oq_float_product p = {.last_axis = has_last_axis(t->product)};
        if (weight == NULL || !count_channels(n, t->product, weight, &p.channels) ||
            !may_be_seen(&f->flt, n->output.v[0]))
            continue;
        p.name = n->output.v[0];
        OQ_TRY_ALLOC(OQ_PUSH(l->arena, &l->products, p), err);
    }
    return ONQ_OK;
}

static onq_code number_product(oq_layers *l, oq_layer *layer, onq_error *err) {
    size_t *k = &layer->product_number;
    *k = 0;
    while (*k < l->products.n && !oq_str_eq(l->products.v[*k].name, layer->flt))
        ++*k;
    const oq_float_product own = {layer->flt, layer->channels, layer->last_axis};
    return *k < l->products.n || OQ_PUSH(l->arena, &l->products, own) ? ONQ_OK : oq_fail_nomem(err);
}

/* ---- all of them ---- */

static onq_code add_layer(finder *f, oq_layer *l, bool biases, onq_error *err) {
    const oq_node *flt = counterpart(&f->flt, l);
    if (flt == NULL) {
        f->l->n_unmatched++;
        return ONQ_OK;
    }
    l->flt = flt->output.v[0];
    OQ_TRY(number_product(f->l, l, err));
    l->float_stop = oq_index_find(&f->flt, l->flt)->producer;
    l->float_input = flt->input.v[0];
    l->float_weight = oq_index_init(&f->flt, flt->input.v[1]);
    if (biases) {
        OQ_TRY(oq_layer_place_bias(&f->e, l, err));
        f->l->n_no_bias += l->bias.tensor == NULL;
    }
    return OQ_PUSH(f->l->arena, &f->l->all, *l) ? ONQ_OK : oq_fail_nomem(err);
}

static onq_code find_all(finder *f, bool biases, onq_error *err) {
    uint32_t *order = NULL;
    oq_graph *g = f->l->model->proto->graph;
    OQ_TRY(oq_topo_order(&f->e.ix, f->l->arena, &order, err));
    const size_t n = g->node.n;
    for (size_t i = 0; i < n; i++) {
        oq_layer l;
        if (find_layer(&f->e.ix, g->node.v[order[i]], &l))
            OQ_TRY(add_layer(f, &l, biases, err));
    }
    return ONQ_OK;
}

/* New nodes go to their places. */
static onq_code put_nodes(finder *f, onq_error *err) {
    oq_layer_editor *e = &f->e;
    oq_arena *a = &f->l->model->arena;
    oq_graph *g = f->l->model->proto->graph;
    OQ_VEC(oq_node *) list = {0};
    if (e->before.n == 0 && e->after.n == 0)
        return ONQ_OK;
    for (size_t i = 0; i < g->node.n; i++) {
        bool ok = true;
        for (size_t k = 0; k < e->before.n; k++)
            if (e->before_at.v[k] == g->node.v[i])
                ok &= OQ_PUSH(a, &list, e->before.v[k]);
        ok &= OQ_PUSH(a, &list, g->node.v[i]);
        for (size_t k = 0; k < e->after.n; k++)
            if (e->after_at.v[k] == g->node.v[i])
                ok &= OQ_PUSH(a, &list, e->after.v[k]);
        OQ_TRY_ALLOC(ok, err);
    }
    memcpy(&g->node, &list, sizeof list);
    return ONQ_OK;
}

static bool is_split(const oq_layer *l) {
    return l->product == OQ_CONV && l->bias.tensor != NULL &&
           oq_op_traits_of(l->node->op_type)->form == OQ_FORM_FLOAT;
}

/* The layer of a node, if it is stepped through in two parts. */
static oq_layer *split_layer(const oq_layers *l, const oq_node *n) {
    for (size_t i = 0; i < l->all.n; i++)
        if (l->all.v[i].node == n)
            return is_split(&l->all.v[i]) ? &l->all.v[i] : NULL;
    return NULL;
}

/* The graph that is stepped through: the model's, with float products beside QLinear operators and
 * a Conv whose bias changes in two parts. */
static onq_code make_stepped(finder *f, onq_error *err) {
    oq_layers *l = f->l;
    const oq_graph *g = l->model->proto->graph;
    oq_map at;
    oq_map_init(&at, l->arena);
    f->stepped = *g;
    f->stepped.node.v = NULL;
    f->stepped.node.n = f->stepped.node.cap = 0;
    f->stepped.initializer.v = NULL;
    f->stepped.initializer.n = f->stepped.initializer.cap = 0;
    for (size_t i = 0; i < g->initializer.n; i++)
        OQ_TRY_ALLOC(OQ_PUSH(l->arena, &f->stepped.initializer, g->initializer.v[i]), err);
    for (size_t i = 0; i < g->node.n; i++) {
        const oq_node *n = g->node.v[i];
        oq_layer *split = split_layer(l, n);
        uint32_t place = (uint32_t)f->stepped.node.n;
        OQ_TRY(split != NULL ? put_split_conv(f, split, err) : put_beside(f, g->node.v[i], err));
        if (split != NULL)
            place = (uint32_t)f->stepped.node.n - 1; /* the Add */
        if (n->output.n > 0 && n->output.v[0].n > 0 && !oq_map_put(&at, n->output.v[0], place))
            return oq_fail_nomem(err);
    }
    for (size_t i = 0; i < l->all.n; i++) {
        oq_layer *layer = &l->all.v[i];
        if (oq_op_traits_of(layer->node->op_type)->form == OQ_FORM_QLINEAR) {
            OQ_TRY(put_product(f, layer, err));
        } else {
            layer->quantized = layer->last->output.v[0];
            layer->input = layer->node->input.v[0];
            if (layer->low != NULL)
                OQ_TRY(put_input(f, layer, err));
            layer->stop = oq_map_find(&at, layer->quantized);
            if (layer->product == OQ_MATMUL && layer->bias.tensor != NULL)
                layer->product_at = layer->stop; /* what is added comes after it */
        }
    }
    return ONQ_OK;
}

static onq_code add_opset(finder *f, onq_error *err) {
    oq_layers *l = f->l;
    oq_opset *o = OQ_NEW(l->arena, oq_opset);
    oq_graph *g = OQ_NEW(l->arena, oq_graph);
    OQ_TRY_ALLOC(o != NULL && g != NULL, err);
    *g = f->stepped;
    l->stepped = *l->model->proto;
    l->stepped.graph = g;
    if (oq_model_opset(l->model, OQ_S("com.microsoft")) > 0)
        return ONQ_OK;
    o->domain = OQ_S("com.microsoft");
    o->version = OQ_I64(1);
    l->stepped.opset_import.v = NULL;
    l->stepped.opset_import.n = l->stepped.opset_import.cap = 0;
    for (size_t i = 0; i < l->model->proto->opset_import.n; i++)
        if (!OQ_PUSH(l->arena, &l->stepped.opset_import, l->model->proto->opset_import.v[i]))
            return oq_fail_nomem(err);
    return OQ_PUSH(l->arena, &l->stepped.opset_import, o) ? ONQ_OK : oq_fail_nomem(err);
}

onq_code oq_layers_find(oq_layers *l, bool biases, onq_error *err) {
    finder f = {.l = l, .e = {.layers = l}};
    OQ_TRY(oq_index_build(&f.e.ix, l->arena, l->model->proto->graph, NULL, err));
    OQ_TRY(oq_index_build(&f.flt, l->arena, l->flt->graph, NULL, err));
    OQ_TRY(oq_fresh_init(&f.e.names, l->arena, l->model, err));
    OQ_TRY(find_products(&f, err));
    OQ_TRY(find_all(&f, biases, err));
    OQ_TRY(put_nodes(&f, err));
    OQ_TRY(oq_index_build(&f.e.ix, l->arena, l->model->proto->graph, NULL, err));
    OQ_TRY(make_stepped(&f, err));
    return add_opset(&f, err);
}
