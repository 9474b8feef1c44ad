/*
 * cv_uint8.c — ConvInteger with a weight of uint8 in place of int8: the same integers, 128 higher like
 * their zero point. Runtimes before 1.24 have no kernel for the others.
 */
#include "quantize/convert/cv.h"

/* The constant, 128 higher, as a new one; one for all that ask. */
static onq_code shifted(oq_cv_scope *s, oq_tensor *from, oq_str *out, onq_error *err) {
    uint64_t n = 0;
    oq_span data;
    const oq_str key = oq_str_format(&s->cv->scratch, "uint8|%.*s", OQ_STR(from->name));
    OQ_TRY_ALLOC(key.p != NULL, err);
    const uint32_t at = oq_map_find(&s->made, key);
    if (at != OQ_MAP_NONE) {
        *out = s->floats.v[at];
        return ONQ_OK;
    }
    OQ_TRY(oq_tensor_count(from, &n, err));
    OQ_TRY(oq_model_data(s->cv->model, from, &data, err));
    *out = oq_fresh_tensor(&s->cv->names, from->name, "_uint8");
    oq_tensor *t = oq_cv_init(s, from->name, *out, OQ_UINT8, from->dims.v, from->dims.n);
    OQ_TRY_ALLOC(t != NULL, err);
    const oq_cv_turn turn = {.data = data,
                             .type = OQ_INT8,
                             .rows = 1,
                             .cols = n,
                             .stride = 1,
                             .width = n,
                             .batch = 1,
                             .flip = true};
    OQ_TRY(oq_cv_turn_payload(s->cv->model, t, &turn, err));
    return OQ_PUSH(&s->cv->scratch, &s->floats, *out) &&
                   oq_map_put(&s->made, key, (uint32_t)(s->floats.n - 1))
               ? ONQ_OK
               : oq_fail_nomem(err);
}

/* A zero point that was not there, and so was 0. */
static onq_code middle(oq_cv_scope *s, oq_str near, oq_str *out, onq_error *err) {
    static const uint8_t value = 128;
    *out = oq_fresh_tensor(&s->cv->names, near, "_zero_uint8");
    oq_tensor *t = oq_cv_init(s, near, *out, OQ_UINT8, NULL, 0);
    OQ_TRY_ALLOC(t != NULL, err);
    return oq_tensor_set_raw(s->cv->arena, t, &value, 1, err);
}

static onq_code change(oq_cv_scope *s, oq_node *n, oq_tensor *w, onq_error *err) {
    const oq_str zero = oq_node_input(n, 3);
    oq_tensor *z = zero.n > 0 ? oq_cv_constant(s, zero) : NULL;
    oq_str weight = {0}, point = {0};
    if (zero.n > 0 && z == NULL)
        return oq_cv_refuse(n, ONQ_E_UNSUPPORTED, err, "its zero point '%.*s' is computed",
                            OQ_STR(zero));
    OQ_TRY(shifted(s, w, &weight, err));
    OQ_TRY(z != NULL ? shifted(s, z, &point, err) : middle(s, w->name, &point, err));
    while (n->input.n < 4)
        OQ_TRY_ALLOC(OQ_PUSH(s->cv->arena, &n->input, OQ_S("")), err);
    n->input.v[1] = weight;
    n->input.v[3] = point;
    s->cv->job->n_operators++;
    return ONQ_OK;
}

onq_code oq_cv_to_uint8(oq_cv_scope *s, onq_error *err) {
    for (size_t i = 0; i < s->graph->node.n; i++) {
        oq_node *n = s->graph->node.v[i];
        oq_tensor *w = oq_node_is(n, "ConvInteger") ? oq_cv_constant(s, oq_node_input(n, 1)) : NULL;
        if (w != NULL && w->data_type.v == OQ_INT8)
            OQ_TRY(change(s, n, w, err));
        OQ_TRY(oq_cv_emit(s, n, err));
    }
    return ONQ_OK;
}
