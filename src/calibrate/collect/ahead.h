/*
 * ahead.h — counting ahead: histograms over the range so far, while the samples run the first time.
 *
 * A histogram needs the range of all samples. Over the range of those before, a sample is counted
 * at once; when a later one widens the range of a tensor, what was counted of it is thrown away and
 * counting begins again. In the end the counts since the last widening are right, and only samples
 * before it have to be looked at again.
 *
 * All lanes count into the same histograms. Exact, because no count is used unless its layout is
 * that of the range of all samples, to the bit.
 */
#pragma once

#include "calibrate/collect/collect.h"

#include <stdatomic.h>

typedef struct oq_ahead_tensor {
    oq_hist hist;
    /* The range so far, and that of the layout: the greatest magnitude in the upper half, as bits
     * of a float (which rise with the value), and the least in the lower one where magnitudes are
     * counted. */
    uint64_t range, laid_range;
    uint64_t since; /* samples from this number on are counted */
    uint64_t last;  /* the last that was, plus 1 */
    bool laid, lost;
} oq_ahead_tensor;

typedef struct oq_ahead {
    const onq_allocator *alloc;
    oq_cal_locks *locks;
    oq_ahead_tensor *v;
    size_t n;
    uint64_t most;           /* of the tensors that are settled: the greatest `since` */
    _Atomic uint64_t growth; /* the last sample that widened a range, plus 1 */
} oq_ahead;

onq_code oq_ahead_init(oq_ahead *a, const onq_allocator *alloc, oq_cal_locks *locks, size_t n,
                       onq_error *err);
void oq_ahead_release(oq_ahead *a);

/* True if it is worth while to count the sample ahead: the ranges seem to have stopped growing. */
bool oq_ahead_pays(const oq_ahead *a, uint64_t sample);
/* Measures the values of a tensor and counts them. `e` gets their extent. */
onq_code oq_ahead_seen(oq_ahead *a, const oq_cal_options *o, size_t index, uint64_t sample,
                       const float *v, size_t n, oq_hist_scratch *scratch, oq_extent *e,
                       onq_error *err);
/* Values that are counted in another way: only their range is taken in. */
void oq_ahead_note(oq_ahead *a, const oq_cal_options *o, size_t index, uint64_t sample,
                   const oq_extent *e);
/* A tensor that this cannot count (float16): all samples must be looked at again. */
void oq_ahead_lose(oq_ahead *a, size_t index);

/* `c` has the extent of all samples and the tensor's histogram is laid out: adds to it what was
 * counted over the same range. From now on `since` is right for this purpose: of the samples that
 * were counted ahead, those from it on are in the histogram. */
void oq_ahead_settle(oq_ahead *a, oq_collector *c, size_t index);
