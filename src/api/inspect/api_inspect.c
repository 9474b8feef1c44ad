/*
 * api_inspect.c — `onq inspect MODEL`: what a model holds, what is quantized in it and how, and
 * what could be.
 *
 * The counting is onnx/summary/summary.c and quantize/cost/profile.c; this file shows the first,
 * inspect_work.c the second, as text and as JSON, and inspect_page.c both as a page.
 */
#include "api/inspect/inspect.h"
#include "api/options/shared_rows.h"
#include "api/samples.h"
#include "onnx/check/check.h"
#include "quantize/rules.h"

#define SHOWN     24 /* inputs, outputs and operator types, unless --all */
#define WIDTH     79
#define TIED_TOLD 8 /* tied weights */
#define ALIKE     4 /* inputs or outputs that become one line, unless --all */

/* "Conv", "com.microsoft:Attention" */
static void add_op(oq_buf *b, const oq_op_count *op) {
    if (op->domain.n != 0) {
        oq_inspect_name(b, op->domain);
        oq_buf_addc(b, ':');
    }
    oq_inspect_name(b, op->op_type);
}

static void json_ops(oq_job *job, const char *key, const oq_op_counts *ops) {
    OQ_SCRATCH_BUF(name, &job->env->alloc);
    oq_jw_begin_object(&job->json, key);
    for (size_t i = 0; i < ops->n; i++) {
        name.n = 0;
        add_op(&name, &ops->v[i]);
        oq_jw_key(&job->json, (oq_str){name.p, name.n});
        oq_jw_uint(&job->json, NULL, ops->v[i].count);
    }
    oq_jw_end_object(&job->json);
    job->json_text.failed |= name.failed;
}

/* "Conv 49, Gemm 1", in lines of a screen's width; the rest as a number. */
static void text_ops(oq_buf *b, const oq_op_counts *ops, size_t most, size_t line_start) {
    for (size_t i = 0; i < ops->n && i < most; i++) {
        const size_t before = b->n;
        oq_buf_adds(b, i > 0 ? ", " : "");
        add_op(b, &ops->v[i]);
        oq_buf_addf(b, " %llu", (unsigned long long)ops->v[i].count);
        if (i > 0 && b->n - line_start > WIDTH && !b->failed) {
            /* Over the edge: the blank before it becomes a new line. */
            oq_buf_adds(b, "  ");
            memmove(b->p + before + 4, b->p + before + 2, b->n - before - 4);
            memcpy(b->p + before, ",\n  ", 4);
            line_start = before + 2;
        }
    }
    if (ops->n > most)
        oq_buf_addf(b, ", ... %zu more", ops->n - most);
}

/* ---- the parts of the report ---- */

