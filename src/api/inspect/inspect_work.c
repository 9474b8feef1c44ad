/*
 * inspect_work.c — what a model costs, for `onq inspect`: its work, its largest weights, the memory
 * of its activations, and lists of its nodes and tensors. The counting is quantize/cost/profile.c.
 */
#include "api/inspect/inspect.h"

#include "onnx/graph.h"
#include "onnx/tensor.h"

#define WEIGHTS_TOLD 5  /* in the text */
#define WEIGHTS_KEPT 20 /* in the JSON */
#define NAME_COLUMN  60 /* a longer name moves the columns after it */

/* ---- small texts ---- */

const char *oq_inspect_number(char b[32], uint64_t v) {
    char digits[24];
    const int n = snprintf(digits, sizeof digits, "%llu", (unsigned long long)v);
    int w = 0;
    for (int i = 0; i < n; i++) {
        if (i > 0 && (n - i) % 3 == 0)
            b[w++] = ',';
        b[w++] = digits[i];
    }
    assert(w < 32);
    b[w] = '\0';
    return b;
}

/* A number below 1000 with a unit of powers of 1000. */
static const char *scaled(char b[32], double v, const char *const *units, size_t n_units) {
    size_t u = 0;
    for (; v >= 999.95 && u + 1 < n_units; u++)
        v /= 1000;
    snprintf(b, 32, "%.*f%s%s", u > 0 ? 1 : 0, v, units[u][0] != '\0' ? " " : "", units[u]);
    return b;
}

const char *oq_inspect_bytes(char b[32], uint64_t v) {
    static const char *const units[] = {"bytes", "kB", "MB", "GB", "TB", "PB", "EB"};
    return v == 1 ? "1 byte" : scaled(b, (double)v, units, OQ_COUNT(units));
}

static const char *macs_text(char b[32], double v) {
    static const char *const units[] = {"", "thousand", "million", "billion", "trillion"};
    return scaled(b, v, units, OQ_COUNT(units));
}

void oq_inspect_name(oq_buf *b, oq_str s) {
    const size_t most = 200;
    oq_buf_add_safe(b, (oq_str){s.p, s.n > most ? most : s.n});
    if (s.n > most)
        oq_buf_adds(b, "...");
}

/* Counts are whole; one beyond all reason is what a float makes of it. */
static void whole_json(oq_jw *w, const char *key, double v) {
    if (v >= 0 && v < 9e15)
        oq_jw_uint(w, key, (uint64_t)v);
    else
        oq_jw_real(w, key, v);
}

static uint64_t whole(double v) {
    return v > 0 && v < 1.8e19 ? (uint64_t)v : 0;
}

/* ---- work ---- */

/* Work of float nodes by operator, the most first. */
typedef struct op_work {
    oq_str op;
    uint64_t nodes;
    double macs;
} op_work;
typedef OQ_VEC(op_work) op_works;

static int by_macs(const void *x, const void *y) {
    const op_work *a = x, *b = y;
    if (a->macs != b->macs)
        return a->macs > b->macs ? -1 : 1;
    return oq_str_cmp(a->op, b->op);
}

static bool float_work(oq_arena *a, const oq_profile *p, op_works *out) {
    oq_map ops;
    oq_map_init(&ops, a);
    for (size_t i = 0; i < p->nodes.n; i++) {
        const oq_profile_node *n = &p->nodes.v[i];
        if (n->compute != OQ_COMPUTE_FLOAT)
            continue;
        uint32_t at = oq_map_find(&ops, n->node->op_type);
        if (at == OQ_MAP_NONE) {
            const op_work fresh = {.op = n->node->op_type};
            at = (uint32_t)out->n;
            if (!oq_map_put(&ops, fresh.op, at) || !OQ_PUSH(a, out, fresh))
                return false;
        }
        assert(out->v != NULL); /* what the map has was pushed */
        out->v[at].nodes++;
        out->v[at].macs += n->macs;
    }
    if (out->n > 1)
        qsort(out->v, out->n, sizeof *out->v, by_macs);
    return true;
}

