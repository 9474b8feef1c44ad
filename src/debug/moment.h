/*
 * moment.h — what one sample shows of the activations, as the models run.
 *
 * The float model runs first and its tensors are kept; then the quantized model, and each tensor is
 * compared the moment it is there. Several samples run at once, each in a lane with moments of its
 * own; these are added to the activations in the order of the samples (oq_moments_fold), so results
 * have the same bits whatever the number of lanes.
 */
#ifndef OQ_DEBUG_MOMENT_H
#define OQ_DEBUG_MOMENT_H

#include "base/map.h"
#include "debug/debug.h"
#include "debug/passes.h"

/* What a tensor is to an activation. */
typedef enum oq_moment_role { OQ_MOMENT_TRUTH, OQ_MOMENT_PRE, OQ_MOMENT_POST } oq_moment_role;

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
    uint32_t truth[OQ_DEBUG_BINS], made[OQ_DEBUG_BINS];
} oq_moment_bins;

/* One activation in one sample. */
typedef struct oq_moment {
    oq_pass_truth truth; /* of the float model's values; without, of those before quantization */
    uint64_t seen, masked;
    oq_sums qdq, cross;
    oq_sums rest_qdq, rest_cross; /* without the values of a mask, where there are some */
    oq_moment_bins *bins;         /* NULL: not wanted, or not yet */
    const char *trouble;
    bool repeated; /* a loop made it several times */

    float *held, *pre; /* tensors of the float model, and from before quantization */
    uint64_t held_cap, held_n, pre_cap, pre_n;
    bool has_held, has_pre;
} oq_moment;

/* A lane. */
typedef struct oq_moments {
    oq_debug *d;
    oq_pool *pool; /* of the tensors' parts; NULL: the lane's own thread */
    bool alone;    /* no other lane runs: the range of a histogram may be set */
    oq_moment *v;  /* by activation */
    size_t n;
    float *scratch; /* values of a tensor that is not float32 */
    uint64_t scratch_cap;
    float *spare; /* a buffer that one tensor gave back and the next takes */
    uint64_t spare_cap;
    float *sieve[2]; /* values of two tensors without those of a mask */
    uint64_t sieve_cap[2];
} oq_moments;

/* Lists the tensors of both models that the activations need. */
onq_code oq_moments_watch(oq_debug *d, oq_watch *truth, oq_watch *made, onq_error *err);

onq_code oq_moments_init(oq_moments *m, oq_debug *d, onq_error *err);
void oq_moments_release(oq_moments *m);
/* A new sample begins. */
void oq_moments_begin(oq_moments *m);
/* A tensor of the watched model; `uses` is one of its list. */
onq_code oq_moments_see(oq_moments *m, const oq_moment_use *uses, const oq_datum *t,
                        onq_error *err);
/* Adds the sample to the activations. */
void oq_moments_fold(oq_moments *m);
/* True if some activation that is wanted in a histogram has not been seen: the sample that shows it
 * first sets the range, so until then samples run one by one. */
bool oq_moments_pending(const oq_debug *d);

/* The datum as float32: itself, or converted, until the next call. */
onq_code oq_moments_floats(oq_moments *m, const oq_datum *t, const float **out, onq_error *err);

#endif
