/*
 * quant_methods.c — see quant_methods.h.
 */
#include "api/quantizing/quant_methods.h"

#include "api/samples.h"
#include "onnx/operators.h"
#include "prepare/channels/channels.h"
#include "quantize/ort/pointwise.h"

/* What the general options say. */
typedef struct general {
    oq_method conv; /* of --channel_ranges */
    bool equalize, twice, pointwise;
    uint32_t outliers;
} general;

static general general_of(const onq_options *o) {
    return (general){.conv = OQ_CHOSEN(o, "channel_ranges", oq_method, OQ_CHANNEL_RANGES),
                     .equalize = oq_opt_flag(o, "equalize"),
                     .twice = oq_opt_flag(o, "double_activations"),
                     .pointwise = oq_opt_flag(o, "pointwise_matmul"),
                     .outliers = (uint32_t)oq_opt_int(o, "outlier_channels")};
}

/* The first option that needs samples of the model as it came; NULL: none. */
static const char *needs_samples(const oq_quant *q, const general *g) {
    for (size_t i = 0; i < q->config.methods.all.n; i++)
        if (oq_method_needs_samples(q->config.methods.all.v[i].method))
            return "--node_methods";
    return g->conv != OQ_METHOD_GENERAL ? "--channel_ranges"
           : g->equalize                ? "--equalize"
           : g->outliers > 0            ? "--outlier_channels"
                                        : NULL;
}

static bool wants_any(const oq_quant *q, const general *g) {
    bool any = g->twice || g->pointwise || needs_samples(q, g) != NULL;
    for (size_t i = 0; i < q->config.methods.all.n; i++)
        any |= q->config.methods.all.v[i].method == OQ_METHOD_DOUBLE;
    return any;
}

onq_code oq_quant_methods_check(const oq_quant *q, bool pairs, bool arithmetic, onq_error *err) {
    const onq_options *o = q->job->opts;
    const general g = general_of(o);
    const char *changes = needs_samples(q, &g);
    const char *cache = oq_opt_str(o, "calibration_cache");
    if (!wants_any(q, &g))
        return ONQ_OK;
    if (!pairs)
        return oq_fail(err, ONQ_E_OPTION, "%s is for --quant_format qdq",
                       changes != NULL ? changes
                       : g.pointwise   ? "--pointwise_matmul"
                                       : "--double_activations");
    if (g.outliers > 0 && g.twice)
        return oq_fail(err, ONQ_E_OPTION,
                       "--outlier_channels and --double_activations cannot be used together "
                       "(--node_methods chooses node by node)");
    if (g.equalize && q->config.smooth_quant)
        return oq_fail(err, ONQ_E_OPTION, "--equalize and --smooth_quant cannot be used together");
    if (changes != NULL && cache != NULL && cache[0] != '\0' && !o->shared.own_cache)
        return oq_fail(err, ONQ_E_OPTION,
                       "%s and --calibration_cache cannot be used together: the ranges are those "
                       "of a model that %s changes",
                       changes, changes);
    if (changes != NULL && q->run.given != NULL)
        return oq_fail(err, ONQ_E_OPTION,
                       "%s and --from_plan cannot be used together: a plan does not hold scales "
                       "of channels (repeat the run with --data)",
                       changes);
    if (arithmetic && (g.equalize || g.conv != OQ_METHOD_GENERAL))
        oq_warn(q->job->env,
                "%s puts constants into the model that differ much from channel to channel, and "
                "arithmetic between elements is quantized too, which spoils them (--op_set linear "
                "leaves it float)",
                changes);
    return ONQ_OK;
}

/* ---- node by node ---- */

typedef struct work {
    oq_quant *q;
    general general;
    OQ_VEC(oq_channel_choice) choices;
} work;

static oq_node_method method_of(const work *w, const oq_node *n, oq_product product) {
    const oq_node_method *own = oq_node_methods_find(&w->q->config.methods, n);
    const general *g = &w->general;
    if (own != NULL)
        return *own;
    if (product == OQ_MATMUL && g->outliers > 0)
        return (oq_node_method){.method = OQ_METHOD_OUTLIERS, .channels = g->outliers};
    if (product == OQ_MATMUL && g->twice)
        return (oq_node_method){.method = OQ_METHOD_DOUBLE};
    if (product == OQ_CONV && g->conv != OQ_METHOD_GENERAL)
        return (oq_node_method){.method = g->equalize && g->conv == OQ_METHOD_OUT ? OQ_METHOD_BOTH
                                                                                  : g->conv};
    return (oq_node_method){
        .method = g->equalize && product != OQ_CONV_TRANSPOSE ? OQ_METHOD_IN : OQ_METHOD_PLAIN};
}

