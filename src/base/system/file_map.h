/*
 * file_map.h — what file.c, file_dir.c and file_out.c share.
 */
#pragma once

#include "base/system/file.h"

/* Maps an open file, which it takes (closes it on failure); refuses anything but a regular file. */
onq_code oq_file_map(oq_file *f, const onq_allocator *a, oq_handle h, const char *path,
                     onq_error *err);
