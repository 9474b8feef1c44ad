/*
 * qdq_mark.c — the verbs of QDQ rules: what is marked, how, and in which order.
 *
 * The order matters: pairs are emitted in the order in which tensors were first marked. A tensor
 * that is marked again keeps its place, one that was unmarked goes to the end (a Python dictionary
 * does that).
 */
#include "quantize/qdq/qdq_state.h"

#include "onnx/operators.h"
#include "quantize/choose/act_param.h"
#include "quantize/number/bias.h"

#include <ctype.h>

const oq_qconfig *oq_qdq_config(const oq_qdq *q) {
    return q->config;
}

const onq_env *oq_qdq_env(const oq_qdq *q) {
    return q->model->env;
}

int64_t oq_qdq_opset(const oq_qdq *q) {
    return q->opset;
}

const oq_node *oq_qdq_node_at(const oq_qdq *q, uint32_t node) {
    assert(node < q->n_nodes);
    return q->nodes[node].node;
}

uint32_t oq_qdq_input(const oq_qdq *q, uint32_t node, size_t slot) {
    assert(node < q->n_nodes);
    const oq_qdq_node *n = &q->nodes[node];
    return slot < n->node->input.n ? n->in[slot] : OQ_NO_TENSOR;
}

uint32_t oq_qdq_output(const oq_qdq *q, uint32_t node, size_t slot) {
    assert(node < q->n_nodes);
    const oq_qdq_node *n = &q->nodes[node];
    return slot < n->node->output.n ? n->out[slot] : OQ_NO_TENSOR;
}

bool oq_qdq_is_init(const oq_qdq *q, uint32_t tensor) {
    return tensor != OQ_NO_TENSOR && oq_qdq_at(q, tensor)->init != NULL;
}

static bool is_float(int64_t dt) {
    return dt == OQ_FLOAT || dt == OQ_FLOAT16;
}

bool oq_qdq_is_float_init(const oq_qdq *q, uint32_t tensor) {
    return oq_qdq_is_init(q, tensor) && is_float(oq_qdq_at(q, tensor)->init->data_type.v);
}

int32_t oq_qdq_inferred_type(const oq_qdq *q, uint32_t tensor) {
    return tensor == OQ_NO_TENSOR || (oq_qdq_is_init(q, tensor) && !oq_qdq_at(q, tensor)->is_input)
               ? 0
               : oq_qdq_at(q, tensor)->elem_type;
}

onq_code oq_qdq_is_zero(const oq_qdq *q, uint32_t tensor, bool *out, onq_error *err) {
    const oq_qdq_tensor *t = oq_qdq_at(q, tensor);
    oq_tensor *constant = NULL;
    float *numbers;
    size_t count;
    *out = false;
    for (size_t i = 0; constant == NULL && i < t->makers.n; i++)
        constant = oq_node_constant(oq_qdq_node_at(q, t->makers.v[i].node));
    if (constant == NULL)
        constant = t->init;
    if (constant == NULL || !is_float(constant->data_type.v))
        return ONQ_OK;
    OQ_TRY(oq_tensor_floats(q->model, constant, q->arena, &numbers, &count, err));
    *out = count == 1 && numbers[0] == 0.0f;
    return ONQ_OK;
}

bool oq_qdq_is_marked(const oq_qdq *q, uint32_t tensor) {
    return tensor != OQ_NO_TENSOR &&
           (oq_qdq_at(q, tensor)->marked || oq_qdq_at(q, tensor)->is_bias);
}

bool oq_qdq_output_is_off(oq_qdq *q, uint32_t node) {
    const oq_node *n = oq_qdq_node_at(q, node);
    return oq_pick_has(&q->config->exclude_output_ops, n->op_type) ||
           (n->output.n > 0 && oq_map_has(&q->run->float_outputs, n->output.v[0]));
}

void oq_qdq_leave(oq_qdq *q, const char *why) {
    assert(q->current < q->n_nodes);
    q->nodes[q->current].why = why;
}

/* An activation whose values have no scale. */
static onq_code look_for_infinity(const oq_qdq *q, oq_qdq_tensor *t, onq_error *err) {
    const oq_override *o = oq_overrides_tensor(q->overrides, t->name);
    if (t->looked)
        return ONQ_OK;
    t->looked = true;
    const oq_range *const r =
        t->init == NULL && q->ranges != NULL ? oq_ranges_find(q->ranges, t->name) : NULL;
    if (t->init != NULL)
        OQ_TRY(oq_const_is_infinite(q->model, t->init, o, &t->infinite, err));
    else
        t->infinite = oq_act_is_infinite(r, o);
    if (t->infinite)
        oq_act_warn_infinite(q->model->env, t->name, r);
    return ONQ_OK;
}

