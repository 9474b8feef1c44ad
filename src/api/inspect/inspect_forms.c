/*
 * inspect_forms.c — the forms that `onq convert` can give a quantized model, and which are exact.
 */
#include "api/inspect/inspect.h"

#include "onnx/codec/schema.h"
#include "onnx/tidy.h"
#include "quantize/convert/convert.h"

/* Tries one conversion on a copy of the graph; weights are not read for it. */
static onq_code try_form(oq_job *job, oq_model *m, oq_convert_to to, oq_convert_job *done,
                         onq_error *err) {
    oq_model_proto *const source = m->proto;
    const bool touched = m->touched;
    m->proto = oq_message_clone(&job->arena, OQ_SCHEMA_model_proto, source);
    onq_code rc = m->proto != NULL ? ONQ_OK : oq_fail_nomem(err);
    if (rc == ONQ_OK)
        rc = oq_model_sort_all(m, NULL, err);
    *done = (oq_convert_job){.model = m, .to = to};
    if (rc == ONQ_OK)
        rc = oq_convert_run(done, err);
    m->proto = source;
    m->touched = touched;
    return rc;
}

static void show_form(oq_job *job, const char *name, const oq_convert_job *c,
                      const onq_error *why) {
    const bool can = why->code == ONQ_OK;
    const size_t n = c->n_operators + c->n_pairs + c->n_weights;
    /* Without pairs, activations are not rounded any more. */
    const bool rounds = c->to == OQ_TO_FLOAT && c->n_pairs > c->n_weights;
    oq_jw_begin_object(&job->json, name);
    oq_jw_bool(&job->json, "possible", can);
    oq_jw_bool(&job->json, "exact", can && !rounds);
    oq_jw_uint(&job->json, "nodes", can ? c->n_operators + c->n_pairs : 0);
    if (!can)
        oq_jw_cstr(&job->json, "why", why->text);
    oq_jw_end_object(&job->json);
    if (!can)
        oq_buf_addf(&job->text, "  %-9s  no: %s\n", name, why->text);
    else if (n == 0)
        oq_buf_addf(&job->text, "  %-9s  nothing to convert\n", name);
    else
        oq_buf_addf(&job->text, "  %-9s  %s\n", name,
                    rounds ? "yes; activations are no longer rounded" : "exact");
}

onq_code oq_inspect_forms(oq_job *job, oq_model *m, bool quantized, onq_error *err) {
    static const struct {
        const char *name;
        oq_convert_to to;
    } forms[] = {{"float", OQ_TO_FLOAT},
                 {"qdq", OQ_TO_QDQ},
                 {"qoperator", OQ_TO_QOPERATOR},
                 {"nbits", OQ_TO_NBITS}};
    onq_code rc = ONQ_OK;
    if (!quantized)
        return ONQ_OK;
    oq_buf_adds(&job->text, "onq convert --to:\n");
    oq_jw_begin_object(&job->json, "conversions");
    const bool silent = oq_env_silence(m->env, true); /* what is tried is not done */
    for (size_t i = 0; rc == ONQ_OK && i < OQ_COUNT(forms); i++) {
        oq_convert_job done;
        onq_error why = ONQ_ERROR_INIT;
        rc = try_form(job, m, forms[i].to, &done, &why);
        if (rc == ONQ_E_NOMEM || rc == ONQ_E_CANCEL) {
            oq_error_give(err, rc, &why);
        } else {
            show_form(job, forms[i].name, &done, &why);
            rc = ONQ_OK;
        }
    }
    oq_env_silence(m->env, silent);
    oq_jw_end_object(&job->json);
    return rc;
}
