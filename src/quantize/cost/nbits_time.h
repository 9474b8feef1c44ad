/*
 * nbits_time.h — how long a product with a weight of few bits takes on this machine, beside float
 * and 8-bit integers.
 *
 * Models of MatMuls are made, quantized by the quantizers themselves, and run in turns; the least
 * of the rounds counts, so a busy moment does not.
 */
#pragma once

#include "engine/engine.h"
#include "quantize/nbits/nbits.h"

/* The most weights of a matrix that is timed. */
#define OQ_NB_MAX_TIMED ((uint64_t)1 << 24)
#define OQ_NB_ROWS_ONE  1  /* a token at a time: decoding */
#define OQ_NB_ROWS_MANY 64 /* a prompt, an encoder: prefill */

/* Times over float's, for one row and for many. */
typedef struct oq_nb_speed {
    uint64_t k, n;
    uint64_t copies; /* of the weight, one product each: as in a model that no cache holds; 0: 1 */
    double nbits[2], int8[2];
} oq_nb_speed;

/* `like` gives provider, custom operators and threads. k, n and copies of `out` are the
 * caller's. */
onq_code oq_nb_time(oq_engine *e, const oq_session_options *like, const oq_nb_config *config,
                    oq_nb_speed *out, onq_error *err);
