/*
 * cv_lift_integer.c — operators of integers whose result is int32 or float: ConvInteger and
 * MatMulInteger with the Cast and the scales after them, DynamicQuantizeMatMul, MatMulIntegerToFloat.
 */
#include "quantize/convert/cv.h"

#define MAX_FACTORS 4

/* What the result of an integer product is multiplied with. */
typedef struct chain {
    oq_str factor[MAX_FACTORS];
    size_t n;
    uint32_t taken[MAX_FACTORS + 2]; /* the nodes: Cast and Mul */
    size_t n_taken;
    oq_str result; /* of the last of them */
} chain;

/* The only reader of a tensor, or OQ_NO_NODE. */
static uint32_t reader_of(const oq_cv_scope *s, oq_str name) {
    const oq_value *v = oq_index_find(&s->index, name);
    return v != NULL && !v->is_output && v->uses.n == 1 && v->uses.v[0].slot != OQ_SLOT_INNER
               ? v->uses.v[0].node
               : OQ_NO_NODE;
}

/* A factor, or those of the Mul that makes it. */
static bool add_factor(const oq_cv_scope *s, oq_str name, chain *c, int depth) {
    const oq_node *n = oq_index_producer(&s->index, name);
    if (n != NULL && oq_node_is(n, "Mul") && n->input.n == 2 && depth < MAX_FACTORS)
        return add_factor(s, n->input.v[0], c, depth + 1) &&
               add_factor(s, n->input.v[1], c, depth + 1);
    if (c->n == MAX_FACTORS)
        return false;
    c->factor[c->n++] = name;
    return true;
}

/* Follows the Cast and the Muls; false where that is not what comes after the node. */
static bool follow(const oq_cv_scope *s, const oq_node *product, chain *c) {
    uint32_t at = reader_of(s, product->output.v[0]);
    const oq_node *cast = at != OQ_NO_NODE ? s->graph->node.v[at] : NULL;
    if (cast == NULL || !oq_node_is(cast, "Cast") || !oq_dtype_is_float(oq_attr_int(cast, "to", 0)))
        return false;
    c->taken[c->n_taken++] = at;
    c->result = cast->output.v[0];
    while (c->n < 2 && c->n_taken < OQ_COUNT(c->taken)) {
        at = reader_of(s, c->result);
        const oq_node *mul = at != OQ_NO_NODE ? s->graph->node.v[at] : NULL;
        if (mul == NULL || !oq_node_is(mul, "Mul") || mul->input.n != 2)
            return false;
        const bool first = oq_str_eq(mul->input.v[0], c->result);
        if (!add_factor(s, mul->input.v[first ? 1 : 0], c, 0))
            return false;
        c->taken[c->n_taken++] = at;
        c->result = mul->output.v[0];
    }
    return c->n == 2;
}

static bool takes(oq_cv_scope *s, chain *c, oq_str scale) {
    for (size_t i = 0; i < c->n; i++)
        if (oq_cv_same(s, scale, c->factor[i])) {
            memmove(&c->factor[i], &c->factor[i + 1], (c->n - i - 1) * sizeof *c->factor);
            c->n--;
            return true;
        }
    return false;
}

/* The scales of both operands. Where one is known the other is what is left; where none is, they are
 * in the order of the operands, as quantizers write them. */
