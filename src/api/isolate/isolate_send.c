/*
 * isolate_send.c — a job on its way to the worker: isolate_parts.h.
 */
#include "api/interface/ranges_handle.h"
#include "api/isolate/isolate_parts.h"
#include "api/outputs.h"

/* The index in `given`, or -1. */
static int64_t given_at(const onq_options *o, const char *path) {
    for (size_t i = 0; i < o->given.n; i++)
        if (o->given.v[i].label == path)
            return (int64_t)i;
    return -1;
}

static void put_place(oq_buf *b, const onq_options *o, const char *text) {
    const int64_t at = given_at(o, text);
    oq_iso_put(b, at >= 0 ? OQ_ISO_IS_GIVEN : OQ_ISO_IS_TEXT);
    if (at >= 0)
        oq_iso_put(b, (uint64_t)at);
    else
        oq_iso_put_text(b, oq_str_of(text));
}

static bool is_sent(const oq_opt_value *v) {
    return v->is_set && !v->pinned && strncmp(v->row->name, "isolate", 7) != 0;
}

static void put_value(oq_buf *b, const onq_options *o, const oq_opt_value *v, oq_arena *a) {
    const bool path = v->row->type == ONQ_OPT_PATH;
    oq_iso_put_text(b, oq_str_of(v->row->name));
    if (v->row->type == ONQ_OPT_LIST || v->row->type == ONQ_OPT_PAIRS) {
        oq_iso_put(b, OQ_ISO_IS_LIST);
        oq_iso_put(b, v->list.n);
        for (size_t i = 0; i < v->list.n; i++)
            oq_iso_put_text(b, v->list.v[i]);
    } else if (path && oq_opt_is_wanted(o, v->text.p)) {
        oq_iso_put(b, OQ_ISO_IS_WANTED);
        oq_iso_put_text(b, v->text);
    } else if (path && v->text.p == o->reader_label) {
        oq_iso_put(b, OQ_ISO_IS_READER);
    } else if (path) {
        put_place(b, o, v->text.p);
    } else {
        const char *text = oq_opt_text(a, v, 0);
        oq_iso_put(b, OQ_ISO_IS_TEXT);
        b->failed |= text == NULL;
        oq_iso_put_text(b, oq_str_of(text != NULL ? text : ""));
    }
}

static void put_given(oq_buf *b, const onq_options *o) {
    oq_iso_put(b, o->given.n);
    for (size_t i = 0; i < o->given.n; i++) {
        const onq_bytes *g = &o->given.v[i];
        oq_iso_put_text(b, oq_str_of(g->label));
        oq_iso_put_text(b, oq_str_of(g->folder != NULL ? g->folder : ""));
        oq_iso_put(b, g->folder != NULL);
        oq_iso_put(b, g->open != NULL);
    }
}

onq_code oq_iso_ranges_text(const onq_env *env, const onq_ranges *r, oq_buf *out, onq_error *err) {
    oq_out o;
    oq_file f;
    OQ_TRY(oq_out_open_memory(&o, &env->alloc, "ranges", err));
    onq_code rc = oq_ranges_write(oq_ranges_inside(r), &env->alloc, &o, OQ_RANGES_CACHE, err);
    if (rc == ONQ_OK)
        rc = oq_out_take(&o, &f, err);
    oq_out_abort(&o);
    if (rc != ONQ_OK)
        return rc;
    oq_iso_put_text(out, (oq_str){(const char *)f.p, (size_t)f.size});
    oq_file_close(&f);
    return ONQ_OK;
}

static onq_code put_job(oq_buf *b, const oq_job *job, uint64_t memory, oq_arena *a,
                        onq_error *err) {
    const onq_options *o = job->opts;
    OQ_VEC(const char *) folders = {0};
    size_t n = 0;
    oq_iso_put_text(b, oq_str_of(onq_version()));
    oq_iso_put_text(b, oq_str_of(o->command->info.name));
    oq_iso_put(b, oq_os_process_id());
    oq_iso_put(b, job->env->n_threads);
    oq_iso_put(b, memory);
    for (const char *folder; (folder = oq_outputs_folder(o, n, a)) != NULL; n++)
        OQ_TRY_ALLOC(OQ_PUSH(a, &folders, folder), err);
    oq_iso_put(b, folders.n);
    for (size_t i = 0; i < folders.n; i++)
        oq_iso_put_text(b, oq_str_of(folders.v[i]));
    put_given(b, o);
    oq_iso_put(b, o->reader_label != NULL && o->reader.rewind != NULL);
    oq_iso_put(b, o->reader_label != NULL ? o->reader.count : 0);
    n = 0;
    for (size_t i = 0; i < o->n_values; i++)
        n += is_sent(&o->values[i]);
    oq_iso_put(b, n);
    for (size_t i = 0; i < o->n_values; i++)
        if (is_sent(&o->values[i]))
            put_value(b, o, &o->values[i], a);
    oq_iso_put(b, o->operands.n);
    for (size_t i = 0; i < o->operands.n; i++)
        put_place(b, o, o->operands.v[i].p);
    oq_iso_put(b, o->ranges != NULL);
    return o->ranges != NULL ? oq_iso_ranges_text(job->env, o->ranges, b, err) : ONQ_OK;
}

