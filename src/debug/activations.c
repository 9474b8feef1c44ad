/*
 * activations.c — both models run over the same samples; their tensors are compared as they pass.
 *
 * For each sample the float model runs first and the tensors that matter are kept; then the
 * quantized model, and each tensor is compared the moment it is there. Optimisation is off in both,
 * as in the reference's collect_activations. Nothing but sums is kept from one sample to the next.
 */
#include "debug/passes.h"
#include "debug/weights.h"

#include "base/real.h"
#include "onnx/tensor.h"

#include <math.h>

#define MAX_KERNEL 16    /* samples that show what the runtime's kernels lose */
#define MAX_HIST   16384 /* values of one tensor and sample that go into a histogram */

typedef enum role { ROLE_TRUTH, ROLE_PRE, ROLE_POST } role;

typedef struct use {
    uint32_t act;
    role role;
    struct use *next;
} use;

/* What is observed in one model. */
typedef struct watch {
    oq_debug *d;
    oq_pool *pool;
    oq_map map;
    OQ_VEC(oq_str) names;
    OQ_VEC(use *) uses;
    float *scratch; /* values of a tensor that is not float32 */
    uint64_t scratch_cap;
    float *spare; /* a buffer that one tensor gave back and the next takes */
    uint64_t spare_cap;
    float *sieve[2]; /* values of two tensors without those of a mask */
    uint64_t sieve_cap[2];
} watch;

static onq_code watch_name(watch *w, oq_str name, uint32_t act, role r, onq_error *err) {
    oq_arena *a = &w->d->arena;
    uint32_t at = oq_map_find(&w->map, name);
    if (at == OQ_MAP_NONE) {
        at = (uint32_t)w->names.n;
        if (!oq_map_put(&w->map, name, at) || !OQ_PUSH(a, &w->names, name) ||
            !OQ_PUSH(a, &w->uses, NULL))
            return oq_fail_nomem(err);
    }
    use *u = OQ_NEW(a, use);
    if (u == NULL)
        return oq_fail_nomem(err);
    *u = (use){act, r, w->uses.v[at]};
    w->uses.v[at] = u;
    return ONQ_OK;
}

/* ---- values ---- */

static onq_code reserve(const oq_debug *d, float **p, uint64_t *cap, uint64_t n, onq_error *err) {
    if (n <= *cap)
        return ONQ_OK;
    float *more = oq_resize(&d->env->alloc, *p, *cap * sizeof **p, n * sizeof **p);
    if (more == NULL)
        return oq_fail_nomem(err);
    *p = more;
    *cap = n;
    return ONQ_OK;
}

/* The datum as float32: itself, or converted. */
static onq_code floats_of(watch *w, const oq_datum *t, const float **out, onq_error *err) {
    if (t->dtype == OQ_FLOAT) {
        *out = t->data;
        return ONQ_OK;
    }
    OQ_TRY(reserve(w->d, &w->scratch, &w->scratch_cap, t->count + 1, err));
    if (t->dtype == OQ_FLOAT16)
        oq_f16_to_f32_n(t->data, w->scratch, t->count);
    else
        for (uint64_t i = 0; i < t->count; i++)
            w->scratch[i] = (float)oq_raw_get_real(t->dtype, t->data, i);
    *out = w->scratch;
    return ONQ_OK;
}

/* An integer tensor with the parameters of its activation. */
static onq_code dequantize(watch *w, const oq_debug_act *a, const oq_datum *t, const float **out,
                           onq_error *err) {
    OQ_TRY(reserve(w->d, &w->scratch, &w->scratch_cap, t->count + 1, err));
    const float scale = a->scale[0];
    const int32_t zero = a->zero[0];
    if (t->dtype == OQ_UINT8 || t->dtype == OQ_INT8) {
        const uint8_t *q = t->data;
        const int32_t flip = t->dtype == OQ_INT8 ? 128 : 0; /* two's complement without a branch */
        for (uint64_t i = 0; i < t->count; i++)
            w->scratch[i] = (float)(((q[i] ^ flip) - flip) - zero) * scale;
    } else {
        for (uint64_t i = 0; i < t->count; i++)
            w->scratch[i] = (float)(oq_raw_get_int(t->dtype, t->data, i) - zero) * scale;
    }
    *out = w->scratch;
    return ONQ_OK;
}

