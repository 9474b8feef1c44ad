/*
 * test_arena.c — allocation, checked arithmetic and arenas.
 */
#include "base/arena.h"

#include "base/vec.h"
#include "flaky_alloc.h"
#include "testing.h"

#include <string.h>

#if defined(__SANITIZE_ADDRESS__)
#define WITH_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define WITH_ASAN 1
#endif
#endif
#if defined(WITH_ASAN)
#include <sanitizer/asan_interface.h>
#endif

static void arithmetic_is_checked(void **state) {
    (void)state;
    uint64_t v = 0;
    assert_true(oq_mul(UINT64_C(1) << 32, (UINT64_C(1) << 32) - 1, &v));
    assert_int_equal(v, UINT64_C(0xffffffff00000000));
    assert_false(oq_mul(UINT64_C(1) << 32, UINT64_C(1) << 32, &v));
    assert_true(oq_mul(0, UINT64_MAX, &v));
    assert_true(oq_add(UINT64_MAX, 0, &v));
    assert_false(oq_add(UINT64_MAX, 1, &v));
}

static void default_allocator(void **state) {
    (void)state;
    const onq_allocator *a = oq_alloc_default();
    char *p = oq_alloc(a, 3);
    memcpy(p, "abc", 3);
    p = oq_resize(a, p, 3, 4000);
    assert_memory_equal(p, "abc", 3);
    oq_free(a, p, 4000);
    oq_free(a, NULL, 7);
    assert_null(oq_calloc(a, SIZE_MAX / 2, 3));
    int *zeros = oq_calloc(a, 100, sizeof *zeros);
    for (int i = 0; i < 100; i++)
        assert_int_equal(zeros[i], 0);
    oq_free(a, zeros, 100 * sizeof *zeros);
    void *empty = oq_alloc(a, 0);
    assert_non_null(empty);
    oq_free(a, empty, 0);
}

static bool all_are(const uint8_t *p, size_t n, uint8_t v) {
    for (size_t i = 0; i < n; i++)
        if (p[i] != v)
            return false;
    return true;
}

/* Pieces of many sizes: aligned, zeroed, apart from each other, all given back. */
static void pieces_are_apart(void **state) {
    (void)state;
    flaky f;
    flaky_init(&f, -1);
    oq_arena a;
    oq_arena_init(&a, &f.alloc);
    uint8_t *pieces[600];
    size_t sizes[600];
    for (size_t i = 0; i < 600; i++) {
        sizes[i] = i % 50 == 49 ? i * 2000 : i * 7 % 300;
        pieces[i] = oq_arena_alloc(&a, sizes[i]);
        assert_non_null(pieces[i]);
        assert_int_equal((uintptr_t)pieces[i] % 16, 0);
        assert_true(all_are(pieces[i], sizes[i], 0));
        memset(pieces[i], (int)i, sizes[i]);
    }
    for (size_t i = 0; i < 600; i++)
        assert_true(all_are(pieces[i], sizes[i], (uint8_t)i));
    assert_int_equal(a.used, atomic_load(&f.live));
    oq_arena_release(&a);
    assert_int_equal(atomic_load(&f.live), 0);
    assert_int_equal(a.used, 0);
    /* It can be used again. */
    assert_non_null(oq_arena_alloc(&a, 10));
    oq_arena_release(&a);
    assert_int_equal(atomic_load(&f.live), 0);
}

static void few_blocks(void **state) {
    (void)state;
    flaky f;
    flaky_init(&f, -1);
    oq_arena a;
    oq_arena_init(&a, &f.alloc);
    for (int i = 0; i < 100000; i++)
        assert_non_null(oq_arena_alloc(&a, 24));
    /* 3.2 MB in blocks up to 1 MiB, and hardly more than what was asked for. */
    assert_true(atomic_load(&f.n_calls) < 20);
#if !defined(WITH_ASAN)
    assert_true(a.used < 5 << 20);
#endif
    /* A large piece does not waste the rest of the open block. */
    const uint8_t *before = a.next;
    assert_non_null(oq_arena_alloc(&a, 10 << 20));
    assert_ptr_equal(a.next, before);
    oq_arena_release(&a);
}

