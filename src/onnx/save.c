/*
 * save.c — writing a model: whole or not at all, payloads from file to file or from producers.
 *
 * The encoder knows nothing of external data. Before encoding, tensors whose bytes go elsewhere are
 * *swapped*: their storage fields are replaced (by external_data entries, or by a view when they
 * come back inline) and put back afterwards, so saving leaves the model as it was.
 */
#include "base/pool.h"
#include "onnx/codec/schema.h"
#include "onnx/graph.h"
#include "onnx/tensor.h"

#define MAX_PROTO      ((uint64_t)INT32_MAX)
#define THRESHOLD_AUTO 1024
/* Ranges of a mapped file from this size on go by copy_file_range. */
#define MIN_COPY ((uint64_t)256 << 10)
/* After a large producer the pages that it read are given back at once, after small ones when
 * they have read this much together. */
#define MIN_DROP   ((uint64_t)1 << 20)
#define DROP_EVERY ((uint64_t)32 << 20)
/* Producers that can are asked for so many bytes at a time. */
#define SLICE ((uint64_t)2 << 20)
/* Pieces of at least this size are reported as progress. */
#define MIN_TELL ((uint64_t)1 << 20)

typedef struct swap {
    oq_tensor *tensor;
    oq_tensor saved;
} swap;

/* Room for what a producer makes, kept for the next one. */
typedef struct slot {
    uint8_t *p;
    uint64_t room;
} slot;

typedef struct writer {
    oq_model *m;
    oq_save_options opts;
    oq_arena scratch;
    OQ_VEC(swap) swaps;
    OQ_VEC(oq_out) data; /* external-data files */
    oq_out model;
    oq_map locations; /* file names taken */
    bool any_external, too_large;
    uint64_t place_end; /* ONE: end of the data file so far */
    /* the pipeline */
    const oq_piece *pieces;
    size_t *units, n_units; /* where units of pieces begin */
    slot *slots;            /* one for each unit that is made at the same time, and one more */
    size_t n_slots;
    oq_out *out;
    uint64_t since_drop;
    uint64_t written, total; /* of the pieces */
} writer;

/* ---- moving bytes ---- */

/* After each large piece: how far it is, and whether to go on. */
static onq_code tell_written(writer *w, uint64_t n, onq_error *err) {
    w->written += n;
    if (n < MIN_TELL)
        return ONQ_OK;
    return oq_progress(w->m->env, "writing, MB", w->written >> 20, w->total >> 20, err);
}

static onq_code write_span(writer *w, const uint8_t *p, uint64_t n, onq_error *err) {
    const oq_file *f = n >= MIN_COPY ? oq_model_file_of(w->m, p) : NULL;
    if (f != NULL)
        OQ_TRY(oq_out_copy(w->out, f, (uint64_t)(p - f->p), n, err));
    else
        OQ_TRY(oq_out_write(w->out, p, n, err));
    return tell_written(w, n, err);
}

/* True if making it is work for a worker. */
static bool is_heavy(const oq_piece *p) {
    return p->producer != NULL && !p->producer->follows;
}

static onq_code run_producer(const writer *w, const oq_piece *piece, slot *to, onq_error *err) {
    const onq_allocator *alloc = &w->m->env->alloc;
    const oq_producer *p = piece->producer;
    if (to->room < piece->n) {
        oq_free(alloc, to->p, to->room);
        *to = (slot){.p = oq_alloc(alloc, piece->n)};
        OQ_TRY_ALLOC(to->p != NULL, err);
        to->room = piece->n;
    }
    return piece->n < p->size ? p->slice(p, piece->from, piece->n, to->p, err)
                              : p->make(p, to->p, err);
}

/* Gives room back: all of it, or what is too large to be kept. */
static void free_slot(const writer *w, slot *s, bool all) {
    if (!all && s->room <= SLICE)
        return;
    oq_free(&w->m->env->alloc, s->p, s->room);
    *s = (slot){0};
}

