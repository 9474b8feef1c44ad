/*
 * nb_weight.c — how a weight is quantized for its node: decided here, with its row of the plan, and
 * put into the graph by nb_emit.c.
 */
#include "quantize/nbits/nb_import.h"
#include "quantize/nbits/nb_run.h"

/* The address of a tensor as a key. */
static oq_str key_of(const oq_tensor *const *t) {
    return (oq_str){(const char *)t, sizeof *t};
}

static oq_nb_done *find_done(const oq_nb_state *r, const oq_nb_weight *w, oq_nb_rule rule,
                             const oq_nb_how *how, uint64_t block) {
    const oq_tensor *tensor = w->tensor;
    const uint32_t first = oq_map_find(&r->done_map, key_of(&tensor));
    oq_nb_done *d = first != OQ_MAP_NONE ? r->done.v[first] : NULL;
    for (; d != NULL; d = d->next)
        if (d->turned == w->turned && d->rule == rule && d->block == block &&
            d->how.bits == how->bits && d->how.symmetric == how->symmetric &&
            d->how.method == how->method && (rule != OQ_NB_QDQ || d->scope == w->scope))
            return d;
    return NULL;
}

bool oq_nb_is_packed(const oq_nb_config *c, const oq_nb_how *how) {
    return !c->qdq && !c->bnb4 && (c->form == OQ_NB_FORM_PACKED || how->bits == 3);
}

/* The runtime's kernel for 2 and 8 bits unpacks the weight at every level but int8's. */
bool oq_nb_takes_sums(const oq_nb_config *c, const oq_nb_how *how) {
    /* The runtime has no kernel for 8 bits with such zero points. */
    const bool fast = how->bits >= 4 || how->accuracy_level == 4;
    return how->method->real_zero && !c->qdq &&
           (c->form == OQ_NB_FORM_SUMS || c->form == OQ_NB_FORM_PACKED ||
            (c->form == OQ_NB_FORM_AUTO && fast));
}

bool oq_nb_has_sums(const oq_nb_state *r, const oq_nb_weight *w, const oq_nb_how *how) {
    const bool is_float = w->tensor->data_type.v == OQ_FLOAT;
    return oq_nb_takes_sums(r->config, how) && w->batch == 1 && w->k % how->block == 0 &&
           (is_float || r->config->form == OQ_NB_FORM_SUMS);
}

static void set_extras(oq_nb_state *r, oq_nb_task *t) {
    const uint32_t mean = oq_map_find(&r->config->mean_map, t->name);
    if (mean != OQ_MAP_NONE)
        t->mean = r->config->means.v[mean];
    for (size_t i = 0; i < r->config->ratios.n; i++)
        if (oq_str_eq(r->config->ratios.v[i].weight, t->name)) {
            t->ratio = r->config->ratios.v[i].value;
            r->config->ratios.v[i].used = true;
        }
}

static onq_code begin(oq_nb_state *r, const oq_nb_weight *w, oq_nb_rule rule, const oq_nb_how *how,
                      uint64_t block, oq_nb_task *t, onq_error *err) {
    const oq_nb_source *from =
        r->config->import != NULL ? oq_nb_import_find(r->config->import, w->tensor->name) : NULL;
    if (from == NULL)
        OQ_TRY(oq_nb_task_init(t, r->job->model, w->tensor, w->batch, w->k, w->n, w->turned, err));
    else /* rows of K numbers */
        *t = (oq_nb_task){.name = w->tensor->name,
                          .real = (oq_dtype)w->tensor->data_type.v,
                          .from = from,
                          .batch = w->batch,
                          .k = w->k,
                          .n = w->n,
                          .stride_k = 1,
                          .stride_n = w->k,
                          .ratio = 1.0,
                          .alloc = &r->job->model->env->alloc};
    t->method = how->method;
    t->rule = rule;
    t->bits = how->bits;
    t->block = block;
    t->symmetric = how->symmetric && !how->method->real_zero;
    t->zero = oq_nb_has_sums(r, w, how)                     ? OQ_NB_ZERO_SUMS
              : how->method->real_zero                      ? OQ_NB_ZERO_REAL
              : how->symmetric && !how->method->always_zero ? OQ_NB_ZERO_NONE
                                                            : OQ_NB_ZERO_INT;
    set_extras(r, t);
    return ONQ_OK;
}

