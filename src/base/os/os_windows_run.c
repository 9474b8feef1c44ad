/*
 * os_windows_run.c — libraries, other programs and the machine on Windows. See os.h.
 */
#include "base/os/os_windows.h"
#include "base/os_wait.h"

#include <bcrypt.h>
#include <psapi.h>
#include <time.h>
#include <wchar.h>

/* ---- libraries ---- */

/* The system has an onnxruntime.dll of its own, which is old: the loader is not asked. */
static const char *const runtime_places[] = {".",          "runtime", "onq", "../onnxruntime/capi",
                                             "../lib/onq", NULL};
const oq_runtime_names oq_os_runtime = {"onnxruntime", ".dll", runtime_places, false, false};
const char *const oq_os_linear_libraries[] = {NULL};

static void reason_of(DWORD number, char *why, size_t cap) {
    wchar_t wide[256];
    if (number == ERROR_BAD_EXE_FORMAT) { /* the system's words have a place for a name */
        snprintf(why, cap, "it is damaged");
        return;
    }
    DWORD n = FormatMessageW(FORMAT_MESSAGE_FROM_SYSTEM | FORMAT_MESSAGE_IGNORE_INSERTS, NULL,
                             number, 0, wide, OQ_COUNT(wide) - 1, NULL);
    while (n > 0 && (wide[n - 1] == L'\n' || wide[n - 1] == L'\r' || wide[n - 1] == L'.'))
        n--;
    wide[n] = 0;
    if (n == 0 || WideCharToMultiByte(CP_UTF8, 0, wide, -1, why, (int)cap, NULL, NULL) <= 0)
        snprintf(why, cap, "error %lu of Windows", (unsigned long)number);
}

void *oq_os_library(const char *path, char *why, size_t cap) {
    wchar_t *wide = oq_windows_path(path);
    /* What it needs lies beside it. That takes a whole path. */
    wchar_t whole[OQ_PATH_MAX];
    HMODULE library = NULL;
    const bool ok = wide != NULL && GetFullPathNameW(wide, OQ_PATH_MAX, whole, NULL) < OQ_PATH_MAX;
    if (ok)
        library = LoadLibraryExW(
            whole, NULL, LOAD_LIBRARY_SEARCH_DLL_LOAD_DIR | LOAD_LIBRARY_SEARCH_DEFAULT_DIRS);
    const DWORD failed = ok ? GetLastError() : ERROR_FILENAME_EXCED_RANGE;
    if (library == NULL && cap > 0 && failed == ERROR_MOD_NOT_FOUND)
        snprintf(why, cap, "%s",
                 GetFileAttributesW(whole) == INVALID_FILE_ATTRIBUTES
                     ? "there is no such file"
                     : "a library that it needs was not found");
    else if (library == NULL && cap > 0)
        reason_of(failed, why, cap);
    free(wide);
    return (void *)library;
}

void *oq_os_library_for_good(const char *name) {
    (void)name;
    return NULL;
}

void *oq_os_symbol(void *library, const char *name) {
    void *symbol = NULL;
    const FARPROC found = GetProcAddress((HMODULE)library, name);
    memcpy(&symbol, &found, sizeof symbol);
    return symbol;
}

void oq_os_library_close(void *library) {
    FreeLibrary((HMODULE)library);
}

static bool module_path(HMODULE module, char out[OQ_PATH_MAX]) {
    wchar_t wide[OQ_PATH_MAX];
    const DWORD n = GetModuleFileNameW(module, wide, OQ_COUNT(wide));
    return n > 0 && n < OQ_COUNT(wide) && oq_windows_text(wide, out, OQ_PATH_MAX);
}

bool oq_os_program_path(char out[OQ_PATH_MAX]) {
    return module_path(NULL, out);
}

bool oq_os_library_path(const void *address, char out[OQ_PATH_MAX]) {
    HMODULE module = NULL;
    return GetModuleHandleExW(GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS |
                                  GET_MODULE_HANDLE_EX_FLAG_UNCHANGED_REFCOUNT,
                              (const wchar_t *)address, &module) &&
           module_path(module, out);
}

