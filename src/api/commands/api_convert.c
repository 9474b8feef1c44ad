/*
 * api_convert.c — `onq convert` and `onq dequantize`: a quantized model in another form, or float
 * again. Needs no samples, and no runtime unless the result is to be compared with what was read.
 */
#include "api/options/command.h"
#include "api/options/shared_rows.h"
#include "api/quantizing/plan_file.h"
#include "api/quantizing/quant_config.h"
#include "api/quantizing/quantization.h"
#include "base/text/number_text.h"
#include "onnx/codec/schema.h"
#include "prepare/half.h"
#include "prepare/single.h"
#include "quantize/convert/convert.h"
#include "quantize/convert/cv_ranges.h"
#include "quantize/override/encodings.h"

/* clang-format off */
/* These are float first, and then that; or nothing but what --for_runtime needs. */
enum { TO_FLOAT16 = OQ_TO_UINT8 + 1, TO_FLOAT32, TO_SAME };

#define FORMS(ROW)                    \
    ROW("float", OQ_TO_FLOAT)         \
    ROW("qdq", OQ_TO_QDQ)             \
    ROW("qoperator", OQ_TO_QOPERATOR) \
    ROW("nbits", OQ_TO_NBITS)         \
    ROW("float16", TO_FLOAT16)        \
    ROW("float32", TO_FLOAT32)

#define FORMATS(ROW)                               \
    ROW("aimet-0.6.1", OQ_ENCODINGS_0_6_1)         \
    ROW("aimet-1.0.0,aimet", OQ_ENCODINGS_1_0_0)   \
    ROW("aimet-2.0.0", OQ_ENCODINGS_2_0_0)         \
    ROW("tensorrt", OQ_ENCODINGS_TENSORRT)         \
    ROW("overrides", OQ_ENCODINGS_OVERRIDES)

#define CLIPS(ROW)                 \
    ROW("auto", OQ_CLIPS_AUTO)     \
    ROW("all", OQ_CLIPS_ALL)       \
    ROW("none", OQ_CLIPS_NONE)
/* clang-format on */

static const onq_option_info form_rows[] = {
    OQ_ENUM("to", 0, "", "", OQ_CHOICES(FORMS), "FORM",
            "The form of the result. float: no quantization; float16: the same, computing in "
            "float16 where that is possible; float32: the same without float16 and bfloat16, "
            "except for the types of inputs and outputs; qdq: DequantizeLinear and "
            "QuantizeLinear around float operators; qoperator: QLinearConv and other operators of "
            "integers in place of such pairs; nbits: MatMulNBits and GatherBlockQuantized in place "
            "of weights that are dequantized in blocks. With --for_runtime it may be left out: "
            "then only what that version needs is changed."),
    OQ_FLAG("partial", 0, "",
            "To qoperator and nbits: a node that has no such operator keeps its pairs, which "
            "compute the same, instead of being an error."),
};
static const oq_opt_group form_own = OQ_GROUP("Form", form_rows);

static const onq_option_info convert_rows[] = {
    OQ_ENUM("clips", 0, "", "auto", OQ_CHOICES(CLIPS), "WHICH",
            "To float: which bounds of quantized tensors are restored, because quantizers "
            "remove Relu and Clip. auto: a range that begins at 0, of values that may be "
            "negative, becomes a Relu, and one between round numbers, such as 0 and 6, a Clip; "
            "all: every range becomes a Clip; none: nothing."),
    OQ_FLAG("lossy", 0, "",
            "Also convert what has no exact counterpart; the summary says how far the outputs "
            "are from those of the input, in dB."),
    /* Own sense: there are no names to check, and nothing is quantized. */
    OQ_FLAG("strict", 0, "", "Fail if nothing has to be converted."),
};
static const oq_opt_group convert_own = OQ_GROUP("Conversion", convert_rows);

static const onq_option_info file_rows[] = {
    /* Own sense: a file that is written. */
    OQ_PATH("ranges", 0, "", "FILE",
            "Also write the parameters of activations as a calibration cache, from which "
            "`onq static --calibration_cache` makes the same quantization again."),
    /* Own sense: a file that is written. */
    OQ_PATH("encodings", 0, "", "FILE",
            "Also write all parameters for other tools, in the format of --encodings_format."),
    OQ_ENUM("encodings_format", 0, "", "aimet-1.0.0", OQ_CHOICES(FORMATS), "FORMAT",
            "aimet-0.6.1, aimet-1.0.0, aimet-2.0.0: encodings of AIMET; tensorrt: a calibration "
            "cache of TensorRT; overrides: TensorQuantOverrides of onnxruntime.quantization."),
};
static const oq_opt_group files_own = OQ_GROUP("Parameters", file_rows);

