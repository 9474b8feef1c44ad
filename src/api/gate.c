/*
 * gate.c — see gate.h.
 */
#include "api/gate.h"

#include <math.h>

onq_code oq_gate_read(oq_job *job, bool labels, oq_targets *out, onq_error *err) {
    const bool benches = oq_opt_has(job->opts, "labels");
    size_t n = 0;
    const oq_str *list = oq_opt_list(job->opts, "target", &n);
    *out = (oq_targets){0};
    for (size_t i = 0; i < n; i++) {
        oq_target t;
        OQ_TRY(oq_target_read(list[i], &t, err));
        const bool measured = t.metric == OQ_METRIC_SQNR || t.metric == OQ_METRIC_COSINE ||
                              t.metric == OQ_METRIC_AGREEMENT ||
                              (t.metric == OQ_METRIC_SAMPLE_AGREEMENT && benches) ||
                              (t.metric == OQ_METRIC_ACCURACY_DROP && labels);
        if (!measured && t.metric == OQ_METRIC_ACCURACY_DROP)
            return oq_fail(err, ONQ_E_OPTION,
                           "--target accuracy_drop=X needs labels (onq bench --labels FILE)");
        if (!measured)
            return oq_fail(err, ONQ_E_OPTION,
                           "--target %s: %s measures agreement, %ssqnr and cosine (onq auto takes "
                           "more)",
                           oq_metric_of(t.metric)->name, job->opts->command->info.name,
                           benches ? "sample_agreement, " : "");
        OQ_TRY_ALLOC(OQ_PUSH(&job->arena, out, t), err);
    }
    return ONQ_OK;
}

/* What was measured for a target. */
static double figure_of(const oq_target *x, const oq_score *s) {
    assert(x->metric < OQ_METRICS);
    return s->figures[x->metric].value;
}

/* The samples are all that a gate is about: what others show it does not ask. */
static bool holds(const oq_targets *t, size_t i, const oq_score *s) {
    oq_targets one = {.v = &t->v[i], .n = 1};
    return oq_targets_hold(&one, s);
}

onq_code oq_gate_check(const oq_targets *t, const oq_score *s, onq_error *err) {
    for (size_t i = 0; i < t->n; i++)
        if (isnan(figure_of(&t->v[i], s)))
            return oq_fail(err, ONQ_E_CONFIG,
                           t->v[i].metric == OQ_METRIC_AGREEMENT
                               ? "--target agreement: no output holds scores of classes along its "
                                 "last axis (--target sqnr=DB is for every output)"
                               : "--target %s: the outputs give no such figure",
                           oq_metric_of(t->v[i].metric)->name);
    return ONQ_OK;
}

void oq_gate_json(oq_job *job, const oq_targets *t, const oq_score *s) {
    oq_jw *w = &job->json;
    if (t->n == 0)
        return;
    oq_jw_begin_array(w, "targets");
    for (size_t i = 0; i < t->n; i++) {
        const oq_target *x = &t->v[i];
        const bool reached = holds(t, i, s);
        oq_jw_begin_object(w, NULL);
        oq_jw_cstr(w, "metric", oq_metric_of(x->metric)->name);
        oq_jw_real(w, "target", x->value);
        oq_jw_real(w, "measured", figure_of(x, s)); /* null: no difference at all */
        oq_jw_bool(w, "reached", reached);
        oq_jw_end_object(w);
        if (!reached)
            job->status = 1;
    }
    oq_jw_end_array(w);
}

/* "target sqnr=30 not reached: 12.30 dB" */
static void add_line(const oq_targets *t, size_t i, const oq_score *s, const char *who,
                     oq_buf *text) {
    static const char *const units[OQ_METRICS] = {[OQ_METRIC_AGREEMENT] = " %",
                                                  [OQ_METRIC_SAMPLE_AGREEMENT] = " %",
                                                  [OQ_METRIC_SQNR] = " dB",
                                                  [OQ_METRIC_ACCURACY_DROP] = " %"};
    const oq_target *x = &t->v[i];
    const double got = figure_of(x, s);
    if (who != NULL) {
        oq_buf_add_safe(text, oq_str_of(who));
        oq_buf_adds(text, ": ");
    }
    oq_buf_addf(text, "target %s=%g %s: ", oq_metric_of(x->metric)->name, x->value,
                holds(t, i, s) ? "reached" : "not reached");
    if (isinf(got))
        oq_buf_adds(text, got > 0 ? "no difference" : "the outputs cannot be compared");
    else
        oq_buf_addf(text, "%.*f%s", x->metric == OQ_METRIC_COSINE ? 6 : 2, got,
                    units[x->metric] != NULL ? units[x->metric] : "");
}

void oq_gate_tell(oq_job *job, const oq_targets *t, const oq_score *s, const char *who) {
    for (size_t i = 0; i < t->n; i++) {
        oq_buf line;
        oq_buf_init(&line, &job->env->alloc);
        add_line(t, i, s, who, &line);
        if (!holds(t, i, s) && !line.failed)
            oq_alert(job->env, "%s", line.p);
        else if (!line.failed)
            oq_buf_addf(&job->text, "%s\n", line.p);
        job->text.failed |= line.failed;
        oq_buf_release(&line);
    }
}

onq_code oq_gate_refuse(const oq_job *job, const oq_targets *t, const oq_score *s, onq_error *err) {
    oq_buf line;
    size_t i = 0;
    while (i < t->n && holds(t, i, s))
        i++;
    if (i == t->n)
        return ONQ_OK;
    oq_buf_init(&line, &job->env->alloc);
    add_line(t, i, s, NULL, &line);
    const onq_code rc = line.failed
                            ? oq_fail_nomem(err)
                            : oq_fail(err, ONQ_E_UNSUPPORTED,
                                      "%s (nothing is written because of --strict)", line.p);
    oq_buf_release(&line);
    return rc;
}
