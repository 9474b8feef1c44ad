/*
 * os_windows_in.c — files in a folder that is open: external data, and outputs. See os.h.
 *
 * A folder's handle gives its path back, so that names in it stay names in it; while it is open
 * nobody can move it away.
 */
#include "base/os/os_windows.h"

#include <wchar.h>

/* ---- external data ---- */

/* A name that is a device in every folder: "nul", "com1.txt". */
static bool is_device(const char *name, size_t n) {
    static const char *const devices[] = {"con", "prn", "aux", "nul", "conin$", "conout$"};
    size_t stem = 0;
    while (stem < n && name[stem] != '.' && name[stem] != ' ')
        stem++;
    for (size_t i = 0; i < OQ_COUNT(devices); i++)
        if (strlen(devices[i]) == stem && _strnicmp(name, devices[i], stem) == 0)
            return true;
    /* Superscript digits count as digits there. */
    return stem >= 4 && (_strnicmp(name, "com", 3) == 0 || _strnicmp(name, "lpt", 3) == 0) &&
           ((stem == 4 && name[3] >= '0' && name[3] <= '9') ||
            (stem == 5 && (name[3] == '\xc2') &&
             (name[4] == '\xb9' || name[4] == '\xb2' || name[4] == '\xb3')));
}

const char *oq_os_bad_location(const char *location) {
    if (strpbrk(location, "\\:*?\"<>|") != NULL)
        return "has a character that no file of a model may have on Windows";
    for (const char *p = location; *p != '\0';) {
        const size_t n = strcspn(p, "/");
        const bool dots = (n == 1 && p[0] == '.') || (n == 2 && p[0] == '.' && p[1] == '.');
        if (is_device(p, n))
            return "names a device of Windows";
        if (n > 0 && !dots && (p[n - 1] == '.' || p[n - 1] == ' '))
            return "has a name that ends with a dot or a space, which Windows would drop";
        p += n;
        p += *p == '/';
    }
    return NULL;
}

oq_handle oq_os_open_folder(const char *path) {
    const oq_handle h = oq_windows_open_to_ask(path, 0);
    oq_file_info info;
    if (h == OQ_NO_HANDLE || (oq_os_info(h, &info) && info.kind == OQ_IS_FOLDER))
        return h;
    oq_os_close(h);
    errno = ENOTDIR;
    return OQ_NO_HANDLE;
}

/* A name in the folder, or the path of something below it: heap. NULL with errno. */
static wchar_t *path_in(oq_handle folder, const char *name) {
    wchar_t *base = oq_windows_path_of(folder),
            *tail = base != NULL ? oq_windows_widen(name) : NULL;
    wchar_t *all = NULL;
    if (tail != NULL) {
        const size_t n = wcslen(base), m = wcslen(tail);
        const bool ends = n > 0 && base[n - 1] == L'\\';
        all = malloc((n + m + 2) * sizeof *all);
        if (all != NULL) {
            wmemcpy(all, base, n);
            all[n] = L'\\';
            wmemcpy(all + n + !ends, tail, m + 1);
            for (wchar_t *p = all + n; *p != 0; p++)
                if (*p == L'/')
                    *p = L'\\';
        } else {
            errno = ENOMEM;
        }
    }
    const int why = errno;
    free(base);
    free(tail);
    errno = why;
    return all;
}

/* \\?\ takes names as they are, so "." and ".." are resolved here; above the folder is EXDEV. */
static bool plain_location(const char *location, char out[OQ_PATH_MAX]) {
    size_t n = 0;
    out[0] = '\0';
    for (const char *p = location; *p != '\0';) {
        const size_t k = strcspn(p, "/");
        if (k == 2 && p[0] == '.' && p[1] == '.') {
            if (n == 0) {
                errno = EXDEV;
                return false;
            }
            while (n > 0 && out[n - 1] != '/')
                n--;
            n -= n > 0;
        } else if (k > 0 && !(k == 1 && p[0] == '.')) {
            if (n + k + 2 > OQ_PATH_MAX) {
                errno = ENAMETOOLONG;
                return false;
            }
            if (n > 0)
                out[n++] = '/';
            memcpy(out + n, p, k);
            n += k;
        }
        out[n] = '\0';
        p += k;
        p += *p == '/';
    }
    return true;
}

