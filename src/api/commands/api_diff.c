/*
 * api_diff.c — `onq diff A B`: the differences of two models, as graphs. The comparing is
 * onnx/compare/compare.c; this file counts, bounds and shows what it finds.
 */
#include "api/options/command.h"
#include "api/options/shared_rows.h"
#include "onnx/compare/compare.h"
#include "quantize/convert/convert.h"

#include <stdio.h>

/* What was found; kept up to the limit for each kind. */
typedef struct tally {
    oq_job *job;
    uint64_t limit; /* 0: none */
    bool ignored[OQ_DIFF_COUNT];
    uint64_t count[OQ_DIFF_COUNT];
    OQ_VEC(oq_difference) kept[OQ_DIFF_COUNT];
} tally;

static onq_code keep(void *ctx, const oq_difference *d, onq_error *err) {
    tally *t = ctx;
    oq_arena *a = &t->job->arena;
    if (t->ignored[d->kind])
        return ONQ_OK;
    t->count[d->kind]++;
    if (t->limit != 0 && t->kept[d->kind].n >= t->limit)
        return ONQ_OK;
    oq_difference copy = *d;
    copy.where = oq_str_copy(a, d->where);
    copy.name = oq_str_copy(a, d->name);
    copy.text = oq_str_copy(a, d->text);
    if (copy.where.p == NULL || copy.name.p == NULL || copy.text.p == NULL ||
        !OQ_PUSH(a, &t->kept[d->kind], copy))
        return oq_fail_nomem(err);
    return ONQ_OK;
}

/* ---- options ---- */

static onq_code read_ignored(tally *t, bool *rename, bool *form, onq_error *err) {
    size_t n;
    const oq_str *items = oq_opt_list(t->job->opts, "ignore", &n);
    for (size_t i = 0; i < n; i++) {
        if (oq_opt_same(items[i], OQ_S("names"))) {
            *rename = true;
            t->ignored[OQ_DIFF_NODE_NAME] = true;
            continue;
        }
        if (oq_opt_same(items[i], OQ_S("form"))) {
            *form = true;
            continue;
        }
        int k = 0;
        while (k < OQ_DIFF_COUNT &&
               !oq_opt_same(items[i], oq_str_of(oq_diff_name((oq_diff_kind)k))))
            k++;
        if (k < OQ_DIFF_COUNT) {
            t->ignored[k] = true;
            continue;
        }
        oq_nearest near;
        char hint[200];
        oq_nearest_init(&near, oq_str_of(items[i].p));
        oq_nearest_offer(&near, oq_str_of("names"));
        oq_nearest_offer(&near, oq_str_of("form"));
        for (k = 0; k < OQ_DIFF_COUNT; k++)
            oq_nearest_offer(&near, oq_str_of(oq_diff_name((oq_diff_kind)k)));
        oq_nearest_text(&near, "", hint, sizeof hint);
        return oq_fail(err, ONQ_E_OPTION, "--ignore: no kind of difference is called '%.*s'%s",
                       OQ_STR(items[i]), hint);
    }
    return ONQ_OK;
}

/* ---- the report ---- */

static void show_one(oq_job *job, const oq_difference *d) {
    oq_buf *b = &job->text;
    oq_buf_addf(b, "%s", oq_diff_name(d->kind));
    if (d->name.n > 0) {
        oq_buf_adds(b, " '");
        oq_buf_add_safe(b, (oq_str){d->name.p, d->name.n > 200 ? 200 : d->name.n});
        oq_buf_adds(b, "'");
    }
    if (d->where.n > 0) {
        oq_buf_adds(b, " (");
        oq_buf_add_safe(b, d->where);
        oq_buf_adds(b, ")");
    }
    oq_buf_adds(b, ": ");
    oq_buf_add_str(b, d->text);
    oq_buf_addc(b, '\n');
}

static void show_json(oq_job *job, const tally *t, const char *key, int from, int to) {
    oq_jw *w = &job->json;
    oq_jw_begin_array(w, key);
    for (int k = from; k < to; k++) {
        for (size_t i = 0; i < t->kept[k].n; i++) {
            const oq_difference *d = &t->kept[k].v[i];
            oq_jw_begin_object(w, NULL);
            oq_jw_cstr(w, "kind", oq_diff_name(d->kind));
            oq_jw_str(w, "where", d->where);
            oq_jw_str(w, "name", d->name);
            oq_jw_str(w, "text", d->text);
            oq_jw_end_object(w);
        }
    }
    oq_jw_end_array(w);
}

