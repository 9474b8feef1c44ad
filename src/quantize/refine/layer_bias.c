/*
 * layer_bias.c — a bias that one layer alone has, so that it can be changed.
 *
 * Conv, ConvTranspose and Gemm take it as an input: int32 after a DequantizeLinear where their
 * input is quantized, as the quantizers write it, else float. A MatMul has none. Where an Add or
 * Sub of a float constant follows, the constant is it; else a Sub of its negative is put in, for an
 * Add the runtime would join with the MatMul to a float Gemm. Of the QLinear operators, MatMul
 * alone has no place for one.
 */
#include "quantize/refine/layers.h"

#include "onnx/attr.h"
#include "onnx/edit.h"
#include "onnx/tensor.h"
#include "quantize/number/bias.h"

static oq_arena *arena_of(const oq_layer_editor *e) {
    return &e->layers->model->arena;
}

static bool is_single(const oq_layer_editor *e, oq_str name) {
    const oq_value *v = oq_index_find(&e->ix, name);
    return v != NULL && v->uses.n == 1 && !v->is_output && !v->is_input;
}

static onq_code put_before(oq_layer_editor *e, oq_node *n, const oq_node *at, onq_error *err) {
    return OQ_PUSH(e->layers->arena, &e->before, n) && OQ_PUSH(e->layers->arena, &e->before_at, at)
               ? ONQ_OK
               : oq_fail_nomem(err);
}

static onq_code add_init(oq_layer_editor *e, oq_str name, oq_dtype type, const int64_t *dims,
                         size_t rank, const void *raw, uint64_t n, oq_tensor **out,
                         onq_error *err) {
    oq_arena *a = arena_of(e);
    oq_tensor *t = name.p != NULL ? oq_tensor_new(a, name, type, dims, rank) : NULL;
    OQ_TRY_ALLOC(t != NULL && oq_graph_add_init(a, e->layers->model->proto->graph, t), err);
    *out = t;
    return oq_tensor_set_raw(a, t, raw, n, err);
}

/* ---- scales ---- */

static onq_code read_scale(oq_layer_editor *e, oq_str name, oq_reals *out, onq_error *err) {
    oq_tensor *t = oq_index_init(&e->ix, name);
    float *v = NULL;
    size_t n = 0;
    *out = (oq_reals){0};
    if (t == NULL || !oq_dtype_is_float(t->data_type.v))
        return ONQ_OK;
    OQ_TRY(oq_tensor_floats(e->layers->model, t, e->layers->arena, &v, &n, err));
    *out = (oq_reals){v, n, (oq_dtype)t->data_type.v};
    return ONQ_OK;
}

/* Scale of the input x scale of the weight; n_scale stays 0 where they are not known or do not fit
 * the channels. */
static onq_code product_scale(oq_layer_editor *e, oq_layer *l, oq_str input, oq_dtype *real,
                              onq_error *err) {
    oq_reals x, w;
    OQ_TRY(read_scale(e, input, &x, err));
    OQ_TRY(read_scale(e, l->weight_scale, &w, err));
    if (x.n != 1 || (w.n != 1 && w.n != l->channels))
        return ONQ_OK;
    float *scale = OQ_NEW_ARRAY(e->layers->arena, float, w.n + 1);
    OQ_TRY_ALLOC(scale != NULL, err);
    oq_bias_scales(x, w, scale, real);
    for (uint64_t i = 0; i < w.n; i++)
        if (!(scale[i] > 0.0f))
            return ONQ_OK;
    l->bias.scale = scale;
    l->bias.n_scale = w.n;
    return ONQ_OK;
}

/* ---- what is there ---- */

static onq_code fits(const oq_layer *l, const oq_tensor *t, bool *out, onq_error *err) {
    uint64_t n = 0;
    OQ_TRY(oq_tensor_count(t, &n, err));
    *out = n == l->channels && t->dims.n > 0 && (uint64_t)t->dims.v[t->dims.n - 1] == l->channels;
    return ONQ_OK;
}

/* A copy under another name, for a bias that others read too. */
static onq_code copy_tensor(oq_layer_editor *e, oq_tensor **t, onq_error *err) {
    oq_span raw;
    const oq_tensor *from = *t;
    OQ_TRY(oq_model_data(e->layers->model, *t, &raw, err));
    return add_init(e, oq_fresh_tensor(&e->names, from->name, "_corrected"),
                    (oq_dtype)from->data_type.v, from->dims.v, from->dims.n, raw.p, raw.n, t, err);
}

