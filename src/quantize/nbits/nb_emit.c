/*
 * nb_emit.c — the nodes and initializers that stand in for a node, as the reference writes them:
 * names, order, attributes.
 */
#include "quantize/nbits/nb_run.h"

#include "onnx/operators.h"

/* What the reference calls the parts of a weight, and the order in which it stores them. */
typedef struct wording {
    const char *scale, *zero; /* suffixes; that of the integers has numbers in it */
    unsigned order[OQ_NB_PARTS];
} wording;

static const wording as_default = {"_scales", "_zero_points", {OQ_NB_Q, OQ_NB_SCALE, OQ_NB_ZEROS}};
static const wording as_qdq = {
    "_DQ_scales", "_DQ_zero_points", {OQ_NB_Q, OQ_NB_SCALE, OQ_NB_ZEROS}};
static const wording as_sums = {"_scales", "_offsets", {OQ_NB_Q, OQ_NB_SCALE, OQ_NB_ZEROS}};
static const wording as_inc = {"_scale", "_zp", {OQ_NB_SCALE, OQ_NB_ZEROS, OQ_NB_Q}};
static const wording as_bnb4 = {"_absmax", "", {OQ_NB_Q, OQ_NB_SCALE, OQ_NB_ZEROS}};

static oq_str suffix(oq_nb_state *r, const wording *words, const oq_nb_how *how) {
    if (words == &as_bnb4)
        return OQ_S("_Bnb4");
    if (words == &as_inc)
        return oq_str_format(r->arena, "_Q%uG%llu", how->bits, (unsigned long long)how->block);
    return oq_str_format(r->arena, words == &as_qdq ? "_DQ_Q%u" : "_Q%u", how->bits);
}

static bool push(oq_nb_scope *s, oq_nb_state *r, const oq_nb_how *how, oq_node *n) {
    const bool apart = s->parent == NULL && how->method->as_intel;
    return apart ? OQ_PUSH(r->scratch, &s->apart, n) : OQ_PUSH(r->scratch, &s->out, n);
}

/* ---- quantized weights ---- */

/* The reference quantizes a weight again for every node that reads it and then removes all but the
 * last of the copies. */
static onq_code move_to_end(oq_nb_state *r, const oq_nb_done *d, onq_error *err) {
    oq_graph *g = d->scope->graph;
    for (unsigned i = 0; i < OQ_NB_PARTS; i++) {
        oq_tensor *t = d->part[i];
        if (t == NULL || d->how.method->as_intel)
            continue;
        oq_graph_remove_init(g, t->name);
        if (!oq_graph_add_init(r->arena, g, t))
            return oq_fail_nomem(err);
    }
    return ONQ_OK;
}

/* Dimensions and types of the parts. */
typedef struct form {
    oq_dtype type[OQ_NB_PARTS];
    int64_t dims[OQ_NB_PARTS][3];
    size_t rank[OQ_NB_PARTS];
    const int64_t *as_is; /* the integers: all dimensions of the weight */
    int64_t *scale_dims;  /* or these for parameters */
    const wording *words;
} form;

/* The initializers of a weight, their bytes to be made later. `f` says what they look like. */
static onq_code store(oq_nb_state *r, oq_nb_done *d, const form *f, onq_error *err) {
    const char *const names[] = {NULL, f->words->scale, f->words->zero};
    const oq_nb_task *t = oq_nb_lazy_task(d->lazy);
    oq_nb_lazy_leads(d->lazy, f->words->order[0]);
    const oq_nb_how named = {.bits = d->how.bits, .block = t->block};
    for (unsigned i = 0; i < OQ_NB_PARTS; i++) {
        const unsigned p = f->words->order[i];
        if (t->size[p] == 0)
            continue;
        const oq_str end = p == OQ_NB_Q ? suffix(r, f->words, &named) : oq_str_of(names[p]);
        if (end.p == NULL)
            return oq_fail_nomem(err);
        const oq_str name = oq_fresh_tensor(&r->names, d->tensor->name, end.p);
        const int64_t *dims = p == OQ_NB_Q && f->as_is != NULL        ? f->as_is
                              : p != OQ_NB_Q && f->scale_dims != NULL ? f->scale_dims
                                                                      : f->dims[p];
        d->part[p] = oq_tensor_new(r->arena, name, f->type[p], dims, f->rank[p]);
        if (name.p == NULL || d->part[p] == NULL ||
            !oq_graph_add_init(r->arena, d->scope->graph, d->part[p]))
            return oq_fail_nomem(err);
        oq_tensor_set_producer(d->part[p], oq_nb_lazy_part(d->lazy, p));
    }
    d->stored = true;
    return ONQ_OK;
}

