/*
 * dump.c — a model as stable text; the format is in dump.h.
 *
 * Names are shown with control bytes escaped. Numbers are the shortest text that reads back as the
 * same number, so equal dumps mean equal values where they are shown, and equal bytes where a hash
 * is.
 */
#include "dump.h"

#include "base/text/json.h"
#include "base/text/number_text.h"
#include "onnx/attr.h"
#include "onnx/graph.h"
#include "onnx/tensor.h"

#include <stdlib.h>

enum {
    VALUES_SHOWN = 8, /* of a tensor; more become a hash */
    LIST_SHOWN = 64,  /* of an attribute's list; more become a count */
};

typedef struct dump {
    oq_model *m;
    oq_buf *out;
    oq_arena arena;
} dump;

static void indent(dump *d, int depth) {
    for (int i = 0; i < depth; i++)
        oq_buf_adds(d->out, "  ");
}

static void add_float(dump *d, float v) {
    char text[OQ_NUMBER_TEXT];
    oq_float_text(text, v);
    oq_buf_adds(d->out, text);
}

static void add_names(dump *d, const oq_strs *names) {
    oq_buf_addc(d->out, '(');
    for (size_t i = 0; i < names->n; i++) {
        if (i != 0)
            oq_buf_adds(d->out, ", ");
        oq_buf_add_safe(d->out, names->v[i]);
    }
    oq_buf_addc(d->out, ')');
}

/* ---- types ---- */

static void add_dtype(dump *d, int64_t type) {
    if (oq_dtype_find(type) != NULL || type == OQ_UNDEFINED)
        oq_buf_adds(d->out, oq_dtype_name(type));
    else
        oq_buf_addf(d->out, "type %lld", (long long)type);
}

static void add_shape(dump *d, const oq_shape *s) {
    if (s == NULL)
        return;
    oq_buf_addc(d->out, '[');
    for (size_t i = 0; i < s->dim.n; i++) {
        const oq_dim *dim = s->dim.v[i];
        if (i != 0)
            oq_buf_addc(d->out, ',');
        if (dim->dim_value.has)
            oq_buf_addf(d->out, "%lld", (long long)dim->dim_value.v);
        else if (dim->dim_param.n != 0)
            oq_buf_add_safe(d->out, dim->dim_param);
        else
            oq_buf_addc(d->out, '?');
    }
    oq_buf_addc(d->out, ']');
}

/* A type is a chain: each wrapper is written in front, the brackets are closed at the end. */
static void add_type(dump *d, const oq_type *t) {
    size_t open = 0;
    while (t != NULL) {
        const oq_type *inner = NULL;
        if (t->tensor_type != NULL || t->sparse_tensor_type != NULL) {
            const oq_tensor_type *tensor =
                t->tensor_type != NULL ? t->tensor_type : t->sparse_tensor_type;
            if (t->tensor_type == NULL)
                oq_buf_adds(d->out, "sparse ");
            add_dtype(d, tensor->elem_type.v);
            add_shape(d, tensor->shape);
        } else if (t->sequence_type != NULL) {
            oq_buf_adds(d->out, "seq(");
            inner = t->sequence_type->elem_type;
        } else if (t->optional_type != NULL) {
            oq_buf_adds(d->out, "optional(");
            inner = t->optional_type->elem_type;
        } else if (t->map_type != NULL) {
            oq_buf_adds(d->out, "map(");
            add_dtype(d, t->map_type->key_type.v);
            oq_buf_addc(d->out, ',');
            inner = t->map_type->value_type;
        } else if (t->opaque_type != NULL) {
            oq_buf_adds(d->out, "opaque(");
            oq_buf_add_safe(d->out, t->opaque_type->domain);
            oq_buf_addc(d->out, ',');
            oq_buf_add_safe(d->out, t->opaque_type->name);
            oq_buf_addc(d->out, ')');
        } else {
            oq_buf_addc(d->out, '?');
        }
        open += t->sequence_type != NULL || t->optional_type != NULL || t->map_type != NULL;
        t = inner;
    }
    for (; open != 0; open--)
        oq_buf_addc(d->out, ')');
}

