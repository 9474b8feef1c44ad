/*
 * test_pool.c — the pool: everything runs once, order where promised, the same error whatever the
 * timing.
 */
#include "base/pool.h"

#include "flaky_alloc.h"
#include "no_threads.h"
#include "testing.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static const unsigned thread_counts[] = {1, 2, 3, 8};

static onq_env *env_of(unsigned n_threads) {
    onq_env *env = onq_env_new(NULL);
    assert_non_null(env);
    onq_env_set_threads(env, n_threads);
    return env;
}

/* Now and then a task takes longer, so that the order of ends differs from that of starts. */
static void dawdle(size_t i) {
    if (i % 7 == 3) {
        const struct timespec t = {0, 200000};
        nanosleep(&t, NULL);
    } else if (i % 3 == 0) {
        sched_yield();
    }
}

struct sums {
    size_t n;
    uint64_t *squares;
    atomic_size_t *per_worker;
    unsigned workers;
};

static onq_code square(void *ctx, size_t i, unsigned worker, onq_error *err) {
    (void)err;
    struct sums *s = ctx;
    if (i >= s->n || worker >= s->workers)
        return oq_fail(err, ONQ_E_INTERNAL, "out of range");
    s->squares[i] += i * i + 1; /* twice would show */
    atomic_fetch_add(&s->per_worker[worker], 1);
    dawdle(i);
    return ONQ_OK;
}

static void each_once(void **state) {
    (void)state;
    static const size_t counts[] = {0, 1, 2, 5, 1000};
    for (size_t t = 0; t < OQ_COUNT(thread_counts); t++) {
        onq_env *env = env_of(thread_counts[t]);
        onq_error err = ONQ_ERROR_INIT;
        oq_pool *p = NULL;
        assert_ok(oq_pool_new(env, &p, &err), err);
        assert_int_equal(oq_pool_workers(p), thread_counts[t]);
        for (size_t c = 0; c < OQ_COUNT(counts); c++) {
            const size_t n = counts[c];
            uint64_t squares[1000] = {0};
            atomic_size_t per_worker[8] = {0};
            struct sums s = {n, squares, per_worker, thread_counts[t]};
            assert_ok(oq_pool_run(p, n, square, &s, &err), err);
            size_t total = 0;
            for (size_t i = 0; i < n; i++)
                assert_int_equal(squares[i], i * i + 1);
            for (unsigned w = 0; w < 8; w++)
                total += per_worker[w];
            assert_int_equal(total, n);
        }
        oq_pool_free(p);
        onq_env_free(env);
    }
    oq_pool_free(NULL);
}

struct failing {
    size_t n;
    const bool *bad;
    atomic_size_t ran;
};

static onq_code may_fail(void *ctx, size_t i, unsigned worker, onq_error *err) {
    (void)worker;
    struct failing *f = ctx;
    atomic_fetch_add(&f->ran, 1);
    dawdle(i * 5 + 3);
    if (f->bad[i])
        return oq_fail_at(err, ONQ_E_INVALID, i, "task %zu", i);
    return ONQ_OK;
}

static void lowest_failure_wins(void **state) {
    (void)state;
    uint64_t rng = 1;
    for (size_t t = 0; t < OQ_COUNT(thread_counts); t++) {
        onq_env *env = env_of(thread_counts[t]);
        onq_error err = ONQ_ERROR_INIT;
        oq_pool *p = NULL;
        assert_ok(oq_pool_new(env, &p, &err), err);
        for (int round = 0; round < 60; round++) {
            enum { N = 40 };
            bool bad[N] = {false};
            size_t lowest = N;
            for (size_t i = 0; i < N; i++) {
                rng = rng * 6364136223846793005u + 1442695040888963407u;
                bad[i] = (rng >> 40) % 12 == 0;
                if (bad[i] && lowest == N)
                    lowest = i;
            }
            struct failing f = {N, bad, 0};
            oq_error_clear(&err);
            const onq_code rc = oq_pool_run(p, N, may_fail, &f, &err);
            if (lowest == N) {
                assert_ok(rc, err);
            } else {
                char text[64];
                snprintf(text, sizeof text, "task %zu (at byte %zu)", lowest, lowest);
                assert_int_equal(rc, ONQ_E_INVALID);
                assert_string_equal(err.text, text);
                assert_int_equal(err.offset, lowest);
                /* What was not begun is not begun any more. */
                if (thread_counts[t] == 1)
                    assert_int_equal(f.ran, lowest + 1);
            }
            /* No message wanted. */
            struct failing again = {N, bad, 0};
            assert_int_equal(oq_pool_run(p, N, may_fail, &again, NULL), rc);
        }
        oq_pool_free(p);
        onq_env_free(env);
    }
}

