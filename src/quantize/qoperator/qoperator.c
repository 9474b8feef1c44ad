/*
 * qoperator.c — the driver of the QLinear and integer operators: goes through the nodes, puts the
 * graph back together.
 */
#include "quantize/qoperator/qo_state.h"

#include "onnx/check/check.h"
#include "onnx/tidy.h"
#include "quantize/ort/int8_movers.h"
#include "quantize/ort/ort_forms.h"
#include "quantize/ort/stamp.h"

/* ---- set-up ---- */

static onq_code add_name(oq_map *map, oq_str name, onq_error *err) {
    if (name.n != 0 && !oq_map_put(map, name, 0))
        return oq_fail_nomem(err);
    return ONQ_OK;
}

static onq_code begin_graph(oq_qo *q, onq_error *err) {
    const oq_graph *g = q->graph;
    oq_map *maps[] = {&q->inits, &q->tensors, &q->values, &q->made, &q->products, &q->wide};
    for (size_t i = 0; i < OQ_COUNT(maps); i++)
        oq_map_init(maps[i], q->arena);
    OQ_TRY(oq_index_build(&q->index, q->arena, q->graph,
                          q->parent != NULL ? &q->parent->index : NULL, err));
    for (size_t i = 0; i < g->initializer.n; i++) {
        oq_tensor *t = g->initializer.v[i];
        if (oq_map_has(&q->inits, t->name))
            continue;
        if (!OQ_PUSH(q->arena, &q->all_inits, t) ||
            !oq_map_put(&q->inits, t->name, (uint32_t)(q->all_inits.n - 1)))
            return oq_fail_nomem(err);
    }
    for (size_t i = 0; i < g->input.n; i++) {
        const oq_str name = g->input.v[i]->name;
        if (oq_map_has(&q->inits, name))
            continue;
        OQ_TRY(add_name(&q->tensors, name, err));
        OQ_TRY(add_name(&q->made, name, err));
    }
    for (size_t i = 0; i < g->node.n; i++) {
        const oq_node *n = g->node.v[i];
        for (size_t k = 0; k < n->output.n; k++)
            OQ_TRY(add_name(&q->tensors, n->output.v[k], err));
    }
    return ONQ_OK;
}

static unsigned list_modes(const oq_qo *q) {
    return oq_qo_is_static(q) ? OQ_QMODE_QDQ | OQ_QMODE_QLINEAR : OQ_QMODE_INTEGER;
}

/* Integer operators: the weight of a Conv with bias in a Constant node, which the reference refuses
 * ("Expected W to be an initializer"), becomes an initializer. Without bias the reference quantizes
 * it at run time, and so do we. */
static onq_code lift_conv_weights(void *ctx, oq_graph *g, onq_error *err) {
    oq_qo_shared *sh = ctx;
    oq_index ix;
    OQ_TRY(oq_index_build(&ix, sh->arena, g, NULL, err));
    bool *drop = OQ_NEW_ARRAY(sh->arena, bool, g->node.n);
    OQ_TRY_ALLOC(drop != NULL, err);
    for (size_t i = 0; i < g->node.n; i++) {
        const oq_node *n = g->node.v[i];
        if (!oq_str_is(n->op_type, "Conv") || n->input.n < 3 || n->input.v[2].n == 0 ||
            oq_qrun_skip(sh->job.run, n, sh->mode) != NULL ||
            (!sh->casts && oq_shapes_elem_type(sh->plain, g, n->input.v[0]) != OQ_FLOAT))
            continue;
        const oq_value *v = oq_index_find(&ix, n->input.v[1]);
        if (v == NULL || v->producer == OQ_NO_NODE || v->init != NULL || drop[v->producer])
            continue;
        oq_tensor *t = oq_node_constant(g->node.v[v->producer]);
        if (t == NULL)
            continue;
        t->name = n->input.v[1];
        OQ_TRY_ALLOC(oq_graph_add_init(&sh->job.model->arena, g, t), err);
        drop[v->producer] = true;
    }
    oq_graph_remove_nodes(g, drop);
    return ONQ_OK;
}

