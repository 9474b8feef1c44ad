/*
 * partial.h — a collector as a file: shards, checkpoints and MPI ranks are all this.
 *
 * Little-endian, no padding. Every count is compared with the bytes that are left before it is
 * used.
 *
 *    0  "ONQPART2"
 *    8  u32 CRC-32 of everything from byte 12 on
 *   12  meta: u8 stage, u64 share, n_shares, total, base, next, model_size, u32 model_crc
 *       options: u8 method, symmetric, moving_average, per_channel, scenario (+ 128: inner); f64
 *                averaging_constant, percentile; u64 num_bins, num_quantized_bins, stride
 *       u32 tensors; for each
 *           u32 length, name; u8 type (ONNX number, 0 not seen); u32 rank, alias; u64 n_samples
 *           (nothing more when it is an alias)
 *           MinMax: u32 channels, f32 lo[], f32 hi[], u64 lo_at[], u64 hi_at[]  (when seen)
 *                   u32 rows; for each u64 number, f32[2 x channels]
 *           others: f32 lo, hi, lo_abs, u64 count, n_nan, n_low_inf, n_high_inf
 *                                                                        the chunk's extent
 *                   f32 min, max, u8 min_bare, max_bare, u64 n_values, n_nan, n_low_inf,
 *                   n_high_inf, f32 threshold
 *                   u8 has_hist; f32 edges[], u64 counts[] after a u32 number of bins
 *                   u8 has_next; u64 counts[] after a u32 number of bins       (from the extent)
 *
 * Parts of one job join when options, tensors, model and total agree and every share is there once.
 */
#pragma once

#include "calibrate/collect/collect.h"

typedef enum oq_stage {
    OQ_STAGE_EXTENT = 1, /* a checkpoint: some samples are measured */
    OQ_STAGE_COUNT = 2,  /* a checkpoint: all of the chunk are measured, some counted */
    OQ_STAGE_RANGE = 3,  /* a part: the share is measured (first half of a histogram method) */
    OQ_STAGE_DONE = 4,   /* a part: the share is complete */
} oq_stage;

typedef struct oq_partial_meta {
    oq_stage stage;
    uint64_t share, n_shares; /* of 1 when not sharded */
    uint64_t total;           /* samples of the whole job */
    uint64_t base, next;      /* checkpoints: first sample of the chunk, next sample to run */
    uint64_t model_size;
    uint32_t model_crc;
} oq_partial_meta;

/* Size and checksum of a model, to distinguish jobs. */
void oq_partial_model(oq_partial_meta *meta, const oq_model *m);

/* Appends the bytes to an empty buffer. */
onq_code oq_partial_encode(const oq_collector *c, const oq_partial_meta *meta, oq_buf *b,
                           onq_error *err);
onq_code oq_partial_save(const oq_collector *c, const oq_partial_meta *meta, const char *path,
                         onq_error *err);
/* `c` is initialised by the call; release it after success. */
onq_code oq_partial_load(oq_collector *c, oq_partial_meta *meta, const onq_env *env,
                         const char *path, onq_error *err);
onq_code oq_partial_parse(oq_collector *c, oq_partial_meta *meta, const onq_env *env,
                          const uint8_t *p, size_t n, onq_error *err);

/* Loads the parts of a job and joins them. `stage` is what they must be (RANGE or DONE). */
onq_code oq_partial_join(oq_collector *c, oq_partial_meta *meta, const onq_env *env,
                         const char *const *paths, size_t n, oq_stage stage, onq_error *err);

/* True if two sets of options ask for the same calibration. */
bool oq_cal_options_equal(const oq_cal_options *a, const oq_cal_options *b);