/* ---- what a quantizer does to float values ---- */

static bool has_steps(const oq_debug_act *a, oq_steps *s) {
    double lo = 0, hi = 0;
    if (a->n_params != 1 || !oq_debug_limits(a->type, &lo, &hi) || hi - lo > 65535 ||
        oq_dtype_find(a->type)->cls == OQ_CLASS_REAL)
        return false;
    const float scale = a->scale[0];
    *s = (oq_steps){scale, (float)(lo - a->zero[0]), (float)(hi - a->zero[0]),
                    (float)(lo - a->zero[0] - 1) * scale, (float)(hi - a->zero[0] + 1) * scale};
    return true;
}

/* ---- masks ---- */

/* Not NaN, which no mask has. */
static bool is_mask(const oq_debug_act *a, float x) {
    return x <= a->mask_below || x >= (float)OQ_DEBUG_HUGE;
}

/* Two tensors without the places where one of them has a value of a mask: such a value says nothing
 * of the others and outweighs them all. *m are left. */
static onq_code sift(watch *w, const oq_debug_act *a, const float **x, const float **y, uint64_t n,
                     uint64_t *m, onq_error *err) {
    for (size_t k = 0; k < 2; k++)
        OQ_TRY(reserve(w->d, &w->sieve[k], &w->sieve_cap[k], n + 1, err));
    *m = 0;
    for (uint64_t i = 0; i < n; i++) {
        const float p = (*x)[i], q = (*y)[i];
        w->sieve[0][*m] = p;
        w->sieve[1][*m] = q;
        *m += !is_mask(a, p) && !is_mask(a, q);
    }
    *x = w->sieve[0];
    *y = w->sieve[1];
    return ONQ_OK;
}

/* The float model's values (without it, those before quantization): range, clipping, what the
 * quantizer does to them; a copy of them where `copy` is not NULL. */
static onq_code add_truth(watch *w, oq_debug_act *a, const float *x, float *copy, uint64_t n,
                          onq_error *err) {
    oq_steps s;
    const bool known = has_steps(a, &s);
    oq_pass_truth out = {.lo = a->lo, .hi = a->hi};
    OQ_TRY(oq_pass_truth_run(w->pool, x, copy, n, known ? &s : NULL, &out, err));
    if (is_mask(a, out.lo) || is_mask(a, out.hi)) {
        const float *same = x;
        uint64_t m = 0;
        OQ_TRY(sift(w, a, &x, &same, n, &m, err));
        a->masked += n - m;
        n = m;
        out = (oq_pass_truth){.lo = a->lo, .hi = a->hi};
        OQ_TRY(oq_pass_truth_run(w->pool, x, NULL, n, known ? &s : NULL, &out, err));
    }
    a->lo = out.lo;
    a->hi = out.hi;
    a->seen += n;
    a->clipped += out.clipped;
    if (known)
        oq_sums_join(&a->local, &out.local);
    return ONQ_OK;
}

/* ---- histograms ---- */

/* The range of a histogram: what can be represented and what the first sample has. */
static onq_code hist_begin(oq_debug *d, oq_debug_act *a, const float *x, uint64_t n,
                           onq_error *err) {
    if (!d->histograms || a->hist.truth != NULL)
        return ONQ_OK;
    float lo = INFINITY, hi = -INFINITY;
    oq_span_add(&lo, &hi, x, n);
    if (a->masked > 0) { /* what is not the mask's */
        lo = a->lo;
        hi = a->hi;
    } else if (a->n_params == 1) {
        lo = fminf(lo, (float)a->q_lo);
        hi = fmaxf(hi, (float)a->q_hi);
    }
    const float room = (hi - lo) / 8; /* for what later samples bring */
    return oq_debug_hist_make(&d->arena, &a->hist, lo - room, hi + room, err);
}

/* What the quantizer makes of every so many values. */
static void hist_quantized(oq_debug_act *a, const float *x, uint64_t n, const oq_steps *s) {
    if (a->hist.made == NULL)
        return;
    const uint64_t step = n / MAX_HIST + 1;
    for (uint64_t i = 0; i < n; i += step) {
        const float y = oq_steps_apply(s, x[i]);
        oq_debug_hist_add(&a->hist, a->hist.made, &y, 1, 1);
    }
}