static void work_text(oq_buf *t, const oq_profile *p, const op_works *ops) {
    char b[32];
    const double whole_work = p->all_macs, left = p->macs[OQ_COMPUTE_FLOAT];
    const double integers = p->macs[OQ_COMPUTE_QDQ] + p->macs[OQ_COMPUTE_INTEGER];
    const double weights = p->macs[OQ_COMPUTE_WEIGHT_ONLY];
    oq_buf_adds(t, "work: ");
    if (!(whole_work > 0)) {
        oq_buf_adds(t, p->n_unknown > 0
                           ? "not known: the sizes of its products are not\n"
                           : "no products (Conv, MatMul, Gemm, recurrent operators)\n");
        return;
    }
    oq_buf_addf(t, "%s multiply-accumulates", macs_text(b, whole_work));
    for (size_t i = 0; i < p->dims.n && i < 6; i++) {
        oq_buf_adds(t, i == 0 ? " for " : ", ");
        oq_inspect_name(t, p->dims.v[i].name);
        oq_buf_addf(t, "=%lld", (long long)p->dims.v[i].value);
    }
    if (integers + weights <= 0) {
        oq_buf_adds(t, ", all in float\n");
    } else {
        oq_buf_addf(t, ": %.1f %% in integers", 100 * integers / whole_work);
        if (weights > 0)
            oq_buf_addf(t, ", %.1f %% with quantized weights only", 100 * weights / whole_work);
        oq_buf_addf(t, ", %.1f %% in float\n", 100 * left / whole_work);
        for (size_t i = 0; left > 0 && i < ops->n && i < 5 && ops->v[i].macs > 0; i++) {
            oq_buf_adds(t, i == 0 ? "  float: " : ", ");
            oq_inspect_name(t, ops->v[i].op);
            oq_buf_addf(t, " %llu (%.1f %%)", (unsigned long long)ops->v[i].nodes,
                        100 * ops->v[i].macs / whole_work);
        }
        oq_buf_adds(t, left > 0 ? "\n" : "");
    }
    if (p->n_unknown > 0)
        oq_buf_addf(t, "  of %llu products not all sizes are known: what is not counts as 1\n",
                    (unsigned long long)p->n_unknown);
}

static void memory_text(oq_buf *t, const oq_profile *p) {
    char b[32];
    if (!(p->peak > 0))
        return;
    oq_buf_addf(t, "activations: at most %s at once, at ", oq_inspect_bytes(b, whole(p->peak)));
    oq_inspect_name(t, p->peak_at);
    if (p->n_unsized > 0)
        oq_buf_addf(t, " (without %llu of unknown size)", (unsigned long long)p->n_unsized);
    oq_buf_addc(t, '\n');
}

static void work_json(oq_jw *w, const oq_profile *p, const op_works *ops) {
    oq_jw_begin_object(w, "work");
    oq_jw_begin_object(w, "dims");
    for (size_t i = 0; i < p->dims.n; i++) {
        oq_jw_key(w, p->dims.v[i].name);
        oq_jw_int(w, NULL, p->dims.v[i].value);
    }
    oq_jw_end_object(w);
    whole_json(w, "macs", p->all_macs);
    whole_json(w, "integer", p->macs[OQ_COMPUTE_QDQ] + p->macs[OQ_COMPUTE_INTEGER]);
    whole_json(w, "weight_only", p->macs[OQ_COMPUTE_WEIGHT_ONLY]);
    whole_json(w, "float", p->macs[OQ_COMPUTE_FLOAT]);
    oq_jw_uint(w, "unknown", p->n_unknown);
    oq_jw_begin_array(w, "float_operators");
    for (size_t i = 0; i < ops->n; i++) {
        oq_jw_begin_object(w, NULL);
        oq_jw_str(w, "op_type", ops->v[i].op);
        oq_jw_uint(w, "nodes", ops->v[i].nodes);
        whole_json(w, "macs", ops->v[i].macs);
        oq_jw_end_object(w);
    }
    oq_jw_end_array(w);
    oq_jw_end_object(w);
    oq_jw_begin_object(w, "activation_memory");
    whole_json(w, "peak", p->peak);
    oq_jw_str(w, "node", p->peak_at);
    oq_jw_uint(w, "unknown", p->n_unsized);
    oq_jw_end_object(w);
}

void oq_inspect_work(oq_job *job, const oq_profile *p) {
    op_works ops = {0};
    job->text.failed |= !float_work(&job->arena, p, &ops);
    work_text(&job->text, p, &ops);
    memory_text(&job->text, p);
    work_json(&job->json, p, &ops);
}

/* ---- the largest weights ---- */

typedef struct heavy {
    const oq_profile_value *value;
    uint64_t bytes;
    const oq_node *reader; /* the first, a pair looked through; or NULL */
} heavy;

static int by_bytes(const void *x, const void *y) {
    const heavy *a = x, *b = y;
    if (a->bytes != b->bytes)
        return a->bytes > b->bytes ? -1 : 1;
    return a->value < b->value ? -1 : a->value > b->value;
}

/* The first node that reads each value; a value that is only converted has the reader of what comes
 * out of it. */
