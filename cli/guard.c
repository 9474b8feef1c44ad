/*
 * guard.c — an input that shrinks while it is read is an error, not a crash.
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
#include "guard.h"

#include <fcntl.h>
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

const char *guard_shrunk(void) {
    return atomic_load(&state) == NOTED ? shrunk : NULL;
}

/* /proc/self/maps, a byte at a time: -1 at the end. Nothing but read, since a signal handler may do
 * little else. */
struct bytes {
    int fd;
    size_t at, n;
    char buffer[1024];
};

static int next_byte(struct bytes *b) {
    if (b->at == b->n) {
        const ssize_t got = read(b->fd, b->buffer, sizeof b->buffer);
        if (got <= 0)
            return -1;
        b->n = (size_t)got;
        b->at = 0;
    }
    return (unsigned char)b->buffer[b->at++];
}

static uintptr_t read_hex(struct bytes *b) {
    uintptr_t v = 0;
    for (;;) {
        const int c = next_byte(b);
        if (c >= '0' && c <= '9')
            v = v << 4 | (uintptr_t)(c - '0');
        else if (c >= 'a' && c <= 'f')
            v = v << 4 | (uintptr_t)(c - 'a' + 10);
        else
            return v;
    }
}

/* Finds the mapping that holds `address`: true if it is one of a file, whose path goes to out.
 * A line is "START-END PERMISSIONS OFFSET DEVICE INODE   PATH". */
static bool find_file(uintptr_t address, char *out, size_t cap) {
    struct bytes b = {.fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC)};
    bool found = false;
    if (b.fd < 0)
        return false;
    for (int c = 0; c >= 0 && !found;) {
        const uintptr_t start = read_hex(&b), end = read_hex(&b);
        const bool here = address >= start && address < end;
        size_t n = 0;
        while ((c = next_byte(&b)) >= 0 && c != '\n') {
            /* The path is the only thing with a slash, and the last. */
            if (here && (n != 0 || c == '/') && n + 1 < cap) {
                /* Control characters, those of two bytes too, are not for a terminal. */
                const bool second = n != 0 && out[n - 1] == '\xc2' && c < 0xa0;
                out[n++] = c < 0x20 || c == 0x7f || second ? '?' : (char)c;
            }
        }
        out[n] = '\0';
        found = here && n != 0;
        if (here)
            break;
    }
    close(b.fd);
    return found;
}

static void note(uintptr_t address) {
    int expected = NOT_YET;
    if (!atomic_compare_exchange_strong(&state, &expected, BEING_NOTED))
        return;
    const bool found = find_file(address, shrunk, sizeof shrunk);
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

void guard_install(void) {
    const long size = sysconf(_SC_PAGESIZE);
    if (size <= 0)
        return;
    page_size = (size_t)size;
    struct sigaction action = {.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO | SA_NODEFER};
    sigemptyset(&action.sa_mask);
    sigaction(SIGBUS, &action, NULL);
}
