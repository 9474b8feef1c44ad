/*
 * cv_lift_weights.c — operators with a packed weight: MatMulNBits, MatMulBnb4, GatherBlockQuantized
 * and DynamicQuantizeLSTM. The weight becomes a float tensor, or integers in the order that
 * DequantizeLinear takes.
 */
#include "quantize/convert/cv.h"

#include "quantize/number/code_book.h"
#include "quantize/number/qweight.h"

/* A constant input of the node; ONQ_E_UNSUPPORTED where it is computed. */
static onq_code constant(oq_cv_scope *s, const oq_node *n, size_t slot, oq_tensor **out,
                         onq_error *err) {
    const oq_str name = oq_node_input(n, slot);
    *out = oq_cv_constant(s, name);
    if (*out == NULL && name.n > 0)
        return oq_cv_refuse(n, ONQ_E_UNSUPPORTED, err, "its input '%.*s' is computed",
                            OQ_STR(name));
    return ONQ_OK;
}

/* A constant of that many elements. */
static onq_code constant_of(oq_cv_scope *s, const oq_node *n, size_t slot, uint64_t count,
                            oq_tensor **t, oq_span *raw, onq_error *err) {
    uint64_t have = 0;
    OQ_TRY(constant(s, n, slot, t, err));
    if (*t == NULL)
        return oq_cv_refuse(n, ONQ_E_INVALID, err, "input %zu is missing", slot);
    OQ_TRY(oq_tensor_count(*t, &have, err));
    if (have != count)
        return oq_cv_refuse(n, ONQ_E_INVALID, err, "'%.*s' has %llu elements, not %llu",
                            OQ_STR((*t)->name), (unsigned long long)have,
                            (unsigned long long)count);
    return oq_model_data(s->cv->model, *t, raw, err);
}

/* What was made of a weight by a node before this one, if that is in this graph. */
static bool have(oq_cv_scope *s, oq_str weight, oq_str *out, oq_str *key) {
    *key = oq_str_format(&s->cv->scratch, "weight|%.*s", (int)weight.n, weight.p);
    const uint32_t i = key->p != NULL ? oq_map_find(&s->made, *key) : OQ_MAP_NONE;
    if (i != OQ_MAP_NONE)
        *out = s->floats.v[i];
    return i != OQ_MAP_NONE;
}

static onq_code keep(oq_cv_scope *s, oq_str key, oq_str made, onq_error *err) {
    return key.p != NULL && OQ_PUSH(&s->cv->scratch, &s->floats, made) &&
                   oq_map_put(&s->made, key, (uint32_t)(s->floats.n - 1))
               ? ONQ_OK
               : oq_fail_nomem(err);
}

static onq_code float_weight(oq_cv_scope *s, const oq_tensor *from, const oq_cv_values *v,
                             const int64_t *dims, size_t rank, oq_str *out, onq_error *err) {
    *out = oq_cv_fresh(s, from->name, "");
    oq_tensor *t = oq_cv_init(s, from->name, *out, v->real, dims, rank);
    OQ_TRY_ALLOC(t != NULL, err);
    s->cv->job->n_weights++;
    return oq_cv_values_payload(s->cv->model, t, v, err);
}

/* ---- MatMulNBits ---- */

typedef struct packed {
    uint64_t k, n, block, blocks, zero_row; /* zero_row: zero points of a column, with padding */
    unsigned bits;
    oq_tensor *q, *scale, *zero;
    oq_span data, scales, zeros;
    bool real_zero;
    uint32_t *groups; /* of rows; NULL: in the order of the blocks */
} packed;

static oq_dtype type_of(unsigned bits, bool is_signed) {
    if (bits == 2)
        return is_signed ? OQ_INT2 : OQ_UINT2;
    if (bits == 4)
        return is_signed ? OQ_INT4 : OQ_UINT4;
    return is_signed ? OQ_INT8 : OQ_UINT8;
}

