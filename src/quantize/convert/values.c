/*
 * values.c — the floats that quantized constants stand for: (integer - zero point) * scale, computed
 * as DequantizeLinear of ONNX Runtime does it, in float32 and rounded once to the type of the scale.
 */
#include "quantize/convert/values.h"

#include "base/text/real.h"
#include "quantize/number/qweight.h"

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3")
#endif

#define CHUNK 4096
#define LINE  ((uint64_t)1 << 16) /* parameters that are kept */
#define ROWS  ((uint64_t)1 << 18) /* bytes of turned rows that are kept, unless that is too few */

typedef struct made {
    oq_producer producer;
    const onq_allocator *alloc;
    oq_cv_values v;
    oq_cv_turn turn;
    uint64_t count;
    unsigned width; /* bytes of an element of the result */
} made;

/* What a slice works with. */
typedef struct work {
    const oq_cv_values *v;
    const onq_allocator *alloc;
    uint64_t last; /* one past the last element that is wanted */
    uint8_t *rows; /* of v->turn, turned: elements from `begin` on, before `end`; or NULL */
    uint64_t room, begin, end;
    float *x; /* the result of a stretch: `own`, or where it goes to */
    int32_t q[CHUNK];
    float own[CHUNK];
    uint16_t half[CHUNK];
    /* the parameters of a line; n is 0 before the first */
    uint64_t first, step, n;
    float scale[LINE], real_zero[LINE];
    int32_t zero[LINE];
} work;

/* A stretch of the result. Its scales are those from `skip` on of a line of `line` of them, whose
 * numbers are `first`, `first` + step, ...; a line of one is for all of the stretch. */
typedef struct run {
    uint64_t first, step, zero_first, zero_step, line, skip;
    size_t n;
} run;

/* Of a line that is too long, the part that has element `skip`. */
static void cut_line(run *r) {
    const uint64_t past = r->skip - r->skip % LINE;
    r->first += past * r->step;
    r->zero_first += past * r->zero_step;
    r->skip -= past;
    r->line = r->line - past < LINE ? r->line - past : LINE;
}

/* The stretch that begins with element `at`, at most `most` long. */
static run next_run(const oq_cv_values *v, uint64_t at, size_t most) {
    assert(v->inner > 0 && v->along > 0 && v->block > 0);
    const uint64_t i = at % v->inner, k = at / v->inner % v->along, o = at / v->inner / v->along;
    const uint64_t b = v->groups != NULL ? v->groups[k] : k / v->block;
    run r = {.first = o * v->per_outer + b * v->per_along,
             .zero_first = o * v->zero_outer + b * v->zero_along,
             .step = v->per_inner,
             .zero_step = v->zero_inner,
             .line = v->inner,
             .skip = i};
    uint64_t n = v->inner - i;
    if (v->per_outer == 0 && v->per_along == 0 && v->per_inner == 0) {
        n = most;
    } else if (v->inner == 1 && v->groups != NULL) {
        n = 1;
    } else if (v->inner == 1 && v->block > 1) {
        n = ((b + 1) * v->block < v->along ? (b + 1) * v->block : v->along) - k;
    } else if (v->inner == 1) {
        n = v->along - k;
        r = (run){.first = o * v->per_outer,
                  .zero_first = o * v->zero_outer,
                  .step = v->per_along,
                  .zero_step = v->zero_along,
                  .line = v->along,
                  .skip = k};
    }
    if (r.step == 0 && r.zero_step == 0) {
        r.line = 1;
        r.skip = 0;
    } else {
        cut_line(&r);
        n = n < r.line - r.skip ? n : r.line - r.skip;
    }
    r.n = n < most ? (size_t)n : most;
    return r;
}

static void read_nibbles(const uint8_t *p, uint64_t first, size_t n, int32_t flip, int32_t *out) {
    size_t i = 0;
    if (first % 2 != 0 && n > 0)
        out[i++] = (p[first / 2] >> 4 ^ flip) - flip;
    p += (first + 1) / 2;
    for (; i + 1 < n; i += 2, p++) {
        out[i] = ((*p & 15) ^ flip) - flip;
        out[i + 1] = (*p >> 4 ^ flip) - flip;
    }
    if (i < n)
        out[i] = ((*p & 15) ^ flip) - flip;
}

