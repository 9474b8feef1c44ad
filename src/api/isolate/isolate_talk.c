/*
 * isolate_talk.c — the caller's side of the talk with a worker, which may say anything:
 * isolate_parts.h.
 */
#include "api/interface/ranges_handle.h"
#include "api/isolate/isolate_parts.h"

#include <string.h>

#define ENTRY 256 /* bytes that something in a list takes besides its own, about */

static onq_code garbled(onq_error *err) {
    return oq_fail(err, ONQ_E_RUNTIME,
                   "the isolated process sent something that is not a valid message");
}

static onq_code on_hello(oq_iso_body b, onq_error *err) {
    const oq_str version = oq_iso_get_text(&b);
    return oq_str_is(version, onq_version())
               ? ONQ_OK
               : oq_fail(err, ONQ_E_UNSUPPORTED,
                         "--isolate: the program onq has version '%.*s', but the library has %s",
                         OQ_STR(version), onq_version());
}

static onq_code on_log(oq_iso_talk *t, oq_iso_body b, onq_error *err) {
    const int64_t level = (int64_t)oq_iso_get(&b);
    const oq_str text = oq_iso_get_text(&b);
    if (b.bad || level < ONQ_LOG_ALERT || level > ONQ_LOG_NOTE)
        return garbled(err);
    oq_log(t->job->env, (onq_log_level)level, "%.*s", OQ_STR(text));
    return ONQ_OK;
}

static onq_code on_progress(oq_iso_talk *t, oq_iso_body b, onq_error *err) {
    const oq_str what = oq_iso_get_text(&b);
    t->done = oq_iso_get(&b);
    t->total = oq_iso_get(&b);
    if (b.bad)
        return garbled(err);
    oq_text_escape(t->doing, sizeof t->doing, what.p, what.n);
    t->show(t->end.ctx);
    return ONQ_OK;
}

static onq_code on_rewind(oq_iso_talk *t, onq_error *err) {
    const bool ok = t->feed != NULL && t->feed->rewind != NULL &&
                    t->feed->rewind(t->feed, &t->reason) == ONQ_OK;
    t->number = 0;
    return oq_iso_send(&t->end, ok ? OQ_ISO_NONE : OQ_ISO_STOP, NULL, 0, err);
}

static onq_code on_file(oq_iso_talk *t, oq_iso_body b, onq_error *err) {
    oq_job *job = t->job;
    const char *option = oq_iso_get_word(&b, &job->arena), *name = oq_iso_get_word(&b, &job->arena);
    t->file_left = oq_iso_get(&b);
    const oq_opt_value *v = NULL;
    oq_opt_value *found = NULL;
    if (!b.bad && !t->file.open && oq_opt_value_find(job->opts, option, &found, NULL) == ONQ_OK)
        v = found;
    if (v == NULL || !oq_opt_is_wanted(job->opts, v->text.p))
        return garbled(err);
    t->file_option = v->row->name;
    return oq_out_open_memory(&t->file, &job->env->alloc, name, err);
}

static onq_code on_part(oq_iso_talk *t, const oq_buf *body, onq_error *err) {
    if (!t->file.open || body->n > t->file_left)
        return garbled(err);
    t->file_left -= body->n;
    return oq_out_write(&t->file, body->p, body->n, err);
}

static onq_code end_file(oq_iso_talk *t, onq_error *err) {
    assert(t->file_left == 0);
    if (!t->file.open)
        return ONQ_OK;
    OQ_TRY(oq_files_take(&t->job->files, &t->file, err));
    return oq_job_own_files(t->job, t->file_option, err);
}

/* Nothing of a report but its lines may move the cursor of a terminal. */
static void add_lines(oq_buf *out, oq_str text) {
    while (text.n > 0) {
        const char *end = memchr(text.p, '\n', text.n);
        const size_t n = end != NULL ? (size_t)(end - text.p) : text.n;
        oq_buf_add_safe(out, (oq_str){text.p, n});
        if (end != NULL)
            oq_buf_addc(out, '\n');
        text = (oq_str){text.p + n + (end != NULL), text.n - n - (end != NULL)};
    }
}

/* In JSON, onq escapes what messages escape, and ends lines. */
static bool is_json_text(oq_str s) {
    for (size_t i = 0, n; i < s.n; i += n) {
        char shown[32];
        n = oq_utf8_len(s.p + i, s.n - i);
        if (n == 0 || (s.p[i] != '\n' && oq_text_escape(shown, sizeof shown, s.p + i, n) != n))
            return false;
    }
    return true;
}

