/*
 * shape_attention.c — attention operators: ONNX's own and the contrib family.
 *
 * Present states (the key and value caches) come from the past ones: their sequence length grows by
 * the new tokens unless past and present share one buffer.
 */
#include "shape/sop.h"

static oq_sdim over(oq_rctx *c, oq_sdim d, int64_t n) {
    if (c->plain && !oq_sdim_is_num(d))
        return oq_sdim_unknown();
    return n > 0 ? oq_sdim_floordiv(c->ds, d, oq_sdim_num(n)) : oq_sdim_unknown();
}

/* ---- ONNX Attention (opset 23 and later), and FlexAttention ---- */

/* Q [B, H, S, D] or [B, S, H*D] with heads as attributes; K and V alike. */
typedef struct heads {
    oq_sdim batch, q_heads, kv_heads, q_len, kv_len, v_size;
    bool flat;
} heads;

static bool read_heads(oq_rctx *c, heads *h) {
    const oq_vtype *q = oq_r_shape(c, 0), *k = oq_r_shape(c, 1), *v = oq_r_shape(c, 2);
    if (q == NULL || v == NULL)
        return false;
    if ((q->rank != 3 && q->rank != 4) || v->rank != q->rank || (k != NULL && k->rank != q->rank))
        return oq_r_fail(c, "query and value have ranks %u and %u", q->rank, v->rank);
    h->flat = q->rank == 3;
    const int64_t qn = oq_r_int(c, "q_num_heads", 0), kvn = oq_r_int(c, "kv_num_heads", 0);
    if (h->flat && (qn <= 0 || kvn <= 0))
        return oq_r_fail(c, "q_num_heads and kv_num_heads are needed with rank 3");
    h->batch = q->dims[0];
    h->q_heads = h->flat ? oq_sdim_num(qn) : q->dims[1];
    h->kv_heads = h->flat ? oq_sdim_num(kvn) : v->dims[1];
    h->q_len = q->dims[h->flat ? 1 : 2];
    h->kv_len = v->dims[h->flat ? 1 : 2];
    h->v_size = h->flat ? over(c, v->dims[2], kvn) : v->dims[3];
    return true;
}

void oq_rule_attention(oq_rctx *c) {
    heads h = {.flat = false};
    OQ_R_NEED(oq_r_pass_elem(c, 0, 0));
    const oq_vtype *pk = oq_r_shape(c, 4), *pv = oq_r_shape(c, 5);
    const bool past = oq_r_has(c, 4) && oq_r_has(c, 5);
    if (past && c->n_out > 2) {
        oq_r_pass_elem(c, 4, 1);
        oq_r_pass_elem(c, 5, 2);
    } else if (!c->plain) {
        for (size_t o = 1; o < c->n_out && o < 3; o++)
            oq_r_pass_elem(c, o, o);
    }
    if (c->n_out > 3)
        oq_r_pass_elem(c, 0, 3);
    OQ_R_NEED(!c->failed && read_heads(c, &h));
    if (h.flat) {
        const oq_sdim dims[3] = {h.batch, h.q_len, oq_sdim_mul(c->ds, h.q_heads, h.v_size)};
        oq_r_set_shape(c, 0, dims, 3);
    } else {
        const oq_sdim dims[4] = {h.batch, h.q_heads, h.q_len, h.v_size};
        oq_r_set_shape(c, 0, dims, 4);
    }
    oq_sdim total = h.kv_len;
    if (past) {
        total = oq_sdim_add(c->ds, oq_r_dim(pk, 2), h.kv_len);
        const oq_sdim k[4] = {oq_r_dim(pk, 0), oq_r_dim(pk, 1), total, oq_r_dim(pk, 3)};
        const oq_sdim v[4] = {oq_r_dim(pv, 0), oq_r_dim(pv, 1), total, oq_r_dim(pv, 3)};
        if (pk != NULL && pv != NULL && (!c->plain || oq_sdim_is_num(total))) {
            oq_r_set_shape(c, 1, k, 4);
            oq_r_set_shape(c, 2, v, 4);
        }
    } else if (!c->plain) {
        const oq_vtype *k = oq_r_shape(c, 1);
        const oq_sdim size =
            h.flat ? over(c, oq_r_dim(k, 2), oq_r_int(c, "kv_num_heads", 0)) : oq_r_dim(k, 3);
        const oq_sdim pres_k[4] = {h.batch, h.kv_heads, total, size};
        const oq_sdim pres_v[4] = {h.batch, h.kv_heads, total, h.v_size};
        oq_r_set_shape(c, 1, pres_k, 4);
        oq_r_set_shape(c, 2, pres_v, 4);
    }
    const oq_sdim qk[4] = {h.batch, h.q_heads, h.q_len, total};
    oq_r_set_shape(c, 3, qk, 4);
}

