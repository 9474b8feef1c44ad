/*
 * quant_judge.c — what the look at a result found, for the summary: how near its outputs are to
 * float's, what part of it is in integers, what that means and what to do next.
 */
#include "api/quantizing/quantization.h"
#include "onnx/summary/summary.h"
#include "shape/macs.h"

/* A float model that is less sure of its classes is given inputs that it does not know. */
#define UNSURE 0.3

/* ---- the share in integers ---- */

/* Gives the inputs the sizes of a sample: the work of a node depends on them. */
static onq_code fix_inputs(oq_quant *q, onq_error *err) {
    oq_ios in;
    if (q->record.runs.n == 0)
        return ONQ_OK;
    const oq_record_run *run = &q->record.runs.v[0];
    OQ_TRY(oq_model_inputs(q->model, &q->job->arena, &in, err));
    for (size_t i = 0; i < in.n && i < run->n_inputs; i++)
        if (run->inputs[i].kind == OQ_DATUM_TENSOR)
            OQ_TRY(oq_input_fix(q->model, in.v[i].name, run->inputs[i].dims, run->inputs[i].rank,
                                err));
    return ONQ_OK;
}

static onq_code find_share(oq_quant *q, oq_graph *result, onq_error *err) {
    const oq_shape_options how = {.symbolic = true};
    oq_shapes *shapes = NULL;
    OQ_TRY(fix_inputs(q, err));
    OQ_TRY(oq_shapes_infer(q->model, &how, &shapes, err));
    const onq_code rc = oq_share_find(&q->verified.share, &q->job->arena, q->model->proto->graph,
                                      shapes, &q->plan, result, err);
    oq_shapes_free(shapes);
    return rc;
}

/* Weights that were in few bits before, such as those of MatMulNBits, are in few bits now. */
static onq_code add_packed(oq_quant *q, onq_error *err) {
    oq_share *s = &q->verified.share;
    oq_summary before;
    double packed = 0;
    OQ_TRY(oq_summary_make(&before, &q->job->arena, q->model, NULL, err));
    for (size_t i = 0; i < before.quant.only.n; i++)
        packed += before.quant.only.v[i].weights;
    if (packed > 0 && !isnan(s->weights))
        s->weights = (s->weights * s->elements + packed) / (s->elements + packed);
    return ONQ_OK;
}

onq_code oq_quant_find_share(oq_quant *q, oq_model_proto *source, onq_error *err) {
    assert(q->model != NULL && source != NULL);
    oq_model_proto *const made = q->model->proto;
    const bool written = !oq_opt_flag(q->job->opts, "dry_run");
    q->model->proto = source;
    onq_code rc = find_share(q, written ? made->graph : NULL, err);
    if (rc == ONQ_OK && q->weights_only)
        rc = add_packed(q, err);
    q->model->proto = made;
    return rc;
}

static void tell_share(const oq_quant *q) {
    oq_share known = q->verified.share;
    const oq_share *s = &known;
    oq_job *job = q->job;
    if (q->weights_only)
        known.macs = (double)NAN; /* the products stay float */
    oq_jw_begin_object(&job->json, "integer_share");
    if (!isnan(s->weights))
        oq_jw_real(&job->json, "weights", s->weights);
    if (!isnan(s->macs))
        oq_jw_real(&job->json, "macs", s->macs);
    oq_jw_end_object(&job->json);
    if (isnan(s->weights) && isnan(s->macs))
        return;
    oq_buf_adds(&job->text, q->weights_only ? "in few bits: " : "in integers: ");
    if (!isnan(s->weights))
        oq_buf_addf(&job->text, "%.1f %% of the weights%s", 100 * s->weights,
                    isnan(s->macs) ? "" : ", ");
    if (!isnan(s->macs))
        oq_buf_addf(&job->text, "%.1f %% of the multiply-accumulates", 100 * s->macs);
    oq_buf_adds(&job->text, "\n");
}

/* ---- the figure ---- */

static bool is_telling(const oq_quant *q) {
    return q->verified.verdict.measured && oq_opt_int(q->job->opts, "check") > 0 &&
           !(q->record.generated && q->fixed_ranges);
}

/* Below that many dB outputs are poor: by the coarser of activations and weights. */
static double floor_of(const oq_quant *q) {
    if (q->modes == 0)
        return q->weights_only ? OQ_GRADE_FLOOR_WEIGHTS : oq_grade_floor(8);
    const unsigned a = oq_dtype_find((int64_t)q->config.activation_type)->bits;
    const unsigned w = oq_dtype_find((int64_t)q->config.weight_type)->bits;
    return oq_grade_floor(a < w ? a : w);
}

static oq_grade grade_of(const oq_quant *q) {
    const oq_graded g = oq_verify_graded(&q->verified.verdict, floor_of(q));
    return oq_grade_of(&g);
}

bool oq_quant_is_poor(const oq_quant *q) {
    return is_telling(q) && grade_of(q) == OQ_GRADE_POOR;
}

