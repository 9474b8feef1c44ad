/*
 * bench_core.c — the model core's budgets: what opening, inspecting and saving cost.
 *
 * Makes a model of 1.9 GiB with its weights inline and one of 3 GiB with external data (in
 * build/bench, removed afterwards), runs each job in a child of its own, and prints wall time, CPU
 * time and peak memory beside `cp` of the same file and beside the same work through protobuf-c
 * (bench/protobuf_c.sh builds that one). Exits with 1 when a budget is broken.
 */
#include "onnx/edit.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define TENSOR_BYTES ((uint64_t)64 << 20)
#define ROUNDS       5

typedef struct cost {
    double wall, cpu;
    long peak_kib;
    bool ok;
} cost;

static double seconds(struct timeval t) {
    return (double)t.tv_sec + 1e-6 * (double)t.tv_usec;
}

static void die(const char *what, const onq_error *err) {
    fprintf(stderr, "bench_core: %s: %s\n", what, err != NULL ? err->text : strerror(errno));
    exit(1);
}

/* ---- jobs: run in a child ---- */

static onq_code fill(const oq_producer *self, uint8_t *out, onq_error *err) {
    uint64_t x = (uint64_t)(uintptr_t)self->ctx * 0x9e3779b97f4a7c15u + 1;
    (void)err;
    for (uint64_t i = 0; i < self->size; i += 8) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        const uint64_t v = (x & 0x007fffff007fffffu) | 0x3f0000003f000000u;
        memcpy(out + i, &v, 8);
    }
    return ONQ_OK;
}

static void make_model(const char *path, unsigned n, bool external) {
    onq_error err = ONQ_ERROR_INIT;
    onq_env *env = onq_env_new(NULL);
    oq_model *m = NULL;
    if (oq_model_new(env, 8, 17, &m, &err) != ONQ_OK)
        die(path, &err);
    oq_arena *a = &m->arena;
    oq_producer *p = OQ_NEW_ARRAY(a, oq_producer, n);
    oq_str last = OQ_S("x");
    const int64_t dims[2] = {4096, 4096}, row[2] = {-1, 4096};
    oq_graph *g = m->proto->graph;
    OQ_PUSH(a, &g->input, oq_value_info_new(a, last, OQ_FLOAT, row, 2, true));
    for (unsigned i = 0; i < n; i++) {
        oq_tensor *t = oq_tensor_new(a, oq_str_format(a, "w%u", i), OQ_FLOAT, dims, 2);
        p[i] = (oq_producer){.size = TENSOR_BYTES, .make = fill, .ctx = (void *)(uintptr_t)i};
        oq_tensor_set_producer(t, &p[i]);
        oq_graph_add_init(a, g, t);
        const oq_str in[2] = {last, t->name}, out = oq_str_format(a, "y%u", i);
        oq_graph_add_node(a, g,
                          oq_node_make(a, "MatMul", oq_str_format(a, "n%u", i), in, 2, &out, 1));
        last = out;
    }
    OQ_PUSH(a, &g->output, oq_value_info_new(a, last, OQ_FLOAT, row, 2, true));
    const oq_save_options o = {.external = external ? OQ_EXTERNAL_ONE : OQ_EXTERNAL_KEEP,
                               .threshold = 1024};
    if (oq_model_save(m, path, &o, &err) != ONQ_OK)
        die(path, &err);
    oq_model_free(m);
    onq_env_free(env);
}

static void make_inline(char **arg) {
    make_model(arg[0], 30, false);
}

static void make_external(char **arg) {
    make_model(arg[0], 48, true);
}

/* Open and save, untouched or with one name changed (so that it is encoded anew). */
static void copy_model(const char *from, const char *to, bool touch) {
    onq_error err = ONQ_ERROR_INIT;
    onq_env *env = onq_env_new(NULL);
    oq_model *m = NULL;
    if (oq_model_open(env, from, NULL, &m, &err) != ONQ_OK)
        die(from, &err);
    if (touch) {
        oq_model_touch(m);
        m->proto->graph->name = OQ_S("touched");
    }
    if (oq_model_save(m, to, NULL, &err) != ONQ_OK)
        die(to, &err);
    oq_model_free(m);
    onq_env_free(env);
}

static void copy_untouched(char **arg) {
    copy_model(arg[0], arg[1], false);
}

static void copy_touched(char **arg) {
    copy_model(arg[0], arg[1], true);
}

static void exec_args(char **arg) {
    const int null = open("/dev/null", O_WRONLY);
    dup2(null, 1);
    execvp(arg[0], arg);
    die(arg[0], NULL);
}

static cost run(void (*job)(char **), char **arg) {
    cost c = {0};
    struct rusage u;
    int status = 0;
    const double t = oq_seconds();
    fflush(stdout);
    const pid_t pid = fork();
    if (pid < 0)
        die("fork", NULL);
    if (pid == 0) {
        job(arg);
        _exit(0);
    }
    if (wait4(pid, &status, 0, &u) != pid)
        die("wait4", NULL);
    c.wall = oq_seconds() - t;
    c.cpu = seconds(u.ru_utime) + seconds(u.ru_stime);
    c.peak_kib = u.ru_maxrss;
    c.ok = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    return c;
}

static int by_wall(const void *a, const void *b) {
    const double x = ((const cost *)a)->wall, y = ((const cost *)b)->wall;
    return (x > y) - (x < y);
}

typedef struct job {
    const char *what;
    void (*fn)(char **);
    char **arg;
    const char *target; /* removed before each run, so that all write a new file */
    cost rounds[ROUNDS], median;
} job;

