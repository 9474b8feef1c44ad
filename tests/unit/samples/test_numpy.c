/*
 * test_numpy.c — .npy headers and elements, zip archives, and archives that onq writes itself.
 */
#include "samples/files/npy.h"
#include "samples/files/npz_write.h"
#include "samples/files/zip.h"

#include "base/system/file.h"
#include "scratch.h"
#include "testing.h"

#include <stdio.h>

static onq_error err;

static onq_code parse(const char *dict, oq_npy *out) {
    uint8_t bytes[11000] = {0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0};
    const size_t n = strlen(dict);
    bytes[8] = (uint8_t)n;
    bytes[9] = (uint8_t)(n >> 8);
    memcpy(bytes + 10, dict, n);
    uint64_t end = 0;
    onq_code rc = oq_npy_prefix(bytes, 10 + n, &end, &err);
    if (rc != ONQ_OK)
        return rc;
    assert_int_equal(end, 10 + n);
    /* A block of exactly this size, so that a read past its end is seen. */
    uint8_t *exact = test_malloc(end);
    memcpy(exact, bytes, end);
    rc = oq_npy_header(exact, end, out, &err);
    test_free(exact);
    return rc;
}

static void test_headers(void **state) {
    (void)state;
    oq_npy h;
    assert_ok(parse("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }", &h), err);
    assert_int_equal(h.rank, 2);
    assert_int_equal(h.count, 6);
    assert_int_equal(h.data_size, 24);
    assert_int_equal(oq_npy_dtype(&h, OQ_FLOAT), OQ_FLOAT);
    assert_false(h.fortran || h.big_endian);
    assert_ok(parse("{\"shape\":(5L,),'fortran_order':True,'descr':'>i8'}   \n", &h), err);
    assert_int_equal(h.rank, 1);
    assert_true(h.fortran && h.big_endian);
    assert_int_equal(oq_npy_dtype(&h, OQ_FLOAT), OQ_INT64);
    assert_ok(parse("{'descr': '|b1', 'fortran_order': False, 'shape': (), }", &h), err);
    assert_int_equal(h.rank, 0);
    assert_int_equal(h.count, 1);
    assert_ok(parse("{'descr': '<U7', 'fortran_order': False, 'shape': (3, 0), }", &h), err);
    assert_int_equal(h.item, 28);
    assert_int_equal(h.count, 0);
    assert_ok(parse("{'descr': '<V2', 'fortran_order': False, 'shape': (3,), }", &h), err);
    assert_int_equal(oq_npy_dtype(&h, OQ_BFLOAT16), OQ_BFLOAT16);
    assert_int_equal(oq_npy_dtype(&h, OQ_FLOAT), OQ_UNDEFINED);
}

static void test_bad_headers(void **state) {
    (void)state;
    oq_npy h;
    static const struct {
        const char *dict;
        onq_code code;
    } rows[] = {
        {"", ONQ_E_MALFORMED},
        {"{", ONQ_E_MALFORMED},
        {"{}", ONQ_E_MALFORMED},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2) }", ONQ_E_MALFORMED},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2,", ONQ_E_MALFORMED},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2,)", ONQ_E_MALFORMED},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2,), } x", ONQ_E_MALFORMED},
        {"{'descr': '<f4' 'fortran_order': False, 'shape': (2,)}", ONQ_E_MALFORMED},
        {"{'descr': '<f4', 'more': 1, 'fortran_order': False, 'shape': (2,)}", ONQ_E_MALFORMED},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,)}",
         ONQ_E_MALFORMED},
        {"{'descr': '<f8', 'fortran_order': False, 'shape': (9223372036854775807, 9)}",
         ONQ_E_INVALID},
        {"{'descr': '|O', 'fortran_order': False, 'shape': (2,)}", ONQ_E_UNSUPPORTED},
        {"{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,)}", ONQ_E_UNSUPPORTED},
        {"{'descr': '<x4', 'fortran_order': False, 'shape': (2,)}", ONQ_E_UNSUPPORTED},
        {"{'descr': '<f', 'fortran_order': False, 'shape': (2,)}", ONQ_E_UNSUPPORTED},
    };
    for (size_t i = 0; i < OQ_COUNT(rows); i++)
        assert_fails(parse(rows[i].dict, &h), rows[i].code, err, "");
    uint64_t end = 0;
    assert_fails(oq_npy_prefix((const uint8_t *)"\x93NUMPY\x02\0\x11\x27\0\0", 12, &end, &err),
                 ONQ_E_LIMIT, err, "10001");
    assert_ok(oq_npy_prefix((const uint8_t *)"\x93NUMPY\x02\0\x10\x27\0\0", 12, &end, &err), err);
    assert_int_equal(end, 10012);
    assert_fails(oq_npy_prefix((const uint8_t *)"\x93NUMPY\x04\0\0\0\0\0", 12, &end, &err),
                 ONQ_E_UNSUPPORTED, err, "version 4");
}

static void test_elements(void **state) {
    (void)state;
    oq_npy h;
    static const uint8_t in[] = {0, 1, 0, 2, 0, 3, 0, 4, 0, 5, 0, 6};
    static const int64_t dims[] = {2, 3};
    uint16_t out[6];
    /* Fortran order, big-endian: columns come first. */
    assert_ok(parse("{'descr': '>u2', 'fortran_order': True, 'shape': (2, 3), }", &h), err);
    oq_npy_convert(&h, dims, 2, true, in, (uint8_t *)out);
    static const uint16_t wanted[] = {1, 3, 5, 2, 4, 6};
    assert_memory_equal(out, wanted, sizeof wanted);
    oq_npy_convert(&h, dims, 2, false, in, (uint8_t *)out);
    for (unsigned i = 0; i < 6; i++)
        assert_int_equal(out[i], i + 1);
    /* Bools become 0 or 1. */
    uint8_t flags[3];
    assert_ok(parse("{'descr': '|b1', 'fortran_order': False, 'shape': (3,), }", &h), err);
    oq_npy_convert(&h, (const int64_t[]){3}, 1, false, (const uint8_t *)"\0\1\xff", flags);
    assert_memory_equal(flags, "\0\1\1", 3);
    /* A complex number swaps its two halves, not itself. */
    assert_ok(parse("{'descr': '>c8', 'fortran_order': False, 'shape': (), }", &h), err);
    uint8_t two[8];
    oq_npy_convert(&h, NULL, 0, false, (const uint8_t *)"abcdefgh", two);
    assert_memory_equal(two, "dcbahgfe", 8);
}

