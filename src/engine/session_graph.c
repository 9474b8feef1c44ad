/*
 * session_graph.c — see session_graph.h: clone, rewrite, put payloads outside, encode.
 */
#include "engine/session_graph.h"

#include "onnx/check/check.h"
#include "onnx/codec/schema.h"
#include "onnx/graph.h"
#include "onnx/operators.h"
#include "onnx/tensor.h"

/* Smaller payloads stay in the graph: shape inference in the runtime reads them there. */
#define MIN_OUTSIDE 4096
/* What a protobuf message may have. */
#define MAX_MESSAGE INT32_MAX

/* A file that holds payloads, with the path the runtime will open. */
typedef struct payload_file {
    const oq_file *file;
    const char *real; /* absolute, no links; NULL: cannot be opened by path */
} payload_file;

/* A payload to be named where it is. */
typedef struct placed {
    oq_tensor *tensor;
    uint32_t file; /* index in files, or HANDED */
    uint64_t offset, length;
} placed;
#define HANDED UINT32_MAX

/* Marks a tensor of the clone as placed until all are; never encoded. */
static const oq_place placed_mark;

typedef struct placer {
    oq_session_graph *g;
    oq_model *model;
    OQ_VEC(payload_file) files;
    OQ_VEC(placed) list;
    bool in_main;
} placer;

/* ---- files ---- */

/* The path of the file without links, if it still names what is mapped. */
static const char *real_path(placer *p, const oq_file *f) {
    if (f->path == NULL)
        return NULL;
    char real[OQ_PATH_MAX];
    return oq_os_real_path(f->path, real) && oq_file_is(f, real)
               ? oq_arena_strdup(&p->g->arena, real, strlen(real))
               : NULL;
}

static onq_code file_number(placer *p, const oq_file *f, uint32_t *out, onq_error *err) {
    for (size_t i = 0; i < p->files.n; i++) {
        if (p->files.v[i].file == f) {
            *out = (uint32_t)i;
            return ONQ_OK;
        }
    }
    *out = (uint32_t)p->files.n;
    const payload_file row = {f, real_path(p, f)};
    OQ_TRY_ALLOC(OQ_PUSH(&p->g->arena, &p->files, row), err);
    return ONQ_OK;
}

/* The deepest folder that holds all files, without a slash at its end unless it is the root. */
static size_t common_folder(const placer *p) {
    size_t n = SIZE_MAX;
    const char *first = NULL;
    for (size_t i = 0; i < p->files.n; i++) {
        const char *real = p->files.v[i].real;
        if (real == NULL)
            continue;
        if (first == NULL) {
            first = real;
            n = (size_t)(oq_path_last(real) - real) - 1;
            continue;
        }
        size_t same = 0;
        while (same < n && real[same] == first[same])
            same++;
        /* Real paths have slashes on every system. Both must have one there, else the last name
         * matches in part only. */
        while (same > 0 && !(first[same] == '/' && real[same] == '/'))
            same--;
        n = same;
    }
    return n;
}

/* ---- which payloads go outside ---- */

static bool is_inside(const oq_file *f, const uint8_t *p, uint64_t n) {
    return f->p != NULL && p >= f->p && n <= f->size && (uint64_t)(p - f->p) <= f->size - n;
}

/* The bytes of a tensor that lie in the model's own file in raw form: raw_data, or packed
 * floats. */
static bool find_in_file(const oq_model *m, const oq_tensor *t, oq_span *out) {
    *out = (oq_span){NULL, 0};
    if (t->raw_data.present && t->raw_data.p != NULL && t->raw_data.producer == NULL)
        *out = (oq_span){t->raw_data.p, t->raw_data.n};
    else if (t->data_type.v == OQ_FLOAT && t->float_data.n > 0)
        *out = (oq_span){t->float_data.p, t->float_data.n};
    else if (t->data_type.v == OQ_DOUBLE && t->double_data.n > 0)
        *out = (oq_span){t->double_data.p, t->double_data.n};
    return out->p != NULL && is_inside(&m->file, out->p, out->n);
}

/* The bytes of a tensor that memory has. What a producer makes lives as long as the session is
 * being made, not as long as the model. */
