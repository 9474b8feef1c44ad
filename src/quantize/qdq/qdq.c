/*
 * qdq.c — the QDQ driver: marks, decides, emits, and puts the graph back together.
 */
#include "quantize/qdq/qdq_state.h"

#include "onnx/check/check.h"
#include "onnx/edit.h"
#include "onnx/operators.h"
#include "onnx/tidy.h"
#include "quantize/ort/int8_movers.h"
#include "quantize/ort/ort_forms.h"
#include "quantize/ort/product_forms.h"
#include "quantize/ort/result_opset.h"
#include "quantize/ort/stamp.h"
#include "quantize/rules.h"

/* ---- marking ---- */

static void choose_nodes(oq_qdq *q) {
    for (size_t i = 0; i < q->n_nodes; i++) {
        const char *skip = oq_qrun_skip(q->run, q->nodes[i].node, OQ_QMODE_QDQ | OQ_QMODE_QLINEAR);
        q->nodes[i].chosen = skip == NULL;
        q->nodes[i].why = skip != NULL ? skip : "";
        q->nodes[i].by = skip != NULL ? OQ_BY_CHOICE : OQ_BY_RULE;
    }
}

static bool is_trained(const oq_qdq *q, uint32_t tensor) {
    return tensor != OQ_NO_TENSOR &&
           oq_overrides_find(q->overrides, oq_qdq_at(q, tensor)->name) != NULL;
}

/* What was trained is marked whatever the rule says. */
static onq_code mark_trained(oq_qdq *q, uint32_t i, onq_error *err) {
    const oq_node *n = oq_qdq_node_at(q, i);
    for (size_t k = 0; k < n->input.n; k++)
        if (is_trained(q, oq_qdq_input(q, i, k)))
            OQ_TRY(oq_qdq_activation(q, oq_qdq_input(q, i, k), err));
    for (size_t k = 0; k < n->output.n; k++)
        if (is_trained(q, oq_qdq_output(q, i, k)))
            OQ_TRY(oq_qdq_activation(q, oq_qdq_output(q, i, k), err));
    return ONQ_OK;
}

/* A node that saw no fake quantization in training stays as it is. */
static bool saw_training(const oq_qdq *q, uint32_t i) {
    const oq_node *n = oq_qdq_node_at(q, i);
    bool any = false;
    for (size_t k = 0; k < n->input.n; k++)
        any |= is_trained(q, oq_qdq_input(q, i, k));
    for (size_t k = 0; k < n->output.n; k++)
        any |= is_trained(q, oq_qdq_output(q, i, k));
    return any;
}

static onq_code mark_node(oq_qdq *q, uint32_t i, onq_error *err) {
    const oq_node *n = oq_qdq_node_at(q, i);
    const oq_qdq_rule own = oq_rules_of(n->op_type)->qdq;
    const oq_qdq_rule rule = own != NULL ? own : oq_qdq_rule_plain;
    q->current = i;
    onq_code rc = rule(q, i, err);
    if (rc == ONQ_OK && q->config->trained)
        rc = mark_trained(q, i, err);
    if (rc != ONQ_OK)
        return oq_error_in(err, rc, "node '%.*s' (%.*s)", OQ_STR(n->name), OQ_STR(n->op_type));
    for (size_t k = 0; k < n->input.n; k++) {
        const uint32_t t = oq_qdq_input(q, i, k);
        if (t != OQ_NO_TENSOR && !OQ_PUSH(q->arena, &oq_qdq_at(q, t)->receivers, i))
            return oq_fail_nomem(err);
    }
    return ONQ_OK;
}

static onq_code mark(oq_qdq *q, onq_error *err) {
    for (uint32_t i = 0; i < q->n_nodes; i++) {
        if (q->config->trained && q->nodes[i].chosen && !saw_training(q, i)) {
            q->nodes[i].chosen = false;
            q->nodes[i].why = "was not trained for it";
            q->nodes[i].by = OQ_BY_CHOICE;
        }
        if (q->nodes[i].chosen)
            OQ_TRY(mark_node(q, i, err));
    }
    OQ_TRY(oq_qdq_bring_back(q, err));
    return oq_qdq_settle_axes(q, err);
}

/* A weight that a Constant node holds: it gets a pair like an activation, and stays float in the
 * file. */
