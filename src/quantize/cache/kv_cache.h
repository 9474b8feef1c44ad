/*
 * kv_cache.h — caches of attention in integers: GroupQueryAttention with k_scale and v_scale.
 *
 * A decoder keeps the keys and values of all tokens so far as states, and reads them for each new
 * token. In 8 or 4 bits they take a quarter or an eighth of the memory. The operator stores what it
 * adds to the cache as round(x / scale), limited to the type; a scale is for a whole tensor or for
 * each channel of each head.
 *
 *     OQ_TRY(oq_kv_find(m, &arena, &caches, err));
 *     for each run: oq_kv_see(&caches, part, outputs)
 *     OQ_TRY(oq_kv_write(m, &caches, &how, err));
 *
 * Keys are stored after they were rotated by their position. Positions that no sample has turn the
 * size of one channel into that of its partner, so both count as large as the two together.
 */
#pragma once

#include "base/text/json.h"
#include "onnx/graph.h"
#include "samples/datum.h"

typedef enum oq_kv_side { OQ_KV_KEY, OQ_KV_VALUE, OQ_KV_SIDES } oq_kv_side;

/* Samples are seen in two parts, so that those of one can judge scales that are made of the
 * other. */
#define OQ_KV_PARTS 2

typedef struct oq_kv_layer {
    oq_str node, output;                            /* its label, and what finds it again */
    oq_str past[OQ_KV_SIDES], present[OQ_KV_SIDES]; /* an input and an output of the model */
    size_t at[OQ_KV_SIDES];                         /* places of the outputs */
    uint64_t number;                                /* of the layer, by the name of its cache */
    uint64_t heads, size;                           /* size: 0 until one was seen */
    uint64_t rotary;                                /* channels of a key that are rotated */
    bool measured;                                  /* a Shape reads its dimensions */
    bool interleaved;                               /* partners are neighbours, not half apart */
    float *most[OQ_KV_PARTS][OQ_KV_SIDES];          /* largest magnitude by head and channel */
} oq_kv_layer;

typedef struct oq_kv_caches {
    oq_arena *arena;
    oq_kv_layer *v;
    size_t n;
    oq_dtype type; /* of the float caches */
} oq_kv_caches;

/* How caches are written. */
typedef struct oq_kv_how {
    unsigned bits; /* 8 or 4 */
    bool per_channel;
    bool first_part; /* scales from the samples of the first part only */
} oq_kv_how;

/* The caches of a model. ONQ_E_UNSUPPORTED where it has none, or one that cannot be in integers; the
 * node is named. */
onq_code oq_kv_find(oq_model *m, oq_arena *a, oq_kv_caches *out, onq_error *err);
/* Adds what one run gave; `outputs` has all outputs of the model. NaN is refused. */
onq_code oq_kv_see(oq_kv_caches *c, unsigned part, const oq_datum *outputs, onq_error *err);
/* Changes the nodes, and the types of inputs and outputs. */
onq_code oq_kv_write(oq_model *m, const oq_kv_caches *c, const oq_kv_how *how, onq_error *err);
/* The scales as onnxruntime-genai's builder reads them (kv_cache_scale_file). */
onq_code oq_kv_scales_text(const oq_kv_caches *c, const oq_kv_how *how, oq_buf *out,
                           onq_error *err);
/* Bytes that a token takes in all caches together; `bits` 0: as float. */
uint64_t oq_kv_bytes(const oq_kv_caches *c, unsigned bits);
