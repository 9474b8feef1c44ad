/*
 * test_file_out.c — outputs appear whole or not at all, whatever fails and whenever the process
 * dies.
 */
#include "base/system/file.h"

#include "flaky_alloc.h"
#include "flaky_io.h"
#include "scratch.h"
#include "testing.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static int setup(void **state) {
    static scratch s;
    scratch_init(&s);
    scratch_dir(&s, "out");
    *state = &s;
    return 0;
}

static int teardown(void **state) {
    flaky_io_disarm();
    flaky_io_no_tmpfile(false);
    flaky_io_short_writes(0);
    flaky_io_no_copies(false);
    scratch_remove(*state);
    return 0;
}

static mode_t mode_of(const char *path) {
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    return st.st_mode & 0777;
}

/* Opens, writes and commits, or aborts. */
static onq_code put(const char *path, const void *p, size_t n, bool commit, onq_error *err) {
    oq_out o;
    OQ_TRY(oq_out_open(&o, oq_alloc_default(), path, err));
    onq_code rc = oq_out_write(&o, p, n, err);
    if (rc == ONQ_OK && commit)
        return oq_out_commit(&o, err);
    oq_out_abort(&o);
    return rc;
}

static void new_and_replaced(void **state) {
    scratch *s = *state;
    const char *path = scratch_path(s, "out/a.bin"), *dir = scratch_path(s, "out");
    onq_error err = ONQ_ERROR_INIT;
    const mode_t mask = umask(027);
    for (int named = 0; named < 2; named++) {
        flaky_io_no_tmpfile(named != 0);
        assert_ok(put(path, "first", 5, true, &err), err);
        assert_true(file_holds(path, "first", 5));
        assert_int_equal(mode_of(path), 0640); /* as any new file */
        assert_int_equal(chmod(path, 0604), 0);
        assert_ok(put(path, "dropped", 7, false, &err), err);
        assert_true(file_holds(path, "first", 5));
        assert_ok(put(path, "second!", 7, true, &err), err);
        assert_true(file_holds(path, "second!", 7));
        assert_int_equal(mode_of(path), 0604); /* as the one it replaces */
        assert_int_equal(entry_count(dir), 1);
        assert_ok(put(path, "", 0, true, &err), err);
        assert_true(file_holds(path, "", 0));
        assert_int_equal(unlink(path), 0);
        /* Relative, and by its name alone. */
        char cwd[4096];
        assert_non_null(getcwd(cwd, sizeof cwd));
        assert_int_equal(chdir(dir), 0);
        assert_ok(put("b.bin", "b", 1, true, &err), err);
        assert_ok(put("./b.bin", "bb", 2, true, &err), err);
        assert_int_equal(chdir(cwd), 0);
        assert_true(file_holds(scratch_path(s, "out/b.bin"), "bb", 2));
        assert_int_equal(unlink(scratch_path(s, "out/b.bin")), 0);
        assert_int_equal(entry_count(dir), 0);
    }
    umask(mask);
}

static void nothing_is_seen_before(void **state) {
    scratch *s = *state;
    const char *path = scratch_path(s, "out/a.bin"), *dir = scratch_path(s, "out");
    onq_error err = ONQ_ERROR_INIT;
    oq_out o;
    assert_ok(oq_out_open(&o, oq_alloc_default(), path, &err), err);
    assert_ok(oq_out_write(&o, "abc", 3, &err), err);
    assert_int_equal(entry_count(dir), 0);
    /* It can be read through o.temp all the same. */
    assert_ok(oq_out_flush(&o, &err), err);
    assert_true(file_holds(o.temp, "abc", 3));
    assert_ok(oq_out_give_name(&o, &err), err);
    assert_int_equal(entry_count(dir), 1);
    assert_memory_equal(o.temp, dir, strlen(dir));
    assert_true(file_holds(o.temp, "abc", 3));
    assert_ok(oq_out_write(&o, "def", 3, &err), err);
    assert_ok(oq_out_commit(&o, &err), err);
    assert_int_equal(entry_count(dir), 1);
    assert_true(file_holds(path, "abcdef", 6));
    oq_out_abort(&o);
    oq_out zero = {0};
    oq_out_abort(&zero);
}

