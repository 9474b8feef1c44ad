/*
 * trained.c — fake quantization out of the graph, its parameters into the overrides.
 */
#include "quantize/trained/trained.h"
#include "onnx/operators.h"

#include "onnx/check/check.h"
#include "onnx/tidy.h"
#include "quantize/number/clip.h"
#include "quantize/number/qweight.h"
#include "quantize/trained/trained_parts.h"

typedef struct strip {
    oq_trained_job *job;
    oq_model *m;
    oq_graph *g;
    oq_arena *arena; /* scratch */
    oq_trained_look look;
    OQ_VEC(oq_trained_fake) fakes;
    bool *drop;         /* nodes that go */
    bool *is_last;      /* nodes that end a fake quantization */
    oq_node **stand_in; /* what comes in place of a node, or NULL */
    oq_map moved;       /* name after a fake quantization -> index in moved_to */
    OQ_VEC(oq_str) moved_to;
    oq_map seen;  /* activation -> the first of fakes that rounds it */
    oq_map split; /* activations that are rounded in more than one way */
    bool beyond;  /* more than quantize_qat knows: pairs on inputs of the graph or on weights */
    OQ_VEC(oq_tensor_override *) activations, weights;
} strip;

/* ---- constants ---- */

/* Integers that are made float: (q - zero) x scale. */
typedef struct floats {
    oq_span raw;
    oq_dtype type;
    uint64_t count, along, inner;
    const float *scale;
    const int64_t *zero;
    size_t n;
} floats;

static onq_code make_floats(const oq_producer *self, uint8_t *out, onq_error *err) {
    const floats *f = self->ctx;
    (void)err;
    for (uint64_t i = 0; i < f->count; i++) {
        const uint64_t c = f->n > 1 ? i / f->inner % f->along : 0;
        const float v = (float)(oq_raw_get_int(f->type, f->raw.p, i) - f->zero[c]) * f->scale[c];
        memcpy(out + i * sizeof v, &v, sizeof v);
    }
    return ONQ_OK;
}

/* A float initializer called f->out from integers with the parameters of `f`. */
static onq_code add_floats(strip *s, const oq_trained_fake *f, oq_tensor *shape, oq_span raw,
                           onq_error *err) {
    oq_arena *a = &s->m->arena;
    floats *made = OQ_NEW(a, floats);
    oq_producer *p = OQ_NEW(a, oq_producer);
    oq_tensor *t = oq_tensor_new(a, f->out, OQ_FLOAT, shape->dims.v, shape->dims.n);
    float *scale = OQ_NEW_ARRAY(a, float, f->n);
    int64_t *zero = OQ_NEW_ARRAY(a, int64_t, f->n);
    OQ_TRY_ALLOC(made != NULL && p != NULL && t != NULL && scale != NULL && zero != NULL, err);
    memcpy(scale, f->scale, f->n * sizeof *scale);
    memcpy(zero, f->zero, f->n * sizeof *zero);
    *made = (floats){.raw = raw,
                     .type = f->type,
                     .scale = scale,
                     .zero = zero,
                     .n = f->n,
                     .along = 1,
                     .inner = 1};
    *p = (oq_producer){.make = make_floats, .ctx = made};
    OQ_TRY(oq_tensor_count(t, &made->count, err));
    OQ_TRY(oq_tensor_bytes(t, &p->size, err));
    if (f->n > 1) {
        made->along = (uint64_t)shape->dims.v[f->axis];
        for (size_t i = (size_t)f->axis + 1; i < shape->dims.n; i++)
            made->inner *= (uint64_t)shape->dims.v[i];
    }
    oq_tensor_set_producer(t, p);
    return oq_graph_add_init(a, s->g, t) ? ONQ_OK : oq_fail_nomem(err);
}

/* True if the axis exists, with one parameter for each channel. Makes it 0 .. rank - 1. */
static bool settle_axis(oq_trained_fake *f, const oq_tensor *t) {
    const int64_t rank = (int64_t)t->dims.n;
    if (f->n == 1)
        return true;
    if (f->axis < 0)
        f->axis += rank;
    return f->axis >= 0 && f->axis < rank && t->dims.v[f->axis] == (int64_t)f->n;
}