static onq_code make_bytes(placer *p, oq_tensor *t, oq_span *out, onq_error *err) {
    const oq_producer *producer = t->raw_data.producer;
    if (producer == NULL)
        return oq_model_data(p->model, t, out, err);
    uint8_t *made = oq_arena_alloc(&p->g->arena, t->raw_data.n + 1);
    OQ_TRY_ALLOC(made != NULL, err);
    *out = (oq_span){made, t->raw_data.n};
    return producer->make(producer, made, err);
}

static onq_code hand_over(placer *p, oq_tensor *t, onq_error *err) {
    oq_handed h = {.dtype = (oq_dtype)t->data_type.v, .dims = t->dims.v, .rank = t->dims.n};
    OQ_TRY(make_bytes(p, t, &h.data, err));
    h.name = oq_str_cstr(&p->g->arena, t->name);
    OQ_TRY_ALLOC(h.name != NULL && OQ_PUSH(&p->g->arena, &p->g->handed, h), err);
    return ONQ_OK;
}

/* External data with these entries in place of whatever the tensor had. */
static onq_code set_external(oq_arena *a, oq_tensor *t, oq_str location, uint64_t offset,
                             uint64_t length, onq_error *err) {
    const struct {
        const char *key;
        oq_str value;
    } rows[] = {{"location", location},
                {"offset", oq_str_format(a, "%" PRIu64, offset)},
                {"length", oq_str_format(a, "%" PRIu64, length)}};
    oq_tensor_clear_data(t);
    t->place = NULL;
    t->external_data.n = 0;
    for (size_t i = 0; i < OQ_COUNT(rows); i++) {
        oq_entry *e = OQ_NEW(a, oq_entry);
        OQ_TRY_ALLOC(e != NULL && rows[i].value.p != NULL, err);
        e->key = oq_str_of(rows[i].key);
        e->value = rows[i].value;
        OQ_TRY_ALLOC(OQ_PUSH(a, &t->external_data, e), err);
    }
    t->data_location = OQ_I32(OQ_LOCATION_EXTERNAL);
    return ONQ_OK;
}

static onq_code add_placed(placer *p, placed row, onq_error *err) {
    OQ_TRY_ALLOC(OQ_PUSH(&p->g->arena, &p->list, row), err);
    row.tensor->place = &placed_mark;
    return ONQ_OK;
}

/* The bytes into the graph itself. */
static onq_code put_inside(placer *p, oq_tensor *t, onq_error *err) {
    oq_span data;
    OQ_TRY(oq_model_data(p->model, t, &data, err));
    oq_tensor_clear_data(t);
    oq_tensor_set_view(t, data.p, data.n);
    return ONQ_OK;
}

/* Bytes only memory has, by pointer where the runtime can take them so, else in the graph. */
static onq_code place_memory(placer *p, oq_tensor *t, onq_error *err) {
    const oq_dtype_info *info = oq_dtype_find(t->data_type.v);
    if (p->in_main && info != NULL && info->bits >= 8 && t->name.n > 0 &&
        memchr(t->name.p, '\0', t->name.n) == NULL) {
        OQ_TRY(hand_over(p, t, err));
        return add_placed(p,
                          (placed){.tensor = t,
                                   .file = HANDED,
                                   .length = p->g->handed.v[p->g->handed.n - 1].data.n},
                          err);
    }
    return oq_tensor_is_external(t) ? put_inside(p, t, err) : ONQ_OK;
}

static onq_code place_tensor(placer *p, oq_tensor *t, onq_error *err) {
    uint64_t bytes = 0;
    if (t->data_type.v == OQ_STRING)
        return ONQ_OK;
    onq_code rc = oq_tensor_bytes(t, &bytes, err);
    if (rc != ONQ_OK)
        return rc;
    placed row = {.tensor = t, .length = bytes};
    const oq_file *file = &p->model->file;
    oq_span span;
    if (bytes < MIN_OUTSIDE) {
        /* The runtime's inference reads shapes and axes in the graph only. */
        return oq_tensor_is_external(t) ? put_inside(p, t, err) : ONQ_OK;
    } else if (oq_tensor_is_external(t)) {
        OQ_TRY(oq_model_external(p->model, t, &file, &row.offset, &row.length, err));
    } else if (find_in_file(p->model, t, &span)) {
        if (span.n != bytes)
            return oq_fail(err, ONQ_E_INVALID,
                           "tensor '%.*s' has %" PRIu64
                           " bytes, but its type and dims need %" PRIu64,
                           OQ_STR(t->name), span.n, bytes);
        row.offset = (uint64_t)(span.p - p->model->file.p);
    } else {
        return place_memory(p, t, err);
    }
    OQ_TRY(file_number(p, file, &row.file, err));
    if (p->files.v[row.file].real == NULL)
        return place_memory(p, t, err);
    return add_placed(p, row, err);
}