static void read_ints(work *w, const uint8_t *p, uint64_t first, size_t n) {
    const oq_dtype type = w->v->type;
    switch (type) {
    case OQ_INT8:
        for (size_t i = 0; i < n; i++)
            w->q[i] = (int8_t)p[first + i];
        return;
    case OQ_UINT8:
        for (size_t i = 0; i < n; i++)
            w->q[i] = p[first + i];
        return;
    case OQ_INT4:
    case OQ_UINT4:
        read_nibbles(p, first, n, type == OQ_INT4 ? 8 : 0, w->q);
        return;
    default:
        if (oq_dtype_find(type)->cls == OQ_CLASS_REAL)
            oq_reals_read(type, p, first, n, w->x);
        else
            for (size_t i = 0; i < n; i++)
                w->q[i] = (int32_t)oq_raw_get_int(type, p, first + i);
    }
}

/* ---- turned rows ---- */

/* Turns rows from that of element `at` on: as many as are wanted and have room, in whole squares. */
static onq_code turn_to(work *w, uint64_t at, onq_error *err) {
    const oq_cv_turn *u = w->v->turn;
    const unsigned bits = oq_dtype_find(u->type)->bits;
    const uint64_t side = 64 / bits, room = ROWS / (u->width * bits / 8 + 1) / side * side;
    const uint64_t most = room > side ? room : side;
    const uint64_t row = at / u->width, first = row - row % u->rows % side;
    const uint64_t past = (w->last + u->width - 1) / u->width, left = u->rows - first % u->rows;
    uint64_t n = past - first < left ? past - first : left;
    n = n < most ? n : most;
    const uint64_t from = first * u->width * bits / 8, to = ((first + n) * u->width * bits + 7) / 8;
    if (w->rows == NULL) {
        w->room = most * u->width * bits / 8 + 2;
        w->rows = oq_alloc(w->alloc, w->room);
        OQ_TRY_ALLOC(w->rows != NULL, err);
    }
    w->begin = from * 8 / bits;
    w->end = to * 8 / bits;
    return oq_cv_turn_read(u, w->alloc, from, to - from, w->rows, err);
}

/* The elements of a stretch; *n becomes smaller where not as many are at hand. */
static onq_code read_stretch(work *w, uint64_t at, size_t *n, onq_error *err) {
    if (w->v->turn == NULL) {
        read_ints(w, w->v->data.p, at, *n);
        return ONQ_OK;
    }
    if (w->rows == NULL || at < w->begin || at >= w->end)
        OQ_TRY(turn_to(w, at, err));
    *n = w->end - at < *n ? (size_t)(w->end - at) : *n;
    read_ints(w, w->rows, at - w->begin, *n);
    return ONQ_OK;
}

static void read_scales(work *w, const run *r) {
    const oq_cv_values *v = w->v;
    const uint8_t *p = v->scale.p;
    if (r->step == 1)
        oq_reals_read(v->scale_type, p, r->first, r->line, w->scale);
    else if (v->scale_type == OQ_FLOAT)
        for (uint64_t i = 0; i < r->line; i++)
            memcpy(&w->scale[i], p + (r->first + i * r->step) * sizeof *w->scale, sizeof *w->scale);
    else
        for (uint64_t i = 0; i < r->line; i++)
            oq_reals_read(v->scale_type, p, r->first + i * r->step, 1, &w->scale[i]);
}

static void read_zeros(work *w, const run *r) {
    const oq_cv_values *v = w->v;
    const uint8_t *p = v->zero.p;
    uint64_t at = r->zero_first;
    if (p == NULL)
        for (uint64_t i = 0; i < r->line && w->n < r->line; i++)
            w->zero[i] = v->no_zero;
    else if (oq_dtype_find(v->zero_type)->cls == OQ_CLASS_REAL)
        for (uint64_t i = 0; i < r->line; i++, at += r->zero_step)
            w->real_zero[i] = (float)oq_raw_get_real(v->zero_type, p, at);
    else if (v->zero_type == OQ_UINT4)
        for (uint64_t i = 0; i < r->line; i++, at += r->zero_step)
            w->zero[i] = p[at / 2] >> at % 2 * 4 & 15;
    else
        for (uint64_t i = 0; i < r->line; i++, at += r->zero_step)
            w->zero[i] = (int32_t)oq_raw_get_int(v->zero_type, p, at);
}

