/*
 * npy.h — numpy's .npy arrays: header and elements.
 *
 * The format: "\x93NUMPY", major and minor version, the header's length (2 bytes little-endian in
 * version 1, 4 in 2 and 3), then a Python dictionary as text, {'descr': '<f4', 'fortran_order':
 * False, 'shape': (2, 3), }, then the elements. Pickled objects and structured types are refused:
 * reading them would mean running or guessing. A header may have 10,000 bytes, as in numpy itself.
 */
#pragma once

#include "base/err.h"
#include "onnx/dtype.h"

#define OQ_NPY_PREFIX 12    /* bytes that hold the header's length */
#define OQ_NPY_HEADER 10000 /* most bytes of the dictionary */
#define OQ_NPY_RANK   64

typedef struct oq_npy {
    char kind; /* numpy's: f i u b c S U V */
    bool big_endian;
    bool fortran;  /* first axis fastest */
    uint64_t item; /* bytes of one element */
    size_t rank;
    int64_t dims[OQ_NPY_RANK];
    uint64_t count;   /* elements */
    uint64_t data_at; /* bytes before the elements */
    uint64_t data_size;
} oq_npy;

/* From the first OQ_NPY_PREFIX bytes (fewer when the file is shorter): how many bytes prefix and
 * header have together. */
onq_code oq_npy_prefix(const uint8_t *p, uint64_t n, uint64_t *header_end, onq_error *err);
/* From the first header_end bytes. */
onq_code oq_npy_header(const uint8_t *p, uint64_t header_end, oq_npy *out, onq_error *err);

/* The ONNX type of the elements; `want` settles what numpy cannot say (bfloat16 and 8-bit floats
 * are stored as raw 'V' bytes). OQ_UNDEFINED when there is none. */
oq_dtype oq_npy_dtype(const oq_npy *h, oq_dtype want);

/* Elements of one block of `rank` axes (the array, or one sample of it) to ONNX's order and bytes:
 * C order, little-endian, bool 0 or 1. `in` and `out` have the block's size and must not overlap.
 * Not for texts. */
void oq_npy_convert(const oq_npy *h, const int64_t *dims, size_t rank, bool fortran,
                    const uint8_t *in, uint8_t *out);
/* Element i of `in`, a text, as UTF-8 in the arena; p == NULL when out of memory. */
oq_str oq_npy_text(const oq_npy *h, oq_arena *a, const uint8_t *in, uint64_t i);

/* Writing: prefix and header of a C-order array, padded as numpy does it, appended to `out`. False
 * for a type that numpy has not. */
bool oq_npy_write_header(oq_buf *out, oq_dtype dt, const int64_t *dims, size_t rank);
/* The same for texts of `width` UTF-32 characters each. */
void oq_npy_write_text_header(oq_buf *out, uint64_t width, const int64_t *dims, size_t rank);
