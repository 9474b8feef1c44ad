/*
 * image_resize.c — resampling that equals Pillow's to the last bit (Image.resize with its default
 * filter).
 *
 * For each output pixel the kernel's weights over the input pixels under it are computed in double,
 * made to sum to one, and rounded to 22-bit fixed point. One axis is resampled into 8 bits, then
 * the other. Bit equality with Pillow 13.0.0 is tested (tests/parity/test_sources.py).
 */
#include "samples/files/image.h"

#define WEIGHT_BITS 22

/* Weights of one axis: output i takes count[i] inputs from first[i], times weight[i * width
 * ...]. */
typedef struct kernel {
    uint32_t *first, *count;
    int32_t *weight;
    size_t width;
} kernel;

/* Keys' cubic with a = -0.5. */
static double bicubic(double x) {
    x = fabs(x);
    if (x < 1.0)
        return ((-0.5 + 2.0) * x - (-0.5 + 3.0)) * x * x + 1;
    if (x < 2.0)
        return (((x - 5) * x + 8) * x - 4) * -0.5;
    return 0.0;
}

static int32_t fixed_point(double w) {
    return (int32_t)(w * (1 << WEIGHT_BITS) + (w < 0 ? -0.5 : 0.5));
}

static onq_code make_kernel(oq_arena *a, uint32_t in, uint32_t out, kernel *k, onq_error *err) {
    assert(in > 0 && out > 0);
    const double scale = (double)in / out;
    const double wide = scale < 1.0 ? 1.0 : scale;
    const double support = 2.0 * wide;
    const double shrink = 1.0 / wide;
    k->width = (size_t)ceil(support) * 2 + 1;
    k->first = OQ_NEW_ARRAY(a, uint32_t, out);
    k->count = OQ_NEW_ARRAY(a, uint32_t, out);
    k->weight = oq_arena_array(a, out, k->width * sizeof *k->weight);
    double *w = OQ_NEW_ARRAY(a, double, k->width);
    OQ_TRY_ALLOC(k->first != NULL && k->count != NULL && k->weight != NULL && w != NULL, err);
    for (uint32_t i = 0; i < out; i++) {
        const double center = (i + 0.5) * scale;
        const double low = center - support + 0.5, high = center + support + 0.5;
        const uint32_t from = low < 0 ? 0 : (uint32_t)low;
        const uint32_t to = high > in ? in : (uint32_t)high;
        double sum = 0;
        for (uint32_t x = from; x < to; x++) {
            w[x - from] = bicubic((x - center + 0.5) * shrink);
            sum += w[x - from];
        }
        for (uint32_t x = 0; x < to - from; x++)
            k->weight[i * k->width + x] = fixed_point(sum != 0.0 ? w[x] / sum : w[x]);
        assert(from < to && to <= in && to - from <= k->width);
        k->first[i] = from;
        k->count[i] = to - from;
    }
    return ONQ_OK;
}

static uint8_t clip(int32_t v) {
    v >>= WEIGHT_BITS;
    return (uint8_t)(v < 0 ? 0 : v > 255 ? 255 : v);
}

/* One row; `c` is a constant where it is called, so that the loops over channels unroll. */
static inline void resize_row(const uint8_t *row, const kernel *k, uint32_t width, unsigned c,
                              uint8_t *q) {
    for (uint32_t x = 0; x < width; x++) {
        const int32_t *w = k->weight + x * k->width;
        const uint8_t *p = row + (size_t)k->first[x] * c;
        int32_t sum[4] = {1 << (WEIGHT_BITS - 1), 1 << (WEIGHT_BITS - 1), 1 << (WEIGHT_BITS - 1),
                          1 << (WEIGHT_BITS - 1)};
        for (uint32_t i = 0; i < k->count[x]; i++, p += c)
            for (unsigned ch = 0; ch < c; ch++)
                sum[ch] += p[ch] * w[i];
        for (unsigned ch = 0; ch < c; ch++)
            *q++ = clip(sum[ch]);
    }
}

static void resize_rows(const oq_image *in, const kernel *k, oq_image *out) {
    assert(in->height == out->height && in->mode == out->mode);
    const unsigned c = oq_image_channels(in);
    for (uint32_t y = 0; y < in->height; y++) {
        const uint8_t *row = in->p + (size_t)y * in->width * c;
        uint8_t *q = out->p + (size_t)y * out->width * c;
        if (c == 3)
            resize_row(row, k, out->width, 3, q);
        else if (c == 1)
            resize_row(row, k, out->width, 1, q);
        else if (c == 4)
            resize_row(row, k, out->width, 4, q);
        else
            resize_row(row, k, out->width, 2, q);
    }
}

static onq_code resize_columns(oq_arena *a, const oq_image *in, const kernel *k, oq_image *out,
                               onq_error *err) {
    const size_t row = (size_t)in->width * oq_image_channels(in);
    int32_t *sum = OQ_NEW_ARRAY(a, int32_t, row);
    OQ_TRY_ALLOC(sum != NULL, err);
    for (uint32_t y = 0; y < out->height; y++) {
        for (size_t x = 0; x < row; x++)
            sum[x] = 1 << (WEIGHT_BITS - 1);
        for (uint32_t i = 0; i < k->count[y]; i++) {
            const int32_t w = k->weight[y * k->width + i];
            const uint8_t *p = in->p + (size_t)(k->first[y] + i) * row;
            for (size_t x = 0; x < row; x++)
                sum[x] += p[x] * w;
        }
        for (size_t x = 0; x < row; x++)
            out->p[y * row + x] = clip(sum[x]);
    }
    return ONQ_OK;
}

