/*
 * tar.h — the members of a tar archive, one after another (ustar, GNU and pax).
 */
#pragma once

#include "base/str.h"
#include "samples/files/pipe.h"

#define OQ_TAR_BLOCK 512

/* A regular file; what follows its header in the stream are `size` bytes, then zeros up to a whole
 * block. */
typedef struct oq_tar_member {
    const char *name; /* in the arena */
    uint64_t size;
} oq_tar_member;

/* True if a stream that begins with this block is a tar archive. */
bool oq_tar_is(const uint8_t block[OQ_TAR_BLOCK]);
/* The next regular file; *more is false at the end of the archive. `block` holds the block that was
 * read already, or NULL. */
onq_code oq_tar_next(oq_pipe *p, const uint8_t *block, oq_arena *a, oq_tar_member *out, bool *more,
                     onq_error *err);
/* Bytes after n of a member up to the next header. */
static inline uint64_t oq_tar_padding(uint64_t n) {
    return (OQ_TAR_BLOCK - n % OQ_TAR_BLOCK) % OQ_TAR_BLOCK;
}
/* Reads past n bytes. */
onq_code oq_tar_skip(oq_pipe *p, uint64_t n, onq_error *err);