/* Opened first, with links and junctions followed; then the path that it really has is compared
 * with the folder's. The handle is what was judged, so nothing can be exchanged in between. */
oq_handle oq_os_open_beneath(oq_handle folder, const char *location) {
    char plain[OQ_PATH_MAX];
    if (location[0] == '\0' || oq_path_is_absolute(location) ||
        oq_os_bad_location(location) != NULL) {
        errno = location[0] == '\0' ? ENOENT : EXDEV;
        return OQ_NO_HANDLE;
    }
    if (!plain_location(location, plain))
        return OQ_NO_HANDLE;
    wchar_t *wide = path_in(folder, plain), *base = NULL, *real = NULL;
    oq_handle h = wide != NULL ? oq_windows_open(wide, GENERIC_READ, OPEN_EXISTING,
                                                 FILE_FLAG_BACKUP_SEMANTICS)
                               : OQ_NO_HANDLE;
    if (h != OQ_NO_HANDLE) {
        base = oq_windows_path_of(folder);
        real = oq_windows_path_of(h);
        size_t n = base != NULL ? wcslen(base) : 0;
        n -= n > 0 && base[n - 1] == L'\\';
        const bool inside = n > 0 && real != NULL && wcsncmp(real, base, n) == 0 &&
                            (real[n] == L'\\' || real[n] == 0);
        if (!inside) {
            oq_os_close(h);
            h = OQ_NO_HANDLE;
            errno = EXDEV;
        }
    }
    const int why = errno;
    free(wide);
    free(base);
    free(real);
    errno = why;
    return h;
}

/* ---- outputs ---- */

oq_handle oq_os_open_out_folder(const char *path) {
    return oq_os_open_folder(path);
}

static oq_handle open_in(oq_handle folder, const char *name, DWORD access, DWORD how, DWORD flags) {
    wchar_t *wide = path_in(folder, name);
    const oq_handle h = wide != NULL ? oq_windows_open(wide, access, how, flags) : OQ_NO_HANDLE;
    const int why = errno;
    free(wide);
    errno = why;
    return h;
}

bool oq_os_info_in(oq_handle folder, const char *name, oq_file_info *out) {
    if (is_device(name, strlen(name))) {
        *out = (oq_file_info){.kind = OQ_IS_DEVICE, .mode = 0666};
        return true;
    }
    const oq_handle h =
        open_in(folder, name, FILE_READ_ATTRIBUTES, OPEN_EXISTING, FILE_FLAG_BACKUP_SEMANTICS);
    if (h == OQ_NO_HANDLE)
        return false;
    const bool ok = oq_os_info(h, out);
    oq_os_close(h);
    return ok;
}

bool oq_os_may_write_in(oq_handle folder, const char *name) {
    const oq_handle h = open_in(folder, name, FILE_WRITE_DATA, OPEN_EXISTING, 0);
    if (h != OQ_NO_HANDLE)
        oq_os_close(h);
    /* Somebody else holds it: replacing it will tell. */
    return h != OQ_NO_HANDLE || GetLastError() == ERROR_SHARING_VIOLATION ||
           GetLastError() == ERROR_USER_MAPPED_FILE;
}

oq_handle oq_os_make_named(oq_handle folder, const char *name) {
    return open_in(folder, name, GENERIC_READ | GENERIC_WRITE, CREATE_NEW, FILE_ATTRIBUTE_NORMAL);
}

oq_handle oq_os_make_in_memory(void) {
    return oq_os_make_scratch();
}

oq_handle oq_os_make_scratch(void) {
    char room[OQ_PATH_MAX], path[OQ_PATH_MAX];
    const int n = snprintf(path, sizeof path, "%s/onq-XXXXXX", oq_os_temp_root(room));
    if (n < 0 || (size_t)n >= sizeof path || !oq_os_make_temp_file(path, 0))
        return OQ_NO_HANDLE;
    return oq_windows_open_path(path, GENERIC_READ | GENERIC_WRITE, OPEN_EXISTING,
                                FILE_ATTRIBUTE_TEMPORARY | FILE_FLAG_DELETE_ON_CLOSE);
}