/* The parameters of a stretch, unless they are at hand. */
static void read_params(work *w, const run *r) {
    if (w->n == r->line && w->first == r->first && w->step == r->step)
        return;
    read_scales(w, r);
    read_zeros(w, r);
    w->first = r->first;
    w->step = r->step;
    w->n = r->line;
}

static void multiply(work *w, const run *r) {
    const float *scale = w->scale + r->skip;
    const int32_t *zero = w->zero + r->skip;
    float *x = w->x;
    if (r->line > 1)
        for (size_t i = 0; i < r->n; i++)
            x[i] = (float)(w->q[i] - zero[i]) * scale[i];
    else
        for (size_t i = 0; i < r->n; i++)
            x[i] = (float)(w->q[i] - zero[0]) * scale[0];
}

/* Values that are not integers: float 8, code books, zero points that are not rounded. */
static void multiply_reals(work *w, const run *r, uint64_t at, bool real_zero) {
    const oq_cv_values *v = w->v;
    for (size_t i = 0; i < r->n; i++) {
        const uint64_t p = r->skip + (r->line > 1 ? i : 0);
        float scale = w->scale[p];
        if (v->flat_block != 0) {
            const uint64_t c = (at + i) % v->turn->width, row = (at + i) / v->turn->width;
            oq_reals_read(v->scale_type, v->scale.p, (c * v->turn->stride + row) / v->flat_block, 1,
                          &scale);
        }
        if (v->codes != NULL)
            w->x[i] = v->codes[w->q[i] & 15] * scale;
        else if (real_zero)
            w->x[i] = ((float)w->q[i] - w->real_zero[p]) * scale;
        else
            w->x[i] *= scale;
    }
}

static void store(work *w, size_t n, uint8_t *out) {
    switch (w->v->real) {
    case OQ_FLOAT:
        if (w->x == w->own)
            memcpy(out, w->x, n * sizeof *w->x);
        return;
    case OQ_DOUBLE:
        for (size_t i = 0; i < n; i++) {
            const double d = (double)w->x[i];
            memcpy(out + i * sizeof d, &d, sizeof d);
        }
        return;
    case OQ_FLOAT16:
        oq_f32_to_f16_n(w->x, w->half, n);
        break;
    default:
        for (size_t i = 0; i < n; i++)
            w->half[i] = oq_f32_to_bf16(w->x[i]);
    }
    memcpy(out, w->half, n * sizeof *w->half);
}

static onq_code fill(const made *d, work *w, uint64_t at, uint8_t *out, onq_error *err) {
    const oq_cv_values *v = &d->v;
    const uint64_t end = w->last;
    const bool real_zero =
        v->zero.p != NULL && !v->flat_block && oq_dtype_find(v->zero_type)->cls == OQ_CLASS_REAL;
    const bool in_place = v->real == OQ_FLOAT && (uintptr_t)out % _Alignof(float) == 0;
    const bool reals =
        real_zero || v->codes != NULL || oq_dtype_find(v->type)->cls == OQ_CLASS_REAL;
    while (at < end) {
        run r = next_run(v, at, end - at < CHUNK ? (size_t)(end - at) : CHUNK);
        w->x = in_place ? (float *)(void *)out : w->own;
        OQ_TRY(read_stretch(w, at, &r.n, err));
        read_params(w, &r);
        if (reals)
            multiply_reals(w, &r, at,
                           real_zero && v->codes == NULL &&
                               oq_dtype_find(v->type)->cls != OQ_CLASS_REAL);
        else
            multiply(w, &r);
        store(w, r.n, out);
        out += r.n * d->width;
        at += r.n;
    }
    return ONQ_OK;
}

static onq_code slice(const oq_producer *self, uint64_t from, uint64_t n, uint8_t *out,
                      onq_error *err) {
    const made *d = self->ctx;
    work *w = oq_alloc(d->alloc, sizeof *w);
    OQ_TRY_ALLOC(w != NULL, err);
    w->v = &d->v;
    w->alloc = d->alloc;
    w->last = (from + n) / d->width;
    w->rows = NULL;
    w->room = w->n = 0;
    const onq_code rc = fill(d, w, from / d->width, out, err);
    oq_free(d->alloc, w->rows, w->room);
    oq_free(d->alloc, w, sizeof *w);
    return rc;
}

