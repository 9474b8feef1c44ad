/*
 * channels_parts.h — the state that the files of channels.h share.
 */
#ifndef OQ_PREPARE_CHANNELS_PARTS_H
#define OQ_PREPARE_CHANNELS_PARTS_H

#include "onnx/attr.h"
#include "onnx/edit.h"
#include "onnx/names.h"
#include "onnx/operators.h"
#include "prepare/channels.h"

/* A product whose weight is constant. */
typedef struct oq_channel_product {
    const oq_channel_choice *choice;
    oq_node *node;
    oq_tensor *weight;
    oq_product product;
    uint64_t n_in, n_out; /* channels */
    uint64_t group;
    size_t in_axis, out_axis;   /* of the weight */
    oq_channel_stats *in, *out; /* NULL: not needed */
} oq_channel_product;

typedef struct oq_channel_state {
    oq_channels *c;
    oq_arena *arena; /* scratch */
    oq_index ix;     /* of the graph; built again after edits */
    oq_fresh names;
    OQ_VEC(oq_channel_product) products;
    oq_map seen; /* tensor -> index in stats */
    OQ_VEC(oq_channel_stats *) stats;
} oq_channel_state;

/* A float constant of the graph. `like` names it. */
onq_code oq_channel_constant(oq_channel_state *s, oq_str like, const char *suffix, const float *v,
                             const int64_t *dims, size_t rank, oq_str *name, onq_error *err);
/* A node that stays float, put at the end of the graph, with one output. */
oq_node *oq_channel_node(oq_channel_state *s, const char *op, oq_str like, const char *suffix,
                         const oq_str *in, size_t n_in, oq_str out);
/* All values of an initializer, in the scratch arena. */
onq_code oq_channel_values(oq_channel_state *s, oq_tensor *t, float **v, size_t *n, onq_error *err);

onq_code oq_channel_outliers(oq_channel_state *s, onq_error *err);

#endif
