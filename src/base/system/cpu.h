/*
 * cpu.h — what the processor can do.
 */
#pragma once

#include "base/port.h"

/* Features that choose between functions or kernels. */
typedef enum oq_cpu {
    OQ_CPU_SSE41,
    OQ_CPU_AVX,
    OQ_CPU_AVX2,
    OQ_CPU_FMA,
    OQ_CPU_AVX512F,
    OQ_CPU_AVX512BW,
    OQ_CPU_AVX512_VNNI,
    OQ_CPU_AVX512, /* all that OQ_AVX512 of port.h uses */
    OQ_CPU_AVX_VNNI,
    OQ_CPU_ASIMD,
    OQ_CPU_ASIMDHP,
    OQ_CPU_ASIMDDP,
    OQ_CPU_SVE,
    OQ_CPU_I8MM,
    OQ_CPU_BF16,
} oq_cpu;

/* Whether processor and system have it. Cheap: what was found is kept. */
bool oq_cpu_has(oq_cpu feature);
/* Features that decide which kernels run, with commas between them: "avx2,fma,avx512_vnni". */
void oq_cpu_features(char *text, size_t cap);
