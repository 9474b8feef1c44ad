/*
 * fuzz_location.c — locations of external data: the walk in user space does what the kernel does,
 * and neither opens what lies outside of the folder.
 *
 * Each byte of the input is a piece of a path (most random text would only be missing files). The
 * folder is made once and holds links in, up, out, absolute, in circles and through each other.
 */
#include "base/os/os_posix.h"
#include "base/system/file.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const pieces[] = {
    "/",     "/",  "..",  "../",  ".",   "./",   "//",   "w",      "sub",   "sub/",    "deep",
    "deep/", "in", "in/", "up",   "up/", "out",  "out/", "abs",    "loop",  "back",    "far",
    "x",     "\n", "two", "two/", "w/",  "fifo", "hard", "secret", "model", "outside",
};

static char top[] = "/tmp/onq-fuzz-XXXXXX";
static oq_handle folder = OQ_NO_HANDLE;
static dev_t dev;
static ino_t secret;
static oq_dir model;

static void remove_all(void) {
    static const char *const files[] = {
        "model/sub/deep/w", "model/sub/deep/up", "model/sub/deep/far",
        "model/sub/w",      "model/sub/up",      "model/sub/back",
        "model/w",          "model/in",          "model/out",
        "model/abs",        "model/loop",        "model/two",
        "model/fifo",       "model/hard",        "outside/secret"};
    static const char *const folders[] = {"model/sub/deep", "model/sub", "model", "outside", "."};
    oq_dir_close(&model);
    if (chdir(top) != 0)
        return;
    for (size_t i = 0; i < OQ_COUNT(files); i++)
        unlink(files[i]);
    for (size_t i = 0; i + 1 < OQ_COUNT(folders); i++)
        rmdir(folders[i]);
    rmdir(top);
}

static void put(const char *path) {
    const int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    assert(fd >= 0);
    close(fd);
}

static void link_to(const char *path, const char *target) {
    const int failed = symlink(target, path);
    assert(failed == 0);
}

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc;
    (void)argv;
    char absolute[64], cwd[4096];
    struct stat st;
    const bool made = mkdtemp(top) != NULL && getcwd(cwd, sizeof cwd) != NULL && chdir(top) == 0 &&
                      mkdir("model", 0755) == 0 && mkdir("model/sub", 0755) == 0 &&
                      mkdir("model/sub/deep", 0755) == 0 && mkdir("outside", 0755) == 0;
    assert(made);
    atexit(remove_all);
    put("outside/secret");
    put("model/w");
    put("model/sub/w");
    put("model/sub/deep/w");
    snprintf(absolute, sizeof absolute, "%s/model/w", top);
    link_to("model/in", "sub/deep");
    link_to("model/out", "../outside");
    link_to("model/abs", absolute);
    link_to("model/loop", "sub/back/loop");
    link_to("model/two", "in/../w");
    link_to("model/sub/up", "..");
    link_to("model/sub/back", "up");
    link_to("model/sub/deep/up", "../../w");
    link_to("model/sub/deep/far", "../../../outside/secret");
    const bool more = mkfifo("model/fifo", 0644) == 0 &&
                      link("outside/secret", "model/hard") == 0 && stat("outside/secret", &st) == 0;
    assert(more);
    dev = st.st_dev;
    secret = st.st_ino;
    const onq_code rc = oq_dir_open(&model, oq_alloc_default(), "model", NULL);
    assert(rc == ONQ_OK);
    folder = model.handle;
    const bool back = chdir(cwd) == 0;
    assert(back);
    return 0;
}

/* What a resolver says: the file (0 and the error when there is none). */
static ino_t resolve(oq_handle (*resolver)(oq_handle, const char *), const char *location,
                     int *error) {
    struct stat st = {0};
    errno = 0;
    const oq_handle fd = resolver(folder, location);
    *error = fd < 0 ? errno : 0;
    if (fd < 0)
        return 0;
    const int failed = fstat((int)fd, &st);
    assert(failed == 0);
    oq_os_close(fd);
    return st.st_ino;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char location[3000];
    size_t n = 0;
    for (size_t i = 0; i < size && n + 16 < sizeof location; i++) {
        const char *piece = pieces[data[i] % OQ_COUNT(pieces)];
        memcpy(location + n, piece, strlen(piece));
        n += strlen(piece);
    }
    location[n] = '\0';
    int kernel_error, walk_error;
    const ino_t by_kernel = resolve(oq_os_open_beneath, location, &kernel_error);
    const ino_t by_walk = resolve(oq_os_open_beneath_walk, location, &walk_error);
    /* The kernel may count links twice (it begins anew when a quick walk fails), so it gives up
     * earlier. */
    const bool gave_up = kernel_error == ELOOP;
    if (!gave_up && (by_kernel != by_walk || kernel_error != walk_error)) {
        fprintf(stderr, "'%s': kernel %lu (%d), walk %lu (%d)\n", location,
                (unsigned long)by_kernel, kernel_error, (unsigned long)by_walk, walk_error);
        abort();
    }
    /* A file is opened only if it is a plain one inside; "hard" is the secret's second name. */
    oq_file f;
    onq_error err = ONQ_ERROR_INIT;
    const onq_code rc = oq_dir_file(&model, NULL, (oq_str){location, n}, &f, &err);
    assert(rc == ONQ_OK || rc == ONQ_E_PATH || rc == ONQ_E_OPEN || rc == ONQ_E_MISSING);
    assert(rc == ONQ_OK || err.text[0] != '\0');
    if (rc == ONQ_OK) {
        assert(f.info.id == by_kernel && f.info.volume == dev && f.info.id != secret);
        oq_file_close(&f);
    }
    return 0;
}
