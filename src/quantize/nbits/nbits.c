/*
 * nbits.c — which nodes are quantized: decided first, with the rows of the plan, then written.
 */
#include "quantize/nbits/nbits.h"

#include "onnx/check/check.h"
#include "onnx/operators.h"
#include "onnx/tidy.h"
#include "quantize/nbits/nb_import.h"
#include "quantize/nbits/nb_run.h"

/* ---- configuration ---- */

void oq_nb_config_init(oq_nb_config *c, oq_qconfig *lists) {
    *c = (oq_nb_config){.lists = lists, .gather_axis = 1};
    oq_pick_init(&c->include, lists->arena);
    oq_map_init(&c->node_map, lists->arena);
    oq_map_init(&c->share_map, lists->arena);
    oq_map_init(&c->mean_map, lists->arena);
}

void oq_nb_made_release(oq_nb_made *made) {
    for (size_t i = 0; i < made->all.n; i++)
        oq_nb_lazy_release(made->all.v[i]);
    made->all.n = 0;
}

static bool is_block(uint64_t n) {
    return n == 16 || n == 32 || n == 64 || n == 128 || n == 256;
}

onq_code oq_nb_check(const oq_nb_config *c, const oq_nb_how *how, onq_code code, onq_error *err) {
    if (how->bits < 2 || (how->bits > 4 && how->bits != 8))
        return oq_fail(err, code, "bits: %u is not one of 2, 3, 4, 8", how->bits);
    if ((how->method->bits >> how->bits & 1) == 0)
        return oq_fail(err, code, "method %s has no %u bits (use --quant_method default)",
                       how->method->name, how->bits);
    if (c->qdq && how->bits < 4)
        return oq_fail(err, code, "the QDQ format has no %u bits (use --quant_format QOperator)",
                       how->bits);
    if (c->qdq && c->form == OQ_NB_FORM_PACKED)
        return oq_fail(err, code, "--form packed needs --quant_format QOperator");
    if (c->qdq && how->method->real_zero)
        return oq_fail(err, code,
                       "method %s has zero points that are not integers, which the QDQ format "
                       "cannot hold (use --quant_format QOperator)",
                       how->method->name);
    if (how->block == 0 && !c->qdq)
        return oq_fail(err, code,
                       "a whole column as one block needs --quant_format QDQ: MatMulNBits runs "
                       "with blocks of 16 to 256");
    if (how->block != 0 && !is_block(how->block))
        return oq_fail(err, code, "block size %llu: there are 16, 32, 64, 128 and 256%s",
                       (unsigned long long)how->block, c->qdq ? ", and -1 for a whole column" : "");
    return ONQ_OK;
}

/* ---- finding a node's weight ---- */

oq_tensor *oq_nb_find_init(oq_nb_scope **scope, oq_str name) {
    for (oq_nb_scope *s = *scope; s != NULL; s = s->parent) {
        const oq_value *v = oq_index_find(&s->index, name);
        if (v == NULL || !oq_value_is_defined(v))
            continue;
        *scope = s;
        return v->init;
    }
    return NULL;
}

/* The constant that `name` is; else NULL and *why. */
static oq_tensor *find_weight(const oq_nb_state *r, oq_nb_scope *scope, oq_str name,
                              oq_nb_weight *w, const char **why) {
    w->scope = scope;
    w->turned = false;
    w->tensor = oq_nb_find_init(&w->scope, name);
    if (w->tensor != NULL)
        return w->tensor;
    const oq_index *ix = &scope->index;
    const oq_value *v = oq_index_resolve(&ix, name);
    const oq_node *from = oq_value_node(ix, v);
    *why = OQ_NB_WHY_DYNAMIC;
    if (from == NULL)
        return NULL;
    if (oq_node_is_constant(from))
        *why = OQ_NB_WHY_CONSTANT;
    if (!oq_node_is_swap(from))
        return NULL;
    w->scope = scope;
    w->tensor = oq_nb_find_init(&w->scope, from->input.v[0]);
    if (w->tensor == NULL || w->tensor->dims.n != 2)
        return NULL;
    w->turned = true;
    *why = OQ_NB_WHY_TURNED;
    return r->config->all_weights ? w->tensor : NULL;
}

