/*
 * cv_nodes.c — names, pairs and parameters of the graph that is converted.
 */
#include "quantize/convert/cv.h"

#include <stdarg.h>
#include <stdio.h>

onq_code oq_cv_refuse(const oq_node *n, onq_code code, onq_error *err, const char *fmt, ...) {
    char text[400];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    const oq_str label = oq_node_label(n);
    return oq_fail(err, code, "node '%.*s' (%.*s): %s", OQ_STR(label), OQ_STR(n->op_type), text);
}

onq_code oq_cv_inexact(oq_cv_scope *s, const oq_node *n, const char *why, onq_error *err) {
    oq_convert_job *job = s->cv->job;
    if (!job->lossy)
        return oq_cv_refuse(n, ONQ_E_UNSUPPORTED, err,
                            "%s (--lossy converts it all the same and measures the difference)",
                            why);
    if (job->n_lossy++ == 0) {
        job->lossy_node = oq_node_label(n);
        job->lossy_why = why;
    }
    return ONQ_OK;
}

onq_code oq_cv_stays(oq_cv_scope *s, const oq_node *n, const char *why, onq_error *err) {
    oq_convert_job *job = s->cv->job;
    if (!job->partial && !job->lossy)
        return oq_cv_refuse(n, ONQ_E_UNSUPPORTED, err,
                            "%s (--partial keeps the pairs of such nodes, which compute the same)",
                            why);
    job->n_stay++;
    return ONQ_OK;
}

oq_str oq_cv_plain_name(oq_str name) {
    /* The reference forgets the underscore after a Split. */
    static const char *const endings[] = {"_quantized", "quantized", "_QuantizeLinear_Output",
                                          "_DQ_Q2",     "_DQ_Q4",    "_DQ_Q8",
                                          "_Q2",        "_Q4",       "_Q8",
                                          "_Bnb4"};
    for (size_t i = 0; i < OQ_COUNT(endings); i++) {
        oq_str base = name;
        if (oq_str_cut_end(&base, endings[i]) && base.n > 0)
            return base;
    }
    return name;
}

oq_str oq_cv_fresh(oq_cv_scope *s, oq_str wanted, const char *suffix) {
    return oq_fresh_tensor(&s->cv->names, oq_cv_plain_name(wanted), suffix);
}

onq_code oq_cv_emit(oq_cv_scope *s, oq_node *n, onq_error *err) {
    if (n == NULL || s->cv->names.failed || !OQ_PUSH(&s->cv->scratch, &s->out, n))
        return oq_fail_nomem(err);
    if (oq_str_is(n->domain, OQ_MICROSOFT))
        s->cv->used_microsoft = true;
    return ONQ_OK;
}

/* ---- constants ---- */

oq_tensor *oq_cv_constant(const oq_cv_scope *s, oq_str name) {
    return name.n > 0 ? oq_index_constant(&s->index, name) : NULL;
}

bool oq_cv_same(oq_cv_scope *s, oq_str a, oq_str b) {
    oq_span x = {0}, y = {0};
    onq_error ignored = ONQ_ERROR_INIT;
    if (oq_str_eq(a, b))
        return true;
    oq_tensor *p = oq_cv_constant(s, a), *q = oq_cv_constant(s, b);
    if (p == NULL || q == NULL || p->data_type.v != q->data_type.v ||
        oq_model_data(s->cv->model, p, &x, &ignored) != ONQ_OK ||
        oq_model_data(s->cv->model, q, &y, &ignored) != ONQ_OK)
        return false;
    return x.n == y.n && memcmp(x.p, y.p, (size_t)x.n) == 0;
}

/* True if a zero point is not there, or a constant of zeros. */
static bool is_zero(oq_cv_scope *s, oq_str name) {
    onq_error ignored = ONQ_ERROR_INIT;
    oq_tensor *t = oq_cv_constant(s, name);
    oq_span raw = {0};
    if (name.n == 0)
        return true;
    if (t == NULL || oq_model_data(s->cv->model, t, &raw, &ignored) != ONQ_OK)
        return false;
    for (uint64_t i = 0; i < raw.n; i++)
        if (raw.p[i] != 0)
            return false;
    return true;
}