/* True if the tensor is read as bias only. */
static bool is_bias(const strip *s, oq_str name) {
    const oq_value *v = oq_index_find(&s->look.ix, name);
    for (size_t i = 0; v != NULL && i < v->uses.n; i++) {
        const oq_str op = s->g->node.v[v->uses.v[i].node]->op_type;
        if (oq_op_traits_of(op)->bias != OQ_IN(v->uses.v[i].slot))
            return false;
    }
    return v != NULL && v->uses.n > 0;
}

/* A bias keeps the values that it was trained with, as float; they become int32 when the
 * weight's scale is known. */
static onq_code fold_bias(strip *s, oq_trained_fake *f, oq_tensor *init, onq_error *err) {
    oq_qweight w;
    uint64_t bytes = 0;
    const bool channels = f->n > 1;
    float *scale = OQ_NEW_ARRAY(s->arena, float, f->n);
    int32_t *zero = OQ_NEW_ARRAY(s->arena, int32_t, f->n);
    OQ_TRY_ALLOC(scale != NULL && zero != NULL, err);
    for (size_t i = 0; i < f->n; i++) {
        scale[i] = f->scale[i];
        zero[i] = (int32_t)f->zero[i];
    }
    const oq_qparams params = {scale, zero, f->n};
    OQ_TRY(oq_qweight_init(&w, s->m, init, channels ? OQ_QGROUP_CHANNEL : OQ_QGROUP_TENSOR, f->axis,
                           0, err));
    OQ_TRY(oq_qweight_bytes(&w, f->type, &bytes, err));
    uint8_t *ints = oq_arena_alloc(&s->m->arena, bytes);
    OQ_TRY_ALLOC(ints != NULL, err);
    OQ_TRY(oq_qweight_quantize(&w, f->type, &params, ints, err));
    return add_floats(s, f, init, (oq_span){ints, bytes}, err);
}

/* ---- parameters ---- */

static bool same_params(const oq_tensor_override *t, const oq_trained_fake *f) {
    if (t->channels.n != f->n || t->channels.v[0].has_axis != (f->n > 1) ||
        (f->n > 1 && t->channels.v[0].axis != f->axis))
        return false;
    for (size_t i = 0; i < f->n; i++) {
        const oq_override *o = &t->channels.v[i];
        if (o->type != f->type || o->scale != f->scale[i] || o->zero != f->zero[i])
            return false;
    }
    return true;
}

static onq_code add_range(oq_trained_job *job, oq_str name, oq_dtype real, onq_error *err) {
    oq_range *r = oq_ranges_add(job->ranges, name);
    /* Only the presence of the range counts: the override has the parameters. */
    if (r == NULL || !oq_num_make_one(&job->ranges->arena, &r->lowest, real, true, 0.0) ||
        !oq_num_make_one(&job->ranges->arena, &r->highest, real, true, 1.0))
        return oq_fail_nomem(err);
    return ONQ_OK;
}

static onq_code add_override(strip *s, oq_str name, const oq_trained_fake *f, bool is_weight,
                             onq_error *err) {
    oq_tensor_override *t = oq_overrides_add(s->job->overrides, name);
    OQ_TRY_ALLOC(t != NULL, err);
    oq_override o = t->channels.v[0];
    t->channels.n = 0;
    for (size_t i = 0; i < f->n; i++) {
        o.has_type = o.has_scale = o.has_zero = true;
        o.type = f->type;
        o.scale = f->scale[i];
        o.zero = f->zero[i];
        o.has_axis = f->n > 1;
        o.axis = f->axis;
        OQ_TRY_ALLOC(OQ_PUSH(s->job->overrides->arena, &t->channels, o), err);
    }
    if (!(is_weight ? OQ_PUSH(s->arena, &s->weights, t) : OQ_PUSH(s->arena, &s->activations, t)))
        return oq_fail_nomem(err);
    return is_weight ? ONQ_OK : add_range(s->job, name, f->real, err);
}

static oq_str now_called(const strip *s, oq_str name) {
    const uint32_t i = oq_map_find(&s->moved, name);
    return i != OQ_MAP_NONE ? s->moved_to.v[i] : name;
}

