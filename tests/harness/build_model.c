/*
 * build_model.c — see build_model.h.
 */
#include "build_model.h"

#include "flaky_alloc.h"

#include "testing.h"

#include <ctype.h>
#include <stdio.h>

/* Out of memory is the test's business when it brought its own allocator. */
static void give_up(bm *b) {
    if (b->strict)
        fail_msg("out of memory");
    b->failed = true;
}

static void *need(bm *b, void *p) {
    if (p == NULL)
        give_up(b);
    return p;
}

static void need_true(bm *b, bool ok) {
    if (!ok)
        give_up(b);
}

void bm_begin(bm *b, const onq_allocator *alloc, int64_t opset) {
    *b = (bm){.strict = alloc == NULL};
    b->env = onq_env_new(alloc);
    if (b->env == NULL) {
        give_up(b);
        return;
    }
    onq_error err = ONQ_ERROR_INIT;
    if (oq_model_new(b->env, 8, opset, &b->m, &err) != ONQ_OK) {
        assert_int_equal(err.code, ONQ_E_NOMEM);
        give_up(b);
        return;
    }
    b->g = b->m->proto->graph;
    b->a = &b->m->arena;
    b->g->name = OQ_S("test");
}

void bm_on(bm *b, oq_model *m) {
    *b = (bm){.strict = true, .m = m, .g = m->proto->graph, .a = &m->arena};
}

void bm_end(bm *b) {
    if (b->env != NULL) {
        oq_model_free(b->m);
        onq_env_free(b->env);
    }
    *b = (bm){0};
}

typedef struct sweep {
    int64_t opset;
    bm_fill *fill;
    bm_work *work;
    void *ctx;
} sweep;

void bm_give(bm *b) {
    onq_error err = ONQ_ERROR_INIT;
    const onq_allocator *a = &b->env->alloc;
    oq_buf bytes;
    flaky_calm(a);
    oq_buf_init(&bytes, a);
    assert_ok(oq_model_encode(b->m, &bytes, &err), err);
    flaky_give(a, bytes.p, bytes.n);
    oq_buf_release(&bytes);
}

static onq_code sweep_body(const onq_allocator *a, void *ctx, onq_error *err) {
    const sweep *s = ctx;
    bm b;
    bm_begin(&b, a, s->opset);
    if (!b.failed)
        s->fill(&b);
    const onq_code rc = b.failed ? oq_fail_nomem(err) : s->work(&b, s->ctx, err);
    if (rc == ONQ_OK)
        bm_give(&b);
    bm_end(&b);
    return rc;
}

size_t bm_sweep(int64_t opset, bm_fill *fill, bm_work *work, void *ctx) {
    sweep s = {opset, fill, work, ctx};
    return flaky_sweep(sweep_body, &s);
}

oq_str bm_str(bm *b, const char *text) {
    const oq_str none = {NULL, 0};
    if (b->failed || text == NULL)
        return none;
    char *copy = need(b, oq_arena_strdup(b->a, text, strlen(text)));
    return copy != NULL ? oq_str_of(copy) : none;
}

/* ---- lists in text ---- */

/* The next piece of *text up to `separator`, without spaces around; false at the end. */
static bool next_piece(const char **text, char separator, char *out, size_t size) {
    const char *p = *text;
    if (p == NULL || *p == '\0')
        return false;
    const char *end = strchr(p, separator);
    const size_t n = end != NULL ? (size_t)(end - p) : strlen(p);
    assert_true(n < size);
    memcpy(out, p, n);
    out[n] = '\0';
    *text = end != NULL ? end + 1 : p + n;
    return true;
}

static size_t parse_dims(const char *shape, int64_t dims[16]) {
    char piece[128];
    size_t rank = 0;
    while (next_piece(&shape, ',', piece, sizeof piece)) {
        assert_true(rank < 16);
        dims[rank++] = isdigit((unsigned char)piece[0]) || piece[0] == '-' ? atoll(piece) : -1;
    }
    return rank;
}