/* BaseQuantizer.adjust_tensor_ranges: the input of a Relu or Clip needs no more range than its
 * output; Softmax makes 0 to 1. */
static onq_code adjust_ranges(oq_qo *q, onq_error *err) {
    oq_ranges *ranges = q->sh->job.ranges;
    for (size_t i = 0; i < q->graph->node.n; i++) {
        const oq_node *n = q->graph->node.v[i];
        const oq_op_traits *traits = oq_op_traits_of(n->op_type);
        if ((!traits->clips && !traits->unit_output) || n->input.n == 0 || n->output.n == 0 ||
            oq_qrun_skip(q->sh->job.run, n, list_modes(q)) != NULL)
            continue;
        if (!traits->clips) {
            oq_range *r = oq_ranges_add(ranges, n->output.v[0]);
            if (r == NULL || !oq_num_make_one(&ranges->arena, &r->lowest, OQ_FLOAT, true, 0.0) ||
                !oq_num_make_one(&ranges->arena, &r->highest, OQ_FLOAT, true, 1.0))
                return oq_fail_nomem(err);
            continue;
        }
        const oq_value *v = oq_index_find(&q->index, n->input.v[0]);
        /* What the caller reads keeps its range, and what another graph makes. */
        if (v != NULL && (v->is_output || (q->parent != NULL && !oq_value_is_defined(v))))
            continue;
        const oq_range *after = oq_ranges_find(ranges, n->output.v[0]);
        if (v == NULL || v->uses.n != 1 || after == NULL ||
            oq_ranges_find(ranges, n->input.v[0]) == NULL)
            continue;
        OQ_TRY_ALLOC(oq_ranges_copy(ranges, n->input.v[0], after), err);
    }
    return ONQ_OK;
}

/* ---- nodes ---- */

static onq_code draft_graph(oq_qo_shared *sh, oq_qo *parent, oq_graph *g, onq_error *err);

static onq_code quantize_inner(oq_qo *q, oq_node *n, onq_error *err) {
    for (size_t i = 0; i < n->attribute.n; i++) {
        const oq_attribute *at = n->attribute.v[i];
        const size_t count = at->graphs.n + (at->g != NULL);
        for (size_t k = 0; k < count; k++) {
            if (q->depth == OQ_MAX_GRAPH_DEPTH)
                return oq_fail(err, ONQ_E_LIMIT, "graphs are nested deeper than %d",
                               OQ_MAX_GRAPH_DEPTH);
            OQ_TRY(draft_graph(q->sh, q, k < at->graphs.n ? at->graphs.v[k] : at->g, err));
        }
    }
    return ONQ_OK;
}

/* True if a float tensor of the node has no range: in an inner graph, on a branch that no sample
 * took. */
static bool is_unseen(const oq_qo *q, const oq_node *n) {
    for (size_t k = 0; k < n->input.n + n->output.n; k++) {
        const oq_str name = k < n->input.n ? n->input.v[k] : n->output.v[k - n->input.n];
        if (name.n > 0 && oq_qo_init_in_path(q, name) == NULL && oq_qo_is_float(q, name) &&
            !oq_qo_has_params(q, name))
            return true;
    }
    return false;
}

/* True if a float tensor of the node has a type that is never quantized. */
static bool is_other_float(const oq_qo *q, const oq_node *n) {
    for (size_t k = 0; k < n->input.n; k++) {
        const oq_tensor *t = oq_qo_init_in_path(q, n->input.v[k]);
        const int32_t type =
            t != NULL ? t->data_type.v : oq_shapes_elem_type(q->sh->plain, q->graph, n->input.v[k]);
        if ((type == OQ_BFLOAT16 && !q->sh->casts) || type == OQ_DOUBLE)
            return true;
    }
    return false;
}

/* True if the product sums up nothing. The runtime's integer operators then leave what happened to
 * be in memory as the result. */
