/*
 * nb_import.c — see nb_import.h.
 */
#include "quantize/nbits/nb_import.h"
#include "quantize/nbits/nb_panel.h"

#include "base/text/json.h"

#include <string.h>

/* ---- names ---- */

/* What an initializer, or the node that reads it, is called in exports, and the tensor. */
static const struct {
    const char *word, *tensor; /* without "blk.N." in front and ".weight" after it */
    bool in_layer, rotates;
    const char *heads;
} words[] = {
    {"q_proj", "attn_q", true, true, "attention.head_count"},
    {"k_proj", "attn_k", true, true, "attention.head_count_kv"},
    {"v_proj", "attn_v", true, false, NULL},
    {"o_proj", "attn_output", true, false, NULL},
    {"gate_proj", "ffn_gate", true, false, NULL},
    {"up_proj", "ffn_up", true, false, NULL},
    {"down_proj", "ffn_down", true, false, NULL},
    {"input_layernorm", "attn_norm", true, false, NULL},
    {"q_norm", "attn_q_norm", true, false, NULL},
    {"k_norm", "attn_k_norm", true, false, NULL},
    /* A norm of its own in models that have four of them in a layer, else that of the next part. */
    {"post_attention_layernorm", "post_attention_norm", true, false, NULL},
    {"post_attention_layernorm", "ffn_norm", true, false, NULL},
    {"pre_feedforward_layernorm", "ffn_norm", true, false, NULL},
    {"post_feedforward_layernorm", "post_ffw_norm", true, false, NULL},
    {"embed_tokens", "token_embd", false, false, NULL},
    {"lm_head", "output", false, false, NULL},
    {"final_norm", "output_norm", false, false, NULL},
    {"model.norm", "output_norm", false, false, NULL},
};

/* The first row from `i` on for that name; OQ_COUNT(words) when there is none. */
static size_t row_from(size_t i, oq_str name) {
    while (i < OQ_COUNT(words) && !oq_str_contains(name, oq_str_of(words[i].word)))
        i++;
    return i;
}

static uint64_t number_of(const oq_gguf *g, oq_arena *a, const char *what) {
    const oq_gguf_fact *kind = oq_gguf_fact_of(g, OQ_S("general.architecture"));
    const oq_str key = kind != NULL && kind->is_text
                           ? oq_str_format(a, "%.*s.%s", OQ_STR(kind->text), what)
                           : (oq_str){0};
    const oq_gguf_fact *f = key.p != NULL ? oq_gguf_fact_of(g, key) : NULL;
    return f != NULL && f->number >= 1 && f->number <= 65536 ? (uint64_t)f->number : 0;
}

static bool is_of(const oq_gguf *g, const char *const *families, size_t n) {
    const oq_gguf_fact *kind = oq_gguf_fact_of(g, OQ_S("general.architecture"));
    for (size_t i = 0; i < n && kind != NULL && kind->is_text; i++)
        if (oq_str_is(kind->text, families[i]))
            return true;
    return false;
}

/* Only files of these families have rows in llama.cpp's order. */
static bool rotates(const oq_gguf *g) {
    static const char *const families[] = {"llama", "granite", "granitemoe", "smollm3", "arcee"};
    return is_of(g, families, OQ_COUNT(families));
}

/* Files of these families have 1 more than the gains of their norms; a graph may add the 1. */
static bool has_gains_above(const oq_gguf *g) {
    static const char *const families[] = {"gemma", "gemma2", "gemma3"};
    return is_of(g, families, OQ_COUNT(families));
}

/* The tensor for a name by the table, or NULL. */
static const oq_gguf_tensor *by_table(const oq_nb_import *im, oq_str name, uint64_t *heads) {
    const int64_t layer = oq_nb_layer_of(name, name);
    const char *part = oq_str_contains(name, OQ_S("bias")) ? "bias" : "weight";
    const oq_gguf_tensor *t = NULL;
    size_t row = row_from(0, name), next = row;
    for (; t == NULL && next < OQ_COUNT(words); next = row_from(row + 1, name)) {
        row = next;
        if (words[row].in_layer != (layer >= 0))
            continue;
        const oq_str wanted = layer >= 0
                                  ? oq_str_format(im->arena, "blk.%lld.%s.%s", (long long)layer,
                                                  words[row].tensor, part)
                                  : oq_str_format(im->arena, "%s.%s", words[row].tensor, part);
        t = wanted.p != NULL ? oq_gguf_find(&im->file, wanted) : NULL;
    }
    if (row == OQ_COUNT(words) || words[row].in_layer != (layer >= 0))
        return NULL;
    if (t == NULL && strcmp(part, "weight") == 0 &&
        strcmp(words[row].tensor, "output") == 0) /* tied */
        t = oq_gguf_find(&im->file, OQ_S("token_embd.weight"));
    *heads = words[row].rotates && rotates(&im->file)
                 ? number_of(&im->file, im->arena, words[row].heads)
                 : 0;
    return t;
}

