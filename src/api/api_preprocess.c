/*
 * api_preprocess.c — `onq preprocess`: shapes, optimisation, shapes; what a float model needs before it is
 * quantized (the reference's quant_pre_process, and with --qnn its qnn_preprocess_model).
 */
#include "api/command.h"
#include "api/quant_config.h"
#include "api/quant_result.h"
#include "api/samples.h"
#include "engine/ort.h"
#include "onnx/check.h"
#include "quantize/optimize.h"
#include "quantize/prep.h"

static const onq_option_info rows[] = {
    OQ_FLAG("skip_optimization", 0, "", "Do not optimise the graph (--optimizer none)."),
    OQ_FLAG("skip_onnx_shape", 0, "", "Do not infer shapes as onnx does, behind the optimisation."),
    OQ_FLAG("skip_symbolic_shape", 0, "",
            "Do not infer symbolic shapes, before the optimisation."),
    OQ_ENUM("optimizer", 0, "", "ort", "ort|builtin|none", "WHICH",
            "Who optimises: ONNX Runtime at its basic level, or onq itself, which needs no runtime "
            "and keeps the names of tensors."),
    OQ_FLAG("auto_merge", 0, "",
            "Symbolic shapes: dimensions of different names that must be equal become one."),
    OQ_INT("int_max", 0, "", "2147483647", "1..", "N",
           "Symbolic shapes: from here on a bound of Slice means `to the end`."),
    OQ_FLAG("guess_output_rank", 0, "",
            "Symbolic shapes: the output of an unknown operator has the rank of its first input."),
    OQ_FLAG("strict", 0, "", "Symbolic shapes that stay incomplete are an error, not a warning."),
    OQ_FLAG("save_as_external_data", 0, "", "Write the weights outside of the model file."),
    OQ_FLAG("all_tensors_to_one_file", 0, "",
            "External data: all tensors in one file, not one file for each."),
    OQ_TEXT("external_data_location", 0, "", "", "NAME",
            "External data: name of the one file, beside the model (MODEL.data by default)."),
    OQ_SIZE("external_data_size_threshold", 0, "", "1024", "",
            "External data: smaller tensors stay in the model file."),
};
static const oq_opt_group own = OQ_GROUP("Preparation", rows);

enum { BY_ORT, BY_BUILTIN, BY_NONE };

typedef struct run {
    oq_job *job;
    oq_model *m;
    oq_engine *engine;
    int optimizer;
    bool symbolic, onnx_shape;
    oq_shape_report symbolic_report, report;
    oq_opt_report rewrites;
    size_t nodes_before, nodes_after;
} run;

/* ---- options ---- */

static onq_code check_options(run *r, onq_error *err) {
    const onq_options *o = r->job->opts;
    r->optimizer = oq_opt_enum(o, "optimizer");
    if (oq_opt_flag(o, "skip_optimization")) {
        if (oq_opt_is_set(o, "optimizer") && r->optimizer != BY_NONE)
            return oq_fail(err, ONQ_E_OPTION,
                           "--skip_optimization and --optimizer %s exclude each other",
                           oq_opt_str(o, "optimizer"));
        r->optimizer = BY_NONE;
    }
    r->symbolic = !oq_opt_flag(o, "skip_symbolic_shape");
    r->onnx_shape = !oq_opt_flag(o, "skip_onnx_shape");
    if (r->optimizer == BY_NONE && !r->symbolic && !r->onnx_shape)
        return oq_fail(err, ONQ_E_OPTION, "all three steps are skipped: nothing is left to be done");
    if (r->optimizer == BY_ORT && oq_opt_flag(o, "save_as_external_data"))
        return oq_fail(err, ONQ_E_OPTION,
                       "ONNX Runtime's optimisation does not support external data "
                       "(--skip_optimization leaves it out, --optimizer builtin can do it)");
    return ONQ_OK;
}

static oq_save_options save_options(const run *r) {
    const onq_options *o = r->job->opts;
    oq_save_options s = {.threshold = oq_opt_size(o, "external_data_size_threshold")};
    if (oq_opt_flag(o, "save_as_external_data")) {
        s.external = oq_opt_flag(o, "all_tensors_to_one_file") ? OQ_EXTERNAL_ONE : OQ_EXTERNAL_EACH;
        s.location = oq_opt_str(o, "external_data_location");
        if (s.location != NULL && s.external == OQ_EXTERNAL_EACH)
            oq_warn(r->job->env, "--external_data_location has no meaning without "
                                 "--all_tensors_to_one_file");
    } else if (oq_opt_flag(o, "use_external_data_format")) {
        s.external = OQ_EXTERNAL_ONE;
    }
    return s;
}

/* ---- steps ---- */

static onq_code engine_of(run *r, onq_error *err) {
    return r->engine != NULL ? ONQ_OK : oq_job_engine(r->job, &r->engine, err);
}

static onq_code optimize_ort(run *r, onq_error *err) {
    oq_session_options so;
    OQ_TRY(oq_job_session(r->job, &so, err));
    onq_code rc = engine_of(r, err);
    if (rc == ONQ_OK)
        rc = oq_prep_optimize_ort(r->engine, &so, oq_opt_str(r->job->opts, "output"), 0, &r->m, err);
    if (rc == ONQ_OK || rc == ONQ_E_NOMEM || rc == ONQ_E_CANCEL || rc == ONQ_E_WRITE)
        return rc;
    return oq_error_in(err, rc,
                       "ONNX Runtime's optimisation failed (--optimizer builtin needs no runtime, "
                       "--skip_optimization leaves it out)");
}

