/*
 * quant_judge.c — what the look at a result found, for the summary: how near its outputs are to
 * float's, what part of it is in integers, what that means and what to do next.
 */
#include "api/quantization.h"
#include "shape/macs.h"

#include <math.h>
#include <stdio.h>

/* ---- the share in integers ---- */

/* Gives the inputs the sizes of a sample: the work of a node depends on them. */
static onq_code fix_inputs(oq_quant *r, onq_error *err) {
    oq_ios in;
    if (r->record.runs.n == 0)
        return ONQ_OK;
    const oq_record_run *run = &r->record.runs.v[0];
    OQ_TRY(oq_model_inputs(r->model, &r->job->arena, &in, err));
    for (size_t i = 0; i < in.n && i < run->n_inputs; i++)
        if (run->inputs[i].kind == OQ_DATUM_TENSOR)
            OQ_TRY(oq_input_fix(r->model, in.v[i].name, run->inputs[i].dims, run->inputs[i].rank,
                                err));
    return ONQ_OK;
}

static onq_code find_share(oq_quant *r, oq_graph *result, onq_error *err) {
    const oq_shape_options how = {.symbolic = true};
    oq_shapes *shapes = NULL;
    OQ_TRY(fix_inputs(r, err));
    OQ_TRY(oq_shapes_infer(r->model, &how, &shapes, err));
    const onq_code rc = oq_share_find(&r->verified.share, &r->job->arena, r->model->proto->graph,
                                      shapes, &r->plan, result, err);
    oq_shapes_free(shapes);
    return rc;
}

onq_code oq_quant_find_share(oq_quant *r, oq_model_proto *source, onq_error *err) {
    oq_model_proto *const made = r->model->proto;
    const bool written = !oq_opt_flag(r->job->opts, "dry_run");
    r->model->proto = source;
    const onq_code rc = find_share(r, written ? made->graph : NULL, err);
    r->model->proto = made;
    return rc;
}

static void tell_share(const oq_quant *r) {
    oq_share known = r->verified.share;
    const oq_share *s = &known;
    oq_job *job = r->job;
    if (r->weights_only)
        known.macs = (double)NAN; /* the products stay float */
    oq_jw_begin_object(&job->json, "integer_share");
    if (!isnan(s->weights))
        oq_jw_real(&job->json, "weights", s->weights);
    if (!isnan(s->macs))
        oq_jw_real(&job->json, "macs", s->macs);
    oq_jw_end_object(&job->json);
    if (isnan(s->weights) && isnan(s->macs))
        return;
    oq_buf_adds(&job->text, r->weights_only ? "in few bits: " : "in integers: ");
    if (!isnan(s->weights))
        oq_buf_addf(&job->text, "%.1f %% of the weights%s", 100 * s->weights,
                    isnan(s->macs) ? "" : ", ");
    if (!isnan(s->macs))
        oq_buf_addf(&job->text, "%.1f %% of the multiply-accumulates", 100 * s->macs);
    oq_buf_adds(&job->text, "\n");
}

/* ---- the figure ---- */

bool oq_quant_is_telling(const oq_quant *r) {
    return r->verified.verdict.measured && oq_opt_int(r->job->opts, "check") > 0 &&
           !(r->record.generated && r->fixed_ranges);
}

/* Of the coarser of activations and weights. */
static unsigned bits_of(const oq_quant *r) {
    if (r->modes == 0)
        return r->bits != 0 ? r->bits : 8;
    const unsigned a = oq_dtype_find((int64_t)r->config.activation_type)->bits;
    const unsigned w = oq_dtype_find((int64_t)r->config.weight_type)->bits;
    return a < w ? a : w;
}

static oq_verify_grade grade_of(const oq_quant *r) {
    return oq_verify_grade_of(r->verified.verdict.sqnr, bits_of(r));
}

bool oq_quant_is_poor(const oq_quant *r) {
    return oq_quant_is_telling(r) && grade_of(r) == OQ_GRADE_POOR;
}

/* Where the samples of this job came from, as a word for another command; "" when there were
 * none. */
static oq_str data_word(const oq_quant *r) {
    const onq_options *o = r->job->opts;
    const char *input = oq_job_input(r->job), *slash = strrchr(input, '/');
    if (!oq_opt_has(o, "data") || r->record.generated)
        return OQ_S("");
    if (oq_opt_is_set(o, "data"))
        return oq_str_of(oq_opt_str(o, "data"));
    return slash == NULL ? OQ_S(".") : (oq_str){input, (size_t)(slash - input)};
}

static void add_option(oq_buf *b, const char *name, oq_str value) {
    if (value.n == 0)
        return;
    oq_buf_addc(b, ' ');
    oq_buf_adds(b, name);
    oq_buf_addc(b, ' ');
    oq_buf_add_word(b, value);
}

static void add_debug(const oq_quant *r, oq_buf *b) {
    oq_buf_adds(b, "onq debug");
    add_option(b, "--float_model", oq_str_of(oq_job_input(r->job)));
    add_option(b, "--qdq_model", oq_str_of(oq_opt_str(r->job->opts, "output")));
    add_option(b, "--data", data_word(r));
}

