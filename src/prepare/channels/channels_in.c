/*
 * channels_in.c — the channels of a product's input made alike.
 *
 * With x' = x / s and W' = W * s the product is the same. x' is quantized with one step d, which is
 * a step of d * s[c] in channel c of x, and the rows of W' with steps that follow from their
 * largest element. The noise of both is
 *
 *     sum over c of (d s[c])^2 |W[:, c]|^2
 *     + sum over o of step(W'[o])^2 * sum over c of E[x[c]^2] / s[c]^2
 *
 * times a constant. s is taken from two families: m[c]^a, where m is the step that the channel
 * needs, and SmoothQuant's max|x|^a / max|W|^(1-a); a in steps of 1/10. The best of all is taken,
 * if it is better than no scales.
 */
#include "prepare/channels/channels_parts.h"

/* The part of the noise that scales may leave to be worth folding into constants that are there. */
#define WORTH_FOLDING 0.9
/* The least scale, by itself and as a part of the largest, and the least divisor in a scale. */
#define MIN_SCALE       1e-12
#define MIN_SCALE_SHARE 1e-4
#define MIN_DIVISOR     1e-5
/* Exponents that are tried in each of the two families: tenths. */
#define EXPONENTS 10

/* The products that read one tensor, and what is known of its channels. */
typedef struct input {
    oq_channel_stats *stats;
    OQ_VEC(oq_channel_product *) readers;
    uint64_t n;
    double *low, *high; /* of each channel */
    double *power;      /* E[x^2] */
    double *need;       /* the step that the channel needs */
    double *weight;     /* largest |W| that meets it */
    double *square;     /* sum of W^2 */
    double *scale;      /* s */
} input;

static bool make_input(oq_arena *a, oq_channel_stats *stats, input *in) {
    double **const all[] = {&in->low,    &in->high,   &in->power, &in->need,
                            &in->weight, &in->square, &in->scale};
    *in = (input){.stats = stats, .n = stats->n};
    for (size_t i = 0; i < OQ_COUNT(all); i++)
        if ((*all[i] = OQ_NEW_ARRAY(a, double, stats->n + 1)) == NULL)
            return false;
    for (uint64_t c = 0; c < in->n; c++) {
        in->low[c] = fmin((double)stats->low[c], 0);
        in->high[c] = fmax((double)stats->high[c], 0);
        in->power[c] = stats->count > 0 ? stats->squares[c] / (double)stats->count : 0;
    }
    return true;
}

/* ---- weights ---- */

/* Where element i of a weight lies. */
typedef struct place {
    uint64_t in, out;
} place;

static place place_of(const oq_channel_product *p, uint64_t i) {
    uint64_t inner = 1;
    for (size_t k = 2; k < p->weight->dims.n; k++)
        inner *= (uint64_t)p->weight->dims.v[k];
    const uint64_t second = (uint64_t)p->weight->dims.v[1];
    const uint64_t a = i / inner / second, b = i / inner % second;
    if (p->product != OQ_CONV)
        return p->in_axis == 0 ? (place){a, b} : (place){b, a};
    return (place){a / (p->n_out / p->group) * second + b, a};
}

static double taps_of(const oq_channel_product *p) {
    double taps = 1;
    for (size_t k = 2; k < p->weight->dims.n; k++)
        taps *= (double)p->weight->dims.v[k];
    return taps;
}

static onq_code read_weights(oq_channel_state *s, input *in, onq_error *err) {
    for (size_t r = 0; r < in->readers.n; r++) {
        oq_channel_product *p = in->readers.v[r];
        const uint64_t width = in->n / p->group;
        OQ_TRY(oq_channel_values(s, oq_channel_weight(s, p->node), &p->values, &p->n_values, err));
        if (s->c->find != NULL) /* which sees the values themselves */
            continue;
        p->most = OQ_NEW_ARRAY(&s->once, float, p->n_values + 1);
        OQ_TRY_ALLOC(p->most != NULL, err);
        for (uint64_t i = 0; i < p->n_values; i++) {
            const place at = place_of(p, i);
            const float v = fabsf(p->values[i]);
            float *most = &p->most[at.out * width + at.in % width];
            *most = fmaxf(*most, v);
            in->weight[at.in] = fmax(in->weight[at.in], (double)v);
            in->square[at.in] += (double)v * (double)v;
        }
    }
    return ONQ_OK;
}

/* ---- the noise that is to be expected ---- */

