/*
 * language.h — models that speak: how to recognise one, and how well its logits agree with
 * another's.
 *
 * A language model takes the numbers of tokens and gives logits over a vocabulary. Its score adds
 * up, over samples and in their order, what counts for such a model: the divergence of the two
 * distributions (Kullback and Leibler, of the first from the second, in nats), how often both
 * prefer the same token, and the perplexity of each on the text itself, which needs the token that
 * follows. All are means over rows, so samples of any length count by their tokens.
 *
 *     OQ_TRY(oq_roles_find(&arena, &session->inputs, &session->outputs, &roles, err));
 *     if (roles.language.is)
 *         oq_lm_add(&score, &(oq_lm_text){.ids = &sample->inputs[roles.language.ids]}, flt, logits);
 */
#pragma once

#include "samples/sequence/carry.h"

#define OQ_NOWHERE SIZE_MAX

/* Places among the inputs and outputs of a model; OQ_NOWHERE where it has none. */
typedef struct oq_language {
    bool is;     /* it is a language model; else nothing below counts */
    bool causal; /* each row predicts the token that follows */
    size_t ids, mask, positions, logits;
} oq_language;

/* `states` says of each output whether it is a state (oq_carry_mark_states). */
oq_language oq_language_of(const oq_ios *in, const oq_ios *out, const bool *states);

/* What inputs and outputs of a model are for. Outputs that are states are no answers: whoever
 * judges a model looks at the others. */
typedef struct oq_roles {
    oq_carry carry; /* states: which output goes to which input */
    bool *states;   /* of each output */
    size_t n_states;
    oq_language language;
} oq_roles;

/* By the names that exporters give; in the arena. */
onq_code oq_roles_find(oq_arena *a, const oq_ios *in, const oq_ios *out, oq_roles *r,
                       onq_error *err);
/* With a carry that is known. */
onq_code oq_roles_of(oq_arena *a, const oq_ios *in, const oq_ios *out, const oq_carry *carry,
                     oq_roles *r, onq_error *err);

/* What went in where the state of an output comes from; NULL if it comes from nowhere. */
const oq_datum *oq_roles_past(const oq_roles *r, const oq_datum *inputs, size_t output);

/* What a model read when it gave its logits. */
typedef struct oq_lm_text {
    const oq_datum *ids;  /* integers [batch, length]; NULL: not known, and no perplexity */
    const oq_datum *mask; /* [batch, past + length] or [batch, length], 0 for padding; or NULL */
    const oq_datum *next; /* ids of the step that follows in the sequence; or NULL */
    uint64_t past;        /* tokens of the sequence before `ids` */
} oq_lm_text;

typedef struct oq_lm_score oq_lm_score;
struct oq_lm_score {
    uint64_t rows, same;      /* compared; with the same token in front */
    double kl, kl_squares;    /* sums over rows */
    uint64_t predictions;     /* tokens of the text that a row predicted */
    double loss_float, loss;  /* sums of -log of the probability of that token */
    bool differs;             /* types or shapes did not match: not compared */
    bool wrecked;             /* NaN, or a probability of 0 where the first model has more */
    oq_lm_score *by_position; /* or NULL: the same by the place in the sequence ... */
    size_t n_positions;       /* ... of so many; later rows are in none */
};

/* Adds the logits of one run: [batch, rows, vocabulary], or [batch, vocabulary] of the last token;
 * rows are those of the last tokens of the text. `flt` may be NULL: then only the perplexity of
 * `logits` is added. Rows of padding do not count. */
void oq_lm_add(oq_lm_score *s, const oq_lm_text *text, const oq_datum *flt, const oq_datum *logits);

/* The same for the rows after the last tokens of a step, once the step that follows says which
 * token it was: adds the predictions. `flt` and `logits` are [batch, vocabulary], the first tokens
 * of `ids` follow. */
void oq_lm_follow(oq_lm_score *s, const oq_datum *ids, const oq_datum *flt, const oq_datum *logits);
/* Those rows, copied: [batch, vocabulary]; of kind NONE where `logits` has none. */
onq_code oq_lm_last_rows(oq_arena *a, const oq_datum *logits, oq_datum *out, onq_error *err);
/* Adds sums; those by position are left alone. */
void oq_lm_join(oq_lm_score *s, const oq_lm_score *other);

/* Means; NAN when there are no rows, or no predictions. */
double oq_lm_kl(const oq_lm_score *s);
double oq_lm_top1(const oq_lm_score *s); /* fraction */
double oq_lm_perplexity(const oq_lm_score *s);
double oq_lm_perplexity_float(const oq_lm_score *s);
/* How much larger the second model's perplexity is than the first one's, in percent. */
double oq_lm_perplexity_rise(const oq_lm_score *s);
