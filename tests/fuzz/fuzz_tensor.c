/*
 * fuzz_tensor.c — any bytes as a TensorProto: sizes agree with dims and type, numbers can be read
 * in every way that applies, and typed storage made of them gives the same bytes again.
 */
#include "onnx/tensor.h"

#include <math.h>
#include <stdio.h>

#include "fuzz.h"
#include "message_walk.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static volatile double sink;

/* Values read one by one, stored in the typed field and brought back to bytes, are the same
 * values. */
static void typed_again(oq_model *m, const oq_tensor *t, oq_dtype dt, oq_span raw, uint64_t count) {
    onq_error err = ONQ_ERROR_INIT;
    oq_tensor *copy = oq_tensor_new(&m->arena, t->name, dt, t->dims.v, t->dims.n);
    MUST(copy != NULL);
    const oq_dclass cls = oq_dtype_find(dt)->cls;
    oq_span back;
    if (cls == OQ_CLASS_REAL) {
        double *v = OQ_NEW_ARRAY(&m->arena, double, count);
        for (uint64_t i = 0; i < count; i++) {
            v[i] = oq_raw_get_real(dt, raw.p, i);
            if (!isfinite(v[i])) /* NaN has many forms, and fp8 saturates */
                return;
        }
        if (oq_tensor_set_typed_f(&m->arena, copy, v, count, &err) == ONQ_E_UNSUPPORTED)
            return;
        MUST(oq_model_data(m, copy, &back, &err) == ONQ_OK);
        MUST(back.n == raw.n);
        for (uint64_t i = 0; i < count; i++)
            MUST(oq_raw_get_real(dt, back.p, i) == v[i]);
        return;
    }
    int64_t *v = OQ_NEW_ARRAY(&m->arena, int64_t, count);
    for (uint64_t i = 0; i < count; i++)
        v[i] = oq_raw_get_int(dt, raw.p, i);
    MUST(oq_tensor_set_typed_i(&m->arena, copy, v, count, &err) == ONQ_OK);
    MUST(oq_model_data(m, copy, &back, &err) == ONQ_OK);
    MUST(back.n == raw.n);
    for (uint64_t i = 0; i < count; i++)
        MUST(oq_raw_get_int(dt, back.p, i) == v[i]);
}

static void use_tensor(oq_model *m, oq_tensor *t) {
    onq_error err = ONQ_ERROR_INIT;
    uint64_t count = 0, bytes = 0, expected = 0;
    oq_span raw;
    const onq_code counted = oq_tensor_count(t, &count, &err);
    const onq_code sized = oq_tensor_bytes(t, &bytes, &err);
    MUST(sized != ONQ_OK || counted == ONQ_OK);
    if (oq_model_data(m, t, &raw, &err) != ONQ_OK) {
        MUST(err.text[0] != '\0');
        return;
    }
    const oq_dtype dt = (oq_dtype)t->data_type.v;
    const oq_dclass cls = oq_dtype_find(dt)->cls;
    MUST(sized == ONQ_OK && raw.n == bytes);
    MUST(oq_dtype_bytes(dt, count, &expected) && expected == bytes);
    sink = walk_bytes(1, raw.p, raw.n);
    double sum = 0;
    for (uint64_t i = 0; i < count && cls != OQ_CLASS_COMPLEX; i++)
        sum += cls == OQ_CLASS_REAL ? oq_raw_get_real(dt, raw.p, i)
                                    : (double)oq_raw_get_int(dt, raw.p, i);
    sink = sum;
    float *floats = NULL;
    int64_t *ints = NULL;
    size_t n = 0;
    if (oq_tensor_floats(m, t, &m->arena, &floats, &n, &err) == ONQ_OK)
        MUST(n == count);
    if (oq_tensor_i64s(m, t, &m->arena, &ints, &n, &err) == ONQ_OK)
        MUST(n == count);
    if (cls == OQ_CLASS_REAL || cls == OQ_CLASS_INT || cls == OQ_CLASS_UINT)
        typed_again(m, t, dt, raw, count);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    onq_env *env = onq_env_new(NULL);
    oq_model *m = NULL;
    onq_error err = ONQ_ERROR_INIT;
    MUST(oq_model_new(env, 8, 21, &m, &err) == ONQ_OK);
    void *msg = NULL;
    if (oq_decode(&m->arena, OQ_SCHEMA_tensor, data, size, 0, &msg, &err) == ONQ_OK)
        use_tensor(m, msg);
    else
        MUST(err.text[0] != '\0');
    oq_model_free(m);
    onq_env_free(env);
    return 0;
}
