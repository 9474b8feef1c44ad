/*
 * image_png.c — PNG through libspng.
 *
 * Pixels are taken as the file has them (big-endian, packed) and brought to 8 bits here, because
 * the library's own conversions scale 16 bits and expand tRNS otherwise than Pillow does.
 */
#include "samples/files/image.h"

#include <spng.h>

/* Chunks that are kept (EXIF, palette) and what they may take. */
#define MAX_CHUNK  (4u << 20)
#define MAX_CHUNKS (16u << 20)

/* 8 bits of sample i of a row. */
static uint8_t sample(const uint8_t *row, size_t i, unsigned bits, bool spread) {
    if (bits == 8)
        return row[i];
    if (bits == 16)
        return row[2 * i];
    const size_t bit = i * bits;
    const unsigned most = (1u << bits) - 1;
    const unsigned v = (row[bit / 8] >> (8 - bits - bit % 8)) & most;
    return (uint8_t)(spread ? v * 255 / most : v);
}

static onq_code expand(oq_arena *a, const struct spng_ihdr *h, const uint8_t *raw, size_t row_bytes,
                       const struct spng_plte *palette, oq_image *out, onq_error *err) {
    const unsigned c = oq_image_channels(out);
    const bool indexed = h->color_type == SPNG_COLOR_TYPE_INDEXED;
    const unsigned stored = indexed ? 1 : c;
    out->p = oq_arena_array(a, (size_t)h->height * h->width, c);
    OQ_TRY_ALLOC(out->p != NULL, err);
    for (uint32_t y = 0; y < h->height; y++) {
        const uint8_t *row = raw + y * row_bytes;
        uint8_t *q = out->p + (size_t)y * h->width * c;
        for (size_t i = 0; i < (size_t)h->width * stored; i++) {
            const uint8_t v = sample(row, i, h->bit_depth, !indexed);
            if (!indexed) {
                q[i] = v;
                continue;
            }
            /* An index past the palette is black, as in Pillow. */
            const struct spng_plte_entry none = {0};
            const struct spng_plte_entry e = v < palette->n_entries ? palette->entries[v] : none;
            q[3 * i] = e.red;
            q[3 * i + 1] = e.green;
            q[3 * i + 2] = e.blue;
        }
    }
    return ONQ_OK;
}

static onq_code spng_check(int code, onq_error *err) {
    if (code == 0)
        return ONQ_OK;
    OQ_TRY_ALLOC(code != SPNG_EMEM, err);
    return oq_fail(err, ONQ_E_MALFORMED, "PNG: %s",
                   code == SPNG_IO_EOF ? "the image is cut off" : spng_strerror(code));
}

static onq_code set_mode(const struct spng_ihdr *h, oq_image *out, onq_error *err) {
    out->width = h->width;
    out->height = h->height;
    switch (h->color_type) {
    case SPNG_COLOR_TYPE_GRAYSCALE:
        out->mode = OQ_MODE_L;
        out->nearest = h->bit_depth == 1;
        return ONQ_OK;
    case SPNG_COLOR_TYPE_TRUECOLOR:
        out->mode = OQ_MODE_RGB;
        return ONQ_OK;
    case SPNG_COLOR_TYPE_INDEXED:
        out->mode = OQ_MODE_RGB;
        out->nearest = true;
        return ONQ_OK;
    case SPNG_COLOR_TYPE_GRAYSCALE_ALPHA:
        out->mode = OQ_MODE_LA;
        return ONQ_OK;
    case SPNG_COLOR_TYPE_TRUECOLOR_ALPHA:
        out->mode = OQ_MODE_RGBA;
        return ONQ_OK;
    default:
        return oq_fail(err, ONQ_E_UNSUPPORTED, "PNG: colour type %u is not supported",
                       h->color_type);
    }
}

static onq_code decode(spng_ctx *ctx, oq_arena *a, uint64_t most_pixels, oq_image *out,
                       unsigned *orientation, onq_error *err) {
    struct spng_ihdr h;
    OQ_TRY(spng_check(spng_get_ihdr(ctx, &h), err));
    if ((uint64_t)h.width * h.height > most_pixels)
        return oq_fail(err, ONQ_E_LIMIT,
                       "PNG: the image has %u x %u pixels, more than the limit of %" PRIu64,
                       h.width, h.height, most_pixels);
    OQ_TRY(set_mode(&h, out, err));
    size_t size = 0;
    OQ_TRY(spng_check(spng_decoded_image_size(ctx, SPNG_FMT_RAW, &size), err));
    uint8_t *raw = oq_arena_alloc(a, size + 1);
    OQ_TRY_ALLOC(raw != NULL, err);
    OQ_TRY(spng_check(spng_decode_image(ctx, raw, size, SPNG_FMT_RAW, 0), err));
    struct spng_plte palette = {0};
    if (h.color_type == SPNG_COLOR_TYPE_INDEXED)
        OQ_TRY(spng_check(spng_get_plte(ctx, &palette), err));
    struct spng_exif exif = {0};
    if (spng_get_exif(ctx, &exif) == 0 && exif.data != NULL)
        *orientation = oq_exif_orientation((const uint8_t *)exif.data, exif.length);
    return expand(a, &h, raw, size / h.height, &palette, out, err);
}

onq_code oq_image_decode_png(oq_arena *a, const uint8_t *p, size_t n, uint64_t most_pixels,
                             oq_image *out, onq_error *err) {
    *out = (oq_image){0};
    spng_ctx *ctx = spng_ctx_new(0);
    OQ_TRY_ALLOC(ctx != NULL, err);
    unsigned orientation = 1;
    /* Checksums are verified: a damaged image is refused. */
    onq_code rc = spng_check(spng_set_crc_action(ctx, SPNG_CRC_ERROR, SPNG_CRC_DISCARD), err);
    if (rc == ONQ_OK)
        rc = spng_check(spng_set_chunk_limits(ctx, MAX_CHUNK, MAX_CHUNKS), err);
    if (rc == ONQ_OK)
        rc = spng_check(spng_set_png_buffer(ctx, p, n), err);
    if (rc == ONQ_OK)
        rc = decode(ctx, a, most_pixels, out, &orientation, err);
    spng_ctx_free(ctx);
    return rc == ONQ_OK ? oq_image_orient(a, out, orientation, err) : rc;
}