static onq_code read_sizes(const oq_node *n, packed *p, onq_error *err) {
    const int64_t k = oq_attr_int(n, "K", 0), cols = oq_attr_int(n, "N", 0),
                  bits = oq_attr_int(n, "bits", 4), block = oq_attr_int(n, "block_size", 0);
    if (k < 1 || cols < 1 || k > INT32_MAX || cols > INT32_MAX || block < 16 || block > 4096 ||
        (block & (block - 1)) != 0 || (bits != 2 && bits != 4 && bits != 8))
        return oq_cv_refuse(n, ONQ_E_UNSUPPORTED, err, "K %lld, N %lld, %lld bits, blocks of %lld",
                            (long long)k, (long long)cols, (long long)bits, (long long)block);
    p->k = (uint64_t)k;
    p->n = (uint64_t)cols;
    p->bits = (unsigned)bits;
    p->block = (uint64_t)block;
    p->blocks = (p->k + p->block - 1) / p->block;
    return ONQ_OK;
}

/* Rows in another order than that of the blocks: g_idx has the block of each. */
static onq_code read_groups(oq_cv_scope *s, const oq_node *n, packed *p, onq_error *err) {
    oq_tensor *t = NULL;
    int64_t *v = NULL;
    size_t count = 0;
    bool same = true;
    OQ_TRY(constant(s, n, 4, &t, err));
    if (t == NULL)
        return ONQ_OK;
    OQ_TRY(oq_tensor_i64s(s->cv->model, t, &s->cv->scratch, &v, &count, err));
    uint32_t *groups = OQ_NEW_ARRAY(s->cv->arena, uint32_t, p->k + 1);
    OQ_TRY_ALLOC(groups != NULL, err);
    if (count < p->k)
        return oq_cv_refuse(n, ONQ_E_INVALID, err, "'%.*s' has %zu elements for %llu rows",
                            OQ_STR(t->name), count, (unsigned long long)p->k);
    for (uint64_t i = 0; i < p->k; i++) {
        if (v[i] < 0 || (uint64_t)v[i] >= p->blocks)
            return oq_cv_refuse(n, ONQ_E_INVALID, err, "'%.*s' has block %lld of %llu",
                                OQ_STR(t->name), (long long)v[i], (unsigned long long)p->blocks);
        groups[i] = (uint32_t)v[i];
        same &= groups[i] == i / p->block;
    }
    p->groups = same ? NULL : groups;
    if (!same && oq_node_input(n, 3).n > 0)
        return oq_cv_refuse(n, ONQ_E_UNSUPPORTED, err,
                            "it has zero points beside '%.*s', which ONNX Runtime does not apply",
                            OQ_STR(t->name));
    return ONQ_OK;
}

static onq_code read_packed(oq_cv_scope *s, const oq_node *n, packed *p, onq_error *err) {
    OQ_TRY(read_sizes(n, p, err));
    OQ_TRY(read_groups(s, n, p, err));
    OQ_TRY(constant_of(s, n, 1, p->n * p->blocks * (p->block * p->bits / 8), &p->q, &p->data, err));
    OQ_TRY(constant_of(s, n, 2, p->n * p->blocks, &p->scale, &p->scales, err));
    if (p->q->data_type.v != OQ_UINT8 || !oq_dtype_is_float(p->scale->data_type.v))
        return oq_cv_refuse(n, ONQ_E_INVALID, err, "'%.*s' is %s and its scales are %s",
                            OQ_STR(p->q->name), oq_dtype_name(p->q->data_type.v),
                            oq_dtype_name(p->scale->data_type.v));
    if (oq_node_input(n, 3).n == 0)
        return ONQ_OK;
    OQ_TRY(constant(s, n, 3, &p->zero, err));
    p->real_zero = p->zero->data_type.v != OQ_UINT8;
    p->zero_row = p->real_zero ? p->blocks : (p->blocks * p->bits + 7) / 8 * (8 / p->bits);
    return constant_of(s, n, 3, p->real_zero ? p->n * p->blocks : p->n * p->zero_row * p->bits / 8,
                       &p->zero, &p->zeros, err);
}

static oq_cv_turn ints_of(const packed *p) {
    return (oq_cv_turn){.data = p->data,
                        .type = type_of(p->bits, false),
                        .rows = p->k,
                        .cols = p->n,
                        .width = p->n,
                        .stride = p->blocks * p->block,
                        .batch = 1};
}

