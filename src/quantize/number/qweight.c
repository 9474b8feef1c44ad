/*
 * qweight.c — one walk over a weight's elements, used three times: ranges, rounding, and (for float
 * 8) deviations.
 *
 * The walk goes through the bytes in file order, a chunk at a time. Each chunk is cut into runs:
 * either all elements of a run share one parameter, or element i of the run has parameter p + i (an
 * axis with nothing after it). The kernels do the rest.
 */
#include "quantize/number/qweight.h"

#include "base/text/real.h"
#include "quantize/number/qkernel.h"

#define CHUNK      8192u      /* elements read at a time: 32 KiB of float32 */
#define DROP_BYTES (4u << 20) /* pages are given back this often */

/* A stretch of elements: n of them from `pos`, the first with parameter p. */
typedef struct run {
    uint64_t n, p;
    bool each; /* parameters p, p+1, ... */
} run;

static run run_at(const oq_qweight *w, uint64_t pos) {
    switch (w->group) {
    case OQ_QGROUP_TENSOR:
        break;
    case OQ_QGROUP_CHANNEL:
        if (w->inner == 1) {
            const uint64_t c = pos % w->along;
            return (run){w->along - c, c, true};
        }
        return (run){w->inner - pos % w->inner, (pos / w->inner) % w->along, false};
    case OQ_QGROUP_BLOCK:
        if (w->inner == 1) {
            const uint64_t row = pos / w->along, k = pos % w->along, b = k / w->block;
            const uint64_t end = (b + 1) * w->block < w->along ? (b + 1) * w->block : w->along;
            return (run){end - k, row * w->n_blocks + b, false};
        } else {
            const uint64_t row = pos / w->inner, col = pos % w->inner;
            const uint64_t b = row / w->along * w->n_blocks + row % w->along / w->block;
            return (run){w->inner - col, b * w->inner + col, true};
        }
    }
    return (run){w->count - pos, 0, false};
}

void oq_reals_read(oq_dtype real, const uint8_t *p, uint64_t first, size_t n, float *out) {
    switch (real) {
    case OQ_FLOAT:
        memcpy(out, p + first * 4, n * 4);
        return;
    case OQ_FLOAT16:
    case OQ_BFLOAT16:
        for (size_t done = 0; done < n;) {
            uint16_t h[512];
            const size_t now = n - done < OQ_COUNT(h) ? n - done : OQ_COUNT(h);
            memcpy(h, p + (first + done) * 2, now * 2);
            if (real == OQ_FLOAT16)
                oq_f16_to_f32_n(h, out + done, now);
            else
                oq_bf16_to_f32_n(h, out + done, now);
            done += now;
        }
        return;
    default:
        for (size_t i = 0; i < n; i++)
            out[i] = (float)oq_raw_get_real(real, p, first + i);
        return;
    }
}

/* The values of a chunk: in place where they are float32 and aligned, else converted into buf. */
static const float *chunk_at(const oq_qweight *w, uint64_t pos, size_t n, float *buf) {
    const uint8_t *p = w->data.p + pos * 4;
    if (w->real == OQ_FLOAT && (uintptr_t)p % sizeof(float) == 0)
        return (const float *)(const void *)p;
    oq_reals_read(w->real, w->data.p, pos, n, buf);
    return buf;
}

static uint64_t elem_bytes(const oq_qweight *w) {
    return w->real == OQ_FLOAT ? 4 : 2;
}

void oq_weight_drop(const oq_file *file, oq_span data, uint64_t from, uint64_t to) {
    if (file != NULL)
        oq_file_drop(file, (uint64_t)(data.p - file->p) + from, to - from);
}

/* Gives back the pages of the elements [from, to). */
static void drop(const oq_qweight *w, uint64_t from, uint64_t to) {
    const uint64_t size = elem_bytes(w);
    oq_weight_drop(w->file, w->data, from * size, to * size);
}

