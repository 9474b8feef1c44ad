/*
 * passes_loops.h — the loops of passes.c, which includes this once for each kind of machine, with
 *
 *     NAME(x)   names of this kind
 *     FOR       what the functions are compiled for
 *     WIDTH     lanes of a register
 *
 * and functions over registers: `least` and `most`, lane by lane, the second where the first is NaN;
 * `reaches`, true if a lane is at least that of the other; `widen` and `narrow`, from and to bytes
 * and words in memory.
 *
 * Where a register has fewer than sixteen lanes, a piece is gone over once for each part of them: it
 * is in the nearest cache, and the sums stay in registers.
 */

#define PASTE_(a, b, c) a##b##c
#define PASTE(a, b, c)  PASTE_(a, b, c)
#define VF              PASTE(vf, WIDTH, )
#define VI              PASTE(vi, WIDTH, )
#define VF_AT           PASTE(vf, WIDTH, _at)
#define ACC             NAME(acc)

/* The integer nearest to x / scale within the limits, as (t, r): r = t - ROUND. A product with
 * 1 / scale is off by a few roundings (doubt_of), so only where it is that near to a half does the
 * quotient itself have to be computed. */
#define QUANTIZE(t, r, x)                                                                          \
    do {                                                                                           \
        const VF c_ = NAME(least)(NAME(most)((x)*inverse, low), high);                             \
        (t) = c_ + ROUND;                                                                          \
        (r) = (t)-ROUND;                                                                           \
        const VF off_ = (VF)((VI)(c_ - (r)) & magnitude);                                          \
        if (OQ_UNLIKELY(NAME(reaches)(off_, doubt))) {                                             \
            (t) = NAME(least)(NAME(most)((x) / scale, low), high) + ROUND;                         \
            (r) = (t)-ROUND;                                                                       \
        }                                                                                          \
    } while (0)

#define STEPS(s)                                                                                   \
    const VI magnitude = INT32_MAX - (VI){0};                                                      \
    const VF low = (s)->lo - (VF){0}, high = (s)->hi - (VF){0}, doubt = doubt_of(s) - (VF){0};     \
    const float scale = (s)->scale, inverse = 1 / scale

/* Sums of some lanes in registers: of x^2, y^2, (x - y)^2 and |x - y|, and the largest |x - y|. */
typedef struct ACC {
    VF xx, yy, ee, ab, top;
} ACC;

/* Adds all but x^2. */
FOR INLINE void NAME(compare)(ACC *a, VF x, VF y) {
    const VF d = x - y, m = (VF)((VI)d & (INT32_MAX - (VI){0}));
    a->yy += y * y;
    a->ee += d * d;
    a->ab += m;
    a->top = NAME(most)(m, a->top);
}

/* Puts them in their places among all lanes, where add_lanes expects them. */
FOR INLINE void NAME(store)(const ACC *a, size_t g, float lanes[5][LANES]) {
    *(VF_AT *)&lanes[0][g] = a->xx;
    *(VF_AT *)&lanes[1][g] = a->yy;
    *(VF_AT *)&lanes[2][g] = a->ee;
    *(VF_AT *)&lanes[3][g] = a->ab;
    *(VF_AT *)&lanes[4][g] = a->top;
}

/* Widens the lanes of `ends`, the least and the greatest. */
FOR static void NAME(span)(const float *x, size_t n, float ends[2][LANES]) {
    for (size_t g = 0; g < LANES; g += WIDTH) {
        VF down = *(const VF_AT *)&ends[0][g], up = *(const VF_AT *)&ends[1][g];
        for (size_t k = g; k < n; k += LANES) {
            const VF v = *(const VF_AT *)(x + k);
            down = NAME(least)(v, down);
            up = NAME(most)(v, up);
        }
        *(VF_AT *)&ends[0][g] = down;
        *(VF_AT *)&ends[1][g] = up;
    }
}

FOR static uint64_t NAME(clipped)(const float *x, size_t n, const oq_steps *s) {
    VI out_of = {0};
    uint64_t count = 0;
    for (size_t k = 0; k < n; k += WIDTH) {
        const VF v = *(const VF_AT *)(x + k);
        out_of -= (v < s->least) + (v > s->most);
    }
    for (size_t k = 0; k < WIDTH; k++)
        count += (uint64_t)out_of[k];
    return count;
}

