/*
 * verify_apart.c — one runtime in a process of its own: two versions of the runtime do not meet in one
 * process, and a runtime that crashes is an answer, not the end.
 */
#include "api/verify/verify_here.h"

#include "base/text/json.h"

/* The job with one runtime, as another process gets it. */
static onq_code one_runtime(const oq_job *job, const char *library, onq_options **out,
                            onq_error *err) {
    OQ_TRY(oq_options_copy(job->opts, out, err));
    OQ_TRY(onq_options_clear(*out, "onnxruntime", err));
    OQ_TRY(onq_options_add(*out, "onnxruntime", library, err));
    return onq_options_set(*out, "isolate", "true", err);
}

/* The only row of what the other process answered. */
static onq_code take_row(const char *library, const char *text, json_t **row, onq_error *err) {
    json_t *all = NULL;
    OQ_TRY(oq_json_parse(library, oq_str_of(text), &all, err));
    json_t *rows = json_object_get(all, "runtimes");
    *row = json_incref(json_array_get(rows, 0));
    json_decref(all);
    return *row != NULL ? ONQ_OK : oq_fail(err, ONQ_E_INTERNAL, "%s: no answer came", library);
}

onq_code oq_verify_apart(oq_job *job, const char *library, json_t **row, onq_error *err) {
    onq_options *o = NULL;
    onq_result *result = NULL;
    onq_code rc = one_runtime(job, library, &o, err);
    if (rc == ONQ_OK)
        rc = onq_run(job->env, o, &result, err);
    if (rc == ONQ_OK)
        rc = take_row(library, onq_result_json(result), row, err);
    onq_result_free(result);
    onq_options_free(o);
    return rc;
}