/* Q [B, H, S, D], K, V [B, H, T, Dv] */
void oq_rule_flex_attention(oq_rctx *c) {
    const oq_vtype *q = oq_r_shape(c, 0), *v = oq_r_shape(c, 2);
    OQ_R_NEED(oq_r_pass_elem(c, 0, 0));
    if (q == NULL || v == NULL) {
        if (c->plain)
            oq_r_fail(c, "the shapes of query and value are not known");
        return;
    }
    OQ_R_FAIL_IF(q->rank != 4 || v->rank != 4, c, "query and value must have rank 4");
    const oq_sdim dims[4] = {q->dims[0], q->dims[1], q->dims[2], v->dims[3]};
    oq_r_set_shape(c, 0, dims, 4);
}

/* query, key, value, past_state, decay, beta -> output, present_state [B, H, dk, dv] */
void oq_rule_linear_attention(oq_rctx *c) {
    const int64_t hq = oq_r_int(c, "q_num_heads", 0), hkv = oq_r_int(c, "kv_num_heads", 0);
    const oq_vtype *q = oq_r_shape(c, 0), *k = oq_r_shape(c, 1), *v = oq_r_shape(c, 2);
    OQ_R_FAIL_IF(hq <= 0 || hkv <= 0, c, "q_num_heads or kv_num_heads is missing");
    if (!oq_r_pass_elem(c, 0, 0) ||
        !oq_r_pass_elem(c, oq_r_has(c, 3) && oq_r_elem(c, 3) != 0 ? 3 : 0, 1))
        return;
    const oq_vtype *state = oq_r_shape(c, 3);
    if (!c->plain && state != NULL && oq_r_int(c, "state_window", 0) > 0)
        oq_r_pass_shape(c, 3, 1);
    oq_sdim dk = over(c, oq_r_dim(q, 2), hq);
    dk = oq_sdim_is_unknown(dk) ? over(c, oq_r_dim(k, 2), hkv) : dk;
    dk = oq_sdim_is_unknown(dk) && state != NULL ? oq_r_dim(state, 2) : dk;
    oq_sdim dv = over(c, oq_r_dim(v, 2), hkv);
    dv = oq_sdim_is_unknown(dv) && state != NULL ? oq_r_dim(state, 3) : dv;
    const oq_sdim batch = oq_r_dim(q != NULL ? q : v, 0);
    const int64_t out_heads = hq > hkv ? hq : hkv;
    const oq_sdim out[3] = {batch, oq_r_dim(q != NULL ? q : v, 1),
                            oq_sdim_muln(c->ds, dv, out_heads)};
    const oq_sdim present[4] = {batch, oq_sdim_num(hkv), dk, dv};
    oq_r_set_shape(c, 0, out, 3);
    if (c->n_out > 1 && !c->out[1].has_shape)
        oq_r_set_shape(c, 1, present, 4);
}