onq_code oq_cv_values_payload(oq_model *m, oq_tensor *t, const oq_cv_values *v, onq_error *err) {
    made *d = OQ_NEW(&m->arena, made);
    OQ_TRY_ALLOC(d != NULL, err);
    *d = (made){.alloc = &m->env->alloc, .v = *v, .width = oq_dtype_find(v->real)->bits / 8};
    if (v->turn != NULL) {
        d->turn = *v->turn;
        d->v.turn = &d->turn;
    }
    OQ_TRY(oq_tensor_count(t, &d->count, err));
    return oq_tensor_set_slices(t, &d->producer, slice, d, err);
}

/* ---- as DequantizeLinear has it ---- */

static onq_code unfit(const oq_tensor *t, const oq_tensor *scale, onq_error *err) {
    return oq_fail(err, ONQ_E_INVALID, "the scales '%.*s' do not fit tensor '%.*s'",
                   OQ_STR(scale->name), OQ_STR(t->name));
}

static onq_code set_axis(oq_cv_values *v, const oq_tensor *t, const oq_tensor *scale, uint64_t n,
                         int64_t axis, int64_t block, onq_error *err) {
    const int64_t rank = (int64_t)t->dims.n;
    axis += axis < 0 ? rank : 0;
    if (axis < 0 || axis >= rank)
        return unfit(t, scale, err);
    for (int64_t i = 0; i < rank; i++) {
        uint64_t *part = i < axis ? &v->outer : i == axis ? &v->along : &v->inner;
        *part *= (uint64_t)t->dims.v[i];
    }
    if (block == 0) {
        v->per_along = v->zero_along = 1;
        return n == v->along ? ONQ_OK : unfit(t, scale, err);
    }
    if (block < 0 || scale->dims.n != t->dims.n)
        return unfit(t, scale, err);
    v->block = (uint64_t)block;
    const uint64_t blocks = v->along / v->block + (v->along % v->block != 0);
    for (int64_t i = 0; i < rank; i++)
        if ((uint64_t)scale->dims.v[i] != (i == axis ? blocks : (uint64_t)t->dims.v[i]))
            return unfit(t, scale, err);
    v->per_inner = v->zero_inner = 1;
    v->per_along = v->zero_along = v->inner;
    v->per_outer = v->zero_outer = v->inner * blocks;
    return ONQ_OK;
}

onq_code oq_cv_values_linear(oq_model *m, oq_tensor *ints, oq_tensor *scale, oq_tensor *zero,
                             int64_t axis, int64_t block, oq_cv_values *out, onq_error *err) {
    uint64_t n = 0, n_zero = 0, count = 0;
    *out = (oq_cv_values){.type = (oq_dtype)ints->data_type.v,
                          .scale_type = (oq_dtype)scale->data_type.v,
                          .real = (oq_dtype)scale->data_type.v,
                          .outer = 1,
                          .along = 1,
                          .inner = 1,
                          .block = 1};
    OQ_TRY(oq_tensor_count(ints, &count, err));
    OQ_TRY(oq_tensor_count(scale, &n, err));
    OQ_TRY(oq_model_data(m, ints, &out->data, err));
    OQ_TRY(oq_model_data(m, scale, &out->scale, err));
    if (zero != NULL) {
        out->zero_type = (oq_dtype)zero->data_type.v;
        OQ_TRY(oq_tensor_count(zero, &n_zero, err));
        OQ_TRY(oq_model_data(m, zero, &out->zero, err));
        if (n_zero != n)
            return oq_fail(err, ONQ_E_INVALID,
                           "tensor '%.*s': '%.*s' has %llu zero points for %llu scales",
                           OQ_STR(ints->name), OQ_STR(zero->name), (unsigned long long)n_zero,
                           (unsigned long long)n);
    }
    if (!oq_dtype_is_float(out->scale_type))
        return oq_fail(err, ONQ_E_INVALID, "the scale '%.*s' is %s", OQ_STR(scale->name),
                       oq_dtype_name(scale->data_type.v));
    if (n == 1 && block == 0) {
        out->inner = count > 0 ? count : 1;
        return ONQ_OK;
    }
    return set_axis(out, ints, scale, n, axis, block, err);
}