static bool has_empty_weight(const oq_qo *q, const oq_node *n) {
    const oq_op_traits *traits = oq_op_traits_of(n->op_type);
    const size_t slot = (size_t)oq_op_slot(traits->weight);
    const oq_tensor *t = traits->product != OQ_NO_PRODUCT && slot < n->input.n
                             ? oq_qo_init_in_path(q, n->input.v[slot])
                             : NULL;
    return t != NULL && oq_tensor_is_empty(t);
}

/* True if there is a graph inside, where no operator that has a quantized form takes one. */
static bool has_graph(const oq_node *n) {
    for (size_t i = 0; i < n->attribute.n; i++)
        if (n->attribute.v[i]->g != NULL || n->attribute.v[i]->graphs.n > 0)
            return true;
    return false;
}

/* What keeps any rule from a node, whatever is around it; NULL: nothing. */
static const char *why_unfit(const oq_qo *q, const oq_node *n) {
    return has_graph(n)             ? "a graph inside it reads float tensors"
           : is_other_float(q, n)   ? OQ_WHY_OTHER
           : has_empty_weight(q, n) ? OQ_WHY_EMPTY
                                    : NULL;
}

static const char no_form[] = "operator has no quantized form";

static onq_code quantize_node(oq_qo *q, oq_node *n, onq_error *err) {
    const oq_rules *rules = oq_rules_of(n->op_type);
    const oq_qo_rule rule = oq_qo_is_static(q) ? rules->qlinear : rules->integer;
    const char *skip = oq_qrun_skip(q->sh->job.run, n, list_modes(q));
    if (skip != NULL)
        q->by = OQ_BY_CHOICE;
    if (q->parent != NULL && oq_qo_is_static(q) && oq_qo_given(q) == NULL && skip == NULL &&
        is_unseen(q, n)) {
        q->by = OQ_BY_SAMPLES;
        q->sh->job.plan->n_not_run++;
        return oq_qo_leave(q, n, "no sample ran it", err);
    }
    const char *unfit = skip == NULL && rule != NULL ? why_unfit(q, n) : NULL;
    if (unfit != NULL) {
        OQ_TRY(oq_given_refuse(oq_qo_given(q), n, unfit, err));
        return oq_qo_leave(q, n, unfit, err);
    }
    const bool left_by_plan = oq_qo_given(q) != NULL && skip != NULL;
    const oq_qo_rule trained = rule == NULL && !left_by_plan ? oq_qo_trained_rule(q, n) : NULL;
    if (trained != NULL)
        return trained(q, n, err);
    if (skip != NULL)
        return oq_qo_leave(q, n, skip, err);
    if (rule == NULL || n->output.n == 0 || n->input.n == 0) {
        OQ_TRY(oq_given_refuse(oq_qo_given(q), n, no_form, err));
        return oq_qo_leave(q, n, no_form, err);
    }
    return rule(q, n, err);
}

/* What the rule did with the node. `row` has the node as it was before. */
static onq_code plan_node(oq_qo *q, oq_plan_node row, onq_error *err) {
    row.fate = q->why != NULL ? OQ_FATE_FLOAT : q->removed ? OQ_FATE_REMOVED : OQ_FATE_QUANTIZED;
    row.by = q->by;
    row.why = q->why != NULL ? q->why : q->removed ? OQ_WHY_REMOVED : "";
    return oq_plan_add_node(q->sh->job.plan, row) ? ONQ_OK : oq_fail_nomem(err);
}

/* Counts a node that goes on reading bfloat16. */
static void count_bfloat16(const oq_qo *q, const oq_node *n) {
    oq_plan *plan = q->sh->job.plan;
    bool found = false;
    for (size_t i = 0; i < n->input.n; i++)
        found |= oq_shapes_elem_type(q->sh->plain, q->graph, n->input.v[i]) == OQ_BFLOAT16;
    if (!found || oq_str_is(n->op_type, "Cast"))
        return;
    if (plan->n_bfloat16++ == 0)
        plan->bfloat16 = (oq_plan_node){.name = n->name, .op_type = n->op_type};
}