static void add_info(dump *d, const char *what, const oq_value_info *v, int depth) {
    indent(d, depth);
    oq_buf_adds(d->out, what);
    oq_buf_addc(d->out, ' ');
    oq_buf_add_safe(d->out, v->name);
    oq_buf_addc(d->out, ' ');
    if (v->type != NULL)
        add_type(d, v->type);
    else
        oq_buf_addc(d->out, '?');
    oq_buf_addc(d->out, '\n');
}

/* ---- tensors ---- */

static uint64_t hash_bytes(const uint8_t *p, uint64_t n) {
    uint64_t h = 0xcbf29ce484222325u; /* FNV-1a */
    for (uint64_t i = 0; i < n; i++)
        h = (h ^ p[i]) * 0x100000001b3u;
    return h;
}

static void add_value(dump *d, oq_dtype type, const uint8_t *p, uint64_t i) {
    char text[OQ_NUMBER_TEXT];
    switch (oq_dtype_find(type)->cls) {
    case OQ_CLASS_REAL:
        if (type == OQ_DOUBLE)
            oq_real_text(text, oq_raw_get_real(type, p, i));
        else
            oq_float_text(text, (float)oq_raw_get_real(type, p, i));
        oq_buf_adds(d->out, text);
        break;
    case OQ_CLASS_UINT:
        oq_buf_addf(d->out, "%llu", (unsigned long long)oq_raw_get_int(type, p, i));
        break;
    default:
        oq_buf_addf(d->out, "%lld", (long long)oq_raw_get_int(type, p, i));
        break;
    }
}

static void add_strings(dump *d, const oq_strs *s) {
    oq_buf_adds(d->out, " = {");
    for (size_t i = 0; i < s->n; i++) {
        oq_buf_adds(d->out, i == 0 ? "\"" : ", \"");
        oq_buf_add_safe(d->out, s->v[i]);
        oq_buf_addc(d->out, '"');
    }
    oq_buf_addc(d->out, '}');
}

/* Type, dims, and values or their hash. */
static onq_code add_tensor(dump *d, oq_tensor *t, onq_error *err) {
    add_dtype(d, t->data_type.v);
    oq_buf_addc(d->out, '[');
    for (size_t i = 0; i < t->dims.n; i++)
        oq_buf_addf(d->out, i == 0 ? "%lld" : ",%lld", (long long)t->dims.v[i]);
    oq_buf_addc(d->out, ']');
    if (t->data_type.v == OQ_STRING) {
        add_strings(d, &t->string_data);
        return ONQ_OK;
    }
    oq_span raw;
    uint64_t count = 0;
    OQ_TRY(oq_tensor_count(t, &count, err));
    OQ_TRY(oq_model_data(d->m, t, &raw, err));
    const oq_dtype type = (oq_dtype)t->data_type.v;
    if (count > VALUES_SHOWN || oq_dtype_find(type)->cls == OQ_CLASS_COMPLEX) {
        oq_buf_addf(d->out, " hash %016llx", (unsigned long long)hash_bytes(raw.p, raw.n));
        return ONQ_OK;
    }
    oq_buf_adds(d->out, " = {");
    for (uint64_t i = 0; i < count; i++) {
        if (i != 0)
            oq_buf_adds(d->out, ", ");
        add_value(d, type, raw.p, i);
    }
    oq_buf_addc(d->out, '}');
    return ONQ_OK;
}

static onq_code add_initializer(dump *d, oq_tensor *t, int depth, onq_error *err) {
    indent(d, depth);
    oq_buf_adds(d->out, "init ");
    oq_buf_add_safe(d->out, t->name);
    oq_buf_addc(d->out, ' ');
    OQ_TRY(add_tensor(d, t, err));
    oq_buf_addc(d->out, '\n');
    return ONQ_OK;
}

