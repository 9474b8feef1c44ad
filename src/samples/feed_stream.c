/*
 * feed_stream.c — samples from a stream of numpy arrays: `--data -`, `--data exec:COMMAND` and .tar
 * files (docs/SAMPLES.md).
 *
 * The stream is one of two. A tar archive: each .npz file in it is a sample (or holds several along
 * the first axis), and so is each .npy file where the model has one input; other files are passed
 * over. Or .npy arrays one after another, as numpy.save writes them: one for each input in the
 * model's order, then those of the next sample. The first bytes tell which. Files of a tar archive
 * whose names begin with "step" are steps of a sequence, one for each folder; of .npy arrays, those
 * that may be left out are.
 *
 * A file or a group of arrays is in memory as long as its samples are read, by the code that reads
 * such files from a folder (source_numpy.c).
 */
#include "samples/files/npy.h"
#include "samples/files/tar.h"
#include "samples/source_private.h"

#define MAX_MEMBER (4ull << 30)
#define AT_ONCE    (4ull << 20) /* memory for what a stream promises before any of it has come */

typedef struct stream_feed {
    oq_feed base;
    onq_env *env;
    oq_arena arena; /* of the feed */
    oq_ios inputs;
    oq_source_options like; /* how arrays are read */
    oq_pipe pipe;
    bool begun, tar;
    uint8_t head[OQ_TAR_BLOCK]; /* the first block, before it is used */
    size_t head_size, head_at;
    /* The file, or group of arrays, whose samples are being read. */
    oq_arena set;
    oq_reader *reader; /* NULL: none */
    uint64_t at;       /* its next sample */
    uint64_t n_groups, n_arrays;
    uint64_t sequence, step; /* of the file */
    oq_buf folder;           /* that the steps of a sequence are in */
    bool stepping;           /* the file before was a step */
} stream_feed;

/* ---- bytes ---- */

/* n bytes: those of the head first. *got is less at the end. */
static onq_code read_some(stream_feed *f, void *out, uint64_t n, uint64_t *got, onq_error *err) {
    const uint64_t left = f->head_size - f->head_at, first = left < n ? left : n;
    memcpy(out, f->head + f->head_at, first);
    f->head_at += first;
    OQ_TRY(oq_pipe_read(&f->pipe, (uint8_t *)out + first, n - first, got, err));
    *got += first;
    return ONQ_OK;
}

static onq_code fail_inside(onq_error *err) {
    return oq_fail(err, ONQ_E_MALFORMED, "the stream ends inside an array");
}

static onq_code read_exactly(stream_feed *f, void *out, uint64_t n, onq_error *err) {
    uint64_t got = 0;
    OQ_TRY(read_some(f, out, n, &got, err));
    return got == n ? ONQ_OK : fail_inside(err);
}

/* `size` bytes, of which `first` are there already; out->n is less at the end. Memory grows with
 * what comes, for the size is only what the stream says. */
static onq_code read_whole(stream_feed *f, oq_span first, uint64_t size, oq_span *out,
                           onq_error *err) {
    uint64_t room = AT_ONCE / 4, got = 0;
    *out = first;
    do {
        room = room > size / 4 ? size : room * 4;
        uint8_t *p = oq_arena_alloc(&f->set, room + 1);
        OQ_TRY_ALLOC(p != NULL, err);
        if (out->n > 0)
            memcpy(p, out->p, out->n);
        OQ_TRY(read_some(f, p + out->n, room - out->n, &got, err));
        *out = (oq_span){p, out->n + got};
    } while (out->n == room && room < size);
    return ONQ_OK;
}

static onq_code refuse(const stream_feed *f, onq_error *err) {
    const uint8_t *b = f->head;
    const char *what = f->head_size >= 2 && b[0] == 0x1f && b[1] == 0x8b
                           ? ": it is compressed (exec:gzip -dc FILE)"
                       : f->head_size >= 2 && b[0] == 'P' && b[1] == 'K'
                           ? ": it is one .npz file (put the files into a tar archive)"
                           : "";
    return oq_fail(err, ONQ_E_MALFORMED, "neither a tar archive nor .npy arrays%s", what);
}

