/*
 * engine.h — running models: an engine opens sessions, a session runs samples.
 *
 * The engine is a struct of functions, so that calibrate, debug and their tests can run with a
 * fake. The real one is ort.h: ONNX Runtime, opened at run time.
 *
 *     oq_engine *engine = NULL;
 *     OQ_TRY(oq_ort_open(env, NULL, &engine, err));
 *     oq_session_options o = {.model = model, .n_threads = 1, .level = OQ_OPT_NONE};
 *     oq_session *s = NULL;
 *     rc = oq_session_open(engine, &o, &s, err);
 *     ...
 *     rc = oq_session_run(s, sample->inputs, sample->n_inputs, &outputs, err);
 *     oq_session_close(s);
 *     oq_engine_close(engine);
 *
 * A session belongs to one thread at a time; oq_session_share gives another thread one of the same
 * model (flight.h runs samples so). Sessions do not copy the model's weights: initializers that lie
 * in a file stay there and the runtime maps them; the model and its files must outlive the session.
 */
#pragma once

#include "samples/datum.h"

/* The domain of operators that the engine puts into graphs it runs. */
#define OQ_ENGINE_DOMAIN "onq.engine"

typedef enum oq_opt_level {
    OQ_OPT_NONE = 0, /* as the reference calibrates */
    OQ_OPT_BASIC = 1,
    OQ_OPT_EXTENDED = 2,
    OQ_OPT_ALL = 99, /* the runtime's default */
} oq_opt_level;

/*
 * Sees tensors while the model runs. Each named tensor passes through a node of ours that calls
 * `seen` with the tensor's index in `names`; the node's output is its input, nothing is copied, and
 * the runtime frees the tensor as usual. `seen` is called on the thread that runs the session, in
 * an order the graph decides; never for a tensor on a branch that is not taken, more than once for
 * a tensor in a loop body. The datum is borrowed during the call, is aligned to its type and must
 * not be written to. An error stops the run and comes back from oq_session_run as it is.
 *
 * A name may be a graph input, the output of a node, or an initializer, in the main graph or in a
 * subgraph; a name that no graph has is an error when the session is opened. Sequences and other
 * values that are not tensors cannot be observed. The model itself is not changed: the session
 * works on a clone of its graph.
 */
typedef struct oq_observer {
    const oq_str *names;
    size_t n_names;
    onq_code (*seen)(void *ctx, size_t index, const oq_datum *tensor, onq_error *err);
    void *ctx;
} oq_observer;

/* As many threads as the runtime takes by itself. Its kernels give other last digits with
 * another number, so results that must not depend on --threads (calibration) are computed with
 * this, as the reference's are. */
#define OQ_THREADS_RUNTIME UINT32_MAX

/* A model of more bytes than that is run without copies of its weights, where nobody asks how long
 * it takes. */
#define OQ_LARGE_MODEL ((uint64_t)256 << 20)

typedef struct oq_session_options {
    oq_model *model;
    unsigned n_threads; /* inside an operator; 0: oq_env_threads */
    oq_opt_level level;
    const char *provider;          /* "CPU", "CUDA", ...; NULL: CPU */
    const char *const *custom_ops; /* libraries of custom operators */
    size_t n_custom_ops;
    const oq_observer *observer; /* or NULL; borrowed until the session is closed */
    /* Of the observer's names, or NULL. A float16 tensor that is not said to be one may be shown as
     * float32, before it is rounded. */
    const oq_dtype *observed_types;
    /* Bytes of each of them in a run, 0 where that is not known; or NULL. Small ones are shown
     * several at a time, by one node that runs when the last of them is there: for an observer that
     * does not depend on the order. */
    const uint64_t *observed_bytes;
    /* Observers are at the side of the graph: no node reads their outputs. */
    bool observe_beside;
    const char *save_optimized; /* the optimised model is written here; NULL: nowhere */
    /* Its large initializers go to a file of this name next to it; NULL: they stay in it (2 GB at
     * most). */
    const char *save_external;
    /* A run stays on the thread that calls it, until oq_session_wake. Work is cut up as for
     * n_threads all the same, so the results have the same bits. For callers that run several
     * samples at once. */
    bool alone;
    bool no_spinning;     /* the runtime's threads sleep between nodes instead of waiting busily */
    bool no_memory_reuse; /* memory arena and patterns off: smaller peak, slower */
    /* QuantizeLinear and DequantizeLinear are computed as they stand, at any level: no product
     * becomes one of integers, and no float weight is quantized. */
    bool keeps_pairs;
    /* Kernels read weights where they are and make no copies in forms of their own: in a model
     * whose weights lie in files these take no memory that the system cannot have back. Slower, and
     * weights of few bits are computed with in float. */
    bool no_packing;
    /* The same for a large constant under a Transpose, such as a table of embeddings that is the
     * last layer, too: the MatMul reads it as it is stored. */
    bool no_turning;
    /* A run that takes longer is ended between two nodes and fails with ONQ_E_LIMIT; 0: none is. */
    unsigned most_seconds;
} oq_session_options;