static void links_are_followed(void **state) {
    scratch *s = *state;
    onq_error err = ONQ_ERROR_INIT;
    const char *real = scratch_file(s, "real.bin", "old", 3);
    const char *path = scratch_link(s, "out/link", "../real.bin");
    assert_ok(put(path, "new", 3, true, &err), err);
    struct stat st;
    assert_int_equal(lstat(path, &st), 0);
    assert_true(S_ISLNK(st.st_mode));
    assert_true(file_holds(real, "new", 3));
    assert_fails(put(scratch_link(s, "out/bad", "../missing"), "x", 1, true, &err), ONQ_E_WRITE,
                 err, "link");
    assert_int_equal(entry_count(s->dir), 2);
}

static void refused(void **state) {
    scratch *s = *state;
    onq_error err = ONQ_ERROR_INIT;
    scratch_file(s, "out/plain", "x", 1);
    assert_int_equal(mkfifo(scratch_path(s, "out/fifo"), 0644), 0);
    const char *locked = scratch_file(s, "out/locked", "keep", 4);
    assert_int_equal(chmod(locked, 0444), 0);
    char *longest = calloc(1, 400);
    memset(longest, 'n', 300);
    const struct {
        const char *path, *says;
    } cases[] = {
        {scratch_path(s, "out"), "is a folder"},
        {scratch_path(s, "out/"), "is a folder"},
        {scratch_path(s, "out/."), "is a folder"},
        {scratch_path(s, "out/.."), "is a folder"},
        {"", "is a folder"},
        {scratch_path(s, "nope/a"), "No such file"},
        {scratch_path(s, "out/plain/a"), "Not a directory"},
        {scratch_path(s, "out/fifo"), "not a regular file"},
        {"/dev/null", "not a regular file"},
        {locked, "read-only"},
        {scratch_path(s, longest), "too long"},
    };
    for (size_t i = 0; i < OQ_COUNT(cases); i++) {
        oq_out o;
        assert_fails(oq_out_open(&o, oq_alloc_default(), cases[i].path, &err), ONQ_E_WRITE, err,
                     cases[i].says);
        if (cases[i].path[0] != '\0')
            assert_memory_equal(err.text, cases[i].path,
                                strlen(cases[i].path) < 100 ? strlen(cases[i].path) : 100);
        oq_out_abort(&o);
    }
    assert_true(file_holds(locked, "keep", 4));
    assert_int_equal(entry_count(scratch_path(s, "out")), 3);
    /* The longest name there may be still leaves room for the temporary one. */
    longest[255] = '\0';
    for (int named = 0; named < 2; named++) {
        flaky_io_no_tmpfile(named != 0);
        assert_ok(put(scratch_path(s, longest), "x", 1, true, &err), err);
        assert_ok(put(scratch_path(s, longest), "y", 1, true, &err), err);
    }
    free(longest);
}

static void folder_without_permission(void **state) {
    scratch *s = *state;
    onq_error err = ONQ_ERROR_INIT;
    const char *dir = scratch_path(s, "out");
    const bool root = geteuid() == 0;
    assert_int_equal(chmod(s->dir, 0755), 0);
    assert_int_equal(chmod(dir, 0555), 0);
    if (root)
        assert_int_equal(seteuid(65534), 0);
    assert_fails(put(scratch_path(s, "out/a"), "x", 1, true, &err), ONQ_E_WRITE, err,
                 "Permission denied");
    if (root)
        assert_int_equal(seteuid(0), 0);
    /* One that may be written to but not listed. */
    assert_int_equal(chmod(dir, 0333), 0);
    if (root)
        assert_int_equal(seteuid(65534), 0);
    const onq_code rc = put(scratch_path(s, "out/a"), "x", 1, true, &err);
    if (root)
        assert_int_equal(seteuid(0), 0);
    assert_ok(rc, err);
    assert_true(file_holds(scratch_path(s, "out/a"), "x", 1));
}

