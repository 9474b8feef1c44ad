/*
 * nb_experts.c — experts of a MoE: the weights of all of them are stacked in two tensors, and QMoE
 * takes both as integers in blocks.
 *
 * A stack of E matrices [N, K] is one matrix of E * N columns to whoever quantizes it: blocks lie
 * along K, and the bytes of MatMulNBits, expert by expert, are those of QMoE.
 */
#include "quantize/nbits/nb_run.h"

#include "onnx/operators.h"

#define MS "com.microsoft"

/* Places of the inputs of MoE, three for each of fc1, fc2, fc3; QMoE has a scale after each weight. */
enum { X, ROUTER, FC1, FC1_BIAS, FC2, FC2_BIAS, FC3 };
#define Q_FC1_ZEROS 11
#define Q_FC2_ZEROS 12

/* The stack that an input names; NULL, or why it cannot be quantized. */
static const char *find_stack(const oq_nb_choice *c, size_t slot, oq_nb_weight *w) {
    w->scope = c->scope;
    w->tensor = oq_nb_find_init(&w->scope, oq_node_input(c->node, slot));
    if (w->tensor == NULL)
        return OQ_NB_WHY_DYNAMIC;
    const oq_tensor *t = w->tensor;
    const int32_t type = t->data_type.v;
    if (type != OQ_FLOAT && type != OQ_FLOAT16 && type != OQ_BFLOAT16)
        return "its weight is not float";
    if (t->dims.n != 3)
        return "its weight is not a stack of matrices";
    w->turned = true;
    w->batch = 1;
    w->k = (uint64_t)t->dims.v[2];
    w->n = (uint64_t)t->dims.v[0] * (uint64_t)t->dims.v[1]; /* checked with the model */
    return w->k == 0 || w->n == 0 ? OQ_WHY_EMPTY : NULL;
}

/* What QMoE does not have. */
static const char *check(const oq_nb_state *r, const oq_nb_choice *c) {
    const oq_node *n = c->node;
    const bool swiglu = oq_str_is(oq_attr_str(n, "activation_type", "relu"), "swiglu");
    if (r->config->bnb4 || r->config->qdq)
        return "experts need QMoE (`onq nbits` with --quant_format QOperator)";
    if (oq_node_input(n, FC3).n > 0 || (swiglu && oq_attr_int(n, "swiglu_fusion", 0) != 1))
        return "ONNX Runtime's CPU has no such experts (fc3, or a swiglu that is not interleaved)";
    if (c->how.method->real_zero)
        return "QMoE takes integers as zero points only";
    if (c->how.bits == 3)
        return "QMoE takes 2, 4 and 8 bits";
    if (r->config->spends)
        return "--target_bits does not know what experts do (--node_config gives them bits)";
    if (c->weight.k % c->how.block != 0 || c->second.k % c->how.block != 0)
        return "QMoE takes whole blocks only (a smaller --block_size may fit)";
    return NULL;
}

void oq_nb_take_experts(const oq_nb_state *r, oq_nb_choice *c) {
    c->experts = true;
    if (c->node->output.n != 1)
        return;
    c->why = find_stack(c, FC1, &c->weight);
    if (c->why == NULL)
        c->why = find_stack(c, FC2, &c->second);
    if (c->why == NULL)
        c->why = check(r, c);
    /* What experts are multiplied with is inside of the node, where no sample shows it. */
    if (c->how.method->needs_samples)
        c->how.method = &oq_nb_methods[OQ_NB_DEFAULT];
}

/* fc1: the weight, its scales, the bias; then the same of fc2. */
static bool add_parts(oq_nb_state *r, oq_node *made, const oq_nb_done *d, oq_str bias) {
    return oq_node_add_input(r->arena, made, d->part[OQ_NB_Q]->name) &&
           oq_node_add_input(r->arena, made, d->part[OQ_NB_SCALE]->name) &&
           oq_node_add_input(r->arena, made, bias);
}

static bool add_zeros(oq_nb_state *r, oq_node *made, size_t slot, const oq_nb_done *d) {
    bool ok = true;
    if (d->part[OQ_NB_ZEROS] == NULL)
        return true;
    while (ok && made->input.n < slot)
        ok = oq_node_add_input(r->arena, made, OQ_S(""));
    return ok && oq_node_add_input(r->arena, made, d->part[OQ_NB_ZEROS]->name);
}

/* The same node with other weights: it keeps its attributes. */
onq_code oq_nb_emit_experts(oq_nb_state *r, const oq_nb_choice *c, onq_error *err) {
    const oq_node *n = c->node;
    OQ_TRY(oq_nb_store_experts(r, c->done, err));
    OQ_TRY(oq_nb_store_experts(r, c->second_done, err));
    const oq_str ending = oq_str_format(r->arena, "_Q%u", c->how.bits);
    const oq_str in[] = {n->input.v[X], n->input.v[ROUTER]};
    OQ_TRY_ALLOC(ending.p != NULL, err);
    oq_node *made = oq_node_make(r->arena, "QMoE", oq_fresh_node_of(&r->names, n, ending.p), in, 2,
                                 n->output.v, 1);
    OQ_TRY_ALLOC(made != NULL && !r->names.failed, err);
    made->domain = OQ_S(MS);
    made->attribute = n->attribute;
    OQ_TRY_ALLOC(
        add_parts(r, made, c->done, oq_node_input(n, FC1_BIAS)) &&
            add_parts(r, made, c->second_done, oq_node_input(n, FC2_BIAS)) &&
            add_zeros(r, made, Q_FC1_ZEROS, c->done) &&
            add_zeros(r, made, Q_FC2_ZEROS, c->second_done) &&
            oq_attr_set_int(r->arena, made, OQ_S("expert_weight_bits"), c->how.bits) &&
            oq_attr_set_int(r->arena, made, OQ_S("block_size"), (int64_t)c->how.block) &&
            (c->how.accuracy_level == 0 ||
             oq_attr_set_int(r->arena, made, OQ_S("accuracy_level"), c->how.accuracy_level)),
        err);
    oq_node_carry(made, n);
    return OQ_PUSH(r->scratch, &c->scope->out, made) ? ONQ_OK : oq_fail_nomem(err);
}
