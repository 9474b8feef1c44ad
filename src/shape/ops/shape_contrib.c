/*
 * shape_contrib.c — the other com.microsoft operators: embeddings, padding removal, fused forms,
 * and what symbolic_shape_infer.py knows besides.
 */
#include "shape/sop.h"

/* ids [B, S] and a table [V, H]: output [B, S, H], mask_index [B], the sum before normalization. */
static void embed(oq_rctx *c, int32_t elem_type) {
    const oq_vtype *ids = oq_r_shape(c, 0), *table = oq_r_shape(c, 2);
    const oq_sdim dims[3] = {oq_r_dim(ids, 0), oq_r_dim(ids, 1), oq_r_dim(table, 1)};
    oq_r_set_elem(c, 0, elem_type);
    oq_r_set_elem(c, 1, OQ_INT32);
    oq_r_set_elem(c, 2, elem_type);
    if (ids != NULL && ids->rank == 2) {
        oq_r_set_shape(c, 0, dims, 3);
        oq_r_set_shape(c, 1, dims, 1);
        oq_r_set_shape(c, 2, dims, 3);
    }
}

void oq_rule_embed_layer_norm(oq_rctx *c) {
    embed(c, oq_r_elem(c, 2));
}

void oq_rule_qembed_layer_norm(oq_rctx *c) {
    embed(c, OQ_FLOAT);
}

/* The first of two halves along the last axis. */
void oq_rule_bias_split_gelu(oq_rctx *c) {
    const oq_vtype *x = oq_r_shape(c, 0), *b = oq_r_shape(c, 1);
    OQ_R_NEED(oq_r_pass_elem(c, 0, 0) && x != NULL && x->rank == 3);
    const oq_sdim wide = b != NULL && b->rank == 1 ? b->dims[0] : x->dims[2];
    const oq_sdim dims[3] = {x->dims[0], x->dims[1], oq_sdim_floordiv(c->ds, wide, oq_sdim_num(2))};
    oq_r_set_shape(c, 0, dims, 3);
}

/* SwiGLU: gate and value are two halves of the last axis, or two inputs. */
void oq_rule_swiglu(oq_rctx *c) {
    const oq_vtype *x = oq_r_shape(c, 0);
    OQ_R_NEED(oq_r_pass_elem(c, 0, 0) && x != NULL);
    size_t axis;
    oq_sdim *dims = oq_r_dims_of(c, x);
    OQ_R_NEED(dims != NULL && oq_r_axis(c, oq_r_int(c, "axis", -1), x->rank, &axis));
    if (!oq_r_has(c, 1))
        dims[axis] = oq_sdim_floordiv(c->ds, dims[axis], oq_sdim_num(2));
    oq_r_set_shape(c, 0, dims, x->rank);
}

/* [B, S, H] -> tokens without padding. */
void oq_rule_remove_padding(oq_rctx *c) {
    const oq_vtype *x = oq_r_shape(c, 0);
    OQ_R_NEED(oq_r_pass_elem(c, 0, 0) && x != NULL && x->rank == 3);
    const oq_sdim dims[2] = {oq_r_fresh(c, 0, 0), x->dims[2]};
    const oq_sdim cumulated = oq_sdim_addn(c->ds, x->dims[0], 1), one = oq_sdim_num(1);
    oq_r_set_shape(c, 0, dims, 2);
    for (size_t o = 1; o < c->n_out && o < 4; o++)
        oq_r_set_elem(c, o, OQ_INT32);
    oq_r_set_shape(c, 1, x->dims, 2);
    oq_r_set_shape(c, 2, &cumulated, 1);
    oq_r_set_shape(c, 3, &one, 1);
}

void oq_rule_restore_padding(oq_rctx *c) {
    const oq_vtype *x = oq_r_shape(c, 0), *offset = oq_r_shape(c, 1);
    if (!oq_r_pass_elem(c, 0, 0) || x == NULL || offset == NULL || x->rank != 2 ||
        offset->rank != 2)
        return;
    const oq_sdim dims[3] = {offset->dims[0], offset->dims[1], x->dims[1]};
    oq_r_set_shape(c, 0, dims, 3);
}

void oq_rule_unfold_tensor(oq_rctx *c) {
    const oq_vtype *x = oq_r_shape(c, 0);
    const int64_t size = oq_r_int(c, "size", 0), step = oq_r_int(c, "step", 1);
    size_t axis;
    if (!oq_r_pass_elem(c, 0, 0) || x == NULL ||
        !oq_r_axis(c, oq_r_int(c, "dim", -1), x->rank, &axis))
        return;
    if (size <= 0 || step <= 0)
        oq_r_fail(c, "size and step must be positive");
    else
        oq_r_unfold(c, x, axis, size, step);
}

