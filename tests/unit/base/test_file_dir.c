/*
 * test_file_dir.c — external data: what may be opened beneath a folder, and all the ways out of it.
 *
 * Every case runs through the kernel's resolver and through the walk in user space, which must
 * agree.
 */
#include "base/system/file.h"

#include "base/os/os_posix.h"
#include "flaky_alloc.h"
#include "flaky_io.h"
#include "scratch.h"
#include "testing.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

/* model/      the model's folder, with good files and every kind of bad one
 * outside/    where they must not lead
 * cache/      an allowed root */
static int setup(void **state) {
    static scratch s;
    scratch_init(&s);
    *state = &s;
    scratch_dir(&s, "model");
    scratch_dir(&s, "model/sub");
    scratch_dir(&s, "model/sub/deep");
    scratch_dir(&s, "outside");
    scratch_dir(&s, "cache");
    scratch_file(&s, "model/w.bin", "weights", 7);
    scratch_file(&s, "model/sub/w.bin", "below", 5);
    scratch_file(&s, "model/sub/deep/w.bin", "deep", 4);
    scratch_file(&s, "model/..hidden", "dots", 4);
    scratch_file(&s, "model/.h", "hidden", 6);
    scratch_file(&s, "outside/secret", "secret", 6);
    scratch_file(&s, "cache/blob", "blob", 4);
    scratch_link(&s, "model/in", "sub/w.bin");
    scratch_link(&s, "model/in_dir", "sub/deep");
    scratch_link(&s, "model/in_up", "sub/deep/../w.bin");
    scratch_link(&s, "model/sub/up", "../w.bin");
    scratch_link(&s, "model/out", "../outside/secret");
    scratch_link(&s, "model/out_dir", "../outside");
    scratch_link(&s, "model/abs", scratch_path(&s, "outside/secret"));
    scratch_link(&s, "model/abs_in", scratch_path(&s, "model/w.bin"));
    scratch_link(&s, "model/cached", "../cache/blob");
    scratch_link(&s, "model/loop", "loop2");
    scratch_link(&s, "model/loop2", "loop");
    scratch_link(&s, "model/nowhere", "missing");
    scratch_link(&s, "model/root", "/");
    scratch_link(&s, "model/magic", "/proc/self/fd/0");
    scratch_link(&s, "model/chain", "chain1");
    scratch_link(&s, "model/chain1", "in_dir/w.bin");
    assert_int_equal(link(scratch_path(&s, "outside/secret"), scratch_path(&s, "model/hard")), 0);
    assert_int_equal(link(scratch_path(&s, "cache/blob"), scratch_path(&s, "cache/hard")), 0);
    assert_int_equal(mkfifo(scratch_path(&s, "model/fifo"), 0644), 0);
    return 0;
}

static int teardown(void **state) {
    scratch_remove(*state);
    return 0;
}

/* What both resolvers say of a location: 0 and the first byte, or the errno. */
static const struct {
    const char *location;
    int error;
    char first; /* '/' for a folder */
} resolved[] = {
    {"w.bin", 0, 'w'},
    {"./w.bin", 0, 'w'},
    {".//.//w.bin", 0, 'w'},
    {"sub/w.bin", 0, 'b'},
    {"sub/deep/../../w.bin", 0, 'w'},
    {"sub/../sub/w.bin", 0, 'b'},
    {"..hidden", 0, 'd'},
    {".h", 0, 'h'},
    {"in", 0, 'b'},
    {"in_dir/w.bin", 0, 'd'},
    {"in_up", 0, 'b'},
    {"sub/up", 0, 'w'},
    {"in_dir/../w.bin", 0, 'b'}, /* .. of where the link leads, not of where it lies */
    {"chain", 0, 'd'},
    {"sub", 0, '/'},
    {"sub/", 0, '/'},
    {"sub/.", 0, '/'},
    {"sub/deep/..", 0, '/'},
    {"in_dir", 0, '/'},
    {"in_dir/", 0, '/'},
    {".", 0, '/'},
    {"/etc/passwd", EXDEV, 0},
    {"../outside/secret", EXDEV, 0},
    {"..", EXDEV, 0},
    {"sub/../../outside/secret", EXDEV, 0},
    {"in_dir/../../../outside/secret", EXDEV, 0},
    {"out", EXDEV, 0},
    {"out_dir/secret", EXDEV, 0},
    {"abs", EXDEV, 0},
    {"abs_in", EXDEV, 0},
    {"root/etc/passwd", EXDEV, 0},
    {"loop", ELOOP, 0},
    {"missing", ENOENT, 0},
    {"nowhere", ENOENT, 0},
    {"sub/missing/w.bin", ENOENT, 0},
    {"w.bin/x", ENOTDIR, 0},
    {"w.bin/", ENOTDIR, 0},
    {"in/", ENOTDIR, 0},
    {"", ENOENT, 0},
};

