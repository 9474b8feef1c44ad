/*
 * past_look.c — see past_look.h.
 */
#include "samples/sequence/past_look.h"

#include "samples/agreement.h"

#include <inttypes.h>
#include <math.h>

/* Below so many dB a state is another one, not the same in another precision. */
#define SAME_DB 20
/* A past this much larger or smaller than what follows was not made by the model. */
#define APART 4

onq_code oq_past_look_init(oq_past_look *p, oq_arena *a, const oq_walker *of, onq_error *err) {
    *p = (oq_past_look){.of = of, .sums = OQ_NEW_ARRAY(a, oq_past_sum, of->roles.carry.n + 1)};
    return p->sums != NULL ? ONQ_OK : oq_fail_nomem(err);
}

/* ---- a step ---- */

/* A state that the step brings, and that is not what the step before gave. */
static const oq_carry_pair *find_foreign(const oq_walk *w, const oq_sample *step, bool *any) {
    const oq_carry *c = &w->of->roles.carry;
    for (size_t i = 0; w->left != NULL && i < c->n; i++) {
        const oq_datum *own = &w->left[c->v[i].in], *brought = &step->inputs[c->v[i].in];
        oq_agree a = {0};
        if (brought->kind != OQ_DATUM_TENSOR || own->kind != OQ_DATUM_TENSOR)
            continue;
        *any = true;
        oq_agree_add(&a, own, brought);
        if (a.differs || oq_agree_sqnr(&a) < SAME_DB)
            return &c->v[i];
    }
    return NULL;
}

onq_code oq_past_look_before(oq_past_look *p, oq_arena *a, const oq_walk *w, const oq_sample *step,
                             onq_error *err) {
    bool any = false;
    if (step->step == 0)
        return ONQ_OK;
    const oq_carry_pair *pair = find_foreign(w, step, &any);
    p->brought += any;
    p->foreign += pair != NULL;
    if (pair == NULL || (p->first.p != NULL && p->first_number < step->number))
        return ONQ_OK;
    p->first_number = step->number;
    p->first = oq_str_format(a,
                             "step %" PRIu64 " of '%s', whose '%.*s' is not the '%.*s' of the "
                             "step before",
                             step->step, step->name, OQ_STR(w->of->in.v[pair->in].name),
                             OQ_STR(w->of->out.v[pair->out].name));
    return p->first.p != NULL ? ONQ_OK : oq_fail_nomem(err);
}

bool oq_past_look_wants(const oq_walk *w, const oq_sample *full) {
    return full->step == 0 && w->past > 0;
}

static void add_squares(oq_past_sum *s, const oq_datum *state, const oq_datum *past) {
    if (state->kind != OQ_DATUM_TENSOR || state->dtype != OQ_FLOAT)
        return;
    uint64_t size = 0, skip = 0;
    oq_state_added(state, past, &size, &skip);
    if (skip == 0) /* it did not grow */
        return;
    for (uint64_t i = 0; i < state->count; i++) {
        float x;
        memcpy(&x, (const uint8_t *)state->data + i * sizeof x, sizeof x);
        const bool old = i % size < skip;
        *(old ? &s->past : &s->added) += (double)x * (double)x;
        ++*(old ? &s->n_past : &s->n_added);
    }
}

void oq_past_look_after(oq_past_look *p, const oq_walk *w, const oq_sample *full,
                        const oq_datum *outputs) {
    const oq_carry *c = &p->of->roles.carry;
    if (full->step > 0)
        return;
    p->begun++;
    p->one_step += full->last && w->made_states && c->n > 0;
    for (size_t i = 0; outputs != NULL && oq_past_look_wants(w, full) && i < c->n; i++)
        add_squares(&p->sums[i], &outputs[c->v[i].out], &full->inputs[c->v[i].in]);
}

/* ---- warnings ---- */

/* How much larger what a run adds to the state is than what was in it; NAN: not known. */
static double ratio_of(const oq_past_sum *s) {
    if (s->n_past == 0 || s->n_added == 0 || s->added == 0)
        return (double)NAN;
    return sqrt(s->added / (double)s->n_added / (s->past / (double)s->n_past));
}

static void tell_of_size(const oq_past_look *p, const onq_env *env) {
    size_t n = 0, apart = 0, worst = 0;
    for (size_t i = 0; i < p->of->roles.carry.n; i++) {
        const double r = ratio_of(&p->sums[i]);
        n += isnan(r) ? 0 : 1;
        if (isnan(r) || (r < APART && r * APART > 1))
            continue;
        if (apart++ == 0 || fabs(log(r)) > fabs(log(ratio_of(&p->sums[worst]))))
            worst = i;
    }
    if (n == 0 || 2 * apart <= n)
        return;
    const double r = ratio_of(&p->sums[worst]);
    const oq_str name = p->of->in.v[p->of->roles.carry.v[worst].in].name;
    char how[80];
    if (isinf(r))
        (void)snprintf(how, sizeof how, "nothing but 0");
    else
        (void)snprintf(how, sizeof how, "%.1f times %s than what the model adds", r > 1 ? r : 1 / r,
                       r > 1 ? "smaller" : "larger");
    oq_warn(
        env,
        "the samples bring a past that no run of this model made: values of '%.*s' are %s; give "
        "whole texts and leave the states out, and the model makes them itself",
        OQ_STR(name), how);
}

void oq_past_look_tell(const oq_past_look *p, const onq_env *env) {
    tell_of_size(p, env);
    if (p->foreign > 0)
        oq_warn(
            env,
            "%" PRIu64 " of %" PRIu64 " steps bring a state that this model did not give in the "
            "step before, the first: %.*s; leave the states out, and the model makes them itself",
            p->foreign, p->brought, OQ_STR(p->first));
    if (p->begun > 0 && p->one_step == p->begun && !p->of->roles.language.is)
        oq_warn(
            env,
            "every sample is one step with states of zeros, and the model never meets states of "
            "its own; give sequences (--steps_axis, a folder of folders) or samples with states "
            "that it gave");
}
