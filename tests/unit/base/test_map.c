/*
 * test_map.c — the text map, against a plain array.
 */
#include "base/map.h"

#include "base/err.h"
#include "flaky_alloc.h"
#include "testing.h"

#include <stdio.h>

static void random_operations(void **state) {
    (void)state;
    enum { KEYS = 700 };
    static char names[KEYS][16];
    uint32_t wanted[KEYS];
    oq_arena a;
    oq_arena_init(&a, oq_alloc_default());
    oq_map m;
    oq_map_init(&m, &a);
    for (int i = 0; i < KEYS; i++) {
        snprintf(names[i], sizeof names[i], "n%d", i);
        wanted[i] = OQ_MAP_NONE;
    }
    uint64_t rng = 12345;
    size_t count = 0;
    for (int step = 0; step < 60000; step++) {
        rng = rng * 6364136223846793005u + 1442695040888963407u;
        const size_t i = (rng >> 33) % KEYS;
        const oq_str key = oq_str_of(names[i]);
        if ((rng >> 20) % 3 == 0) {
            assert_int_equal(oq_map_remove(&m, key), wanted[i] != OQ_MAP_NONE);
            count -= wanted[i] != OQ_MAP_NONE;
            wanted[i] = OQ_MAP_NONE;
        } else {
            count += wanted[i] == OQ_MAP_NONE;
            wanted[i] = (uint32_t)step;
            assert_true(oq_map_put(&m, key, wanted[i]));
        }
        assert_int_equal(m.count, count);
        const size_t k = (rng >> 40) % KEYS;
        assert_int_equal(oq_map_find(&m, oq_str_of(names[k])), wanted[k]);
    }
    for (int i = 0; i < KEYS; i++)
        assert_int_equal(oq_map_find(&m, oq_str_of(names[i])), wanted[i]);
    /* Putting and removing does not grow it without end. */
    assert_true(m.n_slots <= 4096);
    oq_arena_release(&a);
}

static void odd_keys(void **state) {
    (void)state;
    oq_arena a;
    oq_arena_init(&a, oq_alloc_default());
    oq_map m;
    oq_map_init(&m, &a);
    assert_int_equal(oq_map_find(&m, OQ_S("x")), OQ_MAP_NONE);
    assert_false(oq_map_remove(&m, OQ_S("x")));
    assert_true(oq_map_put(&m, (oq_str){NULL, 0}, 1));
    assert_int_equal(oq_map_find(&m, OQ_S("")), 1);
    assert_true(oq_map_put(&m, (oq_str){"\0", 1}, 2));
    assert_true(oq_map_put(&m, (oq_str){"\0\0", 2}, 3));
    assert_int_equal(oq_map_find(&m, (oq_str){"\0", 1}), 2);
    assert_int_equal(oq_map_find(&m, (oq_str){"\0\0", 2}), 3);
    assert_true(oq_map_remove(&m, (oq_str){NULL, 0}));
    assert_false(oq_map_has(&m, OQ_S("")));
    /* Every length, so that all paths of the hash are taken; each prefix is a key of its own. */
    static char text[300];
    memset(text, 'k', sizeof text);
    for (size_t n = 1; n < sizeof text; n++)
        assert_true(oq_map_put(&m, (oq_str){text, n}, (uint32_t)n + 10));
    for (size_t n = 1; n < sizeof text; n++)
        assert_int_equal(oq_map_find(&m, (oq_str){text, n}), n + 10);
    oq_arena_release(&a);
}

/* Names as models have them spread well: no long chains. */
static void chains_are_short(void **state) {
    (void)state;
    oq_arena a;
    oq_arena_init(&a, oq_alloc_default());
    oq_map m;
    oq_map_init(&m, &a);
    for (uint32_t i = 0; i < 50000; i++)
        assert_true(oq_map_put(&m, oq_str_format(&a, "/layer.%u/MatMul_output_0", i), i));
    size_t longest = 0, chain = 0;
    for (size_t i = 0; i < m.n_slots; i++) {
        chain = m.slots[i].at != 0 ? chain + 1 : 0;
        longest = chain > longest ? chain : longest;
    }
    assert_true(longest < 200);
    oq_arena_release(&a);
}

/* Room that was asked for is enough, and a key keeps its first value. */
static void reserved(void **state) {
    (void)state;
    oq_arena a;
    oq_arena_init(&a, oq_alloc_default());
    oq_map m;
    oq_map_init(&m, &a);
    assert_int_equal(oq_map_find_or_put(&m, OQ_S("first"), 7), 7);
    assert_true(oq_map_reserve(&m, 5000));
    const size_t n_slots = m.n_slots;
    for (uint32_t i = 0; i < 4999; i++)
        assert_int_equal(oq_map_find_or_put(&m, oq_str_format(&a, "k%u", i), i), i);
    assert_int_equal(m.n_slots, n_slots);
    assert_int_equal(m.count, 5000);
    assert_int_equal(oq_map_find_or_put(&m, OQ_S("first"), 8), 7);
    assert_int_equal(oq_map_find(&m, OQ_S("k4998")), 4998);
    assert_true(oq_map_remove(&m, OQ_S("first")));
    assert_int_equal(oq_map_find_or_put(&m, OQ_S("first"), 9), 9);
    assert_false(oq_map_reserve(&m, SIZE_MAX));
    oq_arena_release(&a);
}

static onq_code use_map(const onq_allocator *alloc, void *ctx, onq_error *err) {
    (void)ctx;
    oq_arena a;
    oq_arena_init(&a, alloc);
    oq_map m;
    oq_map_init(&m, &a);
    onq_code rc = ONQ_OK;
    for (uint32_t i = 0; i < 3000 && rc == ONQ_OK; i++) {
        const oq_str key = oq_str_format(&a, "key%u", i);
        if (key.p == NULL || !oq_map_put(&m, key, i))
            rc = oq_fail_nomem(err);
    }
    /* What is in it stays right after a refusal. */
    for (size_t i = 0; i < m.count; i++) {
        char key[32];
        snprintf(key, sizeof key, "key%zu", i);
        assert_int_equal(oq_map_find(&m, oq_str_of(key)), i);
    }
    oq_arena_release(&a);
    return rc;
}

static void sweep(void **state) {
    (void)state;
    assert_true(flaky_sweep(use_map, NULL) > 5);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_operations),
        cmocka_unit_test(odd_keys),
        cmocka_unit_test(chains_are_short),
        cmocka_unit_test(reserved),
        cmocka_unit_test(sweep),
    };
    return cmocka_run_group_tests_name("map", tests, NULL, NULL);
}
