/*
 * sound.c — see sound.h.
 */
#include "api/sound.h"

#include "api/samples.h"
#include "engine/ort.h"
#include "onnx/graph.h"

#define MOST_INITIALIZERS 8192
#define MOST_NODES        32768
#define MOST_INPUTS       4096 /* of one node */

bool oq_graph_is_long(const oq_graph *g) {
    bool is_long = g->node.n > MOST_NODES || g->initializer.n > MOST_INITIALIZERS;
    for (size_t i = 0; i < g->node.n && !is_long; i++)
        is_long = g->node.v[i]->input.n > MOST_INPUTS;
    return is_long;
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
    const onq_options *o = job->opts;
    onq_error why = ONQ_ERROR_INIT;
    oq_session *s = NULL;
    oq_session_options so;
    uint64_t size = 0;
    if (oq_opt_flag(o, "no_verify") || (oq_opt_is_set(o, "verify") && !oq_opt_flag(o, "verify")))
        return ONQ_OK;
    OQ_TRY(oq_model_size(m, &size, err));
    if (size > OQ_MOST_UNASKED || oq_graph_is_long(m->proto->graph))
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
    if (rc == ONQ_E_NOMEM || rc == ONQ_E_CANCEL) {
        if (err != NULL)
            *err = why;
        return rc;
    }
    if (oq_engine_calls_invalid(&why))
        return oq_refuse_unsound(m, &why, err);
    oq_log(job->env, ONQ_LOG_DEBUG, "%s", why.text);
    return ONQ_OK;
}
