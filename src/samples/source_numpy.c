/*
 * source_numpy.c — samples from .npz files, or from one .npy file for each input.
 *
 * A *set* is one array for each input: the members of an .npz file by name, or the .npy files. In a
 * set each array is one sample, or each has one axis more than its input and holds samples along
 * the first. With steps along an axis, an array of several sequences may also leave that axis out:
 * it then holds one value for all steps of each sequence. Samples are read one by one through streams, so that memory does not grow with their
 * number; an array in Fortran order that holds several is the exception: its samples are scattered
 * all over it.
 */
#include "samples/source_private.h"

#include "samples/files/npy.h"
#include "samples/files/zip.h"

#include <assert.h>
#include <inttypes.h>

typedef struct array {
    oq_npy h;
    oq_bytes *bytes;
    oq_dtype dtype;
    bool absent; /* it is left out */
    bool many;   /* samples along the first axis */
    uint64_t n_samples;
    const int64_t *dims; /* of one sample */
    size_t rank;
    uint64_t count, size; /* of one sample: elements, bytes in the file */
    uint8_t *whole;       /* Fortran order with many samples: all of it in C order */
} array;

typedef struct set {
    oq_arena arena; /* everything of the open set */
    oq_file *files; /* one for .npz, one for each input for .npy */
    size_t n_files;
    oq_zip zip;
    oq_bytes *bytes; /* .npy */
    array *arrays;   /* one for each input */
    uint64_t n_samples;
    bool many;
    bool open;
} set;

typedef struct numpy_reader {
    oq_reader base;
    onq_env *env;
    oq_ios inputs;
    const oq_source_options *o;
    uint64_t most_bytes;
    bool is_npz;
    const char *const *paths; /* .npz: one a set; .npy: one an input */
    oq_file *given;           /* of one set, instead of opening `paths`; the reader closes them */
    size_t n_sets;
    uint64_t *first; /* number of each set's first sample; n_sets + 1 of them */
    bool many;       /* for names of samples */
    size_t current;  /* the open set */
    set set;
} numpy_reader;

/* ---- one array ---- */

static onq_code read_header(array *x, oq_arena *a, onq_error *err) {
    uint8_t prefix[OQ_NPY_PREFIX];
    const uint64_t n = x->bytes->size < sizeof prefix ? x->bytes->size : sizeof prefix;
    uint64_t end = 0;
    OQ_TRY(oq_bytes_read(x->bytes, 0, prefix, n, err));
    OQ_TRY(oq_npy_prefix(prefix, n, &end, err));
    if (end < sizeof prefix)
        return oq_fail(err, ONQ_E_MALFORMED, "the .npy header is empty");
    uint8_t *text = oq_arena_alloc(a, end);
    OQ_TRY_ALLOC(text != NULL, err);
    memcpy(text, prefix, sizeof prefix);
    OQ_TRY(oq_bytes_read(x->bytes, sizeof prefix, text + sizeof prefix, end - sizeof prefix, err));
    OQ_TRY(oq_npy_header(text, end, &x->h, err));
    if (x->h.data_size > x->bytes->size - end)
        return oq_fail(err, ONQ_E_INVALID,
                       "the array's type and shape need %" PRIu64
                       " bytes, but the file has %" PRIu64,
                       x->h.data_size, x->bytes->size - end);
    return ONQ_OK;
}

/* Divides the array into samples, along its first axis if there are many. The shape of a sample is
 * checked against the input before any element is read. */
static onq_code divide(const numpy_reader *r, array *x, size_t input, bool many, oq_arena *a,
                       onq_error *err) {
    assert(!many || x->h.rank > 0);
    x->many = many;
    x->n_samples = many ? (uint64_t)x->h.dims[0] : 1;
    x->rank = x->h.rank - (many ? 1 : 0);
    int64_t *dims = OQ_NEW_ARRAY(a, int64_t, x->rank + 1);
    OQ_TRY_ALLOC(dims != NULL, err);
    memcpy(dims, x->h.dims + (many ? 1 : 0), x->rank * sizeof *dims);
    x->dims = dims;
    x->count = 1;
    for (size_t i = 0; i < x->rank; i++)
        if (!oq_mul(x->count, (uint64_t)dims[i], &x->count))
            return oq_fail(err, ONQ_E_INVALID, "the array's size does not fit in 64 bits");
    if (!oq_mul(x->count, x->h.item, &x->size) || x->size > r->most_bytes ||
        x->count > r->most_bytes)
        return oq_fail(err, ONQ_E_LIMIT, "a sample is larger than %" PRIu64 " bytes",
                       r->most_bytes);
    const oq_datum shape = {.kind = OQ_DATUM_TENSOR,
                            .dtype = x->dtype,
                            .rank = x->rank,
                            .dims = x->dims,
                            .count = x->count};
    return oq_input_check(r->o, &shape, &r->inputs, input, &r->env->alloc, err);
}