static onq_code move_name(strip *s, oq_str from, oq_str to, onq_error *err) {
    if (oq_str_eq(from, to))
        return ONQ_OK;
    if (!OQ_PUSH(s->arena, &s->moved_to, to) ||
        !oq_map_put(&s->moved, from, (uint32_t)(s->moved_to.n - 1)))
        return oq_fail_nomem(err);
    return ONQ_OK;
}

/* ---- removing ---- */

/* The tensor that is quantized right before it becomes an output of the graph takes the output's
 * name. False: it cannot. */
static onq_code take_output_name(strip *s, oq_trained_fake *f, bool *done, onq_error *err) {
    const oq_value *v = oq_index_find(&s->look.ix, f->in);
    *done = v != NULL && v->producer != OQ_NO_NODE && !v->is_output && !v->is_input &&
            v->init == NULL && !s->is_last[v->producer];
    if (!*done)
        return ONQ_OK;
    s->g->node.v[v->producer]->output.v[v->producer_slot] = f->out;
    OQ_TRY(move_name(s, f->in, f->out, err));
    f->in = f->out;
    return ONQ_OK;
}

static onq_code remove_weight(strip *s, oq_trained_fake *f, oq_tensor *init, onq_error *err) {
    const bool ints = f->ints != NULL;
    if (f->type == OQ_INT32 || is_bias(s, f->out)) {
        oq_span raw = {0};
        if (!ints)
            return fold_bias(s, f, init, err);
        OQ_TRY(oq_model_data(s->m, init, &raw, err));
        return add_floats(s, f, init, raw, err);
    }
    if (ints) {
        oq_span raw = {0};
        OQ_TRY(oq_model_data(s->m, init, &raw, err));
        OQ_TRY(add_floats(s, f, init, raw, err));
        return add_override(s, f->out, f, true, err);
    }
    const oq_tensor_override *there = oq_overrides_find(s->job->overrides, init->name);
    if (there == NULL) {
        OQ_TRY(add_override(s, init->name, f, true, err));
        return move_name(s, f->out, init->name, err);
    }
    if (same_params(there, f))
        return move_name(s, f->out, init->name, err);
    oq_tensor *copy = OQ_NEW(&s->m->arena, oq_tensor);
    OQ_TRY_ALLOC(copy != NULL, err);
    *copy = *init;
    copy->name = f->out;
    OQ_TRY_ALLOC(oq_graph_add_init(&s->m->arena, s->g, copy), err);
    return add_override(s, f->out, f, true, err);
}

/* Readers that were trained with different parameters have a tensor each. */
static onq_code remove_split(strip *s, oq_trained_fake *f, onq_error *err) {
    const uint32_t last = f->nodes[f->n_nodes - 1];
    const oq_str name = s->g->node.v[last]->name;
    s->stand_in[last] = oq_node_make(&s->m->arena, "Identity", name, &f->in, 1, &f->out, 1);
    OQ_TRY_ALLOC(s->stand_in[last] != NULL, err);
    return add_override(s, f->out, f, false, err);
}

static onq_code remove_activation(strip *s, oq_trained_fake *f, bool *done, onq_error *err) {
    const oq_value *out = oq_index_find(&s->look.ix, f->out);
    const oq_value *in = oq_index_find(&s->look.ix, f->in);
    const bool is_split = oq_map_has(&s->split, f->in);
    *done = true;
    s->beyond |= in != NULL && in->is_input;
    f->in = now_called(s, f->in);
    if (is_split)
        return remove_split(s, f, err);
    if (out != NULL && out->is_output) {
        OQ_TRY(take_output_name(s, f, done, err));
        if (!*done)
            return ONQ_OK;
    }
    const oq_tensor_override *there = oq_overrides_find(s->job->overrides, f->in);
    if (there == NULL) {
        OQ_TRY(add_override(s, f->in, f, false, err));
        return move_name(s, f->out, f->in, err);
    }
    return same_params(there, f) ? move_name(s, f->out, f->in, err) : remove_split(s, f, err);
}