static const oq_node **first_readers(oq_arena *a, const oq_profile *p) {
    const oq_node **of = OQ_NEW_ARRAY(a, const oq_node *, p->values.n + 1);
    for (size_t i = p->nodes.n; of != NULL && i-- > 0;) {
        const oq_profile_node *n = &p->nodes.v[i];
        const bool convert = n->compute == OQ_COMPUTE_CONVERT && n->node->output.n > 0 &&
                             n->outputs[0] != OQ_PROFILE_NONE;
        assert(!convert || n->outputs[0] < p->values.n);
        const oq_node *reader = convert ? of[n->outputs[0]] : n->node;
        for (size_t k = 0; k < n->node->input.n; k++)
            if (n->inputs[k] != OQ_PROFILE_NONE && (k == 0 || !convert))
                of[n->inputs[k]] = reader;
    }
    return of;
}

onq_code oq_inspect_weights(oq_job *job, const oq_profile *p, onq_error *err) {
    OQ_VEC(heavy) all = {0};
    char b[32];
    const oq_node **readers = first_readers(&job->arena, p);
    OQ_TRY_ALLOC(readers != NULL, err);
    for (size_t i = 0; i < p->values.n; i++) {
        heavy h = {.value = &p->values.v[i], .reader = readers[i]};
        if (h.value->constant == NULL ||
            oq_tensor_bytes(h.value->constant, &h.bytes, NULL) != ONQ_OK)
            continue;
        OQ_TRY_ALLOC(OQ_PUSH(&job->arena, &all, h), err);
    }
    if (all.n > 1)
        qsort(all.v, all.n, sizeof *all.v, by_bytes);
    oq_jw_begin_array(&job->json, "largest_weights");
    for (size_t i = 0; i < all.n && i < WEIGHTS_KEPT; i++) {
        const heavy *h = &all.v[i];
        oq_jw_begin_object(&job->json, NULL);
        oq_jw_str(&job->json, "name", h->value->name);
        oq_jw_str(&job->json, "type", h->value->type);
        oq_jw_uint(&job->json, "bytes", h->bytes);
        if (h->reader != NULL) {
            oq_jw_str(&job->json, "op_type", h->reader->op_type);
            oq_jw_str(&job->json, "node", oq_node_label(h->reader));
        }
        oq_jw_end_object(&job->json);
        if (i >= WEIGHTS_TOLD)
            continue;
        oq_buf_adds(&job->text, i == 0 ? "  largest: " : "           ");
        oq_inspect_name(&job->text, h->value->name);
        oq_buf_adds(&job->text, "  ");
        oq_inspect_name(&job->text, h->value->type);
        oq_buf_addf(&job->text, "  %s", oq_inspect_bytes(b, h->bytes));
        oq_buf_adds(&job->text, h->reader != NULL ? "  " : "");
        oq_inspect_name(&job->text, h->reader != NULL ? h->reader->op_type : OQ_S(""));
        oq_buf_addc(&job->text, '\n');
    }
    oq_jw_end_array(&job->json);
    return ONQ_OK;
}

/* ---- lists ---- */

/* Columns of text: pads what was added since `from` to a width. */
static void pad(oq_buf *b, size_t from, size_t width) {
    while (b->n - from < width && !b->failed)
        oq_buf_addc(b, ' ');
    oq_buf_adds(b, "  ");
}

static size_t wider(size_t width, oq_str name) {
    return name.n <= width ? width : name.n > NAME_COLUMN ? NAME_COLUMN : name.n;
}

static void column(oq_buf *b, oq_str s, size_t width) {
    const size_t from = b->n;
    oq_buf_add_safe(b, s);
    pad(b, from, width);
}

static void names_json(oq_jw *w, const char *key, const oq_str *v, size_t n) {
    oq_jw_begin_array(w, key);
    for (size_t i = 0; i < n; i++)
        oq_jw_str(w, NULL, v[i]);
    oq_jw_end_array(w);
}

static void node_json(oq_jw *w, const oq_profile_node *n) {
    oq_jw_begin_object(w, NULL);
    oq_jw_str(w, "name", n->node->name);
    oq_jw_str(w, "op_type", n->node->op_type);
    oq_jw_str(w, "domain", n->node->domain);
    oq_jw_uint(w, "graph", n->graph);
    oq_jw_cstr(w, "computes", oq_compute_name(n->compute));
    whole_json(w, "macs", n->macs);
    whole_json(w, "weight_bytes", n->weights);
    names_json(w, "inputs", n->node->input.v, n->node->input.n);
    names_json(w, "outputs", n->node->output.v, n->node->output.n);
    oq_jw_end_object(w);
}