/* Looks at the first block. */
static onq_code begin(stream_feed *f, onq_error *err) {
    uint64_t got = 0;
    f->begun = true;
    OQ_TRY(oq_pipe_read(&f->pipe, f->head, sizeof f->head, &got, err));
    f->head_size = (size_t)got;
    f->head_at = 0;
    f->tar = got == sizeof f->head && oq_tar_is(f->head);
    const bool npy = got >= 6 && memcmp(f->head, "\x93NUMPY", 6) == 0;
    return f->tar || npy || got == 0 ? ONQ_OK : refuse(f, err);
}

/* ---- sets of arrays ---- */

static void close_set(stream_feed *f) {
    if (f->reader != NULL)
        f->reader->close(f->reader);
    f->reader = NULL;
    oq_arena_release(&f->set);
    oq_arena_init(&f->set, &f->env->alloc);
}

/* The samples of these bytes. `names` and the bytes are in the set's arena. */
static onq_code open_set(stream_feed *f, bool is_npz, const char *const *names,
                         const oq_span *bytes, onq_error *err) {
    const size_t n = is_npz ? 1 : f->inputs.n;
    const oq_reader_setup setup = {.env = f->env,
                                   .arena = &f->set,
                                   .inputs = f->inputs,
                                   .o = &f->like,
                                   .most_bytes = MAX_MEMBER};
    oq_file *files = OQ_NEW_ARRAY(&f->set, oq_file, n + 1);
    onq_code rc = files != NULL ? ONQ_OK : oq_fail_nomem(err);
    for (size_t i = 0; files != NULL && i < n; i++)
        files[i] = (oq_file){.handle = OQ_NO_HANDLE};
    for (size_t i = 0; rc == ONQ_OK && i < n; i++)
        if (names[i] != NULL)
            rc = oq_file_borrow(&files[i], &f->env->alloc, names[i], bytes[i].p, bytes[i].n, err);
    if (rc != ONQ_OK) {
        for (size_t i = 0; files != NULL && i < n; i++)
            oq_file_close(&files[i]);
        return rc;
    }
    f->at = 0;
    return oq_reader_open_arrays(&setup, is_npz, names, files, &f->reader, err);
}

/* ---- .npy arrays one after another ---- */

static onq_code read_npy(stream_feed *f, oq_span *out, bool *more, onq_error *err) {
    uint8_t prefix[OQ_NPY_PREFIX];
    uint64_t got = 0, end = 0, size = 0;
    oq_npy h;
    OQ_TRY(read_some(f, prefix, sizeof prefix, &got, err));
    *more = got > 0;
    if (got == 0)
        return ONQ_OK;
    OQ_TRY(oq_npy_prefix(prefix, got, &end, err));
    if (end < sizeof prefix)
        return oq_fail(err, ONQ_E_MALFORMED, "the .npy header is empty");
    uint8_t *head = oq_arena_alloc(&f->set, end);
    OQ_TRY_ALLOC(head != NULL, err);
    memcpy(head, prefix, sizeof prefix);
    OQ_TRY(read_exactly(f, head + sizeof prefix, end - sizeof prefix, err));
    OQ_TRY(oq_npy_header(head, end, &h, err));
    if (!oq_add(end, h.data_size, &size) || size > MAX_MEMBER)
        return oq_fail(err, ONQ_E_LIMIT, "an array is larger than %llu bytes", MAX_MEMBER);
    OQ_TRY(read_whole(f, (oq_span){head, end}, size, out, err));
    return out->n == size ? ONQ_OK : fail_inside(err);
}

