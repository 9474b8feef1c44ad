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
#include "samples/agreement.h"
#include "tune/judge/meaning.h"

/* Largest models that are verified unasked. After a calibration the quantized model takes less
 * memory than the float one just did; else a runtime must be opened and the float model run for the
 * look alone, which samples are worth more than inputs that are made up. */
#define MAX_CALIBRATED ((uint64_t)1 << 30)
#define MAX_SAMPLES    ((uint64_t)256 << 20)
#define MAX_OTHER      OQ_MAX_UNASKED

/* A float model that nobody asked to run is not run for longer: a Loop may have no end. */
#define MAX_SECONDS 5

#define LEFT_TOLD 3 /* nodes that get a line of their own */

typedef struct look {
    oq_quant *q;
    oq_session_options session;
    oq_model_proto *source; /* the model before it was quantized */
    oq_verdict plain;       /* on that */
} look;

static bool is_asked(const oq_quant *q) {
    return oq_opt_flag(q->job->opts, "verify") || q->targets.n > 0;
}

/* ---- whether to look, and at what ---- */

static bool is_declined(const oq_quant *q) {
    const onq_options *o = q->job->opts;
    return oq_opt_flag(o, "no_verify") || oq_opt_flag(o, "dry_run") ||
           (oq_opt_is_set(o, "verify") && !is_asked(q));
}

/* Opens the samples of the job; NULL when there are none. */
static onq_code open_samples(oq_quant *q, oq_source **out, onq_error *err) {
    oq_source_options o = {.model = q->model};
    onq_error why = ONQ_ERROR_INIT;
    *out = NULL;
    if (!oq_opt_has(q->job->opts, "data"))
        return ONQ_OK;
    OQ_TRY(oq_job_source_options(q->job, q->model, &o, err));
    if (o.limit == 0 || o.limit > q->record.most)
        o.limit = q->record.most;
    const onq_code rc = oq_job_open_source(q->job, &o, out, &why);
    if (rc == ONQ_OK)
        return rc;
    *out = NULL;
    /* Samples for this alone are an error when they are not there; those of a calibration that was
     * not needed are not. */
    if (rc != ONQ_E_NOMEM && (q->fixed_ranges || !oq_opt_is_set(q->job->opts, "data")))
        return ONQ_OK;
    return oq_error_give(err, rc, &why);
}

/* The largest model that is looked at. */
static onq_code find_most(oq_quant *q, uint64_t *most, onq_error *err) {
    const onq_options *o = q->job->opts;
    oq_source *samples = NULL;
    *most = UINT64_MAX;
    if (is_asked(q) || (oq_opt_is_set(o, "check") && oq_opt_int(o, "check") > 0))
        return ONQ_OK;
    *most = MAX_CALIBRATED;
    if (q->record.runs.n > 0 || (oq_opt_has(o, "data") && oq_opt_is_set(o, "data")))
        return ONQ_OK;
    *most = MAX_OTHER;
    if (q->size_before <= MAX_OTHER || q->size_before > MAX_SAMPLES)
        return ONQ_OK;
    const onq_code rc = open_samples(q, &samples, err);
    if (samples != NULL)
        *most = MAX_SAMPLES;
    oq_source_close(samples);
    return rc;
}

static onq_code find_swelling(oq_quant *q, onq_error *err) {
    bool swells = false;
    OQ_TRY(oq_model_swells(q->model, &swells, err));
    if (swells)
        q->verified.skipped =
            "it makes a tensor of more than 256 MiB (--verify loads and runs it anyway)";
    return ONQ_OK;
}

