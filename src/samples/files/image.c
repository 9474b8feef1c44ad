/*
 * image.c — which decoder, orientation, colour conversion. See image.h.
 */
#include "samples/files/image.h"

onq_code oq_image_decode(oq_arena *a, const uint8_t *p, size_t n, uint64_t most_pixels,
                         oq_image *out, onq_error *err) {
    static const uint8_t png[8] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};
    if (n >= 3 && p[0] == 0xff && p[1] == 0xd8 && p[2] == 0xff)
        return oq_image_decode_jpeg(a, p, n, most_pixels, out, err);
    if (n >= sizeof png && memcmp(p, png, sizeof png) == 0)
        return oq_image_decode_png(a, p, n, most_pixels, out, err);
    return oq_fail(err, ONQ_E_MALFORMED, n == 0 ? "the file is empty" : "neither JPEG nor PNG");
}

/* ---- EXIF ---- */

static unsigned get16(const uint8_t *p, bool big) {
    return big ? (unsigned)p[0] << 8 | p[1] : (unsigned)p[1] << 8 | p[0];
}

static uint32_t get32(const uint8_t *p, bool big) {
    return big ? (uint32_t)get16(p, true) << 16 | get16(p + 2, true)
               : (uint32_t)get16(p + 2, false) << 16 | get16(p, false);
}

unsigned oq_exif_orientation(const uint8_t *p, size_t n) {
    if (n < 8 || !((p[0] == 'I' && p[1] == 'I') || (p[0] == 'M' && p[1] == 'M')))
        return 1;
    const bool big = p[0] == 'M';
    const uint32_t at = get32(p + 4, big);
    if (get16(p + 2, big) != 42 || at > n - 2 || n < 10)
        return 1;
    const unsigned count = get16(p + at, big);
    for (unsigned i = 0; i < count; i++) {
        const size_t entry = (size_t)at + 2 + 12u * i;
        if (entry > n || n - entry < 12)
            return 1;
        /* Tag 0x0112, type 3 (16 bits), one value. */
        if (get16(p + entry, big) == 0x0112 && get16(p + entry + 2, big) == 3) {
            const unsigned v = get16(p + entry + 8, big);
            return v >= 1 && v <= 8 ? v : 1;
        }
    }
    return 1;
}

onq_code oq_image_orient(oq_arena *a, oq_image *im, unsigned orientation, onq_error *err) {
    assert(orientation >= 1 && orientation <= 8);
    if (orientation <= 1 || orientation > 8)
        return ONQ_OK;
    const unsigned c = oq_image_channels(im);
    const bool turned = orientation >= 5; /* rows become columns */
    const uint32_t w = turned ? im->height : im->width, h = turned ? im->width : im->height;
    uint8_t *out = oq_arena_alloc(a, (size_t)w * h * c);
    OQ_TRY_ALLOC(out != NULL, err);
    /* For each pixel of the result, where it lies in what was stored. */
    const bool flip_x =
        orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
    const bool flip_y =
        orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
    for (uint32_t y = 0; y < h; y++) {
        for (uint32_t x = 0; x < w; x++) {
            uint32_t sx = turned ? y : x, sy = turned ? x : y;
            if (flip_x)
                sx = im->width - 1 - sx;
            if (flip_y)
                sy = im->height - 1 - sy;
            memcpy(out + ((size_t)y * w + x) * c, im->p + ((size_t)sy * im->width + sx) * c, c);
        }
    }
    im->p = out;
    im->width = w;
    im->height = h;
    return ONQ_OK;
}

/* ---- colours ---- */

/* x * y / 255, rounded. */
static unsigned mul255(unsigned x, unsigned y) {
    const unsigned t = x * y + 128;
    return ((t >> 8) + t) >> 8;
}

onq_code oq_image_to_rgb(oq_arena *a, oq_image *im, onq_error *err) {
    if (im->mode == OQ_MODE_RGB)
        return ONQ_OK;
    const size_t n = (size_t)im->width * im->height;
    const unsigned c = oq_image_channels(im);
    uint8_t *out = oq_arena_array(a, n, 3);
    OQ_TRY_ALLOC(out != NULL, err);
    for (size_t i = 0; i < n; i++) {
        const uint8_t *p = im->p + i * c;
        uint8_t *q = out + i * 3;
        for (unsigned k = 0; k < 3; k++) {
            if (im->mode == OQ_MODE_L || im->mode == OQ_MODE_LA) {
                q[k] = p[0];
            } else if (im->mode == OQ_MODE_RGBA) {
                q[k] = p[k];
            } else {
                const unsigned light = 255u - p[3];
                q[k] = (uint8_t)(light - mul255(p[k], light));
            }
        }
    }
    im->p = out;
    im->mode = OQ_MODE_RGB;
    return ONQ_OK;
}

void oq_image_to_gray(oq_image *im) {
    const size_t n = (size_t)im->width * im->height;
    for (size_t i = 0; im->mode == OQ_MODE_RGB && i < n; i++) {
        const uint8_t *p = im->p + 3 * i;
        im->p[i] = (uint8_t)((p[0] * 19595u + p[1] * 38470u + p[2] * 7471u + 0x8000u) >> 16);
    }
    im->mode = OQ_MODE_L;
}