/* ---- observers ---- */

static onq_code seen_truth(watch *w, oq_debug_act *a, const float *x, uint64_t n, onq_error *err) {
    a->repeated |= a->has_held;
    OQ_TRY(reserve(w->d, &a->held, &a->held_cap, n + 1, err));
    OQ_TRY(add_truth(w, a, x, a->held, n, err));
    a->held_n = n;
    a->has_held = true;
    OQ_TRY(hist_begin(w->d, a, x, n, err));
    oq_debug_hist_add(&a->hist, a->hist.truth, x, n, n / MAX_HIST + 1);
    return ONQ_OK;
}

/* A pair of one scale is computed here as the runtime computes it: what comes out need not be
 * observed, and all sums are taken in one pass. */
static onq_code seen_pair(watch *w, oq_debug_act *a, const float *p, uint64_t n, const oq_steps *s,
                          onq_error *err) {
    oq_pass_pair out = {0};
    bool held = a->truth.p != NULL && a->has_held && !a->repeated;
    if (held && a->held_n != n) {
        a->trouble = "its size is not that of the float model's tensor";
        held = false;
    }
    const float *x = held ? a->held : p;
    OQ_TRY(oq_pass_pair_run(w->pool, x, p, n, s, &out, err));
    if (held)
        oq_sums_join(&a->cross, &out.cross);
    oq_sums_join(&a->qdq, held ? &out.qdq : &out.cross); /* alone: the same, with all sums */
    a->has_held = false;
    hist_quantized(a, p, n, s);
    if (a->masked == 0)
        return ONQ_OK;
    oq_pass_pair rest = {0};
    OQ_TRY(sift(w, a, &x, &p, n, &n, err));
    OQ_TRY(oq_pass_pair_run(w->pool, x, p, n, s, &rest, err));
    if (held)
        oq_sums_join(&a->rest_cross, &rest.cross);
    oq_sums_join(&a->rest_qdq, held ? &rest.qdq : &rest.cross);
    return ONQ_OK;
}

static onq_code keep_pre(watch *w, oq_debug_act *a, const float *x, uint64_t n, onq_error *err) {
    if (a->held_pre == NULL) {
        a->held_pre = w->spare;
        a->pre_cap = w->spare_cap;
        w->spare = NULL;
        w->spare_cap = 0;
    }
    OQ_TRY(reserve(w->d, &a->held_pre, &a->pre_cap, n + 1, err));
    memcpy(a->held_pre, x, n * sizeof *x);
    a->pre_n = n;
    a->has_pre = true;
    return ONQ_OK;
}

static onq_code seen_pre(watch *w, oq_debug_act *a, const float *x, uint64_t n, onq_error *err) {
    oq_steps s;
    if (a->truth.p == NULL) {
        OQ_TRY(add_truth(w, a, x, NULL, n, err));
        OQ_TRY(hist_begin(w->d, a, x, n, err));
        oq_debug_hist_add(&a->hist, a->hist.truth, x, n, n / MAX_HIST + 1);
    }
    if (a->plain_pair && has_steps(a, &s))
        return seen_pair(w, a, x, n, &s, err);
    return keep_pre(w, a, x, n, err);
}

/* x against y, and where there is a mask the same without it. */
static onq_code add_sums(watch *w, const oq_debug_act *a, const float *x, const float *y,
                         uint64_t n, oq_sums *out, oq_sums *rest, onq_error *err) {
    OQ_TRY(oq_pass_sums_run(w->pool, x, y, n, out, err));
    if (a->masked == 0)
        return ONQ_OK;
    OQ_TRY(sift(w, a, &x, &y, n, &n, err));
    return oq_pass_sums_run(w->pool, x, y, n, rest, err);
}

