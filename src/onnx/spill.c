/*
 * spill.c — see spill.h.
 */
#include "onnx/spill.h"

#include "onnx/tensor.h"

#define ALIGN 4096 /* whole pages, so that those of one tensor can be given back */

onq_code oq_spill_begin(oq_spill *s, oq_model *m, onq_error *err) {
    *s = (oq_spill){.model = m};
    return oq_out_open_temp(&s->out, &m->env->alloc, err);
}

onq_code oq_spill_put(oq_spill *s, oq_tensor *t, const void *p, uint64_t n, onq_error *err) {
    assert(s->model != NULL && (p != NULL || n == 0));
    static const uint8_t zeros[ALIGN];
    OQ_TRY(oq_out_write(&s->out, zeros, (ALIGN - s->out.size % ALIGN) % ALIGN, err));
    const oq_spilled row = {.tensor = t, .offset = s->out.size, .size = n};
    OQ_TRY_ALLOC(OQ_PUSH(&s->model->arena, &s->all, row), err);
    return oq_out_write(&s->out, p, n, err);
}

static onq_code take(oq_spill *s, onq_error *err) {
    oq_model *m = s->model;
    oq_ext_file *x = OQ_NEW(&m->arena, oq_ext_file);
    OQ_TRY_ALLOC(x != NULL, err);
    OQ_TRY(oq_out_take(&s->out, &x->file, err));
    if (!OQ_PUSH(&m->arena, &m->ext, x)) {
        oq_file_close(&x->file);
        return oq_fail_nomem(err);
    }
    for (size_t i = 0; i < s->all.n; i++)
        oq_tensor_set_view(s->all.v[i].tensor, x->file.p + s->all.v[i].offset, s->all.v[i].size);
    return ONQ_OK;
}

onq_code oq_spill_end(oq_spill *s, onq_code rc, onq_error *err) {
    if (rc == ONQ_OK && s->all.n > 0)
        rc = take(s, err);
    oq_out_abort(&s->out);
    return rc;
}