static onq_code place_graph(void *ctx, oq_graph *g, onq_error *err) {
    placer *p = ctx;
    p->in_main = g == p->g->proto->graph;
    for (size_t i = 0; i < g->initializer.n; i++) {
        OQ_TRY_IN(place_tensor(p, g->initializer.v[i], err), err, "initializer '%.*s'",
                  OQ_STR(g->initializer.v[i]->name));
    }
    return ONQ_OK;
}

/* External data of attributes and sparse tensors: the runtime wants it in the graph. */
static onq_code place_other(void *ctx, oq_tensor *t, bool in_attribute, onq_error *err) {
    placer *p = ctx;
    (void)in_attribute;
    if (!oq_tensor_is_external(t) || t->place == &placed_mark)
        return ONQ_OK;
    return put_inside(p, t, err);
}

static onq_code write_places(placer *p, onq_error *err) {
    oq_arena *a = &p->g->arena;
    const size_t n = common_folder(p);
    for (size_t i = 0; i < p->list.n; i++) {
        const placed *row = &p->list.v[i];
        oq_str location = OQ_S("onq-memory");
        if (row->file != HANDED) {
            const char *real = p->files.v[row->file].real;
            location = oq_str_of(real + n + 1);
            if (p->g->folder == NULL)
                p->g->folder = oq_arena_strdup(a, n == 0 ? "/" : real, n == 0 ? 1 : n);
            OQ_TRY_ALLOC(p->g->folder != NULL, err);
        }
        OQ_TRY(set_external(a, row->tensor, location, row->offset, row->length, err));
    }
    for (size_t i = 0; i < p->files.n; i++)
        if (p->files.v[i].real != NULL && !OQ_PUSH(a, &p->g->files, p->files.v[i].file))
            return oq_fail_nomem(err);
    return ONQ_OK;
}

/* ---- Constant nodes ---- */

/* The large value of a Constant node, or NULL. */
static oq_tensor *large_constant(const oq_node *n) {
    oq_tensor *t = n->output.n == 1 ? oq_node_constant(n) : NULL;
    uint64_t bytes = 0;
    if (t == NULL || t->data_type.v == OQ_STRING || oq_tensor_bytes(t, &bytes, NULL) != ONQ_OK ||
        bytes < MIN_OUTSIDE)
        return NULL;
    return t;
}

static onq_code lift_constants(void *ctx, oq_graph *g, onq_error *err) {
    oq_session_graph *s = ctx;
    size_t kept = 0;
    for (size_t i = 0; i < g->node.n; i++) {
        oq_node *n = g->node.v[i];
        oq_tensor *t = large_constant(n);
        if (t == NULL) {
            g->node.v[kept++] = n;
            continue;
        }
        t->name = n->output.v[0];
        OQ_TRY_ALLOC(OQ_PUSH(&s->arena, &g->initializer, t), err);
    }
    g->node.n = kept;
    return ONQ_OK;
}

/* ---- initializers that nothing uses ---- */

/* Fewer cost the runtime little. */
#define MANY_UNUSED 1000

typedef struct dropping {
    oq_session_graph *s;
    size_t least; /* unused ones of a graph, for them to go */
} dropping;

/* The runtime would take them out itself, in time that grows with their square. One that is a graph
 * input stays: a sample may name it. */
static onq_code drop_unused(void *ctx, oq_graph *g, onq_error *err) {
    const dropping *d = ctx;
    if (g->initializer.n < d->least)
        return ONQ_OK;
    oq_index ix;
    OQ_SCRATCH(scratch, d->s->arena.alloc);
    OQ_TRY(oq_index_build(&ix, &scratch, g, NULL, err));
    oq_tensor **used = OQ_NEW_ARRAY(&scratch, oq_tensor *, g->initializer.n + 1);
    OQ_TRY_ALLOC(used != NULL, err);
    size_t n = 0;
    for (size_t i = 0; i < g->initializer.n; i++) {
        const oq_value *v = oq_index_find(&ix, g->initializer.v[i]->name);
        if (v == NULL || v->uses.n > 0 || v->is_input || v->is_output)
            used[n++] = g->initializer.v[i];
    }
    if (g->initializer.n - n >= d->least) {
        memcpy(g->initializer.v, used, n * sizeof *used);
        g->initializer.n = n;
    }
    return ONQ_OK;
}

