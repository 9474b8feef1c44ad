/*
 * match_weights.c — which initializer of the quantized model is which weight of the float model.
 *
 * Names first, as the reference's create_weight_matching: W_quantized is W; also the endings that
 * the weight-only quantizers give. Else the weight at the same input of the node at the same place.
 * A row of the table below says where an operator keeps a weight and its parameters.
 */
#include "debug/debug.h"

#include "onnx/attr.h"
#include "onnx/operators.h"
#include "onnx/tensor.h"

typedef enum axis_rule {
    AXIS_ATTR,  /* the attribute axis */
    AXIS_FIRST, /* 0 */
    AXIS_LAST,
    AXIS_GEMM, /* of the columns of B */
    AXIS_LSTM, /* a scale for each direction, or for each column of one; stored transposed */
} axis_rule;

typedef struct weight_row {
    const char *op;
    int weight, scale, zero; /* inputs; -1: by name */
    axis_rule axis;
    int scale2; /* a bias: its scale is that of `scale` times this; -1: no bias */
} weight_row;

static const weight_row of_dequantize = {NULL, 0, 1, 2, AXIS_ATTR, -1};

static const weight_row rows[] = {
    {"QLinearConv", 3, 4, 5, AXIS_FIRST, -1},
    {"QLinearConv", 8, 4, -1, AXIS_FIRST, 1},
    {"QLinearMatMul", 3, 4, 5, AXIS_LAST, -1},
    {"QLinearMatMul", 0, 1, 2, AXIS_LAST, -1},
    {"QGemm", 3, 4, 5, AXIS_GEMM, -1},
    {"QGemm", 6, 4, -1, AXIS_LAST, 1},
    {"QLinearAdd", 0, 1, 2, AXIS_LAST, -1},
    {"QLinearAdd", 3, 4, 5, AXIS_LAST, -1},
    {"QLinearMul", 0, 1, 2, AXIS_LAST, -1},
    {"QLinearMul", 3, 4, 5, AXIS_LAST, -1},
    {"QAttention", 1, 4, 7, AXIS_LAST, -1},
    {"MatMulIntegerToFloat", 1, 3, 5, AXIS_LAST, -1},
    {"DynamicQuantizeMatMul", 1, 2, 3, AXIS_LAST, -1},
    {"DynamicQuantizeLSTM", 1, 8, 9, AXIS_LSTM, -1},
    {"DynamicQuantizeLSTM", 2, 10, 11, AXIS_LSTM, -1},
    {"QEmbedLayerNormalization", 2, 8, 13, AXIS_LAST, -1},
    {"QEmbedLayerNormalization", 3, 9, 14, AXIS_LAST, -1},
    {"QEmbedLayerNormalization", 4, 10, 15, AXIS_LAST, -1},
    {"QEmbedLayerNormalization", 5, 11, 16, AXIS_LAST, -1},
    {"QEmbedLayerNormalization", 6, 12, 17, AXIS_LAST, -1},
    {"ConvInteger", 1, -1, 3, AXIS_FIRST, -1},
    {"MatMulInteger", 1, -1, 3, AXIS_LAST, -1},
    {"Gather", 0, -1, -1, AXIS_LAST, -1},
};

typedef struct matching {
    oq_debug *d;
    const oq_debug_places *places;
    oq_map seen; /* float name -> index in weights */
} matching;

static oq_tensor *input_constant(const oq_debug *d, const oq_node *n, int slot) {
    return oq_index_constant(&d->quantized_index, oq_node_input(n, (size_t)slot));
}

/* ---- the float weight ---- */

static oq_tensor *float_by_name(const oq_debug *d, oq_str quantized, oq_str *name) {
    static const char *const endings[] = {"_quantized", "_DQ_Q2", "_DQ_Q4", "_DQ_Q8",
                                          "_Q2",        "_Q4",    "_Q8",    "_Bnb4"};
    for (size_t i = 0; i < OQ_COUNT(endings); i++) {
        oq_str base = quantized;
        if (!oq_str_cut_end(&base, endings[i]))
            continue;
        *name = base;
        oq_tensor *t = oq_index_constant(&d->float_index, base);
        if (t != NULL && oq_dtype_is_float(t->data_type.v))
            return t;
    }
    return NULL;
}