/* Writes of all sizes around the buffer's arrive in order, also when the system takes a few
 * bytes at a time. */
static void writes_in_order(void **state) {
    scratch *s = *state;
    enum { TOTAL = 400000 };
    static uint8_t data[TOTAL];
    for (size_t i = 0; i < TOTAL; i++)
        data[i] = (uint8_t)(i * 2654435761u >> 13);
    static const size_t sizes[] = {1, 65535, 65536, 65537, 3, 100000, 0, 131072, 7};
    const char *path = scratch_path(s, "out/a");
    onq_error err = ONQ_ERROR_INIT;
    for (unsigned most = 0; most < 2; most++) {
        flaky_io_short_writes(most * 4001);
        oq_out o;
        assert_ok(oq_out_open(&o, oq_alloc_default(), path, &err), err);
        size_t at = 0;
        for (size_t i = 0; at < TOTAL; i++) {
            size_t n = sizes[i % OQ_COUNT(sizes)];
            n = n < TOTAL - at ? n : TOTAL - at;
            assert_ok(oq_out_write(&o, data + at, n, &err), err);
            at += n;
            assert_int_equal(o.size, at);
        }
        assert_ok(oq_out_commit(&o, &err), err);
        assert_true(file_holds(path, data, TOTAL));
    }
}

/* Large ones, after which the disk is asked to begin; and bytes of a mapping that has lost them. */
static void large_writes(void **state) {
    scratch *s = *state;
    enum { N = 20 << 20 };
    onq_error err = ONQ_ERROR_INIT;
    const char *from = scratch_file(s, "from", NULL, N), *path = scratch_path(s, "out/a");
    oq_file f;
    oq_out o;
    assert_ok(oq_file_open(&f, oq_alloc_default(), from, &err), err);
    assert_ok(oq_out_open(&o, oq_alloc_default(), path, &err), err);
    assert_ok(oq_out_write(&o, f.p, N, &err), err);
    assert_ok(oq_out_copy(&o, &f, 0, N, &err), err);
    assert_ok(oq_out_commit(&o, &err), err);
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_size, 2 * N);
    assert_ok(oq_out_open(&o, oq_alloc_default(), path, &err), err);
    assert_int_equal(truncate(from, 100), 0);
    assert_fails(oq_out_write(&o, f.p, N, &err), ONQ_E_READ, err, "became shorter");
    oq_out_abort(&o);
    oq_file_close(&f);
}

/* Space asked for ahead: refused at once when it is not there, given back when it was too much. */
static void reserves(void **state) {
    scratch *s = *state;
    onq_error err = ONQ_ERROR_INIT;
    const char *path = scratch_path(s, "out/a");
    static const uint64_t sizes[] = {0, 3, 5, 100000, UINT64_MAX};
    for (size_t i = 0; i < OQ_COUNT(sizes); i++) {
        oq_out o;
        assert_ok(oq_out_open(&o, oq_alloc_default(), path, &err), err);
        assert_ok(oq_out_reserve(&o, sizes[i], &err), err);
        assert_ok(oq_out_write(&o, "12345", 5, &err), err);
        assert_ok(oq_out_commit(&o, &err), err);
        assert_true(file_holds(path, "12345", 5));
    }
    /* What the file system says: that there is no room, or that it cannot reserve any. */
    static const int answers[] = {ENOSPC, EDQUOT, EOPNOTSUPP};
    oq_out o;
    for (size_t i = 0; i < OQ_COUNT(answers); i++) {
        assert_ok(oq_out_open(&o, oq_alloc_default(), path, &err), err);
        flaky_io_arm(IO_RESERVE, 0, answers[i], false);
        if (answers[i] == EOPNOTSUPP)
            assert_ok(oq_out_reserve(&o, 2000, &err), err);
        else
            assert_fails(oq_out_reserve(&o, 2000, &err), ONQ_E_WRITE, err, "free some space");
        assert_true(flaky_io_disarm());
        oq_out_abort(&o);
    }
    struct rlimit old;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    const struct rlimit low = {1000, old.rlim_max};
    void (*was)(int) = signal(SIGXFSZ, SIG_IGN);
    assert_ok(oq_out_open(&o, oq_alloc_default(), path, &err), err);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &low), 0);
    const onq_code rc = oq_out_reserve(&o, 2000, &err);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    signal(SIGXFSZ, was);
    assert_fails(rc, ONQ_E_WRITE, err, "free some space");
    oq_out_abort(&o);
    assert_true(file_holds(path, "12345", 5));
}

