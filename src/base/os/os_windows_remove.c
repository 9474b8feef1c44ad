/*
 * os_windows_remove.c — files and folders that are removed while somebody holds them. See os.h.
 *
 * Windows keeps the name of a file that is mapped or open, and with it the folder that the file is
 * in. Such files, and folders that are not empty for their sake, are remembered and looked at again
 * whenever something is let go.
 */
#include "base/os/os_windows.h"

#include <wchar.h>

typedef struct later {
    struct later *next;
    enum { LATER_FILE, LATER_MARKED, LATER_FOLDER } kind; /* MARKED: goes by itself */
    oq_file_info info; /* of a LATER_FILE: another one may have its name by then */
    wchar_t path[];
} later;

static SRWLOCK later_lock = SRWLOCK_INIT;
static later *later_first; /* in the order in which they were asked for: a folder after its files */

/* Without memory the file stays, as it would without this list. */
static void remember(const wchar_t *path, int kind, oq_file_info info) {
    const size_t n = wcslen(path) + 1;
    later *one = malloc(sizeof *one + n * sizeof *path), **end = &later_first;
    if (one == NULL)
        return;
    *one = (later){.kind = kind, .info = info};
    wmemcpy(one->path, path, n);
    AcquireSRWLockExclusive(&later_lock);
    while (*end != NULL)
        end = &(*end)->next;
    *end = one;
    ReleaseSRWLockExclusive(&later_lock);
}

static bool name_is_free(const wchar_t *path) {
    return GetFileAttributesW(path) == INVALID_FILE_ATTRIBUTES &&
           (GetLastError() == ERROR_FILE_NOT_FOUND || GetLastError() == ERROR_PATH_NOT_FOUND);
}

/* By the handle that was looked at, so that no other file can come in between. */
static bool remove_same(const later *one) {
    const oq_handle h = oq_windows_open(one->path, DELETE | FILE_READ_ATTRIBUTES, OPEN_EXISTING, 0);
    FILE_DISPOSITION_INFO remove = {.DeleteFile = TRUE};
    oq_file_info info;
    if (h == OQ_NO_HANDLE)
        return false;
    const bool same = oq_os_info(h, &info) && oq_info_is_same(&info, &one->info);
    const bool done = !same || SetFileInformationByHandle(oq_windows_handle(h), FileDispositionInfo,
                                                          &remove, sizeof remove);
    CloseHandle(oq_windows_handle(h));
    return done;
}

static bool is_gone(const later *one) {
    if (one->kind == LATER_FILE ? remove_same(one)
                                : one->kind == LATER_FOLDER && RemoveDirectoryW(one->path))
        return true;
    return name_is_free(one->path);
}

/* A folder waits for files that wait, and for nothing else. */
static void try_again(void) {
    bool file_waits = false;
    AcquireSRWLockExclusive(&later_lock);
    for (later **p = &later_first; *p != NULL;) {
        later *one = *p;
        const bool folder = one->kind == LATER_FOLDER;
        if (is_gone(one) || (folder && !file_waits)) {
            *p = one->next;
            free(one);
        } else {
            file_waits = file_waits || !folder;
            p = &one->next;
        }
    }
    ReleaseSRWLockExclusive(&later_lock);
}

static bool something_waits(void) {
    AcquireSRWLockShared(&later_lock);
    const bool some = later_first != NULL;
    ReleaseSRWLockShared(&later_lock);
    return some;
}

void oq_os_close(oq_handle h) {
    CloseHandle(oq_windows_handle(h));
    if (something_waits())
        try_again();
}

void oq_os_unmap(const uint8_t *p, uint64_t n) {
    (void)n;
    UnmapViewOfFile(p);
    if (something_waits())
        try_again();
}

static bool remove_folder_wide(const wchar_t *path) {
    if (RemoveDirectoryW(path))
        return true;
    if (GetLastError() != ERROR_DIR_NOT_EMPTY || !something_waits())
        return oq_windows_failed();
    remember(path, LATER_FOLDER, (oq_file_info){0});
    return true;
}

bool oq_os_remove_folder(const char *path) {
    wchar_t *wide = oq_windows_path(path);
    const bool ok = wide != NULL && remove_folder_wide(wide);
    const int why = errno;
    free(wide);
    errno = why;
    return ok;
}

/* What this user could remove if nobody had it mapped: no folder, and nothing protected. */
static bool remember_mapped(const wchar_t *path) {
    const oq_handle h = oq_windows_open(path, DELETE | FILE_READ_ATTRIBUTES, OPEN_EXISTING, 0);
    oq_file_info info;
    if (h == OQ_NO_HANDLE)
        return false;
    const bool ok = oq_os_info(h, &info) && info.kind == OQ_IS_FILE && info.mode == 0666;
    if (ok)
        remember(path, LATER_FILE, info);
    CloseHandle(oq_windows_handle(h));
    return ok;
}

bool oq_windows_remove(const wchar_t *path) {
    if (DeleteFileW(path)) {
        /* Others may hold it: then the name stays although it is marked. */
        if (!name_is_free(path))
            remember(path, LATER_MARKED, (oq_file_info){0});
        return true;
    }
    const DWORD why = GetLastError();
    if ((why == ERROR_ACCESS_DENIED || why == ERROR_USER_MAPPED_FILE) && remember_mapped(path))
        return true;
    SetLastError(why);
    return oq_windows_failed();
}

bool oq_os_remove(const char *path) {
    wchar_t *wide = oq_windows_path(path);
    const bool ok = wide != NULL && oq_windows_remove(wide);
    const int why = errno;
    free(wide);
    errno = why;
    return ok;
}
