/*
 * recipe_run.c — see recipe_run.h.
 */
#include "api/quantizing/recipe_run.h"

/* Options that the command inside takes over as they are. */
static const char *const inherited[] = {"onnxruntime", "provider", "custom_ops", "data_root",
                                        "for_runtime"};

static onq_code set_inherited(const oq_recipe_run *run, onq_options *o, onq_error *err) {
    for (size_t i = 0; i < OQ_COUNT(inherited); i++) {
        if (!oq_opt_has(run->job->opts, inherited[i]))
            continue;
        const oq_opt_value *v = oq_opt_get(run->job->opts, inherited[i]);
        if (!v->is_set || onq_options_find(o, inherited[i]) == NULL)
            continue;
        if (v->row->type != ONQ_OPT_LIST)
            OQ_TRY(onq_options_set(o, inherited[i], v->text.p, err));
        for (size_t k = 0; v->row->type == ONQ_OPT_LIST && k < v->list.n; k++)
            OQ_TRY(onq_options_add(o, inherited[i], v->list.v[k].p, err));
    }
    return ONQ_OK;
}

static onq_code set_if_known(onq_options *o, const char *name, const char *value, onq_error *err) {
    return onq_options_find(o, name) != NULL ? onq_options_set(o, name, value, err) : ONQ_OK;
}

static onq_code set_all(const oq_recipe_run *run, const oq_recipe *r, onq_options *o,
                        onq_error *err) {
    OQ_TRY(onq_options_set(o, "no_verify", "true", err));
    OQ_TRY(set_if_known(o, "check", "0", err));
    if (!r->prepares)
        OQ_TRY(set_if_known(o, "strict", "true", err));
    OQ_TRY(set_inherited(run, o, err));
    for (size_t i = 0; i < r->options.n; i++) {
        const oq_recipe_option *x = &r->options.v[i];
        OQ_TRY(onq_options_set(o, x->name, x->value != NULL ? x->value : "true", err));
    }
    if (r->drops_shapes)
        OQ_TRY(onq_options_set(o, "drop_shapes", "true", err));
    return run->cache != NULL ? onq_options_set(o, "calibration_cache", run->cache, err) : ONQ_OK;
}

onq_code oq_recipe_do(oq_recipe_run *run, const oq_recipe *r, const char *in, const char *out,
                      onq_error *err) {
    assert(r->command != NULL && in != out);
    onq_options *o = NULL;
    onq_code rc = ONQ_OK;
    assert(r->command != NULL && !oq_listens(run->env));
    OQ_GO(onq_options_new(run->env, r->command, &o, err));
    OQ_GO(onq_options_set(o, "input", in, err));
    OQ_GO(onq_options_set(o, "output", out, err));
    OQ_GO(set_all(run, r, o, err));
    o->shared = run->shared;
    OQ_GO(onq_run(run->env, o, &run->result, err));
done:
    onq_options_free(o);
    return rc;
}
