/*
 * api_kvcache.c — `onq kvcache`: the caches of a decoder in 8 or 4 bits, with scales from samples.
 *
 * One pass over the samples finds how large keys and values become. Every fourth sequence is kept
 * apart: scales of the others are judged on it, with the cache carried from step to step, and the
 * model that is written has scales of all.
 */
#include "api/bench/bench_compare.h"
#include "api/options/command.h"
#include "api/options/shared_rows.h"
#include "api/quantizing/for_runtime.h"
#include "api/samples.h"
#include "base/text/number_text.h"
#include "onnx/check/check.h"
#include "quantize/cache/kv_cache.h"
#include "quantize/ort/stamp.h"
#include "samples/grade.h"

#include <math.h>

/* Of so many sequences one judges: the second, the sixth ... */
#define JUDGES_OF 4
#define JUDGE     1
#define MANY      2048 /* tokens that the summary counts memory for */

/* clang-format off */
#define BITS(ROW) ROW("8", 8) ROW("4", 4)
/* clang-format on */

static const onq_option_info rows[] = {
    /* Own sense: integers of 8 or 4 bits are all that the operator has. */
    OQ_ENUM("bits", 0, "", "8", OQ_CHOICES(BITS), "N",
            "Bits of a key or value: 8, or 4, which the operator stores two in a byte."),
    /* Own sense: of caches, not of weights. */
    OQ_BOOL("per_channel", 0, "", "true",
            "Give each channel of each head its own scale; else a cache has one."),
    OQ_PATH("scales", 0, "", "FILE",
            "Also write the scales as a JSON file, for the builder of onnxruntime-genai "
            "(kv_cache_scale_file)."),
};
static const oq_opt_group own = OQ_GROUP("Cache", rows);

typedef struct run {
    oq_job *job;
    oq_model *model;
    oq_engine *engine;
    oq_kv_caches caches;
    oq_kv_how how;
    uint64_t sequences, judging;
    oq_bench bench; /* float, and with its cache in integers */
    oq_bench_contender sides[2];
    oq_runtime_fitted fitted;
    uint64_t size_before, size_after;
} run;

/* ---- seeing ---- */

static onq_code see(void *ctx, const oq_turn *t, onq_error *err) {
    run *r = ctx;
    const uint64_t sequence = t->samples[0].sequence;
    const unsigned part = sequence % JUDGES_OF == JUDGE;
    if (t->samples[0].step == 0) {
        r->sequences++;
        r->judging += part;
    }
    return oq_kv_see(&r->caches, part, t->outputs[0].v, err);
}

static bool has_few_bits(const oq_graph *g) {
    for (size_t i = 0; i < g->node.n; i++)
        if (oq_str_is(g->node.v[i]->op_type, "MatMulNBits"))
            return true;
    return false;
}

/* As the model will run; but a large one is loaded three times, and its float weights are not
 * copied for that. Those of few bits are: without, the runtime would unpack them in every run. */
static onq_code open_session(run *r, oq_model *m, oq_session **out, onq_error *err) {
    oq_session_options o;
    OQ_TRY(oq_job_session(r->job, &o, err));
    o.model = m;
    o.level = OQ_OPT_ALL;
    uint64_t bytes = 0;
    OQ_TRY(oq_model_size(m, &bytes, err));
    o.no_turning = bytes > OQ_LARGE_MODEL;
    o.no_packing = o.no_turning && !has_few_bits(m->proto->graph);
    return oq_session_open(r->engine, &o, out, err);
}

static onq_code see_all(run *r, onq_error *err) {
    oq_source *source = NULL;
    oq_session *session = NULL;
    const oq_walker *walker = NULL;
    onq_code rc = oq_job_raw_source(r->job, r->model, &source, &walker, err);
    if (rc == ONQ_OK)
        rc = open_session(r, r->model, &session, err);
    const oq_sweep sweep = {
        .env = r->job->env,
        .model = {.source = source, .session = session, .path = r->model->path, .walker = walker},
        .ctx = r,
        .take = see,
        .what = "calibrate"};
    if (rc == ONQ_OK)
        rc = oq_sweep_run(&sweep, err);
    if (rc == ONQ_OK && r->sequences == 0)
        rc = oq_fail(err, ONQ_E_INVALID, "there are no samples");
    oq_session_close(session);
    oq_source_close(source);
    return rc;
}

/* ---- judging ---- */

static onq_code open_side(run *r, size_t i, onq_error *err) {
    oq_bench_contender *c = &r->sides[i];
    oq_source_options o;
    OQ_TRY(oq_job_open(r->job, r->model->path, &c->model, err));
    if (i == 1) {
        oq_kv_how how = r->how;
        how.first_part = r->judging > 0;
        OQ_TRY(oq_kv_write(c->model, &r->caches, &how, err));
    }
    c->path = r->model->path;
    OQ_TRY(oq_job_source_options(r->job, c->model, &o, err));
    if (r->judging > 0) {
        o.share = JUDGE;
        o.n_shares = JUDGES_OF;
    }
    OQ_TRY(oq_job_open_raw_source(r->job, &o, &c->source, &c->walker, err));
    return open_session(r, c->model, &c->session, err);
}