void oq_rule_dynamic_time_warping(oq_rctx *c) {
    const oq_sdim dims[2] = {oq_sdim_num(2), oq_r_fresh(c, 0, 1)};
    oq_r_set(c, 0, oq_str_is(c->node->domain, "com.microsoft") ? OQ_INT32 : OQ_FLOAT, dims, 2);
}

/* tokens of unknown number, and a single index. */
void oq_rule_bifurcation_detector(oq_rctx *c) {
    const oq_sdim tokens = oq_r_fresh(c, 0, 0);
    oq_r_set_elem(c, 0, OQ_INT64);
    oq_r_set_elem(c, 1, OQ_INT64);
    oq_r_set_shape(c, 0, &tokens, 1);
    oq_r_set_shape(c, 1, NULL, 0);
}

void oq_rule_cdist(oq_rctx *c) {
    const oq_vtype *a = oq_r_shape(c, 0), *b = oq_r_shape(c, 1);
    if (oq_r_pass_elem(c, 0, 0)) {
        const oq_sdim dims[2] = {oq_r_dim(a, 0), oq_r_dim(b, 0)};
        oq_r_set_shape(c, 0, dims, 2);
    }
}

void oq_rule_crop_and_resize(oq_rctx *c) {
    const oq_vtype *x = oq_r_shape(c, 0), *rois = oq_r_shape(c, 1);
    const oq_data *size = oq_r_data(c, 3);
    OQ_R_NEED(oq_r_pass_elem(c, 0, 0));
    oq_sdim dims[4] = {oq_r_dim(rois, 0), oq_r_dim(x, 1), oq_sdim_unknown(), oq_sdim_unknown()};
    if (size != NULL && size->n == 2) {
        dims[2] = size->v[0].d;
        dims[3] = size->v[1].d;
    }
    oq_r_set_shape(c, 0, dims, 4);
}

void oq_rule_expand_dims(oq_rctx *c) {
    const oq_vtype *x = oq_r_shape(c, 0);
    int64_t at;
    size_t axis;
    OQ_R_NEED(oq_r_pass_elem(c, 0, 0) && x != NULL);
    if (!oq_r_int_in(c, 1, &at)) {
        oq_r_set_rank(c, 0, (size_t)x->rank + 1);
        return;
    }
    oq_sdim *dims = oq_r_dims(c, (size_t)x->rank + 1);
    OQ_R_NEED(dims != NULL && oq_r_axis(c, at, (size_t)x->rank + 1, &axis));
    for (size_t i = 0; i <= x->rank; i++)
        dims[i] = i == axis ? oq_sdim_num(1) : x->dims[i > axis ? i - 1 : i];
    oq_r_set_shape(c, 0, dims, (size_t)x->rank + 1);
}

void oq_rule_bool_scalar(oq_rctx *c) {
    oq_r_set(c, 0, OQ_BOOL, NULL, 0);
}

/* 32-bit hashes: of int32 type when positive is 0. */
void oq_rule_murmur_hash(oq_rctx *c) {
    oq_r_set_elem(c, 0, oq_r_int(c, "positive", 1) != 0 ? OQ_UINT32 : OQ_INT32);
    oq_r_pass_shape(c, 0, 0);
}

/* BiasDropout: the mask is bool; of the bitmask kinds it is packed into uint32. */
void oq_rule_bias_dropout(oq_rctx *c) {
    oq_r_pass(c, 0, 0);
    if (!c->failed && c->n_out > 1) {
        oq_r_set_elem(c, 1, OQ_BOOL);
        oq_r_pass_shape(c, 0, 1);
    }
}

void oq_rule_bitmask_dropout(oq_rctx *c) {
    const oq_vtype *x = oq_r_shape(c, 0);
    oq_r_pass(c, 0, 0);
    OQ_R_NEED(!c->failed && c->n_out >= 2);
    oq_r_set_elem(c, 1, OQ_UINT32);
    if (x != NULL) {
        const oq_sdim all = oq_r_product(c, x->dims, 0, x->rank);
        const oq_sdim words = oq_sdim_ceildiv(c->ds, all, oq_sdim_num(32));
        oq_r_set_shape(c, 1, &words, 1);
    }
}

