/*
 * os_windows_path.c — paths between UTF-8 and UTF-16, and reasons. See os_windows.h.
 */
#include "base/os/os_windows.h"

#include <wchar.h>

enum { SHORT_PATH = 240 };

/* ---- reasons ---- */

bool oq_windows_failed(void) {
    static const struct {
        DWORD from;
        int to;
    } known[] = {
        {ERROR_FILE_NOT_FOUND, ENOENT},
        {ERROR_PATH_NOT_FOUND, ENOENT},
        {ERROR_INVALID_NAME, EILSEQ},
        {ERROR_BAD_PATHNAME, EILSEQ},
        {ERROR_BAD_NETPATH, ENOENT},
        {ERROR_BAD_NET_NAME, ENOENT},
        {ERROR_INVALID_DRIVE, ENOENT},
        {ERROR_DIRECTORY, ENOTDIR},
        {ERROR_ACCESS_DENIED, EACCES},
        {ERROR_SHARING_VIOLATION, EACCES},
        {ERROR_LOCK_VIOLATION, EACCES},
        {ERROR_WRITE_PROTECT, EROFS},
        {ERROR_FILE_EXISTS, EEXIST},
        {ERROR_ALREADY_EXISTS, EEXIST},
        {ERROR_DIR_NOT_EMPTY, ENOTEMPTY},
        {ERROR_TOO_MANY_OPEN_FILES, EMFILE},
        {ERROR_NOT_ENOUGH_MEMORY, ENOMEM},
        {ERROR_OUTOFMEMORY, ENOMEM},
        {ERROR_COMMITMENT_LIMIT, ENOMEM},
        {ERROR_DISK_FULL, ENOSPC},
        {ERROR_HANDLE_DISK_FULL, ENOSPC},
        {ERROR_BROKEN_PIPE, EPIPE},
        {ERROR_NO_DATA, EPIPE},
        {ERROR_INVALID_HANDLE, EBADF},
        {ERROR_INVALID_FUNCTION, EINVAL},
        {ERROR_INVALID_PARAMETER, EINVAL},
        {ERROR_NOT_SUPPORTED, ENOTSUP},
        {ERROR_FILENAME_EXCED_RANGE, ENAMETOOLONG},
        {ERROR_NOACCESS, EFAULT},
        {ERROR_USER_MAPPED_FILE, EACCES},
        {ERROR_CANT_RESOLVE_FILENAME, ELOOP},
        {ERROR_NOT_SAME_DEVICE, EXDEV},
        {ERROR_BAD_EXE_FORMAT, ENOEXEC},
        {ERROR_FILE_TOO_LARGE, EFBIG},
    };
    const DWORD why = GetLastError();
    errno = EIO;
    for (size_t i = 0; i < OQ_COUNT(known); i++)
        if (known[i].from == why)
            errno = known[i].to;
    return false;
}

/* ---- paths ---- */

bool oq_path_is_separator(char c) {
    return c == '/' || c == '\\';
}

static bool has_drive(const char *path) {
    return ((path[0] | 32) >= 'a' && (path[0] | 32) <= 'z') && path[1] == ':';
}

/* "C:/x", "//server/share", "\x" and "C:x" too: all of them lead elsewhere than below here. */
bool oq_path_is_absolute(const char *path) {
    return oq_path_is_separator(path[0]) || has_drive(path);
}

const char *oq_path_last(const char *path) {
    const char *last = has_drive(path) ? path + 2 : path;
    for (const char *p = last; *p != '\0'; p++)
        if (oq_path_is_separator(*p))
            last = p + 1;
    return last;
}

wchar_t *oq_windows_widen(const char *text) {
    const int n = MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, text, -1, NULL, 0);
    wchar_t *wide = n > 0 && n < OQ_WIDE_MAX ? malloc((size_t)n * sizeof *wide) : NULL;
    if (wide != NULL)
        MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, text, -1, wide, n);
    else
        errno = n <= 0 ? EILSEQ : n >= OQ_WIDE_MAX ? ENAMETOOLONG : ENOMEM;
    return wide;
}

/* Long paths need \\?\, which takes whole paths with backslashes only. */
static wchar_t *lengthen(wchar_t *wide) {
    wchar_t *whole = malloc(OQ_WIDE_MAX * sizeof *whole);
    if (whole == NULL) {
        free(wide);
        errno = ENOMEM;
        return NULL;
    }
    const bool unc = wide[0] == L'\\' && wide[1] == L'\\';
    const wchar_t *prefix = unc ? L"\\\\?\\UNC\\" : L"\\\\?\\";
    const size_t n = wcslen(prefix);
    wmemcpy(whole, prefix, n);
    const DWORD got = GetFullPathNameW(wide, (DWORD)(OQ_WIDE_MAX - n), whole + n, NULL);
    if (unc && got > 2) /* \\server becomes \\?\UNC\server */
        wmemmove(whole + n, whole + n + 2, got - 1);
    free(wide);
    if (got > 0 && got < OQ_WIDE_MAX - n)
        return whole;
    free(whole);
    errno = ENAMETOOLONG;
    return NULL;
}

wchar_t *oq_windows_path(const char *path) {
    wchar_t *wide = oq_windows_widen(path);
    if (wide == NULL)
        return NULL;
    for (wchar_t *p = wide; *p != 0; p++)
        if (*p == L'/')
            *p = L'\\';
    const bool done = wcsncmp(wide, L"\\\\?\\", 4) == 0 || wcsncmp(wide, L"\\\\.\\", 4) == 0;
    if (done)
        return wide;
    /* The working folder counts too. */
    const DWORD whole = GetFullPathNameW(wide, 0, NULL, NULL);
    return whole < SHORT_PATH ? wide : lengthen(wide);
}

bool oq_windows_text(const wchar_t *wide, char *out, size_t cap) {
    const bool unc = wcsncmp(wide, L"\\\\?\\UNC\\", 8) == 0;
    if (unc || wcsncmp(wide, L"\\\\?\\", 4) == 0)
        wide += unc ? 6 : 4; /* of \\?\UNC\server one backslash stays */
    const int room = cap > INT_MAX ? INT_MAX : (int)cap;
    if (WideCharToMultiByte(CP_UTF8, 0, wide, -1, out, room, NULL, NULL) <= 0) {
        errno = ENAMETOOLONG;
        return false;
    }
    if (unc)
        out[0] = '/';
    for (char *p = out; *p != '\0'; p++)
        if (*p == '\\')
            *p = '/';
    if (unc && strlen(out) + 2 <= cap) {
        memmove(out + 1, out, strlen(out) + 1);
        out[0] = '/';
    }
    return true;
}