static onq_code seen_post(watch *w, oq_debug_act *a, const float *y, uint64_t n, onq_error *err) {
    oq_debug *d = w->d;
    if (a->has_pre) {
        if (a->pre_n == n)
            OQ_TRY(add_sums(w, a, a->held_pre, y, n, &a->qdq, &a->rest_qdq, err));
        else
            a->trouble = "before and after quantization have different sizes";
        /* It is not needed again before the next sample. */
        if (w->spare_cap < a->pre_cap) {
            oq_free(&d->env->alloc, w->spare, w->spare_cap * sizeof *w->spare);
            w->spare = a->held_pre;
            w->spare_cap = a->pre_cap;
        } else {
            oq_free(&d->env->alloc, a->held_pre, a->pre_cap * sizeof *a->held_pre);
        }
        a->held_pre = NULL;
        a->pre_cap = 0;
        a->has_pre = false;
    }
    if (a->truth.p != NULL && a->has_held && !a->repeated) {
        if (a->held_n == n)
            OQ_TRY(add_sums(w, a, a->held, y, n, &a->cross, &a->rest_cross, err));
        else
            a->trouble = "its size is not that of the float model's tensor";
        a->has_held = false;
    }
    oq_debug_hist_add(&a->hist, a->hist.made, y, n, n / MAX_HIST + 1);
    return ONQ_OK;
}

static onq_code seen(void *ctx, size_t index, const oq_datum *t, onq_error *err) {
    watch *w = ctx;
    for (const use *u = w->uses.v[index]; u != NULL; u = u->next) {
        oq_debug_act *a = &w->d->acts.v[u->act];
        const float *v = NULL;
        if (u->role == ROLE_POST && a->integer) {
            OQ_TRY(dequantize(w, a, t, &v, err));
        } else if (!oq_dtype_is_float(t->dtype)) {
            a->trouble = "it is not a float tensor";
            continue;
        } else {
            OQ_TRY(floats_of(w, t, &v, err));
        }
        if (u->role == ROLE_TRUTH)
            OQ_TRY(seen_truth(w, a, v, t->count, err));
        else if (u->role == ROLE_PRE)
            OQ_TRY(seen_pre(w, a, v, t->count, err));
        else
            OQ_TRY(seen_post(w, a, v, t->count, err));
    }
    return ONQ_OK;
}

/* ---- outputs ---- */

/* Rows along the last axis, and those with the same largest value. */
static void add_rows(const float *x, const float *y, uint64_t n, uint64_t row, uint64_t *rows,
                     uint64_t *same) {
    for (uint64_t i = 0; row >= 2 && i + row <= n; i += row) {
        uint64_t a = 0, b = 0;
        for (uint64_t k = 1; k < row; k++) {
            a = x[i + k] > x[i + a] ? k : a;
            b = y[i + k] > y[i + b] ? k : b;
        }
        ++*rows;
        *same += a == b;
    }
}

/* The outputs of one run against what the float model gave, which is `kept` in an arena. */
static onq_code compare_outputs(watch *w, const oq_session *s, const oq_outputs *out,
                                const oq_outputs *kept, const oq_session *truth, bool optimised,
                                onq_error *err) {
    oq_debug *d = w->d;
    for (size_t i = 0; i < d->outputs.n; i++) {
        oq_debug_output *o = &d->outputs.v[i];
        const oq_datum *x = &kept->v[i], *y = NULL;
        for (size_t k = 0; k < s->outputs.n; k++)
            if (oq_str_eq(s->outputs.v[k].name, truth->outputs.v[i].name))
                y = &out->v[k];
        if (y == NULL && i < out->n)
            y = &out->v[i];
        if (y == NULL || x->kind != OQ_DATUM_TENSOR || y->kind != OQ_DATUM_TENSOR ||
            x->count != y->count || x->dtype != OQ_FLOAT || !oq_dtype_is_float(y->dtype))
            continue;
        const float *v = NULL;
        OQ_TRY(floats_of(w, y, &v, err));
        const uint64_t row = x->rank > 0 ? (uint64_t)x->dims[x->rank - 1] : 0;
        oq_sums_add(optimised ? &o->optimised : &o->plain, x->data, v, x->count);
        if (!optimised && d->has_kernel && d->n_kernel < MAX_KERNEL)
            oq_sums_add(&o->beside, x->data, v, x->count);
        add_rows(x->data, v, x->count, row, optimised ? &o->rows_optimised : &o->rows,
                 optimised ? &o->same_optimised : &o->same_plain);
    }
    return ONQ_OK;
}

/* ---- the runs ---- */

typedef struct running {
    oq_debug *d;
    const oq_debug_run *run;
    watch truth, made;
    oq_observer see_truth, see_made;
    oq_session *s_truth, *s_made, *s_fast;
    oq_pool *pool;
} running;

