/*
 * columns.h — whether the columns of an output hold scores of classes, or numbers of another kind:
 * coordinates and grades. Looks at what the float model gave for all samples.
 *
 *     if (oq_columns_begin(&c, first, arena, err) ...) with oq_columns_add(&c, datum) for each sample,
 *     then oq_columns_kind_of(&c).
 */
#pragma once

#include "samples/datum.h"

typedef struct oq_columns {
    double *sums; /* of each column; NULL: there are none */
    uint64_t n;   /* columns */
    uint64_t rows;
    double squares;
    bool above, below; /* there is a number above zero, and one below */
    bool large;        /* and one above 1, which no probability is */
    bool other_sum;    /* and a row whose sum is not 1 */
    bool sequence;     /* rows follow each other in a sample, and are often of the same class */
} oq_columns;

typedef enum oq_columns_kind {
    OQ_COLUMNS_SCORES = 0, /* or too few rows to tell */
    OQ_COLUMNS_ONE_SIGN,   /* all numbers have one sign, which scores of a linear operator do not */
    OQ_COLUMNS_APART       /* columns differ more from each other than samples do */
} oq_columns_kind;

/* For an output like this one, which may have no columns. ONQ_E_NOMEM. */
onq_code oq_columns_begin(oq_columns *c, const oq_datum *d, oq_arena *a, onq_error *err);
/* False for an output that has no such columns: then nothing is known. */
bool oq_columns_add(oq_columns *c, const oq_datum *d);
/* Of an output of a linear operator. */
oq_columns_kind oq_columns_kind_of(const oq_columns *c);
/* True if they are no scores, whatever operator made them: probabilities, and logarithms of them,
 * have one sign too. */
bool oq_columns_are_numbers(const oq_columns *c);
/* True if each row, of which there are enough, holds parts of one, whatever operators made them. */
bool oq_columns_are_probabilities(const oq_columns *c);
