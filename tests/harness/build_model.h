/*
 * build_model.h — small models for tests, in a line per node.
 *
 *     bm b;
 *     bm_begin(&b, NULL, 13);
 *     bm_input(&b, "x", OQ_FLOAT, "N,3,8,8");
 *     bm_weight(&b, "w", "4,3,3,3", 1);
 *     bm_node(&b, "Conv", "conv1", "x w", "y", "pads=[1,1,1,1] group=1");
 *     bm_output(&b, "y", OQ_FLOAT, "N,4,8,8");
 *     ... b.m is the model, b.g its graph ...
 *     bm_end(&b);
 *
 * Names are separated by spaces; "_" stands for an empty (omitted) one. Shapes are numbers, names
 * or "?" separated by commas, "" for a scalar, NULL for no shape. Attributes are name=value: 3 is
 * an int, 3.0 a float, 'text' a string, [1,2] ints, [1.0,2] floats. All text is copied. A failure
 * fails the cmocka test, so nothing needs to be checked, except under a failing allocator: there
 * the functions return NULL and `b.failed` is set.
 */
#pragma once

#include "onnx/edit.h"
#include "onnx/model.h"

typedef struct bm {
    onq_env *env;
    oq_model *m;
    oq_graph *g; /* where the calls below add; the model's graph, or a subgraph */
    oq_arena *a;
    bool strict; /* a failure fails the test */
    bool failed;
} bm;

/* A new model of IR version 8 and default-domain `opset`. alloc NULL: the C library's, and every
 * failure is a test failure. */
void bm_begin(bm *b, const onq_allocator *alloc, int64_t opset);
/* Goes on with a model that the caller opened. */
void bm_on(bm *b, oq_model *m);
void bm_end(bm *b);

/* The model is what a body of flaky_sweep shows; see flaky_give. */
void bm_give(bm *b);

typedef void bm_fill(bm *b);
typedef onq_code bm_work(bm *b, void *ctx, onq_error *err);
/* flaky_sweep over a model: `fill` makes it, and `work` is called with it where there was memory
 * enough; b->env has the allocator. The bytes of the model as `work` leaves it are its result;
 * what else there is `work` shows with flaky_give. */
size_t bm_sweep(int64_t opset, bm_fill *fill, bm_work *work, void *ctx);

oq_value_info *bm_input(bm *b, const char *name, int type, const char *shape);
oq_value_info *bm_output(bm *b, const char *name, int type, const char *shape);
oq_value_info *bm_info(bm *b, const char *name, int type, const char *shape);
oq_node *bm_node(bm *b, const char *op, const char *name, const char *in, const char *out,
                 const char *attributes);
/* Sets further attributes. */
void bm_attributes(bm *b, oq_node *n, const char *attributes);

/* Initializers. A weight is float, with numbers that depend on seed and position only, in -1..1. */
oq_tensor *bm_weight(bm *b, const char *name, const char *shape, unsigned seed);
oq_tensor *bm_f32(bm *b, const char *name, const char *shape, const float *v);
oq_tensor *bm_i64(bm *b, const char *name, const char *shape, const int64_t *v);
/* Raw bytes of any type. */
oq_tensor *bm_raw(bm *b, const char *name, int type, const char *shape, const void *p, size_t n);
/* The same, not put in the graph: for attributes. */
oq_tensor *bm_tensor(bm *b, const char *name, int type, const char *shape, const void *p, size_t n);

/* A graph attribute of `n`: calls up to bm_leave add to it. Returns the graph around. */
oq_graph *bm_enter(bm *b, oq_node *n, const char *attribute);
void bm_leave(bm *b, oq_graph *around);

/* A decoder of one layer: input_ids, and a cache that GroupQueryAttention (node "attn", one head of 16
 * channels) takes as past_key_values.0.key and .value and gives as present.0.key and .value; logits
 * over 40 words. Tokens may be any numbers. */
void bm_grouped(bm *b);

/* The names of the graph's nodes, one after the other with spaces between, into out[n]. */
const char *bm_order(const oq_graph *g, char *out, size_t n);
/* The node of that name, or NULL. */
oq_node *bm_find_node(const bm *b, const char *name);
/* Copy of a text in the model's arena. */
oq_str bm_str(bm *b, const char *text);
