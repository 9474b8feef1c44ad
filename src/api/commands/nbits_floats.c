/*
 * nbits_floats.c — see nbits_floats.h.
 */
#include "api/commands/nbits_floats.h"

#include "base/text/number_text.h"

typedef struct floats {
    uint64_t bytes;
    const oq_tensor *largest;
    uint64_t most;
} floats;

static bool is_made(const oq_nb_made *made, const oq_tensor *t) {
    for (size_t i = 0; i < made->all.n; i++)
        for (unsigned p = 0; p < OQ_NB_PARTS; p++)
            if (t->raw_data.producer == oq_nb_lazy_part(made->all.v[i], p))
                return true;
    return false;
}

static void see_floats(const oq_quant *q, const oq_nb_made *made, floats *f) {
    const oq_graph *g = q->model->proto->graph;
    for (size_t i = 0; i < g->initializer.n; i++) {
        const oq_tensor *t = g->initializer.v[i];
        const oq_dtype_info *info = oq_dtype_find(t->data_type.v);
        uint64_t bytes = info != NULL ? info->bits / 8 : 0;
        if (info == NULL || info->cls != OQ_CLASS_REAL || is_made(made, t))
            continue;
        for (size_t k = 0; k < t->dims.n; k++)
            bytes *= (uint64_t)t->dims.v[k]; /* checked with the model */
        f->bytes += bytes;
        if (bytes > f->most) {
            f->most = bytes;
            f->largest = t;
        }
    }
}

/* The plan's row of a node that reads the tensor. */
static const oq_plan_node *reader_row(const oq_quant *q, oq_str tensor) {
    const oq_graph *g = q->model->proto->graph;
    for (size_t i = 0; i < g->node.n; i++)
        for (size_t k = 0; k < g->node.v[i]->input.n; k++) {
            if (!oq_str_eq(g->node.v[i]->input.v[k], tensor) || g->node.v[i]->output.n == 0)
                continue;
            for (size_t p = 0; p < q->plan.nodes.n; p++)
                if (oq_str_eq(q->plan.nodes.v[p].output, g->node.v[i]->output.v[0]))
                    return &q->plan.nodes.v[p];
        }
    return NULL;
}

void oq_nb_tell_floats(oq_quant *q, const oq_nb_config *c, const oq_nb_made *made) {
    oq_job *job = q->job;
    floats f = {0};
    char all[32], most[32];
    if (oq_opt_flag(job->opts, "dry_run") || q->size_after == 0)
        return;
    see_floats(q, made, &f);
    const double share = (double)f.bytes / (double)q->size_after;
    oq_jw_begin_object(&job->json, "left_float");
    oq_jw_uint(&job->json, "bytes", f.bytes);
    oq_jw_real(&job->json, "share_of_file", share);
    if (f.largest != NULL)
        oq_jw_str(&job->json, "largest", f.largest->name);
    oq_jw_end_object(&job->json);
    if (share < 0.05 || f.largest == NULL)
        return;
    const oq_plan_node *row = reader_row(q, f.largest->name);
    oq_buf_addf(&job->text, "constants that stay float: %s, %.0f %% of the file; the largest is '",
                oq_size_text(all, f.bytes), 100 * share);
    oq_buf_add_safe(&job->text, f.largest->name);
    oq_buf_addf(&job->text, "', %s", oq_size_text(most, f.most));
    if (row != NULL) {
        oq_buf_adds(&job->text, ", of ");
        oq_buf_add_safe(&job->text, row->op_type);
        oq_buf_addf(&job->text, " (%s)", row->why);
        if (oq_str_is(row->op_type, "Gather") && row->by == OQ_BY_CHOICE && !c->bnb4)
            oq_buf_adds(&job->text, "; --op_types_to_quantize MatMul,Gather quantizes it");
    }
    oq_buf_adds(&job->text, "\n");
}
