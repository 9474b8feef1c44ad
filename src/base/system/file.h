/*
 * file.h — read-only mapped files, and outputs that appear whole or not at all.
 *
 * Reading: oq_file_open refuses what is not a regular file (no FIFO, device or folder), never
 * blocks, and maps it. A mapped file that shrinks while it is read raises SIGBUS. A handler is a
 * matter of the process: the program `onq` has one (base/os/os_program_guard.c) that lets lost
 * pages read as zeros. So before what was read is trusted, at the latest before an output is
 * committed, whoever read it calls oq_file_check, which reports whether size or time changed. Where
 * the kernel reads the bytes (oq_out_copy, oq_out_write) a lost page is an error, not a signal.
 * oq_file_read_all does not use the mapping.
 *
 * External data is opened beneath a folder (oq_dir): relative paths only, no `..` that climbs out,
 * no absolute path, no link that leaves the folder, no hard-linked file unless its folder was
 * allowed.
 *
 * Writing: an oq_out is a file without a name in the target's folder, so that nothing of it remains
 * whatever ends the process; where the system or its disk has no such files it is a hidden file
 * `.TARGET.onq-XXXXXX`, which oq_out_abort removes (a program that catches SIGINT and SIGTERM
 * lets its progress callback cancel the job, and the job aborts its outputs). oq_out_commit syncs,
 * renames over the target and syncs the folder; an existing target survives until the rename.
 * oq_out_commit_all does so for several files (model and external data), all or none.
 *
 * Messages begin with the path of the file: callers need not add it. Those of oq_dir_file begin
 * with "external data 'LOCATION'": the caller puts model and tensor in front.
 */
#pragma once

#include "base/env.h"
#include "base/os.h"
#include "base/str.h"

typedef struct oq_file {
    const char *path; /* for messages; owned */
    oq_handle handle;
    const uint8_t *p; /* the mapping; non-NULL also when size is 0 */
    uint64_t size;
    oq_file_info info; /* as it was opened */
    const onq_allocator *alloc;
    size_t path_size;
    bool borrowed; /* memory of the caller: no handle, nothing to map or check */
} oq_file;

/* Maps `path` (not NUL-checked: a C string). */
onq_code oq_file_open(oq_file *f, const onq_allocator *a, const char *path, onq_error *err);
/* Bytes of the caller's in place of a file. `name` stands for its path and is copied. */
onq_code oq_file_borrow(oq_file *f, const onq_allocator *a, const char *name, const void *p,
                        uint64_t n, onq_error *err);
void oq_file_close(oq_file *f);
/* Closes the file and keeps its mapping: a process may have only so many open. It cannot be checked
 * or copied from afterwards. */
void oq_file_let_go(oq_file *f);
/* ONQ_E_READ if the file on disk is no longer as it was when opened. */
onq_code oq_file_check(const oq_file *f, onq_error *err);
/* True if `path` is this very file. */
bool oq_file_is(const oq_file *f, const char *path);
/* Tells the kernel that the pages of a range are not needed again soon. */
void oq_file_drop(const oq_file *f, uint64_t offset, uint64_t n);

/* A folder beneath which external data may be opened. */
typedef struct oq_dir {
    oq_handle handle; /* OQ_NO_HANDLE: none */
    const char *path; /* owned */
    size_t path_size;
    const onq_allocator *alloc;
} oq_dir;

/* The folder that holds `path`, as a part of its text, or ".". */
oq_str oq_path_folder(const char *path);
/* A name in a folder, in the arena; NULL when there is no memory. */
const char *oq_path_join(oq_arena *a, const char *folder, const char *name);
/* Both exist and are one file. */
bool oq_file_is_same(const char *a, const char *b);
/* Opens that folder. */
onq_code oq_dir_open_parent(oq_dir *d, const onq_allocator *a, const char *path, onq_error *err);
onq_code oq_dir_open(oq_dir *d, const onq_allocator *a, const char *path, onq_error *err);
void oq_dir_close(oq_dir *d);
/* Opens and maps `location` beneath the folder; ONQ_E_PATH when it may not be used. `root` is a
 * further folder in which the file may really lie (links leading there and hard links in it are
 * allowed), or NULL. */