/* The first node that reads it; its place goes to *at (may be NULL). */
static const oq_node *first_user(const oq_index *ix, oq_str name, uint32_t *at) {
    const oq_value *v = oq_index_find(ix, name);
    if (v == NULL || v->uses.n == 0)
        return NULL;
    if (at != NULL)
        *at = v->uses.v[0].node;
    return ix->graph->node.v[v->uses.v[0].node];
}

/* ---- one weight ---- */

/* An integer operator is the float model's node under another name: --nodes_to_exclude knows the
 * float one. */
static void name_float_node(const oq_debug *d, oq_debug_weight *w) {
    const oq_node *n = first_user(&d->float_index, w->name, NULL);
    if (n != NULL && !oq_str_eq(n->op_type, w->op))
        w->node = oq_node_label(n);
}

static onq_code add(matching *m, oq_debug_weight *w, onq_error *err) {
    oq_debug *d = m->d;
    name_float_node(d, w);
    w->type = (oq_dtype)w->quantized->data_type.v;
    w->lo = __builtin_inff();
    w->hi = -__builtin_inff();
    const uint32_t at = oq_map_find(&m->seen, w->name);
    if (at != OQ_MAP_NONE) {
        /* Dequantized more than once: the last counts, as in the reference. */
        d->weights.v[at] = *w;
        return ONQ_OK;
    }
    if (!oq_map_put(&m->seen, w->name, (uint32_t)d->weights.n) ||
        !OQ_PUSH(&d->arena, &d->weights, *w))
        return oq_fail_nomem(err);
    return ONQ_OK;
}

/* Fills who uses it; `used` is the tensor that the user reads. */
static void set_user(const matching *m, oq_debug_weight *w, const oq_node *holder, oq_str *used) {
    const oq_index *ix = &m->d->quantized_index;
    const oq_node *user = holder;
    *used = w->quantized_name;
    if (oq_node_is_dequantize(holder) && holder->output.n > 0) {
        *used = holder->output.v[0];
        user = first_user(ix, *used, &w->position);
        if (user != NULL && oq_str_is(user->op_type, "Transpose") && user->output.n > 0 &&
            oq_str_ends(w->quantized_name, OQ_S("_DQ_Q4"))) {
            w->transposed = true;
            user = first_user(ix, user->output.v[0], &w->position);
        }
    }
    if (user != NULL) {
        w->op = user->op_type;
        w->node = oq_node_label(user);
    }
}

static bool same_count(const oq_tensor *a, const oq_tensor *b) {
    uint64_t x = 0, y = 0;
    return oq_tensor_count(a, &x, NULL) == ONQ_OK && oq_tensor_count(b, &y, NULL) == ONQ_OK &&
           x == y;
}

/* True if a product reads the float weight as it is. */
static bool is_read_directly(const matching *m, const oq_debug_weight *w) {
    const oq_index *ix = &m->d->float_index;
    const oq_value *v = oq_index_find(ix, w->name);
    for (size_t i = 0; v != NULL && i < v->uses.n; i++) {
        const oq_node *n = ix->graph->node.v[v->uses.v[i].node];
        if (v->uses.v[i].slot == 1 && (oq_str_is(n->op_type, "MatMul") ||
                                       (oq_str_is(n->op_type, "Gemm") && !oq_gemm_turns_b(n))))
            return true;
    }
    return v == NULL;
}

/* True if the float model has the weight as [N, K]: it reaches the product through a Transpose or
 * as a Gemm's, or a Gather reads its rows. */
static bool is_by_rows(const matching *m, const oq_debug_weight *w) {
    const oq_i64s *dims = &w->flt->dims;
    return dims->n == 2 && dims->v[0] == w->n && dims->v[1] == w->k &&
           (w->k != w->n || !is_read_directly(m, w));
}

/* Matrices, one the other's transpose. */
static bool is_swapped(const oq_tensor *x, const oq_tensor *q) {
    return x->dims.n == 2 && q->dims.n == 2 && x->dims.v[0] == q->dims.v[1] &&
           x->dims.v[1] == q->dims.v[0];
}

/* A Gemm with transB: rows of the weight are outputs. Quantizers that make MatMul of it turn the
 * weight around. */
