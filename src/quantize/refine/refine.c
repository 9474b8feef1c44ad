/*
 * refine.c — see refine.h.
 */
#include "quantize/refine/refine.h"

#include "engine/slice/stepper.h"
#include "engine/sweep.h"
#include "quantize/refine/gain.h"
#include "quantize/refine/learn.h"
#include "quantize/refine/means.h"

#define MEMORY_PART 8 /* of the memory for activations, that means may take for later runs */
#define INPUT_BYTES ((uint64_t)512 << 20) /* of what is made of layers' inputs at once */

typedef struct refiner {
    oq_refine_job *job;
    oq_arena arena;
    oq_arena scratch; /* of one tensor */
    oq_layers layers;
    oq_gain gain;
    oq_means *flt;      /* by product of the float model */
    oq_means quantized; /* of the layer that is looked at */
    size_t layer, sample;
    oq_stepper *stepper;
    oq_stepper *floats; /* the float model beside it; NULL: not needed */
    oq_pool *pool;
    oq_linear linear;
    oq_learn_how how;
    bool *aims;     /* by layer: it is rounded when it is stepped to */
    oq_learn learn; /* of the layer that is looked at */
} refiner;

/* ---- the float model ---- */

static void begin_scratch(refiner *r) {
    oq_arena_release(&r->scratch);
    oq_arena_init(&r->scratch, &r->job->model->env->alloc);
}

static onq_code seen_float(void *ctx, size_t index, const oq_datum *d, onq_error *err) {
    refiner *r = ctx;
    begin_scratch(r);
    return oq_means_add(&r->flt[index], r->layers.products.v[index].last_axis, r->sample, d,
                        &r->scratch, err);
}

static onq_code run_sample(void *ctx, const oq_turn *t, onq_error *err) {
    ((refiner *)ctx)->sample = t->at;
    return oq_turn_run(t, err);
}

static onq_code keep_outputs(void *ctx, const oq_turn *t, onq_error *err) {
    return oq_gain_keep(&((refiner *)ctx)->gain, &t->outputs[0], err);
}

static onq_code run_float(refiner *r, oq_session *session, bool keeps, onq_error *err) {
    const oq_sweep sweep = {.env = r->job->model->env,
                            .model = {.source = r->job->source, .session = session},
                            .ctx = r,
                            .run = run_sample,
                            .take = keeps ? keep_outputs : NULL,
                            .what = "refining layers, float"};
    return oq_sweep_run(&sweep, err);
}

static onq_code open_float(refiner *r, const oq_observer *observer, oq_session **out,
                           onq_error *err) {
    oq_session_options o = r->job->session;
    o.model = r->job->model;
    o.n_threads = OQ_THREADS_RUNTIME;
    o.level = OQ_OPT_ALL;
    o.no_spinning = true;
    o.observer = observer;
    return oq_session_open(r->job->engine, &o, out, err);
}

/* One pass of the float model with an observer. */
static onq_code pass_float(refiner *r, const oq_observer *observer, bool keeps, onq_error *err) {
    oq_session *session = NULL;
    oq_model_proto *const quantized = r->job->model->proto;
    r->job->model->proto = r->job->flt; /* as long as the session is open */
    onq_code rc = open_float(r, observer, &session, err);
    if (rc == ONQ_OK)
        rc = run_float(r, session, keeps, err);
    oq_session_close(session);
    r->job->model->proto = quantized;
    return rc;
}

/* The numbers of the samples in memory. */
static onq_code list_numbers(refiner *r, size_t n, const uint64_t **out, onq_error *err) {
    uint64_t *numbers = OQ_NEW_ARRAY(&r->arena, uint64_t, n + 1);
    OQ_TRY_ALLOC(numbers != NULL, err);
    for (size_t i = 0; i < n; i++)
        numbers[i] = r->job->numbers != NULL ? r->job->numbers[i] : i;
    *out = numbers;
    return ONQ_OK;
}

