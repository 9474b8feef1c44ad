/*
 * cell.h — arithmetic on single followed values. Exact on fractions of expressions; unknown
 * wherever a result is not certain for all sizes the names can have.
 */
#pragma once

#include "shape/infer.h"

typedef oq_cell (*oq_cell_fn)(oq_rctx *c, oq_cell a, oq_cell b);

static inline oq_cell oq_cell_unknown(void) {
    return (oq_cell){oq_sdim_unknown(), 1, 0};
}

oq_cell oq_cell_add(oq_rctx *c, oq_cell a, oq_cell b);
oq_cell oq_cell_sub(oq_rctx *c, oq_cell a, oq_cell b);
oq_cell oq_cell_mul(oq_rctx *c, oq_cell a, oq_cell b);
/* Of integers towards zero, of floats exact: the output's type decides. */
oq_cell oq_cell_div(oq_rctx *c, oq_cell a, oq_cell b);
oq_cell oq_cell_mod(oq_rctx *c, oq_cell a, oq_cell b);
oq_cell oq_cell_pow(oq_rctx *c, oq_cell a, oq_cell b);
oq_cell oq_cell_min(oq_rctx *c, oq_cell a, oq_cell b);
oq_cell oq_cell_max(oq_rctx *c, oq_cell a, oq_cell b);
oq_cell oq_cell_equal(oq_rctx *c, oq_cell a, oq_cell b);
oq_cell oq_cell_less(oq_rctx *c, oq_cell a, oq_cell b);
oq_cell oq_cell_greater(oq_rctx *c, oq_cell a, oq_cell b);
oq_cell oq_cell_less_equal(oq_rctx *c, oq_cell a, oq_cell b);
oq_cell oq_cell_greater_equal(oq_rctx *c, oq_cell a, oq_cell b);
oq_cell oq_cell_and(oq_rctx *c, oq_cell a, oq_cell b);
oq_cell oq_cell_or(oq_rctx *c, oq_cell a, oq_cell b);
oq_cell oq_cell_xor(oq_rctx *c, oq_cell a, oq_cell b);
/* b is not used by these. */
oq_cell oq_cell_neg(oq_rctx *c, oq_cell a, oq_cell b);
oq_cell oq_cell_abs(oq_rctx *c, oq_cell a, oq_cell b);
oq_cell oq_cell_sign(oq_rctx *c, oq_cell a, oq_cell b);
oq_cell oq_cell_not(oq_rctx *c, oq_cell a, oq_cell b);
oq_cell oq_cell_floor(oq_rctx *c, oq_cell a, oq_cell b);
oq_cell oq_cell_ceil(oq_rctx *c, oq_cell a, oq_cell b);
oq_cell oq_cell_round(oq_rctx *c, oq_cell a, oq_cell b);
oq_cell oq_cell_sqrt(oq_rctx *c, oq_cell a, oq_cell b);
oq_cell oq_cell_reciprocal(oq_rctx *c, oq_cell a, oq_cell b);
/* Conversion to the element type of output 0. */
oq_cell oq_cell_cast(oq_rctx *c, oq_cell a, oq_cell b);
