/*
 * debug_weights.c — onq_debug_modify_model, onq_weight_match and onq_sqnr: the reference's
 * modify_model_output_intermediate_tensors, create_weight_matching, compute_weight_error and
 * compute_signal_to_quantization_noice_ratio.
 */
#include "api/options/command.h"
#include "debug/augment.h"
#include "debug/measure/noise.h"
#include "debug/weights/weights.h"
#include "onnx/check/check.h"

/* ---- the model that gives out its tensors ---- */

static onq_code modify(onq_env *env, oq_model *m, const char *output, const char *const *op_types,
                       size_t n, int external, onq_error *err) {
    const oq_save_options save = {.external = external != 0 ? OQ_EXTERNAL_ONE : OQ_EXTERNAL_KEEP,
                                  .threshold = 1024};
    const size_t size = (n + 1) * sizeof(oq_str);
    oq_str *ops = oq_calloc(&env->alloc, n + 1, sizeof *ops);
    OQ_TRY_ALLOC(ops != NULL, err);
    for (size_t i = 0; i < n; i++)
        ops[i] = oq_str_of(op_types[i]);
    onq_code rc = oq_debug_augment(m, ops, n, err);
    if (rc == ONQ_OK)
        rc = oq_model_save(m, output, &save, err);
    oq_free(&env->alloc, ops, size);
    return rc;
}

onq_code onq_debug_modify_model(onq_env *env, const char *input, const char *output,
                                const char *const *op_types, size_t n_op_types, int external,
                                onq_error *err) {
    oq_model *m = NULL;
    OQ_TRY(oq_model_open(env, input, NULL, &m, err));
    const onq_code rc = modify(env, m, output, op_types, n_op_types, external, err);
    oq_model_free(m);
    return rc;
}

/* ---- weights ---- */

typedef struct pair {
    uint32_t at; /* in the debugger's weights */
    const char *name;
    bool quantized;
    onq_weight_row row;
} pair;

struct onq_weight_match {
    onq_env *env;
    oq_model *flt, *quantized;
    oq_debug d;
    bool extended;
    oq_arena arena; /* of the rows that were asked for */
    OQ_VEC(pair) pairs;
};

static onq_code list_pairs(onq_weight_match *m, onq_error *err) {
    oq_debug *d = &m->d;
    for (uint32_t i = 0; i < d->weights.n; i++) {
        const oq_debug_weight *w = &d->weights.v[i];
        if (!m->extended && !oq_debug_is_reference(d, w)) {
            if (w->by_dq)
                oq_warn(m->env, "%s: dequantized tensor '%.*s' is not matched by name",
                        m->quantized->path, OQ_STR(w->quantized_name));
            continue;
        }
        pair p = {.at = i, .name = oq_str_cstr(&m->arena, w->name)};
        OQ_TRY_ALLOC(p.name != NULL && OQ_PUSH(&m->arena, &m->pairs, p), err);
    }
    for (size_t i = 0; i < d->unmatched.n; i++)
        if (d->unmatched.v[i].weight)
            oq_warn(m->env, "%s: weight '%.*s': %s", m->quantized->path,
                    OQ_STR(d->unmatched.v[i].name), d->unmatched.v[i].why);
    return ONQ_OK;
}

static onq_code open_match(onq_weight_match *m, const onq_options *opts, onq_error *err) {
    oq_job job = {.env = m->env, .opts = opts};
    const char *float_model = oq_opt_str(opts, "float_model");
    const char *qdq_model = oq_opt_str(opts, "qdq_model");
    if (float_model == NULL || qdq_model == NULL)
        return oq_fail(err, ONQ_E_OPTION, "a float_model and a qdq_model are needed");
    OQ_TRY(oq_job_open(&job, float_model, &m->flt, err));
    OQ_TRY(oq_job_open(&job, qdq_model, &m->quantized, err));
    OQ_TRY(oq_model_check(m->flt, err));
    OQ_TRY(oq_model_check(m->quantized, err));
    oq_debug_init(&m->d, m->env, m->flt, m->quantized);
    const onq_code rc = oq_debug_match(&m->d, err);
    return rc == ONQ_OK ? list_pairs(m, err) : oq_error_in(err, rc, "%s", qdq_model);
}

