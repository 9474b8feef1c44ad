/*
 * quant_verify.c — quantize, then look at the result as its users will: in the runtime, with its
 * default options, on a few samples. quant_judge.c says what the look found.
 *
 * The samples are the first of the calibration, whose float outputs were kept. Without a
 * calibration the float model is run too, on the first samples of --data or on inputs that are made
 * up. Only the graph is kept of the float model, its weights are shared.
 */
#include "api/quantizing/quantization.h"
#include "api/quantizing/sound.h"
#include "api/samples.h"
#include "engine/ort.h"
#include "onnx/codec/schema.h"
#include "quantize/number/qtype.h"
#include "quantize/ort/stamp.h"

#include <stdio.h>

/* Largest models that are verified unasked. After a calibration the quantized model takes less
 * memory than the float one just did; else a runtime must be opened and the float model run for the
 * look alone, which samples are worth more than inputs that are made up. */
#define MOST_CALIBRATED ((uint64_t)1 << 30)
#define MOST_SAMPLES    ((uint64_t)256 << 20)
#define MOST_OTHER      OQ_MOST_UNASKED

/* A float model that nobody asked to run is not run for longer: a Loop may have no end. */
#define MOST_SECONDS 5

#define LEFT_TOLD 3 /* nodes that get a line of their own */

typedef struct look {
    oq_quant *r;
    oq_session_options session;
    oq_model_proto *source; /* the model before it was quantized */
    oq_verdict plain;       /* on that */
} look;

static bool is_asked(const oq_quant *r) {
    return oq_opt_flag(r->job->opts, "verify");
}

/* Messages of what is tried are not the user's. */
typedef struct hush {
    onq_env *env;
    void (*log_fn)(void *ctx, onq_log_level level, const char *text);
} hush;

static hush hush_begin(onq_env *env) {
    const hush h = {env, env->log_fn};
    env->log_fn = NULL;
    return h;
}

static void hush_end(hush h) {
    h.env->log_fn = h.log_fn;
}

/* ---- whether to look, and at what ---- */

static bool is_declined(const oq_quant *r) {
    const onq_options *o = r->job->opts;
    return oq_opt_flag(o, "no_verify") || oq_opt_flag(o, "dry_run") ||
           (oq_opt_is_set(o, "verify") && !is_asked(r));
}

/* Opens the samples of the job; NULL when there are none. */
static onq_code open_samples(oq_quant *r, oq_source **out, onq_error *err) {
    oq_source_options o = {.model = r->model};
    onq_error why = ONQ_ERROR_INIT;
    *out = NULL;
    if (!oq_opt_has(r->job->opts, "data"))
        return ONQ_OK;
    OQ_TRY(oq_job_source_options(r->job, r->model, &o, err));
    if (o.limit == 0 || o.limit > r->record.most)
        o.limit = r->record.most;
    const onq_code rc = oq_job_open_source(r->job, &o, out, &why);
    if (rc == ONQ_OK)
        return rc;
    *out = NULL;
    /* Samples for this alone are an error when they are not there; those of a calibration that was
     * not needed are not. */
    if (rc != ONQ_E_NOMEM && (r->fixed_ranges || !oq_opt_is_set(r->job->opts, "data")))
        return ONQ_OK;
    if (err != NULL)
        *err = why;
    return rc;
}

/* The largest model that is looked at. */
static onq_code find_most(oq_quant *r, uint64_t *most, onq_error *err) {
    const onq_options *o = r->job->opts;
    oq_source *samples = NULL;
    *most = UINT64_MAX;
    if (is_asked(r) || (oq_opt_is_set(o, "check") && oq_opt_int(o, "check") > 0))
        return ONQ_OK;
    *most = MOST_CALIBRATED;
    if (r->record.runs.n > 0 || (oq_opt_has(o, "data") && oq_opt_is_set(o, "data")))
        return ONQ_OK;
    *most = MOST_OTHER;
    if (r->size_before <= MOST_OTHER || r->size_before > MOST_SAMPLES)
        return ONQ_OK;
    const onq_code rc = open_samples(r, &samples, err);
    if (samples != NULL)
        *most = MOST_SAMPLES;
    oq_source_close(samples);
    return rc;
}

