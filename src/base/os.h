/*
 * os.h — what differs between systems: files, folders, outputs, other programs, the machine.
 *
 * Each system has its files in base/os: os_posix.c and os_beneath.c with os_linux.c or os_macos.c, or
 * those of os_windows.h. CMake picks them, and no other file of src/ or cli/ asks for
 * a system or includes a header that only some of them have (tools/check-systems.sh). What the
 * program needs besides, such as signals and the terminal, is in os_program.h.
 *
 * Paths and names are UTF-8. Functions that can fail return false, OQ_NO_HANDLE, NULL or a negative
 * number, with the reason in errno.
 */
#pragma once

#include "base/port.h"

#include <time.h>

#ifndef EDQUOT
#define EDQUOT ENOSPC /* a system without a limit for users */
#endif

/* The longest path, with its end. */
#define OQ_PATH_MAX 4096
/* The longest name in a folder, in bytes. */
#define OQ_NAME_MAX 255

/* An open file, folder, pipe or socket. */
typedef intptr_t oq_handle;
#define OQ_NO_HANDLE ((oq_handle)-1)

/* ---- paths ---- */

/* The name after the last separator of folders; all of it when there is none. */
const char *oq_path_last(const char *path);
bool oq_path_is_absolute(const char *path);
/* The systems have one separator that all of them take: '/'. Windows has another one besides. */
bool oq_path_is_separator(char c);
/* The path without links, absolute. */
bool oq_os_real_path(const char *path, char out[OQ_PATH_MAX]);

/* ---- files ---- */

typedef enum oq_file_kind {
    OQ_IS_FILE,
    OQ_IS_FOLDER,
    OQ_IS_LINK,
    OQ_IS_FIFO,
    OQ_IS_DEVICE,
    OQ_IS_SOCKET,
    OQ_IS_OTHER
} oq_file_kind;

typedef struct oq_file_info {
    oq_file_kind kind;
    unsigned mode; /* permissions as of POSIX */
    uint64_t size;
    int64_t mtime_ns;
    uint64_t volume, id; /* together: which file it is */
    uint64_t links;
} oq_file_info;

static inline bool oq_info_is_same(const oq_file_info *a, const oq_file_info *b) {
    return a->volume == b->volume && a->id == b->id;
}

/* Opens whatever it is for reading, without waiting for anybody. */
oq_handle oq_os_open(const char *path);
void oq_os_close(oq_handle h);
bool oq_os_info(oq_handle h, oq_file_info *out);
/* Of what the path leads to, links followed. */
bool oq_os_info_of(const char *path, oq_file_info *out);
bool oq_os_is_folder(const char *path);
bool oq_os_is_link(const char *path);
/* Bytes read, 0 at the end. */
int64_t oq_os_read(oq_handle h, void *p, size_t n);
/* Reading goes on at the beginning. */
bool oq_os_rewind(oq_handle h);
int64_t oq_os_read_at(oq_handle h, void *p, size_t n, uint64_t at);
/* The whole file as memory that is only read. */
const uint8_t *oq_os_map(oq_handle h, uint64_t n);
/* The same as memory that is written, which the file keeps. */
void *oq_os_map_shared(oq_handle h, uint64_t n);
void oq_os_unmap(const uint8_t *p, uint64_t n);
/* Lets go of pages of a mapping that are not needed again soon. */
void oq_os_forget(const uint8_t *p, uint64_t n);
uint64_t oq_os_page_size(void);

typedef enum oq_may { OQ_MAY_READ = 1, OQ_MAY_WRITE = 2, OQ_MAY_ENTER = 4, OQ_IS_THERE = 0 } oq_may;
/* Whether this user may do so; several are joined by |. */
bool oq_os_may(const char *path, unsigned what);
bool oq_os_make_folder(const char *path);
bool oq_os_remove_folder(const char *path);
bool oq_os_remove(const char *path);
/* `text` ends with XXXXXX, which becomes a name that is new. */
bool oq_os_make_temp_folder(char *text);
/* The same for an empty file; `tail` bytes come after XXXXXX. */
bool oq_os_make_temp_file(char *text, size_t tail);
/* Where temporary files go; `room` may be used for it. */
const char *oq_os_temp_root(char room[OQ_PATH_MAX]);

