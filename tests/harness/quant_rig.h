/*
 * quant_rig.h — a model and all that the quantizers take with it, for tests of them.
 */
#pragma once

#include "build_model.h"
#include "calibrate/ranges.h"
#include "quantize/choose/extreme.h"
#include "quantize/choose/qrun.h"
#include "quantize/override/override.h"
#include "quantize/plan.h"
#include "shape/shape.h"

typedef struct quant_rig {
    bm b; /* empty, of opset 13 */
    oq_arena arena;
    oq_qconfig config; /* activations are uint8 */
    oq_qrun run;
    oq_overrides overrides;
    oq_ranges ranges;
    oq_extremes extremes;
    oq_plan plan;
    oq_shapes *shapes; /* NULL until the test infers them */
    onq_error err;
} quant_rig;

/* alloc as in bm_begin. */
void quant_rig_begin(quant_rig *r, const onq_allocator *alloc);
void quant_rig_end(quant_rig *r);
/* The same for cmocka_unit_test_setup_teardown. */
int quant_rig_setup(void **state);
int quant_rig_teardown(void **state);

/* Gives a tensor a range; false without memory. */
bool quant_rig_range(quant_rig *r, const char *name, double lowest, double highest);
