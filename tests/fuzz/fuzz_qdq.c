/*
 * fuzz_qdq.c — a valid model stays valid when it is quantized with QDQ pairs, or the quantization
 * is refused with a reason. The first byte of the input chooses the options, the rest is the model.
 */

#include "quantize/ort/result_opset.h"
#include "quantize/qdq/qdq.h"
#include "quantize/rules.h"

#include "model_mutator.h"
#include "quantize_walk.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void choose(oq_qconfig *c, uint8_t bits) {
    static const oq_dtype types[] = {OQ_UINT8, OQ_INT8, OQ_INT16, OQ_UINT4};
    c->activation_type = types[bits & 3];
    c->weight_type = types[(bits >> 1) & 3];
    c->per_channel = (bits & 4) != 0;
    c->op_types_all = (bits & 8) != 0;
    c->force_quantize_no_input_check = (bits & 16) != 0;
    c->dedicated_qdq_pair = (bits & 32) != 0;
    c->add_qdq_pair_to_weight = (bits & 64) != 0;
    c->block_size = (bits & 128) != 0 ? 2 : 0;
    c->enable_subgraph = bits % 3 == 0;
}

static onq_code quantize(oq_model *m, oq_qrun *r, oq_ranges *ranges, oq_plan *plan, uint8_t bits,
                         onq_error *err) {
    (void)bits;
    oq_shapes *shapes = NULL;
    int64_t target;
    const char *why;
    OQ_TRY(oq_shapes_infer(m, NULL, &shapes, err));
    onq_code rc = oq_opset_needed(m, shapes, r, NULL, OQ_QMODE_QDQ, &target, &why, err);
    oq_shapes_free(shapes);
    OQ_TRY(rc);
    OQ_TRY(oq_opset_raise(m, target, why, true, err));
    OQ_TRY(oq_shapes_infer(m, NULL, &shapes, err));
    const oq_qdq_job job = {.model = m, .run = r, .ranges = ranges, .shapes = shapes, .plan = plan};
    rc = oq_shapes_write(shapes, m, err);
    if (rc == ONQ_OK)
        rc = oq_walk_graphs(m->proto->graph, add_ranges, ranges, err);
    if (rc == ONQ_OK)
        rc = oq_qdq_run(&job, err);
    oq_shapes_free(shapes);
    return rc;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const quantizer q = {choose, quantize};
    quantize_input(&q, data, size);
    return 0;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned seed) {
    return mutate_model(data, size, max, seed, 1);
}
