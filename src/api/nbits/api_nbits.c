/*
 * api_nbits.c — `onq nbits` and `onq bnb4`: weights as integers or floats of few bits, the rest of
 * the model as it is (the reference's matmul_nbits_quantizer and matmul_bnb4_quantizer). gptq, awq
 * and --target_bits with --data need samples and a runtime.
 */
#include "api/nbits/nbits_floats.h"
#include "api/nbits/nbits_forecast.h"
#include "api/nbits/nbits_job.h"
#include "api/nbits/nbits_level.h"
#include "api/options/command.h"
#include "api/options/shared_rows.h"
#include "api/quantizing/quant_config.h"
#include "api/samples.h"
#include "base/text/number_text.h"
#include "onnx/codec/schema.h"
#include "onnx/tidy.h"
#include "prepare/rotate.h"
#include "quantize/ort/result_opset.h"

/* clang-format off */
#define METHODS(ROW)                              \
    ROW("default", &oq_nb_methods[OQ_NB_DEFAULT])             \
    ROW("rtn", &oq_nb_methods[OQ_NB_RTN])                 \
    ROW("k_quant,kquant", &oq_nb_methods[OQ_NB_K_QUANT])      \
    ROW("hqq", &oq_nb_methods[OQ_NB_HQQ])                 \
    ROW("gptq", &oq_nb_methods[OQ_NB_GPTQ])                \
    ROW("gptq_hqq", &oq_nb_methods[OQ_NB_GPTQ_HQQ])            \
    ROW("awq", &oq_nb_methods[OQ_NB_AWQ])

#define MIXED(ROW)                                \
    ROW("none", OQ_NB_MIXED_NONE)                 \
    ROW("last,k_quant_last", OQ_NB_MIXED_LAST)    \
    ROW("layers,k_quant_mixed", OQ_NB_MIXED_LAYERS)

#define FORMS(ROW)                                \
    ROW("auto", OQ_NB_FORM_AUTO)                  \
    ROW("blocks", OQ_NB_FORM_BLOCKS)              \
    ROW("sums", OQ_NB_FORM_SUMS)                  \
    ROW("packed", OQ_NB_FORM_PACKED)

#define LEVELS(ROW)                               \
    ROW("0", 0) ROW("1", 1) ROW("2", 2) ROW("3", 3) ROW("4", 4) ROW("auto", OQ_NB_LEVEL_AUTO)

#define FORMATS(ROW) ROW("QOperator", false) ROW("QDQ", true)

#define BNB4_TYPES(ROW)                           \
    ROW("nf4,1", &oq_nb_bnb4_methods[OQ_NB_NF4])          \
    ROW("fp4,0", &oq_nb_bnb4_methods[OQ_NB_FP4])
/* clang-format on */