static onq_code take_int32(oq_layer_editor *e, oq_layer *l, size_t slot, const oq_node *dq,
                           oq_tensor *t, onq_error *err) {
    oq_reals scale;
    bool fit = false;
    OQ_TRY(fits(l, t, &fit, err));
    OQ_TRY(read_scale(e, dq->input.v[1], &scale, err));
    if (!fit || t->data_type.v != OQ_INT32 || (scale.n != 1 && scale.n != l->channels))
        return ONQ_OK;
    if (!is_single(e, dq->input.v[0]) || !is_single(e, dq->output.v[0])) {
        oq_arena *a = arena_of(e);
        OQ_TRY(copy_tensor(e, &t, err));
        const oq_str out = oq_fresh_tensor(&e->names, dq->output.v[0], "_corrected");
        oq_node *own =
            oq_node_make(a, OQ_DEQUANTIZE_LINEAR, oq_fresh_node(&e->names, dq->name, "_corrected"),
                         dq->input.v, dq->input.n, &out, 1);
        OQ_TRY_ALLOC(!e->names.failed && own != NULL, err);
        own->domain = dq->domain;
        memcpy(&own->attribute, &dq->attribute, sizeof own->attribute);
        own->input.v[0] = t->name;
        l->node->input.v[slot] = out;
        OQ_TRY(put_before(e, own, l->node, err));
    }
    l->bias.tensor = t;
    l->bias.scale = scale.v;
    l->bias.n_scale = scale.n;
    return ONQ_OK;
}

static onq_code take_float(oq_layer_editor *e, oq_layer *l, oq_node *reader, size_t slot,
                           oq_tensor *t, onq_error *err) {
    bool fit = false;
    OQ_TRY(fits(l, t, &fit, err));
    if (!fit || t->data_type.v != OQ_FLOAT)
        return ONQ_OK;
    if (!is_single(e, t->name)) {
        OQ_TRY(copy_tensor(e, &t, err));
        reader->input.v[slot] = t->name;
    }
    l->bias.tensor = t;
    return ONQ_OK;
}

/* ---- what is put in ---- */

static onq_code set_input(oq_layer_editor *e, oq_node *n, size_t slot, oq_str name,
                          onq_error *err) {
    while (n->input.n <= slot)
        OQ_TRY_ALLOC(oq_node_add_input(arena_of(e), n, OQ_S("")), err);
    n->input.v[slot] = name;
    return ONQ_OK;
}

/* A bias of zeros, int32 or float: its bytes are the same. */
static onq_code new_bias(oq_layer_editor *e, oq_layer *l, oq_dtype type, const char *suffix,
                         onq_error *err) {
    const int64_t dims[1] = {(int64_t)l->channels};
    const int32_t *zeros = OQ_NEW_ARRAY(e->layers->arena, int32_t, l->channels + 1);
    OQ_TRY_ALLOC(zeros != NULL, err);
    return add_init(e, oq_fresh_tensor(&e->names, oq_node_label(l->node), suffix), type, dims, 1,
                    zeros, l->channels * sizeof *zeros, &l->bias.tensor, err);
}

/* The DequantizeLinear of a new int32 bias, as the quantizer writes it. */
static onq_code new_dq(oq_layer_editor *e, const oq_layer *l, size_t slot, const oq_node *like,
                       onq_error *err) {
    oq_arena *a = arena_of(e);
    const oq_str base = oq_node_label(l->node);
    const bool scalar = l->bias.n_scale == 1;
    const int64_t dims[1] = {(int64_t)l->bias.n_scale};
    const int32_t *zeros = OQ_NEW_ARRAY(e->layers->arena, int32_t, l->bias.n_scale + 1);
    oq_tensor *scale = NULL, *zero = NULL;
    OQ_TRY_ALLOC(zeros != NULL, err);
    OQ_TRY(add_init(e, oq_fresh_tensor(&e->names, base, "_bias_quantized_scale"), OQ_FLOAT, dims,
                    scalar ? 0 : 1, l->bias.scale, l->bias.n_scale * sizeof(float), &scale, err));
    OQ_TRY(add_init(e, oq_fresh_tensor(&e->names, base, "_bias_quantized_zero_point"), OQ_INT32,
                    dims, scalar ? 0 : 1, zeros, l->bias.n_scale * sizeof *zeros, &zero, err));
    const oq_str in[3] = {l->bias.tensor->name, scale->name, zero->name};
    const oq_str out = oq_fresh_tensor(&e->names, base, "_bias");
    oq_node *dq =
        oq_node_make(a, OQ_DEQUANTIZE_LINEAR,
                     oq_fresh_node(&e->names, base, "_bias_DequantizeLinear"), in, 3, &out, 1);
    if (e->names.failed || dq == NULL || (!scalar && !oq_attr_set_int(a, dq, OQ_S("axis"), 0)))
        return oq_fail_nomem(err);
    dq->domain = like->domain;
    OQ_TRY(set_input(e, l->node, slot, out, err));
    return put_before(e, dq, l->node, err);
}

