/*
 * launch.c — runs a command and tells what it cost, for measure.py.
 *
 *     launch FILE WORD...
 *
 * Writes wall seconds, CPU seconds, peak memory in KiB and the exit status to FILE. Linux counts
 * the memory of whoever starts a process as its own until it execs, so a start from Python would
 * never measure less than Python: this program is small.
 */
#include <stdio.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double seconds(struct timeval t) {
    return (double)t.tv_sec + 1e-6 * (double)t.tv_usec;
}

int main(int argc, char **argv) {
    struct rusage use;
    int status = 0;
    if (argc < 3)
        return 2;
    const double begin = now();
    const pid_t pid = fork();
    if (pid == 0) {
        execvp(argv[2], argv + 2);
        _exit(127);
    }
    if (pid < 0 || wait4(pid, &status, 0, &use) != pid)
        return 1;
    const double wall = now() - begin;
    const int code = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
    FILE *f = fopen(argv[1], "w");
    if (f == NULL)
        return 1;
    fprintf(f, "%.6f %.6f %ld %d\n", wall, seconds(use.ru_utime) + seconds(use.ru_stime),
            use.ru_maxrss, code);
    return fclose(f) != 0;
}
