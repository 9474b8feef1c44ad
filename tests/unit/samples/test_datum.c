/*
 * test_datum.c — data as .pb files and back, what a model declares, texts about both, copies.
 */
#include "samples/datum.h"

#include "build_model.h"
#include "flaky_alloc.h"
#include "testing.h"

static onq_error err;

/* A tensor of n elements of a type, with bytes 1, 2, 3 ... */
static oq_datum make(oq_dtype dt, const int64_t *dims, size_t rank) {
    static uint8_t bytes[4096];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(dt == OQ_BOOL ? i & 1 : i + 1);
    oq_datum d = {.kind = OQ_DATUM_TENSOR, .dtype = dt, .dims = dims, .rank = rank, .count = 1};
    for (size_t i = 0; i < rank; i++)
        d.count *= (uint64_t)dims[i];
    assert_true(oq_dtype_bytes(dt, d.count, &d.size_bytes));
    d.data = bytes;
    return d;
}

static void assert_same(const oq_datum *a, const oq_datum *b) {
    assert_int_equal(a->kind, b->kind);
    assert_int_equal(a->n_items, b->n_items);
    for (size_t i = 0; i < a->n_items; i++)
        assert_same(&a->items[i], &b->items[i]);
    if (a->kind != OQ_DATUM_TENSOR)
        return;
    assert_int_equal(a->dtype, b->dtype);
    assert_int_equal(a->rank, b->rank);
    assert_int_equal(a->count, b->count);
    assert_int_equal(a->size_bytes, b->size_bytes);
    for (size_t i = 0; i < a->rank; i++)
        assert_int_equal(a->dims[i], b->dims[i]);
    if (a->size_bytes > 0)
        assert_memory_equal(a->data, b->data, a->size_bytes);
    for (uint64_t i = 0; a->strings != NULL && i < a->count; i++)
        assert_true(oq_str_eq(a->strings[i], b->strings[i]));
}

static void round_trip(const oq_datum *d, const oq_io *io) {
    oq_buf out;
    oq_arena a;
    oq_buf_init(&out, oq_alloc_default());
    oq_arena_init(&a, oq_alloc_default());
    assert_ok(oq_datum_to_pb(d, io, &out, &err), err);
    oq_datum back, copy;
    oq_str name;
    assert_ok(oq_datum_from_pb(&a, (const uint8_t *)out.p, out.n, io, &back, &name, &err), err);
    assert_true(oq_str_eq(name, io->name));
    assert_same(d, &back);
    assert_ok(oq_datum_copy(&a, d, &copy, &err), err);
    assert_same(d, &copy);
    oq_arena_release(&a);
    oq_buf_release(&out);
}

static void test_every_type(void **state) {
    (void)state;
    static const int64_t dims[] = {2, 3, 1};
    const oq_io io = {.name = OQ_S("x"), .kind = OQ_DATUM_TENSOR};
    int tested = 0;
    for (int t = 1; t < OQ_DTYPE_COUNT; t++) {
        if (t == OQ_STRING)
            continue;
        const oq_datum d = make((oq_dtype)t, dims, 3), scalar = make((oq_dtype)t, NULL, 0);
        round_trip(&d, &io);
        round_trip(&scalar, &io);
        tested++;
    }
    assert_int_equal(tested, 27);
}

static void test_texts(void **state) {
    (void)state;
    static const int64_t dims[] = {3};
    const oq_str texts[] = {OQ_S("one"), OQ_S(""), OQ_S("nul\0inside")};
    const oq_datum d = {.kind = OQ_DATUM_TENSOR,
                        .dtype = OQ_STRING,
                        .rank = 1,
                        .dims = dims,
                        .count = 3,
                        .strings = texts};
    round_trip(&d, &(oq_io){.name = OQ_S("x"), .kind = OQ_DATUM_TENSOR});
}

static void test_sequences(void **state) {
    (void)state;
    static const int64_t two[] = {2}, four[] = {2, 2};
    const oq_datum items[] = {make(OQ_FLOAT, two, 1), make(OQ_FLOAT, four, 2)};
    const oq_datum list = {
        .kind = OQ_DATUM_SEQUENCE, .dtype = OQ_FLOAT, .items = items, .n_items = 2};
    const oq_datum nested[] = {list, list};
    const oq_datum lists = {.kind = OQ_DATUM_SEQUENCE, .items = nested, .n_items = 2};
    const oq_datum none = {0}, empty = {.kind = OQ_DATUM_SEQUENCE};
    oq_io io = {.name = OQ_S("s"), .kind = OQ_DATUM_SEQUENCE};
    round_trip(&list, &io);
    round_trip(&lists, &io);
    round_trip(&empty, &io);
    io.optional = true;
    round_trip(&list, &io);
    round_trip(&none, &io);
    io.kind = OQ_DATUM_TENSOR;
    round_trip(&items[0], &io);
}

