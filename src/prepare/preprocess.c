/*
 * preprocess.c — shapes, the runtime's optimisation, and the mark of a prepared model.
 */
#include "prepare/preprocess.h"

#include "onnx/graph.h"
#include "onnx/tensor.h"

/* A message of protobuf ends at 2 GB; the graph around the weights needs some of it. */
#define MAX_INLINE ((uint64_t)1900 * 1000 * 1000)

/* ---- shapes ---- */

static void tell_incomplete(const oq_model *m, const oq_shape_report *r) {
    if (r->first == NULL)
        return;
    oq_warn(m->env,
            "%s: symbolic shape inference is incomplete: %zu of %zu tensors have no shape, the "
            "first is '%.*s' of node '%.*s' (%.*s)",
            m->path, r->n_none, r->n_values, OQ_STR(r->first_output),
            OQ_STR(oq_node_label(r->first)), OQ_STR(r->first->op_type));
}

onq_code oq_prep_shapes(oq_model *m, const oq_shape_options *opts, oq_shape_report *report,
                        onq_error *err) {
    oq_shapes *shapes = NULL;
    oq_shape_report r;
    const onq_code inferred = oq_shapes_infer(m, opts, &shapes, err);
    if (inferred != ONQ_OK)
        return oq_error_in(err, inferred, "%s: shape inference", m->path);
    oq_shapes_report(shapes, &r);
    if (opts != NULL && opts->symbolic)
        tell_incomplete(m, &r);
    oq_model_touch(m);
    const onq_code rc = oq_shapes_write(shapes, m, err);
    oq_shapes_free(shapes);
    /* The nodes it names live in the model. */
    if (report != NULL)
        *report = r;
    return rc;
}

/* ---- the runtime's optimisation ---- */

static onq_code add_bytes(void *ctx, oq_tensor *t, bool in_attribute, onq_error *err) {
    uint64_t *sum = ctx, bytes = 0;
    (void)in_attribute;
    if (t->data_type.v == OQ_STRING)
        return ONQ_OK;
    OQ_TRY(oq_tensor_bytes(t, &bytes, err));
    if (!oq_add(*sum, bytes, sum))
        *sum = UINT64_MAX;
    return ONQ_OK;
}

/* Lets the runtime write the optimised model to so->save_optimized, a file in the folder of `near`.
 * When it cannot, its own words blame the model that it reads. */
static onq_code save_through(oq_engine *e, const oq_session_options *so, const char *near,
                             onq_error *err) {
    oq_session *s = NULL;
    const onq_code rc = oq_session_open(e, so, &s, err);
    oq_session_close(s);
    return rc != ONQ_E_WRITE
               ? rc
               : oq_fail(err, rc, "%s: the optimised model cannot be written (is the disk full?)",
                         near);
}

/* Opens what was written; it goes by the name of the model that it was made from. */
static onq_code open_result(const char *path, const oq_model *from, oq_model **out,
                            onq_error *err) {
    oq_model *m = NULL;
    OQ_TRY(oq_model_open(from->env, path, NULL, &m, err));
    m->path = oq_arena_strdup(&m->arena, from->path, strlen(from->path));
    if (m->path == NULL) {
        oq_model_free(m);
        return oq_fail_nomem(err);
    }
    oq_model_touch(m); /* its file cannot be copied later */
    *out = m;
    return ONQ_OK;
}

/* Through a file without a name in the folder of `near`. */
static onq_code optimize_inline(oq_engine *e, oq_session_options *so, const char *near,
                                oq_model **out, onq_error *err) {
    oq_out file = {0};
    const onq_allocator *alloc = &e->env->alloc;
    OQ_TRY(oq_out_open(&file, alloc, near, err));
    oq_out_lend(&file);
    so->save_optimized = file.temp;
    onq_code rc = save_through(e, so, near, err);
    if (rc == ONQ_OK)
        rc = open_result(file.temp, so->model, out, err);
    oq_out_abort(&file);
    return rc;
}

static onq_code open_external(void *ctx, oq_tensor *t, bool in_attribute, onq_error *err) {
    const oq_file *f = NULL;
    uint64_t offset = 0, length = 0;
    (void)in_attribute;
    return oq_tensor_is_external(t) ? oq_model_external(ctx, t, &f, &offset, &length, err) : ONQ_OK;
}

