/*
 * moment.h — what one sample shows of the activations, as the models run.
 *
 * The quantized model runs first. What it shows of an activation is kept, as integers of one byte or
 * two where it is quantized so, until the float model has the tensor: that is compared the moment it
 * is there, and is in the cache. Several samples run at once, each in a lane with moments of its own;
 * these are added to the activations in the order of the samples (oq_moments_fold), so results have
 * the same bits whatever the number of lanes.
 */
#pragma once

#include "base/map.h"
#include "debug/debug.h"
#include "debug/measure/passes.h"

/* What a tensor is to an activation. */
typedef enum oq_moment_role { OQ_MOMENT_FLOAT, OQ_MOMENT_PRE, OQ_MOMENT_POST } oq_moment_role;

typedef struct oq_moment_use {
    uint32_t act;
    oq_moment_role role;
    struct oq_moment_use *next;
} oq_moment_use;

/* What is observed in one model; the same for all lanes. */
typedef struct oq_watch {
    oq_map map;
    OQ_VEC(oq_str) names;
    OQ_VEC(oq_moment_use *) uses; /* by name */
} oq_watch;

typedef struct oq_moment_bins {
    uint32_t flt[OQ_DEBUG_BINS], quantized[OQ_DEBUG_BINS];
} oq_moment_bins;

/* A buffer that grows, and is used from sample to sample. */
typedef struct oq_moment_buffer {
    void *p;
    uint64_t cap; /* bytes */
} oq_moment_buffer;

/* What measuring without the values of a mask takes (moment_mask.c): the float model's tensor, and
 * what the quantized model showed, in the order it came. */
typedef struct oq_moment_quantized {
    const float *pre, *post; /* either may be NULL; without `post` the pair is a plain one */
    uint64_t n;
    struct oq_moment_quantized *next;
} oq_moment_quantized;

typedef struct oq_moment_mask {
    oq_moment_buffer flt;
    uint64_t float_n;
    oq_moment_quantized *quantized, **last;
} oq_moment_mask;

/* One activation in one sample. */
typedef struct oq_moment {
    oq_pass_float flt; /* of the float model's values; without, of those before quantization */
    uint64_t seen, masked;
    oq_sums qdq, cross;
    oq_sums rest_qdq, rest_cross; /* without the values of a mask, where there are some */
    oq_moment_bins *bins;         /* NULL: not wanted, or not yet */
    const char *trouble;
    bool has_float; /* the float model has shown it */
    bool repeated;  /* a loop made it several times */
    bool differs;   /* in size from the float model's */

    /* The first tensor after quantization, and the last before it. */
    oq_moment_buffer after, pre;
    uint64_t after_n, pre_n;
    bool has_after, narrow, has_pre; /* narrow: see passes.h */
    oq_moment_buffer waiting;        /* for the range of the histogram */
    uint64_t waiting_n;
    oq_moment_mask *mask; /* NULL: none is expected */
} oq_moment;

/* A lane. */
typedef struct oq_moments {
    oq_debug *d;
    oq_pool *pool; /* of the tensors' parts; NULL: the lane's own thread */
    bool alone;    /* no other lane runs: the range of a histogram may be set */
    bool again;    /* the sample has to run a second time: a mask was seen first */
    oq_moment *v;  /* by activation */
    size_t n;
    oq_moment_buffer scratch;  /* values of a tensor that is not float32 */
    oq_moment_buffer spare;    /* that one tensor gave back and the next takes */
    oq_moment_buffer sieve[2]; /* values of two tensors without those of a mask */
} oq_moments;

/* Lists the tensors of both models that the activations need. */
onq_code oq_moments_watch(oq_debug *d, oq_watch *flt, oq_watch *quantized, onq_error *err);

/* `first` is a lane that has run, or NULL: what has a mask there has one here. */
onq_code oq_moments_init(oq_moments *m, oq_debug *d, const oq_moments *first, onq_error *err);
void oq_moments_release(oq_moments *m);
/* A sample begins: the quantized model is to run, then the float model. */
void oq_moments_begin(oq_moments *m);
/* A tensor of the watched model; `uses` is one of its list. */
onq_code oq_moments_see(oq_moments *m, const oq_moment_use *uses, const oq_datum *t,
                        onq_error *err);
/* Both models have run. *again: the sample has to begin once more. */
onq_code oq_moments_end(oq_moments *m, bool *again, onq_error *err);
/* Adds the sample to the activations. */
void oq_moments_fold(oq_moments *m);
/* True if some activation that is wanted in a histogram has not been seen: the sample that shows it
 * first sets the range, so until then samples run one by one. */
bool oq_moments_pending(const oq_debug *d);

/* The datum as float32: itself, or converted, until the next call. */
onq_code oq_moments_floats(oq_moments *m, const oq_datum *t, const float **out, onq_error *err);

/* ---- between moment.c and moment_mask.c ---- */

onq_code oq_moments_reserve(const oq_moments *m, oq_moment_buffer *b, uint64_t size,
                            onq_error *err);
/* What a quantizer does, if it has one scale and at most 16 bits. */
bool oq_moment_steps(const oq_debug_act *a, oq_steps *s);

bool oq_mask_is(const oq_debug_act *a, float x);
/* Two tensors without the places where one of them has a value of a mask. *left remain. */
onq_code oq_mask_sift(oq_moments *w, const oq_debug_act *a, const float **x, const float **y,
                      uint64_t n, uint64_t *left, onq_error *err);
/* From now on tensors of this activation are kept. */
onq_code oq_mask_expect(const oq_moments *w, oq_moment *m, onq_error *err);
/* The float model's tensor has values of a mask. */
onq_code oq_mask_float(oq_moments *w, oq_moment *m, const float *x, uint64_t n, onq_error *err);
/* Keeps what the quantized model shows of an activation that is expected to have them. */
onq_code oq_mask_keep(const oq_moments *w, oq_moment *m, const oq_moment_quantized *quantized,
                      onq_error *err);
/* Adds to rest_qdq and, with the float model's values x of as many, to rest_cross. */
onq_code oq_mask_measure(oq_moments *w, const oq_debug_act *a, oq_moment *m, const float *x,
                         const oq_moment_quantized *quantized, onq_error *err);
/* All that was kept of the activation. */
onq_code oq_mask_end(oq_moments *w, const oq_debug_act *a, oq_moment *m, onq_error *err);
void oq_mask_begin(const oq_moments *w, oq_moment *m);
void oq_mask_release(const oq_moments *w, oq_moment *m);