bool oq_cv_has_many(const oq_cv_scope *s, oq_str scale) {
    const oq_tensor *t = oq_cv_constant(s, scale);
    onq_error ignored = ONQ_ERROR_INIT;
    uint64_t n = 0;
    return t != NULL && oq_tensor_count(t, &n, &ignored) == ONQ_OK && n != 1;
}

bool oq_cv_same_params(oq_cv_scope *s, const oq_cv_param *a, const oq_cv_param *b) {
    if (!oq_cv_same(s, a->scale, b->scale))
        return false;
    if (!oq_cv_same(s, a->zero, b->zero) && !(is_zero(s, a->zero) && is_zero(s, b->zero)))
        return false;
    return !oq_cv_has_many(s, a->scale) || (a->axis == b->axis && a->block == b->block);
}

bool oq_cv_scalar(oq_cv_scope *s, const oq_cv_param *p, float *scale, int64_t *zero,
                  oq_dtype *type) {
    onq_error ignored = ONQ_ERROR_INIT;
    oq_tensor *t = oq_cv_constant(s, p->scale), *z = oq_cv_constant(s, p->zero);
    oq_span raw = {0}, raw_zero = {0};
    uint64_t n = 0;
    if (t == NULL || !oq_dtype_is_float(t->data_type.v) ||
        oq_tensor_count(t, &n, &ignored) != ONQ_OK || n != 1 ||
        oq_model_data(s->cv->model, t, &raw, &ignored) != ONQ_OK)
        return false;
    *scale = (float)oq_raw_get_real((oq_dtype)t->data_type.v, raw.p, 0);
    *zero = 0;
    *type = OQ_UINT8;
    if (p->zero.n == 0)
        return true;
    if (z == NULL || oq_tensor_count(z, &n, &ignored) != ONQ_OK || n != 1 ||
        oq_model_data(s->cv->model, z, &raw_zero, &ignored) != ONQ_OK)
        return false;
    *type = (oq_dtype)z->data_type.v;
    const oq_dtype_info *info = oq_dtype_find(*type);
    if (info == NULL || (info->cls != OQ_CLASS_INT && info->cls != OQ_CLASS_UINT))
        return false;
    *zero = oq_raw_get_int(*type, raw_zero.p, 0);
    return true;
}

oq_tensor *oq_cv_init(oq_cv_scope *s, oq_str near, oq_str name, oq_dtype type, const int64_t *dims,
                      size_t rank) {
    const oq_index *owner = &s->index;
    const oq_value *v = near.n > 0 ? oq_index_resolve(&owner, near) : NULL;
    oq_graph *g = v != NULL ? owner->graph : s->graph;
    oq_tensor *t = oq_tensor_new(s->cv->arena, name, type, dims, rank);
    if (name.p == NULL || t == NULL || !oq_graph_add_init(s->cv->arena, g, t))
        return NULL;
    return t;
}

/* ---- parameters ---- */

oq_cv_param oq_cv_param_of(const oq_node *n) {
    return (oq_cv_param){.scale = oq_node_input(n, 1),
                         .zero = oq_node_input(n, 2),
                         .axis = oq_attr_int(n, "axis", 1),
                         .block = oq_attr_int(n, "block_size", 0),
                         .domain = oq_domain_plain(n->domain)};
}

const oq_cv_param *oq_cv_find(const oq_cv_scope *s, oq_str name) {
    for (; s != NULL; s = s->parent) {
        const uint32_t i = oq_map_find(&s->params, name);
        const oq_value *v = oq_index_find(&s->index, name);
        if (i != OQ_MAP_NONE)
            return &s->param.v[i];
        if (v != NULL && oq_value_is_defined(v))
            return NULL;
    }
    return NULL;
}

