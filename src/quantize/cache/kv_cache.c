/*
 * kv_cache.c — see kv_cache.h.
 */
#include "quantize/cache/kv_cache.h"

#include "onnx/check/check.h"
#include "onnx/edit.h"
#include "onnx/operators.h"

#include <math.h>

#define MS          "com.microsoft"
#define K_SCALE     12 /* places of the inputs */
#define V_SCALE     13
#define MAX_MEMBERS ((uint64_t)1 << 20) /* of one scale */

/* ---- finding ---- */

static bool is_attention(const oq_node *n) {
    return oq_str_is(n->op_type, "GroupQueryAttention") && oq_str_is(n->domain, MS);
}

static onq_code count_attention(void *ctx, oq_graph *g, onq_error *err OQ_UNUSED) {
    for (size_t i = 0; i < g->node.n; i++)
        *(size_t *)ctx += is_attention(g->node.v[i]);
    return ONQ_OK;
}

static onq_code refuse(const oq_node *n, const char *why, onq_error *err) {
    return oq_fail(err, ONQ_E_UNSUPPORTED, "node '%.*s' (GroupQueryAttention): %s",
                   OQ_STR(oq_node_label(n)), why);
}

/* The first number in a name; `fallback` where it has none. */
static uint64_t number_in(oq_str name, uint64_t fallback) {
    size_t i = 0;
    uint64_t n = 0;
    while (i < name.n && (name.p[i] < '0' || name.p[i] > '9'))
        i++;
    if (i == name.n)
        return fallback;
    for (; i < name.n && name.p[i] >= '0' && name.p[i] <= '9' && n < 1000000; i++)
        n = 10 * n + (uint64_t)(name.p[i] - '0');
    return n;
}

/* How keys were rotated: by the node itself, or by a RotaryEmbedding before it. */
static void find_rotation(const oq_index *ix, const oq_node *n, oq_kv_layer *l) {
    const oq_node *before = oq_index_producer(ix, oq_node_input(n, 1));
    const bool own = oq_attr_int(n, "do_rotary", 0) != 0;
    const bool apart = !own && before != NULL && oq_str_is(before->op_type, "RotaryEmbedding");
    if (!own && !apart)
        return;
    const oq_str cos = own                             ? oq_node_input(n, 7)
                       : oq_str_is(before->domain, MS) ? oq_node_input(before, 2)
                                                       : oq_node_input(before, 1);
    const oq_tensor *t = cos.n > 0 ? oq_index_constant(ix, cos) : NULL;
    l->interleaved = own ? oq_attr_int(n, "rotary_interleaved", 0) != 0
                         : oq_attr_int(before, "interleaved", 0) != 0;
    l->rotary = t != NULL && t->dims.n == 2 ? 2 * (uint64_t)t->dims.v[1] : UINT64_MAX;
}

/* True where nothing reads the values of a state but `own` nodes; a Shape reads its dimensions, and
 * sets l->measured. */
static bool is_read_by(const oq_index *ix, const oq_value *v, size_t own, oq_kv_layer *l) {
    size_t others = 0;
    for (size_t i = 0; i < v->uses.n; i++) {
        const bool shape = v->uses.v[i].slot != OQ_SLOT_INNER &&
                           oq_node_is(ix->graph->node.v[v->uses.v[i].node], "Shape");
        l->measured |= shape;
        others += !shape;
    }
    return others == own;
}

static const char *check_states(const oq_index *ix, oq_kv_layer *l) {
    for (unsigned s = 0; s < OQ_KV_SIDES; s++) {
        const oq_value *in = l->past[s].n > 0 ? oq_index_find(ix, l->past[s]) : NULL;
        const oq_value *out = l->present[s].n > 0 ? oq_index_find(ix, l->present[s]) : NULL;
        if (in == NULL || !in->is_input || in->init != NULL)
            return "its past keys and values are not inputs of the model, so there is no cache";
        if (out == NULL || !out->is_output)
            return "its present keys and values are not outputs of the model, so there is no cache";
        if (!is_read_by(ix, in, 1, l) || in->is_output)
            return "its past keys or values are also read elsewhere, as float";
        if (!is_read_by(ix, out, 0, l))
            return "its present keys or values are also read elsewhere, as float";
    }
    return NULL;
}

