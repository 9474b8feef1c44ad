/*
 * keyed.c — see keyed.h.
 */
#include "base/keyed.h"

static int by_key(const void *a, const void *b) {
    const oq_keyed *x = a, *y = b;
    if (isnan(x->key) != isnan(y->key))
        return isnan(x->key) ? 1 : -1;
    if (!isnan(x->key) && x->key != y->key)
        return x->key < y->key ? -1 : 1;
    return (x->at > y->at) - (x->at < y->at);
}

void oq_keyed_sort(oq_keyed *v, size_t n) {
    if (n > 1)
        qsort(v, n, sizeof *v, by_key);
}

int oq_by_float(const void *a, const void *b) {
    const float x = *(const float *)a, y = *(const float *)b;
    return x < y ? -1 : x > y;
}

int oq_by_double(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

int oq_by_text(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}
