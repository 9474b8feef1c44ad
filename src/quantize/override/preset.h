/*
 * preset.h — ready-made configurations: the reference's get_qdq_config and get_qnn_qdq_config.
 *
 * Both quantize every operator of the model. The QNN one also completes overrides that mix types:
 * where a tensor is to have another type than its neighbours, conversions are inserted so that
 * every node sees one type (MixedPrecisionTensorQuantOverridesFixer), and some operators get the
 * parameters that QNN wants.
 */
#pragma once

#include "quantize/choose/config.h"
#include "quantize/override/override.h"
#include "shape/shape.h"

typedef struct oq_preset {
    oq_model *model;
    const oq_shapes *shapes;
    oq_qconfig *config;
    oq_overrides *overrides;
    bool add_converts; /* QNN: complete overrides that mix types (add_qtype_converts) */
    oq_arena *arena;   /* scratch that lives as long as the overrides */
} oq_preset;

/* get_qdq_config: all operators but Cast and those that quantize already. */
onq_code oq_preset_qdq(const oq_preset *p, onq_error *err);
/* get_qnn_qdq_config with add_qtype_converts. */
onq_code oq_preset_qnn(const oq_preset *p, onq_error *err);

/* MixedPrecisionTensorQuantOverridesFixer.apply (preset_mixed.c). */
onq_code oq_preset_mix(const oq_preset *p, onq_error *err);

/* True for a float tensor: an initializer, or one whose type is known. */
bool oq_preset_is_float(const oq_preset *p, const oq_tensor *init, oq_str name);
