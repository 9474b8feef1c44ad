/*
 * selection_options.c — see selection_options.h.
 */
#include "api/quantizing/selection_options.h"

#include "api/samples.h"

#define REQUANTIZED_TOLD 3 /* nodes that are named */

onq_code oq_selection_check(oq_selection *s, oq_quant *q, bool pairs, onq_error *err) {
    const onq_options *o = q->job->opts;
    s->modes = q->modes;
    s->heaviest = (uint64_t)oq_opt_int(o, "heaviest");
    s->set = OQ_CHOSEN(o, "op_set", oq_op_set, OQ_OP_SETS);
    if (s->heaviest > 0 && !oq_opt_is_set(o, "op_set"))
        s->set = pairs ? OQ_SET_NOOUT : OQ_SET_LINEAR;
    if (!pairs && s->set >= OQ_SET_NOOUT)
        return oq_fail(err, ONQ_E_OPTION,
                       "--op_set %s is for --quant_format qdq: QLinearMatMul has no float output "
                       "(linear works)",
                       oq_opt_str(o, "op_set"));
    if (oq_opt_is_set(o, "unit_costs") && s->set != OQ_SET_PAYS)
        oq_warn(q->job->env, "--unit_costs has no effect without --op_set pays");
    q->config.keep_excluded_float |= q->config.methods.all.n > 0;
    return oq_selection_choose_outputs(&q->config, s, err);
}

onq_code oq_job_units(oq_job *job, oq_model *m, bool strict, oq_units *out, onq_error *err) {
    oq_source *source = NULL;
    oq_source_options o;
    onq_error why = ONQ_ERROR_INIT;
    OQ_TRY(oq_job_source_options(job, m, &o, err));
    oq_unit_sizes sizes = {.dims = o.dims, .n_dims = o.n_dims};
    o.limit = 1;
    onq_code rc = oq_job_open_source(job, &o, &source, &why);
    if (rc == ONQ_OK)
        rc = oq_source_next(source, &sizes.sample, &why);
    if (rc != ONQ_OK && (rc == ONQ_E_NOMEM || rc == ONQ_E_CANCEL || strict))
        oq_error_give(err, rc, &why);
    else
        rc = oq_units_find(out, &job->arena, m, &sizes, err);
    oq_source_close(source);
    return rc;
}

onq_code oq_selection_apply(const oq_selection *s, oq_quant *q, onq_error *err) {
    assert(q->model != NULL);
    oq_selection own = *s;
    oq_units units = {0};
    oq_unit_costs costs = {0};
    if (q->run.given != NULL)
        return ONQ_OK;
    /* Where samples are needed, the calibration says what is wrong with them. */
    if (oq_selection_needs_units(s))
        OQ_TRY(oq_job_units(q->job, q->model, false, &units, err));
    own.units = &units;
    if (oq_opt_is_set(q->job->opts, "unit_costs")) {
        OQ_TRY(oq_unit_costs_load(&costs, &q->job->arena, &q->job->env->alloc,
                                  oq_opt_str(q->job->opts, "unit_costs"), err));
        own.costs = &costs;
    }
    return oq_selection_choose_nodes(&q->run, q->model, &own, err);
}

void oq_selection_warn(const oq_quant *q) {
    const oq_plan *p = &q->plan;
    if (p->requantized.n == 0)
        return;
    OQ_SCRATCH_BUF(names, &q->job->env->alloc);
    for (size_t i = 0; i < p->requantized.n && i < REQUANTIZED_TOLD; i++)
        oq_buf_addf(&names, "%s'%.*s': %.1f dB", i > 0 ? ", " : "",
                    OQ_STR(p->requantized.v[i].node), p->requantized.v[i].sqnr);
    oq_warn(q->job->env,
            "%zu node%s float weights between quantized tensors, which ONNX Runtime quantizes to "
            "int8 per tensor when it loads the model (%.*s%s; --keep_excluded_float keeps them "
            "float)",
            p->requantized.n, p->requantized.n == 1 ? " has" : "s have", (int)names.n,
            names.failed ? "" : names.p, p->requantized.n > REQUANTIZED_TOLD ? " ..." : "");
}
