/*
 * compute.c — see compute.h.
 */
#include "compute.h"

#include "fake_engine.h"
#include "onnx/tensor.h"
#include "samples/source.h"
#include "testing.h"

#include <math.h>

/* Appends what one sample gives. */
static void run_sample(oq_session *s, const oq_sample *sample, computed *out) {
    onq_error err = ONQ_ERROR_INIT;
    oq_outputs got;
    assert_ok(oq_session_run(s, sample->inputs, s->inputs.n, &got, &err), err);
    for (size_t i = 0; i < got.n; i++) {
        oq_datum copy;
        const oq_str name = oq_str_copy(&out->arena, s->outputs.v[i].name);
        assert_ok(oq_datum_copy(&out->arena, &got.v[i], &copy, &err), err);
        assert_true(OQ_PUSH(&out->arena, &out->outputs, copy));
        assert_true(OQ_PUSH(&out->arena, &out->names, name));
    }
}

void compute(bm *b, computed *out) {
    onq_error err = ONQ_ERROR_INIT;
    fake_engine fake;
    oq_session *s = NULL;
    oq_source *source = NULL;
    const oq_session_options o = {.model = b->m};
    const oq_source_options so = {.spec = COMPUTE_SAMPLES, .model = b->m};
    *out = (computed){0};
    oq_arena_init(&out->arena, oq_alloc_default());
    fake_engine_init(&fake, b->env);
    assert_ok(oq_session_open(&fake.base, &o, &s, &err), err);
    assert_ok(oq_source_open(b->env, &so, &source, &err), err);
    for (const oq_sample *sample = NULL;;) {
        assert_ok(oq_source_next(source, &sample, &err), err);
        if (sample == NULL)
            break;
        run_sample(s, sample, out);
    }
    oq_source_close(source);
    oq_session_close(s);
}

void computed_release(computed *c) {
    oq_arena_release(&c->arena);
}

static double number(const oq_datum *d, uint64_t i) {
    return oq_dtype_is_float(d->dtype) ? oq_raw_get_real(d->dtype, d->data, i)
                                       : (double)oq_raw_get_int(d->dtype, d->data, i);
}

static void assert_same(oq_str name, const oq_datum *was, const oq_datum *is, double within) {
    double most = 0;
    assert_int_equal(is->dtype, was->dtype);
    assert_int_equal(is->rank, was->rank);
    for (size_t d = 0; d < was->rank; d++)
        assert_int_equal(is->dims[d], was->dims[d]);
    for (uint64_t i = 0; i < was->count; i++)
        most = fmax(most, fabs(number(was, i)));
    assert_true(was->count > 0 && isfinite(most));
    for (uint64_t i = 0; i < was->count; i++)
        if (!(fabs(number(is, i) - number(was, i)) <= within * most))
            fail_msg("output '%.*s', number %llu: %.9g was %.9g (the largest: %g)", OQ_STR(name),
                     (unsigned long long)i, number(is, i), number(was, i), most);
}

void assert_computes(bm *b, const computed *before, double within) {
    computed now;
    compute(b, &now);
    assert_int_equal(now.outputs.n, before->outputs.n);
    assert_true(now.outputs.n > 0);
    for (size_t i = 0; i < now.outputs.n; i++) {
        assert_true(oq_str_eq(now.names.v[i], before->names.v[i]));
        assert_same(now.names.v[i], &before->outputs.v[i], &now.outputs.v[i], within);
    }
    computed_release(&now);
}
