/*
 * onq_mpi.c — the program `onq-mpi`: `onq calibrate` over the ranks of an MPI job.
 *
 *     mpirun -n 4 onq-mpi calibrate -i model.onnx -o ranges.json --method entropy
 *
 * Rank i of n is share i of n of `onq calibrate --shard`; what ranks tell each other is the bytes
 * of the parts, so the result is that of one process, to the bit. A histogram method takes two
 * rounds: ranks measure their samples, everybody gets all measures, ranks count their samples. Rank
 * 0 joins the parts and writes the output. Nothing is shared but MPI: parts lie in a temporary
 * folder of each rank's machine.
 *
 * After each round all ranks learn whether one has failed. Then rank 0 says which and why, and all
 * end with the same status; nothing was written.
 */
#include "args.h"
#include "mpi_words.h"
#include "screen.h"

#include <errno.h>
#include <limits.h>
#include <mpi.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { EXIT_DONE = 0, EXIT_FAILED = 1, EXIT_USAGE = 2 };

struct job {
    int rank, size;
    struct screen screen;
    onq_env *env;
    struct mpi_words words;
    char folder[PATH_MAX]; /* this rank's temporary files */
    onq_error err;         /* why this rank failed */
    int status;            /* of this rank so far */
};

static void path_of(const struct job *j, const char *kind, int rank, char out[PATH_MAX]) {
    const int n = snprintf(out, PATH_MAX, "%s/%s.%d", j->folder, kind, rank);
    if (n < 0 || n >= PATH_MAX)
        out[0] = '\0'; /* cannot be opened: an error */
}

static int fail(struct job *j, const char *what, const char *path) {
    j->err.code = ONQ_E_WRITE;
    snprintf(j->err.text, sizeof j->err.text, "%.700s: %s: %s", path, what, strerror(errno));
    return j->status = EXIT_FAILED;
}

/* ---- parts as files and as bytes ---- */

static char *read_file(struct job *j, const char *path, int *n) {
    FILE *f = fopen(path, "rb");
    char *p = NULL;
    long size = -1;
    if (f != NULL && fseek(f, 0, SEEK_END) == 0)
        size = ftell(f);
    if (size > INT_MAX)
        errno = EFBIG;
    if (size >= 0 && size <= INT_MAX && (p = malloc((size_t)size + 1)) != NULL) {
        rewind(f);
        if (fread(p, 1, (size_t)size, f) == (size_t)size) {
            *n = (int)size;
            fclose(f);
            return p;
        }
    }
    fail(j, "cannot be read", path);
    free(p);
    if (f != NULL)
        fclose(f);
    return NULL;
}

static void write_file(struct job *j, const char *path, const char *p, int n) {
    FILE *f = fopen(path, "wb");
    const int ok = f != NULL && fwrite(p, 1, (size_t)n, f) == (size_t)n;
    if ((f != NULL && fclose(f) != 0) || !ok)
        fail(j, "cannot be written", path);
}

static void remove_files(const struct job *j) {
    static const char *const kinds[] = {"range", "part"};
    char path[PATH_MAX];
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        for (int i = 0; i < j->size; i++) {
            path_of(j, kinds[k], i, path);
            unlink(path);
        }
    if (j->folder[0] != '\0')
        rmdir(j->folder);
}

static void make_folder(struct job *j) {
    const char *base = getenv("TMPDIR");
    const int n = snprintf(j->folder, sizeof j->folder, "%s/onq-mpi-XXXXXX",
                           base != NULL && base[0] != '\0' ? base : P_tmpdir);
    if (n < 0 || (size_t)n >= sizeof j->folder || mkdtemp(j->folder) == NULL) {
        fail(j, "a temporary folder cannot be made", j->folder);
        j->folder[0] = '\0';
    }
}

/* ---- cores ---- */

/* Ranks of one machine share its cores, each its part; one that is bound to fewer has those. */
static void share_cores(struct job *j) {
    MPI_Comm here;
    int ranks = 1;
    cpu_set_t set;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, j->rank, MPI_INFO_NULL, &here);
    MPI_Comm_size(here, &ranks);
    MPI_Comm_free(&here);
    const long cores = sysconf(_SC_NPROCESSORS_ONLN);
    const long part = cores > ranks ? cores / ranks : 1;
    const bool bound = sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) <= part;
    if (ranks > 1 && !bound)
        onq_env_set_threads(j->env, (unsigned)part);
}

/* ---- ranks agree ---- */