/* NULL, or why such a weight cannot be quantized. */
static const char *check_matrix(const oq_nb_state *r, oq_nb_weight *w) {
    const oq_tensor *t = w->tensor;
    const size_t rank = t->dims.n;
    const int32_t type = t->data_type.v;
    if (type != OQ_FLOAT && type != OQ_FLOAT16 && type != OQ_BFLOAT16)
        return type == OQ_DOUBLE ? OQ_NB_WHY_DOUBLE : "its weight is not float";
    if (rank < 2)
        return "its weight is not a matrix";
    w->batch = 1;
    for (size_t i = 0; i + 2 < rank; i++)
        w->batch *= (uint64_t)t->dims.v[i]; /* their product was checked with the model */
    w->k = (uint64_t)t->dims.v[w->turned ? rank - 1 : rank - 2];
    w->n = (uint64_t)t->dims.v[w->turned ? rank - 2 : rank - 1];
    if (w->k == 0 || w->n == 0 || w->batch == 0)
        return OQ_WHY_EMPTY;
    return w->batch > 1 && !r->config->all_weights ? OQ_NB_WHY_BATCH : NULL;
}

/* ---- the operators ---- */

/* What --target_bits says of the weight. */
static const char *apply_share(const oq_nb_state *r, oq_nb_choice *c, const oq_tensor *weight) {
    const oq_nb_config *config = r->config;
    const uint32_t i = oq_map_find(&config->share_map, weight->name);
    if (config->given != NULL || i == OQ_MAP_NONE || oq_map_has(&config->node_map, c->node->name))
        return NULL;
    const oq_nb_share *share = &config->shares.v[i];
    if (share->bits == 0) {
        c->by = OQ_BY_CHOICE;
        return "left float by --target_bits";
    }
    c->how.method = share->method;
    c->how.bits = share->bits;
    c->how.block = share->block;
    c->how.symmetric = share->symmetric;
    return NULL;
}

/* Blocks of --weights that stay as they are decide how the weight is quantized. Their rows lie along
 * K: blocks of a table along another axis are made anew. */
static void apply_import(const oq_nb_state *r, oq_nb_choice *c) {
    oq_nb_import *im = r->config->import;
    const oq_nb_source *s = im != NULL ? oq_nb_import_find(im, c->weight.tensor->name) : NULL;
    if (s == NULL)
        return;
    unsigned bits = 0; /* as many as are asked for */
    const oq_nb_method *method = NULL;
    if (im->exact && !r->config->qdq && c->weight.k == s->k &&
        !oq_map_has(&r->config->node_map, c->node->name))
        method = oq_nb_import_method(s, &bits);
    if (oq_node_is(c->node, "Gather")) {
        bits = bits == 8 && !r->config->all_weights ? 0 : bits;
        method = bits == 0 || (method != NULL && method->real_zero) ? NULL : method;
    }
    oq_nb_how how = c->how;
    how.bits = bits != 0 ? bits : how.bits;
    im->n_wider += bits == 8 && s->tensor->type != OQ_GGUF_Q8_0;
    if (method != NULL) {
        how.method = method;
        how.block = 32;
        how.symmetric = !method->real_zero;
        /* The runtime has no kernel for such blocks of 8 bits but with sums. */
        if (method->real_zero && bits == 8 && !oq_nb_has_sums(r, &c->weight, &how))
            method = NULL;
    }
    c->how.bits = how.bits;
    c->how = method != NULL ? how : c->how;
    im->n_anew += method == NULL;
    im->n_exact += method != NULL;
}