int64_t oq_os_write(oq_handle h, const void *p, size_t n) {
    DWORD put = 0;
    if (WriteFile(oq_windows_handle(h), p, oq_windows_piece(n), &put, NULL))
        return put;
    oq_windows_failed();
    return -1;
}

/* Room on the disk; the size of the file stays as it is. */
bool oq_os_reserve(oq_handle h, uint64_t n) {
    FILE_ALLOCATION_INFO room = {.AllocationSize = {.QuadPart = (LONGLONG)n}};
    return SetFileInformationByHandle(oq_windows_handle(h), FileAllocationInfo, &room,
                                      sizeof room) ||
           oq_windows_failed();
}

bool oq_os_truncate(oq_handle h, uint64_t n) {
    FILE_END_OF_FILE_INFO end = {.EndOfFile = {.QuadPart = (LONGLONG)n}};
    return SetFileInformationByHandle(oq_windows_handle(h), FileEndOfFileInfo, &end, sizeof end) ||
           oq_windows_failed();
}

bool oq_os_sync(oq_handle h) {
    oq_file_info info;
    if (oq_os_info(h, &info) && info.kind == OQ_IS_FOLDER)
        return true; /* a folder needs none: NTFS writes its journal */
    return FlushFileBuffers(oq_windows_handle(h)) || oq_windows_failed();
}

bool oq_os_set_mode(oq_handle h, unsigned mode) {
    (void)h;
    (void)mode; /* a folder gives its files their rights */
    return true;
}

/* What is there is renamed aside, which works although it is open or mapped. When the new one is in
 * its place the old one gets the name that the new one had, or is removed. */
static bool swap_in(const wchar_t *from, const wchar_t *to, bool keep) {
    const size_t n = wcslen(to);
    wchar_t *aside = malloc((n + 16) * sizeof *aside);
    unsigned char bytes[4] = {0};
    if (aside == NULL) {
        errno = ENOMEM;
        return false;
    }
    oq_os_random(bytes, sizeof bytes);
    wmemcpy(aside, to, n);
    swprintf(aside + n, 16, L".onq-%02x%02x%02x%02x", bytes[0], bytes[1], bytes[2], bytes[3]);
    bool ok = MoveFileExW(to, aside, 0) || oq_windows_failed();
    if (ok && !MoveFileExW(from, to, 0)) {
        ok = oq_windows_failed();
        const int why = errno;
        (void)MoveFileExW(aside, to, 0);
        errno = why;
    } else if (ok && !(keep && MoveFileExW(aside, from, 0))) {
        (void)oq_windows_remove(aside);
    }
    const int why = errno;
    free(aside);
    errno = why;
    return ok;
}

static bool rename_wide(const wchar_t *from, const wchar_t *to, oq_rename how) {
    if (how == OQ_RENAME_EXCHANGE)
        return swap_in(from, to, true);
    if (MoveFileExW(from, to, how == OQ_RENAME_REPLACE ? MOVEFILE_REPLACE_EXISTING : 0))
        return true;
    const DWORD why = GetLastError();
    const bool held = why == ERROR_ACCESS_DENIED || why == ERROR_SHARING_VIOLATION ||
                      why == ERROR_USER_MAPPED_FILE;
    if (how == OQ_RENAME_REPLACE && held && swap_in(from, to, false))
        return true;
    SetLastError(why);
    return oq_windows_failed();
}

bool oq_os_rename_in(oq_handle folder, const char *from, const char *to, oq_rename how) {
    wchar_t *a = path_in(folder, from), *b = path_in(folder, to);
    const bool ok = a != NULL && b != NULL && rename_wide(a, b, how);
    const int why = errno;
    free(a);
    free(b);
    errno = why;
    return ok;
}

bool oq_os_remove_in(oq_handle folder, const char *name) {
    wchar_t *wide = path_in(folder, name);
    const bool ok = wide != NULL && oq_windows_remove(wide);
    const int why = errno;
    free(wide);
    errno = why;
    return ok;
}