/* Why a node that the user names cannot have its method; NULL: it can. */
static const char *misfit(const oq_node *n, oq_product product, oq_method m, bool constant) {
    if (m <= OQ_METHOD_PLAIN)
        return NULL;
    if (product == OQ_NO_PRODUCT || product == OQ_CONV_TRANSPOSE || !oq_domain_is_onnx(n->domain))
        return "is for Conv, Gemm and MatMul";
    if (!constant)
        return "needs a constant weight";
    if ((m == OQ_METHOD_OUTLIERS || m == OQ_METHOD_DOUBLE) && product != OQ_MATMUL)
        return "is for MatMul: the runtime has no integer Conv or Gemm with float output "
               "(--rewrite conv1d makes MatMul of Conv over one axis)";
    if (m == OQ_METHOD_OUT && product != OQ_CONV)
        return "is for Conv";
    return NULL;
}

static onq_code note_double(work *w, const oq_node *n, onq_error *err) {
    oq_qrun *r = &w->q->run;
    if (!oq_map_put(&r->doubled, n->output.v[0], 0) ||
        !oq_map_put(&r->float_outputs, n->output.v[0], 0))
        return oq_fail_nomem(err);
    return ONQ_OK;
}

/* ---- results that float nodes read ---- */

static bool is_left_float(work *w, const oq_index *ix, const oq_use *use) {
    const oq_node *reader = ix->graph->node.v[use->node];
    return use->slot == OQ_SLOT_INNER || oq_qrun_skip(&w->q->run, reader, w->q->modes) != NULL;
}

static bool is_read_in_float(work *w, const oq_index *ix, oq_str name) {
    const oq_value *v = oq_index_find(ix, name);
    bool is = v != NULL && v->is_output;
    for (size_t i = 0; v != NULL && i < v->uses.n; i++)
        is = is || is_left_float(w, ix, &v->uses.v[i]);
    return is;
}

/* A Conv whose result can be float as the runtime computes it, and is of use so. */
static onq_code note_pointwise(work *w, const oq_index *ix, const oq_node *n, bool *is,
                               onq_error *err) {
    oq_qrun *r = &w->q->run;
    *is = w->general.pointwise && oq_is_pointwise(n, oq_index_init(ix, oq_node_input(n, 1))) &&
          is_read_in_float(w, ix, n->output.v[0]);
    if (*is && (!oq_map_put(&r->pointwise, n->output.v[0], 0) ||
                !oq_map_put(&r->float_outputs, n->output.v[0], 0)))
        return oq_fail_nomem(err);
    return ONQ_OK;
}

static onq_code choose(work *w, const oq_index *ix, oq_node *n, onq_error *err) {
    const oq_product product = oq_op_traits_of(n->op_type)->product;
    const bool named = oq_node_methods_find(&w->q->config.methods, n) != NULL;
    if ((product == OQ_NO_PRODUCT && !named) || n->output.n == 0 ||
        oq_qrun_skip(&w->q->run, n, w->q->modes) != NULL)
        return ONQ_OK;
    const oq_node_method m = method_of(w, n, product);
    const bool constant = n->input.n > 1 && oq_index_init(ix, n->input.v[1]) != NULL;
    const char *why = misfit(n, product, m.method, constant);
    if (why != NULL && named)
        oq_warn(w->q->job->env,
                "--node_methods: node '%.*s' (%.*s): %s %s; it is quantized plainly",
                OQ_STR(oq_node_label(n)), OQ_STR(n->op_type), oq_method_name(m.method), why);
    if (why != NULL)
        return ONQ_OK;
    if (m.method == OQ_METHOD_DOUBLE)
        return note_double(w, n, err);
    bool is_float = false;
    OQ_TRY(note_pointwise(w, ix, n, &is_float, err));
    const oq_channel_choice choice = {
        .node = n,
        .in = m.method == OQ_METHOD_IN || m.method == OQ_METHOD_BOTH,
        .out = !is_float && (m.method == OQ_METHOD_OUT || m.method == OQ_METHOD_BOTH),
        .outliers = m.channels};
    if (!oq_method_needs_samples(m.method) || (is_float && m.method == OQ_METHOD_OUT))
        return ONQ_OK;
    return OQ_PUSH(&w->q->job->arena, &w->choices, choice) ? ONQ_OK : oq_fail_nomem(err);
}

static onq_code choose_all(work *w, onq_error *err) {
    oq_index ix;
    oq_graph *g = w->q->model->proto->graph;
    OQ_TRY(oq_index_build(&ix, &w->q->job->arena, g, NULL, err));
    for (size_t i = 0; i < g->node.n; i++)
        OQ_TRY(choose(w, &ix, g->node.v[i], err));
    return ONQ_OK;
}

/* ---- the model ---- */

