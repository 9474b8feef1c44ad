/*
 * fuzz_jpeg.c — images: decoded, turned upright, resized, brought to RGB.
 */
#include "samples/files/image.h"

#include <assert.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    oq_arena a;
    oq_arena_init(&a, oq_alloc_default());
    oq_image im, small;
    if (oq_image_decode_jpeg(&a, data, size, 1u << 20, &im, NULL) == ONQ_OK) {
        assert(im.width > 0 && im.height > 0 && (uint64_t)im.width * im.height <= 1u << 20);
        assert(oq_image_scale(&a, &im, 7, 5, &small, NULL) == ONQ_OK);
        assert(oq_image_to_rgb(&a, &small, NULL) == ONQ_OK);
        oq_image_to_gray(&small);
    }
    oq_arena_release(&a);
    return 0;
}
