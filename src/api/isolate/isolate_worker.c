/*
 * isolate_worker.c — the worker's side of --isolate: onq_worker_run.
 */
#include "api/interface/ranges_handle.h"
#include "api/isolate/isolate_parts.h"
#include "base/system/confine.h"

#include <pthread.h>

typedef struct worker worker;

/* A file of the caller's memory. */
typedef struct given {
    worker *w;
    uint64_t number;
    oq_buf bytes;
    onq_bytes row;
} given;

struct worker {
    oq_iso_end end;
    int (*stop)(void);
    onq_env *env;
    onq_options *opts;
    oq_arena arena;
    /* Any thread of the job may speak, one frame at a time; one at a time waits for an answer. */
    pthread_mutex_t speak, ask;
    given *given;
    size_t n_given;
    onq_ranges *ranges;
    oq_buf sample; /* the last one, which its tensors are views of */
    oq_arena sample_arena;
    OQ_VEC(oq_buf *) data; /* external data that was asked for */
};

static onq_code say(worker *w, oq_iso_kind kind, const oq_buf *body, onq_error *err) {
    pthread_mutex_lock(&w->speak);
    const onq_code rc = oq_iso_send_buf(&w->end, kind, body, err);
    pthread_mutex_unlock(&w->speak);
    return rc;
}

/* Says one thing and gets the answer; ONQ_E_READ when there is none. */
static onq_code ask(worker *w, oq_iso_kind kind, const oq_buf *question, oq_iso_kind *answer,
                    oq_buf *body) {
    pthread_mutex_lock(&w->ask);
    onq_code rc = say(w, kind, question, NULL);
    if (rc == ONQ_OK)
        rc = oq_iso_receive(&w->end, answer, body, NULL);
    pthread_mutex_unlock(&w->ask);
    return rc;
}

/* ---- callbacks of the job ---- */

static void on_log(void *ctx, onq_log_level level, const char *text) {
    worker *w = ctx;
    oq_buf b;
    oq_buf_init(&b, &w->env->alloc);
    oq_iso_put(&b, (uint64_t)(int64_t)level);
    oq_iso_put_text(&b, oq_str_of(text));
    (void)say(w, OQ_ISO_LOG, &b, NULL);
    oq_buf_release(&b);
}

static int on_progress(void *ctx, const char *what, uint64_t done, uint64_t total) {
    worker *w = ctx;
    oq_buf b;
    oq_buf_init(&b, &w->env->alloc);
    oq_iso_put_text(&b, oq_str_of(what));
    oq_iso_put(&b, done);
    oq_iso_put(&b, total);
    const onq_code rc = say(w, OQ_ISO_PROGRESS, &b, NULL);
    oq_buf_release(&b);
    return rc != ONQ_OK || w->stop() != 0;
}

static bool get_tensor(worker *w, oq_iso_body *b, onq_tensor *out) {
    oq_arena *a = &w->sample_arena;
    *out = (onq_tensor){.name = oq_iso_get_word(b, a)};
    out->dtype = (int32_t)oq_iso_get(b);
    out->rank = (size_t)oq_iso_get(b);
    if (b->bad || out->rank > OQ_TENSOR_RANK)
        return false;
    int64_t *dims = OQ_NEW_ARRAY(a, int64_t, out->rank + 1);
    for (size_t i = 0; dims != NULL && i < out->rank; i++)
        dims[i] = (int64_t)oq_iso_get(b);
    out->dims = dims;
    if (out->dtype != OQ_STRING) {
        const oq_str bytes = oq_iso_get_text(b);
        out->data = bytes.p;
        out->size = bytes.n;
        return dims != NULL && !b->bad;
    }
    const uint64_t n = oq_iso_get(b);
    const char **texts = n <= b->left ? OQ_NEW_ARRAY(a, const char *, n + 1) : NULL;
    for (uint64_t i = 0; texts != NULL && i < n; i++)
        texts[i] = oq_iso_get_word(b, a);
    out->strings = texts;
    return dims != NULL && texts != NULL && !b->bad;
}