static void show_head(oq_job *job, const oq_model *m, const oq_summary *s) {
    const oq_model_proto *p = m->proto;
    size_t shown = 0, unused = 0;
    char size[32];
    oq_buf *b = &job->text;
    oq_buf_add_safe(b, oq_str_of(m->path));
    oq_buf_addf(b, ": %s, IR version %lld, opset", oq_inspect_bytes(size, m->bytes.n),
                (long long)p->ir_version.v);
    oq_jw_cstr(&job->json, "file", m->path);
    oq_jw_uint(&job->json, "size", m->bytes.n);
    oq_jw_int(&job->json, "ir_version", p->ir_version.v);
    oq_jw_begin_array(&job->json, "opset_import");
    for (size_t i = 0; i < p->opset_import.n; i++) {
        const oq_opset *o = p->opset_import.v[i];
        if (!oq_summary_uses(s, o->domain) && !oq_domain_is_onnx(o->domain)) {
            unused++;
        } else if (shown++ < SHOWN) {
            oq_buf_adds(b, shown > 1 ? ", " : " ");
            oq_inspect_name(b, o->domain);
            oq_buf_addf(b, "%s%lld", o->domain.n == 0 ? "" : " ", (long long)o->version.v);
        }
        oq_jw_begin_object(&job->json, NULL);
        oq_jw_str(&job->json, "domain", o->domain);
        oq_jw_int(&job->json, "version", o->version.v);
        oq_jw_end_object(&job->json);
    }
    oq_jw_end_array(&job->json);
    if (shown > SHOWN)
        oq_buf_addf(b, ", ... %zu more", shown - SHOWN);
    if (unused > 0)
        oq_buf_addf(b, " (and %zu that no node uses)", unused);
    if (p->producer_name.n != 0) {
        oq_buf_adds(b, ", made by ");
        oq_inspect_name(b, p->producer_name);
        oq_buf_adds(b, p->producer_version.n != 0 ? " " : "");
        oq_inspect_name(b, p->producer_version);
    }
    oq_buf_addc(b, '\n');
    oq_jw_str(&job->json, "producer_name", p->producer_name);
    oq_jw_str(&job->json, "producer_version", p->producer_version);
    oq_jw_str(&job->json, "graph", p->graph->name);
    oq_jw_begin_array(&job->json, "metadata"); /* keys may be there twice */
    for (size_t i = 0; i < p->metadata_props.n; i++) {
        oq_jw_begin_object(&job->json, NULL);
        oq_jw_str(&job->json, "key", p->metadata_props.v[i]->key);
        oq_jw_str(&job->json, "value", p->metadata_props.v[i]->value);
        oq_jw_end_object(&job->json);
    }
    oq_jw_end_array(&job->json);
}

static void json_shape(oq_jw *w, const oq_type *t) {
    const oq_shape *shape = t != NULL && t->tensor_type != NULL ? t->tensor_type->shape : NULL;
    if (shape == NULL) {
        oq_jw_null(w, "shape");
        return;
    }
    oq_jw_begin_array(w, "shape");
    for (size_t i = 0; i < shape->dim.n; i++) {
        const oq_dim *d = shape->dim.v[i];
        if (d->dim_value.has)
            oq_jw_int(w, NULL, d->dim_value.v);
        else if (d->dim_param.n != 0)
            oq_jw_str(w, NULL, d->dim_param);
        else
            oq_jw_null(w, NULL);
    }
    oq_jw_end_array(w);
}

/* Inputs or outputs of one type whose names differ in their numbers only: the states of a decoder. */
typedef struct alike {
    size_t n, shown;
    oq_str last;
} alike;

typedef struct alikes {
    OQ_VEC(alike) all;
    uint32_t *of; /* by value: an index of `all`; OQ_MAP_NONE: it is not shown */
} alikes;

/* The name with # for every number, and the type. */
static oq_str form_of(oq_arena *a, oq_str name, const oq_type *type) {
    OQ_SCRATCH_BUF(text, a->alloc);
    for (size_t i = 0; i < name.n; i++) {
        const bool digit = name.p[i] >= '0' && name.p[i] <= '9';
        if (!digit)
            oq_buf_addc(&text, name.p[i]);
        else if (i == 0 || name.p[i - 1] < '0' || name.p[i - 1] > '9')
            oq_buf_addc(&text, '#');
    }
    oq_buf_addc(&text, ' ');
    oq_type_text(&text, type);
    return text.failed ? (oq_str){NULL, 0} : oq_str_copy(a, (oq_str){text.p, text.n});
}

