/*
 * runtime.c — onq_runtime_query: which runtime, and on what processor.
 */
#include "base/system/cpu.h"
#include "engine/ort.h"

onq_code onq_runtime_query(onq_env *env, const char *library, onq_runtime_info *out,
                           onq_error *err) {
    *out = (onq_runtime_info){0};
    oq_cpu_features(out->cpu, sizeof out->cpu);
    return oq_ort_query(env, library, out, err);
}
