/*
 * fuse_linear.c — what follows a Conv, ConvTranspose, Gemm or MatMul and is linear by channel goes
 * into its weights: BatchNormalization, Mul, Div, Add, Sub. Padding before a Conv becomes its
 * padding.
 *
 * New weights are computed in double and rounded once.
 */
#include "onnx/operators.h"
#include "prepare/fuse/fuse.h"

/* A node y = x * w + b whose output channels can be scaled and shifted. */
typedef struct linear {
    uint32_t at;
    oq_node *n;
    oq_tensor *w;
    float *wv;
    size_t count;
    size_t bias_slot;
    oq_tensor *b; /* NULL: none */
    float *bv;    /* n_out of them, zeros when there is none */
    size_t n_out;
    size_t axis;  /* of the weights that counts output channels */
    size_t group; /* ConvTranspose: of the first axis, else 1 */
    bool is_gemm;
} linear;

static onq_code read_bias(oq_fuse *f, linear *l, bool *ok, onq_error *err) {
    const oq_str name = oq_node_input(l->n, l->bias_slot);
    float *v = NULL;
    size_t n = 0;
    *ok = false;
    l->bv = OQ_NEW_ARRAY(f->scratch, float, l->n_out + 1);
    OQ_TRY_ALLOC(l->bv != NULL, err);
    if (name.n != 0) {
        l->b = oq_fuse_const(f, name);
        if (l->b == NULL || l->b->data_type.v != l->w->data_type.v)
            return ONQ_OK;
        OQ_TRY(oq_fuse_floats(f, l->b, &v, &n, err));
        if (v == NULL || (n != l->n_out && n != 1) || l->b->dims.n > 2 ||
            (l->b->dims.n == 2 && l->b->dims.v[0] != 1))
            return ONQ_OK;
        const double beta = l->is_gemm ? (double)oq_attr_float(l->n, "beta", 1.0f) : 1.0;
        for (size_t i = 0; i < l->n_out; i++)
            l->bv[i] = (float)(beta * (double)v[n == 1 ? 0 : i]);
    }
    *ok = true;
    return ONQ_OK;
}

/* Which axis of the weights counts output channels; false when the node cannot take it. */
static bool shape_of(oq_fuse *f, linear *l) {
    const oq_node *n = l->n;
    const oq_i64s dims = {l->w->dims.v, l->w->dims.n, 0};
    l->group = 1;
    l->bias_slot = 2;
    if (oq_node_is(n, "Conv")) {
        l->axis = 0;
        l->n_out = (size_t)dims.v[0];
        return dims.n >= 3;
    }
    if (oq_node_is(n, "ConvTranspose")) {
        const int64_t group = oq_attr_int(n, "group", 1);
        if (dims.n < 3 || group < 1 || dims.v[0] % group != 0)
            return false;
        l->axis = 1;
        l->group = (size_t)group;
        l->n_out = (size_t)dims.v[1] * l->group;
        return true;
    }
    l->is_gemm = oq_node_is(n, "Gemm");
    if (!l->is_gemm && (!oq_node_is(n, "MatMul") || oq_fuse_rank(f, n->input.v[0]) != 2))
        return false;
    l->axis = l->is_gemm && oq_gemm_turns_b(n) ? 0 : 1;
    l->n_out = dims.n == 2 ? (size_t)dims.v[l->axis] : 0;
    return dims.n == 2;
}

/* The linear node that makes `name` for one user only. l->n stays NULL when there is none. */
static onq_code find_linear(oq_fuse *f, oq_str name, linear *l, onq_error *err) {
    bool ok = false;
    *l = (linear){.at = oq_fuse_maker(f, name)};
    if (l->at == OQ_NO_NODE || !oq_fuse_sole(f, name))
        return ONQ_OK;
    oq_node *n = oq_fuse_node(f, l->at);
    if (n->output.n != 1 || n->input.n < 2 || !oq_domain_is_onnx(n->domain))
        return ONQ_OK;
    l->n = n;
    l->w = oq_fuse_const(f, n->input.v[1]);
    if (l->w != NULL && l->w->dims.n >= 2 && shape_of(f, l))
        OQ_TRY(oq_fuse_floats(f, l->w, &l->wv, &l->count, err));
    if (l->wv != NULL && l->n_out != 0)
        OQ_TRY(read_bias(f, l, &ok, err));
    if (!ok)
        l->n = NULL;
    return ONQ_OK;
}

