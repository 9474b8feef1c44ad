/*
 * flaky_alloc.c — see flaky_alloc.h.
 */
#include "flaky_alloc.h"

#include "testing.h"

#include <stdint.h>
#include <stdlib.h>

/* Stands before each block. */
struct head {
    size_t size;
    size_t mark;
};

static const size_t mark_of_ours = 0x6f6e715f616c6c6f;

static void note_live(flaky *f, size_t more) {
    const size_t now = atomic_fetch_add(&f->live, more) + more;
    size_t peak = atomic_load(&f->peak);
    while (now > peak && !atomic_compare_exchange_weak(&f->peak, &peak, now)) {
    }
}

static bool refuses(flaky *f) {
    atomic_fetch_add(&f->n_calls, 1);
    if (f->stays && atomic_load(&f->failed))
        return true;
    if (atomic_load(&f->left) < 0 || atomic_fetch_sub(&f->left, 1) != 0)
        return false;
    atomic_store(&f->failed, true);
    return true;
}

static void *flaky_resize(void *ctx, void *p, size_t old_size, size_t new_size) {
    flaky *f = ctx;
    struct head *old = NULL;
    if (p != NULL) {
        old = (struct head *)p - 1;
        assert_int_equal(old->mark, mark_of_ours);
        assert_int_equal(old->size, old_size);
    } else {
        assert_int_equal(old_size, 0);
    }
    if (new_size == 0) {
        assert_non_null(old);
        atomic_fetch_sub(&f->live, old_size);
        old->mark = 0;
        free(old);
        return NULL;
    }
    if (refuses(f) || new_size > SIZE_MAX - sizeof *old)
        return NULL;
    struct head *h = realloc(old, sizeof *h + new_size);
    assert_non_null(h);
    *h = (struct head){new_size, mark_of_ours};
    if (new_size >= old_size)
        note_live(f, new_size - old_size);
    else
        atomic_fetch_sub(&f->live, old_size - new_size);
    return h + 1;
}

void flaky_init(flaky *f, long left) {
    *f = (flaky){.alloc = {flaky_resize, f}};
    atomic_init(&f->left, left);
}

void flaky_give(const onq_allocator *a, const void *p, size_t n) {
    if (a->resize != flaky_resize)
        return;
    flaky *f = a->ctx;
    const uint8_t *bytes = p;
    for (size_t i = 0; i < n; i++)
        f->given = (f->given ^ bytes[i]) * 0x100000001b3u; /* FNV-1a */
    f->given = (f->given ^ n) * 0x100000001b3u;
    f->n_given++;
}

void flaky_calm(const onq_allocator *a) {
    if (a->resize != flaky_resize)
        return;
    flaky *f = a->ctx;
    f->stays = false;
    atomic_store(&f->left, -1);
}

/* One run; true if no request failed in it. `wanted` is what it gives when it ends well; a run
 * with n below 0 sets it. */
static bool run_once(flaky_body *body, void *ctx, long n, bool stays, size_t *n_calls,
                     uint64_t *wanted) {
    flaky f;
    flaky_init(&f, n);
    f.stays = stays;
    onq_error err = ONQ_ERROR_INIT;
    const onq_code rc = body(&f.alloc, ctx, &err);
    if (!atomic_load(&f.failed)) {
        if (rc != ONQ_OK)
            fail_msg("with all the memory it wants: %s", err.text);
    } else if (rc != ONQ_OK && rc != ONQ_E_NOMEM) {
        fail_msg("request %ld failed: not out of memory but '%s' (%d)", n, err.text, (int)rc);
    } else if (rc == ONQ_E_NOMEM && (err.code != rc || err.text[0] == '\0')) {
        fail_msg("request %ld failed: out of memory, but no message", n);
    }
    if (atomic_load(&f.live) != 0)
        fail_msg("request %ld failed: %zu bytes leaked", n, atomic_load(&f.live));
    if (n < 0)
        *wanted = f.given;
    else if (rc == ONQ_OK && f.given != *wanted)
        fail_msg("request %ld failed: success, but with another result", n);
    else if (rc == ONQ_OK && atomic_load(&f.failed) && f.n_given == 0)
        fail_msg("request %ld failed: success, but no result is shown to compare", n);
    *n_calls = atomic_load(&f.n_calls);
    return !atomic_load(&f.failed);
}

size_t flaky_sweep(flaky_body *body, void *ctx) {
    size_t n_calls = 0;
    uint64_t wanted = 0;
    run_once(body, ctx, -1, false, &n_calls, &wanted);
    for (int stays = 0; stays < 2; stays++) {
        for (long n = 0; !run_once(body, ctx, n, stays != 0, &n_calls, &wanted); n++) {
        }
    }
    return n_calls;
}