typedef onq_code (*run_fn)(void *ctx, const float *x, uint64_t pos, size_t n, const run *r,
                           onq_error *err);

/* Calls fn for every piece of a run, in order. */
static onq_code walk(const oq_qweight *w, run_fn fn, void *ctx, onq_error *err) {
    float buf[CHUNK];
    uint64_t dropped = 0;
    for (uint64_t pos = 0; pos < w->count; pos += CHUNK) {
        const size_t n = w->count - pos < CHUNK ? (size_t)(w->count - pos) : CHUNK;
        const float *x = chunk_at(w, pos, n, buf);
        for (size_t i = 0; i < n;) {
            run r = run_at(w, pos + i);
            const size_t now = r.n < n - i ? (size_t)r.n : n - i;
            assert(now > 0 && r.p + (r.each ? now : 1) <= w->n_params);
            OQ_TRY(fn(ctx, x + i, pos + i, now, &r, err));
            i += now;
        }
        if ((pos + n - dropped) * elem_bytes(w) >= DROP_BYTES) {
            drop(w, dropped, pos + n);
            dropped = pos + n;
        }
    }
    drop(w, dropped, w->count);
    return ONQ_OK;
}

/* ---- set up ---- */

onq_code oq_weight_find(oq_model *m, oq_tensor *t, oq_span *data, const oq_file **file,
                        onq_error *err) {
    OQ_TRY(oq_model_data(m, t, data, err));
    *file = oq_model_file_of(m, data->p);
    return ONQ_OK;
}

static onq_code set_groups(oq_qweight *w, int64_t axis, uint64_t block, onq_error *err) {
    const oq_tensor *t = w->tensor;
    const int64_t rank = (int64_t)t->dims.n;
    if (w->group == OQ_QGROUP_TENSOR) {
        w->n_params = 1;
        return ONQ_OK;
    }
    if (axis < -rank || axis >= rank)
        return oq_fail(err, ONQ_E_INVALID,
                       "axis %lld is out of range for weight '%.*s' of rank %lld", (long long)axis,
                       OQ_STR(t->name), (long long)rank);
    w->axis = (size_t)(axis < 0 ? axis + rank : axis);
    w->block = block;
    w->outer = w->inner = 1;
    for (size_t i = 0; i < t->dims.n; i++) {
        const uint64_t d = (uint64_t)t->dims.v[i]; /* not negative: oq_tensor_count checked */
        if (i == w->axis)
            w->along = d;
        else if (i < w->axis)
            w->outer *= d;
        else
            w->inner *= d;
    }
    if (w->group == OQ_QGROUP_CHANNEL) {
        w->n_params = w->along;
    } else {
        assert(block > 0);
        w->n_blocks = w->along / block + (w->along % block != 0);
        w->n_params = w->n_blocks * w->outer * w->inner;
    }
    return ONQ_OK;
}

onq_code oq_qweight_init(oq_qweight *w, oq_model *m, oq_tensor *t, oq_qgroup group, int64_t axis,
                         uint64_t block, onq_error *err) {
    *w = (oq_qweight){.tensor = t,
                      .real = (oq_dtype)t->data_type.v,
                      .group = group,
                      .along = 1,
                      .outer = 1,
                      .inner = 1};
    if (w->real != OQ_FLOAT && w->real != OQ_FLOAT16 && w->real != OQ_BFLOAT16)
        return oq_fail(err, ONQ_E_UNSUPPORTED,
                       "weight '%.*s' is %s (only float, float16 and bfloat16 can be quantized)",
                       OQ_STR(t->name), oq_dtype_name(t->data_type.v));
    OQ_TRY(oq_tensor_count(t, &w->count, err));
    OQ_TRY(oq_weight_find(m, t, &w->data, &w->file, err));
    return set_groups(w, axis, block, err);
}

oq_dtype oq_qweight_scale_type(const oq_qweight *w) {
    return w->real == OQ_FLOAT16 && !w->wide ? OQ_FLOAT16 : OQ_FLOAT;
}