/* _is_tensor_quantizable */
static bool can_quantize(oq_qdq *q, uint32_t tensor) {
    if (tensor == OQ_NO_TENSOR)
        return false;
    oq_qdq_tensor *t = oq_qdq_at(q, tensor);
    if (is_float(t->elem_type))
        return true;
    if (!t->has_info && !t->warned) {
        t->warned = true;
        q->plan->n_unknown_type++;
        oq_log(q->model->env, ONQ_LOG_INFO,
               "the type of tensor '%.*s' is not known; it is not quantized", OQ_STR(t->name));
    }
    return false;
}

/* Puts the tensor at the end of the order unless it has a place. */
static onq_code place(oq_qdq *q, uint32_t tensor, onq_error *err) {
    oq_qdq_tensor *t = oq_qdq_at(q, tensor);
    q->nodes[q->current].n_marks++;
    assert(!t->marked || q->order.v[t->place] == tensor);
    if (t->marked)
        return ONQ_OK;
    t->place = (uint32_t)q->order.n;
    t->marked = true;
    return OQ_PUSH(q->arena, &q->order, tensor) ? ONQ_OK : oq_fail_nomem(err);
}

static void unmark(oq_qdq *q, oq_qdq_tensor *t) {
    assert(!t->marked || oq_qdq_at(q, q->order.v[t->place]) == t);
    if (t->marked)
        q->order.v[t->place] = OQ_NO_TENSOR;
    t->marked = false;
    t->share_from = OQ_NO_TENSOR;
    t->axis = -1;
}

/* True if ONNX Runtime would fuse the node with the pairs of its tensors. It does not with a
 * constant of int8 among them, unless the pairs are of com.microsoft. */
static bool is_fused(const oq_qdq *q, const oq_qdq_node *n, const oq_qdq_tensor *out) {
    const oq_dtype type = q->config->activation_type;
    if (!out->marked || n->node->input.n == 0 || (type != OQ_UINT8 && type != OQ_INT8))
        return false;
    for (size_t k = 0; k < n->node->input.n; k++) {
        const oq_qdq_tensor *t = n->in[k] != OQ_NO_TENSOR ? oq_qdq_at(q, n->in[k]) : NULL;
        if (t == NULL || (!t->marked && t->dq_node == OQ_NO_NODE) ||
            (t->init != NULL && type == OQ_INT8 && !q->contrib))
            return false;
    }
    return true;
}

void oq_qdq_unmark_fused(oq_qdq *q) {
    for (uint32_t i = 0; i < q->n_nodes; i++) {
        const oq_qdq_node *n = &q->nodes[i];
        const uint32_t out = oq_qdq_output(q, i, 0);
        if (!oq_op_traits_of(n->node->op_type)->fused_float32 || out == OQ_NO_TENSOR)
            continue;
        oq_qdq_tensor *t = oq_qdq_at(q, out);
        if (t->elem_type != OQ_FLOAT16 || !is_fused(q, n, t))
            continue;
        oq_info(q->model->env, "tensor '%.*s' stays float: ONNX Runtime has no float16 %.*s",
                OQ_STR(t->name), OQ_STR(n->node->op_type));
        unmark(q, t);
    }
}

static onq_code mark_plain(oq_qdq *q, uint32_t tensor, oq_qdq_kind kind, onq_error *err) {
    if (!can_quantize(q, tensor))
        return ONQ_OK;
    oq_qdq_tensor *t = oq_qdq_at(q, tensor);
    /* Of a trained model, activations and plain constants have the parameters of training or
     * none. */
    if (q->config->trained && kind == OQ_QDQ_ACTIVATION &&
        oq_overrides_find(q->overrides, t->name) == NULL)
        return ONQ_OK;
    if (kind == OQ_QDQ_ACTIVATION)
        OQ_TRY(look_for_infinity(q, t, err));
    if (kind == OQ_QDQ_ACTIVATION && t->infinite)
        return ONQ_OK;
    if (!t->marked) {
        t->kind = kind;
        t->axis = -1;
        t->share_from = OQ_NO_TENSOR;
    }
    return place(q, tensor, err);
}

