/*
 * lifted.c — see lifted.h.
 */
#include "api/causes/lifted.h"

#include "base/system/temp.h"
#include "onnx/operators.h"
#include "onnx/tidy.h"
#include "quantize/convert/convert.h"

static onq_code look_for_integers(void *ctx, oq_graph *g, onq_error *err) {
    (void)err;
    for (size_t i = 0; i < g->node.n; i++)
        *(bool *)ctx |= oq_op_traits_of(g->node.v[i]->op_type)->form == OQ_FORM_QLINEAR;
    return ONQ_OK;
}

bool oq_lifted_needs(const oq_debug *given) {
    bool any = false;
    return oq_walk_graphs(given->quantized->proto->graph, look_for_integers, &any, NULL) ==
               ONQ_OK &&
           any;
}

static onq_code save_lifted(oq_model *m, const char *path, onq_error *err) {
    const oq_save_options as_it_is = {0};
    oq_convert_job job = {.model = m, .to = OQ_TO_QDQ, .lossy = true};
    OQ_TRY(oq_model_sort_all(m, NULL, err));
    OQ_TRY(oq_convert_run(&job, err));
    return oq_model_save(m, path, &as_it_is, err);
}

/* An integer operator takes in the Relu or Clip after it. Between pairs that cannot be seen any
 * more, so what `given` found is taken over. */
static onq_code take_matches(oq_debug *d, const oq_debug *given, onq_error *err) {
    oq_map names;
    oq_map_init(&names, &d->arena);
    for (uint32_t i = 0; i < given->acts.n; i++)
        OQ_TRY_ALLOC(oq_map_put(&names, given->acts.v[i].name, i), err);
    for (size_t i = 0; i < d->acts.n; i++) {
        const uint32_t at = oq_map_find(&names, d->acts.v[i].name);
        if (at != OQ_MAP_NONE && given->acts.v[at].flt.p != NULL)
            d->acts.v[i].flt = given->acts.v[at].flt;
    }
    return ONQ_OK;
}

onq_code oq_lifted_open(oq_lifted *x, oq_job *job, const oq_debug *given, onq_error *err) {
    oq_model *m = NULL;
    OQ_TRY(oq_temp_make(&job->arena, &x->folder, err));
    const char *path = oq_str_format(&job->arena, "%s/pairs.onnx", x->folder).p;
    OQ_TRY_ALLOC(path != NULL, err);
    OQ_TRY(oq_job_open(job, given->quantized->path, &m, err));
    const onq_code rc = save_lifted(m, path, err);
    oq_model_free(m);
    if (rc != ONQ_OK)
        return oq_error_in(err, rc, "%s", given->quantized->path);
    OQ_TRY(oq_job_open(job, path, &x->model, err));
    oq_debug_init(&x->d, job->env, given->flt, x->model);
    OQ_TRY(oq_debug_match(&x->d, err));
    OQ_TRY(oq_debug_weights(&x->d, err));
    return take_matches(&x->d, given, err);
}

void oq_lifted_release(oq_lifted *x) {
    if (x->d.env != NULL)
        oq_debug_release(&x->d);
    oq_model_free(x->model);
    if (x->folder != NULL)
        oq_temp_remove(x->folder);
}
