/*
 * os_program_windows.c — see os_program.h.
 */
#include "base/os_program.h"

#define WIN32_LEAN_AND_MEAN
#include <windows.h>

#include <errno.h>
#include <fcntl.h>
#include <io.h>
#include <shellapi.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

static void (*told)(int number);
static volatile LONG asked;
static UINT code_page;
static const char *last_words;
static int last_status;

static void restore_code_page(void) {
    SetConsoleOutputCP(code_page);
}

/* Arguments come in UTF-16; those in the code page have lost letters. */
static void take_arguments(int *argc, char ***argv) {
    int n = 0;
    wchar_t **wide = CommandLineToArgvW(GetCommandLineW(), &n);
    char **words = wide != NULL ? calloc((size_t)n + 1, sizeof *words) : NULL;
    for (int i = 0; words != NULL && i < n; i++) {
        const int size = WideCharToMultiByte(CP_UTF8, 0, wide[i], -1, NULL, 0, NULL, NULL);
        words[i] = size > 0 ? malloc((size_t)size) : NULL;
        if (words[i] == NULL)
            return;
        WideCharToMultiByte(CP_UTF8, 0, wide[i], -1, words[i], size, NULL, NULL);
    }
    if (words == NULL)
        return;
    *argc = n;
    *argv = words; /* until the end */
}

/* Variables that name files come in the code page too. */
static void take_variable(const wchar_t *wide_name, const char *name) {
    wchar_t wide[4096];
    char text[4 * 4096];
    const DWORD n = GetEnvironmentVariableW(wide_name, wide, 4096);
    if (n > 0 && n < 4096 &&
        WideCharToMultiByte(CP_UTF8, 0, wide, -1, text, (int)sizeof text, NULL, NULL) > 0)
        _putenv_s(name, text);
}

/* A console that knows no escape sequences would show them. */
static void want_colours(DWORD which) {
    HANDLE h = GetStdHandle(which);
    DWORD mode = 0;
    if (GetConsoleMode(h, &mode) && !SetConsoleMode(h, mode | ENABLE_VIRTUAL_TERMINAL_PROCESSING))
        _putenv_s("TERM", "dumb");
}

void oq_program_begin(int *argc, char ***argv) {
    DWORD mode;
    take_arguments(argc, argv);
    take_variable(L"ONQ_ONNXRUNTIME", "ONQ_ONNXRUNTIME");
    take_variable(L"TMPDIR", "TMPDIR");
    _setmode(_fileno(stdin), _O_BINARY);
    _setmode(_fileno(stdout), _O_BINARY);
    _setmode(_fileno(stderr), _O_BINARY);
    /* A console takes a letter of several bytes at once only, and without buffers bytes come singly. */
    setvbuf(stdout, NULL, _IOFBF, 1 << 16);
    setvbuf(stderr, NULL, _IOFBF, 1 << 12);
    if (GetConsoleMode(GetStdHandle(STD_OUTPUT_HANDLE), &mode) ||
        GetConsoleMode(GetStdHandle(STD_ERROR_HANDLE), &mode)) {
        code_page = GetConsoleOutputCP();
        SetConsoleOutputCP(CP_UTF8);
        atexit(restore_code_page);
        want_colours(STD_OUTPUT_HANDLE);
        want_colours(STD_ERROR_HANDLE);
    }
}

void oq_program_set_variable(const char *name, const char *value) {
    if (getenv(name) == NULL)
        _putenv_s(name, value);
}

static BOOL WINAPI on_control(DWORD what) {
    (void)what;
    if (InterlockedExchange(&asked, 1) != 0)
        return FALSE; /* asked twice: at once */
    told(SIGINT);
    return TRUE;
}

void oq_program_catch(void (*stop)(int number)) {
    told = stop;
    SetConsoleCtrlHandler(on_control, TRUE);
}

/* Not by the stream, whose buffer would be lost. */
static void on_abort(int number) {
    (void)number;
    (void)_write(2, last_words, (unsigned)strlen(last_words));
    _Exit(last_status);
}

void oq_program_catch_abort(const char *text, int status) {
    last_words = text;
    last_status = status;
    signal(SIGABRT, on_abort);
}

/* What a shell of another system would see. */
void oq_program_end_by(int number) {
    fflush(NULL);
    exit(128 + number);
}

/* The C library of Windows knows no error for a pipe that is being closed, and says EINVAL. */
bool oq_program_reader_left(int why) {
    return why == EPIPE ||
           (why == EINVAL && GetFileType(GetStdHandle(STD_OUTPUT_HANDLE)) == FILE_TYPE_PIPE);
}

void oq_program_end_by_pipe(void) {
    exit(128 + 13);
}

int oq_program_columns(void) {
    CONSOLE_SCREEN_BUFFER_INFO info;
    return GetConsoleScreenBufferInfo(GetStdHandle(STD_ERROR_HANDLE), &info)
               ? info.srWindow.Right - info.srWindow.Left + 1
               : 0;
}

bool oq_program_is_terminal(FILE *f) {
    DWORD mode;
    return GetConsoleMode((HANDLE)_get_osfhandle(_fileno(f)), &mode) != 0;
}

int64_t oq_program_read_input(void *p, size_t n) {
    return _read(_fileno(stdin), p, n < (1u << 30) ? (unsigned)n : 1u << 30);
}

/* A file that is mapped cannot be cut short here. */
void oq_program_guard(void) {
}

const char *oq_program_shrunk(void) {
    return NULL;
}
