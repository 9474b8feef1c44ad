/*
 * model.c — opening and owning a model; finding a tensor's bytes wherever they live.
 */
#include "onnx/model.h"

#include "onnx/codec/schema.h"
#include "onnx/operators.h"
#include "onnx/tensor.h"

/* What decoding may allocate: a fixed part plus so many bytes for each byte of the file. An empty
 * message takes two bytes of a file and a struct in memory, so without a limit a small hostile file
 * fills the machine. Honest graphs need a fifth of this. */
#define DECODE_BASE   ((size_t)64 << 20)
#define DECODE_FACTOR 32
#define MAX_DECODE    ((size_t)4 << 30)

static onq_code model_alloc(onq_env *env, oq_model **out, onq_error *err) {
    oq_model *m = oq_calloc(&env->alloc, 1, sizeof *m);
    OQ_TRY_ALLOC(m != NULL, err);
    m->env = env;
    m->dir.handle = m->root.handle = m->file.handle = OQ_NO_HANDLE;
    oq_arena_init(&m->arena, &env->alloc);
    oq_map_init(&m->ext_map, &m->arena);
    *out = m;
    return ONQ_OK;
}

void oq_model_free(oq_model *m) {
    if (m == NULL)
        return;
    for (size_t i = 0; i < m->ext.n; i++)
        oq_file_close(&m->ext.v[i]->file);
    oq_dir_close(&m->dir);
    oq_dir_close(&m->root);
    oq_file_close(&m->file);
    oq_arena_release(&m->arena);
    oq_free(&m->env->alloc, m, sizeof *m);
}

static onq_code decode_model(oq_model *m, onq_error *err) {
    size_t budget =
        m->bytes.n > MAX_DECODE / DECODE_FACTOR ? MAX_DECODE : (size_t)m->bytes.n * DECODE_FACTOR;
    if (m->bytes.n == 0)
        return oq_fail(err, ONQ_E_MALFORMED, "the file is empty, not an ONNX model");
    m->arena.limit = DECODE_BASE + budget;
    void *root = NULL;
    onq_code rc =
        oq_decode(&m->arena, OQ_SCHEMA_model_proto, m->bytes.p, m->bytes.n, 0, &root, err);
    m->arena.limit = 0;
    if (rc == ONQ_E_MALFORMED)
        return oq_error_in(err, rc, "not an ONNX model, or damaged");
    OQ_TRY(rc);
    m->proto = root;
    if (m->proto->graph == NULL)
        return oq_fail(err, ONQ_E_INVALID, "the model has no graph (is this an ONNX model?)");
    return ONQ_OK;
}

/* The model to the caller, or freed where something failed. */
static onq_code give(oq_model *m, onq_code rc, oq_model **out) {
    if (rc == ONQ_OK)
        *out = m;
    else
        oq_model_free(m);
    return rc;
}

onq_code oq_model_open(onq_env *env, const char *path, const oq_open_options *opts, oq_model **out,
                       onq_error *err) {
    oq_model *m = NULL;
    OQ_TRY(model_alloc(env, &m, err));
    onq_code rc = oq_file_open(&m->file, &env->alloc, path, err);
    if (rc != ONQ_OK)
        goto done;
    m->path = oq_arena_strdup(&m->arena, path, strlen(path));
    if (m->path == NULL) {
        rc = oq_fail_nomem(err);
        goto done;
    }
    m->bytes = (oq_span){m->file.p, m->file.size};
    rc = decode_model(m, err);
    if (rc != ONQ_OK) {
        rc = oq_error_in(err, rc, "%s", path);
        goto done;
    }
    OQ_GO(oq_dir_open_parent(&m->dir, &env->alloc, path, err));
    if (opts != NULL && opts->data_root != NULL)
        OQ_GO(oq_dir_open(&m->root, &env->alloc, opts->data_root, err));
done:
    return give(m, rc, out);
}