/* The parameters of a packed weight, in the order of DequantizeLinear's. */
static onq_code note_packed(oq_cv_scope *s, const packed *p, oq_str name, onq_error *err) {
    oq_plan *plan = s->cv->job->plan;
    const uint64_t n = p->n * p->blocks;
    float *scale = OQ_NEW_ARRAY(plan->arena, float, n + 1);
    int32_t *zero = OQ_NEW_ARRAY(plan->arena, int32_t, n + 1);
    const oq_dtype type = type_of(p->bits, p->zero == NULL), stored = type_of(p->bits, false);
    OQ_TRY_ALLOC(scale != NULL && zero != NULL, err);
    for (uint64_t b = 0; b < p->blocks; b++)
        for (uint64_t i = 0; i < p->n; i++) {
            oq_reals_read((oq_dtype)p->scale->data_type.v, p->scales.p, i * p->blocks + b, 1,
                          &scale[b * p->n + i]);
            if (p->zero != NULL)
                zero[b * p->n + i] =
                    (int32_t)oq_raw_get_int(stored, p->zeros.p, i * p->zero_row + b);
        }
    const oq_plan_tensor row = {.name = name,
                                .role = OQ_ROLE_WEIGHT,
                                .type = type,
                                .block = p->block,
                                .blocks = p->blocks,
                                .inner = p->n,
                                .rank = 2,
                                .scale = scale,
                                .zero = zero,
                                .n = n,
                                .why = "from its node"};
    return oq_plan_add_tensor(plan, row) ? ONQ_OK : oq_fail_nomem(err);
}

static onq_code nbits_float(oq_cv_scope *s, const packed *p, oq_str *out, onq_error *err) {
    const oq_cv_turn turn = ints_of(p);
    const int64_t dims[] = {(int64_t)p->k, (int64_t)p->n};
    const oq_cv_values v = {.type = turn.type,
                            .turn = &turn,
                            .scale = p->scales,
                            .scale_type = (oq_dtype)p->scale->data_type.v,
                            .zero = p->zeros,
                            .zero_type = p->zero == NULL ? OQ_UNDEFINED
                                         : p->real_zero  ? (oq_dtype)p->zero->data_type.v
                                                         : type_of(p->bits, false),
                            .no_zero = 1 << (p->bits - 1),
                            .outer = 1,
                            .along = p->k,
                            .inner = p->n,
                            .block = p->block,
                            .groups = p->groups,
                            .per_along = 1,
                            .per_inner = p->blocks,
                            .zero_along = 1,
                            .zero_inner = p->zero_row,
                            .real = (oq_dtype)p->scale->data_type.v};
    OQ_TRY(float_weight(s, p->q, &v, dims, 2, out, err));
    return s->cv->job->with_blocks && p->groups == NULL && !p->real_zero
               ? note_packed(s, p, *out, err)
               : ONQ_OK;
}

/* A tensor of a DequantizeLinear in blocks: a turned part of the weight. */
static onq_code turned(oq_cv_scope *s, const oq_tensor *from, const char *suffix, oq_dtype type,
                       const oq_cv_turn *turn, oq_str *out, onq_error *err) {
    const int64_t dims[] = {(int64_t)turn->rows, (int64_t)turn->cols};
    *out = oq_fresh_tensor(&s->cv->names, from->name, suffix);
    oq_tensor *t = oq_cv_init(s, from->name, *out, type, dims, 2);
    OQ_TRY_ALLOC(t != NULL && oq_index_add_init(&s->index, t), err);
    return oq_cv_turn_payload(s->cv->model, t, turn, err);
}