static void test_maps(void **state) {
    (void)state;
    static const int64_t dims[] = {2};
    static const int64_t numbers[] = {-5, 1LL << 40};
    const oq_str texts[] = {OQ_S("a"), OQ_S("b")};
    oq_datum items[2] = {{.kind = OQ_DATUM_TENSOR,
                          .dtype = OQ_INT64,
                          .rank = 1,
                          .dims = dims,
                          .count = 2,
                          .data = numbers,
                          .size_bytes = 16},
                         make(OQ_FLOAT, dims, 1)};
    const oq_datum map = {.kind = OQ_DATUM_MAP, .items = items, .n_items = 2};
    const oq_io io = {.name = OQ_S("m"), .kind = OQ_DATUM_MAP};
    round_trip(&map, &io);
    items[0] = (oq_datum){.kind = OQ_DATUM_TENSOR,
                          .dtype = OQ_STRING,
                          .rank = 1,
                          .dims = dims,
                          .count = 2,
                          .strings = texts};
    round_trip(&map, &io);
    const oq_datum many[] = {map, map};
    const oq_datum list = {.kind = OQ_DATUM_SEQUENCE, .items = many, .n_items = 2};
    round_trip(&list, &(oq_io){.name = OQ_S("s"), .kind = OQ_DATUM_SEQUENCE});
}

static void fails(const void *p, size_t n, onq_code code, const char *part) {
    oq_arena a;
    oq_arena_init(&a, oq_alloc_default());
    oq_datum d;
    const uint8_t *bytes = p;
    assert_fails(oq_datum_from_pb(&a, bytes, n, NULL, &d, NULL, &err), code, err, part);
    oq_arena_release(&a);
}

static void test_bad_tensors(void **state) {
    (void)state;
    fails("", 0, ONQ_E_INVALID, "element type");
    /* FLOAT[2] with four bytes; [-1]; [2^62, 2^62]; type 77; a segment; data elsewhere */
    fails("\x08\x02\x10\x01\x4a\x04\0\0\0\0", 10, ONQ_E_INVALID, "4 bytes");
    fails("\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x10\x01", 13, ONQ_E_INVALID, "-1");
    fails(
        "\x08\x80\x80\x80\x80\x80\x80\x80\x80\x40\x08\x80\x80\x80\x80\x80\x80\x80\x80\x40\x10\x01",
        22, ONQ_E_INVALID, "");
    fails("\x08\x01\x10\x4d", 4, ONQ_E_INVALID, "77");
    fails("\x08\x01\x10\x01\x1a\x02\x08\x01", 8, ONQ_E_UNSUPPORTED, "segment");
    fails("\x08\x01\x10\x01\x70\x01", 6, ONQ_E_UNSUPPORTED, "another file");
    fails("\x08", 1, ONQ_E_MALFORMED, "");
    fails("\x08\x01\x10\x08", 4, ONQ_E_INVALID, "0 texts");
}

static void test_declared(void **state) {
    (void)state;
    bm b;
    bm_begin(&b, NULL, 13);
    bm_input(&b, "x", OQ_FLOAT, "N,3,?");
    bm_input(&b, "w", OQ_FLOAT, "2");
    bm_input(&b, "free", OQ_INT64, NULL);
    bm_weight(&b, "w", "2", 1);
    bm_output(&b, "y", OQ_FLOAT, "");
    oq_ios in, out;
    assert_ok(oq_model_inputs(b.m, b.a, &in, &err), err);
    assert_ok(oq_model_outputs(b.m, b.a, &out, &err), err);
    assert_int_equal(in.n, 2); /* w has a value */
    assert_int_equal(out.n, 1);
    assert_true(oq_str_is(in.v[0].name, "x"));
    assert_int_equal(in.v[0].rank, 3);
    assert_int_equal(in.v[0].dims[0].value, -1);
    assert_int_equal(in.v[0].dims[1].value, 3);
    assert_true(oq_str_is(in.v[0].dims[0].param, "N"));
    assert_false(in.v[1].has_shape);
    assert_true(out.v[0].has_shape);
    oq_buf text;
    oq_buf_init(&text, oq_alloc_default());
    oq_io_describe(&in.v[0], &text);
    oq_buf_addc(&text, ' ');
    oq_io_describe(&in.v[1], &text);
    oq_buf_addc(&text, ' ');
    oq_io_describe(&out.v[0], &text);
    assert_string_equal(text.p, "FLOAT[N,3,?] INT64 FLOAT[]");
    oq_buf_release(&text);
    bm_end(&b);
}