/* Remembers the weight in the form that the task has, with its row of the plan. */
static onq_code settle(oq_nb_state *r, const oq_nb_weight *w, const oq_nb_task *t,
                       const oq_nb_how *how, oq_dtype type, oq_nb_done **out, onq_error *err) {
    const oq_plan_tensor row = {.name = t->name,
                                .role = OQ_ROLE_WEIGHT,
                                .type = type,
                                .axis = t->stride_n == 1 ? 0 : 1,
                                .block = t->block,
                                .why = t->method->name};
    oq_nb_done *d = OQ_NEW(r->scratch, oq_nb_done);
    if (d == NULL)
        return oq_fail_nomem(err);
    *d = (oq_nb_done){.tensor = w->tensor,
                      .turned = w->turned,
                      .rule = t->rule,
                      .how = *how,
                      .block = t->block,
                      .type = type,
                      .scope = w->scope};
    OQ_TRY(oq_nb_lazy_new(r->arena, t, &d->lazy, err));
    if (!OQ_PUSH(r->arena, &r->job->made->all, d->lazy)) {
        oq_nb_lazy_release(d->lazy);
        return oq_fail_nomem(err);
    }
    const uint32_t first = oq_map_find(&r->done_map, key_of(&d->tensor));
    if (first != OQ_MAP_NONE) {
        d->next = r->done.v[first]->next;
        r->done.v[first]->next = d;
    } else if (!oq_map_put(&r->done_map, key_of(&d->tensor), (uint32_t)r->done.n)) {
        return oq_fail_nomem(err);
    }
    *out = d;
    return OQ_PUSH(r->scratch, &r->done, d) && oq_plan_add_tensor(r->job->plan, row)
               ? ONQ_OK
               : oq_fail_nomem(err);
}

/* What is read from the file: integers that are whole bytes in MatMulNBits, or have zero points of
 * their own, stay as they are. */
static void pack(oq_nb_task *t) {
    if (t->zero != OQ_NB_ZERO_REAL && t->real == OQ_FLOAT)
        t->stored = OQ_FLOAT16;
    if (t->bits >= 4 || t->method->real_zero || t->method->always_zero)
        return;
    t->wide = 4;
    t->zero = OQ_NB_ZERO_NONE;
    t->symmetric = true;
}

/* As MatMulNBits takes it. `packs`: where that is asked for, in a smaller form first. */
static onq_code by_columns(oq_nb_state *r, const oq_nb_weight *w, const oq_nb_how *how, bool packs,
                           oq_nb_done **out, onq_error *err) {
    oq_nb_task t;
    *out = find_done(r, w, OQ_NB_MATMUL, how, how->block);
    if (*out != NULL)
        return ONQ_OK;
    OQ_TRY(begin(r, w, OQ_NB_MATMUL, how, how->block, &t, err));
    t.by_columns = true;
    if (packs && oq_nb_is_packed(r->config, how))
        pack(&t);
    t.per_n = t.k / t.block + (t.k % t.block != 0);
    t.per_k = 1;
    OQ_TRY(oq_nb_task_measure(&t, err));
    return settle(r, w, &t, how, OQ_UINT8, out, err);
}

/* As DequantizeLinear takes it, with the dimensions that the node sees. */
static onq_code for_dq(oq_nb_state *r, const oq_nb_weight *w, const oq_nb_how *how,
                       oq_nb_done **out, onq_error *err) {
    oq_nb_task t;
    const uint64_t block = r->config->channel_wise || how->block == 0 ? w->k : how->block;
    const bool across = oq_nb_is_across(r, w, how);
    *out = find_done(r, w, OQ_NB_QDQ, how, block);
    if (*out != NULL)
        return ONQ_OK;
    OQ_TRY(begin(r, w, OQ_NB_QDQ, how, block, &t, err));
    t.out_k = across ? 1 : t.n;
    t.out_n = across ? t.k : 1;
    t.per_k = t.n;
    t.per_n = 1;
    t.is_signed = t.zero == OQ_NB_ZERO_NONE;
    OQ_TRY(oq_nb_task_measure(&t, err));
    const oq_dtype type =
        t.bits == 8 ? (t.is_signed ? OQ_INT8 : OQ_UINT8) : (t.is_signed ? OQ_INT4 : OQ_UINT4);
    return settle(r, w, &t, how, type, out, err);
}

