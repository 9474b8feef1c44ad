/*
 * smooth.c — SmoothQuant: scales for the channels of all inputs of products (channels.h), by one
 * formula.
 */
#include "prepare/channels/smooth.h"

#include "onnx/attr.h"
#include "onnx/operators.h"
#include "prepare/channels/channels.h"

onq_code oq_smooth(oq_smooth_job *job, onq_error *err) {
    const oq_graph *g = job->model->proto->graph;
    OQ_SCRATCH(scratch, &job->model->env->alloc);
    OQ_VEC(oq_channel_choice) all = {0};
    for (size_t i = 0; i < g->node.n; i++) {
        const oq_channel_choice choice = {.node = g->node.v[i], .in = true};
        if (oq_op_traits_of(choice.node->op_type)->product != OQ_NO_PRODUCT &&
            oq_attr_int(choice.node, "group", 1) == 1 && !OQ_PUSH(&scratch, &all, choice))
            return oq_fail_nomem(err);
    }
    oq_channels c = {.choices = all.v,
                     .n_choices = all.n,
                     .smooth = true,
                     .alpha = job->alpha,
                     .unfolded = !job->folding,
                     .see = {.model = job->model,
                             .engine = job->engine,
                             .source = job->source,
                             .session = job->session,
                             .what = "SmoothQuant"}};
    OQ_TRY(oq_channels_apply(&c, err));
    job->added = c.added;
    job->n_tensors = c.n_tensors;
    job->n_folded = c.n_tensors_folded;
    return ONQ_OK;
}
