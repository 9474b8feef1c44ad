/*
 * nb_fit.c — see nb_fit.h.
 */
#include "quantize/nbits_method/nb_fit.h"

#include "quantize/number/qparam.h"

/* The end of a symmetric range that is farther from zero gets the integer 0, which has no opposite:
 * the scale has its sign turned where that is needed, as MLAS does it. */
static void params(const oq_nb_grid *g, double lo, double hi, float *scale, float *zero) {
    const double most = (double)((1u << g->bits) - 1), half = (double)(1u << (g->bits - 1));
    const double exact = g->symmetric ? (hi > -lo ? -hi : -lo) / half : (hi - lo) / most;
    *scale = oq_real_round(g->real, exact);
    *zero = (float)half;
    if (g->symmetric || !(*scale > 0.0f))
        return;
    const double z = rint(-lo / (double)*scale);
    *zero = (float)(z < 0 ? 0 : z > most ? most : z);
}

static double error_of(const oq_nb_grid *g, const double *w, size_t n, size_t stride,
                       const float *power, float scale, float zero) {
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        const double x = w[i * stride];
        const double lost = (oq_nb_round(g, x, scale, zero) - (double)zero) * (double)scale - x;
        sum += (power != NULL ? (double)power[i] : 1) * lost * lost;
    }
    return sum;
}

double oq_nb_fit(const oq_nb_grid *g, const double *w, size_t n, size_t stride, const float *power,
                 float *scale, float *zero) {
    double lo = 0, hi = 0;
    for (size_t i = 0; i < n; i++) {
        lo = fmin(lo, w[i * stride]);
        hi = fmax(hi, w[i * stride]);
    }
    params(g, lo, hi, scale, zero);
    double least = error_of(g, w, n, stride, power, *scale, *zero);
    for (unsigned i = 1; i <= g->steps && least > 0; i++) {
        const double part = 1 - (1 - g->shrink) * i / g->steps;
        float s, z;
        params(g, part * lo, part * hi, &s, &z);
        const double e = error_of(g, w, n, stride, power, s, z);
        if (e < least) {
            least = e;
            *scale = s;
            *zero = z;
        }
    }
    return least;
}