/* "12 node, 3 value" */
static void show_counts(oq_buf *b, const tally *t, int from, int to) {
    bool any = false;
    for (int k = from; k < to; k++) {
        if (t->count[k] == 0)
            continue;
        oq_buf_addf(b, "%s%llu %s", any ? ", " : "", (unsigned long long)t->count[k],
                    oq_diff_name((oq_diff_kind)k));
        any = true;
    }
}

static uint64_t total(const tally *t, int from, int to) {
    uint64_t sum = 0;
    for (int k = from; k < to; k++)
        sum += t->count[k];
    return sum;
}

static void report(oq_job *job, const tally *t, bool strict) {
    const int soft_from = OQ_DIFF_FIRST_SOFT;
    const uint64_t hard = total(t, 0, soft_from), soft = total(t, soft_from, OQ_DIFF_COUNT);
    const int shown_to = strict ? OQ_DIFF_COUNT : soft_from;
    oq_buf *b = &job->text;
    for (int k = 0; k < shown_to; k++) {
        for (size_t i = 0; i < t->kept[k].n; i++)
            show_one(job, &t->kept[k].v[i]);
        if (t->count[k] > t->kept[k].n)
            oq_buf_addf(b, "%s: ... %llu more (--limit 0 shows all)\n",
                        oq_diff_name((oq_diff_kind)k),
                        (unsigned long long)(t->count[k] - t->kept[k].n));
    }
    job->status = hard > 0 || (strict && soft > 0) ? 1 : 0;
    if (job->status != 0) {
        oq_buf_addf(b, "%llu differences: ", (unsigned long long)(strict ? hard + soft : hard));
        show_counts(b, t, 0, shown_to);
        oq_buf_addc(b, '\n');
    } else {
        oq_buf_adds(b, "no differences\n");
    }
    if (soft > 0 && !strict) {
        oq_buf_adds(b, "without effect on the result (--strict counts them): ");
        show_counts(b, t, soft_from, OQ_DIFF_COUNT);
        oq_buf_addc(b, '\n');
    }
    oq_jw_bool(&job->json, "same", job->status == 0);
    oq_jw_uint(&job->json, "differences", hard);
    oq_jw_uint(&job->json, "soft_differences", soft);
    oq_jw_begin_object(&job->json, "counts");
    for (int k = 0; k < OQ_DIFF_COUNT; k++)
        if (t->count[k] > 0)
            oq_jw_uint(&job->json, oq_diff_name((oq_diff_kind)k), t->count[k]);
    oq_jw_end_object(&job->json);
    show_json(job, t, "found", 0, soft_from);
    show_json(job, t, "soft", soft_from, OQ_DIFF_COUNT);
}

/* ---- whatever the form ---- */

/* The model as the float one that it stands for, and the parameters of its activations. */
static onq_code lift(oq_job *job, oq_model *m, oq_plan *params, onq_error *err) {
    oq_plan_init(params, &job->arena);
    oq_convert_job convert = {
        .model = m, .to = OQ_TO_FLOAT, .clips = OQ_CLIPS_NONE, .lossy = true, .plan = params};
    const onq_code rc = oq_convert_run(&convert, err);
    return rc == ONQ_OK ? rc : oq_error_in(err, rc, "%s", m->path);
}

static const oq_plan_tensor *find_params(const oq_plan *p, const oq_map *map, oq_str name) {
    const uint32_t i = oq_map_find(map, name);
    return i != OQ_MAP_NONE ? &p->tensors.v[i] : NULL;
}

static onq_code map_params(const oq_plan *p, oq_map *map, onq_error *err) {
    for (size_t i = 0; i < p->tensors.n; i++)
        if (p->tensors.v[i].role == OQ_ROLE_ACTIVATION && p->tensors.v[i].n == 1)
            OQ_TRY_ALLOC(oq_map_put(map, p->tensors.v[i].name, (uint32_t)i), err);
    return ONQ_OK;
}

static onq_code tell_params(tally *t, const oq_plan_tensor *x, const oq_plan_tensor *y, bool first,
                            onq_error *err) {
    char text[200];
    if (y == NULL)
        snprintf(text, sizeof text, "quantized only in the %s", first ? "first" : "second");
    else
        snprintf(text, sizeof text, "%s, scale %g, zero point %d vs %s, scale %g, zero point %d",
                 oq_dtype_name(x->type), (double)x->scale[0], x->zero[0], oq_dtype_name(y->type),
                 (double)y->scale[0], y->zero[0]);
    const oq_difference d = {.kind = OQ_DIFF_VALUE, .name = x->name, .text = oq_str_of(text)};
    return keep(t, &d, err);
}

