/*
 * quant_input.h — what the model that is to be quantized went through already.
 */
#pragma once

#include "api/options/command.h"

typedef struct oq_quant_input {
    bool preprocessed;
    uint64_t conv_batchnorm; /* BatchNormalization that preprocessing would fold into a Conv */
} oq_quant_input;

/* Looks at the model as it was opened, and warns of one that is quantized already or that ONNX
 * Runtime optimised for one CPU. `trained`: pairs of QuantizeLinear are what is wanted. */
onq_code oq_quant_look(oq_job *job, oq_model *m, bool trained, oq_quant_input *in, onq_error *err);
/* Warns of a model that was not preprocessed, and says what that costs; `always` also where no
 * cost is seen. */
void oq_quant_warn_unprepared(const oq_job *job, const oq_quant_input *in, bool always);