static bool find_output(const oq_graph *g, oq_str name, size_t *at) {
    for (*at = 0; *at < g->output.n; (*at)++)
        if (oq_str_eq(g->output.v[*at]->name, name))
            return true;
    return false;
}

/* The declared type of a tensor; OQ_UNDEFINED where there is none. */
static oq_dtype type_of(const oq_graph *g, oq_str name) {
    const oq_value_info *v = oq_graph_find_info(g, name);
    return v != NULL && v->type != NULL && v->type->tensor_type != NULL
               ? (oq_dtype)v->type->tensor_type->elem_type.v
               : OQ_UNDEFINED;
}

static onq_code take_node(const oq_index *ix, const oq_node *n, oq_kv_caches *c, onq_error *err) {
    oq_kv_layer *l = &c->v[c->n];
    *l = (oq_kv_layer){.node = oq_node_label(n),
                       .output = n->output.n > 0 ? n->output.v[0] : OQ_S(""),
                       .heads = (uint64_t)oq_attr_int(n, "kv_num_heads", 0)};
    for (unsigned s = 0; s < OQ_KV_SIDES; s++) {
        l->past[s] = oq_node_input(n, 3 + s);
        l->present[s] = n->output.n > 1 + s ? n->output.v[1 + s] : OQ_S("");
    }
    if (!oq_str_is(oq_attr_str(n, "k_quant_type", "NONE"), "NONE") ||
        !oq_str_is(oq_attr_str(n, "v_quant_type", "NONE"), "NONE"))
        return refuse(n, "its cache is quantized already", err);
    const char *why = check_states(ix, l);
    if (why != NULL)
        return refuse(n, why, err);
    const oq_dtype type = type_of(ix->graph, l->past[OQ_KV_KEY]);
    if (type != OQ_FLOAT && type != OQ_FLOAT16)
        return refuse(n, "its cache is neither float nor float16", err);
    c->type = type;
    for (unsigned s = 0; s < OQ_KV_SIDES; s++)
        find_output(ix->graph, l->present[s], &l->at[s]);
    l->number = number_in(l->present[OQ_KV_KEY], c->n);
    find_rotation(ix, n, l);
    c->n++;
    return ONQ_OK;
}

/* Two caches of one number would be one layer in the file of scales: then the order counts. */
static void number_apart(oq_kv_caches *c) {
    for (size_t i = 0; i < c->n; i++)
        for (size_t k = 0; k < i; k++)
            if (c->v[i].number == c->v[k].number) {
                for (size_t j = 0; j < c->n; j++)
                    c->v[j].number = j;
                return;
            }
}

onq_code oq_kv_find(oq_model *m, oq_arena *a, oq_kv_caches *out, onq_error *err) {
    oq_graph *g = m->proto->graph;
    size_t all = 0;
    oq_index ix;
    OQ_SCRATCH(scratch, &m->env->alloc);
    OQ_TRY(oq_walk_graphs(g, count_attention, &all, err));
    if (all == 0)
        return oq_fail(err, ONQ_E_UNSUPPORTED,
                       "no node is a GroupQueryAttention, the operator that takes caches of "
                       "integers (onnxruntime-genai's builder exports with it)");
    *out = (oq_kv_caches){.arena = a, .v = OQ_NEW_ARRAY(a, oq_kv_layer, all)};
    OQ_TRY_ALLOC(out->v != NULL, err);
    OQ_TRY(oq_index_build(&ix, &scratch, g, NULL, err));
    for (size_t i = 0; i < g->node.n; i++)
        if (is_attention(g->node.v[i]))
            OQ_TRY(take_node(&ix, g->node.v[i], out, err));
    if (out->n < all)
        return oq_fail(err, ONQ_E_UNSUPPORTED,
                       "%zu of %zu nodes of GroupQueryAttention are inside an If, Loop or Scan: "
                       "their caches cannot be changed",
                       all - out->n, all);
    number_apart(out);
    return ONQ_OK;
}

