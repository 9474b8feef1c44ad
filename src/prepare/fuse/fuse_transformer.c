/*
 * fuse_transformer.c — Gelu and LayerNormalization put together from their parts.
 */
#include "prepare/fuse/fuse_pattern.h"

onq_code oq_pattern_replace(oq_fuse *f, const oq_pattern *p, const char *op, const char *domain,
                            const oq_str *in, size_t n_in, oq_node **out, onq_error *err) {
    oq_node *last = oq_fuse_node(f, p->nodes[p->n - 1]);
    last->op_type = oq_str_of(op);
    last->domain = oq_str_of(domain);
    last->attribute.n = 0;
    last->input.n = 0;
    for (size_t i = 0; i < n_in; i++)
        OQ_TRY_ALLOC(oq_node_add_input(&f->m->arena, last, in[i]), err);
    for (size_t i = 0; i + 1 < p->n; i++)
        oq_fuse_drop(f, p->nodes[i]);
    oq_fuse_keep(f, p->nodes[p->n - 1]);
    *out = last;
    return ONQ_OK;
}

onq_code oq_fuse_gelu(oq_fuse *f, uint32_t i, bool *done, onq_error *err) {
    oq_pattern p;
    oq_node *n;
    if (!oq_pattern_gelu(f, i, &p))
        return ONQ_OK;
    const bool own = f->opset >= 20; /* ONNX has it from there on */
    OQ_TRY(oq_pattern_replace(f, &p, "Gelu", own ? "" : "com.microsoft", &p.input, 1, &n, err));
    if (!own)
        OQ_TRY(oq_model_set_opset(f->m, OQ_S("com.microsoft"), 1, err));
    *done = true;
    return ONQ_OK;
}

onq_code oq_fuse_layernorm(oq_fuse *f, uint32_t i, bool *done, onq_error *err) {
    oq_pattern p;
    oq_node *n;
    if (f->opset < 17 || !oq_pattern_layernorm(f, i, &p))
        return ONQ_OK;
    const oq_str in[] = {p.input, p.weight, p.bias};
    OQ_TRY(oq_pattern_replace(f, &p, "LayerNormalization", "", in, 3, &n, err));
    if (!oq_attr_set_int(&f->m->arena, n, OQ_S("axis"), -1) ||
        !oq_attr_set_float(&f->m->arena, n, OQ_S("epsilon"), p.epsilon))
        return oq_fail_nomem(err);
    *done = true;
    return ONQ_OK;
}
