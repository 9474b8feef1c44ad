/*
 * inspect_page.c — `onq inspect -o model.html`: the graph of a model as a page (inspect_page.html),
 * with the renderer that the report of `onq debug` has.
 */
#include "api/inspect/inspect.h"

#include "debug/page/report.h"

static void opsets_json(oq_jw *w, const oq_model_proto *p, const oq_summary *s) {
    oq_jw_begin_array(w, "opsets");
    for (size_t i = 0; i < p->opset_import.n; i++) {
        if (!oq_summary_uses(s, p->opset_import.v[i]->domain))
            continue;
        oq_jw_begin_array(w, NULL);
        oq_jw_str(w, NULL, p->opset_import.v[i]->domain);
        oq_jw_int(w, NULL, p->opset_import.v[i]->version.v);
        oq_jw_end_array(w);
    }
    oq_jw_end_array(w);
}

static void types_json(oq_jw *w, const oq_summary *s) {
    oq_jw_begin_array(w, "types");
    for (int i = 0; i < OQ_DTYPE_COUNT; i++) {
        if (s->by_type[i].tensors == 0)
            continue;
        oq_jw_begin_array(w, NULL);
        oq_jw_cstr(w, NULL, oq_dtype_name(i));
        oq_jw_uint(w, NULL, s->by_type[i].tensors);
        oq_jw_uint(w, NULL, s->by_type[i].bytes);
        oq_jw_end_array(w);
    }
    oq_jw_end_array(w);
}

static void page_json(oq_jw *w, const oq_model *m, const oq_summary *s, const oq_profile *p) {
    oq_jw_begin_object(w, NULL);
    oq_jw_cstr(w, "page", "onq inspect");
    oq_jw_cstr(w, "onq", onq_version());
    oq_jw_cstr(w, "model", m->path);
    oq_jw_uint(w, "size", m->bytes.n + s->external_bytes);
    oq_jw_str(w, "producer", m->proto->producer_name);
    oq_jw_str(w, "producer_version", m->proto->producer_version);
    oq_jw_int(w, "ir_version", m->proto->ir_version.v);
    opsets_json(w, m->proto, s);
    oq_jw_uint(w, "graphs", s->graphs);
    oq_jw_uint(w, "functions", m->proto->functions.n);
    oq_jw_uint(w, "parameters", s->total.elements);
    oq_jw_uint(w, "bytes", s->total.bytes);
    types_json(w, s);
    oq_jw_begin_array(w, "dims");
    for (size_t i = 0; i < p->dims.n; i++) {
        oq_jw_begin_array(w, NULL);
        oq_jw_str(w, NULL, p->dims.v[i].name);
        oq_jw_int(w, NULL, p->dims.v[i].value);
        oq_jw_end_array(w);
    }
    oq_jw_end_array(w);
    oq_jw_real(w, "peak", p->peak);
    oq_jw_str(w, "peak_at", p->peak_at);
    oq_page_graph(p, w);
    oq_jw_end_object(w);
}

onq_code oq_inspect_save_page(oq_job *job, const oq_model *m, const oq_summary *s,
                              const oq_profile *p, onq_error *err) {
    const onq_allocator *alloc = &job->env->alloc;
    oq_jw w;
    if (!oq_opt_is_set(job->opts, "output"))
        return ONQ_OK;
    OQ_SCRATCH_BUF(json, alloc);
    OQ_SCRATCH_BUF(page, alloc);
    oq_jw_init(&w, &json, false);
    page_json(&w, m, s, p);
    OQ_TRY(oq_report_fill(oq_inspect_page, oq_inspect_page_size, &json, &page, err));
    return oq_job_save_text(job, "output", &page, err);
}