static void test_text_elements(void **state) {
    (void)state;
    oq_npy h;
    oq_arena a;
    oq_arena_init(&a, oq_alloc_default());
    assert_ok(parse("{'descr': '<U3', 'fortran_order': False, 'shape': (1,), }", &h), err);
    static const uint32_t chars[] = {0xe9, 0x1f600, 0xd800};
    oq_str s = oq_npy_text(&h, &a, (const uint8_t *)chars, 0);
    assert_true(oq_str_is(s, "\xc3\xa9\xf0\x9f\x98\x80\xef\xbf\xbd"));
    assert_ok(parse("{'descr': '|S4', 'fortran_order': False, 'shape': (2,), }", &h), err);
    assert_true(oq_str_is(oq_npy_text(&h, &a, (const uint8_t *)"abcdxy\0\0", 1), "xy"));
    oq_arena_release(&a);
}

/* ---- archives ---- */

static void write_archive(oq_buf *out) {
    static const float x[6] = {1, 2, 3, 4, 5, 6};
    static const int64_t dims[] = {2, 3}, three[] = {3};
    const oq_str texts[] = {OQ_S("a"), OQ_S("b\xc3\xa9"), OQ_S("")};
    const oq_datum d[] = {{.kind = OQ_DATUM_TENSOR,
                           .dtype = OQ_FLOAT,
                           .rank = 2,
                           .dims = dims,
                           .count = 6,
                           .data = x,
                           .size_bytes = sizeof x},
                          {.kind = OQ_DATUM_TENSOR,
                           .dtype = OQ_STRING,
                           .rank = 1,
                           .dims = three,
                           .count = 3,
                           .strings = texts}};
    const oq_io names[] = {{.name = OQ_S("x")}, {.name = OQ_S("words")}};
    assert_ok(oq_npz_write(out, d, names, 2, &err), err);
}

typedef struct archive {
    scratch s;
    oq_arena a;
    oq_buf bytes; /* of the file */
    oq_file f;
    oq_zip z;
} archive;

static int make_archive(void **state) {
    static archive r;
    scratch_init(&r.s);
    oq_arena_init(&r.a, oq_alloc_default());
    oq_buf_init(&r.bytes, oq_alloc_default());
    write_archive(&r.bytes);
    *state = &r;
    return 0;
}

static int remove_archive(void **state) {
    archive *r = *state;
    oq_arena_release(&r->a);
    oq_buf_release(&r->bytes);
    scratch_remove(&r->s);
    return 0;
}

/* Opens the first n bytes. */
static onq_code open_archive(archive *r, size_t n) {
    const char *path = scratch_file(&r->s, "x.npz", r->bytes.p, n);
    assert_ok(oq_file_open(&r->f, oq_alloc_default(), path, &err), err);
    return oq_zip_open(&r->z, &r->a, oq_alloc_default(), &r->f, &err);
}

static void close_archive(archive *r) {
    oq_zip_release(&r->z);
    oq_file_close(&r->f);
}

static void test_archive(void **state) {
    archive *r = *state;
    const oq_zip *z = &r->z;
    assert_ok(open_archive(r, r->bytes.n), err);
    assert_int_equal(z->n, 2);
    assert_true(oq_str_is(z->v[0].name, "x.npy"));
    uint8_t npy[152];
    assert_int_equal(z->v[0].bytes.size, sizeof npy);
    assert_ok(oq_bytes_read(&z->v[0].bytes, 0, npy, sizeof npy, &err), err);
    assert_memory_equal(npy + 128, "\0\0\x80\x3f", 4);
    oq_npy h;
    assert_ok(oq_npy_header(npy, 128, &h, &err), err);
    assert_int_equal(h.count, 6);
    assert_fails(oq_bytes_read(&z->v[0].bytes, 150, npy, 3, &err), ONQ_E_MALFORMED, err, "missing");
    close_archive(r);
    /* Cut anywhere it is refused. */
    for (size_t n = 0; n < r->bytes.n; n += 7) {
        assert_fails(open_archive(r, n), ONQ_E_MALFORMED, err, "zip");
        close_archive(r);
    }
}

static void test_damaged_member(void **state) {
    archive *r = *state;
    r->bytes.p[170] ^= 1; /* inside the first member's elements */
    assert_ok(open_archive(r, r->bytes.n), err);
    uint8_t npy[152];
    assert_ok(oq_bytes_read(&r->z.v[0].bytes, 0, npy, 100, &err), err);
    assert_fails(oq_bytes_read(&r->z.v[0].bytes, 100, npy, 52, &err), ONQ_E_MALFORMED, err,
                 "checksum");
    close_archive(r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_headers),
        cmocka_unit_test(test_bad_headers),
        cmocka_unit_test(test_elements),
        cmocka_unit_test(test_text_elements),
        cmocka_unit_test_setup_teardown(test_archive, make_archive, remove_archive),
        cmocka_unit_test_setup_teardown(test_damaged_member, make_archive, remove_archive),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