static onq_code take_piece(writer *w, const oq_piece *piece, slot *from, onq_error *err) {
    if (piece->producer == NULL)
        return write_span(w, piece->p, piece->n, err);
    if (!is_heavy(piece))
        OQ_TRY(run_producer(w, piece, from, err));
    OQ_TRY(oq_out_write(w->out, from->p, piece->n, err));
    free_slot(w, from, false);
    w->since_drop += piece->n * 4; /* a producer reads about four times what it makes */
    if (w->since_drop >= DROP_EVERY) {
        oq_model_drop_pages(w->m);
        w->since_drop = 0;
    }
    return tell_written(w, piece->n, err);
}

/* A unit of the pipeline begins with a piece that a worker makes; what follows it is written with
 * it. So the window counts pieces that are made, whatever lies between them. */
static onq_code find_units(writer *w, size_t n, onq_error *err) {
    w->units = OQ_NEW_ARRAY(&w->scratch, size_t, n + 1);
    OQ_TRY_ALLOC(w->units != NULL, err);
    w->n_units = 0;
    for (size_t i = 0; i < n; i++)
        if (i == 0 || is_heavy(&w->pieces[i]))
            w->units[w->n_units++] = i;
    w->units[w->n_units] = n;
    return ONQ_OK;
}

static onq_code make_unit(void *ctx, size_t u, unsigned worker, onq_error *err) {
    writer *w = ctx;
    const oq_piece *piece = &w->pieces[w->units[u]];
    (void)worker;
    if (!is_heavy(piece))
        return ONQ_OK;
    OQ_TRY(run_producer(w, piece, &w->slots[u % w->n_slots], err));
    if (piece->n >= MIN_DROP)
        oq_model_drop_pages(
            w->m); /* what it read; another worker's pages come back by themselves */
    return ONQ_OK;
}

static onq_code take_unit(void *ctx, size_t u, unsigned worker, onq_error *err) {
    writer *w = ctx;
    (void)worker;
    for (size_t i = w->units[u]; i < w->units[u + 1]; i++)
        OQ_TRY(take_piece(w, &w->pieces[i],
                          &w->slots[i == w->units[u] ? u % w->n_slots : w->n_slots], err));
    return ONQ_OK;
}

/* Large payloads as slices. */
static onq_code cut(writer *w, const oq_piece *whole, size_t n, oq_piece **out, size_t *n_out,
                    onq_error *err) {
    OQ_VEC(oq_piece) list = {0};
    for (size_t i = 0; i < n; i++) {
        const bool once = whole[i].producer == NULL || whole[i].producer->slice == NULL;
        const uint64_t end = whole[i].n;
        uint64_t at = 0;
        do {
            oq_piece p = whole[i];
            p.from = at;
            p.n = once || end - at < SLICE ? end - at : SLICE;
            OQ_TRY_ALLOC(OQ_PUSH(&w->scratch, &list, p), err);
            at += p.n;
        } while (at < end);
    }
    *out = list.v;
    *n_out = list.n;
    return ONQ_OK;
}

/* Writes the pieces to w->out, producers running ahead on the workers. */
static onq_code write_pieces(writer *w, const oq_piece *whole, size_t n, onq_error *err) {
    size_t n_producers = 0;
    uint64_t total = 0;
    oq_piece *pieces = NULL;
    OQ_TRY(cut(w, whole, n, &pieces, &n, err));
    for (size_t i = 0; i < n; i++) {
        n_producers += pieces[i].producer != NULL;
        total += pieces[i].n;
    }
    OQ_TRY(oq_out_reserve(w->out, total, err));
    w->pieces = pieces;
    w->written = 0;
    w->total = total;
    if (n_producers == 0) {
        for (size_t i = 0; i < n; i++)
            OQ_TRY(write_span(w, pieces[i].p, pieces[i].n, err));
        return ONQ_OK;
    }
    oq_pool *pool = NULL;
    OQ_TRY(find_units(w, n, err));
    OQ_TRY(oq_pool_new(w->m->env, &pool, err));
    w->n_slots = oq_pool_workers(pool);
    w->slots = OQ_NEW_ARRAY(&w->scratch, slot, w->n_slots + 1);
    onq_code rc = w->slots != NULL
                      ? oq_pool_pipeline(pool, w->n_units, w->n_slots, make_unit, take_unit, w, err)
                      : oq_fail_nomem(err);
    oq_pool_free(pool);
    for (size_t i = 0; w->slots != NULL && i <= w->n_slots; i++)
        free_slot(w, &w->slots[i], true);
    return rc;
}

