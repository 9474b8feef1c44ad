/* wait.h — for what follows a fork, which skips the test (posix.h). */
#pragma once
#define waitpid(child, status, flags) (*(status) = 0, -1)
#define WIFSIGNALED(status)           ((status) != 0)
#define WTERMSIG(status)              (status)
#define WIFEXITED(status)             ((status) == 0)
#define WEXITSTATUS(status)           (status)