onq_code oq_cv_know(oq_cv_scope *s, oq_str name, const oq_cv_param *p, onq_error *err) {
    if (name.n == 0 || oq_map_has(&s->params, name))
        return ONQ_OK;
    return OQ_PUSH(&s->cv->scratch, &s->param, *p) &&
                   oq_map_put(&s->params, name, (uint32_t)(s->param.n - 1))
               ? ONQ_OK
               : oq_fail_nomem(err);
}

/* ---- nodes ---- */

static bool set_axis(oq_cv_scope *s, oq_node *n, const oq_cv_param *p) {
    if (!oq_cv_has_many(s, p->scale))
        return true;
    return oq_attr_set_int(s->cv->arena, n, OQ_S("axis"), p->axis) &&
           (p->block == 0 || oq_attr_set_int(s->cv->arena, n, OQ_S("block_size"), p->block));
}

static onq_code emit_pair(oq_cv_scope *s, const char *type, oq_str name, oq_str from,
                          const oq_cv_param *p, oq_str to, onq_error *err) {
    const oq_str in[] = {from, p->scale, p->zero};
    oq_node *n = oq_node_make(s->cv->arena, type, name, in, p->zero.n > 0 ? 3 : 2, &to, 1);
    OQ_TRY_ALLOC(n != NULL && to.p != NULL && set_axis(s, n, p), err);
    if (p->domain.n > 0)
        n->domain = p->domain;
    s->cv->has_channels |= p->domain.n == 0 && n->attribute.n > 0;
    return oq_cv_emit(s, n, err);
}

onq_code oq_cv_dequantize(oq_cv_scope *s, oq_str data, const oq_cv_param *p, oq_str *out,
                          onq_error *err) {
    const oq_str key =
        oq_str_format(&s->cv->scratch, "%.*s|%.*s|%.*s", (int)data.n, data.p, (int)p->scale.n,
                      p->scale.p, (int)p->zero.n, p->zero.n > 0 ? p->zero.p : "");
    OQ_TRY_ALLOC(key.p != NULL, err);
    const uint32_t have = oq_map_find(&s->made, key);
    if (have != OQ_MAP_NONE) {
        *out = s->floats.v[have];
        return ONQ_OK;
    }
    *out = oq_cv_fresh(s, data, "_DequantizeLinear_Output");
    if (!OQ_PUSH(&s->cv->scratch, &s->floats, *out) ||
        !oq_map_put(&s->made, key, (uint32_t)(s->floats.n - 1)))
        return oq_fail_nomem(err);
    return emit_pair(s, OQ_DEQUANTIZE_LINEAR,
                     oq_fresh_node(&s->cv->names, oq_cv_plain_name(data), "_DequantizeLinear"),
                     data, p, *out, err);
}

onq_code oq_cv_quantize(oq_cv_scope *s, oq_str from, const oq_cv_param *p, oq_str to,
                        onq_error *err) {
    OQ_TRY(oq_cv_know(s, to, p, err));
    return emit_pair(s, OQ_QUANTIZE_LINEAR,
                     oq_fresh_node(&s->cv->names, oq_cv_plain_name(to), "_QuantizeLinear"), from, p,
                     to, err);
}

oq_node *oq_cv_as(oq_cv_scope *s, const oq_node *n, const char *domain, const char *type) {
    oq_str name = n->name;
    if (oq_str_cut_end(&name, "_quant"))
        name = oq_fresh_node(&s->cv->names, name, "");
    oq_node *made = oq_node_new(s->cv->arena, type, name);
    if (made == NULL)
        return NULL;
    if (domain[0] != '\0')
        made->domain = oq_str_of(domain);
    if (!oq_node_share_attributes(s->cv->arena, made, n))
        return NULL;
    oq_node_carry(made, n);
    return made;
}

