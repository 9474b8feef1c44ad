/*
 * api_calibrate.c — `onq calibrate`: ranges of a model's tensors, into the reference's cache file
 * and TensorRT's tables; shares of a job and their joining.
 */
#include "api/commands/cal_options.h"
#include "api/interface/ranges_handle.h"
#include "api/options/command.h"
#include "api/options/shared_rows.h"
#include "api/outputs.h"
#include "api/samples.h"
#include "calibrate/calibrate.h"
#include "calibrate/method/method.h"
#include "calibrate/tensorrt_table.h"
#include "onnx/check/check.h"
#include "quantize/choose/pick.h"

/* ---- options ---- */

#define SCENARIOS(ROW) ROW("same", OQ_CAL_SAME) ROW("p3", OQ_CAL_P3)

static const onq_option_info method_rows[] = {
    OQ_ROWS_CALIBRATION,
    OQ_FLAG("calib_per_channel", 0, "", "minmax: find a range for each index of axis 1."),
    OQ_ENUM("calib_scenario", 0, "", "same", OQ_CHOICES(SCENARIOS), "NAME",
            "distribution: the distribution of float 8 values."),
    OQ_ROW_OP_TYPES("op_types_to_calibrate",
                    "Calibrate only the inputs and outputs of these operators (all by default)."),
    OQ_ROW_ENABLE_SUBGRAPH,
};
static const oq_opt_group method_group = OQ_GROUP("Method", method_rows);

static const onq_option_info output_rows[] = {
    OQ_ROW_OUTPUT("calibration_cache", "FILE",
                  "The cache to write (JSON) or, with --shard, the part."),
    OQ_PATH("table", 0, "", "DIR",
            "Also write TensorRT's calibration.json, calibration.cache and calibration.flatbuffers "
            "to this folder."),
};
static const oq_opt_group output_group = OQ_GROUP("Output", output_rows);

static const onq_option_info share_rows[] = {
    OQ_TEXT("shard", 0, "", "", "I/N", "Run share I of N (I from 1) and write a part."),
    OQ_LIST("merge", 0, "", "PART", "Merge the parts of all shares; no model runs."),
    OQ_FLAG("range_pass", 0, "",
            "With --shard: only measure the range of this share. Pass the parts to --ranges in a "
            "second run, so that with a histogram method no share has to read all samples."),
    OQ_LIST("ranges", 0, "", "PART", "With --shard: the parts that --range_pass wrote."),
    OQ_PATH("checkpoint", 0, "", "FILE",
            "Keep the state of the run in this file, so that a killed run can continue. It is "
            "removed at the end."),
};
static const oq_opt_group share_group = OQ_GROUP("Long runs", share_rows);

oq_cal_method oq_cal_method_chosen(const onq_options *o) {
    return (oq_cal_method)oq_opt_enum(o, "calibration_method"); /* OQ_METHOD_CHOICES */
}

void oq_cal_options_shared(const oq_job *job, oq_cal_options *c) {
    const onq_options *o = job->opts;
    c->moving_average = oq_opt_flag(o, "calib_moving_average");
    c->averaging_constant = oq_opt_real(o, "calib_moving_average_constant");
    c->percentile = oq_opt_real(o, "calib_percentile");
    if (oq_opt_is_set(o, "calib_num_bins"))
        c->num_bins = (uint64_t)oq_opt_int(o, "calib_num_bins");
    if (oq_opt_is_set(o, "calib_num_quantized_bins"))
        c->num_quantized_bins = (uint64_t)oq_opt_int(o, "calib_num_quantized_bins");
    if (oq_opt_is_set(o, "calib_strided_minmax"))
        c->stride = (uint64_t)oq_opt_int(o, "calib_strided_minmax");
    oq_job_resources(job, c);
}

onq_code oq_cal_options_read(const oq_job *job, oq_cal_options *o, onq_error *err) {
    const onq_options *opts = job->opts;
    oq_cal_defaults(o, oq_cal_method_chosen(opts));
    oq_cal_options_shared(job, o);
    if (oq_opt_is_set(opts, "calib_tensor_range_symmetric"))
        o->symmetric = oq_opt_flag(opts, "calib_tensor_range_symmetric");
    o->per_channel = oq_opt_flag(opts, "calib_per_channel");
    o->scenario = OQ_CHOSEN(opts, "calib_scenario", oq_cal_scenario, SCENARIOS);
    o->op_types = oq_opt_list(opts, "op_types_to_quantize", &o->n_op_types);
    for (size_t i = 0; i < o->n_op_types; i++)
        if (oq_opt_same(o->op_types[i], OQ_S("all")))
            o->n_op_types = 0;
    o->inner = oq_opt_flag(opts, "enable_subgraph");
    return oq_cal_check(o, err);
}

