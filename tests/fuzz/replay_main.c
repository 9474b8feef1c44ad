/*
 * replay_main.c — runs a fuzz target without a fuzzing engine.
 *
 * Linked to each fuzz_*.c when libFuzzer is not in use. It replays every file of the corpus folder,
 * then feeds a bounded number of seeded mutations of them. A target is the usual
 * LLVMFuzzerTestOneInput; it aborts (assert, sanitizer) on a broken property. What was being run
 * then is left in crash-TARGET.bin in the build folder (ONQ_BUILD, else the current one), and a
 * line says so.
 *
 *     fuzz_model [--rounds N] [--seed N] [--seconds N] FOLDER_OR_FILE...
 *
 * ONQ_FUZZ_ROUNDS and ONQ_FUZZ_SEED stand for the options. The seed is printed. Equal seed, equal
 * run.
 */
#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv) __attribute__((weak));
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned seed)
    __attribute__((weak));
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max);
void __sanitizer_set_death_callback(void (*callback)(void)) __attribute__((weak));

enum {
    INPUT_MAX = 1 << 20,   /* bytes of a mutated input */
    INPUT_SECONDS = 20,    /* longer on one input is a hang */
    DEFAULT_ROUNDS = 4000, /* keeps a target within a second or two */
};
/* Address space for a plain build: a huge allocation fails instead of drowning the machine. */
static const rlim_t memory_limit = (rlim_t)4 << 30;

struct input {
    char *name;
    uint8_t *data;
    size_t size;
};

static struct {
    struct input *items;
    size_t count, capacity;
} corpus;

/* What the handlers save; set before each run. */
static const uint8_t *current_data;
static size_t current_size;
static const char *current_target;
static char crash_path[4096];

static void die(const char *what, const char *name) {
    fprintf(stderr, "replay: %s: %s: %s\n", name, what, strerror(errno));
    exit(2);
}

static void *checked(void *p, const char *name) {
    if (p == NULL)
        die("out of memory", name);
    return p;
}

/* ---- corpus ---- */

static void corpus_add(char *name, uint8_t *data, size_t size) {
    if (corpus.count == corpus.capacity) {
        corpus.capacity = corpus.capacity * 2 + 64;
        corpus.items = checked(realloc(corpus.items, corpus.capacity * sizeof *corpus.items), name);
    }
    corpus.items[corpus.count++] = (struct input){name, data, size};
}

static void corpus_add_file(const char *path, size_t size) {
    FILE *f = fopen(path, "rb");
    if (f == NULL)
        die("cannot open", path);
    uint8_t *data = checked(malloc(size + 1), path);
    const size_t got = fread(data, 1, size, f);
    if (got != size)
        die("cannot read", path);
    fclose(f);
    corpus_add(checked(strdup(path), path), data, size);
}

static void corpus_add_path(const char *path, int depth) {
    struct stat st;
    if (stat(path, &st) != 0)
        die("cannot find", path);
    if (S_ISREG(st.st_mode)) {
        corpus_add_file(path, (size_t)st.st_size);
        return;
    }
    if (!S_ISDIR(st.st_mode) || depth > 4)
        return;
    struct dirent **names = NULL;
    const int n = scandir(path, &names, NULL, alphasort);
    if (n < 0)
        die("cannot list", path);
    for (int i = 0; i < n; i++) {
        if (names[i]->d_name[0] != '.') {
            char *child = NULL;
            if (asprintf(&child, "%s/%s", path, names[i]->d_name) < 0)
                die("out of memory", path);
            corpus_add_path(child, depth + 1);
            free(child);
        }
        free(names[i]);
    }
    free(names);
}

static void corpus_release(void) {
    for (size_t i = 0; i < corpus.count; i++) {
        free(corpus.items[i].name);
        free(corpus.items[i].data);
    }
    free(corpus.items);
}

/* ---- random numbers: splitmix64 ---- */

static uint64_t rng_state;