onq_code oq_qparams_init(oq_qparams *p, oq_arena *a, uint64_t n, onq_error *err) {
    assert(n > 0);
    p->n = n;
    p->scale = OQ_NEW_ARRAY(a, float, n + 1);
    p->zero = OQ_NEW_ARRAY(a, int32_t, n + 1);
    return p->scale != NULL && p->zero != NULL ? ONQ_OK : oq_fail_nomem(err);
}

/* ---- ranges ---- */

typedef struct ranges {
    float *lo, *hi;
    bool nan;
} ranges;

static onq_code fold_range(void *ctx, const float *x, uint64_t pos, size_t n, const run *r,
                           onq_error *err) {
    ranges *all = ctx;
    (void)pos;
    (void)err;
    const bool ok = r->each ? oq_kernel_minmax_each(x, n, all->lo + r->p, all->hi + r->p)
                            : oq_kernel_minmax(x, n, all->lo + r->p, all->hi + r->p);
    if (!ok)
        all->nan = true;
    return ONQ_OK;
}

static onq_code fail_nan(const oq_qweight *w, onq_error *err) {
    return oq_fail(err, ONQ_E_INVALID, "weight '%.*s' holds NaN (exclude its node)",
                   OQ_STR(w->tensor->name));
}

static onq_code find_ranges(const oq_qweight *w, ranges *all, onq_error *err) {
    for (uint64_t i = 0; i < w->n_params; i++) {
        all->lo[i] = INFINITY;
        all->hi[i] = -INFINITY;
    }
    all->nan = false;
    OQ_TRY(walk(w, fold_range, all, err));
    return all->nan ? fail_nan(w, err) : ONQ_OK;
}

static onq_code params_from_ranges(const oq_qweight *w, const oq_qspec *spec,
                                   const oq_qclamp *clamps, const ranges *all, oq_qparams *out,
                                   onq_error *err) {
    oq_qspec own = *spec;
    own.real = oq_qweight_scale_type(w);
    for (uint64_t i = 0; i < w->n_params; i++) {
        float lo = all->lo[i], hi = all->hi[i];
        oq_qparam p = {1.0f, 0};
        if (clamps != NULL && clamps[i].has_min)
            lo = oq_real_round(own.real, clamps[i].min);
        if (clamps != NULL && clamps[i].has_max)
            hi = oq_real_round(own.real, clamps[i].max);
        if (w->count > 0) {
            OQ_TRY_IN(w->group == OQ_QGROUP_BLOCK ? oq_qparam_block(&own, lo, hi, &p, err)
                                                  : oq_qparam_compute(&own, lo, hi, &p, err),
                      err, "weight '%.*s'", OQ_STR(w->tensor->name));
        }
        out->scale[i] = p.scale;
        out->zero[i] = p.zero_point;
    }
    return ONQ_OK;
}

/* ---- float 8: standard deviations, as numpy.std ---- */

/* The values of group g, one after another. */
static void gather(const oq_qweight *w, uint64_t g, float *out) {
    if (w->group == OQ_QGROUP_TENSOR) {
        oq_reals_read(w->real, w->data.p, 0, (size_t)w->count, out);
        return;
    }
    for (uint64_t o = 0; o < w->outer; o++)
        oq_reals_read(w->real, w->data.p, (o * w->along + g) * w->inner, (size_t)w->inner,
                      out + o * w->inner);
}

static float standard_deviation(oq_dtype real, float *x, size_t n) {
    const float sum = oq_real_round(real, (double)oq_kernel_pairwise_sum(x, n));
    const float mean = oq_real_round(real, (double)sum / (double)n);
    for (size_t i = 0; i < n; i++) {
        const float d = oq_real_add(real, x[i], -mean);
        x[i] = oq_real_mul(real, d, d);
    }
    const float squares = oq_real_round(real, (double)oq_kernel_pairwise_sum(x, n));
    const float variance = oq_real_round(real, (double)squares / (double)n);
    return oq_real_round(real, (double)sqrtf(variance));
}

