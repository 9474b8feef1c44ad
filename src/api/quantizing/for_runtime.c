/*
 * for_runtime.c — see for_runtime.h.
 */
#include "api/quantizing/for_runtime.h"

onq_code oq_for_runtime_read(const oq_job *job, const oq_runtime **out, onq_error *err) {
    const char *said =
        oq_opt_has(job->opts, "for_runtime") ? oq_opt_str(job->opts, "for_runtime") : NULL;
    *out = said != NULL ? oq_runtime_find(said) : NULL;
    if (said != NULL && *out == NULL)
        return oq_fail(err, ONQ_E_OPTION,
                       "--for_runtime %s: it is not known what this version can run (known are "
                       "1.%u to 1.%u)",
                       said, oq_runtime_oldest()->minor, oq_runtime_newest()->minor);
    return ONQ_OK;
}

onq_code oq_for_runtime_fit(const oq_job *job, oq_model *m, oq_runtime_fitted *out,
                            onq_error *err) {
    const oq_runtime *r = NULL;
    *out = (oq_runtime_fitted){0};
    OQ_TRY(oq_for_runtime_read(job, &r, err));
    return r != NULL ? oq_runtime_fit(m, r, out, err) : ONQ_OK;
}

void oq_for_runtime_tell(oq_job *job, const oq_runtime_fitted *f) {
    const oq_runtime *r = NULL;
    if (oq_for_runtime_read(job, &r, NULL) != ONQ_OK || r == NULL)
        return;
    oq_jw_begin_object(&job->json, "for_runtime");
    oq_jw_cstr(&job->json, "version", r->version);
    oq_jw_int(&job->json, "opset", f->opset);
    oq_jw_int(&job->json, "ir", f->ir);
    if (f->form != NULL)
        oq_jw_cstr(&job->json, "form", f->form);
    oq_jw_bool(&job->json, "changed", oq_runtime_fit_changed(f));
    oq_jw_end_object(&job->json);
    oq_buf_addf(&job->text, "for ONNX Runtime 1.%u: ", r->minor);
    if (f->form != NULL)
        oq_buf_addf(&job->text, "%zu weights as %s, ", f->n_form, f->form);
    if (f->opset != f->opset_was)
        oq_buf_addf(&job->text, "opset %lld instead of %lld, ", (long long)f->opset,
                    (long long)f->opset_was);
    if (f->ir != f->ir_was)
        oq_buf_addf(&job->text, "IR %lld instead of %lld, ", (long long)f->ir,
                    (long long)f->ir_was);
    if (oq_runtime_fit_changed(f))
        job->text.n -= 2;
    else
        oq_buf_adds(&job->text, "nothing had to be changed");
    oq_buf_adds(&job->text, "\n");
}