/* Every way of copying gives the same bytes, also when the better ones are refused. */
static void copies(void **state) {
    scratch *s = *state;
    enum { N = 300000 };
    static uint8_t data[N], wanted[2 * N];
    for (size_t i = 0; i < N; i++)
        data[i] = (uint8_t)(i * 40503u >> 5);
    const char *from = scratch_file(s, "from", data, N), *path = scratch_path(s, "out/a");
    memcpy(wanted, "head", 4);
    memcpy(wanted + 4, data + 1000, N - 1000);
    memcpy(wanted + 4 + N - 1000, "mid", 3);
    memcpy(wanted + 7 + N - 1000, data, 5);
    const size_t total = 7 + N - 1000 + 5;
    static const int errors[] = {0, EXDEV, EINVAL, ENOSYS, EOPNOTSUPP, EPERM, EBADF, ETXTBSY};
    onq_error err = ONQ_ERROR_INIT;
    oq_file f, mine;
    assert_ok(oq_file_open(&f, oq_alloc_default(), from, &err), err);
    for (size_t i = 0; i < OQ_COUNT(errors); i++) {
        for (int stays = 0; stays < 2; stays++) { /* only the first way, or both in the kernel */
            oq_out o;
            assert_ok(oq_out_open(&o, oq_alloc_default(), path, &err), err);
            if (errors[i] != 0)
                flaky_io_arm(IO_COPY, 0, errors[i], stays != 0);
            assert_ok(oq_out_write(&o, "head", 4, &err), err);
            assert_ok(oq_out_copy(&o, &f, 1000, N - 1000, &err), err);
            assert_ok(oq_out_write(&o, "mid", 3, &err), err);
            assert_ok(oq_out_copy(&o, &f, 0, 5, &err), err);
            assert_ok(oq_out_copy(&o, &f, N, 0, &err), err);
            assert_int_equal(flaky_io_disarm(), errors[i] != 0);
            assert_int_equal(o.size, total);
            assert_ok(oq_out_commit(&o, &err), err);
            assert_true(file_holds(path, wanted, total));
        }
    }
    oq_out o;
    assert_ok(oq_out_open(&o, oq_alloc_default(), path, &err), err);
    /* Bytes that have no file, and a file system that copies nothing without an error. */
    assert_ok(oq_file_borrow(&mine, oq_alloc_default(), "mine", data, N, &err), err);
    assert_ok(oq_out_copy(&o, &mine, 0, N, &err), err);
    oq_file_close(&mine);
    flaky_io_no_copies(true);
    assert_ok(oq_out_copy(&o, &f, 0, N, &err), err);
    flaky_io_no_copies(false);
    assert_ok(oq_out_commit(&o, &err), err);
    memcpy(wanted, data, N);
    memcpy(wanted + N, data, N);
    assert_true(file_holds(path, wanted, sizeof wanted));
    assert_ok(oq_out_open(&o, oq_alloc_default(), path, &err), err);
    assert_fails(oq_out_copy(&o, &f, N, 1, &err), ONQ_E_INVALID, err, from);
    assert_fails(oq_out_copy(&o, &f, UINT64_MAX, 2, &err), ONQ_E_INVALID, err, from);
    /* Interrupted: made again. */
    flaky_io_arm(IO_COPY, 0, EINTR, false);
    assert_ok(oq_out_copy(&o, &f, 0, N, &err), err);
    assert_true(flaky_io_disarm());
    oq_out_abort(&o);
    oq_file_close(&f);
}