/* The runtime takes wchar_t there. */
const void *oq_os_runtime_path(const char *path, void *room, size_t bytes) {
    wchar_t *wide = oq_windows_path(path);
    const size_t n = wide != NULL ? (wcslen(wide) + 1) * sizeof *wide : SIZE_MAX;
    if (n <= bytes)
        memcpy(room, wide, n);
    free(wide);
    return n <= bytes ? room : NULL;
}

/* ---- other programs ---- */

oq_handle oq_os_standard_input(void) {
    return (oq_handle)GetStdHandle(STD_INPUT_HANDLE);
}

/* cmd.exe /d /s /c "LINE", as wide text: heap. */
static wchar_t *shell_line(const char *line) {
    static const wchar_t begin[] = L"cmd.exe /d /s /c \"";
    const size_t m = OQ_COUNT(begin) - 1;
    const int n = MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, line, -1, NULL, 0);
    wchar_t *all = n > 0 ? malloc((m + (size_t)n + 1) * sizeof *all) : NULL;
    if (all == NULL) {
        errno = n <= 0 ? EILSEQ : ENOMEM;
        return NULL;
    }
    wmemcpy(all, begin, m);
    MultiByteToWideChar(CP_UTF8, 0, line, -1, all + m, n);
    wmemcpy(all + m + (size_t)n - 1, L"\"", 2);
    return all;
}

/* A job object: whatever the shell starts is in it, and it ends with its last handle. */
static HANDLE new_job(void) {
    JOBOBJECT_EXTENDED_LIMIT_INFORMATION limits = {0};
    HANDLE job = CreateJobObjectW(NULL, NULL);
    limits.BasicLimitInformation.LimitFlags = JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE;
    if (job != NULL)
        SetInformationJobObject(job, JobObjectExtendedLimitInformation, &limits, sizeof limits);
    return job;
}

static bool start_shell(const char *line, HANDLE input, HANDLE output, oq_process *p) {
    wchar_t *words = shell_line(line);
    if (words == NULL)
        return false;
    STARTUPINFOW how = {.cb = sizeof how, .dwFlags = STARTF_USESTDHANDLES};
    PROCESS_INFORMATION made = {0};
    how.hStdInput = input;
    how.hStdOutput = output;
    how.hStdError = GetStdHandle(STD_ERROR_HANDLE);
    HANDLE job = new_job();
    const bool ok =
        CreateProcessW(NULL, words, NULL, NULL, TRUE, CREATE_SUSPENDED, NULL, NULL, &how, &made) ||
        oq_windows_failed();
    const int why = errno;
    free(words);
    if (ok) {
        if (job != NULL)
            AssignProcessToJobObject(job, made.hProcess);
        ResumeThread(made.hThread);
        CloseHandle(made.hThread);
        *p = (oq_process){(intptr_t)made.hProcess, (intptr_t)job};
    } else if (job != NULL) {
        CloseHandle(job);
    }
    errno = why;
    return ok;
}

const oq_shell_words oq_os_shell = {"\\", '"', "\\\""};

int oq_os_run_line(const char *line, oq_process *p, oq_handle *output) {
    SECURITY_ATTRIBUTES inherited = {.nLength = sizeof inherited, .bInheritHandle = TRUE};
    HANDLE ours = NULL, theirs = NULL;
    *p = (oq_process){0, 0};
    *output = OQ_NO_HANDLE;
    if (!CreatePipe(&ours, &theirs, &inherited, 0)) {
        oq_windows_failed();
        return errno;
    }
    SetHandleInformation(ours, HANDLE_FLAG_INHERIT, 0);
    HANDLE nothing = CreateFileW(L"NUL", GENERIC_READ, FILE_SHARE_READ | FILE_SHARE_WRITE,
                                 &inherited, OPEN_EXISTING, 0, NULL);
    const bool ok = start_shell(line, nothing, theirs, p);
    const int why = errno;
    CloseHandle(theirs);
    CloseHandle(nothing);
    if (ok)
        *output = (oq_handle)ours;
    else
        CloseHandle(ours);
    return ok ? 0 : why;
}

/* Pipes of this kind cannot be waited for: they are looked at. */
int oq_os_wait_readable(oq_handle h, int milliseconds) {
    for (int waited = 0;; waited += 5) {
        DWORD there = 0;
        /* A failure is the end of the pipe, which a read reports. */
        if (!PeekNamedPipe((HANDLE)h, NULL, 0, NULL, &there, NULL) || there > 0)
            return 1;
        if (waited >= milliseconds)
            return 0;
        Sleep(5);
    }
}