/* "I/N". Shares count from 1; 0 is taken for N, so that counting from 0 covers all shares too. */
static onq_code read_shard(const char *text, oq_cal_part *p, onq_error *err) {
    const oq_str s = oq_str_of(text);
    const char *slash = strchr(text, '/');
    int64_t i = 0, n = 0;
    if (slash == NULL || !oq_str_to_i64((oq_str){text, (size_t)(slash - text)}, &i) ||
        !oq_str_to_i64((oq_str){slash + 1, s.n - (size_t)(slash - text) - 1}, &n) || n < 1 ||
        i < 0 || i > n || n > 1000000)
        return oq_fail(err, ONQ_E_OPTION, "--shard: '%.*s' is not I/N with I from 1 to N",
                       OQ_STR(s));
    p->share = (uint64_t)i % (uint64_t)n;
    p->n_shares = (uint64_t)n;
    return ONQ_OK;
}

static onq_code list_paths(oq_job *job, const char *name, const char *const **out, size_t *n,
                           onq_error *err) {
    const oq_str *list = oq_opt_list(job->opts, name, n);
    const char **paths = OQ_NEW_ARRAY(&job->arena, const char *, *n > 0 ? *n : 1);
    OQ_TRY_ALLOC(paths != NULL, err);
    for (size_t i = 0; i < *n; i++)
        paths[i] = list[i].p;
    *out = paths;
    return ONQ_OK;
}

static onq_code check_together(oq_job *job, onq_error *err) {
    const onq_options *o = job->opts;
    const bool merge = oq_opt_is_set(o, "merge"), shard = oq_opt_is_set(o, "shard");
    if (merge && shard)
        return oq_fail(err, ONQ_E_OPTION, "--merge and --shard cannot be used together");
    if (merge && oq_opt_is_set(o, "checkpoint"))
        return oq_fail(err, ONQ_E_OPTION, "--merge and --checkpoint cannot be used together");
    if (shard && oq_opt_is_set(o, "table"))
        return oq_fail(err, ONQ_E_OPTION, "--table can be used with --merge, not with --shard");
    if (!shard && (oq_opt_flag(o, "range_pass") || oq_opt_is_set(o, "ranges")))
        return oq_fail(err, ONQ_E_OPTION, "--range_pass and --ranges need --shard");
    if (oq_opt_flag(o, "range_pass") && oq_opt_is_set(o, "ranges"))
        return oq_fail(err, ONQ_E_OPTION, "--range_pass and --ranges cannot be used together");
    if (shard && oq_opt_is_wanted(o, oq_opt_str(o, "output")))
        return oq_fail(err, ONQ_E_OPTION, "--shard writes a file; --output must name one");
    return ONQ_OK;
}

/* ---- the result ---- */

static void number_text(char b[32], const oq_num *x) {
    if (x->n != 1 || x->v == NULL)
        snprintf(b, 32, "(%zu channels)", x->n);
    else
        snprintf(b, 32, "%.7g", x->v[0]);
}

/* Up to so many ranges are shown; of more, only the first. */
#define SHOWN_ALL   20
#define SHOWN_FIRST 10

/* The ranges are in a file: of many, the first are shown. */
static void show_text(oq_job *job, const oq_ranges *r) {
    oq_buf *b = &job->text;
    size_t width = 6;
    const bool all = oq_opt_int(job->opts, "verbose") > 0 || r->all.n <= SHOWN_ALL;
    const size_t n = all ? r->all.n : SHOWN_FIRST;
    for (size_t i = 0; i < n; i++)
        if (r->all.v[i]->name.n > width)
            width = r->all.v[i]->name.n < 60 ? r->all.v[i]->name.n : 60;
    oq_buf_addf(b, "%-*s  %-7s  %14s  %14s\n", (int)width, "tensor", "type", "lowest", "highest");
    for (size_t i = 0; i < n; i++) {
        const oq_range *t = r->all.v[i];
        char lo[32], hi[32];
        const size_t cut = t->name.n > width ? width : t->name.n;
        number_text(lo, &t->lowest);
        number_text(hi, &t->highest);
        oq_buf_add_safe(b, (oq_str){t->name.p, cut});
        oq_buf_addf(b, "%*s  %-7s  %14s  %14s\n", (int)(width - cut), "",
                    t->lowest.type == OQ_FLOAT16 ? "float16" : "float32", lo, hi);
    }
    if (n < r->all.n)
        oq_buf_addf(b, "... %zu more (--verbose shows all)\n", r->all.n - n);
    oq_buf_addf(b, "%zu tensors, %s\n", r->all.n, oq_cal_method_name(r->method));
}