/* Names in a folder, in no order, without "." and "..". */
typedef struct oq_listing oq_listing;
oq_listing *oq_os_list(const char *path);
/* The next name; NULL at the end (errno 0) or when it cannot be read. */
const char *oq_os_list_next(oq_listing *l);
void oq_os_list_close(oq_listing *l);

/* ---- external data ---- */

/* What makes a location one that must not be opened on this system, for a message; or NULL. */
const char *oq_os_bad_location(const char *location);
/* A folder that files are opened beneath. */
oq_handle oq_os_open_folder(const char *path);
/* Opens `location` for reading with every step beneath the folder; errno EXDEV: it leaves it. */
oq_handle oq_os_open_beneath(oq_handle folder, const char *location);

/* ---- outputs ---- */

/* The folder that an output is put in; names below are names in it. */
oq_handle oq_os_open_out_folder(const char *path);
bool oq_os_info_in(oq_handle folder, const char *name, oq_file_info *out);
bool oq_os_may_write_in(oq_handle folder, const char *name);
/* A file without a name. A path that opens it goes to `path`. */
oq_handle oq_os_make_unnamed(oq_handle folder, char *path, size_t cap);
/* A new file. Others may read it before it is whole. */
oq_handle oq_os_make_named(oq_handle folder, const char *name);
/* A file among the temporary ones that has no name, or loses it when it is closed. */
oq_handle oq_os_make_scratch(void);
/* A file that goes when it is closed. */
oq_handle oq_os_make_in_memory(void);
int64_t oq_os_write(oq_handle h, const void *p, size_t n);
/* Copies inside the kernel: bytes copied. `way` counts from 0; ENOSYS: there are no more ways. */
int64_t oq_os_copy(unsigned way, oq_handle out, oq_handle in, uint64_t at, size_t n);
bool oq_os_reserve(oq_handle h, uint64_t n);
/* Lets the disk begin. */
void oq_os_start_disk(oq_handle h, uint64_t from, uint64_t n);
bool oq_os_truncate(oq_handle h, uint64_t n);
bool oq_os_sync(oq_handle h);
bool oq_os_set_mode(oq_handle h, unsigned mode);
/* Gives a file without a name one; fails where the name is taken. */
bool oq_os_link_in(oq_handle h, oq_handle folder, const char *name);
typedef enum oq_rename { OQ_RENAME_NEW, OQ_RENAME_EXCHANGE, OQ_RENAME_REPLACE } oq_rename;
bool oq_os_rename_in(oq_handle folder, const char *from, const char *to, oq_rename how);
bool oq_os_remove_in(oq_handle folder, const char *name);
/* False when there are no random bytes yet. */
bool oq_os_random(void *p, size_t n);

/* ---- libraries ---- */

/* Opens a library; NULL with the reason in `why`. */
void *oq_os_library(const char *path, char *why, size_t cap);
void *oq_os_symbol(void *library, const char *name);
void oq_os_library_close(void *library);
/* The path of the running program, or of the library that holds an address. */
bool oq_os_program_path(char out[OQ_PATH_MAX]);
bool oq_os_library_path(const void *address, char out[OQ_PATH_MAX]);
/* A library that stays until the process ends; NULL: there is none. */
void *oq_os_library_for_good(const char *name);
/* What the runtime's library is called, and where it is looked for. */
typedef struct oq_runtime_names {
    const char *stem, *tail;   /* "libonnxruntime.so" and ""; a version may stand between them */
    const char *const *places; /* folders, seen from the program and from the library; NULL last */
    bool versioned;            /* that of a wheel has its version in its name */
    bool loader;               /* the system's loader may know one that is good */
} oq_runtime_names;
extern const oq_runtime_names oq_os_runtime;
/* Libraries of linear algebra, the best first, NULL last. */
extern const char *const oq_os_linear_libraries[];
/* A path as the runtime takes it, in `room`; NULL when it is too long. */
const void *oq_os_runtime_path(const char *path, void *room, size_t bytes);