/* Runs the jobs in turn, so that each sees the same machine, and takes the median of each. What
 * earlier runs left for the disk is written out first. */
static void run_jobs(job *jobs, size_t n) {
    for (int r = 0; r < ROUNDS; r++) {
        for (size_t i = 0; i < n; i++) {
            if (jobs[i].target != NULL) {
                unlink(jobs[i].target);
                sync();
            }
            jobs[i].rounds[r] = run(jobs[i].fn, jobs[i].arg);
        }
    }
    for (size_t i = 0; i < n; i++) {
        bool ok = true;
        for (int r = 0; r < ROUNDS; r++)
            ok = ok && jobs[i].rounds[r].ok;
        qsort(jobs[i].rounds, ROUNDS, sizeof(cost), by_wall);
        jobs[i].median = jobs[i].rounds[ROUNDS / 2];
        jobs[i].median.ok = ok;
    }
}

static void print(const char *what, cost c) {
    if (c.ok)
        printf("  %-44s %8.3f s wall %8.3f s CPU %8.1f MiB peak\n", what, c.wall, c.cpu,
               (double)c.peak_kib / 1024);
    else
        printf("  %-44s failed\n", what);
}

static int broken;

/* A line for bench/report.py, as measure.py writes it. The noise is not measured here. */
static void put_row(const char *what, double value, double most, const char *unit, bool ok) {
    const char *path = getenv("ONQ_BENCH_ROWS");
    FILE *f = path != NULL ? fopen(path, "a") : NULL;
    if (f == NULL)
        return;
    fprintf(f,
            "{\"kind\": \"row\", \"bench\": \"bench_core\", \"what\": \"%s\", \"value\": %.6g, "
            "\"budget\": %.6g, \"unit\": \"%s\", \"verdict\": \"%s\", \"noise\": 0}\n",
            what, value, most, unit, ok ? "met" : "not met");
    fclose(f);
}

static void budget(const char *what, double value, double most, const char *unit) {
    const bool ok = value <= most;
    put_row(what, value, most, unit, ok);
    printf("  %s %-42s %8.3f %s, budget %.3f\n", ok ? "ok    " : "BROKEN", what, value, unit, most);
    broken += !ok;
}

static void inspect_budgets(char *onq, char *model, const char *what) {
    char *arg[] = {onq, (char[]){"inspect"}, model, NULL};
    job j = {.what = what, .fn = exec_args, .arg = arg};
    run_jobs(&j, 1);
    print(what, j.median);
    budget("peak memory", j.median.ok ? (double)j.median.peak_kib / 1024 : 1e9, 32, "MiB");
    budget("time, warm", j.median.ok ? j.median.wall : 1e9, 0.1, "s");
}

static void copy_budgets(char *in, char *out, char *pbc) {
    char *files[] = {in, out, NULL}, *pbc_arg[] = {pbc, in, out, NULL};
    char *cp_arg[] = {(char[]){"cp"}, in, out, NULL};
    char *build[] = {(char[]){"sh"}, (char[]){"bench/protobuf_c.sh"}, pbc, NULL};
    const bool has_pbc = run(exec_args, build).ok;
    job jobs[] = {
        {.what = "cp", .fn = exec_args, .arg = cp_arg, .target = out},
        {.what = "open and save, untouched", .fn = copy_untouched, .arg = files, .target = out},
        {.what = "open, rename, save: encoded anew",
         .fn = copy_touched,
         .arg = files,
         .target = out},
        {.what = "the same through protobuf-c", .fn = exec_args, .arg = pbc_arg, .target = out},
    };
    run_jobs(jobs, has_pbc ? 4 : 3);
    for (size_t i = 0; i < (has_pbc ? 4 : 3); i++)
        print(jobs[i].what, jobs[i].median);
    if (!has_pbc)
        printf("  protobuf-c: not built here (bench/protobuf_c.sh)\n");
    budget("untouched / cp", jobs[1].median.wall / jobs[0].median.wall, 1.3, "x");
    budget("untouched, peak memory", (double)jobs[1].median.peak_kib / 1024, 32, "MiB");
}

int main(void) {
    const char *build = getenv("ONQ_BUILD") != NULL ? getenv("ONQ_BUILD") : "build";
    char onq[512], in[512], ext[512], data[512], out[512], pbc[512];
    snprintf(onq, sizeof onq, "%s/onq", build);
    snprintf(in, sizeof in, "%s/bench/core_inline.onnx", build);
    snprintf(ext, sizeof ext, "%s/bench/core_external.onnx", build);
    snprintf(data, sizeof data, "%s/bench/core_external.onnx.data", build);
    snprintf(out, sizeof out, "%s/bench/core_out.onnx", build);
    snprintf(pbc, sizeof pbc, "%s/bench/protobuf_c", build);

    printf(
        "a model of 30 MatMuls of 4096 x 4096, 1.9 GiB inline; the same with 48, 3 GiB external\n");
    print("make it, weights from producers", run(make_inline, (char *[]){in, NULL}));
    print("make the external one", run(make_external, (char *[]){ext, NULL}));
    copy_budgets(in, out, pbc);
    inspect_budgets(onq, in, "onq inspect, 1.9 GiB inline");
    inspect_budgets(onq, ext, "onq inspect, 3 GiB external");
    const char *made[] = {in, ext, data, out};
    for (size_t i = 0; i < OQ_COUNT(made); i++)
        unlink(made[i]);
    return broken != 0;
}
