/*
 * gguf.c — the header of a GGUF file. gguf_blocks.c reads the numbers.
 */
#include "onnx/gguf/gguf.h"

#include "base/alloc.h"
#include "onnx/gguf/gguf_types.h"

#include <string.h>

#define ALIGNMENT     32
#define MAX_ALIGNMENT (1 << 20)

/* Kinds of values in the header. */
enum { U8, I8, U16, I16, U32, I32, F32, BOOL, TEXT, ARRAY, U64, I64, F64, KINDS };
static const uint8_t sizes[KINDS] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

typedef struct cursor {
    const uint8_t *p;
    uint64_t n, at;
} cursor;

static onq_code short_of(const cursor *c, const char *what, onq_error *err) {
    return oq_fail(err, ONQ_E_INVALID, "it ends at byte %llu within %s", (unsigned long long)c->n,
                   what);
}

static onq_code take(cursor *c, void *out, uint64_t n, const char *what, onq_error *err) {
    if (n > c->n - c->at)
        return short_of(c, what, err);
    memcpy(out, c->p + c->at, (size_t)n);
    c->at += n;
    return ONQ_OK;
}

static onq_code take_text(cursor *c, oq_str *out, const char *what, onq_error *err) {
    uint64_t n = 0;
    OQ_TRY(take(c, &n, 8, what, err));
    if (n > c->n - c->at)
        return short_of(c, what, err);
    *out = (oq_str){(const char *)c->p + c->at, (size_t)n};
    c->at += n;
    return ONQ_OK;
}

static double number_of(uint32_t kind, const uint8_t *v) {
    union {
        uint8_t u8;
        int8_t i8;
        uint16_t u16;
        int16_t i16;
        uint32_t u32;
        int32_t i32;
        uint64_t u64;
        int64_t i64;
        float f32;
        double f64;
    } x = {0};
    memcpy(&x, v, sizes[kind]);
    switch (kind) {
    case I8:
        return x.i8;
    case U16:
        return x.u16;
    case I16:
        return x.i16;
    case U32:
        return x.u32;
    case I32:
        return x.i32;
    case F32:
        return (double)x.f32;
    case U64:
        return (double)x.u64;
    case I64:
        return (double)x.i64;
    case F64:
        return x.f64;
    default:
        return x.u8;
    }
}

/* Lists (of tokens, merges) are passed over. */
static onq_code pass_array(cursor *c, onq_error *err) {
    uint32_t kind = 0;
    uint64_t n = 0;
    oq_str text;
    OQ_TRY(take(c, &kind, 4, "a list", err));
    OQ_TRY(take(c, &n, 8, "a list", err));
    if (kind >= KINDS || kind == ARRAY)
        return oq_fail(err, ONQ_E_INVALID, "a list of values of kind %u at byte %llu", kind,
                       (unsigned long long)c->at);
    if (kind == TEXT) {
        for (uint64_t i = 0; i < n; i++)
            OQ_TRY(take_text(c, &text, "a list", err));
        return ONQ_OK;
    }
    if (n > (c->n - c->at) / sizes[kind])
        return short_of(c, "a list", err);
    c->at += n * sizes[kind];
    return ONQ_OK;
}

static onq_code take_fact(oq_gguf *g, cursor *c, onq_error *err) {
    oq_gguf_fact f = {0};
    uint32_t kind = 0;
    uint8_t value[8] = {0};
    OQ_TRY(take_text(c, &f.key, "a key", err));
    OQ_TRY(take(c, &kind, 4, "a key", err));
    if (kind >= KINDS)
        return oq_fail(err, ONQ_E_INVALID, "a value of kind %u at byte %llu", kind,
                       (unsigned long long)c->at);
    if (kind == ARRAY)
        return pass_array(c, err);
    if (kind == TEXT)
        OQ_TRY(take_text(c, &f.text, "a value", err));
    else
        OQ_TRY(take(c, value, sizes[kind], "a value", err));
    f.is_text = kind == TEXT;
    f.number = f.is_text ? 0 : number_of(kind, value);
    return oq_map_put(&g->fact_map, f.key, (uint32_t)g->facts.n) && OQ_PUSH(&g->arena, &g->facts, f)
               ? ONQ_OK
               : oq_fail_nomem(err);
}

/* A tensor's row; `data` is its offset until the end of the header is known. */
static onq_code take_tensor(oq_gguf *g, cursor *c, uint64_t *offset, onq_error *err) {
    oq_gguf_tensor t = {.count = 1};
    uint32_t rank = 0;
    OQ_TRY(take_text(c, &t.name, "the name of a tensor", err));
    OQ_TRY(take(c, &rank, 4, "a tensor", err));
    if (rank > OQ_GGUF_MAX_RANK)
        return oq_fail(err, ONQ_E_INVALID, "tensor '%.*s' has %u dimensions", OQ_STR(t.name), rank);
    t.rank = rank;
    for (size_t i = 0; i < t.rank; i++) {
        OQ_TRY(take(c, &t.dims[i], 8, "a tensor", err));
        if (!oq_mul(t.count, t.dims[i], &t.count))
            return oq_fail(err, ONQ_E_INVALID, "tensor '%.*s' is too large", OQ_STR(t.name));
    }
    OQ_TRY(take(c, &t.type, 4, "a tensor", err));
    OQ_TRY(take(c, offset, 8, "a tensor", err));
    const oq_gguf_kind *kind = oq_gguf_kind_of(t.type);
    if (kind != NULL && ((t.rank > 0 ? t.dims[0] : 1) % kind->block != 0 ||
                         !oq_mul(t.count / kind->block, kind->bytes, &t.bytes)))
        return oq_fail(err, ONQ_E_INVALID, "tensor '%.*s' is not whole blocks of %s",
                       OQ_STR(t.name), kind->name);
    if (oq_map_has(&g->tensor_map, t.name))
        return oq_fail(err, ONQ_E_INVALID, "tensor '%.*s' is there twice", OQ_STR(t.name));
    return oq_map_put(&g->tensor_map, t.name, (uint32_t)g->tensors.n) &&
                   OQ_PUSH(&g->arena, &g->tensors, t)
               ? ONQ_OK
               : oq_fail_nomem(err);
}

