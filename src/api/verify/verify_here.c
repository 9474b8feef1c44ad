/*
 * verify_here.c — one model in one runtime: it is loaded and run with the runtime's optimisations and
 * without, and its outputs are compared with each other and with float's. Where it is not good,
 * rewritten forms of it are tried, so that advice has been followed once before it is given.
 */
#include "api/verify/verify_here.h"

#include "api/quantizing/sound.h"
#include "api/samples.h"
#include "debug/verify.h"
#include "engine/ort.h"
#include "onnx/codec/schema.h"
#include "onnx/graph.h"
#include "onnx/operators.h"
#include "quantize/convert/convert.h"
#include "quantize/convert/runtime_fit.h"

#define MAX_RUNS 64 /* samples that are compared */
/* Optimised outputs that are so few dB from others, or so many farther from float than those, are
 * something else. A fused 8-bit product differs by 40 dB and more, but noise grows in deep models: a
 * poor one says little without float beside it. */
#define WRONG 10.0
/* So near to each other that it does not matter which of them is nearer to float. */
#define NEAR 30.0

typedef struct here {
    oq_job *job;
    oq_engine *engine;
    oq_model *model, *flt; /* flt: the float model, or NULL */
    oq_session_options how;
    onq_runtime_info info;
    oq_record
        inputs; /* samples with outputs of the float model, else of the model without optimisation */
    oq_record plain;       /* outputs of the model without optimisation */
    oq_verdict bare, best; /* without and with optimisations, against the float model or `plain` */
    oq_verdict same;       /* with against without */
    bool compared;         /* `same` was found */
    onq_error float_why;   /* why there is no float model */
} here;

/* ---- samples ---- */

/* Those of --data; without it those beside the model, or some that are made up. */
static onq_code open_source(here *h, oq_model *m, oq_source **out, onq_error *err) {
    oq_job *job = h->job;
    oq_source_options o = {0};
    onq_error why = ONQ_ERROR_INIT;
    OQ_TRY(oq_job_source_options(job, m, &o, err));
    const onq_code rc = oq_job_open_source(job, &o, out, &why);
    if (rc == ONQ_OK)
        return rc;
    if (rc == ONQ_E_NOMEM || oq_opt_is_set(job->opts, "data"))
        return oq_error_give(err, rc, &why);
    o = (oq_source_options){.model = m, .spec = "random:4"};
    h->inputs.generated = true;
    OQ_TRY(oq_job_dims(job, &o.dims, &o.n_dims, err));
    OQ_TRY(oq_job_steps_options(job, false, &o, err));
    return oq_source_open(job->env, &o, out, err);
}

static onq_code make_record(here *h, oq_model *m, onq_error *err) {
    oq_session_options how = h->how;
    oq_source *source = NULL;
    how.model = m;
    how.level = OQ_OPT_NONE;
    if (m == h->flt) {
        uint64_t bytes = 0;
        OQ_TRY(oq_model_size(m, &bytes, err));
        how.no_packing = how.no_turning = bytes > OQ_LARGE_MODEL;
    }
    OQ_TRY(open_source(h, m, &source, err));
    const onq_code rc = oq_verify_record(h->engine, &how, source, &h->inputs, err);
    oq_source_close(source);
    return rc;
}

/* The model without optimisation, on the inputs of the float model. */
static onq_code make_plain(here *h, onq_error *err) {
    oq_session_options how = h->how;
    oq_session *s = NULL;
    onq_code rc = ONQ_OK;
    how.level = OQ_OPT_NONE;
    OQ_TRY(oq_session_open(h->engine, &how, &s, err));
    for (size_t i = 0; i < h->inputs.runs.n && rc == ONQ_OK; i++) {
        const oq_record_run *r = &h->inputs.runs.v[i];
        oq_outputs out = {0};
        if (r->n_inputs != s->inputs.n)
            rc = oq_fail(err, ONQ_E_RUNTIME, "it has other inputs than the float model");
        if (rc == ONQ_OK)
            rc = oq_session_run(s, r->inputs, r->n_inputs, &out, err);
        if (rc == ONQ_OK)
            rc = oq_record_keep(&h->plain, r->inputs, r->n_inputs, out.v, out.n, err);
    }
    oq_session_close(s);
    return rc;
}

/* ---- the look ---- */