/* input [B, C, L], weight [C, 1, k], bias, past_state -> output, present_state [B, C, k - 1] */
void oq_rule_causal_conv(oq_rctx *c) {
    const oq_vtype *x = oq_r_shape(c, 0), *w = oq_r_shape(c, 1), *past = oq_r_shape(c, 3);
    OQ_R_NEED(oq_r_pass_elem(c, 0, 0) && oq_r_pass_elem(c, 0, 1));
    oq_r_pass_shape(c, 0, 0);
    if (!c->plain && past != NULL) {
        oq_r_pass_shape(c, 3, 1);
        return;
    }
    if (!c->plain && (oq_r_int(c, "ndim", 1) != 1 || oq_r_int(c, "channels_last", 0) != 0))
        return;
    const oq_sdim k = w != NULL && w->rank == 3 ? w->dims[2] : oq_sdim_unknown();
    oq_sdim tail = oq_sdim_muln(c->ds, oq_sdim_addn(c->ds, k, -1), oq_r_int(c, "dilation", 1));
    if (oq_sdim_is_unknown(tail))
        tail = oq_r_dim(past, 2);
    const oq_sdim dims[3] = {oq_r_dim(x, 0), oq_r_dim(x, 1), tail};
    oq_r_set_shape(c, 1, dims, 3);
}

/* ---- contrib ---- */

/* The hidden size of V from the merged weights or the bias. */
static oq_sdim v_hidden(oq_rctx *c) {
    const int64_t *sizes;
    size_t n;
    const oq_vtype *w = oq_r_shape(c, 1), *b = oq_r_shape(c, 2);
    if (oq_r_ints(c, "qkv_hidden_sizes", &sizes, &n) && n == 3)
        return oq_sdim_num(sizes[2]);
    const oq_sdim all = b != NULL && b->rank == 1 ? b->dims[0] : oq_r_dim(w, 1);
    return over(c, all, 3);
}

/* present [2, B, heads, past + S, head_size] */
static void merged_present(oq_rctx *c, const oq_vtype *x, size_t past_at, oq_sdim hidden) {
    const oq_vtype *past = oq_r_shape(c, past_at);
    const int64_t n = oq_r_int(c, "num_heads", 0);
    OQ_R_NEED(c->n_out >= 2);
    oq_r_set_elem(c, 1, c->out[0].elem_type);
    if (past != NULL && oq_r_int(c, "past_present_share_buffer", 0) != 0) {
        oq_r_pass_shape(c, past_at, 1);
        return;
    }
    oq_sdim total = oq_r_dim(x, 1);
    if (past != NULL && past->rank == 5)
        total = oq_sdim_add(c->ds, past->dims[3], total);
    const oq_sdim size = past != NULL && past->rank == 5 ? past->dims[4] : over(c, hidden, n);
    const oq_sdim dims[5] = {oq_sdim_num(2), oq_r_dim(x, 0), oq_sdim_num(n), total, size};
    oq_r_set_shape(c, 1, dims, 5);
}

static void merged_attention(oq_rctx *c, size_t elem_from, size_t past_at) {
    const oq_vtype *x = oq_r_shape(c, 0);
    OQ_R_NEED(oq_r_pass_elem(c, elem_from, 0));
    OQ_R_NEED(x != NULL && x->rank == 3);
    oq_sdim hidden = v_hidden(c);
    hidden = oq_sdim_is_unknown(hidden) ? x->dims[2] : hidden;
    const oq_sdim dims[3] = {x->dims[0], x->dims[1], hidden};
    oq_r_set_shape(c, 0, dims, 3);
    merged_present(c, x, past_at, hidden);
}

/* input, weights, bias, mask_index, past */
void oq_rule_ms_attention(oq_rctx *c) {
    merged_attention(c, 0, 4);
}

/* input, weight, bias, input_scale, weight_scale, mask_index, zero points, past */
void oq_rule_qattention(oq_rctx *c) {
    merged_attention(c, 3, 8);
}

/* Tokens without padding: input [tokens, hidden]. */
void oq_rule_packed_attention(oq_rctx *c) {
    const oq_vtype *x = oq_r_shape(c, 0);
    OQ_R_NEED(oq_r_pass_elem(c, 0, 0) && x != NULL && x->rank == 2);
    const oq_sdim dims[2] = {x->dims[0], v_hidden(c)};
    oq_r_set_shape(c, 0, dims, 2);
}