static onq_code add_sparse(dump *d, const oq_sparse *s, onq_error *err) {
    oq_buf_adds(d->out, "sparse[");
    for (size_t i = 0; i < s->dims.n; i++)
        oq_buf_addf(d->out, i == 0 ? "%lld" : ",%lld", (long long)s->dims.v[i]);
    oq_buf_adds(d->out, "] values ");
    if (s->values != NULL)
        OQ_TRY(add_tensor(d, s->values, err));
    oq_buf_adds(d->out, " indices ");
    return s->indices != NULL ? add_tensor(d, s->indices, err) : ONQ_OK;
}

/* ---- attributes ---- */

/* True when the list is short enough to be shown. */
static bool begin_list(dump *d, size_t n) {
    if (n > LIST_SHOWN)
        oq_buf_addf(d->out, "[%zu values]", n);
    else
        oq_buf_addc(d->out, '[');
    return n <= LIST_SHOWN;
}

static onq_code add_lists(dump *d, const oq_attribute *a, onq_error *err) {
    if (a->ints.n != 0 && begin_list(d, a->ints.n)) {
        for (size_t i = 0; i < a->ints.n; i++)
            oq_buf_addf(d->out, i == 0 ? "%lld" : ",%lld", (long long)a->ints.v[i]);
        oq_buf_addc(d->out, ']');
    }
    if (a->floats.n != 0 && begin_list(d, a->floats.n)) {
        for (size_t i = 0; i < a->floats.n; i++) {
            if (i != 0)
                oq_buf_addc(d->out, ',');
            add_float(d, a->floats.v[i]);
        }
        oq_buf_adds(d->out, "]f");
    }
    if (a->strings.n != 0)
        add_strings(d, &a->strings);
    for (size_t i = 0; i < a->tensors.n; i++) {
        oq_buf_adds(d->out, i == 0 ? "" : "; ");
        OQ_TRY(add_tensor(d, a->tensors.v[i], err));
    }
    for (size_t i = 0; i < a->sparse_tensors.n; i++) {
        oq_buf_adds(d->out, i == 0 ? "" : "; ");
        OQ_TRY(add_sparse(d, a->sparse_tensors.v[i], err));
    }
    for (size_t i = 0; i < a->type_protos.n; i++) {
        oq_buf_adds(d->out, i == 0 ? "" : "; ");
        add_type(d, a->type_protos.v[i]);
    }
    return ONQ_OK;
}

static onq_code add_attribute(dump *d, const oq_attribute *a, onq_error *err) {
    oq_buf_add_safe(d->out, a->name);
    oq_buf_addc(d->out, '=');
    if (a->ref_attr_name.n != 0) {
        oq_buf_addc(d->out, '@');
        oq_buf_add_safe(d->out, a->ref_attr_name);
        return ONQ_OK;
    }
    switch (a->type.v) {
    case OQ_ATTR_INT:
        oq_buf_addf(d->out, "%lld", (long long)a->i.v);
        return ONQ_OK;
    case OQ_ATTR_FLOAT:
        add_float(d, a->f.v);
        oq_buf_addc(d->out, 'f');
        return ONQ_OK;
    case OQ_ATTR_STRING:
        oq_buf_addc(d->out, '"');
        oq_buf_add_safe(d->out, a->s);
        oq_buf_addc(d->out, '"');
        return ONQ_OK;
    case OQ_ATTR_TENSOR:
        return a->t != NULL ? add_tensor(d, a->t, err) : ONQ_OK;
    case OQ_ATTR_SPARSE_TENSOR:
        return a->sparse_tensor != NULL ? add_sparse(d, a->sparse_tensor, err) : ONQ_OK;
    case OQ_ATTR_TYPE_PROTO:
        if (a->tp != NULL)
            add_type(d, a->tp);
        return ONQ_OK;
    case OQ_ATTR_GRAPH:
    case OQ_ATTR_GRAPHS:
        oq_buf_adds(d->out, "graph");
        return ONQ_OK;
    case OQ_ATTR_INTS:
        if (a->ints.n == 0)
            oq_buf_adds(d->out, "[]");
        break;
    case OQ_ATTR_FLOATS:
        if (a->floats.n == 0)
            oq_buf_adds(d->out, "[]f");
        break;
    default:
        break;
    }
    return add_lists(d, a, err);
}

