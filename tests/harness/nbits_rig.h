/*
 * nbits_rig.h — a model and what weight-only quantization takes with it, for tests of it.
 *
 *     nbits_rig r;
 *     nbits_rig_begin(&r, NULL, "rtn", 4, 16, true);
 *     nbits_rig_product(&r, "20,3", w);
 *     assert_ok(nbits_rig_run(&r, &r.q.err), r.q.err);
 *     const uint8_t *q = nbits_rig_part(&r, "w_Q4G16", OQ_UINT8, "3,2,8");
 *     nbits_rig_end(&r);
 */
#pragma once

#include "quant_rig.h"
#include "quantize/nbits/nbits.h"

typedef struct nbits_rig {
    quant_rig q; /* its model has opset 21; b, config (lists) and plan are used */
    oq_nb_config config;
    oq_nb_made made;
} nbits_rig;

/* alloc as in bm_begin; method is one of oq_nb_methods or of oq_nb_bnb4_methods. */
void nbits_rig_begin(nbits_rig *r, const onq_allocator *alloc, const char *method, unsigned bits,
                     uint64_t block, bool symmetric);
void nbits_rig_end(nbits_rig *r);
const oq_nb_method *nbits_method(const char *name);
/* The nodes "mm": y = x w, with w of this shape ("K,N"). */
void nbits_rig_product(nbits_rig *r, const char *shape, const float *w);
onq_code nbits_rig_run(nbits_rig *r, onq_error *err);
/* The bytes of an initializer, which must be there and have this type and shape. Aligned; they live
 * as long as the rig. */
const void *nbits_rig_part(nbits_rig *r, const char *name, int type, const char *shape);