/* ---- seeing ---- */

/* [batch, heads, tokens, size], as the layer has had it so far. */
static onq_code check_cache(oq_kv_caches *c, oq_kv_layer *l, unsigned side, const oq_datum *d,
                            onq_error *err) {
    uint64_t members;
    if (d->kind != OQ_DATUM_TENSOR || !oq_dtype_is_float(d->dtype) || d->rank != 4 ||
        (uint64_t)d->dims[1] != l->heads || d->dims[3] < 1 ||
        (l->size != 0 && (uint64_t)d->dims[3] != l->size))
        return oq_fail(err, ONQ_E_UNSUPPORTED,
                       "output '%.*s' is not a cache of floats [batch, %llu heads, tokens, size]",
                       OQ_STR(l->present[side]), (unsigned long long)l->heads);
    l->size = (uint64_t)d->dims[3];
    if (!oq_mul(l->heads, l->size, &members) || members > MAX_MEMBERS)
        return oq_fail(err, ONQ_E_LIMIT, "output '%.*s': %llu heads of %llu channels",
                       OQ_STR(l->present[side]), (unsigned long long)l->heads,
                       (unsigned long long)l->size);
    for (unsigned part = 0; part < OQ_KV_PARTS; part++) {
        if (l->most[part][side] != NULL)
            continue;
        l->most[part][side] = OQ_NEW_ARRAY(c->arena, float, members);
        OQ_TRY_ALLOC(l->most[part][side] != NULL, err);
    }
    return ONQ_OK;
}

/* The channel that a rotation mixes channel i with; itself where there is none. */
static uint64_t partner(const oq_kv_layer *l, unsigned side, uint64_t i) {
    const uint64_t rotary = l->rotary < l->size ? l->rotary : l->size & ~(uint64_t)1;
    if (side != OQ_KV_KEY || i >= rotary)
        return i;
    if (l->interleaved)
        return i ^ 1;
    return i < rotary / 2 ? i + rotary / 2 : i - rotary / 2;
}

/* The channels of one head of one token. False: one is NaN or an infinity. */
static bool see_token(const oq_kv_layer *l, unsigned side, const float *x, float *most) {
    bool finite = true;
    for (uint64_t i = 0; i < l->size; i++) {
        const uint64_t k = partner(l, side, i);
        const float v = k == i ? fabsf(x[i]) : hypotf(x[i], x[k]);
        finite &= isfinite(v) != 0;
        most[i] = fmaxf(most[i], v);
    }
    return finite;
}

static onq_code see_side(oq_kv_caches *c, oq_kv_layer *l, unsigned part, unsigned side,
                         const oq_datum *d, onq_error *err) {
    OQ_TRY(check_cache(c, l, side, d, err));
    OQ_SCRATCH(scratch, c->arena->alloc);
    const float *x = oq_datum_floats(d, &scratch);
    OQ_TRY_ALLOC(x != NULL || d->count == 0, err);
    const uint64_t tokens = (uint64_t)d->dims[2];
    bool finite = true;
    for (uint64_t row = 0; row < d->count / l->size; row++) {
        const uint64_t head = row / (tokens > 0 ? tokens : 1) % l->heads;
        finite &= see_token(l, side, x + row * l->size, l->most[part][side] + head * l->size);
    }
    if (!finite)
        return oq_fail(err, ONQ_E_INVALID, "output '%.*s' has NaN or an infinity in it",
                       OQ_STR(l->present[side]));
    return ONQ_OK;
}

onq_code oq_kv_see(oq_kv_caches *c, unsigned part, const oq_datum *outputs, onq_error *err) {
    assert(part < OQ_KV_PARTS);
    for (size_t i = 0; i < c->n; i++)
        for (unsigned s = 0; s < OQ_KV_SIDES; s++)
            OQ_TRY(see_side(c, &c->v[i], part, s, &outputs[c->v[i].at[s]], err));
    return ONQ_OK;
}