static void set_turned(const matching *m, oq_debug_weight *w) {
    const oq_node *n = first_user(&m->d->float_index, w->name, NULL);
    const bool swapped = is_swapped(w->flt, w->quantized);
    if (w->layout == OQ_DEBUG_AFFINE && swapped && oq_str_is(w->op, "MatMul") &&
        !is_read_directly(m, w))
        w->transposed = w->out_rows = true;
    if (n == NULL || !oq_str_is(n->op_type, "Gemm") || !oq_gemm_turns_b(n) || n->input.n < 2 ||
        !oq_str_eq(n->input.v[1], w->name))
        return;
    w->out_rows = true;
    if (w->layout == OQ_DEBUG_AFFINE && oq_op_traits_of(w->op)->product != OQ_GEMM)
        w->transposed = swapped;
}

static onq_code find_float(matching *m, oq_debug_weight *w, const oq_node *holder, onq_error *err) {
    oq_str used;
    set_user(m, w, holder, &used);
    w->flt = float_by_name(m->d, w->quantized_name, &w->name);
    if (w->flt == NULL) {
        const oq_node *user =
            oq_node_is_dequantize(holder) ? first_user(&m->d->quantized_index, used, NULL) : holder;
        oq_debug_float_by_place(m->d, m->places, user, used, w);
    }
    if (w->flt == NULL)
        return oq_debug_leave(m->d, w->quantized_name, true,
                              "the float model has no weight of that name or at that place", err);
    if (w->layout == OQ_DEBUG_AFFINE && !same_count(w->flt, w->quantized)) {
        w->flt = NULL;
        return oq_debug_leave(m->d, w->quantized_name, true,
                              "it has another number of elements than the float weight", err);
    }
    set_turned(m, w);
    return ONQ_OK;
}

static const char NO_FIT[] = "its scale and zero point do not fit its shape and type";

/* W_scale or W_zero_point of W_quantized, or NULL. */
static onq_code by_name(matching *m, oq_str quantized, const char *ending, oq_tensor **out,
                        onq_error *err) {
    oq_str base = quantized;
    *out = NULL;
    if (!oq_str_cut_end(&base, "_quantized"))
        return ONQ_OK;
    const oq_str name = oq_str_cat(&m->d->arena, base, oq_str_of(ending));
    if (name.p == NULL)
        return oq_fail_nomem(err);
    *out = oq_index_init(&m->d->quantized_index, name);
    return ONQ_OK;
}

static uint64_t count_of(const oq_tensor *t) {
    uint64_t n = 0;
    return t != NULL && oq_tensor_count(t, &n, NULL) == ONQ_OK ? n : 0;
}

/* A zero point for each scale, of the type that the weight has. */
static bool zero_fits(const oq_debug_weight *w) {
    return w->zero == NULL || (count_of(w->zero) == count_of(w->scale) &&
                               w->zero->data_type.v == w->quantized->data_type.v);
}

/* The axis and blocks that a row and the shapes say; false when the scale does not fit the
 * weight. */
static bool set_axis(oq_debug_weight *w, const weight_row *row, const oq_node *n) {
    const int64_t rank = (int64_t)w->quantized->dims.n;
    const uint64_t n_scale = count_of(w->scale);
    w->axis = -1;
    if (n_scale <= 1)
        return n_scale == 1;
    int64_t axis = rank - 1;
    if (row->axis == AXIS_FIRST)
        axis = 0;
    else if (row->axis == AXIS_ATTR)
        axis = oq_attr_int(n, "axis", 1);
    else if (row->axis == AXIS_GEMM)
        axis = oq_gemm_turns_b(n) ? 0 : 1;
    else if (row->axis == AXIS_LSTM && rank == 3)
        axis = w->scale->dims.n == 1 ? 0 : 1;
    axis = axis < 0 ? axis + rank : axis;
    if (axis < 0 || axis >= rank)
        return false;
    w->axis = axis;
    const uint64_t dim = (uint64_t)w->quantized->dims.v[axis];
    if (row->axis == AXIS_LSTM && axis == 1)
        w->block = dim; /* [directions][1][columns] */
    else if (row->axis == AXIS_ATTR && w->scale->dims.n > 1)
        w->block = (uint64_t)oq_attr_int(n, "block_size", 0);
    if (w->block == 0)
        return n_scale == dim;
    uint64_t total = count_of(w->quantized), groups = (dim + w->block - 1) / w->block;
    return dim > 0 && total / dim * groups == n_scale;
}