/* A source that shrinks: an error that names it, by every way of copying, and no signal. */
static void copy_of_a_file_that_shrinks(void **state) {
    scratch *s = *state;
    const char *from = scratch_path(s, "from"), *path = scratch_path(s, "out/a");
    onq_error err = ONQ_ERROR_INIT;
    for (int way = 0; way < 3; way++) {
        for (int to = 0; to < 3; to++) {
            static const off_t sizes[] = {100, 8192, 49990};
            scratch_file(s, "from", NULL, 50000);
            oq_file f;
            oq_out o;
            assert_ok(oq_file_open(&f, oq_alloc_default(), from, &err), err);
            assert_ok(oq_out_open(&o, oq_alloc_default(), path, &err), err);
            assert_int_equal(truncate(from, sizes[to]), 0);
            if (way != 0)
                flaky_io_arm(IO_COPY, 0, EXDEV, way == 2);
            const onq_code rc = oq_out_copy(&o, &f, 0, 50000, &err);
            flaky_io_disarm();
            if (way == 2 && to == 2) {
                /* The mapping reads as zeros to the end of the page; the check at the end reports
                 * it. */
                assert_ok(rc, err);
                assert_fails(oq_file_check(&f, &err), ONQ_E_READ, err, "49990");
            } else {
                assert_fails(rc, ONQ_E_READ, err, "became shorter");
                assert_non_null(strstr(err.text, from));
            }
            oq_out_abort(&o);
            oq_file_close(&f);
            assert_int_equal(entry_count(scratch_path(s, "out")), 0);
        }
    }
}

/* A limit on the size of files, as a full disk: at the write, with the name and what to do. */
static void no_space(void **state) {
    scratch *s = *state;
    const char *path = scratch_file(s, "out/a", "old", 3);
    const char *from = scratch_file(s, "from", NULL, 300000);
    onq_error err = ONQ_ERROR_INIT;
    struct rlimit old;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    const struct rlimit low = {200000, old.rlim_max};
    void (*was)(int) = signal(SIGXFSZ, SIG_IGN);
    static const uint8_t zeros[300000];
    for (int way = 0; way < 4; way++) {
        oq_out o;
        oq_file f, mine;
        assert_ok(oq_out_open(&o, oq_alloc_default(), path, &err), err);
        assert_ok(oq_file_open(&f, oq_alloc_default(), from, &err), err);
        assert_ok(oq_file_borrow(&mine, oq_alloc_default(), "mine", zeros, sizeof zeros, &err),
                  err);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &low), 0);
        onq_code rc;
        if (way == 0)
            rc = oq_out_write(&o, zeros, sizeof zeros, &err);
        else if (way == 1)
            rc = oq_out_copy(&o, &f, 0, f.size, &err);
        else if (way == 2)
            rc = oq_out_copy(&o, &mine, 0, mine.size, &err);
        else
            for (int i = 0; (rc = oq_out_write(&o, zeros, 30000, &err)) == ONQ_OK && i < 100; i++) {
            }
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
        assert_fails(rc, ONQ_E_WRITE, err, "free some space");
        assert_non_null(strstr(err.text, path));
        oq_out_abort(&o);
        oq_file_close(&f);
        oq_file_close(&mine);
        assert_true(file_holds(path, "old", 3));
        assert_int_equal(entry_count(scratch_path(s, "out")), 1);
    }
    signal(SIGXFSZ, was);
    flaky_io_arm(IO_WRITE, 0, EDQUOT, false);
    assert_fails(put(path, zeros, sizeof zeros, true, &err), ONQ_E_WRITE, err, "free some space");
    /* The disk fills up only when the data is brought there. */
    flaky_io_arm(IO_SYNC, 0, ENOSPC, false);
    assert_fails(put(path, "new", 3, true, &err), ONQ_E_WRITE, err, "No space left");
    flaky_io_disarm();
    assert_true(file_holds(path, "old", 3));
    oq_buf text;
    oq_buf_init(&text, oq_alloc_default());
    oq_buf_add(&text, zeros, sizeof zeros);
    flaky_io_arm(IO_WRITE, 0, ENOSPC, false);
    assert_fails(oq_out_text(oq_alloc_default(), path, &text, &err), ONQ_E_WRITE, err, path);
    flaky_io_disarm();
    oq_buf_release(&text);
    assert_true(file_holds(path, "old", 3));
}

