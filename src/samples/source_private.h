/*
 * source_private.h — what the kinds of data source share.
 *
 * A reader gives sample number k as one datum per input. source.c checks what it gives, runs it on
 * a thread, applies limit and share. Readers of the five kinds are in source_*.c.
 */
#pragma once

#include "samples/source.h"

typedef struct oq_reader oq_reader;
struct oq_reader {
    /* Fills inputs[0..n) in the arena; *name is the sample's, for messages, also when it fails.
     * Called from one thread at a time. */
    onq_code (*read)(oq_reader *r, uint64_t number, oq_arena *a, oq_datum *inputs,
                     const char **name, onq_error *err);
    void (*close)(oq_reader *r);
    uint64_t count;
    const char *text;  /* what oq_source_text says */
    const char *about; /* what was done to images; or NULL */
    bool images;       /* the options for images say how samples are made */
    bool random;       /* samples are made up */
    bool tape;         /* `count` may be more than there are: `ended` says so when one is not there.
                       * Read on the caller's thread */
    bool ended;
    bool sequences; /* samples are steps: `place` is set by each read */
    bool any;       /* of a tape with sequences: there is a sample, taken or not */
    struct {
        uint64_t number, sequence, step;
        bool last, generated;
    } place;
};

/* What a reader is opened with. Everything lives as long as the source. */
typedef struct oq_reader_setup {
    onq_env *env;
    oq_arena *arena; /* for what the reader keeps; not to be used while reading */
    oq_ios inputs;   /* the model's, with --dim applied */
    const oq_source_options *o;
    uint64_t most_bytes; /* of one sample */
} oq_reader_setup;

/* Names in a folder, sorted bytewise; hidden ones left out. */
typedef struct oq_folder {
    const char *path;
    const char **v;
    size_t n;
} oq_folder;
/* True if the name ends like this, in any case. */
bool oq_name_ends(const char *name, const char *end);

onq_code oq_reader_open_sets(const oq_reader_setup *s, const oq_folder *f, oq_reader **out,
                             onq_error *err);
/* One such folder. */
onq_code oq_reader_open_set(const oq_reader_setup *s, const char *path, oq_reader **out,
                            onq_error *err);
onq_code oq_reader_open_npz(const oq_reader_setup *s, const char *const *paths, size_t n,
                            oq_reader **out, onq_error *err);
/* One file for each input; `paths` in the order of the inputs. */
onq_code oq_reader_open_npy(const oq_reader_setup *s, const char *const *paths, oq_reader **out,
                            onq_error *err);
/* The same over files that are open, of these names: one .npz file, or one .npy for each input.
 * Takes the files, also when it fails. */
onq_code oq_reader_open_arrays(const oq_reader_setup *s, bool is_npz, const char *const *names,
                               oq_file *files, oq_reader **out, onq_error *err);
onq_code oq_reader_open_images(const oq_reader_setup *s, const char *const *paths, size_t n,
                               oq_reader **out, onq_error *err);
onq_code oq_reader_open_random(const oq_reader_setup *s, uint64_t count, uint64_t seed,
                               oq_reader **out, onq_error *err);

onq_code oq_reader_open_tape(const oq_reader_setup *s, oq_reader **out, onq_error *err);
/* Sample k of a reader of a tape; *out is NULL when there are not so many. */
onq_code oq_reader_find(oq_reader *r, oq_tape *tape, uint64_t k, const oq_named_list **out,
                        onq_error *err);

/* An empty array of another type than the input's: a cache without a past, of a model that keeps it
 * in another form. */
static inline bool oq_datum_is_other_empty(const oq_datum *d, const oq_io *want) {
    return d->kind == OQ_DATUM_TENSOR && want->kind == OQ_DATUM_TENSOR && d->count == 0 &&
           d->dtype != want->dtype;
}

/* Checks that the datum fits the input. The error says what it got and what it expected
 * (source_check.c). */
onq_code oq_datum_check(const oq_datum *d, const oq_io *want, const onq_allocator *alloc,
                        onq_error *err);
/* The same for input i of a source: it may be absent, or hold steps. */
onq_code oq_input_check(const oq_source_options *o, const oq_datum *d, const oq_ios *inputs,
                        size_t i, const onq_allocator *alloc, onq_error *err);
static inline bool oq_may_lack(const oq_source_options *o, size_t i) {
    return o->may_lack != NULL && o->may_lack[i];
}
/* A folder of folders, each a sequence whose steps are the samples in it. */
onq_code oq_reader_open_sequences(const oq_reader_setup *s, const char *path,
                                  const char *const *folders, size_t n, oq_reader **out,
                                  onq_error *err);
/* Which of n parts, whose first samples have these numbers, holds sample `number`. */
size_t oq_reader_part(const uint64_t *first, size_t n, uint64_t number);
/* The reader of what --data says, or of the folder of the model where nothing is said. */
onq_code oq_reader_open(const oq_reader_setup *s, oq_reader **out, onq_error *err);
/* What samples a folder holds. */
onq_code oq_reader_open_folder(const oq_reader_setup *s, const char *path, oq_reader **out,
                               onq_error *err);
/* A declared input with --dim applied to its shape. */
onq_code oq_ios_fix_dims(oq_arena *a, oq_ios *ios, const oq_dim_fix *dims, size_t n,
                         onq_error *err);