static onq_code on_done(oq_iso_talk *t, oq_iso_body b, onq_error *err) {
    oq_job *job = t->job;
    job->status = oq_iso_get(&b) != 0;
    const oq_str text = oq_iso_get_text(&b), json = oq_iso_get_text(&b);
    const bool has_ranges = oq_iso_get(&b) != 0;
    const oq_str ranges = has_ranges ? oq_iso_get_text(&b) : OQ_S("");
    if (b.bad || t->file_left > 0 || !is_json_text(json))
        return garbled(err);
    add_lines(&job->text, text);
    oq_buf_add_str(&job->json_text, json);
    if (!has_ranges)
        return ONQ_OK;
    oq_ranges r;
    OQ_TRY(oq_ranges_parse(&r, &job->env->alloc, "ranges", ranges, err));
    return oq_job_give_ranges(job, &r, err);
}

static onq_code on_failed(oq_iso_talk *t, oq_iso_body b, onq_error *err) {
    const uint64_t code = oq_iso_get(&b), offset = oq_iso_get(&b);
    const oq_str text = oq_iso_get_text(&b);
    if (t->reason.code != ONQ_OK)
        return oq_error_give(err, t->reason.code, &t->reason);
    if (b.bad || code == ONQ_OK || code > ONQ_E_INTERNAL || text.n == 0 || text.p[0] == '\0')
        return garbled(err);
    oq_fail(err, (onq_code)code, "%.*s", OQ_STR(text));
    return oq_error_place(err, (onq_code)code, (int64_t)offset);
}

/* What stays in the caller's memory counts as the worker's: no more than it may have itself. */
static onq_code keep(oq_iso_talk *t, oq_iso_kind kind, uint64_t n, onq_error *err) {
    if (kind == OQ_ISO_LOG || kind == OQ_ISO_FILE || kind == OQ_ISO_PART || kind == OQ_ISO_DONE)
        t->kept += n + ENTRY;
    if (t->kept <= t->memory)
        return ONQ_OK;
    return oq_fail(err, ONQ_E_LIMIT,
                   "the isolated process sent more than the %llu MB it may have "
                   "(--isolate_memory allows more); nothing was written",
                   (unsigned long long)(t->memory >> 20));
}

static onq_code answer(oq_iso_talk *t, oq_iso_kind kind, const oq_buf *body, onq_error *err) {
    oq_iso_body b = oq_iso_read(body);
    OQ_TRY(keep(t, kind, body->n, err));
    if (kind != OQ_ISO_PART && kind != OQ_ISO_LOG && kind != OQ_ISO_PROGRESS && t->file_left == 0)
        OQ_TRY(end_file(t, err));
    switch (kind) {
    case OQ_ISO_HELLO:
        return on_hello(b, err);
    case OQ_ISO_LOG:
        return on_log(t, b, err);
    case OQ_ISO_PROGRESS:
        return on_progress(t, b, err);
    case OQ_ISO_NEXT:
        return t->feed == NULL ? garbled(err)
                               : oq_iso_send_sample(&t->end, t->job->env, t->feed, t->number++,
                                                    &t->reason, err);
    case OQ_ISO_REWIND:
        return on_rewind(t, err);
    case OQ_ISO_OPEN:
        return oq_iso_send_data(&t->end, t->job, &b, err);
    case OQ_ISO_FILE:
        return on_file(t, b, err);
    case OQ_ISO_PART:
        return on_part(t, body, err);
    case OQ_ISO_DONE:
        t->ended = true;
        return on_done(t, b, err);
    case OQ_ISO_FAILED:
        t->ended = true;
        return on_failed(t, b, err);
    default:
        return garbled(err);
    }
}

static onq_code talk(oq_iso_talk *t, onq_error *err) {
    oq_buf body;
    oq_iso_kind kind = OQ_ISO_HELLO;
    oq_buf_init(&body, &t->job->env->alloc);
    onq_code rc = oq_iso_receive(&t->end, &kind, &body, err);
    if (rc == ONQ_OK)
        rc = kind == OQ_ISO_HELLO || kind == OQ_ISO_FAILED ? answer(t, kind, &body, err)
                                                           : garbled(err);
    if (rc == ONQ_OK)
        rc = oq_iso_send_job(&t->end, t->job, t->memory, err);
    while (rc == ONQ_OK && !t->ended) {
        rc = oq_iso_receive(&t->end, &kind, &body, err);
        if (rc == ONQ_OK)
            rc = answer(t, kind, &body, err);
    }
    oq_buf_release(&body);
    return rc;
}

onq_code oq_iso_talk_run(oq_iso_talk *t, onq_error *err) {
    const onq_reader *reader = oq_opt_reader(t->job->opts);
    onq_code rc = reader != NULL ? oq_feed_open_reader(t->job->env, reader, &t->feed, err) : ONQ_OK;
    if (rc == ONQ_OK)
        rc = talk(t, err);
    oq_out_abort(&t->file);
    if (t->feed != NULL)
        t->feed->close(t->feed);
    return rc;
}