/* True when all ranks are well. Otherwise rank 0 tells what the first that is not has met. */
static bool all_well(struct job *j) {
    int worst = EXIT_DONE;
    MPI_Allreduce(&j->status, &worst, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    if (worst == EXIT_DONE)
        return true;
    int mine = j->status != EXIT_DONE ? j->rank : j->size, first = 0;
    MPI_Allreduce(&mine, &first, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    MPI_Bcast(j->err.text, (int)sizeof j->err.text, MPI_CHAR, first, MPI_COMM_WORLD);
    if (j->rank == 0) {
        char line[sizeof j->err.text + 64];
        snprintf(line, sizeof line, "rank %d of %d: %s", first, j->size, j->err.text);
        screen_error(&j->screen, line);
    }
    j->status = worst;
    return false;
}

/* The file `kind` of every rank, to all ranks (root < 0) or to one. */
static bool exchange(struct job *j, const char *kind, int root) {
    char path[PATH_MAX];
    int n = 0;
    path_of(j, kind, j->rank, path);
    char *own = read_file(j, path, &n), *all = NULL;
    int *counts = calloc((size_t)j->size, 2 * sizeof *counts);
    if (counts == NULL && j->status == EXIT_DONE)
        fail(j, "out of memory", kind);
    bool well = all_well(j);
    if (well) {
        int *offsets = counts + j->size;
        long long total = 0;
        MPI_Allgather(&n, 1, MPI_INT, counts, 1, MPI_INT, MPI_COMM_WORLD);
        for (int i = 0; i < j->size; i++) {
            offsets[i] = (int)total;
            total += counts[i];
        }
        const bool takes = root < 0 || j->rank == root;
        all = takes && total <= INT_MAX ? malloc((size_t)total + 1) : NULL;
        if (takes && all == NULL) {
            errno = total > INT_MAX ? EFBIG : ENOMEM;
            fail(j, "the parts of all ranks do not fit", kind);
        }
        well = all_well(j);
        if (well && root < 0)
            MPI_Allgatherv(own, n, MPI_CHAR, all, counts, offsets, MPI_CHAR, MPI_COMM_WORLD);
        else if (well)
            MPI_Gatherv(own, n, MPI_CHAR, all, counts, offsets, MPI_CHAR, root, MPI_COMM_WORLD);
        for (int i = 0; well && takes && i < j->size; i++) {
            path_of(j, kind, i, path);
            if (i != j->rank)
                write_file(j, path, all + offsets[i], counts[i]);
        }
        well = well && all_well(j);
    }
    free(own);
    free(all);
    free(counts);
    return well;
}

/* ---- one run of the library ---- */

enum round { ROUND_RANGE, ROUND_COUNT, ROUND_MERGE };

static onq_code set(struct job *j, onq_options *o, const char *name, const char *value) {
    return onq_options_set(o, name, value, &j->err);
}

/* Appends the file `kind` of every rank to a list; a comma in a list's item is written with a
 * backslash. */
static onq_code set_files(struct job *j, onq_options *o, const char *name, const char *kind) {
    onq_code rc = ONQ_OK;
    for (int i = 0; rc == ONQ_OK && i < j->size; i++) {
        char path[PATH_MAX], item[2 * PATH_MAX];
        size_t n = 0;
        path_of(j, kind, i, path);
        for (const char *p = path; *p != '\0'; p++) {
            if (*p == ',')
                item[n++] = '\\';
            item[n++] = *p;
        }
        item[n] = '\0';
        rc = set(j, o, name, item);
    }
    return rc;
}

/* The options of a round, on top of what the command line says. */
static onq_code set_round(struct job *j, onq_options *o, enum round r) {
    char text[PATH_MAX];
    onq_code rc = ONQ_OK;
    if (r == ROUND_MERGE) {
        rc = set_files(j, o, "merge", "part");
        if (rc == ONQ_OK && j->words.output != NULL)
            rc = set(j, o, "output", j->words.output);
        if (rc == ONQ_OK && j->words.table != NULL)
            rc = set(j, o, "table", j->words.table);
        return rc;
    }
    snprintf(text, sizeof text, "%d/%d", j->rank, j->size);
    rc = set(j, o, "shard", text);
    if (rc == ONQ_OK && r == ROUND_RANGE)
        rc = set(j, o, "range_pass", "true");
    if (rc == ONQ_OK && r == ROUND_COUNT && j->words.histogram)
        rc = set_files(j, o, "ranges", "range");
    if (rc == ONQ_OK && j->words.checkpoint != NULL) {
        snprintf(text, sizeof text, "%s.%d%s", j->words.checkpoint, j->rank,
                 r == ROUND_RANGE ? ".range" : "");
        rc = set(j, o, "checkpoint", text);
    }
    path_of(j, r == ROUND_RANGE ? "range" : "part", j->rank, text);
    return rc == ONQ_OK ? set(j, o, "output", text) : rc;
}

static void run_round(struct job *j, enum round r) {
    onq_options *o = NULL;
    onq_result *res = NULL;
    struct args_common common = {0};
    onq_code rc = onq_options_new(j->env, "calibrate", &o, &j->err);
    if (rc == ONQ_OK && r != ROUND_MERGE)
        rc = args_parse(o, j->words.n, j->words.v, &common, &j->err);
    if (rc == ONQ_OK)
        rc = set_round(j, o, r);
    if (rc == ONQ_OK)
        rc = onq_run(j->env, o, &res, &j->err);
    screen_wipe(&j->screen);
    if (rc != ONQ_OK)
        j->status = rc == ONQ_E_OPTION ? EXIT_USAGE : EXIT_FAILED;
    else if (r == ROUND_MERGE && j->words.json)
        fputs(onq_result_json(res), stdout);
    else if (r == ROUND_MERGE && !j->words.quiet)
        fputs(onq_result_text(res), stdout);
    onq_result_free(res);
    onq_options_free(o);
}

static void calibrate(struct job *j) {
    make_folder(j);
    if (!all_well(j))
        return;
    if (j->words.histogram) {
        run_round(j, ROUND_RANGE);
        if (!all_well(j) || !exchange(j, "range", -1))
            return;
    }
    run_round(j, ROUND_COUNT);
    if (!all_well(j) || !exchange(j, "part", 0))
        return;
    if (j->rank == 0)
        run_round(j, ROUND_MERGE);
    all_well(j);
}

/* ---- the program ---- */

static int on_progress(void *ctx, const char *what, uint64_t done, uint64_t total) {
    struct job *j = ctx;
    if (j->rank == 0)
        screen_progress(&j->screen, what, done, total);
    return 0;
}

static void on_log(void *ctx, onq_log_level level, const char *text) {
    struct job *j = ctx;
    /* What concerns the job is the same on all ranks. */
    if (j->rank == 0 || level == ONQ_LOG_ERROR)
        screen_log(&j->screen, level, text);
}

static int help(void) {
    puts("Usage: mpirun [-n N] onq-mpi calibrate OPTIONS\n"
         "\n"
         "Runs `onq calibrate` over the ranks of an MPI job, each on its share of the samples. "
         "Options and\n"
         "result are those of `onq calibrate` (see `onq calibrate --help`); --shard, --merge, "
         "--range_pass and\n"
         "--ranges are its own business here. --checkpoint FILE becomes one file for each rank.");
    return EXIT_DONE;
}

int main(int argc, char **argv) {
    struct job j = {.err = ONQ_ERROR_INIT};
    /* ONNX Runtime reads it when it is loaded; what the user has set stays. */
    setenv("ORT_DISABLE_TELEMETRY", "1", 0);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &j.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &j.size);
    screen_init(&j.screen, "onq-mpi");
    j.env = onq_env_new(NULL);
    const bool asks = argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0);
    if (asks) {
        j.status = j.rank == 0 ? help() : EXIT_DONE;
    } else {
        if (j.env == NULL) {
            snprintf(j.err.text, sizeof j.err.text, "out of memory");
            j.status = EXIT_FAILED;
        } else if (argc < 2 || strcmp(argv[1], "calibrate") != 0) {
            snprintf(j.err.text, sizeof j.err.text,
                     "the command must be calibrate (try 'onq-mpi --help')");
            j.status = EXIT_USAGE;
        } else if (mpi_words_read(&j.words, j.env, argc - 2, argv + 2, &j.err) != ONQ_OK) {
            j.status = EXIT_USAGE;
        }
        if (all_well(&j)) {
            j.screen.quiet = j.words.quiet;
            share_cores(&j);
            onq_env_set_log(j.env, on_log, &j);
            onq_env_set_progress(j.env, on_progress, &j);
            calibrate(&j);
            remove_files(&j);
        }
    }
    mpi_words_free(&j.words);
    onq_env_free(j.env);
    fflush(stdout);
    MPI_Finalize();
    return j.status;
}
