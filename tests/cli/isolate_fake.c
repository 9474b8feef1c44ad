/*
 * isolate_fake.c — a runtime that misbehaves as soon as it is asked for its functions, for
 * isolate.sh: $FAKE says how. What it was denied it tells on standard error; then it is no runtime.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

const void *OrtGetApiBase(void);

static void tell(const char *what, int failed) {
    fprintf(stderr, "%s: %s\n", what, failed ? strerror(errno) : "done");
}

static void write_file(const char *folder, const char *name) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    tell(name, fd < 0);
    if (fd >= 0)
        close(fd);
}

/* Messages of progress, as src/api/isolate/isolate_wire.h has them, from several processes at once:
 * the caller hardly ever has to wait for one. A block is so small that the socket takes it whole. */
static void flood(void) {
    enum { WORKER_FD = 3, PROGRESS = 8, FRAMES = 256 };
    static uint64_t frames[FRAMES][6];
    for (uint64_t i = 0; i < FRAMES; i++) {
        const uint64_t one[6] = {PROGRESS, 4 * sizeof(uint64_t), 8, 0, i, FRAMES};
        memcpy(frames[i], one, sizeof one);
        memcpy(&frames[i][3], "flooding", 8);
    }
    for (int i = 0; i < 3; i++)
        if (fork() == 0)
            break;
    while (write(WORKER_FD, frames, sizeof frames) == sizeof frames)
        ;
    _exit(1);
}

static void *keep_stderr(void *kept) {
    flockfile(stderr);
    sem_post(kept);
    for (;;)
        pause();
}

/* Calls abort while another thread is in the middle of a message. */
static void hold(void) {
    static sem_t kept;
    pthread_t thread;
    if (sem_init(&kept, 0, 0) == 0 && pthread_create(&thread, NULL, keep_stderr, &kept) == 0)
        sem_wait(&kept);
    abort();
}

const void *OrtGetApiBase(void) {
    const char *how = getenv("FAKE");
    if (how == NULL)
        return NULL;
    if (strcmp(how, "abort") == 0)
        abort();
    if (strcmp(how, "hold") == 0)
        hold();
    if (strcmp(how, "crash") == 0)
        raise(SIGSEGV);
    if (strcmp(how, "exit") == 0)
        _exit(7);
    if (strcmp(how, "flood") == 0)
        flood();
    while (strcmp(how, "hang") == 0)
        pause();
    while (strcmp(how, "memory") == 0) {
        char *p = malloc(16 << 20);
        if (p == NULL)
            abort();
        memset(p, 1, 16 << 20);
    }
    if (strcmp(how, "outside") == 0) {
        write_file(getenv("OUTSIDE"), "outside");
        write_file(getenv("TMPDIR"), "temporary");
        tell("rename", rename(getenv("VICTIM"), "renamed"));
        tell("unlink", unlink(getenv("VICTIM")));
        tell("internet", socket(AF_INET, SOCK_STREAM, 0) < 0);
        tell("local", socket(AF_UNIX, SOCK_STREAM, 0) < 0);
        tell("signal", kill(getppid(), 0));
    }
    return NULL;
}
