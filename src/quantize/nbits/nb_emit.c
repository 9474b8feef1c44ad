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

static oq_nb_done *find_done(const oq_nb_state *r, const oq_nb_weight *w, oq_nb_rule rule,
                             const oq_nb_how *how, uint64_t block) {
    for (size_t i = 0; i < r->done.n; i++) {
        oq_nb_done *d = r->done.v[i];
        if (d->tensor == w->tensor && d->turned == w->turned && d->rule == rule &&
            d->block == block && d->how.bits == how->bits && d->how.symmetric == how->symmetric &&
            d->how.method == how->method && (rule != OQ_NB_QDQ || d->scope == w->scope))
            return d;
    }
    return NULL;
}

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

static void set_extras(oq_nb_state *r, oq_nb_task *t) {
    for (size_t i = 0; i < r->config->means.n; i++)
        if (oq_str_eq(r->config->means.v[i].weight, t->name))
            t->mean = r->config->means.v[i].v;
    for (size_t i = 0; i < r->config->ratios.n; i++)
        if (oq_str_eq(r->config->ratios.v[i].weight, t->name)) {
            t->ratio = r->config->ratios.v[i].value;
            r->config->ratios.v[i].used = true;
        }
}

static onq_code plan_weight(oq_nb_state *r, const oq_nb_task *t, const oq_tensor *q,
                            onq_error *err) {
    const oq_plan_tensor row = {.name = t->name,
                                .role = OQ_ROLE_WEIGHT,
                                .type = (oq_dtype)q->data_type.v,
                                .axis = t->stride_n == 1 ? 0 : 1,
                                .block = t->block,
                                .why = t->method->name};
    return oq_plan_add_tensor(r->job->plan, row) ? ONQ_OK : oq_fail_nomem(err);
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
static onq_code store(oq_nb_state *r, const oq_nb_weight *w, const oq_nb_task *t,
                      const oq_nb_how *how, const form *f, oq_nb_done **out, onq_error *err) {
    const char *const names[] = {NULL, f->words->scale, f->words->zero};
    oq_nb_lazy *lazy = NULL;
    oq_nb_done *d = OQ_NEW(r->scratch, oq_nb_done);
    if (d == NULL)
        return oq_fail_nomem(err);
    *d = (oq_nb_done){.tensor = w->tensor,
                      .turned = w->turned,
                      .rule = t->rule,
                      .how = *how,
                      .block = t->block,
                      .scope = w->scope};
    OQ_TRY(oq_nb_lazy_new(r->arena, t, &lazy, err));
    if (!OQ_PUSH(r->arena, &r->job->made->all, lazy)) {
        oq_nb_lazy_release(lazy);
        return oq_fail_nomem(err);
    }
    d->lazy = lazy;
    oq_nb_lazy_leads(lazy, f->words->order[0]);
    const oq_nb_how named = {.bits = how->bits, .block = t->block};
    for (unsigned i = 0; i < OQ_NB_PARTS; i++) {
        const unsigned p = f->words->order[i];
        if (t->size[p] == 0)
            continue;
        const oq_str end = p == OQ_NB_Q ? suffix(r, f->words, &named) : oq_str_of(names[p]);
        if (end.p == NULL)
            return oq_fail_nomem(err);
        const oq_str name = oq_fresh_tensor(&r->names, w->tensor->name, end.p);
        const int64_t *dims = p == OQ_NB_Q && f->as_is != NULL        ? f->as_is
                              : p != OQ_NB_Q && f->scale_dims != NULL ? f->scale_dims
                                                                      : f->dims[p];
        d->part[p] = oq_tensor_new(r->arena, name, f->type[p], dims, f->rank[p]);
        if (name.p == NULL || d->part[p] == NULL ||
            !oq_graph_add_init(r->arena, w->scope->graph, d->part[p]))
            return oq_fail_nomem(err);
        oq_tensor_set_producer(d->part[p], oq_nb_lazy_part(lazy, p));
    }
    OQ_TRY(plan_weight(r, t, d->part[OQ_NB_Q], err));
    if (!OQ_PUSH(r->scratch, &r->done, d))
        return oq_fail_nomem(err);
    r->used = *out = d;
    return ONQ_OK;
}

static onq_code begin_task(oq_nb_state *r, const oq_nb_weight *w, oq_nb_rule rule,
                           const oq_nb_how *how, uint64_t block, oq_nb_task *t, onq_error *err) {
    OQ_TRY(oq_nb_task_init(t, r->job->model, w->tensor, w->batch, w->k, w->n, w->turned, err));
    t->method = how->method;
    t->rule = rule;
    t->bits = how->bits;
    t->block = block;
    t->symmetric = how->symmetric && !how->method->real_zero;
    t->zero = how->method->real_zero                        ? OQ_NB_ZERO_REAL
              : how->symmetric && !how->method->always_zero ? OQ_NB_ZERO_NONE
                                                            : OQ_NB_ZERO_INT;
    set_extras(r, t);
    return ONQ_OK;
}

/* As MatMulNBits takes it. */
static onq_code weight_by_columns(oq_nb_state *r, const oq_nb_weight *w, const oq_nb_how *how,
                                  oq_nb_done **out, onq_error *err) {
    oq_nb_task t;
    r->used = *out = find_done(r, w, OQ_NB_MATMUL, how, how->block);
    if (*out != NULL)
        return move_to_end(r, *out, err);
    OQ_TRY(begin_task(r, w, OQ_NB_MATMUL, how, how->block, &t, err));
    t.by_columns = true;
    t.per_n = t.k / t.block + (t.k % t.block != 0);
    t.per_k = 1;
    OQ_TRY(oq_nb_task_measure(&t, err));
    const int64_t n = (int64_t)t.n, blocks = (int64_t)t.blocks;
    const bool flat = how->method->real_zero;
    const form f = {.type = {OQ_UINT8, t.real, t.zero == OQ_NB_ZERO_REAL ? t.real : OQ_UINT8},
                    .dims = {{n, blocks, (int64_t)t.block * t.bits / 8},
                             {flat ? n * blocks : n, blocks, 0},
                             {flat ? n * blocks : n, (int64_t)(t.size[OQ_NB_ZEROS] / t.n), 0}},
                    .rank = {3, flat ? 1 : 2, flat ? 1 : 2},
                    .words = how->method->as_intel ? &as_inc : &as_default};
    return store(r, w, &t, how, &f, out, err);
}

/* As DequantizeLinear takes it, with the dimensions that the node sees. `turned`: transposed. */
static onq_code weight_for_dq(oq_nb_state *r, const oq_nb_weight *w, const oq_nb_how *how,
                              uint64_t block, bool turned, oq_nb_done **out, onq_error *err) {
    oq_nb_task t;
    const size_t rank = w->batch > 1 ? w->tensor->dims.n : 2;
    r->used = *out = find_done(r, w, OQ_NB_QDQ, how, block);
    if (*out != NULL)
        return ONQ_OK;
    OQ_TRY(begin_task(r, w, OQ_NB_QDQ, how, block, &t, err));
    t.out_k = turned ? 1 : t.n;
    t.out_n = turned ? t.k : 1;
    t.per_k = t.n;
    t.per_n = 1;
    t.is_signed = t.zero == OQ_NB_ZERO_NONE;
    OQ_TRY(oq_nb_task_measure(&t, err));
    int64_t *dims = OQ_NEW_ARRAY(r->scratch, int64_t, 2 * rank);
    if (dims == NULL)
        return oq_fail_nomem(err);
    int64_t *params = dims + rank;
    for (size_t i = 0; i + 2 < rank; i++)
        params[i] = dims[i] = w->tensor->dims.v[i];
    dims[rank - 2] = (int64_t)(turned ? t.n : t.k);
    dims[rank - 1] = (int64_t)(turned ? t.k : t.n);
    params[rank - 2] = (int64_t)(turned ? t.n : t.blocks);
    params[rank - 1] = (int64_t)(turned ? t.blocks : t.n);
    const oq_dtype type =
        t.bits == 8 ? (t.is_signed ? OQ_INT8 : OQ_UINT8) : (t.is_signed ? OQ_INT4 : OQ_UINT4);
    const form f = {.type = {type, t.real, type},
                    .rank = {rank, rank, rank},
                    .as_is = dims,
                    .scale_dims = params,
                    .words = &as_qdq};
    return store(r, w, &t, how, &f, out, err);
}

/* ---- MatMul ---- */

/* Number of dimensions of a tensor where the model says it, else -1 (_get_static_rank). */
static int64_t rank_of(const oq_nb_scope *s, oq_str name) {
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

static onq_code emit_nbits(oq_nb_state *r, oq_nb_scope *s, const oq_node *n, const oq_nb_weight *w,
                           const oq_nb_how *how, oq_str output, onq_error *err) {
    oq_nb_done *d = NULL;
    oq_arena *a = r->arena;
    OQ_TRY(weight_by_columns(r, w, how, &d, err));
    const oq_str ending = suffix(r, &as_default, how);
    const oq_str none = OQ_S("");
    if (ending.p == NULL)
        return oq_fail_nomem(err);
    oq_str name = oq_fresh_node_of(&r->names, n, ending.p);
    if (name.p == NULL && how->method->as_intel)
        name = oq_fresh_node(&r->names, OQ_S(""), ending.p);
    const oq_str in[] = {n->input.v[0], d->part[OQ_NB_Q]->name, d->part[OQ_NB_SCALE]->name};
    oq_node *made = oq_node_make(a, "MatMulNBits", name, in, 3, &output, 1);
    bool ok = made != NULL && !r->names.failed;
    const bool bias = has_addend(n) && is_bias(s, n, w->n);
    if (ok && d->part[OQ_NB_ZEROS] != NULL)
        ok = oq_node_add_input(a, made, d->part[OQ_NB_ZEROS]->name);
    else if (ok && bias)
        ok = oq_node_add_input(a, made, none);
    if (ok && bias)
        ok = oq_node_add_input(a, made, none) && oq_node_add_input(a, made, n->input.v[2]);
    static const char *const keys[] = {"K", "N", "accuracy_level", "bits", "block_size"};
    const int64_t values[] = {(int64_t)w->k, (int64_t)w->n,
                              how->accuracy_level != 0 ? how->accuracy_level : INT64_MIN,
                              (int64_t)how->bits, (int64_t)how->block};
    if (!ok || !set_ints(a, made, keys, values, OQ_COUNT(keys)))
        return oq_fail_nomem(err);
    made->domain = OQ_S("com.microsoft");
    oq_node_carry(made, n);
    return push(s, r, how, made) ? ONQ_OK : oq_fail_nomem(err);
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

static onq_code emit_qdq(oq_nb_state *r, oq_nb_scope *s, const oq_node *n, const oq_nb_weight *w,
                         const oq_nb_how *how, oq_str output, onq_error *err) {
    oq_nb_done *d = NULL;
    /* ONNX Runtime turns the pair into MatMulNBits and looks for the weight in the same graph. */
    oq_nb_weight here = *w;
    here.scope = s;
    const bool whole = r->config->channel_wise || how->block == 0;
    const bool turned = r->config->channel_wise && how->symmetric && w->batch == 1;
    const int64_t axis = w->batch > 1 ? (int64_t)w->tensor->dims.n - 2 : turned ? 1 : 0;
    OQ_TRY(weight_for_dq(r, &here, how, whole ? w->k : how->block, turned, &d, err));
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

onq_code oq_nb_emit_matmul(oq_nb_state *r, oq_nb_scope *s, const oq_node *n, const oq_nb_weight *w,
                           const oq_nb_how *how, onq_error *err) {
    const int64_t rank = (int64_t)w->tensor->dims.n, rank_a = rank_of(s, n->input.v[0]);
    const bool reshape = rank > 2 && rank_a < rank;
    const bool add = has_addend(n) && (r->config->qdq || !is_bias(s, n, w->n));
    const wording *words = r->config->qdq ? &as_qdq : &as_default;
    oq_str output = n->output.v[0];
    if (reshape || add)
        output = oq_fresh_tensor(&r->names, output, add ? "_product" : "_pre_reshape");
    if (output.p == NULL)
        return oq_fail_nomem(err);
    OQ_TRY(r->config->qdq ? emit_qdq(r, s, n, w, how, output, err)
                          : emit_nbits(r, s, n, w, how, output, err));
    if (add)
        return emit_add(r, s, n, how, output, err);
    if (!reshape)
        return ONQ_OK;
    const oq_str ending = suffix(r, words, how);
    const oq_str prefix = oq_str_cat(r->arena, n->name.n > 0 ? n->name : w->tensor->name, ending);
    return prefix.p != NULL && ending.p != NULL
               ? oq_nb_emit_reshape(r, s, w->scope->graph, prefix, n->input.v[0], w->tensor, output,
                                    n->output.v[0], err)
               : oq_fail_nomem(err);
}

onq_code oq_nb_emit_batch(oq_nb_state *r, oq_nb_scope *s, const oq_node *n, const oq_nb_weight *w,
                          const oq_nb_how *how, onq_error *err) {
    return emit_qdq(r, s, n, w, how, n->output.v[0], err);
}

onq_code oq_nb_emit_bnb4(oq_nb_state *r, oq_nb_scope *s, const oq_node *n, const oq_nb_weight *w,
                         const oq_nb_how *how, onq_error *err) {
    oq_arena *a = r->arena;
    oq_nb_task t;
    oq_nb_done *d = find_done(r, w, OQ_NB_BNB4, how, how->block);
    if (d != NULL) {
        OQ_TRY(move_to_end(r, d, err));
    } else {
        OQ_TRY(begin_task(r, w, OQ_NB_BNB4, how, how->block, &t, err));
        const uint64_t count = t.k * t.n; /* the weight's size was checked with the model */
        const uint64_t blocks = count / t.block + (count % t.block != 0);
        t.zero = OQ_NB_ZERO_NONE;
        OQ_TRY(oq_nb_task_measure(&t, err));
        t.size[OQ_NB_Q] = count / 2 + count % 2;
        t.size[OQ_NB_SCALE] = blocks * (t.real == OQ_FLOAT ? 4 : 2);
        const form f = {.type = {OQ_UINT8, t.real},
                        .dims = {{(int64_t)t.size[OQ_NB_Q]}, {(int64_t)blocks}},
                        .rank = {1, 1},
                        .words = &as_bnb4};
        OQ_TRY(store(r, w, &t, how, &f, &d, err));
    }
    const oq_str in[] = {n->input.v[0], d->part[OQ_NB_Q]->name, d->part[OQ_NB_SCALE]->name};
    oq_node *made = oq_node_make(a, "MatMulBnb4", oq_fresh_node_of(&r->names, n, "_Bnb4"), in, 3,
                                 n->output.v, 1);
    static const char *const keys[] = {"K", "N", "block_size", "quant_type"};
    const int64_t values[] = {(int64_t)w->k, (int64_t)w->n, (int64_t)how->block,
                              how->method - oq_nb_bnb4_methods};
    if (made == NULL || r->names.failed || !set_ints(a, made, keys, values, OQ_COUNT(keys)))
        return oq_fail_nomem(err);
    made->domain = OQ_S("com.microsoft");
    oq_node_carry(made, n);
    return push(s, r, how, made) ? ONQ_OK : oq_fail_nomem(err);
}

/* ---- Gather ---- */

/* The integers of rows that MatMulNBits may read too: bytes, one row after another. */
static onq_code gather_rows(oq_nb_state *r, oq_nb_scope *s, const oq_nb_weight *w,
                            const oq_nb_how *how, oq_nb_done **d, oq_str *data, onq_error *err) {
    const oq_nb_weight turned = {.tensor = w->tensor,
                                 .scope = w->scope,
                                 .turned = true,
                                 .batch = 1,
                                 .k = w->k,
                                 .n = w->batch};
    OQ_TRY(weight_by_columns(r, &turned, how, d, err));
    const oq_tensor *q = (*d)->part[OQ_NB_Q];
    const int64_t dims[] = {2}, shape[] = {(int64_t)turned.n, -1};
    const oq_str name = oq_fresh_tensor(&r->names, q->name, "_rows_shape");
    *data = oq_fresh_tensor(&r->names, q->name, "_rows");
    oq_tensor *to = oq_tensor_new(r->arena, name, OQ_INT64, dims, 1);
    const oq_str in[] = {q->name, name};
    oq_node *n = oq_node_make(r->arena, "Reshape", (oq_str){0}, in, 2, data, 1);
    if (r->names.failed || to == NULL || n == NULL || !push(s, r, how, n) ||
        !oq_graph_add_init(r->arena, w->scope->graph, to))
        return oq_fail_nomem(err);
    return oq_tensor_set_raw(r->arena, to, shape, sizeof shape, err);
}

static onq_code gather_flat(oq_nb_state *r, const oq_nb_weight *w, int64_t axis,
                            const oq_nb_how *how, oq_nb_done **d, onq_error *err) {
    oq_nb_task t;
    const oq_tensor *tensor = w->tensor;
    const size_t rank = tensor->dims.n;
    *d = find_done(r, w, OQ_NB_GATHER, how, how->block);
    if (*d != NULL)
        return move_to_end(r, *d, err);
    /* The last axis makes rows of blocks: columns of the transposed matrix. */
    const bool rows = w->n == 1;
    const oq_nb_weight as = {.tensor = w->tensor,
                             .scope = w->scope,
                             .turned = rows,
                             .batch = rows ? 1 : w->batch,
                             .k = w->k,
                             .n = rows ? w->batch : w->n};
    OQ_TRY(begin_task(r, &as, OQ_NB_GATHER, how, how->block, &t, err));
    t.out_k = t.stride_k;
    t.out_n = t.stride_n;
    t.is_signed = t.zero == OQ_NB_ZERO_NONE;
    t.per_k = rows ? 1 : t.n;
    t.per_n = rows ? t.k / t.block + (t.k % t.block != 0) : 1;
    OQ_TRY(oq_nb_task_measure(&t, err));
    int64_t *params = OQ_NEW_ARRAY(r->scratch, int64_t, rank);
    if (params == NULL)
        return oq_fail_nomem(err);
    for (size_t i = 0; i < rank; i++)
        params[i] = (int64_t)i == axis ? (int64_t)t.blocks : tensor->dims.v[i];
    const oq_dtype type = t.is_signed ? OQ_INT4 : OQ_UINT4;
    const form f = {.type = {type, t.real, type},
                    .rank = {rank, rank, rank},
                    .as_is = tensor->dims.v,
                    .scale_dims = params,
                    .words = &as_default};
    oq_nb_weight key = *w;
    return store(r, &key, &t, how, &f, d, err);
}

onq_code oq_nb_emit_gather(oq_nb_state *r, oq_nb_scope *s, const oq_node *n, const oq_nb_weight *w,
                           int64_t axis, const oq_nb_how *how, onq_error *err) {
    oq_nb_done *d = NULL;
    oq_arena *a = r->arena;
    const bool rows = r->config->all_weights && w->n == 1 && w->tensor->dims.n == 2 &&
                      oq_attr_int(n, "axis", 0) == 0 && w->k % how->block == 0;
    oq_str data = {0};
    if (rows) {
        OQ_TRY(gather_rows(r, s, w, how, &d, &data, err));
    } else {
        OQ_TRY(gather_flat(r, w, axis, how, &d, err));
        data = d->part[OQ_NB_Q]->name;
    }
    const oq_str ending = suffix(r, &as_default, how);
    if (ending.p == NULL)
        return oq_fail_nomem(err);
    const oq_str in[] = {data, n->input.v[1], d->part[OQ_NB_SCALE]->name};
    oq_node *made = oq_node_make(a, "GatherBlockQuantized",
                                 oq_fresh_node_of(&r->names, n, ending.p), in, 3, n->output.v, 1);
    static const char *const keys[] = {"bits", "block_size", "gather_axis", "quantize_axis"};
    const int64_t values[] = {rows ? (int64_t)how->bits : INT64_MIN, (int64_t)how->block,
                              oq_attr_int(n, "axis", 0), axis};
    if (made == NULL || r->names.failed ||
        (d->part[OQ_NB_ZEROS] != NULL && !oq_node_add_input(a, made, d->part[OQ_NB_ZEROS]->name)) ||
        !set_ints(a, made, keys, values, OQ_COUNT(keys)))
        return oq_fail_nomem(err);
    made->domain = OQ_S("com.microsoft");
    oq_node_carry(made, n);
    return push(s, r, how, made) ? ONQ_OK : oq_fail_nomem(err);
}
