/*
 * fuzz_qoper.c — a valid model stays valid when it is quantized with QLinear or integer operators,
 * or the quantization is refused with a reason. The first byte of the input chooses the options,
 * the rest is the model.
 */

#include "quantize/ort/result_opset.h"
#include "quantize/qoperator/qoperator.h"
#include "quantize/rules.h"

#include "model_mutator.h"
#include "quantize_walk.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void choose(oq_qconfig *c, uint8_t bits) {
    c->activation_type = (bits & 1) != 0 ? OQ_INT8 : OQ_UINT8;
    c->weight_type = (bits & 3) == 2 ? OQ_UINT8 : OQ_INT8;
    c->per_channel = (bits & 4) != 0;
    c->reduce_range = (bits & 8) != 0;
    c->force_quantize_no_input_check = (bits & 16) != 0;
    c->enable_subgraph = (bits & 32) != 0;
}

static onq_code quantize(oq_model *m, oq_qrun *r, oq_ranges *ranges, oq_plan *plan, uint8_t bits,
                         onq_error *err) {
    const bool dynamic = (bits & 128) != 0;
    int64_t target;
    const char *why;
    oq_shapes *shapes = NULL;
    OQ_TRY(oq_opset_needed(m, NULL, r, NULL, OQ_QMODE_INTEGER, &target, &why, err));
    OQ_TRY(oq_opset_raise(m, target, why, true, err));
    OQ_TRY(oq_shapes_infer(m, NULL, &shapes, err));
    const onq_code rc = oq_shapes_write(shapes, m, err);
    oq_shapes_free(shapes);
    OQ_TRY(rc);
    OQ_TRY(oq_walk_graphs(m->proto->graph, add_ranges, ranges, err));
    const oq_qo_job job = {.model = m, .run = r, .ranges = dynamic ? NULL : ranges, .plan = plan};
    return oq_qo_run(&job, err);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const quantizer q = {choose, quantize};
    quantize_input(&q, data, size);
    return 0;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned seed) {
    return mutate_model(data, size, max, seed, 1);
}
