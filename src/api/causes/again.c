/*
 * again.c — see again.h.
 */
#include "api/causes/again.h"

#include "onnx/attr.h"
#include "onnx/operators.h"

/* The type that most of them have, biases aside. */
static oq_dtype usual_type(const uint64_t counts[OQ_DTYPE_COUNT]) {
    int best = OQ_UNDEFINED;
    for (int t = 0; t < OQ_DTYPE_COUNT; t++)
        if (t != OQ_INT32 && counts[t] > 0 && (best == OQ_UNDEFINED || counts[t] > counts[best]))
            best = t;
    return (oq_dtype)best;
}

static onq_code add_type(oq_recipe *r, oq_arena *a, const char *option, oq_dtype type,
                         oq_dtype usual, onq_error *err) {
    if (type == OQ_UNDEFINED || type == usual)
        return ONQ_OK;
    const oq_str name = oq_str_format(a, "q%s", oq_dtype_name((int64_t)type));
    if (name.p == NULL)
        return oq_fail_nomem(err);
    char *text = oq_arena_strdup(a, name.p, name.n);
    for (char *p = text; p != NULL && *p != '\0'; p++)
        *p = *p >= 'A' && *p <= 'Z' ? (char)(*p - 'A' + 'a') : *p;
    return text != NULL ? oq_recipe_add(r, a, option, text, err) : oq_fail_nomem(err);
}

/* True if zero lies in the middle of every range, as symmetric ranges have it. */
static bool is_symmetric(const oq_debug *d) {
    bool any = false;
    for (size_t i = 0; i < d->acts.n; i++) {
        const oq_debug_act *a = &d->acts.v[i];
        const int32_t middle = a->type == OQ_UINT8 ? 128 : a->type == OQ_UINT16 ? 32768 : 0;
        if (a->n_params != 1)
            continue;
        any = true;
        if (a->zero[0] < middle - 1 || a->zero[0] > middle)
            return false;
    }
    return any;
}

bool oq_again_has_channels(const oq_debug_weight *w) {
    return w->type != OQ_INT32 && w->n_channels > 1 && w->flt->dims.n >= 2 &&
           oq_op_traits_of(w->op)->weight != 0;
}

/* True if something inside an If, Loop or Scan is quantized. */
static bool has_bodies(const oq_debug *d) {
    bool any = false;
    for (size_t i = 0; i < d->acts.n; i++)
        any |= !d->acts.v[i].always;
    return any;
}

static onq_code add_static(oq_recipe *r, oq_arena *a, const oq_debug *d, const oq_quantized *q,
                           onq_error *err) {
    uint64_t weights[OQ_DTYPE_COUNT] = {0}, acts[OQ_DTYPE_COUNT] = {0};
    size_t per_channel = 0, per_tensor = 0;
    for (size_t i = 0; i < d->weights.n; i++) {
        const oq_debug_weight *w = &d->weights.v[i];
        const bool wide = oq_again_has_channels(w);
        per_channel += wide && w->axis >= 0;
        per_tensor += wide && w->axis < 0;
        weights[w->type] += wide && w->layout == OQ_DEBUG_AFFINE;
    }
    for (size_t i = 0; i < d->acts.n; i++)
        acts[d->acts.v[i].type]++;
    if (q->operators > 0)
        OQ_TRY(oq_recipe_add(r, a, "quant_format", "qoperator", err));
    OQ_TRY(add_type(r, a, "activation_type", usual_type(acts), OQ_UINT8, err));
    OQ_TRY(add_type(r, a, "weight_type", usual_type(weights), OQ_INT8, err));
    if (has_bodies(d))
        OQ_TRY(oq_recipe_add(r, a, "enable_subgraph", NULL, err));
    if (is_symmetric(d))
        OQ_TRY(oq_recipe_add(r, a, "activation_symmetric", NULL, err));
    return per_channel > per_tensor ? oq_recipe_add(r, a, "per_channel", NULL, err) : ONQ_OK;
}

static onq_code add_samples(oq_recipe *r, oq_job *job, onq_error *err) {
    for (size_t i = 0; i < oq_group_data.n && oq_opt_reader(job->opts) == NULL; i++) {
        const char *name = oq_group_data.rows[i].name;
        const oq_opt_value *v = oq_opt_get(job->opts, name);
        for (size_t k = 0; v->is_set && strcmp(name, "hold_out") != 0; k++) {
            const char *text = oq_opt_text(&job->arena, v, k);
            if (text == NULL)
                break;
            OQ_TRY(oq_recipe_add(r, &job->arena, name, text, err));
        }
    }
    return ONQ_OK;
}

