/*
 * smooth_edit.c — SmoothQuant's edits: scaled weights, and the division in a Mul or in the node
 * before.
 */
#include "prepare/smooth_parts.h"

#include "onnx/attr.h"
#include "onnx/check.h"
#include "onnx/edit.h"
#include "onnx/tidy.h"

/* A copy of a constant with element i multiplied by factor[i / inner % n] (n factors along an
 * axis). It has a new name; what reads the old one does so still. */
static onq_code scaled(oq_smoothing *s, oq_tensor *t, size_t axis, const float *factor, uint64_t n,
                       oq_str *name, onq_error *err) {
    oq_model *m = s->job->model;
    oq_span data;
    uint64_t count, inner = 1;
    OQ_TRY(oq_model_data(m, t, &data, err));
    OQ_TRY(oq_tensor_count(t, &count, err));
    for (size_t i = axis + 1; i < t->dims.n; i++)
        inner *= (uint64_t)t->dims.v[i];
    *name = oq_fresh_tensor(&s->names, t->name, "_smooth");
    float *v = OQ_NEW_ARRAY(&m->arena, float, count + 1);
    oq_tensor *copy =
        name->p != NULL ? oq_tensor_new(&m->arena, *name, OQ_FLOAT, t->dims.v, t->dims.n) : NULL;
    if (v == NULL || copy == NULL || !oq_graph_add_init(&m->arena, m->proto->graph, copy))
        return oq_fail_nomem(err);
    if (count > 0 && inner > 0 && n > 0) {
        memcpy(v, data.p, count * sizeof(float));
        for (uint64_t i = 0; i < count; i++)
            v[i] *= factor[i / inner % n];
    }
    oq_tensor_set_view(copy, v, count * sizeof(float));
    return ONQ_OK;
}

/* A float initializer whose axis has n elements. */
static oq_tensor *constant(const oq_smoothing *s, const oq_node *n, size_t slot, size_t axis,
                           uint64_t count) {
    const oq_value *v = slot < n->input.n && n->input.v[slot].n > 0
                            ? oq_index_find(&s->ix, n->input.v[slot])
                            : NULL;
    oq_tensor *t = v != NULL ? v->init : NULL;
    if (t == NULL || t->data_type.v != OQ_FLOAT || t->dims.n <= axis ||
        (uint64_t)t->dims.v[axis] != count)
        return NULL;
    return t;
}

/* Input `slot` of the maker is multiplied with the factors. */
static onq_code scale_input(oq_smoothing *s, oq_node *n, size_t slot, oq_tensor *t, size_t axis,
                            const float *factor, uint64_t count, onq_error *err) {
    oq_str name;
    OQ_TRY(scaled(s, t, axis, factor, count, &name, err));
    n->input.v[slot] = name;
    return ONQ_OK;
}

/* What of the maker is multiplied so that its output is: inputs and their axes. */
typedef struct plan {
    size_t slot[2], axis[2];
    oq_tensor *t[2];
    size_t n;
} plan;

static bool plan_input(const oq_smoothing *s, const oq_node *n, size_t slot, size_t axis,
                       uint64_t count, plan *p) {
    oq_tensor *t = constant(s, n, slot, axis, count);
    if (t == NULL)
        return false;
    p->slot[p->n] = slot;
    p->axis[p->n] = axis;
    p->t[p->n++] = t;
    return true;
}

static bool has_input(const oq_node *n, size_t slot) {
    return slot < n->input.n && n->input.v[slot].n > 0;
}

/* True if the node that makes the tensor can take over the division. */
static bool can_fold(const oq_smoothing *s, const oq_node *n, const oq_smooth_tensor *t, plan *p) {
    const uint64_t c = t->n;
    *p = (plan){.n = 0};
    if (n->domain.n > 0)
        return false;
    if (t->is_image) {
        if (oq_str_is(n->op_type, "Conv"))
            return plan_input(s, n, 1, 0, c, p) &&
                   (!has_input(n, 2) || plan_input(s, n, 2, 0, c, p));
        if (oq_str_is(n->op_type, "BatchNormalization") ||
            oq_str_is(n->op_type, "InstanceNormalization"))
            return plan_input(s, n, 1, 0, c, p) && plan_input(s, n, 2, 0, c, p);
        return false;
    }
    if (oq_str_is(n->op_type, "LayerNormalization")) {
        const oq_value *scale = oq_index_find(&s->ix, n->input.v[1]);
        return scale != NULL && scale->init != NULL && scale->init->dims.n == 1 &&
               oq_attr_int(n, "axis", -1) == -1 && plan_input(s, n, 1, 0, c, p) &&
               (!has_input(n, 2) || plan_input(s, n, 2, 0, c, p));
    }
    if (oq_str_is(n->op_type, "MatMul")) {
        const oq_value *w = oq_index_find(&s->ix, n->input.v[1]);
        return w != NULL && w->init != NULL && w->init->dims.n == 2 && plan_input(s, n, 1, 1, c, p);
    }
    if (oq_str_is(n->op_type, "Gemm")) {
        const size_t axis = oq_attr_int(n, "transB", 0) != 0 ? 0 : 1;
        const oq_value *b = has_input(n, 2) ? oq_index_find(&s->ix, n->input.v[2]) : NULL;
        if (has_input(n, 2) && (b == NULL || b->init == NULL || b->init->dims.n == 0))
            return false;
        return plan_input(s, n, 1, axis, c, p) &&
               (!has_input(n, 2) || plan_input(s, n, 2, b->init->dims.n - 1, c, p));
    }
    if (oq_str_is(n->op_type, "Mul")) {
        for (size_t slot = 0; slot < 2 && slot < n->input.n; slot++) {
            const oq_value *v = oq_index_find(&s->ix, n->input.v[slot]);
            if (v != NULL && v->init != NULL && v->init->dims.n > 0 &&
                plan_input(s, n, slot, v->init->dims.n - 1, c, p))
                return true;
        }
    }
    return false;
}