/* "output 'y' has an SQNR of 3.1 dB against float", or what counts for a language model. */
static void add_finding(const oq_verdict *v, oq_buf *out) {
    oq_grade grade;
    if (v->speaks && oq_grade_of_text(&v->text, &grade)) {
        oq_buf_addf(out,
                    "the KL divergence from float is %.2f, and the same token is first in %.0f %% "
                    "of the places, on %zu sample%s, which is poor (a KL of less than 0.1 is good)",
                    oq_lm_kl(&v->text), 100 * oq_lm_top1(&v->text), v->n_runs,
                    OQ_NOUN_S(v->n_runs));
        return;
    }
    oq_buf_addf(out,
                "output '%.*s' has an SQNR of %.1f dB against float on %zu sample%s, which is poor "
                "(20 and more are usual)",
                OQ_STR(v->output), v->sqnr, v->n_runs, OQ_NOUN_S(v->n_runs));
}

void oq_quant_advise(const oq_quant *q) {
    const bool whole = q->modes != 0 && !q->config.per_channel;
    OQ_SCRATCH_BUF(next, &q->job->env->alloc);
    OQ_SCRATCH_BUF(found, &q->job->env->alloc);
    const bool known = oq_quant_add_next(q, OQ_NEXT_DEBUG, &next) && !next.failed;
    add_finding(&q->verified.verdict, &found);
    if (!found.failed)
        oq_warn(q->job->env, "%s: %s%s shows where it is lost", found.p,
                whole ? "try --per_channel; " : "", known ? next.p : "onq debug");
    q->job->text.failed |= found.failed;
}

/* What to do next, by what was found: the first of them that can be done, and the others. */
static const oq_quant_next after_good[] = {OQ_NEXT_BENCH, OQ_NEXT_END};
static const oq_quant_next after_bad[] = {OQ_NEXT_AUTO, OQ_NEXT_DEBUG, OQ_NEXT_END};

static const oq_quant_next *steps_of(const oq_quant *q) {
    return grade_of(q) >= OQ_GRADE_GOOD ? after_good : after_bad;
}

static void tell_next_json(const oq_quant *q, oq_jw *w) {
    const oq_quant_next *step = steps_of(q);
    OQ_SCRATCH_BUF(next, &q->job->env->alloc);
    while (*step != OQ_NEXT_END && !oq_quant_add_next(q, *step, &next))
        step++;
    if (*step != OQ_NEXT_END)
        oq_jw_str(w, "next", (oq_str){next.p, next.n});
    q->job->text.failed |= next.failed;
}

static void tell_next(const oq_quant *q, oq_buf *text) {
    static const char *const why[] = {[OQ_NEXT_AUTO] = "looks for a better one",
                                      [OQ_NEXT_DEBUG] = "shows where it is lost",
                                      [OQ_NEXT_BENCH] = "shows what it gains"};
    const char *intro = "next: ";
    for (const oq_quant_next *step = steps_of(q); *step != OQ_NEXT_END; step++) {
        assert((size_t)*step < OQ_COUNT(why));
        oq_buf next;
        oq_buf_init(&next, &q->job->env->alloc);
        if (oq_quant_add_next(q, *step, &next)) {
            oq_buf_adds(text, intro);
            oq_buf_add(text, next.p, next.n);
            oq_buf_addf(text, " (%s)\n", why[*step]);
            intro = "  or: ";
        }
        text->failed |= next.failed;
        oq_buf_release(&next);
    }
}

/* ---- targets ---- */

static oq_score score_of(const oq_quant *q) {
    const oq_verdict *v = &q->verified.verdict;
    oq_score s = oq_score_none();
    oq_score_set(&s, OQ_METRIC_SQNR, v->sqnr >= OQ_GRADE_EQUAL ? (double)INFINITY : v->sqnr);
    oq_score_set(&s, OQ_METRIC_COSINE, v->cosine);
    if (v->rows > 0)
        oq_score_set(&s, OQ_METRIC_AGREEMENT, 100.0 * (double)v->same / (double)v->rows);
    return s;
}

onq_code oq_quant_check_targets(const oq_quant *q, onq_error *err) {
    const onq_options *o = q->job->opts;
    const oq_score s = score_of(q);
    if (q->targets.n == 0 || oq_opt_flag(o, "dry_run"))
        return ONQ_OK;
    if (!is_telling(q) || q->record.generated)
        return oq_fail(
            err, ONQ_E_CONFIG, "--target: the outputs were not compared with float's: %s",
            q->verified.skipped != NULL                       ? q->verified.skipped
            : q->record.generated || !q->verified.verdict.ran ? "there are no samples (give --data)"
                                                              : "there is no output to compare");
    OQ_TRY(oq_gate_check(&q->targets, &s, err));
    return oq_opt_has(o, "strict") && oq_opt_flag(o, "strict")
               ? oq_gate_refuse(q->job, &q->targets, &s, err)
               : ONQ_OK;
}

static void tell_targets(const oq_quant *q) {
    const oq_score s = score_of(q);
    if (!is_telling(q))
        return;
    oq_gate_json(q->job, &q->targets, &s);
    oq_gate_tell(q->job, &q->targets, &s, NULL);
}

