/*
 * collect.h — what is gathered about each tensor while the samples run, and how portions of it
 * join.
 *
 * A collector has one oq_tstat for each tensor. Samples come in *chunks*: normally all samples are
 * one; with `stride` a chunk is what one collect_data call of the reference gets. A chunk of a
 * histogram method is looked at twice, first for its extent, then, once the histogram is laid out,
 * to count:
 *
 *     for each chunk
 *         oq_collect_seen for every tensor of every sample    (pass OQ_PASS_EXTENT)
 *         oq_collect_layout                                   histogram methods only, from here
 *         oq_collect_seen for every tensor of every sample    (pass OQ_PASS_COUNT)
 *         oq_collect_end_chunk                                to here
 *
 * MinMax sees each sample once. Nothing here depends on the order of the samples, except where the
 * reference does (moving average, chunks): there one row for each sample or chunk is kept with its
 * number. So collectors of different shares of the samples join (oq_collect_merge) to what one
 * collector would hold, to the bit.
 */
#pragma once

#include "base/vec.h"
#include "calibrate/calibrate.h"
#include "calibrate/collect/extent.h"
#include "calibrate/collect/histogram.h"
#include "calibrate/collect/tails.h"
#include "calibrate/extents.h"

#include <pthread.h>

/* For histograms that several threads add to: number i has lock i of few. */
enum { OQ_CAL_LOCKS = 64 };
typedef struct oq_cal_locks {
    pthread_mutex_t v[OQ_CAL_LOCKS];
} oq_cal_locks;

static inline pthread_mutex_t *oq_cal_lock(oq_cal_locks *l, size_t index) {
    return &l->v[index % OQ_CAL_LOCKS];
}

typedef enum oq_pass { OQ_PASS_EXTENT = 0, OQ_PASS_COUNT = 1 } oq_pass;

/* Extents of one sample (or one chunk), by channel: n lo, then n hi. */
typedef struct oq_row {
    uint64_t number;
    float *v;
} oq_row;

typedef struct oq_tstat {
    oq_str name;
    oq_dtype type;      /* OQ_UNDEFINED until it was seen */
    uint32_t rank;      /* per channel: axes the model declares, 0 when it does not say */
    uint32_t alias;     /* not observed: gets the range of tensor number alias - 1; 0: observed */
    uint64_t n_samples; /* it was seen in so many */
    oq_str nan_from;    /* the first sample that had NaN here, in words; empty: none */
    uint64_t nan_at;    /* its number */
    /* MinMax */
    size_t n_channels;       /* 1 unless per channel; 0 until seen */
    float *lo, *hi;          /* by channel; NaN until a sample has a number */
    uint64_t *lo_at, *hi_at; /* the last sample with that value: decides the sign of a zero */
    OQ_VEC(oq_row) rows;     /* moving average: one a sample; stride: one a chunk */
    /* histogram methods */
    oq_extent extent; /* of the chunk */
    oq_tails tails;   /* of the chunk, where the collector has tails */
    /* What tensor number padded - 1 has, with zeros (0: something else), as long as it is not
     * `apart`. While that is so, nothing of it is counted. */
    uint32_t padded;
    bool apart;
    bool settled;     /* the tails are counted, and the rest does not matter */
    oq_extent sample; /* of the last sample, whose number plus 1 is: */
    uint64_t sample_at;
    float min, max;           /* of all chunks so far; 0 when nothing finite was seen */
    bool min_bare, max_bare;  /* something finite was seen in the chunk that gave it */
    uint64_t n_values, n_nan; /* of all chunks so far */
    uint64_t n_low_inf, n_high_inf;
    float threshold; /* half the width of hist, without the widening of an empty range */
    bool has_hist;
    oq_hist hist; /* all chunks so far */
    bool has_next;
    oq_hist next;  /* the chunk that is being counted */
    size_t offset; /* where hist's first bin lies in next */
    float next_threshold;
} oq_tstat;

