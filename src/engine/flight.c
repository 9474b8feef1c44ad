/*
 * flight.c — see flight.h.
 */
#include "engine/flight.h"

#include "onnx/operators.h"

unsigned oq_flight_lanes(const onq_env *env, uint64_t one, uint64_t memory) {
    const unsigned threads = oq_env_threads(env),
                   most = threads < OQ_FLIGHT_LANES ? threads : OQ_FLIGHT_LANES;
    const uint64_t more = one > 0 ? memory / one : most;
    return more + 1 < most ? (unsigned)more + 1 : most > 0 ? most : 1;
}

onq_code oq_flight_decide(const onq_env *env, const oq_model *m, unsigned jobs, uint64_t before,
                          uint64_t memory, unsigned *lanes, onq_error *err) {
    const uint64_t now = oq_os_resident();
    bool random = false;
    OQ_TRY(oq_model_is_random(m, &random, err));
    *lanes = jobs > 0 ? jobs : oq_flight_lanes(env, now > before ? now - before : 0, memory);
    if (random || *lanes > OQ_FLIGHT_LANES)
        *lanes = random ? 1 : OQ_FLIGHT_LANES;
    return ONQ_OK;
}
