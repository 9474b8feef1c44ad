/*
 * channel_stats.h — the values of tensors channel by channel, over all samples: what methods need
 * that give channels scales of their own. Memory is a few numbers for each channel.
 */
#pragma once

#include "base/map.h"
#include "base/vec.h"
#include "engine/engine.h"
#include "samples/source.h"

typedef struct oq_channel_stats {
    oq_str name;
    bool is_image; /* channels are axis 1, not the last */
    bool skip;     /* it was not seen as a float tensor of n channels: the rest says nothing */
    uint64_t n;    /* channels */
    float *low, *high;
    double *squares; /* sums */
    uint64_t count;  /* of values in each channel */
} oq_channel_stats;

/* What was seen of tensors, for later runs over the same model and the same samples. */
typedef struct oq_channel_memory {
    oq_arena arena;
    oq_map map; /* name -> all */
    OQ_VEC(oq_channel_stats *) all;
} oq_channel_memory;

void oq_channel_memory_init(oq_channel_memory *m, const onq_allocator *alloc);
void oq_channel_memory_release(oq_channel_memory *m);

/* What is observed. */
typedef struct oq_channel_job {
    oq_model *model;
    oq_engine *engine;
    oq_source *source;              /* read from its beginning */
    oq_session_options session;     /* threads, provider; the rest is set here */
    const char *what;               /* for progress */
    oq_channel_memory *memory;      /* or NULL */
    oq_channel_stats *const *ahead; /* n_ahead more, seen if the model runs anyway: memory keeps */
    size_t n_ahead;                 /* them. What nobody saw has a count of 0 */
    /* Not 0: the model runs in slices, so that it is never in memory as a whole, and this many bytes
     * of activations may be kept; samples that pass it are let go. */
    uint64_t slices;
} oq_channel_job;

/* A tensor to observe; NULL: out of memory. */
oq_channel_stats *oq_channel_stats_new(oq_arena *a, oq_str name, bool is_image, uint64_t n);
/* Fills all that do not say skip: from memory, and the others by a run over the samples. */
onq_code oq_channel_stats_run(const oq_channel_job *job, oq_channel_stats *const *all, size_t n,
                              oq_arena *scratch, onq_error *err);

/* Largest magnitude of a channel. */
float oq_channel_most(const oq_channel_stats *s, uint64_t channel);
