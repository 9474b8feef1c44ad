/*
 * temp.h — folders for files that nobody is to keep, where oq_os_temp_root says, and memory that
 * such a file holds.
 */
#pragma once

#include "base/arena.h"
#include "base/err.h"
#include "base/os.h"

/* Makes a new folder there; *path goes to the arena, and stays as it was when this fails. */
onq_code oq_temp_make(oq_arena *a, const char **path, onq_error *err);
/* Removes the folder and all that is in it; NULL: nothing. */
void oq_temp_remove(const char *path);

/* Memory that a temporary file without a name holds: the system may put it on the disk where there
 * is too little memory. */
typedef struct oq_temp_memory {
    void *p; /* NULL: none */
    uint64_t n;
    oq_handle file;
} oq_temp_memory;
/* n bytes, all zero. ONQ_E_WRITE where the disk has no room for them. */
onq_code oq_temp_memory_make(oq_temp_memory *m, uint64_t n, onq_error *err);
void oq_temp_memory_release(oq_temp_memory *m);
