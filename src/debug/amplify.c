/*
 * amplify.c — see amplify.h.
 *
 * The noise of a tensor is known where the quantized model has a quantizer, and at the outputs.
 * What comes into a node is the noise of its inputs, or of the last tensors before them where it is
 * known; what goes out is that of the next such tensors, without what their own quantizers add.
 */
#include "debug/amplify.h"

#include "engine/slice/slicer.h"
#include "onnx/operators.h"
#include "samples/agreement.h"

#include <math.h>

#define MIN_GAIN   5.0  /* dB: less is in the nature of any operator */
#define MUCH_NOISE 30.0 /* dB: with less noise after it a node does no harm */

typedef struct tensor_noise {
    double pre, post; /* relative to the values, before and after the quantizer; NAN: not known */
} tensor_noise;

typedef struct tracing {
    const oq_debug *d;
    const oq_index *ix;  /* of the float model */
    tensor_noise *noise; /* by value */
    double *in, *out;    /* by value: memory of the walks; NAN: not walked yet */
} tracing;

static double ratio(double db) {
    return isinf(db) && db > 0 ? 0 : pow(10, -db / 10);
}

static double worse(double a, double b) {
    return isnan(a) || b > a ? b : a;
}

static uint32_t value_at(const tracing *t, oq_str name) {
    const oq_value *v = name.n > 0 ? oq_index_find(t->ix, name) : NULL;
    return v != NULL ? (uint32_t)(v - t->ix->values.v) : OQ_NO_VALUE;
}

static void take_rows(tracing *t) {
    const oq_debug *d = t->d;
    for (size_t i = 0; i < d->acts.n; i++) {
        const oq_debug_act *a = &d->acts.v[i];
        const uint32_t at = a->flt.p != NULL && a->always ? value_at(t, a->flt) : OQ_NO_VALUE;
        if (at == OQ_NO_VALUE || a->cross.n == 0 || isnan(a->xmodel_err))
            continue;
        const double all = ratio(a->xmodel_err);
        const double own = a->local.n > 0 ? ratio(a->local_err) : 0;
        t->noise[at] = (tensor_noise){fmax(all - own, 0), all};
    }
    for (size_t i = 0; i < d->outputs.n; i++) {
        const uint32_t at = value_at(t, d->outputs.v[i].name);
        if (at == OQ_NO_VALUE || d->outputs.v[i].plain.n == 0 || !isnan(t->noise[at].pre))
            continue;
        const double all = ratio(oq_sums_sqnr(&d->outputs.v[i].plain));
        t->noise[at] = (tensor_noise){all, all};
    }
}

/* Nodes are in the order of the graph, so what a node reads was looked at before it. */
static double noise_into(tracing *t, const oq_node *n) {
    double sum = NAN;
    for (size_t k = 0; k < n->input.n; k++) {
        const uint32_t at = value_at(t, n->input.v[k]);
        if (at != OQ_NO_VALUE)
            sum = worse(sum, isnan(t->noise[at].post) ? t->in[at] : t->noise[at].post);
    }
    return sum;
}

static double noise_out_of(tracing *t, const oq_node *n) {
    double sum = NAN;
    for (size_t k = 0; k < n->output.n; k++) {
        const uint32_t at = value_at(t, n->output.v[k]);
        if (at != OQ_NO_VALUE)
            sum = worse(sum, isnan(t->noise[at].pre) ? t->out[at] : t->noise[at].pre);
    }
    return sum;
}

/* Where one of several nodes in a row did it, the steepest is blamed. */
static int steepness(const oq_node *n) {
    return oq_op_traits_of(n->op_type)->steep;
}

/* Forwards what comes in, backwards what goes out. */
static void walk(tracing *t) {
    const oq_graph *g = t->ix->graph;
    for (size_t i = 0; i < g->node.n; i++) {
        const double in = noise_into(t, g->node.v[i]);
        for (size_t k = 0; k < g->node.v[i]->output.n; k++) {
            const uint32_t at = value_at(t, g->node.v[i]->output.v[k]);
            if (at != OQ_NO_VALUE)
                t->in[at] = in;
        }
    }
    for (size_t i = g->node.n; i-- > 0;) {
        const double out = noise_out_of(t, g->node.v[i]);
        for (size_t k = 0; k < g->node.v[i]->input.n; k++) {
            const uint32_t at = value_at(t, g->node.v[i]->input.v[k]);
            if (at != OQ_NO_VALUE)
                t->out[at] = worse(t->out[at], out);
        }
    }
}

/* The share of the values that a node loses: noise as large as they are leaves nothing to lose. */
static double lost_by(const oq_amplifier *a) {
    return fmin(ratio(a->after), 1) - fmin(ratio(a->before), 1);
}

static int by_noise(const oq_amplifier *a, const oq_amplifier *b, const oq_graph *g) {
    const double x = lost_by(a), y = lost_by(b);
    if (fabs(x - y) > 0.02 * fmax(x, y))
        return x > y ? -1 : 1;
    return steepness(g->node.v[b->node]) - steepness(g->node.v[a->node]);
}

/* Few nodes amplify: inserted in order. */
static onq_code add(const tracing *t, oq_arena *a, oq_amplifiers *all, oq_amplifier x,
                    onq_error *err) {
    if (!OQ_PUSH(a, all, x))
        return oq_fail_nomem(err);
    for (size_t i = all->n - 1; i > 0 && by_noise(&x, &all->v[i - 1], t->ix->graph) < 0; i--) {
        all->v[i] = all->v[i - 1];
        all->v[i - 1] = x;
    }
    return ONQ_OK;
}

static onq_code find(tracing *t, oq_arena *a, oq_amplifiers *out, onq_error *err) {
    const oq_graph *g = t->ix->graph;
    take_rows(t);
    walk(t);
    for (uint32_t i = 0; i < g->node.n; i++) {
        const oq_node *n = g->node.v[i];
        const double in = noise_into(t, n), after = noise_out_of(t, n);
        if (steepness(n) == 0 || isnan(in) || isnan(after) || in <= 0)
            continue;
        const oq_amplifier x = {i, -oq_decibels(in), after > 0 ? -oq_decibels(after) : INFINITY};
        if (x.after < MUCH_NOISE && x.before - x.after >= MIN_GAIN)
            OQ_TRY(add(t, a, out, x, err));
    }
    return ONQ_OK;
}

onq_code oq_debug_amplifiers(const oq_debug *d, oq_arena *a, oq_amplifiers *out, onq_error *err) {
    const size_t n = d->float_index.values.n;
    tracing t = {.d = d,
                 .ix = &d->float_index,
                 .noise = OQ_NEW_ARRAY(a, tensor_noise, n + 1),
                 .in = OQ_NEW_ARRAY(a, double, n + 1),
                 .out = OQ_NEW_ARRAY(a, double, n + 1)};
    if (t.noise == NULL || t.in == NULL || t.out == NULL)
        return oq_fail_nomem(err);
    for (size_t i = 0; i < n; i++) {
        t.noise[i] = (tensor_noise){NAN, NAN};
        t.in[i] = t.out[i] = NAN;
    }
    return find(&t, a, out, err);
}