onq_code oq_qdq_activation(oq_qdq *q, uint32_t tensor, onq_error *err) {
    return mark_plain(q, tensor, OQ_QDQ_ACTIVATION, err);
}

static onq_code weight_tensor(oq_qdq *q, uint32_t tensor, onq_error *err) {
    return mark_plain(q, tensor, OQ_QDQ_WEIGHT, err);
}

onq_code oq_qdq_weight_channel(oq_qdq *q, uint32_t tensor, int64_t axis, onq_error *err) {
    if (!oq_qdq_is_float_init(q, tensor))
        return ONQ_OK;
    oq_qdq_tensor *t = oq_qdq_at(q, tensor);
    t->kind = OQ_QDQ_WEIGHT;
    t->axis = axis;
    t->share_from = OQ_NO_TENSOR;
    return place(q, tensor, err);
}

onq_code oq_qdq_same_as(oq_qdq *q, uint32_t tensor, uint32_t from, uint32_t node, onq_error *err) {
    if (!can_quantize(q, tensor))
        return ONQ_OK;
    if (q->config->trained)
        return oq_qdq_activation(q, tensor, err);
    oq_qdq_tensor *t = oq_qdq_at(q, tensor);
    OQ_TRY(look_for_infinity(q, t, err));
    if (t->infinite)
        return ONQ_OK;
    t->kind = OQ_QDQ_ACTIVATION;
    t->axis = -1;
    t->share_from = from;
    t->share_node = node;
    return place(q, tensor, err);
}

/* is_tensor_per_channel: true and the axis (0 .. rank - 1) when the tensor is a weight to be
 * quantized per channel. */
static bool channel_axis(oq_qdq *q, uint32_t tensor, int64_t fallback, const oq_str *op_type,
                         int64_t *axis) {
    if (!oq_qdq_is_init(q, tensor))
        return false;
    const oq_qdq_tensor *t = oq_qdq_at(q, tensor);
    const oq_tensor_override *over = oq_overrides_find(q->overrides, t->name);
    const bool channels = oq_override_is_channel(over);
    if (over != NULL && !channels)
        return false;
    if (!q->config->per_channel && !channels)
        return false;
    *axis = fallback;
    if (op_type != NULL)
        oq_qconfig_axis(q->config, *op_type, axis);
    if (channels)
        *axis = over->channels.v[0].axis;
    const int64_t rank = (int64_t)t->init->dims.n;
    if (*axis < -rank || *axis >= rank) {
        oq_log(q->model->env, ONQ_LOG_INFO,
               "weight '%.*s' of rank %lld has no axis %lld and is quantized per tensor",
               OQ_STR(t->name), (long long)rank, (long long)*axis);
        return false;
    }
    if (*axis < 0)
        *axis += rank;
    return true;
}

onq_code oq_qdq_weight_auto(oq_qdq *q, uint32_t tensor, int64_t fallback, const oq_str *op_type,
                            onq_error *err) {
    int64_t axis;
    if (channel_axis(q, tensor, fallback, op_type, &axis))
        return oq_qdq_weight_channel(q, tensor, axis, err);
    return weight_tensor(q, tensor, err);
}

/* ---- biases ---- */

/* What int() of Python makes of the text after a prefix; false when it raises. */
static bool python_int(oq_str s, int64_t *out) {
    size_t i = 0, end = s.n;
    while (i < end && isspace((unsigned char)s.p[i]))
        i++;
    while (end > i && isspace((unsigned char)s.p[end - 1]))
        end--;
    const bool minus = i < end && s.p[i] == '-';
    if (i < end && (s.p[i] == '-' || s.p[i] == '+'))
        i++;
    int64_t v = 0;
    bool digit = false; /* the last character was one: an underscore may follow */
    for (; i < end; i++) {
        if (s.p[i] == '_' && digit) {
            digit = false;
            continue;
        }
        if (s.p[i] < '0' || s.p[i] > '9' || v > (INT64_MAX - 9) / 10)
            return false;
        v = v * 10 + (s.p[i] - '0');
        digit = true;
    }
    *out = minus ? -v : v;
    return digit;
}

/* get_largest_initializer_name_suffix: the largest number after the bias's name among
 * initializers. What was seen is remembered, so that a bias which a thousand nodes share costs
 * one look at the initializers. */
