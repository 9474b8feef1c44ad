/*
 * cpu.c — see cpu.h.
 *
 * The processor is asked itself, since not every compiler's library answers __builtin_cpu_supports;
 * and once only, since a virtual machine takes long to answer.
 */
#include "base/system/cpu.h"

#include "base/os.h"

#include <stdatomic.h>

#define KNOWN (1u << 31)

static unsigned bit(oq_cpu feature, bool there) {
    return there ? 1u << feature : 0;
}

#if defined(__x86_64__)
#include <cpuid.h>

/* Registers that the system saves: bit 1 and 2 for 256 bits, 5 to 7 for 512. */
static unsigned saved_registers(void) {
    unsigned low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
}

static unsigned look(void) {
    unsigned a, b, c, d, b7 = 0, c7 = 0, a71 = 0, saved = 0;
    if (__get_cpuid(1, &a, &b, &c, &d) == 0)
        return 0;
    const unsigned c1 = c;
    if ((c1 >> 27 & 1) != 0)
        saved = saved_registers();
    if (__get_cpuid_count(7, 0, &a, &b, &c, &d) != 0) {
        b7 = b;
        c7 = c;
    }
    if (__get_cpuid_count(7, 1, &a, &b, &c, &d) != 0)
        a71 = a;
    const bool has256 = (saved & 6) == 6, has512 = has256 && (saved & 0xe0) == 0xe0;
    const bool f = has512 && (b7 >> 16 & 1) != 0, dq = (b7 >> 17 & 1) != 0;
    const bool bw = f && (b7 >> 30 & 1) != 0, vl = (b7 >> 31 & 1) != 0;
    return bit(OQ_CPU_SSE41, (c1 >> 19 & 1) != 0) | bit(OQ_CPU_AVX, has256 && (c1 >> 28 & 1) != 0) |
           bit(OQ_CPU_AVX2, has256 && (b7 >> 5 & 1) != 0) |
           bit(OQ_CPU_FMA, has256 && (c1 >> 12 & 1) != 0) | bit(OQ_CPU_AVX512F, f) |
           bit(OQ_CPU_AVX512BW, bw) | bit(OQ_CPU_AVX512_VNNI, f && (c7 >> 11 & 1) != 0) |
           bit(OQ_CPU_AVX512, f && dq && bw && vl) |
           bit(OQ_CPU_AVX_VNNI, has256 && (a71 >> 4 & 1) != 0);
}
#elif defined(__aarch64__)
static unsigned look(void) {
    unsigned long bits[2];
    oq_os_arm_features(bits);
    return bit(OQ_CPU_ASIMD, (bits[0] >> 1 & 1) != 0) |
           bit(OQ_CPU_ASIMDHP, (bits[0] >> 10 & 1) != 0) |
           bit(OQ_CPU_ASIMDDP, (bits[0] >> 20 & 1) != 0) |
           bit(OQ_CPU_SVE, (bits[0] >> 22 & 1) != 0) | bit(OQ_CPU_I8MM, (bits[1] >> 13 & 1) != 0) |
           bit(OQ_CPU_BF16, (bits[1] >> 14 & 1) != 0);
}
#else
static unsigned look(void) {
    return 0;
}
#endif

/* The same whoever finds it, so threads need not agree who does. */
static atomic_uint found;

bool oq_cpu_has(oq_cpu feature) {
    unsigned all = atomic_load_explicit(&found, memory_order_relaxed);
    if (all == 0) {
        all = look() | KNOWN;
        atomic_store_explicit(&found, all, memory_order_relaxed);
    }
    return (all >> feature & 1) != 0;
}

void oq_cpu_features(char *text, size_t cap) {
    static const struct {
        const char *name;
        oq_cpu feature;
    } all[] = {
        {"sse4.1", OQ_CPU_SSE41},
        {"avx", OQ_CPU_AVX},
        {"avx2", OQ_CPU_AVX2},
        {"fma", OQ_CPU_FMA},
        {"avx512f", OQ_CPU_AVX512F},
        {"avx512bw", OQ_CPU_AVX512BW},
        {"avx512_vnni", OQ_CPU_AVX512_VNNI},
        {"asimd", OQ_CPU_ASIMD},
        {"asimdhp", OQ_CPU_ASIMDHP},
        {"asimddp", OQ_CPU_ASIMDDP},
        {"sve", OQ_CPU_SVE},
        {"i8mm", OQ_CPU_I8MM},
        {"bf16", OQ_CPU_BF16},
    };
    size_t n = 0;
    text[0] = '\0';
    for (size_t i = 0; i < OQ_COUNT(all) && n < cap; i++)
        if (oq_cpu_has(all[i].feature))
            n += (size_t)snprintf(text + n, cap - n, "%s%s", n > 0 ? "," : "", all[i].name);
}
