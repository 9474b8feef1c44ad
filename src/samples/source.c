/*
 * source.c — reading samples ahead of the caller. source_open.c finds what --data means.
 *
 * A thread of the source's own fills a ring of slots in order; the caller takes them in order. Each
 * slot has an arena of its own, which is emptied when the slot is filled again, so memory is a few
 * samples whatever their number. An error is delivered where its sample would have come.
 */
#include "samples/source_private.h"

#include <inttypes.h>
#include <pthread.h>

/* The caller holds one slot, the others are ahead of it. */
#define SLOTS 4
/* Reading ahead pauses while what is ready has this many bytes. */
#define AHEAD_BYTES (64u << 20)
#define MAX_SAMPLE  (4ull << 30)

typedef struct slot {
    oq_arena arena;
    oq_sample sample;
    oq_datum *inputs;
    onq_code code;
    onq_error error;
    size_t bytes;
    oq_look look;
} slot;

struct oq_source {
    onq_env *env;
    oq_arena arena;
    const char *where; /* for messages: --data, or the model */
    oq_reader *reader;
    oq_ios inputs;
    oq_source_options o;  /* as it was opened */
    uint64_t count;       /* samples of one pass */
    uint64_t share, step; /* sample k of a pass is number share + k x step of those not held out */
    uint64_t hold_out;
    const uint64_t *numbers; /* of the samples that it has, or NULL */
    uint64_t total;          /* with the limit applied, before the share */
    bool guessed;            /* count is the most there can be */
    oq_tape *tape;           /* or NULL */
    slot slots[SLOTS];
    uint64_t taken; /* samples given to the caller in this pass */
    bool watches;
    oq_overview watch;
    bool keeps_names;
    oq_arena names_arena; /* `arena` is the reader's while it reads */
    OQ_VEC(const char *) names;
    /* Under the lock: */
    pthread_mutex_t lock;
    pthread_cond_t wake_reader, wake_caller;
    uint64_t read; /* samples read in this pass; slots taken .. read are full */
    uint64_t ready_bytes;
    bool stop;    /* the thread should end */
    bool running; /* the thread is there */
    pthread_t thread;
};

/* ---- one sample ---- */

/* Bools that are neither 0 nor 1 would be undefined in the runtime. */
static onq_code tidy_bools(oq_arena *a, oq_datum *d, onq_error *err) {
    const uint8_t *p = d->data;
    if (d->kind != OQ_DATUM_TENSOR || d->dtype != OQ_BOOL)
        return ONQ_OK;
    uint8_t *copy = NULL;
    for (uint64_t i = 0; i < d->size_bytes; i++) {
        if (p[i] <= 1)
            continue;
        if (copy == NULL) {
            copy = oq_arena_alloc(a, d->size_bytes);
            OQ_TRY_ALLOC(copy != NULL, err);
            memcpy(copy, p, d->size_bytes);
            d->data = copy;
        }
        copy[i] = 1;
    }
    return ONQ_OK;
}

static onq_code read_checked(oq_source *s, uint64_t number, slot *t, onq_error *err) {
    oq_arena_release(&t->arena);
    oq_arena_init(&t->arena, &s->env->alloc);
    t->inputs = OQ_NEW_ARRAY(&t->arena, oq_datum, s->inputs.n + 1);
    OQ_TRY_ALLOC(t->inputs != NULL, err);
    const char *name = NULL;
    onq_code rc = s->reader->read(s->reader, number, &t->arena, t->inputs, &name, err);
    for (size_t i = 0; rc == ONQ_OK && !s->reader->ended && i < s->inputs.n; i++) {
        rc = oq_input_check(&s->o, &t->inputs[i], &s->inputs, i, &s->env->alloc, err);
        if (rc == ONQ_OK)
            rc = tidy_bools(&t->arena, &t->inputs[i], err);
    }
    if (rc == ONQ_OK && s->watches && !s->reader->ended)
        oq_look_make(&t->look, t->inputs, s->inputs.n);
    t->bytes = t->arena.used;
    t->sample = (oq_sample){.number = number,
                            .name = name,
                            .inputs = t->inputs,
                            .n_inputs = s->inputs.n,
                            .sequence = number,
                            .last = true};
    if (s->reader->sequences || s->reader->tape) {
        t->sample.number = s->reader->place.number;
        t->sample.sequence = s->reader->place.sequence;
        t->sample.step = s->reader->place.step;
        t->sample.last = s->reader->place.last;
        t->sample.generated = s->reader->place.generated;
    }
    if (rc == ONQ_OK)
        return ONQ_OK;
    if (name == NULL)
        return oq_error_in(err, rc, "%s: sample %" PRIu64, s->where, number);
    return oq_error_in(err, rc, "%s: sample '%s'", s->where, name);
}