static onq_code weight_noise(oq_channel_state *s, const input *in, const oq_channel_product *p,
                             double *out, onq_error *err) {
    const uint64_t width = in->n / p->group, rows = p->n_out / p->group;
    double *most = OQ_NEW_ARRAY(&s->once, double, p->n_out + 1);
    double largest = 0, sum = 0;
    OQ_TRY_ALLOC(most != NULL, err);
    for (uint64_t o = 0; o < p->n_out; o++) {
        const double *scale = &in->scale[o / rows * width];
        for (uint64_t c = 0; c < width; c++) {
            const double v = (double)p->most[o * width + c] * scale[c];
            most[o] = v > most[o] ? v : most[o];
        }
        largest = fmax(largest, most[o]);
    }
    for (uint64_t g = 0; g < p->group; g++) {
        double power = 0;
        for (uint64_t c = g * width; c < (g + 1) * width; c++)
            power += in->power[c] / (in->scale[c] * in->scale[c]);
        for (uint64_t o = g * rows; o < (g + 1) * rows; o++) {
            const double step = (s->c->per_channel ? most[o] : largest) / 127;
            sum += step * step * power;
        }
    }
    *out += sum * taps_of(p);
    return ONQ_OK;
}

static onq_code noise_of(oq_channel_state *s, const input *in, double *out, onq_error *err) {
    double low = 0, high = 0;
    for (uint64_t c = 0; c < in->n; c++) {
        low = fmin(low, in->low[c] / in->scale[c]);
        high = fmax(high, in->high[c] / in->scale[c]);
    }
    const double step = (high - low) / 255;
    *out = 0;
    for (uint64_t c = 0; c < in->n; c++)
        *out += step * step * in->scale[c] * in->scale[c] * in->square[c];
    for (size_t r = 0; r < in->readers.n; r++)
        OQ_TRY(weight_noise(s, in, in->readers.v[r], out, err));
    return ONQ_OK;
}

/* Family 0 or 1 of the header, or all ones (a = 0 of family 0). */
static void fill_scales(input *in, int family, double a) {
    for (uint64_t c = 0; c < in->n; c++) {
        const double most = fmax(in->high[c], -in->low[c]);
        in->scale[c] = family == 0 ? pow(in->need[c], a)
                       : most > 0 && in->weight[c] > 0
                           ? pow(most, a) / fmax(pow(in->weight[c], 1 - a), MIN_DIVISOR)
                           : 1.0;
        if (!(in->scale[c] >= MIN_SCALE) || !isfinite(in->scale[c]))
            in->scale[c] = MIN_SCALE;
    }
    if (family != 0)
        oq_channel_floor(in->scale, in->n, MIN_SCALE_SHARE);
}

/* SmoothQuant's. A channel that is always zero has nothing to move. */
static void smooth_scales(input *in, double alpha) {
    for (uint64_t c = 0; c < in->n; c++) {
        const double most = (double)oq_channel_most(in->stats, c);
        in->scale[c] = 1;
        if (most > 0 && in->weight[c] > 0)
            in->scale[c] = fmax(pow(most, alpha) / fmax(pow(in->weight[c], 1 - alpha), MIN_DIVISOR),
                                MIN_DIVISOR);
    }
}

/* The best scales, and the part of the noise that they leave. */
static onq_code find_scales(oq_channel_state *s, input *in, double *left, onq_error *err) {
    double none, best, noise;
    int family = 0;
    double a = 0;
    const int zero = oq_channel_zero(in->low, in->high, in->square, in->n);
    for (uint64_t c = 0; c < in->n; c++)
        in->need[c] = oq_channel_step(in->low[c], in->high[c], zero);
    oq_channel_floor(in->need, in->n, OQ_CHANNEL_FLOOR_IN);
    fill_scales(in, 0, 0);
    OQ_TRY(noise_of(s, in, &none, err));
    best = none;
    for (int k = 1; k <= 2 * EXPONENTS; k++) {
        const int f = k > EXPONENTS;
        const double power = (f == 0 ? k : k - EXPONENTS) / (double)EXPONENTS;
        fill_scales(in, f, power);
        OQ_TRY(noise_of(s, in, &noise, err));
        if (noise < best) {
            best = noise;
            family = f;
            a = power;
        }
    }
    *left = none > 0 ? best / none : 1;
    fill_scales(in, family, a);
    return ONQ_OK;
}

/* Those of a method of the caller's. */
static onq_code ask_for_scales(oq_channel_state *s, input *in, bool *worth, onq_error *err) {
    oq_channel_reader *readers = OQ_NEW_ARRAY(&s->once, oq_channel_reader, in->readers.n);
    OQ_TRY_ALLOC(readers != NULL, err);
    for (size_t r = 0; r < in->readers.n; r++) {
        const oq_channel_product *p = in->readers.v[r];
        assert(p->product == OQ_GEMM || p->product == OQ_MATMUL);
        readers[r] = (oq_channel_reader){p->node, p->values, p->n_out, p->in_axis == 1};
    }
    const oq_channel_input view = {in->n, in->power, in->stats->count, readers, in->readers.n};
    return s->c->find(s->c->find_ctx, &view, in->scale, worth, err);
}