static void limits_and_overflow(void **state) {
    (void)state;
    oq_arena a;
    oq_arena_init(&a, oq_alloc_default());
    assert_null(oq_arena_alloc(&a, SIZE_MAX));
    assert_null(oq_arena_alloc(&a, SIZE_MAX - 20));
    assert_null(oq_arena_array(&a, SIZE_MAX / 4, 8));
    assert_null(oq_arena_strdup(&a, "x", SIZE_MAX));
    assert_false(a.limited);
    a.limit = 100000;
    assert_null(oq_arena_alloc(&a, 200000));
    assert_true(a.limited);
    size_t n = 0;
    while (oq_arena_alloc(&a, 1000) != NULL)
        n++;
    assert_true(n > 40 && n <= 100);
    assert_true(a.used <= a.limit);
    /* A limit lower than what is in use already. */
    a.limit = 1;
    assert_null(oq_arena_alloc(&a, 300000));
    oq_arena_release(&a);
}

static void strdup_and_vectors(void **state) {
    (void)state;
    oq_arena a;
    oq_arena_init(&a, oq_alloc_default());
    const char *s = oq_arena_strdup(&a, "a\0b", 3);
    assert_memory_equal(s, "a\0b", 4);
    assert_string_equal(oq_arena_strdup(&a, NULL, 0), "");

    OQ_VEC(int64_t) v = {0};
    for (int64_t i = 0; i < 1000; i++)
        assert_true(OQ_PUSH(&a, &v, i * 3));
    assert_int_equal(v.n, 1000);
    for (size_t i = 0; i < v.n; i++)
        assert_int_equal(v.v[i], (int64_t)i * 3);
    OQ_REMOVE_AT(&v, 0);
    OQ_REMOVE_AT(&v, v.n - 1);
    assert_int_equal(v.n, 998);
    assert_int_equal(v.v[0], 3);
    assert_int_equal(v.v[997], 998 * 3);

    /* A view (no capacity) is copied when it grows. */
    int64_t fixed[2] = {5, 6};
    v.v = fixed;
    v.n = 2;
    v.cap = 0;
    assert_true(OQ_PUSH(&a, &v, 7));
    assert_true(v.v != fixed);
    assert_int_equal(v.v[0] + v.v[1] + v.v[2], 18);
    void *none = NULL;
    size_t cap = 0;
    assert_false(oq_arena_grow(&a, &none, SIZE_MAX / 2 + 1, &cap, 1));
    assert_false(oq_arena_grow(&a, &none, SIZE_MAX / 8, &cap, 16));
    oq_arena_release(&a);
}

static void overruns_are_found(void **state) {
    (void)state;
#if defined(WITH_ASAN)
    oq_arena a;
    oq_arena_init(&a, oq_alloc_default());
    for (size_t n = 0; n < 70; n++) {
        uint8_t *p = oq_arena_alloc(&a, n);
        for (size_t i = 0; i < n; i++)
            assert_false(__asan_address_is_poisoned(p + i));
        assert_true(__asan_address_is_poisoned(p + n));
        assert_true(__asan_address_is_poisoned(a.next));
    }
    uint8_t *big = oq_arena_alloc(&a, 1000001);
    assert_false(__asan_address_is_poisoned(big + 1000000));
    assert_true(__asan_address_is_poisoned(big + 1000001));
    oq_arena_release(&a);
#else
    skip();
#endif
}

static onq_code use_arena(const onq_allocator *alloc, void *ctx, onq_error *err) {
    (void)ctx;
    oq_arena a;
    oq_arena_init(&a, alloc);
    OQ_VEC(int) v = {0};
    bool ok = true;
    for (int i = 0; i < 60 && ok; i++)
        ok = OQ_PUSH(&a, &v, i) && oq_arena_alloc(&a, (size_t)i * 6000) != NULL;
    oq_arena_release(&a);
    if (ok)
        return ONQ_OK;
    err->code = ONQ_E_NOMEM;
    strcpy(err->text, "out of memory");
    return ONQ_E_NOMEM;
}

static void sweep(void **state) {
    (void)state;
    assert_true(flaky_sweep(use_arena, NULL) > 10);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arithmetic_is_checked), cmocka_unit_test(default_allocator),
        cmocka_unit_test(pieces_are_apart),      cmocka_unit_test(few_blocks),
        cmocka_unit_test(limits_and_overflow),   cmocka_unit_test(strdup_and_vectors),
        cmocka_unit_test(overruns_are_found),    cmocka_unit_test(sweep),
    };
    return cmocka_run_group_tests_name("arena", tests, NULL, NULL);
}