typedef struct run {
    oq_quant q;
    oq_convert_job convert;
    const char *to;
    int real;  /* TO_FLOAT16 or TO_FLOAT32 at the end; or 0 */
    bool same; /* the form is kept, as far as --for_runtime lets it */
    oq_half_report halved;
    oq_single_report singled;
} run;

/* Scales of blocks are an eighth of a file of 4 bits: they are kept only where they are asked for. */
static bool wants_blocks(const run *r) {
    return oq_opt_str(r->q.job->opts, "encodings") != NULL;
}

static onq_code convert(void *ctx, onq_error *err) {
    run *r = ctx;
    const oq_convert_job asked = r->convert;
    oq_convert_job *c = &r->convert;
    *c = (oq_convert_job){.model = r->q.model,
                          .to = asked.to,
                          .clips = asked.clips,
                          .lossy = asked.lossy,
                          .partial = asked.partial,
                          .with_blocks = wants_blocks(r),
                          .asked = r->q.job->given != NULL ? &r->q.job->given->plan : NULL,
                          .plan = &r->q.plan};
    if (r->same)
        return ONQ_OK;
    OQ_TRY(oq_convert_run(c, err));
    if (r->real == 0)
        return ONQ_OK;
    OQ_TRY(oq_single_make(r->q.model, r->real == TO_FLOAT32, &r->singled, err));
    if (r->real == TO_FLOAT16)
        OQ_TRY(oq_half_make(r->q.model, OQ_HALF_ALL, &r->halved, err));
    r->q.changed = r->singled.n_weights + r->singled.n_casts + r->singled.n_ends +
                       r->halved.n_weights + r->halved.n_nodes >
                   0;
    return ONQ_OK;
}

/* The parameters of all tensors, by the names that they have in the float model: the plan of a
 * conversion to float, of which nothing is kept. */
static onq_code find_params(run *r, oq_plan *out, onq_error *err) {
    oq_model *m = r->q.model;
    oq_model_proto *const result = m->proto;
    if (r->convert.to == OQ_TO_FLOAT) {
        *out = r->q.plan;
        return ONQ_OK;
    }
    oq_plan_init(out, &r->q.job->arena);
    m->proto = oq_message_clone(&r->q.job->arena, OQ_SCHEMA_model_proto, result);
    oq_convert_job job = {.model = m,
                          .to = OQ_TO_FLOAT,
                          .clips = OQ_CLIPS_NONE,
                          .lossy = true,
                          .with_blocks = wants_blocks(r),
                          .plan = out};
    const onq_code rc = m->proto != NULL ? oq_convert_run(&job, err) : oq_fail_nomem(err);
    m->proto = result;
    return rc;
}

static onq_code write_ranges(const run *r, const oq_plan *params, onq_error *err) {
    oq_job *job = r->q.job;
    const char *path = oq_opt_str(job->opts, "ranges");
    oq_convert_found found;
    oq_ranges ranges;
    if (path == NULL)
        return ONQ_OK;
    oq_ranges_init(&ranges, &job->env->alloc, OQ_CAL_MINMAX);
    onq_code rc = oq_convert_ranges(params, &ranges, &found, err);
    if (rc == ONQ_OK)
        rc = oq_ranges_save(&ranges, job->env, path, err);
    oq_ranges_release(&ranges);
    OQ_TRY(rc);
    if (found.n_inexact > 0)
        oq_warn(job->env,
                "%s: the scales computed from %zu of %zu ranges differ from the model's in the "
                "last digit",
                path, found.n_inexact, found.n);
    oq_jw_uint(&job->json, "ranges", found.n);
    oq_jw_bool(&job->json, "activation_symmetric", found.symmetric);
    oq_buf_addf(&job->text, "%zu ranges in %s%s\n", found.n, path,
                found.symmetric ? " (quantize with --activation_symmetric)" : "");
    return ONQ_OK;
}

