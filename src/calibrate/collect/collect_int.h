/*
 * collect_int.h — between the files of the collector.
 */
#pragma once

#include "calibrate/collect/collect.h"

/* Room for the extents of n channels; false when out of memory. */
bool oq_tstat_channels(oq_arena *a, oq_tstat *t, size_t n);
/* MinMax whose result is made from a row for each sample or chunk. */
bool oq_collect_keeps_rows(const oq_collector *c);
/* np.nanmin and np.nanmax with one more value for channel i; of equals the later sample stays. */
void oq_tstat_fold(oq_tstat *t, size_t i, float lo, uint64_t lo_at, float hi, uint64_t hi_at);

/* A histogram of the first chunk, whose values have these magnitudes. */
onq_code oq_collect_first_hist(const oq_cal_options *o, const onq_allocator *a, oq_dtype type,
                               float least, float greatest, oq_hist *out, onq_error *err);

/* True if magnitudes are counted (collect_absolute_value). */
static inline bool oq_cal_counts_abs(const oq_cal_options *o) {
    return o->method == OQ_CAL_PERCENTILE && o->symmetric;
}

/* True if the tensor's histogram is made from another's. */
static inline bool oq_tstat_follows(const oq_tstat *t) {
    return t->padded != 0 && !t->apart;
}

/* More values than any run sees; sums stay far from overflow. A part that counts more is
 * damaged. */
#define OQ_HIST_MAX_VALUES ((uint64_t)1 << 52)
/* True if what the histogram counts, with `more` added, is within that limit. */
bool oq_hist_is_sane(const oq_hist *h, const oq_hist *more);