/* These set c->weight and c->why, which stays NULL where the node is quantized. */
static void take_matmul(const oq_nb_state *r, oq_nb_choice *c) {
    oq_nb_weight *w = &c->weight;
    if (c->node->input.n < 2 || c->node->output.n != 1)
        return;
    if (find_weight(r, c->scope, c->node->input.v[1], w, &c->why) == NULL)
        return;
    c->why = check_matrix(r, w);
    if (c->why == NULL && w->batch > 1 && c->how.bits < 4)
        c->why = "its weight is a batch of matrices, which takes 4 or 8 bits";
    if (c->why == NULL && (c->how.method->as_intel || r->config->bnb4) && w->tensor->dims.n > 2 &&
        !r->config->all_weights)
        c->why = r->config->bnb4 ? "its weight is not a matrix" : OQ_NB_WHY_BATCH;
    if (c->why == NULL)
        apply_import(r, c);
    if (c->why == NULL)
        c->why = apply_share(r, c, w->tensor);
}

/* Gemm(A, B, C) is MatMul(A, B) + C where it scales and turns nothing but B. */
static void take_gemm(const oq_nb_state *r, oq_nb_choice *c) {
    oq_nb_weight *w = &c->weight;
    const oq_node *n = c->node;
    const bool has_c = n->input.n > 2 && n->input.v[2].n > 0;
    if (n->input.n < 2 || n->output.n != 1)
        return;
    c->why = "it turns its first input, or scales";
    if (oq_gemm_turns_a(n) || oq_attr_float(n, "alpha", 1.0f) != 1.0f ||
        (has_c && oq_attr_float(n, "beta", 1.0f) != 1.0f))
        return;
    w->scope = c->scope;
    w->tensor = oq_nb_find_init(&w->scope, n->input.v[1]);
    c->why = OQ_NB_WHY_DYNAMIC;
    if (w->tensor == NULL)
        return;
    w->turned = oq_gemm_turns_b(n);
    c->why = w->tensor->dims.n == 2 ? check_matrix(r, w) : "its weight is not a matrix";
    if (c->why == NULL)
        apply_import(r, c);
    if (c->why == NULL)
        c->why = apply_share(r, c, w->tensor);
}

/* K along the axis, the dimensions before it as a batch and those after it as N; NULL, or why the
 * table cannot be quantized. */
static const char *check_table(const oq_nb_state *r, oq_nb_choice *c) {
    oq_nb_weight *w = &c->weight;
    const int64_t rank = (int64_t)w->tensor->dims.n, axis = r->config->gather_axis;
    const int32_t type = w->tensor->data_type.v;
    c->axis = axis < 0 ? axis + rank : axis;
    if (type != OQ_FLOAT && type != OQ_FLOAT16 && type != OQ_BFLOAT16)
        return "what it takes values from is not float";
    if (rank < 2 || c->axis < 0 || c->axis >= rank)
        return "what it takes values from has no such axis (--quant_axes Gather:AXIS)";
    w->batch = w->n = 1;
    for (int64_t i = 0; i < rank; i++) {
        const uint64_t d = (uint64_t)w->tensor->dims.v[i];
        if (i == c->axis)
            w->k = d;
        else if (i < c->axis)
            w->batch *= d;
        else
            w->n *= d;
    }
    return w->k == 0 || w->n == 0 || w->batch == 0 ? "what it takes values from is empty" : NULL;
}

static void take_gather(const oq_nb_state *r, oq_nb_choice *c) {
    oq_nb_weight *w = &c->weight;
    const oq_node *n = c->node;
    if (n->input.n < 2 || n->output.n != 1)
        return;
    w->scope = c->scope;
    w->tensor = oq_nb_find_init(&w->scope, n->input.v[0]);
    c->why = OQ_NB_WHY_DYNAMIC;
    if (w->tensor == NULL)
        return;
    c->why = "GatherBlockQuantized takes integers as zero points only";
    if (c->how.method->real_zero)
        return;
    c->why = check_table(r, c);
    if (c->why == NULL)
        apply_import(r, c);
    if (c->why == NULL)
        c->why = apply_share(r, c, w->tensor);
    if (c->why != NULL)
        return;
    c->rows = r->config->all_weights && w->n == 1 && w->tensor->dims.n == 2 &&
              oq_attr_int(n, "axis", 0) == 0 && w->k % c->how.block == 0;
    if (c->how.bits != 4 && !(c->rows && c->axis == 1))
        c->why = "GatherBlockQuantized takes 4 bits (--all_weights: others too, where they fit)";
}