static onq_code find_why_not(oq_quant *q, onq_error *err) {
    const char **why = &q->verified.skipped;
    uint64_t most = 0;
    bool changed = q->changed, is_long = false;
    for (size_t i = 0; i < q->plan.nodes.n; i++)
        changed |= q->plan.nodes.v[i].fate != OQ_FATE_FLOAT;
    *why = NULL;
    if (is_declined(q)) {
        *why = "--no_verify";
    } else if (!is_asked(q) && !changed) {
        *why = "nothing was quantized";
        return oq_job_check_sound(q->job, &q->engine, q->model, err);
    } else {
        OQ_TRY(find_most(q, &most, err));
        OQ_TRY(oq_graph_is_long(q->model, &is_long, err));
        if (q->size_before > most)
            *why = "the model is large (--verify loads and runs it anyway)";
        else if (most != UINT64_MAX && is_long)
            *why =
                "its graph is large, and the runtime slow to load it (--verify loads and runs it "
                "anyway)";
        else if (most == MAX_OTHER)
            OQ_TRY(find_swelling(q, err));
    }
    return ONQ_OK;
}

/* An engine, quietly unless it was asked for. */
static onq_code find_engine(oq_quant *q, onq_error *err) {
    onq_error why = ONQ_ERROR_INIT;
    if (q->engine != NULL)
        return ONQ_OK;
    const onq_code rc = oq_job_engine(q->job, &q->engine, &why);
    if (rc == ONQ_OK)
        return rc;
    if (is_asked(q) || rc == ONQ_E_NOMEM) {
        oq_error_give(err, rc, &why);
        return is_asked(q) ? oq_error_in(err, rc, q->targets.n > 0 ? "--target" : "--verify") : rc;
    }
    q->verified.skipped = "there is no ONNX Runtime";
    oq_log(q->job->env, ONQ_LOG_DEBUG, "%s", why.text);
    return ONQ_OK;
}

/* Does something with the model as it was before it was quantized. */
static onq_code with_source(look *l, onq_code (*fn)(look *l, onq_error *err), onq_error *err) {
    oq_model_proto *const result = l->q->model->proto;
    l->q->model->proto = l->source;
    const onq_code rc = fn(l, err);
    l->q->model->proto = result;
    return rc;
}

