/*
 * ranges.h — the result of calibration: for each tensor its range and what else the method keeps.
 *
 * It is the reference's TensorsData. A number keeps the element type it has there (float32 or
 * float16, int64 for counts) and whether it is an array or a bare numpy scalar, because both show
 * in the cache file and in the arithmetic that follows (the quantizer computes scales in that
 * type):
 *
 *   method        attributes, in the order of the file
 *   MinMax        lowest[n], highest[n]            arrays of 1, or of one element per channel
 *   Entropy       lowest, highest, hist[k], bins[k+1]
 *   Percentile    lowest, highest, hist, bins      (the reference keeps the first two counts here)
 *   Distribution  avg, std, hist[k], hist_edges[k+1], lowest, highest
 *   MSE           lowest[1], highest[1]            (the reference does not have it)
 *
 * The cache file is what save_tensors_data writes and load_tensors_data reads: Python's JSON, which
 * has NaN, Infinity and -Infinity as bare words. A bare number of a float attribute reads back as
 * float32, as there (so a float16 range of a histogram method does not keep its type through a
 * file).
 *
 * Needs no engine. Everything lives in the arena inside; names are copied.
 */
#pragma once

#include "base/env.h"
#include "base/map.h"
#include "base/system/file.h"
#include "base/vec.h"
#include "onnx/dtype.h"

/* Numbers as in the reference's CalibrationMethod. */
typedef enum oq_cal_method {
#define OQ_CAL_METHOD(NAME, text, symbol) OQ_CAL_##NAME,
#include "calibrate/method/method.def"
#undef OQ_CAL_METHOD
    OQ_CAL_METHODS /* how many there are */
} oq_cal_method;

/* "MinMax", "Entropy", "Percentile", "Distribution", "MSE". */
const char *oq_cal_method_name(oq_cal_method m);
/* By name in any case; false when there is none. */
bool oq_cal_method_find(oq_str name, oq_cal_method *out);

/* One attribute. */
typedef struct oq_num {
    oq_dtype type; /* OQ_FLOAT, OQ_FLOAT16, OQ_INT64; OQ_UNDEFINED: the attribute is absent */
    bool bare;     /* a numpy scalar: one number, written without type */
    bool scalar;   /* rank 0 (always when bare); else rank 1 */
    size_t n;      /* elements, 1 when scalar */
    double *v;     /* float types: every float16 and float32 is exact in a double */
    int64_t *i;    /* OQ_INT64 */
} oq_num;

static inline bool oq_num_has(const oq_num *x) {
    return x->type != OQ_UNDEFINED;
}

typedef struct oq_range {
    oq_str name;
    oq_num lowest, highest;
    oq_num avg, std;
    oq_num hist;
    oq_num hist_edges;    /* Distribution */
    oq_num bins;          /* Entropy: the edges; Percentile: the second count */
    oq_str nan_from;      /* the first sample with NaN, in words; empty: none, or not known */
    bool lowest_was_bare; /* in the file that was read */
} oq_range;

typedef struct oq_ranges {
    oq_arena arena;
    oq_cal_method method;
    bool smooth_quant;      /* the file's flag */
    OQ_VEC(oq_range *) all; /* in order; addresses stay */
    oq_map map;             /* name -> index in all */
} oq_ranges;

void oq_ranges_init(oq_ranges *r, const onq_allocator *alloc, oq_cal_method method);
void oq_ranges_release(oq_ranges *r);

/* The range of a tensor, or NULL. */
oq_range *oq_ranges_find(const oq_ranges *r, oq_str name);
/* Finds or adds (empty); NULL when out of memory. The name is copied. */
oq_range *oq_ranges_add(oq_ranges *r, oq_str name);
/* The same ranges in memory of their own. `out` is initialised by the call. False when out of
 * memory. */
bool oq_ranges_clone(oq_ranges *out, const onq_allocator *alloc, const oq_ranges *from);
/* Makes `name` (existing or new) an alias of the values of `from`, as the reference does for the
 * input of a Relu or Clip that goes away: the values are shared, later changes are not. */
bool oq_ranges_copy(oq_ranges *r, oq_str name, const oq_range *from);

/* Makes an attribute: n values, zeroed. scalar: rank 0, n is 1. False when out of memory. */
bool oq_num_make(oq_arena *a, oq_num *x, oq_dtype type, bool scalar, size_t n);
/* One number, the value rounded by the caller; bare = numpy scalar. */
bool oq_num_make_one(oq_arena *a, oq_num *x, oq_dtype type, bool bare, double v);

/* The range as two doubles; false when an attribute is absent or has not exactly one element. */
bool oq_range_pair(const oq_range *r, double *lowest, double *highest);

/*
 * True if the ranges of a file were made symmetric about zero. The file does not say so, but its
 * values show it. Percentile of magnitudes gives a bare lowest end and counts the least magnitude
 * in the first bin; of the values themselves, the one or the other is not so for some tensor.
 * MinMax: every range is. The other methods do not have the choice: false.
 */
bool oq_ranges_are_symmetric(const oq_ranges *r);

/* True if it has an infinite end (in any channel). Such a tensor has no scale. */
bool oq_range_is_infinite(const oq_range *r);
/* True if the tensor had no value in any sample: its range is infinite, and the wrong way round. */
bool oq_range_is_empty(const oq_range *r);

/* Reads a cache. Unlike the reference it says what is wrong, and where. r is initialised by the
 * call (release it after success). */
onq_code oq_ranges_load(oq_ranges *r, const onq_env *env, const char *path, onq_error *err);
/* The same from text; `where` names it in errors. */
onq_code oq_ranges_parse(oq_ranges *r, const onq_allocator *alloc, const char *where, oq_str text,
                         onq_error *err);
/* Writes the cache, whole or not at all. */
onq_code oq_ranges_save(const oq_ranges *r, const onq_env *env, const char *path, onq_error *err);
/* The same onto an open output. OQ_RANGES_TABLE: as write_calibration_table has it, without the
 * smooth_quant flag. */
enum oq_ranges_write_flags { OQ_RANGES_CACHE = 0, OQ_RANGES_TABLE = 1 };
onq_code oq_ranges_write(const oq_ranges *r, const onq_allocator *alloc, oq_out *out,
                         enum oq_ranges_write_flags flags, onq_error *err);