static onq_code dequantize_outputs(oq_qo *q, onq_error *err) {
    for (size_t i = 0; i < q->graph->output.n; i++)
        OQ_TRY(oq_qo_dequantize(q, q->graph->output.v[i]->name, err));
    return ONQ_OK;
}

/* The address of a graph as a key. */
static oq_str key_of(const oq_graph *const *g) {
    return (oq_str){(const char *)g, sizeof *g};
}

const oq_qo *oq_qo_draft_of(const oq_qo_shared *sh, const oq_graph *g) {
    const uint32_t i = oq_map_find(&sh->draft_map, key_of(&g));
    return i != OQ_MAP_NONE ? sh->drafts.v[i] : NULL;
}

static onq_code draft_graph(oq_qo_shared *sh, oq_qo *parent, oq_graph *g, onq_error *err) {
    oq_qo *q = OQ_NEW(sh->arena, oq_qo);
    OQ_TRY_ALLOC(q != NULL, err);
    *q = (oq_qo){.sh = sh,
                 .parent = parent,
                 .arena = sh->arena,
                 .graph = g,
                 .depth = parent != NULL ? parent->depth + 1 : 0};
    OQ_TRY(begin_graph(q, err));
    if (oq_qo_is_static(q) && !oq_qo_config(q)->trained && oq_qo_given(q) == NULL)
        OQ_TRY(adjust_ranges(q, err));
    const size_t n_nodes = q->graph->node.n;
    for (size_t i = 0; i < n_nodes; i++) {
        oq_node *n = q->graph->node.v[i];
        const oq_plan_node was = {.name = n->name,
                                  .op_type = n->op_type,
                                  .output = n->output.n > 0 ? n->output.v[0] : OQ_S("")};
        onq_code rc = ONQ_OK;
        if (oq_qo_config(q)->enable_subgraph)
            rc = quantize_inner(q, n, err);
        q->why = NULL;
        q->removed = false;
        q->by = OQ_BY_RULE;
        if (rc == ONQ_OK)
            rc = quantize_node(q, n, err);
        if (rc != ONQ_OK)
            return oq_error_in(err, rc, "node '%.*s' (%.*s)", OQ_STR(was.name),
                               OQ_STR(was.op_type));
        OQ_TRY(plan_node(q, was, err));
        if (q->why != NULL && strcmp(q->why, OQ_WHY_OTHER) != 0)
            count_bfloat16(q, n);
    }
    OQ_TRY(dequantize_outputs(q, err));
    if (!OQ_PUSH(sh->arena, &sh->drafts, q) ||
        !oq_map_put(&sh->draft_map, key_of((const oq_graph *const *)&q->graph),
                    (uint32_t)(sh->drafts.n - 1)))
        return oq_fail_nomem(err);
    return ONQ_OK;
}

/* The graphs become what their drafts say. */
static onq_code write_drafts(oq_qo_shared *sh, onq_error *err) {
    oq_arena *a = &sh->job.model->arena;
    for (size_t i = 0; i < sh->drafts.n; i++) {
        const oq_qo *q = sh->drafts.v[i];
        OQ_TRY_ALLOC(oq_graph_set_nodes(a, q->graph, q->out.v, q->out.n) &&
                         oq_graph_add_inits(a, q->graph, q->new_inits.v, q->new_inits.n),
                     err);
    }
    return oq_qo_fill(sh, err);
}

/* ---- the whole ---- */

/* Types of tensors: the caller's, unless Gemm nodes were replaced since. */
static onq_code see_types(oq_qo_shared *sh, onq_error *err) {
    const bool changed = sh->mode == OQ_QMODE_INTEGER || sh->job.run->config->trained;
    sh->plain = sh->job.shapes;
    if (sh->plain != NULL && !changed)
        return ONQ_OK;
    OQ_TRY(oq_shapes_infer(sh->job.model, NULL, &sh->inferred, err));
    sh->plain = sh->inferred;
    return ONQ_OK;
}

/* Rewrites that come before any decision, as in the reference: Gemm as MatMul and Add, and weights
 * of Conv as initializers. */