/* ---- other programs ---- */

/* A program that runs, with all that it has started. */
typedef struct oq_process {
    intptr_t id; /* 0: none */
    intptr_t group;
} oq_process;

typedef struct oq_ended {
    int status;
    int signal; /* 0: it ended by itself */
} oq_ended;

oq_handle oq_os_standard_input(void);
/* How a word stands in a line of the system's shell. */
typedef struct oq_shell_words {
    const char *plain; /* what needs no quotes there, besides what needs none anywhere */
    char quote;
    const char *inside; /* a quote between quotes */
} oq_shell_words;
extern const oq_shell_words oq_os_shell;
/* Runs a line of the system's shell; *output is what it prints. Returns 0, or an errno. */
int oq_os_run_line(const char *line, oq_process *p, oq_handle *output);
/* 1: a read will not wait; 0: it would, after that many milliseconds; -1 with errno. */
int oq_os_wait_readable(oq_handle h, int milliseconds);
/* Waits for the end. A program that another part of this process has waited for ended well. */
oq_ended oq_os_wait(oq_process *p);
/* Asks the program and what it has started to end; `hard`: ends it. */
void oq_os_stop(const oq_process *p, bool hard);

/* ---- the machine ---- */

unsigned oq_os_cores(void);    /* that this process may use; 0: unknown */
uint64_t oq_os_memory(void);   /* bytes of the machine; 0: unknown */
uint64_t oq_os_resident(void); /* bytes of this process; 0: unknown */
uint64_t oq_os_seed(void);     /* differs from process to process */
void oq_os_want_large_pages(void *p, size_t n);
/* Bits of 64-bit Arm's features, as Linux numbers them: HWCAP and HWCAP2. */
void oq_os_arm_features(unsigned long bits[2]);
uint64_t oq_os_process_id(void);
const char *oq_os_reason(int errnum, char *room, size_t cap);
bool oq_os_utc(int64_t seconds, struct tm *out);

/* Threads made between the two get none of the process's signals but those of their own faults. */
typedef struct oq_signals {
    uint64_t room[16];
} oq_signals;
void oq_os_quiet(oq_signals *was);
void oq_os_loud(const oq_signals *was);

/* ---- a process that trusts nothing that it runs (api/isolate) ---- */

/* Where this is false the rest is not called. */
bool oq_os_can_isolate(void);

typedef struct oq_child_file {
    int at; /* the number it has in the program */
    oq_handle
        at_home; /* here; OQ_NO_HANDLE: nothing is read from it, and what is written is lost */
} oq_child_file;

#define OQ_CHILD_FILES_LIMIT 4

/* Starts a program in a group of its own. `words` are the arguments, the name first and NULL last;
 * `variables` the environment, NULL: this process's. Files that are not listed are inherited unless
 * they are closed on exec. Signals that this process ignores or blocks are as usual in it. Returns
 * 0, or the errno of what failed. */
int oq_os_start(oq_process *p, const char *program, char *const *words, char *const *variables,
                const oq_child_file *files, size_t n_files);
char **oq_os_variables(void);
/* Two ends of a line; the first one never waits, and neither is inherited. */
bool oq_os_socket_pair(oq_handle ends[2]);
int64_t oq_os_send(oq_handle h, const void *p, size_t n);
int64_t oq_os_receive(oq_handle h, void *p, size_t n);
/* Whether it can be read from or written to, after at most that long. */
bool oq_os_wait_socket(oq_handle h, bool to_write, int milliseconds);
/* Asks the program alone to end. */
void oq_os_ask_to_end(const oq_process *p);
/* Whether it has ended, after at most that long; it can still be waited for. */
bool oq_os_has_ended(const oq_process *p, int milliseconds);
const char *oq_os_signal_name(int number);
/* This process ends when the one that started it does. */
void oq_os_end_with_parent(void);
uint64_t oq_os_parent_id(void);
/* Closes the files from that number on: what a started program has inherited and does not know. */
void oq_os_close_from(int first);
