/*
 * source_sequences.c — a folder of folders: each is a sequence, and the samples in it are its
 * steps, in their order. What the samples of a folder are is decided for each by itself.
 */
#include "samples/source_private.h"

#include <inttypes.h>

typedef struct sequences_reader {
    oq_reader base;
    oq_reader_setup setup;
    const char *const *folders;
    size_t n;
    uint64_t *first; /* number of the first step of each folder; n + 1 of them */
    size_t current;  /* the open folder; n: none */
    oq_reader *open;
    oq_arena arena; /* of it */
} sequences_reader;

static void close_folder(sequences_reader *r) {
    if (r->open != NULL)
        r->open->close(r->open);
    r->open = NULL;
    r->current = r->n;
    oq_arena_release(&r->arena);
    oq_arena_init(&r->arena, &r->setup.env->alloc);
}

static onq_code open_folder(sequences_reader *r, size_t i, onq_error *err) {
    if (r->current == i)
        return ONQ_OK;
    close_folder(r);
    oq_reader_setup setup = r->setup;
    setup.arena = &r->arena;
    OQ_TRY(oq_reader_open_folder(&setup, r->folders[i], &r->open, err));
    r->current = i;
    return ONQ_OK;
}

size_t oq_reader_part(const uint64_t *first, size_t n, uint64_t number) {
    size_t low = 0, high = n;
    while (high - low > 1) {
        const size_t mid = low + (high - low) / 2;
        if (first[mid] <= number)
            low = mid;
        else
            high = mid;
    }
    return low;
}

static onq_code read_sample(oq_reader *base, uint64_t number, oq_arena *a, oq_datum *inputs,
                            const char **name, onq_error *err) {
    sequences_reader *r = (sequences_reader *)base;
    const size_t at = oq_reader_part(r->first, r->n, number);
    const char *file = NULL;
    *name = r->folders[at];
    base->place.number = number;
    base->place.sequence = at;
    base->place.step = number - r->first[at];
    base->place.last = number + 1 == r->first[at + 1];
    OQ_TRY(open_folder(r, at, err));
    const onq_code rc = r->open->read(r->open, base->place.step, a, inputs, &file, err);
    if (file != NULL)
        *name = oq_str_format(a, "%s/%s", oq_path_last(r->folders[at]), file).p;
    return *name != NULL ? rc : oq_fail_nomem(err);
}

static void close_reader(oq_reader *base) {
    close_folder((sequences_reader *)base);
}

onq_code oq_reader_open_sequences(const oq_reader_setup *s, const char *path,
                                  const char *const *folders, size_t n, oq_reader **out,
                                  onq_error *err) {
    sequences_reader *r = OQ_NEW(s->arena, sequences_reader);
    uint64_t *first = OQ_NEW_ARRAY(s->arena, uint64_t, n + 1);
    OQ_TRY_ALLOC(r != NULL && first != NULL, err);
    *r = (sequences_reader){.base = {.read = read_sample, .close = close_reader, .sequences = true},
                            .setup = *s,
                            .folders = folders,
                            .n = n,
                            .current = n,
                            .first = first};
    oq_arena_init(&r->arena, &s->env->alloc);
    onq_code rc = ONQ_OK;
    for (size_t i = 0; i < n && rc == ONQ_OK; i++) {
        rc = open_folder(r, i, err);
        if (rc == ONQ_OK && r->open->sequences)
            rc = oq_fail(err, ONQ_E_INVALID, "%s: folders are nested too deep for sequences",
                         folders[i]);
        if (rc == ONQ_OK)
            first[i + 1] = first[i] + r->open->count;
    }
    r->base.count = first[n];
    r->base.text = oq_str_format(s->arena, "%zu sequence%s of %" PRIu64 " steps in %s", n,
                                 OQ_NOUN_S(n), first[n], path)
                       .p;
    if (rc == ONQ_OK && r->base.text == NULL)
        rc = oq_fail_nomem(err);
    close_folder(r);
    *out = &r->base;
    return rc;
}
