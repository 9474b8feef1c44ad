/*
 * rewrite.h — rewrites of a float model that change nothing but its speed, and what can be
 * quantized: `--rewrite` of preprocess and static.
 *
 * The rows are in fuse/rewrite.def, the words of the option here. They run as the rows of the
 * built-in optimiser do (optimize.h). Results are those of the model as it was up to float
 * rounding; FastGelu computes Tanh its own way and is exact to about 90 dB.
 */
#pragma once

#include "onnx/model.h"

/* ROW(id, word) */
#define OQ_REWRITE_SETS(ROW)                                                                       \
    ROW(CONSTANTS, "constants")                                                                    \
    ROW(HARDSWISH, "hardswish")                                                                    \
    ROW(FASTGELU, "fastgelu")                                                                      \
    ROW(ONEHOT, "onehot")                                                                          \
    ROW(CONV1D, "conv1d")

typedef enum oq_rewrite_set {
#define ROW(id, word) OQ_REWRITE_##id,
    OQ_REWRITE_SETS(ROW)
#undef ROW
        OQ_REWRITE_SET_COUNT
} oq_rewrite_set;

typedef enum oq_rewrite_id {
#define OQ_REWRITE(set, name, ops, what) OQ_REWRITE_ROW_##name,
#include "prepare/fuse/rewrite.def"
#undef OQ_REWRITE
    OQ_REWRITE_ROW_COUNT
} oq_rewrite_id;

typedef struct oq_rewrite_report {
    size_t counts[OQ_REWRITE_ROW_COUNT];
} oq_rewrite_report;

/* The sets of a word: "all", "none" or one of the table. False for any other. */
bool oq_rewrite_word(oq_str word, unsigned *sets);
/* What a row does, for people. */
const char *oq_rewrite_what(oq_rewrite_id id);

/* Rewrites the model in place by the rows of the sets (bits 1 << oq_rewrite_set). */
onq_code oq_rewrite(oq_model *m, unsigned sets, oq_rewrite_report *report, onq_error *err);
