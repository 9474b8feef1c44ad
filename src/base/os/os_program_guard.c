/*
 * os_program_guard.c — an input that shrinks while it is read is an error, not a crash.
 *
 * The library maps its inputs. When somebody cuts such a file short, reading the pages that are
 * gone raises SIGBUS, whose default is death. No check beforehand can help, since the file may
 * shrink right after it; reading into memory instead would give up what the design rests on; and a
 * handler is a matter of the whole process, so it is not the library's to install, but the
 * program's.
 *
 * The handler puts a page of zeros where the lost one was and lets the job go on. It ends as it
 * would after any failure, with its outputs removed: the library compares size and time of every
 * input before an output gets its name. Whatever it then says, run() reports the file that shrank.
 * Signals that have another cause keep their default action.
 */
#include "base/os/os_program_guard.h"
#include "base/os_program.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { NOT_YET, BEING_NOTED, NOTED };

static atomic_int state;
static char shrunk[4096];
static size_t page_size;

const char *oq_program_shrunk(void) {
    return atomic_load(&state) == NOTED ? shrunk : NULL;
}

static void note(uintptr_t address) {
    int expected = NOT_YET;
    if (!atomic_compare_exchange_strong(&state, &expected, BEING_NOTED))
        return;
    const bool found = oq_program_file_at(address, shrunk, sizeof shrunk);
    atomic_store(&state, found ? NOTED : NOT_YET);
}

static void on_bus_error(int number, siginfo_t *info, void *context) {
    (void)context;
    const uintptr_t address = (uintptr_t)info->si_addr;
    if (info->si_code == BUS_ADRERR)
        note(address);
    void *page = (void *)(address / page_size * page_size);
    if (info->si_code != BUS_ADRERR || atomic_load(&state) == NOT_YET ||
        mmap(page, page_size, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
            MAP_FAILED)
        signal(number, SIG_DFL); /* not ours: it comes again and does what it would have done */
}

void oq_program_guard(void) {
    const long size = sysconf(_SC_PAGESIZE);
    if (size <= 0)
        return;
    page_size = (size_t)size;
    struct sigaction action = {.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO | SA_NODEFER};
    sigemptyset(&action.sa_mask);
    sigaction(SIGBUS, &action, NULL);
}
