/*
 * bias.c — the arithmetic of int32 biases.
 */
#include "quantize/number/bias.h"

#include "onnx/tensor.h"

#define EPSILON     1.0001
#define INT32_RANGE 4294967294.0 /* 2^31 - 1 - (-2^31 + 1) */

bool oq_bias_fits(const int64_t *dims, size_t rank, uint64_t n_scales) {
    return n_scales == 1 ||
           (rank > 0 && dims[rank - 1] >= 0 && (uint64_t)dims[rank - 1] == n_scales);
}

static oq_dtype wider(oq_dtype a, oq_dtype b) {
    return a == OQ_FLOAT16 && b == OQ_FLOAT16 ? OQ_FLOAT16 : OQ_FLOAT;
}

void oq_bias_scales(oq_reals input, oq_reals weight, float *out, oq_dtype *real) {
    assert(input.n == 1 || input.n == weight.n);
    *real = wider(input.real, weight.real);
    for (uint64_t i = 0; i < weight.n; i++)
        out[i] = oq_real_mul(*real, input.v[0], weight.v[i]);
}

uint64_t oq_bias_quantize(oq_reals bias, oq_reals scales, int32_t *out, bool *nan) {
    uint64_t clipped = 0;
    *nan = false;
    for (uint64_t i = 0; i < bias.n; i++) {
        const double x = rint((double)bias.v[i] / (double)scales.v[i % scales.n]);
        if (!isfinite(bias.v[i]) || x != x) {
            *nan = true;
            out[i] = 0;
        } else if (x < (double)INT32_MIN) {
            out[i] = INT32_MIN;
            clipped++;
        } else if (x > (double)INT32_MAX) {
            out[i] = INT32_MAX;
            clipped++;
        } else {
            out[i] = (int32_t)x;
        }
    }
    return clipped;
}

/* Raises a weight scale so that the bias scale reaches `smallest`; false when it does already. */
static bool raise_scale(double smallest, float input, float *weight, oq_dtype real) {
    const double candidate = (double)input * (double)*weight;
    if (!(candidate < smallest) || !(candidate > 0.0))
        return false;
    const float raised = oq_real_round(real, (double)*weight * (smallest / candidate));
    if (!isfinite(raised))
        return false; /* a NaN in a bias: refused where it is quantized */
    *weight = raised;
    return true;
}

/* Largest magnitude of the bias of channel c, in its own type. */
static float largest(oq_reals bias, uint64_t c, uint64_t n_channels) {
    float most = 0.0f;
    for (uint64_t i = c; i < bias.n; i += n_channels) {
        const float x = fabsf(bias.v[i]);
        if (x > most)
            most = x;
    }
    return most;
}

bool oq_bias_exceeds(oq_model *m, oq_tensor *bias, double scale) {
    float *v = NULL;
    size_t n = 0;
    OQ_SCRATCH(scratch, &m->env->alloc);
    const bool read = oq_tensor_floats(m, bias, &scratch, &v, &n, NULL) == ONQ_OK;
    const double most = read ? (double)largest((oq_reals){v, n, OQ_FLOAT}, 0, 1) : 0.0;
    return most > INT32_MAX * scale;
}

void oq_bias_warn_clipped(const onq_env *env, oq_str name) {
    oq_warn(env,
            "bias '%.*s' exceeds the range of int32 and is clipped, because its scale is too small",
            OQ_STR(name));
}

uint64_t oq_bias_adjust(oq_reals bias, oq_reals input, float *weight_scale, uint64_t n_scales,
                        oq_dtype weight_real, bool per_channel) {
    uint64_t raised = 0;
    if (bias.n == 0)
        return 0;
    if (!per_channel) { /* in float64 throughout */
        const double most = (double)largest(bias, 0, 1);
        return raise_scale(EPSILON * (2.0 * most) / INT32_RANGE, input.v[0], weight_scale,
                           weight_real);
    }
    for (uint64_t c = 0; c < n_scales; c++) { /* the product with epsilon in the bias's own type */
        const float twice = oq_real_mul(bias.real, 2.0f, largest(bias, c, n_scales));
        const float more = oq_real_mul(bias.real, oq_real_round(bias.real, EPSILON), twice);
        raised +=
            raise_scale((double)more / INT32_RANGE, input.v[0], &weight_scale[c], weight_real);
    }
    return raised;
}