/* ---- swapping storage ---- */

static void unswap(writer *w) {
    while (w->swaps.n > 0) {
        const swap *s = &w->swaps.v[--w->swaps.n];
        const oq_span cache = s->tensor->cache;
        *s->tensor = s->saved;
        s->tensor->cache = cache;
    }
}

static onq_code begin_swap(writer *w, oq_tensor *t, onq_error *err) {
    const swap s = {t, *t};
    OQ_TRY_ALLOC(OQ_PUSH(&w->scratch, &w->swaps, s), err);
    /* lists are shared with the saved struct: start new ones instead of editing them */
    memset(&t->external_data, 0, sizeof t->external_data);
    memset(&t->string_data, 0, sizeof t->string_data);
    oq_tensor_clear_data(t);
    t->cache = s.saved.cache;
    return ONQ_OK;
}

static onq_code swap_inline(writer *w, oq_tensor *t, onq_error *err) {
    oq_span raw = {0};
    OQ_TRY(oq_model_data(w->m, t, &raw, err));
    OQ_TRY(begin_swap(w, t, err));
    t->raw_data = (oq_payload){.p = raw.p, .n = raw.n, .present = true};
    t->data_location =
        OQ_I32(OQ_LOCATION_DEFAULT); /* said, as onnx does when it reads such a file */
    return ONQ_OK;
}

static onq_code add_entry(writer *w, oq_tensor *t, const char *key, oq_str value, onq_error *err) {
    oq_entry *e = OQ_NEW(&w->scratch, oq_entry);
    OQ_TRY_ALLOC(e != NULL && value.p != NULL && OQ_PUSH(&w->scratch, &t->external_data, e), err);
    e->key = oq_str_of(key);
    e->value = value;
    return ONQ_OK;
}

static onq_code swap_external(writer *w, oq_tensor *t, const oq_place *place, onq_error *err) {
    OQ_TRY(begin_swap(w, t, err));
    OQ_TRY(add_entry(w, t, "location", place->location, err));
    OQ_TRY(add_entry(w, t, "offset",
                     oq_str_format(&w->scratch, "%llu", (unsigned long long)place->offset), err));
    OQ_TRY(add_entry(w, t, "length",
                     oq_str_format(&w->scratch, "%llu", (unsigned long long)place->length), err));
    t->data_location = OQ_I32(OQ_LOCATION_EXTERNAL);
    return ONQ_OK;
}

/* ---- external data ---- */

/* Data may replace what the model was read from only where the model itself is replaced. */
static onq_code check_data(const writer *w, const char *model_path, const char *path,
                           onq_error *err) {
    if (oq_file_is(&w->m->file, model_path))
        return ONQ_OK;
    for (size_t i = 0; i < w->m->ext.n; i++)
        if (oq_file_is(&w->m->ext.v[i]->file, path))
            return oq_fail(err, ONQ_E_WRITE,
                           "%s: holds the external data of the model that is read (give the "
                           "output another name or folder)",
                           path);
    return ONQ_OK;
}

static onq_code open_data(writer *w, const char *model_path, oq_str location, onq_error *err) {
    const int folder = (int)(oq_path_last(model_path) - model_path);
    const oq_str path = oq_str_format(&w->scratch, "%.*s%s", folder, model_path,
                                      oq_str_cstr(&w->scratch, location));
    OQ_TRY_ALLOC(path.p != NULL && OQ_PUSH(&w->scratch, &w->data, (oq_out){.handle = OQ_NO_HANDLE}),
                 err);
    oq_out *out = &w->data.v[w->data.n - 1];
    if (w->opts.memory != NULL)
        return oq_out_open_memory(out, &w->m->env->alloc, oq_path_last(path.p), err);
    OQ_TRY(check_data(w, model_path, path.p, err));
    return oq_out_open(out, &w->m->env->alloc, path.p, err);
}

