/*
 * channels.c — which tensors are observed, and the order of the edits. See channels.h.
 */
#include "prepare/channels/channels_parts.h"

#include "onnx/check/check.h"
#include "onnx/spill.h"
#include "onnx/tidy.h"

#include <math.h>

#define LARGE (1u << 18) /* bytes of a constant that lies in a file instead of memory */

/* ---- what the edits share ---- */

onq_code oq_channel_constant(oq_channel_state *s, oq_str like, const char *suffix, const float *v,
                             const int64_t *dims, size_t rank, oq_str *name, onq_error *err) {
    oq_model *m = s->c->see.model;
    uint64_t n = 1;
    for (size_t i = 0; i < rank; i++)
        n *= (uint64_t)dims[i];
    *name = oq_fresh_tensor(&s->names, like, suffix);
    oq_tensor *t = name->p != NULL ? oq_tensor_new(&m->arena, *name, OQ_FLOAT, dims, rank) : NULL;
    if (t == NULL || !oq_graph_add_init(&m->arena, m->proto->graph, t) ||
        !oq_index_add_init(&s->ix, t))
        return oq_fail_nomem(err);
    if (n * sizeof *v < LARGE)
        return oq_tensor_set_raw(&m->arena, t, v, n * sizeof *v, err);
    oq_spill spill;
    OQ_TRY(oq_spill_begin(&spill, m, err));
    return oq_spill_end(&spill, oq_spill_put(&spill, t, v, n * sizeof *v, err), err);
}

oq_node *oq_channel_node(oq_channel_state *s, const char *op, oq_str like, const char *suffix,
                         const oq_str *in, size_t n_in, oq_str out) {
    oq_model *m = s->c->see.model;
    const oq_str name = oq_fresh_node(&s->names, like, suffix);
    oq_node *n = name.p != NULL && out.p != NULL
                     ? oq_node_make(&m->arena, op, name, in, n_in, &out, 1)
                     : NULL;
    return n != NULL && oq_graph_add_node(&m->arena, m->proto->graph, n) &&
                   OQ_PUSH(&m->arena, &s->c->added, name)
               ? n
               : NULL;
}

onq_code oq_channel_values(oq_channel_state *s, oq_tensor *t, float **v, size_t *n,
                           onq_error *err) {
    oq_model *m = s->c->see.model;
    oq_span data;
    OQ_TRY(oq_tensor_floats(m, t, &s->once, v, n, err));
    if (oq_model_data(m, t, &data, NULL) != ONQ_OK)
        return ONQ_OK;
    const oq_file *file = oq_model_file_of(m, data.p);
    if (file != NULL) /* it was copied */
        oq_file_drop(file, (uint64_t)(data.p - file->p), data.n);
    return ONQ_OK;
}

onq_code oq_channel_index(oq_channel_state *s, onq_error *err) {
    oq_arena_release(&s->indexed);
    return oq_index_build(&s->ix, &s->indexed, s->c->see.model->proto->graph, NULL, err);
}

void oq_channel_edited(oq_channel_state *s) {
    oq_arena_release(&s->once);
}

/* ---- ranges after the edits ---- */

const oq_channel_stats *oq_channel_seen(const oq_channel_state *s, oq_str name) {
    const uint32_t at = oq_map_find(&s->seen, name), ahead = oq_map_find(&s->looked, name);
    const oq_channel_stats *x = at != OQ_MAP_NONE      ? s->stats.v[at]
                                : ahead != OQ_MAP_NONE ? s->ahead.v[ahead]
                                                       : NULL;
    return x != NULL && !x->skip && x->count > 0 ? x : NULL;
}

onq_code oq_channel_moved_to(oq_channel_state *s, oq_str tensor, double low, double high,
                             onq_error *err) {
    const oq_channel_range range = {tensor, low, high};
    return OQ_PUSH(&s->c->see.model->arena, &s->c->moved, range) ? ONQ_OK : oq_fail_nomem(err);
}

onq_code oq_channel_moved_relu(oq_channel_state *s, oq_str tensor, onq_error *err) {
    assert(s->c->moved.n > 0);
    const oq_channel_range *of = &s->c->moved.v[s->c->moved.n - 1];
    return oq_channel_moved_to(s, tensor, fmax(of->low, 0), fmax(of->high, 0), err);
}

onq_code oq_channel_moved(oq_channel_state *s, oq_str tensor, const oq_channel_stats *stats,
                          const float *factor, onq_error *err) {
    double low = INFINITY, high = -INFINITY;
    if (stats == NULL)
        return OQ_PUSH(&s->c->see.model->arena, &s->c->moved_more, tensor) ? ONQ_OK
                                                                           : oq_fail_nomem(err);
    for (uint64_t i = 0; i < stats->n; i++) {
        low = fmin(low, (double)(stats->low[i] * factor[i]));
        high = fmax(high, (double)(stats->high[i] * factor[i]));
    }
    return oq_channel_moved_to(s, tensor, low, high, err);
}

/* ---- products ---- */

/* Fills what the operator says of channels; false when it is not one for this. */
static bool describe(oq_channel_product *p) {
    const oq_i64s dims = {p->weight->dims.v, p->weight->dims.n, 0};
    const bool turned = oq_gemm_turns_b(p->node);
    const int64_t group = oq_attr_int(p->node, "group", 1);
    switch (p->product) {
    case OQ_CONV:
        if (dims.n < 3 || dims.n > OQ_CHANNEL_AXES || group < 1 || dims.v[0] % group != 0)
            return false;
        p->group = (uint64_t)group;
        p->in_axis = 1;
        p->out_axis = 0;
        break;
    case OQ_GEMM:
    case OQ_MATMUL:
        if (dims.n != 2 || oq_gemm_turns_a(p->node))
            return false;
        p->group = 1;
        p->in_axis = p->product == OQ_GEMM && turned ? 1 : 0;
        p->out_axis = 1 - p->in_axis;
        break;
    case OQ_CONV_TRANSPOSE:
    case OQ_NO_PRODUCT:
        return false;
    }
    p->n_in = (uint64_t)dims.v[p->in_axis] * p->group;
    p->n_out = (uint64_t)dims.v[p->out_axis];
    return p->n_in > 0 && p->n_out > 0;
}

