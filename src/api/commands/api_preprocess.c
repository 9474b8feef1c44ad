/*
 * api_preprocess.c — `onq preprocess`: shapes, optimisation, shapes; what a float model needs
 * before it is quantized (the reference's quant_pre_process, and with --qnn its
 * qnn_preprocess_model).
 */
#include "api/options/command.h"
#include "api/options/shared_rows.h"
#include "api/quantizing/for_runtime.h"
#include "api/quantizing/rewriting.h"
#include "api/quantizing/sound.h"
#include "api/samples.h"
#include "engine/ort.h"
#include "onnx/graph.h"
#include "onnx/upgrade/upgrade.h"
#include "prepare/half.h"
#include "prepare/old_resize.h"
#include "prepare/optimize.h"
#include "prepare/preprocess.h"
#include "prepare/qnn.h"
#include "quantize/ort/stamp.h"

enum { BY_ORT, BY_BUILTIN, BY_NONE };
#define OPTIMIZERS(ROW) ROW("ort", BY_ORT) ROW("builtin", BY_BUILTIN) ROW("none", BY_NONE)
#define HALVES(ROW)                                                                                \
    ROW("none", OQ_HALF_NONE) ROW("weights", OQ_HALF_WEIGHTS) ROW("all", OQ_HALF_ALL)

static const onq_option_info rows[] = {
    OQ_FLAG("skip_optimization", 0, "", "Do not optimise the graph (--optimizer none)."),
    OQ_FLAG("skip_onnx_shape", 0, "", "Skip onnx's shape inference after the optimisation."),
    OQ_FLAG("skip_symbolic_shape", 0, "", "Skip symbolic shape inference before the optimisation."),
    OQ_ENUM("optimizer", 0, "", "ort", OQ_CHOICES(OPTIMIZERS), "WHICH",
            "The optimiser to use: ONNX Runtime at its basic level, or onq's own, which needs no "
            "runtime and keeps the names of tensors."),
    OQ_INT("opset", 0, "opset_version", "", "7..28", "N",
           "Raise the model to at least this ONNX opset first. A model below opset 11 is always "
           "raised to 11. Most quantization options need 13 or later."),
    OQ_FLAG("auto_merge", 0, "",
            "Symbolic shapes: merge dimensions of different names that must be equal."),
    OQ_INT("int_max", 0, "", "2147483647", "1..", "N",
           "Symbolic shapes: a bound of Slice from this value on means `to the end`."),
    OQ_FLAG("guess_output_rank", 0, "",
            "Symbolic shapes: assume that the output of an unknown operator has the rank of its "
            "first input."),
    OQ_LIST("fuse", 0, "", "OP",
            "Fuse nodes into these operators and do nothing else: Gelu, LpNormalization, "
            "SpaceToDepth, LayerNormalization."),
    OQ_ENUM("float16", 0, "", "none", OQ_CHOICES(HALVES), "WHAT",
            "weights: store large weights as float16, which halves the file, and compute in "
            "float32 as before. all: also compute in float16 where possible, which is faster if "
            "the provider has kernels for it. Make this the last step: float16 weights can no "
            "longer be quantized."),
    OQ_ROW_DROP_SHAPES,
    /* Own sense: nothing is quantized here. */
    OQ_FLAG("strict", 0, "",
            "Fail if symbolic shapes stay incomplete or --float16 changes nothing, instead of "
            "warning."),
    OQ_FLAG("save_as_external_data", 0, "", "Write the weights outside the model file."),
    OQ_FLAG("all_tensors_to_one_file", 0, "",
            "External data: write all tensors to one file instead of one file for each."),
    OQ_TEXT(
        "external_data_location", 0, "", "", "NAME",
        "External data: name of the one file, in the folder of the model (MODEL.data by default)."),
    OQ_SIZE("external_data_size_threshold", 0, "", "1024", "",
            "External data: smaller tensors stay in the model file. As in onnx.save_model, 33 "
            "bytes are added to the size of each."),
};
static const oq_opt_group own = OQ_GROUP("Preparation", rows);