static onq_code params_float8(const oq_qweight *w, const onq_allocator *alloc, oq_qparams *out,
                              onq_error *err) {
    const oq_dtype real = oq_qweight_scale_type(w);
    const uint64_t n = w->group == OQ_QGROUP_TENSOR ? w->count : w->outer * w->inner;
    float *x = n == 0 ? NULL : oq_alloc(alloc, n * sizeof(float));
    onq_code rc = ONQ_OK;
    if (w->group == OQ_QGROUP_BLOCK)
        rc = oq_fail(err, ONQ_E_UNSUPPORTED, "weight '%.*s': float 8 cannot be quantized in blocks",
                     OQ_STR(w->tensor->name));
    else if (n > 0 && x == NULL)
        rc = oq_fail_nomem(err);
    for (uint64_t i = 0; i < w->n_params && rc == ONQ_OK; i++) {
        oq_qparam p = {1.0f, 0};
        if (n > 0) {
            gather(w, i, x);
            rc = oq_qparam_float8(real, standard_deviation(real, x, (size_t)n), &p, err);
            if (rc != ONQ_OK)
                oq_error_in(err, rc, "weight '%.*s'", OQ_STR(w->tensor->name));
        }
        out->scale[i] = p.scale;
        out->zero[i] = p.zero_point;
    }
    oq_free(alloc, x, n * sizeof(float));
    return rc;
}

onq_code oq_qweight_params(const oq_qweight *w, const oq_qspec *spec, const oq_qclamp *clamps,
                           const onq_allocator *alloc, oq_qparams *out, onq_error *err) {
    assert(out->n == w->n_params);
    if (spec->type == OQ_FLOAT8E4M3FN)
        return params_float8(w, alloc, out, err);
    const size_t bytes = (size_t)w->n_params * sizeof(float) * 2;
    float *both = oq_calloc(alloc, (size_t)w->n_params * 2 + 1, sizeof(float));
    OQ_TRY_ALLOC(both != NULL, err);
    ranges all = {both, both + w->n_params, false};
    onq_code rc = find_ranges(w, &all, err);
    if (rc == ONQ_OK)
        rc = params_from_ranges(w, spec, clamps, &all, out, err);
    oq_free(alloc, both, bytes + sizeof(float));
    return rc;
}

/* ---- rounding ---- */

typedef struct rounding {
    const oq_qweight *w;
    oq_dtype type;
    oq_qrange q;
    const oq_qparams *params;
    uint8_t *out;
} rounding;

static void round_values(const rounding *k, const float *x, size_t n, const run *r, uint8_t *out) {
    const oq_kernel_round one = {k->params->scale[r->p], k->params->zero[r->p], k->q.min, k->q.max};
    const float *scale = k->params->scale + r->p;
    const int32_t *zero = k->params->zero + r->p;
    if (oq_qtype_is_16bit(k->type)) {
        uint16_t *out16 = (uint16_t *)(void *)out;
        if (r->each)
            oq_kernel_round16_each(x, n, scale, zero, k->q.min, k->q.max, out16);
        else
            oq_kernel_round16(x, n, one, out16);
    } else if (r->each) {
        oq_kernel_round8_each(x, n, scale, zero, k->q.min, k->q.max, out);
    } else {
        oq_kernel_round8(x, n, one, out);
    }
}

static onq_code round_run(void *ctx, const float *x, uint64_t pos, size_t n, const run *r,
                          onq_error *err) {
    rounding *k = ctx;
    bool nan = false; /* where parameters were given nobody has looked at the values yet */
    for (size_t i = 0; i < n; i++)
        nan |= x[i] != x[i];
    if (nan)
        return fail_nan(k->w, err);
    if (oq_qtype_is_4bit(k->type)) {
        uint8_t bytes[CHUNK];
        round_values(k, x, n, r, bytes);
        for (size_t i = 0; i < n; i++) {
            uint8_t *at = &k->out[(pos + i) >> 1];
            if (((pos + i) & 1) == 0)
                *at = bytes[i] & 15;
            else
                *at = (uint8_t)(*at | (bytes[i] & 15) << 4);
        }
        return ONQ_OK;
    }
    if (oq_qtype_is_16bit(k->type)) {
        uint16_t values[CHUNK];
        round_values(k, x, n, r, (uint8_t *)(void *)values);
        memcpy(k->out + pos * 2, values, n * 2);
        return ONQ_OK;
    }
    round_values(k, x, n, r, k->out + pos);
    return ONQ_OK;
}