static onq_code place_tensors(oq_gguf *g, const cursor *c, const uint64_t *offsets,
                              onq_error *err) {
    const oq_gguf_fact *f = oq_gguf_fact_of(g, OQ_S("general.alignment"));
    const double asked = f != NULL ? f->number : ALIGNMENT;
    const uint64_t step = asked >= 1 && asked <= MAX_ALIGNMENT ? (uint64_t)asked : 0;
    if (step == 0 || (step & (step - 1)) != 0 || (double)step != asked)
        return oq_fail(err, ONQ_E_INVALID, "general.alignment is %g, which is not a power of 2",
                       asked);
    const uint64_t first = (c->at + step - 1) / step * step;
    for (size_t i = 0; i < g->tensors.n; i++) {
        oq_gguf_tensor *t = &g->tensors.v[i];
        uint64_t begin, end;
        if (!oq_add(first, offsets[i], &begin) || !oq_add(begin, t->bytes, &end) || end > c->n)
            return oq_fail(err, ONQ_E_INVALID,
                           "tensor '%.*s' lies at byte %llu, and the file has %llu",
                           OQ_STR(t->name), (unsigned long long)(first + offsets[i]),
                           (unsigned long long)c->n);
        t->data = c->p + begin;
    }
    return ONQ_OK;
}

static onq_code read_header(oq_gguf *g, onq_error *err) {
    cursor c = {g->file.p, g->file.size, 0};
    char magic[4] = {0};
    uint32_t version = 0;
    uint64_t n_tensors = 0, n_facts = 0;
    OQ_TRY(take(&c, magic, 4, "the header", err));
    if (memcmp(magic, "GGUF", 4) != 0)
        return oq_fail(err, ONQ_E_INVALID, "it is no GGUF file");
    OQ_TRY(take(&c, &version, 4, "the header", err));
    if (version != 2 && version != 3)
        return oq_fail(err, ONQ_E_UNSUPPORTED, "version %u of GGUF (2 and 3 can be read)", version);
    OQ_TRY(take(&c, &n_tensors, 8, "the header", err));
    OQ_TRY(take(&c, &n_facts, 8, "the header", err));
    /* A fact has at least 13 bytes, a tensor 24. */
    if (n_facts > c.n / 13 || n_tensors > c.n / 24)
        return oq_fail(err, ONQ_E_INVALID, "%llu tensors and %llu values do not fit into it",
                       (unsigned long long)n_tensors, (unsigned long long)n_facts);
    for (uint64_t i = 0; i < n_facts; i++)
        OQ_TRY(take_fact(g, &c, err));
    uint64_t *offsets = OQ_NEW_ARRAY(&g->arena, uint64_t, n_tensors + 1);
    OQ_TRY_ALLOC(offsets != NULL, err);
    for (uint64_t i = 0; i < n_tensors; i++)
        OQ_TRY(take_tensor(g, &c, &offsets[i], err));
    return place_tensors(g, &c, offsets, err);
}

static onq_code begin(oq_gguf *g, const onq_allocator *alloc, onq_error *err) {
    oq_arena_init(&g->arena, alloc);
    oq_map_init(&g->tensor_map, &g->arena);
    oq_map_init(&g->fact_map, &g->arena);
    const onq_code rc = read_header(g, err);
    if (rc == ONQ_OK)
        return rc;
    const onq_code named = rc == ONQ_E_NOMEM ? rc : oq_error_in(err, rc, "%s", g->file.path);
    oq_gguf_close(g);
    return named;
}

onq_code oq_gguf_open(oq_gguf *g, const onq_allocator *alloc, oq_file *file, onq_error *err) {
    *g = (oq_gguf){.file = *file};
    *file = (oq_file){.handle = OQ_NO_HANDLE};
    return begin(g, alloc, err);
}

void oq_gguf_close(oq_gguf *g) {
    if (g->file.path == NULL)
        return;
    oq_arena_release(&g->arena);
    oq_file_close(&g->file);
    *g = (oq_gguf){0};
}

const oq_gguf_tensor *oq_gguf_find(const oq_gguf *g, oq_str name) {
    const uint32_t i = oq_map_find(&g->tensor_map, name);
    return i != OQ_MAP_NONE ? &g->tensors.v[i] : NULL;
}

const oq_gguf_fact *oq_gguf_fact_of(const oq_gguf *g, oq_str key) {
    const uint32_t i = oq_map_find(&g->fact_map, key);
    return i != OQ_MAP_NONE ? &g->facts.v[i] : NULL;
}