static oq_value_info *make_info(bm *b, const char *name, int type, const char *shape) {
    int64_t dims[16];
    const size_t rank = parse_dims(shape, dims);
    const oq_str text = bm_str(b, name);
    if (b->failed)
        return NULL;
    oq_value_info *info = need(b, oq_value_info_new(b->a, text, type, dims, rank, shape != NULL));
    char piece[128];
    for (size_t i = 0; info != NULL && next_piece(&shape, ',', piece, sizeof piece); i++)
        if (dims[i] < 0 && strcmp(piece, "?") != 0)
            info->type->tensor_type->shape->dim.v[i]->dim_param = bm_str(b, piece);
    return info;
}

oq_value_info *bm_input(bm *b, const char *name, int type, const char *shape) {
    oq_value_info *info = make_info(b, name, type, shape);
    if (info != NULL)
        need_true(b, OQ_PUSH(b->a, &b->g->input, info));
    return info;
}

oq_value_info *bm_output(bm *b, const char *name, int type, const char *shape) {
    oq_value_info *info = make_info(b, name, type, shape);
    if (info != NULL)
        need_true(b, OQ_PUSH(b->a, &b->g->output, info));
    return info;
}

oq_value_info *bm_info(bm *b, const char *name, int type, const char *shape) {
    oq_value_info *info = make_info(b, name, type, shape);
    if (info != NULL)
        need_true(b, OQ_PUSH(b->a, &b->g->value_info, info));
    return info;
}

/* ---- attributes ---- */

static bool is_real(const char *value) {
    return strpbrk(value, ".eEn") != NULL;
}

/* The library sets no list of floats, so that it has no function for it. */
static void set_floats(bm *b, oq_node *n, oq_str name, const double *v, size_t count) {
    need_true(b, oq_attr_set_ints(b->a, n, name, NULL, 0));
    if (b->failed)
        return;
    oq_attribute *attr = oq_attr_find(n, name.p);
    attr->type = OQ_I32(OQ_ATTR_FLOATS);
    for (size_t i = 0; i < count; i++)
        need_true(b, OQ_PUSH(b->a, &attr->floats, (float)v[i]));
}

static void set_list(bm *b, oq_node *n, oq_str name, const char *value) {
    double v[256];
    size_t count = 0;
    const bool real = is_real(value);
    char *text = strdup(value + 1);
    assert_non_null(text);
    char *close = strchr(text, ']');
    assert_non_null(close);
    *close = '\0';
    const char *rest = text;
    char piece[64];
    while (next_piece(&rest, ',', piece, sizeof piece)) {
        assert_true(count < 256);
        v[count++] = atof(piece);
    }
    free(text);
    int64_t ints[256];
    for (size_t i = 0; i < count; i++)
        ints[i] = (int64_t)v[i];
    if (real)
        set_floats(b, n, name, v, count);
    else
        need_true(b, oq_attr_set_ints(b->a, n, name, ints, count));
}

static void set_attribute(bm *b, oq_node *n, const char *key, const char *value) {
    const oq_str name = bm_str(b, key);
    if (b->failed)
        return;
    if (value[0] == '[') {
        set_list(b, n, name, value);
    } else if (value[0] == '\'') {
        oq_str text = bm_str(b, value + 1);
        if (b->failed)
            return;
        assert_true(text.n > 0 && text.p[text.n - 1] == '\'');
        text.n--;
        need_true(b, oq_attr_set_str(b->a, n, name, text));
    } else if (is_real(value)) {
        need_true(b, oq_attr_set_float(b->a, n, name, (float)atof(value)));
    } else {
        need_true(b, oq_attr_set_int(b->a, n, name, atoll(value)));
    }
}

void bm_attributes(bm *b, oq_node *n, const char *attributes) {
    char piece[1024];
    while (!b->failed && next_piece(&attributes, ' ', piece, sizeof piece)) {
        if (piece[0] == '\0')
            continue;
        char *equals = strchr(piece, '=');
        assert_non_null(equals);
        *equals = '\0';
        set_attribute(b, n, piece, equals + 1);
    }
}