onq_code oq_dir_file(const oq_dir *d, const oq_dir *root, oq_str location, oq_file *f,
                     onq_error *err);

/* An output file. */
typedef struct oq_out {
    const onq_allocator *alloc;
    oq_handle handle, folder;
    char *target; /* as given, for messages; owned */
    char *temp;   /* a path that opens the file before the commit; owned */
    char *name;   /* the target's name in the folder, links resolved; points into real */
    char *real;   /* the target with its links resolved; owned */
    uint8_t *buffer;
    size_t target_size, temp_size, real_size;
    size_t buffered;   /* bytes in the buffer, not yet in the file */
    uint64_t size;     /* bytes written so far, buffered ones too */
    uint64_t flushing; /* the disk was asked to write up to here */
    uint64_t reserved; /* bytes the file was given ahead */
    bool named;        /* temp is a name in the target's folder */
    bool memory;       /* it has no folder */
    bool open;
} oq_out;

/* Makes the temporary file. ONQ_E_WRITE if the folder or an existing target is not writable, or the
 * target is not a regular file. */
onq_code oq_out_open(oq_out *o, const onq_allocator *a, const char *target, onq_error *err);
/* Lets somebody else write to o->temp, who on some systems cannot while it is open here; then
 * oq_out_abort alone may follow. */
void oq_out_lend(oq_out *o);
/* An output that nobody is to keep, in the folder for such files; oq_out_take ends it. */
onq_code oq_out_open_temp(oq_out *o, const onq_allocator *a, onq_error *err);
/* An output that no folder gets: it lives in memory until oq_out_take ends it. `name` is for
 * messages. */
onq_code oq_out_open_memory(oq_out *o, const onq_allocator *a, const char *name, onq_error *err);
/* Ends a complete output that is to have no name, in memory or in its folder, and gives its bytes
 * as a file. */
onq_code oq_out_take(oq_out *o, oq_file *f, onq_error *err);
onq_code oq_out_write(oq_out *o, const void *p, uint64_t n, onq_error *err);
/* n bytes from an open file, without passing user space where the system can. */
onq_code oq_out_copy(oq_out *o, const oq_file *f, uint64_t offset, uint64_t n, onq_error *err);
/* Room for an output whose size is known: a full disk is reported at once, and the disk lays it out
 * in one piece. More or less may be written in the end. */
onq_code oq_out_reserve(oq_out *o, uint64_t n, onq_error *err);
/* Brings what is buffered into the file, so that o->temp shows all of it. */
onq_code oq_out_flush(oq_out *o, onq_error *err);
/* Gives the temporary file a name in the target's folder (o->temp) before the commit, for
 * whoever must open it from there. */
onq_code oq_out_give_name(oq_out *o, onq_error *err);
/* Syncs a complete output and closes it under a temporary name, so that many can wait for one
 * commit without an open file each. Nothing can be written to it any more; unlike one that is
 * not sealed it stays behind when the process is killed. */
onq_code oq_out_seal(oq_out *o, onq_error *err);
/* Syncs; then renames over the target and syncs the folder. Ends the output, also when it fails. */
onq_code oq_out_commit(oq_out *o, onq_error *err);
/* Removes the temporary file; safe to call after commit or on a zeroed struct. */
void oq_out_abort(oq_out *o);
/* Commits all or none: what was renamed already is put back when a later one fails. Ends all.
 * The last one should be the one that names the others (the model). */
onq_code oq_out_commit_all(oq_out **outs, size_t n, onq_error *err);

/* A whole file of this text: all of it, or the file stays as it was. */
onq_code oq_out_text(const onq_allocator *a, const char *path, const oq_buf *text, onq_error *err);

/* Reads a small whole file (JSON, lists) of at most `most` bytes into the arena. */
onq_code oq_file_read_all(oq_arena *a, const char *path, uint64_t most, oq_str *out,
                          onq_error *err);