static const onq_option_info qnn_rows[] = {
    OQ_FLAG("qnn", 0, "",
            "Prepare for the QNN execution provider instead: infer shapes as onnx does, optimise, "
            "and fuse Gelu, LpNormalization and SpaceToDepth (qnn_preprocess_model)."),
    OQ_FLAG("fuse_layernorm", 0, "", "With --qnn: also fuse LayerNormalization."),
    OQ_FLAG("exclude_initializer_from_input", 0, "",
            "With --qnn: remove initializers from the graph inputs."),
    OQ_LIST("inputs_to_make_channel_last", 0, "", "NAME",
            "With --qnn: inputs whose channels become the last axis."),
    OQ_LIST("outputs_to_make_channel_last", 0, "", "NAME",
            "With --qnn: outputs whose channels become the last axis."),
    OQ_LIST("dynamic_input_shapes", 0, "", "NAME=1,3,224,224",
            "With --qnn: fixed shapes for inputs."),
};
static const oq_opt_group qnn_group = OQ_GROUP("QNN", qnn_rows);

typedef struct run {
    oq_job *job;
    oq_model *m;
    oq_engine *engine;
    int optimizer;
    bool symbolic, onnx_shape;
    oq_shape_report symbolic_report, report;
    oq_opt_report rewrites;
    unsigned sets; /* of --rewrite */
    oq_rewrite_report rewritten;
    oq_half half;
    oq_half_report halved;
    bool qnn;
    oq_qnn_options qnn_options;
    oq_qnn_report qnn_report;
    size_t n_fused; /* by --fuse */
    size_t nodes_before, nodes_after;
    double seconds_symbolic;
    oq_runtime_fitted fitted; /* --for_runtime */
} run;

/* ---- options ---- */

/* "input=1,3,224,224 other=1x8": a list is split at commas, so plain numbers belong to the name
 * before them. */
static onq_code read_shapes(run *r, onq_error *err) {
    size_t n = 0;
    oq_arena *a = &r->job->arena;
    const oq_str *list = oq_opt_list(r->job->opts, "dynamic_input_shapes", &n);
    OQ_VEC(oq_qnn_shape) shapes = {0};
    OQ_VEC(int64_t) dims = {0};
    for (size_t i = 0; i < n; i++) {
        oq_str name = {0}, rest = list[i];
        const bool begins = oq_opt_split(list[i], &name, &rest);
        if (begins) {
            memset(&dims, 0, sizeof dims);
            OQ_TRY_ALLOC(OQ_PUSH(a, &shapes, (oq_qnn_shape){.name = name}), err);
        }
        while (rest.n != 0) {
            const char *x = memchr(rest.p, 'x', rest.n);
            const oq_str word = {rest.p, x != NULL ? (size_t)(x - rest.p) : rest.n};
            int64_t v;
            if (shapes.n == 0 || !oq_str_to_i64(word, &v) || v < 1)
                return oq_fail(err, ONQ_E_OPTION,
                               "--dynamic_input_shapes: '%.*s' is not NAME=1,3,224,224",
                               OQ_STR(list[i]));
            OQ_TRY_ALLOC(OQ_PUSH(a, &dims, v), err);
            rest = x != NULL ? (oq_str){x + 1, rest.n - word.n - 1} : (oq_str){0};
        }
        if (shapes.n != 0) {
            shapes.v[shapes.n - 1].dims = dims.v;
            shapes.v[shapes.n - 1].rank = dims.n;
        }
    }
    r->qnn_options.shapes = shapes.v;
    r->qnn_options.n_shapes = shapes.n;
    return ONQ_OK;
}