typedef struct oq_engine oq_engine;
typedef struct oq_session oq_session;

/* What came out of one run. The data is valid until the next run or the close of the session. */
typedef struct oq_outputs {
    const oq_datum *v;
    size_t n;
} oq_outputs;

/* An implementation. Sessions and engines of an implementation begin with these heads. */
typedef struct oq_engine_ops {
    onq_code (*open)(oq_engine *e, const oq_session_options *o, oq_session **out, onq_error *err);
    onq_code (*run)(oq_session *s, const oq_datum *inputs, size_t n_inputs, oq_outputs *out,
                    onq_error *err);
    onq_code (*share)(oq_session *of, const oq_observer *observer, oq_session **out,
                      onq_error *err);
    void (*wake)(oq_session *s); /* or NULL: no session is ever alone */
    void (*close)(oq_session *s);
    void (*end)(oq_engine *e);
} oq_engine_ops;

struct oq_engine {
    const oq_engine_ops *ops;
    onq_env *env;
    const char *name; /* "ONNX Runtime 1.31.1 (/path/to/library)" */
};

struct oq_session {
    oq_engine *engine;
    oq_ios inputs, outputs; /* as the session has them */
};

static inline onq_code oq_session_open(oq_engine *e, const oq_session_options *o, oq_session **out,
                                       onq_error *err) {
    assert(e != NULL && o->model != NULL);
    assert(o->observer == NULL || o->observer->seen != NULL);
    *out = NULL;
    return e->ops->open(e, o, out, err);
}
/* Runs one sample: one datum for each of s->inputs, in that order. `out` may be NULL: nothing is
 * kept. */
static inline onq_code oq_session_run(oq_session *s, const oq_datum *inputs, size_t n_inputs,
                                      oq_outputs *out, onq_error *err) {
    assert(s != NULL && n_inputs == s->inputs.n);
    return s->engine->ops->run(s, inputs, n_inputs, out, err);
}
/* Another session over the same loaded model, for runs on another thread at the same time; its
 * tensors are shown to `observer`, which has the names of the first one's. Closed before `of`. The
 * results of a run have the same bits, however many run. */
static inline onq_code oq_session_share(oq_session *of, const oq_observer *observer,
                                        oq_session **out, onq_error *err) {
    assert(observer == NULL || observer->seen != NULL);
    *out = NULL;
    return of->engine->ops->share(of, observer, out, err);
}
/* Runs of a session that was opened `alone`, and of those that share it, may use the runtime's
 * other threads from now on. Not while one runs. */
static inline void oq_session_wake(oq_session *s) {
    if (s->engine->ops->wake != NULL)
        s->engine->ops->wake(s);
}
/* NULL does nothing, as for oq_engine_close. */
static inline void oq_session_close(oq_session *s) {
    if (s != NULL)
        s->engine->ops->close(s);
}
static inline void oq_engine_close(oq_engine *e) {
    if (e != NULL)
        e->ops->end(e);
}
