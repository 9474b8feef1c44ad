/*
 * err.h — errors with context.
 *
 * The message is written where the fact is known, and context is put in front on the way up:
 *
 *     return oq_fail(err, ONQ_E_INVALID, "weight '%s' has %lld bytes, expected %llu", ...);
 *     ...
 *     OQ_TRY_IN(check_weight(n, err), err, "node '%.*s' (%s)", OQ_STR(name), op);
 *
 * gives "model.onnx: node 'conv1' (Conv): weight 'w' has 7 bytes, expected 8". Control bytes in the
 * text are escaped, so a name from a hostile file cannot drive the terminal. `err` may be NULL
 * everywhere, so these functions alone write to it (tools/check-errors.sh); who has to know what
 * failed keeps an error of its own and hands it on with oq_error_give. Nothing here allocates.
 */
#pragma once

#include "base/port.h"
#include "onq/onq.h"

/* Sets code and message; returns `code`, so it can be used in a return. */
onq_code oq_fail(onq_error *err, onq_code code, const char *fmt, ...) OQ_PRINTF(3, 4);
/* The same with a byte offset, which is also added at the end of the message. */
onq_code oq_fail_at(onq_error *err, onq_code code, uint64_t offset, const char *fmt, ...)
    OQ_PRINTF(4, 5);
/* Puts "context: " in front of the message, unless it is there already; returns `code`. */
onq_code oq_error_in(onq_error *err, onq_code code, const char *fmt, ...) OQ_PRINTF(3, 4);
/* Out of memory. */
onq_code oq_fail_nomem(onq_error *err);
/* Hands on an error that was kept elsewhere; returns `code`. */
onq_code oq_error_give(onq_error *err, onq_code code, const onq_error *why);
/* Sets the byte offset of an error whose message names the place in another way; returns `code`. */
onq_code oq_error_place(onq_error *err, onq_code code, int64_t offset);
/* A failed system call: message plus strerror(errno). ONQ_E_OPEN becomes ONQ_E_MISSING for a file
 * that is not there. */
onq_code oq_fail_errno(onq_error *err, onq_code code, int errnum, const char *fmt, ...)
    OQ_PRINTF(4, 5);
/* Back to "no error". */
void oq_error_clear(onq_error *err);
/* The message, "" where there is none. */
const char *oq_error_text(const onq_error *err);
/* n bytes as printable UTF-8 and a NUL into out[cap], cap at least 8: control bytes,
 * invalid UTF-8 and characters that turn or break the line become \xNN; what does not fit ends
 * in "...". Returns the length. */
size_t oq_text_escape(char *out, size_t cap, const char *in, size_t n);

/* Static analyzers look at one file at a time and cannot know that these return `code`, and so
 * that a failure is one; `make check` declares it to them. */
#ifdef OQ_ANALYZER
#define oq_fail(err, code, ...) (oq_fail(err, code, __VA_ARGS__), (onq_code)(code))
#define oq_fail_at(err, code, offset, ...)                                                         \
    (oq_fail_at(err, code, offset, __VA_ARGS__), (onq_code)(code))
#define oq_error_in(err, code, ...)   (oq_error_in(err, code, __VA_ARGS__), (onq_code)(code))
#define oq_fail_nomem(err)            (oq_fail_nomem(err), (onq_code)ONQ_E_NOMEM)
#define oq_error_give(err, code, why) (oq_error_give(err, code, why), (onq_code)(code))
#define oq_fail_errno(err, code, errnum, ...)                                                      \
    (oq_fail_errno(err, code, errnum, __VA_ARGS__), (onq_code)(code))
#endif

#define OQ_TRY(expr)                                                                               \
    do {                                                                                           \
        onq_code oq_try_rc = (expr);                                                               \
        if (oq_try_rc != ONQ_OK)                                                                   \
            return oq_try_rc;                                                                      \
    } while (0)

/* The same with context in front of the message: OQ_TRY_IN(expr, err, fmt, ...). */
#define OQ_TRY_IN(expr, err, ...)                                                                  \
    do {                                                                                           \
        onq_code oq_try_rc = (expr);                                                               \
        if (oq_try_rc != ONQ_OK)                                                                   \
            return oq_error_in(err, oq_try_rc, __VA_ARGS__);                                       \
    } while (0)

/* OQ_TRY for an allocation that gave `ok`: out of memory if that is false. */
#define OQ_TRY_ALLOC(ok, err)                                                                      \
    do {                                                                                           \
        if (!(ok))                                                                                 \
            return oq_fail_nomem(err);                                                             \
    } while (0)

/* OQ_TRY for functions that clean up at a `done:` label and return `rc`. */
#define OQ_GO(expr)                                                                                \
    do {                                                                                           \
        rc = (expr);                                                                               \
        if (rc != ONQ_OK)                                                                          \
            goto done;                                                                             \
    } while (0)