static int compare_attributes(const void *x, const void *y) {
    const oq_attribute *const *a = x, *const *b = y;
    return oq_str_cmp((*a)->name, (*b)->name);
}

/* ---- nodes and graphs ---- */

static onq_code add_graph(dump *d, oq_graph *g, int depth, onq_error *err);

static onq_code add_node(dump *d, const oq_node *n, int depth, onq_error *err) {
    oq_attribute **sorted = OQ_NEW_ARRAY(&d->arena, oq_attribute *, n->attribute.n);
    if (sorted == NULL)
        return oq_fail_nomem(err);
    if (n->attribute.n != 0) {
        memcpy(sorted, n->attribute.v, n->attribute.n * sizeof *sorted);
        qsort(sorted, n->attribute.n, sizeof *sorted, compare_attributes);
    }
    indent(d, depth);
    oq_buf_adds(d->out, "node ");
    oq_buf_add_safe(d->out, n->name);
    oq_buf_adds(d->out, ": ");
    if (n->domain.n != 0) {
        oq_buf_add_safe(d->out, n->domain);
        oq_buf_adds(d->out, "::");
    }
    oq_buf_add_safe(d->out, n->op_type);
    if (n->overload.n != 0) {
        oq_buf_addc(d->out, '.');
        oq_buf_add_safe(d->out, n->overload);
    }
    add_names(d, &n->input);
    oq_buf_adds(d->out, " -> ");
    add_names(d, &n->output);
    for (size_t i = 0; i < n->attribute.n; i++) {
        oq_buf_adds(d->out, i == 0 ? " {" : ", ");
        OQ_TRY(add_attribute(d, sorted[i], err));
    }
    oq_buf_adds(d->out, n->attribute.n != 0 ? "}\n" : "\n");
    for (size_t i = 0; i < n->attribute.n; i++) {
        const oq_attribute *a = sorted[i];
        if (a->g == NULL && a->graphs.n == 0)
            continue;
        indent(d, depth + 1);
        oq_buf_add_safe(d->out, a->name);
        oq_buf_adds(d->out, ":\n");
        if (a->g != NULL)
            OQ_TRY(add_graph(d, a->g, depth + 2, err));
        for (size_t k = 0; k < a->graphs.n; k++)
            OQ_TRY(add_graph(d, a->graphs.v[k], depth + 2, err));
    }
    return ONQ_OK;
}

static onq_code add_graph(dump *d, oq_graph *g, int depth, onq_error *err) {
    if (depth > 2 * OQ_MAX_GRAPH_DEPTH)
        return oq_fail(err, ONQ_E_LIMIT, "graphs are nested more than %d deep", OQ_MAX_GRAPH_DEPTH);
    indent(d, depth);
    oq_buf_adds(d->out, "graph ");
    oq_buf_add_safe(d->out, g->name);
    oq_buf_addc(d->out, '\n');
    for (size_t i = 0; i < g->input.n; i++)
        add_info(d, "input", g->input.v[i], depth);
    for (size_t i = 0; i < g->output.n; i++)
        add_info(d, "output", g->output.v[i], depth);
    for (size_t i = 0; i < g->value_info.n; i++)
        add_info(d, "info", g->value_info.v[i], depth);
    for (size_t i = 0; i < g->initializer.n; i++)
        OQ_TRY(add_initializer(d, g->initializer.v[i], depth, err));
    for (size_t i = 0; i < g->sparse_initializer.n; i++) {
        const oq_sparse *s = g->sparse_initializer.v[i];
        indent(d, depth);
        oq_buf_adds(d->out, "init ");
        if (s->values != NULL)
            oq_buf_add_safe(d->out, s->values->name);
        oq_buf_addc(d->out, ' ');
        OQ_TRY(add_sparse(d, s, err));
        oq_buf_addc(d->out, '\n');
    }
    for (size_t i = 0; i < g->node.n; i++)
        OQ_TRY(add_node(d, g->node.v[i], depth, err));
    return ONQ_OK;
}