/* As MatMulNBits takes it. */
static onq_code store_columns(oq_nb_state *r, oq_nb_done *d, onq_error *err) {
    const oq_nb_task *t = oq_nb_lazy_task(d->lazy);
    if (d->stored)
        return move_to_end(r, d, err);
    const int64_t n = (int64_t)t->n, blocks = (int64_t)t->blocks;
    const bool flat = t->zero == OQ_NB_ZERO_REAL, sums = t->zero == OQ_NB_ZERO_SUMS;
    const bool centred = oq_nb_is_centred(t);
    const int64_t rows = t->bits == 3 ? 3 : 1; /* of packed bytes */
    const form f = {
        .type = {d->type, t->stored, flat || sums ? t->stored : OQ_UINT8},
        .dims = {{centred ? rows : n, centred ? (int64_t)t->size[OQ_NB_Q] / rows : blocks,
                  (int64_t)t->block * t->bits / 8},
                 {flat ? n * blocks : n, blocks, 0},
                 {flat   ? n * blocks
                  : sums ? blocks
                         : n,
                  sums ? n : (int64_t)(t->size[OQ_NB_ZEROS] / t->n), 0}},
        .rank = {centred ? 2 : 3, flat ? 1 : 2, flat ? 1 : 2},
        .words = d->how.method->as_intel ? &as_inc
                 : sums                  ? &as_sums
                                         : &as_default};
    return store(r, d, &f, err);
}

/* As QMoE takes it: the columns of one expert after those of another, which is the same order. */
onq_code oq_nb_store_experts(oq_nb_state *r, oq_nb_done *d, onq_error *err) {
    const oq_nb_task *t = oq_nb_lazy_task(d->lazy);
    if (d->stored)
        return move_to_end(r, d, err);
    const int64_t experts = d->tensor->dims.v[0], n = d->tensor->dims.v[1];
    const form f = {.type = {d->type, t->stored, OQ_UINT8},
                    .dims = {{experts, n, (int64_t)(t->size[OQ_NB_Q] / t->n)},
                             {experts, n, (int64_t)t->blocks},
                             {experts, n, (int64_t)(t->size[OQ_NB_ZEROS] / t->n)}},
                    .rank = {3, 3, 3},
                    .words = d->how.method->as_intel ? &as_inc : &as_default};
    return store(r, d, &f, err);
}

bool oq_nb_is_across(const oq_nb_state *r, const oq_nb_weight *w, const oq_nb_how *how) {
    return r->config->channel_wise && how->symmetric && w->batch == 1;
}

/* As DequantizeLinear takes it, with the dimensions that the node sees. `across`: transposed. */
static onq_code store_for_dq(oq_nb_state *r, const oq_nb_weight *w, bool across, oq_nb_done *d,
                             onq_error *err) {
    const oq_nb_task *t = oq_nb_lazy_task(d->lazy);
    const size_t rank = w->batch > 1 ? w->tensor->dims.n : 2;
    if (d->stored)
        return ONQ_OK;
    int64_t *dims = OQ_NEW_ARRAY(r->scratch, int64_t, 2 * rank);
    if (dims == NULL)
        return oq_fail_nomem(err);
    int64_t *params = dims + rank;
    for (size_t i = 0; i + 2 < rank; i++)
        params[i] = dims[i] = w->tensor->dims.v[i];
    dims[rank - 2] = (int64_t)(across ? t->n : t->k);
    dims[rank - 1] = (int64_t)(across ? t->k : t->n);
    params[rank - 2] = (int64_t)(across ? t->n : t->blocks);
    params[rank - 1] = (int64_t)(across ? t->blocks : t->n);
    const form f = {.type = {d->type, t->real, d->type},
                    .rank = {rank, rank, rank},
                    .as_is = dims,
                    .scale_dims = params,
                    .words = &as_qdq};
    return store(r, d, &f, err);
}

