/* resource.h — the most memory that the process has had. */
#pragma once
#include <windows.h>

#include <psapi.h>

#define RUSAGE_SELF 0
struct rusage {
    long ru_maxrss; /* KiB */
};
static inline int getrusage(int who, struct rusage *out) {
    PROCESS_MEMORY_COUNTERS m = {.cb = sizeof m};
    (void)who;
    GetProcessMemoryInfo(GetCurrentProcess(), &m, sizeof m);
    out->ru_maxrss = (long)(m.PeakWorkingSetSize / 1024);
    return 0;
}
