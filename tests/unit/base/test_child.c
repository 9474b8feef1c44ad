/*
 * test_child.c — other programs: their files, signals, group and end.
 */
#include "base/os.h"

#include "testing.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Runs a line of shell with a pipe as its file `at`; what it writes there, and its status. */
static oq_ended run(const char *line, int at, const oq_child_file *more, char *text, size_t size) {
    char name[] = "sh", option[] = "-c", copy[200];
    char *const words[] = {name, option, copy, NULL};
    int ends[2];
    oq_process child = {0, 0};
    size_t n = 0;
    ssize_t k;
    snprintf(copy, sizeof copy, "%s", line);
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    const oq_child_file files[] = {{at, ends[1]},
                                   more != NULL ? *more : (oq_child_file){0, OQ_NO_HANDLE}};
    assert_int_equal(oq_os_start(&child, "/bin/sh", words, NULL, files, OQ_COUNT(files)), 0);
    assert_true(child.id > 0);
    close(ends[1]);
    while (n + 1 < size && (k = read(ends[0], text + n, size - 1 - n)) > 0)
        n += (size_t)k;
    text[n] = '\0';
    close(ends[0]);
    return oq_os_wait(&child);
}

static void its_files_and_status(void **state) {
    (void)state;
    char text[100];
    /* Standard input is empty; the file has the number that was asked for. */
    const oq_ended end = run("cat; echo said >&3; exit 7", 3, NULL, text, sizeof text);
    assert_int_equal(end.signal, 0);
    assert_int_equal(end.status, 7);
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
    assert_int_equal(run(line, probe[1], NULL, text, sizeof text).status, 0);
    assert_string_equal(text, "same\n");
    const oq_child_file other = {probe[1], OQ_NO_HANDLE};
    snprintf(line, sizeof line, "echo lost >&%d; echo kept", probe[1]);
    assert_int_equal(run(line, STDOUT_FILENO, &other, text, sizeof text).status, 0);
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
    oq_ended end = run("kill -TERM $$; echo alive", 1, NULL, text, sizeof text);
    assert_int_equal(end.signal, SIGTERM);
    end = run("kill -PIPE $$; echo alive", 1, NULL, text, sizeof text);
    assert_int_equal(end.signal, SIGPIPE);
    sigaction(SIGPIPE, &old, NULL);
    sigprocmask(SIG_SETMASK, &before, NULL);
    end = run("kill -TERM 0", 1, NULL, text, sizeof text); /* its group, in which we are not */
    assert_int_not_equal(end.signal, 0);
}

static void what_cannot_be_started(void **state) {
    (void)state;
    char name[] = "none";
    char *const words[] = {name, NULL};
    const oq_child_file no_such_file = {3, 1 << 20};
    oq_process child = {0, 0}, stranger = {getppid(), 0};
    /* Some systems, and valgrind, find out in the child only. */
    if (oq_os_start(&child, "/no/such/program", words, NULL, NULL, 0) == 0)
        assert_int_equal(oq_os_wait(&child).status, 127);
    assert_int_not_equal(oq_os_start(&child, "/bin/sh", words, NULL, &no_such_file, 1), 0);
    assert_int_equal(oq_os_wait(&stranger).status, 0); /* not a child */
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
        oq_os_close_from(first);
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