static onq_code measure_float(refiner *r, onq_error *err) {
    const size_t n = r->layers.products.n, n_samples = oq_source_count(r->job->source);
    oq_mean_memory *memory = r->job->means;
    const uint64_t *numbers = NULL;
    oq_str *names = OQ_NEW_ARRAY(&r->arena, oq_str, n + 1);
    r->flt = OQ_NEW_ARRAY(&r->arena, oq_means, n + 1);
    OQ_TRY_ALLOC(names != NULL && r->flt != NULL, err);
    for (size_t i = 0; i < n; i++) {
        names[i] = r->layers.products.v[i].name;
        OQ_TRY(
            oq_means_init(&r->flt[i], &r->arena, r->layers.products.v[i].channels, n_samples, err));
    }
    OQ_TRY(list_numbers(r, n_samples, &numbers, err));
    if (memory != NULL && !r->job->compare &&
        oq_mean_memory_recall(memory, names, r->flt, n, numbers, n_samples))
        return ONQ_OK;
    const oq_observer observer = {names, n, seen_float, r};
    OQ_TRY(pass_float(r, &observer, r->job->compare, err));
    const uint64_t most = r->job->memory / MEMORY_PART;
    return memory != NULL
               ? oq_mean_memory_keep(memory, names, r->flt, n, numbers, n_samples, most, err)
               : ONQ_OK;
}

/* ---- layer by layer ---- */

static onq_code seen_quantized(void *ctx, size_t sample, const oq_datum *d, onq_error *err) {
    refiner *r = ctx;
    begin_scratch(r);
    return oq_means_add(&r->quantized, r->layers.all.v[r->layer].last_axis, sample, d, &r->scratch,
                        err);
}

static onq_code correct_layer(refiner *r, onq_error *err) {
    const oq_layer *l = &r->layers.all.v[r->layer];
    OQ_SCRATCH(own, &r->job->model->env->alloc);
    double *delta = OQ_NEW_ARRAY(&own, double, l->channels + 1);
    onq_code rc = delta != NULL ? oq_means_init(&r->quantized, &own, l->channels,
                                                oq_stepper_samples(r->stepper), err)
                                : oq_fail_nomem(err);
    if (rc == ONQ_OK)
        rc = oq_stepper_go(r->stepper, r->layer, &l->quantized, 1, seen_quantized, r, err);
    if (rc == ONQ_OK && oq_means_differ(&r->flt[l->product_number], &r->quantized,
                                        oq_stepper_samples(r->stepper), delta)) {
        rc = oq_layer_add_bias(&r->layers, l, delta, &r->job->n_clipped, err);
        r->job->n_layers += rc == ONQ_OK;
    }
    return rc != ONQ_OK ? oq_error_in(err, rc, "layer '%.*s'", OQ_STR(oq_node_label(l->node))) : rc;
}

/* ---- learned rounding ---- */

/* A stepper through the quantized model, or through the float one. */
static onq_code make_stepper(refiner *r, bool floats, oq_stepper **out, onq_error *err) {
    const size_t n = r->layers.all.n;
    uint32_t *stops = OQ_NEW_ARRAY(&r->arena, uint32_t, n + 1);
    uint32_t *settled = OQ_NEW_ARRAY(&r->arena, uint32_t, n + 1);
    OQ_TRY_ALLOC(stops != NULL && settled != NULL, err);
    for (size_t i = 0; i < n; i++) {
        stops[i] = floats ? r->layers.all.v[i].float_stop : r->layers.all.v[i].stop;
        settled[i] = r->layers.all.v[i].product_at;
    }
    oq_stepper_options o = {.slice = {.engine = r->job->engine,
                                      .session = r->job->session,
                                      .model = r->job->model,
                                      .proto = floats ? r->job->flt : &r->layers.stepped},
                            .stops = stops,
                            .n_stops = n,
                            .settled = floats ? NULL : settled,
                            .level = OQ_OPT_ALL,
                            .memory = r->job->memory / (r->job->learn_rounding ? 2 : 1)};
    o.slice.session.n_threads = OQ_THREADS_RUNTIME;
    o.slice.session.keeps_pairs = true; /* what layers make is looked at before it is rounded */
    return oq_stepper_new(&o, r->job->source, out, err);
}

static onq_code learn_float(void *ctx, size_t sample, const oq_datum *d, onq_error *err) {
    refiner *r = ctx;
    return oq_learn_float(&r->learn, sample, d, err);
}

static onq_code learn_quantized(void *ctx, size_t sample, const oq_datum *d, onq_error *err) {
    refiner *r = ctx;
    return oq_learn_inputs(&r->learn, sample, d, err);
}

static onq_code in_layer(const oq_layer *l, onq_code rc, onq_error *err) {
    return rc != ONQ_OK ? oq_error_in(err, rc, "layer '%.*s'", OQ_STR(oq_node_label(l->node))) : rc;
}

