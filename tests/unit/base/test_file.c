/*
 * test_file.c — read-only mapped files, and files that are not regular or do not stay as they are.
 */
#include "base/system/file.h"

#include "flaky_alloc.h"
#include "flaky_io.h"
#include "scratch.h"
#include "testing.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

static void opens_and_maps(void **state) {
    const char *path = scratch_file(*state, "a.bin", "hello", 5);
    oq_file f;
    onq_error err = ONQ_ERROR_INIT;
    assert_ok(oq_file_open(&f, oq_alloc_default(), path, &err), err);
    assert_int_equal(f.size, 5);
    assert_memory_equal(f.p, "hello", 5);
    assert_string_equal(f.path, path);
    assert_ok(oq_file_check(&f, &err), err);
    oq_file_drop(&f, 0, 5);
    oq_file_drop(&f, 3, UINT64_MAX);
    oq_file_drop(&f, 9, 1);
    assert_memory_equal(f.p, "hello", 5);
    /* The mapping stays when the name is gone or is another file's. */
    assert_int_equal(unlink(path), 0);
    scratch_file(*state, "a.bin", "other", 5);
    assert_memory_equal(f.p, "hello", 5);
    oq_file_close(&f);
    oq_file_close(&f);
    assert_true(f.handle == OQ_NO_HANDLE);
}

static void empty_file(void **state) {
    const char *path = scratch_file(*state, "empty", "", 0);
    oq_file f;
    onq_error err = ONQ_ERROR_INIT;
    assert_ok(oq_file_open(&f, oq_alloc_default(), path, &err), err);
    assert_int_equal(f.size, 0);
    assert_non_null(f.p);
    oq_file_drop(&f, 0, 1);
    oq_file_close(&f);
}

/* A folder, a FIFO nobody writes to, a device that never ends, a socket: refused at once. */
static void no_regular_file(void **state) {
    scratch *s = *state;
    const char *fifo = scratch_path(s, "fifo");
    assert_int_equal(mkfifo(fifo, 0644), 0);
    const char *sock = scratch_path(s, "sock");
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    assert_true(strlen(sock) < sizeof at.sun_path);
    strcpy(at.sun_path, sock);
    const int sock_fd = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(bind(sock_fd, (const struct sockaddr *)&at, sizeof at), 0);
    const struct {
        const char *path, *says;
    } cases[] = {
        {scratch_path(s, "missing"), "No such file"},
        {s->dir, "a folder"},
        {fifo, "a FIFO"},
        {"/dev/zero", "a device"},
        {"/dev/null", "a device"},
        {sock, "cannot be opened"},
        {"", "No such file"},
        {scratch_link(s, "loop", "loop"), "cannot be opened"},
        {scratch_path(s, "missing\x1b[2J"), "\\x1b[2J"},
    };
    for (size_t i = 0; i < OQ_COUNT(cases); i++) {
        oq_file f;
        onq_error err = ONQ_ERROR_INIT;
        const onq_code code =
            access(cases[i].path, F_OK) != 0 && errno == ENOENT ? ONQ_E_MISSING : ONQ_E_OPEN;
        assert_fails(oq_file_open(&f, oq_alloc_default(), cases[i].path, &err), code, err,
                     cases[i].says);
        assert_null(f.p);
        oq_file_close(&f);
    }
    close(sock_fd);
}

static void changes_are_seen(void **state) {
    const char *path = scratch_file(*state, "a.bin", NULL, 10000);
    oq_file f;
    onq_error err = ONQ_ERROR_INIT;
    assert_ok(oq_file_open(&f, oq_alloc_default(), path, &err), err);
    assert_int_equal(truncate(path, 100), 0);
    assert_fails(oq_file_check(&f, &err), ONQ_E_READ, err, "from 10000 to 100 bytes");
    assert_int_equal(truncate(path, 10000), 0);
    const struct timespec old[2] = {{1, 5}, {1, 5}};
    assert_int_equal(utimensat(AT_FDCWD, path, old, 0), 0);
    assert_fails(oq_file_check(&f, &err), ONQ_E_READ, err, "written to while it was read");
    assert_non_null(strstr(err.text, path));
    oq_file_close(&f);
    assert_ok(oq_file_check(&f, &err), err); /* nothing open, nothing changed */
}