/* ---- the pipeline ---- */

struct line {
    size_t n, window;
    uint64_t *slots;     /* window of them */
    atomic_size_t taken; /* takes that have ended */
    atomic_size_t wrong; /* broken promises */
    size_t next_take;    /* only the caller's thread */
    size_t bad_make, bad_take;
    atomic_size_t n_made;
};

static onq_code make(void *ctx, size_t i, unsigned worker, onq_error *err) {
    (void)worker;
    struct line *l = ctx;
    /* take(i - window) has ended, so the slot is free. */
    if (i >= atomic_load(&l->taken) + l->window)
        atomic_fetch_add(&l->wrong, 1);
    atomic_fetch_add(&l->n_made, 1);
    dawdle(i);
    if (i == l->bad_make)
        return oq_fail(err, ONQ_E_NOMEM, "make %zu", i);
    l->slots[i % l->window] = i * 3 + 1;
    return ONQ_OK;
}

static onq_code take(void *ctx, size_t i, unsigned worker, onq_error *err) {
    struct line *l = ctx;
    if (worker != 0 || i != l->next_take++ || l->slots[i % l->window] != i * 3 + 1)
        atomic_fetch_add(&l->wrong, 1);
    if (i == l->bad_take)
        return oq_fail(err, ONQ_E_WRITE, "take %zu", i);
    dawdle(i + 2);
    l->slots[i % l->window] = 0;
    atomic_fetch_add(&l->taken, 1);
    return ONQ_OK;
}

static void run_line(oq_pool *p, struct line *l, onq_code wanted, const char *text) {
    onq_error err = ONQ_ERROR_INIT;
    uint64_t slots[64] = {0};
    l->slots = slots;
    const size_t window = l->window;
    if (l->window == 0)
        l->window = 1;
    const onq_code rc = oq_pool_pipeline(p, l->n, window, make, take, l, &err);
    assert_int_equal(rc, wanted);
    assert_string_equal(err.text, text);
    assert_int_equal(l->wrong, 0);
}

static void pipeline(void **state) {
    (void)state;
    static const size_t windows[] = {0, 1, 2, 5, 64};
    static const size_t counts[] = {0, 1, 2, 50, 150};
    for (size_t t = 0; t < OQ_COUNT(thread_counts); t++) {
        onq_env *env = env_of(thread_counts[t]);
        onq_error err = ONQ_ERROR_INIT;
        oq_pool *p = NULL;
        assert_ok(oq_pool_new(env, &p, &err), err);
        for (size_t w = 0; w < OQ_COUNT(windows); w++) {
            for (size_t c = 0; c < OQ_COUNT(counts); c++) {
                struct line l = {.n = counts[c],
                                 .window = windows[w],
                                 .bad_make = SIZE_MAX,
                                 .bad_take = SIZE_MAX};
                run_line(p, &l, ONQ_OK, "");
                assert_int_equal(l.next_take, counts[c]);
                assert_int_equal(l.n_made, counts[c]);
            }
            /* The error is the one of the order make 0, take 0, make 1, ... */
            struct line a = {.n = 50, .window = windows[w], .bad_make = 20, .bad_take = 19};
            run_line(p, &a, ONQ_E_WRITE, "take 19");
            struct line b = {.n = 50, .window = windows[w], .bad_make = 20, .bad_take = 20};
            run_line(p, &b, ONQ_E_NOMEM, "make 20");
            assert_int_equal(b.next_take, 20);
            struct line c = {.n = 50, .window = windows[w], .bad_make = 0, .bad_take = 0};
            run_line(p, &c, ONQ_E_NOMEM, "make 0");
            assert_int_equal(c.next_take, 0);
            struct line d = {.n = 50, .window = windows[w], .bad_make = 49, .bad_take = SIZE_MAX};
            run_line(p, &d, ONQ_E_NOMEM, "make 49");
        }
        oq_pool_free(p);
        onq_env_free(env);
    }
}