static onq_code verify(here *h, oq_opt_level level, const oq_record *r, oq_verdict *v,
                       onq_error *err) {
    h->how.level = level;
    return oq_verify(h->engine, &h->how, r, v, err);
}

/* What the runtime says of the model is a verdict, anything else an error. */
static onq_code take(onq_code rc, oq_verdict *v, oq_verify_end end, const onq_error *why,
                     onq_error *err) {
    if (rc != ONQ_E_RUNTIME)
        return rc == ONQ_OK ? rc : oq_error_give(err, rc, why);
    v->end = end;
    v->why = *why;
    return ONQ_OK;
}

static onq_code find_float(here *h, onq_error *err) {
    onq_error why = ONQ_ERROR_INIT;
    onq_code rc = ONQ_OK;
    if (h->flt != NULL)
        rc = make_record(h, h->flt, &why);
    if (rc == ONQ_E_RUNTIME) {
        h->float_why = why;
        h->flt = NULL;
        rc = ONQ_OK;
    }
    if (rc != ONQ_OK)
        return oq_error_give(err, rc, &why);
    if (h->flt == NULL)
        return take(make_record(h, h->model, &why), &h->bare, OQ_VERIFY_NOT_RUN, &why, err);
    return take(make_plain(h, &why), &h->bare, OQ_VERIFY_NOT_RUN, &why, err);
}

static onq_code look(here *h, onq_error *err) {
    OQ_TRY(verify(h, OQ_OPT_NONE, NULL, &h->bare, err));
    OQ_TRY(verify(h, OQ_OPT_ALL, NULL, &h->best, err));
    if (h->bare.end != OQ_VERIFY_GOOD)
        return ONQ_OK;
    OQ_TRY(find_float(h, err));
    if (h->bare.end != OQ_VERIFY_GOOD)
        return ONQ_OK;
    if (h->flt != NULL)
        OQ_TRY(verify(h, OQ_OPT_NONE, &h->inputs, &h->bare, err));
    if (h->best.end != OQ_VERIFY_GOOD)
        return ONQ_OK;
    OQ_TRY(verify(h, OQ_OPT_ALL, h->flt != NULL ? &h->plain : &h->inputs, &h->same, err));
    h->compared = h->same.measured;
    if (h->flt != NULL)
        return verify(h, OQ_OPT_ALL, &h->inputs, &h->best, err);
    h->best = h->same;
    return ONQ_OK;
}

/* Why the model is not good in this runtime, into `text`; NULL: it is. */
static const char *fault(const here *h, oq_arena *a) {
    const oq_verdict *v = h->bare.end != OQ_VERIFY_GOOD ? &h->bare : &h->best;
    const bool farther = h->best.measured && h->bare.measured && h->same.sqnr < NEAR &&
                         h->best.sqnr < h->bare.sqnr - WRONG;
    const bool wrong = h->flt != NULL ? farther : h->same.sqnr < WRONG;
    if (v->end != OQ_VERIFY_GOOD && v == &h->best && h->bare.end == OQ_VERIFY_GOOD)
        return oq_str_format(a, "with the runtime's optimisations it %s: %s",
                             oq_verify_text(v->end), oq_words_of(h->model, &v->why))
            .p;
    if (v->end != OQ_VERIFY_GOOD)
        return oq_str_format(a, "it %s: %s", oq_verify_text(v->end), oq_words_of(h->model, &v->why))
            .p;
    if (h->compared && wrong)
        return oq_str_format(a,
                             "with the runtime's optimisations its outputs are %.1f dB from those "
                             "without them",
                             h->same.sqnr)
            .p;
    return NULL;
}

/* ---- what helps ---- */

#define ALL_NODES  SIZE_MAX
#define MAX_LOOKED 32 /* nodes that are tried alone */

typedef struct remedy {
    const char *to; /* of `onq convert`, or NULL */
    oq_convert_to form;
    oq_str type; /* nodes of this operator stay float; empty: none */
    size_t only; /* the place of the one that does, or ALL_NODES */
} remedy;

static const remedy remedies[] = {{.form = OQ_TO_QDQ},
                                  {.to = "nbits", .form = OQ_TO_NBITS},
                                  {.to = "qdq", .form = OQ_TO_QDQ},
                                  {.to = "qoperator", .form = OQ_TO_QOPERATOR}};
static const remedy all_float = {.to = "float", .form = OQ_TO_FLOAT};