static onq_code operands(oq_cv_scope *s, const oq_node *n, chain *c, oq_cv_param p[2],
                         onq_error *err) {
    const bool conv = oq_node_is(n, "ConvInteger");
    for (size_t i = 0; i < 2; i++) {
        const oq_str data = n->input.v[i], zero = oq_node_input(n, i + 2);
        const oq_cv_param *known = oq_cv_find(s, data);
        p[i] = (oq_cv_param){.axis = 1};
        if (known == NULL)
            continue;
        p[i] = *known;
        if (!takes(s, c, known->scale))
            return oq_cv_refuse(n, ONQ_E_INVALID, err,
                                "its result is not multiplied with the scale of tensor '%.*s'",
                                OQ_STR(data));
        const oq_cv_param used = {.scale = known->scale, .zero = zero, .axis = known->axis};
        if (!oq_cv_same_params(s, known, &used))
            return oq_cv_refuse(n, ONQ_E_INVALID, err,
                                "its zero point '%.*s' is not that of tensor '%.*s'", OQ_STR(zero),
                                OQ_STR(data));
    }
    for (size_t i = 0; i < 2; i++) {
        const oq_tensor *t = oq_cv_constant(s, n->input.v[i]);
        if (p[i].scale.n > 0 || c->n == 0)
            continue;
        p[i].scale = c->factor[0];
        p[i].zero = oq_node_input(n, i + 2);
        p[i].axis = conv ? 0 : t != NULL && t->dims.n > 0 ? (int64_t)t->dims.n - 1 : -1;
        (void)takes(s, c, c->factor[0]);
    }
    if (c->n != 0 || p[0].scale.n == 0 || p[1].scale.n == 0)
        return oq_cv_refuse(n, ONQ_E_INVALID, err,
                            "the scales that its result is multiplied with are not those of its "
                            "inputs '%.*s' and '%.*s'",
                            OQ_STR(n->input.v[0]), OQ_STR(n->input.v[1]));
    return ONQ_OK;
}

onq_code oq_cv_know_integer(oq_cv_scope *s, const oq_node *n, onq_error *err) {
    chain c = {0};
    oq_cv_param p[2];
    onq_error ignored = ONQ_ERROR_INIT;
    if ((!oq_node_is(n, "ConvInteger") && !oq_node_is(n, "MatMulInteger")) || n->input.n < 2 ||
        n->output.n == 0 || !follow(s, n, &c) || operands(s, n, &c, p, &ignored) != ONQ_OK)
        return ONQ_OK; /* lifting says what is wrong */
    OQ_TRY(oq_cv_know(s, n->input.v[0], &p[0], err));
    return oq_cv_know(s, n->input.v[1], &p[1], err);
}

static onq_code lift_product(oq_cv_scope *s, oq_node *n, bool conv, onq_error *err) {
    chain c = {0};
    oq_cv_param p[2];
    if (n->input.n < 2 || n->output.n == 0 || !follow(s, n, &c))
        return oq_cv_refuse(n, ONQ_E_UNSUPPORTED, err,
                            "its integers are not cast to float and multiplied with two scales");
    OQ_TRY(operands(s, n, &c, p, err));
    oq_node *made = oq_cv_as(s, n, "", conv ? "Conv" : "MatMul");
    OQ_TRY_ALLOC(made != NULL, err);
    for (size_t i = 0; i < 2; i++) {
        oq_str x = {0};
        OQ_TRY(oq_cv_dequantize(s, n->input.v[i], &p[i], &x, err));
        OQ_TRY_ALLOC(oq_node_add_input(s->cv->arena, made, x), err);
    }
    for (size_t i = 0; i < c.n_taken; i++)
        s->drop[c.taken[i]] = true;
    OQ_TRY_ALLOC(oq_node_add_output(s->cv->arena, made, c.result), err);
    OQ_TRY(oq_cv_replaced(s, n, err));
    return oq_cv_emit(s, made, err);
}