/* query [tokens, hidden], or packed [tokens, heads, 3, head_size]. */
void oq_rule_packed_mha(oq_rctx *c) {
    const oq_vtype *q = oq_r_shape(c, 0), *v = oq_r_shape(c, 2);
    OQ_R_NEED(oq_r_pass_elem(c, 0, 0));
    if (v != NULL && v->rank == 2) {
        oq_r_pass_shape(c, 2, 0);
    } else if (q != NULL && q->rank == 4) {
        const oq_sdim dims[2] = {q->dims[0], oq_sdim_mul(c->ds, q->dims[1], q->dims[3])};
        oq_r_set_shape(c, 0, dims, 2);
    }
}

/* The caches of MultiHeadAttention: [B, heads, past + T, head_size]. */
static void split_present(oq_rctx *c, const oq_vtype *q, oq_sdim total, size_t past_at) {
    const oq_vtype *past = oq_r_shape(c, past_at);
    const int64_t n = oq_r_int(c, "num_heads", 0);
    const oq_sdim k_size = q->rank == 3 ? over(c, q->dims[2], n) : q->dims[4];
    if (past != NULL && past->rank == 4)
        total = oq_sdim_add(c->ds, past->dims[2], total);
    for (size_t o = 1; o < c->n_out && o < 3; o++) {
        oq_sdim size = k_size;
        if (o == 2 && c->out[0].has_shape && c->out[0].rank == 3)
            size = over(c, c->out[0].dims[2], n);
        const oq_sdim dims[4] = {q->dims[0], oq_sdim_num(n), total, size};
        oq_r_set(c, o, c->out[0].elem_type, dims, 4);
    }
}

/* query, key, value, bias, key_padding_mask, attention_bias, past_key, past_value */
void oq_rule_multi_head_attention(oq_rctx *c) {
    const oq_vtype *q = oq_r_shape(c, 0), *k = oq_r_shape(c, 1), *v = oq_r_shape(c, 2);
    OQ_R_NEED(oq_r_pass_elem(c, 0, 0) && q != NULL);
    oq_sdim total;
    if (q->rank == 3) {
        oq_sdim hidden = q->dims[2];
        if (v != NULL && v->rank == 3)
            hidden = v->dims[2];
        else if (v != NULL && v->rank == 4)
            hidden = oq_sdim_mul(c->ds, v->dims[1], v->dims[3]);
        const oq_sdim dims[3] = {q->dims[0], q->dims[1], hidden};
        oq_r_set_shape(c, 0, dims, 3);
        /* key: [B, T, hidden], packed [B, T, heads, 2, size], or a cache [B, heads, T, size] */
        total = k == NULL ? q->dims[1] : oq_r_dim(k, k->rank == 4 ? 2 : 1);
    } else if (q->rank == 5) {
        const oq_sdim dims[3] = {q->dims[0], q->dims[1],
                                 oq_sdim_mul(c->ds, q->dims[2], q->dims[4])};
        oq_r_set_shape(c, 0, dims, 3);
        total = q->dims[1];
    } else {
        return;
    }
    split_present(c, q, total, 6);
}

/* One token at a time; the caches keep their buffers. */
void oq_rule_decoder_masked_mha(oq_rctx *c) {
    const oq_vtype *q = oq_r_shape(c, 0), *v = oq_r_shape(c, 2);
    OQ_R_NEED(oq_r_pass_elem(c, 0, 0));
    if (q != NULL && q->rank == 3) {
        const oq_sdim hidden = v != NULL && v->rank == 3 ? v->dims[2] : q->dims[2];
        const oq_sdim dims[3] = {q->dims[0], q->dims[1], hidden};
        oq_r_set_shape(c, 0, dims, 3);
    }
    for (size_t o = 1; o < c->n_out && o < 3; o++) {
        if (oq_r_shape(c, o + 4) != NULL) {
            oq_r_set_elem(c, o, c->out[0].elem_type);
            oq_r_pass_shape(c, o + 4, o);
        }
    }
}