/* What was quantized for input `k` of a node, before it was; NULL if it was not. */
static const oq_str *before_pair(const oq_index *ix, const oq_node *n, size_t k) {
    const oq_node *dq = oq_index_producer(ix, n->input.v[k]);
    const oq_node *q = dq != NULL && oq_node_is_dequantize(dq) && dq->input.n > 0
                           ? oq_index_producer(ix, dq->input.v[0])
                           : NULL;
    return q != NULL && oq_node_is_quantize(q) && q->input.n > 0 ? &q->input.v[0] : NULL;
}

/* Without a pair before them nodes are computed in float. Returns how many were changed. */
static size_t leave_float(oq_arena *a, oq_graph *g, const remedy *r) {
    size_t n_changed = 0;
    oq_index ix;
    if (oq_index_build(&ix, a, g, NULL, NULL) != ONQ_OK)
        return 0;
    for (size_t i = 0; i < g->node.n; i++) {
        oq_node *n = g->node.v[i];
        bool changed = false;
        if (!oq_str_eq(n->op_type, r->type) || (r->only != ALL_NODES && r->only != i))
            continue;
        for (size_t k = 0; k < n->input.n; k++) {
            const oq_str *x = before_pair(&ix, n, k);
            changed = changed || x != NULL;
            if (x != NULL)
                n->input.v[k] = *x;
        }
        n_changed += changed;
    }
    return n_changed;
}

/* Rewrites the model of `h`, which is a clone; false: that cannot be done. */
static bool rewrite(here *h, const remedy *r, const oq_runtime *runtime,
                    oq_runtime_fitted *fitted) {
    onq_error why = ONQ_ERROR_INIT;
    oq_plan plan;
    oq_plan_init(&plan, &h->job->arena);
    oq_convert_job job = {.model = h->model, .to = r->form, .plan = &plan};
    onq_code rc = r->to != NULL ? oq_convert_run(&job, &why) : ONQ_OK;
    if (rc == ONQ_OK && r->to != NULL && job.n_operators + job.n_pairs + job.n_weights == 0)
        return false;
    if (rc == ONQ_OK && r->type.n > 0 &&
        leave_float(&h->job->arena, h->model->proto->graph, r) == 0)
        return false;
    if (rc == ONQ_OK && runtime != NULL)
        rc = oq_runtime_fit(h->model, runtime, fitted, &why);
    return rc == ONQ_OK &&
           (r->to != NULL || r->type.n > 0 || (runtime != NULL && oq_runtime_fit_changed(fitted)));
}

/* How much is kept of runs of the model. */
static onq_code fit_records(here *h, onq_error *err) {
    uint64_t bytes = 0;
    OQ_TRY(oq_model_size(h->model, &bytes, err));
    oq_record_fit(&h->inputs, bytes);
    oq_record_fit(&h->plain, bytes);
    return ONQ_OK;
}

/* A model with another graph, looked at as the first was. */
static onq_code try_remedy(const here *from, const remedy *r, const oq_runtime *runtime,
                           oq_runtime_fitted *fitted, bool *good, onq_error *err) {
    here h = *from;
    oq_model_proto *const as_given = h.model->proto;
    *good = false;
    h.model->proto = oq_message_clone(&h.job->arena, OQ_SCHEMA_model_proto, as_given);
    onq_code rc = h.model->proto != NULL ? ONQ_OK : oq_fail_nomem(err);
    if (rc == ONQ_OK && rewrite(&h, r, runtime, fitted)) {
        oq_record_init(&h.inputs, &h.job->env->alloc, MAX_RUNS);
        oq_record_init(&h.plain, &h.job->env->alloc, MAX_RUNS);
        h.compared = false;
        rc = fit_records(&h, err);
        if (rc == ONQ_OK)
            rc = look(&h, err);
        /* Nor is it farther from float than the model is without optimisations: a CPU whose sums
         * saturate does so in every form that has integers. */
        const bool far = from->bare.measured && h.best.measured && h.flt != NULL &&
                         h.best.sqnr < from->bare.sqnr - WRONG;
        *good = rc == ONQ_OK && !far && fault(&h, &h.job->arena) == NULL;
        oq_record_release(&h.inputs);
        oq_record_release(&h.plain);
    }
    h.model->proto = as_given;
    return rc;
}

