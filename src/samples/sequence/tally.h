/*
 * tally.h — how near one model is to another over sequences: as a whole, and from place to place.
 *
 * Each output is compared over all steps (agreement.h), logits of language models besides by what
 * counts for them (language.h). Answers are also added up by their place in the sequence: the token
 * of a language model, the step of others. Of a model with states there are two ways to come to a
 * place, and the difference is what errors of earlier steps do: *free*, with the states that it gave
 * itself, and *forced*, with those of the first model. A sequence is *kept* if the first output with
 * scores of classes has the same class in front in all of its rows.
 *
 * A tally is of one sequence, and joined to that of all in their order: the sums do not depend on
 * how many ran at once.
 */
#pragma once

#include "base/text/json.h"
#include "samples/agreement.h"
#include "samples/language.h"

/* Places after these are in none. */
#define OQ_TALLY_PLACES 4096

typedef enum oq_tally_way { OQ_FREE, OQ_FORCED, OQ_TALLY_WAYS } oq_tally_way;

typedef struct oq_tally {
    oq_arena arena;
    const oq_roles *roles; /* of the first model; borrowed */
    size_t n_outputs;      /* of the first model */
    oq_agree *outputs;
    oq_lm_score text[OQ_TALLY_WAYS];
    oq_agree *steps[OQ_TALLY_WAYS]; /* n_outputs for each of n_places; of states nothing */
    size_t n_places;                /* of those of `text` too; how many were seen: */
    uint64_t seen;
    bool forced;              /* there was a model with the other's states */
    uint64_t sequences, kept; /* that were joined, and hold classes; kept */
    uint64_t past;            /* of one sequence: tokens so far ... */
    oq_arena rows;            /* ... and the logits after them, the float model's and the other's */
    oq_datum after[2];
} oq_tally;

/* What the models gave in one step. `quantized` and `forced` are by output of the first model, NULL where
 * there is none; `forced` itself may be NULL: there is no such run, or it is that of `quantized`. */
typedef struct oq_tally_step {
    const oq_datum *inputs; /* of the first model, states included */
    const oq_datum *flt;
    const oq_datum *const *quantized, *const *forced;
    bool has_forced; /* the tally has both ways, so a step without is the same in both */
    uint64_t step;
} oq_tally_step;

onq_code oq_tally_init(oq_tally *t, const onq_allocator *alloc, const oq_roles *roles,
                       size_t n_outputs, onq_error *err);
void oq_tally_release(oq_tally *t);
onq_code oq_tally_add(oq_tally *t, const oq_tally_step *x, onq_error *err);
/* Adds the tally of one sequence. */
onq_code oq_tally_join(oq_tally *t, const oq_tally *one, onq_error *err);
/* Percent of sequences that are kept; NAN where no output holds classes. */
double oq_tally_kept(const oq_tally *t);

/* "along": the figures of output k at every place, of both ways, as a member of the open object;
 * nothing if there is only one place. */
void oq_tally_json(const oq_tally *t, size_t k, oq_str name, oq_jw *w);
/* Lines of a table by stretches of places, each twice as long as the one before; nothing likewise. */
void oq_tally_text(const oq_tally *t, size_t k, oq_str name, oq_buf *out);