/* Of a layer that aims, between the float model and the quantized one as it is by then. */
static onq_code learn_layer(refiner *r, onq_error *err) {
    const oq_layer *l = &r->layers.all.v[r->layer];
    onq_code rc =
        oq_learn_begin(&r->learn, &r->how, &r->layers, l, oq_stepper_samples(r->stepper), err);
    assert(rc != ONQ_OK || r->learn.aims);
    if (rc == ONQ_OK && r->floats == NULL)
        rc = make_stepper(r, true, &r->floats, err);
    if (rc == ONQ_OK)
        rc = oq_stepper_go(r->floats, r->layer, &l->float_input, 1, learn_float, r, err);
    if (rc == ONQ_OK)
        rc = oq_stepper_go(r->stepper, r->layer, &l->input, 1, learn_quantized, r, err);
    if (rc == ONQ_OK)
        rc = oq_learn_end(&r->learn, err);
    r->job->n_learned += rc == ONQ_OK;
    oq_learn_release(&r->learn);
    return in_layer(l, rc, err);
}

/* Layers whose inputs are seen in one pass of the float model. */
typedef struct batch {
    refiner *r;
    oq_learn **v;
    size_t n;
    oq_str *names; /* of their inputs, each once */
    size_t n_names;
} batch;

static onq_code seen_input(void *ctx, size_t index, const oq_datum *d, onq_error *err) {
    const batch *b = ctx;
    for (size_t i = 0; i < b->n; i++)
        if (b->v[i]->like == NULL && oq_str_eq(b->v[i]->layer->float_input, b->names[index]))
            OQ_TRY(oq_learn_inputs(b->v[i], b->r->sample, d, err));
    return ONQ_OK;
}

static void name_input(batch *b, oq_str name) {
    for (size_t i = 0; i < b->n_names; i++)
        if (oq_str_eq(b->names[i], name))
            return;
    b->names[b->n_names++] = name;
}

static onq_code learn_batch(batch *b, onq_error *err) {
    for (size_t i = 0; i < b->n; i++) {
        OQ_TRY(oq_learn_share(b->v[i], b->v, i, err));
        name_input(b, b->v[i]->layer->float_input);
    }
    const oq_observer observer = {b->names, b->n_names, seen_input, b};
    OQ_TRY(pass_float(b->r, &observer, false, err));
    for (size_t i = 0; i < b->n; i++) {
        OQ_TRY(oq_progress(b->r->job->model->env, "rounding layers", i, b->n, err));
        OQ_TRY(in_layer(b->v[i]->layer, oq_learn_end(b->v[i], err), err));
        b->r->job->n_learned++;
    }
    return ONQ_OK;
}

/* As many at once as their inputs have room. */
static onq_code learn_batches(refiner *r, oq_learn **v, size_t n, onq_error *err) {
    const uint64_t most = r->job->memory / 2 < INPUT_BYTES ? r->job->memory / 2 : INPUT_BYTES;
    batch b = {.r = r, .names = OQ_NEW_ARRAY(&r->arena, oq_str, n + 1)};
    onq_code rc = b.names != NULL ? ONQ_OK : oq_fail_nomem(err);
    for (size_t from = 0; from < n && rc == ONQ_OK; from += b.n) {
        uint64_t bytes = 0;
        b.v = v + from;
        for (b.n = b.n_names = 0; from + b.n < n; b.n++) {
            bytes += oq_learn_bytes(b.v[b.n]);
            if (b.n > 0 && bytes > most)
                break;
        }
        rc = learn_batch(&b, err);
        for (size_t i = b.n; i-- > 0;)
            oq_learn_release(b.v[i]);
    }
    return rc;
}