static void add_opset(dump *d, const oq_opset *o, int depth) {
    indent(d, depth);
    oq_buf_adds(d->out, "opset ");
    oq_buf_add_safe(d->out, o->domain.n != 0 ? o->domain : OQ_S("ai.onnx"));
    oq_buf_addf(d->out, " %lld\n", (long long)o->version.v);
}

static onq_code add_function(dump *d, const oq_function *f, onq_error *err) {
    oq_buf_adds(d->out, "function ");
    oq_buf_add_safe(d->out, f->domain);
    oq_buf_adds(d->out, "::");
    oq_buf_add_safe(d->out, f->name);
    add_names(d, &f->input);
    oq_buf_adds(d->out, " -> ");
    add_names(d, &f->output);
    oq_buf_adds(d->out, " attributes ");
    add_names(d, &f->attribute);
    oq_buf_addc(d->out, '\n');
    for (size_t i = 0; i < f->attribute_proto.n; i++) {
        oq_buf_adds(d->out, "  default ");
        OQ_TRY(add_attribute(d, f->attribute_proto.v[i], err));
        oq_buf_addc(d->out, '\n');
    }
    for (size_t i = 0; i < f->opset_import.n; i++)
        add_opset(d, f->opset_import.v[i], 1);
    for (size_t i = 0; i < f->node.n; i++)
        OQ_TRY(add_node(d, f->node.v[i], 1, err));
    return ONQ_OK;
}

static onq_code add_model(dump *d, onq_error *err) {
    const oq_model_proto *p = d->m->proto;
    oq_buf_addf(d->out, "ir_version %lld\n", (long long)p->ir_version.v);
    for (size_t i = 0; i < p->opset_import.n; i++)
        add_opset(d, p->opset_import.v[i], 0);
    for (size_t i = 0; i < p->metadata_props.n; i++) {
        oq_buf_adds(d->out, "metadata ");
        oq_buf_add_safe(d->out, p->metadata_props.v[i]->key);
        oq_buf_adds(d->out, " = ");
        oq_buf_add_safe(d->out, p->metadata_props.v[i]->value);
        oq_buf_addc(d->out, '\n');
    }
    OQ_TRY(add_graph(d, p->graph, 0, err));
    for (size_t i = 0; i < p->functions.n; i++)
        OQ_TRY(add_function(d, p->functions.v[i], err));
    for (size_t i = 0; i < p->training_info.n; i++) {
        const oq_training *t = p->training_info.v[i];
        oq_buf_adds(d->out, "training\n");
        if (t->initialization != NULL)
            OQ_TRY(add_graph(d, t->initialization, 1, err));
        if (t->algorithm != NULL)
            OQ_TRY(add_graph(d, t->algorithm, 1, err));
    }
    return ONQ_OK;
}

onq_code oq_dump_model(oq_model *m, oq_buf *out, onq_error *err) {
    dump d = {.m = m, .out = out};
    oq_arena_init(&d.arena, &m->env->alloc);
    onq_code rc = add_model(&d, err);
    oq_arena_release(&d.arena);
    if (rc == ONQ_OK && out->failed)
        rc = oq_fail_nomem(err);
    return rc;
}