static onq_code judge(run *r, onq_error *err) {
    assert(r->engine != NULL && r->sides[0].session == NULL);
    r->bench = (oq_bench){.job = r->job, .engine = r->engine, .v = r->sides, .n = 2};
    for (size_t i = 0; i < 2; i++)
        OQ_TRY_IN(open_side(r, i, err), err, i == 0 ? "the model" : "the model with this cache");
    if (r->sides[0].walker != NULL)
        r->bench.roles = r->sides[0].walker->roles;
    else
        OQ_TRY(oq_roles_find(&r->job->arena, &r->sides[0].session->inputs,
                             &r->sides[0].session->outputs, &r->bench.roles, err));
    return oq_bench_compare(&r->bench, err);
}

static void close_sides(run *r) {
    for (size_t i = 0; i < 2; i++) {
        oq_bench_contender *c = &r->sides[i];
        oq_bench_compare_close(c);
        oq_session_close(c->session);
        oq_source_close(c->source);
        oq_model_free(c->model);
        *c = (oq_bench_contender){0};
    }
}

/* The noise of the worst answer, in dB; NAN where there is none. */
static double worst_sqnr(const run *r) {
    double worst = (double)NAN;
    const oq_tally *t = &r->sides[1].tally;
    for (size_t k = 0; k < t->n_outputs; k++)
        if (!r->bench.roles.states[k] && t->outputs[k].n > 0 && !t->outputs[k].differs)
            worst = fmin(worst, oq_agree_sqnr(&t->outputs[k]));
    return worst;
}

/* ---- telling ---- */

static void tell_memory(run *r) {
    oq_job *job = r->job;
    char a[32], b[32], c[32], d[32];
    const uint64_t before = oq_kv_bytes(&r->caches, 0),
                   after = oq_kv_bytes(&r->caches, r->how.bits);
    oq_buf_addf(&job->text, "%zu caches of %u bits, %s: %s -> %s a token, %s -> %s for %d tokens\n",
                r->caches.n, r->how.bits,
                r->how.per_channel ? "a scale for each channel"
                                   : "one scale for keys and one for "
                                     "values",
                oq_size_text(a, before), oq_size_text(b, after), oq_size_text(c, before * MANY),
                oq_size_text(d, after * MANY), MANY);
    oq_jw_uint(&job->json, "caches", r->caches.n);
    oq_jw_uint(&job->json, "bits", r->how.bits);
    oq_jw_bool(&job->json, "per_channel", r->how.per_channel);
    oq_jw_uint(&job->json, "token_bytes_before", before);
    oq_jw_uint(&job->json, "token_bytes_after", after);
}

static void tell_judged(run *r) {
    oq_job *job = r->job;
    const oq_lm_score *s = &r->sides[1].tally.text[OQ_FREE];
    oq_grade grade;
    const bool speaks = r->bench.roles.language.is && oq_grade_of_text(s, &grade);
    const uint64_t n = r->judging > 0 ? r->judging : r->sequences;
    oq_buf_addf(&job->text, "on %llu sequence%s %s: ", (unsigned long long)n, OQ_NOUN_S(n),
                r->judging > 0 ? "that made none of these scales"
                               : "that also made the scales (more would judge better)");
    oq_jw_begin_object(&job->json, "judged");
    oq_jw_uint(&job->json, "sequences", n);
    oq_jw_bool(&job->json, "held_out", r->judging > 0);
    oq_jw_real(&job->json, "sqnr", worst_sqnr(r));
    if (speaks) {
        oq_buf_addf(&job->text, "KL %.2g, the same first token in %.1f %%", oq_lm_kl(s),
                    100 * oq_lm_top1(s));
        oq_jw_real(&job->json, "kl", oq_lm_kl(s));
        oq_jw_real(&job->json, "top1", oq_lm_top1(s));
        oq_jw_cstr(&job->json, "verdict", oq_grade_text(grade));
    } else {
        oq_buf_addf(&job->text, "%.1f dB", worst_sqnr(r));
    }
    if (speaks && s->predictions > 0) {
        oq_buf_addf(&job->text, ", perplexity %.4g -> %.4g (%+.2f %%)", oq_lm_perplexity_float(s),
                    oq_lm_perplexity(s), oq_lm_perplexity_rise(s));
        oq_jw_real(&job->json, "perplexity_before", oq_lm_perplexity_float(s));
        oq_jw_real(&job->json, "perplexity", oq_lm_perplexity(s));
        oq_jw_real(&job->json, "perplexity_rise", oq_lm_perplexity_rise(s));
    }
    if (speaks)
        oq_buf_addf(&job->text, ", %s", oq_grade_text(grade));
    oq_buf_adds(&job->text, "\n");
    oq_jw_end_object(&job->json);
    if (speaks && grade < OQ_GRADE_GOOD)
        oq_warn(job->env, "a KL divergence of %.2g changes what the model says%s", oq_lm_kl(s),
                r->how.bits == 4 ? " (--bits 8 loses less)" : "");
}