/* ---- the edit ---- */

/* The division as a Mul that the readers read instead. */
static onq_code divide(oq_channel_state *s, const input *in, const float *factor, onq_error *err) {
    const oq_str x = in->stats->name;
    const oq_str out = oq_fresh_tensor(&s->names, x, "_channels");
    int64_t dims[OQ_CHANNEL_AXES] = {(int64_t)in->n, 1, 1, 1, 1, 1, 1, 1};
    const size_t rank = in->stats->is_image ? in->readers.v[0]->weight->dims.n - 1 : 1;
    oq_str name;
    OQ_TRY(oq_channel_constant(s, x, "_channel_factor", factor, dims, rank, &name, err));
    if (out.p == NULL || oq_channel_node(s, "Mul", x, s->c->smooth ? "_smooth_mul" : "_channels",
                                         (oq_str[]){x, name}, 2, out) == NULL)
        return oq_fail_nomem(err);
    for (size_t r = 0; r < in->readers.n; r++)
        in->readers.v[r]->node->input.v[0] = out;
    return oq_channel_moved(s, out, in->stats, factor, err);
}

static onq_code multiply_weights(oq_channel_state *s, const input *in, onq_error *err) {
    for (size_t r = 0; r < in->readers.n; r++) {
        oq_channel_product *p = in->readers.v[r];
        oq_str name;
        for (uint64_t i = 0; i < p->n_values; i++)
            p->values[i] = (float)((double)p->values[i] * in->scale[place_of(p, i).in]);
        OQ_TRY(oq_channel_constant(s, p->node->input.v[1], "_channels", p->values,
                                   p->weight->dims.v, p->weight->dims.n, &name, err));
        p->node->input.v[1] = name;
    }
    return ONQ_OK;
}

static onq_code scale_input(oq_channel_state *s, input *in, onq_error *err) {
    float *factor = OQ_NEW_ARRAY(&s->once, float, in->n + 1);
    bool folded = false, worth = true;
    double left = 0;
    OQ_TRY_ALLOC(factor != NULL, err);
    OQ_TRY(read_weights(s, in, err));
    if (s->c->find != NULL)
        OQ_TRY(ask_for_scales(s, in, &worth, err));
    else if (s->c->smooth)
        smooth_scales(in, s->c->alpha);
    else
        OQ_TRY(find_scales(s, in, &left, err));
    if (!worth || left > WORTH_FOLDING)
        return ONQ_OK;
    for (uint64_t c = 0; c < in->n; c++) {
        factor[c] = (float)(1 / in->scale[c]);
        if (!isfinite(factor[c]) || !isfinite((float)in->scale[c]))
            return ONQ_OK;
    }
    const oq_channel_factor f = {.name = in->stats->name,
                                 .v = factor,
                                 .n = in->n,
                                 .is_image = in->stats->is_image,
                                 .rank = in->readers.v[0]->weight->dims.n,
                                 .readers = in->readers.n};
    if (!s->c->unfolded)
        OQ_TRY(oq_channel_fold(s, &f, &folded, err));
    if (!folded && left > OQ_WORTH_A_NODE)
        return ONQ_OK;
    if (!folded)
        OQ_TRY(divide(s, in, factor, err));
    OQ_TRY(multiply_weights(s, in, err));
    s->c->n_in += in->readers.n;
    s->c->n_folded += folded ? in->readers.n : 0;
    s->c->n_tensors++;
    s->c->n_tensors_folded += folded;
    return ONQ_OK;
}

onq_code oq_channel_inputs(oq_channel_state *s, onq_error *err) {
    for (size_t i = 0; i < s->stats.n; i++) {
        input in;
        if (s->stats.v[i]->skip || s->stats.v[i]->count == 0)
            continue;
        OQ_TRY_ALLOC(make_input(&s->once, s->stats.v[i], &in), err);
        for (size_t k = 0; k < s->products.n; k++) {
            oq_channel_product *p = &s->products.v[k];
            if (p->choice->in && p->in == s->stats.v[i] && !OQ_PUSH(&s->once, &in.readers, p))
                return oq_fail_nomem(err);
        }
        if (in.readers.n > 0)
            OQ_TRY(scale_input(s, &in, err));
        oq_channel_edited(s);
    }
    return ONQ_OK;
}