static int next_sample(void *ctx, const onq_tensor **inputs, size_t *n_inputs) {
    worker *w = ctx;
    oq_iso_kind kind = OQ_ISO_STOP;
    const oq_buf nothing = {0};
    oq_arena_release(&w->sample_arena);
    oq_arena_init(&w->sample_arena, &w->env->alloc);
    if (ask(w, OQ_ISO_NEXT, &nothing, &kind, &w->sample) != ONQ_OK)
        return -1;
    if (kind != OQ_ISO_SAMPLE)
        return kind == OQ_ISO_NONE ? 0 : -1;
    oq_iso_body b = oq_iso_read(&w->sample);
    const uint64_t n = oq_iso_get(&b), mark = oq_iso_get(&b);
    onq_tensor *all = n <= b.left ? OQ_NEW_ARRAY(&w->sample_arena, onq_tensor, n + 1) : NULL;
    for (uint64_t i = 0; all != NULL && i < n; i++)
        if (!get_tensor(w, &b, &all[i]))
            return -1;
    *inputs = all;
    *n_inputs = (size_t)n;
    return all != NULL && mark <= ONQ_READER_STEP ? (int)mark : -1;
}

static int rewind_samples(void *ctx) {
    oq_iso_kind kind = OQ_ISO_STOP;
    worker *w = ctx;
    const oq_buf nothing = {0};
    oq_buf body;
    oq_buf_init(&body, &w->env->alloc);
    const onq_code rc = ask(w, OQ_ISO_REWIND, &nothing, &kind, &body);
    oq_buf_release(&body);
    return rc == ONQ_OK && kind == OQ_ISO_NONE ? 0 : -1;
}

static int open_data(void *ctx, const char *location, const void **data, size_t *size) {
    given *g = ctx;
    worker *w = g->w;
    oq_iso_kind kind = OQ_ISO_NONE;
    oq_buf question, *body = OQ_NEW(&w->arena, oq_buf);
    if (body == NULL)
        return -1;
    oq_buf_init(body, &w->env->alloc);
    oq_buf_init(&question, &w->env->alloc);
    oq_iso_put(&question, g->number);
    oq_iso_put_text(&question, oq_str_of(location));
    const onq_code rc = ask(w, OQ_ISO_OPEN, &question, &kind, body);
    oq_buf_release(&question);
    if (rc != ONQ_OK || kind != OQ_ISO_BYTES || !OQ_PUSH(&w->arena, &w->data, body)) {
        oq_buf_release(body);
        return -1;
    }
    *data = body->p;
    *size = body->n;
    return 0;
}

/* ---- the job ---- */

static onq_code garbled(onq_error *err) {
    return oq_fail(err, ONQ_E_INTERNAL, "the caller sent something that is not a valid message");
}

static onq_code get_given(worker *w, oq_iso_body *b, onq_error *err) {
    w->n_given = (size_t)oq_iso_get(b);
    if (w->n_given > b->left)
        return garbled(err);
    w->given = OQ_NEW_ARRAY(&w->arena, given, w->n_given + 1);
    OQ_TRY_ALLOC(w->given != NULL, err);
    for (size_t i = 0; i < w->n_given; i++) {
        given *g = &w->given[i];
        *g = (given){.w = w, .number = i};
        oq_buf_init(&g->bytes, &w->env->alloc);
        g->row.label = oq_iso_get_word(b, &w->arena);
        g->row.folder = oq_iso_get_word(b, &w->arena);
        if (oq_iso_get(b) == 0)
            g->row.folder = NULL;
        if (oq_iso_get(b) != 0) {
            g->row.open = open_data;
            g->row.ctx = g;
        }
    }
    return b->bad ? garbled(err) : ONQ_OK;
}

/* The bytes follow the job's frame. */
static onq_code get_bytes(worker *w, onq_error *err) {
    for (size_t i = 0; i < w->n_given; i++) {
        oq_iso_kind kind = OQ_ISO_NONE;
        given *g = &w->given[i];
        OQ_TRY(oq_iso_receive(&w->end, &kind, &g->bytes, err));
        if (kind != OQ_ISO_BYTES)
            return garbled(err);
        g->row.data = g->bytes.p;
        g->row.size = g->bytes.n;
    }
    return ONQ_OK;
}

static onq_code get_list(worker *w, oq_iso_body *b, const char *name, onq_error *err) {
    oq_opt_value *v = NULL;
    const uint64_t n = oq_iso_get(b);
    OQ_TRY(oq_opt_value_find(w->opts, name, &v, err));
    for (uint64_t i = 0; i < n && !b->bad; i++) {
        const char *item = oq_iso_get_word(b, &w->opts->arena);
        if (item == NULL)
            return garbled(err);
        /* Pairs of --extra set options; items of lists are taken as they are. */
        if (v->row->type == ONQ_OPT_PAIRS)
            OQ_TRY(onq_options_set(w->opts, name, item, err));
        else if (!OQ_PUSH(&w->opts->arena, &v->list, oq_str_of(item)))
            return oq_fail_nomem(err);
    }
    v->is_set = true;
    return b->bad ? garbled(err) : ONQ_OK;
}