static onq_code find_swelling(oq_quant *r, onq_error *err) {
    bool swells = false;
    OQ_TRY(oq_model_swells(r->model, &swells, err));
    if (swells)
        r->verified.skipped =
            "it makes a tensor of more than 256 MiB (--verify loads and runs it anyway)";
    return ONQ_OK;
}

static onq_code find_why_not(oq_quant *r, onq_error *err) {
    const char **why = &r->verified.skipped;
    uint64_t most = 0;
    bool changed = false, is_long = false;
    for (size_t i = 0; i < r->plan.nodes.n; i++)
        changed |= r->plan.nodes.v[i].fate != OQ_FATE_FLOAT;
    *why = NULL;
    if (is_declined(r)) {
        *why = "--no_verify";
    } else if (!is_asked(r) && !changed) {
        *why = "nothing was quantized";
        return oq_job_check_sound(r->job, &r->engine, r->model, err);
    } else {
        OQ_TRY(find_most(r, &most, err));
        OQ_TRY(oq_graph_is_long(r->model, &is_long, err));
        if (r->size_before > most)
            *why = "the model is large (--verify loads and runs it anyway)";
        else if (most != UINT64_MAX && is_long)
            *why =
                "its graph is large, and the runtime slow to load it (--verify loads and runs it "
                "anyway)";
        else if (most == MOST_OTHER)
            OQ_TRY(find_swelling(r, err));
    }
    return ONQ_OK;
}

/* An engine, quietly unless it was asked for. */
static onq_code find_engine(oq_quant *r, onq_error *err) {
    onq_error why = ONQ_ERROR_INIT;
    if (r->engine != NULL)
        return ONQ_OK;
    const onq_code rc = oq_job_engine(r->job, &r->engine, &why);
    if (rc == ONQ_OK)
        return rc;
    if (is_asked(r) || rc == ONQ_E_NOMEM) {
        *err = why;
        return is_asked(r) ? oq_error_in(err, rc, "--verify") : rc;
    }
    r->verified.skipped = "there is no ONNX Runtime";
    oq_log(r->job->env, ONQ_LOG_DEBUG, "%s", why.text);
    return ONQ_OK;
}

/* Does something with the model as it was before it was quantized. */
static onq_code with_source(look *l, onq_code (*fn)(look *l, onq_error *err), onq_error *err) {
    oq_model_proto *const result = l->r->model->proto;
    l->r->model->proto = l->source;
    const onq_code rc = fn(l, err);
    l->r->model->proto = result;
    return rc;
}

/* Inputs that are made up are as large as the model says; unknown sizes are 1. */
static onq_code check_made_up(oq_quant *r, onq_error *err) {
    oq_ios in;
    uint64_t sum = 0;
    OQ_TRY(oq_model_inputs(r->model, &r->job->arena, &in, err));
    for (size_t i = 0; i < in.n; i++) {
        uint64_t n = 1, bytes = 0;
        bool fits = true;
        for (size_t k = 0; k < in.v[i].rank; k++)
            if (in.v[i].dims[k].value >= 0)
                fits = fits && oq_mul(n, (uint64_t)in.v[i].dims[k].value, &n);
        if (oq_dtype_find((int64_t)in.v[i].dtype) != NULL && in.v[i].dtype != OQ_STRING)
            fits = fits && oq_dtype_bytes(in.v[i].dtype, n, &bytes);
        if (!fits || !oq_add(sum, bytes, &sum) || sum > OQ_MAX_RECORD || n > OQ_MAX_RECORD)
            return oq_fail(err, ONQ_E_LIMIT, "its inputs are large");
    }
    return ONQ_OK;
}

/* The first samples of --data, or one that is made up. */
static onq_code open_any(oq_quant *r, oq_source **out, onq_error *err) {
    oq_source_options o = {.model = r->model, .spec = "random:1"};
    OQ_TRY(open_samples(r, out, err));
    if (*out != NULL)
        return ONQ_OK;
    r->record.generated = true;
    OQ_TRY(check_made_up(r, err));
    return oq_source_open(r->job->env, &o, out, err);
}

