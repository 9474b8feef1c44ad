/*
 * gguf.h — files of weights as llama.cpp has them (GGUF, versions 2 and 3), mapped and read only.
 *
 *     oq_gguf g;
 *     OQ_TRY(oq_file_open(&file, alloc, "model.gguf", err));
 *     OQ_TRY(oq_gguf_open(&g, alloc, &file, err));
 *     const oq_gguf_tensor *t = oq_gguf_find(&g, OQ_S("blk.0.attn_q.weight"));
 *     OQ_TRY(oq_gguf_check_type(t, err));
 *     oq_gguf_read(t, 0, t->count, floats);
 *     oq_gguf_close(&g);
 *
 * A file is not trusted: every length is compared with the bytes that are there, and a tensor whose
 * bytes do not lie in the file makes the whole file invalid. Memory is in proportion to the number
 * of tensors and numbers in the header, both of which the header's bytes bound.
 */
#pragma once

#include "base/arena.h"
#include "base/map.h"
#include "base/system/file.h"
#include "base/vec.h"

/* How the numbers of a tensor are stored; the values are those of the file. */
typedef enum oq_gguf_type {
    OQ_GGUF_F32 = 0,
    OQ_GGUF_F16 = 1,
    OQ_GGUF_Q4_0 = 2,  /* 32: a scale, integers of 4 bits less 8 */
    OQ_GGUF_Q4_1 = 3,  /* 32: a scale, a minimum, integers of 4 bits */
    OQ_GGUF_Q5_0 = 6,  /* 32: a scale, integers of 5 bits less 16 */
    OQ_GGUF_Q5_1 = 7,  /* 32: a scale, a minimum, integers of 5 bits */
    OQ_GGUF_Q8_0 = 8,  /* 32: a scale, integers of 8 bits */
    OQ_GGUF_Q2_K = 10, /* 256: sixteen blocks of 16 with scales and minima of 4 bits */
    OQ_GGUF_Q3_K = 11, /* 256: sixteen blocks of 16 with scales of 6 bits */
    OQ_GGUF_Q4_K = 12, /* 256: eight blocks of 32 with scales and minima of 6 bits */
    OQ_GGUF_Q5_K = 13, /* 256: the same with integers of 5 bits */
    OQ_GGUF_Q6_K = 14, /* 256: sixteen blocks of 16 with scales of 8 bits */
    OQ_GGUF_BF16 = 30
} oq_gguf_type;

#define OQ_GGUF_MAX_RANK 4

typedef struct oq_gguf_tensor {
    oq_str name; /* a view of the file */
    uint32_t type;
    size_t rank;
    uint64_t dims[OQ_GGUF_MAX_RANK]; /* the first is the innermost */
    uint64_t count;
    const uint8_t *data;
    uint64_t bytes; /* 0: the type is not known */
} oq_gguf_tensor;

/* A number or a text of the header. */
typedef struct oq_gguf_fact {
    oq_str key, text;
    double number;
    bool is_text;
} oq_gguf_fact;

typedef struct oq_gguf {
    oq_file file;
    oq_arena arena;
    OQ_VEC(oq_gguf_tensor) tensors;
    OQ_VEC(oq_gguf_fact) facts;
    oq_map tensor_map, fact_map;
} oq_gguf;

/* Takes the file over, and closes it on failure too. ONQ_E_INVALID for what is no such file, with
 * the place. */
onq_code oq_gguf_open(oq_gguf *g, const onq_allocator *alloc, oq_file *file, onq_error *err);
void oq_gguf_close(oq_gguf *g);
/* NULL: there is none. */
const oq_gguf_tensor *oq_gguf_find(const oq_gguf *g, oq_str name);
const oq_gguf_fact *oq_gguf_fact_of(const oq_gguf *g, oq_str key);

/* ONQ_E_UNSUPPORTED when its type is not known. */
onq_code oq_gguf_check_type(const oq_gguf_tensor *t, onq_error *err);
/* Numbers of the tensor as floats, from any place on. Its type is known. */
void oq_gguf_read(const oq_gguf_tensor *t, uint64_t from, uint64_t n, float *out);
/* The integers, scale and minimum of block i, of 32 numbers: values are scale x q + minimum. The q
 * of Q4_0, Q4_1 and Q4_K are 0 to 15, those of Q5_0, Q5_1, Q5_K and Q8_0 bytes around 128; other
 * types have no such blocks. Where the scale is 0 all q are 0. */
void oq_gguf_block(const oq_gguf_tensor *t, uint64_t i, uint8_t q[32], float *scale,
                   float *minimum);
