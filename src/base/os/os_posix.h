/*
 * os_posix.h — what os_posix.c and os_beneath.c need from os_linux.c or os_macos.c.
 */
#pragma once

#include "base/os.h"

#include <fcntl.h>
#include <sys/stat.h>

/* O_NONBLOCK: a FIFO without a writer must not stop us; whoever wants a regular file refuses it. */
enum { OQ_POSIX_READ = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY };
/* How a folder is opened that is only passed through. */
extern const int oq_posix_folder_flags;
int64_t oq_posix_mtime(const struct stat *st);
/* Two ends that no program inherits. */
bool oq_posix_pipe(int ends[2]);

/* Does in user space what openat2 does on newer kernels of Linux. */
oq_handle oq_os_open_beneath_walk(oq_handle folder, const char *location);