static bool has_constant_weight(const oq_qdq *q, uint32_t node) {
    if (oq_op_traits_of(oq_qdq_node_at(q, node)->op_type)->product == OQ_NO_PRODUCT)
        return false;
    for (size_t slot = 0; slot < 2; slot++) {
        const uint32_t t = oq_qdq_input(q, node, slot);
        const oq_qdq_tensor *w = t != OQ_NO_TENSOR ? oq_qdq_at(q, t) : NULL;
        if (w != NULL && w->makers.n > 0 && w->elem_type == OQ_FLOAT &&
            oq_node_is_constant(oq_qdq_node_at(q, w->makers.v[0].node)))
            return true;
    }
    return false;
}

/* True if a float tensor of the node has a type that is never quantized. */
static bool is_other_float(const oq_qdq *q, uint32_t node) {
    const oq_qdq_node *n = &q->nodes[node];
    for (size_t k = 0; k < n->node->input.n; k++) {
        const int32_t type = n->in[k] != OQ_NO_TENSOR ? oq_qdq_at(q, n->in[k])->elem_type : 0;
        if (type == OQ_BFLOAT16 || type == OQ_DOUBLE)
            return true;
    }
    return false;
}

static onq_code plan_nodes(oq_qdq *q, onq_error *err) {
    for (uint32_t i = 0; i < q->n_nodes; i++) {
        const oq_qdq_node *n = &q->nodes[i];
        if (n->chosen && has_constant_weight(q, i))
            q->plan->n_float_constants++;
        oq_plan_node row = {.name = n->node->name,
                            .op_type = n->node->op_type,
                            .output = n->node->output.n > 0 ? n->node->output.v[0] : OQ_S(""),
                            .by = n->by,
                            .why = n->why};
        if (n->removed) {
            row.fate = OQ_FATE_REMOVED;
            row.why = OQ_WHY_REMOVED;
        } else if (n->n_marks > 0) {
            row.fate = OQ_FATE_QUANTIZED;
            row.why = "";
        } else if (n->chosen && is_other_float(q, i)) {
            row.why = OQ_WHY_OTHER;
        } else if (n->why[0] == '\0') {
            row.why = "no float tensors";
        }
        OQ_TRY_ALLOC(oq_plan_add_node(q->plan, row), err);
    }
    assert(q->outer != NULL || q->plan->nodes.n == q->n_nodes);
    return ONQ_OK;
}

/* ---- the graph put together ---- */

/* Initializers of biases that a node makes now, and their graph inputs. */
static onq_code drop_biases(oq_qdq *q, onq_error *err) {
    oq_graph *g = q->graph;
    oq_map gone;
    oq_map_init(&gone, q->arena);
    for (size_t i = 0; i < q->biases.n; i++) {
        const oq_qdq_tensor *t = oq_qdq_at(q, q->biases.v[i].tensor);
        if (t->bias_gone && !oq_map_put(&gone, t->name, 0))
            return oq_fail_nomem(err);
    }
    if (gone.count == 0)
        return ONQ_OK;
    size_t kept = 0;
    for (size_t i = 0; i < g->initializer.n; i++)
        if (!oq_map_has(&gone, g->initializer.v[i]->name))
            g->initializer.v[kept++] = g->initializer.v[i];
    g->initializer.n = kept;
    kept = 0;
    for (size_t i = 0; i < g->input.n; i++)
        if (!oq_map_has(&gone, g->input.v[i]->name))
            g->input.v[kept++] = g->input.v[i];
    g->input.n = kept;
    return ONQ_OK;
}

static onq_code assemble(oq_qdq *q, onq_error *err) {
    oq_graph *g = q->graph;
    oq_arena *a = &q->model->arena;
    bool *removed = OQ_NEW_ARRAY(q->arena, bool, q->n_nodes + 1);
    OQ_TRY_ALLOC(removed != NULL, err);
    for (size_t i = 0; i < q->n_nodes; i++)
        removed[i] = q->nodes[i].removed;
    oq_graph_remove_nodes(g, removed);
    for (size_t i = 0; i < q->new_nodes.n; i++)
        OQ_TRY_ALLOC(oq_graph_add_node(a, g, q->new_nodes.v[i]), err);
    OQ_TRY_ALLOC(oq_graph_add_inits(a, g, q->new_inits.v, q->new_inits.n), err);
    q->assembled = true;
    return drop_biases(q, err);
}

