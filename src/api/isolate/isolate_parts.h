/*
 * isolate_parts.h — what the files of --isolate share: isolate.c is the caller, isolate_talk.c what
 * it hears and answers, isolate_send.c turns its job and samples into frames; isolate_worker.c is
 * the worker.
 */
#pragma once

#include "api/isolate/isolate_wire.h"
#include "api/options/command.h"

/* A talk with a worker over the caller's end of the socket: it gets the job and what it asks for,
 * and the job gets the result. */
typedef struct oq_iso_talk {
    oq_job *job;
    oq_iso_end end;
    uint64_t memory;         /* what the worker may have, and what it may send to stay */
    void (*show)(void *ctx); /* called with end.ctx after every report of progress */
    char doing[200];         /* what it said */
    uint64_t done, total;
    bool ended; /* it has said how the job ended */
    /* of isolate_talk.c */
    oq_feed *feed; /* the caller's reader, or NULL */
    uint64_t number;
    onq_error reason; /* why the reader failed */
    oq_out file;      /* a file of the result that is being received */
    uint64_t file_left;
    const char *file_option;
    uint64_t kept; /* bytes that it sent and that stay in the caller's memory */
} oq_iso_talk;

onq_code oq_iso_talk_run(oq_iso_talk *t, onq_error *err);

/* The value of an option or operand in a job's frame. */
enum {
    OQ_ISO_IS_TEXT,
    OQ_ISO_IS_LIST,
    OQ_ISO_IS_GIVEN, /* a file of the caller's memory, by its number */
    OQ_ISO_IS_WANTED,
    OQ_ISO_IS_READER,
};

/* The job, then the files of the caller's memory. `memory` is the worker's limit. */
onq_code oq_iso_send_job(const oq_iso_end *e, const oq_job *job, uint64_t memory, onq_error *err);
/* The next sample of the feed, its end, or that it failed: *reason says why. */
onq_code oq_iso_send_sample(const oq_iso_end *e, const onq_env *env, oq_feed *feed, uint64_t number,
                            onq_error *reason, onq_error *err);
/* External data of a model in memory, from the caller's function. */
onq_code oq_iso_send_data(const oq_iso_end *e, const oq_job *job, oq_iso_body *asked,
                          onq_error *err);
/* Adds the ranges as the text of a calibration cache. */
onq_code oq_iso_ranges_text(const onq_env *env, const onq_ranges *r, oq_buf *out, onq_error *err);