static void reads_whole_files(void **state) {
    const char *path = scratch_file(*state, "list.txt", "one\ntwo\n", 8);
    oq_arena a;
    oq_str text;
    onq_error err = ONQ_ERROR_INIT;
    const onq_allocator *alloc = oq_alloc_default();
    oq_arena_init(&a, alloc);
    assert_ok(oq_file_read_all(&a, path, 8, &text, &err), err);
    assert_true(oq_str_is(text, "one\ntwo\n"));
    assert_int_equal(text.p[8], '\0');
    assert_fails(oq_file_read_all(&a, path, 7, &text, &err), ONQ_E_LIMIT, err, "8 bytes");
    const char *empty = scratch_file(*state, "empty", "", 0);
    assert_ok(oq_file_read_all(&a, empty, 7, &text, &err), err);
    assert_true(text.p != NULL && text.n == 0);
    /* A file larger than anyone may ask for costs no memory. */
    const char *huge = scratch_file(*state, "huge", NULL, (size_t)1 << 40);
    assert_fails(oq_file_read_all(&a, huge, 1 << 20, &text, &err), ONQ_E_LIMIT, err, "huge");
    assert_true(a.used < 1 << 20);
    oq_arena_release(&a);
}

struct read_job {
    const char *path;
};

static onq_code read_it(const onq_allocator *alloc, void *ctx, onq_error *err) {
    const struct read_job *job = ctx;
    oq_arena a;
    oq_str text;
    oq_arena_init(&a, alloc);
    const onq_code rc = oq_file_read_all(&a, job->path, 1 << 20, &text, err);
    oq_arena_release(&a);
    return rc;
}

static onq_code map_it(const onq_allocator *alloc, void *ctx, onq_error *err) {
    const struct read_job *job = ctx;
    oq_file f;
    OQ_TRY(oq_file_open(&f, alloc, job->path, err));
    oq_file_close(&f);
    return ONQ_OK;
}

static void sweep_memory(void **state) {
    struct read_job job = {scratch_file(*state, "a", "some text", 9)};
    assert_int_equal(flaky_sweep(read_it, &job), 1);
    assert_int_equal(flaky_sweep(map_it, &job), 1);
}

typedef onq_code (*job_fn)(const onq_allocator *alloc, void *ctx, onq_error *err);

/* Each system call fails in turn: an error that names the file, nothing leaked. Returns the
 * runs. */
static long sweep_calls_of(job_fn fn, struct read_job *job) {
    long n = 0;
    for (bool failed = true; failed; n++) {
        flaky f;
        flaky_init(&f, -1);
        onq_error err = ONQ_ERROR_INIT;
        flaky_io_arm(IO_ALL, n, EIO, false);
        const onq_code rc = fn(&f.alloc, job, &err);
        failed = flaky_io_disarm();
        assert_int_equal(atomic_load(&f.live), 0);
        if (failed) {
            assert_true(rc == ONQ_E_OPEN || rc == ONQ_E_READ);
            assert_non_null(strstr(err.text, job->path));
            assert_non_null(strstr(err.text, "Input/output error"));
        } else {
            assert_ok(rc, err);
        }
    }
    return n;
}

static void sweep_calls(void **state) {
    struct read_job job = {scratch_file(*state, "a", "some text", 9)};
    /* open, fstat, pread or mmap, and the run without a failure */
    assert_int_equal(sweep_calls_of(read_it, &job), 4);
    assert_int_equal(sweep_calls_of(map_it, &job), 4);
}

/* A call that is interrupted is made again. */
static void interrupted(void **state) {
    struct read_job job = {scratch_file(*state, "a", "some text", 9)};
    onq_error err = ONQ_ERROR_INIT;
    flaky_io_arm(IO_READ, 0, EINTR, false);
    assert_ok(read_it(oq_alloc_default(), &job, &err), err);
    assert_true(flaky_io_disarm());
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(opens_and_maps, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(empty_file, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(no_regular_file, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(changes_are_seen, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(reads_whole_files, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(sweep_memory, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(sweep_calls, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(interrupted, scratch_setup, scratch_teardown),
    };
    return cmocka_run_group_tests_name("file", tests, NULL, NULL);
}
