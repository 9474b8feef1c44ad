/*
 * nb_switch.c — see nb_switch.h.
 *
 *     y = If(switch)  then  MatMulNBits(x, q, scales)  else  MatMul(x, w)
 */
#include "quantize/nbits_budget/nb_switch.h"

#include "onnx/attr.h"
#include "onnx/codec/schema.h"

void oq_nb_switch_init(oq_nb_switch *s, oq_arena *arena) {
    *s = (oq_nb_switch){.arena = arena};
}

void oq_nb_switch_release(oq_nb_switch *s) {
    oq_nb_made_release(&s->made);
}

size_t oq_nb_switch_of(const oq_nb_switch *s, const oq_nb_lazy *weight) {
    for (size_t i = 0; i < s->weights.n; i++)
        if (s->weights.v[i] == weight)
            return i;
    return OQ_NB_NO_SWITCH;
}

/* The whole model quantized, in a copy. */
static onq_code quantize(oq_nb_switch *s, oq_model *m, const oq_nb_config *c, oq_model_proto **out,
                         onq_error *err) {
    oq_model_proto *as_is = m->proto;
    oq_nb_config plain = *c;
    oq_plan plan;
    plain.how.method = &oq_nb_methods[OQ_NB_DEFAULT];
    plain.qdq = plain.channel_wise = false;
    plain.form = OQ_NB_FORM_BLOCKS;
    plain.how.block = c->how.block != 0 ? c->how.block : 32;
    oq_plan_init(&plan, s->arena);
    *out = oq_message_clone(s->arena, OQ_SCHEMA_model_proto, as_is);
    if (*out == NULL)
        return oq_fail_nomem(err);
    m->proto = *out;
    const oq_nb_job job = {.model = m, .config = &plain, .plan = &plan, .made = &s->made};
    const onq_code rc = oq_nb_run(&job, err);
    m->proto = as_is;
    return rc;
}

/* A graph of one node, which is the branch of an If; its output has a name of its own. */
static oq_graph *branch(oq_nb_switch *s, const oq_node *n, oq_dtype type, const char *ending) {
    oq_graph *g = OQ_NEW(s->arena, oq_graph);
    oq_node *mine = OQ_NEW(s->arena, oq_node);
    const oq_str out = oq_str_cat(s->arena, n->output.v[0], oq_str_of(ending));
    if (g == NULL || mine == NULL || out.p == NULL)
        return NULL;
    *mine = *n;
    mine->output = (oq_strs){0};
    oq_value_info *info = oq_value_info_new(s->arena, out, (int32_t)type, NULL, 0, false);
    g->name = out;
    return info != NULL && oq_node_add_output(s->arena, mine, out) &&
                   oq_graph_add_node(s->arena, g, mine) && OQ_PUSH(s->arena, &g->output, info)
               ? g
               : NULL;
}

static bool move_inits(oq_nb_switch *s, oq_graph *to, const oq_graph *from, const oq_node *n) {
    for (size_t i = 1; i < n->input.n; i++) {
        oq_tensor *t = n->input.v[i].n > 0 ? oq_graph_find_init(from, n->input.v[i]) : NULL;
        if (t != NULL && oq_graph_find_init(to, t->name) == NULL &&
            !oq_graph_add_init(s->arena, to, t))
            return false;
    }
    return true;
}

static onq_code put_switch(oq_nb_switch *s, oq_graph *g, oq_node **at, oq_node *few,
                           const oq_graph *few_graph, const oq_nb_lazy *weight, onq_error *err) {
    const oq_str name = oq_str_format(s->arena, "onq_switch_%zu", s->n);
    oq_node *n = *at;
    const oq_dtype type = oq_nb_lazy_task(weight)->real;
    oq_graph *then_branch = branch(s, few, type, "_onq_few");
    oq_graph *else_branch = branch(s, n, type, "_onq_all");
    oq_value_info *info = oq_value_info_new(s->arena, name, OQ_BOOL, NULL, 0, true);
    oq_node *made =
        name.p != NULL ? oq_node_make(s->arena, "If", name, &name, 1, n->output.v, 1) : NULL;
    if (then_branch == NULL || else_branch == NULL || info == NULL || made == NULL ||
        !oq_attr_set_graph(s->arena, made, OQ_S("then_branch"), then_branch) ||
        !oq_attr_set_graph(s->arena, made, OQ_S("else_branch"), else_branch) ||
        !move_inits(s, g, few_graph, few) || !OQ_PUSH(s->arena, &g->input, info) ||
        !OQ_PUSH(s->arena, &s->weights, weight))
        return oq_fail_nomem(err);
    *at = made;
    s->n++;
    return ONQ_OK;
}

static bool is_few(const oq_node *n) {
    return oq_str_is(n->op_type, "MatMulNBits") && oq_str_is(n->domain, "com.microsoft");
}

onq_code oq_nb_switch_make(oq_nb_switch *s, oq_model *m, const oq_nb_config *c,
                           const oq_nb_weighed *all, size_t n, onq_error *err) {
    oq_model_proto *few = NULL;
    oq_map makers, readers;
    OQ_TRY(quantize(s, m, c, &few, err));
    s->proto = oq_message_clone(s->arena, OQ_SCHEMA_model_proto, m->proto);
    oq_map_init(&makers, s->arena);
    oq_map_init(&readers, s->arena);
    if (s->proto == NULL)
        return oq_fail_nomem(err);
    const oq_graph *from = few->graph;
    for (size_t i = 0; i < from->node.n; i++)
        if (is_few(from->node.v[i]) &&
            !oq_map_put(&makers, from->node.v[i]->output.v[0], (uint32_t)i))
            return oq_fail_nomem(err);
    for (size_t i = 0; i < n; i++)
        if (!oq_map_put(&readers, all[i].reader->output, (uint32_t)i))
            return oq_fail_nomem(err);
    oq_graph *g = s->proto->graph;
    for (size_t i = 0; i < g->node.n; i++) {
        oq_node *node = g->node.v[i];
        const uint32_t which =
            node->output.n == 1 ? oq_map_find(&readers, node->output.v[0]) : OQ_MAP_NONE;
        const uint32_t maker =
            which != OQ_MAP_NONE ? oq_map_find(&makers, node->output.v[0]) : OQ_MAP_NONE;
        if (maker != OQ_MAP_NONE)
            OQ_TRY(put_switch(s, g, &g->node.v[i], from->node.v[maker], from,
                              all[which].reader->weight, err));
    }
    oq_opset *domain = NULL;
    for (size_t i = 0; i < few->opset_import.n; i++)
        if (oq_str_is(few->opset_import.v[i]->domain, "com.microsoft"))
            domain = few->opset_import.v[i];
    for (size_t i = 0; i < s->proto->opset_import.n; i++)
        if (oq_str_is(s->proto->opset_import.v[i]->domain, "com.microsoft"))
            domain = NULL;
    if (domain != NULL && !OQ_PUSH(s->arena, &s->proto->opset_import, domain))
        return oq_fail_nomem(err);
    s->proto->ir_version = few->ir_version;
    return ONQ_OK;
}
