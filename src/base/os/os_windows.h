/*
 * os_windows.h — what the files of Windows share: wide paths and reasons.
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