/* Inputs that are in the stream. */
static size_t n_given(const stream_feed *f) {
    size_t n = 0;
    for (size_t i = 0; i < f->inputs.n; i++)
        n += !oq_may_lack(&f->like, i);
    return n;
}

static onq_code next_group(stream_feed *f, bool *more, onq_error *err) {
    const size_t n = f->inputs.n;
    oq_span *bytes = OQ_NEW_ARRAY(&f->set, oq_span, n + 1);
    const char **names = OQ_NEW_ARRAY(&f->set, const char *, n + 1);
    OQ_TRY_ALLOC(bytes != NULL && names != NULL, err);
    size_t n_read = 0;
    for (size_t i = 0; i < n; i++) {
        if (oq_may_lack(&f->like, i))
            continue;
        names[i] = oq_str_format(&f->set, "array %" PRIu64, f->n_arrays + n_read).p;
        OQ_TRY_ALLOC(names[i] != NULL, err);
        const onq_code rc = read_npy(f, &bytes[i], more, err);
        if (rc != ONQ_OK)
            return oq_error_in(err, rc, "%s", names[i]);
        if (!*more && n_read > 0)
            return oq_fail(err, ONQ_E_INVALID,
                           "it ends after %zu of the %zu arrays of a sample (one for each input)",
                           n_read, n_given(f));
        if (!*more)
            return oq_pipe_finish(&f->pipe, err);
        n_read++;
    }
    f->n_arrays += n_read;
    f->sequence += f->n_groups++ > 0;
    return open_set(f, false, names, bytes, err);
}

/* ---- tar ---- */

/* Which sequence the file belongs to. */
static onq_code find_place(stream_feed *f, const char *name, onq_error *err) {
    const char *slash = strrchr(name, '/'); /* of tar: the same on every system */
    const char *file = slash != NULL ? slash + 1 : name;
    const oq_str folder = {name, (size_t)(file - name)};
    const bool is_step = f->like.may_lack != NULL && strncmp(file, "step", 4) == 0;
    const bool goes_on = is_step && f->stepping && f->n_groups > 0 &&
                         oq_str_eq(folder, (oq_str){f->folder.p, f->folder.n});
    f->step = goes_on ? f->step + 1 : 0;
    f->sequence += !goes_on && f->n_groups > 0;
    f->n_groups++;
    f->stepping = is_step;
    f->folder.n = 0;
    oq_buf_add_str(&f->folder, folder);
    return f->folder.failed ? oq_fail_nomem(err) : ONQ_OK;
}

static onq_code read_member(stream_feed *f, const oq_tar_member *m, oq_span *out, onq_error *err) {
    if (m->size > MAX_MEMBER)
        return oq_fail(err, ONQ_E_LIMIT, "it is larger than %llu bytes", MAX_MEMBER);
    OQ_TRY(read_whole(f, (oq_span){NULL, 0}, m->size, out, err));
    if (out->n < m->size)
        return oq_fail(err, ONQ_E_MALFORMED, "the archive is cut off");
    return oq_tar_skip(&f->pipe, oq_tar_padding(m->size), err);
}

static onq_code next_member(stream_feed *f, bool *more, onq_error *err) {
    for (;;) {
        oq_tar_member m;
        const uint8_t *head = f->head_at == 0 ? f->head : NULL;
        f->head_at = f->head_size;
        OQ_TRY(oq_tar_next(&f->pipe, head, &f->set, &m, more, err));
        if (!*more)
            return oq_pipe_finish(&f->pipe, err);
        const bool npz = oq_name_ends(m.name, ".npz");
        if (!npz && !(oq_name_ends(m.name, ".npy") && f->inputs.n == 1)) {
            OQ_TRY(oq_tar_skip(&f->pipe, m.size + oq_tar_padding(m.size), err));
            continue;
        }
        oq_span bytes = {NULL, 0};
        onq_code rc = read_member(f, &m, &bytes, err);
        const char **names = OQ_NEW_ARRAY(&f->set, const char *, 1);
        if (rc == ONQ_OK && names == NULL)
            rc = oq_fail_nomem(err);
        if (rc == ONQ_OK) {
            names[0] = m.name;
            rc = find_place(f, m.name, err);
        }
        if (rc == ONQ_OK)
            rc = open_set(f, npz, names, &bytes, err);
        if (rc == ONQ_OK && f->stepping && f->reader->count != 1)
            rc = oq_fail(err, ONQ_E_INVALID,
                         "it is a step of a sequence and holds %" PRIu64 " samples",
                         f->reader->count);
        return rc == ONQ_OK ? rc : oq_error_in(err, rc, "%s", m.name);
    }
}