/* y = (x * w + b) * scale + shift, by output channel. */
static void transform(linear *l, const double *scale, const double *shift) {
    size_t inner = 1;
    for (size_t i = l->axis + 1; i < l->w->dims.n; i++)
        inner *= (size_t)l->w->dims.v[i];
    const size_t along = (size_t)l->w->dims.v[l->axis];
    const size_t per_group = l->group > 1 ? (size_t)l->w->dims.v[0] / l->group : SIZE_MAX;
    for (size_t i = 0; i < l->count; i++) {
        size_t c = i / inner % along;
        if (l->group > 1)
            c += i / inner / along / per_group * along;
        l->wv[i] = (float)((double)l->wv[i] * scale[c]);
    }
    for (size_t c = 0; c < l->n_out; c++)
        l->bv[c] = (float)((double)l->bv[c] * scale[c] + shift[c]);
}

/* Puts the new weights into the node, which makes `out` from now on. */
static onq_code write_linear(oq_fuse *f, linear *l, bool scaled, oq_str out, onq_error *err) {
    oq_str name;
    oq_node *n = l->n;
    const int64_t dims[1] = {(int64_t)l->n_out};
    if (scaled) {
        OQ_TRY(oq_fuse_put(f, l->w, l->wv, l->w->dims.v, l->w->dims.n, &name, err));
        n->input.v[1] = name;
    }
    if (l->b != NULL) {
        OQ_TRY(oq_fuse_put(f, l->b, l->bv, dims, 1, &name, err));
    } else {
        const oq_str base = oq_str_cat(&f->m->arena, l->w->name, OQ_S("_bias"));
        OQ_TRY_ALLOC(base.p != NULL, err);
        OQ_TRY(
            oq_fuse_add_floats(f, base, (oq_dtype)l->w->data_type.v, l->bv, dims, 1, &name, err));
    }
    OQ_TRY_ALLOC(oq_fuse_set_input(f, n, l->bias_slot, name), err);
    if (oq_node_is(n, "MatMul"))
        n->op_type = OQ_S("Gemm");
    else if (l->is_gemm)
        (void)oq_attr_remove(n, "beta");
    n->output.v[0] = out;
    oq_fuse_keep(f, l->at);
    return ONQ_OK;
}

/* ---- BatchNormalization ---- */

static onq_code read_channel(oq_fuse *f, oq_str name, size_t n, float **v, onq_error *err) {
    size_t count = 0;
    OQ_TRY(oq_fuse_floats(f, oq_fuse_const(f, name), v, &count, err));
    if (*v != NULL && count != n)
        *v = NULL;
    return ONQ_OK;
}

onq_code oq_fuse_batchnorm(oq_fuse *f, uint32_t i, bool *done, onq_error *err) {
    oq_node *n = oq_fuse_node(f, i);
    linear l;
    float *p[4];
    if (!oq_node_is(n, "BatchNormalization") || n->input.n != 5 || !oq_fuse_one_output(f, n) ||
        oq_attr_int(n, "training_mode", 0) != 0 || oq_attr_int(n, "spatial", 1) == 0)
        return ONQ_OK;
    OQ_TRY(find_linear(f, n->input.v[0], &l, err));
    if (l.n == NULL)
        return ONQ_OK;
    for (size_t k = 0; k < 4; k++) {
        OQ_TRY(read_channel(f, n->input.v[k + 1], l.n_out, &p[k], err));
        if (p[k] == NULL)
            return ONQ_OK;
    }
    double *scale = OQ_NEW_ARRAY(f->scratch, double, l.n_out + 1);
    double *shift = OQ_NEW_ARRAY(f->scratch, double, l.n_out + 1);
    OQ_TRY_ALLOC(scale != NULL && shift != NULL, err);
    const double epsilon = (double)oq_attr_float(n, "epsilon", 1e-5f);
    for (size_t c = 0; c < l.n_out; c++) {
        scale[c] = (double)p[0][c] / sqrt((double)p[3][c] + epsilon);
        shift[c] = (double)p[1][c] - (double)p[2][c] * scale[c];
        if (!isfinite(scale[c]) || !isfinite(shift[c]))
            return ONQ_OK;
    }
    transform(&l, scale, shift);
    OQ_TRY(write_linear(f, &l, true, n->output.v[0], err));
    oq_fuse_drop(f, i);
    *done = true;
    return ONQ_OK;
}