typedef struct oq_collector {
    const onq_env *env;
    oq_cal_options options; /* op_types and only are not used here */
    oq_arena arena;         /* names and arrays by channel */
    oq_tstat *v;
    size_t n;
    oq_pass pass;
    uint64_t sample;         /* number of the sample that runs */
    const char *sample_name; /* for messages; NULL: what is seen comes from no sample */
    size_t most_bins;        /* a histogram that would have more is refused */
    float *convert;          /* float16 values as float32 */
    size_t convert_n;
    oq_hist_scratch scratch;
    struct oq_ahead *ahead; /* counts while extents are measured (ahead.h); or NULL */
    bool ahead_counts;      /* the running sample too; else only its range is taken in */
    /* Counts for another collector, which others count for too (oq_collect_follow); or NULL. */
    struct oq_collector *into;
    oq_cal_locks *locks; /* of histograms that others add to; NULL: nobody does */
    /* The method needs tails: room for the values of so many samples, and for no more values of one
     * collector than this. */
    uint64_t tail_samples, tail_room;
    /* MinMax, not per channel: what each of so many samples has of each tensor, tensor by tensor;
     * or NULL. Collectors of other samples may fill the same. `place` is that of the sample that
     * runs. */
    oq_seen_extent *by_sample;
    uint64_t n_by_sample, place;
} oq_collector;

/* Names are copied. */
onq_code oq_collect_init(oq_collector *c, const onq_env *env, const oq_cal_options *o,
                         const oq_str *names, size_t n, onq_error *err);
void oq_collect_release(oq_collector *c);

/* Makes the tensors of `c` what those of `other`, of the same job, are. */
void oq_collect_like(oq_collector *c, const oq_collector *other);

/* One tensor of the sample c->sample, in the current pass. */
onq_code oq_collect_seen(oq_collector *c, size_t index, const oq_datum *tensor, onq_error *err);
/* MinMax, not per channel: the extents of a tensor in all samples, in their order, as
 * oq_collect_seen would find them (extents.h). */
onq_code oq_collect_recall(oq_collector *c, size_t index, const oq_seen_tensor *seen,
                           const uint64_t *numbers, uint64_t n, onq_error *err);
/* The same in the COUNT pass for values that were kept: may run on several threads, each with a
 * scratch of its own, for different tensors or with `locks`. */
onq_code oq_collect_count(oq_collector *c, size_t index, const void *values, size_t n,
                          oq_hist_scratch *scratch, onq_error *err);

/* The same for a tensor that has these values in `times` samples and no others. */
onq_code oq_collect_count_times(oq_collector *c, size_t index, const void *values, size_t n,
                                uint64_t times, onq_error *err);

/* The same in the EXTENT pass for a padded tensor: `zeros`, it is the other one with zeros. */
onq_code oq_collect_seen_padded(oq_collector *c, size_t index, const oq_datum *tensor, bool zeros,
                                onq_error *err);

/* Lays out the chunk's histogram of one tensor (any thread); a padded one after the other. Where
 * there are tails they are counted, if that settles the range. */
onq_code oq_collect_layout(oq_collector *c, size_t index, onq_error *err);
/* Joins the chunk's histograms to what there was and makes ready for the next chunk. */
onq_code oq_collect_end_chunk(oq_collector *c, onq_error *err);

/* Adds what `other` has gathered: the same tensors and options, other samples. In a histogram
 * method both must be at the same point: extents seen and nothing laid out, or the same
 * layout counted. */
onq_code oq_collect_merge(oq_collector *c, const oq_collector *other, onq_error *err);

/* Makes an empty collector one that counts into the histograms of `c`, which has `locks`. There is
 * nothing to merge afterwards. */
void oq_collect_follow(oq_collector *lane, oq_collector *c);

/* The result. A tensor that holds an infinity has an infinite range. NaN that were left out are
 * reported as warnings. */
onq_code oq_collect_finish(oq_collector *c, oq_ranges *out, onq_error *err);