/* ---- all together ---- */

static onq_code encode(oq_session_graph *s, onq_error *err) {
    oq_pieces pieces = {.arena = &s->arena};
    const uint64_t size = oq_encode_size(OQ_SCHEMA_model_proto, s->proto);
    if (size > MAX_MESSAGE)
        return oq_fail(err, ONQ_E_LIMIT,
                       "the graph without its large initializers has %" PRIu64
                       " bytes, more than a message may have (2 GB)",
                       size);
    OQ_TRY(oq_encode(&pieces, OQ_SCHEMA_model_proto, s->proto, err));
    for (size_t i = 0; i < pieces.list.n; i++) {
        const oq_piece *p = &pieces.list.v[i];
        if (p->producer != NULL) {
            uint8_t *made = oq_arena_alloc(&s->arena, p->n);
            OQ_TRY_ALLOC(made != NULL, err);
            OQ_TRY(p->producer->make(p->producer, made, err));
            oq_buf_add(&s->bytes, made, p->n);
        } else {
            oq_buf_add(&s->bytes, p->p, p->n);
        }
    }
    return s->bytes.failed ? oq_fail_nomem(err) : ONQ_OK;
}

onq_code oq_session_check_functions(const oq_model *m, onq_error *err) {
    uint64_t stored, expanded;
    if (m->proto->functions.n == 0)
        return ONQ_OK;
    OQ_TRY(oq_model_expanded(m, &stored, &expanded, err));
    if (expanded > 10000 && expanded / 256 > stored)
        return oq_fail(err, ONQ_E_LIMIT,
                       "%s: functions that call functions: %llu nodes would become %llu or more",
                       m->path, (unsigned long long)stored, (unsigned long long)expanded);
    return ONQ_OK;
}

static onq_code build(oq_session_graph *s, const oq_session_options *o, bool inline_all,
                      onq_error *err) {
    s->proto = oq_message_clone(&s->arena, OQ_SCHEMA_model_proto, o->model->proto);
    OQ_TRY_ALLOC(s->proto != NULL, err);
    if (s->proto->graph == NULL)
        return oq_fail(err, ONQ_E_INVALID, "the model has no graph");
    OQ_TRY(oq_session_check_functions(o->model, err));
    oq_model shell = *o->model;
    shell.proto = s->proto;
    if (o->observer != NULL && o->observer->n_names > 0)
        OQ_TRY(oq_graph_observe(&s->arena, &shell, s->proto, o, err));
    if (o->no_turning)
        OQ_TRY(oq_graph_read_stored(&s->arena, s->proto, err));
    /* The order in which the runtime writes the initializers of an optimised model depends on those
     * that it finds. */
    dropping d = {s, o->save_optimized != NULL ? MANY_UNUSED : 1};
    OQ_TRY(oq_walk_graphs(s->proto->graph, drop_unused, &d, err));
    placer p = {.g = s, .model = o->model};
    if (!inline_all) {
        OQ_TRY(oq_walk_graphs(s->proto->graph, lift_constants, s, err));
        OQ_TRY(oq_walk_graphs(s->proto->graph, place_graph, &p, err));
    }
    OQ_TRY(oq_walk_tensors(&shell, place_other, &p, err));
    OQ_TRY(write_places(&p, err));
    return encode(s, err);
}

onq_code oq_session_graph_init(oq_session_graph *g, const oq_session_options *o, bool inline_all,
                               onq_error *err) {
    assert(o->model != NULL);
    *g = (oq_session_graph){0};
    const onq_allocator *alloc = &o->model->env->alloc;
    oq_arena_init(&g->arena, alloc);
    oq_buf_init(&g->bytes, alloc);
    onq_code rc = build(g, o, inline_all, err);
    if (rc != ONQ_OK)
        oq_session_graph_release(g);
    return rc;
}

void oq_session_graph_release(oq_session_graph *g) {
    oq_buf_release(&g->bytes);
    oq_arena_release(&g->arena);
    *g = (oq_session_graph){0};
}
