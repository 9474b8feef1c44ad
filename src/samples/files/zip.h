/*
 * zip.h — the members of a zip archive, as .npz files are: stored or deflated, zip64 too.
 *
 * Only the central directory is trusted, and every place in it is checked against the file's size
 * before it is used. Encrypted, split and otherwise compressed archives are refused.
 */
#pragma once

#include "samples/files/stream.h"

/* A larger member that is compressed more than this is taken for a bomb. */
#define OQ_ZIP_RATIO      200
#define OQ_ZIP_RATIO_FROM (16u << 20)

typedef struct oq_zip_member {
    oq_str name; /* in the arena */
    oq_bytes bytes;
} oq_zip_member;

typedef struct oq_zip {
    oq_zip_member *v;
    size_t n;
} oq_zip;

/* Reads the directory of an open file into the arena. The members borrow the file; release them
 * with oq_bytes_release. Messages do not name the file. */
onq_code oq_zip_open(oq_zip *z, oq_arena *a, const onq_allocator *alloc, const oq_file *f,
                     onq_error *err);
void oq_zip_release(oq_zip *z);