/* True if only these nodes read it and a node makes it. */
static bool only_readers(const oq_value *v, const oq_smooth_tensor *t) {
    return v != NULL && !v->is_output && v->producer != OQ_NO_NODE && v->uses.n == t->readers.n;
}

/* The division as a Mul that the readers read instead. */
static onq_code add_mul(oq_smoothing *s, oq_smooth_tensor *t, const float *factor, onq_error *err) {
    oq_model *m = s->job->model;
    oq_arena *a = &m->arena;
    const oq_str scale = oq_fresh_tensor(&s->names, t->name, "_smooth_scale");
    const oq_str out = oq_fresh_tensor(&s->names, t->name, "_smooth_output");
    const oq_str name = oq_fresh_node(&s->names, t->name, "_smooth_mul");
    int64_t dims[8] = {(int64_t)t->n, 1, 1, 1, 1, 1, 1, 1};
    const size_t rank = t->is_image ? t->readers.v[0].weight->dims.n - 1 : 1;
    if (scale.p == NULL || out.p == NULL || name.p == NULL)
        return oq_fail_nomem(err);
    oq_tensor *init = oq_tensor_new(a, scale, OQ_FLOAT, dims, rank);
    if (init == NULL || !oq_graph_add_init(a, m->proto->graph, init))
        return oq_fail_nomem(err);
    OQ_TRY(oq_tensor_set_raw(a, init, factor, t->n * sizeof(float), err));
    const oq_str in[2] = {t->name, scale};
    oq_node *mul = oq_node_make(a, "Mul", name, in, 2, &out, 1);
    if (mul == NULL || !OQ_PUSH(s->arena, &s->new_nodes, mul))
        return oq_fail_nomem(err);
    for (size_t i = 0; i < t->readers.n; i++)
        t->readers.v[i].node->input.v[0] = out;
    return OQ_PUSH(a, &s->job->added, name) ? ONQ_OK : oq_fail_nomem(err);
}

onq_code oq_smooth_apply(oq_smoothing *s, oq_smooth_tensor *t, onq_error *err) {
    float *factor = OQ_NEW_ARRAY(s->arena, float, t->n + 1);
    const oq_value *v = oq_index_find(&s->ix, t->name);
    plan p;
    if (factor == NULL)
        return oq_fail_nomem(err);
    oq_model_touch(s->job->model);
    for (uint64_t c = 0; c < t->n; c++)
        factor[c] = 1.0f / t->scale[c];
    oq_node *maker = only_readers(v, t) ? s->ix.graph->node.v[v->producer] : NULL;
    if (s->job->folding && maker != NULL && can_fold(s, maker, t, &p)) {
        /* What the maker reads now may have been scaled for another tensor already. */
        for (size_t i = 0; i < p.n; i++) {
            oq_tensor *now =
                oq_graph_find_init(s->job->model->proto->graph, maker->input.v[p.slot[i]]);
            OQ_TRY(scale_input(s, maker, p.slot[i], now != NULL ? now : p.t[i], p.axis[i], factor,
                               t->n, err));
        }
        s->job->n_folded++;
    } else {
        OQ_TRY(add_mul(s, t, factor, err));
    }
    for (size_t i = 0; i < t->readers.n; i++) {
        oq_smooth_reader *r = &t->readers.v[i];
        oq_tensor *now = oq_graph_find_init(s->job->model->proto->graph, r->node->input.v[1]);
        OQ_TRY(scale_input(s, r->node, 1, now != NULL ? now : r->weight, r->w_axis, t->scale, t->n,
                           err));
    }
    return ONQ_OK;
}

onq_code oq_smooth_finish(oq_smoothing *s, onq_error *err) {
    oq_model *m = s->job->model;
    if (s->job->n_tensors == 0)
        return ONQ_OK;
    for (size_t i = 0; i < s->new_nodes.n; i++)
        if (!oq_graph_add_node(&m->arena, m->proto->graph, s->new_nodes.v[i]))
            return oq_fail_nomem(err);
    OQ_TRY(oq_model_clean_inits(m, err));
    OQ_TRY(oq_model_sort(m, err));
    OQ_ASSERT_VALID(m);
    return ONQ_OK;
}
