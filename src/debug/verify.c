/*
 * verify.c — see verify.h.
 */
#include "debug/verify.h"

#include "onnx/graph.h"
#include "onnx/operators.h"
#include "onnx/tensor.h"

#include <math.h>

/* Signal and noise of one output, over the elements where float is finite. */
typedef struct sums {
    double signal, noise;
    uint64_t n;
    bool wrecked; /* the quantized model has no number where float has one */
} sums;

static bool same_shape(const oq_datum *a, const oq_datum *b) {
    if (a->dtype != b->dtype || a->rank != b->rank)
        return false;
    for (size_t i = 0; i < a->rank; i++)
        if (a->dims[i] != b->dims[i])
            return false;
    return true;
}

/* The size of an output may depend on its values (NonZero): then there is nothing to compare.
 * Integers and texts are not compared either: a different class is not noise. */
static void add_tensor(sums *s, const oq_datum *a, const oq_datum *b) {
    if (!oq_dtype_is_float(a->dtype) || !same_shape(a, b))
        return;
    for (uint64_t i = 0; i < a->count; i++) {
        const double x = oq_raw_get_real(a->dtype, a->data, i);
        const double y = oq_raw_get_real(b->dtype, b->data, i);
        if (!isfinite(x))
            continue;
        s->wrecked |= !isfinite(y);
        s->signal += x * x;
        s->noise += (x - y) * (x - y);
        s->n++;
    }
}

/* Items nest no deeper than a type, which is checked when a model is read. */
static void add(sums *s, const oq_datum *a, const oq_datum *b) {
    if (a->kind == OQ_DATUM_TENSOR && b->kind == OQ_DATUM_TENSOR)
        add_tensor(s, a, b);
    for (size_t i = 0; a->n_items == b->n_items && i < a->n_items; i++)
        add(s, &a->items[i], &b->items[i]);
}

static double decibel(const sums *s) {
    const double db = s->noise > 0 ? 10 * log10(s->signal / s->noise) : OQ_VERIFY_EQUAL;
    return db > OQ_VERIFY_EQUAL ? OQ_VERIFY_EQUAL : db;
}

static void judge(const oq_session *s, const oq_record *r, const oq_outputs *out, oq_verdict *v) {
    for (size_t i = 0; i < r->n_outputs && i < out->n; i++) {
        sums sum = {0};
        add(&sum, &r->outputs[i], &out->v[i]);
        if (sum.wrecked) {
            v->end = OQ_VERIFY_NOT_FINITE;
            (void)oq_fail(
                &v->why, ONQ_E_RUNTIME,
                "output '%.*s' has NaN or infinity where the float model has finite values",
                OQ_STR(s->outputs.v[i].name));
            return;
        }
        if (sum.n == 0 || sum.signal == 0)
            continue;
        v->n_outputs++;
        if (v->measured && decibel(&sum) >= v->sqnr)
            continue;
        v->measured = true;
        v->sqnr = decibel(&sum);
        v->output = s->outputs.v[i].name;
    }
}

static onq_code see_random(void *ctx, oq_graph *g, oq_node *owner, onq_error *err) {
    (void)owner;
    (void)err;
    for (size_t i = 0; i < g->node.n; i++)
        *(bool *)ctx |= oq_op_traits_of(g->node.v[i]->op_type)->random;
    return ONQ_OK;
}

/* What the runtime says of the model; anything else that failed is an error. */
static onq_code take(onq_code rc, oq_verify_end end, oq_verdict *v, onq_error *err) {
    if (rc != ONQ_E_RUNTIME) {
        if (rc != ONQ_OK && err != NULL)
            *err = v->why;
        return rc;
    }
    v->end = end;
    return ONQ_OK;
}

static onq_code run(oq_session *s, const oq_session_options *how, const oq_record *r, oq_verdict *v,
                    onq_error *err) {
    oq_outputs out = {0};
    bool random = false;
    if (r == NULL || !r->kept || r->n_inputs != s->inputs.n)
        return ONQ_OK;
    OQ_TRY(
        take(oq_session_run(s, r->inputs, r->n_inputs, &out, &v->why), OQ_VERIFY_NOT_RUN, v, err));
    if (v->end != OQ_VERIFY_GOOD)
        return ONQ_OK;
    v->ran = true;
    OQ_TRY(oq_walk_graphs(how->model->proto->graph, see_random, &random, err));
    if (!random)
        judge(s, r, &out, v);
    return ONQ_OK;
}

onq_code oq_verify(oq_engine *e, const oq_session_options *how, const oq_record *r, oq_verdict *v,
                   onq_error *err) {
    oq_session *s = NULL;
    *v = (oq_verdict){.why = ONQ_ERROR_INIT};
    OQ_TRY(oq_progress(e->env, "verifying", 0, 0, err));
    OQ_TRY(take(oq_session_open(e, how, &s, &v->why), OQ_VERIFY_NOT_LOADED, v, err));
    onq_code rc = ONQ_OK;
    if (v->end == OQ_VERIFY_GOOD)
        rc = run(s, how, r, v, err);
    oq_session_close(s);
    return rc;
}

const char *oq_verify_text(oq_verify_end end) {
    static const char *const texts[] = {"is good", "does not load", "does not run",
                                        "gives NaN or infinity"};
    return texts[end];
}

/* Each bit is 6 dB; what is left of 48 dB after a deep model of 8 bits is seldom below 10. */
double oq_verify_floor(unsigned bits) {
    const double floor = 6.0 * bits - 38.0;
    return floor < 0 ? 0 : floor > 30 ? 30 : floor;
}
