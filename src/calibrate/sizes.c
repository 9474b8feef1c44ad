/*
 * sizes.c — see sizes.h.
 */
#include "calibrate/sizes.h"

uint64_t oq_tensor_size(const oq_shapes *s, const oq_graph *g, oq_str name) {
    oq_tensor_info info;
    uint64_t count = 1, bytes = 0;
    if (!oq_shapes_tensor(s, g, name, &info) || !info.has_shape || !info.is_fixed)
        return 0;
    for (size_t i = 0; i < info.rank; i++)
        if (info.dims[i].n < 0 || !oq_mul(count, (uint64_t)info.dims[i].n, &count))
            return 0;
    return oq_dtype_bytes((oq_dtype)info.elem_type, count, &bytes) ? bytes : 0;
}

/* The dims of the sample's inputs. */
static onq_code give_inputs(const oq_model *m, const oq_sample *sample, oq_arena *a,
                            oq_shape_options *o, onq_error *err) {
    oq_ios inputs;
    OQ_TRY(oq_model_inputs(m, a, &inputs, err));
    assert(inputs.n == sample->n_inputs);
    oq_given_shape *given = OQ_NEW_ARRAY(a, oq_given_shape, inputs.n + 1);
    OQ_TRY_ALLOC(given != NULL, err);
    o->given = given;
    for (size_t i = 0; i < inputs.n; i++) {
        const oq_datum *d = &sample->inputs[i];
        if (d->kind == OQ_DATUM_TENSOR)
            given[o->n_given++] = (oq_given_shape){inputs.v[i].name, d->dims, d->rank};
    }
    return ONQ_OK;
}

onq_code oq_sizes_like(oq_model *m, const oq_sample *sample, const oq_str *names, size_t n,
                       uint64_t *bytes, onq_error *err) {
    oq_shape_options o = {.symbolic = true};
    oq_shapes *shapes = NULL;
    OQ_SCRATCH(scratch, &m->env->alloc);
    onq_code rc = give_inputs(m, sample, &scratch, &o, err);
    if (rc == ONQ_OK)
        rc = oq_shapes_infer(m, &o, &shapes, err);
    for (size_t i = 0; rc == ONQ_OK && i < n; i++)
        if (bytes[i] == 0)
            bytes[i] = oq_tensor_size(shapes, NULL, names[i]);
    oq_shapes_free(shapes);
    return rc;
}
