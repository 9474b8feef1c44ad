/*
 * noise.c — see noise.h. Two cursors walk the two lists in pieces, so lists that are cut
 * differently compare like the arrays numpy would concatenate.
 */
#include "debug/measure/noise.h"

#include "base/alloc.h"
#include "base/text/real.h"
#include "debug/measure/sums.h"
#include "onnx/dtype.h"
#include "samples/agreement.h"

#define PIECE 1024

/* numpy's float types, the least exact first. */
typedef enum precision { HALF, SINGLE, DOUBLE } precision;

typedef struct side {
    const onq_tensor *v;
    size_t n, at;        /* tensors; the current one */
    uint64_t from, left; /* elements of it that are done, that are left */
    uint64_t total;
    precision p;
} side;

onq_code oq_noise_count(const onq_tensor *t, uint64_t *out, onq_error *err) {
    uint64_t n = 1, bytes = 0;
    const char *name = t->name != NULL ? t->name : "";
    for (size_t i = 0; i < t->rank; i++)
        if (t->dims[i] < 0 || !oq_mul(n, (uint64_t)t->dims[i], &n))
            return oq_fail(err, ONQ_E_INVALID, "tensor '%.200s': dimension %zu is %lld", name, i,
                           (long long)t->dims[i]);
    if (!oq_dtype_bytes(t->dtype, n, &bytes))
        return oq_fail(err, ONQ_E_INVALID, "tensor '%.200s': elements of type %s", name,
                       oq_dtype_name(t->dtype));
    if (bytes != t->size || (bytes > 0 && t->data == NULL))
        return oq_fail(err, ONQ_E_INVALID, "tensor '%.200s': %zu bytes, its dims need %llu", name,
                       t->data != NULL ? t->size : 0, (unsigned long long)bytes);
    *out = n;
    return ONQ_OK;
}

static onq_code begin(side *s, const onq_tensor *v, size_t n, onq_error *err) {
    *s = (side){.v = v, .n = n, .p = HALF};
    for (size_t i = 0; i < n; i++) {
        uint64_t count = 0;
        const int32_t t = v[i].dtype;
        if (t != OQ_FLOAT && t != OQ_FLOAT16 && t != OQ_DOUBLE)
            return oq_fail(err, ONQ_E_UNSUPPORTED,
                           "signal to noise of %s: only float, float16 and double tensors",
                           oq_dtype_name(t));
        OQ_TRY(oq_noise_count(&v[i], &count, err));
        const precision p = t == OQ_DOUBLE ? DOUBLE : t == OQ_FLOAT ? SINGLE : HALF;
        s->p = p > s->p ? p : s->p;
        if (!oq_add(s->total, count, &s->total))
            return oq_fail(err, ONQ_E_LIMIT, "more than 2^64 elements to compare");
        if (i == 0)
            s->left = count;
    }
    return ONQ_OK;
}

/* At most n further elements as doubles, which hold every type; they stay within one tensor. */
static size_t take(side *s, size_t n, double *out) {
    while (s->left == 0 && s->at + 1 < s->n) {
        s->at++;
        s->from = 0;
        s->left = 1;
        for (size_t i = 0; i < s->v[s->at].rank; i++)
            s->left *= (uint64_t)s->v[s->at].dims[i]; /* begin has checked it */
    }
    const onq_tensor *t = &s->v[s->at];
    const uint8_t *p = t->data;
    const size_t k = s->left < n ? (size_t)s->left : n;
    for (size_t i = 0; i < k; i++) {
        const uint64_t at = s->from + i;
        if (t->dtype == OQ_DOUBLE) {
            memcpy(&out[i], p + at * sizeof(double), sizeof(double));
        } else if (t->dtype == OQ_FLOAT) {
            float f;
            memcpy(&f, p + at * sizeof f, sizeof f);
            out[i] = (double)f;
        } else {
            uint16_t h;
            memcpy(&h, p + at * sizeof h, sizeof h);
            out[i] = (double)oq_f16_to_f32(h);
        }
    }
    s->from += k;
    s->left -= k;
    return k;
}

static double rounded(double v, precision p) {
    if (p == DOUBLE)
        return v;
    if (p == SINGLE)
        return (double)(float)v;
    return (double)oq_f16_to_f32(oq_f32_to_f16((float)v));
}

/* The norm as a number of that precision; numpy adds squares of halves in float32. */
static double norm(double squares, precision p) {
    return rounded(sqrt(rounded(squares, p)), p);
}

static double ratio_db(double signal, precision ps, double noise, precision pn) {
    /* Python's max(norm, epsilon): a NaN stays, and epsilon is a double. */
    if (signal < DBL_EPSILON) {
        signal = DBL_EPSILON;
        ps = DOUBLE;
    }
    if (noise < DBL_EPSILON) {
        noise = DBL_EPSILON;
        pn = DOUBLE;
    }
    return 2 * oq_decibels(rounded(signal / noise, ps > pn ? ps : pn));
}

static void add_squares(double *sum, const double *v, size_t n, precision p) {
    double s = 0;
    for (size_t i = 0; i < n; i++)
        s += p == DOUBLE ? v[i] * v[i] : (double)((float)v[i] * (float)v[i]);
    *sum += s;
}

/* Both of one float32 tensor each: what activations are, without the detour over doubles. */
static bool plain(const side *x, const side *y) {
    return x->n == 1 && y->n == 1 && x->p == SINGLE && y->p == SINGLE &&
           (uintptr_t)x->v[0].data % sizeof(float) == 0 &&
           (uintptr_t)y->v[0].data % sizeof(float) == 0;
}

onq_code oq_noise_sqnr(const onq_tensor *x, size_t n_x, const onq_tensor *y, size_t n_y,
                       double *out, onq_error *err) {
    side a, b;
    double xs[PIECE], ys[PIECE], xx = 0, ee = 0;
    *out = NAN;
    if (n_x != n_y)
        return oq_fail(err, ONQ_E_INVALID, "unequal number of tensors to compare: %zu and %zu", n_x,
                       n_y);
    if (n_x == 0)
        return oq_fail(err, ONQ_E_INVALID, "no tensors to compare");
    OQ_TRY(begin(&a, x, n_x, err));
    OQ_TRY(begin(&b, y, n_y, err));
    if (a.total != b.total)
        return oq_fail(err, ONQ_E_INVALID, "unequal number of elements to compare: %llu and %llu",
                       (unsigned long long)a.total, (unsigned long long)b.total);
    const precision pd = a.p > b.p ? a.p : b.p;
    if (plain(&a, &b)) {
        oq_sums s = {0};
        oq_sums_add_noise(&s, x->data, y->data, a.total);
        xx = s.xx;
        ee = s.ee;
        a.total = 0;
    }
    for (uint64_t done = 0; done < a.total;) {
        const size_t k = take(&a, PIECE, xs);
        for (size_t have = 0; have < k;)
            have += take(&b, k - have, ys + have);
        add_squares(&xx, xs, k, a.p);
        for (size_t i = 0; i < k; i++)
            xs[i] = rounded(xs[i] - ys[i], pd);
        add_squares(&ee, xs, k, pd);
        done += k;
    }
    *out = ratio_db(norm(xx, a.p), a.p, norm(ee, pd), pd);
    return ONQ_OK;
}