static onq_code nbits_blocks(oq_cv_scope *s, const packed *p, oq_str *out, onq_error *err) {
    const bool is_signed = p->zero == NULL;
    oq_cv_param param = {.axis = 0, .block = (int64_t)p->block};
    oq_cv_turn ints = ints_of(p), scale = ints, zero = ints;
    oq_str q = {0};
    ints.flip = is_signed;
    scale.data = p->scales;
    scale.type = (oq_dtype)p->scale->data_type.v;
    zero.data = p->zeros;
    zero.rows = scale.rows = p->blocks;
    scale.stride = p->blocks;
    zero.stride = p->zero_row;
    OQ_TRY(turned(s, p->q, "_blocks", type_of(p->bits, is_signed), &ints, &q, err));
    OQ_TRY(turned(s, p->scale, "_blocks", scale.type, &scale, &param.scale, err));
    if (p->zero != NULL)
        OQ_TRY(turned(s, p->zero, "_blocks", type_of(p->bits, false), &zero, &param.zero, err));
    return oq_cv_dequantize(s, q, &param, out, err);
}

/* MatMul with the float weight in place of the node, and its bias. */
static onq_code emit_product(oq_cv_scope *s, const oq_node *n, oq_str weight, oq_str bias,
                             onq_error *err) {
    oq_str in[] = {n->input.v[0], weight};
    const oq_str name = oq_cv_plain_name(n->name);
    oq_node *mul =
        oq_node_make(s->cv->arena, "MatMul",
                     oq_str_eq(name, n->name) ? n->name : oq_fresh_node(&s->cv->names, name, ""),
                     in, 2, n->output.v, 1);
    OQ_TRY_ALLOC(mul != NULL, err);
    oq_node_carry(mul, n);
    OQ_TRY(oq_cv_replaced(s, n, err));
    if (bias.n == 0)
        return oq_cv_emit(s, mul, err);
    const oq_str sum = oq_cv_fresh(s, n->output.v[0], "_product");
    const oq_str add[] = {sum, bias};
    mul->output.v[0] = sum;
    OQ_TRY(oq_cv_emit(s, mul, err));
    return oq_cv_emit(s,
                      oq_node_make(s->cv->arena, "Add", oq_fresh_node_of(&s->cv->names, n, "_Add"),
                                   add, 2, n->output.v, 1),
                      err);
}

static onq_code lift_nbits(oq_cv_scope *s, oq_node *n, onq_error *err) {
    packed p = {0};
    oq_str weight = {0}, key = {0};
    if (n->output.n != 1)
        return oq_cv_refuse(n, ONQ_E_INVALID, err, "it has %zu outputs", n->output.n);
    if (!have(s, oq_node_input(n, 1), &weight, &key)) {
        OQ_TRY(read_packed(s, n, &p, err));
        const bool pairs = s->cv->job->to != OQ_TO_FLOAT;
        const bool odd = p.real_zero || p.groups != NULL;
        if (pairs && odd)
            OQ_TRY(
                oq_cv_inexact(s, n,
                              "its zero points are not integers, or its rows not in the order of "
                              "its blocks, so that its weight can only become float",
                              err));
        OQ_TRY(pairs && !odd ? nbits_blocks(s, &p, &weight, err)
                             : nbits_float(s, &p, &weight, err));
        OQ_TRY(keep(s, key, weight, err));
    }
    return emit_product(s, n, weight, oq_node_input(n, 5), err);
}

/* ---- MatMulBnb4 ---- */

