/*
 * confine.h — limits that a process puts on itself for good, before it runs what it does not trust.
 *
 *   memory    RLIMIT_DATA: private memory. Mapped files do not count, so a large model does not.
 *   files     Landlock: files are made and changed in the given folders only. Reading stays free.
 *   network   seccomp: no socket can be made, of any family. Network namespaces would do as well,
 *             but most systems and containers do not let an ordinary user make one.
 *   others    no look into other processes and, from Linux 6.12 on, no signal to them; no core
 *             file.
 *
 * What it starts inherits all of it.
 */
#pragma once

#include "base/err.h"

typedef struct oq_confine {
    uint64_t memory; /* bytes; 0: no limit */
    const char *const *folders;
    size_t n_folders;
} oq_confine;

/* Call it while the process has one thread. *files is false where the kernel has no Landlock:
 * everything else holds then. ONQ_E_UNSUPPORTED when the network cannot be turned off. */
onq_code oq_confine_self(const oq_confine *c, bool *files, onq_error *err);