static onq_code write_encodings(const run *r, const oq_plan *params, onq_error *err) {
    oq_job *job = r->q.job;
    const char *path = oq_opt_str(job->opts, "encodings");
    size_t skipped = 0;
    if (path == NULL)
        return ONQ_OK;
    OQ_SCRATCH_BUF(text, &job->env->alloc);
    OQ_TRY(oq_encodings_write(
        params, OQ_CHOSEN(job->opts, "encodings_format", oq_encodings_format, FORMATS), &text,
        &skipped, err));
    OQ_TRY(oq_job_save_text(job, "encodings", &text, err));
    if (skipped > 0)
        oq_warn(job->env, "%s: %zu tensors are not in it, which the format cannot hold", path,
                skipped);
    oq_buf_addf(&job->text, "parameters of %zu tensors in %s\n", params->tensors.n - skipped, path);
    return ONQ_OK;
}

static onq_code write_params(run *r, onq_error *err) {
    const onq_options *o = r->q.job->opts;
    oq_plan params;
    if (oq_opt_flag(o, "dry_run") ||
        (oq_opt_str(o, "ranges") == NULL && oq_opt_str(o, "encodings") == NULL))
        return ONQ_OK;
    OQ_TRY(find_params(r, &params, err));
    OQ_TRY(write_ranges(r, &params, err));
    return write_encodings(r, &params, err);
}

static bool is_unchanged(const run *r) {
    const oq_convert_job *c = &r->convert;
    return c->n_operators + c->n_pairs + c->n_weights == 0 && !r->q.changed;
}

/* How far the outputs are from those of the input. */
static void tell_outputs(const run *r) {
    oq_job *job = r->q.job;
    const oq_verdict *v = &r->q.verified.verdict;
    const char *on =
        r->q.record.generated ? ", on an input that was made up (--data gives real ones)" : "";
    if (is_unchanged(r))
        return;
    if (r->q.verified.skipped != NULL || !v->measured) {
        oq_buf_addf(&job->text, "the outputs were not compared%s%s\n",
                    r->q.verified.skipped != NULL ? ": " : "",
                    r->q.verified.skipped != NULL ? r->q.verified.skipped : "");
        return;
    }
    oq_jw_real(&job->json, "sqnr", v->sqnr);
    if (v->sqnr >= OQ_GRADE_EQUAL)
        oq_buf_addf(&job->text, "the outputs are those of the input%s\n", on);
    else
        oq_buf_addf(&job->text, "the outputs are %.1f dB from those of the input%s\n", v->sqnr, on);
}

static void tell_form(const run *r) {
    const oq_convert_job *c = &r->convert;
    oq_buf *text = &r->q.job->text;
    oq_buf_addf(text, "to %s: %zu quantized operator%s replaced", r->to, c->n_operators,
                OQ_NOUN_S(c->n_operators));
    if (c->to == OQ_TO_FLOAT)
        oq_buf_addf(text, ", %zu nodes of pairs removed, %zu constants dequantized", c->n_pairs,
                    c->n_weights);
    oq_buf_adds(text, "\n");
}

static void tell(const run *r, double seconds) {
    oq_job *job = r->q.job;
    const oq_convert_job *c = &r->convert;
    char before[32], after[32];
    oq_jw_cstr(&job->json, "input", oq_job_input(job));
    oq_jw_cstr(&job->json, "to", r->to);
    oq_jw_uint(&job->json, "operators", c->n_operators);
    oq_jw_uint(&job->json, "pairs", c->n_pairs);
    oq_jw_uint(&job->json, "weights", c->n_weights);
    oq_jw_uint(&job->json, "clips", c->n_clips);
    oq_jw_uint(&job->json, "kept", c->n_kept);
    oq_jw_uint(&job->json, "stay", c->n_stay);
    oq_jw_uint(&job->json, "left", c->n_left);
    oq_jw_uint(&job->json, "lossy", c->n_lossy);
    oq_jw_real(&job->json, "seconds", seconds);
    oq_jw_uint(&job->json, "size_before", r->q.size_before);
    if (!r->same)
        tell_form(r);
    if (r->real == TO_FLOAT16)
        oq_buf_addf(&job->text, "%zu weights and %zu nodes in float16\n", r->halved.n_weights,
                    r->halved.n_nodes);
    if (r->real == TO_FLOAT32)
        oq_buf_addf(
            &job->text,
            "%zu constants are float32 now, %zu Casts between floats removed, %zu inputs and "
            "outputs keep their type\n",
            r->singled.n_weights, r->singled.n_casts, r->singled.n_ends);
    if (c->n_clips > 0)
        oq_buf_addf(&job->text, "%zu Relu or Clip restored\n", c->n_clips);
    if (c->n_kept > 0)
        oq_buf_addf(&job->text,
                    "%zu QuantizeLinear or DequantizeLinear stay%s: inputs and outputs of the "
                    "model keep their types\n",
                    c->n_kept, OQ_VERB_S(c->n_kept));
    if (c->n_stay > 0)
        oq_buf_addf(&job->text,
                    "%zu node%s keep%s their pairs: there is no such operator for them\n",
                    c->n_stay, OQ_NOUN_S(c->n_stay), OQ_VERB_S(c->n_stay));
    if (c->n_left > 0)
        oq_buf_addf(&job->text, "%zu node%s left as %s by the plan\n", c->n_left,
                    OQ_NOUN_S(c->n_left), c->n_left == 1 ? "it is" : "they are");
    if (c->n_lossy > 0)
        oq_buf_addf(&job->text, "%zu not exact, the first is '%.*s': %s\n", c->n_lossy,
                    OQ_STR(c->lossy_node), c->lossy_why);
    if (oq_opt_flag(job->opts, "dry_run")) {
        oq_buf_addf(&job->text, "nothing written (--dry_run); %.2f s\n", seconds);
        return;
    }
    tell_outputs(r);
    oq_jw_cstr(&job->json, "output", oq_opt_str(job->opts, "output"));
    oq_jw_uint(&job->json, "size_after", r->q.size_after);
    oq_buf_addf(&job->text, "%s -> %s in %.2f s\n", oq_size_text(before, r->q.size_before),
                oq_size_text(after, r->q.size_after), seconds);
}

