/*
 * flight.h — how many samples may run at once (sweep.h runs them).
 */
#pragma once

#include "base/env.h"
#include "onnx/model.h"

#define OQ_FLIGHT_LANES 16 /* more share the memory of one machine badly */

/* How many samples of the model may run at once, once the first has run: `jobs` if it is not 0,
 * else as many as there are threads, if each takes as much memory as the first (the resident bytes
 * now over those `before` it) and no more than `memory` is added. One, where a run depends on those
 * before it. */
onq_code oq_flight_decide(const onq_env *env, const oq_model *m, unsigned jobs, uint64_t before,
                          uint64_t memory, unsigned *lanes, onq_error *err);
/* How many samples may run at once so that their activations take no more than `memory`, given the
 * resident bytes that one of them added; at least 1, at most the threads of the environment. */
unsigned oq_flight_lanes(const onq_env *env, uint64_t one, uint64_t memory);