oq_ended oq_os_wait(oq_process *p) {
    DWORD status = 0;
    HANDLE process = (HANDLE)p->id;
    WaitForSingleObject(process, INFINITE);
    GetExitCodeProcess(process, &status);
    CloseHandle(process);
    if (p->group != 0)
        CloseHandle((HANDLE)p->group);
    *p = (oq_process){0, 0};
    return (oq_ended){(int)status, 0};
}

void oq_os_stop(const oq_process *p, bool hard) {
    (void)hard; /* there is only one way */
    if (p->group != 0)
        TerminateJobObject((HANDLE)p->group, 1);
    else if (p->id != 0)
        TerminateProcess((HANDLE)p->id, 1);
}

int oq_os_start(oq_process *p, const char *program, char *const *words, char *const *variables,
                const oq_child_file *files, size_t n_files) {
    (void)program;
    (void)words;
    (void)variables;
    (void)files;
    (void)n_files;
    *p = (oq_process){0, 0};
    return ENOSYS; /* for --isolate alone, which this system has not */
}

/* ---- the machine ---- */

unsigned oq_os_cores(void) {
    DWORD_PTR ours = 0, all = 0;
    if (GetProcessAffinityMask(GetCurrentProcess(), &ours, &all) && ours != 0)
        return (unsigned)__builtin_popcountll((unsigned long long)ours);
    return GetActiveProcessorCount(ALL_PROCESSOR_GROUPS);
}

uint64_t oq_os_memory(void) {
    MEMORYSTATUSEX all = {.dwLength = sizeof all};
    return GlobalMemoryStatusEx(&all) ? all.ullTotalPhys : 0;
}

uint64_t oq_os_resident(void) {
    PROCESS_MEMORY_COUNTERS own = {.cb = sizeof own};
    return GetProcessMemoryInfo(GetCurrentProcess(), &own, sizeof own) ? own.WorkingSetSize : 0;
}

/* The address of a library differs from start to start, the number from process to process. */
uint64_t oq_os_seed(void) {
    return ((uint64_t)(uintptr_t)GetModuleHandleW(L"kernel32.dll") ^ GetCurrentProcessId()) *
           0x9e3779b97f4a7c15u;
}

void oq_os_arm_features(unsigned long bits[2]) {
    bits[0] = bits[1] = 0;
}

uint64_t oq_os_process_id(void) {
    return GetCurrentProcessId();
}

const char *oq_os_reason(int errnum, char *room, size_t cap) {
    if (errnum == EILSEQ)
        return "Windows allows no such name";
    return strerror_s(room, cap, errnum) == 0 ? room : "unknown error";
}

bool oq_os_utc(int64_t seconds, struct tm *out) {
    const __time64_t t = seconds;
    return _gmtime64_s(out, &t) == 0;
}

void oq_os_quiet(oq_signals *was) {
    *was = (oq_signals){0};
}

void oq_os_loud(const oq_signals *was) {
    (void)was;
}

void oq_os_cond_init(pthread_cond_t *c) {
    pthread_cond_init(c, NULL);
}

/* The condition knows the time of day alone, so each wait is short, and the other clock decides. */
bool oq_os_cond_wait(pthread_cond_t *c, pthread_mutex_t *lock, double until) {
    struct timespec now;
    FILETIME day;
    clock_gettime(CLOCK_MONOTONIC, &now);
    const double left = until - ((double)now.tv_sec + (double)now.tv_nsec * 1e-9);
    if (left <= 0)
        return false;
    GetSystemTimeAsFileTime(&day); /* in units of 100 ns since 1601 */
    const uint64_t since_1601 = (uint64_t)day.dwHighDateTime << 32 | day.dwLowDateTime;
    const uint64_t end = since_1601 - 116444736000000000u + (uint64_t)(1e7 * (left < 1 ? left : 1));
    const struct timespec at = {(time_t)(end / 10000000), (long)(end % 10000000 * 100)};
    (void)pthread_cond_timedwait(c, lock, &at);
    return true; /* woken, or not yet: the caller looks */
}