static onq_code get_value(worker *w, oq_iso_body *b, const char *name, const onq_reader *reader,
                          onq_error *err) {
    const uint64_t kind = oq_iso_get(b);
    if (kind == OQ_ISO_IS_LIST)
        return get_list(w, b, name, err);
    if (kind == OQ_ISO_IS_READER)
        return onq_options_set_reader(w->opts, reader, err);
    if (kind == OQ_ISO_IS_GIVEN) {
        const uint64_t i = oq_iso_get(b);
        return b->bad || i >= w->n_given
                   ? garbled(err)
                   : onq_options_set_bytes(w->opts, name, &w->given[i].row, err);
    }
    const char *text = oq_iso_get_word(b, &w->arena);
    if (text == NULL)
        return garbled(err);
    return kind == OQ_ISO_IS_WANTED ? onq_options_want_bytes(w->opts, name, text, err)
                                    : onq_options_set(w->opts, name, text, err);
}

static onq_code get_options(worker *w, oq_iso_body *b, onq_error *err) {
    onq_reader reader = {.next = next_sample, .ctx = w};
    if (oq_iso_get(b) != 0)
        reader.rewind = rewind_samples;
    reader.count = oq_iso_get(b);
    for (uint64_t n = oq_iso_get(b); n > 0 && !b->bad; n--) {
        const char *name = oq_iso_get_word(b, &w->arena);
        OQ_TRY(name != NULL ? get_value(w, b, name, &reader, err) : garbled(err));
    }
    for (uint64_t n = oq_iso_get(b); n > 0 && !b->bad; n--)
        OQ_TRY(get_value(w, b, "operand", &reader, err));
    if (oq_iso_get(b) == 0)
        return b->bad ? garbled(err) : ONQ_OK;
    oq_ranges r;
    OQ_TRY(oq_ranges_parse(&r, &w->env->alloc, "ranges", oq_iso_get_text(b), err));
    OQ_TRY(oq_ranges_hand_over(w->env, &r, &w->ranges, err));
    return onq_options_set_ranges(w->opts, w->ranges, err);
}

static onq_code get_limits(worker *w, oq_iso_body *b, oq_confine *limits, onq_error *err) {
    OQ_VEC(const char *) folders = {0};
    limits->memory = oq_iso_get(b);
    for (uint64_t n = oq_iso_get(b); n > 0 && !b->bad; n--) {
        const char *folder = oq_iso_get_word(b, &w->arena);
        OQ_TRY_ALLOC(folder != NULL && OQ_PUSH(&w->arena, &folders, folder), err);
    }
    const char *own = getenv("TMPDIR");
    if (own != NULL && own[0] != '\0' && !OQ_PUSH(&w->arena, &folders, own))
        return oq_fail_nomem(err);
    limits->folders = folders.v;
    limits->n_folders = folders.n;
    return ONQ_OK;
}

/* Reads the job; from here on the process is limited. */
static onq_code begin(worker *w, oq_buf *body, onq_error *err) {
    oq_iso_kind kind = OQ_ISO_NONE;
    oq_confine limits = {0};
    bool files = false;
    OQ_TRY(oq_iso_receive(&w->end, &kind, body, err));
    oq_iso_body b = oq_iso_read(body);
    const oq_str version = oq_iso_get_text(&b);
    if (kind != OQ_ISO_JOB || !oq_str_is(version, onq_version()))
        return garbled(err);
    const char *command = oq_iso_get_word(&b, &w->arena);
    if (command == NULL || oq_iso_get(&b) != oq_os_parent_id())
        return garbled(err);
    onq_env_set_threads(w->env, (unsigned)oq_iso_get(&b));
    OQ_TRY(get_limits(w, &b, &limits, err));
    OQ_TRY(oq_confine_self(&limits, &files, err));
    OQ_TRY(onq_options_new(w->env, command, &w->opts, err));
    OQ_TRY(get_given(w, &b, err));
    OQ_TRY(get_bytes(w, err));
    onq_env_set_log(w->env, on_log, w);
    onq_env_set_progress(w->env, on_progress, w);
    if (!files)
        oq_warn(w->env, "--isolate: this system has no Landlock, so the isolated process may write "
                        "any file that you may write");
    return get_options(w, &b, err);
}