static onq_code remove_one(strip *s, oq_trained_fake *f, onq_error *err) {
    oq_tensor *init = f->ints != NULL ? f->ints : oq_index_init(&s->look.ix, now_called(s, f->in));
    const oq_value *out = oq_index_find(&s->look.ix, f->out);
    bool done = true;
    if (init != NULL) {
        done =
            settle_axis(f, init) && (out == NULL || !out->is_output) &&
            (f->ints != NULL || init->data_type.v == OQ_FLOAT || init->data_type.v == OQ_FLOAT16);
        s->beyond |= done;
        if (done)
            OQ_TRY(remove_weight(s, f, init, err));
    } else {
        done = f->n == 1;
        if (done)
            OQ_TRY(remove_activation(s, f, &done, err));
    }
    if (!done)
        return ONQ_OK;
    s->drop[f->nodes[f->n_nodes - 1]] = true;
    s->job->n_removed++;
    return ONQ_OK;
}

/* Removes what only fed removed nodes. */
static void drop_feeders(strip *s) {
    for (size_t k = s->fakes.n; k > 0; k--) {
        const oq_trained_fake *f = &s->fakes.v[k - 1];
        if (!s->drop[f->nodes[f->n_nodes - 1]])
            continue;
        for (size_t j = 0; j + 1 < f->n_nodes; j++) {
            const oq_node *n = s->g->node.v[f->nodes[j]];
            const oq_value *v = oq_index_find(&s->look.ix, n->output.v[0]);
            bool used = v == NULL || v->is_output;
            for (size_t i = 0; !used && i < v->uses.n; i++)
                used = !s->drop[v->uses.v[i].node];
            s->drop[f->nodes[j]] = !used;
        }
    }
}

static onq_code rebuild(strip *s, onq_error *err) {
    drop_feeders(s);
    size_t kept = 0;
    for (size_t i = 0; i < s->g->node.n; i++) {
        oq_node *n = s->stand_in[i] != NULL ? s->stand_in[i] : s->g->node.v[i];
        if (s->drop[i] && s->stand_in[i] == NULL)
            continue;
        s->job->n_left += oq_node_is_quantize(n);
        s->g->node.v[kept++] = n;
    }
    s->g->node.n = kept;
    if (s->moved_to.n > 0)
        OQ_TRY(oq_graph_replace_many(s->m, s->g, &s->moved, s->moved_to.v, err));
    return oq_graph_prune_inits(s->m, s->g, err);
}

/* ---- types ---- */

static void shift(oq_tensor_override *t, oq_dtype type) {
    for (size_t i = 0; i < t->channels.n; i++) {
        oq_override *o = &t->channels.v[i];
        if (o->type == type || (o->type != OQ_INT8 && o->type != OQ_UINT8))
            continue;
        o->zero += type == OQ_UINT8 ? 128 : -128;
        o->type = type;
    }
}

/* int8 with zero point z and uint8 with z + 128 hold the same values. Integer operators need the
 * activation type; else the trained type stays, unless the user names one or, in QLinear operators,
 * which take one type throughout, both occur. */
static void settle_types(strip *s) {
    const oq_trained_job *job = s->job;
    size_t n_signed = 0, n_unsigned = 0;
    for (size_t i = 0; i < s->activations.n; i++) {
        n_signed += s->activations.v[i]->channels.v[0].type == OQ_INT8;
        n_unsigned += s->activations.v[i]->channels.v[0].type == OQ_UINT8;
    }
    const bool mixed = n_signed > 0 && n_unsigned > 0 && job->format == OQ_TRAINED_QOPERATOR;
    if (!job->activation_asked && job->format != OQ_TRAINED_INTEGER && !mixed && n_signed > 0) {
        job->config->activation_type = OQ_INT8;
        if (!job->weight_asked)
            job->config->weight_type = OQ_INT8;
    }
    if (job->activation_asked || mixed || job->format == OQ_TRAINED_INTEGER)
        for (size_t i = 0; i < s->activations.n; i++)
            shift(s->activations.v[i], job->config->activation_type);
    for (size_t i = 0; job->weight_asked && i < s->weights.n; i++)
        shift(s->weights.v[i], job->config->weight_type);
}

/* ---- operators that only move values ---- */

/* The values of a trained tensor stay on its grid through operators that only repeat them (and
 * Relu, since zero is on the grid): rounding before and after is the same. So a node that reads the
 * output can use the parameters. */