/* The nodes that stay float: as a sentence, or as the option that leaves them so. */
static void add_nodes(const here *h, const remedy *r, bool option, oq_buf *out) {
    const oq_graph *g = h->model->proto->graph;
    size_t n = 0;
    oq_buf_adds(out, option ? " --nodes_to_exclude" : "left float: ");
    for (size_t i = 0; i < g->node.n; i++) {
        const oq_node *node = g->node.v[i];
        if (!oq_str_eq(node->op_type, r->type) || (r->only != ALL_NODES && r->only != i))
            continue;
        if (option)
            oq_buf_addc(out, ' ');
        if (option)
            oq_buf_add_word(out, oq_node_label(node));
        else if (n++ < 3)
            oq_buf_addf(out, "node '%.*s' (%.*s), ", OQ_STR(oq_node_label(node)),
                        OQ_STR(node->op_type));
    }
    if (n > 3)
        oq_buf_addf(out, "and %zu more, ", n - 3);
}

static void say_remedy(const here *h, const remedy *r, const oq_runtime *runtime,
                       const oq_runtime_fitted *f, oq_jw *w) {
    const char *input = oq_job_input(h->job), *flt = oq_opt_str(h->job->opts, "float_model");
    OQ_SCRATCH_BUF(text, &h->job->env->alloc);
    if (f->opset != f->opset_was)
        oq_buf_addf(&text, "opset %lld instead of %lld, ", (long long)f->opset,
                    (long long)f->opset_was);
    if (f->ir != f->ir_was)
        oq_buf_addf(&text, "IR %lld instead of %lld, ", (long long)f->ir, (long long)f->ir_was);
    if (f->form != NULL || r->to != NULL)
        oq_buf_addf(&text, "the form %s, ", f->form != NULL ? f->form : r->to);
    if (r->type.n > 0)
        add_nodes(h, r, false, &text);
    oq_jw_str(w, "helps", (oq_str){text.p, text.n >= 2 ? text.n - 2 : 0});
    text.n = 0;
    oq_buf_addf(&text, "onq %s -i ", r->type.n > 0 ? "static" : "convert");
    oq_buf_add_word(&text, oq_str_of(r->type.n == 0 ? input : flt != NULL ? flt : "FLOAT.onnx"));
    oq_buf_adds(&text, " -o OUT.onnx");
    if (r->to != NULL)
        oq_buf_addf(&text, " --to %s", r->to);
    if (r->type.n > 0)
        add_nodes(h, r, true, &text);
    if (runtime != NULL)
        oq_buf_addf(&text, " --for_runtime 1.%u", runtime->minor);
    oq_jw_str(w, "command", (oq_str){text.p, text.n});
}

/* Tries a remedy and, if it is one, says so. */
static onq_code try_and_say(here *h, const remedy *r, oq_jw *w, bool *good, onq_error *err) {
    const oq_runtime *runtime = oq_runtime_find(h->info.version);
    oq_runtime_fitted fitted = {0};
    OQ_TRY(try_remedy(h, r, runtime, &fitted, good, err));
    if (*good && w != NULL)
        say_remedy(h, r, runtime, &fitted, w);
    return ONQ_OK;
}

/* All nodes of an operator help: does one of them alone? */
static onq_code narrow(here *h, const remedy *all, oq_jw *w, onq_error *err) {
    const oq_graph *g = h->model->proto->graph;
    size_t looked = 0;
    bool good = false;
    for (size_t i = 0; i < g->node.n && !good && looked < MAX_LOOKED; i++)
        if (oq_str_eq(g->node.v[i]->op_type, all->type)) {
            const remedy one = {.form = all->form, .type = all->type, .only = i};
            looked++;
            OQ_TRY(try_and_say(h, &one, w, &good, err));
        }
    return good ? ONQ_OK : try_and_say(h, all, w, &good, err);
}

/* The first operator whose nodes may not be quantized there. */
static onq_code find_nodes(here *h, oq_jw *w, bool *good, onq_error *err) {
    const oq_graph *g = h->model->proto->graph;
    for (size_t i = 0; i < g->node.n && !*good; i++) {
        const remedy r = {.form = OQ_TO_QDQ, .type = g->node.v[i]->op_type, .only = ALL_NODES};
        bool seen = oq_node_is_quantize(g->node.v[i]) || oq_node_is_dequantize(g->node.v[i]);
        for (size_t k = 0; k < i && !seen; k++)
            seen = oq_str_eq(g->node.v[k]->op_type, r.type);
        if (seen)
            continue;
        OQ_TRY(try_and_say(h, &r, NULL, good, err));
        if (*good)
            return narrow(h, &r, w, err);
    }
    return ONQ_OK;
}