/* ---- values ---- */

/* The row of the file that holds row `at` of the export. */
static uint64_t row_in_file(const oq_nb_source *s, uint64_t at) {
    if (s->heads == 0)
        return at;
    const uint64_t size = s->rows / s->heads, half = size / 2, in = at % size;
    return at / size * size + in % half * 2 + in / half;
}

void oq_nb_source_read(const oq_nb_source *s, uint64_t at, uint64_t k0, uint64_t n, float *out) {
    oq_gguf_read(s->tensor, row_in_file(s, at) * s->k + k0, n, out);
}

static onq_code make_values(const oq_producer *self, uint8_t *out, onq_error *err) {
    const oq_nb_source *s = self->ctx;
    float part[256];
    for (uint64_t row = 0; row < s->rows; row++)
        for (uint64_t k = 0; k < s->k;) {
            const uint64_t n = s->k - k < OQ_COUNT(part) ? s->k - k : OQ_COUNT(part);
            oq_nb_source_read(s, row, k, n, part);
            for (uint64_t i = 0; i < n; i++) {
                const uint64_t to = s->turned ? (k + i) * s->rows + row : row * s->k + k + i;
                if (!oq_nb_put_real(s->real, out, to, (double)(part[i] - s->less)))
                    return oq_fail(err, ONQ_E_INVALID,
                                   "tensor '%.*s' of the file holds what '%.*s' cannot",
                                   OQ_STR(s->tensor->name), OQ_STR(s->name));
            }
            k += n;
        }
    return ONQ_OK;
}

/* ---- which initializers ---- */

/* Rows of the tensor are the columns of a MatMul's weight, or the rows of a table or of a weight
 * that a Transpose or Gemm turns. False: the sizes are others. */
static bool fits(const oq_tensor *t, bool is_product, oq_nb_source *s) {
    const oq_gguf_tensor *from = s->tensor;
    if (from->rank > 2 || from->rank == 0 || t->dims.n == 0 || t->dims.n > 2)
        return false;
    const bool bias = from->rank == 1 && s->heads != 0; /* its numbers are put back as rows are */
    s->k = bias ? 1 : from->dims[0];
    s->rows = bias ? from->dims[0] : from->rank == 2 ? from->dims[1] : 1;
    if (s->k == 0 || s->rows == 0 || (s->heads != 0 && s->rows % (2 * s->heads) != 0))
        return false;
    if (t->dims.n == 1)
        return (s->rows == 1 || bias) && (uint64_t)t->dims.v[0] == s->k * s->rows;
    const uint64_t a = (uint64_t)t->dims.v[0], b = (uint64_t)t->dims.v[1];
    s->turned = is_product && a == s->k && b == s->rows;
    return s->turned || (a == s->rows && b == s->k);
}

/* The first node of the graph that reads the tensor. */
static const oq_node *reader_of(const oq_graph *g, oq_str name) {
    for (size_t i = 0; i < g->node.n; i++)
        if (oq_str_among(name, g->node.v[i]->input.v, g->node.v[i]->input.n))
            return g->node.v[i];
    return NULL;
}

