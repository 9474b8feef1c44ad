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

onq_code oq_means_add(oq_means *m, bool last_axis, size_t sample, const oq_datum *d,
                      oq_arena *scratch, onq_error *err) {
    const size_t axis = last_axis ? d->rank - 1 : 1;
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

/* ---- memory ---- */

void oq_mean_memory_init(oq_mean_memory *m, const onq_allocator *alloc) {
    *m = (oq_mean_memory){0};
    oq_arena_init(&m->arena, alloc);
}

void oq_mean_memory_release(oq_mean_memory *m) {
    if (m->other != NULL)
        oq_mean_memory_release(m->other);
    oq_arena_release(&m->arena);
    *m = (oq_mean_memory){0};
}

static bool is_about(const oq_mean_memory *m, const oq_str *names, const oq_means *all,
                     size_t n_names) {
    bool same = m->names.n == n_names;
    for (size_t k = 0; same && k < n_names; k++)
        same = oq_str_eq(m->names.v[k], names[k]) && m->channels.v[k] == all[k].channels;
    return same;
}

/* A row is one oq_means of all names: their channels follow each other, and it has a count for each
 * name. */
static void read_row(const oq_means *row, oq_means *all, size_t n_names, size_t sample) {
    const float *from = row->mean;
    for (size_t k = 0; k < n_names; from += all[k++].channels) {
        memcpy(all[k].mean + sample * all[k].channels, from, all[k].channels * sizeof *from);
        all[k].count[sample] = row->count[k];
    }
}

static oq_means *new_row(oq_arena *a, const oq_means *all, size_t n_names, size_t sample) {
    oq_means *row = OQ_NEW(a, oq_means);
    uint64_t channels = 0;
    for (size_t k = 0; k < n_names; k++)
        channels += all[k].channels;
    if (row == NULL)
        return NULL;
    *row = (oq_means){channels, OQ_NEW_ARRAY(a, float, channels + 1),
                      OQ_NEW_ARRAY(a, uint64_t, n_names + 1)};
    if (row->mean == NULL || row->count == NULL)
        return NULL;
    float *to = row->mean;
    for (size_t k = 0; k < n_names; to += all[k++].channels) {
        memcpy(to, all[k].mean + sample * all[k].channels, all[k].channels * sizeof *to);
        row->count[k] = all[k].count[sample];
    }
    return row;
}

bool oq_mean_memory_recall(const oq_mean_memory *m, const oq_str *names, oq_means *all,
                           size_t n_names, const uint64_t *numbers, size_t n) {
    while (m != NULL && !is_about(m, names, all, n_names))
        m = m->other;
    bool seen = m != NULL;
    for (size_t s = 0; seen && s < n; s++)
        seen = numbers[s] < m->seen.n && m->seen.v[numbers[s]] != NULL;
    for (size_t s = 0; seen && s < n; s++)
        read_row(m->seen.v[numbers[s]], all, n_names, s);
    return seen;
}

static onq_code name_all(oq_mean_memory *m, const oq_str *names, const oq_means *all,
                         size_t n_names, onq_error *err) {
    for (size_t k = 0; k < n_names; k++) {
        const oq_str name = oq_str_copy(&m->arena, names[k]);
        if (name.p == NULL || !OQ_PUSH(&m->arena, &m->names, name) ||
            !OQ_PUSH(&m->arena, &m->channels, all[k].channels))
            return oq_fail_nomem(err);
    }
    return ONQ_OK;
}

/* The memory of these names. */
static onq_code settle(oq_mean_memory **m, const oq_str *names, const oq_means *all, size_t n_names,
                       onq_error *err) {
    while (!is_about(*m, names, all, n_names)) {
        if ((*m)->names.n == 0)
            return name_all(*m, names, all, n_names, err);
        if ((*m)->other == NULL) {
            oq_mean_memory *new = OQ_NEW(&(*m)->arena, oq_mean_memory);
            OQ_TRY_ALLOC(new != NULL, err);
            oq_mean_memory_init(new, (*m)->arena.alloc);
            (*m)->other = new;
        }
        *m = (*m)->other;
    }
    return ONQ_OK;
}

onq_code oq_mean_memory_keep(oq_mean_memory *m, const oq_str *names, const oq_means *all,
                             size_t n_names, const uint64_t *numbers, size_t n, uint64_t most,
                             onq_error *err) {
    OQ_TRY(settle(&m, names, all, n_names, err));
    for (size_t s = 0; s < n && m->arena.used <= most; s++) {
        while (m->seen.n <= numbers[s])
            OQ_TRY_ALLOC(OQ_PUSH(&m->arena, &m->seen, NULL), err);
        oq_means **row = &m->seen.v[numbers[s]];
        if (*row == NULL)
            *row = new_row(&m->arena, all, n_names, s);
        OQ_TRY_ALLOC(*row != NULL, err);
    }
    return ONQ_OK;
}
