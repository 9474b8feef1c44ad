/*
 * os_program_macos.c — which file is mapped at an address. See os_program_guard.h.
 */
#include "base/os/os_program_guard.h"

#include <libproc.h>
#include <unistd.h>

bool oq_program_file_at(uintptr_t address, char *out, size_t cap) {
    const int n = proc_regionfilename(getpid(), address, out, (uint32_t)(cap - 1));
    if (n <= 0)
        return false;
    out[n] = '\0';
    for (char *p = out; *p != '\0'; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f)
            *p = '?';
    return true;
}