static void test_floats(void **state) {
    (void)state;
    static const uint16_t halves[] = {0x3c00, 0xc000, 0x3555};
    static const double doubles[] = {1, -2, 0.1};
    static const int64_t dims[] = {3};
    oq_arena a;
    oq_arena_init(&a, oq_alloc_default());
    oq_datum d = make(OQ_FLOAT, dims, 1);
    assert_ptr_equal(oq_datum_floats(&d, &a), d.data);
    d = make(OQ_FLOAT16, dims, 1);
    d.data = halves;
    const float *v = oq_datum_floats(&d, &a);
    assert_true(v[0] == 1 && v[1] == -2 && v[2] == 0x1.554p-2f);
    d = make(OQ_DOUBLE, dims, 1);
    d.data = doubles;
    v = oq_datum_floats(&d, &a);
    assert_true(v[0] == 1 && v[1] == -2 && v[2] == 0.1f);
    oq_arena_release(&a);
}

static void test_several(void **state) {
    (void)state;
    static const int64_t dims[] = {2};
    const oq_str texts[] = {OQ_S("one"), OQ_S("three")};
    const oq_datum inner = make(OQ_DOUBLE, dims, 1);
    const oq_datum v[] = {
        make(OQ_FLOAT, dims, 1),
        {.kind = OQ_DATUM_SEQUENCE, .items = &inner, .n_items = 1},
        {.kind = OQ_DATUM_TENSOR,
         .dtype = OQ_STRING,
         .dims = dims,
         .rank = 1,
         .count = 2,
         .strings = texts},
    };
    oq_arena a;
    oq_datum *copy = NULL;
    oq_arena_init(&a, oq_alloc_default());
    assert_int_equal(oq_datums_bytes(v, 3), 8 + 16 + 8);
    assert_ok(oq_datums_copy(&a, v, 3, &copy, &err), err);
    for (size_t i = 0; i < 3; i++)
        assert_same(&v[i], &copy[i]);
    assert_ptr_not_equal(copy[0].data, v[0].data);
    oq_arena_release(&a);
}

static onq_code oom_body(const onq_allocator *alloc, void *ctx, onq_error *e) {
    (void)ctx;
    static const int64_t dims[] = {2};
    const oq_datum items[] = {make(OQ_FLOAT, dims, 1), make(OQ_FLOAT, dims, 1)};
    const oq_datum list = {
        .kind = OQ_DATUM_SEQUENCE, .dtype = OQ_FLOAT, .items = items, .n_items = 2};
    const oq_io io = {.name = OQ_S("s"), .kind = OQ_DATUM_SEQUENCE, .optional = true};
    oq_buf out;
    oq_arena a;
    oq_datum back, *copy = NULL;
    oq_buf_init(&out, alloc);
    oq_arena_init(&a, alloc);
    onq_code rc = oq_datum_to_pb(&list, &io, &out, e);
    if (rc == ONQ_OK)
        rc = oq_datum_from_pb(&a, (const uint8_t *)out.p, out.n, &io, &back, NULL, e);
    if (rc == ONQ_OK)
        rc = oq_datums_copy(&a, &back, 1, &copy, e);
    oq_arena_release(&a);
    oq_buf_release(&out);
    return rc;
}

static void test_oom(void **state) {
    (void)state;
    assert_true(flaky_sweep(oom_body, NULL) > 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_type),  cmocka_unit_test(test_texts),
        cmocka_unit_test(test_sequences),   cmocka_unit_test(test_maps),
        cmocka_unit_test(test_bad_tensors), cmocka_unit_test(test_declared),
        cmocka_unit_test(test_floats),      cmocka_unit_test(test_several),
        cmocka_unit_test(test_oom),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
