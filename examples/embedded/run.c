/*
 * run.c MODEL OUTPUT [LIMIT] — onq inside a program that is short of memory and has no files to spare.
 *
 * Models are bytes; memory comes from an allocator that counts, and that has a limit (in bytes); one
 * thread works; messages and progress go where the program wants them, and a job can be stopped. The
 * weights are quantized dynamically, so that no runtime is needed. The program itself reads and writes
 * the files, as it would read its flash. To build: cc run.c $(pkg-config --cflags --libs onq) -pthread
 */
#include "../common.h"

#include <pthread.h>

/* ---- memory: so much and no more ---- */

struct budget {
    pthread_mutex_t lock; /* onq may have threads of its own */
    size_t used, peak, limit;
};

static void *resize(void *ctx, void *old, size_t old_size, size_t new_size) {
    struct budget *b = ctx;
    void *p = NULL;
    pthread_mutex_lock(&b->lock);
    if (new_size == 0) {
        free(old);
        b->used -= old_size;
    } else if (new_size <= old_size || new_size - old_size <= b->limit - b->used) {
        p = realloc(old, new_size);
        if (p != NULL)
            b->used += new_size - old_size;
        if (b->used > b->peak)
            b->peak = b->used;
    }
    pthread_mutex_unlock(&b->lock);
    return p; /* NULL: the job fails with ONQ_E_NOMEM and leaves nothing behind */
}

/* ---- messages and progress ---- */

static void say(void *ctx, onq_log_level level, const char *text) {
    (void)ctx;
    fprintf(stderr, "[%d] %s\n", (int)level, text);
}

static int go_on(void *ctx, const char *what, uint64_t done, uint64_t total) {
    (void)what;
    (void)total;
    *(uint64_t *)ctx = done;
    return 0; /* anything else stops the job */
}

/* ---- the job ---- */

int main(int argc, char **argv) {
    struct budget budget = {.lock = PTHREAD_MUTEX_INITIALIZER, .limit = 16 << 20};
    onq_result *result = NULL;
    uint64_t steps = 0;
    int status = 1;
    if (argc < 3) {
        fprintf(stderr, "usage: run MODEL OUTPUT [LIMIT]\n");
        return 1;
    }
    if (argc > 3)
        budget.limit = (size_t)strtoull(argv[3], NULL, 10);
    onq_bytes model = {.label = argv[1]};
    void *bytes = read_file(argv[1], &model.size);
    model.data = bytes;
    const onq_allocator memory = {.resize = resize, .ctx = &budget};
    onq_env *env = onq_env_new(&memory);
    if (env == NULL) {
        fprintf(stderr, "%zu bytes are too little memory\n", budget.limit);
    } else if (bytes != NULL) {
        onq_env_set_log(env, say, NULL);
        onq_env_set_progress(env, go_on, &steps);
        onq_env_set_threads(env, 1);
        const char *const options[] = {"verify", "false", NULL}; /* that would take a runtime */
        result = job_in_memory(env, "dynamic", &model, options);
        if (result != NULL) {
            const onq_file *file = onq_result_file(result, 0);
            printf("%zu bytes -> %zu, with at most %zu bytes of memory\n", model.size, file->size,
                   budget.peak);
            status = write_file(argv[2], file) ? 0 : 1;
        }
    }
    onq_result_free(result);
    onq_env_free(env);
    free(bytes);
    if (budget.used != 0) {
        fprintf(stderr, "%zu bytes were not given back\n", budget.used);
        status = 1;
    }
    return status;
}
