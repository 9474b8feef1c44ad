/*
 * qdq_moved.c — where the channels of a constant lie after an operator that moves values.
 *
 * A Gather (or Transpose ...) whose constant is another node's weight per channel shares its
 * parameters, and the pair on its output has no axis: the scales lie along axis 1. That is right
 * where the channels come to lie there, all of them and in their order.
 */
#include "onnx/attr.h"
#include "onnx/operators.h"
#include "quantize/qdq/qdq_state.h"

/* A tensor that shares the scales of channels. */
typedef struct moved {
    const oq_qdq *q;
    const oq_node *node;
    const oq_qdq_tensor *from, *to;
    int64_t axis; /* of the channels in `from` */
    int64_t n;    /* channels */
} moved;

static int64_t rank_of(const oq_qdq *q, const oq_qdq_tensor *t) {
    oq_tensor_info info;
    if (t->init != NULL)
        return (int64_t)t->init->dims.n;
    if (!oq_shapes_tensor(q->shapes, q->outer != NULL ? q->graph : NULL, t->name, &info) ||
        !info.has_shape)
        return -1;
    return (int64_t)info.rank;
}

/* -1: not known, or not there. */
static int64_t dim_of(const oq_qdq *q, const oq_qdq_tensor *t, int64_t i) {
    if (i < 0 || i >= rank_of(q, t))
        return -1;
    return t->init != NULL
               ? t->init->dims.v[i]
               : oq_shapes_dim(q->shapes, q->outer != NULL ? q->graph : NULL, t->name, (size_t)i);
}

/* Values that one step along the axis passes; -1: not known. */
static int64_t stride_of(const oq_qdq *q, const oq_qdq_tensor *t, int64_t axis) {
    int64_t stride = 1;
    for (int64_t i = axis + 1; i < rank_of(q, t); i++) {
        const int64_t dim = dim_of(q, t, i);
        if (dim < 0 || (dim > 0 && stride > INT64_MAX / dim))
            return -1;
        stride *= dim;
    }
    return stride;
}

static bool after_gather(const moved *m) {
    const uint32_t indices = m->q->nodes[m->to->share_node].in[1];
    const int64_t rank = rank_of(m->q, m->from), axis = oq_attr_int(m->node, "axis", 0);
    const int64_t gathered = axis < 0 ? axis + rank : axis;
    const int64_t more = indices != OQ_NO_TENSOR ? rank_of(m->q, oq_qdq_at(m->q, indices)) : -1;
    if (more < 0 || m->axis == gathered)
        return false;
    return (m->axis < gathered ? m->axis : m->axis + more - 1) == 1;
}

static bool after_transpose(const moved *m) {
    const oq_i64s *perm = oq_attr_ints(m->node, "perm");
    const int64_t rank = rank_of(m->q, m->from);
    if (perm != NULL)
        return perm->n > 1 && perm->v[1] == m->axis;
    return m->axis == rank - 2;
}

/* Reshape and its kin: as many channels, as far apart. */
static bool after_reshape(const moved *m) {
    const int64_t stride = stride_of(m->q, m->to, 1);
    return stride >= 0 && stride == stride_of(m->q, m->from, m->axis);
}

/* Of the rest, those that leave an axis as it is where they leave its size. */
static bool after_cut(const moved *m) {
    return m->axis == 1 && m->node->input.n < 5 && rank_of(m->q, m->from) == rank_of(m->q, m->to);
}

bool oq_qdq_channels_stay(const oq_qdq *q, const oq_qdq_tensor *t, const oq_qdq_value *v) {
    static const struct {
        const char *type;
        bool (*after)(const moved *m);
    } rows[] = {
        {"Gather", after_gather},   {"GatherElements", after_cut}, {"Transpose", after_transpose},
        {"Slice", after_cut},       {"Split", after_cut},          {"Reshape", after_reshape},
        {"Squeeze", after_reshape}, {"Unsqueeze", after_reshape},  {"Flatten", after_reshape}};
    const oq_qdq_tensor *from = oq_qdq_at(q, t->share_from);
    const moved m = {.q = q,
                     .node = oq_qdq_node_at(q, t->share_node),
                     .from = from,
                     .to = t,
                     .axis = from->weight != NULL ? (int64_t)from->weight->w.axis : 1,
                     .n = (int64_t)v->n};
    if (dim_of(q, t, 1) != m.n || dim_of(q, from, m.axis) != m.n)
        return false;
    for (size_t i = 0; i < OQ_COUNT(rows); i++)
        if (oq_str_is(m.node->op_type, rows[i].type))
            return rows[i].after(&m);
    return false;
}