/* Bringing the bytes, and then the name, to the disk. */
static void syncing(void **state) {
    scratch *s = *state;
    const char *path = scratch_path(s, "out/a");
    onq_error err = ONQ_ERROR_INIT;
    /* Interrupted calls are made again; a file system without sync is as good as it gets. */
    static const int harmless[] = {EINTR, EINVAL, EROFS, ENOTSUP};
    for (size_t i = 0; i < OQ_COUNT(harmless); i++) {
        for (int call = 0; call < 2; call++) {
            flaky_io_arm(IO_SYNC, call, harmless[i], false);
            assert_ok(put(path, "12345", 5, true, &err), err);
            assert_true(flaky_io_disarm());
            assert_true(file_holds(path, "12345", 5));
        }
    }
    static const int harmful[] = {EIO, ENOSPC, EDQUOT};
    for (size_t i = 0; i < OQ_COUNT(harmful); i++) {
        flaky_io_arm(IO_SYNC, 1, harmful[i], false);
        assert_fails(put(path, "12345", 5, true, &err), ONQ_E_WRITE, err, "is in place, but");
        assert_true(flaky_io_disarm());
    }
    flaky_io_arm(IO_WRITE, 0, EINTR, false);
    assert_ok(put(path, "12345", 5, true, &err), err);
    assert_true(flaky_io_disarm());
    /* In memory nothing is left of it. */
    oq_out o;
    oq_file f;
    assert_ok(oq_out_open_memory(&o, oq_alloc_default(), "memory", &err), err);
    flaky_io_arm(IO_SYNC, 0, EIO, false);
    assert_fails(oq_out_take(&o, &f, &err), ONQ_E_WRITE, err, "memory");
    assert_true(flaky_io_disarm());
}

/* A temporary name that is taken: another is tried, and there is an end to it. */
static void names_that_are_taken(void **state) {
    scratch *s = *state;
    const char *path = scratch_file(s, "out/a", "old", 3);
    onq_error err = ONQ_ERROR_INIT;
    for (int named = 0; named < 2; named++) {
        flaky_io_no_tmpfile(named != 0);
        /* The first call opens the folder, or tries the target's own name, which is there. */
        const unsigned kind = named != 0 ? IO_OPEN : IO_PLACE;
        const long before = named != 0 ? 1 : 2;
        flaky_io_arm(kind, before, EEXIST, false);
        assert_ok(put(path, "new", 3, true, &err), err);
        assert_true(flaky_io_disarm());
        assert_true(file_holds(path, "new", 3));
        flaky_io_arm(kind, before, EEXIST, true);
        assert_fails(put(path, "newer", 5, true, &err), ONQ_E_WRITE, err, "cannot be");
        assert_true(flaky_io_disarm());
        assert_true(file_holds(path, "new", 3));
        assert_int_equal(entry_count(scratch_path(s, "out")), 1);
    }
}

/* ---- sweeps ---- */

/* A model and its data, as the writer makes them. */
struct pair_job {
    scratch *s;
    const char *data, *model;
    bool sealed;
};

static onq_code write_pair(const onq_allocator *a, void *ctx, onq_error *err) {
    const struct pair_job *job = ctx;
    oq_out data = {0}, model = {0};
    oq_file f = {0};
    oq_out *outs[] = {&data, &model};
    onq_code rc;
    OQ_GO(oq_file_open(&f, a, scratch_path(job->s, "from"), err));
    OQ_GO(oq_out_open(&model, a, job->model, err));
    OQ_GO(oq_out_open(&data, a, job->data, err));
    OQ_GO(oq_out_copy(&data, &f, 0, f.size, err));
    OQ_GO(oq_out_write(&data, "tail", 4, err));
    if (job->sealed)
        OQ_GO(oq_out_seal(&data, err));
    OQ_GO(oq_out_write(&model, "new model", 9, err));
    OQ_GO(oq_out_commit_all(outs, 2, err));
done:
    oq_out_abort(&data);
    oq_out_abort(&model);
    oq_file_close(&f);
    return rc;
}