static const struct {
    const char *op_type;
    bool by_default; /* without op_types_to_quantize */
    void (*take)(const oq_nb_state *r, oq_nb_choice *c);
} operators[] = {
    {"MatMul", true, take_matmul},
    {"Gather", false, take_gather},
    {"Gemm", false, take_gemm},
    {"MoE", false, oq_nb_take_experts},
};

bool oq_nb_knows(oq_str op_type) {
    bool known = false;
    for (size_t i = 0; i < OQ_COUNT(operators); i++)
        known |= oq_str_is(op_type, operators[i].op_type);
    return known;
}

/* ---- choosing ---- */

static bool is_listed(const oq_nb_state *r, const oq_node *n, bool by_default) {
    oq_qconfig *c = r->config->lists;
    if (oq_pick_has(&r->config->include, n->name))
        return true;
    return c->op_types_all || (r->config->all_weights && oq_str_is(n->op_type, "MoE")) ||
           (oq_pick_is_empty(&c->op_types) ? by_default : oq_pick_has(&c->op_types, n->op_type));
}

/* Lists of names and types, and settings of single nodes. NULL: none of them leaves it float. */
static const char *skip_by_lists(oq_nb_state *r, oq_nb_choice *c, bool by_default) {
    oq_qconfig *lists = r->config->lists;
    const oq_node *n = c->node;
    const uint32_t i = n->name.n > 0 ? oq_map_find(&r->config->node_map, n->name) : OQ_MAP_NONE;
    if (i != OQ_MAP_NONE) {
        r->config->nodes.v[i].used = true;
        c->how = r->config->nodes.v[i].how;
    }
    if (n->name.n > 0 && oq_pick_has(&lists->nodes_to_exclude, n->name))
        return "in nodes_to_exclude";
    if (!oq_pick_is_empty(&lists->nodes_to_quantize) &&
        !oq_pick_has(&lists->nodes_to_quantize, n->name))
        return "not in nodes_to_quantize";
    if (!is_listed(r, n, by_default))
        return "not in op_types_to_quantize";
    return c->how.leave ? "left float by node_config" : NULL;
}

/* Why the node is skipped before its operator is looked at; NULL if it is not. */
static const char *skip(oq_nb_state *r, oq_nb_choice *c, bool by_default) {
    const oq_given *given = r->config->given;
    const oq_node *n = c->node;
    const char *why = given != NULL ? oq_given_skip(given, n) : skip_by_lists(r, c, by_default);
    if (why != NULL)
        return why;
    if (r->config->qdq && oq_str_is(n->op_type, "Gather"))
        return "Gather needs the QOperator format: that of ONNX takes no 4-bit types";
    if (!c->how.method->has_gather && !oq_str_is(n->op_type, "MatMul") &&
        !oq_str_is(n->op_type, "MoE") && !r->config->all_weights)
        return "this method quantizes MatMul only";
    return c->scope->parent != NULL && c->how.method->as_intel && !r->config->all_weights
               ? OQ_NB_WHY_INNER
               : NULL;
}

/* The form of its weight, and who reads it. */
static onq_code take_weight(oq_nb_state *r, oq_nb_choice *c, onq_error *err) {
    OQ_TRY(oq_nb_take_weight(r, c, err));
    if (c->experts)
        return ONQ_OK; /* no tensor of the graph is what they are multiplied with */
    const oq_nb_reader reader = {.weight = c->done->lazy,
                                 .input = c->node->input.v[0],
                                 .node = c->node->name,
                                 .output = c->node->output.v[0],
                                 .gathers = oq_node_is(c->node, "Gather"),
                                 .fixed = oq_map_has(&r->config->node_map, c->node->name)};
    return OQ_PUSH(r->arena, &r->job->made->readers, reader) ? ONQ_OK : oq_fail_nomem(err);
}

