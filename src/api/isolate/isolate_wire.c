/*
 * isolate_wire.c — see isolate_wire.h.
 */
#include "api/isolate/isolate_wire.h"

/* What one frame may hold at most: samples and results are large, everything else is a few
 * texts. */
static uint64_t most(oq_iso_kind kind) {
    switch (kind) {
    case OQ_ISO_JOB:
    case OQ_ISO_DONE:
        return 1ull << 30;
    case OQ_ISO_BYTES:
    case OQ_ISO_SAMPLE:
        return 1ull << 40;
    case OQ_ISO_PART:
        return OQ_ISO_PART_SIZE;
    default:
        return 64u << 10;
    }
}

static onq_code wait_for(const oq_iso_end *e, bool to_write, onq_error *err) {
    if (e->wait != NULL && (errno == EAGAIN || errno == EWOULDBLOCK))
        return e->wait(e->ctx, to_write, err);
    return errno == EINTR ? ONQ_OK
                          : oq_fail_errno(err, ONQ_E_READ, errno, "the other process is gone");
}

static onq_code may_go_on(const oq_iso_end *e, onq_error *err) {
    return e->go_on != NULL ? e->go_on(e->ctx, err) : ONQ_OK;
}

/* Sends n bytes from `from`, or receives them into `to`; the other is NULL. */
static onq_code pass_all(const oq_iso_end *e, const char *from, char *to, uint64_t n,
                         onq_error *err) {
    const uint64_t most_at_once = 1u << 30;
    assert(from == NULL || to == NULL);
    for (uint64_t done = 0; done < n;) {
        const uint64_t now = n - done < most_at_once ? n - done : most_at_once;
        OQ_TRY(may_go_on(e, err));
        const int64_t k = to != NULL ? oq_os_receive(e->handle, to + done, now)
                                     : oq_os_send(e->handle, from + done, now);
        if (k == 0 && to != NULL)
            return oq_fail(err, ONQ_E_READ, "the other process is gone");
        if (k > 0)
            done += (uint64_t)k;
        else
            OQ_TRY(wait_for(e, to == NULL, err));
    }
    return ONQ_OK;
}

onq_code oq_iso_send(const oq_iso_end *e, oq_iso_kind kind, const void *p, uint64_t n,
                     onq_error *err) {
    assert(p != NULL || n == 0);
    assert((kind >= OQ_ISO_HELLO) != e->is_caller); /* each side has its own kinds */
    const uint64_t head[2] = {(uint64_t)kind, n};
    if (n > most(kind))
        return oq_fail(err, ONQ_E_LIMIT, "it does not fit in one message to the isolated process");
    OQ_TRY(pass_all(e, (const char *)head, NULL, sizeof head, err));
    return pass_all(e, p, NULL, n, err);
}

onq_code oq_iso_send_buf(const oq_iso_end *e, oq_iso_kind kind, const oq_buf *body,
                         onq_error *err) {
    return body->failed ? oq_fail_nomem(err) : oq_iso_send(e, kind, body->p, body->n, err);
}

onq_code oq_iso_receive(const oq_iso_end *e, oq_iso_kind *kind, oq_buf *body, onq_error *err) {
    uint64_t head[2] = {0, 0};
    OQ_TRY(pass_all(e, NULL, (char *)head, sizeof head, err));
    body->n = 0;
    if (head[0] < OQ_ISO_JOB || head[0] > OQ_ISO_FAILED ||
        (head[0] >= OQ_ISO_HELLO) != e->is_caller || head[1] > most((oq_iso_kind)head[0]))
        return oq_fail(err, ONQ_E_READ,
                       "the other process sent something that is not a valid message");
    *kind = (oq_iso_kind)head[0];
    /* Memory grows with what arrives, not with what was announced. */
    char piece[16384];
    for (uint64_t left = head[1]; left > 0;) {
        const uint64_t n = left < sizeof piece ? left : sizeof piece;
        OQ_TRY(pass_all(e, NULL, piece, n, err));
        oq_buf_add(body, piece, n);
        if (body->failed)
            return oq_fail_nomem(err);
        left -= n;
    }
    assert(body->n == head[1]);
    return ONQ_OK;
}

/* ---- bodies ---- */

void oq_iso_put(oq_buf *b, uint64_t v) {
    oq_buf_add(b, &v, sizeof v);
}

void oq_iso_put_text(oq_buf *b, oq_str s) {
    oq_iso_put(b, s.n);
    oq_buf_add(b, s.p, s.n);
}

uint64_t oq_iso_get(oq_iso_body *b) {
    uint64_t v = 0;
    if (b->left < sizeof v) {
        b->bad = true;
        b->left = 0;
        return 0;
    }
    memcpy(&v, b->p, sizeof v);
    b->p += sizeof v;
    b->left -= sizeof v;
    return v;
}

oq_str oq_iso_get_text(oq_iso_body *b) {
    const uint64_t n = oq_iso_get(b);
    if (n > b->left) {
        b->bad = true;
        b->left = 0;
    }
    if (b->bad)
        return OQ_S("");
    const oq_str s = {b->p, (size_t)n};
    b->p += n;
    b->left -= n;
    return s;
}

const char *oq_iso_get_word(oq_iso_body *b, oq_arena *a) {
    const oq_str s = oq_iso_get_text(b);
    const char *word = b->bad ? NULL : oq_arena_strdup(a, s.p, s.n);
    b->bad |= word == NULL;
    return word;
}
