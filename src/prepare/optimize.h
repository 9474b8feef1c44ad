/*
 * optimize.h — the built-in optimiser: needs no runtime, keeps the names of tensors that survive.
 *
 * The rewrites are rows of fuse.def, each with a function in fuse/fuse_*.c (fuse.h is what such a
 * function sees). Rounds over the nodes in topological order until nothing changes, at most
 * OQ_OPT_ROUNDS; a round is linear in the graph. Inner graphs (If, Loop, Scan) are optimised as the
 * main one is.
 *
 * To add a rewrite: one function in a file of fuse/, one row in fuse.def.
 */
#pragma once

#include "onnx/model.h"

#define OQ_OPT_ROUNDS 16

typedef enum oq_fuse_id {
#define OQ_FUSE(name, ops, what) OQ_FUSE_##name,
#include "prepare/fuse/fuse.def"
#undef OQ_FUSE
    OQ_FUSE_COUNT
} oq_fuse_id;

typedef struct oq_opt_report {
    size_t counts[OQ_FUSE_COUNT]; /* how often each row was applied */
    size_t n_constants;           /* Constant nodes that became initializers */
    size_t n_shared;              /* initializers that were there twice */
    unsigned rounds;
} oq_opt_report;

/* What a row does, for people. */
const char *oq_fuse_what(oq_fuse_id id);

/* Optimises the model in place; report may be NULL. */
onq_code oq_optimize(oq_model *m, oq_opt_report *report, onq_error *err);