/* A weight that a plan has no row for stays float. */
static void leave_unplanned(const oq_nb_state *r, oq_nb_choice *c) {
    const oq_given *given = r->config->given;
    if (given == NULL || oq_given_row(given, c->weight.tensor->name, OQ_ROLE_WEIGHT) != OQ_MAP_NONE)
        return;
    c->by = OQ_BY_CHOICE;
    c->why = "its weight has no row in the plan";
}

static const oq_nb_method *method_called(oq_str name) {
    for (size_t i = 0; i < OQ_NB_METHODS; i++)
        if (oq_str_is(name, oq_nb_methods[i].name))
            return &oq_nb_methods[i];
    return NULL;
}

/* What a plan that was read says of the node; it must be possible. */
static onq_code follow_plan(const oq_nb_state *r, oq_nb_choice *c, onq_error *err) {
    const oq_given *given = r->config->given;
    const oq_plan_node *row = given != NULL ? oq_given_node(given, c->node) : NULL;
    if (row == NULL || row->bits == 0)
        return ONQ_OK;
    c->how.bits = row->bits;
    c->how.block = row->block;
    c->how.symmetric = row->symmetric;
    c->how.accuracy_level = row->accuracy_level;
    if (row->method.n > 0 && (c->how.method = method_called(row->method)) == NULL)
        return oq_fail(err, ONQ_E_CONFIG, "there is no method '%.*s'", OQ_STR(row->method));
    return oq_nb_check(r->config, &c->how, ONQ_E_CONFIG, err);
}

static onq_code decide_graph(oq_nb_state *r, oq_graph *g, oq_nb_scope *parent, onq_error *err);

static onq_code decide_inner(oq_nb_state *r, oq_nb_scope *s, oq_node *n, onq_error *err) {
    oq_graph_cursor at = {0};
    for (oq_graph *g; (g = oq_node_next_graph(n, &at)) != NULL;) {
        if (s->depth == OQ_MAX_GRAPH_DEPTH)
            return oq_fail(err, ONQ_E_LIMIT, "graphs are nested deeper than %d",
                           OQ_MAX_GRAPH_DEPTH);
        OQ_TRY(decide_graph(r, g, s, err));
    }
    return ONQ_OK;
}

/* MoE is of the runtime's domain, the others are ONNX's. */
static bool is_operator(const oq_node *n, const char *op_type) {
    return oq_node_is(n, op_type) ||
           (strcmp(op_type, "MoE") == 0 && oq_str_is(n->op_type, op_type) &&
            oq_str_is(n->domain, "com.microsoft"));
}

static onq_code decide_node(oq_nb_state *r, oq_nb_scope *s, oq_node *n, onq_error *err) {
    oq_nb_choice c = {
        .scope = s, .node = n, .how = r->config->how, .why = OQ_WHY_MODE, .by = OQ_BY_RULE};
    OQ_TRY(decide_inner(r, s, n, err));
    for (size_t i = 0; i < OQ_COUNT(operators); i++) {
        if (!is_operator(n, operators[i].op_type))
            continue;
        const char *skipped = skip(r, &c, operators[i].by_default);
        c.by = skipped != NULL ? OQ_BY_CHOICE : OQ_BY_RULE;
        c.why = skipped != NULL ? skipped : c.why;
        if (skipped != NULL)
            continue;
        OQ_TRY(follow_plan(r, &c, err));
        operators[i].take(r, &c);
    }
    if (c.why != NULL)
        OQ_TRY(oq_given_refuse(r->config->given, n, c.why, err));
    else
        leave_unplanned(r, &c);
    if (c.why == NULL)
        OQ_TRY(take_weight(r, &c, err));
    const oq_plan_node row = {.name = n->name,
                              .op_type = n->op_type,
                              .output = n->output.n > 0 ? n->output.v[0] : OQ_S(""),
                              .fate = c.why != NULL ? OQ_FATE_FLOAT : OQ_FATE_QUANTIZED,
                              .by = c.by,
                              .why = c.why != NULL ? c.why : "",
                              .bits = c.why != NULL ? 0 : c.how.bits,
                              .block = c.how.block,
                              .method = c.how.method != r->config->how.method
                                            ? oq_str_of(c.how.method->name)
                                            : (oq_str){0},
                              .symmetric = c.how.symmetric,
                              .accuracy_level = c.how.accuracy_level};
    if (!OQ_PUSH(r->scratch, &r->choices, c) || !oq_plan_add_node(r->job->plan, row))
        return oq_fail_nomem(err);
    return ONQ_OK;
}

