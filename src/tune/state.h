/*
 * state.h — what a search has measured, in a file: a search that was stopped goes on from there.
 *
 * Rows are found by the text of their recipe; where some samples judged it, because it missed the
 * targets, by these targets too. What was spent for them counts for the search that goes on, or it
 * would have a turn for what was left out, and end with another answer. The file is written whole after every measurement. It
 * belongs to one model and one set of samples; with others it is refused.
 */
#pragma once

#include "base/env.h"
#include "base/text/json.h"
#include "tune/judge/score.h"
#include "tune/spend.h"

typedef struct oq_tune_state {
    const char *path; /* NULL: nothing is kept */
    const onq_env *env;
    json_t *root, *rows;
} oq_tune_state;

typedef struct oq_state_row {
    oq_score score;
    double ms, ms_noise, prefill_ms;
    uint64_t size;
    bool partly; /* some samples judged it */
    oq_noted noted;
    const char *why_not; /* it could not be made, or NULL; valid until the state is closed */
} oq_state_row;

/* Reads the file if there is one. `job` says what it belongs to. Close it also when this fails. */
onq_code oq_state_open(oq_tune_state *s, const onq_env *env, const char *path, const char *job,
                       onq_error *err);
void oq_state_close(oq_tune_state *s);
/* False if there is none. */
bool oq_state_find(const oq_tune_state *s, const char *key, oq_state_row *out);
/* Adds a row and writes the file. Does nothing where nothing is kept. */
onq_code oq_state_put(oq_tune_state *s, const char *key, const oq_state_row *row, onq_error *err);