/* A model that has nothing to convert is written as it is. */
static onq_code judge_unchanged(const run *r, onq_error *err) {
    const oq_job *job = r->q.job;
    if (r->same || !is_unchanged(r)) /* the line of --for_runtime says it */
        return ONQ_OK;
    if (oq_opt_flag(job->opts, "strict"))
        return oq_fail(err, ONQ_E_UNSUPPORTED, "nothing in it has to be converted to %s (--strict)",
                       r->to);
    oq_alert(job->env, "%s: nothing in it had to be converted to %s", oq_job_input(job), r->to);
    return ONQ_OK;
}

/* ---- a plan that is followed ---- */

static bool has_same(const oq_plan_tensor *a, const oq_plan_tensor *b) {
    return oq_str_eq(a->name, b->name) && a->role == b->role && a->n == b->n &&
           (b->role == OQ_ROLE_BIAS || a->type == b->type) &&
           (b->n == 0 || (memcmp(a->scale, b->scale, b->n * sizeof *b->scale) == 0 &&
                          memcmp(a->zero, b->zero, b->n * sizeof *b->zero) == 0));
}

/* Parameters are those of the model. Rows of a name may be many: one of them has to be alike. */
static onq_code check_tensors(const oq_given *g, const oq_plan *p, onq_error *err) {
    for (size_t i = 0; i < p->tensors.n; i++) {
        bool same = false;
        for (uint32_t k = oq_map_find(&g->tensors, p->tensors.v[i].name); k != OQ_MAP_NONE && !same;
             k = g->next.v[k])
            same = has_same(&g->plan.tensors.v[k], &p->tensors.v[i]);
        if (!same)
            return oq_fail(err, ONQ_E_CONFIG,
                           "%s: tensor '%.*s' has no row, or other parameters than in the model: "
                           "a conversion keeps those that the model has",
                           g->path, OQ_STR(p->tensors.v[i].name));
    }
    return ONQ_OK;
}

/* What the plan converts was converted. */
static onq_code check_plan(const run *r, onq_error *err) {
    const oq_given *g = r->q.job->given;
    const oq_plan *p = &r->q.plan;
    oq_map done;
    if (g == NULL)
        return ONQ_OK;
    OQ_SCRATCH(scratch, &r->q.job->env->alloc);
    oq_map_init(&done, &scratch);
    for (size_t i = 0; i < p->nodes.n; i++)
        OQ_TRY_ALLOC(oq_map_put(&done, p->nodes.v[i].output, (uint32_t)i), err);
    for (size_t i = 0; i < g->plan.nodes.n; i++) {
        const oq_plan_node *row = &g->plan.nodes.v[i];
        if (row->fate == OQ_FATE_QUANTIZED ||
            (row->fate == OQ_FATE_REMOVED && !oq_map_has(&done, row->output)))
            return oq_fail(
                err, ONQ_E_CONFIG, "%s: node '%.*s' (%.*s) is '%s' in the plan, but %s", g->path,
                OQ_STR(row->name), OQ_STR(row->op_type), oq_fate_name(row->fate),
                row->fate == OQ_FATE_QUANTIZED ? "a conversion quantizes nothing"
                                               : "it is not in the model, or not converted");
    }
    return check_tensors(g, p, err);
}

