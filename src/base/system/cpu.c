/*
 * cpu.c — see cpu.h.
 */
#include "base/system/cpu.h"

#if defined(__aarch64__)
#include <sys/auxv.h>
#endif

typedef struct feature {
    const char *name;
    bool there;
} feature;

void oq_cpu_features(char *text, size_t cap) {
    size_t n = 0;
#if defined(__x86_64__)
    __builtin_cpu_init();
    const feature all[] = {
        {"sse4.1", __builtin_cpu_supports("sse4.1") != 0},
        {"avx", __builtin_cpu_supports("avx") != 0},
        {"avx2", __builtin_cpu_supports("avx2") != 0},
        {"fma", __builtin_cpu_supports("fma") != 0},
        {"avx512f", __builtin_cpu_supports("avx512f") != 0},
        {"avx512bw", __builtin_cpu_supports("avx512bw") != 0},
        {"avx512_vnni", __builtin_cpu_supports("avx512vnni") != 0},
    };
#elif defined(__aarch64__)
    /* Bits of the kernel's HWCAP and HWCAP2. */
    const unsigned long one = getauxval(AT_HWCAP), two = getauxval(AT_HWCAP2);
    const feature all[] = {
        {"asimd", (one >> 1 & 1) != 0},    {"asimdhp", (one >> 10 & 1) != 0},
        {"asimddp", (one >> 20 & 1) != 0}, {"sve", (one >> 22 & 1) != 0},
        {"i8mm", (two >> 13 & 1) != 0},    {"bf16", (two >> 14 & 1) != 0},
    };
#else
    const feature all[] = {{"", false}};
#endif
    text[0] = '\0';
    for (size_t i = 0; i < OQ_COUNT(all) && n < cap; i++)
        if (all[i].there)
            n += (size_t)snprintf(text + n, cap - n, "%s%s", n > 0 ? "," : "", all[i].name);
}