static onq_code find_remedy(here *h, oq_jw *w, onq_error *err) {
    const bool silent = oq_env_silence(h->job->env, true);
    onq_code rc = ONQ_OK;
    bool good = false;
    for (size_t i = 0; i < OQ_COUNT(remedies) && rc == ONQ_OK && !good; i++)
        rc = try_and_say(h, &remedies[i], w, &good, err);
    if (rc == ONQ_OK && !good)
        rc = find_nodes(h, w, &good, err);
    if (rc == ONQ_OK && !good)
        rc = try_and_say(h, &all_float, w, &good, err);
    oq_env_silence(h->job->env, silent);
    return rc;
}

/* ---- the answer ---- */

static void write_figures(const here *h, oq_jw *w) {
    oq_jw_uint(w, "samples", h->inputs.runs.n);
    oq_jw_bool(w, "generated", h->inputs.generated);
    if (h->flt != NULL && h->best.measured)
        oq_jw_real(w, "sqnr", h->best.sqnr);
    if (h->flt != NULL && h->bare.measured)
        oq_jw_real(w, "sqnr_unoptimised", h->bare.sqnr);
    if (h->flt != NULL && h->best.rows > 0)
        oq_jw_real(w, "top1_agreement", (double)h->best.same / (double)h->best.rows);
    if (h->compared)
        oq_jw_real(w, "optimised_sqnr", h->same.sqnr);
    if (h->best.ran) {
        oq_jw_real(w, "milliseconds", h->best.seconds * 1e3);
        if (h->bare.ran)
            oq_jw_real(w, "milliseconds_unoptimised", h->bare.seconds * 1e3);
    }
    if (h->float_why.text[0] != '\0')
        oq_jw_cstr(w, "float_model", h->float_why.text);
}

static onq_code answer(here *h, oq_jw *w, onq_error *err) {
    const char *why = fault(h, &h->job->arena);
    oq_jw_begin_object(w, NULL);
    oq_jw_cstr(w, "runtime", h->info.path);
    oq_jw_cstr(w, "version", h->info.version);
    oq_jw_cstr(w, "machine", oq_library_here());
    oq_jw_bool(w, "good", why == NULL);
    oq_jw_bool(w, "loads", h->best.end != OQ_VERIFY_NOT_LOADED);
    oq_jw_bool(w, "loads_unoptimised", h->bare.end != OQ_VERIFY_NOT_LOADED);
    oq_jw_bool(w, "runs", h->best.ran);
    write_figures(h, w);
    if (why != NULL) {
        oq_jw_cstr(w, "why", why);
        OQ_TRY(find_remedy(h, w, err));
    }
    oq_jw_end_object(w);
    return ONQ_OK;
}

static onq_code run(here *h, const char *library, oq_jw *w, onq_error *err) {
    oq_job *job = h->job;
    const char *flt = oq_opt_str(job->opts, "float_model");
    OQ_TRY(oq_ort_query(job->env, library, &h->info, err));
    OQ_TRY(oq_ort_open(job->env, library, &h->engine, err));
    OQ_TRY(oq_job_open_sound(job, oq_job_input(job), &h->model, err));
    OQ_TRY(fit_records(h, err));
    if (flt != NULL)
        OQ_TRY(oq_job_open(job, flt, &h->flt, err));
    OQ_TRY(oq_job_session(job, &h->how, err));
    h->how.model = h->model;
    oq_model *const opened = h->flt;
    onq_code rc = look(h, err);
    if (rc == ONQ_OK)
        rc = answer(h, w, err);
    oq_model_free(opened);
    h->flt = NULL;
    return rc;
}

onq_code oq_verify_here(oq_job *job, const char *library, oq_jw *w, onq_error *err) {
    here h = {.job = job, .float_why = ONQ_ERROR_INIT};
    oq_record_init(&h.inputs, &job->env->alloc, MAX_RUNS);
    oq_record_init(&h.plain, &job->env->alloc, MAX_RUNS);
    const onq_code rc = run(&h, library, w, err);
    oq_record_release(&h.inputs);
    oq_record_release(&h.plain);
    oq_model_free(h.model);
    oq_engine_close(h.engine);
    return rc;
}
