/*
 * means.c — see means.h. Sums are double and in the order of the values.
 */
#include "quantize/refine/means.h"

onq_code oq_means_init(oq_means *m, oq_arena *a, uint64_t channels, size_t n_samples,
                       onq_error *err) {
    uint64_t n;
    *m = (oq_means){.channels = channels};
    OQ_TRY_ALLOC(oq_mul(channels, n_samples, &n), err);
    m->mean = OQ_NEW_ARRAY(a, float, n + 1);
    m->count = OQ_NEW_ARRAY(a, uint64_t, n_samples + 1);
    return m->mean != NULL && m->count != NULL ? ONQ_OK : oq_fail_nomem(err);
}

/* Sums of `inner` values in a row. */
static double sum_of(const float *x, uint64_t inner) {
    double s[4] = {0};
    uint64_t i = 0;
    for (; i + 4 <= inner; i += 4)
        for (int k = 0; k < 4; k++)
            s[k] += (double)x[i + (uint64_t)k];
    for (; i < inner; i++)
        s[0] += (double)x[i];
    return (s[0] + s[1]) + (s[2] + s[3]);
}

onq_code oq_means_add(oq_means *m, const oq_layer *l, size_t sample, const oq_datum *d,
                      oq_arena *scratch, onq_error *err) {
    const size_t axis = l->last_axis ? d->rank - 1 : 1;
    m->count[sample] = 0;
    if (d->kind != OQ_DATUM_TENSOR || (d->dtype != OQ_FLOAT && d->dtype != OQ_FLOAT16) ||
        d->rank == 0 || axis >= d->rank || (uint64_t)d->dims[axis] != m->channels || d->count == 0)
        return ONQ_OK;
    const float *x = oq_datum_floats(d, scratch);
    double *sums = OQ_NEW_ARRAY(scratch, double, m->channels + 1);
    OQ_TRY_ALLOC(x != NULL && sums != NULL, err);
    uint64_t inner = 1;
    for (size_t i = axis + 1; i < d->rank; i++)
        inner *= (uint64_t)d->dims[i];
    const uint64_t per_channel = d->count / m->channels, outer = per_channel / inner;
    for (uint64_t o = 0; o < outer; o++)
        for (uint64_t c = 0; c < m->channels; c++, x += inner)
            sums[c] += inner == 1 ? (double)*x : sum_of(x, inner);
    for (uint64_t c = 0; c < m->channels; c++)
        m->mean[sample * m->channels + c] = (float)(sums[c] / (double)per_channel);
    m->count[sample] = per_channel;
    return ONQ_OK;
}

bool oq_means_differ(const oq_means *flt, const oq_means *quantized, size_t n, double *delta) {
    assert(flt->channels == quantized->channels);
    double total = 0;
    for (uint64_t c = 0; c < flt->channels; c++)
        delta[c] = 0;
    for (size_t s = 0; s < n; s++) {
        if (flt->count[s] == 0 || quantized->count[s] != flt->count[s])
            continue;
        const double weight = (double)flt->count[s];
        total += weight;
        for (uint64_t c = 0; c < flt->channels; c++)
            delta[c] += weight * ((double)flt->mean[s * flt->channels + c] -
                                  (double)quantized->mean[s * quantized->channels + c]);
    }
    for (uint64_t c = 0; c < flt->channels && total > 0; c++) {
        delta[c] /= total;
        if (!isfinite(delta[c]))
            delta[c] = 0; /* the runtime's NaN is no error of rounding */
    }
    return total > 0;
}
