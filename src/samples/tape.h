/*
 * tape.h — samples that come one after another, for sources that want any of them.
 *
 * A *feed* gives samples in order: a function of the caller (onq_reader), or a stream of arrays
 * from a program, a pipe or a .tar file. How many there will be is not known before the end. A
 * *tape* records what a feed gives, so that several sources of one job read the same samples, and
 * one of them more than once.
 *
 * What is kept: a feed that can begin again costs nothing but a few samples. Of one that cannot,
 * all samples are kept within a limit, unless the job says that it reads them once; a job that asks
 * for a sample that could not be kept gets ONQ_E_LIMIT and the reason. An error of the feed is
 * given again to whoever asks later.
 *
 * A feed is called on the thread that asks for a sample, one call at a time.
 */
#pragma once

#include "samples/datum.h"

struct oq_source_options;

#define OQ_TENSOR_RANK 64 /* most axes of a tensor of the caller's */

/* One array of a sample. */
typedef struct oq_named {
    oq_str name;
    oq_datum datum;
} oq_named;

typedef struct oq_named_list {
    const char *name; /* of the sample, a file's for one; NULL: it has none */
    OQ_VEC(oq_named) all;
    /* Of a feed with sequences: which one it belongs to, its place in it, whether it is known to be
     * the last step, and whether its token is still to be chosen. */
    uint64_t sequence, step;
    bool last, generated;
} oq_named_list;

typedef struct oq_feed oq_feed;
struct oq_feed {
    /* The next sample into the arena; *more is false at the end. `number` is for messages. */
    onq_code (*next)(oq_feed *f, uint64_t number, oq_arena *a, oq_named_list *out, bool *more,
                     onq_error *err);
    onq_code (*rewind)(oq_feed *f, onq_error *err); /* NULL: it cannot */
    void (*close)(oq_feed *f);
    const char *text; /* what it is: "samples of the caller", "tar stream shard.tar" */
    uint64_t count;   /* when known; 0: not */
    bool sequences;   /* samples are steps */
    uint64_t each;    /* steps of every sequence, if all have as many; 0: not known */
    uint64_t begun;   /* sequences that were begun so far, ... */
    uint64_t late;    /* ... of these: whose first step brings a past */
    bool costly;      /* to begin again takes long: samples are kept as far as the limit allows */
    bool random;      /* samples are made up */
    bool images;      /* samples are made of images */
};

/* A feed from a reader of the caller, which must live as long. Copies the struct. */
onq_code oq_feed_open_reader(onq_env *env, const onq_reader *reader, oq_feed **out, onq_error *err);

/* True if --data names a stream: "-", "exec:COMMAND", a .tar file. */
bool oq_feed_is_stream(const char *spec);
/* Opens it for the inputs of a model. `like` says how arrays are read (which may be left out, an
 * axis of steps); NULL: all inputs are there. */
onq_code oq_feed_open_stream(onq_env *env, const char *spec, const oq_model *m,
                             const struct oq_source_options *like, oq_feed **out, onq_error *err);

typedef struct oq_tape oq_tape;

/* Takes the feed, also when it fails. `memory` is how many bytes of samples may be kept. */
onq_code oq_tape_new(onq_env *env, oq_feed *feed, uint64_t memory, oq_tape **out, onq_error *err);
void oq_tape_free(oq_tape *t);
/* Sample k; *out is NULL when there are not so many. Valid until the second call after it. */
onq_code oq_tape_get(oq_tape *t, uint64_t k, const oq_named_list **out, onq_error *err);
/* The samples are read once from here on: none needs to be kept. */
void oq_tape_read_once(oq_tape *t);
const char *oq_tape_text(const oq_tape *t);
/* What its feed says of its samples. */
const oq_feed *oq_tape_feed(const oq_tape *t);
uint64_t oq_tape_count(const oq_tape *t); /* 0: not known yet */
