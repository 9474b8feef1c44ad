/*
 * stream.h — a stretch of a file as a stream: stored as it is, or deflated inside a zip archive.
 *
 * Reads of a file go through the descriptor, not the mapping, so that a file that shrinks while it
 * is read gives an error. A deflated stream is read forwards only; reading an earlier place begins
 * again. Memory is constant.
 */
#pragma once

#include "base/system/file.h"

typedef struct oq_bytes_inflate oq_bytes_inflate;

typedef struct oq_bytes {
    const oq_file *file; /* borrowed */
    uint64_t offset;     /* where it begins in the file */
    uint64_t stored;     /* bytes there */
    uint64_t size;       /* bytes it unpacks to */
    bool deflated;
    bool has_crc;
    uint32_t crc;    /* of all `size` bytes, checked when they were read in order to the end */
    uint64_t crc_at; /* bytes read in order so far, and their checksum */
    uint32_t crc_now;
    uint64_t at; /* next byte of a deflated stream */
    oq_bytes_inflate *inflate;
    const onq_allocator *alloc;
} oq_bytes;

/* The whole of a file. */
void oq_bytes_init(oq_bytes *b, const onq_allocator *a, const oq_file *f);
void oq_bytes_release(oq_bytes *b);
/* n bytes from place `from`. */
onq_code oq_bytes_read(oq_bytes *b, uint64_t from, void *out, uint64_t n, onq_error *err);