/* Activations that are quantized in one model only, or with other parameters. */
static onq_code compare_params(tally *t, const oq_plan *a, const oq_plan *b, onq_error *err) {
    const oq_plan *const plans[2] = {a, b};
    oq_map maps[2];
    for (int i = 0; i < 2; i++) {
        oq_map_init(&maps[i], &t->job->arena);
        OQ_TRY(map_params(plans[i], &maps[i], err));
    }
    for (int side = 0; side < 2; side++)
        for (size_t i = 0; i < plans[side]->tensors.n; i++) {
            const oq_plan_tensor *x = &plans[side]->tensors.v[i];
            if (x->role != OQ_ROLE_ACTIVATION || x->n != 1)
                continue;
            const oq_plan_tensor *y = find_params(plans[1 - side], &maps[1 - side], x->name);
            const bool same = y != NULL && x->type == y->type && x->scale[0] == y->scale[0] &&
                              x->zero[0] == y->zero[0];
            if (y == NULL || (!same && side == 0))
                OQ_TRY(tell_params(t, x, y, side == 0, err));
        }
    return ONQ_OK;
}

/* ---- the command ---- */

static onq_code compare(tally *t, const oq_compare *how, bool form, oq_model *a, oq_model *b,
                        onq_error *err) {
    oq_plan params[2];
    OQ_SCRATCH(scratch, &t->job->env->alloc);
    if (form) {
        OQ_TRY(lift(t->job, a, &params[0], err));
        OQ_TRY(lift(t->job, b, &params[1], err));
    }
    OQ_TRY(oq_compare_models(how, &scratch, a, b, err));
    return form && !how->rename ? compare_params(t, &params[0], &params[1], err) : ONQ_OK;
}

static onq_code run_diff(oq_job *job, onq_error *err) {
    tally t = {.job = job, .limit = (uint64_t)oq_opt_int(job->opts, "limit")};
    oq_compare how = {
        .atol = oq_opt_real(job->opts, "tolerance"),
        .rtol = oq_opt_real(job->opts, "rtol"),
        .found = keep,
        .ctx = &t,
    };
    bool form = false;
    OQ_TRY(read_ignored(&t, &how.rename, &form, err));
    t.ignored[OQ_DIFF_OPSET] |= form; /* forms need opsets of their own */
    oq_model *a = NULL, *b = NULL;
    /* What is converted must be sound, and in order. */
    onq_code (*const open)(oq_job *, const char *, oq_model **, onq_error *) =
        form ? oq_job_open_sound : oq_job_open;
    onq_code rc = open(job, oq_opt_operand(job->opts, 0), &a, err);
    if (rc == ONQ_OK)
        rc = open(job, oq_opt_operand(job->opts, 1), &b, err);
    if (rc == ONQ_OK)
        rc = compare(&t, &how, form, a, b, err);
    if (rc == ONQ_OK)
        report(job, &t, oq_opt_flag(job->opts, "strict"));
    oq_model_free(a);
    oq_model_free(b);
    return rc;
}

static const onq_option_info rows[] = {
    OQ_REAL("tolerance", 't', "atol", "0", "0..", "X",
            "Values, also of attributes, that differ by at most X count as equal."),
    OQ_REAL("rtol", 0, "relative_tolerance", "0", "0..", "X",
            "Relative tolerance: values are equal if |a - b| <= tolerance + rtol |b|."),
    OQ_LIST(
        "ignore", 0, "", "KIND",
        "Kinds of differences to ignore, named as in the output: opset, node, attribute, "
        "initializer, value ... With `names`, tensors may have other names, and nodes are matched "
        "by what they compute. With `form`, quantized models are compared as the float models "
        "that they stand for, with the parameters of their activations: QDQ, QOperator and "
        "MatMulNBits may be equal."),
    /* Own sense: what counts as a difference. */
    OQ_FLAG("strict", 0, "",
            "Also count differences that have no effect on the result: node names, value_info, "
            "order, doc strings, producer, metadata, names of dimensions."),
    /* Own sense: lines of the answer. */
    OQ_INT("limit", 'n', "", "5", "0..", "N",
           "Show at most N differences of each kind; 0 shows "
           "all."),
    OQ_ROW_DATA_ROOT,
};
static const oq_opt_group own = OQ_GROUP("Comparison", rows);

const oq_command oq_command_diff = {
    .info =
        {
            "diff",
            "A B",
            "show how two models differ as graphs",
            "Compares opsets, inputs, outputs, nodes, attributes, initializers and their values, "
            "functions and subgraphs. How a tensor is stored (raw, typed, external) does not "
            "count, nor does the order of nodes. Nodes are matched by the tensors they make. Exit "
            "status 0 when there is no difference, 1 when there is.\n",
        },
    .groups = {&own, &oq_group_general_one_thread, &oq_group_threads_idle, &oq_group_verify_idle},
    .run = run_diff,
};