static onq_code bnb4_float(oq_cv_scope *s, const oq_node *n, oq_str *out, onq_error *err) {
    const int64_t k = oq_attr_int(n, "K", 0), cols = oq_attr_int(n, "N", 0),
                  block = oq_attr_int(n, "block_size", 0);
    const int64_t dims[] = {k, cols};
    oq_tensor *q = NULL, *most = NULL;
    oq_span data = {0}, scales = {0};
    if (k < 1 || cols < 1 || block < 1 || k > INT32_MAX || cols > INT32_MAX ||
        oq_attr_int(n, "transB", 1) != 1)
        return oq_cv_refuse(n, ONQ_E_UNSUPPORTED, err, "K %lld, N %lld, blocks of %lld",
                            (long long)k, (long long)cols, (long long)block);
    const uint64_t count = (uint64_t)k * (uint64_t)cols, size = (uint64_t)block;
    OQ_TRY(constant_of(s, n, 1, (count + 1) / 2, &q, &data, err));
    OQ_TRY(constant_of(s, n, 2, (count + size - 1) / size, &most, &scales, err));
    if (q->data_type.v != OQ_UINT8 || !oq_dtype_is_float(most->data_type.v))
        return oq_cv_refuse(n, ONQ_E_INVALID, err, "'%.*s' is %s and its scales are %s",
                            OQ_STR(q->name), oq_dtype_name(q->data_type.v),
                            oq_dtype_name(most->data_type.v));
    const oq_cv_turn turn = {.data = data,
                             .type = OQ_UINT4,
                             .high_first = true,
                             .rows = (uint64_t)k,
                             .cols = (uint64_t)cols,
                             .width = (uint64_t)cols,
                             .stride = (uint64_t)k,
                             .batch = 1};
    oq_cv_values v = {.type = OQ_UINT4,
                      .turn = &turn,
                      .codes = oq_code_book(oq_attr_int(n, "quant_type", 1) == 1),
                      .scale = scales,
                      .scale_type = (oq_dtype)most->data_type.v,
                      .outer = 1,
                      .along = turn.rows,
                      .inner = turn.cols,
                      .block = size,
                      .real = (oq_dtype)most->data_type.v};
    if (turn.rows % size == 0) {
        v.per_along = 1;
        v.per_inner = turn.rows / size;
    } else {
        v.flat_block = size;
    }
    return float_weight(s, q, &v, dims, 2, out, err);
}

static onq_code lift_bnb4(oq_cv_scope *s, oq_node *n, onq_error *err) {
    oq_str weight = {0}, key = {0};
    if (s->cv->job->to != OQ_TO_FLOAT)
        OQ_TRY(oq_cv_inexact(
            s, n, "DequantizeLinear has no FP4 and NF4, so that its weight can only become float",
            err));
    if (n->output.n != 1)
        return oq_cv_refuse(n, ONQ_E_INVALID, err, "it has %zu outputs", n->output.n);
    if (!have(s, oq_node_input(n, 1), &weight, &key)) {
        OQ_TRY(bnb4_float(s, n, &weight, err));
        OQ_TRY(keep(s, key, weight, err));
    }
    return emit_product(s, n, weight, (oq_str){0}, err);
}

/* ---- GatherBlockQuantized ---- */

typedef struct table {
    oq_tensor *q, *scale, *zero;
    oq_dtype type; /* of an element */
    int64_t *dims; /* in elements */
    size_t rank;
    int64_t axis, block;
} table;

/* The table itself, also where a Reshape lies between, because a MatMulNBits shares it. */
static oq_tensor *find_table(oq_cv_scope *s, oq_str name) {
    const oq_node *n = oq_index_producer(&s->index, name);
    if (n != NULL && oq_node_is(n, "Reshape"))
        return oq_cv_constant(s, n->input.v[0]);
    return oq_cv_constant(s, name);
}

static onq_code read_table(oq_cv_scope *s, const oq_node *n, table *t, onq_error *err) {
    const int64_t bits = oq_attr_int(n, "bits", 4);
    uint64_t count = 0;
    t->q = find_table(s, oq_node_input(n, 0));
    OQ_TRY(constant(s, n, 2, &t->scale, err));
    OQ_TRY(constant(s, n, 3, &t->zero, err));
    if (t->q == NULL || t->scale == NULL)
        return oq_cv_refuse(n, ONQ_E_UNSUPPORTED, err, "its table or its scales are computed");
    t->rank = t->scale->dims.n;
    t->block = oq_attr_int(n, "block_size", 128);
    t->axis = oq_attr_int(n, "quantize_axis", 1);
    t->axis += t->axis < 0 ? (int64_t)t->rank : 0;
    t->type = t->q->data_type.v == OQ_UINT8 ? type_of((unsigned)bits, false)
                                            : (oq_dtype)t->q->data_type.v;
    t->dims = OQ_NEW_ARRAY(&s->cv->scratch, int64_t, t->rank + 1);
    OQ_TRY_ALLOC(t->dims != NULL, err);
    if (t->rank == 0 || t->axis < 0 || t->axis >= (int64_t)t->rank || t->block < 1 ||
        (bits != 2 && bits != 4 && bits != 8))
        return oq_cv_refuse(n, ONQ_E_INVALID, err,
                            "%lld bits, blocks of %lld along axis %lld of '%.*s'", (long long)bits,
                            (long long)t->block, (long long)t->axis, OQ_STR(t->q->name));
    OQ_TRY(oq_tensor_count(t->q, &count, err));
    if (t->q->data_type.v == OQ_UINT8)
        count *= 8U / (unsigned)bits;
    uint64_t others = 1;
    for (size_t i = 0; i < t->rank; i++) {
        t->dims[i] = t->scale->dims.v[i];
        others *= (int64_t)i == t->axis ? 1 : (uint64_t)t->scale->dims.v[i];
    }
    if (others == 0 || count % others != 0)
        return oq_cv_refuse(n, ONQ_E_INVALID, err, "the scales '%.*s' do not fit table '%.*s'",
                            OQ_STR(t->scale->name), OQ_STR(t->q->name));
    t->dims[t->axis] = (int64_t)(count / others);
    return ONQ_OK;
}