/* A file name for a tensor: its own, made safe and unique. */
static oq_str each_location(writer *w, oq_str name) {
    char safe[101];
    size_t n = name.n < sizeof safe - 1 ? name.n : sizeof safe - 1;
    for (size_t i = 0; i < n; i++) {
        const char c = name.p[i];
        const bool ok = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                        (c >= '0' && c <= '9') || c == '_' || c == '-' || (c == '.' && i > 0);
        safe[i] = ok ? c : '_';
    }
    safe[n] = 0;
    oq_str location = oq_str_format(&w->scratch, "%s", n > 0 ? safe : "tensor");
    for (unsigned k = 1; location.p != NULL && oq_map_has(&w->locations, location); k++)
        location = oq_str_format(&w->scratch, "%s_%u", n > 0 ? safe : "tensor", k);
    if (location.p != NULL && !oq_map_put(&w->locations, location, 0))
        location.p = NULL;
    return location;
}

typedef struct place_ctx {
    writer *w;
    const char *path;
    oq_str location; /* ONE */
} place_ctx;

/* As onnx decides: numbers in typed fields stay inline, unless the file would be too large. */
static bool goes_out(const writer *w, const oq_tensor *t, bool in_attribute, uint64_t n) {
    return (!in_attribute || w->opts.attributes) && n != 0 && n >= w->opts.threshold &&
           w->opts.external != OQ_EXTERNAL_KEEP &&
           (w->too_large || t->raw_data.present || oq_tensor_is_external(t));
}

/* Decides one tensor: out to a data file, written there at once; or inline. */
static onq_code place_tensor(void *ctx, oq_tensor *t, bool in_attribute, onq_error *err) {
    place_ctx *c = ctx;
    writer *w = c->w;
    uint64_t n = 0;
    if (t->data_type.v == OQ_STRING)
        return ONQ_OK;
    OQ_TRY(oq_tensor_bytes(t, &n, err));
    if (!goes_out(w, t, in_attribute, n))
        return oq_tensor_is_external(t) ? swap_inline(w, t, err) : ONQ_OK;
    const oq_producer *producer = t->raw_data.present ? t->raw_data.producer : NULL;
    oq_span raw = {NULL, n};
    if (producer == NULL)
        OQ_TRY(oq_model_data(w->m, t, &raw, err));
    oq_place *place = OQ_NEW(&w->scratch, oq_place);
    oq_piece *piece = OQ_NEW(&w->scratch, oq_piece);
    OQ_TRY_ALLOC(place != NULL && piece != NULL, err);
    *piece = (oq_piece){.p = raw.p, .n = n, .producer = producer};
    if (w->opts.external == OQ_EXTERNAL_EACH) {
        place->location = each_location(w, t->name);
        OQ_TRY_ALLOC(place->location.p != NULL, err);
        OQ_TRY(open_data(w, c->path, place->location, err));
        w->out = &w->data.v[w->data.n - 1];
        OQ_TRY(write_pieces(w, piece, 1, err));
        OQ_TRY(oq_out_seal(w->out, err));
    } else {
        place->location = c->location;
        place->offset = w->place_end; /* one after another, as onnx writes them */
        w->place_end += n;
    }
    place->length = n;
    return swap_external(w, t, place, err);
}

