/*
 * extent.c — the two kernels of extent.h, in eight-lane vectors that every compiler lowers to what
 * the machine has. On x86 the same body is compiled for AVX2 too and chosen at run time.
 */
#include "calibrate/collect/extent.h"

#include "base/system/cpu.h"
#include "base/text/real.h"

typedef float v8f __attribute__((vector_size(32)));
typedef int32_t v8i __attribute__((vector_size(32)));

#define INLINE static inline __attribute__((always_inline))

/* Loads through memcpy: tensors need not be aligned. Macros, since passing vectors needs an ABI. */
#define LOAD(p)                                                                                    \
    __extension__({                                                                                \
        v8f load_v;                                                                                \
        memcpy(&load_v, (p), sizeof load_v);                                                       \
        load_v;                                                                                    \
    })
/* b where the mask is set, else a */
#define PICK(mask, b, a) ((v8f)(((mask) & (v8i)(b)) | (~(mask) & (v8i)(a))))
/* x if it is strictly better than the best so far */
#define LEAST(x, best) PICK((x) < (best), x, best)
#define MOST(x, best)  PICK((x) > (best), x, best)
#define SPLAT(x)       ((v8f){(x), (x), (x), (x), (x), (x), (x), (x)})

/* One value against the best so far: the new one only if it is strictly better. */
INLINE float least(float a, float b) {
    return b < a ? b : a;
}
INLINE float most(float a, float b) {
    return b > a ? b : a;
}

/* The runtime sums up its lanes 0..3 with 4..7, then a packet of four that is left over, then
 * lanes 0 with 2 and 1 with 3, then these two, then what is left. */
#define FOLD(op, acc, v, n8, n, out)                                                               \
    do {                                                                                           \
        float r[4];                                                                                \
        for (size_t k = 0; k < 4; k++) {                                                           \
            r[k] = op((acc)[k], (acc)[k + 4]);                                                     \
            if ((n)-8 * (n8) >= 4)                                                                 \
                r[k] = op(r[k], (v)[8 * (n8) + k]);                                                \
        }                                                                                          \
        float best = op(op(r[0], r[2]), op(r[1], r[3]));                                           \
        for (size_t i = (n) - (n) % 4; i < (n); i++)                                               \
            best = op(best, (v)[i]);                                                               \
        *(out) = best;                                                                             \
    } while (0)

/* Fewer than eight values: one packet of four if there is one, or none. */
static void runtime_few(const float *v, size_t n, float *lo, float *hi) {
    if (n == 0) {
        *lo = INFINITY;
        *hi = -INFINITY;
        return;
    }
    size_t i = 1;
    float a = v[0], b = v[0];
    if (n >= 4) {
        a = least(least(v[0], v[2]), least(v[1], v[3]));
        b = most(most(v[0], v[2]), most(v[1], v[3]));
        i = 4;
    }
    for (; i < n; i++) {
        a = least(a, v[i]);
        b = most(b, v[i]);
    }
    *lo = a;
    *hi = b;
}

/* Four runs of blocks side by side hide the latency; joined in order they give what one run
 * gives. Runs after the first start at +inf and -inf, which leaves their NaN out. Each has a
 * variable of its own: in an array they would stay in memory. */
#define RUNTIME_STEP(LESS, MORE, p, a, b)                                                          \
    do {                                                                                           \
        const v8f x = LOAD(p);                                                                     \
        a = LESS(x, a);                                                                            \
        b = MORE(x, b);                                                                            \
    } while (0)

#define RUNTIME_KERNEL(name, attribute, LESS, MORE)                                                \
    attribute static void name(const float *v, size_t n, float *lo, float *hi) {                   \
        const size_t n8 = n / 8, run = n8 / 4;                                                     \
        v8f a0 = LOAD(v), b0 = a0; /* the first block as it is: its NaN stay */                    \
        v8f a1 = SPLAT(INFINITY), a2 = a1, a3 = a1;                                                \
        v8f b1 = SPLAT(-INFINITY), b2 = b1, b3 = b1;                                               \
        for (size_t i = 0; i < run; i++) {                                                         \
            RUNTIME_STEP(LESS, MORE, v + 8 * i, a0, b0);                                           \
            RUNTIME_STEP(LESS, MORE, v + 8 * (run + i), a1, b1);                                   \
            RUNTIME_STEP(LESS, MORE, v + 8 * (2 * run + i), a2, b2);                               \
            RUNTIME_STEP(LESS, MORE, v + 8 * (3 * run + i), a3, b3);                               \
        }                                                                                          \
        for (size_t i = 4 * run; i < n8; i++)                                                      \
            RUNTIME_STEP(LESS, MORE, v + 8 * i, a3, b3);                                           \
        a0 = LESS(a3, LESS(a2, LESS(a1, a0)));                                                     \
        b0 = MORE(b3, MORE(b2, MORE(b1, b0)));                                                     \
        FOLD(least, a0, v, n8, n, lo);                                                             \
        FOLD(most, b0, v, n8, n, hi);                                                              \
    }

RUNTIME_KERNEL(runtime_plain, , LEAST, MOST)