/* y, idx (as long as x), counts. */
void oq_rule_ms_unique(oq_rctx *c) {
    const oq_vtype *x = oq_r_shape(c, 0);
    const oq_sdim n = oq_r_fresh(c, 0, 0), all = oq_r_dim(x, 0);
    OQ_R_NEED(oq_r_pass_elem(c, 0, 0));
    oq_r_set_shape(c, 0, &n, 1);
    oq_r_set(c, 1, OQ_INT64, &all, 1);
    oq_r_set(c, 2, OQ_INT64, &n, 1);
}

/* Rfft adds an axis of 2 and halves the last; Irfft undoes it. */
static void rfft(oq_rctx *c, bool inverse) {
    const oq_vtype *x = oq_r_shape(c, 0);
    if (!oq_r_pass_elem(c, 0, 0) || x == NULL || x->rank < (inverse ? 2u : 1u))
        return;
    const size_t rank = inverse ? x->rank - 1u : x->rank + 1u, last = inverse ? rank - 1 : rank - 2;
    oq_sdim *dims = oq_r_dims(c, rank);
    OQ_R_NEED(dims != NULL && (!inverse || rank != 0));
    memcpy(dims, x->dims, (inverse ? rank : x->rank) * sizeof *dims);
    if (inverse) {
        dims[last] = oq_sdim_muln(c->ds, oq_sdim_addn(c->ds, dims[last], -1), 2);
    } else {
        dims[last] = oq_sdim_addn(c->ds, oq_sdim_floordiv(c->ds, dims[last], oq_sdim_num(2)), 1);
        dims[rank - 1] = oq_sdim_num(2);
    }
    oq_r_set_shape(c, 0, dims, rank);
}

void oq_rule_rfft(oq_rctx *c) {
    rfft(c, false);
}

void oq_rule_irfft(oq_rctx *c) {
    rfft(c, true);
}

/* ATen embedding: weight, indices. */
void oq_rule_torch_embedding(oq_rctx *c) {
    const oq_vtype *w = oq_r_shape(c, 0), *ix = oq_r_shape(c, 1);
    OQ_R_NEED(oq_r_pass_elem(c, 0, 0) && w != NULL && ix != NULL && w->rank == 2);
    oq_r_set_last(c, 0, ix, ix->rank, w->dims[1]);
}

/* streams (..., C, H), or flattened (..., C*H) with num_branches = C -> (..., H). */
void oq_rule_hyper_connection_pre_mix(oq_rctx *c) {
    const oq_vtype *x = oq_r_shape(c, 0);
    const int64_t n = oq_r_int(c, "num_branches", 0);
    if (!oq_r_pass_elem(c, 0, 0) || x == NULL || x->rank < (n > 0 ? 1u : 2u))
        return;
    const oq_sdim last = x->dims[x->rank - 1];
    if (n > 0)
        oq_r_set_last(c, 0, x, x->rank - 1, oq_sdim_floordiv(c->ds, last, oq_sdim_num(n)));
    else
        oq_r_set_last(c, 0, x, x->rank - 2, last);
}

static void set_state(oq_rctx *c, size_t o, size_t i, int32_t elem_type) {
    if (oq_r_wants(c, o) && oq_r_has(c, i)) {
        oq_r_set_elem(c, o, elem_type);
        oq_r_pass_shape(c, i, o);
    }
}

static int64_t index_capacity(const oq_rctx *c) {
    return oq_r_str_is(c, "policy_mode", "", "qsa")
               ? oq_r_int(c, "token_budget", 0) + oq_r_int(c, "compress_ratio", 0) - 1
               : oq_r_int(c, "index_topk", 0);
}

/* The chosen positions [B, S, capacity], and the states of the index. */
void oq_rule_sparse_attention_indexer(oq_rctx *c) {
    const oq_vtype *q = oq_r_shape(c, 0), *norm = oq_r_shape(c, 2), *past = oq_r_shape(c, 7);
    const int32_t e = oq_r_elem(c, 0);
    oq_r_set_elem(c, 0, OQ_INT32);
    OQ_R_NEED(q != NULL && q->rank >= 2);
    const oq_sdim picked[3] = {q->dims[0], q->dims[1], oq_sdim_num(index_capacity(c))};
    oq_r_set_shape(c, 0, picked, 3);
    const bool shared = oq_r_has(c, 12), qsa = oq_r_str_is(c, "policy_mode", "", "qsa");
    if (past != NULL && past->rank >= 2) {
        const oq_sdim grown =
            qsa ? oq_sdim_add(c->ds, past->dims[1], q->dims[1]) : oq_r_fresh(c, 1, 1);
        const oq_sdim dims[3] = {q->dims[0], shared ? past->dims[1] : grown, oq_r_dim(norm, 0)};
        oq_r_set(c, 1, e, dims, 3);
    }
    const oq_vtype *buffer = oq_r_shape(c, 13);
    if (!qsa && buffer != NULL && buffer->rank == 4) {
        const oq_sdim dims[4] = {oq_sdim_num(2), q->dims[0], oq_r_fresh(c, 2, 2), buffer->dims[3]};
        oq_r_set(c, 2, e, dims, 4);
    }
}