/* ONE: after all places are known, the payloads are written in one pipelined run. */
static onq_code write_one(writer *w, onq_error *err) {
    OQ_VEC(oq_piece) list = {0};
    for (size_t i = 0; i < w->swaps.n; i++) {
        const oq_tensor *t = w->swaps.v[i].tensor;
        oq_tensor *was = &w->swaps.v[i].saved;
        if (!oq_tensor_is_external(t))
            continue;
        oq_piece p = {.producer = was->raw_data.present ? was->raw_data.producer : NULL};
        oq_span raw = {NULL, was->raw_data.n};
        if (p.producer == NULL)
            OQ_TRY(oq_model_data(w->m, was, &raw, err));
        p.p = raw.p;
        p.n = raw.n;
        OQ_TRY_ALLOC(OQ_PUSH(&w->scratch, &list, p), err);
    }
    w->out = &w->data.v[0];
    return write_pieces(w, list.v, list.n, err);
}

static onq_code place_all(writer *w, const char *path, onq_error *err) {
    place_ctx c = {w, path, {0}};
    if (w->opts.external == OQ_EXTERNAL_ONE) {
        c.location = w->opts.location != NULL
                         ? oq_str_of(w->opts.location)
                         : oq_str_format(&w->scratch, "%s.data", oq_path_last(path));
        OQ_TRY_ALLOC(c.location.p != NULL, err);
        if (c.location.n == 0 || memchr(c.location.p, '/', c.location.n) != NULL ||
            oq_str_is(c.location, oq_path_last(path)))
            return oq_fail(
                err, ONQ_E_CONFIG,
                "external data location '%.*s' must be the name of a file in the model's folder",
                OQ_STR(c.location));
    }
    OQ_TRY_ALLOC(oq_map_put(&w->locations, oq_str_of(oq_path_last(path)), 0), err);
    OQ_TRY(oq_walk_tensors(w->m, place_tensor, &c, err));
    if (w->place_end == 0)
        return ONQ_OK;
    OQ_TRY(open_data(w, path, c.location, err));
    return write_one(w, err);
}

/* ---- the model file ---- */

static onq_code find_external(void *ctx, oq_tensor *t, bool in_attribute OQ_UNUSED,
                              onq_error *err OQ_UNUSED) {
    if (oq_tensor_is_external(t))
        *(bool *)ctx = true;
    return ONQ_OK;
}

static onq_code copy_untouched(writer *w, onq_error *err) {
    w->out = &w->model;
    OQ_TRY(oq_out_reserve(w->out, w->m->bytes.n, err));
    return write_span(w, w->m->bytes.p, w->m->bytes.n, err);
}

static onq_code encode_to(writer *w, onq_error *err) {
    oq_pieces pieces = {.arena = &w->scratch};
    OQ_TRY(oq_encode(&pieces, OQ_SCHEMA_model_proto, w->m->proto, err));
    w->out = &w->model;
    return write_pieces(w, pieces.list.v, pieces.list.n, err);
}

static onq_code write_model(writer *w, const char *path, onq_error *err) {
    OQ_TRY(oq_walk_tensors(w->m, find_external, &w->any_external, err));
    OQ_TRY(w->opts.memory != NULL ? oq_out_open_memory(&w->model, &w->m->env->alloc, path, err)
                                  : oq_out_open(&w->model, &w->m->env->alloc, path, err));
    if (!w->m->touched && !w->any_external && w->opts.external == OQ_EXTERNAL_KEEP)
        return copy_untouched(w, err);
    OQ_TRY(place_all(w, path, err));
    uint64_t size = oq_encode_size(OQ_SCHEMA_model_proto, w->m->proto);
    if (size > MAX_PROTO && w->opts.external == OQ_EXTERNAL_KEEP) {
        oq_info(
            w->m->env,
            "%s: %.2f GB are more than the 2 GB a model file may have; the weights go to %s.data",
            path, (double)size / 1e9, oq_path_last(path));
        unswap(w);
        w->too_large = true;
        w->opts.external = OQ_EXTERNAL_ONE;
        w->opts.threshold = THRESHOLD_AUTO;
        OQ_TRY(place_all(w, path, err));
        size = oq_encode_size(OQ_SCHEMA_model_proto, w->m->proto);
    }
    if (size > MAX_PROTO)
        return oq_fail(
            err, ONQ_E_LIMIT,
            "%.2f GB without the external data; a model file may have 2 GB (lower the size "
            "threshold or move attribute tensors out too)",
            (double)size / 1e9);
    return encode_to(w, err);
}