static onq_code for_bnb4(oq_nb_state *r, const oq_nb_weight *w, const oq_nb_how *how,
                         oq_nb_done **out, onq_error *err) {
    oq_nb_task t;
    *out = find_done(r, w, OQ_NB_BNB4, how, how->block);
    if (*out != NULL)
        return ONQ_OK;
    OQ_TRY(begin(r, w, OQ_NB_BNB4, how, how->block, &t, err));
    const uint64_t count = t.k * t.n; /* the weight's size was checked with the model */
    const uint64_t blocks = count / t.block + (count % t.block != 0);
    t.zero = OQ_NB_ZERO_NONE;
    OQ_TRY(oq_nb_task_measure(&t, err));
    t.size[OQ_NB_Q] = count / 2 + count % 2;
    t.size[OQ_NB_SCALE] = blocks * (t.real == OQ_FLOAT ? 4 : 2);
    return settle(r, w, &t, how, OQ_UINT8, out, err);
}

static onq_code for_gather(oq_nb_state *r, const oq_nb_weight *w, const oq_nb_how *how,
                           oq_nb_done **out, onq_error *err) {
    oq_nb_task t;
    *out = find_done(r, w, OQ_NB_GATHER, how, how->block);
    if (*out != NULL)
        return ONQ_OK;
    /* The last axis makes rows of blocks: columns of the transposed matrix. */
    const bool rows = w->n == 1;
    const oq_nb_weight as = {.tensor = w->tensor,
                             .scope = w->scope,
                             .turned = rows,
                             .batch = rows ? 1 : w->batch,
                             .k = w->k,
                             .n = rows ? w->batch : w->n};
    OQ_TRY(begin(r, &as, OQ_NB_GATHER, how, how->block, &t, err));
    t.out_k = t.stride_k;
    t.out_n = t.stride_n;
    t.is_signed = t.zero == OQ_NB_ZERO_NONE;
    t.per_k = rows ? 1 : t.n;
    t.per_n = rows ? t.k / t.block + (t.k % t.block != 0) : 1;
    OQ_TRY(oq_nb_task_measure(&t, err));
    return settle(r, w, &t, how, t.is_signed ? OQ_INT4 : OQ_UINT4, out, err);
}

onq_code oq_nb_take_weight(oq_nb_state *r, oq_nb_choice *c, onq_error *err) {
    oq_nb_weight *w = &c->weight;
    if (r->config->bnb4)
        return for_bnb4(r, w, &c->how, &c->done, err);
    if (c->experts) {
        OQ_TRY(by_columns(r, w, &c->how, false, &c->done, err));
        return by_columns(r, &c->second, &c->how, false, &c->second_done, err);
    }
    if (c->rows) { /* as MatMulNBits may read it too: bytes, one row after another */
        *w = (oq_nb_weight){.tensor = w->tensor,
                            .scope = w->scope,
                            .turned = true,
                            .batch = 1,
                            .k = w->k,
                            .n = w->batch};
        return by_columns(r, w, &c->how, true, &c->done, err);
    }
    if (oq_str_is(c->node->op_type, "Gather"))
        return for_gather(r, w, &c->how, &c->done, err);
    if (!r->config->qdq && w->batch == 1)
        return by_columns(r, w, &c->how, true, &c->done, err);
    /* ONNX Runtime turns the pair into MatMulNBits and looks for the weight in the same graph. */
    oq_nb_weight here = *w;
    here.scope = c->scope;
    return for_dq(r, &here, &c->how, &c->done, err);
}
