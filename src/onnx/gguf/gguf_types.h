/*
 * gguf_types.h — the types of GGUF tensors as rows: gguf_blocks.c has them.
 */
#pragma once

#include <stdint.h>

typedef struct oq_gguf_kind {
    uint32_t type;
    const char *name;
    uint32_t block, bytes; /* numbers of a block, and what it takes */
    void (*read)(const uint8_t *block, float *out);
} oq_gguf_kind;

/* NULL: the type is not known. */
const oq_gguf_kind *oq_gguf_kind_of(uint32_t type);