static onq_code follow_moves(strip *s, onq_error *err) {
    oq_index ix;
    OQ_TRY(oq_index_build(&ix, s->arena, s->g, NULL, err));
    for (size_t i = 0; i < s->g->node.n; i++) {
        const oq_node *n = s->g->node.v[i];
        const oq_op_traits *traits = oq_op_traits_of(n->op_type);
        if (traits->repeats == OQ_REPEATS_NOTHING || !oq_domain_is_onnx(n->domain) ||
            n->input.n == 0)
            continue;
        const oq_range *r = oq_ranges_find(s->job->ranges, n->input.v[0]);
        const oq_tensor_override *from = oq_overrides_find(s->job->overrides, n->input.v[0]);
        for (size_t k = 0; r != NULL && from != NULL && k < (traits->all_outputs ? n->output.n : 1);
             k++) {
            const oq_value *v = oq_index_find(&ix, n->output.v[k]);
            if (v == NULL || v->is_output || v->uses.n == 0 ||
                oq_overrides_find(s->job->overrides, v->name) != NULL)
                continue;
            oq_tensor_override *to = oq_overrides_add(s->job->overrides, v->name);
            OQ_TRY_ALLOC(to != NULL, err);
            to->channels.v[0] = from->channels.v[0];
            OQ_TRY(add_range(s->job, v->name, r->lowest.type, err));
        }
    }
    return ONQ_OK;
}

/* ---- Relu and Clip ---- */

/* Before a Relu or Clip with a trained output nothing was trained, since nothing needs to be: a
 * QLinear operator gives what comes after it. Where the quantized range does not do the clipping
 * (a symmetric one), the node stays between the two. */
static onq_code settle_relus(strip *s, onq_error *err) {
    oq_overrides *all = s->job->overrides;
    oq_index ix;
    OQ_TRY(oq_index_build(&ix, s->arena, s->g, NULL, err));
    for (size_t i = s->g->node.n; i > 0; i--) {
        const oq_node *n = s->g->node.v[i - 1];
        if (!oq_op_traits_of(n->op_type)->clips || n->output.n != 1 || n->input.n == 0)
            continue;
        oq_tensor_override *after = oq_overrides_find(all, n->output.v[0]);
        const oq_tensor_override *before = oq_overrides_find(all, n->input.v[0]);
        const oq_value *v = oq_index_find(&ix, n->input.v[0]);
        if (after == NULL || v == NULL)
            continue;
        oq_override o = after->channels.v[0];
        oq_bounds bounds;
        bool clips =
            oq_clip_bounds(s->m, &ix, n, &bounds) &&
            oq_bounds_hold(bounds, o.type, (oq_qparam){o.scale, (int32_t)o.zero}, OQ_STEPS_TRAINED);
        const bool alone = v->uses.n == 1 && !v->is_output && v->producer != OQ_NO_NODE;
        if (before != NULL) {
            const oq_override *b = &before->channels.v[0];
            clips = clips && b->scale == o.scale && b->zero == o.zero && b->type == o.type;
        } else if (alone) {
            oq_tensor_override *made = oq_overrides_add(all, n->input.v[0]);
            OQ_TRY_ALLOC(made != NULL, err);
            const oq_range *r = oq_ranges_find(s->job->ranges, n->output.v[0]);
            o.keep_clip = false;
            made->channels.v[0] = o;
            OQ_TRY(add_range(s->job, n->input.v[0], r != NULL ? r->lowest.type : OQ_FLOAT, err));
        }
        after->channels.v[0].keep_clip = !clips;
    }
    return ONQ_OK;
}

/* A Conv without trained output becomes ConvInteger, which takes uint8 activations only: if there
 * is one, all become uint8. */
static void settle_last_conv(strip *s) {
    const oq_overrides *all = s->job->overrides;
    bool needed = false;
    for (size_t i = 0; i < s->g->node.n; i++) {
        const oq_node *n = s->g->node.v[i];
        needed |= oq_op_traits_of(n->op_type)->product == OQ_CONV && n->input.n > 1 &&
                  n->output.n > 0 && oq_overrides_find(all, n->input.v[0]) != NULL &&
                  oq_overrides_find(all, n->output.v[0]) == NULL;
    }
    if (!needed || s->job->activation_asked)
        return;
    s->job->config->activation_type = OQ_UINT8;
    for (size_t i = 0; i < all->all.n; i++)
        if (oq_ranges_find(s->job->ranges, all->all.v[i]->name) != NULL)
            shift(all->all.v[i], OQ_UINT8);
}