/* Tensors as a DequantizeLinear would have them: views of the same bytes with elements that are not
 * packed into larger ones. */
static oq_tensor *viewed(oq_cv_scope *s, oq_tensor *from, oq_dtype type, const int64_t *dims,
                         size_t rank, onq_error *err) {
    oq_span raw = {0};
    oq_tensor *t = oq_tensor_new(s->cv->arena, from->name, type, dims, rank);
    uint64_t size = 0;
    if (t == NULL || oq_model_data(s->cv->model, from, &raw, err) != ONQ_OK ||
        oq_tensor_bytes(t, &size, err) != ONQ_OK || size != raw.n)
        return NULL;
    oq_tensor_set_view(t, raw.p, raw.n);
    return t;
}

/* The zero point that uint8 tables have where none is given: the middle. */
static onq_code middle(oq_cv_scope *s, const table *t, oq_tensor **out, onq_error *err) {
    const unsigned bits = oq_dtype_find(t->type)->bits;
    uint64_t size = 0;
    *out = oq_tensor_new(s->cv->arena, oq_cv_fresh(s, t->scale->name, "_zero_points"), t->type,
                         t->scale->dims.v, t->rank);
    OQ_TRY_ALLOC(*out != NULL, err);
    OQ_TRY(oq_tensor_bytes(*out, &size, err));
    uint8_t *p = oq_arena_alloc(s->cv->arena, (size_t)size + 1);
    OQ_TRY_ALLOC(p != NULL, err);
    memset(p, bits == 8 ? 0x80 : bits == 4 ? 0x88 : 0xAA, (size_t)size);
    oq_tensor_set_view(*out, p, size);
    return ONQ_OK;
}

static onq_code table_parts(oq_cv_scope *s, const oq_node *n, const table *t, oq_tensor **q,
                            oq_tensor **zero, onq_error *err) {
    *q = viewed(s, t->q, t->type, t->dims, t->rank, err);
    *zero = NULL;
    if (t->zero != NULL)
        *zero = viewed(s, t->zero, t->type, t->scale->dims.v, t->rank, err);
    if (*q == NULL || (t->zero != NULL && *zero == NULL))
        return oq_cv_refuse(n, ONQ_E_UNSUPPORTED, err,
                            "its table '%.*s' or its zero points have bits between rows",
                            OQ_STR(t->q->name));
    return t->zero == NULL && t->q->data_type.v == OQ_UINT8 ? middle(s, t, zero, err) : ONQ_OK;
}

static onq_code table_float(oq_cv_scope *s, const oq_node *n, const table *t, oq_str *out,
                            onq_error *err) {
    oq_tensor *q = NULL, *zero = NULL;
    oq_cv_values v;
    OQ_TRY(table_parts(s, n, t, &q, &zero, err));
    const onq_code rc =
        oq_cv_values_linear(s->cv->model, q, t->scale, zero, t->axis, t->block, &v, err);
    if (rc != ONQ_OK)
        return oq_error_in(err, rc, "node '%.*s' (GatherBlockQuantized)", OQ_STR(oq_node_label(n)));
    return float_weight(s, t->q, &v, t->dims, t->rank, out, err);
}

