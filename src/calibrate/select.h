/*
 * select.h — which tensors are calibrated.
 */
#ifndef OQ_CALIBRATE_SELECT_H
#define OQ_CALIBRATE_SELECT_H

#include "calibrate/calibrate.h"

typedef struct oq_cal_target {
    oq_str name;
    oq_dtype type;
    uint32_t rank;   /* axes that the model declares or inference finds; 0: it does not say */
    oq_str alias_of; /* not observed: gets the range of that tensor; p == NULL: observed itself */
    const oq_datum *constant; /* the output of a Constant node: its values; NULL: not one */
} oq_cal_target;

typedef struct oq_cal_targets {
    OQ_VEC(oq_cal_target) all; /* in the order of first use in the graph */
} oq_cal_targets;

/* In the arena; names are views of the model. `known` is what onnx infers of it; NULL: inferred
 * here. ONQ_E_UNSUPPORTED when there is nothing to
 * calibrate. */
onq_code oq_cal_select(oq_model *m, const oq_shapes *known, const oq_cal_options *o, oq_arena *a,
                       oq_cal_targets *out, onq_error *err);

#endif