onq_code oq_model_open_memory(onq_env *env, const void *p, size_t n, const oq_open_options *opts,
                              oq_model **out, onq_error *err) {
    oq_model *m = NULL;
    OQ_TRY(model_alloc(env, &m, err));
    const bool named = opts != NULL && opts->label != NULL;
    m->path = named ? oq_arena_strdup(&m->arena, opts->label, strlen(opts->label)) : "<memory>";
    m->bytes = (oq_span){p, n};
    onq_code rc = m->path != NULL ? decode_model(m, err) : oq_fail_nomem(err);
    if (rc != ONQ_OK && m->path != NULL) {
        rc = oq_error_in(err, rc, "%s", m->path);
        goto done;
    }
    if (rc != ONQ_OK)
        goto done;
    if (opts != NULL)
        m->open = opts->open;
    if (opts != NULL && opts->base_dir != NULL)
        OQ_GO(oq_dir_open(&m->dir, &env->alloc, opts->base_dir, err));
    if (opts != NULL && opts->data_root != NULL)
        OQ_GO(oq_dir_open(&m->root, &env->alloc, opts->data_root, err));
done:
    return give(m, rc, out);
}

onq_code oq_model_new(onq_env *env, int64_t ir_version, int64_t opset, oq_model **out,
                      onq_error *err) {
    oq_model *m = NULL;
    OQ_TRY(model_alloc(env, &m, err));
    m->path = "<memory>";
    m->touched = true;
    m->proto = OQ_NEW(&m->arena, oq_model_proto);
    onq_code rc = ONQ_E_NOMEM;
    if (m->proto != NULL) {
        m->proto->ir_version = OQ_I64(ir_version);
        m->proto->graph = OQ_NEW(&m->arena, oq_graph);
        if (m->proto->graph != NULL)
            rc = oq_model_set_opset(m, OQ_S(""), opset, err);
    }
    if (rc != ONQ_OK) {
        oq_model_free(m);
        return oq_fail_nomem(err);
    }
    *out = m;
    return ONQ_OK;
}

/* ---- bytes ---- */

static onq_code run_producer(oq_model *m, oq_tensor *t, onq_error *err) {
    uint8_t *p = oq_arena_alloc(&m->arena, t->raw_data.n);
    OQ_TRY_ALLOC(p != NULL, err);
    OQ_TRY_IN(t->raw_data.producer->make(t->raw_data.producer, p, err), err, "tensor '%.*s'",
              OQ_STR(t->name));
    t->raw_data.p = p;
    t->raw_data.producer = NULL;
    return ONQ_OK;
}

onq_code oq_model_data(oq_model *m, oq_tensor *t, oq_span *out, onq_error *err) {
    uint64_t want = 0;
    OQ_TRY(oq_tensor_bytes(t, &want, err));
    if (oq_tensor_is_external(t)) {
        const oq_file *f = NULL;
        uint64_t offset = 0;
        OQ_TRY(oq_model_external(m, t, &f, &offset, &want, err));
        *out = (oq_span){f->p + offset, want};
        return ONQ_OK;
    }
    if (t->raw_data.present) {
        if (t->raw_data.n != want)
            return oq_fail(
                err, ONQ_E_INVALID,
                "tensor '%.*s': its raw data has %llu bytes, but its shape and type need %llu",
                OQ_STR(t->name), (unsigned long long)t->raw_data.n, (unsigned long long)want);
        if (t->raw_data.producer != NULL && t->raw_data.producer->ready != NULL) {
            *out = (oq_span){t->raw_data.producer->ready, want};
            return ONQ_OK;
        }
        if (t->raw_data.producer != NULL)
            OQ_TRY(run_producer(m, t, err));
        *out = (oq_span){t->raw_data.p, want};
        return ONQ_OK;
    }
    if (t->cache.p == NULL)
        OQ_TRY(oq_tensor_typed_to_raw(&m->arena, t, &t->cache, err));
    *out = t->cache;
    return ONQ_OK;
}

void oq_model_drop_pages(const oq_model *m) {
    if (m->file.p != NULL)
        oq_file_drop(&m->file, 0, m->file.size);
    for (size_t i = 0; i < m->ext.n; i++)
        oq_file_drop(&m->ext.v[i]->file, 0, m->ext.v[i]->file.size);
}

/* ---- files in memory ---- */