/* ---- the job ---- */

/* Two values in a byte halve the last dimension. */
static onq_code check_sizes(const run *r, onq_error *err) {
    for (size_t i = 0; i < r->caches.n && r->how.bits == 4; i++) {
        const oq_kv_layer *l = &r->caches.v[i];
        if (l->size % 2 != 0 || l->measured)
            return oq_fail(err, ONQ_E_UNSUPPORTED,
                           "node '%.*s' (GroupQueryAttention): no cache of 4 bits, two in a byte: "
                           "%s (--bits 8 changes no dimension)",
                           OQ_STR(l->node),
                           l->measured ? "a Shape reads the dimensions of this one"
                                       : "the number of channels is odd");
    }
    return ONQ_OK;
}

static onq_code save(run *r, onq_error *err) {
    oq_job *job = r->job;
    const onq_options *o = job->opts;
    OQ_SCRATCH_BUF(text, &job->env->alloc);
    OQ_TRY(oq_kv_scales_text(&r->caches, &r->how, &text, err));
    OQ_TRY(oq_kv_write(r->model, &r->caches, &r->how, err));
    OQ_TRY(oq_for_runtime_fit(job, r->model, &r->fitted, err));
    OQ_TRY(oq_result_check(r->model, err));
    if (oq_opt_str(o, "output") != NULL) {
        const oq_save_options so = {.external = oq_opt_flag(o, "use_external_data_format")
                                                    ? OQ_EXTERNAL_ONE
                                                    : OQ_EXTERNAL_KEEP,
                                    .threshold = OQ_STAMP_APART(1024),
                                    .attributes = true};
        OQ_TRY(oq_job_save(job, "output", r->model, &so, &r->size_after, err));
        oq_jw_cstr(&job->json, "output", oq_opt_str(o, "output"));
        oq_for_runtime_tell(job, &r->fitted);
    }
    if (oq_opt_str(o, "scales") == NULL)
        return ONQ_OK;
    OQ_TRY(oq_job_save_text(job, "scales", &text, err));
    oq_buf_addf(&job->text, "scales of %zu layers in %s\n", r->caches.n, oq_opt_str(o, "scales"));
    oq_jw_cstr(&job->json, "scales", oq_opt_str(o, "scales"));
    return ONQ_OK;
}

static onq_code run_steps(run *r, onq_error *err) {
    const oq_runtime *runtime = NULL;
    OQ_TRY(oq_for_runtime_read(r->job, &runtime, err));
    OQ_TRY(oq_job_open(r->job, oq_job_input(r->job), &r->model, err));
    OQ_TRY(oq_model_check(r->model, err));
    OQ_TRY(oq_kv_find(r->model, &r->job->arena, &r->caches, err));
    OQ_TRY(check_sizes(r, err)); /* as far as it is known without samples */
    OQ_TRY(oq_job_engine(r->job, &r->engine, err));
    OQ_TRY(see_all(r, err));
    OQ_TRY(check_sizes(r, err));
    OQ_TRY(judge(r, err));
    tell_memory(r);
    tell_judged(r);
    close_sides(r);
    return save(r, err);
}

static onq_code run_kvcache(oq_job *job, onq_error *err) {
    run r = {.job = job,
             .how = {.bits = OQ_CHOSEN(job->opts, "bits", unsigned, BITS),
                     .per_channel = oq_opt_flag(job->opts, "per_channel")}};
    onq_code rc = run_steps(&r, err);
    if (r.model != NULL)
        rc = oq_job_blame(job, rc, err);
    close_sides(&r);
    oq_engine_close(r.engine);
    oq_model_free(r.model);
    return rc;
}

const oq_command oq_command_kvcache = {
    .info = {"kvcache", "", "store the cache of a decoder in 8 or 4 bits",
             "The keys and values that a decoder keeps of earlier tokens (GroupQueryAttention with "
             "past and present as inputs and outputs) become integers; nothing else is changed, so "
             "the model may be float or quantized by another command. Samples give the scales: "
             "texts, which the model runs through with its cache. A quarter of them judges the "
             "result. The caller of the model begins with an empty cache of the new type."},
    .required = "input output|scales data",
    .groups = {&own, &oq_group_input, &oq_group_output, &oq_group_data, &oq_group_runtime,
               &oq_group_general, &oq_group_verify_idle},
    .run = run_kvcache,
};