/* The same over packed tokens; states never grow. */
void oq_rule_packed_sparse_attention_indexer(oq_rctx *c) {
    const oq_vtype *q = oq_r_shape(c, 0), *key = oq_r_shape(c, 12);
    const int32_t e = oq_r_elem(c, 0);
    const oq_sdim picked[2] = {oq_r_dim(q, 0), oq_sdim_num(index_capacity(c))};
    oq_r_set(c, 0, OQ_INT32, picked, 2);
    oq_r_set(c, 1, OQ_INT32, picked, 1);
    const bool qsa = oq_r_str_is(c, "policy_mode", "", "qsa");
    set_state(c, 2, 12, e);
    set_state(c, 3, 13, e);
    if (!qsa)
        set_state(c, 4, 14, e);
    set_state(c, 5, 15, OQ_INT32);
    if (qsa && key != NULL && key->rank == 3) {
        const oq_sdim dims[3] = {key->dims[0], oq_sdim_num(oq_r_int(c, "state_update_capacity", 0)),
                                 key->dims[2]};
        oq_r_set(c, 6, e, dims, 3);
    }
}

/* Two projections of one input: A [..., K] -> Y [..., N], and the sum of the residual. */
void oq_rule_nbits_mlp(oq_rctx *c) {
    const oq_vtype *x = oq_r_shape(c, 0);
    static const char *const names[] = {"Nq", "Nkv", "Nkv"};
    const bool qkv = oq_r_attr(c, "Nq") != NULL;
    const size_t n_proj = qkv ? 3 : 1;
    for (size_t o = 0; o < c->n_out; o++) {
        OQ_R_NEED(oq_r_pass_elem(c, 0, o));
        if (x != NULL && x->rank > 0)
            oq_r_set_last(c, o, x, x->rank - 1,
                          o < n_proj ? oq_sdim_num(oq_r_int(c, qkv ? names[o] : "N", 0))
                                     : x->dims[x->rank - 1]);
    }
}

/* A [..., K] times a packed weight [N, ...]. */
void oq_rule_block_quantized_matmul(oq_rctx *c) {
    const oq_vtype *x = oq_r_shape(c, 0), *w = oq_r_shape(c, 1);
    if (oq_r_pass_elem(c, 0, 0) && x != NULL && x->rank > 0)
        oq_r_set_last(c, 0, x, x->rank - 1, oq_r_dim(w, 0));
}

/* A PythonOp states types and ranks of its outputs; the first is a context. */
void oq_rule_python_op(oq_rctx *c) {
    const int64_t *types, *ranks;
    size_t n_types, n_ranks;
    oq_r_set(c, 0, OQ_INT64, NULL, 0);
    if (!oq_r_ints(c, "output_tensor_types", &types, &n_types) ||
        !oq_r_ints(c, "output_tensor_ranks", &ranks, &n_ranks))
        return;
    for (size_t o = 1; o < c->n_out && o <= n_types && o <= n_ranks; o++) {
        oq_r_set_elem(c, o, oq_dtype_find(types[o - 1]) != NULL ? (int32_t)types[o - 1] : 0);
        if (ranks[o - 1] >= 0 && ranks[o - 1] <= OQ_MAX_RANK)
            oq_r_set_rank(c, o, (size_t)ranks[o - 1]);
    }
}

/* Each string becomes a row of tokens, padded. */
void oq_rule_tokenizer(oq_rctx *c) {
    oq_r_set_elem(c, 0, OQ_STRING);
    oq_r_append_dim(c, 0, 0);
}

/* NGramRepeatBlock: ids, scores -> scores. */
void oq_rule_second_like(oq_rctx *c) {
    oq_r_pass(c, 1, 0);
}

/* ReduceSumInteger: int32 sums over attribute axes. */
void oq_rule_reduce_integer(oq_rctx *c) {
    oq_rule_reduce(c);
    oq_r_set_elem(c, 0, OQ_INT32);
}