/* ---- nodes ---- */

static bool is_omitted(const char *piece) {
    return strcmp(piece, "_") == 0;
}

oq_node *bm_node(bm *b, const char *op, const char *name, const char *in, const char *out,
                 const char *attributes) {
    const oq_str op_text = bm_str(b, op), name_text = bm_str(b, name);
    if (b->failed)
        return NULL;
    oq_node *n = need(b, oq_node_new(b->a, op_text.p, name_text));
    char piece[256];
    while (!b->failed && next_piece(&in, ' ', piece, sizeof piece)) {
        const oq_str text = bm_str(b, is_omitted(piece) ? "" : piece);
        need_true(b, !b->failed && oq_node_add_input(b->a, n, text));
    }
    while (!b->failed && next_piece(&out, ' ', piece, sizeof piece)) {
        const oq_str text = bm_str(b, is_omitted(piece) ? "" : piece);
        need_true(b, !b->failed && oq_node_add_output(b->a, n, text));
    }
    if (!b->failed)
        bm_attributes(b, n, attributes);
    if (!b->failed)
        need_true(b, oq_graph_add_node(b->a, b->g, n));
    return b->failed ? NULL : n;
}

oq_graph *bm_enter(bm *b, oq_node *n, const char *attribute) {
    oq_graph *around = b->g;
    const oq_str name = bm_str(b, attribute);
    if (b->failed)
        return around;
    oq_attribute *attr = need(b, OQ_NEW(b->a, oq_attribute));
    oq_graph *g = need(b, OQ_NEW(b->a, oq_graph));
    if (b->failed)
        return around;
    attr->name = name;
    attr->type = OQ_I32(OQ_ATTR_GRAPH);
    attr->g = g;
    g->name = name;
    need_true(b, OQ_PUSH(b->a, &n->attribute, attr));
    b->g = g;
    return around;
}

void bm_leave(bm *b, oq_graph *around) {
    b->g = around;
}

oq_node *bm_find_node(const bm *b, const char *name) {
    for (size_t i = 0; i < b->g->node.n; i++)
        if (oq_str_is(b->g->node.v[i]->name, name))
            return b->g->node.v[i];
    return NULL;
}

const char *bm_order(const oq_graph *g, char *out, size_t n) {
    size_t used = 0;
    out[0] = '\0';
    for (size_t i = 0; i < g->node.n; i++) {
        const oq_str name = g->node.v[i]->name;
        assert_true(used + name.n + 2 < n);
        if (i != 0)
            out[used++] = ' ';
        memcpy(out + used, name.p, name.n);
        used += name.n;
        out[used] = '\0';
    }
    return out;
}

/* ---- initializers ---- */

oq_tensor *bm_tensor(bm *b, const char *name, int type, const char *shape, const void *p,
                     size_t n) {
    int64_t dims[16];
    const size_t rank = parse_dims(shape, dims);
    const oq_str text = bm_str(b, name);
    if (b->failed)
        return NULL;
    oq_tensor *t = need(b, oq_tensor_new(b->a, text, (oq_dtype)type, dims, rank));
    if (t == NULL)
        return NULL;
    onq_error err = ONQ_ERROR_INIT;
    if (oq_tensor_set_raw(b->a, t, p, n, &err) != ONQ_OK) {
        assert_int_equal(err.code, ONQ_E_NOMEM);
        give_up(b);
        return NULL;
    }
    return t;
}

oq_tensor *bm_raw(bm *b, const char *name, int type, const char *shape, const void *p, size_t n) {
    oq_tensor *t = bm_tensor(b, name, type, shape, p, n);
    if (t != NULL)
        need_true(b, oq_graph_add_init(b->a, b->g, t));
    return t;
}

