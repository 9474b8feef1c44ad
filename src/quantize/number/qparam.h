/*
 * qparam.h — scale and zero point from a range of real numbers.
 *
 * Bit-exact with the reference (quant_utils.compute_scale_zp and its sisters), which computes with
 * numpy: the range has an element type (float32 or float16) and so has the scale; the division that
 * makes the scale is in float64 and rounded once. A float16 scale is kept here as the float32 of
 * the same value.
 *
 * Everything here is plain arithmetic; weights as tensors are in qweight.h.
 */
#pragma once

#include "base/err.h"
#include "quantize/number/qtype.h"

typedef struct oq_qparam {
    float scale; /* of the spec's real type */
    int32_t zero_point;
} oq_qparam;

/* How a range becomes parameters. */
typedef struct oq_qspec {
    oq_dtype type; /* quantized type */
    oq_dtype real; /* OQ_FLOAT or OQ_FLOAT16: type of the range and of the scale */
    bool symmetric;
    bool reduced;       /* one bit less (reduce_range) */
    bool has_min_range; /* MinimumRealRange given */
    double min_range;
} oq_qspec;

/* x rounded to the real type, as float. */
float oq_real_round(oq_dtype real, double x);
/* a + b, a * b in the real type, as numpy does for two scalars of it. */
float oq_real_add(oq_dtype real, float a, float b);
float oq_real_mul(oq_dtype real, float a, float b);

/* compute_scale_zp: rmin and rmax are of spec->real; the range is widened to hold 0. A range whose
 * scale would be below the smallest normal number gives scale 1, zero point 0. ONQ_E_INVALID for
 * NaN and for ranges whose scale is not finite, which the reference asserts on or writes out. */
onq_code oq_qparam_compute(const oq_qspec *spec, float rmin, float rmax, oq_qparam *out,
                           onq_error *err);

/* The same for any integers qmin <= 0 <= qmax and for ranges in double too, as the reference has it
 * in every corner. The range holds no NaN; min_range may be NULL. */
void oq_qparam_plain(oq_dtype real, double rmin, double rmax, double qmin, double qmax,
                     bool symmetric, const double *min_range, double *scale, double *zero_point);

/* snap_zero_point_to_uint8 (ActivationRestrictedAsymmetric): the zero point is the lowest or the
 * middle value. */
void oq_qparam_snap(const oq_qspec *spec, float rmin, float rmax, oq_qparam *out);

/* compute_scale_zp_float8: from the standard deviation. */
onq_code oq_qparam_float8(oq_dtype real, float std, oq_qparam *out, onq_error *err);

/* One block of compute_scale_zp_blocked, whose rounding differs from compute_scale_zp's: the
 * difference is taken in the real type and the zero point is computed from the rounded scale. */
onq_code oq_qparam_block(const oq_qspec *spec, float rmin, float rmax, oq_qparam *out,
                         onq_error *err);
