/*
 * tune_lstm.c — an LSTM in integers, which finds its ranges while it runs (DynamicQuantizeLSTM): a
 * last step after whatever the other products are, for no other command has a kernel for it.
 */
#include "tune/tune.h"

#include <math.h>

#define TRIED 3 /* candidates that get it */

/* The candidate's model with its LSTMs in integers. */
static onq_code quantize_lstm(oq_tune *t, const oq_candidate *from, oq_candidate **out,
                              onq_error *err) {
    oq_recipe r = {.command = "dynamic",
                   .after = from->recipe.command != NULL ? &from->recipe : NULL};
    const oq_str label = from == t->base_float
                             ? OQ_S("LSTM in integers")
                             : oq_str_format(t->arena, "%s, LSTM in integers", from->label);
    OQ_TRY_ALLOC(label.p != NULL, err);
    OQ_TRY(oq_recipe_add(&r, t->arena, "per_channel", NULL, err));
    OQ_TRY(oq_recipe_add(&r, t->arena, "op_types_to_quantize", "LSTM", err));
    if (t->inner_lstm)
        OQ_TRY(oq_recipe_add(&r, t->arena, "enable_subgraph", NULL, err));
    OQ_TRY(oq_tune_try(t, &r, label.p, out, err));
    return oq_tune_time(t, err);
}

/* The fastest that reaches the targets and was not tried; with an LSTM in integers it must be able
 * to be faster than what reaches them already. */
static const oq_candidate *next_to_try(const oq_tune *t, double gain, const oq_candidate *const *v,
                                       size_t n) {
    double least = INFINITY;
    const oq_candidate *best = NULL;
    for (size_t i = 0; i < t->all.n; i++)
        if (t->all.v[i]->ok && t->all.v[i]->ms > 0 &&
            (t->all.v[i]->exact || oq_targets_hold(&t->targets, &t->all.v[i]->score)))
            least = fmin(least, t->all.v[i]->ms);
    for (size_t i = 0; i < t->all.n; i++) {
        const oq_candidate *c = t->all.v[i];
        bool tried = oq_recipe_way(&c->recipe) != OQ_WAY_STATIC;
        for (size_t k = 0; k < n; k++)
            tried |= v[k] == c;
        if (!tried && c->ok && c->ms > 0 && oq_targets_hold(&t->targets, &c->score) &&
            c->ms - gain < least - OQ_WORTH_TIME * t->flt->ms && (best == NULL || c->ms < best->ms))
            best = c;
    }
    return best;
}

onq_code oq_tune_lstm(oq_tune *t, onq_error *err) {
    const oq_candidate *tried[TRIED];
    oq_candidate *alone = NULL, *made = NULL;
    if (!t->has_lstm || !t->allow_dynamic)
        return ONQ_OK;
    OQ_TRY(oq_tune_time(t, err));
    OQ_TRY(quantize_lstm(t, t->base_float, &alone, err));
    const double gain = alone != NULL ? t->base_float->ms - alone->ms : 0;
    for (size_t n = 0; n < TRIED && gain > OQ_WORTH_TIME * t->flt->ms; n++) {
        tried[n] = next_to_try(t, gain, tried, n);
        if (tried[n] == NULL)
            return ONQ_OK;
        OQ_TRY(quantize_lstm(t, tried[n], &made, err));
    }
    return ONQ_OK;
}
