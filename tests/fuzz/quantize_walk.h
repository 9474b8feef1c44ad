/*
 * quantize_walk.h — what the fuzz targets of the quantizers share: ranges for every tensor, and a
 * model that must be valid when it is quantized.
 */
#ifndef QUANTIZE_WALK_H
#define QUANTIZE_WALK_H

#include "calibrate/ranges.h"
#include "onnx/check.h"
#include "onnx/graph.h"
#include "onnx/tidy.h"
#include "quantize/stamp.h"
#include "shape/operands.h"

#include <stdio.h>

#include "fuzz.h"

/* Every name that a node has gets a range. */
static inline onq_code add_ranges(void *ctx, oq_graph *g, oq_node *owner, onq_error *err) {
    oq_ranges *r = ctx;
    bool ok = true;
    (void)owner;
    for (size_t i = 0; i < g->node.n; i++) {
        const oq_node *n = g->node.v[i];
        for (size_t k = 0; k < n->input.n + n->output.n; k++) {
            const oq_str name = k < n->input.n ? n->input.v[k] : n->output.v[k - n->input.n];
            oq_range *t = oq_ranges_add(r, name);
            ok = ok && t != NULL && oq_num_make_one(&r->arena, &t->lowest, OQ_FLOAT, true, -1.0) &&
                 oq_num_make_one(&r->arena, &t->highest, OQ_FLOAT, true, 1.5);
        }
    }
    return ok ? ONQ_OK : oq_fail_nomem(err);
}

/* What a command takes, as it takes it: oq_job_open_sound. */
static inline bool is_taken(oq_model *m, onq_error *err) {
    return oq_model_check(m, err) == ONQ_OK && oq_operands_check(m, err) == ONQ_OK &&
           oq_model_sort_all(m, err) == ONQ_OK;
}

/* A refusal has a reason; a result is a valid model, which is written, or refused for a reason. */
static inline void judge(onq_env *env, oq_model *m, onq_code rc, onq_error *err) {
    if (rc != ONQ_OK) {
        MUST(err->code == rc && err->text[0] != '\0');
        return;
    }
    const onq_code valid = oq_result_check(m, err);
    if (valid != ONQ_OK)
        fprintf(stderr, "%s\n", err->text);
    MUST(valid == ONQ_OK);
    oq_buf out;
    oq_buf_init(&out, &env->alloc);
    const onq_code written = oq_model_encode(m, &out, err); /* runs the producers */
    MUST(written == ONQ_OK || (err->code == written && err->text[0] != '\0'));
    oq_buf_release(&out);
}

#endif