/* All layers that do not aim, whatever the other layers are: see learn.h. */
static onq_code learn_all(refiner *r, onq_error *err) {
    const size_t n = r->layers.all.n;
    oq_learn *all = OQ_NEW_ARRAY(&r->arena, oq_learn, n + 1);
    oq_learn **wait = OQ_NEW_ARRAY(&r->arena, oq_learn *, n + 1);
    r->aims = OQ_NEW_ARRAY(&r->arena, bool, n + 1);
    size_t n_wait = 0;
    onq_code rc = all != NULL && wait != NULL && r->aims != NULL ? ONQ_OK : oq_fail_nomem(err);
    for (size_t i = 0; i < n && rc == ONQ_OK; i++) {
        rc = oq_learn_begin(&all[i], &r->how, &r->layers, &r->layers.all.v[i],
                            oq_source_count(r->job->source), err);
        r->aims[i] = all[i].aims;
        r->job->n_unable += rc == ONQ_OK && !all[i].able;
        r->job->n_learned += all[i].done;
        if (all[i].able && !all[i].aims && !all[i].done)
            wait[n_wait++] = &all[i];
        else
            oq_learn_release(&all[i]);
    }
    if (rc == ONQ_OK)
        rc = learn_batches(r, wait, n_wait, err);
    for (size_t i = 0; i < n && all != NULL; i++)
        oq_learn_release(&all[i]);
    return rc;
}

static onq_code begin_learning(refiner *r, onq_error *err) {
    const onq_env *env = r->job->model->env;
    OQ_TRY(oq_pool_new(env, &r->pool, err));
    oq_linear_open(&r->linear, false);
    r->job->linear = r->linear.name;
    r->how = (oq_learn_how){.linear = &r->linear,
                            .pool = r->pool,
                            .alloc = &env->alloc,
                            .memory = r->job->learned,
                            .reduced = r->job->reduced};
    return learn_all(r, err);
}

static bool is_stepped_to(const refiner *r, size_t layer) {
    return (r->job->learn_rounding && r->aims[layer]) ||
           (r->job->correct_bias && r->layers.all.v[layer].bias.tensor != NULL);
}

static onq_code refine_layer(refiner *r, onq_error *err) {
    if (r->stepper == NULL)
        OQ_TRY(make_stepper(r, false, &r->stepper, err));
    if (r->job->learn_rounding && r->aims[r->layer])
        OQ_TRY(learn_layer(r, err));
    if (r->job->correct_bias && r->layers.all.v[r->layer].bias.tensor != NULL)
        OQ_TRY(correct_layer(r, err));
    return ONQ_OK;
}

static onq_code refine_all(refiner *r, onq_error *err) {
    const size_t n = r->layers.all.n;
    if (r->job->learn_rounding)
        OQ_TRY(begin_learning(r, err));
    for (r->layer = 0; r->layer < n; r->layer++) {
        OQ_TRY(oq_progress(r->job->model->env, "refining layers", r->layer, n, err));
        if (is_stepped_to(r, r->layer))
            OQ_TRY(refine_layer(r, err));
    }
    r->job->n_samples = r->stepper != NULL ? oq_stepper_samples(r->stepper)
                                           : (size_t)oq_source_count(r->job->source);
    return ONQ_OK;
}

/* ---- all of it ---- */

static onq_code run(refiner *r, onq_error *err) {
    oq_refine_job *job = r->job;
    bool again = false;
    OQ_TRY(oq_layers_find(&r->layers, job->correct_bias, err));
    job->n_unmatched = r->layers.n_unmatched;
    job->n_no_bias = r->layers.n_no_bias;
    if (r->layers.all.n == 0)
        return ONQ_OK;
    if (job->correct_bias || job->compare)
        OQ_TRY(measure_float(r, err));
    if (job->compare)
        OQ_TRY(oq_gain_measure(&r->gain, &job->measured, &job->before, err));
    OQ_TRY(refine_all(r, err));
    if (!job->compare)
        return ONQ_OK;
    OQ_TRY(oq_gain_measure(&r->gain, &again, &job->after, err));
    job->measured = job->measured && again;
    job->n_compared = r->gain.flt.n;
    return ONQ_OK;
}

onq_code oq_refine(oq_refine_job *job, onq_error *err) {
    const onq_allocator *alloc = &job->model->env->alloc;
    refiner r = {.job = job};
    oq_arena_init(&r.arena, alloc);
    oq_arena_init(&r.scratch, alloc);
    oq_gain_init(&r.gain, job);
    r.layers = (oq_layers){
        .model = job->model, .flt = job->flt, .float_bias = job->float_bias, .arena = &r.arena};
    oq_model_touch(job->model);
    const onq_code rc = run(&r, err);
    oq_stepper_free(r.stepper);
    oq_stepper_free(r.floats);
    oq_pool_free(r.pool);
    oq_linear_close(&r.linear);
    oq_gain_release(&r.gain);
    oq_arena_release(&r.scratch);
    oq_arena_release(&r.arena);
    return rc;
}
