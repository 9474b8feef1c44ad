/*
 * tensorrt_table.c — see tensorrt_table.h.
 *
 * A flatbuffer is built from its end to its beginning; here it grows in a buffer of reversed bytes
 * that is turned round last. Offsets are distances from the end, as in every flatbuffers library.
 */
#include "calibrate/tensorrt_table.h"

#include "base/text/number_text.h"

typedef struct entry {
    oq_str name;
    char value[OQ_NUMBER_TEXT]; /* Python's text of the greater of highest and lowest */
} entry;

/* ---- the flatbuffer ---- */

static uint32_t fb_offset(const oq_buf *b) {
    return (uint32_t)b->n;
}

/* Zeros, so that `size` bytes are aligned once `more` bytes come before them. */
static void fb_align(oq_buf *b, size_t size, size_t more) {
    while ((b->n + more) % size != 0)
        oq_buf_addc(b, 0);
}

static void fb_put(oq_buf *b, uint32_t v, size_t size) {
    fb_align(b, size, 0);
    for (size_t i = size; i-- > 0;)
        oq_buf_addc(b, (char)(v >> (8 * i)));
}

/* An offset to what lies at `target`. */
static void fb_put_ref(oq_buf *b, uint32_t target) {
    fb_align(b, 4, 0);
    fb_put(b, fb_offset(b) + 4 - target, 4);
}

static uint32_t fb_text(oq_buf *b, oq_str s) {
    fb_align(b, 4, s.n + 1);
    oq_buf_addc(b, 0);
    for (size_t i = s.n; i-- > 0;)
        oq_buf_addc(b, s.p[i]);
    fb_put(b, (uint32_t)s.n, 4);
    return fb_offset(b);
}

/* Overwrites the four bytes that end at offset `at`. */
static void fb_patch(oq_buf *b, uint32_t at, uint32_t v) {
    for (size_t i = 0; i < 4 && !b->failed; i++)
        b->p[at - 4 + i] = (char)(v >> (8 * (3 - i)));
}

/* A table whose n fields are references; all of one kind share *vtable (0: none yet). */
static uint32_t fb_table(oq_buf *b, const uint32_t *refs, size_t n, uint32_t *vtable) {
    const uint32_t end = fb_offset(b);
    uint32_t fields[2] = {0};
    for (size_t i = 0; i < n; i++) {
        fb_put_ref(b, refs[i]);
        fields[i] = fb_offset(b);
    }
    fb_put(b, 0, 4); /* the reference to the vtable */
    const uint32_t at = fb_offset(b);
    if (*vtable == 0) {
        for (size_t i = n; i-- > 0;)
            fb_put(b, at - fields[i], 2);
        fb_put(b, at - end, 2);
        fb_put(b, (uint32_t)(2 * (n + 2)), 2);
        *vtable = fb_offset(b);
    }
    fb_patch(b, at, *vtable - at);
    return at;
}

static void fb_build(oq_buf *b, const entry *entries, uint32_t *tables, size_t n) {
    uint32_t vtable = 0, root_vtable = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t refs[2];
        refs[0] = fb_text(b, entries[i].name);
        refs[1] = fb_text(b, oq_str_of(entries[i].value));
        tables[i] = fb_table(b, refs, 2, &vtable);
    }
    fb_align(b, 4, 4 * n);
    for (size_t i = 0; i < n; i++)
        fb_put_ref(b, tables[i]);
    fb_put(b, (uint32_t)n, 4);
    const uint32_t list = fb_offset(b);
    const uint32_t root = fb_table(b, &list, 1, &root_vtable);
    fb_align(b, 4, 4);
    fb_put_ref(b, root);
    for (size_t i = 0; !b->failed && i < b->n / 2; i++) {
        const char c = b->p[i];
        b->p[i] = b->p[b->n - 1 - i];
        b->p[b->n - 1 - i] = c;
    }
}

/* ---- the files ---- */

static int by_name(const void *a, const void *b) {
    return oq_str_cmp(((const entry *)a)->name, ((const entry *)b)->name);
}