static onq_code check_qnn(run *r, onq_error *err) {
    const onq_options *o = r->job->opts;
    oq_qnn_options *q = &r->qnn_options;
    r->qnn = oq_opt_flag(o, "qnn");
    for (size_t i = 1; i < OQ_COUNT(qnn_rows) && !r->qnn; i++)
        if (oq_opt_is_set(o, qnn_rows[i].name))
            return oq_fail(err, ONQ_E_OPTION, "--%s is only used with --qnn", qnn_rows[i].name);
    q->fuse_layernorm = oq_opt_flag(o, "fuse_layernorm");
    q->exclude_initializer_from_input = oq_opt_flag(o, "exclude_initializer_from_input");
    q->inputs_channel_last =
        oq_opt_list(o, "inputs_to_make_channel_last", &q->n_inputs_channel_last);
    q->outputs_channel_last =
        oq_opt_list(o, "outputs_to_make_channel_last", &q->n_outputs_channel_last);
    return read_shapes(r, err);
}

static onq_code check_options(run *r, onq_error *err) {
    const onq_options *o = r->job->opts;
    const oq_runtime *runtime = NULL;
    OQ_TRY(oq_for_runtime_read(r->job, &runtime, err));
    r->optimizer = OQ_CHOSEN(o, "optimizer", int, OPTIMIZERS);
    if (oq_opt_flag(o, "skip_optimization")) {
        if (oq_opt_is_set(o, "optimizer") && r->optimizer != BY_NONE)
            return oq_fail(err, ONQ_E_OPTION,
                           "--skip_optimization and --optimizer %s cannot be used together",
                           oq_opt_str(o, "optimizer"));
        r->optimizer = BY_NONE;
    }
    r->half = OQ_CHOSEN(o, "float16", oq_half, HALVES);
    OQ_TRY(oq_rewriting_sets(r->job, &r->sets, err));
    r->symbolic = !oq_opt_flag(o, "skip_symbolic_shape");
    r->onnx_shape = !oq_opt_flag(o, "skip_onnx_shape");
    OQ_TRY(check_qnn(r, err));
    if (r->half != OQ_HALF_NONE && (r->qnn || oq_opt_is_set(o, "fuse")))
        return oq_fail(err, ONQ_E_OPTION, "--float16 and --%s cannot be used together",
                       r->qnn ? "qnn" : "fuse");
    if (r->qnn) {
        r->symbolic = false; /* the reference has none for QNN, where external data is allowed */
        return ONQ_OK;
    }
    if (r->optimizer == BY_NONE && !r->symbolic && !r->onnx_shape && !oq_opt_is_set(o, "opset") &&
        r->sets == 0 && !oq_opt_is_set(o, "fuse") && r->half == OQ_HALF_NONE &&
        !oq_opt_flag(o, "drop_shapes"))
        return oq_fail(err, ONQ_E_OPTION, "all three steps are skipped: there is nothing to do");
    return ONQ_OK;
}