/* Forms of products with float outputs, and of float nodes around them. */
static onq_code form_products(oq_qdq *q, onq_error *err) {
    oq_map made, read;
    oq_product_forms forms = {.m = q->model,
                              .names = q->names,
                              .doubled = &q->run->doubled,
                              .made = &made,
                              .read = &read};
    oq_map_init(&made, q->arena);
    oq_map_init(&read, q->arena);
    for (uint32_t i = 0; i < q->n_nodes; i++) {
        const oq_qdq_node *n = &q->nodes[i];
        if (n->removed || n->node->output.n == 0)
            continue;
        if ((n->n_marks == 0 || oq_qdq_output_is_off(q, i)) &&
            !oq_map_put(&made, n->node->output.v[0], 0))
            return oq_fail_nomem(err);
        if (n->n_marks == 0 && !oq_map_put(&read, n->node->output.v[0], 0))
            return oq_fail_nomem(err);
    }
    return oq_product_forms_apply(&forms, err);
}

/* Where ONNX Runtime would undo what was decided: other forms, or rows for a warning. */
static onq_code guard(oq_qdq *q, onq_error *err) {
    const oq_forms_shapes shapes = {q->shapes, NULL, q->opset};
    OQ_TRY(oq_forms_kernels(q->model, &shapes, q->names, err));
    if (q->config->early_pairs || q->config->keep_products || q->run->doubled.count > 0 ||
        q->run->float_outputs.count > 0)
        OQ_TRY(form_products(q, err));
    if (q->config->keep_products)
        OQ_TRY(oq_forms_products(q->model, q->shapes, q->names, &q->plan->n_kept_products, err));
    return oq_forms_keep(q->model, q->names, q->config->keep_excluded_float, q->plan, err);
}

/* What the model as a whole needs when all graphs are done. */
static onq_code finish(oq_qdq *q, onq_error *err) {
    OQ_TRY(guard(q, err));
    if (!q->config->add_qdq_pair_to_weight)
        OQ_TRY(oq_model_clean_inits(q->model, err));
    OQ_TRY(oq_stamp_producer(q->model, err));
    if (q->contrib)
        OQ_TRY(oq_model_set_opset(q->model, OQ_S("com.microsoft"), 1, err));
    OQ_TRY(oq_quant_mend_int8_movers(q->model, err));
    return q->config->sort_nodes ? oq_model_sort(q->model, err) : ONQ_OK;
}

/* ---- pairs of com.microsoft ---- */

bool oq_qdq_wants_contrib(const oq_qconfig *c, const oq_overrides *o, int64_t opset) {
    /* The reference looks at the first override alone, whether its tensor is quantized or not. */
    const oq_tensor_override *first = o != NULL && o->all.n > 0 ? o->all.v[0] : NULL;
    return c->use_qdq_contrib_ops ||
           (opset < 21 &&
            (oq_qtype_is_16_or_4bit(c->activation_type) || oq_qtype_is_16_or_4bit(c->weight_type) ||
             oq_override_uses_type(first, oq_qtype_is_16_or_4bit)));
}

/* True if overrides give a marked tensor a type that ONNX's pairs do not have yet. */
static bool needs_contrib(const oq_qdq *q) {
    bool found = false;
    for (size_t i = 0; i < q->tensors.n && q->opset < 21 && q->overrides != NULL; i++) {
        const oq_qdq_tensor *t = q->tensors.v[i];
        found |=
            t->marked && t->share_from == OQ_NO_TENSOR && /* else its type is another's */
            oq_override_uses_type(oq_overrides_find(q->overrides, t->name), oq_qtype_is_16_or_4bit);
    }
    return found;
}

/* ---- what is to come ---- */

static bool is_marked_at(const oq_qdq *q, const uint32_t *tensors, size_t n, size_t slot) {
    return slot < n && tensors[slot] != OQ_NO_TENSOR && oq_qdq_at(q, tensors[slot])->marked;
}

/* True if the runtime sees the node between quantized tensors, or next to a quantized weight. */
static bool stands_between(const oq_qdq *q, const oq_qdq_node *n) {
    return is_marked_at(q, n->in, n->node->input.n, 0) &&
           (is_marked_at(q, n->out, n->node->output.n, 0) ||
            is_marked_at(q, n->in, n->node->input.n, 1));
}

static bool keeps_float_bias(const oq_qdq *q, const oq_qdq_node *n) {
    const int slot = oq_op_slot(oq_op_traits_of(n->node->op_type)->bias);
    const uint32_t bias = slot >= 0 && (size_t)slot < n->node->input.n ? n->in[slot] : OQ_NO_TENSOR;
    if (bias == OQ_NO_TENSOR)
        return false;
    const oq_qdq_tensor *t = oq_qdq_at(q, bias);
    return !t->marked && !(t->is_bias && q->config->quantize_bias);
}