static const onq_option_info nbits_rows[] = {
    OQ_INT("bits", 0, "", "4", "2..8", "N",
           "Bits of a weight: 2, 3, 4 or 8. Weights of 3 bits are always packed (--form)."),
    OQ_REAL("target_bits", 0, "", "", "1..32", "X",
            "Give each weight 2, 3, 4 or 8 bits or leave it float, with the blocks and zero points "
            "that suit it, so that the average is X bits a weight, scales included. More bits go "
            "to weights with more noise or, with --data, more effect on the outputs. Weights are "
            "packed unless --form says otherwise; --quant_method, --block_size and --symmetric "
            "hold for all weights if they are given."),
    OQ_ENUM("mixed", 0, "", "none", OQ_CHOICES(MIXED), "PRESET",
            "Use 8 bits for some nodes: `last` for the last layer, `layers` also for the value "
            "and down projections of some layers (k_quant_last and k_quant_mixed of the model "
            "builder)."),
    OQ_INT("block_size", 0, "", "32", "-1..", "N",
           "Number of weights of a column that share a scale: 16, 32, 64, 128 or 256, or -1 for a "
           "whole column (QDQ only)."),
    OQ_FLAG_ON("symmetric", 0, "is_symmetric",
               "Use symmetric ranges, which need no stored zero point (k_quant always stores "
               "one)."),
    OQ_ENUM("quant_method", 0, "", "default", OQ_CHOICES(METHODS), "METHOD",
            "How integers and scales are found. default: rounding; rtn: rounding as in Intel's "
            "neural compressor; k_quant: a search for the best scale; hqq: half-quadratic "
            "quantization, with zero points that are not integers. With samples (--data), gptq "
            "compensates the error of each weight in those that are still float, gptq_hqq does so "
            "with zero points that are not integers, and awq first scales up weights that meet "
            "large inputs."),
    OQ_ROW_QUANT_FORMAT(
        "QOperator", OQ_CHOICES(FORMATS),
        "Format of the result: MatMulNBits and GatherBlockQuantized (QOperator), or "
        "DequantizeLinear before MatMul (QDQ)."),
    OQ_ENUM("form", 0, "", "auto", OQ_CHOICES(FORMS), "FORM",
            "How zero points that are not integers (hqq) are written: `blocks` as an input of "
            "MatMulNBits, for which the runtime has a slow kernel; `sums` as a small product with "
            "the sums of the blocks, beside a symmetric MatMulNBits. auto is sums for float32 "
            "weights of 4 and 8 bits, and of 2 with --accuracy_level 4. `packed` writes the "
            "smallest file: sums, scales as float16, and weights of 2 and 3 bits that become 4 "
            "bits when the model is loaded, for which the runtime has fast kernels."),
    OQ_ENUM("accuracy_level", 0, "", "0", OQ_CHOICES(LEVELS), "N",
            "The lowest precision that MatMulNBits may compute in: 0 leaves it to the runtime, 1 "
            "is float32, 2 float16, 3 bfloat16, 4 int8. auto times 0 and 4 here and takes 4 if it "
            "is faster and the samples of --data lose little by it."),
    OQ_FLAG("channel_wised_quantize", 0, "",
            "QDQ: use one scale for a whole column; symmetric weights are stored transposed."),
    OQ_LIST("quant_axes", 0, "", "TYPE:AXIS",
            "The axis along which blocks lie (MatMul:0 and Gather:1 by default)."),
    OQ_PAIRS("ratios", 0, "", "WEIGHT=RATIO",
             "rtn: reduce the range of a weight to this fraction "
             "of it."),
    OQ_REAL("percdamp", 0, "", "0.1", "0..1", "X",
            "gptq: fraction of the mean diagonal that is added to the diagonal of the Hessian "
            "(0.01 in the reference). More holds better on text unlike the samples."),
    OQ_FLAG("actorder", 0, "", "gptq: round the rows that meet the largest inputs first."),
    OQ_FLAG("mse", 0, "", "gptq: try narrower ranges for each block."),
    OQ_INT("sweeps", 0, "", "4", "0..100", "N",
           "gptq: after rounding, go over each layer N times and change integers and scales where "
           "that lowers the error of its outputs; 0 leaves them as they were rounded."),
    OQ_FLAG_ON("perchannel", 0, "", "gptq: give every column its own scales."),
    OQ_ROW_MEMORY("1g", "the Hessians of gptq; with less memory the samples run more often, and a "
                        "Hessian that is larger lies in a temporary file."),
    OQ_FLAG("rotate", 0, "",
            "First turn the hidden states of a decoder by a Hadamard matrix that goes into its "
            "weights: the float model computes the same as before, and no weight is much larger "
            "than the others. For Llama-like models of float32; others are refused."),
    OQ_FLAG("all_weights", 0, "",
            "Also quantize weights that the reference leaves float: weights in Constant nodes or "
            "after a Transpose, batches of matrices, experts of MoE, tables of Gather with 2 or 8 "
            "bits."),
    OQ_PATH(
        "weights", 0, "", "FILE",
        "GGUF file whose weights replace those of the model. Unless --bits, --block_size, "
        "--quant_method or --target_bits is given, blocks of Q4_0, Q4_1, Q4_K and Q8_0 stay as "
        "they are, and those of Q5_0, Q5_1 and Q5_K keep their values in 8 bits; other types are "
        "quantized anew, Q6_K with 8 bits."),
    OQ_PATH("weights_map", 0, "", "FILE",
            "JSON file with the tensors of --weights for initializers whose names are not those of "
            "a Llama export: {\"initializer\": \"tensor\"}."),
    OQ_PATH("node_config", 0, "customized_weight_config", "FILE",
            "JSON file with settings for single nodes: {\"node\": {\"bits\": 8, \"group_size\": "
            "32, \"scheme\": \"sym\"}, \"other\": \"fp32\"}."),
    OQ_ROW_SORT_NODES,
    OQ_ROW_DROP_SHAPES,
};
static const oq_opt_group nbits_own = OQ_GROUP("Quantization", nbits_rows);