static onq_code add_bias(oq_layer_editor *e, oq_layer *l, size_t slot, onq_error *err) {
    const oq_node *x = oq_index_producer(&e->ix, l->node->input.v[0]);
    const oq_node *w = oq_index_producer(&e->ix, l->node->input.v[1]);
    oq_dtype real = OQ_FLOAT;
    const bool quantized = oq_node_is_dequantize(x) && x->input.n >= 2 && !e->layers->float_bias;
    if (quantized)
        OQ_TRY(product_scale(e, l, x->input.v[1], &real, err));
    oq_reals weight;
    OQ_TRY(read_scale(e, l->weight_scale, &weight, err));
    if (real != OQ_FLOAT || weight.real != OQ_FLOAT)
        return ONQ_OK; /* a float16 product wants a float16 bias: left as it is */
    if (l->bias.n_scale > 0) {
        OQ_TRY(new_bias(e, l, OQ_INT32, "_bias_quantized", err));
        return new_dq(e, l, slot, w, err);
    }
    OQ_TRY(new_bias(e, l, OQ_FLOAT, "_bias", err));
    return set_input(e, l->node, slot, l->bias.tensor->name, err);
}

/* ---- by form ---- */

static onq_code place_input(oq_layer_editor *e, oq_layer *l, size_t slot, onq_error *err) {
    oq_node *n = l->node;
    if (l->product == OQ_GEMM)
        l->bias.factor = (double)oq_attr_float(n, "beta", 1.0f);
    if (l->bias.factor == 0.0)
        return ONQ_OK;
    if (n->input.n <= slot || n->input.v[slot].n == 0)
        return add_bias(e, l, slot, err);
    const oq_node *dq = oq_index_producer(&e->ix, n->input.v[slot]);
    oq_tensor *t = oq_index_init(&e->ix, n->input.v[slot]);
    if (t != NULL)
        return take_float(e, l, n, slot, t, err);
    if (!oq_node_is_dequantize(dq) || dq->input.n < 2)
        return ONQ_OK;
    t = oq_index_init(&e->ix, dq->input.v[0]);
    return t != NULL ? take_int32(e, l, slot, dq, t, err) : ONQ_OK;
}

/* The Add or Sub of a constant that alone reads the product, or NULL; *slot is where the constant
 * is. */
static oq_node *following_add(const oq_layer_editor *e, oq_str y, size_t *slot) {
    const oq_value *v = oq_index_find(&e->ix, y);
    if (!is_single(e, y) || v->uses.v[0].slot > 1)
        return NULL;
    oq_node *add = e->ix.graph->node.v[v->uses.v[0].node];
    *slot = 1 - v->uses.v[0].slot;
    const bool fits =
        oq_str_is(add->op_type, "Add") || (oq_str_is(add->op_type, "Sub") && *slot == 1);
    return fits && add->input.n == 2 && oq_index_init(&e->ix, add->input.v[*slot]) != NULL ? add
                                                                                           : NULL;
}

