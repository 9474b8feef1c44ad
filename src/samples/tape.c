/*
 * tape.c — see tape.h.
 */
#include "samples/tape.h"

#include <inttypes.h>

/* Where samples need not be kept, these many bytes of the last ones are, and two at least: two
 * sources that take turns look at the same one. Fewer where it costs little to begin again. */
#define WINDOW_BYTES ((uint64_t)64 << 20)
#define SMALL_WINDOW ((uint64_t)2 << 20)
#define MIN_WINDOW   2

typedef struct kept {
    oq_arena arena;
    oq_named_list list;
} kept;

struct oq_tape {
    onq_env *env;
    oq_feed *feed;
    kept **v; /* samples first .. next */
    size_t cap;
    uint64_t first, next;
    uint64_t bytes, limit;
    bool once;  /* none must be kept */
    bool lost;  /* one that might be asked for was not kept */
    bool ended; /* the feed has no more after `next` */
    uint64_t count;
    onq_error failed; /* code not 0: what the feed ended with */
};

onq_code oq_tape_new(onq_env *env, oq_feed *feed, uint64_t memory, oq_tape **out, onq_error *err) {
    oq_tape *t = oq_calloc(&env->alloc, 1, sizeof *t);
    *out = t;
    if (t == NULL) {
        feed->close(feed);
        return oq_fail_nomem(err);
    }
    *t = (oq_tape){.env = env, .feed = feed, .limit = memory, .count = feed->count};
    return ONQ_OK;
}

static void free_kept(oq_tape *t, kept *k) {
    assert(k->arena.used <= t->bytes);
    t->bytes -= k->arena.used;
    oq_arena_release(&k->arena);
    oq_free(&t->env->alloc, k, sizeof *k);
}

static void drop_first(oq_tape *t, uint64_t n) {
    assert(n <= t->next - t->first);
    const size_t left = (size_t)(t->next - t->first - n);
    if (n == 0)
        return;
    for (uint64_t i = 0; i < n; i++)
        free_kept(t, t->v[i]);
    memmove(t->v, t->v + n, left * sizeof *t->v);
    t->first += n;
}

void oq_tape_free(oq_tape *t) {
    if (t == NULL)
        return;
    drop_first(t, t->next - t->first);
    oq_free(&t->env->alloc, t->v, t->cap * sizeof *t->v);
    t->feed->close(t->feed);
    oq_free(&t->env->alloc, t, sizeof *t);
}

/* Lets go of what need not or cannot be kept. */
static void trim(oq_tape *t) {
    const bool needed = !t->once && (t->feed->rewind == NULL || t->feed->costly) && !t->lost;
    if (needed && t->bytes <= t->limit)
        return;
    t->lost |= needed;
    const bool cheap = t->feed->rewind != NULL && !t->feed->costly;
    const uint64_t most = cheap ? SMALL_WINDOW : WINDOW_BYTES;
    const uint64_t window = t->limit < most ? t->limit : most;
    uint64_t n = 0, bytes = t->bytes;
    while (t->next - t->first - n > MIN_WINDOW && bytes > window)
        bytes -= t->v[n++]->arena.used;
    drop_first(t, n);
}

static bool make_room(oq_tape *t) {
    const size_t n = (size_t)(t->next - t->first);
    if (n < t->cap)
        return true;
    const size_t cap = t->cap == 0 ? 16 : t->cap * 2;
    kept **v = oq_resize(&t->env->alloc, t->v, t->cap * sizeof *v, cap * sizeof *v);
    if (v == NULL)
        return false;
    t->v = v;
    t->cap = cap;
    return true;
}

/* One more sample from the feed. */
static onq_code pull(oq_tape *t, onq_error *err) {
    bool more = false;
    kept *k = make_room(t) ? oq_calloc(&t->env->alloc, 1, sizeof *k) : NULL;
    OQ_TRY_ALLOC(k != NULL, err);
    oq_arena_init(&k->arena, &t->env->alloc);
    const onq_code rc = t->feed->next(t->feed, t->next, &k->arena, &k->list, &more, err);
    t->bytes += k->arena.used;
    if (rc != ONQ_OK || !more) {
        free_kept(t, k);
        t->ended = rc == ONQ_OK;
        t->count = t->ended ? t->next : t->count;
        return rc;
    }
    assert(t->next - t->first < t->cap);
    t->v[t->next - t->first] = k;
    t->next++;
    trim(t);
    return ONQ_OK;
}

static onq_code begin_again(oq_tape *t, onq_error *err) {
    if (t->feed->rewind == NULL)
        return oq_fail(err, ONQ_E_LIMIT,
                       "%s: the samples are needed a second time, and more than %" PRIu64
                       " MB of them cannot be kept (raise --memory, give fewer with --limit, or "
                       "samples that can be read again)",
                       t->feed->text, t->limit >> 20);
    drop_first(t, t->next - t->first);
    OQ_TRY(t->feed->rewind(t->feed, err));
    t->first = t->next = 0;
    t->ended = false;
    return ONQ_OK;
}

static onq_code reach(oq_tape *t, uint64_t k, onq_error *err) {
    if (k < t->first)
        OQ_TRY(begin_again(t, err));
    while (k >= t->next && !t->ended)
        OQ_TRY(pull(t, err));
    return ONQ_OK;
}

onq_code oq_tape_get(oq_tape *t, uint64_t k, const oq_named_list **out, onq_error *err) {
    *out = NULL;
    if (t->failed.code == ONQ_OK && reach(t, k, &t->failed) == ONQ_OK) {
        assert(k >= t->first);
        *out = k < t->next ? &t->v[k - t->first]->list : NULL;
        return ONQ_OK;
    }
    const onq_code rc = t->failed.code;
    oq_error_give(err, rc, &t->failed);
    if (rc == ONQ_E_NOMEM)
        oq_error_clear(&t->failed); /* what is short now may not be later */
    return rc;
}

void oq_tape_read_once(oq_tape *t) {
    t->once = true;
}

const char *oq_tape_text(const oq_tape *t) {
    return t->feed->text;
}

const oq_feed *oq_tape_feed(const oq_tape *t) {
    return t->feed;
}

uint64_t oq_tape_count(const oq_tape *t) {
    return t->count;
}