/* Type and shape of the array as they are if it stood alone; agree() looks at all of a set. */
static onq_code set_shape(numpy_reader *r, array *x, size_t input, oq_arena *a, onq_error *err) {
    const oq_io *want = &r->inputs.v[input];
    const size_t own = want->rank + (r->o->has_steps_axis ? 1 : 0); /* axes of one sample at most */
    x->dtype = oq_npy_dtype(&x->h, want->dtype);
    if (x->dtype == OQ_UNDEFINED)
        return oq_fail(err, ONQ_E_UNSUPPORTED,
                       "elements of numpy kind '%c' with %" PRIu64 " bytes are not supported",
                       x->h.kind, x->h.item);
    return divide(r, x, input, want->has_shape && x->h.rank == own + 1, a, err);
}

static onq_code open_array(numpy_reader *r, set *s, size_t i, oq_bytes *bytes, onq_error *err) {
    array *x = &s->arrays[i];
    const oq_io *want = &r->inputs.v[i];
    x->absent = bytes == NULL;
    if (bytes == NULL)
        return ONQ_OK;
    if (want->kind != OQ_DATUM_TENSOR && want->kind != OQ_DATUM_NONE)
        return oq_fail(err, ONQ_E_UNSUPPORTED,
                       "input '%.*s' is not a tensor: arrays cannot feed it", OQ_STR(want->name));
    x->bytes = bytes;
    OQ_TRY(read_header(x, &s->arena, err));
    return set_shape(r, x, i, &s->arena, err);
}

static onq_code load_whole(numpy_reader *r, set *s, array *x, onq_error *err) {
    if (x->h.data_size > r->most_bytes)
        return oq_fail(err, ONQ_E_LIMIT,
                       "samples in Fortran order are read all at once, and these have %" PRIu64
                       " bytes (save them in C order)",
                       x->h.data_size);
    uint8_t *in = oq_alloc(&r->env->alloc, x->h.data_size);
    x->whole = oq_arena_alloc(&s->arena, x->h.data_size + 1);
    onq_code rc = in != NULL && x->whole != NULL ? ONQ_OK : oq_fail_nomem(err);
    if (rc == ONQ_OK)
        rc = oq_bytes_read(x->bytes, x->h.data_at, in, x->h.data_size, err);
    if (rc == ONQ_OK)
        oq_npy_convert(&x->h, x->h.dims, x->h.rank, true, in, x->whole);
    oq_free(&r->env->alloc, in, x->h.data_size);
    return rc;
}

static onq_code read_texts(array *x, const uint8_t *in, oq_arena *a, oq_datum *out,
                           onq_error *err) {
    oq_str *texts = OQ_NEW_ARRAY(a, oq_str, x->count + 1);
    OQ_TRY_ALLOC(texts != NULL, err);
    for (uint64_t i = 0; i < x->count; i++) {
        texts[i] = oq_npy_text(&x->h, a, in, i);
        OQ_TRY_ALLOC(texts[i].p != NULL, err);
    }
    out->strings = texts;
    return ONQ_OK;
}