static onq_code prepare(oq_qo_shared *sh, onq_error *err) {
    oq_model *m = sh->job.model;
    const bool rewrites = sh->mode == OQ_QMODE_INTEGER || sh->job.run->config->trained;
    if (rewrites) {
        oq_model_touch(m);
        OQ_TRY(oq_qo_replace_gemm(sh, err));
    }
    OQ_TRY(oq_given_bind_nodes(sh->job.run->given, m, err));
    OQ_TRY(see_types(sh, err));
    if (sh->mode == OQ_QMODE_INTEGER) {
        OQ_TRY(oq_shapes_write(sh->plain, m, err)); /* of what Gemm became */
        OQ_TRY(oq_stamp_reloaded(m, err));
    }
    OQ_TRY(oq_qo_decide_casts(sh, err));
    if (!rewrites)
        return ONQ_OK;
    return sh->job.run->config->enable_subgraph
               ? oq_walk_graphs(m->proto->graph, lift_conv_weights, sh, err)
               : lift_conv_weights(sh, m->proto->graph, err);
}

static onq_code edit(oq_qo_shared *sh, onq_error *err) {
    oq_model *m = sh->job.model;
    oq_model_touch(m);
    OQ_TRY(write_drafts(sh, err));
    OQ_TRY(oq_model_clean_inits(m, err));
    OQ_TRY(oq_stamp_producer(m, err));
    if (sh->needs_ms && oq_model_opset(m, OQ_S("com.microsoft")) == 0)
        OQ_TRY(oq_model_set_opset(m, OQ_S("com.microsoft"), 1, err));
    OQ_TRY(oq_quant_mend_int8_movers(m, err));
    /* quantize_qat leaves the nodes as they were emitted. */
    if (sh->job.run->config->trained)
        return ONQ_OK;
    const oq_forms_shapes shapes = {sh->plain, NULL, sh->opset};
    OQ_TRY(oq_forms_kernels(m, &shapes, &sh->names, err));
    const oq_qconfig *config = sh->job.run->config;
    OQ_TRY(oq_forms_keep(m, &sh->names, config->keep_excluded_float, sh->job.plan, err));
    if (!config->sort_nodes && sh->job.plan->n_kept_float == 0)
        return ONQ_OK;
    const onq_code rc = oq_model_sort(m, err);
    if (rc == ONQ_OK || !sh->job.run->config->as_reference)
        return rc;
    return oq_error_in(err, rc,
                       "onnxruntime.quantization does not dequantize what Where reads (use QDQ "
                       "format or ForceQuantizeNoInputCheck)");
}

static onq_code run(oq_qo_shared *sh, onq_error *err) {
    oq_model *m = sh->job.model;
    OQ_TRY(oq_fresh_init(&sh->names, sh->arena, m, err));
    oq_map_init(&sh->infinite, sh->arena);
    oq_map_init(&sh->asked_map, sh->arena);
    oq_map_init(&sh->draft_map, sh->arena);
    sh->opset = oq_model_opset(m, OQ_S(""));
    OQ_TRY(prepare(sh, err));
    OQ_TRY(draft_graph(sh, NULL, m->proto->graph, err));
    OQ_TRY(oq_qo_plan_rest(sh, err));
    OQ_TRY(oq_qo_decide(sh, err));
    return sh->job.decide_only ? ONQ_OK : edit(sh, err);
}

onq_code oq_qo_run(const oq_qo_job *job, onq_error *err) {
    assert(job->model != NULL && job->run != NULL && job->plan != NULL);
    OQ_SCRATCH(scratch, &job->model->env->alloc);
    oq_qo_shared sh = {.job = *job,
                       .arena = &scratch,
                       .mode = job->ranges != NULL && !job->integer ? OQ_QMODE_QLINEAR
                                                                    : OQ_QMODE_INTEGER};
    const onq_code rc = run(&sh, err);
    oq_shapes_free(sh.inferred);
    oq_shapes_free(sh.full);
    if (rc == ONQ_OK && !job->decide_only)
        OQ_ASSERT_VALID(job->model);
    return rc;
}