/* Through a folder with two files; all are removed as soon as they are open here. */
static onq_code optimize_external(oq_engine *e, oq_session_options *so, const char *near,
                                  oq_model **out, onq_error *err) {
    OQ_SCRATCH(a, &e->env->alloc);
    const int dir_n = (int)(oq_path_last(near) - near);
    const oq_str folder = oq_str_format(&a, "%.*s.onq-XXXXXX", dir_n, near);
    onq_code rc = folder.p == NULL ? oq_fail_nomem(err) : ONQ_OK;
    char *made = (char *)(uintptr_t)folder.p;
    if (rc == ONQ_OK && !oq_os_make_temp_folder(made))
        rc = oq_fail_errno(err, ONQ_E_WRITE, errno, "%s: a temporary folder cannot be made",
                           folder.p);
    if (rc == ONQ_OK) {
        const oq_str model = oq_str_format(&a, "%s/model.onnx", made);
        const oq_str data = oq_str_format(&a, "%s/model.data", made);
        oq_model *m = NULL;
        so->save_optimized = model.p;
        so->save_external = "model.data";
        rc =
            model.p == NULL || data.p == NULL ? oq_fail_nomem(err) : save_through(e, so, near, err);
        if (rc == ONQ_OK)
            rc = open_result(model.p, so->model, &m, err);
        if (rc == ONQ_OK)
            rc = oq_walk_tensors(m, open_external, m, err);
        if (model.p != NULL)
            (void)oq_os_remove(model.p);
        if (data.p != NULL)
            (void)oq_os_remove(data.p);
        (void)oq_os_remove_folder(made);
        if (rc == ONQ_OK)
            *out = m;
        else
            oq_model_free(m);
    }
    return rc;
}

/* Takes away inputs that the runtime invented. Before IR 4 every initializer is an input too. The
 * runtime makes initializers of Constant nodes, merges equal ones and leaves the inputs of those
 * that are gone: users of the model would have to give their values. */
static onq_code drop_new_inputs(const oq_model *before, oq_model *after, onq_error *err) {
    const oq_graph *old = before->proto->graph;
    oq_graph *g = after->proto->graph;
    oq_map known;
    bool ok = true;
    OQ_SCRATCH(scratch, &after->env->alloc);
    oq_map_init(&known, &scratch);
    for (size_t i = 0; i < old->input.n && ok; i++)
        ok = oq_map_put(&known, old->input.v[i]->name, 0);
    for (size_t i = 0; i < old->initializer.n && ok; i++)
        (void)oq_map_remove(&known, old->initializer.v[i]->name);
    for (size_t i = 0; i < g->initializer.n && ok; i++)
        ok = oq_map_put(&known, g->initializer.v[i]->name, 0);
    size_t kept = 0;
    for (size_t i = 0; i < g->input.n && ok; i++)
        if (oq_map_has(&known, g->input.v[i]->name))
            g->input.v[kept++] = g->input.v[i];
    g->input.n = ok ? kept : g->input.n;
    return ok ? ONQ_OK : oq_fail_nomem(err);
}

/* The runtime writes every domain that the process registered, the engine's own among them. */
static void drop_own_domain(oq_model *m) {
    oq_model_proto *p = m->proto;
    size_t kept = 0;
    for (size_t i = 0; i < p->opset_import.n; i++)
        if (!oq_str_is(p->opset_import.v[i]->domain, OQ_ENGINE_DOMAIN))
            p->opset_import.v[kept++] = p->opset_import.v[i];
    p->opset_import.n = kept;
}

onq_code oq_prep_optimize_ort(oq_engine *e, const oq_session_options *base, const char *near,
                              uint64_t most_inline, oq_model **m, onq_error *err) {
    oq_session_options so = *base;
    oq_model *result = NULL;
    uint64_t bytes = 0;
    OQ_TRY(oq_walk_tensors(*m, add_bytes, &bytes, err));
    so.model = *m;
    so.level = OQ_OPT_BASIC;
    const bool large = bytes > (most_inline != 0 ? most_inline : MAX_INLINE);
    onq_code rc = large ? optimize_external(e, &so, near, &result, err)
                        : optimize_inline(e, &so, near, &result, err);
    if (rc == ONQ_OK)
        rc = drop_new_inputs(*m, result, err);
    if (rc != ONQ_OK) {
        oq_model_free(result);
        return rc;
    }
    drop_own_domain(result);
    oq_model_free(*m);
    *m = result;
    return ONQ_OK;
}

/* ---- the mark ---- */

onq_code oq_prep_mark_first(oq_model *m, oq_str key, oq_str value, onq_error *err) {
    oq_model_proto *p = m->proto;
    oq_model_touch(m);
    if (oq_model_metadata(m, key).p == NULL)
        OQ_TRY(oq_model_set_metadata(m, key, value, err));
    for (size_t i = 1; i < p->metadata_props.n; i++) {
        if (!oq_str_eq(p->metadata_props.v[i]->key, key))
            continue;
        oq_entry *e = p->metadata_props.v[i];
        memmove(&p->metadata_props.v[1], &p->metadata_props.v[0], i * sizeof e);
        p->metadata_props.v[0] = e;
        break;
    }
    return ONQ_OK;
}

onq_code oq_prep_mark(oq_model *m, onq_error *err) {
    return oq_prep_mark_first(m, OQ_S("onnx.quant.pre_process"), OQ_S("onnxruntime.quant"), err);
}