static onq_code make_watches(running *r, onq_error *err) {
    oq_debug *d = r->d;
    for (uint32_t i = 0; i < d->acts.n; i++) {
        oq_debug_act *a = &d->acts.v[i];
        if (a->truth.p != NULL)
            OQ_TRY(watch_name(&r->truth, a->truth, i, ROLE_TRUTH, err));
        if (a->pre.p != NULL)
            OQ_TRY(watch_name(&r->made, a->pre, i, ROLE_PRE, err));
        oq_steps s;
        if (!a->plain_pair || !has_steps(a, &s))
            OQ_TRY(watch_name(&r->made, a->post, i, ROLE_POST, err));
    }
    r->see_truth = (oq_observer){r->truth.names.v, r->truth.names.n, seen, &r->truth};
    r->see_made = (oq_observer){r->made.names.v, r->made.names.n, seen, &r->made};
    return ONQ_OK;
}

static onq_code open_session(running *r, oq_model *m, const oq_observer *see, oq_opt_level level,
                             oq_session **out, onq_error *err) {
    oq_session_options o = r->run->session;
    o.model = m;
    o.observer = see != NULL && see->n_names > 0 ? see : NULL;
    o.level = level;
    o.no_spinning = true; /* the cores are wanted between two nodes, and by the other sessions */
    const onq_code rc = oq_session_open(r->run->engine, &o, out, err);
    return rc == ONQ_OK ? rc : oq_error_in(err, rc, "%s", m->path);
}

/* The runtime cannot run what its own optimisation makes (float8, blocks): nothing to compare. */
static onq_code no_kernels(running *r, onq_error *err) {
    oq_debug *d = r->d;
    oq_warn(d->env, "the kernels are not compared: with the runtime's optimisations, %s",
            err != NULL ? err->text : d->made->path);
    oq_error_clear(err);
    oq_session_close(r->s_fast);
    r->s_fast = NULL;
    d->has_kernel = false;
    d->n_kernel = 0;
    for (size_t i = 0; i < d->outputs.n; i++) {
        oq_debug_output *o = &d->outputs.v[i];
        o->optimised = o->beside = (oq_sums){0};
        o->rows_optimised = o->same_optimised = 0;
    }
    return ONQ_OK;
}

static onq_code open_sessions(running *r, onq_error *err) {
    oq_debug *d = r->d;
    OQ_TRY(open_session(r, d->truth, &r->see_truth, OQ_OPT_NONE, &r->s_truth, err));
    OQ_TRY(open_session(r, d->made, &r->see_made, OQ_OPT_NONE, &r->s_made, err));
    if (r->run->kernel) {
        const onq_code rc = open_session(r, d->made, NULL, OQ_OPT_ALL, &r->s_fast, err);
        d->has_kernel = rc == ONQ_OK;
        OQ_TRY(rc == ONQ_E_RUNTIME ? no_kernels(r, err) : rc);
    }
    for (size_t i = 0; i < r->s_truth->outputs.n; i++) {
        const oq_str name = oq_str_copy(&d->arena, r->s_truth->outputs.v[i].name);
        if (name.p == NULL || !OQ_PUSH(&d->arena, &d->outputs, (oq_debug_output){.name = name}))
            return oq_fail_nomem(err);
    }
    return ONQ_OK;
}

static onq_code run_sample(running *r, const oq_sample *a, const oq_sample *b, onq_error *err) {
    oq_debug *d = r->d;
    oq_outputs truth = {0}, out = {0};
    for (size_t i = 0; i < d->acts.n; i++)
        d->acts.v[i].has_held = d->acts.v[i].has_pre = false;
    onq_code rc = oq_session_run(r->s_truth, a->inputs, a->n_inputs, &truth, err);
    if (rc != ONQ_OK)
        return oq_error_in(err, rc, "%s: sample '%s'", d->truth->path, a->name);
    rc = oq_session_run(r->s_made, b->inputs, b->n_inputs, &out, err);
    if (rc != ONQ_OK)
        return oq_error_in(err, rc, "%s: sample '%s'", d->made->path, b->name);
    OQ_TRY(compare_outputs(&r->made, r->s_made, &out, &truth, r->s_truth, false, err));
    if (r->s_fast == NULL || d->n_kernel == MAX_KERNEL)
        return ONQ_OK;
    d->n_kernel++;
    rc = oq_session_run(r->s_fast, b->inputs, b->n_inputs, &out, err);
    if (rc == ONQ_E_RUNTIME)
        return no_kernels(r, err);
    if (rc != ONQ_OK)
        return oq_error_in(err, rc, "%s: sample '%s'", d->made->path, b->name);
    return compare_outputs(&r->made, r->s_fast, &out, &truth, r->s_truth, true, err);
}