/* The inputs must be what they were when they were read. */
static onq_code check_inputs(const oq_model *m, onq_error *err) {
    if (m->file.p != NULL)
        OQ_TRY(oq_file_check(&m->file, err));
    for (size_t i = 0; i < m->ext.n; i++)
        OQ_TRY(oq_file_check(&m->ext.v[i]->file, err));
    return ONQ_OK;
}

static onq_code take(writer *w, onq_error *err) {
    OQ_TRY(oq_files_take(w->opts.memory, &w->model, err));
    for (size_t i = 0; i < w->data.n; i++)
        OQ_TRY(oq_files_take(w->opts.memory, &w->data.v[i], err));
    return ONQ_OK;
}

static onq_code commit(writer *w, onq_error *err) {
    if (w->opts.memory != NULL)
        return take(w, err);
    oq_out **outs = OQ_NEW_ARRAY(&w->scratch, oq_out *, w->data.n + 1);
    OQ_TRY_ALLOC(outs != NULL, err);
    for (size_t i = 0; i < w->data.n; i++)
        outs[i] = &w->data.v[i];
    outs[w->data.n] = &w->model;
    return oq_out_commit_all(outs, w->data.n + 1, err);
}

onq_code oq_model_save(oq_model *m, const char *path, const oq_save_options *opts, onq_error *err) {
    writer w = {.m = m, .model = {.handle = OQ_NO_HANDLE}};
    if (opts != NULL)
        w.opts = *opts;
    oq_arena_init(&w.scratch, &m->env->alloc);
    oq_map_init(&w.locations, &w.scratch);
    onq_code rc = write_model(&w, path, err);
    unswap(&w);
    if (rc == ONQ_OK)
        rc = check_inputs(m, err);
    if (rc == ONQ_OK)
        rc = commit(&w, err);
    for (size_t i = 0; i < w.data.n; i++)
        oq_out_abort(&w.data.v[i]);
    oq_out_abort(&w.model);
    oq_arena_release(&w.scratch);
    return rc == ONQ_OK ? ONQ_OK : oq_error_in(err, rc, "%s", path);
}

/* ---- encoding into memory ---- */

static onq_code swap_placed(void *ctx, oq_tensor *t, bool in_attribute OQ_UNUSED, onq_error *err) {
    if (t->place != NULL)
        return swap_external(ctx, t, t->place, err);
    return ONQ_OK;
}

static onq_code encode_memory(writer *w, oq_buf *out, onq_error *err) {
    oq_pieces pieces = {.arena = &w->scratch};
    OQ_TRY(oq_walk_tensors(w->m, swap_placed, w, err));
    oq_encode_size(OQ_SCHEMA_model_proto, w->m->proto);
    OQ_TRY(oq_encode(&pieces, OQ_SCHEMA_model_proto, w->m->proto, err));
    for (size_t i = 0; i < pieces.list.n; i++) {
        const oq_piece *p = &pieces.list.v[i];
        if (p->producer == NULL) {
            oq_buf_add(out, p->p, p->n);
            continue;
        }
        uint8_t *made = oq_alloc(&w->m->env->alloc, p->n);
        OQ_TRY_ALLOC(made != NULL, err);
        onq_code rc = p->producer->make(p->producer, made, err);
        if (rc == ONQ_OK)
            oq_buf_add(out, made, p->n);
        oq_free(&w->m->env->alloc, made, p->n);
        OQ_TRY(rc);
    }
    return out->failed ? oq_fail_nomem(err) : ONQ_OK;
}

onq_code oq_model_encode(oq_model *m, oq_buf *out, onq_error *err) {
    writer w = {.m = m};
    oq_arena_init(&w.scratch, &m->env->alloc);
    onq_code rc = encode_memory(&w, out, err);
    unswap(&w);
    oq_arena_release(&w.scratch);
    return rc;
}