static onq_code run_float(look *l, oq_source *source, unsigned most_seconds, onq_error *err) {
    oq_record *record = &l->r->record;
    oq_session_options so = l->session;
    oq_session *s = NULL;
    so.most_seconds = most_seconds;
    OQ_TRY(oq_session_open(l->r->engine, &so, &s, err));
    onq_code rc = ONQ_OK;
    for (size_t k = 0; rc == ONQ_OK && oq_record_wants(record, k); k++) {
        const oq_sample *sample = NULL;
        oq_outputs out = {0};
        rc = oq_source_next(source, &sample, err);
        if (rc != ONQ_OK || sample == NULL)
            break;
        rc = oq_session_run(s, sample->inputs, sample->n_inputs, &out, err);
        if (rc == ONQ_OK)
            rc = oq_record_keep(record, sample->inputs, sample->n_inputs, out.v, out.n, err);
    }
    oq_session_close(s);
    return rc;
}

/* Runs the float model on samples. That it does not run says nothing of the result: then the
 * result is loaded and not run. */
static onq_code make_record(look *l, onq_error *err) {
    oq_quant *r = l->r;
    const bool has_data = oq_opt_has(r->job->opts, "data") && oq_opt_is_set(r->job->opts, "data");
    oq_source *source = NULL;
    onq_error why = ONQ_ERROR_INIT;
    OQ_TRY(oq_progress(r->job->env, "verifying", 0, 0, err));
    onq_code rc = open_any(r, &source, &why);
    const hush h = hush_begin(r->job->env);
    if (rc == ONQ_OK)
        rc = run_float(l, source, is_asked(r) || has_data ? 0 : MOST_SECONDS, &why);
    hush_end(h);
    oq_source_close(source);
    if (rc == ONQ_E_NOMEM || rc == ONQ_E_CANCEL || (rc != ONQ_OK && !r->fixed_ranges && has_data)) {
        *err = why;
        return rc;
    }
    if (rc != ONQ_OK)
        oq_info(r->job->env, "the result will be loaded, not run: %s", why.text);
    return ONQ_OK;
}

static onq_code prepare_session(look *l, onq_error *err) {
    oq_quant *r = l->r;
    OQ_TRY(oq_job_session(r->job, &l->session, err));
    l->session.model = r->model;
    l->session.n_threads = OQ_THREADS_RUNTIME;
    l->session.level = OQ_OPT_ALL;
    l->session.no_spinning = true;
    l->session.no_memory_reuse = true; /* a few runs have little to reuse */
    return ONQ_OK;
}

/* How sessions are opened, and what float gives out. */
static onq_code prepare_runs(look *l, onq_error *err) {
    OQ_TRY(prepare_session(l, err));
    return l->r->record.runs.n > 0 ? ONQ_OK : with_source(l, make_record, err);
}

onq_code oq_quant_keep_truth(oq_quant *r, onq_error *err) {
    look l = {.r = r};
    oq_source *source = NULL;
    onq_error why = ONQ_ERROR_INIT;
    if (is_declined(r) || r->record.runs.n > 0 ||
        (!is_asked(r) && r->size_before > MOST_CALIBRATED))
        return ONQ_OK;
    OQ_TRY(find_engine(r, err));
    if (r->engine == NULL)
        return ONQ_OK;
    OQ_TRY(prepare_session(&l, err));
    OQ_TRY(open_samples(r, &source, err));
    if (source == NULL)
        return ONQ_OK;
    const hush h = hush_begin(r->job->env);
    const onq_code rc = run_float(&l, source, 0, &why);
    hush_end(h);
    oq_source_close(source);
    if (rc == ONQ_E_NOMEM || rc == ONQ_E_CANCEL)
        *err = why;
    /* Whatever else is wrong, the calibration will meet it. */
    return rc == ONQ_E_NOMEM || rc == ONQ_E_CANCEL ? rc : ONQ_OK;
}

/* Decides whether to look, and has ready what that takes. */
static onq_code prepare(look *l, onq_error *err) {
    oq_quant *r = l->r;
    OQ_TRY(find_why_not(r, err));
    if (r->verified.skipped == NULL)
        OQ_TRY(find_engine(r, err));
    return r->verified.skipped != NULL ? ONQ_OK : prepare_runs(l, err);
}

/* ---- the look ---- */

static onq_code verify(look *l, oq_verdict *v, onq_error *err) {
    return oq_verify(l->r->engine, &l->session, &l->r->record, v, err);
}

