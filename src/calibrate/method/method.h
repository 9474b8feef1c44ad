/*
 * method.h — what a calibration method is: how it collects, and how it finds a range in the end.
 *
 * There are two ways to collect (collect.h): extents of each sample, folded (MinMax), and a
 * histogram over the range of all samples (the others). A histogram method only says what to make
 * of the histogram. To add a method: a row in method.def and a file with its struct.
 */
#pragma once

#include "calibrate/calibrate.h"
#include "calibrate/collect/collect.h"

/* What a method computes from a tensor's histogram. Values are exact in the tensor's type. */
typedef struct oq_cal_answer {
    double lo, hi;
    bool lo_bare, hi_bare; /* a numpy scalar there, not an array (see ranges.h) */
    double avg, std;
} oq_cal_answer;

/* What has to be known of the values of a tensor. */
typedef enum oq_cal_need {
    OQ_NEED_COUNTS, /* its whole histogram */
    OQ_NEED_TAILS,  /* how many there are, and the greatest and least of them (tails.h) */
    OQ_NEED_EXTENT, /* the greatest and the least */
} oq_cal_need;

typedef struct oq_cal_class {
    bool histogram;
    uint64_t num_bins;           /* default */
    uint64_t num_quantized_bins; /* default; 0: the reference's 128 */
    bool symmetric;              /* default */
    /* Checks the options. May be NULL. */
    onq_code (*check)(const oq_cal_options *o, onq_error *err);
    /* Histogram methods: from the histogram of t (t->hist, t->lo, t->hi) to an answer. Runs on
     * any thread. */
    onq_code (*solve)(const oq_cal_options *o, const oq_tstat *t, const onq_allocator *a,
                      oq_cal_answer *out, onq_error *err);
    /* Puts the answer into a range of the result, in the reference's types and with values that are
     * exact in them. Histogram methods: all but the ends. May be NULL for them. */
    onq_code (*emit)(const oq_cal_options *o, const oq_tstat *t, const oq_cal_answer *x,
                     oq_arena *a, oq_range *out, onq_error *err);
    /* Histogram methods: what the ends of the range depend on. NULL: on all counts. */
    oq_cal_need (*bounds_need)(const oq_cal_options *o);
    /* OQ_NEED_TAILS: the share of the values that lies in a tail, and whether the ends are the same
     * wherever in bins [first, last] the `rest` of the values is that h does not count. */
    double (*tail_share)(const oq_cal_options *o);
    bool (*is_settled)(const oq_cal_options *o, const oq_hist *h, size_t first, size_t last,
                       uint64_t rest);
} oq_cal_class;

#define OQ_CAL_METHOD(NAME, text, symbol) extern const oq_cal_class oq_cal_##symbol;
#include "calibrate/method/method.def"
#undef OQ_CAL_METHOD

const oq_cal_class *oq_cal_class_of(oq_cal_method m);
/* What a histogram method needs to answer what the options ask. */
oq_cal_need oq_cal_need_of(const oq_cal_options *o);
/* Puts the answer of a method into a range of the result. */
onq_code oq_cal_emit(const oq_cal_options *o, const oq_tstat *t, const oq_cal_answer *x,
                     oq_arena *a, oq_range *out, onq_error *err);
/* The counts and the edges of t's histogram; false when out of memory. */
bool oq_cal_put_histogram(const oq_tstat *t, oq_arena *a, oq_num *counts, oq_num *edges);
/* The answer within what the tensor was seen to hold. */
void oq_cal_clamp(const oq_tstat *t, oq_cal_answer *x);
/* MinMax: merge_range for one channel of tensors of this type. */
void oq_cal_join(const oq_cal_options *o, oq_dtype type, double *lo, double *hi, double new_lo,
                 double new_hi);
/* "|minmax|entropy...": the symbols in order, for tables of options. */
extern const char oq_cal_method_choices[];