onq_code oq_cv_replaced(oq_cv_scope *s, const oq_node *n, onq_error *err) {
    s->cv->job->n_operators++;
    return oq_cv_note(s, n, err);
}

/* ---- nodes of the model, and of a plan ---- */

/* A node is known by its type and its first output: one of another type may take its place. */
static oq_str key_of(oq_arena *a, oq_str type, oq_str output) {
    return oq_str_format(a, "%.*s|%.*s", (int)type.n, type.p, (int)output.n,
                         output.n > 0 ? output.p : "");
}

static oq_str output_of(const oq_node *n) {
    return n->output.n > 0 ? n->output.v[0] : (oq_str){0};
}

static onq_code add_key(oq_cv *cv, oq_map *to, oq_str type, oq_str output, onq_error *err) {
    const oq_str key = key_of(&cv->scratch, type, output);
    return key.p != NULL && oq_map_put(to, key, 0) ? ONQ_OK : oq_fail_nomem(err);
}

static onq_code add_keys(void *ctx, oq_graph *g, onq_error *err) {
    oq_cv *cv = ctx;
    for (size_t i = 0; i < g->node.n; i++)
        OQ_TRY(add_key(cv, &cv->given, g->node.v[i]->op_type, output_of(g->node.v[i]), err));
    return ONQ_OK;
}

onq_code oq_cv_begin(oq_cv *cv, onq_error *err) {
    const oq_model_proto *p = cv->model->proto;
    const oq_plan *asked = cv->job->asked;
    oq_map_init(&cv->given, &cv->scratch);
    oq_map_init(&cv->asked, &cv->scratch);
    if (cv->job->plan == NULL)
        return ONQ_OK;
    OQ_TRY(oq_walk_graphs(p->graph, add_keys, cv, err));
    for (size_t i = 0; i < p->functions.n; i++)
        for (size_t k = 0; k < p->functions.v[i]->node.n; k++) {
            const oq_node *n = p->functions.v[i]->node.v[k];
            OQ_TRY(add_key(cv, &cv->given, n->op_type, output_of(n), err));
        }
    for (size_t i = 0; asked != NULL && i < asked->nodes.n; i++)
        if (asked->nodes.v[i].fate == OQ_FATE_REMOVED)
            OQ_TRY(
                add_key(cv, &cv->asked, asked->nodes.v[i].op_type, asked->nodes.v[i].output, err));
    return ONQ_OK;
}

static bool is_given(const oq_cv_scope *s, const oq_node *n, bool *is_asked) {
    const oq_str key = key_of(&s->cv->scratch, n->op_type, output_of(n));
    *is_asked = key.p != NULL && oq_map_has(&s->cv->asked, key);
    return key.p != NULL && oq_map_has(&s->cv->given, key);
}

bool oq_cv_is_left(const oq_cv_scope *s, const oq_node *n) {
    bool is_asked = false;
    return s->cv->job->asked != NULL && is_given(s, n, &is_asked) && !is_asked;
}

bool oq_cv_is_asked(const oq_cv_scope *s, const oq_node *n) {
    bool is_asked = false;
    return is_given(s, n, &is_asked) && is_asked;
}

bool oq_cv_leave(oq_cv_scope *s, const oq_node *n) {
    const bool left = oq_cv_is_left(s, n);
    s->cv->job->n_left += left;
    return left;
}

onq_code oq_cv_note(oq_cv_scope *s, const oq_node *n, onq_error *err) {
    bool is_asked = false;
    if (s->cv->job->plan == NULL || !is_given(s, n, &is_asked))
        return ONQ_OK;
    const oq_plan_node row = {.name = n->name,
                              .op_type = n->op_type,
                              .output = output_of(n),
                              .fate = OQ_FATE_REMOVED,
                              .why = ""};
    return oq_plan_add_node(s->cv->job->plan, row) ? ONQ_OK : oq_fail_nomem(err);
}