/* Order of floats as integers: -0 below +0, no NaN handled (they are looked for afterwards). */
INLINE void finite_body(const float *v, size_t n, int32_t *lo, int32_t *hi, int32_t *lo_abs) {
    const size_t n8 = n / 8;
    v8i a, b, c;
    for (int k = 0; k < 8; k++) {
        a[k] = INT32_MAX;
        b[k] = INT32_MIN;
        c[k] = INT32_MAX;
    }
    const v8i mask = {INT32_MAX, INT32_MAX, INT32_MAX, INT32_MAX,
                      INT32_MAX, INT32_MAX, INT32_MAX, INT32_MAX};
    for (size_t i = 0; i < n8; i++) {
        const v8i x = (v8i)LOAD(v + 8 * i);
        const v8i key = x ^ ((x >> 31) & mask), mag = x & mask;
        const v8i less = key<a, more = key> b, near = mag < c;
        a = (less & key) | (~less & a);
        b = (more & key) | (~more & b);
        c = (near & mag) | (~near & c);
    }
    int32_t least_key = INT32_MAX, most_key = INT32_MIN, least_mag = INT32_MAX;
    for (int k = 0; k < 8; k++) {
        least_key = a[k] < least_key ? a[k] : least_key;
        most_key = b[k] > most_key ? b[k] : most_key;
        least_mag = c[k] < least_mag ? c[k] : least_mag;
    }
    for (size_t i = 8 * n8; i < n; i++) {
        int32_t x;
        memcpy(&x, v + i, sizeof x);
        const int32_t key = x ^ ((x >> 31) & INT32_MAX), mag = x & INT32_MAX;
        least_key = key < least_key ? key : least_key;
        most_key = key > most_key ? key : most_key;
        least_mag = mag < least_mag ? mag : least_mag;
    }
    *lo = least_key;
    *hi = most_key;
    *lo_abs = least_mag;
}

static void finite_plain(const float *v, size_t n, int32_t *lo, int32_t *hi, int32_t *lo_abs) {
    finite_body(v, n, lo, hi, lo_abs);
}

#if defined(__x86_64__)
#define HAVE_AVX2 1
/* The instruction gives its second operand when they are equal or one is NaN: the rule wanted. */
#define LEAST_AVX2(x, best) __builtin_ia32_minps256(x, best)
#define MOST_AVX2(x, best)  __builtin_ia32_maxps256(x, best)
RUNTIME_KERNEL(runtime_avx2, OQ_AVX2, LEAST_AVX2, MOST_AVX2)
OQ_AVX2 static void finite_avx2(const float *v, size_t n, int32_t *lo, int32_t *hi,
                                int32_t *lo_abs) {
    finite_body(v, n, lo, hi, lo_abs);
}
#endif

void oq_extent_runtime(const float *v, size_t n, float *lo, float *hi) {
    if (n < 8) {
        runtime_few(v, n, lo, hi);
        return;
    }
#ifdef HAVE_AVX2
    if (oq_cpu_has(OQ_CPU_AVX2)) {
        runtime_avx2(v, n, lo, hi);
        return;
    }
#endif
    runtime_plain(v, n, lo, hi);
}

/* With NaN or infinities among them: one at a time. */
static void add_slow(oq_extent *e, const float *v, size_t n) {
    for (size_t i = 0; i < n; i++) {
        const float x = v[i], m = fabsf(x);
        if (isnan(x)) {
            e->n_nan++;
        } else if (isinf(x)) {
            *(x < 0 ? &e->n_low_inf : &e->n_high_inf) += 1;
        } else {
            if (x < e->lo || (x == e->lo && signbit(x)))
                e->lo = x;
            if (x > e->hi || (x == e->hi && !signbit(x)))
                e->hi = x;
            if (m < e->lo_abs)
                e->lo_abs = m;
        }
    }
}

/* n floats whose least and greatest are known, as integers that are ordered as the values are (the
 * bits, the lower ones turned where the sign is set), and whose least magnitude. */
static void add_keys(oq_extent *e, const float *v, size_t n, int32_t least, int32_t most,
                     int32_t least_magnitude) {
    const float lo = oq_f32_of_bits((uint32_t)(least ^ ((least >> 31) & INT32_MAX)));
    const float hi = oq_f32_of_bits((uint32_t)(most ^ ((most >> 31) & INT32_MAX)));
    const float lo_abs = oq_f32_of_bits((uint32_t)least_magnitude);
    e->count += n;
    if (!isfinite(lo) || !isfinite(hi)) {
        add_slow(e, v, n);
        return;
    }
    if (lo < e->lo || (lo == e->lo && signbit(lo)))
        e->lo = lo;
    if (hi > e->hi || (hi == e->hi && !signbit(hi)))
        e->hi = hi;
    if (lo_abs < e->lo_abs)
        e->lo_abs = lo_abs;
}

void oq_extent_add(oq_extent *e, const float *v, size_t n) {
    if (n == 0)
        return;
    int32_t lo, hi, lo_abs;
#ifdef HAVE_AVX2
    if (oq_cpu_has(OQ_CPU_AVX2))
        finite_avx2(v, n, &lo, &hi, &lo_abs);
    else
#endif
        finite_plain(v, n, &lo, &hi, &lo_abs);
    add_keys(e, v, n, lo, hi, lo_abs);
}

void oq_extent_merge(oq_extent *e, const oq_extent *o) {
    if (o->lo < e->lo || (o->lo == e->lo && signbit(o->lo)))
        e->lo = o->lo;
    if (o->hi > e->hi || (o->hi == e->hi && !signbit(o->hi)))
        e->hi = o->hi;
    if (o->lo_abs < e->lo_abs)
        e->lo_abs = o->lo_abs;
    e->count += o->count;
    e->n_nan += o->n_nan;
    e->n_low_inf += o->n_low_inf;
    e->n_high_inf += o->n_high_inf;
}