/* The length of a cache after the new tokens: GroupQueryAttention gets the total as a value. Else
 * a past of fixed length is taken to be a buffer of the greatest length, as the reference does; one
 * of open length may grow. */
static oq_sdim cache_length(oq_rctx *c, const oq_vtype *past, oq_sdim new_tokens) {
    const oq_data *total =
        oq_str_is(c->node->op_type, "GroupQueryAttention") ? oq_r_data(c, 6) : NULL;
    const bool known = total != NULL && total->n == 1 && total->v[0].den == 1;
    if (past == NULL)
        return known ? total->v[0].d : new_tokens;
    if (known)
        return oq_sdim_max(c->ds, past->dims[2], total->v[0].d);
    return oq_sdim_is_num(past->dims[2]) ? past->dims[2] : oq_sdim_unknown();
}

/* query (or packed QKV), key, value, past_key, past_value: GroupQueryAttention and
 * SparseAttention. */
void oq_rule_group_query_attention(oq_rctx *c) {
    const oq_vtype *q = oq_r_shape(c, 0);
    const int64_t n = oq_r_int(c, "num_heads", 0), kv = oq_r_int(c, "kv_num_heads", 0);
    const bool packed = !oq_r_has(c, 1) && !oq_r_has(c, 2);
    if (!oq_r_pass_elem(c, 0, 0) || q == NULL || q->rank != 3 || n <= 0 || kv < 0 || kv > 1 << 20 ||
        n > 1 << 20)
        return;
    const oq_sdim size = over(c, q->dims[2], packed ? n + 2 * kv : n);
    const oq_sdim dims[3] = {q->dims[0], q->dims[1],
                             packed ? oq_sdim_muln(c->ds, size, n) : q->dims[2]};
    oq_r_set_shape(c, 0, dims, 3);
    for (size_t o = 1; o < c->n_out && o < 3; o++) {
        const oq_vtype *past = oq_r_shape(c, o + 2);
        oq_r_set_elem(c, o, oq_r_elem(c, o + 2) != 0 ? oq_r_elem(c, o + 2) : c->out[0].elem_type);
        if (past != NULL ? past->rank != 4 : oq_r_has(c, o + 2))
            continue;
        const oq_sdim cache[4] = {past != NULL ? past->dims[0] : q->dims[0],
                                  past != NULL ? past->dims[1] : oq_sdim_num(kv),
                                  cache_length(c, past, q->dims[1]),
                                  past != NULL ? past->dims[3] : size};
        oq_r_set_shape(c, o, cache, 4);
    }
}

/* As above; without a past the cache's length is the value of input 10. */
void oq_rule_dynamic_sparse_attention(oq_rctx *c) {
    oq_rule_group_query_attention(c);
    const oq_data *total = oq_r_data(c, 10);
    for (size_t o = 1; o < c->n_out && o < 3 && !oq_r_has(c, 3); o++) {
        if (c->out[o].has_shape && c->out[o].rank == 4) {
            oq_sdim dims[4];
            memcpy(dims, c->out[o].dims, sizeof dims);
            dims[2] = total != NULL && total->n == 1 ? total->v[0].d : oq_r_fresh(c, 1, 2);
            oq_r_set_shape(c, o, dims, 4);
        }
    }
}

