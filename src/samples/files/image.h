/*
 * image.h — JPEG and PNG files as pixels, and pixels of another size.
 *
 * Pixels are 8 bits a channel, rows from the top, as Pillow's Image.open gives them: 16-bit
 * channels keep their high byte, 1-, 2- and 4-bit grey is spread over 0..255, palettes are expanded
 * (and marked, because Pillow resizes them by nearest pixel), transparency of tRNS chunks is
 * ignored. An EXIF orientation is applied.
 */
#pragma once

#include "base/err.h"
#include "base/str.h"

typedef enum oq_image_mode {
    OQ_MODE_L = 1,  /* grey */
    OQ_MODE_LA = 2, /* grey, alpha */
    OQ_MODE_RGB = 3,
    OQ_MODE_RGBA = 4,
    OQ_MODE_CMYK = 5, /* four channels, 255 full ink */
} oq_image_mode;

typedef struct oq_image {
    oq_image_mode mode;
    uint32_t width, height;
    uint8_t *p;   /* width x height x channels, in the arena */
    bool nearest; /* a palette or bilevel image: resized by nearest pixel */
} oq_image;

/* The most pixels of an image by default (Pillow warns from there on). */
#define OQ_IMAGE_PIXELS 89478485u

static inline unsigned oq_image_channels(const oq_image *im) {
    return im->mode == OQ_MODE_CMYK ? 4 : (unsigned)im->mode;
}

/* Decodes the bytes of a JPEG or PNG file. */
onq_code oq_image_decode(oq_arena *a, const uint8_t *p, size_t n, uint64_t most_pixels,
                         oq_image *out, onq_error *err);
onq_code oq_image_decode_jpeg(oq_arena *a, const uint8_t *p, size_t n, uint64_t most_pixels,
                              oq_image *out, onq_error *err);
onq_code oq_image_decode_png(oq_arena *a, const uint8_t *p, size_t n, uint64_t most_pixels,
                             oq_image *out, onq_error *err);

/* Orientation 1..8 of an EXIF block ("II*\0..." or "MM\0*..."), 1 when it has none. */
unsigned oq_exif_orientation(const uint8_t *p, size_t n);
/* Turns the image upright. */
onq_code oq_image_orient(oq_arena *a, oq_image *im, unsigned orientation, onq_error *err);

/* The image at another size, as Pillow's Image.resize makes it by default: bicubic (a = -0.5), the
 * kernel widened when shrinking, one axis after the other with 8 bits between, alpha
 * premultiplied. */
onq_code oq_image_scale(oq_arena *a, const oq_image *in, uint32_t width, uint32_t height,
                        oq_image *out, onq_error *err);

/* To RGB (3 channels) or grey (1), alpha dropped, as Pillow converts. */
onq_code oq_image_to_rgb(oq_arena *a, oq_image *im, onq_error *err);
void oq_image_to_gray(oq_image *im);
