/*
 * source.h — samples for calibration, run, bench and debug: the meaning of --data.
 *
 * A source reads its samples one by one, ahead of the caller on a thread of its own, so that
 * reading overlaps running; it knows how many they are, unless they come from a tape. Every sample
 * is checked against the model's inputs; one that does not fit is an error that names the sample,
 * the input, what came and what was wanted.
 *
 *     oq_source *src = NULL;
 *     OQ_TRY(oq_source_open(env, &(oq_source_options){.spec = data, .model = model}, &src, err));
 *
 * oq_sweep_run (engine/sweep.h) runs them through a model.
 *
 * Kinds of source (docs/SAMPLES.md has the table): test_data_set folders, images, .npz, .npy,
 * random numbers; and a tape (tape.h), which holds what a reader of the caller, a program or a .tar
 * gives.
 */
#pragma once

#include "samples/datum.h"
#include "samples/overview.h"
#include "samples/tape.h"

typedef struct oq_source oq_source;

typedef struct oq_sample {
    uint64_t number;  /* from 0, in the order of the source (not of the share) */
    const char *name; /* "test_data_set_3", "cat.jpg", "x.npz sample 7": for messages */
    const oq_datum *inputs;
    size_t n_inputs; /* one for each of the model's inputs, in their order */
    /* A sample may be a step of a sequence: steps of one follow each other. A sample by itself is a
     * sequence of one step. */
    uint64_t sequence; /* number of the sequence, from 0 */
    uint64_t step;     /* its place in it, from 0 */
    bool last;         /* no step follows in it */
    bool generated;    /* its token is the one that the step before it chose */
} oq_sample;

typedef enum oq_image_layout { OQ_IMAGE_AUTO = 0, OQ_IMAGE_NCHW, OQ_IMAGE_NHWC } oq_image_layout;
typedef enum oq_image_color { OQ_IMAGE_RGB = 0, OQ_IMAGE_BGR, OQ_IMAGE_GRAY } oq_image_color;
typedef enum oq_image_resize {
    OQ_IMAGE_STRETCH = 0, /* to the size wanted, whatever the proportions */
    OQ_IMAGE_CROP,        /* shorter side to the size, then the middle */
    OQ_IMAGE_PAD,         /* longer side to the size, the rest black */
} oq_image_resize;

typedef struct oq_image_options {
    oq_image_layout layout;
    int64_t height, width; /* 0: from the model */
    oq_image_color color;
    oq_image_resize resize;
    double mean[3], std[3], scale; /* value = (pixel x scale - mean) / std */
    size_t n_mean, n_std;          /* how many were given: 0 (the defaults), 1 or 3 */
    bool has_scale;
} oq_image_options;

typedef struct oq_dim_fix {
    oq_str name;
    int64_t value;
} oq_dim_fix;

/* Refuses a --dim with a name that is not among these; the message has the nearest, or all. */
onq_code oq_dim_unknown(const oq_str *names, size_t n, oq_str name, const onq_allocator *alloc,
                        onq_error *err);

typedef struct oq_source_options oq_source_options;
struct oq_source_options {
    const char *spec;         /* --data; NULL: the test_data_set folders next to the model */
    const char *beside;       /* where these folders are; NULL: next to the model's file */
    bool nowhere;             /* the model's file is memory: nothing is next to it */
    oq_tape *tape;            /* samples in place of `spec`; borrowed, and may be shared; or NULL */
    struct oq_reader *reader; /* the caller's (source_private.h), in place of `spec`; or NULL. The
                               * source closes it once it is open. */
    const oq_model *model;    /* its inputs decide what is read; borrowed */
    uint64_t limit;           /* --limit; 0: all */
    const oq_dim_fix *dims;   /* --dim */
    size_t n_dims;
    oq_image_options image;
    uint64_t share, n_shares; /* only samples with number % n_shares == share; n_shares 0: all */
    uint64_t hold_out; /* without every so-manieth sample, shares counted after; 0, 1: with all */
    bool watch;        /* look at what the samples have in common */
    const uint64_t *numbers; /* only these samples, in this order, shares and limit counted among
                              * them; borrowed. NULL: all */
    size_t n_numbers;
    /* Of each input, or NULL: it may be left out of samples, and is a datum of kind NONE then. */
    const bool *may_lack;
    /* Arrays hold the steps of a sequence along this axis, in addition to the axes of the input or
     * in place of one of them. */
    bool has_steps_axis;
    size_t steps_axis;
};

/* How many steps an array holds along the axis, and how long a step is in it: 0 where the axis is
 * one more than the input has. One step: the array is the same in all. */
uint64_t oq_datum_steps(const oq_datum *d, const oq_io *want, size_t axis, uint64_t *each);

onq_code oq_source_open(onq_env *env, const oq_source_options *o, oq_source **out, onq_error *err);
/* Samples that oq_source_next will give in one pass, limit and share counted. 0: not known before
 * the end of the first pass. */
uint64_t oq_source_count(const oq_source *s);
/* The number of the k-th sample of a pass, where it is not a step of a sequence. */
uint64_t oq_source_number(const oq_source *s, uint64_t k);
/* Finds that number, if need be by reading all samples. ONQ_E_INVALID when there is none. */
onq_code oq_source_measure(oq_source *s, onq_error *err);
/* True once it has shown that there is none. */
bool oq_source_is_empty(const oq_source *s);
/* The job reads the samples once: a tape need not keep them. */
void oq_source_read_once(oq_source *s);
/* What it is, for messages: "8 test_data_set folders in models/x". */
const char *oq_source_text(const oq_source *s);
/* Samples are made up: they say nothing of accuracy. */
bool oq_source_is_random(const oq_source *s);
/* Samples may be steps of sequences; else each is one by itself. Limits, shares and what is held
 * out are counted in sequences. */
bool oq_source_has_sequences(const oq_source *s);
/* Samples are made of images, as oq_source_options.image says. */
bool oq_source_has_images(const oq_source *s);
/* What was done to images: "224x224, stretch, 1/255, ..."; NULL: there are none. */
const char *oq_source_about(const oq_source *s);
/* What was seen in the first pass so far; NULL unless the options ask for it. */
const oq_overview *oq_source_overview(const oq_source *s);
/* Names of the samples that were given, for a report: the first OQ_NAMES_KEPT of them once they are
 * asked to be kept. */
#define OQ_NAMES_KEPT 1000
void oq_source_keep_names(oq_source *s);
const char *const *oq_source_names(const oq_source *s, size_t *n);
/* The next sample, valid until the next call; *out is NULL at the end. */
onq_code oq_source_next(oq_source *s, const oq_sample **out, onq_error *err);
/* A deep copy into an arena; ONQ_E_NOMEM. */
onq_code oq_sample_copy(oq_arena *a, const oq_sample *s, oq_sample *out, onq_error *err);
/* What oq_source_next would give after a seek to k, without taking it. NULL when there is none, or
 * it cannot be read, which oq_source_next says. */
const oq_sample *oq_source_peek(oq_source *s, uint64_t k);
/* The next sample will be the k-th of the pass (0: a new pass; resume after k samples). */
onq_code oq_source_seek(oq_source *s, uint64_t k, onq_error *err);
void oq_source_close(oq_source *s);