static void check_resolver(scratch *s, oq_handle (*resolver)(oq_handle, const char *)) {
    const int dir = open(scratch_path(s, "model"), O_PATH | O_DIRECTORY | O_CLOEXEC);
    assert_true(dir >= 0);
    for (size_t i = 0; i < OQ_COUNT(resolved); i++) {
        errno = 0;
        const int fd = (int)resolver(dir, resolved[i].location);
        if (resolved[i].error != 0) {
            if (fd >= 0 || errno != resolved[i].error)
                fail_msg("'%s': %d, errno %d", resolved[i].location, fd, errno);
            continue;
        }
        if (fd < 0)
            fail_msg("'%s': errno %d", resolved[i].location, errno);
        struct stat st;
        char first = '/';
        assert_int_equal(fstat(fd, &st), 0);
        if (!S_ISDIR(st.st_mode))
            assert_int_equal(read(fd, &first, 1), 1);
        if (first != resolved[i].first)
            fail_msg("'%s' gives the wrong file", resolved[i].location);
        close(fd);
    }
    close(dir);
}

static void kernel_resolver(void **state) {
    check_resolver(*state, oq_os_open_beneath);
}

static void walking_resolver(void **state) {
    check_resolver(*state, oq_os_open_beneath_walk);
}

/* A kernel, or a container, that does not know openat2, or that never gets it done. */
static void kernel_without_resolver(void **state) {
    static const int answers[] = {ENOSYS, EPERM, EAGAIN, EINTR};
    for (size_t i = 0; i < OQ_COUNT(answers); i++) {
        flaky_io_no_openat2(answers[i]);
        check_resolver(*state, oq_os_open_beneath);
        flaky_io_no_openat2(0);
    }
}

/* No descriptor stays open, however the walk ends; and deep or long locations end it. */
static void walk_ends(void **state) {
    scratch *s = *state;
    const int dir = open(scratch_path(s, "model"), O_PATH | O_DIRECTORY | O_CLOEXEC);
    const int before = dup(dir);
    close(before);
    static char deep[5000];
    size_t n = 0;
    while (n < 3900) {
        memcpy(deep + n, "sub/../", 7);
        n += 7;
    }
    memcpy(deep + n, "w.bin", 6);
    const int fd = (int)oq_os_open_beneath_walk(dir, deep);
    assert_true(fd >= 0);
    close(fd);
    memset(deep, 'x', 4800);
    assert_true(oq_os_open_beneath_walk(dir, deep) < 0);
    deep[300] = '\0';
    assert_true(oq_os_open_beneath_walk(dir, deep) < 0);
    assert_int_equal(errno, ENAMETOOLONG);
    /* Folders in folders, past what is kept open; links that grow past a path. */
    int at = dup(dir);
    for (int i = 0; i < 80; i++) {
        assert_int_equal(mkdirat(at, "d", 0755), 0);
        const int in = openat(at, "d", O_PATH | O_DIRECTORY | O_CLOEXEC);
        close(at);
        at = in;
        memcpy(deep + 2 * i, "d/", 3);
    }
    close(at);
    assert_true(oq_os_open_beneath_walk(dir, deep) < 0);
    assert_int_equal(errno, ENAMETOOLONG);
    memset(deep, '/', 4000);
    memcpy(deep, "sub", 3);
    memcpy(deep + 3997, "up", 3);
    assert_int_equal(symlinkat(deep, dir, "long"), 0);
    memcpy(deep, "long/", 5);
    memset(deep + 5, 'x', 200);
    deep[205] = '\0';
    assert_true(oq_os_open_beneath_walk(dir, deep) < 0);
    assert_int_equal(errno, ENAMETOOLONG);
    check_resolver(s, oq_os_open_beneath_walk);
    const int after = dup(dir);
    assert_int_equal(after, before);
    close(after);
    close(dir);
}