/* One piece, whole vectors of it. */
FOR static void NAME(float_piece)(const float *x, const void *kept, size_t n, const oq_steps *s,
                                  float ends[2][LANES], oq_pass_float *out) {
    STEPS(s);
    const VI base = (int32_t)s->lo - (VI){0};
    const uint8_t *bytes = oq_steps_bytes(s) == 1 ? kept : NULL;
    const uint16_t *words = bytes == NULL ? kept : NULL;
    float lanes[5][LANES], lost[LANES];
    for (size_t g = 0; g < LANES; g += WIDTH) {
        VF down = *(const VF_AT *)&ends[0][g], up = *(const VF_AT *)&ends[1][g];
        VF le = {0};
        ACC a = {0};
        for (size_t k = g; k < n; k += LANES) {
            const VF v = *(const VF_AT *)(x + k);
            VF t, r;
            down = NAME(least)(v, down);
            up = NAME(most)(v, up);
            QUANTIZE(t, r, v);
            const VF e = v - r * scale;
            a.xx += v * v;
            le += e * e;
            if (kept == NULL)
                continue;
            const VI q =
                bytes != NULL ? NAME(widen_bytes)(bytes + k) : NAME(widen_words)(words + k);
            NAME(compare)(&a, v, __builtin_convertvector(q + base, VF) * scale);
        }
        NAME(store)(&a, g, lanes);
        *(VF_AT *)&lost[g] = le;
        *(VF_AT *)&ends[0][g] = down;
        *(VF_AT *)&ends[1][g] = up;
    }
    out->local.xx += total(lanes[0]);
    out->local.ee += total(lost);
    if (kept != NULL)
        add_lanes(lanes, &out->cross);
}

FOR static void NAME(flt)(const float *x, const void *kept, size_t n, const oq_steps *s,
                          oq_pass_float *out) {
    const size_t whole = n / LANES * LANES;
    float ends[2][LANES];
    begin_ends(ends, out);
    if (s == NULL)
        NAME(span)(x, whole, ends);
    const uint8_t *at = kept;
    for (size_t i = 0, m; s != NULL && i < whole; i += m) {
        m = whole - i < OQ_PASS_PIECE ? whole - i : OQ_PASS_PIECE;
        NAME(float_piece)(x + i, at, m, s, ends, out);
        at += at != NULL ? m * oq_steps_bytes(s) : 0;
        if (is_out(ends, s)) /* once it was, it may be again */
            out->clipped += NAME(clipped)(x + i, m, s);
    }
    end_ends(ends, out);
    float_rest(x, kept, whole, n, s, out);
    out->local.n += n;
    out->cross.n += kept != NULL ? n : 0;
}

FOR static void NAME(quantized)(const float *p, void *keep, size_t n, const oq_steps *s,
                                oq_pass_want want, oq_sums *out) {
    STEPS(s);
    const VI base = ROUND_BITS + (int32_t)s->lo - (VI){0};
    uint8_t *bytes = oq_steps_bytes(s) == 1 ? keep : NULL;
    uint16_t *words = bytes == NULL ? keep : NULL;
    const size_t whole = n / LANES * LANES;
    for (size_t i = 0; i < whole; i += OQ_PASS_PIECE) {
        const size_t to = whole - i < OQ_PASS_PIECE ? whole : i + OQ_PASS_PIECE;
        float lanes[5][LANES];
        for (size_t g = 0; g < LANES; g += WIDTH) {
            ACC a = {0};
            for (size_t k = i + g; k < to; k += LANES) {
                const VF v = *(const VF_AT *)(p + k);
                VF t, r;
                QUANTIZE(t, r, v);
                if (bytes != NULL)
                    NAME(narrow_bytes)(bytes + k, (VI)t - base);
                else if (words != NULL)
                    NAME(narrow_words)(words + k, (VI)t - base);
                const VF y = r * scale, d = v - y;
                a.xx += v * v;
                if (want == OQ_PASS_ALL)
                    NAME(compare)(&a, v, y);
                else
                    a.ee += d * d;
            }
            NAME(store)(&a, g, lanes);
        }
        if (want == OQ_PASS_ALL) {
            add_lanes(lanes, out);
        } else {
            out->xx += total(lanes[0]);
            out->ee += total(lanes[2]);
        }
    }
    quantized_rest(p, keep, whole, n, s, out);
    out->n += n;
}

FOR static void NAME(sums)(const float *x, const float *y, size_t n, oq_sums *out) {
    const size_t whole = n / LANES * LANES;
    for (size_t i = 0; i < whole; i += OQ_PASS_PIECE) {
        const size_t to = whole - i < OQ_PASS_PIECE ? whole : i + OQ_PASS_PIECE;
        float lanes[5][LANES];
        for (size_t g = 0; g < LANES; g += WIDTH) {
            ACC a = {0};
            for (size_t k = i + g; k < to; k += LANES) {
                const VF v = *(const VF_AT *)(x + k), b = *(const VF_AT *)(y + k);
                a.xx += v * v;
                NAME(compare)(&a, v, b);
            }
            NAME(store)(&a, g, lanes);
        }
        add_lanes(lanes, out);
    }
    sums_rest(x + whole, y + whole, n - whole, out);
    out->n += n;
}

static const oq_passes NAME(passes) = {NAME(flt), NAME(quantized), NAME(sums)};

#undef WIDTH
#undef FOR
#undef NAME
#undef PASTE_
#undef PASTE
#undef VF
#undef VI
#undef VF_AT
#undef ACC
#undef QUANTIZE
#undef STEPS