onq_code oq_iso_send_job(const oq_iso_end *e, const oq_job *job, uint64_t memory, onq_error *err) {
    const onq_options *o = job->opts;
    oq_arena a;
    oq_buf b;
    oq_arena_init(&a, &job->env->alloc);
    oq_buf_init(&b, &job->env->alloc);
    onq_code rc = put_job(&b, job, memory, &a, err);
    if (rc == ONQ_OK)
        rc = oq_iso_send_buf(e, OQ_ISO_JOB, &b, err);
    for (size_t i = 0; rc == ONQ_OK && i < o->given.n; i++)
        rc = oq_iso_send(e, OQ_ISO_BYTES, o->given.v[i].data, o->given.v[i].size, err);
    oq_buf_release(&b);
    oq_arena_release(&a);
    return rc;
}

/* ---- what the worker asks for ---- */

static void put_datum(oq_buf *b, const oq_named *one) {
    const oq_datum *d = &one->datum;
    oq_iso_put_text(b, one->name);
    oq_iso_put(b, (uint64_t)d->dtype);
    oq_iso_put(b, d->rank);
    for (size_t i = 0; i < d->rank; i++)
        oq_iso_put(b, (uint64_t)d->dims[i]);
    if (d->dtype == OQ_STRING) {
        oq_iso_put(b, d->count);
        for (uint64_t i = 0; i < d->count; i++)
            oq_iso_put_text(b, d->strings[i]);
    } else {
        oq_iso_put_text(b, (oq_str){d->data, (size_t)d->size_bytes});
    }
}

onq_code oq_iso_send_sample(const oq_iso_end *e, const onq_env *env, oq_feed *feed, uint64_t number,
                            onq_error *reason, onq_error *err) {
    oq_named_list sample = {0};
    bool more = false;
    oq_arena a;
    oq_buf b;
    oq_arena_init(&a, &env->alloc);
    oq_buf_init(&b, &env->alloc);
    onq_code rc;
    if (feed->next(feed, number, &a, &sample, &more, reason) != ONQ_OK) {
        rc = oq_iso_send(e, OQ_ISO_STOP, NULL, 0, err);
    } else if (!more) {
        rc = oq_iso_send(e, OQ_ISO_NONE, NULL, 0, err);
    } else {
        oq_iso_put(&b, sample.all.n);
        oq_iso_put(&b, !sample.last      ? ONQ_READER_STEP
                       : sample.step > 0 ? ONQ_READER_LAST
                                         : ONQ_READER_SAMPLE);
        for (size_t i = 0; i < sample.all.n; i++)
            put_datum(&b, &sample.all.v[i]);
        rc = oq_iso_send_buf(e, OQ_ISO_SAMPLE, &b, err);
    }
    oq_buf_release(&b);
    oq_arena_release(&a);
    return rc;
}

onq_code oq_iso_send_data(const oq_iso_end *e, const oq_job *job, oq_iso_body *asked,
                          onq_error *err) {
    const onq_options *o = job->opts;
    const void *data = NULL;
    size_t size = 0;
    oq_arena a;
    oq_arena_init(&a, &job->env->alloc);
    const uint64_t i = oq_iso_get(asked);
    const char *location = oq_iso_get_word(asked, &a);
    const bool there = location != NULL && i < o->given.n && o->given.v[i].open != NULL &&
                       o->given.v[i].open(o->given.v[i].ctx, location, &data, &size) == 0;
    oq_arena_release(&a);
    return oq_iso_send(e, there ? OQ_ISO_BYTES : OQ_ISO_NONE, data, there ? size : 0, err);
}