static bool find_alikes(oq_job *job, const oq_map *inits, oq_value_info **v, size_t n,
                        alikes *out) {
    oq_map forms;
    oq_map_init(&forms, &job->arena);
    out->of = OQ_NEW_ARRAY(&job->arena, uint32_t, n + 1);
    for (size_t i = 0; i < n && out->of != NULL; i++) {
        out->of[i] = OQ_MAP_NONE;
        if (oq_map_has(inits, v[i]->name))
            continue;
        const oq_str form = form_of(&job->arena, v[i]->name, v[i]->type);
        out->of[i] =
            form.p != NULL ? oq_map_find_or_put(&forms, form, (uint32_t)out->all.n) : OQ_MAP_NONE;
        if (out->of[i] == OQ_MAP_NONE ||
            (out->of[i] == out->all.n && !OQ_PUSH(&job->arena, &out->all, (alike){0})))
            return false;
        assert(out->of[i] < out->all.n);
        alike *g = &out->all.v[out->of[i]];
        g->n++;
        g->last = v[i]->name;
    }
    return out->of != NULL;
}

/* "  past.0.key to past.29.key  FLOAT[batch, 3, past, 64], 30 of them" */
static void text_value(oq_buf *b, oq_str name, oq_str type, const alike *g) {
    oq_buf_adds(b, "  ");
    oq_inspect_name(b, name);
    if (g != NULL) {
        oq_buf_adds(b, " to ");
        oq_inspect_name(b, g->last);
    }
    oq_buf_adds(b, "  ");
    oq_inspect_name(b, type);
    if (g != NULL)
        oq_buf_addf(b, ", %zu of them", g->n);
    oq_buf_addc(b, '\n');
}

/* Inputs or outputs; inputs that are also initializers are left out, since users need not give
 * them. */
static void show_values(oq_job *job, const char *title, const oq_graph *g, oq_value_info **v,
                        size_t n, bool all) {
    oq_map inits;
    oq_map_init(&inits, &job->arena);
    for (size_t i = 0; v == g->input.v && i < g->initializer.n; i++)
        job->text.failed |= !oq_map_put(&inits, g->initializer.v[i]->name, 1);
    OQ_SCRATCH_BUF(type, &job->env->alloc);
    alikes alike_of = {0};
    size_t shown = 0, left = 0;
    if (!find_alikes(job, &inits, v, n, &alike_of)) {
        job->text.failed = true;
        return;
    }
    oq_buf_addf(&job->text, "%s:\n", title);
    oq_jw_begin_array(&job->json, title);
    for (size_t i = 0; i < n; i++) {
        if (alike_of.of[i] == OQ_MAP_NONE)
            continue;
        alike *same = &alike_of.all.v[alike_of.of[i]];
        const bool one_line = same->n >= ALIKE && !all;
        type.n = 0;
        oq_type_text(&type, v[i]->type);
        oq_jw_begin_object(&job->json, NULL);
        oq_jw_str(&job->json, "name", v[i]->name);
        oq_jw_str(&job->json, "type", (oq_str){type.p, type.n});
        json_shape(&job->json, v[i]->type);
        oq_jw_end_object(&job->json);
        if (one_line && same->shown++ > 0)
            continue;
        if (shown == SHOWN && !all) {
            left += one_line ? same->n : 1;
            continue;
        }
        shown++;
        text_value(&job->text, v[i]->name, (oq_str){type.p, type.n}, one_line ? same : NULL);
    }
    if (left > 0)
        oq_buf_addf(&job->text, "  ... %zu more (--all shows them)\n", left);
    oq_jw_end_array(&job->json);
    job->text.failed |= type.failed;
}

static void show_nodes(oq_job *job, const oq_model *m, const oq_summary *s, bool all) {
    char n[32];
    oq_buf_addf(&job->text, "nodes: %s", oq_inspect_number(n, s->nodes));
    if (s->graphs > 1)
        oq_buf_addf(&job->text, " in %llu graphs", (unsigned long long)s->graphs);
    if (m->proto->functions.n > 0)
        oq_buf_addf(&job->text, ", %zu functions", m->proto->functions.n);
    oq_buf_adds(&job->text, "\n  ");
    text_ops(&job->text, &s->ops, all ? SIZE_MAX : SHOWN, job->text.n - 2);
    oq_buf_addc(&job->text, '\n');
    oq_jw_uint(&job->json, "nodes", s->nodes);
    oq_jw_uint(&job->json, "graphs", s->graphs);
    oq_jw_uint(&job->json, "functions", m->proto->functions.n);
    json_ops(job, "operators", &s->ops);
}