static const onq_option_info nbits_select[] = {
    OQ_ROW_OP_TYPES(
        "", "Operator types to quantize: MatMul (the default), Gather, Gemm, MoE, or all of them."),
    OQ_LIST("nodes_to_include", 0, "", "NODE",
            "Also quantize these nodes, whatever their operator type. A name, or a pattern "
            "re:REGEX."),
    OQ_ROW_NODES_TO_QUANTIZE,
    OQ_ROW_NODES_TO_EXCLUDE,
    OQ_ROW_STRICT,
};
static const oq_opt_group nbits_which = OQ_GROUP("What to quantize", nbits_select);

static const onq_option_info bnb4_rows[] = {
    OQ_ENUM("quant_type", 0, "", "nf4", OQ_CHOICES(BNB4_TYPES), "TYPE",
            "The 4-bit type: NF4, whose values are spaced as in a normal distribution, or FP4, a "
            "4-bit float."),
    /* Own sense: the operator of 4-bit floats has other blocks. */
    OQ_INT("block_size", 0, "", "64", "16..256", "N",
           "Number of weights that share a scale: 16, 32, 64, 128 or 256."),
    OQ_ROW_SORT_NODES,
};
static const oq_opt_group bnb4_own = OQ_GROUP("Quantization", bnb4_rows);

static const onq_option_info bnb4_select[] = {
    OQ_ROW_NODES_TO_EXCLUDE,
    OQ_ROW_STRICT,
};
static const oq_opt_group bnb4_which = OQ_GROUP("What to quantize", bnb4_select);

typedef const oq_nb_method *method_ref;

/* ---- options ---- */

static onq_code take_axes(oq_nbits *r, onq_error *err) {
    const onq_options *o = r->q.job->opts;
    oq_opt_axis *axes;
    size_t n;
    OQ_TRY(oq_opt_axes(o, "quant_axes", &r->q.job->arena, &axes, &n, err));
    for (size_t i = 0; i < n; i++)
        if (oq_str_is(axes[i].key, "Gather"))
            r->config.gather_axis = axes[i].value;
        else if (!oq_str_is(axes[i].key, "MatMul") || axes[i].value != 0)
            return oq_fail(err, ONQ_E_OPTION,
                           "--quant_axes: '%.*s:%lld' (blocks of MatMul lie along axis 0; those of "
                           "Gather along any)",
                           OQ_STR(axes[i].key), (long long)axes[i].value);
    return ONQ_OK;
}

static onq_code take_ratios(oq_nbits *r, onq_error *err) {
    size_t n = 0;
    const oq_str *v = oq_opt_list(r->q.job->opts, "ratios", &n);
    for (size_t i = 0; i < n; i++) {
        /* Names of weights may have = and : in them; the last one counts. */
        const char *at = v[i].p + v[i].n;
        while (at > v[i].p && at[-1] != '=' && at[-1] != ':')
            at--;
        double value = 0;
        if (at == v[i].p || !oq_real_read(at, &value) || value <= 0.0 || value > 1.0)
            return oq_fail(err, ONQ_E_OPTION,
                           "--ratios: '%.*s' is not WEIGHT=RATIO, 0 < RATIO <= 1", OQ_STR(v[i]));
        const oq_nb_ratio ratio = {.weight = {v[i].p, (size_t)(at - v[i].p) - 1}, .value = value};
        OQ_TRY_ALLOC(OQ_PUSH(&r->q.job->arena, &r->config.ratios, ratio), err);
    }
    return ONQ_OK;
}

static onq_code check_op_types(const oq_nbits *r, onq_error *err) {
    size_t n = 0;
    const oq_str *v = oq_opt_list(r->q.job->opts, "op_types_to_quantize", &n);
    for (size_t i = 0; i < n; i++)
        if (!oq_nb_knows(v[i]) && !oq_opt_same(v[i], OQ_S("all")))
            return oq_fail(
                err, ONQ_E_OPTION,
                "--op_types_to_quantize: '%.*s' (there are MatMul, Gather, Gemm and MoE)",
                OQ_STR(v[i]));
    return ONQ_OK;
}