/* ---- scales ---- */

/* How many scales a tensor has. */
static size_t count_scales(const oq_kv_layer *l, const oq_kv_how *how) {
    return how->per_channel ? (size_t)(l->heads * l->size) : 1;
}

/* Into count_scales floats. What was never seen to be anything but 0 gets a scale of 1. */
static void find_scales(const oq_kv_layer *l, unsigned side, const oq_kv_how *how, float *out) {
    const size_t members = (size_t)(l->heads * l->size), n = count_scales(l, how);
    const float top = how->bits == 4 ? 7 : 127;
    for (size_t i = 0; i < n; i++)
        out[i] = 0;
    for (size_t i = 0; i < members; i++) {
        const float a = l->most[0][side][i], b = how->first_part ? 0 : l->most[1][side][i];
        const size_t k = how->per_channel ? i : 0;
        out[k] = fmaxf(out[k], fmaxf(a, b));
    }
    for (size_t i = 0; i < n; i++) {
        out[i] /= top;
        if (!(out[i] > 0))
            out[i] = 1;
    }
}

onq_code oq_kv_scales_text(const oq_kv_caches *c, const oq_kv_how *how, oq_buf *out,
                           onq_error *err) {
    static const char *const keys[] = {"k_scales", "v_scales"};
    OQ_SCRATCH(scratch, c->arena->alloc);
    oq_jw w;
    oq_jw_init(&w, out, false);
    oq_jw_begin_object(&w, NULL);
    oq_jw_begin_object(&w, "scales");
    for (unsigned s = 0; s < OQ_KV_SIDES; s++) {
        oq_jw_begin_array(&w, keys[s]);
        for (size_t i = 0; i < c->n; i++) {
            const size_t n = count_scales(&c->v[i], how);
            float *v = OQ_NEW_ARRAY(&scratch, float, n);
            OQ_TRY_ALLOC(v != NULL, err);
            find_scales(&c->v[i], s, how, v);
            oq_jw_begin_array(&w, NULL);
            for (size_t k = 0; k < n; k++)
                oq_jw_real(&w, NULL, (double)v[k]);
            oq_jw_end_array(&w);
        }
        oq_jw_end_array(&w);
    }
    oq_jw_end_object(&w);
    /* The builder divides this by 128 or 8, and multiplies scales by it: these it takes as they
     * are. */
    oq_jw_real(&w, "qmax", how->bits == 4 ? 8 : 128);
    oq_jw_begin_array(&w, "layer_ids");
    for (size_t i = 0; i < c->n; i++)
        oq_jw_uint(&w, NULL, c->v[i].number);
    oq_jw_end_array(&w);
    oq_jw_end_object(&w);
    return out->failed ? oq_fail_nomem(err) : ONQ_OK;
}

uint64_t oq_kv_bytes(const oq_kv_caches *c, unsigned bits) {
    uint64_t sum = 0;
    for (size_t i = 0; i < c->n; i++) {
        const uint64_t size = c->v[i].size;
        sum += OQ_KV_SIDES * c->v[i].heads *
               (bits == 8   ? size
                : bits == 4 ? (size + 1) / 2
                            : size * (c->type == OQ_FLOAT16 ? 2 : 4));
    }
    return sum;
}

/* ---- writing ---- */

static onq_code add_scale(oq_model *m, oq_fresh *names, const oq_kv_layer *l, unsigned side,
                          const oq_kv_how *how, oq_str *name, onq_error *err) {
    const size_t n = count_scales(l, how);
    const int64_t dims[] = {1, (int64_t)l->heads, 1, (int64_t)l->size}, one = 1;
    OQ_SCRATCH(scratch, &m->env->alloc);
    float *v = OQ_NEW_ARRAY(&scratch, float, n);
    *name = oq_fresh_tensor(names, l->node, side == OQ_KV_KEY ? ".k_scale" : ".v_scale");
    OQ_TRY_ALLOC(v != NULL && name->p != NULL, err);
    find_scales(l, side, how, v);
    oq_tensor *t = how->per_channel ? oq_tensor_new(&m->arena, *name, OQ_FLOAT, dims, 4)
                                    : oq_tensor_new(&m->arena, *name, OQ_FLOAT, &one, 1);
    OQ_TRY_ALLOC(t != NULL, err);
    OQ_TRY(oq_tensor_set_raw(&m->arena, t, v, n * sizeof *v, err));
    return oq_graph_add_init(&m->arena, m->proto->graph, t) ? ONQ_OK : oq_fail_nomem(err);
}

