/* test_worst.c — of more samples than are kept the worst stay, in order, and all are counted. */
#include "debug/debug.h"

#include "testing.h"

#include <math.h>

static onq_error err;

static void add(oq_debug *d, uint64_t number, double sqnr) {
    char name[32];
    snprintf(name, sizeof name, "s%u", (unsigned)number);
    const oq_debug_sample s = {.name = name, .number = number, .sqnr = sqnr, .rows = 1};
    assert_ok(oq_debug_worst_add(d, &s, &err), err);
}

static void begin(oq_debug *d) {
    *d = (oq_debug){.env = onq_env_new(NULL)};
    assert_non_null(d->env);
    oq_arena_init(&d->arena, &d->env->alloc);
}

static void end(oq_debug *d) {
    oq_arena_release(&d->arena);
    onq_env_free(d->env);
}

static void the_worst_are_kept(void **state) {
    (void)state;
    oq_debug d;
    begin(&d);
    const uint64_t n = 5 * OQ_DEBUG_WORST;
    for (uint64_t i = 0; i < n; i++) /* 0 to n - 1 dB, in a mixed order */
        add(&d, i, (double)(i * 7 % n));
    assert_int_equal(d.worst.n, OQ_DEBUG_WORST);
    assert_int_equal(d.worst.measured, n);
    for (size_t i = 0; i < d.worst.n; i++) {
        char name[32];
        const oq_debug_sample *s = &d.worst.v[i];
        assert_true(s->sqnr == (double)i && s->number * 7 % n == i);
        snprintf(name, sizeof name, "s%u", (unsigned)s->number);
        assert_string_equal(s->name, name);
    }
    end(&d);
}

static void ties_and_nan(void **state) {
    (void)state;
    oq_debug d;
    begin(&d);
    add(&d, 0, 20);
    add(&d, 1, INFINITY);
    add(&d, 2, NAN);
    add(&d, 3, 20);
    add(&d, 4, -INFINITY);
    add(&d, 5, NAN);
    static const uint64_t order[] = {2, 5, 4, 0, 3, 1};
    for (size_t i = 0; i < OQ_COUNT(order); i++)
        assert_int_equal(d.worst.v[i].number, order[i]);
    assert_int_equal(d.worst.spread[0], 3);                   /* NaN is the least that can be */
    assert_int_equal(d.worst.spread[OQ_DEBUG_SPREAD - 1], 1); /* exact */
    assert_int_equal(d.worst.spread[20 - OQ_DEBUG_MIN_SPREAD], 2);
    end(&d);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_worst_are_kept),
        cmocka_unit_test(ties_and_nan),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