static onq_code check_together(oq_nbits *r, onq_error *err) {
    const oq_nb_config *c = &r->config;
    const bool gather = oq_pick_has(&r->q.config.op_types, OQ_S("Gather"));
    if (c->channel_wise && !c->qdq)
        return oq_fail(err, ONQ_E_OPTION,
                       "--channel_wised_quantize needs --quant_format QDQ: MatMulNBits runs with "
                       "blocks of 16 to 256");
    if (c->how.bits == 8 && c->how.method->as_intel)
        return oq_fail(err, ONQ_E_OPTION,
                       "--bits 8 needs --quant_method default (the reference's %s uses 4 bits "
                       "without saying so)",
                       c->how.method->name);
    if (gather && c->qdq)
        return oq_fail(err, ONQ_E_OPTION,
                       "Gather needs --quant_format QOperator: ONNX's Gather takes no 4-bit types");
    if (gather && c->how.method->real_zero)
        return oq_fail(err, ONQ_E_OPTION, "method %s has no Gather (use --quant_method default)",
                       c->how.method->name);
    if (oq_opt_is_set(r->q.job->opts, "target_bits") &&
        (oq_opt_is_set(r->q.job->opts, "bits") || oq_opt_is_set(r->q.job->opts, "mixed")))
        return oq_fail(err, ONQ_E_OPTION,
                       "--target_bits decides the bits of every weight: leave --bits and --mixed "
                       "out (--node_config fixes single nodes)");
    if (oq_opt_flag(r->q.job->opts, "rotate") && oq_opt_is_set(r->q.job->opts, "weights"))
        return oq_fail(err, ONQ_E_OPTION, "--rotate and --weights cannot be used together");
    if (c->ratios.n > 0 && strcmp(c->how.method->name, "rtn") != 0)
        return oq_fail(err, ONQ_E_OPTION, "--ratios needs --quant_method rtn");
    return ONQ_OK;
}

static onq_code nbits_options(oq_nbits *r, onq_error *err) {
    const onq_options *o = r->q.job->opts;
    oq_nb_config *c = &r->config;
    const int64_t block = oq_opt_int(o, "block_size");
    OQ_TRY(check_op_types(r, err));
    c->how = (oq_nb_how){.method = OQ_CHOSEN(o, "quant_method", method_ref, METHODS),
                         .bits = (unsigned)oq_opt_int(o, "bits"),
                         .block = block < 0 ? 0 : (uint64_t)block,
                         .symmetric = oq_opt_flag(o, "symmetric"),
                         .accuracy_level = OQ_CHOSEN(o, "accuracy_level", int64_t, LEVELS)};
    r->auto_level = c->how.accuracy_level == OQ_NB_LEVEL_AUTO;
    r->q.keep_record = r->auto_level;
    if (r->auto_level)
        c->how.accuracy_level = 4;
    c->qdq = OQ_CHOSEN(o, "quant_format", bool, FORMATS);
    c->form = OQ_CHOSEN(o, "form", oq_nb_form, FORMS);
    if (c->form == OQ_NB_FORM_AUTO && oq_opt_is_set(o, "target_bits") && !c->qdq)
        c->form = OQ_NB_FORM_PACKED;
    c->channel_wise = oq_opt_flag(o, "channel_wised_quantize");
    c->all_weights = oq_opt_flag(o, "all_weights");
    c->spends = oq_opt_is_set(o, "target_bits");
    if (c->spends && !oq_opt_is_set(o, "quant_method"))
        c->how.method = &oq_nb_methods[OQ_NB_RANGE];
    if (block == 0)
        return oq_fail(err, ONQ_E_OPTION, "--block_size 0: there are 16, 32, 64, 128 and 256");
    OQ_TRY(take_axes(r, err));
    OQ_TRY(take_ratios(r, err));
    OQ_TRY(oq_opt_picks(o, "nodes_to_include", &c->include, err));
    OQ_TRY(check_together(r, err));
    OQ_TRY(oq_nb_check(c, &c->how, ONQ_E_OPTION, err));
    const char *file = oq_opt_str(o, "node_config");
    return file != NULL && r->q.run.given == NULL
               ? oq_nb_config_nodes(c, &r->q.job->env->alloc, file, err)
               : ONQ_OK;
}

