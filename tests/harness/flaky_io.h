/*
 * flaky_io.h — system calls that fail, or kill, at the Nth one.
 *
 * A test that calls anything here gets this file's open, openat, write, fsync, rename and so on in
 * place of the C library's; they pass on to it until one is told to fail. As with memory, a body is
 * run with the 1st, 2nd, 3rd ... call failing until a run needs no more.
 */
#pragma once

#include <stdbool.h>

typedef enum io_call {
    IO_OPEN = 1,     /* open, openat */
    IO_STAT = 2,     /* fstat, fstatat, lstat */
    IO_READ = 4,     /* pread */
    IO_MAP = 8,      /* mmap of a file */
    IO_WRITE = 16,   /* write */
    IO_COPY = 32,    /* copy_file_range, sendfile */
    IO_SYNC = 64,    /* fsync */
    IO_PLACE = 128,  /* linkat, renameat, renameat2, fchmod */
    IO_REMOVE = 256, /* unlinkat */
    IO_ALL = 511,
    IO_RESERVE = 512 /* fallocate: a file system need not have it */
} io_call;

/* Calls of the given kinds count; `left` of them succeed, then one fails with `errnum` (or,
 * where it is 0, the process is killed in its place). `stays`: all after it fail too. */
void flaky_io_arm(unsigned kinds, long left, int errnum, bool stays);
/* Back to normal; true if a call had failed. */
bool flaky_io_disarm(void);

/* O_TMPFILE is refused as by a file system without it. */
void flaky_io_no_tmpfile(bool on);
/* openat2 answers `errnum`; 0: as it does. */
void flaky_io_no_openat2(int errnum);
/* copy_file_range and sendfile copy nothing and call it success. */
void flaky_io_no_copies(bool on);
/* write takes at most n bytes at a time; 0: as many as it likes. */
void flaky_io_short_writes(unsigned n);
