/*
 * overview.h — notices samples that say little about a model: one value everywhere, copies of each
 * other, few of them, pixels that nobody scaled.
 *
 * A source looks at each sample when it reads it, if its options say so, and adds up what it sees
 * in the first pass (oq_source_overview). Whoever knows what the samples are for says what that
 * means.
 */
#pragma once

#include "samples/datum.h"

/* Inputs that are looked at; samples that are compared with each other. */
#define OQ_OVERVIEW_INPUTS  4
#define OQ_OVERVIEW_SAMPLES 256

/* The values of one input. */
typedef struct oq_sight {
    double least, greatest; /* of the numbers among them; least > greatest: there is none */
    bool whole;             /* all are whole numbers */
} oq_sight;

/* One sample. */
typedef struct oq_look {
    oq_sight inputs[OQ_OVERVIEW_INPUTS];
    uint64_t hash; /* of all bytes */
    uint64_t rows; /* along the first axis of the first input, which is its batch */
} oq_look;

void oq_look_make(oq_look *l, const oq_datum *inputs, size_t n);

typedef struct oq_overview {
    size_t n_inputs;
    uint64_t samples, rows;
    uint64_t constant;                    /* samples in which each input has one value */
    uint64_t compared, distinct;          /* samples that were compared, and how many differ */
    oq_sight inputs[OQ_OVERVIEW_INPUTS];  /* over all samples */
    uint64_t hashes[OQ_OVERVIEW_SAMPLES]; /* of those that differ */
} oq_overview;

void oq_overview_init(oq_overview *w, size_t n_inputs);
void oq_overview_add(oq_overview *w, const oq_look *l);
/* Every input has the same value everywhere in every sample. */
bool oq_overview_is_constant(const oq_overview *w);