static void data_of_a_model(void **state) {
    scratch *s = *state;
    oq_dir d;
    onq_error err = ONQ_ERROR_INIT;
    assert_ok(oq_dir_open_parent(&d, oq_alloc_default(), scratch_path(s, "model/m.onnx"), &err),
              err);
    oq_file f;
    assert_ok(oq_dir_file(&d, NULL, OQ_S("sub/w.bin"), &f, &err), err);
    assert_memory_equal(f.p, "below", 5);
    assert_string_equal(f.path, scratch_path(s, "model/sub/w.bin"));
    oq_file_close(&f);
    assert_ok(oq_dir_file(&d, NULL, OQ_S(".h"), &f, &err), err);
    oq_file_close(&f);
    const struct {
        oq_str location;
        onq_code code;
        const char *says;
    } cases[] = {
        {OQ_S(""), ONQ_E_PATH, "empty location"},
        {{NULL, 0}, ONQ_E_PATH, "empty location"},
        {{"w.bin\0x", 7}, ONQ_E_PATH, "NUL byte"},
        {OQ_S("/etc/passwd"), ONQ_E_PATH, "absolute"},
        {OQ_S("../outside/secret"), ONQ_E_PATH, "'..'"},
        {OQ_S("sub/../../outside/secret"), ONQ_E_PATH, "'..'"},
        {OQ_S("sub/./.././../outside/secret"), ONQ_E_PATH, "'..'"},
        {OQ_S("out"), ONQ_E_PATH, "link that leads out"},
        {OQ_S("out_dir/secret"), ONQ_E_PATH, "--data-root"},
        {OQ_S("cached"), ONQ_E_PATH, "--data-root"},
        {OQ_S("abs"), ONQ_E_PATH, "link that leads out"},
        {OQ_S("loop"), ONQ_E_PATH, "circle"},
        {OQ_S("hard"), ONQ_E_PATH, "hard link"},
        {OQ_S("fifo"), ONQ_E_PATH, "not a regular file"},
        {OQ_S("sub"), ONQ_E_PATH, "not a regular file"},
        {OQ_S("."), ONQ_E_PATH, "not a regular file"},
        {OQ_S("missing"), ONQ_E_MISSING, "No such file"},
        {OQ_S("m\x1bissing"), ONQ_E_MISSING, "m\\x1bissing"},
    };
    for (size_t i = 0; i < OQ_COUNT(cases); i++) {
        assert_fails(oq_dir_file(&d, NULL, cases[i].location, &f, &err), cases[i].code, err,
                     cases[i].says);
        assert_non_null(strstr(err.text, "external data '"));
        assert_null(f.p);
    }
    static char longest[9000];
    memset(longest, 'x', sizeof longest);
    assert_fails(oq_dir_file(&d, NULL, (oq_str){longest, sizeof longest}, &f, &err), ONQ_E_PATH,
                 err, "longer than a path");
    assert_fails(oq_dir_file(&d, NULL, (oq_str){longest, 4095}, &f, &err), ONQ_E_OPEN, err,
                 "too long");
    oq_dir_close(&d);
    oq_dir_close(&d);
}