static onq_code table_blocks(oq_cv_scope *s, const oq_node *n, const table *t, oq_str *out,
                             onq_error *err) {
    oq_tensor *part[2] = {NULL, NULL};
    oq_str name[2] = {{0}};
    OQ_TRY(table_parts(s, n, t, &part[0], &part[1], err));
    for (size_t i = 0; i < 2; i++) {
        if (part[i] == NULL)
            continue;
        name[i] = oq_fresh_tensor(&s->cv->names, part[i]->name, i == 0 ? "_blocks" : "_of_blocks");
        oq_tensor *made = oq_cv_init(s, t->scale->name, name[i], (oq_dtype)part[i]->data_type.v,
                                     part[i]->dims.v, part[i]->dims.n);
        OQ_TRY_ALLOC(made != NULL && oq_index_add_init(&s->index, made), err);
        oq_tensor_set_view(made, part[i]->raw_data.p, part[i]->raw_data.n);
    }
    const oq_cv_param p = {
        .scale = t->scale->name, .zero = name[1], .axis = t->axis, .block = t->block};
    return oq_cv_dequantize(s, name[0], &p, out, err);
}

static onq_code lift_gather(oq_cv_scope *s, oq_node *n, onq_error *err) {
    table t = {0};
    oq_str out = {0}, key = {0};
    if (n->input.n < 3 || n->output.n != 1)
        return oq_cv_refuse(n, ONQ_E_INVALID, err, "inputs are missing");
    if (!have(s, oq_node_input(n, 0), &out, &key)) {
        OQ_TRY(read_table(s, n, &t, err));
        OQ_TRY(s->cv->job->to == OQ_TO_FLOAT ? table_float(s, n, &t, &out, err)
                                             : table_blocks(s, n, &t, &out, err));
        OQ_TRY(keep(s, key, out, err));
    }
    const oq_str in[] = {out, n->input.v[1]};
    const oq_str name = oq_cv_plain_name(n->name);
    oq_node *made =
        oq_node_make(s->cv->arena, "Gather",
                     oq_str_eq(name, n->name) ? n->name : oq_fresh_node(&s->cv->names, name, ""),
                     in, 2, n->output.v, 1);
    if (made == NULL ||
        !oq_attr_set_int(s->cv->arena, made, OQ_S("axis"), oq_attr_int(n, "gather_axis", 0)))
        return oq_fail_nomem(err);
    oq_node_carry(made, n);
    OQ_TRY(oq_cv_replaced(s, n, err));
    return oq_cv_emit(s, made, err);
}

/* ---- DynamicQuantizeLSTM ---- */

/* W or R: [directions, inputs, gates] of integers, which LSTM has as [directions, gates, inputs]. */
static onq_code lstm_weight(oq_cv_scope *s, const oq_node *n, size_t slot, size_t param,
                            oq_str *out, onq_error *err) {
    oq_tensor *q = NULL, *scale = NULL, *zero = NULL;
    uint64_t n_scales = 0, n_zeros = 0;
    oq_cv_values v = {.along = 1, .block = 1, .per_outer = 1, .zero_outer = 1};
    OQ_TRY(constant(s, n, slot, &q, err));
    OQ_TRY(constant(s, n, param, &scale, err));
    OQ_TRY(constant(s, n, param + 1, &zero, err));
    if (q == NULL || scale == NULL || zero == NULL || q->dims.n != 3)
        return oq_cv_refuse(n, ONQ_E_INVALID, err, "weight %zu has no constant parameters", slot);
    OQ_TRY(oq_tensor_count(scale, &n_scales, err));
    OQ_TRY(oq_tensor_count(zero, &n_zeros, err));
    OQ_TRY(oq_model_data(s->cv->model, scale, &v.scale, err));
    OQ_TRY(oq_model_data(s->cv->model, zero, &v.zero, err));
    oq_cv_turn turn = {.type = (oq_dtype)q->data_type.v,
                       .batch = (uint64_t)q->dims.v[0],
                       .cols = (uint64_t)q->dims.v[1],
                       .rows = (uint64_t)q->dims.v[2],
                       .stride = (uint64_t)q->dims.v[2],
                       .width = (uint64_t)q->dims.v[1]};
    turn.step = turn.cols * turn.rows;
    OQ_TRY(oq_model_data(s->cv->model, q, &turn.data, err));
    const bool channels = n_scales == turn.batch * turn.rows;
    if (n_zeros != n_scales || (!channels && n_scales != turn.batch) ||
        !oq_dtype_is_float(scale->data_type.v))
        return oq_cv_refuse(n, ONQ_E_INVALID, err, "the parameters of '%.*s' do not fit it",
                            OQ_STR(q->name));
    v.type = turn.type;
    v.turn = &turn;
    v.scale_type = v.real = (oq_dtype)scale->data_type.v;
    v.zero_type = (oq_dtype)zero->data_type.v;
    v.outer = n_scales;
    v.inner = turn.cols * (channels ? 1 : turn.rows);
    const int64_t dims[] = {q->dims.v[0], q->dims.v[2], q->dims.v[1]};
    return float_weight(s, q, &v, dims, 3, out, err);
}