static onq_code decide_graph(oq_nb_state *r, oq_graph *g, oq_nb_scope *parent, onq_error *err) {
    oq_nb_scope *s = OQ_NEW(r->scratch, oq_nb_scope);
    if (s == NULL || !OQ_PUSH(r->scratch, &r->scopes, s))
        return oq_fail_nomem(err);
    s->parent = parent;
    s->graph = g;
    s->depth = parent != NULL ? parent->depth + 1 : 0;
    OQ_TRY(oq_index_build(&s->index, r->scratch, g, parent != NULL ? &parent->index : NULL, err));
    for (size_t i = 0; i < g->node.n; i++)
        OQ_TRY(oq_node_blame(g->node.v[i], decide_node(r, s, g->node.v[i], err), err));
    return ONQ_OK;
}

/* ---- writing ---- */

/* The nodes that stay and those that are new. */
static onq_code set_nodes(oq_nb_state *r, const oq_nb_scope *s, onq_error *err) {
    s->graph->node.n = 0;
    for (size_t i = 0; i < s->out.n + s->apart.n; i++)
        if (!oq_graph_add_node(r->arena, s->graph,
                               i < s->out.n ? s->out.v[i] : s->apart.v[i - s->out.n]))
            return oq_fail_nomem(err);
    return ONQ_OK;
}

static onq_code emit(oq_nb_state *r, onq_error *err) {
    for (size_t i = 0; i < r->choices.n; i++) {
        const oq_nb_choice *c = &r->choices.v[i];
        if (c->why == NULL)
            OQ_TRY(oq_node_blame(c->node, oq_nb_emit(r, c, err), err));
        else if (!OQ_PUSH(r->scratch, &c->scope->out, c->node))
            return oq_fail_nomem(err);
    }
    for (size_t i = 0; i < r->scopes.n; i++)
        OQ_TRY(set_nodes(r, r->scopes.v[i], err));
    return ONQ_OK;
}

/* ---- the whole ---- */

/* Sets *ctx when a MatMul has a batch of matrices as its weight. */
static onq_code see_batch(void *ctx, oq_graph *g, onq_error *err) {
    (void)err;
    for (size_t i = 0; i < g->node.n; i++) {
        const oq_node *n = g->node.v[i];
        const oq_tensor *t = oq_str_is(n->op_type, "MatMul") && n->input.n == 2
                                 ? oq_graph_find_init(g, n->input.v[1])
                                 : NULL;
        for (size_t k = 0; t != NULL && k + 2 < t->dims.n; k++)
            *(bool *)ctx |= t->dims.v[k] != 1;
    }
    return ONQ_OK;
}

/* True where the nodes that make packed integers wide will be needed. */
static bool packs(const oq_nb_config *c) {
    bool any = c->form == OQ_NB_FORM_PACKED || c->how.bits == 3;
    for (size_t i = 0; i < c->nodes.n; i++)
        any |= c->nodes.v[i].how.bits == 3;
    for (size_t i = 0; c->given != NULL && i < c->given->plan.nodes.n; i++)
        any |= c->given->plan.nodes.v[i].bits == 3;
    return any;
}

onq_code oq_nb_opset(oq_model *m, oq_nb_config *c, int64_t *out, onq_error *err) {
    bool found =
        c->qdq || oq_pick_has(&c->lists->op_types, OQ_S("Gather")) || c->lists->op_types_all;
    if (!found && c->all_weights)
        OQ_TRY(oq_walk_graphs(m->proto->graph, see_batch, &found, err));
    *out = found ? 21 : packs(c) && oq_model_opset(m, OQ_S("")) < 18 ? 18 : 0;
    return ONQ_OK;
}