static onq_code infer_symbolic(run *r, onq_error *err) {
    const onq_options *o = r->job->opts;
    const oq_shape_options so = {.symbolic = true,
                                 .strict = oq_opt_flag(o, "strict"),
                                 .auto_merge = oq_opt_flag(o, "auto_merge"),
                                 .guess_output_rank = oq_opt_flag(o, "guess_output_rank"),
                                 .int_max = oq_opt_int(o, "int_max")};
    return oq_prep_shapes(r->m, &so, &r->symbolic_report, err);
}

static onq_code prepare(run *r, onq_error *err) {
    onq_env *env = r->job->env;
    OQ_TRY(oq_job_open(r->job, oq_job_input(r->job), &r->m, err));
    OQ_TRY(oq_model_check(r->m, err));
    r->nodes_before = r->m->proto->graph->node.n;
    if (r->symbolic) {
        OQ_TRY(oq_progress(env, "symbolic shapes", 0, 0, err));
        OQ_TRY(infer_symbolic(r, err));
    }
    OQ_TRY(oq_progress(env, "optimisation", 0, 0, err));
    if (r->optimizer == BY_ORT)
        OQ_TRY(optimize_ort(r, err));
    else if (r->optimizer == BY_BUILTIN)
        OQ_TRY(oq_optimize(r->m, &r->rewrites, err));
    if (r->onnx_shape) {
        OQ_TRY(oq_progress(env, "shapes", 0, 0, err));
        OQ_TRY(oq_prep_shapes(r->m, NULL, &r->report, err));
    }
    r->nodes_after = r->m->proto->graph->node.n;
    return oq_prep_mark(r->m, err);
}

static onq_code save(run *r, onq_error *err) {
    const onq_options *o = r->job->opts;
    const oq_save_options so = save_options(r);
    if (oq_opt_flag(o, "verify")) {
        OQ_TRY(engine_of(r, err));
        OQ_TRY(oq_engine_verify(r->engine, r->m, err));
    }
    return oq_model_save(r->m, oq_opt_str(o, "output"), &so, err);
}

static void tell_rewrites(const run *r) {
    oq_job *job = r->job;
    oq_jw_begin_array(&job->json, "rewrites");
    for (int i = 0; i < OQ_FUSE_COUNT; i++) {
        if (r->rewrites.counts[i] == 0)
            continue;
        oq_jw_begin_object(&job->json, NULL);
        oq_jw_cstr(&job->json, "what", oq_fuse_what((oq_fuse_id)i));
        oq_jw_uint(&job->json, "count", r->rewrites.counts[i]);
        oq_jw_end_object(&job->json);
        oq_info(job->env, "%zu times: %s", r->rewrites.counts[i], oq_fuse_what((oq_fuse_id)i));
    }
    oq_jw_end_array(&job->json);
}

static void tell(const run *r, double seconds) {
    oq_job *job = r->job;
    oq_jw_cstr(&job->json, "input", oq_job_input(job));
    oq_jw_cstr(&job->json, "output", oq_opt_str(job->opts, "output"));
    oq_jw_uint(&job->json, "nodes_before", r->nodes_before);
    oq_jw_uint(&job->json, "nodes_after", r->nodes_after);
    oq_buf_addf(&job->text, "%zu nodes -> %zu nodes", r->nodes_before, r->nodes_after);
    const oq_shape_report *s = r->symbolic ? &r->symbolic_report : r->onnx_shape ? &r->report : NULL;
    if (s != NULL) {
        oq_jw_uint(&job->json, "tensors", s->n_values);
        oq_jw_uint(&job->json, "tensors_with_shape", s->n_values - s->n_none);
        oq_buf_addf(&job->text, ", shapes of %zu of %zu tensors", s->n_values - s->n_none,
                    s->n_values);
    }
    if (r->optimizer == BY_BUILTIN)
        tell_rewrites(r);
    oq_jw_real(&job->json, "seconds", seconds);
    oq_buf_addf(&job->text, " in %.2f s\n", seconds);
}

static onq_code run_steps(run *r, onq_error *err) {
    const double begin = oq_quant_now();
    OQ_TRY(check_options(r, err));
    OQ_TRY(prepare(r, err));
    OQ_TRY(save(r, err));
    tell(r, oq_quant_now() - begin);
    return ONQ_OK;
}

static onq_code run_preprocess(oq_job *job, onq_error *err) {
    run r = {.job = job};
    onq_code rc = run_steps(&r, err);
    oq_model_free(r.m);
    oq_engine_close(r.engine);
    return rc;
}

const oq_command oq_command_preprocess = {
    .info = {"preprocess", "", "prepare a float model: shapes, optimisation, shapes",
             "What a float model needs before it is quantized: symbolic shape inference, optimisation "
             "of the graph, shape inference as onnx does it, and a mark that says so. The "
             "reference's quant_pre_process. Where symbolic inference cannot resolve a node it says which and "
             "goes on."},
    .required = "input output",
    .groups = {&oq_group_input, &oq_group_output, &own, &oq_group_runtime, &oq_group_general},
    .run = run_preprocess,
};
