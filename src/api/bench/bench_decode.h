/*
 * bench_decode.h — `onq bench --decode`: tokens a second of a decoder with states, of a text at once
 * (prefill) and token by token with the cache (decode).
 */
#pragma once

#include "api/options/command.h"
#include "engine/engine.h"
#include "samples/sequence/seq_walk.h"

#define OQ_DECODE_LENGTHS 3

typedef struct oq_bench_decode {
    /* By length: tokens a second; 0: the model does not take so many. */
    double prefill[OQ_DECODE_LENGTHS], decode[OQ_DECODE_LENGTHS];
    bool measured;
} oq_bench_decode;

/* Texts of 1, 128 and 1,024 tokens from the ids of a sample, over and over. */
onq_code oq_bench_decode_run(oq_bench_decode *d, oq_session *session, const oq_walker *walker,
                             const oq_sample *sample, onq_error *err);
/* Members of the open object; a line of a table, and its head. */
void oq_bench_decode_json(const oq_bench_decode *d, oq_jw *w);
void oq_bench_decode_text(const oq_bench_decode *d, oq_buf *out);
void oq_bench_decode_head(oq_buf *out);
