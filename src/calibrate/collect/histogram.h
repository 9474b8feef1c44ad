/*
 * histogram.h — np.histogram of float32 and float16 values, streamed.
 *
 * A histogram is laid out once its range is known (oq_hist_uniform, or oq_hist_edges for edges that
 * are not evenly spaced) and then takes values in any portions and any order: counts are integers,
 * so the result depends on neither. numpy finds the bin of a value by arithmetic in the value's
 * type and corrects it by one step against the edges. With strictly rising float32 edges that is
 * the bin whose edges hold the value, so a guess by multiplication, corrected against the edge
 * above it, gives the same bin; where this could fail (float16, ranges at the end of the float
 * range, very many bins) numpy's own steps are done. Where numpy refuses ("too many bins for data
 * range") the same steps go on without it.
 */
#pragma once

#include "base/alloc.h"
#include "base/err.h"
#include "calibrate/collect/extent.h"
#include "onnx/dtype.h"

/* More bins than this are refused: the reference would ask for that much memory. */
#define OQ_HIST_MAX_BINS (1u << 26)

typedef struct oq_hist {
    const onq_allocator *alloc;
    oq_dtype type; /* of the values and edges: OQ_FLOAT or OQ_FLOAT16 */
    bool abs;      /* magnitudes are counted */
    bool uniform;  /* np.histogram with a range; else with edges */
    size_t n_bins;
    float first, last; /* the range, values outside are not counted */
    float *edges;      /* n_bins + 1 */
    uint64_t *count;   /* n_bins */
    /* The guess of the bin of x is x * scale + bias; scale 0: numpy's own steps. Edge i is
     * i * step + first then. */
    float scale, bias, step;
    int32_t zero_bin; /* where zeros go, when they are in the range */
    uint32_t *lut;    /* float16: bin of each bit pattern, or UINT32_MAX; NULL until needed */
} oq_hist;

/* What one thread counts before it is added to a histogram. Zeroed by the caller at first. */
typedef struct oq_hist_scratch {
    uint32_t *v;
    size_t n;
    /* how it counts, see histogram.c */
    bool listed, spilled;
    size_t n_counted;
    uint64_t zeros, ends;
    uint64_t first, last; /* counted in the first and the last bin, and not to be */
} oq_hist_scratch;
void oq_hist_scratch_release(oq_hist_scratch *s, const onq_allocator *a);

/* Counts start at zero. A range of no width is widened by 0.5 on both sides, as in numpy. */
onq_code oq_hist_uniform(oq_hist *h, const onq_allocator *a, oq_dtype type, bool abs, float first,
                         float last, size_t n_bins, onq_error *err);
/* Edges are copied; they must not fall. */
onq_code oq_hist_edges(oq_hist *h, const onq_allocator *a, oq_dtype type, bool abs,
                       const float *edges, size_t n_bins, onq_error *err);
void oq_hist_release(oq_hist *h);

/* Frees what only adding needs. */
void oq_hist_trim(oq_hist *h);

/* True if both have the same bins. */
bool oq_hist_same_layout(const oq_hist *a, const oq_hist *b);

/* The bin of a value that lies in the range. */
size_t oq_hist_bin(const oq_hist *h, float x);
/* Adds zeros. */
void oq_hist_add_zeros(oq_hist *h, uint64_t n);
/* Adds n values of the histogram's type. NaN, infinities and what lies outside are left out. */
onq_code oq_hist_add(oq_hist *h, const void *values, size_t n, oq_hist_scratch *scratch,
                     onq_error *err);

/*
 * The same in steps, for a histogram that several threads add to. Values are counted in the
 * scratch, for which only the layout is read, and then added to the counts. A lock of the caller's
 * must be held for the first and the last step, and for the scan too if the layout can change and
 * has no scale. No more than OQ_HIST_MAX_SCAN values in one go. If `e` is not NULL, the extent of
 * the values, which are float32 then, is added to it; where they lie within the range, all finite
 * ones are counted.
 */
#define OQ_HIST_MAX_SCAN ((size_t)UINT32_MAX)
onq_code oq_hist_prepare(oq_hist *h, onq_error *err);
onq_code oq_hist_scan(const oq_hist *layout, const void *values, size_t n, oq_hist_scratch *scratch,
                      oq_extent *e, onq_error *err);
void oq_hist_commit(oq_hist *h, const oq_hist_scratch *scratch);