/* MatMul and the bias that these operators have built in. */
static onq_code emit_matmul(oq_cv_scope *s, const oq_node *n, oq_str a, oq_str b, oq_str bias,
                            onq_error *err) {
    oq_node *mul = oq_cv_as(s, n, "", "MatMul");
    OQ_TRY_ALLOC(mul != NULL, err);
    mul->attribute.n = 0;
    const oq_str out = bias.n > 0 ? oq_cv_fresh(s, n->output.v[0], "_product") : n->output.v[0];
    if (!oq_node_add_input(s->cv->arena, mul, a) || !oq_node_add_input(s->cv->arena, mul, b) ||
        !oq_node_add_output(s->cv->arena, mul, out))
        return oq_fail_nomem(err);
    OQ_TRY(oq_cv_replaced(s, n, err));
    OQ_TRY(oq_cv_emit(s, mul, err));
    if (bias.n == 0)
        return ONQ_OK;
    const oq_str in[] = {out, bias};
    return oq_cv_emit(s,
                      oq_node_make(s->cv->arena, "Add", oq_fresh_node_of(&s->cv->names, n, "_Add"),
                                   in, 2, n->output.v, 1),
                      err);
}

static int64_t last_axis(const oq_cv_scope *s, oq_str name) {
    const oq_tensor *t = oq_cv_constant(s, name);
    return t != NULL && t->dims.n > 0 ? (int64_t)t->dims.n - 1 : -1;
}

static onq_code lift_dynamic(oq_cv_scope *s, const oq_node *n, onq_error *err) {
    if (n->input.n < 3 || n->output.n == 0)
        return oq_cv_refuse(n, ONQ_E_INVALID, err, "inputs are missing");
    oq_str made[3] = {oq_cv_fresh(s, n->input.v[0], "_quantized"),
                      oq_cv_fresh(s, n->input.v[0], "_scale"),
                      oq_cv_fresh(s, n->input.v[0], "_zero_point")};
    OQ_TRY(oq_cv_emit(s,
                      oq_node_make(s->cv->arena, OQ_DYNAMIC_QUANTIZE_LINEAR,
                                   oq_fresh_node_of(&s->cv->names, n, "_DynamicQuantizeLinear"),
                                   n->input.v, 1, made, 3),
                      err));
    const oq_cv_param a = {.scale = made[1], .zero = made[2], .axis = 1};
    const oq_cv_param b = {
        .scale = n->input.v[2], .zero = oq_node_input(n, 3), .axis = last_axis(s, n->input.v[1])};
    oq_str x = {0}, w = {0};
    OQ_TRY(oq_cv_dequantize(s, made[0], &a, &x, err));
    OQ_TRY(oq_cv_dequantize(s, n->input.v[1], &b, &w, err));
    return emit_matmul(s, n, x, w, oq_node_input(n, 4), err);
}

static onq_code lift_to_float(oq_cv_scope *s, const oq_node *n, onq_error *err) {
    if (n->input.n < 4 || n->output.n == 0)
        return oq_cv_refuse(n, ONQ_E_INVALID, err, "inputs are missing");
    const oq_cv_param a = {.scale = n->input.v[2], .zero = oq_node_input(n, 4), .axis = 1};
    const oq_cv_param b = {
        .scale = n->input.v[3], .zero = oq_node_input(n, 5), .axis = last_axis(s, n->input.v[1])};
    oq_str x = {0}, w = {0};
    OQ_TRY(oq_cv_dequantize(s, n->input.v[0], &a, &x, err));
    OQ_TRY(oq_cv_dequantize(s, n->input.v[1], &b, &w, err));
    return emit_matmul(s, n, x, w, oq_node_input(n, 6), err);
}

onq_code oq_cv_lift_integer(oq_cv_scope *s, uint32_t at, bool *done, onq_error *err) {
    oq_node *n = s->graph->node.v[at];
    *done = true;
    if (oq_node_is(n, "ConvInteger") || oq_node_is(n, "MatMulInteger"))
        return lift_product(s, n, oq_node_is(n, "ConvInteger"), err);
    if (oq_str_is(n->domain, OQ_MICROSOFT) && oq_str_is(n->op_type, "DynamicQuantizeMatMul"))
        return lift_dynamic(s, n, err);
    if (oq_str_is(n->domain, OQ_MICROSOFT) && oq_str_is(n->op_type, "MatMulIntegerToFloat"))
        return lift_to_float(s, n, err);
    *done = false;
    return ONQ_OK;
}