enum seen { OLD, NEW, TORN };

/* What is in the folder now. `existing`: there were old ones. */
static enum seen look(const struct pair_job *job, bool existing) {
    const bool new_data = file_holds(job->data, "weightstail", 11);
    const bool new_model = file_holds(job->model, "new model", 9);
    if (new_data && new_model)
        return NEW;
    const bool old_data =
        existing ? file_holds(job->data, "old data", 8) : access(job->data, F_OK) != 0;
    const bool old_model =
        existing ? file_holds(job->model, "old model", 9) : access(job->model, F_OK) != 0;
    return old_data && old_model ? OLD : TORN;
}

static void prepare(struct pair_job *job, scratch *s, bool existing) {
    *job = (struct pair_job){
        .s = s, .data = scratch_path(s, "out/m.data"), .model = scratch_path(s, "out/m.onnx")};
    scratch_file(s, "from", "weights", 7);
    unlink(job->data);
    unlink(job->model);
    if (existing) {
        scratch_file(s, "out/m.data", "old data", 8);
        scratch_file(s, "out/m.onnx", "old model", 9);
    }
}

static void sweep_memory(void **state) {
    struct pair_job job;
    prepare(&job, *state, false);
    for (int sealed = 0; sealed < 2; sealed++) {
        job.sealed = sealed != 0;
        assert_true(flaky_sweep(write_pair, &job) > 10);
        assert_int_equal(look(&job, false), NEW);
        assert_int_equal(entry_count(scratch_path(*state, "out")), 2);
    }
}

/* One run with the n-th call failing; true if one failed. */
static bool fail_call(struct pair_job *job, long n, int errnum, bool existing) {
    scratch *s = job->s;
    flaky f;
    flaky_init(&f, -1);
    onq_error err = ONQ_ERROR_INIT;
    /* What cannot be removed stays: that failure is not among them. */
    flaky_io_arm(IO_ALL & ~(unsigned)IO_REMOVE, n, errnum, false);
    const onq_code rc = write_pair(&f.alloc, job, &err);
    const bool failed = flaky_io_disarm();
    assert_int_equal(atomic_load(&f.live), 0);
    const enum seen now = look(job, existing);
    const size_t entries = entry_count(scratch_path(s, "out"));
    if (rc == ONQ_OK) {
        assert_int_equal(now, NEW);
    } else {
        assert_true(failed);
        assert_true(rc == ONQ_E_OPEN || rc == ONQ_E_READ || rc == ONQ_E_WRITE);
        assert_int_equal(err.code, rc);
        if (now == TORN)
            fail_msg("call %ld: one of two files is left: %s", n, err.text);
        /* New only if nothing but the sync of the folder was left to do. */
        if (now == NEW)
            assert_non_null(strstr(err.text, "its name cannot be written to the disk"));
    }
    if (entries != (now == NEW || existing ? 2 : 0))
        fail_msg("call %ld: %zu entries: %s", n, entries, err.text);
    return failed;
}

static void sweep_calls(void **state) {
    static const int errors[] = {EIO, ENOSPC};
    for (int mode = 0; mode < 8; mode++) {
        const bool existing = (mode & 1) != 0;
        flaky_io_no_tmpfile((mode & 2) != 0);
        for (size_t e = 0; e < OQ_COUNT(errors); e++) {
            struct pair_job job;
            long n = -1;
            do {
                n++;
                prepare(&job, *state, existing);
                job.sealed = (mode & 4) != 0;
            } while (fail_call(&job, n, errors[e], existing));
            assert_true(n > 15);
        }
    }
}

/* The process is killed in place of each call. Files that are there are whole; without O_TMPFILE
 * a hidden file may stay, with it none, save between naming and renaming over an existing file. */
