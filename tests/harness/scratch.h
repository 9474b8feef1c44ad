/*
 * scratch.h — a temporary folder for a test, and small helpers for files in it.
 *
 * Helpers fail the test when the system does not do what they ask. Paths returned are the
 * scratch's; they stay valid until scratch_remove.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* Whether a file that is removed keeps its name, and its folder, until nobody has it open or mapped. */
#ifdef _WIN32
enum { HELD_FILES_KEEP_NAMES = 1 };
#else
enum { HELD_FILES_KEEP_NAMES = 0 };
#endif

typedef struct scratch {
    char *dir;
    char **paths;
    size_t n_paths;
} scratch;

void scratch_init(scratch *s);
/* Removes the folder with all that is in it. */
void scratch_remove(scratch *s);
/* A folder for each test of a group, as *state. */
int scratch_setup(void **state);
int scratch_teardown(void **state);
/* The path of `name` in the folder. */
const char *scratch_path(scratch *s, const char *name);
/* Makes the file with n bytes (NULL: zeros); returns its path. */
const char *scratch_file(scratch *s, const char *name, const void *p, size_t n);
/* Makes a folder; returns its path. */
const char *scratch_dir(scratch *s, const char *name);
/* Makes the symbolic link `name` to `target`; returns its path. Skips the test on Windows. */
const char *scratch_link(scratch *s, const char *name, const char *target);
/* True if the file at `path` holds exactly these bytes. */
bool file_holds(const char *path, const void *p, size_t n);
/* Number of entries in a folder, hidden ones too. */
size_t entry_count(const char *dir);