static uint64_t rng_next(void) {
    uint64_t z = (rng_state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static size_t rng_below(size_t n) {
    return n == 0 ? 0 : (size_t)(rng_next() % n);
}

/* ---- mutations of buf[0 .. *size), which has room for INPUT_MAX bytes ---- */

static void remove_range(uint8_t *buf, size_t *size, size_t at, size_t n) {
    memmove(buf + at, buf + at + n, *size - at - n);
    *size -= n;
}

/* Makes room for n bytes; returns how many fit. */
static size_t open_gap(uint8_t *buf, size_t *size, size_t at, size_t n) {
    if (n > INPUT_MAX - *size)
        n = INPUT_MAX - *size;
    memmove(buf + at + n, buf + at, *size - at);
    *size += n;
    return n;
}

static void mutate_integer(uint8_t *buf, size_t size) {
    static const uint64_t values[] = {
        0,          1,          0x7f,        0x80,      0xff,       0x7fff,   0xffff, 0x7fffffff,
        0x80000000, 0xffffffff, 0x100000000, INT64_MAX, UINT64_MAX, 1u << 20, 16,     64,
    };
    const size_t width = (size_t)1 << rng_below(4);
    if (size < width)
        return;
    uint64_t value = values[rng_below(sizeof values / sizeof values[0])];
    if (rng_below(3) == 0)
        value += rng_below(7) - 3u;
    memcpy(buf + rng_below(size - width + 1), &value, width);
}

/* A protobuf varint of an extreme value in place of what is there: lengths and sizes that lie. */
static void mutate_varint(uint8_t *buf, size_t size) {
    uint64_t value = rng_next() >> rng_below(64);
    size_t at = rng_below(size);
    for (; at < size; at++) {
        buf[at] = (uint8_t)((value & 0x7f) | (value > 0x7f ? 0x80 : 0));
        value >>= 7;
        if (value == 0)
            break;
    }
}

/* Copies a stretch of another corpus file (or of the input itself) over or into the input. */
static void mutate_splice(uint8_t *buf, size_t *size) {
    const struct input *other = &corpus.items[rng_below(corpus.count)];
    if (other->size == 0)
        return;
    const size_t from = rng_below(other->size);
    size_t n = 1 + rng_below(other->size - from);
    const size_t at = rng_below(*size + 1);
    if (rng_below(2) == 0)
        n = open_gap(buf, size, at, n);
    else if (n > *size - at)
        n = *size - at;
    memcpy(buf + at, other->data + from, n);
}

static void mutate_once(uint8_t *buf, size_t *size) {
    if (*size == 0) {
        mutate_splice(buf, size);
        return;
    }
    const size_t at = rng_below(*size);
    switch (rng_below(9)) {
    case 0:
        buf[at] ^= (uint8_t)(1u << rng_below(8));
        break;
    case 1:
        buf[at] = (uint8_t)rng_next();
        break;
    case 2:
        mutate_integer(buf, *size);
        break;
    case 3:
        mutate_varint(buf, *size);
        break;
    case 4:
        remove_range(buf, size, at, 1 + rng_below(rng_below(2) ? 8 : *size - at) % (*size - at));
        break;
    case 5: {
        const size_t n = open_gap(buf, size, at, 1 + rng_below(16));
        memset(buf + at, (int)rng_below(256), n);
        break;
    }
    case 6: { /* a stretch twice */
        size_t n = 1 + rng_below(*size - at);
        n = open_gap(buf, size, at, n);
        memmove(buf + at, buf + at + n, n < *size - at - n ? n : *size - at - n);
        break;
    }
    case 7:
        *size = at;
        break;
    default:
        mutate_splice(buf, size);
        break;
    }
    assert(*size <= INPUT_MAX);
}

/* What a target's own mutator (model_mutator.h) calls for plain bytes. */
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max) {
    static uint8_t room[INPUT_MAX];
    size_t n = size < INPUT_MAX ? size : INPUT_MAX;
    memcpy(room, data, n);
    mutate_once(room, &n);
    n = n < max ? n : max;
    memcpy(data, room, n);
    return n;
}

static void mutate(uint8_t *buf, size_t *size) {
    if (LLVMFuzzerCustomMutator != NULL && rng_below(2) == 0)
        *size = LLVMFuzzerCustomMutator(buf, *size, INPUT_MAX, (unsigned)rng_next());
    else
        mutate_once(buf, size);
}

/* ---- running ---- */

static void save_current(void) {
    const int fd = open(crash_path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0)
        return;
    const bool whole = write(fd, current_data, current_size) == (ssize_t)current_size;
    close(fd);
    static const char *const text[2] = {"replay: the input could not be saved whole in ",
                                        "replay: the input is in "};
    if (write(2, text[whole], strlen(text[whole])) < 0 ||
        write(2, crash_path, strlen(crash_path)) < 0 || write(2, "\n", 1) < 0)
        return;
}

static void on_signal(int sig) {
    if (sig == SIGALRM) {
        static const char text[] = "replay: hang: one input takes too long\n";
        if (write(2, text, sizeof text - 1) < 0)
            sig = SIGABRT;
    }
    save_current();
    signal(sig, SIG_DFL);
    raise(sig == SIGALRM ? SIGKILL : sig);
}

static void catch_failures(void) {
    static const int caught[] = {SIGABRT, SIGALRM, SIGSEGV, SIGBUS, SIGFPE, SIGILL};
    const bool sanitized = __sanitizer_set_death_callback != NULL;
    if (sanitized) {
        __sanitizer_set_death_callback(save_current);
    } else {
        const struct rlimit limit = {memory_limit, memory_limit};
        setrlimit(RLIMIT_AS, &limit);
    }
    /* A sanitizer reports crashes itself and then calls back; asserts and hangs are ours. */
    const size_t n = sanitized ? 2 : sizeof caught / sizeof caught[0];
    for (size_t i = 0; i < n; i++) {
        struct sigaction action = {.sa_handler = on_signal};
        sigaction(caught[i], &action, NULL);
    }
}

/* The input is copied to a block of exactly its size, so that a read past its end is seen. */
static void run_one(const uint8_t *data, size_t size) {
    uint8_t *copy = checked(malloc(size == 0 ? 1 : size), current_target);
    memcpy(copy, data, size);
    current_data = copy;
    current_size = size;
    alarm(INPUT_SECONDS);
    LLVMFuzzerTestOneInput(copy, size);
    alarm(0);
    free(copy);
}

static uint64_t run_mutations(uint64_t rounds, uint64_t seed, double seconds) {
    uint8_t *buf = checked(malloc(INPUT_MAX), current_target);
    const time_t start = time(NULL);
    uint64_t done = 0;
    while (done < rounds && (seconds <= 0 || difftime(time(NULL), start) < seconds)) {
        /* Each round has its own seed, so one round can be run again alone. */
        rng_state = seed + done * 0xd1342543de82ef95u;
        const struct input *base = &corpus.items[rng_below(corpus.count)];
        size_t size = base->size < INPUT_MAX ? base->size : INPUT_MAX;
        memcpy(buf, base->data, size);
        for (size_t n = 1 + rng_below(4); n > 0; n--)
            mutate(buf, &size);
        run_one(buf, size);
        done++;
    }
    free(buf);
    return done;
}

static uint64_t parse_number(const char *text, const char *what) {
    char *end = NULL;
    errno = 0;
    const uint64_t value = strtoull(text, &end, 0);
    if (errno != 0 || end == text || *end != '\0') {
        fprintf(stderr, "replay: %s: not a number: %s\n", what, text);
        exit(2);
    }
    return value;
}

static uint64_t setting(const char *variable, uint64_t fallback) {
    const char *text = getenv(variable);
    return text == NULL || *text == '\0' ? fallback : parse_number(text, variable);
}

int main(int argc, char **argv) {
    const char *slash = strrchr(argv[0], '/');
    current_target = slash == NULL ? argv[0] : slash + 1;
    const char *folder = getenv("ONQ_BUILD");
    snprintf(crash_path, sizeof crash_path, "%s/crash-%s.bin", folder == NULL ? "." : folder,
             current_target);
    if (LLVMFuzzerInitialize != NULL)
        LLVMFuzzerInitialize(&argc, &argv);
    uint64_t rounds = setting("ONQ_FUZZ_ROUNDS", DEFAULT_ROUNDS);
    uint64_t seed = setting("ONQ_FUZZ_SEED", 1);
    uint64_t seconds = setting("ONQ_FUZZ_SECONDS", 0);
    for (int i = 1; i < argc; i++) {
        uint64_t *number = strcmp(argv[i], "--rounds") == 0    ? &rounds
                           : strcmp(argv[i], "--seed") == 0    ? &seed
                           : strcmp(argv[i], "--seconds") == 0 ? &seconds
                                                               : NULL;
        if (number == NULL)
            corpus_add_path(argv[i], 0);
        else if (++i < argc)
            *number = parse_number(argv[i], argv[i - 1]);
    }
    if (corpus.count == 0) {
        fprintf(stderr, "replay: %s: the corpus is empty: nothing was tested\n", current_target);
        return 2;
    }
    printf("%s: seed %" PRIu64 ", %zu corpus files\n", current_target, seed, corpus.count);
    fflush(stdout);

    catch_failures();
    for (size_t i = 0; i < corpus.count; i++)
        run_one(corpus.items[i].data, corpus.items[i].size);
    const uint64_t done = run_mutations(rounds, seed, (double)seconds);
    printf("%s: %zu files replayed, %" PRIu64 " mutations\n", current_target, corpus.count, done);
    corpus_release();
    return 0;
}
