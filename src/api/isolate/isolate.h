/*
 * isolate.h — --isolate: the job in a process of its own (docs/ISOLATION.md).
 *
 * The caller starts the program `onq` as a worker, sends it the options, and does for it what needs
 * the caller: its reader gives the samples, its log gets the messages. The worker puts limits on
 * itself (base/system/confine.h), then does the job as any other and sends the result. The program
 * is started anew, not forked: the caller may have threads.
 */
#pragma once

#include "api/options/command.h"

/* True if the job is to be done in a process of its own. */
bool oq_isolate_wanted(const onq_options *o);
/* Does it there and fills the job with the result. A worker that dies, or takes too long, is
 * ONQ_E_RUNTIME or ONQ_E_LIMIT. */
onq_code oq_isolate_run(oq_job *job, onq_error *err);
/* For calls that use the runtime in the caller's process: ONQ_E_OPTION when the options ask for
 * another one. */
onq_code oq_isolate_refuse(const onq_options *o, onq_error *err);