static void show_storage(oq_job *job, const oq_summary *s) {
    char b[32];
    oq_buf *t = &job->text;
    oq_jw_begin_object(&job->json, "storage");
    oq_jw_uint(&job->json, "raw", s->raw_bytes);
    oq_jw_uint(&job->json, "typed", s->typed_bytes);
    oq_jw_uint(&job->json, "external", s->external_bytes);
    oq_jw_begin_array(&job->json, "files");
    for (size_t i = 0; i < s->files.n; i++) {
        oq_jw_begin_object(&job->json, NULL);
        oq_jw_str(&job->json, "location", s->files.v[i].location);
        oq_jw_uint(&job->json, "tensors", s->files.v[i].tensors);
        oq_jw_uint(&job->json, "bytes", s->files.v[i].bytes);
        oq_jw_end_object(&job->json);
    }
    oq_jw_end_array(&job->json);
    oq_jw_end_object(&job->json);
    if (s->files.n == 0)
        return;
    oq_buf_addf(t, "  in the model file %s", oq_inspect_bytes(b, s->raw_bytes + s->typed_bytes));
    for (size_t i = 0; i < s->files.n && i < 4; i++) {
        oq_buf_adds(t, ", in ");
        oq_inspect_name(t, s->files.v[i].location);
        oq_buf_addf(t, " %s", oq_inspect_bytes(b, s->files.v[i].bytes));
    }
    if (s->files.n > 4)
        oq_buf_addf(t, ", ... in %zu files %s", s->files.n, oq_inspect_bytes(b, s->external_bytes));
    oq_buf_addc(t, '\n');
}

static void show_tensors(oq_job *job, const oq_summary *s) {
    char a[32], b[32];
    oq_buf_addf(&job->text, "parameters: %s in %s tensors, %s\n",
                oq_inspect_number(a, s->total.elements), oq_inspect_number(b, s->total.tensors),
                oq_inspect_bytes((char[32]){0}, s->total.bytes));
    oq_jw_uint(&job->json, "tensors", s->total.tensors);
    oq_jw_uint(&job->json, "parameters", s->total.elements);
    oq_jw_uint(&job->json, "bytes", s->total.bytes);
    oq_jw_begin_object(&job->json, "types");
    for (int i = 0; i < OQ_DTYPE_COUNT; i++) {
        const oq_tensor_sum *sum = &s->by_type[i];
        if (sum->tensors == 0)
            continue;
        oq_buf_addf(&job->text, "  %-9s %s in %s tensor%s\n", oq_dtype_name(i),
                    oq_inspect_bytes(a, sum->bytes), oq_inspect_number(b, sum->tensors),
                    OQ_NOUN_S(sum->tensors));
        oq_jw_begin_object(&job->json, oq_dtype_name(i));
        oq_jw_uint(&job->json, "tensors", sum->tensors);
        oq_jw_uint(&job->json, "values", sum->elements);
        oq_jw_uint(&job->json, "bytes", sum->bytes);
        oq_jw_end_object(&job->json);
    }
    oq_jw_end_object(&job->json);
    show_storage(job, s);
}

