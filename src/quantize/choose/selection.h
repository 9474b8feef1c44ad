/*
 * selection.h — which nodes integers pay for: --op_set and --heaviest.
 *
 * Every list of names and types only takes nodes away, and so does this: a node is quantized if all
 * of them let it through. The reasons are in the plan.
 */
#pragma once

#include "quantize/choose/qrun.h"
#include "quantize/cost/cost.h"

/* Rows: name, of which a later one has all that an earlier one has. */
typedef enum oq_op_set {
    OQ_SET_ALL,    /* what the other options choose */
    OQ_SET_LINEAR, /* products, and what moves or clips their values; arithmetic stays float */
    OQ_SET_NOOUT,  /* and outputs of MatMul and Gemm stay float */
    OQ_SET_PAYS    /* and so do units that integers make no faster */
} oq_op_set;
#define OQ_OP_SETS(ROW)                                                                            \
    ROW("all", OQ_SET_ALL)                                                                         \
    ROW("linear", OQ_SET_LINEAR)                                                                   \
    ROW("noout", OQ_SET_NOOUT)                                                                     \
    ROW("pays", OQ_SET_PAYS)

typedef struct oq_selection {
    oq_op_set set;
    uint64_t heaviest;          /* so many units; 0: all */
    const oq_units *units;      /* NULL where neither needs them (oq_selection_needs_units) */
    const oq_unit_costs *costs; /* measured ones, or NULL */
    unsigned modes;             /* of oq_qmode: the default list of operators */
} oq_selection;

static inline bool oq_selection_needs_units(const oq_selection *s) {
    return s->set == OQ_SET_PAYS || s->heaviest > 0;
}
/* Sets what goes with the set whatever the model: outputs that stay float, forms that the runtime
 * leaves alone. */
onq_code oq_selection_choose_outputs(oq_qconfig *c, const oq_selection *s, onq_error *err);
/* Leaves nodes float, of those that the run would quantize. */
onq_code oq_selection_choose_nodes(oq_qrun *r, oq_model *m, const oq_selection *s, onq_error *err);
