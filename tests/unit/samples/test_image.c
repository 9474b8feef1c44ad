/*
 * test_image.c — orientation, colours, resizing. Bit equality with Pillow is tested in
 * tests/parity; the few numbers here were taken from Pillow 13.0.0.
 */
#include "samples/files/image.h"

#include "testing.h"

static onq_error err;

/* The four corners of a 3 x 2 image numbered 0..5, after each orientation. */
static void test_orientations(void **state) {
    (void)state;
    static const struct {
        uint32_t width;
        uint8_t pixels[6];
    } wanted[8] = {
        {3, {0, 1, 2, 3, 4, 5}}, {3, {2, 1, 0, 5, 4, 3}}, {3, {5, 4, 3, 2, 1, 0}},
        {3, {3, 4, 5, 0, 1, 2}}, {2, {0, 3, 1, 4, 2, 5}}, {2, {3, 0, 4, 1, 5, 2}},
        {2, {5, 2, 4, 1, 3, 0}}, {2, {2, 5, 1, 4, 0, 3}},
    };
    oq_arena a;
    oq_arena_init(&a, oq_alloc_default());
    for (unsigned o = 1; o <= 8; o++) {
        uint8_t pixels[6] = {0, 1, 2, 3, 4, 5};
        oq_image im = {.mode = OQ_MODE_L, .width = 3, .height = 2, .p = pixels};
        assert_ok(oq_image_orient(&a, &im, o, &err), err);
        assert_int_equal(im.width, wanted[o - 1].width);
        assert_int_equal(im.width * im.height, 6);
        assert_memory_equal(im.p, wanted[o - 1].pixels, 6);
    }
    oq_arena_release(&a);
}

static void test_exif(void **state) {
    (void)state;
    static const uint8_t little[] = {'I', 'I', 42, 0, 8, 0,    0, 0, 2, 0, 0, 1, 3, 0, 1, 0, 0,
                                     0,   0,   0,  0, 0, 0x12, 1, 3, 0, 1, 0, 0, 0, 6, 0, 0, 0};
    static const uint8_t big[] = {'M',  'M', 0, 42, 0, 0, 0, 8, 0, 1, 1,
                                  0x12, 0,   3, 0,  0, 0, 1, 0, 8, 0, 0};
    assert_int_equal(oq_exif_orientation(little, sizeof little), 6);
    assert_int_equal(oq_exif_orientation(big, sizeof big), 8);
    for (size_t n = 0; n < sizeof little; n++) {
        uint8_t *exact = test_malloc(n + 1);
        memcpy(exact, little, n);
        const unsigned o = oq_exif_orientation(exact, n);
        assert_int_equal(o, 1);
        test_free(exact);
    }
    uint8_t wrong[sizeof big];
    memcpy(wrong, big, sizeof big);
    wrong[19] = 9;
    assert_int_equal(oq_exif_orientation(wrong, sizeof wrong), 1);
    memset(wrong + 4, 0xff, 4); /* the directory lies far outside */
    assert_int_equal(oq_exif_orientation(wrong, sizeof wrong), 1);
}

static void test_resize(void **state) {
    (void)state;
    oq_arena a;
    oq_arena_init(&a, oq_alloc_default());
    uint8_t ramp[8] = {0, 10, 200, 255, 3, 77, 90, 128};
    const oq_image row = {.mode = OQ_MODE_L, .width = 8, .height = 1, .p = ramp};
    oq_image out;
    /* Image.fromarray(ramp).resize((3, 1)) */
    assert_ok(oq_image_scale(&a, &row, 3, 1, &out, &err), err);
    static const uint8_t three[] = {70, 134, 87};
    assert_memory_equal(out.p, three, sizeof three);
    assert_ok(oq_image_scale(&a, &row, 8, 1, &out, &err), err);
    assert_ptr_equal(out.p, ramp);
    /* One colour stays one colour at any size. */
    uint8_t grey[12];
    memset(grey, 77, sizeof grey);
    const oq_image flat = {.mode = OQ_MODE_RGB, .width = 2, .height = 2, .p = grey};
    for (uint32_t n = 1; n < 40; n++) {
        assert_ok(oq_image_scale(&a, &flat, n, 41 - n, &out, &err), err);
        for (size_t i = 0; i < (size_t)3 * n * (41 - n); i++)
            assert_int_equal(out.p[i], 77);
    }
    /* By nearest pixel no new colours appear. */
    const oq_image palette = {
        .mode = OQ_MODE_L, .width = 8, .height = 1, .p = ramp, .nearest = true};
    assert_ok(oq_image_scale(&a, &palette, 4, 1, &out, &err), err);
    static const uint8_t four[] = {10, 255, 77, 128};
    assert_memory_equal(out.p, four, sizeof four);
    oq_arena_release(&a);
}

static void test_colours(void **state) {
    (void)state;
    oq_arena a;
    oq_arena_init(&a, oq_alloc_default());
    uint8_t ink[4] = {10, 128, 255, 30};
    oq_image im = {.mode = OQ_MODE_CMYK, .width = 1, .height = 1, .p = ink};
    assert_ok(oq_image_to_rgb(&a, &im, &err), err);
    static const uint8_t rgb[] = {216, 112, 0}; /* Image.new("CMYK", ...).convert("RGB") */
    assert_memory_equal(im.p, rgb, 3);
    oq_image_to_gray(&im);
    assert_int_equal(im.p[0], 130);
    uint8_t alpha[2] = {99, 3};
    im = (oq_image){.mode = OQ_MODE_LA, .width = 1, .height = 1, .p = alpha};
    assert_ok(oq_image_to_rgb(&a, &im, &err), err);
    assert_memory_equal(im.p, "ccc", 3);
    oq_arena_release(&a);
}

static void test_what_is_no_image(void **state) {
    (void)state;
    oq_arena a;
    oq_arena_init(&a, oq_alloc_default());
    oq_image im;
    const uint8_t *text = (const uint8_t *)"hello";
    assert_fails(oq_image_decode(&a, text, 0, 100, &im, &err), ONQ_E_MALFORMED, err, "empty");
    assert_fails(oq_image_decode(&a, text, 5, 100, &im, &err), ONQ_E_MALFORMED, err, "neither");
    assert_fails(oq_image_decode(&a, (const uint8_t *)"\xff\xd8\xff\xe0", 4, 100, &im, &err),
                 ONQ_E_MALFORMED, err, "cut off");
    assert_fails(oq_image_decode(&a, (const uint8_t *)"\x89PNG\r\n\x1a\n", 8, 100, &im, &err),
                 ONQ_E_MALFORMED, err, "cut off");
    oq_arena_release(&a);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_orientations),     cmocka_unit_test(test_exif),
        cmocka_unit_test(test_resize),           cmocka_unit_test(test_colours),
        cmocka_unit_test(test_what_is_no_image),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