static onq_code take(oq_nb_import *im, oq_model *m, oq_tensor *t, const oq_gguf_tensor *from,
                     uint64_t heads, onq_error *err) {
    const oq_node *reader = reader_of(m->proto->graph, t->name);
    const bool product = reader != NULL && oq_str_is(reader->op_type, "MatMul");
    const bool gain = t->dims.n == 1 && reader != NULL && oq_str_is(reader->op_type, "Add") &&
                      oq_str_contains(from->name, OQ_S("norm.weight"));
    oq_nb_source *s = OQ_NEW(im->arena, oq_nb_source);
    OQ_TRY_ALLOC(s != NULL, err);
    *s = (oq_nb_source){.tensor = from,
                        .path = im->file.file.path,
                        .heads = heads,
                        .less = gain && has_gains_above(&im->file) ? 1.0f : 0.0f,
                        .real = (oq_dtype)t->data_type.v,
                        .name = t->name};
    OQ_TRY(oq_gguf_check_type(from, err));
    uint64_t bytes = 0;
    OQ_TRY(oq_tensor_bytes(t, &bytes, err));
    if (!fits(t, product, s))
        return oq_fail(err, ONQ_E_CONFIG,
                       "initializer '%.*s' and tensor '%.*s' of the file have other sizes",
                       OQ_STR(t->name), OQ_STR(from->name));
    s->producer = (oq_producer){.size = bytes, .make = make_values, .ctx = s};
    OQ_TRY_ALLOC(
        oq_map_put(&im->map, t->name, (uint32_t)im->all.n) && OQ_PUSH(im->arena, &im->all, s), err);
    oq_tensor_set_producer(t, &s->producer);
    im->n_taken++;
    OQ_TRY_ALLOC(oq_map_find_or_put(&im->used, from->name, 0) != OQ_MAP_NONE, err);
    return ONQ_OK;
}

/* By the map; the tensor that is called like the initializer, whose graph then has the order of the
 * file; by the table, for the initializer's name or that of the product or lookup that reads it. */
static const oq_gguf_tensor *find_tensor(const oq_nb_import *im, const oq_graph *g, json_t *names,
                                         const oq_tensor *t, uint64_t *heads) {
    const oq_str key = oq_str_copy(im->arena, t->name);
    const json_t *given = names != NULL && key.p != NULL ? json_object_get(names, key.p) : NULL;
    const oq_node *reader = reader_of(g, t->name);
    const oq_gguf_tensor *from = NULL;
    *heads = 0;
    if (given != NULL && json_is_string(given))
        return oq_gguf_find(&im->file, oq_str_of(json_string_value(given)));
    from = oq_gguf_find(&im->file, t->name);
    from = from != NULL ? from : by_table(im, t->name, heads);
    return from != NULL || reader == NULL || !oq_nb_knows(reader->op_type)
               ? from
               : by_table(im, reader->name, heads);
}

static onq_code take_all(oq_nb_import *im, oq_model *m, json_t *names, onq_error *err) {
    oq_graph *g = m->proto->graph;
    for (size_t i = 0; i < g->initializer.n; i++) {
        oq_tensor *t = g->initializer.v[i];
        const int32_t type = t->data_type.v;
        uint64_t heads = 0;
        if (type != OQ_FLOAT && type != OQ_FLOAT16 && type != OQ_BFLOAT16)
            continue;
        const oq_gguf_tensor *from = find_tensor(im, g, names, t, &heads);
        const oq_node *reader = reader_of(g, t->name);
        if (from != NULL)
            OQ_TRY(take(im, m, t, from, heads, err));
        else if (t->dims.n == 2 && reader != NULL && oq_str_is(reader->op_type, "MatMul"))
            return oq_fail(err, ONQ_E_CONFIG,
                           "the file has no tensor for weight '%.*s' (--weights_map names one)",
                           OQ_STR(t->name));
    }
    return im->n_taken > 0 ? ONQ_OK
                           : oq_fail(err, ONQ_E_CONFIG,
                                     "no initializer of the model has a name that is known "
                                     "(--weights_map gives the names of tensors)");
}

onq_code oq_nb_import_open(oq_nb_import *im, oq_model *m, const char *path, const char *names,
                           onq_error *err) {
    json_t *root = NULL;
    oq_file file;
    im->arena = &m->arena;
    oq_map_init(&im->map, im->arena);
    oq_map_init(&im->used, im->arena);
    OQ_TRY(oq_file_open(&file, &m->env->alloc, path, err));
    OQ_TRY(oq_gguf_open(&im->file, &m->env->alloc, &file, err));
    if (names != NULL)
        OQ_TRY(oq_json_read(&m->env->alloc, names, &root, err));
    oq_model_touch(m);
    onq_code rc = names != NULL && !json_is_object(root)
                      ? oq_fail(err, ONQ_E_CONFIG,
                                "%s: not an object with names of initializers "
                                "as its keys",
                                names)
                      : take_all(im, m, root, err);
    if (rc != ONQ_OK && rc != ONQ_E_NOMEM)
        rc = oq_error_in(err, rc, "%s", path);
    json_decref(root);
    return rc;
}

