/*
 * channels_parts.h — the state that the files of channels.h share.
 */
#pragma once

#include "onnx/attr.h"
#include "onnx/edit.h"
#include "onnx/names.h"
#include "onnx/operators.h"
#include "prepare/channels/channels.h"

/* Most axes of a tensor that are scaled. */
#define OQ_CHANNEL_AXES 8
/* The part of the noise that scales may leave for a node of their own to be worth its time. */
#define OQ_WORTH_A_NODE 0.7

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
    float *values;              /* of the weight, while its input is scaled */
    size_t n_values;
    float *most; /* largest magnitude of the weight for each output and input channel */
} oq_channel_product;

typedef struct oq_channel_state {
    oq_channels *c;
    oq_arena *arena;  /* scratch of the whole job */
    oq_arena once;    /* of one edit */
    oq_arena indexed; /* of ix */
    oq_index ix;      /* of the graph, with all constants that were added since it was built */
    oq_fresh names;
    OQ_VEC(oq_channel_product) products;
    oq_map seen; /* tensor -> index in stats */
    OQ_VEC(oq_channel_stats *) stats;
    oq_map looked;                    /* tensor -> index in ahead */
    OQ_VEC(oq_channel_stats *) ahead; /* that later jobs may ask the memory for */
} oq_channel_state;

/* A float constant of the graph. `like` names it. */
onq_code oq_channel_constant(oq_channel_state *s, oq_str like, const char *suffix, const float *v,
                             const int64_t *dims, size_t rank, oq_str *name, onq_error *err);
/* A node that stays float, put at the end of the graph, with one output. */
oq_node *oq_channel_node(oq_channel_state *s, const char *op, oq_str like, const char *suffix,
                         const oq_str *in, size_t n_in, oq_str out);
/* All values of an initializer, until the edit is over. */
onq_code oq_channel_values(oq_channel_state *s, oq_tensor *t, float **v, size_t *n, onq_error *err);

/* Indexes the graph again: tensors have other makers or readers. */
onq_code oq_channel_index(oq_channel_state *s, onq_error *err);
/* Frees the memory of an edit. */
void oq_channel_edited(oq_channel_state *s);

/* The weight of a product as it is now. */
oq_tensor *oq_channel_weight(const oq_channel_state *s, const oq_node *n);
/* True if its weight and bias have `count` rows that can be multiplied. */
bool oq_channel_has_rows(const oq_channel_state *s, const oq_node *n, uint64_t count);
/* Multiplies the rows of weight and bias: what makes the channels of the output. */
onq_code oq_channel_scale_rows(oq_channel_state *s, oq_node *n, const float *factor,
                               onq_error *err);

/* A factor for each channel of a tensor that `readers` uses read, all of which want it. */
typedef struct oq_channel_factor {
    oq_str name;
    const float *v;
    uint64_t n;
    bool is_image;
    size_t rank; /* is_image: of the tensor */
    size_t readers;
} oq_channel_factor;
/* What was seen of a tensor of the model as it came; NULL: nothing. */
const oq_channel_stats *oq_channel_seen(const oq_channel_state *s, oq_str name);
/* A tensor holds other values now: those that were seen of another, times a factor for each
 * channel. `stats` NULL: it is not known which. */
onq_code oq_channel_moved(oq_channel_state *s, oq_str tensor, const oq_channel_stats *stats,
                          const float *factor, onq_error *err);
onq_code oq_channel_moved_to(oq_channel_state *s, oq_str tensor, double low, double high,
                             onq_error *err);
/* It is a Relu of the one that was moved last. */
onq_code oq_channel_moved_relu(oq_channel_state *s, oq_str tensor, onq_error *err);

/* Puts it into constants upstream, if there are any that take it. */
onq_code oq_channel_fold(oq_channel_state *s, const oq_channel_factor *f, bool *folded,
                         onq_error *err);

/* The step that a channel needs when its zero is at that integer; INFINITY: none does. */
double oq_channel_step(double low, double high, int zero);
/* The zero point for which the sum of the squared steps, weighted, is smallest. */
int oq_channel_zero(const double *low, const double *high, const double *weight, uint64_t n);
/* No value is below that part of the largest; all are 1 if they are all 0. */
void oq_channel_floor(double *step, uint64_t n, double part);
/* That part for the inputs and for the outputs of products: a channel that hardly moves in the
 * samples may do so later. */
#define OQ_CHANNEL_FLOOR_IN  0.05
#define OQ_CHANNEL_FLOOR_OUT 0.1

onq_code oq_channel_outputs(oq_channel_state *s, onq_error *err);
onq_code oq_channel_inputs(oq_channel_state *s, onq_error *err);
onq_code oq_channel_outliers(oq_channel_state *s, onq_error *err);