/* ---- MatMul ---- */

/* _get_static_rank of the reference. */
int64_t oq_nb_rank_of(const oq_nb_scope *s, oq_str name) {
    for (; s != NULL; s = s->parent) {
        const oq_value_info *v = oq_graph_find_info(s->graph, name);
        if (v == NULL)
            continue;
        const oq_tensor_type *t = v->type != NULL ? v->type->tensor_type : NULL;
        return t != NULL && t->shape != NULL ? (int64_t)t->shape->dim.n : -1;
    }
    return -1;
}

static bool set_ints(oq_arena *a, oq_node *n, const char *const *keys, const int64_t *values,
                     size_t count) {
    for (size_t i = 0; i < count; i++)
        if (values[i] != INT64_MIN && !oq_attr_set_int(a, n, oq_str_of(keys[i]), values[i]))
            return false;
    return true;
}

/* Gemm's third input as MatMulNBits takes it: a constant vector. */
static bool is_bias(const oq_nb_scope *s, const oq_node *n, uint64_t columns) {
    const oq_tensor *t = oq_index_init(&s->index, n->input.v[2]);
    return t != NULL && t->dims.n == 1 && (uint64_t)t->dims.v[0] == columns;
}

static bool has_addend(const oq_node *n) {
    return oq_str_is(n->op_type, "Gemm") && n->input.n > 2 && n->input.v[2].n > 0;
}

/* Add(sum, C), for a Gemm whose C is not a vector. */
static onq_code emit_add(oq_nb_state *r, oq_nb_scope *s, const oq_node *n, const oq_nb_how *how,
                         oq_str sum, onq_error *err) {
    const oq_str in[] = {sum, n->input.v[2]};
    const oq_str name = oq_fresh_node_of(&r->names, n, "_Add");
    oq_node *add = oq_node_make(r->arena, "Add", name, in, 2, n->output.v, 1);
    return add != NULL && !r->names.failed && push(s, r, how, add) ? ONQ_OK : oq_fail_nomem(err);
}

static onq_code emit_nbits(oq_nb_state *r, const oq_nb_choice *c, oq_str output, onq_error *err) {
    oq_nb_scope *s = c->scope;
    const oq_node *n = c->node;
    const oq_nb_weight *w = &c->weight;
    const oq_nb_how *how = &c->how;
    oq_nb_done *d = c->done;
    oq_arena *a = r->arena;
    OQ_TRY(store_columns(r, d, err));
    OQ_TRY(oq_nb_widen(r, s, d, err));
    const oq_str ending = suffix(r, &as_default, how);
    const oq_str none = OQ_S("");
    if (ending.p == NULL)
        return oq_fail_nomem(err);
    oq_str name = oq_fresh_node_of(&r->names, n, ending.p);
    if (name.p == NULL && how->method->as_intel)
        name = oq_fresh_node(&r->names, OQ_S(""), ending.p);
    const oq_str in[] = {n->input.v[0], d->wide[OQ_NB_Q], d->wide[OQ_NB_SCALE]};
    const bool sums = oq_nb_lazy_task(d->lazy)->zero == OQ_NB_ZERO_SUMS;
    const oq_str blocks = sums ? oq_fresh_tensor(&r->names, output, "_blocks") : output;
    oq_node *made = oq_node_make(a, "MatMulNBits", name, in, 3, &blocks, 1);
    bool ok = made != NULL && !r->names.failed;
    const bool bias = has_addend(n) && is_bias(s, n, w->n);
    if (ok && d->part[OQ_NB_ZEROS] != NULL && !sums)
        ok = oq_node_add_input(a, made, d->wide[OQ_NB_ZEROS]);
    else if (ok && bias)
        ok = oq_node_add_input(a, made, none);
    if (ok && bias)
        ok = oq_node_add_input(a, made, none) && oq_node_add_input(a, made, n->input.v[2]);
    static const char *const keys[] = {"K", "N", "accuracy_level", "bits", "block_size"};
    const int64_t values[] = {(int64_t)w->k, (int64_t)w->n,
                              how->accuracy_level != 0 ? how->accuracy_level : INT64_MIN,
                              (int64_t)oq_nb_lazy_task(d->lazy)->wide, (int64_t)how->block};
    if (!ok || !set_ints(a, made, keys, values, OQ_COUNT(keys)))
        return oq_fail_nomem(err);
    made->domain = OQ_S("com.microsoft");
    oq_node_carry(made, n);
    if (!push(s, r, how, made))
        return oq_fail_nomem(err);
    return sums ? oq_nb_emit_sums(r, c, blocks, output, err) : ONQ_OK;
}

