/*
 * spill.h — new values of large tensors, in a file without a name instead of memory.
 *
 *     oq_spill s;
 *     OQ_TRY(oq_spill_begin(&s, model, err));
 *     for each tensor
 *         rc = oq_spill_put(&s, tensor, bytes, n, err);   all n bytes of it
 *     rc = oq_spill_end(&s, rc, err);
 *
 * Until the end the tensors are as they were. Afterwards their bytes are in the file, which is
 * mapped as long as the model is open: the system may take its pages back. It lies in $TMPDIR, or
 * /tmp.
 */
#pragma once

#include "onnx/model.h"

typedef struct oq_spilled {
    oq_tensor *tensor;
    uint64_t offset, size;
} oq_spilled;

typedef struct oq_spill {
    oq_model *model;
    oq_out out;
    OQ_VEC(oq_spilled) all;
} oq_spill;

onq_code oq_spill_begin(oq_spill *s, oq_model *m, onq_error *err);
onq_code oq_spill_put(oq_spill *s, oq_tensor *t, const void *p, uint64_t n, onq_error *err);
/* Releases the file again when `rc` is a failure, and returns that. */
onq_code oq_spill_end(oq_spill *s, onq_code rc, onq_error *err);