static onq_code match_row(matching *m, const weight_row *row, uint32_t i, onq_error *err) {
    oq_debug *d = m->d;
    const oq_node *n = d->quantized_index.graph->node.v[i];
    oq_debug_weight w = {.position = i, .axis = -1, .by_dq = oq_node_is_dequantize(n)};
    w.quantized = input_constant(d, n, row->weight);
    const oq_dtype_info *info =
        w.quantized != NULL ? oq_dtype_find(w.quantized->data_type.v) : NULL;
    if (info == NULL || oq_dtype_is_float(w.quantized->data_type.v) || info->cls == OQ_CLASS_NONE ||
        info->cls == OQ_CLASS_BOOL || info->cls == OQ_CLASS_STRING || info->bits > 32)
        return ONQ_OK;
    w.quantized_name = n->input.v[row->weight];
    w.scale = input_constant(d, n, row->scale);
    w.zero = input_constant(d, n, row->zero);
    if (row->scale < 0)
        OQ_TRY(by_name(m, w.quantized_name, "_scale", &w.scale, err));
    if (row->zero < 0)
        OQ_TRY(by_name(m, w.quantized_name, "_zero_point", &w.zero, err));
    w.scale2 = input_constant(d, n, row->scale2);
    if (row->scale2 >= 0)
        w.zero = NULL;
    if (oq_str_is(n->op_type, "Gather") && w.scale == NULL)
        return ONQ_OK; /* a table of indices */
    if (w.scale == NULL || (row->scale2 >= 0 && w.scale2 == NULL))
        return oq_debug_leave(d, w.quantized_name, true, "its scale is not a constant", err);
    if (!set_axis(&w, row, n) || !zero_fits(&w))
        return oq_debug_leave(d, w.quantized_name, true, NO_FIT, err);
    OQ_TRY(find_float(m, &w, n, err));
    if (row->axis == AXIS_LSTM)
        w.transposed = w.out_rows = true;
    return w.flt != NULL ? add(m, &w, err) : ONQ_OK;
}

/* ---- other layouts ---- */

/* A float initializer with a pair after it (AddQDQPairToWeight). */
static onq_code match_pair_weight(matching *m, uint32_t i, onq_error *err) {
    oq_debug *d = m->d;
    const oq_node *q = d->quantized_index.graph->node.v[i];
    oq_tensor *t = q->input.n >= 2 ? oq_index_init(&d->quantized_index, q->input.v[0]) : NULL;
    if (t == NULL || !oq_dtype_is_float(t->data_type.v))
        return ONQ_OK;
    oq_debug_weight w = {.position = i, .axis = -1, .layout = OQ_DEBUG_PAIR, .quantized = t};
    w.quantized_name = w.name = q->input.v[0];
    w.scale = input_constant(d, q, 1);
    w.zero = input_constant(d, q, 2);
    w.flt = oq_index_constant(&d->float_index, w.name);
    if (w.scale == NULL || w.flt == NULL || !same_count(w.flt, t) || !set_axis(&w, &rows[0], q) ||
        (w.zero != NULL && count_of(w.zero) != count_of(w.scale)))
        return ONQ_OK;
    const oq_node *dq =
        first_user(&d->quantized_index, q->output.n > 0 ? q->output.v[0] : w.quantized_name, NULL);
    oq_str used;
    if (dq != NULL)
        set_user(m, &w, dq, &used);
    const oq_dtype type = w.zero != NULL ? (oq_dtype)w.zero->data_type.v : OQ_UINT8;
    OQ_TRY(add(m, &w, err));
    const uint32_t at = oq_map_find(&m->seen, w.name);
    d->weights.v[at].type = type;
    return ONQ_OK;
}

/* The constant C of Add(MatMulNBits(x), MatMul(ReduceSum(x), C)), or NULL. */
static oq_tensor *find_offsets(const oq_index *ix, const oq_node *n, const oq_debug_weight *w) {
    const oq_node *sum = n->output.n > 0 ? first_user(ix, n->output.v[0], NULL) : NULL;
    if (sum == NULL || !oq_node_is(sum, "Add") || sum->input.n != 2)
        return NULL;
    const oq_str other = sum->input.v[oq_str_eq(sum->input.v[0], n->output.v[0]) ? 1 : 0];
    const oq_node *product = oq_index_producer(ix, other);
    if (product == NULL || !oq_node_is(product, "MatMul") || product->input.n != 2)
        return NULL;
    const oq_node *sums = oq_index_producer(ix, product->input.v[0]);
    oq_tensor *t = oq_index_constant(ix, product->input.v[1]);
    if (sums == NULL || !oq_node_is(sums, "ReduceSum") || t == NULL || t->dims.n != 2 ||
        t->data_type.v != OQ_FLOAT)
        return NULL;
    return (uint64_t)t->dims.v[0] * w->block == (uint64_t)w->k && t->dims.v[1] == w->n ? t : NULL;
}

