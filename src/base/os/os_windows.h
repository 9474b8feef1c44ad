/*
 * os_windows.h — what the files of Windows share: wide paths, handles and reasons.
 */
#pragma once

#include "base/os.h"

#define WIN32_LEAN_AND_MEAN
#include <windows.h>

enum { OQ_WIDE_MAX = 32768 }; /* what Windows takes at most */

/* UTF-16 of UTF-8: heap. NULL with errno. */
wchar_t *oq_windows_widen(const char *text);
/* A path in UTF-16, made absolute with \\?\ before it where it is long: heap, free() releases it.
 * NULL with errno. */
wchar_t *oq_windows_path(const char *path);
/* UTF-8 of UTF-16, with slashes and without \\?\; false with errno when it does not fit. */
bool oq_windows_text(const wchar_t *wide, char *out, size_t cap);
/* Sets errno from GetLastError(). Returns false. */
bool oq_windows_failed(void);

static inline HANDLE oq_windows_handle(oq_handle h) {
    return (HANDLE)h;
}
/* Opens what others may go on to use as they like; OQ_NO_HANDLE with errno. */
oq_handle oq_windows_open(const wchar_t *path, DWORD access, DWORD how, DWORD flags);
oq_handle oq_windows_open_path(const char *path, DWORD access, DWORD how, DWORD flags);
/* Of anything that is there, to ask about it. */
oq_handle oq_windows_open_to_ask(const char *path, DWORD more);
/* The path of an open file or folder, as \\?\C:\...: heap. NULL with errno. */
wchar_t *oq_windows_path_of(oq_handle h);
/* What one call reads or writes of `n` bytes. */
static inline DWORD oq_windows_piece(size_t n) {
    return n < (1u << 30) ? (DWORD)n : 1u << 30;
}
/* Removes a file. One that somebody has mapped or open goes when it is let go. */
bool oq_windows_remove(const wchar_t *path);