/* ---- Mul and Add ---- */

/* `values`, of which there are n or one for all, as n doubles. */
static onq_code widen(oq_fuse *f, const float *values, size_t count, size_t n, double **v,
                      onq_error *err) {
    *v = OQ_NEW_ARRAY(f->scratch, double, n + 1);
    OQ_TRY_ALLOC(*v != NULL, err);
    for (size_t c = 0; c < n; c++)
        (*v)[c] = (double)values[count == 1 ? 0 : c];
    return ONQ_OK;
}

/* A constant as one number for each of n channels of a tensor of `rank` axes (channels: axis 1); *v
 * NULL when it is of another form. */
static onq_code by_channel(oq_fuse *f, oq_str name, size_t n, size_t rank, double **v,
                           onq_error *err) {
    oq_tensor *t = oq_fuse_const(f, name);
    float *values = NULL;
    size_t count = 0;
    *v = NULL;
    if (t == NULL || t->dims.n > rank)
        return ONQ_OK;
    for (size_t k = 0; k < t->dims.n; k++)
        if (t->dims.v[k] != 1 && rank - t->dims.n + k != 1)
            return ONQ_OK;
    OQ_TRY(oq_fuse_floats(f, t, &values, &count, err));
    if (values == NULL || (count != 1 && count != n))
        return ONQ_OK;
    return widen(f, values, count, n, v, err);
}

/* A Mul, Div, Add or Sub of a linear node's output (`l`) and values by channel (*v, NULL when
 * not). */
static onq_code find_pair(oq_fuse *f, const oq_node *n, bool commutes, linear *l, double **v,
                          onq_error *err) {
    *v = NULL;
    if (n->input.n != 2 || n->output.n != 1 || !oq_domain_is_onnx(n->domain))
        return ONQ_OK;
    for (size_t slot = 0; slot < (commutes ? 2u : 1u); slot++) {
        if (oq_fuse_const(f, n->input.v[1 - slot]) == NULL)
            continue;
        OQ_TRY(find_linear(f, n->input.v[slot], l, err));
        if (l->n == NULL || !(oq_node_is(l->n, "Conv") || oq_node_is(l->n, "ConvTranspose")))
            continue;
        return by_channel(f, n->input.v[1 - slot], l->n_out, l->w->dims.n, v, err);
    }
    return ONQ_OK;
}

static onq_code conv_and(oq_fuse *f, uint32_t i, bool product, bool *done, onq_error *err) {
    oq_node *n = oq_fuse_node(f, i);
    linear l = {0};
    double *v;
    const bool inverse = oq_node_is(n, "Div") || oq_node_is(n, "Sub");
    OQ_TRY(find_pair(f, n, !inverse, &l, &v, err));
    if (v == NULL)
        return ONQ_OK;
    double *other = OQ_NEW_ARRAY(f->scratch, double, l.n_out + 1);
    OQ_TRY_ALLOC(other != NULL, err);
    for (size_t c = 0; c < l.n_out; c++) {
        if (inverse)
            v[c] = product ? 1.0 / v[c] : -v[c];
        other[c] = product ? 0.0 : 1.0;
        if (!isfinite(v[c]))
            return ONQ_OK;
    }
    transform(&l, product ? v : other, product ? other : v);
    OQ_TRY(write_linear(f, &l, product, n->output.v[0], err));
    oq_fuse_drop(f, i);
    *done = true;
    return ONQ_OK;
}

onq_code oq_fuse_conv_mul(oq_fuse *f, uint32_t i, bool *done, onq_error *err) {
    return conv_and(f, i, true, done, err);
}

onq_code oq_fuse_conv_add(oq_fuse *f, uint32_t i, bool *done, onq_error *err) {
    return conv_and(f, i, false, done, err);
}

/* The columns of the weights, and of the bias where there is one, are scaled; a MatMul stays
 * one. */