/* ---- the feed ---- */

static onq_code next_set(stream_feed *f, bool *more, onq_error *err) {
    close_set(f);
    if (!f->begun)
        OQ_TRY(begin(f, err));
    *more = f->head_size > 0;
    if (!*more)
        return oq_pipe_finish(&f->pipe, err);
    return f->tar ? next_member(f, more, err) : next_group(f, more, err);
}

static onq_code next_sample(stream_feed *f, uint64_t number, oq_arena *a, oq_named_list *out,
                            bool *more, onq_error *err) {
    const char *name = NULL;
    (void)number;
    *more = true;
    while (f->reader == NULL || f->at >= f->reader->count) {
        OQ_TRY(next_set(f, more, err));
        if (!*more)
            return ONQ_OK;
    }
    oq_datum *inputs = OQ_NEW_ARRAY(a, oq_datum, f->inputs.n + 1);
    OQ_TRY_ALLOC(inputs != NULL, err);
    f->sequence += f->at > 0; /* one file holds several */
    out->sequence = f->sequence;
    out->step = f->step;
    const onq_code rc = f->reader->read(f->reader, f->at++, a, inputs, &name, err);
    if (rc != ONQ_OK)
        return name != NULL ? oq_error_in(err, rc, "%s", name) : rc;
    if (name != NULL && (out->name = oq_arena_strdup(a, name, strlen(name))) == NULL)
        return oq_fail_nomem(err);
    for (size_t i = 0; i < f->inputs.n; i++)
        OQ_TRY_ALLOC(OQ_PUSH(a, &out->all, (oq_named){f->inputs.v[i].name, inputs[i]}), err);
    return ONQ_OK;
}

static onq_code stream_next(oq_feed *base, uint64_t number, oq_arena *a, oq_named_list *out,
                            bool *more, onq_error *err) {
    stream_feed *f = (stream_feed *)base;
    const onq_code rc = next_sample(f, number, a, out, more, err);
    return rc == ONQ_OK ? rc
                        : oq_error_in(err, rc, "%s: sample '%" PRIu64 "'", f->base.text, number);
}

/* A file that can be read from its beginning. */
static onq_code stream_rewind(oq_feed *base, onq_error *err) {
    stream_feed *f = (stream_feed *)base;
    close_set(f);
    if (!oq_os_rewind(f->pipe.handle))
        return oq_fail(err, ONQ_E_READ, "%s: cannot be read again", f->base.text);
    f->begun = f->pipe.ended = false;
    f->n_groups = f->n_arrays = f->sequence = f->step = 0;
    f->stepping = false;
    return ONQ_OK;
}

static void stream_close(oq_feed *base) {
    stream_feed *f = (stream_feed *)base;
    const onq_env *env = f->env;
    close_set(f);
    oq_pipe_close(&f->pipe);
    oq_buf_release(&f->folder);
    oq_arena_release(&f->set);
    oq_arena_release(&f->arena);
    oq_free(&env->alloc, f, sizeof *f);
}

/* ---- what --data says ---- */

static const char *command_of(const char *spec) {
    return strncmp(spec, "exec:", 5) == 0 ? spec + 5 : NULL;
}