/* As onnx's reference QuantizeLinear: the division is in the weight's type, the cast saturates. */
static onq_code round_float8(void *ctx, const float *x, uint64_t pos, size_t n, const run *r,
                             onq_error *err) {
    rounding *k = ctx;
    const oq_dtype real = oq_qweight_scale_type(k->w);
    for (size_t i = 0; i < n; i++) {
        const float v = x[i] / k->params->scale[r->p + (r->each ? i : 0)];
        const uint8_t b = oq_f32_to_fp8(oq_real_round(real, (double)v), OQ_FP8_E4M3FN, true);
        const unsigned long long at = pos + i;
        if ((b & 127) == 127)
            return oq_fail(err, ONQ_E_INVALID,
                           "weight '%.*s': element %llu is not a number in float 8",
                           OQ_STR(k->w->tensor->name), at);
        k->out[pos + i] = b;
    }
    return ONQ_OK;
}

onq_code oq_qweight_bytes(const oq_qweight *w, oq_dtype type, uint64_t *out, onq_error *err) {
    if (!oq_dtype_bytes((int64_t)type, w->count, out))
        return oq_fail(err, ONQ_E_LIMIT, "weight '%.*s' is too large", OQ_STR(w->tensor->name));
    return ONQ_OK;
}

onq_code oq_qweight_quantize(const oq_qweight *w, oq_dtype type, const oq_qparams *params,
                             uint8_t *out, onq_error *err) {
    assert(params->n == w->n_params);
    rounding k = {.w = w, .type = type, .params = params, .out = out};
    if (type == OQ_FLOAT8E4M3FN)
        return walk(w, round_float8, &k, err);
    k.q = oq_qtype_range(type, false, false);
    return walk(w, round_run, &k, err);
}

/* ---- the producer ---- */

typedef struct lazy {
    oq_producer producer;
    oq_qweight w;
    oq_dtype type;
    oq_qparams params;
} lazy;

static onq_code make_bytes(const oq_producer *self, uint8_t *out, onq_error *err) {
    const lazy *z = self->ctx;
    return oq_qweight_quantize(&z->w, z->type, &z->params, out, err);
}

onq_code oq_qweight_producer(oq_arena *a, const oq_qweight *w, oq_dtype type,
                             const oq_qparams *params, const oq_producer **out, onq_error *err) {
    lazy *z = OQ_NEW(a, lazy);
    OQ_TRY_ALLOC(z != NULL, err);
    z->w = *w;
    z->type = type;
    z->params = *params;
    z->producer = (oq_producer){.make = make_bytes, .ctx = z};
    OQ_TRY(oq_qweight_bytes(w, type, &z->producer.size, err));
    *out = &z->producer;
    return ONQ_OK;
}

onq_code oq_reals_store(oq_arena *a, oq_tensor *t, const float *v, uint64_t n, onq_error *err) {
    if (t->data_type.v == OQ_FLOAT)
        return oq_tensor_set_raw(a, t, v, n * sizeof(float), err);
    uint16_t *halves = OQ_NEW_ARRAY(a, uint16_t, n);
    OQ_TRY_ALLOC(halves != NULL, err);
    for (uint64_t i = 0; i < n; i++)
        halves[i] = oq_f32_to_f16(v[i]);
    oq_tensor_set_view(t, halves, n * sizeof(uint16_t));
    return ONQ_OK;
}
