/*
 * temp.h — folders for files that nobody is to keep, where oq_os_temp_root says.
 */
#pragma once

#include "base/arena.h"
#include "base/err.h"

/* Makes a new folder there; *path goes to the arena, and stays as it was when this fails. */
onq_code oq_temp_make(oq_arena *a, const char **path, onq_error *err);
/* Removes the folder and all that is in it; NULL: nothing. */
void oq_temp_remove(const char *path);
