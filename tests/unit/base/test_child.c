/*
 * test_child.c — other programs: their files, signals, group and end.
 */
#include "base/system/child.h"

#include "testing.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Runs a line of shell with a pipe as its file `at`; what it writes there, and its status. */
static int run(const char *line, int at, const oq_child_file *more, char *text, size_t size) {
    char name[] = "sh", option[] = "-c", copy[200];
    char *const words[] = {name, option, copy, NULL};
    int ends[2];
    pid_t child = 0;
    size_t n = 0;
    ssize_t k;
    snprintf(copy, sizeof copy, "%s", line);
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    const oq_child_file files[] = {{at, ends[1]}, more != NULL ? *more : (oq_child_file){0, -1}};
    assert_int_equal(oq_child_start(&child, "/bin/sh", words, NULL, files, OQ_COUNT(files)), 0);
    assert_true(child > 0);
    close(ends[1]);
    while (n + 1 < size && (k = read(ends[0], text + n, size - 1 - n)) > 0)
        n += (size_t)k;
    text[n] = '\0';
    close(ends[0]);
    return oq_child_wait(child);
}

static void its_files_and_status(void **state) {
    (void)state;
    char text[100];
    /* Standard input is empty; the file has the number that was asked for. */
    const int status = run("cat; echo said >&3; exit 7", 3, NULL, text, sizeof text);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 7);
    assert_string_equal(text, "said\n");
}

/* The end of the pipe has the number here that it is to have there, and that another is to have. */
static void numbers_in_each_others_way(void **state) {
    (void)state;
    char text[100];
    int probe[2];
    assert_int_equal(pipe2(probe, O_CLOEXEC), 0);
    close(probe[0]);
    close(probe[1]);
    char line[100];
    snprintf(line, sizeof line, "echo same >&%d", probe[1]);
    assert_int_equal(run(line, probe[1], NULL, text, sizeof text), 0);
    assert_string_equal(text, "same\n");
    const oq_child_file other = {probe[1], -1};
    snprintf(line, sizeof line, "echo lost >&%d; echo kept", probe[1]);
    assert_int_equal(run(line, STDOUT_FILENO, &other, text, sizeof text), 0);
    assert_string_equal(text, "kept\n");
}

static void signals_as_usual_and_a_group(void **state) {
    (void)state;
    char text[100];
    sigset_t blocked, before;
    struct sigaction ignore = {.sa_handler = SIG_IGN}, old;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGTERM);
    assert_int_equal(sigprocmask(SIG_BLOCK, &blocked, &before), 0);
    assert_int_equal(sigaction(SIGPIPE, &ignore, &old), 0);
    int status = run("kill -TERM $$; echo alive", 1, NULL, text, sizeof text);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
    status = run("kill -PIPE $$; echo alive", 1, NULL, text, sizeof text);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGPIPE);
    sigaction(SIGPIPE, &old, NULL);
    sigprocmask(SIG_SETMASK, &before, NULL);
    status = run("kill -TERM 0", 1, NULL, text, sizeof text); /* its group, in which we are not */
    assert_true(WIFSIGNALED(status));
}

static void what_cannot_be_started(void **state) {
    (void)state;
    char name[] = "none";
    char *const words[] = {name, NULL};
    const oq_child_file no_such_file = {3, 1 << 20};
    pid_t child = 0;
    /* Some systems, and valgrind, find out in the child only. */
    if (oq_child_start(&child, "/no/such/program", words, NULL, NULL, 0) == 0)
        assert_int_equal(WEXITSTATUS(oq_child_wait(child)), 127);
    assert_int_not_equal(oq_child_start(&child, "/bin/sh", words, NULL, &no_such_file, 1), 0);
    assert_int_equal(oq_child_wait(getppid()), 0); /* not a child */
}

/* In a process of its own: the test's own files are closed with the rest. */
static void files_are_closed(void **state) {
    (void)state;
    const int kept = open("/dev/null", O_RDONLY);
    int status = 0;
    const int first = dup(kept), second = dup(kept);
    assert_true(kept < first && first < second);
    const pid_t child = fork();
    if (child == 0) {
        oq_close_from(first);
        _exit(fcntl(kept, F_GETFD) >= 0 && fcntl(first, F_GETFD) < 0 && fcntl(second, F_GETFD) < 0
                  ? 0
                  : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    close(second);
    close(first);
    close(kept);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(its_files_and_status),
        cmocka_unit_test(numbers_in_each_others_way),
        cmocka_unit_test(signals_as_usual_and_a_group),
        cmocka_unit_test(what_cannot_be_started),
        cmocka_unit_test(files_are_closed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
