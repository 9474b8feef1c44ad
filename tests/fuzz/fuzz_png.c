/*
 * fuzz_png.c — images: decoded, turned upright, resized, brought to RGB. The chunks' checksums are
 * made right first, because mutations would hardly ever get past them.
 */
#include "samples/files/image.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void repair(uint8_t *p, size_t size) {
    size_t at = 8;
    while (at < size && size - at >= 12) {
        const size_t n =
            (size_t)p[at] << 24 | (size_t)p[at + 1] << 16 | (size_t)p[at + 2] << 8 | p[at + 3];
        if (n > size - at - 12)
            return;
        const uint32_t crc = (uint32_t)crc32_z(0, p + at + 4, n + 4);
        for (unsigned i = 0; i < 4; i++)
            p[at + 8 + n + i] = (uint8_t)(crc >> (24 - 8 * i));
        at += n + 12;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    oq_arena a;
    oq_arena_init(&a, oq_alloc_default());
    oq_image im, small;
    uint8_t *fixed = malloc(size + 1);
    assert(fixed != NULL);
    memcpy(fixed, data, size);
    repair(fixed, size);
    if (oq_image_decode_png(&a, fixed, size, 1u << 20, &im, NULL) == ONQ_OK) {
        assert(im.width > 0 && im.height > 0 && (uint64_t)im.width * im.height <= 1u << 20);
        assert(oq_image_scale(&a, &im, 7, 5, &small, NULL) == ONQ_OK);
        assert(oq_image_to_rgb(&a, &small, NULL) == ONQ_OK);
        oq_image_to_gray(&small);
    }
    oq_arena_release(&a);
    free(fixed);
    return 0;
}
