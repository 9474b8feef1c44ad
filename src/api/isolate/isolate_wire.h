/*
 * isolate_wire.h — what a caller and its worker say to each other: frames over a socket.
 *
 * A frame is a kind, a length and that many bytes. Bodies are numbers and texts one after another,
 * or raw bytes. Neither side believes the other: lengths are limited by kind, and every read of a
 * body is checked.
 */
#pragma once

#include "base/err.h"
#include "base/os.h"
#include "base/str.h"

typedef enum oq_iso_kind {
    /* the caller to the worker */
    OQ_ISO_JOB = 1,
    OQ_ISO_BYTES, /* a file of the caller's memory, or what was asked for */
    OQ_ISO_SAMPLE,
    OQ_ISO_NONE, /* no more samples; no such file; rewound */
    OQ_ISO_STOP, /* the reader stopped the job */
    /* the worker to the caller */
    OQ_ISO_HELLO, /* (the first of them) */
    OQ_ISO_LOG,
    OQ_ISO_PROGRESS,
    OQ_ISO_NEXT, /* wants a sample */
    OQ_ISO_REWIND,
    OQ_ISO_OPEN, /* wants external data of a model in memory */
    OQ_ISO_FILE, /* a file of the result begins */
    OQ_ISO_PART, /* bytes of it */
    OQ_ISO_DONE,
    OQ_ISO_FAILED
} oq_iso_kind;

#define OQ_ISO_PART_SIZE (1u << 20)

/* One end of the socket, which takes only what the other side may say. `wait` is called before a
 * read or a write that would block; NULL: the socket blocks. `go_on` is called
 * before every read and write, also when the other side never lets this one wait; NULL: nobody
 * limits the time. */
typedef struct oq_iso_end {
    oq_handle handle;
    bool is_caller;
    onq_code (*wait)(void *ctx, bool to_write, onq_error *err);
    onq_code (*go_on)(void *ctx, onq_error *err);
    void *ctx;
} oq_iso_end;

onq_code oq_iso_send(const oq_iso_end *e, oq_iso_kind kind, const void *p, uint64_t n,
                     onq_error *err);
onq_code oq_iso_send_buf(const oq_iso_end *e, oq_iso_kind kind, const oq_buf *body, onq_error *err);
/* The next frame. ONQ_E_READ at the end of the stream and for what is no frame. */
onq_code oq_iso_receive(const oq_iso_end *e, oq_iso_kind *kind, oq_buf *body, onq_error *err);

/* ---- bodies ---- */

void oq_iso_put(oq_buf *b, uint64_t v);
void oq_iso_put_text(oq_buf *b, oq_str s);

typedef struct oq_iso_body {
    const char *p;
    uint64_t left;
    bool bad; /* something was not there */
} oq_iso_body;

static inline oq_iso_body oq_iso_read(const oq_buf *b) {
    return (oq_iso_body){b->p, b->n, false};
}
uint64_t oq_iso_get(oq_iso_body *b);
oq_str oq_iso_get_text(oq_iso_body *b); /* a view; "" when bad */
/* The same as a C string in the arena, cut at a NUL; NULL when bad or out of memory. */
const char *oq_iso_get_word(oq_iso_body *b, oq_arena *a);
