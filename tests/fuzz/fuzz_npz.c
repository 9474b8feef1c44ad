/*
 * fuzz_npz.c — zip archives: the directory, then every byte of every member, in pieces and out of
 * order.
 */
#include "samples/files/npy.h"
#include "samples/files/zip.h"

#include <assert.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_member(oq_bytes *b) {
    static uint8_t piece[5000];
    uint64_t from = 0;
    while (from < b->size && from < 1u << 20) {
        const uint64_t left = b->size - from, n = left < sizeof piece ? left : sizeof piece;
        if (oq_bytes_read(b, from, piece, n, NULL) != ONQ_OK)
            return;
        from += n;
    }
    /* Back to an earlier place. */
    if (b->size > 10)
        (void)oq_bytes_read(b, 3, piece, 7, NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const int fd = memfd_create("npz", MFD_CLOEXEC);
    assert(fd >= 0 && write(fd, data, size) == (ssize_t)size);
    const oq_file f = {.path = "npz", .handle = fd, .size = size};
    oq_arena a;
    oq_zip z;
    oq_arena_init(&a, oq_alloc_default());
    a.limit = 64u << 20;
    if (oq_zip_open(&z, &a, oq_alloc_default(), &f, NULL) == ONQ_OK)
        for (size_t i = 0; i < z.n && i < 100; i++)
            read_member(&z.v[i].bytes);
    oq_zip_release(&z);
    oq_arena_release(&a);
    close(fd);
    return 0;
}