static int64_t largest_suffix(const oq_qdq *q, oq_qdq_tensor *t) {
    int64_t n;
    for (; t->n_copies_seen < q->tensors.n; t->n_copies_seen++) {
        const oq_qdq_tensor *other = q->tensors.v[t->n_copies_seen];
        if (other->init == NULL || !oq_str_starts(other->name, t->name))
            continue;
        const oq_str rest = {other->name.p + t->name.n, other->name.n - t->name.n};
        if (python_int(rest, &n) && n + 1 > t->next_copy)
            t->next_copy = n + 1;
    }
    return t->next_copy - 1;
}

onq_code oq_qdq_copy_init(oq_qdq *q, oq_qdq_tensor *t, uint32_t *out, onq_error *err) {
    char number[32];
    snprintf(number, sizeof number, "%lld", (long long)largest_suffix(q, t) + 1);
    const oq_str name = oq_fresh_tensor(q->names, t->name, number);
    oq_tensor *init = OQ_NEW(&q->model->arena, oq_tensor);
    OQ_TRY_ALLOC(name.p != NULL && init != NULL, err);
    *init = *t->init; /* the payload is shared, and never changed */
    init->name = name;
    *out = oq_qdq_tensor_new(q, name);
    OQ_TRY_ALLOC(*out != OQ_NO_TENSOR && OQ_PUSH(q->arena, &q->copies, *out), err);
    oq_qdq_at(q, *out)->init = init;
    oq_qdq_at(q, *out)->elem_type = init->data_type.v;
    oq_qdq_at(q, *out)->has_info = true;
    oq_qdq_at(q, *out)->is_new = true;
    return ONQ_OK;
}

/* Every use of `from` by nodes for which `moves` is true becomes a use of `to`. */
static onq_code rewire_inputs(oq_qdq *q, uint32_t from, uint32_t to, uint32_t node,
                              bool (*moves)(const oq_qdq *q, uint32_t user, uint32_t node),
                              onq_error *err) {
    assert(from != to);
    oq_qdq_tensor *t = oq_qdq_at(q, from);
    size_t kept = 0;
    for (size_t i = 0; i < t->uses.n; i++) {
        const oq_use use = t->uses.v[i];
        if (!moves(q, use.node, node)) {
            t->uses.v[kept++] = use;
            continue;
        }
        q->nodes[use.node].in[use.slot] = to;
        OQ_TRY_ALLOC(OQ_PUSH(q->arena, &oq_qdq_at(q, to)->uses, use), err);
    }
    t->uses.n = kept;
    return ONQ_OK;
}

/* As the reference finds nodes by name, all nodes without a name are one (not in inner graphs,
 * which it does not know). */
static bool has_its_name(const oq_qdq *q, uint32_t user, uint32_t node) {
    return q->outer != NULL
               ? user == node
               : oq_str_eq(oq_qdq_node_at(q, user)->name, oq_qdq_node_at(q, node)->name);
}

static bool is_itself(const oq_qdq *q OQ_UNUSED, uint32_t user, uint32_t node) {
    return user == node;
}

onq_code oq_qdq_rewire(oq_qdq *q, uint32_t from, uint32_t to, uint32_t node, onq_error *err) {
    return rewire_inputs(q, from, to, node, is_itself, err);
}

onq_code oq_qdq_bias_tensor(oq_qdq *q, uint32_t node, size_t slot, uint32_t input, uint32_t weight,
                            onq_error *err) {
    uint32_t bias = oq_qdq_input(q, node, slot);
    if (bias == OQ_NO_TENSOR)
        return ONQ_OK;
    oq_qdq_tensor *t = oq_qdq_at(q, bias);
    if (oq_overrides_find(q->overrides, t->name) != NULL)
        return oq_qdq_weight_auto(q, bias, 0, NULL, err);
    if (t->init == NULL) {
        oq_log(q->model->env, ONQ_LOG_INFO, "bias '%.*s' is not an initializer; it stays float",
               OQ_STR(t->name));
        return ONQ_OK;
    }
    if (!is_float(t->init->data_type.v))
        return ONQ_OK;
    if (t->is_bias || t->holder != NULL) {
        /* Two nodes read it, and its scale depends on the node; or its name is another graph's. */
        const uint32_t shared = bias;
        OQ_TRY(oq_qdq_copy_init(q, t, &bias, err));
        OQ_TRY(rewire_inputs(q, shared, bias, node, has_its_name, err));
    }
    const oq_qdq_bias row = {bias, node, input, weight};
    oq_qdq_at(q, bias)->is_bias = true;
    q->nodes[node].n_marks++;
    return OQ_PUSH(q->arena, &q->biases, row) ? ONQ_OK : oq_fail_nomem(err);
}