static onq_code match_blocks(matching *m, uint32_t i, onq_error *err) {
    oq_debug *d = m->d;
    const oq_node *n = d->quantized_index.graph->node.v[i];
    const bool bnb = oq_str_is(n->op_type, "MatMulBnb4");
    oq_debug_weight w = {.position = i, .axis = -1, .layout = bnb ? OQ_DEBUG_BNB4 : OQ_DEBUG_NBITS};
    w.quantized = input_constant(d, n, 1);
    w.scale = input_constant(d, n, 2);
    w.zero = bnb ? NULL : input_constant(d, n, 3);
    if (w.quantized == NULL || w.scale == NULL)
        return ONQ_OK;
    w.quantized_name = n->input.v[1];
    w.k = oq_attr_int(n, "K", 0);
    w.n = oq_attr_int(n, "N", 0);
    w.bits = bnb ? 4 : oq_attr_int(n, "bits", 4);
    w.block = (uint64_t)oq_attr_int(n, "block_size", 0);
    w.nf4 = oq_attr_int(n, "quant_type", 1) == 1;
    uint64_t cells = 0;
    if (w.k <= 0 || w.n <= 0 || w.block == 0 || w.block > INT32_MAX ||
        (w.bits != 2 && w.bits != 4 && w.bits != 8) ||
        !oq_mul((uint64_t)w.k, (uint64_t)w.n, &cells))
        return oq_debug_leave(d, w.quantized_name, true, "K, N, bits or block_size is not possible",
                              err);
    if (n->input.n > 4 && n->input.v[4].n > 0)
        return oq_debug_leave(d, w.quantized_name, true, "its columns are reordered (g_idx)", err);
    w.offsets = bnb ? NULL : find_offsets(&d->quantized_index, n, &w);
    OQ_TRY(find_float(m, &w, n, err));
    if (w.flt == NULL)
        return ONQ_OK;
    const size_t rank = w.flt->dims.n; /* the reference takes [1, K, N] too */
    w.out_rows = is_by_rows(m, &w);
    if (count_of(w.flt) != cells || rank < 2 ||
        (!w.out_rows && (w.flt->dims.v[rank - 2] != w.k || w.flt->dims.v[rank - 1] != w.n)))
        return oq_debug_leave(d, w.quantized_name, true,
                              "it has another number of elements than the float weight", err);
    return add(m, &w, err);
}

/* Each row of the float weight is packed separately: [..., columns x bits / 8]. */
static onq_code match_packed(matching *m, oq_debug_weight *w, const oq_node *n, onq_error *err) {
    const int64_t rank = (int64_t)w->quantized->dims.n, axis = oq_attr_int(n, "quantize_axis", 1);
    w->layout = OQ_DEBUG_PACKED;
    w->bits = oq_attr_int(n, "bits", 4);
    w->block = (uint64_t)oq_attr_int(n, "block_size", 128);
    if (rank < 1 || (axis != -1 && axis != rank - 1) || w->block == 0 || w->block > INT32_MAX ||
        (w->bits != 2 && w->bits != 4 && w->bits != 8))
        return oq_debug_leave(m->d, w->quantized_name, true,
                              "bits, block_size or its axis is not possible", err);
    OQ_TRY(find_float(m, w, n, err));
    if (w->flt == NULL)
        return ONQ_OK;
    const uint64_t total = count_of(w->flt), packed = count_of(w->quantized);
    w->k = w->flt->dims.n > 0 ? w->flt->dims.v[w->flt->dims.n - 1] : 0;
    const uint64_t row = w->k > 0 ? ((uint64_t)w->k * (uint64_t)w->bits + 7) / 8 : 0;
    w->n = row > 0 ? (int64_t)(total / (uint64_t)w->k) : 0;
    if (row == 0 || packed % row != 0 || packed / row != (uint64_t)w->n)
        return oq_debug_leave(m->d, w->quantized_name, true,
                              "it has another number of elements than the float weight", err);
    return add(m, w, err);
}

