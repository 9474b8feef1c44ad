/*
 * channels_outliers.c — the widest channels of a MatMul's input in float beside the integer
 * product.
 *
 *     y = MatMul(Clip(x), W with rows of zeros) - MatMul(Gather(x, channels), -W[channels])
 *
 * It is a Sub because the runtime makes a float Gemm of a MatMul with two axes and an Add.
 */
#include "prepare/channels/channels_parts.h"

#include "base/keyed.h"

/* What the products that read one tensor share. */
typedef struct split {
    oq_channel_stats *stats;
    uint32_t *channels; /* in order */
    uint32_t n;
    oq_str clipped, gathered;
} split;

typedef OQ_VEC(split) splits;

static int in_order(const void *a, const void *b) {
    const uint32_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* The range of the channels that are not among the widest. */
static onq_code choose_channels(oq_channel_state *s, split *p, float bounds[2], onq_error *err) {
    oq_keyed *all = OQ_NEW_ARRAY(&s->once, oq_keyed, p->stats->n + 1);
    p->channels = OQ_NEW_ARRAY(s->arena, uint32_t, p->n + 1);
    OQ_TRY_ALLOC(all != NULL && p->channels != NULL, err);
    for (uint32_t c = 0; c < p->stats->n; c++)
        all[c] = (oq_keyed){-(double)oq_channel_most(p->stats, c), c};
    oq_keyed_sort(all, p->stats->n); /* the widest first */
    bounds[0] = bounds[1] = 0.0f;
    for (uint32_t i = 0; i < p->stats->n; i++) {
        const uint32_t c = all[i].at;
        if (i < p->n)
            p->channels[i] = c;
        else {
            bounds[0] = fminf(bounds[0], p->stats->low[c]);
            bounds[1] = fmaxf(bounds[1], p->stats->high[c]);
        }
    }
    qsort(p->channels, p->n, sizeof *p->channels, in_order);
    return ONQ_OK;
}

static onq_code add_channels(oq_channel_state *s, const split *p, oq_str *name, onq_error *err) {
    oq_model *m = s->c->see.model;
    const int64_t dims[1] = {(int64_t)p->n};
    int64_t *v = OQ_NEW_ARRAY(&s->once, int64_t, p->n + 1);
    *name = oq_fresh_tensor(&s->names, p->stats->name, "_outlier_channels");
    oq_tensor *t = name->p != NULL ? oq_tensor_new(&m->arena, *name, OQ_INT64, dims, 1) : NULL;
    OQ_TRY_ALLOC(v != NULL && t != NULL && oq_graph_add_init(&m->arena, m->proto->graph, t), err);
    for (uint32_t i = 0; i < p->n; i++)
        v[i] = p->channels[i];
    return oq_tensor_set_raw(&m->arena, t, v, p->n * sizeof *v, err);
}

/* Clip and Gather of x. */
static onq_code add_split(oq_channel_state *s, split *p, onq_error *err) {
    const oq_str x = p->stats->name;
    oq_str low, high, channels;
    float bounds[2];
    OQ_TRY(choose_channels(s, p, bounds, err));
    OQ_TRY(oq_channel_constant(s, x, "_inlier_low", &bounds[0], NULL, 0, &low, err));
    OQ_TRY(oq_channel_constant(s, x, "_inlier_high", &bounds[1], NULL, 0, &high, err));
    OQ_TRY(add_channels(s, p, &channels, err));
    p->clipped = oq_fresh_tensor(&s->names, x, "_inliers");
    p->gathered = oq_fresh_tensor(&s->names, x, "_outliers");
    OQ_TRY_ALLOC(p->clipped.p != NULL, err);
    OQ_TRY(oq_channel_moved_to(s, p->clipped, (double)bounds[0], (double)bounds[1], err));
    const oq_node *clip =
        oq_channel_node(s, "Clip", x, "_inliers", (oq_str[]){x, low, high}, 3, p->clipped);
    oq_node *gather =
        oq_channel_node(s, "Gather", x, "_outliers", (oq_str[]){x, channels}, 2, p->gathered);
    if (clip == NULL || gather == NULL ||
        !oq_attr_set_int(&s->c->see.model->arena, gather, OQ_S("axis"), -1))
        return oq_fail_nomem(err);
    return ONQ_OK;
}

static onq_code find_split(oq_channel_state *s, const oq_channel_product *p, splits *all,
                           split **out, onq_error *err) {
    for (size_t i = 0; i < all->n; i++) {
        *out = &all->v[i];
        if ((*out)->stats == p->in && (*out)->n == p->choice->outliers)
            return ONQ_OK;
    }
    split made = {.stats = p->in, .n = p->choice->outliers};
    OQ_TRY(add_split(s, &made, err));
    OQ_TRY_ALLOC(OQ_PUSH(s->arena, all, made), err);
    *out = &all->v[all->n - 1];
    return ONQ_OK;
}

static onq_code split_product(oq_channel_state *s, oq_channel_product *p, const split *with,
                              onq_error *err) {
    oq_model *m = s->c->see.model;
    float *w = NULL;
    size_t n = 0;
    oq_str zeroed, rows;
    OQ_TRY(oq_channel_values(s, p->weight, &w, &n, err));
    const int64_t dims[2] = {(int64_t)with->n, (int64_t)p->n_out};
    float *part = OQ_NEW_ARRAY(&s->once, float, with->n * p->n_out + 1);
    OQ_TRY_ALLOC(part != NULL, err);
    for (uint64_t i = 0; i < with->n; i++)
        for (uint64_t o = 0; o < p->n_out; o++) {
            float *v = &w[with->channels[i] * p->n_out + o];
            part[i * p->n_out + o] = -*v;
            *v = 0.0f;
        }
    OQ_TRY(
        oq_channel_constant(s, p->weight->name, "_inliers", w, p->weight->dims.v, 2, &zeroed, err));
    OQ_TRY(oq_channel_constant(s, p->weight->name, "_outliers", part, dims, 2, &rows, err));
    const oq_str label = oq_node_label(p->node), y = p->node->output.v[0];
    const oq_str inliers = oq_fresh_tensor(&s->names, y, "_inliers");
    const oq_str outliers = oq_fresh_tensor(&s->names, y, "_outliers");
    if (oq_channel_node(s, "MatMul", label, "_outliers", (oq_str[]){with->gathered, rows}, 2,
                        outliers) == NULL ||
        oq_channel_node(s, "Sub", label, "_both", (oq_str[]){inliers, outliers}, 2, y) == NULL ||
        inliers.p == NULL || !OQ_PUSH(&m->arena, &s->c->float_outputs, inliers))
        return oq_fail_nomem(err);
    p->node->name = label; /* a node without a name went by its output */
    p->node->input.v[0] = with->clipped;
    p->node->input.v[1] = zeroed;
    p->node->output.v[0] = inliers;
    s->c->n_outliers++;
    return ONQ_OK;
}

onq_code oq_channel_outliers(oq_channel_state *s, onq_error *err) {
    splits all = {0};
    for (size_t i = 0; i < s->products.n; i++) {
        oq_channel_product *p = &s->products.v[i];
        split *with = NULL;
        if (p->choice->outliers == 0 || p->in->skip || p->product != OQ_MATMUL ||
            p->choice->outliers >= p->n_in)
            continue;
        OQ_TRY(find_split(s, p, &all, &with, err));
        OQ_TRY(split_product(s, p, with, err));
        oq_channel_edited(s);
    }
    return ONQ_OK;
}
