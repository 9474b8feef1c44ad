/*
 * select.h — which tensors are calibrated.
 */
#pragma once

#include "calibrate/calibrate.h"

typedef struct oq_cal_target {
    oq_str name;
    oq_dtype type;
    uint32_t rank;   /* axes that the model declares or inference finds; 0: it does not say */
    uint64_t bytes;  /* that it has in every run; 0: the model does not say */
    oq_str alias_of; /* not observed: gets the range of that tensor; p == NULL: observed itself */
    const oq_datum *constant; /* the output of a Constant node: its values; NULL: not one */
    oq_str padded;            /* that tensor with zeros around it; p == NULL: something else */
    oq_str pads;              /* as long as this tensor has no negative value; p == NULL: always */
} oq_cal_target;

typedef struct oq_cal_targets {
    OQ_VEC(oq_cal_target) all; /* in the order of first use in the graph */
} oq_cal_targets;

/* In the arena; names are views of the model. `known` is what onnx infers of it; NULL: inferred
 * here. ONQ_E_UNSUPPORTED when there is nothing to calibrate. */
onq_code oq_cal_select(oq_model *m, const oq_shapes *known, const oq_cal_options *o, oq_arena *a,
                       oq_cal_targets *out, onq_error *err);
/* Fills in `padded` and `pads`, in the main graph. */
onq_code oq_cal_select_pads(oq_model *m, oq_arena *a, oq_cal_targets *targets, onq_error *err);