/* The float model with the runtime's optimisations: a calibration has run it without. */
static onq_code verify_float(look *l, onq_error *err) {
    return verify(l, &l->plain, err);
}

/* Types that the runtime has few kernels for: users who ask for them have another target in
 * mind. */
static bool has_odd_types(const oq_plan *p) {
    for (size_t i = 0; i < p->tensors.n; i++) {
        const oq_plan_tensor *t = &p->tensors.v[i];
        if (t->role == OQ_ROLE_ACTIVATION && t->scale != NULL &&
            (oq_qtype_is_4bit(t->type) || t->type == OQ_FLOAT8E4M3FN))
            return true;
    }
    return false;
}

/* Such a model is good if it loads without optimisation; *good says so. */
static onq_code verify_odd(look *l, oq_verdict *v, bool *good, onq_error *err) {
    const oq_verdict first = *v;
    *good = false;
    if (!has_odd_types(&l->r->plan))
        return ONQ_OK;
    l->session.level = OQ_OPT_NONE;
    const onq_code rc = verify(l, v, err);
    l->session.level = OQ_OPT_ALL;
    OQ_TRY(rc);
    *good = v->end == OQ_VERIFY_GOOD;
    if (*good)
        oq_warn(l->r->job->env,
                "the result loads and runs only with graph optimisation off, for the types of its "
                "activations: %.300s",
                oq_words_of(l->r->model, &first.why));
    else
        *v = first;
    return ONQ_OK;
}

static onq_code attempt(void *ctx, const oq_mend_nodes *left, oq_verdict *v, oq_graph **result,
                        onq_error *err) {
    look *l = ctx;
    oq_quant *r = l->r;
    oq_map_init(&r->config.unsound, &r->job->arena);
    for (size_t i = 0; i < left->n; i++)
        if (!oq_map_put(&r->config.unsound, left->v[i]->output.v[0], 0))
            return oq_fail_nomem(err);
    r->model->proto = oq_message_clone(&r->model->arena, OQ_SCHEMA_model_proto, l->source);
    if (r->model->proto == NULL)
        return oq_fail_nomem(err);
    oq_plan_init(&r->plan, &r->job->arena);
    const hush h = hush_begin(r->job->env);
    onq_code rc = r->quantize(r->ctx, err);
    if (rc == ONQ_OK)
        rc = oq_result_check(r->model, err);
    if (rc == ONQ_OK)
        rc = verify(l, v, err);
    hush_end(h);
    *result = r->model->proto->graph;
    return rc;
}

static bool can_leave(void *ctx, const oq_node *n) {
    const look *l = ctx;
    oq_qconfig without = l->r->config;
    oq_map_init(&without.unsound, &l->r->job->arena);
    return n->output.n > 0 && n->output.v[0].n > 0 &&
           oq_qconfig_skip(&without, n, l->r->modes) == NULL;
}

static void tell_left(const oq_quant *r, const oq_verdict *first) {
    const oq_mend_nodes *left = &r->verified.left;
    for (size_t i = 0; i < left->n && i < LEFT_TOLD; i++)
        oq_warn(r->job->env, "node '%.*s' (%.*s) stays float: quantized, the model %s: %.300s",
                OQ_STR(oq_node_label(left->v[i])), OQ_STR(left->v[i]->op_type),
                oq_verify_text(first->end), oq_words_of(r->model, &first->why));
    if (left->n > LEFT_TOLD)
        oq_warn(r->job->env,
                "%zu more nodes stay float for the same reason (--plan FILE names them)",
                left->n - LEFT_TOLD);
}

static onq_code mend(look *l, oq_verdict *v, onq_error *err) {
    oq_quant *r = l->r;
    oq_mend m = {.arena = &r->job->arena,
                 .source = l->source->graph,
                 .can_leave = can_leave,
                 .attempt = attempt,
                 .ctx = l};
    const oq_verdict first = *v;
    OQ_TRY(oq_mend_run(&m, v, r->model->proto->graph, err));
    if (v->end != OQ_VERIFY_GOOD)
        return ONQ_OK;
    r->verified.left = m.left;
    tell_left(r, &first);
    return ONQ_OK;
}