static onq_code read_array(numpy_reader *r, set *s, array *x, uint64_t k, oq_arena *a,
                           oq_datum *out, onq_error *err) {
    *out = (oq_datum){.kind = OQ_DATUM_TENSOR,
                      .dtype = x->dtype,
                      .rank = x->rank,
                      .dims = x->dims,
                      .count = x->count};
    const bool scattered = x->h.fortran && x->many && x->h.rank > 1 && x->dtype != OQ_STRING;
    if (x->h.fortran && x->dtype == OQ_STRING && x->h.rank > 1)
        return oq_fail(err, ONQ_E_UNSUPPORTED, "texts in Fortran order (save them in C order)");
    if (scattered && x->whole == NULL)
        OQ_TRY(load_whole(r, s, x, err));
    int64_t *dims = OQ_NEW_ARRAY(a, int64_t, x->rank + 1);
    uint8_t *data = oq_arena_alloc(a, x->size + 1);
    OQ_TRY_ALLOC(dims != NULL && data != NULL, err);
    memcpy(dims, x->dims, x->rank * sizeof *dims);
    out->dims = dims;
    if (scattered) {
        memcpy(data, x->whole + k * x->size, x->size);
    } else if (x->dtype == OQ_STRING) {
        OQ_TRY(oq_bytes_read(x->bytes, x->h.data_at + k * x->size, data, x->size, err));
        return read_texts(x, data, a, out, err);
    } else {
        uint8_t *in = data;
        const bool as_is = !x->h.fortran && !x->h.big_endian && x->h.kind != 'b';
        if (!as_is)
            in = oq_arena_alloc(a, x->size + 1);
        OQ_TRY_ALLOC(in != NULL, err);
        OQ_TRY(oq_bytes_read(x->bytes, x->h.data_at + k * x->size, in, x->size, err));
        if (!as_is)
            oq_npy_convert(&x->h, x->dims, x->rank, x->h.fortran, in, data);
    }
    out->data = data;
    out->size_bytes = x->size;
    return ONQ_OK;
}

/* ---- one set ---- */

static void close_set(numpy_reader *r) {
    set *s = &r->set;
    if (!s->open)
        return;
    oq_zip_release(&s->zip);
    for (size_t i = 0; s->bytes != NULL && i < r->inputs.n; i++)
        oq_bytes_release(&s->bytes[i]);
    for (size_t i = 0; i < s->n_files; i++)
        oq_file_close(&s->files[i]);
    oq_arena_release(&s->arena);
    *s = (set){0};
}

/* "x, y, z": what an .npz file has. */
static void list_members(const oq_zip *z, char *text, size_t cap) {
    size_t n = 0;
    text[0] = '\0';
    for (size_t i = 0; i < z->n && n + 8 < cap; i++) {
        oq_str name = z->v[i].name;
        (void)oq_str_cut_end(&name, ".npy");
        if (i > 0) {
            text[n++] = ',';
            text[n++] = ' ';
        }
        n += oq_text_escape(text + n, cap - n, name.p, name.n < 60 ? name.n : 60);
    }
}

static onq_code find_member(set *s, oq_str name, bool may_lack, oq_bytes **out, onq_error *err) {
    *out = NULL;
    for (size_t i = 0; i < s->zip.n; i++) {
        oq_str have = s->zip.v[i].name;
        if (!oq_str_cut_end(&have, ".npy") || !oq_str_eq(have, name))
            continue;
        if (*out != NULL)
            return oq_fail(err, ONQ_E_INVALID, "it has two arrays '%.*s'", OQ_STR(name));
        *out = &s->zip.v[i].bytes;
    }
    if (*out != NULL || may_lack)
        return ONQ_OK;
    char have[300];
    list_members(&s->zip, have, sizeof have);
    return oq_fail(err, ONQ_E_INVALID, "no array has the name of this input (there are: %s)",
                   have[0] != '\0' ? have : "none");
}

static onq_code open_file(numpy_reader *r, size_t i, const char *path, oq_file *out,
                          onq_error *err) {
    if (r->given == NULL)
        return oq_file_open(out, &r->env->alloc, path, err);
    *out = r->given[i];
    r->given[i] = (oq_file){.handle = OQ_NO_HANDLE};
    return ONQ_OK;
}

static onq_code open_npz_arrays(numpy_reader *r, const char *path, onq_error *err) {
    set *s = &r->set;
    s->files = OQ_NEW_ARRAY(&s->arena, oq_file, 1);
    OQ_TRY_ALLOC(s->files != NULL, err);
    OQ_TRY(open_file(r, 0, path, &s->files[0], err));
    s->n_files = 1;
    onq_code rc = oq_zip_open(&s->zip, &s->arena, &r->env->alloc, &s->files[0], err);
    for (size_t i = 0; rc == ONQ_OK && i < r->inputs.n; i++) {
        oq_bytes *bytes = NULL;
        rc = find_member(s, r->inputs.v[i].name, oq_may_lack(r->o, i), &bytes, err);
        if (rc == ONQ_OK)
            rc = open_array(r, s, i, bytes, err);
        if (rc != ONQ_OK && strncmp(oq_error_text(err), "input '", 7) == 0)
            return oq_error_in(err, rc, "%s", path); /* it names the array, as the input */
        if (rc != ONQ_OK)
            return oq_error_in(err, rc, "%s: array '%.*s'", path, OQ_STR(r->inputs.v[i].name));
    }
    return rc == ONQ_OK ? rc : oq_error_in(err, rc, "%s", path);
}