static void sweep_kills(void **state) {
    for (int mode = 0; mode < 4; mode++) {
        const bool existing = (mode & 1) != 0, named = (mode & 2) != 0;
        bool killed = true;
        size_t most_litter = 0;
        for (long n = 0; killed; n++) {
            struct pair_job job;
            prepare(&job, *state, existing);
            const pid_t child = fork();
            assert_true(child >= 0);
            if (child == 0) {
                flaky_io_no_tmpfile(named);
                flaky_io_arm(IO_ALL, n, 0, false);
                onq_error err = ONQ_ERROR_INIT;
                _exit(write_pair(oq_alloc_default(), &job, &err) == ONQ_OK ? 0 : 1);
            }
            int status = 0;
            assert_int_equal(waitpid(child, &status, 0), child);
            killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
            assert_true(killed || (WIFEXITED(status) && WEXITSTATUS(status) == 0));
            /* Data first, model last: a model in its place always has its data. */
            const bool new_data = file_holds(job.data, "weightstail", 11);
            const bool new_model = file_holds(job.model, "new model", 9);
            assert_true(new_data || !new_model);
            if (!new_model && existing)
                assert_true(file_holds(job.model, "old model", 9));
            if (!new_data && existing)
                assert_true(file_holds(job.data, "old data", 8));
            size_t litter = entry_count(scratch_path(*state, "out"));
            litter -= existing ? 2 : (size_t)new_data + (size_t)new_model;
            most_litter = litter > most_litter ? litter : most_litter;
            scratch_remove(*state);
            scratch_init(*state);
            scratch_dir(*state, "out");
        }
        assert_true(most_litter <= (named ? 2u : existing ? 2u : 0u));
    }
}

/* Many outputs wait for one commit with few open files. */
static void many_sealed(void **state) {
    scratch *s = *state;
    enum { N = 120 };
    oq_out outs[N], *list[N];
    onq_error err = ONQ_ERROR_INIT;
    struct rlimit old;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
    const struct rlimit low = {40, old.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
    for (int round = 0; round < 2; round++) { /* new ones, then over old ones */
        for (int i = 0; i < N; i++) {
            char name[32];
            snprintf(name, sizeof name, "out/t%d", i);
            list[i] = &outs[i];
            assert_ok(oq_out_open(&outs[i], oq_alloc_default(), scratch_path(s, name), &err), err);
            assert_ok(oq_out_write(&outs[i], name, strlen(name), &err), err);
            assert_ok(oq_out_write(&outs[i], &round, sizeof round, &err), err);
            assert_ok(oq_out_seal(&outs[i], &err), err);
        }
        assert_ok(oq_out_commit_all(list, N, &err), err);
        assert_int_equal(entry_count(scratch_path(s, "out")), N);
    }
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
    assert_true(file_holds(scratch_path(s, "out/t7"), "out/t7\1\0\0\0", 10));
    assert_ok(oq_out_commit_all(NULL, 0, &err), err);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(new_and_replaced, setup, teardown),
        cmocka_unit_test_setup_teardown(nothing_is_seen_before, setup, teardown),
        cmocka_unit_test_setup_teardown(links_are_followed, setup, teardown),
        cmocka_unit_test_setup_teardown(refused, setup, teardown),
        cmocka_unit_test_setup_teardown(folder_without_permission, setup, teardown),
        cmocka_unit_test_setup_teardown(writes_in_order, setup, teardown),
        cmocka_unit_test_setup_teardown(large_writes, setup, teardown),
        cmocka_unit_test_setup_teardown(reserves, setup, teardown),
        cmocka_unit_test_setup_teardown(copies, setup, teardown),
        cmocka_unit_test_setup_teardown(copy_of_a_file_that_shrinks, setup, teardown),
        cmocka_unit_test_setup_teardown(no_space, setup, teardown),
        cmocka_unit_test_setup_teardown(syncing, setup, teardown),
        cmocka_unit_test_setup_teardown(names_that_are_taken, setup, teardown),
        cmocka_unit_test_setup_teardown(sweep_memory, setup, teardown),
        cmocka_unit_test_setup_teardown(sweep_calls, setup, teardown),
        cmocka_unit_test_setup_teardown(sweep_kills, setup, teardown),
        cmocka_unit_test_setup_teardown(many_sealed, setup, teardown),
    };
    return cmocka_run_group_tests_name("file_out", tests, NULL, NULL);
}