/* DequantizeLinear for a weight, unless this graph has it already. */
static onq_code emit_dq(oq_nb_state *r, oq_nb_scope *s, const oq_node *n, const oq_nb_how *how,
                        oq_nb_done *d, int64_t axis, onq_error *err) {
    oq_arena *a = r->arena;
    if (d->read_in == s)
        return ONQ_OK;
    const oq_str ending = suffix(r, &as_qdq, how);
    const oq_str out = oq_fresh_tensor(&r->names, d->part[OQ_NB_Q]->name, "_output");
    if (ending.p == NULL)
        return oq_fail_nomem(err);
    const oq_str in[] = {d->part[OQ_NB_Q]->name, d->part[OQ_NB_SCALE]->name,
                         d->part[OQ_NB_ZEROS] != NULL ? d->part[OQ_NB_ZEROS]->name : OQ_S("")};
    oq_node *dq = oq_node_make(a, OQ_DEQUANTIZE_LINEAR, oq_fresh_node_of(&r->names, n, ending.p),
                               in, d->part[OQ_NB_ZEROS] != NULL ? 3 : 2, &out, 1);
    if (dq == NULL || r->names.failed || !oq_attr_set_int(a, dq, OQ_S("axis"), axis) ||
        !oq_attr_set_int(a, dq, OQ_S("block_size"), (int64_t)d->block) || !push(s, r, how, dq))
        return oq_fail_nomem(err);
    d->read_in = s;
    d->real = out;
    return ONQ_OK;
}

/* Transpose of the last two dimensions. */
static onq_code emit_turn(oq_nb_state *r, oq_nb_scope *s, const oq_nb_how *how, oq_nb_done *d,
                          onq_error *err) {
    static const int64_t perm[] = {1, 0};
    const oq_str out = oq_fresh_tensor(&r->names, d->real, "_transposed");
    oq_node *turn = oq_node_make(r->arena, "Transpose", (oq_str){0}, &d->real, 1, &out, 1);
    if (turn == NULL || r->names.failed ||
        !oq_attr_set_ints(r->arena, turn, OQ_S("perm"), perm, 2) || !push(s, r, how, turn))
        return oq_fail_nomem(err);
    d->real = out;
    return ONQ_OK;
}

static onq_code emit_qdq(oq_nb_state *r, const oq_nb_choice *c, oq_str output, onq_error *err) {
    oq_nb_scope *s = c->scope;
    const oq_node *n = c->node;
    const oq_nb_weight *w = &c->weight;
    const oq_nb_how *how = &c->how;
    oq_nb_done *d = c->done;
    const bool turned = oq_nb_is_across(r, w, how);
    const int64_t axis = w->batch > 1 ? (int64_t)w->tensor->dims.n - 2 : turned ? 1 : 0;
    OQ_TRY(store_for_dq(r, w, turned, d, err));
    const bool is_new = d->read_in != s;
    OQ_TRY(emit_dq(r, s, n, how, d, axis, err));
    if (turned && is_new)
        OQ_TRY(emit_turn(r, s, how, d, err));
    const oq_str ending = oq_str_format(r->arena, "_matmul_Q%u", how->bits);
    if (ending.p == NULL)
        return oq_fail_nomem(err);
    const oq_str in[] = {n->input.v[0], d->real};
    oq_node *mul = oq_node_make(r->arena, "MatMul", oq_fresh_node_of(&r->names, n, ending.p), in, 2,
                                &output, 1);
    if (mul == NULL || r->names.failed || !push(s, r, how, mul))
        return oq_fail_nomem(err);
    oq_node_carry(mul, n);
    return ONQ_OK;
}

