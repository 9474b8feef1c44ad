/*
 * nb_noise.c — how much of weights rounding takes away, from some of their panels.
 */
#include "quantize/nbits/nb_panel.h"
#include "quantize/nbits/nbits.h"

#include "base/pool.h"

#define LOOK (1u << 13) /* numbers of a weight that are looked at, in whole panels */

typedef struct looking {
    const oq_nb_made *made;
    double *noise; /* of each weight, over its signal */
} looking;

static double count_of(const oq_nb_task *t) {
    return (double)t->batch * (double)t->k * (double)t->n;
}

static onq_code look_at(void *ctx, size_t i, unsigned worker, onq_error *err) {
    const looking *l = ctx;
    oq_nb_task t = *oq_nb_lazy_task(l->made->all.v[i]);
    oq_nb_noise sum = {0};
    const oq_nb_sink sink = {.task = &t, .noise = &sum};
    (void)worker;
    t.every = (uint64_t)(count_of(&t) / LOOK) + 1;
    /* hqq needs many panels to find its steps; the best ranges lose about as much. */
    t.method =
        t.method->real_zero ? &oq_nb_methods[OQ_NB_RANGE_REAL] : oq_nb_without_samples(t.method);
    OQ_TRY(t.method->quantize(&t, &sink, err));
    l->noise[i] = sum.signal > 0 ? sum.noise / sum.signal : 0;
    return ONQ_OK;
}

static onq_code look(const oq_nb_job *job, looking *l, double *out, onq_error *err) {
    double sum = 0, count = 0;
    oq_pool *pool = NULL;
    OQ_TRY(oq_pool_new(job->model->env, &pool, err));
    const onq_code rc = oq_pool_run(pool, l->made->all.n, look_at, l, err);
    oq_pool_free(pool);
    OQ_TRY(rc);
    for (size_t i = 0; i < l->made->all.n; i++) {
        const double n = count_of(oq_nb_lazy_task(l->made->all.v[i]));
        sum += n * l->noise[i];
        count += n;
    }
    *out = count > 0 ? sum / count : 0;
    return ONQ_OK;
}

onq_code oq_nb_foresee(const oq_nb_job *job, double *noise, onq_error *err) {
    OQ_SCRATCH(scratch, &job->model->env->alloc);
    oq_nb_made made = {0};
    oq_plan plan;
    oq_plan_init(&plan, &scratch);
    const oq_nb_job decide = {.model = job->model,
                              .config = job->config,
                              .plan = &plan,
                              .made = &made,
                              .decide_only = true};
    onq_code rc = oq_nb_run(&decide, err);
    looking l = {.made = &made, .noise = OQ_NEW_ARRAY(&scratch, double, made.all.n + 1)};
    if (rc == ONQ_OK && l.noise == NULL)
        rc = oq_fail_nomem(err);
    *noise = 0;
    if (rc == ONQ_OK)
        rc = look(job, &l, noise, err);
    oq_nb_made_release(&made);
    return rc;
}