static void json_num(oq_jw *w, const char *key, const oq_num *x) {
    if (!oq_num_has(x) || x->v == NULL)
        return;
    if (x->n == 1) {
        oq_jw_real(w, key, x->v[0]);
        return;
    }
    oq_jw_begin_array(w, key);
    for (size_t i = 0; i < x->n; i++)
        oq_jw_real(w, NULL, x->v[i]);
    oq_jw_end_array(w);
}

static void show_json(oq_job *job, const oq_ranges *r) {
    oq_jw *w = &job->json;
    oq_jw_cstr(w, "method", oq_cal_method_name(r->method));
    oq_jw_begin_object(w, "tensors");
    for (size_t i = 0; i < r->all.n; i++) {
        const oq_range *t = r->all.v[i];
        oq_jw_key(w, t->name);
        oq_jw_begin_object(w, NULL);
        oq_jw_cstr(w, "type", t->lowest.type == OQ_FLOAT16 ? "float16" : "float32");
        json_num(w, "lowest", &t->lowest);
        json_num(w, "highest", &t->highest);
        json_num(w, "avg", &t->avg);
        json_num(w, "std", &t->std);
        oq_jw_end_object(w);
    }
    oq_jw_end_object(w);
}

static void warn_of_some(const oq_job *job, const oq_ranges *r, bool empty, const char *one,
                         const char *several) {
    const oq_range *first = NULL;
    size_t n = 0;
    for (size_t i = 0; i < r->all.n; i++) {
        const oq_range *t = r->all.v[i];
        if (!oq_range_is_infinite(t) || oq_range_is_empty(t) != empty)
            continue;
        first = first != NULL ? first : t;
        n++;
    }
    if (n > 0)
        oq_warn(job->env,
                "%zu tensor%s (the first: '%.*s'): the range is infinite, and the tensor stays "
                "float when the model is quantized",
                n, n == 1 ? one : several, OQ_STR(first->name));
}

/* The quantizer leaves such tensors float; a user who only calibrates learns of them here. */
static void warn_of_infinite(const oq_job *job, const oq_ranges *r) {
    warn_of_some(job, r, false, " holds an infinity", "s hold an infinity");
    warn_of_some(job, r, true, " has no values in any sample", "s have no values in any sample");
}

/* Cache and tables together, or none of them. */
static onq_code write_result(oq_job *job, const oq_ranges *r, onq_error *err) {
    const char *cache = oq_opt_str(job->opts, "output"), *table = oq_opt_str(job->opts, "table");
    oq_out outs[1 + OQ_TABLE_FILES] = {0};
    oq_out *list[1 + OQ_TABLE_FILES];
    size_t n = 0;
    onq_code rc = ONQ_OK;
    if (table != NULL) {
        OQ_GO(oq_table_write(r, job->env, table, outs + 1, err));
        for (size_t i = 1; i <= OQ_TABLE_FILES; i++)
            list[n++] = &outs[i];
    }
    if (cache != NULL) {
        const bool memory = oq_opt_is_wanted(job->opts, cache);
        OQ_GO(memory ? oq_out_open_memory(&outs[0], &job->env->alloc, cache, err)
                     : oq_out_open(&outs[0], &job->env->alloc, cache, err));
        if (!memory)
            list[n++] = &outs[0];
        OQ_GO(oq_ranges_write(r, &job->env->alloc, &outs[0], OQ_RANGES_CACHE, err));
        if (memory) {
            OQ_GO(oq_files_take(&job->files, &outs[0], err));
            OQ_GO(oq_job_own_files(job, "output", err));
        }
    }
    rc = oq_out_commit_all(list, n, err);
done:
    for (size_t i = 0; i <= OQ_TABLE_FILES; i++)
        oq_out_abort(&outs[i]);
    return rc;
}

/* ---- jobs ---- */

static onq_code run_merge(oq_job *job, oq_ranges *out, onq_error *err) {
    const char *const *paths = NULL;
    size_t n = 0;
    OQ_TRY(list_paths(job, "merge", &paths, &n, err));
    return oq_calibrate_join(job->env, paths, n, out, err);
}

/* A share: its own samples, and all of them where the method must look at all. */
static onq_code run_shard(oq_job *job, oq_cal_job *cal, onq_error *err) {
    oq_cal_part part = {.range_only = oq_opt_flag(job->opts, "range_pass")};
    oq_source_options so;
    onq_code rc = ONQ_OK;
    OQ_TRY(read_shard(oq_opt_str(job->opts, "shard"), &part, err));
    OQ_TRY(list_paths(job, "ranges", &part.ranges, &part.n_ranges, err));
    OQ_TRY(oq_job_source_options(job, cal->model, &so, err));
    OQ_TRY(oq_job_open_raw_source(job, &so, &part.all, &cal->walker, err));
    OQ_GO(oq_source_measure(part.all, err));
    part.total = oq_source_count(part.all);
    so.share = part.share;
    so.n_shares = part.n_shares;
    OQ_GO(oq_job_open_raw_source(job, &so, &cal->source, &cal->walker, err));
    OQ_GO(oq_source_measure(cal->source, err));
    OQ_GO(oq_calibrate_part(cal, &part, oq_opt_str(job->opts, "output"), err));
    oq_buf_addf(&job->text, "share %llu of %llu: %llu of %llu samples\n",
                (unsigned long long)(part.share == 0 ? part.n_shares : part.share),
                (unsigned long long)part.n_shares, (unsigned long long)oq_source_count(cal->source),
                (unsigned long long)part.total);
    oq_jw_uint(&job->json, "samples", oq_source_count(cal->source));
    oq_jw_uint(&job->json, "total", part.total);
done:
    oq_source_close(part.all);
    return rc;
}

