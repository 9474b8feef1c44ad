/*
 * legacy.h — the four modes of the first quantization tool: integer or QLinear operators for Conv
 * and MatMul, with static or dynamic parameters of their inputs.
 *
 *                       inputs                          operators
 *   IntegerOps_Static   given scale and zero point      ConvInteger, MatMulInteger, then float
 *   IntegerOps_Dynamic  computed while the model runs   the same
 *   QLinearOps_Static   given scale and zero point      QLinearConv, QLinearMatMul, whose outputs
 *                                                       have given parameters too
 *   QLinearOps_Dynamic  computed while the model runs   the same
 *
 * Weights are uint8, or int8 with asymmetric_input_types; inputs are uint8. Conv's weights go per
 * output channel when asked: symmetric, so that one zero point (0, or 128 for uint8) serves all
 * channels, because that is what the runtime's kernels take. Biases stay float after integer
 * operators and become int32 in QLinearConv.
 */
#pragma once

#include "base/map.h"
#include "onnx/model.h"
#include "quantize/number/qparam.h"
#include "quantize/plan_read.h"
#include "shape/shape.h"

typedef enum oq_legacy_mode {
    OQ_LEGACY_INTEGER_STATIC = 0,
    OQ_LEGACY_INTEGER_DYNAMIC,
    OQ_LEGACY_QLINEAR_STATIC,
    OQ_LEGACY_QLINEAR_DYNAMIC
} oq_legacy_mode;

typedef struct oq_legacy_param {
    oq_str name;
    oq_qparam q;
    bool used; /* by a node that was quantized */
} oq_legacy_param;

/* Parameters of tensors by name, from {"tensor": [zero_point, scale]}. */
typedef struct oq_legacy_params {
    oq_map map; /* name -> index in all */
    OQ_VEC(oq_legacy_param) all;
    const char *path; /* of the file, for messages; NULL: none given */
} oq_legacy_params;

/* Reads the file into the arena; ONQ_E_CONFIG names the tensor and what is wrong. path NULL: none.
 * A zero point from -128 to -1 is an int8 one and is kept as the uint8 zero point of the same
 * values (128 more). */
onq_code oq_legacy_read(oq_legacy_params *p, oq_arena *a, const onq_allocator *alloc,
                        const char *path, onq_error *err);

typedef struct oq_legacy_job {
    oq_model *model;         /* opset 10 or more */
    const oq_shapes *shapes; /* plain inference over the model as it is */
    oq_legacy_mode mode;
    bool per_channel;
    bool signed_weights; /* asymmetric_input_types */
    oq_legacy_params *inputs, *outputs;
    oq_given *given; /* a plan that was read has the parameters; or NULL */
    oq_plan *plan;
    bool decide_only; /* --dry_run: fills the plan and leaves the model as it is */
} oq_legacy_job;

/* True if these modes quantize the operator type. */
bool oq_legacy_knows(oq_str type);
/* Quantizes the main graph in place. */
onq_code oq_legacy_run(const oq_legacy_job *job, onq_error *err);