static void add_bench(const oq_quant *r, oq_buf *b) {
    oq_buf_adds(b, "onq bench ");
    oq_buf_add_word(b, oq_str_of(oq_job_input(r->job)));
    oq_buf_addc(b, ' ');
    oq_buf_add_word(b, oq_str_of(oq_opt_str(r->job->opts, "output")));
    add_option(b, "--data", data_word(r));
}

static void add_auto(const oq_quant *r, oq_buf *b) {
    oq_buf_adds(b, "onq auto");
    add_option(b, "-i", oq_str_of(oq_job_input(r->job)));
    add_option(b, "-o", oq_str_of(oq_opt_str(r->job->opts, "output")));
    add_option(b, "--data", data_word(r));
}

void oq_quant_advise(const oq_quant *r) {
    const oq_verdict *v = &r->verified.verdict;
    const bool whole = r->modes != 0 && !r->config.per_channel;
    oq_buf next;
    oq_buf_init(&next, &r->job->env->alloc);
    add_debug(r, &next);
    oq_warn(r->job->env,
            "output '%.*s' keeps %.1f dB of the float model's on %zu sample%s, which is poor (20 "
            "and more are usual): %s%s shows where it is lost",
            OQ_STR(v->output), v->sqnr, v->n_runs, v->n_runs == 1 ? "" : "s",
            whole ? "try --per_channel; " : "", next.failed ? "onq debug" : next.p);
    oq_buf_release(&next);
}

typedef struct step {
    void (*add)(const oq_quant *r, oq_buf *b);
    const char *why;
} step;

static const step look_for_better = {add_auto, "looks for a better one"};
static const step look_where = {add_debug, "shows where it is lost"};
static const step look_at_time = {add_bench, "shows what it gains"};

/* What to do next, by what was found; NULL at the end. Samples that a plan or a cache left unread
 * are no use to a search. */
static const step *step_at(const oq_quant *r, size_t i) {
    const bool good = grade_of(r) >= OQ_GRADE_GOOD;
    const step *const bad[] = {&look_for_better, &look_where};
    if (good)
        return i == 0 ? &look_at_time : NULL;
    const size_t from = oq_command_find("auto") == NULL || data_word(r).n == 0;
    return from + i < OQ_COUNT(bad) ? bad[from + i] : NULL;
}

static void tell_json(const oq_quant *r) {
    const oq_verified *d = &r->verified;
    oq_jw *w = &r->job->json;
    oq_jw_begin_object(w, "verify");
    oq_jw_bool(w, "loaded", d->loaded);
    oq_jw_bool(w, "ran", d->verdict.ran);
    if (d->skipped != NULL)
        oq_jw_cstr(w, "skipped", d->skipped);
    if (oq_quant_is_telling(r)) {
        oq_jw_uint(w, "samples", d->verdict.n_runs);
        oq_jw_real(w, "sqnr", d->verdict.sqnr);
        oq_jw_str(w, "output", d->verdict.output);
        if (d->verdict.rows > 0)
            oq_jw_real(w, "top1_agreement", (double)d->verdict.same / (double)d->verdict.rows);
        oq_jw_bool(w, "poor", oq_quant_is_poor(r));
        oq_jw_cstr(w, "verdict", oq_verify_grade_text(grade_of(r)));
        oq_buf next;
        oq_buf_init(&next, &r->job->env->alloc);
        step_at(r, 0)->add(r, &next);
        oq_jw_str(w, "next", (oq_str){next.p, next.n});
        oq_buf_release(&next);
    }
    oq_jw_bool(w, "generated", r->record.generated);
    oq_jw_begin_array(w, "retried");
    for (size_t i = 0; i < d->left.n; i++)
        oq_jw_str(w, NULL, oq_node_label(d->left.v[i]));
    oq_jw_end_array(w);
    oq_jw_real(w, "seconds", d->seconds);
    oq_jw_end_object(w);
}

static void tell_figure(const oq_quant *r) {
    static const char *const meaning[] = {"poor: expect wrong answers",
                                          "fair: some answers will change", "good",
                                          "close to float", ""};
    const oq_verdict *v = &r->verified.verdict;
    const oq_verify_grade grade = grade_of(r);
    oq_buf *text = &r->job->text;
    char on[64];
    snprintf(on, sizeof on, "%zu sample%s", v->n_runs, v->n_runs == 1 ? "" : "s");
    if (r->record.generated)
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
    if (v->rows > 0)
        oq_buf_addf(text, ", the same top-1 in %llu of %llu row%s", (unsigned long long)v->same,
                    (unsigned long long)v->rows, v->rows == 1 ? "" : "s");
    oq_buf_addf(text, ", %s\n", meaning[grade]);
}

void oq_quant_tell_verified(const oq_quant *r) {
    oq_buf *text = &r->job->text;
    tell_share(r);
    tell_json(r);
    if (!oq_quant_is_telling(r))
        return;
    tell_figure(r);
    for (size_t i = 0; step_at(r, i) != NULL; i++) {
        oq_buf_adds(text, i == 0 ? "next: " : "  or: ");
        step_at(r, i)->add(r, text);
        oq_buf_addf(text, " (%s)\n", step_at(r, i)->why);
    }
}