static onq_code refuse(const oq_quant *r, const oq_verdict *v, onq_error *err) {
    return oq_fail(
        err, ONQ_E_RUNTIME,
        "the result %s: %.400s (nothing is written; --nodes_to_exclude leaves nodes float, "
        "--no_verify writes it anyway)",
        oq_verify_text(v->end), oq_words_of(r->model, &v->why));
}

/* What can be done about a result that is not good. */
static onq_code judge(look *l, oq_verdict *v, onq_error *err) {
    oq_quant *r = l->r;
    bool good = false;
    if (v->end == OQ_VERIFY_NOT_FINITE && r->record.generated) {
        oq_warn(r->job->env, "%s, on inputs that were made up (try it on your own with onq run)",
                v->why.text);
        return ONQ_OK;
    }
    OQ_TRY(verify_odd(l, v, &good, err));
    if (good)
        return ONQ_OK;
    OQ_TRY(with_source(l, verify_float, err));
    if (l->plain.end == OQ_VERIFY_NOT_LOADED && oq_engine_calls_invalid(&l->plain.why))
        return oq_refuse_unsound(r->model, &l->plain.why, err);
    if (l->plain.end != OQ_VERIFY_GOOD) {
        oq_warn(r->job->env,
                "the float model %s with the runtime's optimisations, so the result was not "
                "judged: %.300s",
                oq_verify_text(l->plain.end), oq_words_of(r->model, &l->plain.why));
        return ONQ_OK;
    }
    if (r->modes != 0)
        OQ_TRY(mend(l, v, err));
    return v->end == OQ_VERIFY_GOOD ? ONQ_OK : refuse(r, v, err);
}

/* The look itself, and what follows from it. */
static onq_code look_at(look *l, onq_error *err) {
    oq_quant *r = l->r;
    oq_verified *d = &r->verified;
    const double began = oq_seconds();
    OQ_TRY(prepare(l, err));
    if (d->skipped != NULL) {
        oq_info(r->job->env, "the result was not run: %s", d->skipped);
        return ONQ_OK;
    }
    OQ_TRY(verify(l, &d->verdict, err));
    OQ_TRY(oq_progress(r->job->env, "verifying", 0, 0, err)); /* a stop while it ran counts now */
    if (d->verdict.end != OQ_VERIFY_GOOD)
        OQ_TRY(judge(l, &d->verdict, err));
    d->loaded = d->verdict.end != OQ_VERIFY_NOT_LOADED;
    d->seconds = oq_seconds() - began;
    oq_info(r->job->env, "verified in %.3f s: the result %s", d->seconds,
            d->verdict.end != OQ_VERIFY_GOOD ? oq_verify_text(d->verdict.end)
            : d->verdict.ran                 ? "loads and runs"
                                             : "loads");
    if (oq_quant_is_poor(r))
        oq_quant_advise(r);
    return ONQ_OK;
}

onq_code oq_quant_make(oq_quant *r, onq_error *err) {
    look l = {.r = r};
    l.source = oq_message_clone(&r->job->arena, OQ_SCHEMA_model_proto, r->model->proto);
    if (l.source == NULL)
        return oq_fail_nomem(err);
    OQ_TRY(r->quantize(r->ctx, err));
    if (!oq_opt_flag(r->job->opts, "dry_run")) {
        OQ_TRY(oq_result_check(r->model, err));
        OQ_TRY(look_at(&l, err));
    }
    OQ_TRY(oq_quant_find_share(r, l.source, err));
    oq_record_release(&r->record); /* memory for what follows */
    return ONQ_OK;
}

onq_code oq_quant_try(oq_quant *r, oq_verdict *v, onq_error *err) {
    look l = {.r = r, .source = r->model->proto};
    const oq_plan plan = r->plan;
    if (r->engine == NULL)
        OQ_TRY(oq_job_engine(r->job, &r->engine, err));
    OQ_TRY(prepare_runs(&l, err));
    r->model->proto = oq_message_clone(&r->job->arena, OQ_SCHEMA_model_proto, l.source);
    oq_plan_init(&r->plan, &r->job->arena);
    const hush h = hush_begin(r->job->env);
    onq_code rc = r->model->proto != NULL ? r->quantize(r->ctx, err) : oq_fail_nomem(err);
    if (rc == ONQ_OK)
        rc = verify(&l, v, err);
    hush_end(h);
    r->model->proto = l.source;
    r->plan = plan;
    return rc;
}
