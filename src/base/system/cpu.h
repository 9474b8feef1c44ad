/*
 * cpu.h — what the processor can do, in words.
 */
#pragma once

#include "base/port.h"

/* Features that decide which kernels run, with commas between them: "avx2,fma,avx512_vnni". */
void oq_cpu_features(char *text, size_t cap);