static onq_code bnb4_options(oq_nbits *r, onq_error *err) {
    const onq_options *o = r->q.job->opts;
    r->config.bnb4 = true;
    r->config.how = (oq_nb_how){.method = OQ_CHOSEN(o, "quant_type", method_ref, BNB4_TYPES),
                                .bits = 4,
                                .block = (uint64_t)oq_opt_int(o, "block_size"),
                                .symmetric = true};
    return oq_nb_check(&r->config, &r->config.how, ONQ_E_OPTION, err);
}

/* ---- the job ---- */

/* A model that has the types and attributes of opset 21 and IR 10, where the result needs them. */
static onq_code raise_opset(oq_nbits *r, onq_error *err) {
    oq_model *m = r->q.model;
    int64_t target = 0;
    OQ_TRY(oq_nb_opset(m, &r->config, &target, err));
    if (target == 0)
        return ONQ_OK;
    OQ_TRY(oq_opset_raise(m, target,
                          r->config.qdq  ? "blocks of DequantizeLinear need opset 21"
                          : target == 18 ? "packed weights need opset 18"
                                         : "tables of integers need opset 21",
                          false, err));
    oq_model_touch(m);
    if (target == 18)
        return ONQ_OK;
    return oq_model_raise_ir(m, 10, err);
}

/* What a method that looks at samples needs; the caller closes the source. */
static onq_code open_samples(oq_nbits *r, oq_nb_learn_job *job, onq_error *err) {
    const onq_options *o = r->q.job->opts;
    *job = (oq_nb_learn_job){.model = r->q.model,
                             .config = &r->config,
                             .memory = oq_opt_size(o, "memory"),
                             .damp = oq_opt_real(o, "percdamp"),
                             .act_order = oq_opt_flag(o, "actorder"),
                             .search_range = oq_opt_flag(o, "mse"),
                             .sweeps = (unsigned)oq_opt_int(o, "sweeps"),
                             .one_scale = !oq_opt_flag(o, "perchannel")};
    const bool needs = r->config.how.method->needs_samples;
    if (r->q.engine == NULL)
        OQ_TRY(oq_job_engine(r->q.job, &r->q.engine, err));
    job->engine = r->q.engine;
    OQ_TRY(oq_job_session(r->q.job, &job->session, err));
    const onq_code rc = oq_job_source(r->q.job, r->q.model, &job->source, err);
    return rc == ONQ_OK ? rc
                        : oq_error_in(err, rc, "%s%s needs samples",
                                      needs ? "--quant_method " : "--target_bits with --data",
                                      needs ? r->config.how.method->name : "");
}

static onq_code learn(oq_nbits *r, const oq_nb_job *nb, onq_error *err) {
    const bool hessians = r->config.how.method->by_hessian;
    if (hessians && nb->decide_only)
        return oq_nb_run(nb, err);
    oq_nb_learn_job job;
    oq_model_proto *flt = NULL;
    onq_code rc = open_samples(r, &job, err);
    if (rc == ONQ_OK && !hessians)
        rc = oq_nb_scale(&job, err);
    if (rc == ONQ_OK && hessians) {
        flt = oq_message_clone(&r->q.job->arena, OQ_SCHEMA_model_proto, r->q.model->proto);
        rc = flt != NULL ? ONQ_OK : oq_fail_nomem(err);
    }
    if (rc == ONQ_OK)
        rc = oq_nb_run(nb, err);
    if (rc == ONQ_OK && hessians)
        rc = oq_nb_learn(&job, flt, &r->made, err);
    if (rc == ONQ_OK)
        rc = oq_job_tell_samples(r->q.job, r->q.model, job.source, false, err);
    oq_source_close(job.source);
    if (rc == ONQ_OK && job.n_few > 0)
        oq_warn(r->q.job->env,
                "%s: %zu of %zu layers met fewer rows than they have inputs, and may fit these "
                "too closely (more or longer samples help; those of a decoder begin with its first "
                "token)",
                r->config.how.method->name, job.n_few, job.n_layers);
    if (rc == ONQ_OK && hessians) {
        oq_nbits_tell_learned(r, &job);
        oq_nbits_warn_of_rest_noise(r, &job);
    }
    if (rc == ONQ_OK && !hessians)
        oq_info(r->q.job->env, "awq: %zu tensors scaled, %zu of them in the node before",
                job.n_scaled, job.n_folded);
    return rc;
}