static void tell_json(const oq_quant *q) {
    const oq_verified *d = &q->verified;
    oq_jw *w = &q->job->json;
    oq_jw_begin_object(w, "verify");
    oq_jw_bool(w, "loaded", d->loaded);
    oq_jw_bool(w, "ran", d->verdict.ran);
    if (d->skipped != NULL)
        oq_jw_cstr(w, "skipped", d->skipped);
    if (is_telling(q)) {
        oq_jw_uint(w, "samples", d->verdict.n_runs);
        oq_jw_real(w, "sqnr", d->verdict.sqnr);
        oq_jw_str(w, "output", d->verdict.output);
        if (d->verdict.rows > 0)
            oq_jw_real(w, "top1_agreement", (double)d->verdict.same / (double)d->verdict.rows);
        if (!isnan(d->confidence))
            oq_jw_real(w, "float_confidence", d->confidence);
        if (d->verdict.speaks && d->verdict.text.rows > 0) {
            oq_jw_real(w, "kl", oq_lm_kl(&d->verdict.text));
            oq_jw_real(w, "top1", oq_lm_top1(&d->verdict.text));
            oq_jw_real(w, "perplexity", oq_lm_perplexity(&d->verdict.text));
            oq_jw_real(w, "perplexity_float", oq_lm_perplexity_float(&d->verdict.text));
        }
        oq_jw_bool(w, "poor", oq_quant_is_poor(q));
        oq_jw_cstr(w, "verdict", oq_grade_text(grade_of(q)));
        tell_next_json(q, w);
    }
    oq_jw_bool(w, "generated", q->record.generated);
    oq_jw_begin_array(w, "retried");
    for (size_t i = 0; i < d->left.n; i++)
        oq_jw_str(w, NULL, oq_node_label(d->left.v[i]));
    oq_jw_end_array(w);
    oq_jw_real(w, "seconds", d->seconds);
    oq_jw_end_object(w);
}

/* How sure float is of its answers, for images: the user sees whether they were prepared as the
 * model wants them. */
static void tell_confidence(const oq_quant *q) {
    const double mean = q->verified.confidence;
    if (!isnan(mean))
        oq_buf_addf(&q->job->text, "float is %.0f %% sure of its first class on average%s\n",
                    100 * mean,
                    mean < UNSURE ? ": are the images prepared as the model wants them?" : "");
}

static void tell_figure(const oq_quant *q) {
    const oq_verdict *v = &q->verified.verdict;
    const oq_grade grade = grade_of(q);
    oq_buf *text = &q->job->text;
    char on[64];
    snprintf(on, sizeof on, "%zu sample%s", v->n_runs, OQ_NOUN_S(v->n_runs));
    if (q->record.generated)
        snprintf(on, sizeof on, "inputs that were made up");
    if (grade == OQ_GRADE_SAME) {
        oq_buf_addf(text, "outputs: the same as float's on %s\n", on);
        return;
    }
    oq_buf_addf(text, "outputs: %.1f dB against float on %s", v->sqnr, on);
    if (v->n_outputs > 1) {
        oq_buf_adds(text, ", the worst '");
        oq_buf_add_safe(text, v->output);
        oq_buf_addf(text, "' of %zu", v->n_outputs);
    }
    const bool speaks = v->speaks && v->text.rows > 0;
    if (v->rows > 0 && !speaks)
        oq_buf_addf(text, ", the same top-1 in %llu of %llu row%s", (unsigned long long)v->same,
                    (unsigned long long)v->rows, OQ_NOUN_S(v->rows));
    if (speaks)
        oq_buf_addf(text, ", KL %.4f, the same token first in %llu of %llu row%s",
                    oq_lm_kl(&v->text), (unsigned long long)v->text.same,
                    (unsigned long long)v->text.rows, OQ_NOUN_S(v->text.rows));
    if (q->job->samples_are_constant)
        oq_buf_adds(text, ", which says nothing of real data\n");
    else
        oq_buf_addf(text, grade >= OQ_GRADE_GOOD ? ", %s\n" : ", %s: %s\n", oq_grade_text(grade),
                    oq_grade_meaning(grade));
}

/* Why there is no verdict, where the user did not ask for none. */
static void tell_why_not(const oq_quant *q) {
    const onq_options *o = q->job->opts;
    if (q->verified.skipped == NULL && q->record.generated && q->fixed_ranges &&
        oq_opt_int(o, "check") > 0 && !oq_opt_flag(o, "dry_run"))
        oq_buf_adds(&q->job->text,
                    "outputs: not compared with float's, for there are no samples (--data)\n");
}

void oq_quant_tell_verified(const oq_quant *q) {
    tell_share(q);
    tell_json(q);
    if (!is_telling(q)) {
        tell_why_not(q);
        return;
    }
    tell_confidence(q);
    tell_figure(q);
    tell_targets(q);
    tell_next(q, &q->job->text);
}
