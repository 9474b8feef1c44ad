/*
 * masks.h — attention masks: what becomes of tensors whose range one stretches (extreme.h), by
 * --masks.
 *
 * A Softmax cannot tell values that are far below the greatest of their row apart: all of them give
 * 0. So where scores and a mask are added, or one is chosen in place of the other, and nothing but
 * a Softmax reads the sum, its range may end so far below the lowest score; the same bits then
 * serve the scores alone, and the Softmax gives what it gave.
 */
#pragma once

#include "quantize/choose/extreme.h"
#include "quantize/choose/qrun.h"

typedef enum oq_masks {
    OQ_MASKS_KEEP,  /* the range as it is, with a warning */
    OQ_MASKS_FLOAT, /* the nodes around stay float */
    OQ_MASKS_CLAMP  /* the range ends where a Softmax sees no difference; else as FLOAT */
} oq_masks;
#define OQ_MASKS_CHOICES(ROW)                                                                      \
    ROW("keep", OQ_MASKS_KEEP) ROW("float", OQ_MASKS_FLOAT) ROW("clamp", OQ_MASKS_CLAMP)

/* Does so for the tensors of one graph, which are those of `e` from number `from` on. What is dealt
 * with is taken out of `e` and counted there. */
onq_code oq_masks_settle(oq_extremes *e, size_t from, oq_masks how, oq_graph *g, oq_ranges *ranges,
                         oq_qrun *run, onq_error *err);