static onq_code save(run *r, onq_error *err) {
    oq_quant *q = &r->q;
    const bool apart = oq_opt_flag(q->job->opts, "use_external_data_format");
    const oq_save_options options = {.external = apart ? OQ_EXTERNAL_ONE : OQ_EXTERNAL_KEEP,
                                     .threshold = 1024,
                                     .attributes = true};
    return oq_opt_flag(q->job->opts, "dry_run")
               ? ONQ_OK
               : oq_job_save(q->job, "output", q->model, &options, &q->size_after, err);
}

static onq_code run_steps(run *r, onq_error *err) {
    oq_quant *q = &r->q;
    OQ_TRY(oq_quant_config(q->job, &q->config, err));
    OQ_TRY(oq_job_open_sound(q->job, oq_job_input(q->job), &q->model, err));
    OQ_TRY(oq_model_size(q->model, &q->size_before, err));
    OQ_TRY(oq_quant_make(q, err));
    OQ_TRY(check_plan(r, err));
    OQ_TRY(judge_unchanged(r, err));
    OQ_TRY(save(r, err));
    OQ_TRY(write_params(r, err));
    OQ_TRY(oq_plan_file_write(q->job, &q->plan, "convert", err));
    tell(r, oq_seconds() - q->begin);
    return ONQ_OK;
}

static onq_code run_to(oq_job *job, int to, const char *name, onq_error *err) {
    run r = {
        .to = name, .real = to == TO_FLOAT16 || to == TO_FLOAT32 ? to : 0, .same = to == TO_SAME};
    oq_quant_init(&r.q, job, name, convert, &r);
    r.q.fixed_ranges = true;
    r.convert.to = r.real != 0 || r.same ? OQ_TO_FLOAT : (oq_convert_to)to;
    r.convert.clips = OQ_CHOSEN(job->opts, "clips", oq_convert_clips, CLIPS);
    r.convert.lossy = oq_opt_flag(job->opts, "lossy");
    r.convert.partial = oq_opt_has(job->opts, "partial") && oq_opt_flag(job->opts, "partial");
    const onq_code rc = oq_quant_blame(&r.q, run_steps(&r, err), err);
    oq_quant_release(&r.q);
    return rc;
}

static onq_code run_convert(oq_job *job, onq_error *err) {
    if (!oq_opt_is_set(job->opts, "to"))
        return run_to(job, TO_SAME, "the same form", err);
    return run_to(job, OQ_CHOSEN(job->opts, "to", int, FORMS), oq_opt_str(job->opts, "to"), err);
}

static onq_code run_dequantize(oq_job *job, onq_error *err) {
    return run_to(job, OQ_TO_FLOAT, "float", err);
}

const oq_command oq_command_convert = {
    .info = {"convert", "", "turn a quantized model into another form, or into float",
             "Rewrites a quantized model: integer operators (QLinearConv, MatMulInteger, "
             "MatMulNBits ...) and pairs of QuantizeLinear and DequantizeLinear become the form "
             "that --to names. Scales and zero points are kept. A model with an operator that has "
             "no exact counterpart is refused, and the error names the operator. It needs no "
             "samples and no runtime, and models may be larger than memory."},
    .required = "input output|dry_run to|from_plan|for_runtime",
    .decides = {&form_own, &convert_own},
    .groups = {&oq_group_input, &oq_group_output, &form_own, &convert_own, &files_own,
               &oq_group_plan, &oq_group_data, &oq_group_runtime, &oq_group_verify,
               &oq_group_general},
    .run = run_convert,
};

const oq_command oq_command_dequantize = {
    .info = {"dequantize", "", "turn a quantized model into a float one",
             "The same as `onq convert --to float`: a quantized model, in whatever form, becomes "
             "float again, to be trained further or quantized in another way."},
    .required = "input output|dry_run",
    .decides = {&convert_own},
    .groups = {&oq_group_input, &oq_group_output, &convert_own, &files_own, &oq_group_plan,
               &oq_group_data, &oq_group_runtime, &oq_group_verify, &oq_group_general},
    .run = run_dequantize,
};