/* A BatchNormalization that is in the weights now was folded before the model was quantized. */
static bool was_prepared(const oq_debug *d) {
    for (size_t i = 0; i < d->weights.n; i++)
        if (d->weights.v[i].norm != NULL)
            return true;
    return false;
}

static onq_code add_number(oq_recipe *r, oq_arena *a, const char *option, int64_t v,
                           onq_error *err) {
    const oq_str text = oq_str_format(a, "%lld", (long long)v);
    return text.p != NULL ? oq_recipe_add(r, a, option, text.p, err) : oq_fail_nomem(err);
}

static onq_code add_dynamic(oq_recipe *r, oq_arena *a, const oq_debug *d, onq_error *err) {
    uint64_t types[OQ_DTYPE_COUNT] = {0};
    size_t per_channel = 0;
    for (size_t i = 0; i < d->weights.n; i++) {
        types[d->weights.v[i].type]++;
        per_channel += oq_again_has_channels(&d->weights.v[i]) && d->weights.v[i].axis >= 0;
    }
    OQ_TRY(add_type(r, a, "weight_type", usual_type(types), OQ_INT8, err));
    return per_channel > 0 ? oq_recipe_add(r, a, "per_channel", NULL, err) : ONQ_OK;
}

/* Of weights in few bits: what the first of them shows. */
static onq_code add_nbits(oq_recipe *r, oq_arena *a, const oq_debug *d, const oq_quantized *q,
                          onq_error *err) {
    const oq_graph *g = d->quantized_index.graph;
    bool symmetric = d->weights.n > 0;
    if (q->only.n == 0)
        return ONQ_OK;
    OQ_TRY(add_number(r, a, "bits", q->only.v[0].bits, err));
    OQ_TRY(add_number(r, a, "block_size", q->only.v[0].block_size, err));
    for (size_t i = 0; i < d->weights.n; i++)
        symmetric &= d->weights.v[i].zero == NULL;
    if (symmetric)
        OQ_TRY(oq_recipe_add(r, a, "symmetric", NULL, err));
    for (size_t i = 0; i < g->node.n; i++) {
        const int64_t level = oq_node_is(g->node.v[i], "MatMulNBits")
                                  ? oq_attr_int(g->node.v[i], "accuracy_level", 0)
                                  : 0;
        if (level > 0)
            return add_number(r, a, "accuracy_level", level, err);
    }
    return ONQ_OK;
}

onq_code oq_again_find(oq_job *job, const oq_debug *d, const oq_quantized *q, oq_again *out,
                       onq_error *err) {
    oq_arena *a = &job->arena;
    *out =
        (oq_again){.prepare = {.command = was_prepared(d) ? "preprocess" : NULL, .prepares = true}};
    if (q->quantize + q->operators > 0) {
        out->recipe.command = "static";
        OQ_TRY(add_samples(&out->recipe, job, err));
        return add_static(&out->recipe, a, d, q, err);
    }
    out->recipe.command = q->weight_only > 0 ? "nbits" : "dynamic";
    return q->weight_only > 0 ? add_nbits(&out->recipe, a, d, q, err)
                              : add_dynamic(&out->recipe, a, d, err);
}

void oq_again_text(const oq_again *a, const char *input, const char *output, oq_buf *out) {
    if (a->prepare.command != NULL) {
        oq_recipe_text(&a->prepare, input, "prepared.onnx", out);
        oq_buf_addc(out, '\n');
    }
    oq_recipe_text(&a->recipe, a->prepare.command != NULL ? "prepared.onnx" : input, output, out);
}

const char *oq_again_list(oq_job *job, const oq_str *names, size_t n) {
    oq_buf b;
    oq_buf_init(&b, &job->env->alloc);
    for (size_t i = 0; i < n; i++) {
        if (i > 0)
            oq_buf_addc(&b, ',');
        for (size_t k = 0; k < names[i].n; k++) {
            const char c = names[i].p[k];
            if (c == ',' || (k == 0 && strchr(OQ_OPT_BEGINS, c) != NULL))
                oq_buf_addc(&b, '\\');
            oq_buf_addc(&b, c);
        }
    }
    const char *text = b.failed ? NULL : oq_arena_strdup(&job->arena, b.n > 0 ? b.p : "", b.n);
    oq_buf_release(&b);
    return text;
}