static onq_code open_npy_arrays(numpy_reader *r, onq_error *err) {
    set *s = &r->set;
    s->files = OQ_NEW_ARRAY(&s->arena, oq_file, r->inputs.n + 1);
    s->bytes = OQ_NEW_ARRAY(&s->arena, oq_bytes, r->inputs.n + 1);
    OQ_TRY_ALLOC(s->files != NULL && s->bytes != NULL, err);
    for (size_t i = 0; i < r->inputs.n; i++) {
        s->arrays[i].absent = r->paths[i] == NULL;
        if (s->arrays[i].absent)
            continue;
        OQ_TRY(open_file(r, i, r->paths[i], &s->files[s->n_files], err));
        oq_bytes_init(&s->bytes[i], &r->env->alloc, &s->files[s->n_files++]);
        onq_code rc = open_array(r, s, i, &s->bytes[i], err);
        if (rc != ONQ_OK)
            return oq_error_in(err, rc, "%s", r->paths[i]);
    }
    return ONQ_OK;
}

/* Among arrays of many sequences, an array with one axis more than its input has one value for all
 * steps of each sequence; alone it would hold the steps of one. */
static onq_code divide_among_many(numpy_reader *r, size_t first, size_t i, onq_error *err) {
    set *s = &r->set;
    const oq_io *want = &r->inputs.v[i], *other = &r->inputs.v[first];
    if (r->o->has_steps_axis && want->has_shape && s->arrays[i].h.rank == want->rank + 1)
        return divide(r, &s->arrays[i], i, true, &s->arena, err);
    return oq_fail(err, ONQ_E_INVALID,
                   "array '%.*s' has an axis for %" PRIu64
                   " samples, '%.*s' has none: give '%.*s' a first axis of %" PRIu64 " as well",
                   OQ_STR(other->name), s->n_samples, OQ_STR(want->name), OQ_STR(want->name),
                   s->n_samples);
}

/* All arrays hold one sample, or all the same number of them. */
static onq_code agree(numpy_reader *r, onq_error *err) {
    set *s = &r->set;
    size_t first = 0;
    while (first < r->inputs.n && !s->arrays[first].many)
        first++;
    s->many = first < r->inputs.n;
    s->n_samples = s->many ? s->arrays[first].n_samples : 1;
    for (size_t i = 0; s->many && i < r->inputs.n; i++) {
        if (s->arrays[i].absent)
            continue;
        if (!s->arrays[i].many)
            OQ_TRY(divide_among_many(r, first, i, err));
        if (s->arrays[i].n_samples != s->n_samples)
            return oq_fail(err, ONQ_E_INVALID,
                           "array '%.*s' has %" PRIu64 " samples, '%.*s' has %" PRIu64,
                           OQ_STR(r->inputs.v[i].name), s->arrays[i].n_samples,
                           OQ_STR(r->inputs.v[first].name), s->n_samples);
    }
    return ONQ_OK;
}

/* The file of a set, or the first of them. */
static const char *path_of(const numpy_reader *r, size_t at) {
    size_t i = r->is_npz ? at : 0;
    while (r->paths[i] == NULL && i + 1 < r->inputs.n)
        i++;
    return r->paths[i] != NULL ? r->paths[i] : "";
}

static onq_code open_set(numpy_reader *r, size_t i, onq_error *err) {
    if (r->set.open && r->current == i)
        return ONQ_OK;
    close_set(r);
    set *s = &r->set;
    oq_arena_init(&s->arena, &r->env->alloc);
    s->open = true;
    r->current = i;
    s->arrays = OQ_NEW_ARRAY(&s->arena, array, r->inputs.n + 1);
    onq_code rc = s->arrays != NULL ? ONQ_OK : oq_fail_nomem(err);
    if (rc == ONQ_OK)
        rc = r->is_npz ? open_npz_arrays(r, r->paths[i], err) : open_npy_arrays(r, err);
    if (rc == ONQ_OK) {
        rc = agree(r, err);
        if (rc != ONQ_OK)
            rc = oq_error_in(err, rc, "%s", path_of(r, i));
    }
    if (rc != ONQ_OK)
        close_set(r);
    return rc;
}

/* ---- the reader ---- */

