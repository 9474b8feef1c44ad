/*
 * run.c MODEL DATA OUT [SHARDS] — one calibration by several processes, each with a share of the
 * samples, merged at the end: the ranges are those of one process, to the last bit. Here they are
 * forked; on a cluster they are jobs of its scheduler, which need nothing from each other.
 */
#include "../common.h"

#include <sys/wait.h>
#include <unistd.h>

static void part_path(char *path, size_t size, const char *out, int number) {
    snprintf(path, size, "%s/part.%d", out, number);
}

/* One share, in a process of its own: no environment of the library is open while it forks. */
static int calibrate(char **argv, int number, int shards) {
    char share[32], part[4096];
    snprintf(share, sizeof share, "%d/%d", number, shards);
    part_path(part, sizeof part, argv[3], number);
    const char *const pairs[] = {"input", argv[1],  "data", argv[2], "shard",
                                 share,   "output", part,   NULL};
    onq_env *env = onq_env_new(NULL);
    const int done = env != NULL && job(env, "calibrate", pairs);
    onq_env_free(env);
    return done;
}

static int merge(const char *out, int shards) {
    char path[4096];
    onq_error err = ONQ_ERROR_INIT;
    onq_result *result = NULL;
    onq_env *env = onq_env_new(NULL);
    snprintf(path, sizeof path, "%s/ranges.json", out);
    const char *const pairs[] = {"output", path, NULL};
    onq_options *opts = env != NULL ? options(env, "calibrate", pairs) : NULL;
    int done = opts != NULL;
    for (int i = 1; i <= shards && done; i++) {
        part_path(path, sizeof path, out, i);
        done = onq_options_add(opts, "merge", path, &err) == ONQ_OK;
    }
    if (opts != NULL && !done)
        fprintf(stderr, "%s\n", err.text);
    done = done && finish(env, opts, &result);
    onq_result_free(result);
    onq_options_free(opts);
    onq_env_free(env);
    return done;
}

int main(int argc, char **argv) {
    const int shards = argc > 4 ? atoi(argv[4]) : 4;
    int failed = 0, status = 0;
    if (argc < 4 || shards < 1) {
        fprintf(stderr, "usage: run MODEL DATA OUT [SHARDS]\n");
        return 1;
    }
    for (int i = 1; i <= shards; i++) {
        const pid_t child = fork();
        if (child == 0) {
            const int done = calibrate(argv, i, shards);
            fflush(NULL);
            _exit(done ? 0 : 1);
        }
        failed |= child < 0;
    }
    while (wait(&status) > 0)
        failed |= !WIFEXITED(status) || WEXITSTATUS(status) != 0;
    return !failed && merge(argv[3], shards) ? 0 : 1;
}