static onq_code scale_product(oq_fuse *f, linear *l, const double *scale, oq_str out,
                              onq_error *err) {
    oq_str name;
    const int64_t dims[1] = {(int64_t)l->n_out};
    const double *zeros = OQ_NEW_ARRAY(f->scratch, double, l->n_out + 1);
    OQ_TRY_ALLOC(zeros != NULL, err);
    transform(l, scale, zeros);
    OQ_TRY(oq_fuse_put(f, l->w, l->wv, l->w->dims.v, l->w->dims.n, &name, err));
    l->n->input.v[1] = name;
    if (l->b != NULL) {
        OQ_TRY(oq_fuse_put(f, l->b, l->bv, dims, 1, &name, err));
        l->n->input.v[l->bias_slot] = name;
        (void)oq_attr_remove(l->n, "beta");
    }
    l->n->output.v[0] = out;
    oq_fuse_keep(f, l->at);
    return ONQ_OK;
}

/* The columns of a product: one number for each of n, or one for all; *v NULL when it is not. */
static onq_code by_column(oq_fuse *f, oq_str name, size_t n, int rank, double **v, onq_error *err) {
    oq_tensor *t = oq_fuse_const(f, name);
    float *values = NULL;
    size_t count = 0;
    *v = NULL;
    if (t == NULL || rank < 0 || t->dims.n > (size_t)rank)
        return ONQ_OK;
    OQ_TRY(oq_fuse_floats(f, t, &values, &count, err));
    if (values == NULL || (count != 1 && (count != n || (size_t)t->dims.v[t->dims.n - 1] != n)))
        return ONQ_OK;
    return widen(f, values, count, n, v, err);
}

/* MatMul of any rank, or Gemm, with constant weights, times a constant. */
onq_code oq_fuse_product_mul(oq_fuse *f, uint32_t i, bool *done, onq_error *err) {
    oq_node *n = oq_fuse_node(f, i);
    const bool inverse = oq_node_is(n, "Div");
    if (n->input.n != 2 || n->output.n != 1 || !(inverse || oq_node_is(n, "Mul")))
        return ONQ_OK;
    for (size_t slot = 0; slot < (inverse ? 1u : 2u); slot++) {
        const uint32_t at = oq_fuse_maker(f, n->input.v[slot]);
        oq_node *p =
            at != OQ_NO_NODE && oq_fuse_sole(f, n->input.v[slot]) ? oq_fuse_node(f, at) : NULL;
        if (p == NULL || p->input.n < 2 || !(oq_node_is(p, "MatMul") || oq_node_is(p, "Gemm")))
            continue;
        linear l = {.at = at, .n = p, .w = oq_fuse_const(f, p->input.v[1]), .bias_slot = 2};
        bool ok = l.w != NULL && l.w->dims.n == 2;
        double *v = NULL;
        l.is_gemm = oq_node_is(p, "Gemm");
        l.group = 1;
        l.axis = l.is_gemm && oq_gemm_turns_b(p) ? 0 : 1;
        l.n_out = ok ? (size_t)l.w->dims.v[l.axis] : 0;
        if (ok)
            OQ_TRY(oq_fuse_floats(f, l.w, &l.wv, &l.count, err));
        ok = ok && l.wv != NULL && l.n_out > 0;
        if (ok)
            OQ_TRY(read_bias(f, &l, &ok, err));
        if (ok)
            OQ_TRY(by_column(f, n->input.v[1 - slot], l.n_out, oq_fuse_rank(f, n->input.v[slot]),
                             &v, err));
        for (size_t c = 0; v != NULL && c < l.n_out; c++) {
            v[c] = inverse ? 1.0 / v[c] : v[c];
            if (!isfinite(v[c]))
                return ONQ_OK;
        }
        if (v == NULL)
            continue;
        OQ_TRY(scale_product(f, &l, v, n->output.v[0], err));
        oq_fuse_drop(f, i);
        *done = true;
        return ONQ_OK;
    }
    return ONQ_OK;
}

/* ---- Gemm ---- */