static onq_code lift_lstm(oq_cv_scope *s, oq_node *n, onq_error *err) {
    oq_str w = {0}, r = {0};
    if (s->cv->job->to != OQ_TO_FLOAT)
        OQ_TRY(
            oq_cv_inexact(s, n, "it quantizes its states in every step, which no pair can", err));
    if (n->input.n < 12)
        return oq_cv_refuse(n, ONQ_E_INVALID, err, "inputs are missing");
    OQ_TRY(lstm_weight(s, n, 1, 8, &w, err));
    OQ_TRY(lstm_weight(s, n, 2, 10, &r, err));
    oq_node *made = oq_cv_as(s, n, "", "LSTM");
    OQ_TRY_ALLOC(made != NULL, err);
    for (size_t i = 0; i < 8; i++)
        OQ_TRY_ALLOC(oq_node_add_input(s->cv->arena, made,
                                       i == 1   ? w
                                       : i == 2 ? r
                                                : n->input.v[i]),
                     err);
    while (made->input.n > 0 && made->input.v[made->input.n - 1].n == 0)
        made->input.n--;
    for (size_t i = 0; i < n->output.n; i++)
        OQ_TRY_ALLOC(oq_node_add_output(s->cv->arena, made, n->output.v[i]), err);
    OQ_TRY(oq_cv_replaced(s, n, err));
    return oq_cv_emit(s, made, err);
}

onq_code oq_cv_lift_weights(oq_cv_scope *s, uint32_t at, bool *done, onq_error *err) {
    static const struct {
        const char *type;
        onq_code (*lift)(oq_cv_scope *s, oq_node *n, onq_error *err);
    } rules[] = {{"MatMulNBits", lift_nbits},
                 {"MatMulBnb4", lift_bnb4},
                 {"GatherBlockQuantized", lift_gather},
                 {"DynamicQuantizeLSTM", lift_lstm}};
    oq_node *n = s->graph->node.v[at];
    for (size_t i = 0; oq_str_is(n->domain, OQ_MICROSOFT) && i < OQ_COUNT(rules); i++)
        if (oq_str_is(n->op_type, rules[i].type)) {
            *done = true;
            return rules[i].lift(s, n, err);
        }
    return ONQ_OK;
}

onq_code oq_cv_to_blocks(oq_cv_scope *s, onq_error *err) {
    for (uint32_t i = 0; i < s->graph->node.n; i++) {
        oq_node *n = s->graph->node.v[i];
        const oq_convert_job *job = s->cv->job;
        bool done = false;
        const bool known =
            oq_str_is(n->op_type, "MatMulNBits") || oq_str_is(n->op_type, "GatherBlockQuantized");
        if (known && (job->takes == NULL || job->takes(job->takes_ctx, &s->index, n)))
            OQ_TRY(oq_cv_lift_weights(s, i, &done, err));
        if (!done)
            OQ_TRY(oq_cv_emit(s, n, err));
    }
    return ONQ_OK;
}