void oq_inspect_nodes(oq_job *job, const oq_profile *p) {
    oq_buf *t = &job->text;
    size_t name = 4, op = 8;
    char b[32];
    for (size_t i = 0; i < p->nodes.n; i++) {
        name = wider(name, oq_node_label(p->nodes.v[i].node));
        op = wider(op, p->nodes.v[i].node->op_type);
    }
    column(t, OQ_S("node"), name);
    column(t, OQ_S("operator"), op);
    oq_buf_addf(t, "%-13s  %14s  %10s  %s\n", "computes", "MACs", "weights", "output");
    oq_jw_begin_array(&job->json, "node_list");
    for (size_t i = 0; i < p->nodes.n; i++) {
        const oq_profile_node *n = &p->nodes.v[i];
        const uint32_t out = n->node->output.n > 0 ? n->outputs[0] : OQ_PROFILE_NONE;
        column(t, oq_node_label(n->node), name);
        column(t, n->node->op_type, op);
        oq_buf_addf(t, "%-13s  %14s", oq_compute_name(n->compute),
                    n->macs > 0 ? oq_inspect_number(b, whole(n->macs)) : "-");
        oq_buf_addf(t, "  %10s  ", n->weights > 0 ? oq_inspect_bytes(b, whole(n->weights)) : "-");
        oq_buf_add_safe(t, out != OQ_PROFILE_NONE ? p->values.v[out].type : OQ_S("-"));
        oq_buf_addc(t, '\n');
        node_json(&job->json, n);
    }
    oq_jw_end_array(&job->json);
}

static const char *kind_of(const oq_profile_value *v) {
    return v->constant != NULL ? "constant"
           : v->is_input       ? "input"
           : v->is_output      ? "output"
                               : "activation";
}

static void quantization_text(oq_buf *t, const oq_profile_value *v) {
    if (v->quantized == 0) {
        oq_buf_addc(t, '-');
        return;
    }
    oq_buf_addf(t, "%s %s", oq_dtype_name(v->quantized), oq_granularity_name(v->granularity));
    if (v->granularity == OQ_PER_TENSOR && v->scale.n > 0)
        oq_buf_addf(t, ", scale %.*s, zero point %.*s", OQ_STR(v->scale),
                    OQ_STR(v->zero.n > 0 ? v->zero : OQ_S("0")));
    if (v->granularity != OQ_PER_TENSOR)
        oq_buf_addf(t, ", axis %lld", (long long)v->axis);
    if (v->granularity == OQ_PER_BLOCK)
        oq_buf_addf(t, ", blocks of %lld", (long long)v->block_size);
}

static void quantization_json(oq_jw *w, const oq_profile_value *v) {
    if (v->quantized == 0)
        return;
    oq_jw_begin_object(w, "quantization");
    oq_jw_cstr(w, "type", oq_dtype_name(v->quantized));
    oq_jw_cstr(w, "granularity", oq_granularity_name(v->granularity));
    if (v->scale.n > 0)
        oq_jw_str(w, "scale", v->scale);
    if (v->zero.n > 0)
        oq_jw_str(w, "zero_point", v->zero);
    if (v->granularity != OQ_PER_TENSOR)
        oq_jw_int(w, "axis", v->axis);
    if (v->block_size > 0)
        oq_jw_int(w, "block_size", v->block_size);
    oq_jw_end_object(w);
}

static double size_of(const oq_profile_value *v) {
    uint64_t bytes = 0;
    if (v->constant != NULL && oq_tensor_bytes(v->constant, &bytes, NULL) == ONQ_OK)
        return (double)bytes;
    return v->bytes;
}

void oq_inspect_tensors(oq_job *job, const oq_profile *p) {
    oq_buf *t = &job->text;
    size_t name = 6, type = 4;
    char b[32];
    for (size_t i = 0; i < p->values.n; i++) {
        name = wider(name, p->values.v[i].name);
        type = wider(type, p->values.v[i].type);
    }
    oq_buf_adds(t, t->n > 0 ? "\n" : "");
    column(t, OQ_S("tensor"), name);
    oq_buf_addf(t, "%-10s  ", "kind");
    column(t, OQ_S("type"), type);
    oq_buf_addf(t, "%11s  %s\n", "size", "quantized");
    oq_jw_begin_array(&job->json, "tensor_list");
    for (size_t i = 0; i < p->values.n; i++) {
        const oq_profile_value *v = &p->values.v[i];
        const double size = size_of(v);
        column(t, v->name, name);
        oq_buf_addf(t, "%-10s  ", kind_of(v));
        column(t, v->type, type);
        oq_buf_addf(t, "%11s  ", size > 0 ? oq_inspect_bytes(b, whole(size)) : "-");
        quantization_text(t, v);
        oq_buf_addc(t, '\n');
        oq_jw_begin_object(&job->json, NULL);
        oq_jw_str(&job->json, "name", v->name);
        oq_jw_uint(&job->json, "graph", v->graph);
        oq_jw_cstr(&job->json, "kind", kind_of(v));
        oq_jw_str(&job->json, "type", v->type);
        whole_json(&job->json, "bytes", size);
        quantization_json(&job->json, v);
        oq_jw_end_object(&job->json);
    }
    oq_jw_end_array(&job->json);
}