onq_code oq_fuse_gemm_add(oq_fuse *f, uint32_t i, bool *done, onq_error *err) {
    oq_node *n = oq_fuse_node(f, i);
    if (n->input.n != 2 || n->output.n != 1 || !oq_node_is(n, "Add"))
        return ONQ_OK;
    for (size_t slot = 0; slot < 2; slot++) {
        const uint32_t at = oq_fuse_maker(f, n->input.v[slot]);
        const oq_tensor *bias = oq_fuse_const(f, n->input.v[1 - slot]);
        if (at == OQ_NO_NODE || bias == NULL || !oq_fuse_sole(f, n->input.v[slot]))
            continue;
        oq_node *g = oq_fuse_node(f, at);
        const bool matmul = oq_node_is(g, "MatMul");
        int64_t w[8];
        if (!(matmul || oq_node_is(g, "Gemm")) || oq_node_input(g, 2).n != 0 || g->input.n < 2 ||
            (matmul && oq_fuse_rank(f, g->input.v[0]) != 2) ||
            oq_fuse_dims(f, g->input.v[1], w) != 2)
            continue;
        const int64_t n_out = !matmul && oq_gemm_turns_b(g) ? w[0] : w[1];
        if (!oq_dtype_is_float(bias->data_type.v) || bias->dims.n > 2 ||
            (bias->dims.n == 2 && bias->dims.v[0] != 1) ||
            (bias->dims.n != 0 && bias->dims.v[bias->dims.n - 1] != n_out &&
             bias->dims.v[bias->dims.n - 1] != 1))
            continue;
        if (matmul)
            g->op_type = OQ_S("Gemm");
        (void)oq_attr_remove(g, "beta");
        OQ_TRY_ALLOC(oq_fuse_set_input(f, g, 2, bias->name), err);
        g->output.v[0] = n->output.v[0];
        oq_fuse_keep(f, at);
        oq_fuse_drop(f, i);
        *done = true;
        return ONQ_OK;
    }
    return ONQ_OK;
}

/* ---- Pad ---- */

static onq_code pad_amounts(oq_fuse *f, const oq_node *n, const int64_t **v, size_t *count,
                            onq_error *err) {
    const oq_i64s *attr = oq_attr_ints(n, "pads");
    int64_t *values = NULL;
    double zero = 0;
    *v = NULL;
    if (!oq_str_is(oq_attr_str(n, "mode", "constant"), "constant") || oq_node_input(n, 3).n != 0)
        return ONQ_OK;
    if (attr != NULL) {
        if (oq_attr_float(n, "value", 0.0f) != 0.0f)
            return ONQ_OK;
        *v = attr->v;
        *count = attr->n;
        return ONQ_OK;
    }
    if (oq_node_input(n, 2).n != 0 && (!oq_fuse_scalar(f, n->input.v[2], &zero) || zero != 0.0))
        return ONQ_OK;
    OQ_TRY(oq_fuse_ints(f, oq_node_input(n, 1), &values, count, err));
    *v = values;
    return ONQ_OK;
}

onq_code oq_fuse_pad(oq_fuse *f, uint32_t i, bool *done, onq_error *err) {
    const oq_node *n = oq_fuse_node(f, i);
    const int64_t *pads;
    size_t count = 0;
    int64_t sum[2 * 8] = {0};
    if (!oq_node_is(n, "Pad") || n->output.n != 1 || n->input.n == 0)
        return ONQ_OK;
    const uint32_t at = oq_fuse_user(f, n->output.v[0]);
    oq_node *conv = at != OQ_NO_NODE ? oq_fuse_node(f, at) : NULL;
    if (conv == NULL || !oq_node_is(conv, "Conv") || !oq_str_eq(conv->input.v[0], n->output.v[0]) ||
        !oq_str_is(oq_attr_str(conv, "auto_pad", "NOTSET"), "NOTSET"))
        return ONQ_OK;
    OQ_TRY(pad_amounts(f, n, &pads, &count, err));
    if (pads == NULL || count < 6 || count % 2 != 0 || count > 2 * 8)
        return ONQ_OK;
    const size_t rank = count / 2, spatial = rank - 2;
    const oq_i64s *old = oq_attr_ints(conv, "pads");
    if (old != NULL && old->n != 2 * spatial)
        return ONQ_OK;
    for (size_t k = 0; k < count; k++) {
        const size_t axis = k % rank;
        if (pads[k] < 0 || pads[k] > INT32_MAX || (axis < 2 && pads[k] != 0))
            return ONQ_OK;
        if (axis >= 2) {
            const size_t to = k / rank * spatial + axis - 2;
            sum[to] = pads[k] + (old != NULL ? old->v[to] : 0);
        }
    }
    OQ_TRY_ALLOC(oq_attr_set_ints(&f->m->arena, conv, OQ_S("pads"), sum, 2 * spatial), err);
    conv->input.v[0] = n->input.v[0];
    oq_fuse_keep(f, at);
    oq_fuse_drop(f, i);
    *done = true;
    return ONQ_OK;
}