/* Inputs that are made up are as large as the model says; unknown sizes are 1. */
static onq_code check_made_up(oq_quant *q, onq_error *err) {
    oq_ios in;
    uint64_t sum = 0;
    OQ_TRY(oq_model_inputs(q->model, &q->job->arena, &in, err));
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
static onq_code open_any(oq_quant *q, oq_source **out, onq_error *err) {
    oq_source_options o = {.model = q->model, .spec = "random:1"};
    OQ_TRY(open_samples(q, out, err));
    if (*out != NULL)
        return ONQ_OK;
    q->record.generated = true;
    OQ_TRY(check_made_up(q, err));
    OQ_TRY(oq_job_steps_options(q->job, false, &o, err)); /* states are not made up */
    return oq_source_open(q->job->env, &o, out, err);
}

static onq_code run_float(look *l, oq_source *source, unsigned most_seconds, onq_error *err) {
    oq_session_options so = l->session;
    so.most_seconds = most_seconds;
    so.no_packing = so.no_turning = l->q->size_before > OQ_LARGE_MODEL;
    return oq_verify_record(l->q->engine, &so, source, &l->q->record, err);
}

/* Runs the float model on samples. That it does not run says nothing of the result: then the
 * result is loaded and not run. */
static onq_code make_record(look *l, onq_error *err) {
    oq_quant *q = l->q;
    const bool has_data = oq_opt_has(q->job->opts, "data") && oq_opt_is_set(q->job->opts, "data");
    oq_source *source = NULL;
    onq_error why = ONQ_ERROR_INIT;
    OQ_TRY(oq_progress(q->job->env, "verifying", 0, 0, err));
    onq_code rc = open_any(q, &source, &why);
    const bool silent = oq_env_silence(q->job->env, true);
    if (rc == ONQ_OK)
        rc = run_float(l, source, is_asked(q) || has_data ? 0 : MAX_SECONDS, &why);
    oq_env_silence(q->job->env, silent);
    oq_source_close(source);
    if (rc == ONQ_E_NOMEM || rc == ONQ_E_CANCEL || (rc != ONQ_OK && !q->fixed_ranges && has_data))
        return oq_error_give(err, rc, &why);
    if (rc != ONQ_OK)
        oq_info(q->job->env, "the result will be loaded, not run: %s", why.text);
    return ONQ_OK;
}

static onq_code prepare_session(look *l, onq_error *err) {
    oq_quant *q = l->q;
    OQ_TRY(oq_job_session(q->job, &l->session, err));
    l->session.model = q->model;
    l->session.n_threads = OQ_THREADS_RUNTIME;
    l->session.level = OQ_OPT_ALL;
    l->session.no_spinning = true;
    l->session.no_memory_reuse = true; /* a few runs have little to reuse */
    return ONQ_OK;
}

/* Finds whether float's first output holds scores of classes, and for images how sure float is of
 * them: with wrong preprocessing it seldom is. */
static onq_code find_classes(look *l, onq_error *err) {
    oq_quant *q = l->q;
    oq_meaning meaning;
    double sum = 0;
    uint64_t rows = 0;
    OQ_TRY(oq_meaning_find(q->model, q->record.roles, &q->job->arena, &meaning, err));
    const bool classes = meaning.why != NULL && meaning.classes == 0;
    for (size_t i = 0; i < q->record.runs.n && classes; i++) {
        const oq_record_run *run = &q->record.runs.v[i];
        const oq_datum *out = run->n_outputs > 0 ? &run->outputs[0] : NULL;
        if (out == NULL || out->kind != OQ_DATUM_TENSOR || !oq_dtype_is_float(out->dtype) ||
            out->rank == 0 || out->rank > 3 || out->dims[out->rank - 1] < 2)
            return ONQ_OK;
        if (out->rank <= 2 && run->n_inputs > 0 && run->inputs[0].rank == 4)
            oq_confidence_add(out, &sum, &rows);
    }
    q->record.classes = classes;
    if (rows > 0 && !q->record.generated)
        q->verified.confidence = sum / (double)rows;
    return ONQ_OK;
}

/* How sessions are opened, and what float gives out. */
static onq_code prepare_runs(look *l, onq_error *err) {
    OQ_TRY(prepare_session(l, err));
    if (l->q->record.runs.n == 0)
        OQ_TRY(with_source(l, make_record, err));
    return with_source(l, find_classes, err);
}

onq_code oq_quant_keep_float(oq_quant *q, onq_error *err) {
    assert(q->model != NULL);
    look l = {.q = q};
    oq_source *source = NULL;
    onq_error why = ONQ_ERROR_INIT;
    if (is_declined(q) || q->record.runs.n > 0 || (!is_asked(q) && q->size_before > MAX_CALIBRATED))
        return ONQ_OK;
    OQ_TRY(find_engine(q, err));
    if (q->engine == NULL)
        return ONQ_OK;
    OQ_TRY(prepare_session(&l, err));
    OQ_TRY(open_samples(q, &source, err));
    if (source == NULL)
        return ONQ_OK;
    const bool silent = oq_env_silence(q->job->env, true);
    const onq_code rc = run_float(&l, source, 0, &why);
    oq_env_silence(q->job->env, silent);
    oq_source_close(source);
    if (rc == ONQ_E_NOMEM || rc == ONQ_E_CANCEL)
        return oq_error_give(err, rc, &why);
    return ONQ_OK; /* whatever else is wrong, the calibration will meet it */
}

/* Decides whether to look, and has ready what that takes. */
static onq_code prepare(look *l, onq_error *err) {
    oq_quant *q = l->q;
    OQ_TRY(find_why_not(q, err));
    if (q->verified.skipped == NULL)
        OQ_TRY(find_engine(q, err));
    return q->verified.skipped != NULL ? ONQ_OK : prepare_runs(l, err);
}

/* ---- the look ---- */

static onq_code verify(look *l, oq_verdict *v, onq_error *err) {
    return oq_verify(l->q->engine, &l->session, &l->q->record, v, err);
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
    if (!has_odd_types(&l->q->plan))
        return ONQ_OK;
    l->session.level = OQ_OPT_NONE;
    const onq_code rc = verify(l, v, err);
    l->session.level = OQ_OPT_ALL;
    OQ_TRY(rc);
    *good = v->end == OQ_VERIFY_GOOD;
    if (*good)
        oq_warn(l->q->job->env,
                "the result loads and runs only with graph optimisation off, for the types of its "
                "activations: %.300s",
                oq_words_of(l->q->model, &first.why));
    else
        *v = first;
    return ONQ_OK;
}

static onq_code attempt(void *ctx, const oq_mend_nodes *left, oq_verdict *v, oq_graph **result,
                        onq_error *err) {
    look *l = ctx;
    oq_quant *q = l->q;
    oq_map_init(&q->run.unsound, &q->job->arena);
    for (size_t i = 0; i < left->n; i++)
        OQ_TRY_ALLOC(oq_map_put(&q->run.unsound, left->v[i]->output.v[0], 0), err);
    q->model->proto = oq_message_clone(&q->model->arena, OQ_SCHEMA_model_proto, l->source);
    OQ_TRY_ALLOC(q->model->proto != NULL, err);
    oq_plan_init(&q->plan, &q->job->arena);
    const bool silent = oq_env_silence(q->job->env, true);
    onq_code rc = q->quantize(q->ctx, err);
    if (rc == ONQ_OK)
        rc = oq_for_runtime_fit(q->job, q->model, &q->fitted, err);
    if (rc == ONQ_OK)
        rc = oq_job_name_apart(q->job, q->model, err);
    if (rc == ONQ_OK)
        rc = oq_result_check(q->model, err);
    if (rc == ONQ_OK)
        rc = verify(l, v, err);
    oq_env_silence(q->job->env, silent);
    *result = q->model->proto->graph;
    return rc;
}

static bool can_leave(void *ctx, const oq_node *n) {
    const look *l = ctx;
    oq_qrun without = l->q->run;
    oq_map_init(&without.unsound, &l->q->job->arena);
    return n->output.n > 0 && n->output.v[0].n > 0 &&
           oq_qrun_skip(&without, n, l->q->modes) == NULL;
}

static void tell_left(const oq_quant *q, const oq_verdict *first) {
    const oq_mend_nodes *left = &q->verified.left;
    for (size_t i = 0; i < left->n && i < LEFT_TOLD; i++)
        oq_warn(q->job->env, "node '%.*s' (%.*s) stays float: quantized, the model %s: %.300s",
                OQ_STR(oq_node_label(left->v[i])), OQ_STR(left->v[i]->op_type),
                oq_verify_text(first->end), oq_words_of(q->model, &first->why));
    if (left->n > LEFT_TOLD)
        oq_warn(q->job->env,
                "%zu more nodes stay float for the same reason (--plan FILE names them)",
                left->n - LEFT_TOLD);
}

static onq_code mend(look *l, oq_verdict *v, onq_error *err) {
    oq_quant *q = l->q;
    oq_mend m = {.arena = &q->job->arena,
                 .source = l->source->graph,
                 .can_leave = can_leave,
                 .attempt = attempt,
                 .ctx = l};
    const oq_verdict first = *v;
    OQ_TRY(oq_mend_run(&m, v, q->model->proto->graph, err));
    if (v->end != OQ_VERIFY_GOOD)
        return ONQ_OK;
    q->verified.left = m.left;
    tell_left(q, &first);
    return ONQ_OK;
}

static onq_code refuse(const oq_quant *q, const oq_verdict *v, onq_error *err) {
    return oq_fail(
        err, ONQ_E_RUNTIME,
        "the result %s: %.400s (nothing is written; --nodes_to_exclude leaves nodes float, "
        "--no_verify writes it anyway)",
        oq_verify_text(v->end), oq_words_of(q->model, &v->why));
}

/* What can be done about a result that is not good. */
static onq_code judge(look *l, oq_verdict *v, onq_error *err) {
    oq_quant *q = l->q;
    bool good = false;
    if (v->end == OQ_VERIFY_NOT_FINITE && q->record.generated) {
        oq_warn(q->job->env, "%s, on inputs that were made up (try it on your own with onq run)",
                v->why.text);
        return ONQ_OK;
    }
    OQ_TRY(verify_odd(l, v, &good, err));
    if (good)
        return ONQ_OK;
    OQ_TRY(with_source(l, verify_float, err));
    if (l->plain.end == OQ_VERIFY_NOT_LOADED && oq_engine_calls_invalid(&l->plain.why))
        return oq_refuse_unsound(q->model, &l->plain.why, err);
    if (l->plain.end != OQ_VERIFY_GOOD) {
        oq_warn(q->job->env,
                "the float model %s with the runtime's optimisations, so the result was not "
                "judged: %.300s",
                oq_verify_text(l->plain.end), oq_words_of(q->model, &l->plain.why));
        return ONQ_OK;
    }
    if (q->modes != 0)
        OQ_TRY(mend(l, v, err));
    return v->end == OQ_VERIFY_GOOD ? ONQ_OK : refuse(q, v, err);
}

/* The look itself, and what follows from it. */
static onq_code look_at(look *l, onq_error *err) {
    oq_quant *q = l->q;
    oq_verified *d = &q->verified;
    const double began = oq_seconds();
    OQ_TRY(prepare(l, err));
    if (d->skipped != NULL) {
        oq_info(q->job->env, "the result was not run: %s", d->skipped);
        return ONQ_OK;
    }
    OQ_TRY(verify(l, &d->verdict, err));
    OQ_TRY(oq_progress(q->job->env, "verifying", 0, 0, err)); /* a stop while it ran counts now */
    if (d->verdict.end != OQ_VERIFY_GOOD)
        OQ_TRY(judge(l, &d->verdict, err));
    d->loaded = d->verdict.end != OQ_VERIFY_NOT_LOADED;
    d->seconds = oq_seconds() - began;
    oq_info(q->job->env, "verified in %.3f s: the result %s", d->seconds,
            d->verdict.end != OQ_VERIFY_GOOD ? oq_verify_text(d->verdict.end)
            : d->verdict.ran                 ? "loads and runs"
                                             : "loads");
    if (oq_quant_is_poor(q))
        oq_quant_advise(q);
    return ONQ_OK;
}

onq_code oq_quant_make(oq_quant *q, onq_error *err) {
    assert(q->model != NULL && q->quantize != NULL);
    look l = {.q = q};
    l.source = oq_message_clone(&q->job->arena, OQ_SCHEMA_model_proto, q->model->proto);
    OQ_TRY_ALLOC(l.source != NULL, err);
    OQ_TRY(q->quantize(q->ctx, err));
    if (!oq_opt_flag(q->job->opts, "dry_run")) {
        OQ_TRY(oq_for_runtime_fit(q->job, q->model, &q->fitted, err));
        q->changed |= oq_runtime_fit_changed(&q->fitted);
        OQ_TRY(oq_job_name_apart(q->job, q->model, err)); /* nodes that stayed */
        OQ_TRY(oq_result_check(q->model, err));
        OQ_TRY(look_at(&l, err));
        oq_for_runtime_tell(q->job, &q->fitted);
    }
    OQ_TRY(oq_quant_find_share(q, l.source, err));
    if (!q->keep_record)
        oq_record_release(&q->record); /* memory for what follows */
    return ONQ_OK;
}
