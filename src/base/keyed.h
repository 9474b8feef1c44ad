/*
 * keyed.h — putting things in the order of a figure.
 */
#pragma once

#include "base/port.h"

typedef struct oq_keyed {
    double key;  /* negated where the largest comes first */
    uint32_t at; /* which thing it is: of equal keys the lower one comes first */
} oq_keyed;

/* The least key first, NaN last. */
void oq_keyed_sort(oq_keyed *v, size_t n);
