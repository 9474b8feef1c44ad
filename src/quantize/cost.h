/*
 * cost.h — whether integers make a unit faster.
 */
#ifndef OQ_QUANTIZE_COST_H
#define OQ_QUANTIZE_COST_H

#include "quantize/unit.h"

bool oq_unit_pays(const oq_unit *u);

#endif
