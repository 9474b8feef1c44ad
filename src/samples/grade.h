/*
 * grade.h — how near to the float model's the outputs of a quantized one are, in a word.
 *
 * A language model is judged by its text alone: how far its distributions are from float's, and how
 * often both prefer the same token. Other models are judged by noise, which counts from a floor
 * that depends on bits, and no model whose classes change is called good.
 */
#pragma once

#include "samples/language.h"

typedef enum oq_grade {
    OQ_GRADE_POOR = 0, /* of little use */
    OQ_GRADE_FAIR,     /* some answers will change */
    OQ_GRADE_GOOD,
    OQ_GRADE_CLOSE,
    OQ_GRADE_SAME
} oq_grade;

/* dB of outputs that are equal; no other is near it. */
#define OQ_GRADE_EQUAL 200.0
/* The floor where only weights are quantized, however many bits they have. */
#define OQ_GRADE_FLOOR_WEIGHTS 4.0

/* What was measured. */
typedef struct oq_graded {
    double sqnr;             /* dB, of the output that is worst; NAN: it cannot be compared */
    double floor;            /* oq_grade_floor, or OQ_GRADE_FLOOR_WEIGHTS */
    uint64_t rows, same;     /* rows of scores, and those with the same class; or 0 */
    const oq_lm_score *text; /* of a language model; or NULL */
} oq_graded;

oq_grade oq_grade_of(const oq_graded *g);
/* By the text alone: true if there is one, and `*out` is set. */
bool oq_grade_of_text(const oq_lm_score *text, oq_grade *out);
/* By the mean divergence, in nats, and the part of the rows that prefer the same token; NAN is
 * poor. */
oq_grade oq_grade_of_language(double kl, double top1);

const char *oq_grade_text(oq_grade g);    /* "poor", "fair", ... */
const char *oq_grade_meaning(oq_grade g); /* "expect wrong answers", ... */

/* Below that many dB the outputs of a model are poor for values of so many bits. Good models of 8
 * bits have 20 to 40 dB. */
double oq_grade_floor(unsigned bits);