void oq_files_init(oq_files *f, const onq_allocator *alloc) {
    *f = (oq_files){0};
    oq_arena_init(&f->arena, alloc);
}

void oq_files_release(oq_files *f) {
    for (size_t i = 0; i < f->all.n; i++)
        oq_file_close(&f->all.v[i]);
    oq_arena_release(&f->arena);
    *f = (oq_files){0};
}

onq_code oq_files_take(oq_files *f, oq_out *out, onq_error *err) {
    oq_file file;
    OQ_TRY(oq_out_take(out, &file, err));
    if (OQ_PUSH(&f->arena, &f->all, file))
        return ONQ_OK;
    oq_file_close(&file);
    return oq_fail_nomem(err);
}

/* ---- files ---- */

static bool is_in(const oq_file *f, const uint8_t *p) {
    return (uintptr_t)p - (uintptr_t)f->p < f->size;
}

const oq_file *oq_model_file_of(const oq_model *m, const uint8_t *p) {
    if (is_in(&m->file, p))
        return &m->file;
    for (size_t i = 0; i < m->ext.n; i++)
        if (is_in(&m->ext.v[i]->file, p))
            return &m->ext.v[i]->file;
    return NULL;
}

/* ---- opsets and metadata ---- */

static oq_opset *find_opset(const oq_model *m, oq_str domain) {
    for (size_t i = 0; i < m->proto->opset_import.n; i++)
        if (oq_str_eq(oq_domain_plain(m->proto->opset_import.v[i]->domain),
                      oq_domain_plain(domain)))
            return m->proto->opset_import.v[i];
    return NULL;
}

int64_t oq_model_opset(const oq_model *m, oq_str domain) {
    const oq_opset *o = find_opset(m, domain);
    return o != NULL ? o->version.v : 0;
}

static onq_code add_opset(oq_model *m, oq_str domain, int64_t version, onq_error *err) {
    oq_opset *o = OQ_NEW(&m->arena, oq_opset);
    OQ_TRY_ALLOC(o != NULL && OQ_PUSH(&m->arena, &m->proto->opset_import, o), err);
    o->domain = domain;
    o->version = OQ_I64(version);
    return ONQ_OK;
}

/* Models of IR 1 and 2 may have no imports, which means opset 1. */
static onq_code spell_out_imports(oq_model *m, onq_error *err) {
    const bool implied = m->proto->opset_import.n == 0 && m->proto->ir_version.v < 3;
    return implied ? add_opset(m, OQ_S(""), 1, err) : ONQ_OK;
}

onq_code oq_model_set_opset(oq_model *m, oq_str domain, int64_t version, onq_error *err) {
    assert(version > 0);
    OQ_TRY(spell_out_imports(m, err));
    oq_opset *o = find_opset(m, domain);
    if (o == NULL)
        return add_opset(m, domain, version, err);
    o->version = OQ_I64(version);
    return ONQ_OK;
}

onq_code oq_model_raise_ir(oq_model *m, int64_t least, onq_error *err) {
    if (m->proto->ir_version.v >= least)
        return ONQ_OK;
    OQ_TRY(spell_out_imports(m, err));
    m->proto->ir_version = OQ_I64(least);
    return ONQ_OK;
}

static oq_entry *find_entry(const oq_model *m, oq_str key) {
    for (size_t i = 0; i < m->proto->metadata_props.n; i++)
        if (oq_str_eq(m->proto->metadata_props.v[i]->key, key))
            return m->proto->metadata_props.v[i];
    return NULL;
}

oq_str oq_model_metadata(const oq_model *m, oq_str key) {
    const oq_entry *e = find_entry(m, key);
    return e != NULL ? e->value : (oq_str){0};
}

onq_code oq_model_set_metadata(oq_model *m, oq_str key, oq_str value, onq_error *err) {
    oq_entry *e = find_entry(m, key);
    if (e == NULL) {
        e = OQ_NEW(&m->arena, oq_entry);
        OQ_TRY_ALLOC(e != NULL && OQ_PUSH(&m->arena, &m->proto->metadata_props, e), err);
        e->key = key;
    }
    e->value = value;
    return ONQ_OK;
}
