/*
 * keyed.h — putting things in order, by a figure above all.
 */
#pragma once

#include "base/port.h"

typedef struct oq_keyed {
    double key;  /* negated where the largest comes first */
    uint32_t at; /* which thing it is: of equal keys the lower one comes first */
} oq_keyed;

/* The least key first, NaN last. */
void oq_keyed_sort(oq_keyed *v, size_t n);

/* For qsort: numbers that rise, none of them NaN; and texts, by their bytes. */
int oq_by_float(const void *a, const void *b);
int oq_by_double(const void *a, const void *b);
int oq_by_text(const void *a, const void *b);