static onq_code new_image(oq_arena *a, const oq_image *like, uint32_t width, uint32_t height,
                          oq_image *out, onq_error *err) {
    *out = *like;
    out->width = width;
    out->height = height;
    out->p = oq_arena_array(a, (size_t)width * height, oq_image_channels(like));
    return out->p != NULL ? ONQ_OK : oq_fail_nomem(err);
}

static onq_code resize_width(oq_arena *a, const oq_image *in, uint32_t width, oq_image *out,
                             onq_error *err) {
    kernel k = {0};
    *out = *in;
    if (in->width == width)
        return ONQ_OK;
    OQ_TRY(make_kernel(a, in->width, width, &k, err));
    OQ_TRY(new_image(a, in, width, in->height, out, err));
    resize_rows(in, &k, out);
    return ONQ_OK;
}

static onq_code resize_height(oq_arena *a, const oq_image *in, uint32_t height, oq_image *out,
                              onq_error *err) {
    kernel k = {0};
    *out = *in;
    if (in->height == height)
        return ONQ_OK;
    OQ_TRY(make_kernel(a, in->height, height, &k, err));
    OQ_TRY(new_image(a, in, in->width, height, out, err));
    return resize_columns(a, in, &k, out, err);
}

/* Which axis goes first decides the last bit, because there are 8 bits between. Pillow 13 begins
 * with the columns when they lose more than twice the pixels that the rows lose (found by trying;
 * until version 12 it always began with the rows). */
static onq_code resize_bicubic(oq_arena *a, const oq_image *in, oq_image *out, onq_error *err) {
    const uint32_t width = out->width, height = out->height;
    const int64_t lost_x = (int64_t)in->width - width, lost_y = (int64_t)in->height - height;
    oq_image middle;
    if (lost_y > 0 && lost_y > 2 * lost_x) {
        OQ_TRY(resize_height(a, in, height, &middle, err));
        return resize_width(a, &middle, width, out, err);
    }
    OQ_TRY(resize_width(a, in, width, &middle, err));
    return resize_height(a, &middle, height, out, err);
}

/* Each output pixel is the input pixel under its middle; the place is summed up, as Pillow does. */
static onq_code resize_nearest(oq_arena *a, const oq_image *in, oq_image *out, onq_error *err) {
    const unsigned c = oq_image_channels(in);
    uint32_t *from = OQ_NEW_ARRAY(a, uint32_t, out->width);
    OQ_TRY_ALLOC(from != NULL, err);
    const double step_x = (double)in->width / out->width, step_y = (double)in->height / out->height;
    double at = step_x * 0.5;
    for (uint32_t x = 0; x < out->width; x++, at += step_x)
        from[x] = at < in->width ? (uint32_t)at : in->width - 1;
    OQ_TRY(new_image(a, in, out->width, out->height, out, err));
    at = step_y * 0.5;
    for (uint32_t y = 0; y < out->height; y++, at += step_y) {
        const uint32_t sy = at < in->height ? (uint32_t)at : in->height - 1;
        for (uint32_t x = 0; x < out->width; x++)
            memcpy(out->p + ((size_t)y * out->width + x) * c,
                   in->p + ((size_t)sy * in->width + from[x]) * c, c);
    }
    return ONQ_OK;
}

/* ---- alpha: colours count as much as they are seen ---- */

static onq_code premultiply(oq_arena *a, const oq_image *in, oq_image *out, onq_error *err) {
    OQ_TRY(new_image(a, in, in->width, in->height, out, err));
    const unsigned c = oq_image_channels(in);
    const size_t n = (size_t)in->width * in->height;
    for (size_t i = 0; i < n; i++) {
        const unsigned alpha = in->p[i * c + c - 1];
        for (unsigned k = 0; k + 1 < c; k++) {
            const unsigned t = in->p[i * c + k] * alpha + 128;
            out->p[i * c + k] = (uint8_t)(((t >> 8) + t) >> 8);
        }
        out->p[i * c + c - 1] = (uint8_t)alpha;
    }
    return ONQ_OK;
}

static void unmultiply(oq_image *im) {
    const unsigned c = oq_image_channels(im);
    const size_t n = (size_t)im->width * im->height;
    for (size_t i = 0; i < n; i++) {
        const unsigned alpha = im->p[i * c + c - 1];
        for (unsigned k = 0; alpha != 0 && alpha != 255 && k + 1 < c; k++) {
            const unsigned v = 255u * im->p[i * c + k] / alpha;
            im->p[i * c + k] = (uint8_t)(v > 255 ? 255 : v);
        }
    }
}

onq_code oq_image_scale(oq_arena *a, const oq_image *in, uint32_t width, uint32_t height,
                        oq_image *out, onq_error *err) {
    *out = *in;
    if (width == in->width && height == in->height)
        return ONQ_OK;
    out->width = width;
    out->height = height;
    if (in->nearest)
        return resize_nearest(a, in, out, err);
    if (in->mode != OQ_MODE_LA && in->mode != OQ_MODE_RGBA)
        return resize_bicubic(a, in, out, err);
    oq_image multiplied;
    OQ_TRY(premultiply(a, in, &multiplied, err));
    OQ_TRY(resize_bicubic(a, &multiplied, out, err));
    unmultiply(out);
    return ONQ_OK;
}