/* "12 INT8 per channel, 3 UINT8 per tensor" */
static void show_counts(oq_job *job, const char *what,
                        const uint64_t (*counts)[OQ_GRANULARITY_COUNT]) {
    bool any = false;
    oq_jw_begin_array(&job->json, what);
    for (int t = 0; t < OQ_DTYPE_COUNT; t++) {
        for (int g = 0; g < OQ_GRANULARITY_COUNT; g++) {
            if (counts[t][g] == 0)
                continue;
            const char *type = t == OQ_UNDEFINED ? "of unknown type" : oq_dtype_name(t);
            const char *fine = oq_granularity_name((oq_granularity)g);
            oq_buf_addf(&job->text, "%s%llu %s %s", any ? ", " : "",
                        (unsigned long long)counts[t][g], type, fine);
            oq_jw_begin_object(&job->json, NULL);
            oq_jw_cstr(&job->json, "type", t == OQ_UNDEFINED ? "unknown" : oq_dtype_name(t));
            oq_jw_cstr(&job->json, "granularity", fine);
            oq_jw_uint(&job->json, "count", counts[t][g]);
            oq_jw_end_object(&job->json);
            any = true;
        }
    }
    oq_buf_addf(&job->text, "%s", any ? "\n" : "none\n");
    oq_jw_end_array(&job->json);
}

static void show_weight_only(oq_job *job, const oq_quantized *q) {
    oq_jw_begin_array(&job->json, "weight_only");
    for (size_t i = 0; i < q->only.n; i++) {
        const oq_weight_only *o = &q->only.v[i];
        oq_buf_addf(&job->text, "  %llu %.*s: %lld bits, blocks of %lld",
                    (unsigned long long)o->count, OQ_STR(o->op_type), (long long)o->bits,
                    (long long)o->block_size);
        if (o->weights > 0)
            oq_buf_addf(&job->text, ", %.2f bits a weight with scales", o->stored / o->weights);
        oq_buf_adds(&job->text, "\n");
        oq_jw_begin_object(&job->json, NULL);
        oq_jw_str(&job->json, "op_type", o->op_type);
        oq_jw_int(&job->json, "bits", o->bits);
        oq_jw_int(&job->json, "block_size", o->block_size);
        oq_jw_uint(&job->json, "count", o->count);
        if (o->weights > 0)
            oq_jw_real(&job->json, "bits_per_weight", o->stored / o->weights);
        oq_jw_end_object(&job->json);
    }
    oq_jw_end_array(&job->json);
}

/* Weights that several nodes read. */
static void show_tied(oq_job *job, const oq_quantized *q) {
    size_t n = 0;
    oq_jw_begin_array(&job->json, "tied");
    for (size_t i = 0; i < q->read.n; i++) {
        const oq_tied *t = &q->read.v[i];
        if (t->count < 2)
            continue;
        oq_jw_begin_object(&job->json, NULL);
        oq_jw_str(&job->json, "name", t->name);
        oq_jw_uint(&job->json, "readers", t->count);
        oq_jw_end_object(&job->json);
        if (n++ >= TIED_TOLD)
            continue;
        oq_buf_adds(&job->text, n == 1 ? "tied weights:\n  " : "  ");
        oq_inspect_name(&job->text, t->name);
        oq_buf_addf(&job->text, ": read by %.*s and %.*s", OQ_STR(t->readers[0]),
                    OQ_STR(t->readers[1]));
        if (t->count > 2)
            oq_buf_addf(&job->text, ", %llu nodes in all", (unsigned long long)t->count);
        oq_buf_adds(&job->text, "\n");
    }
    if (n > TIED_TOLD)
        oq_buf_addf(&job->text, "  and %zu more (--json names them)\n", n - TIED_TOLD);
    oq_jw_end_array(&job->json);
}

