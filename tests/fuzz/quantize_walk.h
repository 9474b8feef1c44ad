/*
 * quantize_walk.h — what the fuzz targets of the quantizers share: ranges for every tensor, and a
 * model that must be valid when it is quantized.
 */
#pragma once

#include "calibrate/ranges.h"
#include "onnx/check/check.h"
#include "onnx/graph.h"
#include "onnx/tidy.h"
#include "quantize/choose/qrun.h"
#include "quantize/ort/stamp.h"
#include "quantize/plan.h"
#include "shape/operands.h"

#include <stdio.h>

#include "fuzz.h"

/* Every name that a node has gets a range. */
static inline onq_code add_ranges(void *ctx, oq_graph *g, onq_error *err) {
    oq_ranges *r = ctx;
    bool ok = true;
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
    return oq_model_make_sound(m, err) == ONQ_OK;
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

/* One way of quantizing. `bits`, the first byte of the input, choose the options. */
typedef struct quantizer {
    void (*choose)(oq_qconfig *c, uint8_t bits);
    onq_code (*run)(oq_model *m, oq_qrun *r, oq_ranges *ranges, oq_plan *plan, uint8_t bits,
                    onq_error *err);
} quantizer;

static inline void quantize_model(const quantizer *q, oq_model *m, uint8_t bits) {
    onq_error err = ONQ_ERROR_INIT;
    oq_arena a;
    oq_qconfig c;
    oq_qrun run;
    oq_ranges ranges;
    oq_plan plan;
    oq_arena_init(&a, &m->env->alloc);
    oq_qconfig_init(&c, &a);
    oq_ranges_init(&ranges, &m->env->alloc, OQ_CAL_MINMAX);
    oq_plan_init(&plan, &a);
    q->choose(&c, bits);
    oq_qrun_init(&run, &c);
    const onq_code rc = q->run(m, &run, &ranges, &plan, bits, &err);
    judge(m->env, m, rc, &err);
    oq_ranges_release(&ranges);
    oq_arena_release(&a);
}

static inline void quantize_input(const quantizer *q, const uint8_t *data, size_t size) {
    onq_error err = ONQ_ERROR_INIT;
    oq_model *m = NULL;
    if (size < 2)
        return;
    onq_env *env = onq_env_new(NULL);
    onq_env_set_threads(env, 1);
    if (oq_model_open_memory(env, data + 1, size - 1, NULL, &m, &err) == ONQ_OK &&
        is_taken(m, &err))
        quantize_model(q, m, data[0]);
    oq_model_free(m);
    onq_env_free(env);
}
