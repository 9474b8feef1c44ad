/*
 * carry.h — states of a model: outputs of one step that are inputs of the next.
 *
 * A decoder gives `present.0.key` and takes it back as `past_key_values.0.key`; a recurrent model
 * gives `hn` and takes `h0`. A carry is the list of such pairs. It comes from rules of the user
 * (--carry OUT=IN, a regular expression and a name with \1 .. \9 in it), or is found by the names
 * that exporters give.
 */
#pragma once

#include "samples/datum.h"

typedef struct oq_carry_pair {
    size_t out, in; /* places among the outputs and inputs of the model */
} oq_carry_pair;

typedef struct oq_carry {
    oq_carry_pair *v;
    size_t n;
} oq_carry;

/* The pairs that names of common exporters make; types and shapes must fit. In the arena. */
onq_code oq_carry_find(oq_arena *a, const oq_ios *in, const oq_ios *out, oq_carry *c,
                       onq_error *err);
/* The pairs that rules make. ONQ_E_OPTION for a rule that matches nothing, two outputs for one
 * input, types or shapes that cannot follow. */
onq_code oq_carry_read(oq_arena *a, const oq_str *rules, size_t n, const oq_ios *in,
                       const oq_ios *out, oq_carry *c, onq_error *err);

/* Says of each output whether it is a state: one that is carried, or one that has the name of a
 * cache. States are no answers of a model, and not judged as such. */
void oq_carry_mark_states(const oq_carry *c, const oq_ios *out, bool *states);