static void show_quantized(oq_job *job, const oq_summary *s) {
    const oq_quantized *q = &s->quant;
    const struct {
        const char *name;
        uint64_t count;
        const char *of;
    } formats[] = {
        {"QDQ", q->quantize + q->dequantize, "QuantizeLinear and DequantizeLinear nodes"},
        {"QOperator", q->operators, "QLinear operators"},
        {"integer", q->integer, "integer and dynamically quantized operators"},
        {"weight-only", q->weight_only, "operators with packed weights"},
        {"cache", q->caches, "attention operators that keep their past as integers"},
    };
    bool any = false;
    oq_buf_adds(&job->text, "quantized:");
    oq_jw_begin_object(&job->json, "quantization");
    oq_jw_begin_array(&job->json, "formats");
    for (size_t i = 0; i < OQ_COUNT(formats); i++) {
        if (formats[i].count == 0)
            continue;
        oq_buf_addf(&job->text, "%s %s (%llu %s)", any ? "," : "", formats[i].name,
                    (unsigned long long)formats[i].count, formats[i].of);
        oq_jw_cstr(&job->json, NULL, formats[i].name);
        any = true;
    }
    oq_jw_end_array(&job->json);
    oq_buf_adds(&job->text, any ? "\n" : " no\n");
    oq_jw_uint(&job->json, "quantize_linear", q->quantize);
    oq_jw_uint(&job->json, "dequantize_linear", q->dequantize);
    oq_jw_uint(&job->json, "qlinear", q->operators);
    oq_jw_uint(&job->json, "integer", q->integer);
    oq_jw_uint(&job->json, "cache", q->caches);
    show_weight_only(job, q);
    if (any)
        oq_buf_adds(&job->text, "  weights: ");
    const size_t keep = job->text.n;
    show_counts(job, "weights", q->weights);
    if (any)
        oq_buf_adds(&job->text, "  activations: ");
    show_counts(job, "activations", q->activations);
    if (!any)
        job->text.n = keep; /* a float model: nothing to say about either */
    oq_jw_end_object(&job->json);
}

static void show_can(oq_job *job, const oq_summary *s) {
    char b[32];
    oq_buf_adds(&job->text, "could be quantized:\n");
    oq_jw_begin_object(&job->json, "quantizable");
    for (int i = 0; i < OQ_MODE_COUNT; i++) {
        const oq_quantizable *can = &s->can[i];
        const char *mode = oq_quant_mode_name((oq_quant_mode)i);
        oq_buf_addf(&job->text, "  %-8s ", mode);
        if (can->nodes == 0) {
            oq_buf_adds(&job->text, "nothing\n");
        } else {
            oq_buf_addf(&job->text, "%llu node%s", (unsigned long long)can->nodes,
                        OQ_NOUN_S(can->nodes));
            if (can->weight_bytes == 0)
                oq_buf_adds(&job->text, " without float weights, which gains little (");
            else
                oq_buf_addf(&job->text, ", %s of float weights (",
                            oq_inspect_bytes(b, can->weight_bytes));
            text_ops(&job->text, &can->ops, 5, job->text.n);
            oq_buf_adds(&job->text, ")\n");
        }
        oq_jw_begin_object(&job->json, mode);
        oq_jw_uint(&job->json, "nodes", can->nodes);
        oq_jw_uint(&job->json, "weight_bytes", can->weight_bytes);
        json_ops(job, "operators", &can->ops);
        oq_jw_end_object(&job->json);
    }
    oq_jw_end_object(&job->json);
}

/* ---- what is odd, and what to do next ---- */

static void remark(oq_job *job, bool warn, const char *text) {
    oq_jw_cstr(&job->json, NULL, text);
    if (warn) {
        oq_warn(job->env, "%s", text);
    } else {
        oq_buf_adds(&job->text, "note: ");
        oq_buf_add_safe(&job->text, oq_str_of(text));
        oq_buf_addc(&job->text, '\n');
    }
}