/* Rows that are packed as MatMulNBits has its columns, and reshaped for the Gather. */
static onq_code match_rows(matching *m, oq_debug_weight *w, const oq_node *n, onq_error *err) {
    const oq_index *ix = &m->d->quantized_index;
    const oq_node *from = oq_index_producer(ix, n->input.v[0]);
    if (from == NULL || !oq_str_is(from->op_type, "Reshape") || from->input.n < 1)
        return ONQ_OK;
    w->quantized = oq_index_constant(ix, from->input.v[0]);
    if (w->quantized == NULL || w->quantized->data_type.v != OQ_UINT8)
        return ONQ_OK;
    w->layout = OQ_DEBUG_NBITS;
    w->quantized_name = from->input.v[0];
    w->bits = oq_attr_int(n, "bits", 4);
    w->block = (uint64_t)oq_attr_int(n, "block_size", 128);
    OQ_TRY(find_float(m, w, n, err));
    if (w->flt == NULL || w->flt->dims.n != 2)
        return ONQ_OK;
    w->n = w->flt->dims.v[0];
    w->k = w->flt->dims.v[1];
    w->out_rows = true;
    if (w->k <= 0 || w->n <= 0 || w->block == 0 || w->block > INT32_MAX ||
        (w->bits != 2 && w->bits != 4 && w->bits != 8))
        return oq_debug_leave(m->d, w->quantized_name, true,
                              "bits, block_size or its axis is not possible", err);
    return add(m, w, err);
}

static onq_code match_gather_blocks(matching *m, uint32_t i, onq_error *err) {
    oq_debug *d = m->d;
    const oq_node *n = d->quantized_index.graph->node.v[i];
    oq_debug_weight w = {.position = i, .axis = -1};
    w.quantized = input_constant(d, n, 0);
    w.scale = input_constant(d, n, 2);
    w.zero = input_constant(d, n, 3);
    if (w.quantized == NULL && w.scale != NULL)
        return match_rows(m, &w, n, err);
    if (w.quantized == NULL || w.scale == NULL)
        return ONQ_OK;
    w.quantized_name = n->input.v[0];
    if (w.quantized->data_type.v == OQ_UINT8)
        return match_packed(m, &w, n, err);
    const int64_t rank = (int64_t)w.quantized->dims.n;
    w.axis = oq_attr_int(n, "quantize_axis", 1);
    w.axis = w.axis < 0 ? w.axis + rank : w.axis;
    w.block = (uint64_t)oq_attr_int(n, "block_size", 128);
    if (w.axis < 0 || w.axis >= rank || w.block == 0)
        return oq_debug_leave(d, w.quantized_name, true, NO_FIT, err);
    const uint64_t dim = (uint64_t)w.quantized->dims.v[w.axis], total = count_of(w.quantized);
    if (dim == 0 || total / dim * ((dim + w.block - 1) / w.block) != count_of(w.scale) ||
        !zero_fits(&w))
        return oq_debug_leave(d, w.quantized_name, true, NO_FIT, err);
    OQ_TRY(find_float(m, &w, n, err));
    return w.flt != NULL ? add(m, &w, err) : ONQ_OK;
}

onq_code oq_debug_match_weights(oq_debug *d, const oq_debug_places *p, onq_error *err) {
    matching m = {.d = d, .places = p};
    oq_map_init(&m.seen, &d->arena);
    const oq_graph *g = d->quantized_index.graph;
    for (uint32_t i = 0; i < g->node.n; i++) {
        const oq_node *n = g->node.v[i];
        for (size_t k = 0; k < OQ_COUNT(rows); k++)
            if (oq_str_is(n->op_type, rows[k].op))
                OQ_TRY(match_row(&m, &rows[k], i, err));
        if (oq_node_is_dequantize(n))
            OQ_TRY(match_row(&m, &of_dequantize, i, err));
        else if (oq_node_is_quantize(n))
            OQ_TRY(match_pair_weight(&m, i, err));
        else if (oq_str_is(n->op_type, "MatMulNBits") || oq_str_is(n->op_type, "MatMulBnb4"))
            OQ_TRY(match_blocks(&m, i, err));
        else if (oq_str_is(n->op_type, "GatherBlockQuantized"))
            OQ_TRY(match_gather_blocks(&m, i, err));
    }
    return ONQ_OK;
}
