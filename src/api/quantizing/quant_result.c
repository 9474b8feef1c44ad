/*
 * quant_result.c — the end of a quantization: write and report.
 */
#include "api/quantizing/quantization.h"

#include "api/quantizing/plan_file.h"
#include "base/text/number_text.h"
#include "quantize/ort/stamp.h"
#include "quantize/rules.h"

/* One line about nodes that stay what they are; nothing when there are none. */
static void warn_of_nodes(const onq_env *env, size_t n, const oq_plan_node *first,
                          const char *text) {
    if (n > 0)
        oq_warn(env, "%zu node%s stay%s %s; the first is '%.*s' (%.*s)", n, OQ_NOUN_S(n),
                OQ_VERB_S(n), text, OQ_STR(first->name), OQ_STR(first->op_type));
}

void oq_quant_warn_types(const oq_quant *q) {
    const onq_env *env = q->job->env;
    const oq_plan_node *first = NULL;
    size_t n = oq_plan_count_why(&q->plan, OQ_WHY_HALF, &first);
    warn_of_nodes(env, n, first, "float because of --keep_float16 false: their values are float16");
    n = oq_plan_count_why(&q->plan, OQ_WHY_OTHER, &first);
    warn_of_nodes(
        env, n, first,
        "float because their values are bfloat16 or double (convert the model to float32)");
    warn_of_nodes(
        env, q->plan.n_bfloat16, &q->plan.bfloat16,
        "bfloat16, for which ONNX Runtime has almost no kernels on a CPU: the model may not load "
        "there (convert it to float32)");
}

static onq_code save(oq_quant *q, onq_error *err) {
    const oq_save_options options = {.external = q->external ? OQ_EXTERNAL_ONE : OQ_EXTERNAL_KEEP,
                                     .threshold = OQ_STAMP_APART(1024),
                                     .attributes = true};
    return oq_job_save(q->job, "output", q->model, &options, &q->size_after, err);
}

static void report_json(const oq_quant *q, const oq_plan_counts *counts, const size_t fates[3],
                        double seconds, double calibration) {
    oq_job *job = q->job;
    oq_jw_cstr(&job->json, "input", oq_job_input(job));
    if (!oq_opt_flag(job->opts, "dry_run")) {
        oq_jw_cstr(&job->json, "output", oq_opt_str(job->opts, "output"));
        oq_jw_uint(&job->json, "size_after", q->size_after);
    }
    oq_jw_uint(&job->json, "size_before", q->size_before);
    oq_jw_real(&job->json, "seconds", seconds);
    if (calibration >= 0.0)
        oq_jw_real(&job->json, "seconds_calibration", calibration);
    oq_jw_begin_array(&job->json, "operators");
    for (size_t i = 0; i < counts->n; i++) {
        const oq_plan_count *c = &counts->v[i];
        oq_jw_begin_object(&job->json, NULL);
        oq_jw_str(&job->json, "op_type", c->op_type);
        oq_jw_cstr(&job->json, "treatment", oq_fate_name(c->fate));
        oq_jw_uint(&job->json, "count", c->n);
        oq_jw_cstr(&job->json, "why", c->why);
        oq_jw_end_object(&job->json);
    }
    oq_jw_end_array(&job->json);
    oq_jw_uint(&job->json, "quantized", fates[OQ_FATE_QUANTIZED]);
    oq_jw_uint(&job->json, "removed", fates[OQ_FATE_REMOVED]);
    oq_jw_uint(&job->json, "float", fates[OQ_FATE_FLOAT]);
}

