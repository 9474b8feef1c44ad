/*
 * fuzz_isolate.c — a caller of --isolate whose worker says whatever it likes: the job fails for a
 * reason, or its result is as the caller asked for it, and a terminal can show it.
 *
 * The first byte of the input chooses what the caller has: a reader, a function for external data,
 * an output in memory. Then come frames: a byte for the kind, two for the length, and the body.
 */
#include "api/isolate/isolate_parts.h"

#include <sys/socket.h>
#include <unistd.h>

#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { HAS_READER = 1, HAS_DATA = 2, WANTS_BYTES = 4 };

/* ---- the caller ---- */

static int next(void *ctx, const onq_tensor **inputs, size_t *n) {
    static const float values[2] = {1, 2};
    static const int64_t dims[1] = {2};
    static const onq_tensor x = {
        .name = "x", .dtype = OQ_FLOAT, .rank = 1, .dims = dims, .data = values};
    unsigned *given = ctx;
    *inputs = &x;
    *n = 1;
    return ++*given % 4 != 0;
}

static int again(void *ctx) {
    *(unsigned *)ctx = 0;
    return 0;
}

static int open_data(void *ctx, const char *location, const void **data, size_t *size) {
    (void)ctx;
    *data = "data";
    *size = 4;
    return location[0] == 'd' ? 0 : -1;
}

static onq_options *make_options(onq_env *env, uint8_t bits, unsigned *given) {
    onq_options *o = NULL;
    onq_error err = ONQ_ERROR_INIT;
    const onq_bytes model = {
        .label = "net", .data = "model", .size = 5, .open = bits & HAS_DATA ? open_data : NULL};
    const onq_reader reader = {.next = next, .rewind = again, .ctx = given};
    MUST(onq_options_new(env, "static", &o, &err) == ONQ_OK);
    MUST(onq_options_set_bytes(o, "input", &model, &err) == ONQ_OK);
    if (bits & WANTS_BYTES)
        MUST(onq_options_want_bytes(o, "output", "made", &err) == ONQ_OK);
    if (bits & HAS_READER)
        MUST(onq_options_set_reader(o, &reader, &err) == ONQ_OK);
    return o;
}

/* ---- the worker ---- */

/* Makes room for what the caller says. */
static onq_code drain(void *ctx, bool to_write, onq_error *err) {
    char piece[4096];
    (void)to_write;
    return recv(*(int *)ctx, piece, sizeof piece, MSG_DONTWAIT) > 0
               ? ONQ_OK
               : oq_fail(err, ONQ_E_READ, "the worker says no more");
}

static void show(void *ctx) {
    (void)ctx;
}

static void add_frames(oq_buf *out, const uint8_t *p, size_t n) {
    oq_iso_put(out, OQ_ISO_HELLO);
    oq_iso_put(out, 8 + strlen(onq_version()));
    oq_iso_put_text(out, oq_str_of(onq_version()));
    while (n >= 3) {
        const size_t length = (size_t)p[1] | ((size_t)p[2] << 8);
        const size_t there = length < n - 3 ? length : n - 3;
        oq_iso_put(out, p[0]);
        oq_iso_put(out, length);
        oq_buf_add(out, p + 3, there);
        p += 3 + there;
        n -= 3 + there;
    }
}

/* ---- the property ---- */

static bool is_calm(const oq_buf *b) {
    for (size_t i = 0; i < b->n; i++)
        if ((unsigned char)b->p[i] < ' ' && b->p[i] != '\n')
            return false;
    return true;
}

static void hear(onq_env *env, const onq_options *o, uint8_t bits, const oq_buf *said) {
    onq_error err = ONQ_ERROR_INIT;
    oq_job job = {.env = env, .opts = o};
    int ends[2];
    oq_arena_init(&job.arena, &env->alloc);
    oq_buf_init(&job.text, &env->alloc);
    oq_buf_init(&job.json_text, &env->alloc);
    oq_files_init(&job.files, &env->alloc);
    MUST(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) == 0);
    oq_iso_talk talk = {.job = &job,
                        .memory = 8u << 20,
                        .show = show,
                        .end = {ends[1], true, drain, NULL, &ends[0]}};
    (void)!write(ends[0], said->p, said->n); /* as much as the socket takes */
    MUST(shutdown(ends[0], SHUT_WR) == 0);
    const onq_code rc = oq_iso_talk_run(&talk, &err);
    MUST_EXPLAIN(rc, err);
    MUST(rc != ONQ_OK || (is_calm(&job.text) && is_calm(&job.json_text)));
    MUST(job.files.all.n == 0 || bits & WANTS_BYTES);
    close(ends[0]);
    close(ends[1]);
    onq_ranges_free(job.ranges);
    oq_files_release(&job.files);
    oq_buf_release(&job.text);
    oq_buf_release(&job.json_text);
    oq_arena_release(&job.arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    unsigned given = 0;
    oq_buf said;
    if (size < 1)
        return 0;
    onq_env *env = onq_env_new(NULL);
    onq_options *o = make_options(env, data[0], &given);
    oq_buf_init(&said, &env->alloc);
    add_frames(&said, data + 1, size - 1);
    if (!said.failed)
        hear(env, o, data[0], &said);
    oq_buf_release(&said);
    onq_options_free(o);
    onq_env_free(env);
    return 0;
}
