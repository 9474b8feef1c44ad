/*
 * folded.c — weights whose names preprocessing changed: found at the same input of the node at the
 * same place, and with the BatchNormalization after it folded in when the quantized model has none.
 *
 * A Conv that took a BatchNormalization gives out the tensor that the BatchNormalization gave out.
 * So the float model's producer of that tensor, and what comes before it, show what was folded.
 * The float weight is then W x gamma / sqrt(var + epsilon), the bias (b - mean) x the same + beta.
 */
#include "debug/weights/weights.h"

#include "onnx/attr.h"
#include "onnx/operators.h"
#include "onnx/tensor.h"

/* The float operator of a node of the quantized model, and the input there of input k; -1: none. */
static oq_str float_op(const oq_node *user, size_t k, int *slot) {
    const oq_op_traits *quantized = oq_op_traits_of(user->op_type);
    *slot = (int)k;
    if (quantized->stands_for == NULL)
        return user->op_type;
    const oq_str type = oq_str_of(quantized->stands_for);
    const oq_op_traits *flt = oq_op_traits_of(type);
    *slot = quantized->weight == OQ_IN(k)      ? oq_op_slot(flt->weight)
            : quantized->bias == OQ_IN(k)      ? oq_op_slot(flt->bias)
            : quantized->either_side && k == 0 ? 0
                                               : -1;
    return type;
}

/* The float model's tensor that a tensor of the quantized model corresponds to; p == NULL: none. */
static oq_str float_tensor(const oq_debug *d, const oq_debug_places *p, oq_str quantized) {
    oq_str name = quantized;
    if (!oq_str_cut_end(&name, "_QuantizeLinear_Input"))
        (void)oq_str_cut_end(&name, "_quantized");
    return oq_index_producer(&d->float_index, name) != NULL ? name
                                                            : oq_debug_place_of(p, quantized);
}

/* True if a BatchNormalization reads it, directly or after pairs. */
static bool has_own_norm(const oq_index *ix, oq_str name) {
    for (unsigned steps = 0; steps < 4; steps++) {
        const oq_value *v = oq_index_find(ix, name);
        const oq_node *n = v != NULL && v->uses.n > 0 ? ix->graph->node.v[v->uses.v[0].node] : NULL;
        if (n == NULL || oq_str_is(n->op_type, "BatchNormalization"))
            return n != NULL;
        if (!oq_node_is_pair(n) || n->output.n == 0)
            return false;
        name = n->output.v[0];
    }
    return false;
}

static bool is_passed(const oq_node *n) {
    return oq_op_traits_of(n->op_type)->clips || oq_str_is(n->op_type, "Identity") ||
           oq_str_is(n->op_type, "BatchNormalization");
}

/* A float constant, also after nodes that only give it another shape. */
static oq_tensor *float_constant(const oq_debug *d, oq_str name) {
    oq_tensor *t = oq_index_constant(&d->float_index, name);
    for (unsigned steps = 0; t == NULL && steps < 4; steps++) {
        const oq_node *n = oq_index_producer(&d->float_index, name);
        if (n == NULL || n->input.n == 0 || !oq_domain_is_onnx(n->domain) ||
            oq_op_traits_of(n->op_type)->repeats != OQ_REPEATS_IN_ORDER)
            return NULL;
        name = n->input.v[0];
        t = oq_index_constant(&d->float_index, name);
    }
    return t != NULL && oq_dtype_is_float(t->data_type.v) ? t : NULL;
}

/* What was folded between a node and what it gives out now. */
typedef struct taken {
    const oq_node *norm;
    oq_str add; /* the constant of an Add, which became the bias; p == NULL: none */
} taken;

/* The input of an Add that is not a constant; the other goes to *add. -1 if there is no such
 * input. */
static int past_add(const oq_debug *d, const oq_node *n, taken *t) {
    if (!oq_str_is(n->op_type, "Add") || n->input.n != 2 || t->add.p != NULL)
        return -1;
    const bool first = float_constant(d, n->input.v[0]) != NULL;
    if (first == (float_constant(d, n->input.v[1]) != NULL))
        return -1;
    t->add = n->input.v[first ? 0 : 1];
    return first ? 1 : 0;
}

/* The float node that `op` of the quantized model was, and what it took. */
static const oq_node *float_node(const oq_debug *d, const oq_debug_places *p, const oq_node *user,
                                 oq_str op, taken *t) {
    const oq_index *ix = &d->float_index;
    const oq_str at = float_tensor(d, p, user->output.v[0]);
    const oq_node *n = at.p != NULL ? oq_index_producer(ix, at) : NULL;
    for (unsigned steps = 0; n != NULL && steps < 4 && !oq_str_eq(n->op_type, op); steps++) {
        const int next = is_passed(n) && n->input.n > 0 ? 0 : past_add(d, n, t);
        if (next < 0)
            return NULL;
        if (oq_str_is(n->op_type, "BatchNormalization") &&
            !has_own_norm(&d->quantized_index, user->output.v[0]))
            t->norm = n;
        n = oq_index_producer(ix, n->input.v[next]);
    }
    return n != NULL && oq_str_eq(n->op_type, op) ? n : NULL;
}