bool oq_feed_is_stream(const char *spec) {
    return strcmp(spec, "-") == 0 || command_of(spec) != NULL || oq_name_ends(spec, ".tar");
}

static onq_code open_pipe(stream_feed *f, const char *spec, onq_error *err) {
    const char *command = command_of(spec);
    if (strcmp(spec, "-") == 0) {
        f->base.text = "standard input";
        oq_pipe_open_input(&f->pipe);
        return ONQ_OK;
    }
    f->base.text = oq_arena_strdup(&f->arena, spec, strlen(spec));
    OQ_TRY_ALLOC(f->base.text != NULL, err);
    if (command == NULL) {
        f->base.rewind = stream_rewind;
        return oq_pipe_open_file(&f->pipe, f->base.text, err);
    }
    if (command[strspn(command, " \t")] == '\0')
        return oq_fail(err, ONQ_E_OPTION, "--data exec: needs a command (exec:python3 make.py)");
    return oq_pipe_run(&f->pipe, command, err);
}

/* The model may be freed before the feed. */
static onq_code copy_names(stream_feed *f, onq_error *err) {
    for (size_t i = 0; i < f->inputs.n; i++) {
        oq_io *io = &f->inputs.v[i];
        oq_io_dim *dims = OQ_NEW_ARRAY(&f->arena, oq_io_dim, io->rank + 1);
        io->name = oq_str_copy(&f->arena, io->name);
        OQ_TRY_ALLOC(io->name.p != NULL && dims != NULL, err);
        for (size_t k = 0; k < io->rank; k++) {
            dims[k] = io->dims[k];
            if (dims[k].param.p == NULL)
                continue;
            dims[k].param = oq_str_copy(&f->arena, dims[k].param);
            OQ_TRY_ALLOC(dims[k].param.p != NULL, err);
        }
        io->dims = dims;
    }
    return ONQ_OK;
}

/* How arrays are read; the options may be gone before the feed. */
static onq_code copy_like(stream_feed *f, const oq_source_options *like, onq_error *err) {
    if (like == NULL)
        return ONQ_OK;
    f->like.has_steps_axis = like->has_steps_axis;
    f->like.steps_axis = like->steps_axis;
    if (like->may_lack == NULL)
        return ONQ_OK;
    bool *copy = OQ_NEW_ARRAY(&f->arena, bool, f->inputs.n + 1);
    OQ_TRY_ALLOC(copy != NULL, err);
    memcpy(copy, like->may_lack, f->inputs.n * sizeof *copy);
    f->like.may_lack = copy;
    return ONQ_OK;
}

onq_code oq_feed_open_stream(onq_env *env, const char *spec, const oq_model *m,
                             const oq_source_options *like, oq_feed **out, onq_error *err) {
    stream_feed *f = oq_calloc(&env->alloc, 1, sizeof *f);
    OQ_TRY_ALLOC(f != NULL, err);
    f->env = env;
    f->base.next = stream_next;
    f->base.close = stream_close;
    f->pipe.handle = OQ_NO_HANDLE;
    oq_buf_init(&f->folder, &env->alloc);
    oq_arena_init(&f->arena, &env->alloc);
    oq_arena_init(&f->set, &env->alloc);
    onq_code rc = oq_model_inputs(m, &f->arena, &f->inputs, err);
    if (rc == ONQ_OK)
        rc = copy_names(f, err);
    if (rc == ONQ_OK)
        rc = copy_like(f, like, err);
    if (rc == ONQ_OK && f->inputs.n == 0)
        rc = oq_fail(err, ONQ_E_UNSUPPORTED, "%s: the model has no inputs to feed", spec);
    if (rc == ONQ_OK)
        rc = open_pipe(f, spec, err);
    if (rc != ONQ_OK) {
        stream_close(&f->base);
        return rc;
    }
    *out = &f->base;
    return ONQ_OK;
}
