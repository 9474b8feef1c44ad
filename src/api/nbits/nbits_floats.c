/*
 * nbits_floats.c — see nbits_floats.h.
 */
#include "api/nbits/nbits_floats.h"

#include "base/text/number_text.h"
#include "onnx/attr.h"
#include "onnx/operators.h"

#define TOLD 6 /* reasons that get a line */

/* Constants that stay float for one reason, of one type of operator. */
typedef struct reason {
    oq_str op_type; /* that reads them; empty: nothing in the plan does */
    const char *why;
    bool by_choice;
    uint64_t bytes, most;
    size_t n;
    oq_str largest;
} reason;

typedef struct floats {
    const oq_quant *q;
    oq_map made; /* names of what was made */
    oq_map rows; /* output of a node -> its row of the plan */
    uint64_t bytes;
    OQ_VEC(reason) reasons;
} floats;

/* ---- counting ---- */

static onq_code index_names(floats *f, const oq_nb_made *made, onq_error *err) {
    const oq_plan *p = &f->q->plan;
    oq_arena *a = &f->q->job->arena;
    oq_map_init(&f->made, a);
    oq_map_init(&f->rows, a);
    for (size_t i = 0; i < p->nodes.n; i++)
        OQ_TRY_ALLOC(oq_map_put(&f->rows, p->nodes.v[i].output, (uint32_t)i), err);
    for (size_t i = 0; i < made->all.n; i++)
        for (unsigned k = 0; k < OQ_NB_PARTS; k++) {
            const oq_producer *part = oq_nb_lazy_part(made->all.v[i], k);
            const oq_str key = {(const char *)&part, sizeof part};
            const oq_str kept = oq_str_copy(a, key);
            OQ_TRY_ALLOC(kept.p != NULL && oq_map_put(&f->made, kept, 0), err);
        }
    return ONQ_OK;
}

static bool is_made(const floats *f, const oq_tensor *t) {
    const oq_producer *part = t->raw_data.producer;
    return part != NULL && oq_map_has(&f->made, (oq_str){(const char *)&part, sizeof part});
}

/* The plan's row of a node that reads the tensor and is still there. */
static const oq_plan_node *reader_row(const floats *f, const oq_index *ix, oq_str tensor) {
    const oq_value *v = oq_index_find(ix, tensor);
    for (size_t i = 0; v != NULL && i < v->uses.n; i++) {
        const oq_node *n = ix->graph->node.v[v->uses.v[i].node];
        const uint32_t row = n->output.n > 0 ? oq_map_find(&f->rows, n->output.v[0]) : OQ_MAP_NONE;
        if (row != OQ_MAP_NONE)
            return &f->q->plan.nodes.v[row];
    }
    return NULL;
}

static const char *why_of(const oq_plan_node *row, bool stays) {
    if (row == NULL)
        return "read by nodes that were added, or by inner graphs";
    if (!stays)
        return "no weight of it: a bias, for example";
    if (oq_op_traits_of(row->op_type)->form != OQ_FORM_FLOAT)
        return "scales of what was quantized before";
    return oq_nb_knows(row->op_type) ? row->why : "no weight of a product or a table";
}

static onq_code count(floats *f, const oq_index *ix, const oq_tensor *t, oq_str name,
                      onq_error *err) {
    const oq_dtype_info *info = oq_dtype_find(t->data_type.v);
    uint64_t bytes = info != NULL ? info->bits / 8 : 0;
    if (info == NULL || info->cls != OQ_CLASS_REAL || is_made(f, t))
        return ONQ_OK;
    for (size_t k = 0; k < t->dims.n; k++)
        bytes *= (uint64_t)t->dims.v[k]; /* checked with the model */
    const oq_plan_node *row = reader_row(f, ix, name);
    const bool stays = row != NULL && row->fate == OQ_FATE_FLOAT;
    const char *why = why_of(row, stays);
    const oq_str op_type = row != NULL ? row->op_type : OQ_S("");
    size_t i = 0;
    while (i < f->reasons.n &&
           (!oq_str_eq(f->reasons.v[i].op_type, op_type) || strcmp(f->reasons.v[i].why, why) != 0))
        i++;
    if (i == f->reasons.n)
        OQ_TRY_ALLOC(OQ_PUSH(&f->q->job->arena, &f->reasons,
                             ((reason){.op_type = op_type,
                                       .why = why,
                                       .by_choice = stays && row->by == OQ_BY_CHOICE})),
                     err);
    reason *r = &f->reasons.v[i];
    f->bytes += bytes;
    r->bytes += bytes;
    r->n++;
    if (bytes > r->most) {
        r->most = bytes;
        r->largest = name;
    }
    return ONQ_OK;
}