static onq_code quantize(void *ctx, onq_error *err) {
    oq_nbits *r = ctx;
    const oq_nb_job job = {.model = r->q.model,
                           .config = &r->config,
                           .plan = &r->q.plan,
                           .made = &r->made,
                           .decide_only = oq_opt_flag(r->q.job->opts, "dry_run")};
    r->made.readers.n = 0;
    r->import.n_exact = r->import.n_anew = r->import.n_wider = 0;
    r->made.reshaped = false;
    r->config.means.n = 0;
    OQ_TRY(r->config.how.method->needs_samples ? learn(r, &job, err) : oq_nb_run(&job, err));
    return r->made.reshaped && oq_model_opset(r->q.model, OQ_S("")) < 12
               ? oq_opset_raise(r->q.model, 12, "weights that are no matrices need opset 12", false,
                                err)
               : ONQ_OK;
}

/* ---- bits where they are needed ---- */

static onq_code spend(oq_nbits *r, onq_error *err) {
    oq_job *job = r->q.job;
    const bool planned = r->q.run.given != NULL, asks = oq_opt_is_set(job->opts, "data");
    if (!oq_opt_is_set(job->opts, "target_bits") || (planned && !asks))
        return ONQ_OK;
    oq_nb_budget b = {.target = oq_opt_real(job->opts, "target_bits"),
                      .any_block = !oq_opt_is_set(job->opts, "block_size") && !r->config.qdq,
                      .any_grid = !oq_opt_is_set(job->opts, "symmetric")};
    const oq_nb_job nb = {
        .model = r->q.model, .config = &r->config, .plan = &r->q.plan, .made = &r->made};
    if (!asks) {
        OQ_TRY(oq_nb_spend(&nb, &b, err));
        oq_nbits_tell_spent(r, &b, 0);
        return ONQ_OK;
    }
    oq_nb_learn_job samples;
    oq_nb_weigher *w = NULL;
    onq_code rc = open_samples(r, &samples, err);
    if (rc == ONQ_OK)
        rc = oq_nb_weigher_new(&samples, &w, err);
    b.see = oq_nb_weigher_see;
    b.weigh = oq_nb_weigher_weigh;
    b.judge = oq_nb_weigher_judge;
    b.ctx = w;
    if (rc == ONQ_OK)
        rc = oq_nb_spend(&nb, &b, err);
    if (rc == ONQ_OK && !planned)
        oq_nbits_tell_spent(r, &b, oq_nb_weigher_runs(w));
    oq_nb_weigher_free(w);
    oq_source_close(samples.source);
    return rc;
}

static onq_code mix(oq_nbits *r, onq_error *err) {
    size_t n = 0;
    const oq_nb_mixed how = OQ_CHOSEN(r->q.job->opts, "mixed", oq_nb_mixed, MIXED);
    if (how == OQ_NB_MIXED_NONE)
        return ONQ_OK;
    OQ_TRY(oq_nb_mix(&r->config, how, r->q.model->proto->graph, &n, err));
    if (n == 0)
        oq_warn(r->q.job->env,
                "--mixed: no node is known as the last layer, or as one of layers.0, "
                "layers.1, ... (--node_config gives single nodes more bits)");
    else
        oq_info(r->q.job->env, "--mixed: %zu nodes get 8 bits", n);
    return ONQ_OK;
}

/* The values of a GGUF file, in place of those of the model. */
static onq_code import(oq_nbits *r, onq_error *err) {
    static const char *const anew[] = {"bits", "block_size", "quant_method", "target_bits"};
    const onq_options *o = r->q.job->opts;
    const char *path = r->config.bnb4 ? NULL : oq_opt_str(o, "weights");
    if (path == NULL)
        return ONQ_OK;
    r->import.exact = true;
    for (size_t i = 0; i < OQ_COUNT(anew); i++)
        r->import.exact = r->import.exact && !oq_opt_is_set(o, anew[i]);
    r->config.import = &r->import;
    return oq_nb_import_open(&r->import, r->q.model, path, oq_opt_str(o, "weights_map"), err);
}

static onq_code rotate(oq_nbits *r, onq_error *err) {
    oq_rotated done;
    if (r->config.bnb4 || !oq_opt_flag(r->q.job->opts, "rotate"))
        return ONQ_OK;
    OQ_TRY(oq_rotate(r->q.model, &done, err));
    oq_info(r->q.job->env, "--rotate: %zu weights turned, %zu gains of norms put into them%s",
            done.n_weights, done.n_norms,
            done.untied ? "; the last layer has a weight of its own now" : "");
    return ONQ_OK;
}

