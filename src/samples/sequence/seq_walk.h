/*
 * seq_walk.h — a model goes through a sequence: what one step gives goes into the next.
 *
 * A walk completes the inputs of a step: states come from the step before; in the first one they are
 * what the sample gives, else zeros of the declared shape, empty along the axis of the past. The
 * attention mask and positions of a language model follow from the lengths where a sample leaves
 * them out. The token of a generated step is the one that the step before preferred.
 *
 *     for each step of a sequence:
 *         OQ_TRY(oq_walk_fill(&walk, step, &arena, &full, err));
 *         run `full`
 *         OQ_TRY(oq_walk_take(&walk, &full, outputs, n, err));
 */
#pragma once

#include "samples/language.h"
#include "samples/source.h"

/* The model that walks; both live as long as its walks. */
typedef struct oq_walker {
    oq_ios in, out;
    oq_roles roles;
} oq_walker;

typedef struct oq_walk {
    const oq_walker *of;
    const onq_allocator *alloc;
    bool own_states;    /* states of the walk go before those that a later step brings */
    bool borrows;       /* outputs stay valid while the next step runs: they are not copied */
    oq_arena arenas[2]; /* what the last step left is in one of them */
    unsigned now;
    oq_datum *left;   /* by input: what is known from the step before; NONE: nothing */
    oq_datum ids;     /* the tokens that it preferred; NONE: it has none */
    uint64_t past;    /* tokens before the next step */
    bool made_states; /* the first step of the sequence had states that were made up */
} oq_walk;

/* Which inputs samples may leave out, into in.n flags: states, and what follows from lengths. */
void oq_walker_may_lack(const oq_walker *w, bool *may_lack);

/* Tokens that the states among these inputs hold: their size along the axis that grows. */
uint64_t oq_walker_past(const oq_walker *w, const oq_datum *inputs);

void oq_walk_init(oq_walk *w, const oq_walker *of, const onq_allocator *alloc);
void oq_walk_release(oq_walk *w);
/* Completes a step into the arena. A step with number 0 begins anew. */
onq_code oq_walk_fill(oq_walk *w, const oq_sample *step, oq_arena *a, oq_sample *full,
                      onq_error *err);
/* Keeps what the next step needs, unless this was the last. An output that cannot follow is an
 * error that names it, its input and the step. */
onq_code oq_walk_take(oq_walk *w, const oq_sample *full, const oq_datum *outputs, size_t n,
                      onq_error *err);