/* Makers really run beside each other and beside the taker: three sleeps at a time, not one by
 * one. */
static onq_code sleep_a_bit(void *ctx, size_t i, unsigned worker, onq_error *err) {
    (void)i;
    (void)worker;
    (void)err;
    atomic_int *now = ctx;
    atomic_fetch_add(&now[0], 1);
    const struct timespec t = {0, 2000000};
    nanosleep(&t, NULL);
    const int together = atomic_fetch_sub(&now[0], 1);
    int most = atomic_load(&now[1]);
    while (together > most && !atomic_compare_exchange_weak(&now[1], &most, together)) {
    }
    return ONQ_OK;
}

static void runs_in_parallel(void **state) {
    (void)state;
    onq_env *env = env_of(4);
    onq_error err = ONQ_ERROR_INIT;
    oq_pool *p = NULL;
    assert_ok(oq_pool_new(env, &p, &err), err);
    atomic_int now[2] = {0, 0};
    assert_ok(oq_pool_run(p, 40, sleep_a_bit, now, &err), err);
    assert_true(now[1] >= 2 && now[1] <= 4);
    now[1] = 0;
    assert_ok(oq_pool_pipeline(p, 40, 8, sleep_a_bit, sleep_a_bit, now, &err), err);
    assert_true(now[1] >= 2 && now[1] <= 5);
    oq_pool_free(p);
    onq_env_free(env);
}

static void fewer_threads(void **state) {
    (void)state;
    for (int left = 0; left < 3; left++) {
        onq_env *env = env_of(8);
        onq_error err = ONQ_ERROR_INIT;
        oq_pool *p = NULL;
        no_threads_after(left, true);
        assert_ok(oq_pool_new(env, &p, &err), err);
        no_threads(false);
        uint64_t squares[1000] = {0};
        atomic_size_t per_worker[8] = {0};
        struct sums s = {1000, squares, per_worker, 8};
        assert_ok(oq_pool_run(p, 1000, square, &s, &err), err);
        for (size_t i = 0; i < 1000; i++)
            assert_int_equal(squares[i], i * i + 1);
        struct line l = {.n = 50, .window = 5, .bad_make = SIZE_MAX, .bad_take = SIZE_MAX};
        run_line(p, &l, ONQ_OK, "");
        oq_pool_free(p);
        onq_env_free(env);
    }
}

static onq_code use_pool(const onq_allocator *a, void *ctx, onq_error *err) {
    (void)ctx;
    onq_env *env = onq_env_new(a);
    if (env == NULL)
        return oq_fail_nomem(err);
    onq_env_set_threads(env, 3);
    oq_pool *p = NULL;
    onq_code rc = oq_pool_new(env, &p, err);
    if (rc == ONQ_OK) {
        uint64_t slots[4] = {0};
        struct line l = {
            .n = 10, .window = 4, .slots = slots, .bad_make = SIZE_MAX, .bad_take = SIZE_MAX};
        rc = oq_pool_pipeline(p, l.n, l.window, make, take, &l, err);
    }
    oq_pool_free(p);
    onq_env_free(env);
    return rc;
}

static void sweep(void **state) {
    (void)state;
    assert_int_equal(flaky_sweep(use_pool, NULL), 4);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_once),     cmocka_unit_test(lowest_failure_wins),
        cmocka_unit_test(pipeline),      cmocka_unit_test(runs_in_parallel),
        cmocka_unit_test(fewer_threads), cmocka_unit_test(sweep),
    };
    return cmocka_run_group_tests_name("pool", tests, NULL, NULL);
}