static onq_code say_file(worker *w, const onq_file *f, onq_error *err) {
    oq_buf b;
    oq_buf_init(&b, &w->env->alloc);
    oq_iso_put_text(&b, oq_str_of(f->option));
    oq_iso_put_text(&b, oq_str_of(f->name));
    oq_iso_put(&b, f->size);
    onq_code rc = say(w, OQ_ISO_FILE, &b, err);
    oq_buf_release(&b);
    for (size_t at = 0; rc == ONQ_OK && at < f->size; at += OQ_ISO_PART_SIZE) {
        const size_t left = f->size - at, n = left < OQ_ISO_PART_SIZE ? left : OQ_ISO_PART_SIZE;
        rc = oq_iso_send(&w->end, OQ_ISO_PART, (const char *)f->data + at, n, err);
    }
    return rc;
}

static onq_code say_result(worker *w, const onq_result *res, onq_error *err) {
    const onq_file *f;
    for (size_t i = 0; (f = onq_result_file(res, i)) != NULL; i++)
        OQ_TRY(say_file(w, f, err));
    OQ_SCRATCH_BUF(b, &w->env->alloc);
    oq_iso_put(&b, (uint64_t)onq_result_status(res));
    oq_iso_put_text(&b, oq_str_of(onq_result_text(res)));
    oq_iso_put_text(&b, oq_str_of(onq_result_json(res)));
    oq_iso_put(&b, onq_result_ranges(res) != NULL);
    OQ_TRY(onq_result_ranges(res) != NULL
               ? oq_iso_ranges_text(w->env, onq_result_ranges(res), &b, err)
               : ONQ_OK);
    return say(w, OQ_ISO_DONE, &b, err);
}

static void say_failure(worker *w, onq_code rc, const onq_error *why) {
    oq_buf b;
    oq_buf_init(&b, &w->env->alloc);
    oq_iso_put(&b, (uint64_t)rc);
    oq_iso_put(&b, (uint64_t)why->offset);
    oq_iso_put_text(&b, oq_str_of(why->text));
    (void)say(w, OQ_ISO_FAILED, &b, NULL);
    oq_buf_release(&b);
}

static void release(worker *w) {
    onq_options_free(w->opts);
    onq_ranges_free(w->ranges);
    for (size_t i = 0; w->given != NULL && i < w->n_given; i++)
        oq_buf_release(&w->given[i].bytes);
    for (size_t i = 0; i < w->data.n; i++)
        oq_buf_release(w->data.v[i]);
    oq_buf_release(&w->sample);
    oq_arena_release(&w->sample_arena);
    oq_arena_release(&w->arena);
    onq_env_free(w->env);
}

int onq_worker_run(int fd, int (*stop)(void)) {
    worker w = {.end = {.handle = fd}, .stop = stop, .env = onq_env_new(NULL)};
    onq_error err = ONQ_ERROR_INIT;
    onq_result *res = NULL;
    oq_buf body;
    if (w.env == NULL)
        return 1;
    /* Without the caller nobody wants the result. */
    oq_os_end_with_parent();
    oq_os_close_from(fd + 1);
    w.env->isolated = true;
    pthread_mutex_init(&w.speak, NULL);
    pthread_mutex_init(&w.ask, NULL);
    oq_arena_init(&w.arena, &w.env->alloc);
    oq_arena_init(&w.sample_arena, &w.env->alloc);
    oq_buf_init(&w.sample, &w.env->alloc);
    oq_buf_init(&body, &w.env->alloc);
    oq_iso_put_text(&body, oq_str_of(onq_version()));
    onq_code rc = say(&w, OQ_ISO_HELLO, &body, &err);
    if (rc == ONQ_OK)
        rc = begin(&w, &body, &err);
    if (rc == ONQ_OK)
        rc = onq_run(w.env, w.opts, &res, &err);
    if (rc == ONQ_OK)
        rc = say_result(&w, res, &err);
    if (rc != ONQ_OK)
        say_failure(&w, rc, &err);
    onq_result_free(res);
    oq_buf_release(&body);
    release(&w);
    return rc != ONQ_OK;
}
