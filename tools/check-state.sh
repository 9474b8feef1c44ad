#!/usr/bin/env bash
# check-state.sh [LIBRARY] — libonq changes nothing that the whole process shares.
#
# It imports no function that sets environment variables, signal handlers, the locale, the umask, the working folder or a
# timer, none that ends the process, and none with hidden state. pthread_sigmask is allowed: pools block signals in their
# own threads. setrlimit and prctl are: a worker of --isolate, a process of its own, limits itself with them. Deadlines use
# the monotonic clock, which nobody can set. It has no variables that outlive a job but those of the list below.
# Prints each offence; exits 1 if any.
set -u
cd -- "$(dirname -- "$0")/.." || exit 1
library=${1:-build/libonq.so}

functions='setenv|putenv|unsetenv|clearenv|signal|__sysv_signal|sigaction|sigprocmask|sigaltstack|umask|setlocale|uselocale
|chdir|fchdir|chroot|alarm|setitimer|exit|_exit|quick_exit|atexit|abort|srand|rand|srandom|random|srand48|drand48|strtok
|setpgid|setsid|dup2|system|popen|fork|vfork|localtime|gmtime|strerror|strsignal_r|setvbuf|freopen|nice|setpriority'
symbols=$(nm -D --undefined-only -- "$library") || exit 1
found=$(awk '{print $NF}' <<<"$symbols" | sed 's/@.*//' | grep -xE -- "${functions//$'\n'/}" |
    sed "s|.*|$library imports &, which the process shares|")
found+=$(find src -name '*.[ch]' -print0 | LC_ALL=C sort -z | xargs -0 grep -nHw CLOCK_REALTIME |
    sed -E 's|^([^:]+:[0-9]+):.*|\1: use CLOCK_MONOTONIC|')
# found: the features of the processor, the same whoever looks. environment, lock: locks around two lists that the runtime
# keeps for the process. threads: the setting of OpenBLAS, which the last job gives back.
kept='found|environment|lock|threads'
found+=$(objdump -t -- "$library" | awk '$3 == "O" && ($4 == ".data" || $4 == ".bss") {print $NF}' |
    sed -E 's/\.[0-9]+$//' | grep -vxE "$kept|completed|__TMC_END__|__dso_handle" |
    sed "s|.*|$library has the variable &, which outlives a job|")
[ -z "$found" ] && exit 0
printf '%s\n' "$found"
echo "check-state: $(printf '%s\n' "$found" | wc -l) offence(s)"
exit 1