static onq_code place_matmul(oq_layer_editor *e, oq_layer *l, onq_error *err) {
    oq_arena *a = arena_of(e);
    const oq_str y = l->last->output.v[0];
    size_t slot = 0;
    oq_node *add = following_add(e, y, &slot);
    if (add != NULL && oq_str_is(add->op_type, "Sub"))
        l->bias.factor = -1.0;
    if (add != NULL)
        OQ_TRY(take_float(e, l, add, slot, oq_index_init(&e->ix, add->input.v[slot]), err));
    oq_reals weight;
    OQ_TRY(read_scale(e, l->weight_scale, &weight, err));
    if (l->bias.tensor != NULL || weight.real != OQ_FLOAT)
        return ONQ_OK;
    OQ_TRY(new_bias(e, l, OQ_FLOAT, "_correction", err));
    l->bias.factor = -1.0;
    const oq_str inner = oq_fresh_tensor(&e->names, y, "_uncorrected");
    const oq_str in[2] = {inner, l->bias.tensor->name};
    oq_node *sub = oq_node_make(a, "Sub", oq_fresh_node(&e->names, oq_node_label(l->node), "_Sub"),
                                in, 2, &y, 1);
    if (e->names.failed || sub == NULL || !OQ_PUSH(e->layers->arena, &e->after, sub) ||
        !OQ_PUSH(e->layers->arena, &e->after_at, l->last))
        return oq_fail_nomem(err);
    l->last->output.v[0] = inner;
    return ONQ_OK;
}

static onq_code place_qlinear(oq_layer_editor *e, oq_layer *l, int slot, onq_error *err) {
    oq_node *n = l->node;
    oq_dtype real = OQ_FLOAT;
    if (slot < 0 || n->input.n < 3 || oq_attr_float(n, "alpha", 1.0f) != 1.0f)
        return ONQ_OK;
    OQ_TRY(product_scale(e, l, n->input.v[1], &real, err));
    if (l->bias.n_scale == 0)
        return ONQ_OK;
    const size_t at = (size_t)slot;
    if (n->input.n <= at || n->input.v[at].n == 0) {
        OQ_TRY(new_bias(e, l, OQ_INT32, "_bias_quantized", err));
        return set_input(e, n, at, l->bias.tensor->name, err);
    }
    oq_tensor *t = oq_index_init(&e->ix, n->input.v[at]);
    bool fit = false;
    if (t != NULL)
        OQ_TRY(fits(l, t, &fit, err));
    if (!fit || t->data_type.v != OQ_INT32)
        return ONQ_OK;
    if (!is_single(e, t->name)) {
        OQ_TRY(copy_tensor(e, &t, err));
        n->input.v[at] = t->name;
    }
    l->bias.tensor = t;
    return ONQ_OK;
}

onq_code oq_layer_place_bias(oq_layer_editor *e, oq_layer *l, onq_error *err) {
    const oq_op_traits *t = oq_op_traits_of(l->node->op_type);
    l->bias = (oq_layer_bias){.factor = 1.0};
    if (t->form == OQ_FORM_QLINEAR)
        return place_qlinear(e, l, oq_op_slot(t->bias), err);
    if (l->product == OQ_MATMUL)
        return place_matmul(e, l, err);
    return place_input(e, l, (size_t)oq_op_slot(t->bias), err);
}

/* ---- changing it ---- */

static int32_t to_int32(double x, size_t *n_clipped) {
    if (x < (double)INT32_MIN || x > (double)INT32_MAX) {
        ++*n_clipped;
        return x < 0 ? INT32_MIN : INT32_MAX;
    }
    return (int32_t)x;
}

onq_code oq_layer_add_bias(oq_layers *l, const oq_layer *layer, const double *delta,
                           size_t *n_clipped, onq_error *err) {
    const oq_layer_bias *b = &layer->bias;
    oq_arena *a = &l->model->arena;
    oq_span raw;
    OQ_TRY(oq_model_data(l->model, b->tensor, &raw, err));
    assert(raw.n == layer->channels * sizeof(int32_t));
    uint8_t *made = oq_arena_alloc(a, raw.n + 1);
    OQ_TRY_ALLOC(made != NULL, err);
    for (uint64_t c = 0; c < layer->channels; c++) {
        const double by = delta[c] / b->factor;
        if (b->scale != NULL) {
            int32_t v;
            memcpy(&v, raw.p + c * sizeof v, sizeof v);
            v = to_int32(v + rint(by / (double)b->scale[b->n_scale == 1 ? 0 : c]), n_clipped);
            memcpy(made + c * sizeof v, &v, sizeof v);
        } else {
            float v;
            memcpy(&v, raw.p + c * sizeof v, sizeof v);
            v = (float)((double)v + by);
            memcpy(made + c * sizeof v, &v, sizeof v);
        }
    }
    oq_tensor_clear_data(b->tensor);
    oq_tensor_set_view(b->tensor, made, raw.n);
    return ONQ_OK;
}
