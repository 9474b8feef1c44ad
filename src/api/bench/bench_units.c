/*
 * bench_units.c — see bench_units.h.
 */
#include "api/bench/bench_units.h"

#include "api/quantizing/selection_options.h"
#include "api/samples.h"
#include "onnx/graph.h"
#include "quantize/cost/unit_time.h"

/* Units of one shape. */
typedef struct shape_row {
    const oq_unit *unit; /* the first of them */
    oq_str key;
    size_t n, place;
    oq_unit_cost cost;
    bool timed;
} shape_row;

typedef struct units_job {
    oq_job *job;
    oq_model *model;
    oq_engine *engine;
    oq_units units;
    OQ_VEC(shape_row) rows;
} units_job;

static double weight_of(const shape_row *r) {
    return r->unit->macs * (double)r->n;
}

static int heaviest_first(const void *a, const void *b) {
    const shape_row *x = a, *y = b;
    if (weight_of(x) != weight_of(y))
        return weight_of(x) < weight_of(y) ? 1 : -1;
    return (x->place > y->place) - (x->place < y->place);
}

/* One row for each shape. */
static onq_code gather(units_job *b, onq_error *err) {
    oq_map keys;
    oq_map_init(&keys, &b->job->arena);
    for (size_t i = 0; i < b->units.all.n; i++) {
        const oq_unit *u = &b->units.all.v[i];
        const shape_row row = {
            .unit = u, .key = oq_unit_key(u, &b->job->arena), .n = 1, .place = i};
        const uint32_t at = row.key.p != NULL ? oq_map_find(&keys, row.key) : OQ_MAP_NONE;
        if (at != OQ_MAP_NONE)
            b->rows.v[at].n++;
        else if (row.key.p == NULL || !oq_map_put(&keys, row.key, (uint32_t)b->rows.n) ||
                 !OQ_PUSH(&b->job->arena, &b->rows, row))
            return oq_fail_nomem(err);
    }
    if (b->rows.n > 1)
        qsort(b->rows.v, b->rows.n, sizeof *b->rows.v, heaviest_first);
    return ONQ_OK;
}

/* By one thread unless said otherwise: with more, small units measure the waking of threads. */
static onq_code measure(units_job *b, onq_error *err) {
    oq_session_options like;
    OQ_TRY(oq_job_engine(b->job, &b->engine, err));
    OQ_TRY(oq_job_session(b->job, &like, err));
    if (!oq_opt_is_set(b->job->opts, "threads"))
        like.n_threads = 1;
    for (size_t i = 0; i < b->rows.n; i++) {
        shape_row *r = &b->rows.v[i];
        OQ_TRY(oq_progress(b->job->env, "units", i, b->rows.n, err));
        OQ_TRY_IN(oq_unit_time(b->engine, r->unit, &like, &r->cost, &r->timed, err), err,
                  "node '%.*s' (%.*s)", OQ_STR(oq_node_label(r->unit->node)),
                  OQ_STR(r->unit->node->op_type));
    }
    return ONQ_OK;
}

/* ---- showing ---- */

static const char *verdict(const shape_row *r) {
    if (!r->timed)
        return "not timed";
    if (oq_cost_pays_alone(&r->cost))
        return "pays";
    return oq_cost_pays_inside(&r->cost) ? "between integers" : "no";
}

static void add_ms(oq_buf *t, double ms) {
    if (isfinite(ms))
        oq_buf_addf(t, " %9.3f", ms);
    else
        oq_buf_adds(t, "         -");
}

static void show(units_job *b) {
    oq_buf *t = &b->job->text;
    oq_jw *w = &b->job->json;
    oq_buf_addf(t, "%5s %-10s %9s %9s %9s %9s  %-17s %s\n", "count", "kind", "Mmac", "float ms",
                "int8 ms", "alone ms", "integers", "unit");
    oq_jw_cstr(w, "runtime", b->engine->name);
    oq_jw_begin_array(w, "units");
    for (size_t i = 0; i < b->rows.n; i++) {
        const shape_row *r = &b->rows.v[i];
        oq_buf_addf(t, "%5zu %-10s %9.2f", r->n, oq_unit_kind_name(r->unit->kind),
                    r->unit->macs / 1e6);
        add_ms(t, r->cost.real);
        add_ms(t, r->cost.inner);
        add_ms(t, r->cost.alone);
        oq_buf_addf(t, "  %-17s ", verdict(r));
        oq_buf_add_safe(t, r->key);
        oq_buf_addc(t, '\n');
        if (!r->timed)
            continue;
        oq_jw_begin_object(w, NULL);
        oq_jw_str(w, "unit", r->key);
        oq_jw_cstr(w, "kind", oq_unit_kind_name(r->unit->kind));
        oq_jw_uint(w, "count", r->n);
        oq_jw_str(w, "first", oq_node_label(r->unit->node));
        oq_jw_real(w, "macs", r->unit->macs);
        oq_jw_real(w, "float_ms", r->cost.real);
        oq_jw_real(w, "integer_ms", r->cost.inner); /* null: there is no kernel */
        oq_jw_real(w, "alone_ms", r->cost.alone);
        oq_jw_cstr(w, "integers", verdict(r));
        oq_jw_end_object(w);
    }
    oq_jw_end_array(w);
}

onq_code oq_bench_units(oq_job *job, const char *path, onq_error *err) {
    units_job b = {.job = job};
    OQ_TRY(oq_job_open(job, path, &b.model, err));
    onq_code rc = oq_job_units(job, b.model, oq_opt_is_set(job->opts, "data"), &b.units, err);
    if (rc == ONQ_OK)
        rc = gather(&b, err);
    if (rc == ONQ_OK)
        rc = measure(&b, err);
    if (rc == ONQ_OK)
        show(&b);
    else
        rc = oq_error_in(err, rc, "%s", path);
    oq_engine_close(b.engine);
    oq_model_free(b.model);
    return rc;
}