static onq_code set_node(oq_model *m, oq_node *n, const oq_str scales[OQ_KV_SIDES],
                         const oq_kv_how *how, onq_error *err) {
    oq_arena *a = &m->arena;
    const oq_str type = how->per_channel ? OQ_S("PER_CHANNEL") : OQ_S("PER_TENSOR");
    while (n->input.n <= V_SCALE)
        OQ_TRY_ALLOC(oq_node_add_input(a, n, OQ_S("")), err);
    n->input.v[K_SCALE] = scales[OQ_KV_KEY];
    n->input.v[V_SCALE] = scales[OQ_KV_VALUE];
    OQ_TRY_ALLOC(oq_attr_set_str(a, n, OQ_S("k_quant_type"), type) &&
                     oq_attr_set_str(a, n, OQ_S("v_quant_type"), type) &&
                     oq_attr_set_int(a, n, OQ_S("kv_cache_bit_width"), how->bits),
                 err);
    return ONQ_OK;
}

/* The type of an input or output, and where two values share a byte its last dimension. */
static void set_type(oq_graph *g, oq_str name, const oq_kv_layer *l, unsigned bits) {
    oq_value_info *v = oq_graph_find_info(g, name);
    oq_tensor_type *t = v != NULL && v->type != NULL ? v->type->tensor_type : NULL;
    if (t == NULL)
        return;
    t->elem_type = OQ_I32(bits == 4 ? OQ_UINT8 : OQ_INT8);
    if (bits == 4 && t->shape != NULL && t->shape->dim.n == 4) {
        oq_dim *d = t->shape->dim.v[3];
        d->dim_param = (oq_str){0};
        d->dim_value = OQ_I64((int64_t)(l->size + 1) / 2);
    }
}

static onq_code write_layer(oq_model *m, oq_fresh *names, oq_node *n, const oq_kv_layer *l,
                            const oq_kv_how *how, onq_error *err) {
    oq_str scales[OQ_KV_SIDES];
    for (unsigned s = 0; s < OQ_KV_SIDES; s++) {
        if (l->most[0][s] == NULL)
            return oq_fail(err, ONQ_E_INVALID, "no sample has shown the cache of node '%.*s'",
                           OQ_STR(l->node));
        OQ_TRY(add_scale(m, names, l, s, how, &scales[s], err));
        set_type(m->proto->graph, l->past[s], l, how->bits);
        set_type(m->proto->graph, l->present[s], l, how->bits);
    }
    return set_node(m, n, scales, how, err);
}

onq_code oq_kv_write(oq_model *m, const oq_kv_caches *c, const oq_kv_how *how, onq_error *err) {
    oq_graph *g = m->proto->graph;
    oq_fresh names;
    size_t at = 0;
    OQ_SCRATCH(scratch, &m->env->alloc);
    oq_model_touch(m);
    OQ_TRY(oq_fresh_init(&names, &scratch, m, err));
    for (size_t i = 0; i < g->node.n && at < c->n; i++) {
        oq_node *n = g->node.v[i];
        if (!is_attention(n))
            continue;
        assert(oq_str_eq(n->output.v[0], c->v[at].output)); /* in the order of the nodes */
        OQ_TRY(write_layer(m, &names, n, &c->v[at++], how, err));
    }
    OQ_TRY(oq_model_raise_ir(m, 4, err)); /* constants that are not inputs */
    OQ_ASSERT_VALID(m);
    return ONQ_OK;
}
