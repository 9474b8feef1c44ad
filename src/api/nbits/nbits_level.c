/*
 * nbits_level.c — see nbits_level.h.
 */
#include "api/nbits/nbits_level.h"

#include "api/samples.h"
#include "onnx/attr.h"
#include "quantize/cost/nbits_time.h"

#include <math.h>

#define INT8     4
#define MAX_LOSS 1.0  /* dB that int8 may cost */
#define MIN_GAIN 0.95 /* of the time */

static bool is_ours(const oq_node *n) {
    return (oq_str_is(n->op_type, "MatMulNBits") || oq_str_is(n->op_type, "QMoE")) &&
           oq_str_is(n->domain, "com.microsoft");
}

static onq_code set_level(oq_quant *q, int64_t level, onq_error *err) {
    oq_graph *g = q->model->proto->graph;
    for (size_t i = 0; i < g->node.n; i++) {
        oq_node *n = g->node.v[i];
        if (!is_ours(n))
            continue;
        if (level == 0)
            oq_attr_remove(n, "accuracy_level");
        else if (!oq_attr_set_int(&q->model->arena, n, OQ_S("accuracy_level"), level))
            return oq_fail_nomem(err);
    }
    for (size_t i = 0; i < q->plan.nodes.n; i++)
        if (q->plan.nodes.v[i].bits != 0)
            q->plan.nodes.v[i].accuracy_level = level;
    return ONQ_OK;
}

/* The size with most weights among those that can be timed; false: there is none. */
static bool find_size(const oq_nb_made *made, oq_nb_speed *out) {
    uint64_t all = 0, most = 0;
    for (size_t i = 0; i < made->all.n; i++) {
        const oq_nb_task *t = oq_nb_lazy_task(made->all.v[i]);
        all += t->batch * t->k * t->n;
        if (t->rule != OQ_NB_MATMUL || t->k * t->n <= most || t->k * t->n > OQ_NB_MAX_TIMED)
            continue;
        most = t->k * t->n;
        *out = (oq_nb_speed){.k = t->k, .n = t->n};
    }
    out->copies = most > 0 ? (all < OQ_NB_MAX_TIMED ? all : OQ_NB_MAX_TIMED) / most : 0;
    return most > 0;
}

/* Times of int8 over those of level 0. */
static onq_code time_levels(oq_quant *q, const oq_nb_config *c, const oq_nb_made *made,
                            double gain[2], onq_error *err) {
    oq_session_options like = {0};
    oq_nb_config plain = *c;
    oq_nb_speed fast = {0};
    gain[0] = gain[1] = 1;
    if (!find_size(made, &fast))
        return ONQ_OK;
    oq_nb_speed slow = fast;
    OQ_TRY(oq_job_session(q->job, &like, err));
    plain.how.accuracy_level = 0;
    OQ_TRY(oq_nb_time(q->engine, &like, c, &fast, err));
    OQ_TRY(oq_nb_time(q->engine, &like, &plain, &slow, err));
    for (size_t i = 0; i < 2; i++)
        gain[i] = fast.nbits[i] / slow.nbits[i];
    return ONQ_OK;
}

/* What outputs keep with level 0 and with int8, in dB; NAN where no runs were kept. */
static onq_code compare_levels(oq_quant *q, double kept[2], onq_error *err) {
    oq_session_options how = {0};
    kept[0] = kept[1] = (double)NAN;
    if (q->record.runs.n == 0 || q->record.generated)
        return ONQ_OK;
    OQ_TRY(oq_job_session(q->job, &how, err));
    how.model = q->model;
    how.level = OQ_OPT_ALL;
    for (size_t i = 0; i < 2; i++) {
        oq_verdict v = {0};
        OQ_TRY(set_level(q, i == 0 ? 0 : INT8, err));
        OQ_TRY(oq_verify(q->engine, &how, &q->record, &v, err));
        if (v.measured)
            kept[i] = v.sqnr;
    }
    return ONQ_OK;
}

onq_code oq_nb_choose_level(oq_quant *q, oq_nb_config *c, const oq_nb_made *made, onq_error *err) {
    double gain[2], kept[2];
    oq_job *job = q->job;
    if (oq_opt_flag(job->opts, "dry_run") || c->qdq)
        return ONQ_OK;
    if (q->engine == NULL)
        OQ_TRY(oq_job_engine(job, &q->engine, err));
    OQ_TRY(time_levels(q, c, made, gain, err));
    OQ_TRY(compare_levels(q, kept, err));
    const bool known = !isnan(kept[0]) && !isnan(kept[1]);
    const bool gains = gain[0] < MIN_GAIN || gain[1] < MIN_GAIN;
    const bool costs = known && kept[0] - kept[1] > MAX_LOSS;
    c->how.accuracy_level = gains && !costs ? INT8 : 0;
    OQ_TRY(set_level(q, c->how.accuracy_level, err));
    oq_buf_addf(
        &job->text,
        "accuracy level %lld: int8 takes %.2g of the time when decoding (1 row) and %.2g in "
        "a prefill (%d rows) here",
        (long long)c->how.accuracy_level, gain[0], gain[1], OQ_NB_ROWS_MANY);
    if (known)
        oq_buf_addf(&job->text, "; outputs keep %.1f dB with it, %.1f without\n", kept[1], kept[0]);
    else
        oq_buf_adds(&job->text, "; what it costs was not measured (give --data and --verify)\n");
    oq_jw_begin_object(&job->json, "accuracy_level");
    oq_jw_int(&job->json, "chosen", c->how.accuracy_level);
    oq_jw_real(&job->json, "decode_time", gain[0]);
    oq_jw_real(&job->json, "prefill_time", gain[1]);
    if (known) {
        oq_jw_real(&job->json, "sqnr_0", kept[0]);
        oq_jw_real(&job->json, "sqnr_4", kept[1]);
    }
    oq_jw_end_object(&job->json);
    return ONQ_OK;
}
