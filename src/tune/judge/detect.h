/*
 * detect.h — models whose outputs are boxes with scores, and how many of float's detections a
 * candidate finds.
 *
 * A detection is a box whose score is above 0.3; of boxes of one class that overlap, the best
 * counts. Two detections are the same if they have the same class and overlap by half. Exporters
 * give boxes and scores in several forms, which the shapes and values of float's outputs show:
 * nothing here goes by names.
 */
#pragma once

#include "samples/datum.h"
#include "tune/judge/meaning.h"

/* Some columns of an output that is seen as rows of numbers, for each image. */
typedef struct oq_detect_part {
    size_t output;
    uint32_t first, n; /* columns; n 0: there is no such part */
    bool across;       /* columns come before rows: [N, K, M] and maps [N, K, H, W] */
    bool alone;        /* it has no axis of columns: [N, M] or [M] */
} oq_detect_part;

typedef enum oq_detect_scores {
    OQ_SCORES_PLAIN, /* between 0 and 1 */
    OQ_SCORES_SIGMOID,
    OQ_SCORES_SOFTMAX
} oq_detect_scores;

typedef enum oq_detect_boxes {
    OQ_BOXES_PLACE,   /* not known; rows are places of their own */
    OQ_BOXES_CORNERS, /* left, top, right, bottom */
    OQ_BOXES_CENTRE,  /* x, y, width, height */
    /* of maps: around the pixel, in pixels of the map */
    OQ_BOXES_PEAK, /* not known */
    OQ_BOXES_SIZE, /* height, width */
    OQ_BOXES_LOG_SIZE,
    OQ_BOXES_SIDES, /* distances to left, top, right, bottom */
} oq_detect_boxes;

typedef struct oq_detect_head {
    oq_detect_part box, score, object, label, offset;
    oq_detect_scores scores;
    oq_detect_boxes boxes;
    uint32_t background; /* the class of what is nothing; OQ_NO_CLASS: there is none */
} oq_detect_head;

#define OQ_NO_CLASS UINT32_MAX

typedef struct oq_detector {
    const oq_detect_head *heads;
    size_t n;
    bool chosen; /* the model itself leaves out boxes that overlap, so rows come and go */
    const char *why;
} oq_detector;

/* Looks at float's outputs of all samples, whose order does not matter; *out is NULL where they are
 * no detections, or nothing was detected. In the arena. */
onq_code oq_detector_find(oq_arena *a, const oq_datum *const *samples, size_t n_samples,
                          const oq_meaning *meaning, const oq_detector **out, onq_error *err);
/* True for an output whose number of rows says what was found. */
bool oq_detector_has(const oq_detector *d, size_t output);

typedef struct oq_detected {
    double flt;   /* detections of float */
    double both;  /* of float and of the candidate, added up */
    double apart; /* of these, which the other one does not have */
} oq_detected;

onq_code oq_detect_compare(const oq_detector *d, const oq_datum *flt, const oq_datum *quantized,
                           size_t n, const onq_allocator *alloc, oq_detected *out, onq_error *err);

/* ---- for detector.c ---- */

typedef struct oq_detection {
    double score;
    double box[4]; /* as the output has it; oq_detect_compare makes corners of it */
    uint32_t image, label;
    size_t head;
    uint64_t place, width; /* the row, and of how many a line of the map has */
    bool taken;
} oq_detection;

typedef OQ_VEC(oq_detection) oq_detections;

/* An output as rows and columns. */
typedef struct oq_detect_grid {
    const oq_datum *d;
    uint64_t images, rows, columns, width;
} oq_detect_grid;

/* False where the output does not have the part. */
bool oq_detect_grid_of(const oq_detect_part *p, const oq_datum *outputs, size_t n,
                       oq_detect_grid *out);
double oq_detect_at(const oq_detect_part *p, const oq_detect_grid *g, uint64_t image, uint64_t row,
                    uint64_t column);
/* Adds what a head detects, with boxes as they are. */
onq_code oq_detect_add(const oq_detect_head *h, size_t at, const oq_datum *outputs, size_t n,
                       oq_arena *a, oq_detections *out, onq_error *err);
