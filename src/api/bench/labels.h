/*
 * labels.h — the right answers: one class for each row of a model's first output, in the order of
 * the samples.
 */
#pragma once

#include "samples/datum.h"

typedef struct oq_labels {
    const char *path;
    const int64_t *v;
    uint64_t n;
} oq_labels;

/* Reads a .npy of integers. */
onq_code oq_labels_read(oq_labels *l, oq_arena *a, const onq_allocator *alloc, const char *path,
                        onq_error *err);
/* Counts the rows of `d` (along its last axis) whose largest value is at the label's place; *seen
 * is the index of the next label. Rows after the last label, a label that is not a class, and an
 * output that is not float or has no classes are errors. */
onq_code oq_labels_count(const oq_labels *l, const oq_datum *d, uint64_t *seen, uint64_t *right,
                         onq_error *err);

/* After all samples: an error when labels are left over. */
onq_code oq_labels_end(const oq_labels *l, uint64_t seen, onq_error *err);
