/*
 * fuse_pattern.h — patterns of several nodes that amount to one operator, found from an index;
 * shared by the built-in optimiser and the preparation for QNN.
 */
#pragma once

#include "prepare/fuse/fuse.h"

typedef struct oq_pattern {
    uint32_t nodes[16]; /* what it replaces; the last one makes the output */
    size_t n;
    oq_str input, output;
    oq_str weight, bias; /* LayerNormalization */
    float epsilon;
    int64_t blocksize; /* SpaceToDepth */
} oq_pattern;

/* Each looks at free nodes only and fills *p when the pattern is there and nothing else uses what
 * lies inside it. i is the Erf, ReduceMean, ReduceL2 or first Reshape. */
bool oq_pattern_gelu(oq_fuse *f, uint32_t i, oq_pattern *p);
bool oq_pattern_layernorm(oq_fuse *f, uint32_t i, oq_pattern *p);
bool oq_pattern_lpnorm(oq_fuse *f, uint32_t i, oq_pattern *p);
bool oq_pattern_spacetodepth(oq_fuse *f, uint32_t i, oq_pattern *p);

/* Nothing outside uses what is made inside, but the output. */
bool oq_pattern_is_closed(const oq_fuse *f, const oq_pattern *p);
/* The last node of the pattern becomes the operator; the others go. */
onq_code oq_pattern_replace(oq_fuse *f, const oq_pattern *p, const char *op, const char *domain,
                            const oq_str *in, size_t n_in, oq_node **out, onq_error *err);
