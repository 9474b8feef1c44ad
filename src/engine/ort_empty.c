/*
 * ort_empty.c — a sequence without items.
 *
 * The runtime's C interface refuses to make one, but its operator SequenceEmpty does: a model with
 * that one node and no inputs is run, and what it gives is fed on.
 */
#include "engine/ort_private.h"

#include "onnx/attr.h"
#include "onnx/codec/schema.h"
#include "onnx/edit.h"

/* The model: SequenceEmpty(dtype) -> y. */
static oq_model_proto *make_model(oq_arena *a, oq_dtype dt) {
    oq_model_proto *m = OQ_NEW(a, oq_model_proto);
    oq_graph *g = OQ_NEW(a, oq_graph);
    oq_opset *set = OQ_NEW(a, oq_opset);
    oq_value_info *y = OQ_NEW(a, oq_value_info);
    const oq_str out = OQ_S("y");
    oq_node *n = oq_node_make(a, "SequenceEmpty", OQ_S("empty"), NULL, 0, &out, 1);
    if (m == NULL || g == NULL || set == NULL || y == NULL || n == NULL)
        return NULL;
    m->ir_version = OQ_I64(8);
    m->graph = g;
    set->domain = OQ_S("");
    set->version = OQ_I64(11); /* the first with SequenceEmpty */
    y->name = out;             /* its type is inferred */
    g->name = OQ_S("empty");
    return OQ_PUSH(a, &m->opset_import, set) && oq_attr_set_int(a, n, OQ_S("dtype"), (int64_t)dt) &&
                   OQ_PUSH(a, &g->node, n) && OQ_PUSH(a, &g->output, y)
               ? m
               : NULL;
}

static onq_code encode(oq_arena *a, oq_model_proto *m, oq_buf *out, onq_error *err) {
    oq_pieces pieces = {.arena = a};
    (void)oq_encode_size(OQ_SCHEMA_model_proto, m);
    OQ_TRY(oq_encode(&pieces, OQ_SCHEMA_model_proto, m, err));
    for (size_t i = 0; i < pieces.list.n; i++)
        oq_buf_add(out, pieces.list.v[i].p, pieces.list.v[i].n);
    return out->failed ? oq_fail_nomem(err) : ONQ_OK;
}

static OrtStatus *run_model(ort_engine *e, const oq_buf *bytes, OrtValue **out) {
    const oq_ort_api *api = &e->api;
    static const char *const name = "y";
    OrtSessionOptions *o = NULL;
    OrtSession *s = NULL;
    OrtStatus *status = api->CreateSessionOptions(&o);
    if (status == NULL)
        status = api->SetIntraOpNumThreads(o, 1);
    if (status == NULL)
        status = api->CreateSessionFromArray(e->ort_env, bytes->p, bytes->n, o, &s);
    if (status == NULL)
        status = api->Run(s, NULL, NULL, NULL, 0, &name, 1, out);
    if (s != NULL)
        api->ReleaseSession(s);
    if (o != NULL)
        api->ReleaseSessionOptions(o);
    return status;
}

onq_code oq_ort_value_empty(ort_engine *e, oq_arena *a, oq_dtype dt, OrtValue **out,
                            onq_error *err) {
    if (oq_dtype_find((int64_t)dt) == NULL)
        return oq_fail(err, ONQ_E_UNSUPPORTED,
                       "empty sequences of anything but tensors are not supported");
    OQ_SCRATCH_BUF(bytes, a->alloc);
    oq_model_proto *m = make_model(a, dt);
    OQ_TRY(m != NULL ? encode(a, m, &bytes, err) : oq_fail_nomem(err));
    return oq_ort_check(&e->api, run_model(e, &bytes, out), err, "an empty sequence");
}