static onq_code run_all(running *r, onq_error *err) {
    const uint64_t total = oq_source_count(r->run->truth_source);
    for (;;) {
        const oq_sample *a = NULL, *b = NULL;
        OQ_TRY(oq_source_next(r->run->truth_source, &a, err));
        OQ_TRY(oq_source_next(r->run->made_source, &b, err));
        if (a == NULL || b == NULL)
            break;
        OQ_TRY(run_sample(r, a, b, err));
        OQ_TRY(oq_progress(r->d->env, "samples", ++r->d->n_samples, total, err));
    }
    if (r->d->n_samples == 0)
        return oq_fail(err, ONQ_E_INVALID, "there are no samples to run");
    return ONQ_OK;
}

/* The figure of all values, which is the reference's; where they have none, that of the others. */
static double figure(const oq_sums *all, const oq_sums *rest) {
    const double db = all->n > 0 ? oq_sums_sqnr(all) : (double)NAN;
    return isfinite(db) || rest->n == 0 ? db : oq_sums_sqnr(rest);
}

static onq_code finish(oq_debug *d, onq_error *err) {
    size_t kept = 0;
    for (size_t i = 0; i < d->acts.n; i++) {
        oq_debug_act *a = &d->acts.v[i];
        a->qdq_err = figure(&a->qdq, &a->rest_qdq);
        a->xmodel_err = figure(&a->cross, &a->rest_cross);
        a->local_err = a->local.n > 0 ? oq_sums_sqnr(&a->local) : NAN;
        if (a->trouble == NULL && a->qdq.n == 0 && a->cross.n == 0)
            a->trouble = "no sample reached it, or it is always empty";
        if (a->trouble != NULL) {
            OQ_TRY(oq_debug_leave(d, a->name, false, a->trouble, err));
            oq_free(&d->env->alloc, a->held, a->held_cap * sizeof *a->held);
            oq_free(&d->env->alloc, a->held_pre, a->pre_cap * sizeof *a->held_pre);
            continue;
        }
        d->acts.v[kept++] = *a;
    }
    d->acts.n = kept;
    return ONQ_OK;
}

onq_code oq_debug_activations(oq_debug *d, const oq_debug_run *run, onq_error *err) {
    assert(run->engine != NULL && run->truth_source != NULL && run->made_source != NULL);
    running r = {.d = d, .run = run, .truth = {.d = d}, .made = {.d = d}};
    oq_map_init(&r.truth.map, &d->arena);
    oq_map_init(&r.made.map, &d->arena);
    onq_code rc = ONQ_OK;
    OQ_GO(oq_pool_new(d->env, &r.pool, err));
    r.truth.pool = r.made.pool = r.pool;
    OQ_GO(make_watches(&r, err));
    OQ_GO(open_sessions(&r, err));
    OQ_GO(run_all(&r, err));
    OQ_GO(finish(d, err));
done:
    oq_session_close(r.s_truth);
    oq_session_close(r.s_made);
    oq_session_close(r.s_fast);
    oq_pool_free(r.pool);
    for (size_t k = 0; k < 2; k++) {
        oq_free(&d->env->alloc, r.truth.sieve[k], r.truth.sieve_cap[k] * sizeof(float));
        oq_free(&d->env->alloc, r.made.sieve[k], r.made.sieve_cap[k] * sizeof(float));
    }
    oq_free(&d->env->alloc, r.truth.scratch, r.truth.scratch_cap * sizeof(float));
    oq_free(&d->env->alloc, r.made.spare, r.made.spare_cap * sizeof(float));
    oq_free(&d->env->alloc, r.made.scratch, r.made.scratch_cap * sizeof(float));
    return rc;
}
