/*
 * flight.h — several samples at once: each runs on a thread of its own, in a lane with a session
 * that shares the model (oq_session_share). One sample seldom keeps all cores busy; several do.
 *
 *     oq_flight f = {.env = env, .source = source, .n_lanes = 2, .run = run, .ctx = ctx};
 *     rc = oq_flight_run(&f, n, "calibrating", done, total, err);
 *
 * A lane gets samples in the order of the source, but which lane gets which is not known, nor in
 * which order they end. What `run` gathers must be joined in a way that does not depend on it, or
 * by `fold`, which goes through the samples in their order.
 */
#ifndef OQ_ENGINE_FLIGHT_H
#define OQ_ENGINE_FLIGHT_H

#include "base/env.h"
#include "samples/source.h"

typedef struct oq_flight {
    const onq_env *env;
    oq_source *source; /* at the next sample that is to run */
    unsigned n_lanes;  /* lane 0 is the caller's thread; more than samples are not used */
    /* Runs a sample; called for one sample at a time in each lane. The sample is valid during the
     * call, and `fold` after it. */
    onq_code (*run)(void *ctx, unsigned lane, const oq_sample *s, onq_error *err);
    void *ctx;
    /* The rest may be NULL. After `run` of the same lane, for one sample after the other in their
     * order; a lane waits here until it is its sample's turn. Not called from the first sample on
     * that failed. */
    onq_code (*fold)(void *ctx, unsigned lane, const oq_sample *s, onq_error *err);
    /* The same samples for a second model: `run` and `fold` get s[0] and s[1]. */
    oq_source *beside;
    /* One for each lane: gets the place of its sample in the flight, from 0. */
    uint64_t *place;
} oq_flight;

#define OQ_FLIGHT_LANES 16         /* more share the memory of one machine badly */
#define OQ_FLIGHT_ALL   UINT64_MAX /* samples: as many as there are */

/* Runs the next n samples of the source. Progress is reported on the caller's thread, as `what`
 * with `done` samples of `total` before these. Of several failures the one of the first sample
 * comes back; samples after it may have run or not. A source that ends early is an error, unless n
 * is OQ_FLIGHT_ALL. */
onq_code oq_flight_run(const oq_flight *f, uint64_t n, const char *what, uint64_t done,
                       uint64_t total, onq_error *err);

/* How many samples of the model may run at once, once the first has run: `jobs` if it is not 0,
 * else as many as there are threads, if each takes as much memory as the first (the resident bytes
 * now over those `before` it) and no more than `memory` is added. One, where a run depends on those
 * before it. */
onq_code oq_flight_decide(const onq_env *env, const oq_model *m, unsigned jobs, uint64_t before,
                          uint64_t memory, unsigned *lanes, onq_error *err);
/* How many samples may run at once so that their activations take no more than `memory`, given the
 * resident bytes that one of them added; at least 1, at most the threads of the environment. */
unsigned oq_flight_lanes(const onq_env *env, uint64_t one, uint64_t memory);
/* Resident bytes of this process now; 0 where the system does not say. */
uint64_t oq_flight_resident(void);

#endif