onq_code oq_qdq_bias_exceeds(const oq_qdq *q, uint32_t node, bool *out, onq_error *err) {
    const uint32_t bias = oq_qdq_input(q, node, 2);
    double scale = 1.0;
    *out = false;
    if (q->config->trained || !oq_qdq_is_float_init(q, bias))
        return ONQ_OK;
    for (size_t slot = 0; slot < 2; slot++) {
        const uint32_t t = oq_qdq_input(q, node, slot);
        oq_qdq_act act;
        bool found = false;
        if (t != OQ_NO_TENSOR && !oq_qdq_is_init(q, t) && is_float(oq_qdq_at(q, t)->elem_type) &&
            !oq_act_is_infinite(oq_ranges_find(q->ranges, oq_qdq_at(q, t)->name), NULL))
            OQ_TRY(oq_qdq_act_params(q, oq_qdq_at(q, t), false, &act, &found, err));
        if (!found)
            return ONQ_OK;
        scale *= (double)act.p.scale;
    }
    *out = oq_bias_exceeds(q->model, oq_qdq_at(q, bias)->init, scale);
    return ONQ_OK;
}

/* ---- Relu and Clip that go away ---- */

/* Every maker of `from` makes `to` instead. */
static bool rewire_outputs(oq_qdq *q, uint32_t from, uint32_t to) {
    oq_qdq_tensor *t = oq_qdq_at(q, from);
    for (size_t i = 0; i < t->makers.n; i++) {
        const oq_use use = t->makers.v[i];
        q->nodes[use.node].out[use.slot] = to;
        if (!OQ_PUSH(q->arena, &oq_qdq_at(q, to)->makers, use))
            return false;
    }
    t->makers.n = 0;
    return true;
}

/* True if the tensor is read without its pair: by a subgraph or, where nodes have pairs of their
 * own, by a node that is not chosen or by the caller of the model. */
static bool is_read_bare(const oq_qdq *q, const oq_qdq_tensor *t) {
    size_t n_chosen = 0;
    for (size_t i = 0; i < t->uses.n; i++)
        n_chosen += q->nodes[t->uses.v[i].node].chosen;
    return t->inner_use || (q->config->dedicated_qdq_pair && n_chosen > 1 &&
                            (t->is_output || n_chosen < t->uses.n));
}

/* *out is true if the quantized range of the output clips as the node does, and as those before it
 * that were removed. A range that the samples gave and that options then made wider (symmetric, by
 * deviations) does not. There the file stays the reference's, and the plan counts what it loses. */
static onq_code range_clips(oq_qdq *q, uint32_t node, oq_bounds *bounds, bool *out,
                            onq_error *err) {
    const oq_qdq_tensor *before = oq_qdq_at(q, oq_qdq_input(q, node, 0));
    const oq_qdq_tensor *after = oq_qdq_at(q, oq_qdq_output(q, node, 0));
    oq_bounds own;
    oq_qdq_act act;
    *out = false;
    if (!oq_clip_bounds(q->model, &q->index, oq_qdq_node_at(q, node), &own))
        return ONQ_OK;
    OQ_TRY(oq_qdq_act_params(q, after, false, &act, out, err));
    *bounds = oq_bounds_then(before->bounds, own);
    if (!*out || oq_bounds_hold(*bounds, act.type, act.p, OQ_STEPS_CALIBRATED))
        return ONQ_OK;
    *out = act.type == OQ_FLOAT8E4M3FN || (oq_overrides_find(q->overrides, after->name) == NULL &&
                                           bounds->low <= 0.0 && bounds->high >= 0.0);
    q->plan->n_unclipped += *out;
    return ONQ_OK;
}

/* What a plan that was read says. */
static bool is_removed_by_plan(const oq_qdq *q, uint32_t node) {
    const oq_plan_node *row = oq_given_node(q->run->given, oq_qdq_node_at(q, node));
    return row != NULL && row->fate == OQ_FATE_REMOVED;
}