static onq_code run_steps(oq_nbits *r, onq_code (*options)(oq_nbits *r, onq_error *err),
                          onq_error *err) {
    size_t n = 0;
    OQ_TRY(oq_quant_config(r->q.job, &r->q.config, err));
    OQ_TRY(options(r, err));
    OQ_TRY(oq_quant_open(&r->q, false, err));
    if (r->config.all_weights)
        OQ_TRY(oq_model_lift_constants(r->q.model, &n, err));
    OQ_TRY(rotate(r, err));
    OQ_TRY(import(r, err));
    OQ_TRY(raise_opset(r, err));
    OQ_TRY(oq_nbits_report_names(r, err));
    if (!r->config.bnb4 && r->q.run.given == NULL) {
        OQ_TRY(mix(r, err));
        if (r->config.all_weights)
            OQ_TRY(oq_nb_tie(&r->config, r->q.model->proto->graph, err));
    }
    if (!r->config.bnb4)
        OQ_TRY(spend(r, err));
    OQ_TRY(oq_nbits_warn_of_noise(r, err));
    OQ_TRY(oq_quant_make(&r->q, err));
    oq_nbits_warn_of_rest(r);
    if (r->auto_level)
        OQ_TRY(oq_nb_choose_level(&r->q, &r->config, &r->made, err));
    if (r->q.fitted.form == NULL) /* it is about the form that was made first */
        OQ_TRY(oq_nb_forecast(&r->q, &r->config, &r->made, err));
    OQ_TRY(oq_nbits_tell_import(r, err));
    OQ_TRY(oq_quant_end(&r->q, err));
    return oq_nb_tell_floats(&r->q, &r->config, &r->made, err);
}

static onq_code run_with(oq_job *job, const char *format,
                         onq_code (*options)(oq_nbits *r, onq_error *err), onq_error *err) {
    oq_nbits r = {0};
    oq_quant_init(&r.q, job, format, quantize, &r);
    r.q.weights_only = true;
    oq_nb_config_init(&r.config, &r.q.config);
    r.config.given = r.q.run.given;
    const onq_code rc = oq_quant_blame(&r.q, run_steps(&r, options, err), err);
    oq_nb_made_release(&r.made);
    oq_quant_release(&r.q);
    oq_nb_import_close(&r.import);
    return rc;
}

static onq_code run_nbits(oq_job *job, onq_error *err) {
    return run_with(job, "nbits", nbits_options, err);
}

static onq_code run_bnb4(oq_job *job, onq_error *err) {
    return run_with(job, "bnb4", bnb4_options, err);
}

const oq_command oq_command_nbits = {
    .info = {"nbits", "", "quantize weights to 2, 3, 4 or 8 bits",
             "Weight-only quantization: constant weights of MatMul, and of Gather and Gemm if "
             "they are listed, become integers of 2, 3, 4 or 8 bits with a scale for every block; "
             "everything else stays float. This is matmul_nbits_quantizer of "
             "onnxruntime.quantization. Only --quant_method gptq and awq, and --target_bits "
             "with --data, need samples and ONNX Runtime. Models may be larger than memory, except "
             "with --target_bits and --data."},
    .required = "input output|dry_run",
    .groups = {&oq_group_input, &oq_group_output, &nbits_own, &nbits_which, &oq_group_plan,
               &oq_group_data, &oq_group_runtime, &oq_group_verify, &oq_group_general},
    .decides = {&nbits_own, &nbits_which},
    .run = run_nbits,
};

const oq_command oq_command_bnb4 = {
    .info = {"bnb4", "", "quantize weights to 4-bit floats (FP4, NF4)",
             "Weight-only quantization to the 4-bit floats of bitsandbytes: constant weights of "
             "MatMul become MatMulBnb4. This is matmul_bnb4_quantizer of "
             "onnxruntime.quantization. It needs no samples; ONNX Runtime is used only to "
             "verify the result."},
    .required = "input output|dry_run",
    .groups = {&oq_group_input, &oq_group_output, &bnb4_own, &bnb4_which, &oq_group_plan,
               &oq_group_data, &oq_group_runtime, &oq_group_verify, &oq_group_general},
    .decides = {&bnb4_own, &bnb4_which},
    .run = run_bnb4,
};