static onq_code make_entries(const oq_ranges *r, oq_arena *a, entry **out, onq_error *err) {
    entry *list = OQ_NEW_ARRAY(a, entry, r->all.n > 0 ? r->all.n : 1);
    OQ_TRY_ALLOC(list != NULL, err);
    for (size_t i = 0; i < r->all.n; i++) {
        const oq_range *t = r->all.v[i];
        double lowest = 0, highest = 0;
        if (!oq_range_pair(t, &lowest, &highest))
            return oq_fail(err, ONQ_E_UNSUPPORTED,
                           "tensor '%.*s' has %zu ranges, a TensorRT table holds one for each "
                           "tensor (calibrate without per_channel)",
                           OQ_STR(t->name), t->highest.n);
        list[i].name = t->name;
        oq_python_text(list[i].value, lowest > highest ? lowest : highest);
    }
    if (r->all.n > 1)
        qsort(list, r->all.n, sizeof *list, by_name);
    *out = list;
    return ONQ_OK;
}

static onq_code open_in(oq_out *o, const onq_env *env, oq_arena *a, const char *folder,
                        const char *name, onq_error *err) {
    const oq_str path = oq_str_format(a, "%s/%s", folder, name);
    OQ_TRY_ALLOC(path.p != NULL, err);
    return oq_out_open(o, &env->alloc, path.p, err);
}

static onq_code write_cache(const entry *list, size_t n, oq_out *o, onq_error *err) {
    for (size_t i = 0; i < n; i++) {
        OQ_TRY(oq_out_write(o, list[i].name.p, list[i].name.n, err));
        OQ_TRY(oq_out_write(o, " ", 1, err));
        OQ_TRY(oq_out_write(o, list[i].value, strlen(list[i].value), err));
        OQ_TRY(oq_out_write(o, "\n", 1, err));
    }
    return ONQ_OK;
}

static onq_code write_flatbuffer(const entry *list, size_t n, oq_arena *a, const onq_env *env,
                                 oq_out *o, onq_error *err) {
    uint64_t total = 64;
    for (size_t i = 0; i < n; i++)
        total += list[i].name.n + sizeof list[i].value + 64;
    if (total > INT32_MAX)
        return oq_fail(err, ONQ_E_LIMIT,
                       "the table would be larger than 2 GB, the most a flatbuffer holds");
    uint32_t *tables = OQ_NEW_ARRAY(a, uint32_t, n > 0 ? n : 1);
    OQ_TRY_ALLOC(tables != NULL, err);
    OQ_SCRATCH_BUF(b, &env->alloc);
    fb_build(&b, list, tables, n);
    return b.failed ? oq_fail_nomem(err) : oq_out_write(o, b.p, b.n, err);
}

onq_code oq_table_write(const oq_ranges *r, const onq_env *env, const char *folder,
                        oq_out outs[OQ_TABLE_FILES], onq_error *err) {
    oq_arena scratch;
    entry *list = NULL;
    onq_code rc = ONQ_OK;
    memset(outs, 0, OQ_TABLE_FILES * sizeof *outs);
    oq_arena_init(&scratch, &env->alloc);
    OQ_GO(make_entries(r, &scratch, &list, err));
    if (!oq_os_make_folder(folder) && errno != EEXIST) {
        rc = oq_fail_errno(err, ONQ_E_WRITE, errno, "%s: the folder cannot be made", folder);
        goto done;
    }
    OQ_GO(open_in(&outs[0], env, &scratch, folder, "calibration.json", err));
    OQ_GO(oq_ranges_write(r, &env->alloc, &outs[0], OQ_RANGES_TABLE, err));
    OQ_GO(open_in(&outs[1], env, &scratch, folder, "calibration.cache", err));
    OQ_GO(write_cache(list, r->all.n, &outs[1], err));
    OQ_GO(open_in(&outs[2], env, &scratch, folder, "calibration.flatbuffers", err));
    rc = write_flatbuffer(list, r->all.n, &scratch, env, &outs[2], err);
done:
    oq_arena_release(&scratch);
    if (rc != ONQ_OK)
        for (size_t i = 0; i < OQ_TABLE_FILES; i++)
            oq_out_abort(&outs[i]);
    return rc;
}