static void report(const oq_quant *q, const oq_plan_counts *counts, double seconds) {
    const double calibration = q->seconds_calibration;
    oq_job *job = q->job;
    size_t fates[3] = {0};
    char before[32], after[32];
    for (size_t i = 0; i < counts->n; i++)
        fates[counts->v[i].fate] += counts->v[i].n;
    report_json(q, counts, fates, seconds, calibration);
    oq_buf_addf(&job->text, "%zu of %zu nodes quantized", fates[OQ_FATE_QUANTIZED],
                fates[0] + fates[1] + fates[2]);
    if (fates[OQ_FATE_REMOVED] > 0)
        oq_buf_addf(&job->text, ", %zu removed", fates[OQ_FATE_REMOVED]);
    oq_buf_adds(&job->text, "\n");
    oq_plan_text(counts, &job->text);
    if (oq_opt_flag(job->opts, "dry_run"))
        oq_buf_addf(&job->text, "nothing written (--dry_run); %.2f s\n", seconds);
    else
        oq_buf_addf(&job->text, "%s -> %s in %.2f s", oq_size_text(before, q->size_before),
                    oq_size_text(after, q->size_after), seconds);
    if (!oq_opt_flag(job->opts, "dry_run"))
        oq_buf_addf(&job->text, calibration >= 0.0 ? " (calibration %.2f s)\n" : "\n", calibration);
    oq_quant_tell_verified(q);
}

/* Float nodes that stayed so for the reason of row i; nodes of operators that no mode quantizes
 * count only where there are no others. */
static size_t count_like(const oq_plan_counts *c, size_t i, bool known_only) {
    size_t n = 0;
    for (size_t k = 0; k < c->n; k++)
        if (strcmp(c->v[k].why, c->v[i].why) == 0 &&
            (!known_only || oq_rules_modes(c->v[k].op_type) != 0))
            n += c->v[k].n;
    return n;
}

/* "; Gemm: not in op_types_to_quantize" where a type that could be listed has another reason than
 * most nodes; else "". */
static void tell_unlisted(const oq_plan_counts *c, const char *why, char *out, size_t cap) {
    static const char unlisted[] = "not in op_types_to_quantize";
    out[0] = '\0';
    for (size_t i = 0; i < c->n && strcmp(why, unlisted) != 0; i++)
        if (strcmp(c->v[i].why, unlisted) == 0)
            snprintf(out, cap, "; %.*s: %s", OQ_STR(c->v[i].op_type), unlisted);
}

/* Says that nothing was quantized, with the reason that held for most nodes. */
static onq_code tell_nothing(const oq_quant *q, const oq_plan_counts *counts, onq_error *err) {
    const size_t all = q->plan.nodes.n;
    const char *why = "the graph has no nodes";
    char more[200];
    size_t most = 0;
    bool known = false;
    for (size_t i = 0; i < counts->n; i++) {
        if (counts->v[i].fate == OQ_FATE_QUANTIZED)
            return ONQ_OK;
        known |= oq_rules_modes(counts->v[i].op_type) != 0;
    }
    for (size_t i = 0; i < counts->n; i++) {
        const size_t n = count_like(counts, i, known);
        if (n <= most)
            continue;
        most = n;
        why = counts->v[i].why;
    }
    tell_unlisted(counts, why, more, sizeof more);
    if (oq_opt_has(q->job->opts, "strict") && oq_opt_flag(q->job->opts, "strict"))
        return oq_fail(err, ONQ_E_UNSUPPORTED, "nothing was quantized (%zu of %zu nodes: %s%s)",
                       most, all, why, more);
    oq_alert(q->job->env, "nothing was quantized (%zu of %zu nodes: %s%s)", most, all, why, more);
    return ONQ_OK;
}

onq_code oq_quant_end(oq_quant *q, onq_error *err) {
    assert(q->model != NULL);
    oq_plan_counts counts;
    OQ_TRY(oq_plan_summary(&q->plan, &q->job->arena, &counts, err));
    OQ_TRY(tell_nothing(q, &counts, err));
    q->external |= oq_opt_flag(q->job->opts, "use_external_data_format");
    OQ_TRY(oq_quant_check_targets(q, err));
    if (!oq_opt_flag(q->job->opts, "dry_run"))
        OQ_TRY(save(q, err));
    OQ_TRY(oq_plan_file_write(q->job, &q->plan, q->format, err));
    report(q, &counts, oq_seconds() - q->begin);
    return ONQ_OK;
}

onq_code oq_quant_blame(const oq_quant *q, onq_code rc, onq_error *err) {
    return q->model != NULL ? oq_job_blame(q->job, rc, err) : rc;
}
