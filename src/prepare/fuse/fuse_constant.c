/*
 * fuse_constant.c — constant folding: nodes whose inputs are constants become initializers under
 * the name of their output; Shape and Size also of tensors whose shape is known. evaluate/ computes
 * them.
 */
#include "prepare/evaluate/evaluate.h"
#include "prepare/fuse/fuse.h"

static bool read_inputs(oq_fuse *f, const oq_node *n, oq_eval *c) {
    c->n_in = n->input.n;
    if (n->input.n > OQ_EVAL_INPUTS || n->input.n == 0)
        return false;
    for (size_t k = 0; k < n->input.n; k++) {
        oq_tensor *t = oq_fuse_const(f, n->input.v[k]);
        if (n->input.v[k].n == 0 && k > 0)
            continue;
        if (t == NULL || !oq_cval_of(f->m, t, &c->in[k]))
            return false;
        c->in_bytes += (uint64_t)c->in[k].n * c->in[k].width;
    }
    return true;
}

/* Shape and Size need no values, only dims. */
static bool read_dims(const oq_fuse *f, const oq_node *n, oq_eval *c) {
    int64_t dims[8];
    const int rank = n->input.n == 1 ? oq_fuse_dims(f, n->input.v[0], dims) : -1;
    if (rank < 0 || !(oq_node_is(n, "Shape") || oq_node_is(n, "Size")))
        return false;
    uint64_t count = 1;
    c->n_in = 1;
    c->in[0] = (oq_cval){.rank = (size_t)rank, .given = true};
    for (int k = 0; k < rank; k++) {
        c->in[0].dims[k] = dims[k];
        if (dims[k] < 0 || !oq_mul(count, (uint64_t)dims[k], &count) || count > INT64_MAX)
            return false;
    }
    c->in[0].n = (size_t)count;
    return true;
}

onq_code oq_fuse_fold(oq_fuse *f, uint32_t i, bool *done, onq_error *err) {
    const oq_node *n = oq_fuse_node(f, i);
    if (n->output.n != 1 || !oq_domain_is_onnx(n->domain))
        return ONQ_OK;
    const oq_eval_fn fn = oq_eval_find(n->op_type);
    const oq_value *v = oq_index_find(&f->ix, n->output.v[0]);
    if (fn == NULL || v == NULL || v->is_output)
        return ONQ_OK;
    if (f->fold == NULL && (f->fold = OQ_NEW(f->scratch, oq_eval)) == NULL)
        return oq_fail_nomem(err);
    oq_eval *c = f->fold;
    if (oq_fuse_const(f, oq_node_input(n, 0)) == NULL && !oq_node_is(n, "Shape") &&
        !oq_node_is(n, "Size"))
        return ONQ_OK;
    *c = (oq_eval){.arena = f->scratch, .node = n, .opset = f->opset};
    if (!read_inputs(f, n, c)) {
        *c = (oq_eval){.arena = f->scratch, .node = n, .opset = f->opset};
        if (!read_dims(f, n, c))
            return ONQ_OK;
    }
    if (!fn(c))
        return c->nomem ? oq_fail_nomem(err) : ONQ_OK;
    oq_tensor *t = oq_tensor_new(&f->m->arena, n->output.v[0], c->out.dt, c->out.dims, c->out.rank);
    OQ_TRY_ALLOC(t != NULL && OQ_PUSH(f->scratch, &f->inits, t), err);
    OQ_TRY(oq_tensor_set_raw(&f->m->arena, t, c->out.p, (uint64_t)c->out.n * c->out.width, err));
    /* The nodes after it see the constant in this round. */
    oq_value *made = &f->ix.values.v[v - f->ix.values.v];
    made->init = t;
    made->producer = OQ_NO_NODE;
    oq_fuse_drop(f, i);
    *done = true;
    return ONQ_OK;
}