onq_code oq_qdq_try_remove(oq_qdq *q, uint32_t node, bool *gone, onq_error *err) {
    assert(!q->nodes[node].removed && q->nodes[node].chosen);
    const uint32_t in = oq_qdq_input(q, node, 0), out = oq_qdq_output(q, node, 0);
    const bool planned = q->run->given != NULL && is_removed_by_plan(q, node);
    *gone = false;
    if (in == OQ_NO_TENSOR || out == OQ_NO_TENSOR || (q->run->given != NULL && !planned))
        return ONQ_OK;
    oq_qdq_tensor *before = oq_qdq_at(q, in), *after = oq_qdq_at(q, out);
    if ((!planned && !oq_qdq_has_range(q, after)) || oq_qdq_convert(q, after) != NULL ||
        oq_qdq_convert(q, before) != NULL)
        return ONQ_OK;
    /* Without a maker in this graph, or with a reader inside a subgraph, the reference writes a
     * model that does not load. */
    if (before->uses.n != 1 || before->is_output || before->is_input || before->inner_use ||
        before->makers.n == 0 || before->dq_node != OQ_NO_NODE || is_read_bare(q, after))
        return ONQ_OK;
    bool clips = planned;
    oq_bounds bounds = after->bounds;
    if (!planned)
        OQ_TRY(range_clips(q, node, &bounds, &clips, err));
    if (!clips)
        return ONQ_OK;
    OQ_TRY_ALLOC(rewire_outputs(q, in, out), err);
    after->bounds = bounds;
    unmark(q, before);
    q->nodes[node].removed = true;
    *gone = true;
    return ONQ_OK;
}

/* The makers that a removed node's output got from its input go back. */
static bool restore_outputs(oq_qdq *q, uint32_t node) {
    const uint32_t in = oq_qdq_input(q, node, 0), out = oq_qdq_output(q, node, 0);
    oq_qdq_tensor *after = oq_qdq_at(q, out);
    if (!rewire_outputs(q, out, in))
        return false;
    oq_qdq_tensor *before = oq_qdq_at(q, in);
    for (size_t i = 0; i < before->makers.n; i++) {
        if (before->makers.v[i].node == node) {
            OQ_REMOVE_AT(&before->makers, i);
            break;
        }
    }
    q->nodes[node].out[0] = out;
    return OQ_PUSH(q->arena, &after->makers, ((oq_use){node, 0}));
}

onq_code oq_qdq_bring_back(oq_qdq *q, onq_error *err) {
    for (uint32_t i = (uint32_t)q->n_nodes; i-- > 0;) {
        oq_qdq_node *n = &q->nodes[i];
        if (!n->removed || oq_qdq_at(q, n->out[0])->marked)
            continue;
        OQ_TRY_ALLOC(restore_outputs(q, i), err);
        n->removed = false;
        q->current = i;
        OQ_TRY(oq_qdq_activation(q, n->in[0], err));
    }
    return ONQ_OK;
}

/* ---- plans that were read ---- */

typedef struct planned {
    uint32_t row, tensor;
} planned;

static int by_row(const void *a, const void *b) {
    const planned *x = a, *y = b;
    return (x->row > y->row) - (x->row < y->row);
}

onq_code oq_qdq_follow_plan(oq_qdq *q, onq_error *err) {
    planned *left = OQ_NEW_ARRAY(q->arena, planned, q->order.n + 1);
    size_t n = 0;
    OQ_TRY_ALLOC(left != NULL, err);
    for (size_t i = 0; i < q->order.n; i++) {
        if (q->order.v[i] == OQ_NO_TENSOR)
            continue;
        oq_qdq_tensor *t = oq_qdq_at(q, q->order.v[i]);
        const uint32_t row = oq_given_row(
            q->run->given, t->name,
            t->init != NULL && t->kind == OQ_QDQ_WEIGHT ? OQ_ROLE_WEIGHT : OQ_ROLE_ACTIVATION);
        if (row == OQ_MAP_NONE)
            t->marked = false;
        else
            left[n++] = (planned){row, q->order.v[i]};
    }
    qsort(left, n, sizeof *left, by_row);
    q->order.n = n;
    for (size_t i = 0; i < n; i++) {
        q->order.v[i] = left[i].tensor;
        oq_qdq_at(q, left[i].tensor)->place = (uint32_t)i;
    }
    return ONQ_OK;
}
