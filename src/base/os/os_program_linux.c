/*
 * os_program_linux.c — which file is mapped at an address. See os_program_guard.h.
 */
#include "base/os/os_program_guard.h"

#include <fcntl.h>
#include <unistd.h>

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
bool oq_program_file_at(uintptr_t address, char *out, size_t cap) {
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