/* Output [tokens, heads * v_head_size]; the caches are inputs 3 and 4. */
void oq_rule_paged_attention(oq_rctx *c) {
    const oq_vtype *q = oq_r_shape(c, 0);
    const int64_t n = oq_r_int(c, "num_heads", 0), kv = oq_r_int(c, "kv_num_heads", 0);
    const bool latent = oq_r_str_is(c, "kv_cache_layout", "SEPARATE", "LATENT");
    const bool packed = !latent && !oq_r_has(c, 1);
    oq_r_pass(c, 0, 0);
    OQ_R_NEED(!c->failed);
    const int64_t by = latent ? n : n + 2 * kv;
    if ((latent || packed) && q != NULL && q->rank == 2 && oq_sdim_is_num(q->dims[1]) && by > 0 &&
        n > 0 && q->dims[1].n % by == 0) {
        const int64_t head = q->dims[1].n / by, v = latent ? oq_r_int(c, "v_head_size", 0) : 0;
        const oq_sdim dims[2] = {q->dims[0], oq_sdim_num(n * (v > 0 ? v : head))};
        oq_r_set_shape(c, 0, dims, 2);
    }
    for (size_t o = 1; o < c->n_out && o < 3; o++)
        oq_r_set_type(c, o, oq_r_type(c, o + 2));
}

/* query [S, B, hidden] first; caches [B, heads, length, size]. */
void oq_rule_decoder_attention(oq_rctx *c) {
    const oq_vtype *q = oq_r_shape(c, 0);
    const int64_t n = oq_r_int(c, "num_heads", 0);
    oq_r_pass(c, 0, 0);
    OQ_R_NEED(!c->failed && q != NULL && q->rank == 3);
    for (size_t o = 1; o < c->n_out && o < 3; o++) {
        const oq_sdim dims[4] = {q->dims[1], oq_sdim_num(n), oq_r_fresh(c, o, 2),
                                 over(c, q->dims[2], n)};
        oq_r_set(c, o, q->elem_type, dims, 4);
    }
}

/* [B, heads, S, S] from the query, or from token_offset [B, S] when padding was removed. */
void oq_rule_gated_relative_position_bias(oq_rctx *c) {
    const oq_vtype *q = oq_r_shape(c, 0), *offset = oq_r_shape(c, 6);
    const oq_vtype *t = offset != NULL ? offset : q;
    OQ_R_NEED(oq_r_pass_elem(c, 0, 0) && t != NULL && t->rank >= 2);
    const oq_sdim dims[4] = {t->dims[0], oq_sdim_num(oq_r_int(c, "num_heads", 0)), t->dims[1],
                             t->dims[1]};
    oq_r_set_shape(c, 0, dims, 4);
}

void oq_rule_relative_position_bias(oq_rctx *c) {
    const oq_vtype *table = oq_r_shape(c, 0);
    const oq_data *len[2] = {oq_r_data(c, 1), oq_r_data(c, 2)};
    OQ_R_NEED(oq_r_pass_elem(c, 0, 0));
    oq_sdim dims[4] = {oq_sdim_num(1), oq_r_dim(table, 1), oq_r_fresh(c, 0, 2),
                       oq_r_fresh(c, 0, 3)};
    for (size_t i = 0; i < 2; i++)
        if (len[i] != NULL && len[i]->n == 1 && len[i]->v[0].den == 1)
            dims[i + 2] = len[i]->v[0].d;
    oq_r_set_shape(c, 0, dims, 4);
}

/* Outputs after extra constants, as exporters of modules as functions leave them. */
void oq_rule_rotary_embedding(oq_rctx *c) {
    const size_t last = c->n_out > 0 ? c->n_out - 1 : 0;
    oq_r_pass(c, 0, last);
    for (size_t o = 0; o < last; o++)
        oq_r_set_type(c, o, oq_r_type(c, 1));
    const oq_vtype *x = oq_r_shape(c, 0);
    const bool onnx = c->node->domain.n == 0;
    if (onnx && x != NULL && (x->rank < 3 || x->rank > 4))
        oq_r_fail(c, "the input must have rank 3 or 4");
}

/* emb, q, q_rot, k, k_rot -> two outputs like q and k. */
void oq_rule_gemma_rotary_embedding(oq_rctx *c) {
    oq_r_pass(c, 1, 0);
    if (!c->failed && c->n_out > 1)
        oq_r_pass(c, 3, 1);
}