/* Operator types that neither the model has nor anyone quantizes. */
static onq_code report_types(oq_job *job, const oq_cal_options *o, const oq_model *m,
                             onq_error *err) {
    oq_pick types;
    onq_code rc = ONQ_OK;
    oq_pick_init(&types, &job->arena);
    for (size_t i = 0; i < o->n_op_types && rc == ONQ_OK; i++)
        rc = oq_pick_add(&types, o->op_types[i], err);
    if (rc == ONQ_OK)
        rc = oq_pick_report_types(&types, job->env, m->proto->graph, "--op_types_to_quantize",
                                  false, err);
    return rc;
}

static onq_code run_model(oq_job *job, oq_ranges *out, onq_error *err) {
    oq_cal_options o;
    oq_model *m = NULL;
    oq_cal_job cal = {.options = &o, .checkpoint = oq_opt_str(job->opts, "checkpoint")};
    onq_code rc = ONQ_OK;
    OQ_TRY(oq_cal_options_read(job, &o, err));
    OQ_GO(oq_job_open(job, oq_opt_str(job->opts, "input"), &m, err));
    OQ_GO(oq_model_check(m, err));
    OQ_GO(report_types(job, &o, m, err));
    OQ_GO(oq_job_session(job, &cal.session, err));
    OQ_GO(oq_job_engine(job, &cal.engine, err));
    cal.model = m;
    if (oq_opt_is_set(job->opts, "shard")) {
        rc = run_shard(job, &cal, err);
    } else {
        OQ_GO(oq_job_raw_source(job, m, &cal.source, &cal.walker, err));
        if (!oq_cal_class_of(o.method)->histogram)
            oq_source_read_once(cal.source);
        OQ_GO(oq_calibrate(&cal, out, err));
        OQ_GO(oq_job_tell_samples(job, m, cal.source, true, err));
        oq_jw_uint(&job->json, "samples", oq_source_count(cal.source));
    }
done:
    if (m != NULL)
        rc = oq_job_blame(job, rc, err);
    oq_source_close(cal.source);
    oq_engine_close(cal.engine);
    oq_model_free(m);
    return rc;
}

static onq_code run_calibrate(oq_job *job, onq_error *err) {
    oq_ranges ranges = {0};
    const char *checkpoint = oq_opt_str(job->opts, "checkpoint");
    OQ_TRY(check_together(job, err));
    onq_code rc = ONQ_OK;
    if (oq_opt_is_set(job->opts, "merge"))
        OQ_GO(run_merge(job, &ranges, err));
    else
        OQ_GO(run_model(job, &ranges, err));
    if (!oq_opt_is_set(job->opts, "shard")) {
        OQ_GO(oq_outputs_rescue(job->env, &ranges, write_result(job, &ranges, err), err));
        warn_of_infinite(job, &ranges);
        show_text(job, &ranges);
        show_json(job, &ranges);
        OQ_GO(oq_job_give_ranges(job, &ranges, err));
    }
    if (checkpoint != NULL && !oq_os_remove(checkpoint) && errno != ENOENT)
        oq_warn(job->env, "%s: the checkpoint is no longer needed, but cannot be removed",
                checkpoint);
done:
    oq_ranges_release(&ranges);
    return rc;
}

const oq_command oq_command_calibrate = {
    .info =
        {"calibrate", "", "find the ranges of a model's tensors",
         "Runs the model on samples and writes the range of each tensor, which the static "
         "quantizer needs: in the cache format of onnxruntime.quantization (save_tensors_data), "
         "and with --table also in TensorRT's. The tensors and their ranges are those of "
         "onnxruntime.quantization, to the last bit. Memory does not grow with the samples.\n\n"
         "A long job can be split into shares (--shard 1/4 ... --shard 4/4, then --merge) and "
         "continued after a crash (--checkpoint)."},
    .required = "input|merge output|table",
    .groups = {&method_group, &output_group, &oq_group_input, &oq_group_data, &share_group,
               &oq_group_resources, &oq_group_runtime, &oq_group_general, &oq_group_verify_idle},
    .run = run_calibrate,
};