onq_code onq_weight_match_new(onq_env *env, const char *float_model, const char *qdq_model,
                              int extended, onq_weight_match **out, onq_error *err) {
    onq_options *o = NULL;
    *out = NULL;
    onq_code rc = onq_options_new(env, "debug", &o, err);
    if (rc == ONQ_OK)
        rc = onq_options_set(o, "float_model", float_model, err);
    if (rc == ONQ_OK)
        rc = onq_options_set(o, "qdq_model", qdq_model, err);
    if (rc == ONQ_OK)
        rc = onq_weight_match_new_from(env, o, extended, out, err);
    onq_options_free(o);
    return rc;
}

onq_code onq_weight_match_new_from(onq_env *env, const onq_options *opts, int extended,
                                   onq_weight_match **out, onq_error *err) {
    *out = NULL;
    if (strcmp(opts->command->info.name, "debug") != 0)
        return oq_fail(err, ONQ_E_OPTION, "matching needs options of the command 'debug'");
    onq_weight_match *m = oq_calloc(&env->alloc, 1, sizeof *m);
    OQ_TRY_ALLOC(m != NULL, err);
    m->env = env;
    m->extended = extended != 0;
    oq_arena_init(&m->arena, &env->alloc);
    const onq_code rc = open_match(m, opts, err);
    if (rc == ONQ_OK)
        *out = m;
    else
        onq_weight_match_free(m);
    return rc;
}

void onq_weight_match_free(onq_weight_match *match) {
    if (match == NULL)
        return;
    const onq_allocator *a = &match->env->alloc;
    if (match->d.env != NULL)
        oq_debug_release(&match->d);
    oq_model_free(match->flt);
    oq_model_free(match->quantized);
    oq_arena_release(&match->arena);
    oq_free(a, match, sizeof *match);
}

size_t onq_weight_match_count(const onq_weight_match *match) {
    return match->pairs.n;
}

const char *onq_weight_match_name(const onq_weight_match *match, size_t i) {
    return i < match->pairs.n ? match->pairs.v[i].name : NULL;
}

static onq_tensor view(const char *name, const oq_tensor *shape, oq_dtype type, const void *data,
                       size_t size) {
    return (onq_tensor){.name = name,
                        .dtype = (int32_t)type,
                        .rank = shape->dims.n,
                        .dims = shape->dims.v,
                        .data = data,
                        .size = size};
}

/* The row of a pair, its values in `a`. */
static onq_code make_row(onq_weight_match *m, const pair *p, oq_arena *a, onq_weight_row *out,
                         onq_error *err) {
    oq_debug_weight *w = &m->d.weights.v[p->at];
    assert(p->at < m->d.weights.n);
    oq_debug_values v;
    OQ_TRY_IN(oq_debug_weight_values(&m->d, w, !m->extended, a, &v, err), err,
              "%s: weight '%.200s'", m->quantized->path, p->name);
    /* The reference keeps the quantized tensor's shape, which other layouts do not have. */
    const oq_tensor *shape = m->extended ? w->flt : w->quantized;
    out->name = p->name;
    out->flt = view(p->name, w->flt, v.float_type, v.flt, v.float_bytes);
    out->dequantized = view(p->name, shape, v.quantized_type, v.quantized, v.quantized_bytes);
    return ONQ_OK;
}

static onq_code check_number(const onq_weight_match *m, size_t i, onq_error *err) {
    return i < m->pairs.n
               ? ONQ_OK
               : oq_fail(err, ONQ_E_INVALID, "there is no weight %zu, only %zu", i, m->pairs.n);
}

onq_code onq_weight_match_at(onq_weight_match *match, size_t i, const onq_weight_row **out,
                             onq_error *err) {
    *out = NULL;
    OQ_TRY(check_number(match, i, err));
    pair *p = &match->pairs.v[i];
    if (!p->quantized)
        OQ_TRY(make_row(match, p, &match->arena, &p->row, err));
    p->quantized = true;
    *out = &p->row;
    return ONQ_OK;
}

onq_code onq_weight_match_error(onq_weight_match *match, size_t i, double *sqnr, onq_error *err) {
    onq_weight_row row;
    *sqnr = NAN;
    OQ_TRY(check_number(match, i, err));
    OQ_SCRATCH(scratch, &match->env->alloc);
    OQ_TRY(make_row(match, &match->pairs.v[i], &scratch, &row, err));
    return oq_noise_sqnr(&row.flt, 1, &row.dequantized, 1, sqnr, err);
}

onq_code onq_sqnr(const onq_tensor *x, size_t n_x, const onq_tensor *y, size_t n_y, double *out,
                  onq_error *err) {
    return oq_noise_sqnr(x, n_x, y, n_y, out, err);
}