static onq_code emit_matmul(oq_nb_state *r, const oq_nb_choice *c, onq_error *err) {
    oq_nb_scope *s = c->scope;
    const oq_node *n = c->node;
    const oq_nb_weight *w = &c->weight;
    const oq_nb_how *how = &c->how;
    const int64_t rank = (int64_t)w->tensor->dims.n, rank_a = oq_nb_rank_of(s, n->input.v[0]);
    const bool reshape = rank > 2 && rank_a < rank;
    const bool add = has_addend(n) && (r->config->qdq || !is_bias(s, n, w->n));
    const wording *words = r->config->qdq ? &as_qdq : &as_default;
    oq_str output = n->output.v[0];
    if (reshape || add)
        output = oq_fresh_tensor(&r->names, output, add ? "_product" : "_pre_reshape");
    if (output.p == NULL)
        return oq_fail_nomem(err);
    OQ_TRY(r->config->qdq ? emit_qdq(r, c, output, err) : emit_nbits(r, c, output, err));
    if (add)
        return emit_add(r, s, n, how, output, err);
    if (!reshape)
        return ONQ_OK;
    const oq_str ending = suffix(r, words, how);
    const oq_str prefix = oq_str_cat(r->arena, n->name.n > 0 ? n->name : w->tensor->name, ending);
    r->job->made->reshaped = true;
    return prefix.p != NULL && ending.p != NULL
               ? oq_nb_emit_reshape(r, s, w->scope->graph, prefix, n->input.v[0], w->tensor, output,
                                    n->output.v[0], err)
               : oq_fail_nomem(err);
}

static onq_code emit_bnb4(oq_nb_state *r, const oq_nb_choice *c, onq_error *err) {
    const oq_node *n = c->node;
    oq_arena *a = r->arena;
    oq_nb_done *d = c->done;
    const oq_nb_task *t = oq_nb_lazy_task(d->lazy);
    const int64_t width = t->real == OQ_FLOAT ? 4 : 2;
    const form f = {.type = {d->type, t->real},
                    .dims = {{(int64_t)t->size[OQ_NB_Q]}, {(int64_t)t->size[OQ_NB_SCALE] / width}},
                    .rank = {1, 1},
                    .words = &as_bnb4};
    OQ_TRY(d->stored ? move_to_end(r, d, err) : store(r, d, &f, err));
    const oq_str in[] = {n->input.v[0], d->part[OQ_NB_Q]->name, d->part[OQ_NB_SCALE]->name};
    oq_node *made = oq_node_make(a, "MatMulBnb4", oq_fresh_node_of(&r->names, n, "_Bnb4"), in, 3,
                                 n->output.v, 1);
    static const char *const keys[] = {"K", "N", "block_size", "quant_type"};
    const int64_t values[] = {(int64_t)c->weight.k, (int64_t)c->weight.n, (int64_t)c->how.block,
                              c->how.method - oq_nb_bnb4_methods};
    if (made == NULL || r->names.failed || !set_ints(a, made, keys, values, OQ_COUNT(keys)))
        return oq_fail_nomem(err);
    made->domain = OQ_S("com.microsoft");
    oq_node_carry(made, n);
    return push(c->scope, r, &c->how, made) ? ONQ_OK : oq_fail_nomem(err);
}

/* ---- Gather ---- */