static void look_ahead(const oq_qdq *q) {
    for (size_t i = 0; i < q->tensors.n; i++) {
        const oq_qdq_tensor *t = q->tensors.v[i];
        q->outlook->half |= t->marked && t->elem_type == OQ_FLOAT16;
        q->outlook->channels |= t->marked && t->init != NULL && oq_qdq_has_channels(q, t);
    }
    for (size_t i = 0; i < q->n_nodes && q->outlook->needs_11 == NULL; i++) {
        const oq_qdq_node *n = &q->nodes[i];
        if (stands_between(q, n))
            q->outlook->needs_11 = oq_opset_needs_11(n->node, keeps_float_bias(q, n));
    }
}

onq_code oq_qdq_graph(oq_qdq *q, bool decide_only, onq_error *err) {
    OQ_TRY(oq_qdq_build(q, err));
    choose_nodes(q);
    if (q->outer != NULL && q->outlook == NULL && q->run->given == NULL)
        oq_qdq_leave_unseen(q);
    if (!q->config->trained && q->run->given == NULL)
        OQ_TRY(oq_qdq_adjust_ranges(q, err));
    OQ_TRY(mark(q, err));
    q->contrib |= needs_contrib(q);
    oq_qdq_unmark_fused(q);
    if (q->run->given != NULL)
        OQ_TRY(oq_qdq_follow_plan(q, err));
    if (q->outlook != NULL) {
        look_ahead(q);
        return q->config->enable_subgraph ? oq_qdq_inner(q, true, err) : ONQ_OK;
    }
    OQ_TRY(plan_nodes(q, err));
    OQ_TRY(oq_qdq_decide(q, err));
    if (!decide_only) {
        OQ_TRY(oq_qdq_emit(q, err));
        OQ_TRY(assemble(q, err));
    }
    return q->config->enable_subgraph ? oq_qdq_inner(q, decide_only, err) : ONQ_OK;
}

static onq_code run(oq_qdq *q, bool decide_only, onq_error *err) {
    OQ_TRY(oq_given_bind_nodes(q->run->given, q->model, err));
    q->opset = oq_model_opset(q->model, OQ_S(""));
    q->contrib = oq_qdq_wants_contrib(q->config, q->overrides, q->opset);
    OQ_TRY(oq_fresh_init(q->names, q->arena, q->model, err));
    OQ_TRY(oq_qdq_graph(q, decide_only, err));
    if (q->contrib && !q->config->use_qdq_contrib_ops)
        oq_warn(q->model->env, "QuantizeLinear and DequantizeLinear of ONNX have no 16-bit and "
                               "4-bit types before opset 21: those of com.microsoft are used");
    return decide_only ? ONQ_OK : finish(q, err);
}

onq_code oq_qdq_run(const oq_qdq_job *job, onq_error *err) {
    assert(job->model != NULL && job->run != NULL && job->ranges != NULL && job->plan != NULL);
    oq_fresh names;
    OQ_SCRATCH(scratch, &job->model->env->alloc);
    oq_qdq q = {.names = &names,
                .model = job->model,
                .graph = job->model->proto->graph,
                .run = job->run,
                .config = job->run->config,
                .overrides = job->overrides,
                .ranges = job->ranges,
                .shapes = job->shapes,
                .plan = job->plan,
                .arena = &scratch};
    OQ_TRY(run(&q, job->decide_only, err));
    if (!job->decide_only)
        OQ_ASSERT_VALID(job->model);
    return ONQ_OK;
}

onq_code oq_qdq_foresee(oq_model *m, const oq_shapes *shapes, oq_qrun *r, const oq_overrides *o,
                        int64_t opset, oq_qdq_outlook *out, onq_error *err) {
    oq_fresh names;
    oq_ranges ranges;
    oq_plan plan;
    assert(shapes != NULL && out != NULL);
    OQ_SCRATCH(scratch, &m->env->alloc);
    oq_ranges_init(&ranges, &m->env->alloc, OQ_CAL_MINMAX);
    oq_plan_init(&plan, &scratch);
    oq_qdq q = {.names = &names,
                .model = m,
                .graph = m->proto->graph,
                .run = r,
                .config = r->config,
                .overrides = o,
                .ranges = &ranges,
                .shapes = shapes,
                .plan = &plan,
                .arena = &scratch,
                .opset = opset,
                .outlook = out};
    const bool silent = oq_env_silence(m->env, true); /* the run itself will report it */
    *out = (oq_qdq_outlook){0};
    onq_code rc = oq_fresh_init(&names, &scratch, m, err);
    if (rc == ONQ_OK)
        rc = oq_qdq_graph(&q, true, err);
    oq_env_silence(m->env, silent);
    oq_ranges_release(&ranges);
    return rc;
}