/* Intel's quantizer removes the weight of a node and nothing else. */
static onq_code remove_weights(oq_nb_state *r, onq_error *err) {
    oq_model *m = r->job->model;
    oq_index ix;
    OQ_TRY(oq_index_build(&ix, r->scratch, m->proto->graph, NULL, err));
    for (size_t i = 0; i < r->done.n; i++) {
        const oq_str name = r->done.v[i]->tensor->name;
        const oq_value *v = oq_index_find(&ix, name);
        if (r->done.v[i]->scope->parent == NULL && v != NULL && v->uses.n == 0 && !v->is_output)
            oq_graph_remove_init(m->proto->graph, name);
    }
    return ONQ_OK;
}

/* Transposes of weights that nothing reads any more. */
static onq_code prune_turned(oq_nb_state *r, onq_error *err) {
    oq_graph *g = r->job->model->proto->graph;
    oq_index ix;
    OQ_TRY(oq_index_build(&ix, r->scratch, g, NULL, err));
    bool *drop = OQ_NEW_ARRAY(r->scratch, bool, g->node.n + 1);
    if (drop == NULL)
        return oq_fail_nomem(err);
    for (size_t i = 0; i < g->node.n; i++) {
        const oq_node *n = g->node.v[i];
        const oq_value *v = n->output.n == 1 ? oq_index_find(&ix, n->output.v[0]) : NULL;
        drop[i] = v != NULL && oq_node_is_swap(n) && v->uses.n == 0 && !v->is_output;
    }
    oq_graph_remove_nodes(g, drop);
    return ONQ_OK;
}

/* Who fed another weight would change what still reads it, and not the integers. */
static void drop_inputs(oq_nb_state *r) {
    for (size_t i = 0; i < r->done.n; i++) {
        oq_graph *g = r->done.v[i]->scope->graph;
        for (size_t k = g->input.n; k-- > 0;)
            if (oq_str_eq(g->input.v[k]->name, r->done.v[i]->tensor->name))
                OQ_REMOVE_AT(&g->input, k);
    }
}

static onq_code finish(oq_nb_state *r, onq_error *err) {
    oq_model *m = r->job->model;
    if (!r->config->qdq && oq_model_opset(m, OQ_S("com.microsoft")) == 0)
        OQ_TRY(oq_model_set_opset(m, OQ_S("com.microsoft"), 1, err));
    /* Before IR 4 every initializer had to be a graph input; the new ones are not. */
    if (r->done.n > 0)
        OQ_TRY(oq_model_raise_ir(m, 4, err));
    if (r->config->all_weights)
        OQ_TRY(prune_turned(r, err));
    if (r->config->how.method->as_intel) {
        OQ_TRY(remove_weights(r, err));
        return oq_nb_sort(m, m->proto->graph, err);
    }
    drop_inputs(r);
    OQ_TRY(oq_model_clean_inits(m, err));
    return r->config->lists->sort_nodes ? oq_model_sort(m, err) : ONQ_OK;
}

static onq_code run(oq_nb_state *r, onq_error *err) {
    OQ_TRY(oq_given_bind_nodes(r->config->given, r->job->model, err));
    OQ_TRY(decide_graph(r, r->job->model->proto->graph, NULL, err));
    if (r->job->decide_only)
        return ONQ_OK;
    oq_model_touch(r->job->model);
    OQ_TRY(oq_fresh_init(&r->names, r->scratch, r->job->model, err));
    OQ_TRY(emit(r, err));
    OQ_TRY(finish(r, err));
    OQ_ASSERT_VALID(r->job->model);
    return ONQ_OK;
}

onq_code oq_nb_run(const oq_nb_job *job, onq_error *err) {
    oq_arena scratch;
    oq_arena_init(&scratch, &job->model->env->alloc);
    oq_nb_state r = {
        .job = job, .config = job->config, .arena = &job->model->arena, .scratch = &scratch};
    oq_map_init(&r.done_map, &scratch);
    const onq_code rc = run(&r, err);
    oq_arena_release(&scratch);
    return rc;
}