static onq_code read_sample(oq_reader *base, uint64_t number, oq_arena *a, oq_datum *inputs,
                            const char **name, onq_error *err) {
    numpy_reader *r = (numpy_reader *)base;
    const size_t at = oq_reader_part(r->first, r->n_sets, number);
    const uint64_t k = number - r->first[at];
    const char *path = path_of(r, at);
    const char *file = oq_path_last(path);
    *name = r->many ? oq_str_format(a, "%s sample %" PRIu64, file, k).p : file;
    OQ_TRY_ALLOC(*name != NULL, err);
    OQ_TRY(open_set(r, at, err));
    if (r->set.n_samples != r->first[at + 1] - r->first[at])
        return oq_fail(err, ONQ_E_READ, "the file changed while it was read");
    for (size_t i = 0; i < r->inputs.n; i++) {
        inputs[i] = (oq_datum){0};
        if (r->set.arrays[i].absent)
            continue;
        onq_code rc = read_array(r, &r->set, &r->set.arrays[i], k, a, &inputs[i], err);
        if (rc != ONQ_OK)
            return oq_error_in(err, rc, "input '%.*s'", OQ_STR(r->inputs.v[i].name));
    }
    /* Headers were read when the files were opened: one rewritten since has other elements
     * there. */
    for (size_t i = 0; i < r->set.n_files; i++)
        OQ_TRY(oq_file_check(&r->set.files[i], err));
    return ONQ_OK;
}

static void close_reader(oq_reader *base) {
    close_set((numpy_reader *)base);
}

static onq_code open_reader(const oq_reader_setup *s, numpy_reader *r, onq_error *err) {
    r->first = OQ_NEW_ARRAY(s->arena, uint64_t, r->n_sets + 1);
    OQ_TRY_ALLOC(r->first != NULL, err);
    for (size_t i = 0; i < r->n_sets; i++) {
        OQ_TRY(open_set(r, i, err));
        r->many = r->many || r->set.many;
        if (!oq_add(r->first[i], r->set.n_samples, &r->first[i + 1]))
            return oq_fail(err, ONQ_E_LIMIT, "more samples than fit in 64 bits");
    }
    r->base.count = r->first[r->n_sets];
    const char *where = path_of(r, 0);
    if (r->is_npz && r->n_sets == 1)
        r->base.text = oq_str_format(s->arena, "%" PRIu64 " samples in %s", r->base.count, where).p;
    else
        r->base.text =
            oq_str_format(s->arena, "%" PRIu64 " samples in %zu %s files", r->base.count,
                          r->is_npz ? r->n_sets : r->inputs.n, r->is_npz ? ".npz" : ".npy")
                .p;
    return r->base.text != NULL ? ONQ_OK : oq_fail_nomem(err);
}

static onq_code new_reader(const oq_reader_setup *s, bool is_npz, const char *const *paths,
                           size_t n_sets, oq_file *given, oq_reader **out, onq_error *err) {
    numpy_reader *r = OQ_NEW(s->arena, numpy_reader);
    OQ_TRY_ALLOC(r != NULL, err);
    *r = (numpy_reader){.base = {.read = read_sample, .close = close_reader},
                        .env = s->env,
                        .inputs = s->inputs,
                        .o = s->o,
                        .most_bytes = s->most_bytes,
                        .is_npz = is_npz,
                        .paths = paths,
                        .given = given,
                        .n_sets = n_sets};
    onq_code rc = open_reader(s, r, err);
    if (rc != ONQ_OK) {
        close_set(r);
        return rc;
    }
    *out = &r->base;
    return ONQ_OK;
}

onq_code oq_reader_open_npz(const oq_reader_setup *s, const char *const *paths, size_t n,
                            oq_reader **out, onq_error *err) {
    return new_reader(s, true, paths, n, NULL, out, err);
}

onq_code oq_reader_open_npy(const oq_reader_setup *s, const char *const *paths, oq_reader **out,
                            onq_error *err) {
    return new_reader(s, false, paths, 1, NULL, out, err);
}

onq_code oq_reader_open_arrays(const oq_reader_setup *s, bool is_npz, const char *const *names,
                               oq_file *files, oq_reader **out, onq_error *err) {
    const onq_code rc = new_reader(s, is_npz, names, 1, files, out, err);
    for (size_t i = 0; i < (is_npz ? 1 : s->inputs.n); i++)
        oq_file_close(&files[i]); /* those that were not taken */
    return rc;
}