size_t oq_nb_import_unused(const oq_nb_import *im, oq_str *first) {
    size_t n = 0;
    for (size_t i = 0; i < im->file.tensors.n; i++)
        if (!oq_map_has(&im->used, im->file.tensors.v[i].name) && n++ == 0)
            *first = im->file.tensors.v[i].name;
    return n;
}

void oq_nb_import_close(oq_nb_import *im) {
    oq_gguf_close(&im->file);
}

const oq_nb_source *oq_nb_import_find(const oq_nb_import *im, oq_str initializer) {
    const uint32_t i = oq_map_find(&im->map, initializer);
    return i != OQ_MAP_NONE ? im->all.v[i] : NULL;
}

/* ---- blocks as they are ---- */

/* Column c of the panel. */
static void put_column(const oq_nb_task *t, oq_nb_panel *p, size_t c) {
    const oq_nb_source *s = t->from;
    uint8_t q[32];
    float scale, minimum;
    const uint64_t row = row_in_file(s, p->n0 + c);
    oq_gguf_block(s->tensor, row * (s->k / 32) + p->b, q, &scale, &minimum);
    for (size_t r = 0; r < 32; r++)
        p->q[r * OQ_NB_TILE + c] = q[r];
    /* A block of one value: its integers are 0, and any scale is right. */
    p->scale[c] = scale != 0.0f ? (double)scale : 1.0;
    p->zero[c] = (float)(-(double)minimum / p->scale[c]);
    if (t->zero == OQ_NB_ZERO_NONE)
        p->scale[c] = (double)scale;
}

static onq_code put_blocks(const oq_nb_task *t, const oq_nb_sink *s, onq_error *err) {
    oq_nb_panel p;
    onq_code rc = ONQ_OK;
    assert(t->from != NULL && t->block == 32 && t->k % 32 == 0 && t->batch == 1);
    OQ_TRY(oq_nb_panel_init(&p, t, err));
    for (uint64_t n = 0; n < t->n && rc == ONQ_OK; n += OQ_NB_TILE)
        for (uint64_t b = 0; b < t->blocks && rc == ONQ_OK; b++) {
            rc = oq_nb_load(t, &p, 0, b, n, err);
            for (size_t c = 0; c < p.cols && rc == ONQ_OK; c++)
                put_column(t, &p, c);
            if (rc == ONQ_OK)
                rc = oq_nb_put(s, &p, err);
        }
    oq_nb_panel_release(&p, t);
    return rc;
}

static const oq_nb_method as_is[] = {
    {.name = "gguf", .bits = 1u << 4 | 1u << 8, .has_gather = true, .quantize = put_blocks},
    {.name = "gguf", .bits = 1u << 4 | 1u << 8, .real_zero = true, .quantize = put_blocks},
};

/* The types whose weights keep what they are: in blocks, or rounded so finely that it does not
 * matter. MatMulNBits has no 5 or 6 bits. */
static const struct {
    oq_gguf_type type;
    unsigned bits;
    const oq_nb_method *method; /* NULL: that which is asked for */
} kept[] = {
    {OQ_GGUF_Q4_0, 4, &as_is[0]}, {OQ_GGUF_Q4_1, 4, &as_is[1]}, {OQ_GGUF_Q4_K, 4, &as_is[1]},
    {OQ_GGUF_Q5_0, 8, &as_is[0]}, {OQ_GGUF_Q5_1, 8, &as_is[1]}, {OQ_GGUF_Q5_K, 8, &as_is[1]},
    {OQ_GGUF_Q6_K, 8, NULL},      {OQ_GGUF_Q8_0, 8, &as_is[0]},
};

const oq_nb_method *oq_nb_import_method(const oq_nb_source *s, unsigned *bits) {
    for (size_t i = 0; i < OQ_COUNT(kept); i++)
        if (s->tensor->type == (uint32_t)kept[i].type) {
            *bits = kept[i].bits;
            return s->k % 32 == 0 ? kept[i].method : NULL;
        }
    return NULL;
}