/* Initializers and Constant nodes of a graph. */
static onq_code count_graph(void *ctx, oq_graph *g, onq_error *err) {
    floats *f = ctx;
    oq_index ix;
    OQ_SCRATCH(scratch, &f->q->job->env->alloc);
    OQ_TRY(oq_index_build(&ix, &scratch, g, NULL, err));
    for (size_t i = 0; i < g->initializer.n; i++)
        OQ_TRY(count(f, &ix, g->initializer.v[i], g->initializer.v[i]->name, err));
    for (size_t i = 0; i < g->node.n; i++) {
        const oq_node *n = g->node.v[i];
        const oq_attribute *value = oq_node_is_constant(n) ? oq_attr_find(n, "value") : NULL;
        if (value != NULL && value->t != NULL && n->output.n == 1)
            OQ_TRY(count(f, &ix, value->t, n->output.v[0], err));
    }
    return ONQ_OK;
}

/* ---- telling ---- */

/* Largest first. */
static void sort(floats *f) {
    for (size_t i = 1; i < f->reasons.n; i++) {
        const reason r = f->reasons.v[i];
        size_t at = i;
        for (; at > 0 && f->reasons.v[at - 1].bytes < r.bytes; at--)
            f->reasons.v[at] = f->reasons.v[at - 1];
        f->reasons.v[at] = r;
    }
}

static void tell_json(const floats *f, double share) {
    oq_jw *w = &f->q->job->json;
    oq_jw_begin_object(w, "left_float");
    oq_jw_uint(w, "bytes", f->bytes);
    oq_jw_real(w, "share_of_file", share);
    if (f->reasons.n > 0)
        oq_jw_str(w, "largest", f->reasons.v[0].largest);
    oq_jw_begin_array(w, "reasons");
    for (size_t i = 0; i < f->reasons.n; i++) {
        const reason *r = &f->reasons.v[i];
        oq_jw_begin_object(w, NULL);
        oq_jw_str(w, "op_type", r->op_type);
        oq_jw_cstr(w, "why", r->why);
        oq_jw_uint(w, "constants", r->n);
        oq_jw_uint(w, "bytes", r->bytes);
        oq_jw_real(w, "share_of_file", (double)r->bytes / (double)f->q->size_after);
        oq_jw_str(w, "largest", r->largest);
        oq_jw_end_object(w);
    }
    oq_jw_end_array(w);
    oq_jw_end_object(w);
}

static void tell_reason(const floats *f, const reason *r, const oq_nb_config *c) {
    oq_buf *t = &f->q->job->text;
    char size[32];
    oq_buf_addf(t, "  %4.1f %%  %s of ", 100 * (double)r->bytes / (double)f->q->size_after,
                oq_size_text(size, r->bytes));
    oq_buf_add_safe(t, r->op_type.n > 0 ? r->op_type : OQ_S("other nodes"));
    oq_buf_addf(t, " (%s): ", r->why);
    if (r->n > 1)
        oq_buf_addf(t, "%zu constants, the largest is ", r->n);
    oq_buf_adds(t, "'");
    oq_buf_add_safe(t, r->largest);
    oq_buf_adds(t, "'");
    if (r->by_choice && !c->bnb4 && oq_nb_knows(r->op_type) &&
        strcmp(r->why, "not in op_types_to_quantize") == 0) {
        oq_buf_adds(t, "; --op_types_to_quantize MatMul,");
        oq_buf_add_safe(t, r->op_type);
        oq_buf_adds(t, " quantizes it");
    }
    oq_buf_adds(t, "\n");
}

onq_code oq_nb_tell_floats(oq_quant *q, const oq_nb_config *c, const oq_nb_made *made,
                           onq_error *err) {
    floats f = {.q = q};
    char all[32];
    if (oq_opt_flag(q->job->opts, "dry_run") || q->size_after == 0)
        return ONQ_OK;
    OQ_TRY(index_names(&f, made, err));
    OQ_TRY(oq_walk_graphs(q->model->proto->graph, count_graph, &f, err));
    sort(&f);
    const double share = (double)f.bytes / (double)q->size_after;
    tell_json(&f, share);
    if (share < 0.05 || f.reasons.n == 0)
        return ONQ_OK;
    oq_buf_addf(&q->job->text, "constants that stay float: %s, %.0f %% of the file\n",
                oq_size_text(all, f.bytes), 100 * share);
    for (size_t i = 0; i < f.reasons.n && i < TOLD; i++)
        if (f.reasons.v[i].bytes * 100 >= q->size_after) /* 1 % */
            tell_reason(&f, &f.reasons.v[i], c);
    return ONQ_OK;
}
