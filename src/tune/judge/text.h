/*
 * text.h — answers of recognisers whose rows become a text: CTC.
 *
 * Each row names a character or the blank. Whoever reads the text merges equal rows that follow each
 * other and then drops the blanks. So a character that begins a row later, or a blank next to it that
 * becomes one more row of it, is the same text. What changes a text are events: a row gets a class
 * that neither it nor its neighbours have, no row of a character names it any more, or no blank is
 * left between two equal characters. Each has a margin, of what may stand there over what may not.
 */
#pragma once

#include "base/vec.h"
#include "samples/datum.h"
#include "tune/judge/meaning.h"

#define OQ_NO_BLANK UINT64_MAX

/* A step of a sample: the first input, and the scores of classes. */
typedef struct oq_text_step {
    const oq_datum *input, *scores;
} oq_text_step;

/* The blank class of float's scores, the first or the last, or OQ_NO_BLANK where rows say something else.
 * They are texts where the input is a picture or a signal, of which several steps make a row, and
 * where blanks stand between other answers, which are short. ONQ_E_NOMEM. */
onq_code oq_text_blank(const oq_text_step *v, size_t n, oq_arena *a, uint64_t *blank,
                       onq_error *err);

typedef OQ_VEC(float) oq_text_values;

/* Appends the margins of the events of n_texts texts, and what another model takes away from each.
 * counts: appended to, the number of events of each text; changed: of texts. All but margins may be
 * NULL, where there is no other model. ONQ_E_NOMEM. */
typedef struct oq_text_pair {
    const oq_datum *flt, *other; /* of equal shape */
    oq_link link;
    uint64_t blank, n_texts;
} oq_text_pair;
typedef struct oq_text_events {
    oq_text_values margins, errors;
    OQ_VEC(uint32_t) counts;
} oq_text_events;
onq_code oq_text_add(const oq_text_pair *x, oq_arena *a, oq_text_events *out, uint64_t *changed,
                     onq_error *err);