static onq_code observe(oq_channel_state *s, oq_str name, bool image, uint64_t n,
                        oq_channel_stats **out, onq_error *err) {
    const uint32_t at = oq_map_find(&s->seen, name);
    *out = at != OQ_MAP_NONE ? s->stats.v[at] : NULL;
    if (*out != NULL) {
        /* Readers that see different channels. */
        (*out)->skip |= (*out)->is_image != image || (*out)->n != n;
        return ONQ_OK;
    }
    *out = oq_channel_stats_new(s->arena, name, image, n);
    if (*out == NULL || !oq_map_put(&s->seen, name, (uint32_t)s->stats.n) ||
        !OQ_PUSH(s->arena, &s->stats, *out))
        return oq_fail_nomem(err);
    return ONQ_OK;
}

static onq_code add_product(oq_channel_state *s, const oq_channel_choice *choice, onq_error *err) {
    oq_node *n = choice->node;
    const oq_op_traits *traits = oq_op_traits_of(n->op_type);
    if (n->input.n < 2 || n->output.n == 0 || !oq_domain_is_onnx(n->domain) ||
        traits->form != OQ_FORM_FLOAT)
        return ONQ_OK;
    const oq_value *x = oq_index_find(&s->ix, n->input.v[0]);
    oq_tensor *w = oq_index_init(&s->ix, n->input.v[1]);
    oq_channel_product p = {.choice = choice, .node = n, .weight = w, .product = traits->product};
    if (x == NULL || x->init != NULL || w == NULL || w->data_type.v != OQ_FLOAT || !describe(&p))
        return ONQ_OK;
    const bool image = p.product == OQ_CONV;
    if (choice->in || choice->outliers > 0)
        OQ_TRY(observe(s, n->input.v[0], image, p.n_in, &p.in, err));
    if (choice->out && image && oq_channel_has_rows(s, n, p.n_out))
        OQ_TRY(observe(s, n->output.v[0], true, p.n_out, &p.out, err));
    return OQ_PUSH(s->arena, &s->products, p) ? ONQ_OK : oq_fail_nomem(err);
}

static onq_code note_ahead(oq_channel_state *s, oq_str name, bool image, uint64_t n,
                           onq_error *err) {
    if (oq_map_has(&s->seen, name) || oq_map_has(&s->looked, name))
        return ONQ_OK;
    oq_channel_stats *x = oq_channel_stats_new(s->arena, name, image, n);
    return x != NULL && oq_map_put(&s->looked, name, (uint32_t)s->ahead.n) &&
                   OQ_PUSH(s->arena, &s->ahead, x)
               ? ONQ_OK
               : oq_fail_nomem(err);
}

/* The other end of each product: another method for it asks for that, and one run sees all. */
static onq_code look_ahead(oq_channel_state *s, onq_error *err) {
    if (s->c->see.memory == NULL)
        return ONQ_OK;
    for (size_t i = 0; i < s->products.n; i++) {
        const oq_channel_product *p = &s->products.v[i];
        const bool image = p->product == OQ_CONV;
        OQ_TRY(note_ahead(s, p->node->input.v[0], image, p->n_in, err));
        if (image && oq_channel_has_rows(s, p->node, p->n_out))
            OQ_TRY(note_ahead(s, p->node->output.v[0], true, p->n_out, err));
    }
    return ONQ_OK;
}

static onq_code see_channels(oq_channel_state *s, onq_error *err) {
    OQ_TRY(look_ahead(s, err));
    oq_channel_job job = s->c->see;
    job.ahead = s->ahead.v;
    job.n_ahead = s->ahead.n;
    return oq_channel_stats_run(&job, s->stats.v, s->stats.n, s->arena, err);
}

static onq_code run(oq_channel_state *s, onq_error *err) {
    oq_model *m = s->c->see.model;
    OQ_TRY(oq_channel_index(s, err));
    OQ_TRY(oq_fresh_init(&s->names, s->arena, m, err));
    for (size_t i = 0; i < s->c->n_choices; i++)
        OQ_TRY(add_product(s, &s->c->choices[i], err));
    OQ_TRY(see_channels(s, err));
    oq_model_touch(m);
    OQ_TRY(oq_channel_outputs(s, err));
    OQ_TRY(oq_channel_inputs(s, err));
    OQ_TRY(oq_channel_outliers(s, err));
    OQ_TRY(oq_model_clean_inits(m, err));
    OQ_TRY(oq_model_sort(m, err));
    OQ_ASSERT_VALID(m);
    return ONQ_OK;
}

onq_code oq_channels_apply(oq_channels *c, onq_error *err) {
    OQ_SCRATCH(scratch, &c->see.model->env->alloc);
    oq_channel_state s = {.c = c, .arena = &scratch};
    oq_arena_init(&s.once, &c->see.model->env->alloc);
    oq_arena_init(&s.indexed, &c->see.model->env->alloc);
    oq_map_init(&s.seen, &scratch);
    oq_map_init(&s.looked, &scratch);
    const onq_code rc = run(&s, err);
    oq_arena_release(&s.indexed);
    oq_arena_release(&s.once);
    return rc;
}
