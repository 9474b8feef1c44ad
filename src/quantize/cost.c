/*
 * cost.c — see cost.h.
 */
#include "quantize/cost.h"

/* Below these a QuantizeLinear and a DequantizeLinear cost more than integers save. */
#define LEAST_MACS  1500000
#define LEAST_DEPTH 32

bool oq_unit_pays(const oq_unit *u) {
    return u->kind == OQ_UNIT_DENSE && u->macs >= LEAST_MACS && u->depth >= LEAST_DEPTH;
}