static oq_save_options save_options(const run *r) {
    const onq_options *o = r->job->opts;
    const uint64_t size = oq_opt_size(o, "external_data_size_threshold");
    oq_save_options s = {.threshold = OQ_STAMP_APART(size)};
    if (oq_opt_flag(o, "save_as_external_data")) {
        s.external = oq_opt_flag(o, "all_tensors_to_one_file") ? OQ_EXTERNAL_ONE : OQ_EXTERNAL_EACH;
        s.location = oq_opt_str(o, "external_data_location");
        if (s.location != NULL && s.external == OQ_EXTERNAL_EACH)
            oq_warn(r->job->env, "--external_data_location needs --all_tensors_to_one_file");
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
    const char *near = oq_job_near(r->job);
    onq_code rc = near != NULL ? engine_of(r, err) : oq_fail_nomem(err);
    if (rc == ONQ_OK)
        rc = oq_prep_optimize_ort(r->engine, &so, near, 0, &r->m, err);
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

/* Opset 11 at least, as the reference does it; more on request. Ranks are needed on the way. */
static onq_code raise_opset(run *r, onq_error *err) {
    const int64_t have = oq_model_opset(r->m, OQ_S("")), least = 11;
    int64_t want = have > 0 && have < least ? least : have;
    if (oq_opt_is_set(r->job->opts, "opset") && oq_opt_int(r->job->opts, "opset") > want)
        want = oq_opt_int(r->job->opts, "opset");
    if (oq_opt_is_set(r->job->opts, "opset") && oq_opt_int(r->job->opts, "opset") < have)
        oq_warn(r->job->env, "%s: the model keeps opset %lld: onq does not lower opsets",
                r->m->path, (long long)have);
    if (want == have)
        return ONQ_OK;
    if (have < OQ_OPSET_OLDEST && !oq_opt_is_set(r->job->opts, "opset")) {
        oq_warn(r->job->env,
                "%s: the model keeps opset %lld, which is too old to be raised and to be quantized",
                r->m->path, (long long)have);
        return ONQ_OK;
    }
    oq_model_touch(r->m);
    if (want > least)
        OQ_TRY(oq_prep_shapes(r->m, NULL, NULL, err));
    OQ_TRY_IN(oq_model_upgrade(r->m, want, err), err, "%s: raising opset %lld to %lld", r->m->path,
              (long long)have, (long long)want);
    if (have >= least)
        return ONQ_OK;
    OQ_TRY(oq_keep_old_resize(r->m, err));
    OQ_TRY(oq_prep_shapes(r->m, NULL, NULL, err));
    OQ_TRY(oq_stamp_reloaded(r->m, err));
    return oq_stamp_inferred(r->m, err);
}

static onq_code optimize(run *r, onq_error *err) {
    OQ_TRY(oq_progress(r->job->env, "optimisation", 0, 0, err));
    if (r->optimizer == BY_ORT)
        OQ_TRY(optimize_ort(r, err));
    else if (r->optimizer == BY_BUILTIN)
        OQ_TRY(oq_optimize(r->m, &r->rewrites, err));
    return r->sets != 0 ? oq_rewrite(r->m, r->sets, &r->rewritten, err) : ONQ_OK;
}

static onq_code halve(run *r, onq_error *err) {
    OQ_TRY(oq_half_make(r->m, r->half, &r->halved, err));
    if (r->half == OQ_HALF_NONE || r->halved.n_weights + r->halved.n_nodes > 0)
        return ONQ_OK;
    if (oq_opt_flag(r->job->opts, "strict"))
        return oq_fail(err, ONQ_E_UNSUPPORTED, "%s: nothing in it can be float16", r->m->path);
    oq_alert(r->job->env, "%s: nothing in it can be float16", r->m->path);
    return ONQ_OK;
}

static onq_code add_nodes(void *ctx, oq_graph *g, onq_error *err OQ_UNUSED) {
    *(size_t *)ctx += g->node.n;
    return ONQ_OK;
}

/* Of all graphs: those inside If, Loop and Scan can be most of a model. */
static onq_code count_nodes(const run *r, size_t *n, onq_error *err) {
    *n = 0;
    return oq_walk_graphs(r->m->proto->graph, add_nodes, n, err);
}

/* qnn_preprocess_model reads a model whose large tensors are apart from it: after that they say
 * that their data is inside. Tensors that the optimiser makes do not. */

static onq_code add_apart(void *ctx, oq_graph *g, onq_error *err) {
    oq_map *names = ctx;
    for (size_t i = 0; i < g->initializer.n; i++) {
        const oq_tensor *t = g->initializer.v[i];
        if (!t->data_location.has)
            continue;
        const oq_str name = oq_str_copy(names->arena, t->name);
        OQ_TRY_ALLOC(name.p != NULL && oq_map_put(names, name, 0), err);
    }
    return ONQ_OK;
}

static onq_code mark_apart(void *ctx, oq_graph *g, onq_error *err) {
    (void)err;
    for (size_t i = 0; i < g->initializer.n; i++)
        if (oq_map_has(ctx, g->initializer.v[i]->name) &&
            !oq_tensor_is_external(g->initializer.v[i]))
            g->initializer.v[i]->data_location = OQ_I32(OQ_LOCATION_DEFAULT);
    return ONQ_OK;
}

static onq_code optimize_reloaded(run *r, onq_error *err) {
    oq_map apart;
    oq_map_init(&apart, &r->job->arena);
    OQ_TRY(oq_stamp_reloaded(r->m, err));
    OQ_TRY(oq_walk_graphs(r->m->proto->graph, add_apart, &apart, err));
    OQ_TRY(optimize(r, err));
    return oq_walk_graphs(r->m->proto->graph, mark_apart, &apart, err);
}

static onq_code prepare_qnn(run *r, onq_error *err) {
    if (oq_opt_is_set(r->job->opts, "opset"))
        OQ_TRY(raise_opset(r, err));
    if (r->onnx_shape)
        OQ_TRY(oq_prep_shapes(r->m, NULL, &r->report, err));
    OQ_TRY(optimize_reloaded(r, err));
    OQ_TRY(oq_prep_mark_first(r->m, OQ_S("onnx.infer"), OQ_S("onnxruntime.tools.qnn.preprocess"),
                              err));
    const onq_code rc = oq_qnn_prepare(r->m, &r->qnn_options, &r->qnn_report, err);
    return rc == ONQ_OK ? count_nodes(r, &r->nodes_after, err)
                        : oq_error_in(err, rc, "%s", r->m->path);
}

static onq_code fuse_only(run *r, const oq_str *ops, size_t n_ops, onq_error *err) {
    r->symbolic = r->onnx_shape = false;
    r->optimizer = BY_NONE;
    oq_model_touch(r->m);
    for (size_t i = 0; i < n_ops; i++) {
        size_t n = 0;
        OQ_TRY(oq_qnn_fuse(r->m, ops[i], &n, err));
        r->n_fused += n;
    }
    return count_nodes(r, &r->nodes_after, err);
}

static onq_code prepare(run *r, onq_error *err) {
    onq_env *env = r->job->env;
    size_t n_ops = 0;
    const oq_str *ops = oq_opt_list(r->job->opts, "fuse", &n_ops);
    OQ_TRY(oq_job_open_sound(r->job, oq_job_input(r->job), &r->m, err));
    OQ_TRY(oq_job_name_apart(r->job, r->m, err));
    OQ_TRY(count_nodes(r, &r->nodes_before, err));
    if (n_ops != 0)
        return fuse_only(r, ops, n_ops, err);
    if (r->qnn)
        return prepare_qnn(r, err);
    OQ_TRY(raise_opset(r, err));
    if (r->symbolic) {
        const double begin = oq_seconds();
        OQ_TRY(oq_progress(env, "symbolic shapes", 0, 0, err));
        OQ_TRY(infer_symbolic(r, err));
        r->seconds_symbolic = oq_seconds() - begin;
    }
    OQ_TRY(optimize(r, err));
    OQ_TRY(halve(r, err));
    if (r->onnx_shape) {
        OQ_TRY(oq_progress(env, "shapes", 0, 0, err));
        OQ_TRY(oq_prep_shapes(r->m, NULL, &r->report, err));
    }
    OQ_TRY(count_nodes(r, &r->nodes_after, err));
    return oq_prep_mark(r->m, err);
}

static onq_code save(run *r, onq_error *err) {
    const onq_options *o = r->job->opts;
    const oq_save_options so = save_options(r);
    OQ_TRY(oq_for_runtime_fit(r->job, r->m, &r->fitted, err));
    if (oq_opt_flag(o, "verify")) {
        OQ_TRY(engine_of(r, err));
        OQ_TRY(oq_engine_verify(r->engine, r->m, err));
    } else if (r->optimizer != BY_ORT || r->half != OQ_HALF_NONE) { /* else the runtime made it */
        OQ_TRY(oq_job_check_sound(r->job, &r->engine, r->m, err));
    }
    return oq_job_save(r->job, "output", r->m, &so, NULL, err);
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
    oq_rewriting_tell(job, &r->rewritten);
    oq_jw_end_array(&job->json);
}

static void tell(const run *r, double seconds) {
    oq_job *job = r->job;
    oq_jw_cstr(&job->json, "input", oq_job_input(job));
    oq_jw_cstr(&job->json, "output", oq_opt_str(job->opts, "output"));
    oq_jw_uint(&job->json, "nodes_before", r->nodes_before);
    oq_jw_uint(&job->json, "nodes_after", r->nodes_after);
    oq_buf_addf(&job->text, "%zu nodes -> %zu nodes", r->nodes_before, r->nodes_after);
    const oq_shape_report *s = r->symbolic     ? &r->symbolic_report
                               : r->onnx_shape ? &r->report
                                               : NULL;
    if (s != NULL) {
        oq_jw_uint(&job->json, "tensors", s->n_values);
        oq_jw_uint(&job->json, "tensors_with_shape", s->n_values - s->n_none);
        oq_buf_addf(&job->text, ", shapes of %zu of %zu tensors", s->n_values - s->n_none,
                    s->n_values);
    }
    if (r->optimizer == BY_BUILTIN || r->sets != 0)
        tell_rewrites(r);
    if (r->qnn) {
        const oq_qnn_report *q = &r->qnn_report;
        oq_jw_uint(&job->json, "gelu", q->n_gelu);
        oq_jw_uint(&job->json, "lpnormalization", q->n_lpnorm);
        oq_jw_uint(&job->json, "spacetodepth", q->n_spacetodepth);
        oq_jw_uint(&job->json, "layernormalization", q->n_layernorm);
        oq_jw_bool(&job->json, "changed", q->changed);
        oq_buf_addf(&job->text, ", %zu operators fused",
                    q->n_gelu + q->n_lpnorm + q->n_spacetodepth + q->n_layernorm);
    }
    if (oq_opt_is_set(job->opts, "fuse")) {
        oq_jw_uint(&job->json, "fused", r->n_fused);
        oq_buf_addf(&job->text, ", %zu operators fused", r->n_fused);
    }
    if (r->half != OQ_HALF_NONE) {
        oq_jw_begin_object(&job->json, "float16");
        oq_jw_uint(&job->json, "weights", r->halved.n_weights);
        oq_jw_uint(&job->json, "nodes", r->halved.n_nodes);
        oq_jw_end_object(&job->json);
        oq_buf_addf(&job->text, ", %zu weights and %zu nodes in float16", r->halved.n_weights,
                    r->halved.n_nodes);
    }
    oq_jw_real(&job->json, "seconds", seconds);
    if (r->symbolic)
        oq_jw_real(&job->json, "seconds_symbolic", r->seconds_symbolic);
    oq_buf_addf(&job->text, " in %.2f s\n", seconds);
    oq_for_runtime_tell(job, &r->fitted);
}

static onq_code run_steps(run *r, onq_error *err) {
    const double begin = oq_seconds();
    OQ_TRY(check_options(r, err));
    OQ_TRY(prepare(r, err));
    OQ_TRY(save(r, err));
    tell(r, oq_seconds() - begin);
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
    .info =
        {"preprocess", "", "prepare a float model: infer shapes, optimise, infer shapes again",
         "Prepares a float model for quantization: symbolic shape inference, optimisation "
         "of the graph, shape inference as onnx does it, and a mark that this was done. This is "
         "quant_pre_process of onnxruntime.quantization. If symbolic inference cannot resolve a "
         "node, a warning names it and the job goes on."},
    .required = "input output",
    .groups = {&oq_group_input, &oq_group_output, &own, &oq_group_rewrite, &qnn_group,
               &oq_group_runtime, &oq_group_verify_only, &oq_group_general,
               &oq_group_verify_rest_idle},
    .run = run_preprocess,
};
