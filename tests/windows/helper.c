/*
 * helper.c — what the tests of tools/check-windows.sh need of Windows besides onq:
 *   helper cat FILE             its bytes on standard output (wine's own `type` changes them)
 *   helper hold FILE COMMAND    runs the command while the file is open and mapped; its status
 */
#include <fcntl.h>
#include <io.h>
#include <stdio.h>
#include <string.h>
#include <wchar.h>
#include <windows.h>

static int cat(const wchar_t *path) {
    char bytes[4096];
    size_t n;
    FILE *f = _wfopen(path, L"rb");
    _setmode(1, _O_BINARY);
    while (f != NULL && (n = fread(bytes, 1, sizeof bytes, f)) > 0)
        fwrite(bytes, 1, n, stdout);
    return f == NULL;
}

static int start(wchar_t *line, DWORD flags, PROCESS_INFORMATION *made) {
    STARTUPINFOW how = {.cb = sizeof how};
    return CreateProcessW(NULL, line, NULL, NULL, TRUE, flags, NULL, NULL, &how, made);
}

static int ended(const PROCESS_INFORMATION *made) {
    DWORD status = 99;
    if (WaitForSingleObject(made->hProcess, 120000) != WAIT_OBJECT_0)
        TerminateProcess(made->hProcess, 98);
    GetExitCodeProcess(made->hProcess, &status);
    return (int)status;
}

static int hold(const wchar_t *path, wchar_t *line) {
    PROCESS_INFORMATION made;
    HANDLE file =
        CreateFileW(path, GENERIC_READ, FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE,
                    NULL, OPEN_EXISTING, 0, NULL);
    HANDLE section = CreateFileMappingW(file, NULL, PAGE_READONLY, 0, 0, NULL);
    const char *bytes = section != NULL ? MapViewOfFile(section, FILE_MAP_READ, 0, 0, 0) : NULL;
    if (bytes == NULL || !start(line, 0, &made))
        return 97;
    const char first = bytes[0];
    const int status = ended(&made);
    return bytes[0] == first ? status : 96;
}

/* What comes after the first three words of the command line, as it was written. */
static wchar_t *command_of(wchar_t *line) {
    for (int word = 0; word < 3; word++) {
        const wchar_t stop = *line == L'"' ? L'"' : L' ';
        line += *line == L'"';
        while (*line != 0 && *line != stop)
            line++;
        while (*line == L'"' || *line == L' ')
            line++;
    }
    return line;
}

int wmain(int n, wchar_t **words) {
    if (n >= 3 && wcscmp(words[1], L"cat") == 0)
        return cat(words[2]);
    if (n > 3 && wcscmp(words[1], L"hold") == 0)
        return hold(words[2], command_of(GetCommandLineW()));
    return 95;
}