static oq_tensor *input_of(const oq_debug *d, const oq_node *n, size_t k, oq_str *name) {
    if (k >= n->input.n || n->input.v[k].n == 0)
        return NULL;
    *name = n->input.v[k];
    return float_constant(d, *name);
}

/* True if scale, bias, mean and variance are constants with one value for each channel. */
static bool can_fold(const oq_debug *d, const oq_node *norm, const oq_tensor *weight) {
    oq_str name;
    for (size_t k = 1; k <= 4; k++) {
        const oq_tensor *t = input_of(d, norm, k, &name);
        if (t == NULL || weight == NULL || weight->dims.n == 0 || t->dims.n != 1 ||
            t->dims.v[0] != weight->dims.v[0])
            return false;
    }
    return true;
}

void oq_debug_float_by_place(const oq_debug *d, const oq_debug_places *p, const oq_node *user,
                             oq_str used, oq_debug_weight *w) {
    taken t = {0};
    oq_str own;
    int slot = -1;
    if (user == NULL || user->output.n == 0)
        return;
    size_t k = 0;
    while (k < user->input.n && !oq_str_eq(user->input.v[k], used))
        k++;
    const oq_str op = float_op(user, k, &slot);
    const oq_node *n = k < user->input.n && slot >= 0 ? float_node(d, p, user, op, &t) : NULL;
    if (n == NULL)
        return;
    w->flt = input_of(d, n, (size_t)slot, &w->name);
    if (t.norm != NULL) {
        if (t.add.p != NULL || !oq_str_is(op, "Conv") || (slot != 1 && slot != 2) ||
            !can_fold(d, t.norm, input_of(d, n, 1, &own))) {
            w->flt = NULL;
            return;
        }
        w->norm = t.norm;
        if (slot == 2) { /* what is known by that name is the normalization's */
            w->norm_bias = input_of(d, n, 2, &own);
            w->folds_bias = true;
            w->flt = input_of(d, t.norm, 2, &w->name);
        }
    } else if (t.add.p != NULL && slot == 2) {
        const bool alone = w->flt == NULL; /* else both were added up */
        w->flt = alone ? float_constant(d, t.add) : NULL;
        w->name = t.add;
        return; /* of another shape, but as many */
    }
    /* By place alone another shape is another weight. */
    if (w->flt != NULL && w->layout == OQ_DEBUG_AFFINE && !w->transposed &&
        !oq_str_is(op, "Gemm") && !oq_tensor_same_dims(w->flt, w->quantized))
        w->flt = NULL;
}

/* ---- the arithmetic ---- */

static onq_code read_norm(oq_debug *d, const oq_node *n, size_t k, size_t want, oq_arena *a,
                          float **out, onq_error *err) {
    oq_str name;
    size_t count = 0;
    oq_tensor *t = input_of(d, n, k, &name);
    if (t == NULL)
        return oq_fail(err, ONQ_E_UNSUPPORTED, "node '%.*s': input %zu is not a constant",
                       OQ_STR(oq_node_label(n)), k);
    OQ_TRY(oq_tensor_floats(d->flt, t, a, out, &count, err));
    if (count != want)
        return oq_fail(err, ONQ_E_INVALID, "node '%.*s': input %zu has %zu elements, expected %zu",
                       OQ_STR(oq_node_label(n)), k, count, want);
    return ONQ_OK;
}

onq_code oq_debug_fold(oq_debug *d, const oq_debug_weight *w, oq_arena *a, float *x, uint64_t n,
                       onq_error *err) {
    float *gamma, *beta, *mean, *var, *bias = NULL;
    size_t n_bias = 0;
    const size_t channels = w->folds_bias        ? (size_t)n
                            : w->flt->dims.n > 0 ? (size_t)w->flt->dims.v[0]
                                                 : 0;
    if (channels == 0 || n % channels != 0)
        return ONQ_OK;
    OQ_TRY(read_norm(d, w->norm, 1, channels, a, &gamma, err));
    OQ_TRY(read_norm(d, w->norm, 2, channels, a, &beta, err));
    OQ_TRY(read_norm(d, w->norm, 3, channels, a, &mean, err));
    OQ_TRY(read_norm(d, w->norm, 4, channels, a, &var, err));
    if (w->norm_bias != NULL)
        OQ_TRY(oq_tensor_floats(d->flt, w->norm_bias, a, &bias, &n_bias, err));
    const double epsilon = (double)oq_attr_float(w->norm, "epsilon", 1e-5f);
    for (uint64_t i = 0; i < n; i++) {
        const size_t c = (size_t)(i / (n / channels));
        const double f = (double)gamma[c] / sqrt((double)var[c] + epsilon);
        const double b = n_bias == channels ? (double)bias[c] : 0;
        x[i] =
            (float)(w->folds_bias ? (b - (double)mean[c]) * f + (double)beta[c] : (double)x[i] * f);
    }
    return ONQ_OK;
}
