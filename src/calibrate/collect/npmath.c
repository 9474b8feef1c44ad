/*
 * npmath.c — pairwise sums, numpy's logarithm, linspace. See npmath.h.
 *
 * Compiled without contraction (cmake/flags.cmake); fmaf() is used where numpy's loops fuse.
 */
#include "calibrate/collect/npmath.h"

#include "base/system/cpu.h"
#include "base/text/real.h"

/* numpy sums blocks of up to 128 with eight accumulators and splits longer arrays in halves whose
 * first is a multiple of eight. The recursion is as deep as log2(n / 128). */
#define PW_BLOCK 128

#define PAIRWISE(T, name)                                                                          \
    static T name(const T *v, size_t n) {                                                          \
        if (n < 8) {                                                                               \
            T sum = (T)-0.0;                                                                       \
            for (size_t i = 0; i < n; i++)                                                         \
                sum += v[i];                                                                       \
            return sum;                                                                            \
        }                                                                                          \
        if (n <= PW_BLOCK) {                                                                       \
            T r[8];                                                                                \
            size_t i = 8;                                                                          \
            memcpy(r, v, sizeof r);                                                                \
            for (; i < n - n % 8; i += 8)                                                          \
                for (size_t k = 0; k < 8; k++)                                                     \
                    r[k] += v[i + k];                                                              \
            T sum = ((r[0] + r[1]) + (r[2] + r[3])) + ((r[4] + r[5]) + (r[6] + r[7]));             \
            for (; i < n; i++)                                                                     \
                sum += v[i];                                                                       \
            return sum;                                                                            \
        }                                                                                          \
        size_t half = n / 2;                                                                       \
        half -= half % 8;                                                                          \
        return name(v, half) + name(v + half, n - half);                                           \
    }

PAIRWISE(float, pairwise_f32)
PAIRWISE(double, pairwise_f64)

float oq_np_sum_f32(const float *v, size_t n) {
    return 0.0f + pairwise_f32(v, n);
}

double oq_np_sum_f64(const double *v, size_t n) {
    return 0.0 + pairwise_f64(v, n);
}

static const float log_p[6] = {0.000000000000000000000e+00f, 9.999999999999998702752e-01f,
                               2.112677543073053063722e+00f, 1.480000633576506585156e+00f,
                               3.808837741388407920751e-01f, 2.589979117907922693523e-02f};
static const float log_q[6] = {1.000000000000000000000e+00f, 2.612677543073109236779e+00f,
                               2.453006071784736363091e+00f, 9.864942958519418960339e-01f,
                               1.546476374983906719538e-01f, 5.875095403124574342950e-03f};
#define SQRT_HALF 0x1.6a09e6p-1f
#define LN_2      0x1.62e430p-1f

/* For positive normal x, to be scaled by 2^-shift: x = m 2^e with m in (sqrt(1/2), sqrt(2)],
 * then a quotient of polynomials. */
static inline __attribute__((always_inline)) float log_normal(float x, float shift) {
    int32_t bits;
    memcpy(&bits, &x, sizeof bits);
    float e = (float)((bits >> 23) - 126) - shift;
    bits = (bits & 0x007fffff) | 0x3f000000;
    float m;
    memcpy(&m, &bits, sizeof m);
    const bool low = m <= SQRT_HALF;
    e -= low ? 1.0f : 0.0f;
    m = (m + (low ? m : 0.0f)) - 1.0f;
    float num = log_p[5], den = log_q[5];
    for (int k = 4; k >= 0; k--) {
        num = __builtin_fmaf(num, m, log_p[k]);
        den = __builtin_fmaf(den, m, log_q[k]);
    }
    return __builtin_fmaf(e, LN_2, num / den);
}

float oq_np_log_f32(float x) {
    if (isnan(x))
        return NAN;
    if (x < 0)
        return -NAN;
    if (x == 0)
        return -INFINITY;
    if (isinf(x))
        return INFINITY;
    return x < 0x1p-126f ? log_normal(x * 0x1p100f, 100.0f) : log_normal(x, 0.0f);
}

/* True when all are positive, normal and finite. */
static bool all_normal(const float *v, size_t n) {
    bool good = true;
    for (size_t i = 0; i < n; i++)
        good &= v[i] >= 0x1p-126f && v[i] < INFINITY;
    return good;
}

static void log_n_plain(float *v, size_t n) {
    for (size_t i = 0; i < n; i++)
        v[i] = log_normal(v[i], 0.0f);
}

#if defined(__x86_64__)
#if defined(__clang__)
#define VECTORISE
#else
#define VECTORISE __attribute__((optimize("O3")))
#endif
VECTORISE __attribute__((target("avx2,fma"))) static void log_n_fma(float *v, size_t n) {
    for (size_t i = 0; i < n; i++)
        v[i] = log_normal(v[i], 0.0f);
}
#endif

void oq_np_log_f32_n(float *v, size_t n) {
    if (!all_normal(v, n)) {
        for (size_t i = 0; i < n; i++)
            v[i] = oq_np_log_f32(v[i]);
        return;
    }
#if defined(__x86_64__)
    if (oq_cpu_has(OQ_CPU_AVX2) && oq_cpu_has(OQ_CPU_FMA)) {
        log_n_fma(v, n);
        return;
    }
#endif
    log_n_plain(v, n);
}

float oq_np_round(oq_dtype type, double x) {
    return type == OQ_FLOAT16 ? oq_f16_to_f32(oq_f64_to_f16(x)) : (float)x;
}

void oq_np_linspace(oq_dtype type, float first, float last, size_t n, float *out) {
    const float delta = oq_np_step(type, last - first);
    if (!isfinite(delta)) {
        const double wide = ((double)last - (double)first) / (double)n;
        for (size_t i = 0; i < n; i++)
            out[i] = oq_np_round(type, (double)first + (double)i * wide);
        out[n] = last;
        return;
    }
    const float div = oq_np_step(type, (float)n);
    const float step = oq_np_step(type, delta / div);
    for (size_t i = 0; i <= n; i++) {
        float y = oq_np_step(type, (float)i);
        if (step == 0) /* denormals: numpy divides first */
            y = oq_np_step(type, oq_np_step(type, y / div) * delta);
        else
            y = oq_np_step(type, y * step);
        out[i] = oq_np_step(type, y + first);
    }
    out[n] = last;
}