static size_t count_of(const char *shape) {
    int64_t dims[16];
    const size_t rank = parse_dims(shape, dims);
    size_t count = 1;
    for (size_t i = 0; i < rank; i++)
        count *= (size_t)dims[i];
    return count;
}

oq_tensor *bm_f32(bm *b, const char *name, const char *shape, const float *v) {
    return bm_raw(b, name, OQ_FLOAT, shape, v, count_of(shape) * sizeof *v);
}

oq_tensor *bm_i64(bm *b, const char *name, const char *shape, const int64_t *v) {
    return bm_raw(b, name, OQ_INT64, shape, v, count_of(shape) * sizeof *v);
}

oq_tensor *bm_weight(bm *b, const char *name, const char *shape, unsigned seed) {
    const size_t count = count_of(shape);
    float *v = malloc(count * sizeof *v + 1);
    assert_non_null(v);
    uint32_t state = seed * 2654435761u + 12345u;
    for (size_t i = 0; i < count; i++) {
        state = state * 1664525u + 1013904223u;
        v[i] = (float)(int32_t)(state >> 8) / 8388608.0f - 1.0f;
    }
    oq_tensor *t = bm_f32(b, name, shape, v);
    free(v);
    return t;
}

void bm_grouped(bm *b) {
    const int64_t words = 40, one = 1, two = 2;
    bm_input(b, "input_ids", OQ_INT64, "1,length");
    bm_input(b, "past_key_values.0.key", OQ_FLOAT, "1,1,past,16");
    bm_input(b, "past_key_values.0.value", OQ_FLOAT, "1,1,past,16");
    bm_weight(b, "words", "40,16", 1);
    bm_weight(b, "wq", "16,16", 2);
    bm_weight(b, "wk", "16,16", 3);
    bm_weight(b, "wv", "16,16", 4);
    bm_weight(b, "wl", "16,40", 5);
    bm_i64(b, "n_words", "", &words);
    bm_i64(b, "one", "1", &one);
    bm_i64(b, "two", "1", &two);
    bm_node(b, "Mod", "fold", "input_ids n_words", "ids", NULL);
    bm_node(b, "Gather", "look", "words ids", "e", NULL);
    bm_node(b, "MatMul", "query", "e wq", "q", NULL);
    bm_node(b, "MatMul", "key", "e wk", "k", NULL);
    bm_node(b, "MatMul", "value", "e wv", "v", NULL);
    bm_node(b, "Shape", "sizes", "input_ids", "ids_shape", NULL);
    bm_node(b, "Gather", "count", "ids_shape one", "new", NULL);
    bm_node(b, "Shape", "past_sizes", "past_key_values.0.key", "past_shape", NULL);
    bm_node(b, "Gather", "past_count", "past_shape two", "old", NULL);
    bm_node(b, "Add", "both", "old new", "all", NULL);
    bm_node(b, "Sub", "last", "all one", "all_but_one", NULL);
    bm_node(b, "Cast", "lengths", "all_but_one", "seqlens", "to=6");
    bm_node(b, "Squeeze", "scalar", "all", "all_0", NULL);
    bm_node(b, "Cast", "length", "all_0", "total", "to=6");
    oq_node *n = bm_node(b, "GroupQueryAttention", "attn",
                         "q k v past_key_values.0.key past_key_values.0.value seqlens total",
                         "c present.0.key present.0.value", "num_heads=1 kv_num_heads=1");
    if (n != NULL)
        n->domain = OQ_S("com.microsoft");
    onq_error err;
    b->failed |= oq_model_set_opset(b->m, OQ_S("com.microsoft"), 1, &err) != ONQ_OK;
    bm_node(b, "Add", "sum", "e c", "y", NULL);
    bm_node(b, "MatMul", "head", "y wl", "logits", NULL);
    bm_output(b, "logits", OQ_FLOAT, "1,length,40");
    bm_output(b, "present.0.key", OQ_FLOAT, "1,1,total,16");
    bm_output(b, "present.0.value", OQ_FLOAT, "1,1,total,16");
}