/* A device may be linked to from the folder of an allowed root only by name; still refused. */
static void data_root(void **state) {
    scratch *s = *state;
    oq_dir d, cache, model;
    oq_file f;
    onq_error err = ONQ_ERROR_INIT;
    const onq_allocator *a = oq_alloc_default();
    scratch_link(s, "cache/dev", "/dev/zero");
    scratch_link(s, "cache/leave", "../outside/secret");
    scratch_link(s, "model/leave", "../cache/leave");
    scratch_link(s, "model/cached_hard", "../cache/hard");
    scratch_link(s, "model/cached_dir", "../cache");
    scratch_link(s, "model/cached_nothing", "../cache/nothing");
    /* A folder whose name begins like the root's is another folder. */
    scratch_dir(s, "cache2");
    scratch_file(s, "cache2/blob", "no", 2);
    scratch_link(s, "model/cache2", "../cache2/blob");
    assert_ok(oq_dir_open(&d, a, scratch_path(s, "model"), &err), err);
    assert_ok(oq_dir_open(&cache, a, scratch_path(s, "model/cached_dir"), &err), err);
    assert_ok(oq_dir_open(&model, a, scratch_path(s, "model"), &err), err);

    /* "cached" leads to a file that has a second name, both in the root. */
    assert_ok(oq_dir_file(&d, &cache, OQ_S("cached"), &f, &err), err);
    assert_memory_equal(f.p, "blob", 4);
    oq_file_close(&f);
    assert_ok(oq_dir_file(&d, &cache, OQ_S("cached_hard"), &f, &err), err);
    oq_file_close(&f);
    assert_ok(oq_dir_file(&d, &cache, OQ_S("w.bin"), &f, &err), err);
    oq_file_close(&f);
    assert_ok(oq_dir_file(&d, &model, OQ_S("hard"), &f, &err), err);
    oq_file_close(&f);

    static const char *const refused[] = {
        "leave", "out", "cached_dir/dev", "cache2", "hard", "../cache/blob", "abs"};
    for (size_t i = 0; i < OQ_COUNT(refused); i++)
        if (oq_dir_file(&d, &cache, oq_str_of(refused[i]), &f, &err) != ONQ_E_PATH)
            fail_msg("'%s' is not refused", refused[i]);
    assert_fails(oq_dir_file(&d, &cache, OQ_S("cached_nothing"), &f, &err), ONQ_E_MISSING, err,
                 "external data 'cached_nothing' in folder");
    /* The whole disk as a root: all is allowed but what is no regular file. */
    oq_dir all;
    assert_ok(oq_dir_open(&all, a, "/", &err), err);
    assert_ok(oq_dir_file(&d, &all, OQ_S("out"), &f, &err), err);
    oq_file_close(&f);
    assert_fails(oq_dir_file(&d, &all, OQ_S("cached_dir/dev"), &f, &err), ONQ_E_PATH, err,
                 "regular");
    oq_dir_close(&all);
    /* No root in a zeroed struct. */
    const oq_dir none = {.handle = OQ_NO_HANDLE};
    assert_int_equal(oq_dir_file(&d, &none, OQ_S("out"), &f, &err), ONQ_E_PATH);
    oq_dir_close(&d);
    oq_dir_close(&cache);
    oq_dir_close(&model);
}

static void folders(void **state) {
    scratch *s = *state;
    oq_dir d;
    onq_error err = ONQ_ERROR_INIT;
    const onq_allocator *a = oq_alloc_default();
    assert_ok(oq_dir_open_parent(&d, a, "m.onnx", &err), err);
    assert_string_equal(d.path, ".");
    oq_dir_close(&d);
    assert_ok(oq_dir_open_parent(&d, a, "/m.onnx", &err), err);
    assert_string_equal(d.path, "/");
    oq_dir_close(&d);
    assert_fails(oq_dir_open(&d, a, scratch_path(s, "nope"), &err), ONQ_E_MISSING, err, "nope");
    assert_fails(oq_dir_open(&d, a, scratch_path(s, "model/w.bin"), &err), ONQ_E_OPEN, err,
                 "Not a directory");
    oq_dir_close(&d);
    const char *file = scratch_path(s, "model/w.bin");
    assert_true(oq_file_is_same(file, scratch_path(s, "model/sub/up")));
    assert_false(oq_file_is_same(file, scratch_path(s, "model/sub/w.bin")));
    assert_false(oq_file_is_same(file, "/proc/version")); /* of another file system */
}

static onq_code open_data(const onq_allocator *a, void *ctx, onq_error *err) {
    oq_dir d, root;
    oq_file f;
    OQ_TRY(oq_dir_open(&d, a, scratch_path(ctx, "model"), err));
    onq_code rc = oq_dir_open(&root, a, scratch_path(ctx, "cache"), err);
    if (rc == ONQ_OK)
        rc = oq_dir_file(&d, &root, OQ_S("cached"), &f, err);
    if (rc == ONQ_OK)
        oq_file_close(&f);
    oq_dir_close(&root);
    oq_dir_close(&d);
    return rc;
}

static void sweep(void **state) {
    assert_int_equal(flaky_sweep(open_data, *state), 3);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(kernel_resolver, setup, teardown),
        cmocka_unit_test_setup_teardown(walking_resolver, setup, teardown),
        cmocka_unit_test_setup_teardown(kernel_without_resolver, setup, teardown),
        cmocka_unit_test_setup_teardown(walk_ends, setup, teardown),
        cmocka_unit_test_setup_teardown(data_of_a_model, setup, teardown),
        cmocka_unit_test_setup_teardown(data_root, setup, teardown),
        cmocka_unit_test_setup_teardown(folders, setup, teardown),
        cmocka_unit_test_setup_teardown(sweep, setup, teardown),
    };
    return cmocka_run_group_tests_name("file_dir", tests, NULL, NULL);
}
