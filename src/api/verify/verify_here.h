/*
 * verify_here.h — what the files of `onq verify` share.
 */
#pragma once

#include "api/options/command.h"

/* Loads and runs the model of the job in one runtime, in this process, and writes an object: what was
 * found, and what helps where it is not good. ONQ_E_RUNTIME: the library is no runtime that onq can
 * use. */
onq_code oq_verify_here(oq_job *job, const char *library, oq_jw *w, onq_error *err);

/* The same in another process, a worker as of --isolate (verify_apart.c). *row is the object that it
 * wrote; the caller gives it back. ONQ_E_UNSUPPORTED where no other process can be had. */
onq_code oq_verify_apart(oq_job *job, const char *library, json_t **row, onq_error *err);
/* The same for a library of another machine, in the program of that machine that --run_with starts. */
onq_code oq_verify_there(oq_job *job, const char *library, json_t **row, onq_error *err);
