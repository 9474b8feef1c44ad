/*
 * sound.c — see sound.h.
 */
#include "api/quantizing/sound.h"

#include "api/samples.h"
#include "engine/ort.h"
#include "onnx/graph.h"
#include "shape/shape.h"

#define MAX_INITIALIZERS 8192
#define MAX_NODES        32768
#define MAX_INPUTS       1024                 /* of one node */
#define MAX_READERS      1024                 /* of one tensor */
#define MAX_VALUES       ((uint64_t)64 << 20) /* of one tensor; four bytes each, mostly */

/* True if more nodes read an output of one than a runtime likes. */
static bool is_wide(const oq_index *ix) {
    bool wide = false;
    for (size_t i = 0; i < ix->graph->node.n && !wide; i++) {
        const oq_strs *out = &ix->graph->node.v[i]->output;
        for (size_t k = 0; k < out->n && !wide; k++)
            wide = out->v[k].n > 0 && oq_index_find(ix, out->v[k])->uses.n > MAX_READERS;
    }
    return wide;
}

onq_code oq_graph_is_long(const oq_model *m, bool *yes, onq_error *err) {
    oq_graph *g = m->proto->graph;
    *yes = g->node.n > MAX_NODES || g->initializer.n > MAX_INITIALIZERS;
    for (size_t i = 0; i < g->node.n && !*yes; i++)
        *yes = g->node.v[i]->input.n > MAX_INPUTS;
    if (*yes || g->node.n <= MAX_READERS)
        return ONQ_OK;
    oq_index ix;
    OQ_SCRATCH(scratch, &m->env->alloc);
    const onq_code rc = oq_index_build(&ix, &scratch, g, NULL, err);
    *yes = rc == ONQ_OK && is_wide(&ix);
    return rc;
}

typedef struct swelling {
    const oq_shapes *shapes;
    bool found;
} swelling;

static onq_code look_at_sizes(void *ctx, oq_graph *g, onq_error *err) {
    swelling *s = ctx;
    (void)err;
    for (size_t i = 0; i < g->node.n; i++) {
        for (size_t k = 0; k < g->node.v[i]->output.n; k++) {
            oq_tensor_info t;
            uint64_t n = 1;
            bool fits = true;
            if (!oq_shapes_tensor(s->shapes, g, g->node.v[i]->output.v[k], &t) || !t.is_fixed)
                continue;
            for (size_t d = 0; d < t.rank; d++)
                fits = fits && oq_mul(n, (uint64_t)t.dims[d].n, &n);
            s->found |= !fits || n > MAX_VALUES;
        }
    }
    return ONQ_OK;
}

onq_code oq_model_swells(oq_model *m, bool *yes, onq_error *err) {
    const oq_shape_options how = {.symbolic = true};
    oq_shapes *shapes = NULL;
    OQ_TRY(oq_shapes_infer(m, &how, &shapes, err));
    swelling s = {.shapes = shapes};
    const onq_code rc = oq_walk_graphs(m->proto->graph, look_at_sizes, &s, err);
    oq_shapes_free(shapes);
    *yes = s.found;
    return rc;
}

const char *oq_words_of(const oq_model *m, const onq_error *why) {
    const size_t n = strlen(m->path);
    return strncmp(why->text, m->path, n) == 0 && strncmp(why->text + n, ": ", 2) == 0
               ? why->text + n + 2
               : why->text;
}

onq_code oq_refuse_unsound(const oq_model *m, const onq_error *why, onq_error *err) {
    return oq_fail(err, ONQ_E_INVALID,
                   "%s: %.700s (nothing is written; --no_verify writes it anyway)", m->path,
                   oq_words_of(m, why));
}

onq_code oq_job_check_sound(oq_job *job, oq_engine **engine, oq_model *m, onq_error *err) {
    assert(engine != NULL && m != NULL);
    const onq_options *o = job->opts;
    onq_error why = ONQ_ERROR_INIT;
    oq_session *s = NULL;
    oq_session_options so;
    uint64_t size = 0;
    bool is_long = false;
    if (oq_opt_flag(o, "no_verify") || (oq_opt_is_set(o, "verify") && !oq_opt_flag(o, "verify")))
        return ONQ_OK;
    OQ_TRY(oq_model_size(m, &size, err));
    OQ_TRY(oq_graph_is_long(m, &is_long, err));
    if (size > OQ_MAX_UNASKED || is_long)
        return ONQ_OK;
    onq_code rc = *engine != NULL ? ONQ_OK : oq_job_engine(job, engine, &why);
    if (rc == ONQ_OK)
        rc = oq_job_session(job, &so, &why);
    if (rc == ONQ_OK) {
        so.model = m;
        so.level = OQ_OPT_NONE;
        so.n_threads = 1;
        rc = oq_session_open(*engine, &so, &s, &why);
    }
    oq_session_close(s);
    if (rc == ONQ_OK)
        return rc;
    if (rc == ONQ_E_NOMEM || rc == ONQ_E_CANCEL)
        return oq_error_give(err, rc, &why);
    if (oq_engine_calls_invalid(&why))
        return oq_refuse_unsound(m, &why, err);
    oq_log(job->env, ONQ_LOG_DEBUG, "%s", why.text);
    return ONQ_OK;
}