/* What the quantizer must know of the changes. */
static onq_code note_changes(oq_quant *q, const oq_channels *c, onq_error *err) {
    for (size_t i = 0; i < c->added.n; i++)
        OQ_TRY_ALLOC(oq_map_put(&q->run.added, c->added.v[i], 0), err);
    for (size_t i = 0; i < c->float_outputs.n; i++)
        OQ_TRY_ALLOC(oq_map_put(&q->run.float_outputs, c->float_outputs.v[i], 0), err);
    for (size_t i = 0; i < c->ranges.n; i++) {
        oq_tensor_override *t = oq_overrides_add(&q->overrides, c->ranges.v[i].tensor);
        OQ_TRY_ALLOC(t != NULL, err);
        oq_override *o = &t->channels.v[0];
        o->has_rmin = o->has_rmax = true;
        o->rmin = c->ranges.v[i].low;
        o->rmax = c->ranges.v[i].high;
    }
    return ONQ_OK;
}

static bool has_any(const oq_map *names, const oq_str *v, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (oq_map_has(names, v[i]))
            return true;
    return false;
}

/* True if a node that will be quantized reads or makes a tensor whose new range is not known. */
static onq_code lacks_ranges(oq_quant *q, const oq_channels *c, bool *lacks, onq_error *err) {
    const oq_graph *g = q->model->proto->graph;
    oq_map names;
    oq_map_init(&names, &q->job->arena);
    *lacks = false;
    for (size_t i = 0; i < c->moved_more.n; i++)
        OQ_TRY_ALLOC(oq_map_put(&names, c->moved_more.v[i], 0), err);
    for (size_t i = 0; i < g->node.n && c->moved_more.n > 0 && !*lacks; i++) {
        const oq_node *n = g->node.v[i];
        *lacks = (has_any(&names, n->input.v, n->input.n) ||
                  has_any(&names, n->output.v, n->output.n)) &&
                 oq_qrun_skip(&q->run, n, q->modes) == NULL;
    }
    return ONQ_OK;
}

/* Of the ranges before the changes, all but a few are right; the others follow from those of
 * channels. Where one does not, all of them are found by a calibration. */
static onq_code take_ranges(oq_quant *q, const oq_channels *c, onq_error *err) {
    const char *path = q->job->opts->shared.unchanged;
    bool lacks = true;
    if (path != NULL)
        OQ_TRY(lacks_ranges(q, c, &lacks, err));
    if (lacks)
        return ONQ_OK;
    assert(!q->has_ranges);
    OQ_TRY(oq_ranges_load(&q->ranges, q->job->env, path, err));
    q->has_ranges = true;
    for (size_t i = 0; i < c->moved.n; i++) {
        oq_range *r = oq_ranges_add(&q->ranges, c->moved.v[i].tensor);
        if (r == NULL || !oq_num_make(&q->ranges.arena, &r->lowest, OQ_FLOAT, false, 1) ||
            !oq_num_make(&q->ranges.arena, &r->highest, OQ_FLOAT, false, 1))
            return oq_fail_nomem(err);
        r->lowest.v[0] = (double)(float)c->moved.v[i].low;
        r->highest.v[0] = (double)(float)c->moved.v[i].high;
    }
    return ONQ_OK;
}

static onq_code change_model(work *w, onq_error *err) {
    oq_quant *q = w->q;
    oq_source *source = NULL;
    oq_channels c = {
        .choices = w->choices.v,
        .n_choices = w->choices.n,
        .per_channel = q->config.per_channel,
        .see = {.model = q->model, .what = "channels", .memory = q->job->opts->shared.channels}};
    if (q->engine == NULL)
        OQ_TRY(oq_job_engine(q->job, &q->engine, err));
    c.see.engine = q->engine;
    OQ_TRY(oq_job_session(q->job, &c.see.session, err));
    OQ_TRY(oq_job_source(q->job, q->model, &source, err));
    c.see.source = source;
    const onq_code rc = oq_channels_apply(&c, err);
    oq_source_close(source);
    if (rc != ONQ_OK)
        return oq_error_in(err, rc, "channels");
    oq_info(q->job->env,
            "channels: %zu products with scales for those of the input (%zu folded), %zu of the "
            "output, %zu with outliers in float",
            c.n_in, c.n_folded, c.n_out, c.n_outliers);
    OQ_TRY(note_changes(q, &c, err));
    OQ_TRY(take_ranges(q, &c, err));
    return oq_quant_infer(q, err);
}

onq_code oq_quant_methods_apply(oq_quant *q, onq_error *err) {
    assert(q->model != NULL && q->modes != 0);
    work w = {.q = q, .general = general_of(q->job->opts)};
    if (!wants_any(q, &w.general))
        return ONQ_OK;
    OQ_TRY(choose_all(&w, err));
    if (w.choices.n == 0)
        return ONQ_OK;
    OQ_TRY(oq_quant_keep_float(q, err));
    return change_model(&w, err);
}