uint64_t oq_source_number(const oq_source *s, uint64_t k) {
    const uint64_t at = s->share + k * s->step;
    if (s->numbers != NULL)
        return s->numbers[at];
    return s->hold_out > 1 ? at + at / (s->hold_out - 1) : at;
}

static void fill(oq_source *s, uint64_t k) {
    assert(k < s->count);
    slot *t = &s->slots[k % SLOTS];
    oq_error_clear(&t->error);
    t->code = read_checked(s, oq_source_number(s, k), t, &t->error);
}

/* ---- the thread ---- */

static void *read_ahead(void *ctx) {
    oq_source *s = ctx;
    pthread_mutex_lock(&s->lock);
    for (;;) {
        /* The caller still looks at slot taken - 1. */
        while (!s->stop && s->read < s->count &&
               (s->read - s->taken >= SLOTS - 1 ||
                (s->read > s->taken && s->ready_bytes >= AHEAD_BYTES)))
            pthread_cond_wait(&s->wake_reader, &s->lock);
        if (s->stop || s->read >= s->count)
            break;
        const uint64_t k = s->read;
        pthread_mutex_unlock(&s->lock);
        fill(s, k);
        pthread_mutex_lock(&s->lock);
        assert(k == s->read && s->read - s->taken < SLOTS);
        s->ready_bytes += s->slots[k % SLOTS].bytes;
        s->read++;
        pthread_cond_signal(&s->wake_caller);
        if (s->slots[k % SLOTS].code != ONQ_OK)
            break;
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

static void stop_thread(oq_source *s) {
    if (!s->running)
        return;
    pthread_mutex_lock(&s->lock);
    s->stop = true;
    pthread_cond_signal(&s->wake_reader);
    pthread_mutex_unlock(&s->lock);
    pthread_join(s->thread, NULL);
    s->running = false;
    s->stop = false;
}

static void start_thread(oq_source *s) {
    assert(!s->running && !s->stop);
    s->read = s->taken;
    s->ready_bytes = 0;
    if (s->taken < s->count && !s->reader->tape)
        s->running = pthread_create(&s->thread, NULL, read_ahead, s) == 0;
}

/* ---- the interface ---- */

uint64_t oq_source_count(const oq_source *s) {
    return s->guessed ? 0 : s->count;
}

bool oq_source_is_empty(const oq_source *s) {
    return s->total == 0;
}

void oq_source_read_once(oq_source *s) {
    if (s->tape != NULL)
        oq_tape_read_once(s->tape);
}

/* There is no sample k of the pass; an error where there is none at all. */
static onq_code end_at(oq_source *s, uint64_t k, onq_error *err) {
    assert(k <= s->count);
    if (k == 0 && s->share == 0 && !s->reader->any)
        s->total = 0;
    s->count = k;
    s->guessed = false;
    return s->total > 0 ? ONQ_OK : oq_fail(err, ONQ_E_INVALID, "%s: no samples in it", s->where);
}

onq_code oq_source_measure(oq_source *s, onq_error *err) {
    const oq_named_list *list = NULL;
    for (uint64_t k = s->taken; s->guessed; k++) {
        if (k < s->count)
            OQ_TRY(oq_reader_find(s->reader, s->tape, oq_source_number(s, k), &list, err));
        if (k >= s->count || list == NULL)
            OQ_TRY(end_at(s, k, err));
    }
    return ONQ_OK;
}

const char *oq_source_text(const oq_source *s) {
    return s->reader->text;
}

bool oq_source_is_random(const oq_source *s) {
    return s->reader->random;
}

bool oq_source_has_sequences(const oq_source *s) {
    return s->reader->sequences;
}

bool oq_source_has_images(const oq_source *s) {
    return s->reader->images;
}

const char *oq_source_about(const oq_source *s) {
    return s->reader->about;
}

const oq_overview *oq_source_overview(const oq_source *s) {
    return s->watches ? &s->watch : NULL;
}

void oq_source_keep_names(oq_source *s) {
    s->keeps_names = true;
}

const char *const *oq_source_names(const oq_source *s, size_t *n) {
    *n = s->names.n;
    return s->names.v;
}

/* One that does not fit in memory is left out: a report can do without. */
static void keep_name(oq_source *s, uint64_t k, const char *name) {
    if (!s->keeps_names || name == NULL || k != s->names.n || k >= OQ_NAMES_KEPT)
        return;
    const char *copy = oq_arena_strdup(&s->names_arena, name, strlen(name));
    if (copy != NULL)
        (void)OQ_PUSH(&s->names_arena, &s->names, copy);
}

static onq_code deliver(oq_source *s, uint64_t k, const oq_sample **out, onq_error *err) {
    const slot *t = &s->slots[k % SLOTS];
    if (t->code == ONQ_OK) {
        keep_name(s, k, t->sample.name);
        if (s->watches && k == s->watch.samples)
            oq_overview_add(&s->watch, &t->look);
        *out = &t->sample;
        return ONQ_OK;
    }
    return oq_error_give(err, t->code, &t->error);
}

/* Waits until the thread has read sample k. */
static void wait_for(oq_source *s, uint64_t k) {
    assert(s->running && k < s->count);
    while (s->read <= k)
        pthread_cond_wait(&s->wake_caller, &s->lock);
}

onq_code oq_source_next(oq_source *s, const oq_sample **out, onq_error *err) {
    *out = NULL;
    if (s->taken >= s->count) {
        s->guessed = false; /* there were as many as there can be */
        return ONQ_OK;
    }
    const uint64_t k = s->taken;
    if (!s->running) {
        /* No thread, none could be made, or it ended at an error that was already delivered. */
        fill(s, k);
        if (s->reader->ended) {
            s->reader->ended = false;
            return end_at(s, k, err);
        }
        s->taken++;
        return deliver(s, k, out, err);
    }
    pthread_mutex_lock(&s->lock);
    wait_for(s, k);
    assert(s->taken == k && s->ready_bytes >= s->slots[k % SLOTS].bytes);
    s->ready_bytes -= s->slots[k % SLOTS].bytes;
    s->taken++;
    pthread_cond_signal(&s->wake_reader);
    pthread_mutex_unlock(&s->lock);
    onq_code rc = deliver(s, k, out, err);
    if (rc != ONQ_OK)
        stop_thread(s);
    return rc;
}

onq_code oq_sample_copy(oq_arena *a, const oq_sample *s, oq_sample *out, onq_error *err) {
    oq_datum *inputs = NULL;
    OQ_TRY(oq_datums_copy(a, s->inputs, s->n_inputs, &inputs, err));
    *out = *s;
    out->inputs = inputs;
    out->name = oq_arena_strdup(a, s->name, strlen(s->name));
    return out->name != NULL ? ONQ_OK : oq_fail_nomem(err);
}

const oq_sample *oq_source_peek(oq_source *s, uint64_t k) {
    if (k >= s->count || oq_source_seek(s, k, NULL) != ONQ_OK)
        return NULL;
    bool ended = false;
    if (s->running) {
        pthread_mutex_lock(&s->lock);
        wait_for(s, k);
        pthread_mutex_unlock(&s->lock);
    } else { /* oq_source_next reads it again: a tape still has it */
        fill(s, k);
        ended = s->reader->ended;
        s->reader->ended = false;
    }
    const slot *t = &s->slots[k % SLOTS];
    return t->code == ONQ_OK && !ended ? &t->sample : NULL;
}

onq_code oq_source_seek(oq_source *s, uint64_t k, onq_error *err) {
    if (k > s->count)
        return oq_fail(err, ONQ_E_INVALID, "sample %" PRIu64 " of %" PRIu64, k, s->count);
    if (s->running && s->taken == k) /* what was read ahead is what is wanted */
        return ONQ_OK;
    stop_thread(s);
    s->taken = k;
    start_thread(s);
    return ONQ_OK;
}

void oq_source_close(oq_source *s) {
    if (s == NULL)
        return;
    stop_thread(s);
    if (s->reader != NULL && s->reader->close != NULL)
        s->reader->close(s->reader);
    for (size_t i = 0; i < SLOTS; i++)
        oq_arena_release(&s->slots[i].arena);
    pthread_mutex_destroy(&s->lock);
    pthread_cond_destroy(&s->wake_reader);
    pthread_cond_destroy(&s->wake_caller);
    const onq_allocator *alloc = &s->env->alloc;
    oq_arena_release(&s->names_arena);
    oq_arena_release(&s->arena);
    oq_free(alloc, s, sizeof *s);
}

/* ---- opening ---- */

static oq_source *new_source(onq_env *env) {
    oq_source *s = oq_calloc(&env->alloc, 1, sizeof *s);
    if (s == NULL)
        return NULL;
    s->env = env;
    oq_arena_init(&s->arena, &env->alloc);
    oq_arena_init(&s->names_arena, &env->alloc);
    for (size_t i = 0; i < SLOTS; i++)
        oq_arena_init(&s->slots[i].arena, &env->alloc);
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->wake_reader, NULL);
    pthread_cond_init(&s->wake_caller, NULL);
    return s;
}

/* A list of samples that the source's job has seen in it before. */
static onq_code take_numbers(oq_source *s, const oq_source_options *o, onq_error *err) {
    uint64_t *copy = OQ_NEW_ARRAY(&s->arena, uint64_t, o->n_numbers + 1);
    OQ_TRY_ALLOC(copy != NULL, err);
    for (size_t i = 0; i < o->n_numbers; i++) {
        copy[i] = o->numbers[i];
        if (copy[i] >= s->reader->count)
            return oq_fail(err, ONQ_E_INVALID, "%s: there is no sample %" PRIu64, s->where,
                           copy[i]);
    }
    s->numbers = copy;
    s->total = o->n_numbers;
    return ONQ_OK;
}

static onq_code set_counts(oq_source *s, const oq_source_options *o, onq_error *err) {
    s->total = s->reader->count;
    if (o->numbers != NULL)
        OQ_TRY(take_numbers(s, o, err));
    if (s->reader->sequences && s->reader->tape &&
        o->numbers == NULL) { /* the reader counts sequences itself */
        s->step = 1;
        s->count = s->total;
        s->guessed = s->total == UINT64_MAX;
        return s->total > 0 ? ONQ_OK
                            : oq_fail(err, ONQ_E_INVALID, "%s: no samples in it", s->where);
    }
    if (o->limit != 0 && o->limit < s->total)
        s->total = o->limit;
    if (s->total == 0)
        return oq_fail(err, ONQ_E_INVALID, "%s: no samples in it", o->spec != NULL ? o->spec : "");
    s->step = o->n_shares != 0 ? o->n_shares : 1;
    s->share = o->n_shares != 0 ? o->share : 0;
    if (s->share >= s->step)
        return oq_fail(err, ONQ_E_OPTION, "share %" PRIu64 " of %" PRIu64, s->share, s->step);
    s->hold_out = s->numbers == NULL ? o->hold_out : 0;
    const uint64_t left = s->total - (s->hold_out > 1 ? s->total / s->hold_out : 0);
    s->count = s->share < left ? (left - s->share - 1) / s->step + 1 : 0;
    s->guessed = s->numbers == NULL && s->reader->tape && s->reader->count == UINT64_MAX;
    return ONQ_OK;
}

static onq_code read_inputs(oq_source *s, const oq_source_options *o, onq_error *err) {
    const char *where = o->tape != NULL   ? oq_tape_text(o->tape)
                        : o->spec != NULL ? o->spec
                                          : o->model->path;
    s->where = oq_arena_strdup(&s->arena, where, strlen(where));
    OQ_TRY_ALLOC(s->where != NULL, err);
    OQ_TRY(oq_model_inputs(o->model, &s->arena, &s->inputs, err));
    s->o = *o;
    if (o->may_lack != NULL) {
        bool *copy = OQ_NEW_ARRAY(&s->arena, bool, s->inputs.n + 1);
        OQ_TRY_ALLOC(copy != NULL, err);
        memcpy(copy, o->may_lack, s->inputs.n * sizeof *copy);
        s->o.may_lack = copy;
    }
    return oq_ios_fix_dims(&s->arena, &s->inputs, o->dims, o->n_dims, err);
}

onq_code oq_source_open(onq_env *env, const oq_source_options *o, oq_source **out, onq_error *err) {
    *out = NULL;
    oq_source *s = new_source(env);
    OQ_TRY_ALLOC(s != NULL, err);
    onq_code rc = read_inputs(s, o, err);
    if (rc == ONQ_OK) {
        const oq_reader_setup setup = {.env = env,
                                       .arena = &s->arena,
                                       .inputs = s->inputs,
                                       .o = &s->o,
                                       .most_bytes = MAX_SAMPLE};
        s->tape = o->tape;
        s->reader = o->reader;
        if (o->tape != NULL)
            rc = oq_reader_open_tape(&setup, &s->reader, err);
        else if (o->reader == NULL)
            rc = oq_reader_open(&setup, &s->reader, err);
    }
    if (rc == ONQ_OK)
        rc = set_counts(s, o, err);
    s->watches = o->watch;
    oq_overview_init(&s->watch, s->inputs.n);
    if (rc != ONQ_OK) {
        if (s->reader == o->reader)
            s->reader = NULL; /* stays the caller's */
        oq_source_close(s);
        return rc;
    }
    start_thread(s);
    *out = s;
    return ONQ_OK;
}