static void show_remarks(oq_job *job, const oq_model *m, const oq_summary *s) {
    char text[600];
    const int64_t opset = oq_model_opset(m, OQ_S(""));
    oq_jw_begin_array(&job->json, "notes");
    if (s->unused_inits > 0) {
        snprintf(text, sizeof text, "%s: %llu initializers are not used (first: '%.*s')", m->path,
                 (unsigned long long)s->unused_inits, OQ_STR(s->unused_init));
        remark(job, true, text);
    }
    if (s->dead_nodes > 0) {
        snprintf(text, sizeof text, "%s: %llu nodes compute nothing that is used (first: '%.*s')",
                 m->path, (unsigned long long)s->dead_nodes, OQ_STR(s->dead_node));
        remark(job, true, text);
    }
    if (s->input_inits > 0) {
        snprintf(
            text, sizeof text,
            "%s: %llu initializers are inputs too (first: '%.*s'); a runtime cannot treat them as "
            "constants",
            m->path, (unsigned long long)s->input_inits, OQ_STR(s->input_init));
        remark(job, m->proto->ir_version.v >= 4, text);
    }
    if (s->conv_batchnorm > 0) {
        snprintf(
            text, sizeof text,
            "%llu BatchNormalization after Conv; 'onq preprocess' folds them before quantization",
            (unsigned long long)s->conv_batchnorm);
        remark(job, false, text);
    }
    if (s->values > 0 && s->values_typed * 2 < s->values) {
        snprintf(text, sizeof text,
                 "types are declared for %llu of %llu tensors; 'onq preprocess' infers the others",
                 (unsigned long long)s->values_typed, (unsigned long long)s->values);
        remark(job, false, text);
    }
    if (opset > 0 && opset < 13 && s->can[OQ_MODE_STATIC].nodes > 0)
        remark(job, false,
               "opset below 13: per-channel QDQ needs 13 ('onq preprocess --opset 13')");
    oq_jw_end_array(&job->json);
}

/* ---- the command ---- */

/* Nodes that compute no floats, such as Reshape of a shape, by their first output. */
static onq_code find_plain(oq_map *plain, const oq_profile *p, onq_error *err) {
    for (uint32_t i = 0; i < p->nodes.n; i++) {
        const oq_profile_node *n = &p->nodes.v[i];
        if (n->compute == OQ_COMPUTE_OTHER && n->node->output.n > 0 &&
            !oq_map_put(plain, n->node->output.v[0], i))
            return oq_fail_nomem(err);
    }
    return ONQ_OK;
}

/* What the quantizers' own table says of nodes that compute floats. */
static unsigned modes_of(void *ctx, const oq_node *n) {
    const oq_str op_type = n->op_type;
    const unsigned modes = oq_rules_quantized_in(op_type);
    unsigned found = 0;
    if (n->output.n > 0 && oq_map_has(ctx, n->output.v[0]))
        return 0;
    if ((modes & OQ_QMODE_QDQ) != 0)
        found |= 1u << OQ_MODE_STATIC;
    if ((modes & OQ_QMODE_INTEGER) != 0)
        found |= 1u << OQ_MODE_DYNAMIC;
    if (oq_str_is(op_type, "MatMul"))
        found |= 1u << OQ_MODE_NBITS;
    return found;
}

/* A --dim that no input has. */
static onq_code check_dims(oq_job *job, const oq_unit_sizes *sizes, const oq_profile *p,
                           onq_error *err) {
    oq_str *names = OQ_NEW_ARRAY(&job->arena, oq_str, p->dims.n + 1);
    OQ_TRY_ALLOC(names != NULL, err);
    for (size_t i = 0; i < p->dims.n; i++)
        names[i] = p->dims.v[i].name;
    for (size_t i = 0; i < sizes->n_dims; i++) {
        size_t k = 0;
        while (k < p->dims.n && !oq_str_eq(p->dims.v[k].name, sizes->dims[i].name))
            k++;
        if (k == p->dims.n)
            return oq_dim_unknown(names, p->dims.n, sizes->dims[i].name, &job->env->alloc, err);
    }
    return ONQ_OK;
}