/* ---- the whole ---- */

static onq_code find_all(strip *s, onq_error *err) {
    s->look = (oq_trained_look){
        .model = s->m, .arena = s->arena, .any_type = s->job->format == OQ_TRAINED_QDQ};
    OQ_TRY(oq_index_build(&s->look.ix, s->arena, s->g, NULL, err));
    for (uint32_t i = 0; i < s->g->node.n; i++) {
        oq_trained_fake f;
        bool found = false;
        OQ_TRY(oq_trained_match(&s->look, i, &f, &found, err));
        if (!found)
            continue;
        OQ_TRY_ALLOC(OQ_PUSH(s->arena, &s->fakes, f), err);
        if (f.ints != NULL || oq_index_init(&s->look.ix, f.in) != NULL)
            continue;
        const uint32_t first = oq_map_find(&s->seen, f.in);
        if (first == OQ_MAP_NONE
                ? !oq_map_put(&s->seen, f.in, (uint32_t)(s->fakes.n - 1))
                : !oq_trained_same(&s->fakes.v[first], &f) && !oq_map_put(&s->split, f.in, 0))
            return oq_fail_nomem(err);
    }
    return ONQ_OK;
}

static onq_code strip_all(strip *s, onq_error *err) {
    size_t lifted = 0;
    oq_qconfig *c = s->job->config;
    oq_map_init(&s->seen, s->arena);
    oq_map_init(&s->split, s->arena);
    OQ_TRY(oq_model_lift_constants(s->m, &lifted, err));
    OQ_TRY(find_all(s, err));
    s->drop = OQ_NEW_ARRAY(s->arena, bool, s->g->node.n + 1);
    s->stand_in = OQ_NEW_ARRAY(s->arena, oq_node *, s->g->node.n + 1);
    oq_map_init(&s->moved, s->arena);
    s->is_last = OQ_NEW_ARRAY(s->arena, bool, s->g->node.n + 1);
    OQ_TRY_ALLOC(s->drop != NULL && s->stand_in != NULL && s->is_last != NULL, err);
    for (size_t i = 0; i < s->fakes.n; i++)
        s->is_last[s->fakes.v[i].nodes[s->fakes.v[i].n_nodes - 1]] = true;
    /* Outputs first, since they give the tensor its name. */
    for (size_t pass = 0; pass < 2; pass++) {
        for (size_t i = 0; i < s->fakes.n; i++) {
            const oq_value *v = oq_index_find(&s->look.ix, s->fakes.v[i].out);
            if ((v != NULL && v->is_output) == (pass == 0))
                OQ_TRY(remove_one(s, &s->fakes.v[i], err));
        }
    }
    OQ_TRY(rebuild(s, err));
    settle_types(s);
    if (s->beyond || s->job->format != OQ_TRAINED_INTEGER)
        OQ_TRY(follow_moves(s, err));
    if (s->job->format == OQ_TRAINED_QOPERATOR ||
        (s->beyond && s->job->format == OQ_TRAINED_INTEGER))
        OQ_TRY(settle_relus(s, err));
    if (s->job->format == OQ_TRAINED_QOPERATOR)
        settle_last_conv(s);
    s->job->n_activations = s->activations.n;
    s->job->n_weights = s->weights.n;
    c->trained = true;
    c->trained_all = s->beyond;
    c->disable_weight_adjust = true;
    c->keep_removable_activations = true;
    c->matmul_const_b_only = OQ_NO;
    return ONQ_OK;
}

onq_code oq_trained_strip(oq_trained_job *job, onq_error *err) {
    OQ_SCRATCH(scratch, &job->model->env->alloc);
    strip s = {.job = job, .m = job->model, .g = job->model->proto->graph, .arena = &scratch};
    oq_model_touch(job->model);
    OQ_TRY(strip_all(&s, err));
    OQ_ASSERT_VALID(job->model);
    return ONQ_OK;
}
