/*
 * verify_apart.c — one runtime in a process of its own: two versions of the runtime do not meet in one
 * process, and a runtime that crashes is an answer, not the end. A runtime of another machine needs
 * an onq of that machine, which --run_with starts.
 */
#include "api/verify/verify_here.h"

#include "base/text/json.h"
#include "samples/files/pipe.h"

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

/* ---- a runtime of another machine ---- */

/* Options of the job that the other program must not get: it has one runtime, and its text is read
 * here. */
static bool stays_here(const char *name) {
    static const char *const all[] = {"run_with", "onnxruntime", "isolate", "json", "quiet"};
    for (size_t i = 0; i < OQ_COUNT(all); i++)
        if (strcmp(all[i], name) == 0)
            return true;
    return false;
}

/* The line that starts the other program with the words of this job. An emulator may not know how to
 * start a worker, and it is a process of its own already. */
static void add_line(oq_job *job, const char *library, oq_buf *line) {
    const onq_options *o = job->opts;
    oq_buf_addf(line, "%s verify --json --quiet --isolate=false --input ",
                oq_opt_str(o, "run_with"));
    oq_buf_add_exact_word(line, oq_str_of(oq_job_input(job)));
    for (size_t i = 0; i < o->n_values; i++) {
        const oq_opt_value *v = &o->values[i];
        const char *text = NULL;
        if (!v->is_set || stays_here(v->row->name) || strcmp(v->row->name, "input") == 0)
            continue;
        for (size_t k = 0; (text = oq_opt_text(&job->arena, v, k)) != NULL; k++) {
            oq_buf_addf(line, " --%s=", v->row->name);
            oq_buf_add_exact_word(line, oq_str_of(text));
        }
    }
    oq_buf_adds(line, " --onnxruntime ");
    oq_buf_add_exact_word(line, oq_str_of(library));
}

static void take_text(void *ctx, const char *text, size_t n) {
    oq_buf_add(ctx, text, n);
}

/* An answer counts whatever the status, which is 1 for a model that is not good there. */
static onq_code run_there(oq_job *job, const char *line, oq_buf *said, onq_error *err) {
    oq_pipe pipe;
    OQ_TRY(oq_pipe_run(&pipe, line, err));
    onq_code rc = oq_pipe_follow(&pipe, job->env, "verifying", 0, take_text, said, err);
    if (rc == ONQ_OK && said->n == 0) {
        rc = oq_pipe_finish(&pipe, err);
        if (rc == ONQ_OK)
            rc = oq_fail(err, ONQ_E_READ, "the program printed nothing");
    }
    oq_pipe_close(&pipe);
    return rc;
}

onq_code oq_verify_there(oq_job *job, const char *library, json_t **row, onq_error *err) {
    onq_error why = ONQ_ERROR_INIT;
    OQ_SCRATCH_BUF(line, &job->env->alloc);
    OQ_SCRATCH_BUF(said, &job->env->alloc);
    add_line(job, library, &line);
    OQ_TRY_ALLOC(!line.failed, err);
    onq_code rc = run_there(job, line.p, &said, &why);
    if (rc == ONQ_OK && said.failed)
        return oq_fail_nomem(err);
    if (rc == ONQ_OK)
        rc = take_row(library, said.p, row, &why);
    if (rc == ONQ_OK || rc == ONQ_E_NOMEM || rc == ONQ_E_CANCEL)
        return rc == ONQ_OK ? rc : oq_error_give(err, rc, &why);
    return oq_fail(err, ONQ_E_RUNTIME, "ONNX Runtime '%s': --run_with: '%.200s': %s", library,
                   oq_opt_str(job->opts, "run_with"), why.text);
}