static onq_code summarize(oq_job *job, oq_model *m, oq_summary **out, oq_profile *p,
                          onq_error *err) {
    oq_unit_sizes sizes = {0};
    OQ_TRY(oq_job_dims(job, &sizes.dims, &sizes.n_dims, err));
    *out = OQ_NEW(&job->arena, oq_summary);
    OQ_TRY_ALLOC(*out != NULL, err);
    oq_map plain;
    oq_map_init(&plain, &job->arena);
    onq_code rc = oq_profile_make(p, &job->arena, m, &sizes, err);
    if (rc == ONQ_OK)
        rc = find_plain(&plain, p, err);
    if (rc == ONQ_OK)
        rc = oq_summary_make(*out, &job->arena, m, &(oq_modes){modes_of, &plain}, err);
    if (rc == ONQ_OK)
        return check_dims(job, &sizes, p, err);
    return rc == ONQ_E_NOMEM ? rc : oq_error_in(err, rc, "%s", m->path);
}

static onq_code inspect(oq_job *job, oq_model *m, onq_error *err) {
    oq_summary *s = NULL;
    oq_profile p;
    OQ_TRY(oq_model_check(m, err));
    OQ_TRY(summarize(job, m, &s, &p, err));
    const bool all = oq_opt_flag(job->opts, "all");
    const bool nodes = oq_opt_flag(job->opts, "nodes"), tensors = oq_opt_flag(job->opts, "tensors");
    const oq_graph *g = m->proto->graph;
    show_head(job, m, s);
    show_values(job, "inputs", g, g->input.v, g->input.n, all);
    show_values(job, "outputs", g, g->output.v, g->output.n, all);
    show_nodes(job, m, s, all);
    show_tensors(job, s);
    OQ_TRY(oq_inspect_weights(job, &p, err));
    oq_inspect_work(job, &p);
    show_quantized(job, s);
    show_tied(job, &s->quant);
    OQ_TRY(oq_inspect_forms(job, m, oq_quantized_any(&s->quant), err));
    show_can(job, s);
    show_remarks(job, m, s);
    if (nodes || tensors)
        job->text.n = 0; /* a list is what was asked for */
    if (nodes)
        oq_inspect_nodes(job, &p);
    if (tensors)
        oq_inspect_tensors(job, &p);
    return oq_inspect_save_page(job, m, s, &p, err);
}

static onq_code run_inspect(oq_job *job, onq_error *err) {
    oq_model *m = NULL;
    OQ_TRY(oq_job_open(job, oq_job_input(job), &m, err));
    const onq_code rc = inspect(job, m, err);
    oq_model_free(m);
    return rc;
}

static const onq_option_info rows[] = {
    OQ_FLAG("nodes", 'n', "",
            "List the nodes: name, operator, type that it computes in, multiply-accumulates, "
            "bytes of weights, type and shape of the output."),
    OQ_FLAG("tensors", 't', "",
            "List the tensors: name, kind, type and shape, bytes, quantization."),
    OQ_ROW_OUTPUT("report", "FILE",
                  "Write the graph as one HTML page that needs no network, with foldable blocks "
                  "and the shapes, work and quantization of each node."),
    OQ_ROW_DIM(" By default the first axis of an input is 1, and any other axis without a size is "
               "256."),
    /* Own sense: parts of the report, not samples. */
    OQ_FLAG("all", 'a', "", "Show all inputs, outputs and operator types, however many there are."),
};
static const oq_opt_group own = OQ_GROUP("Report", rows);

const oq_command oq_command_inspect = {
    .info =
        {
            "inspect",
            "MODEL",
            "show what a model contains, what is quantized and what could be",
            "Shows inputs, outputs, opsets, operators with their counts, tensors by type and by "
            "where they are stored, the largest weights, multiply-accumulates and how many of "
            "them are float, the memory of activations, what is quantized and how, and what each "
            "way of quantization would find to do. The model is checked first; one that is not "
            "valid is refused with the reason.\n"
            "\n"
            "Weights are not read: a model of many gigabytes is inspected in the time its graph "
            "takes.\n",
        },
    .groups = {&own, &oq_group_input, &oq_group_general_one_thread, &oq_group_threads_idle,
               &oq_group_verify_idle},
    .run = run_inspect,
};
