/*
 * fuzz_stream.c — samples as `--data -`, `exec:` and .tar files bring them: a tar archive of .npy
 * and .npz files, or arrays one after another. Every sample that is given has the bytes it claims,
 * and a refusal says why.
 *
 * The first byte chooses how many inputs the model has, one or two.
 */
#include "onnx/edit.h"
#include "samples/tape.h"

#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fuzz.h"
#include "message_walk.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static volatile uint32_t sink; /* keeps the reads */

static oq_model *make_model(onq_env *env, unsigned n_inputs) {
    static const uint8_t bare[] = "\x08\x08\x3a\x03\x12\x01g\x42\x02\x10\x11"; /* IR 8, opset 17 */
    static const int64_t dims[] = {-1, 3};
    onq_error err = ONQ_ERROR_INIT;
    oq_model *m = NULL;
    MUST(oq_model_open_memory(env, bare, sizeof bare - 1, NULL, &m, &err) == ONQ_OK);
    oq_model_touch(m);
    for (unsigned i = 0; i < n_inputs; i++) {
        oq_value_info *v = oq_value_info_new(&m->arena, i == 0 ? OQ_S("x") : OQ_S("y"),
                                             i == 0 ? OQ_FLOAT : OQ_INT64, dims, 2, true);
        MUST(v != NULL && OQ_PUSH(&m->arena, &m->proto->graph->input, v));
    }
    return m;
}

static void use(const oq_named_list *sample) {
    uint32_t h = 1;
    for (size_t i = 0; i < sample->all.n; i++) {
        const oq_datum *d = &sample->all.v[i].datum;
        uint64_t count = 1;
        for (size_t k = 0; k < d->rank; k++)
            count *= (uint64_t)d->dims[k];
        MUST(d->kind == OQ_DATUM_TENSOR && d->count == count);
        if (d->data != NULL)
            h = walk_bytes(h, d->data, d->size_bytes);
    }
    sink = h;
}

static void read_all(onq_env *env, const oq_model *m, const char *path) {
    onq_error err = ONQ_ERROR_INIT;
    oq_feed *feed = NULL;
    if (oq_feed_open_stream(env, path, m, NULL, &feed, &err) != ONQ_OK) {
        MUST(err.text[0] != '\0');
        return;
    }
    bool more = true;
    for (uint64_t k = 0; more && k < 100; k++) {
        oq_arena a;
        oq_named_list sample = {0};
        oq_arena_init(&a, &env->alloc);
        const onq_code rc = feed->next(feed, k, &a, &sample, &more, &err);
        if (rc == ONQ_OK && more)
            use(&sample);
        MUST_EXPLAIN(rc, err);
        more = more && rc == ONQ_OK;
        oq_arena_release(&a);
        if (k == 1 && more && feed->rewind != NULL)
            MUST(feed->rewind(feed, &err) == ONQ_OK);
    }
    feed->close(feed);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 1)
        return 0;
    /* A name that ends in .tar for a file that has none: a link in memory. */
    static char path[64];
    if (path[0] == '\0')
        snprintf(path, sizeof path, "%s/onq-fuzz-%d.tar", fuzz_top(), (int)getpid());
    const int fd = memfd_create("stream", MFD_CLOEXEC);
    char link[64];
    MUST(fd >= 0 && write(fd, data + 1, size - 1) == (ssize_t)(size - 1));
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    (void)unlink(path);
    MUST(symlink(link, path) == 0);
    onq_env *env = onq_env_new(NULL);
    oq_model *m = make_model(env, 1 + data[0] % 2);
    read_all(env, m, path);
    oq_model_free(m);
    onq_env_free(env);
    (void)unlink(path);
    close(fd);
    return 0;
}