/* The integers of rows that MatMulNBits may read too: bytes, one row after another. */
static onq_code emit_rows(oq_nb_state *r, const oq_nb_choice *c, oq_str *data, onq_error *err) {
    oq_nb_done *d = c->done;
    OQ_TRY(store_columns(r, d, err));
    OQ_TRY(oq_nb_widen(r, c->scope, d, err));
    const oq_tensor *q = d->part[OQ_NB_Q];
    const int64_t dims[] = {2}, shape[] = {(int64_t)c->weight.n, -1};
    const oq_str name = oq_fresh_tensor(&r->names, q->name, "_rows_shape");
    *data = oq_fresh_tensor(&r->names, q->name, "_rows");
    oq_tensor *to = oq_tensor_new(r->arena, name, OQ_INT64, dims, 1);
    const oq_str in[] = {d->wide[OQ_NB_Q], name};
    oq_node *n = oq_node_make(r->arena, "Reshape", (oq_str){0}, in, 2, data, 1);
    if (r->names.failed || to == NULL || n == NULL || !push(c->scope, r, &c->how, n) ||
        !oq_graph_add_init(r->arena, d->scope->graph, to))
        return oq_fail_nomem(err);
    return oq_tensor_set_raw(r->arena, to, shape, sizeof shape, err);
}

static onq_code store_table(oq_nb_state *r, int64_t axis, oq_nb_done *d, onq_error *err) {
    const oq_nb_task *t = oq_nb_lazy_task(d->lazy);
    const size_t rank = d->tensor->dims.n;
    if (d->stored)
        return move_to_end(r, d, err);
    int64_t *params = OQ_NEW_ARRAY(r->scratch, int64_t, rank);
    if (params == NULL)
        return oq_fail_nomem(err);
    for (size_t i = 0; i < rank; i++)
        params[i] = (int64_t)i == axis ? (int64_t)t->blocks : d->tensor->dims.v[i];
    const form f = {.type = {d->type, t->real, d->type},
                    .rank = {rank, rank, rank},
                    .as_is = d->tensor->dims.v,
                    .scale_dims = params,
                    .words = &as_default};
    return store(r, d, &f, err);
}

static onq_code emit_gather(oq_nb_state *r, const oq_nb_choice *c, onq_error *err) {
    const oq_node *n = c->node;
    oq_nb_done *d = c->done;
    oq_arena *a = r->arena;
    oq_str data = {0};
    OQ_TRY(c->rows ? emit_rows(r, c, &data, err) : store_table(r, c->axis, d, err));
    if (!c->rows)
        data = d->part[OQ_NB_Q]->name;
    const oq_str ending = suffix(r, &as_default, &c->how);
    if (ending.p == NULL)
        return oq_fail_nomem(err);
    const oq_str in[] = {data, n->input.v[1],
                         c->rows ? d->wide[OQ_NB_SCALE] : d->part[OQ_NB_SCALE]->name};
    oq_node *made = oq_node_make(a, "GatherBlockQuantized",
                                 oq_fresh_node_of(&r->names, n, ending.p), in, 3, n->output.v, 1);
    static const char *const keys[] = {"bits", "block_size", "gather_axis", "quantize_axis"};
    const int64_t values[] = {c->rows ? (int64_t)oq_nb_lazy_task(d->lazy)->wide : INT64_MIN,
                              (int64_t)c->how.block, oq_attr_int(n, "axis", 0), c->axis};
    if (made == NULL || r->names.failed ||
        (d->part[OQ_NB_ZEROS] != NULL && !oq_node_add_input(a, made, d->part[OQ_NB_ZEROS]->name)) ||
        !set_ints(a, made, keys, values, OQ_COUNT(keys)))
        return oq_fail_nomem(err);
    made->domain = OQ_S("com.microsoft");
    oq_node_carry(made, n);
    return push(c->scope, r, &c->how, made) ? ONQ_OK : oq_fail_nomem(err);
}

onq_code oq_nb_emit(oq_nb_state *r, const oq_nb_choice *c, onq_error *err) {
    if (r->config->bnb4)
        return emit_bnb4(r, c, err);
    if (oq_str_is(c->node->op_type, "Gather"))
        return emit_gather(r, c, err);
    if (c->experts)
        return oq_nb_emit_experts(r, c, err);
    /* A batch of matrices: DequantizeLinear and MatMul in either format. */
    return c->weight.batch > 1 ? emit_qdq(r, c, c->node->output.v[0], err) : emit_matmul(r, c, err);
}
