/*
 * os_windows.c — files, folders and outputs of Windows. See os.h; the rest is in os_windows_run.c.
 *
 * Paths are UTF-8 above this file and UTF-16 below it. Files are opened so that others may read,
 * write, rename and delete them meanwhile, as on other systems. A folder's handle gives its path
 * back, so that names in it stay names in it; while it is open nobody can move it away.
 */
#include "base/os/os_windows.h"

#include <bcrypt.h>
#include <io.h>
#include <wchar.h>

static const DWORD share_all = FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE;

static HANDLE handle_of(oq_handle h) {
    return (HANDLE)h;
}

/* INVALID_HANDLE_VALUE is OQ_NO_HANDLE. */
static oq_handle given(HANDLE h) {
    if (h == INVALID_HANDLE_VALUE)
        oq_windows_failed();
    return (oq_handle)h;
}

/* ---- paths ---- */

/* The path of an open file or folder, as \\?\C:\...: heap. NULL with errno. */
static wchar_t *path_of(oq_handle h) {
    wchar_t *path = malloc(OQ_WIDE_MAX * sizeof *path);
    const DWORD n = path != NULL ? GetFinalPathNameByHandleW(handle_of(h), path, OQ_WIDE_MAX,
                                                             FILE_NAME_NORMALIZED)
                                 : 0;
    if (n > 0 && n < OQ_WIDE_MAX)
        return path;
    if (path != NULL)
        oq_windows_failed();
    free(path);
    return NULL;
}

static oq_handle open_wide(const wchar_t *path, DWORD access, DWORD how, DWORD flags) {
    return given(CreateFileW(path, access, share_all, NULL, how, flags, NULL));
}

static oq_handle open_path(const char *path, DWORD access, DWORD how, DWORD flags) {
    wchar_t *wide = oq_windows_path(path);
    const oq_handle h = wide != NULL ? open_wide(wide, access, how, flags) : OQ_NO_HANDLE;
    const int why = errno;
    free(wide);
    errno = why;
    return h;
}

/* Of anything that is there, to ask about it. */
static oq_handle open_to_ask(const char *path, DWORD more) {
    return open_path(path, FILE_READ_ATTRIBUTES, OPEN_EXISTING, FILE_FLAG_BACKUP_SEMANTICS | more);
}

bool oq_os_real_path(const char *path, char out[OQ_PATH_MAX]) {
    const oq_handle h = open_to_ask(path, 0);
    wchar_t *wide = h != OQ_NO_HANDLE ? path_of(h) : NULL;
    const bool ok = wide != NULL && oq_windows_text(wide, out, OQ_PATH_MAX);
    const int why = errno;
    free(wide);
    if (h != OQ_NO_HANDLE)
        oq_os_close(h);
    errno = why;
    return ok;
}

/* ---- files ---- */

oq_handle oq_os_open(const char *path) {
    return open_path(path, GENERIC_READ, OPEN_EXISTING, FILE_FLAG_BACKUP_SEMANTICS);
}

void oq_os_close(oq_handle h) {
    CloseHandle(handle_of(h));
}

bool oq_os_info(oq_handle h, oq_file_info *out) {
    BY_HANDLE_FILE_INFORMATION i;
    const DWORD type = GetFileType(handle_of(h));
    *out = (oq_file_info){.mode = 0666, .links = 1};
    if (type != FILE_TYPE_DISK) {
        out->kind = type == FILE_TYPE_PIPE   ? OQ_IS_FIFO
                    : type == FILE_TYPE_CHAR ? OQ_IS_DEVICE
                                             : OQ_IS_OTHER;
        return true;
    }
    if (!GetFileInformationByHandle(handle_of(h), &i))
        return oq_windows_failed();
    const uint64_t time =
        (uint64_t)i.ftLastWriteTime.dwHighDateTime << 32 | i.ftLastWriteTime.dwLowDateTime;
    out->kind = (i.dwFileAttributes & FILE_ATTRIBUTE_DIRECTORY) != 0 ? OQ_IS_FOLDER : OQ_IS_FILE;
    if ((i.dwFileAttributes & FILE_ATTRIBUTE_READONLY) != 0 && out->kind == OQ_IS_FILE)
        out->mode = 0444;
    out->size = (uint64_t)i.nFileSizeHigh << 32 | i.nFileSizeLow;
    out->mtime_ns = (int64_t)(time * 100);
    out->volume = i.dwVolumeSerialNumber;
    out->id = (uint64_t)i.nFileIndexHigh << 32 | i.nFileIndexLow;
    out->links = i.nNumberOfLinks;
    return true;
}

bool oq_os_info_of(const char *path, oq_file_info *out) {
    const oq_handle h = open_to_ask(path, 0);
    if (h == OQ_NO_HANDLE)
        return false;
    const bool ok = oq_os_info(h, out);
    oq_os_close(h);
    return ok;
}

bool oq_os_is_folder(const char *path) {
    oq_file_info info;
    return oq_os_info_of(path, &info) && info.kind == OQ_IS_FOLDER;
}

/* A symbolic link or a junction. */
bool oq_os_is_link(const char *path) {
    FILE_ATTRIBUTE_TAG_INFO tag;
    const oq_handle h = open_to_ask(path, FILE_FLAG_OPEN_REPARSE_POINT);
    if (h == OQ_NO_HANDLE)
        return false;
    const bool link =
        GetFileInformationByHandleEx(handle_of(h), FileAttributeTagInfo, &tag, sizeof tag) &&
        (tag.FileAttributes & FILE_ATTRIBUTE_REPARSE_POINT) != 0 &&
        (tag.ReparseTag == IO_REPARSE_TAG_SYMLINK || tag.ReparseTag == IO_REPARSE_TAG_MOUNT_POINT);
    oq_os_close(h);
    return link;
}

static DWORD piece(size_t n) {
    return n < (1u << 30) ? (DWORD)n : 1u << 30;
}

int64_t oq_os_read(oq_handle h, void *p, size_t n) {
    DWORD got = 0;
    if (ReadFile(handle_of(h), p, piece(n), &got, NULL))
        return got;
    /* The other end of a pipe was closed: that is its end. */
    if (GetLastError() == ERROR_BROKEN_PIPE || GetLastError() == ERROR_HANDLE_EOF)
        return 0;
    oq_windows_failed();
    return -1;
}

bool oq_os_rewind(oq_handle h) {
    const LARGE_INTEGER start = {.QuadPart = 0};
    return SetFilePointerEx(handle_of(h), start, NULL, FILE_BEGIN) || oq_windows_failed();
}

int64_t oq_os_read_at(oq_handle h, void *p, size_t n, uint64_t at) {
    OVERLAPPED place = {.Offset = (DWORD)at, .OffsetHigh = (DWORD)(at >> 32)};
    DWORD got = 0;
    if (ReadFile(handle_of(h), p, piece(n), &got, &place))
        return got;
    if (GetLastError() == ERROR_HANDLE_EOF)
        return 0;
    oq_windows_failed();
    return -1;
}

const uint8_t *oq_os_map(oq_handle h, uint64_t n) {
    HANDLE section = CreateFileMappingW(handle_of(h), NULL, PAGE_READONLY, 0, 0, NULL);
    const uint8_t *p = section != NULL ? MapViewOfFile(section, FILE_MAP_READ, 0, 0, n) : NULL;
    if (p == NULL)
        oq_windows_failed();
    const int why = errno;
    if (section != NULL)
        CloseHandle(section); /* the view keeps it */
    errno = why;
    return p;
}

void oq_os_unmap(const uint8_t *p, uint64_t n) {
    (void)n;
    UnmapViewOfFile(p);
}

/* Unlocking what is not locked takes pages from the working set. */
void oq_os_forget(const uint8_t *p, uint64_t n) {
    VirtualUnlock((void *)(uintptr_t)p, n);
}

uint64_t oq_os_page_size(void) {
    SYSTEM_INFO info;
    GetSystemInfo(&info);
    return info.dwPageSize;
}

bool oq_os_may(const char *path, unsigned what) {
    DWORD access = FILE_READ_ATTRIBUTES;
    if ((what & OQ_MAY_READ) != 0)
        access |= FILE_READ_DATA;
    if ((what & OQ_MAY_WRITE) != 0)
        access |= FILE_WRITE_DATA; /* of a folder: to make files in it */
    const oq_handle h = open_path(path, access, OPEN_EXISTING, FILE_FLAG_BACKUP_SEMANTICS);
    if (h != OQ_NO_HANDLE)
        oq_os_close(h);
    return h != OQ_NO_HANDLE;
}

bool oq_os_make_folder(const char *path) {
    wchar_t *wide = oq_windows_path(path);
    const bool ok = wide != NULL && (CreateDirectoryW(wide, NULL) || oq_windows_failed());
    const int why = errno;
    free(wide);
    errno = why;
    return ok;
}

bool oq_os_remove_folder(const char *path) {
    wchar_t *wide = oq_windows_path(path);
    const bool ok = wide != NULL && (RemoveDirectoryW(wide) || oq_windows_failed());
    const int why = errno;
    free(wide);
    errno = why;
    return ok;
}

/* A file that is mapped or held by somebody goes when it is let go: its name stays until then. */
static bool remove_wide(const wchar_t *path) {
    if (DeleteFileW(path))
        return true;
    const DWORD why = GetLastError();
    if (why != ERROR_ACCESS_DENIED && why != ERROR_SHARING_VIOLATION &&
        why != ERROR_USER_MAPPED_FILE)
        return oq_windows_failed();
    /* This handle is closed by the end of the process, and the file with it. */
    return open_wide(path, DELETE, OPEN_EXISTING, FILE_FLAG_DELETE_ON_CLOSE) != OQ_NO_HANDLE;
}

bool oq_os_remove(const char *path) {
    wchar_t *wide = oq_windows_path(path);
    const bool ok = wide != NULL && remove_wide(wide);
    const int why = errno;
    free(wide);
    errno = why;
    return ok;
}

/* Fills in XXXXXX until `make` succeeds. */
static bool make_temp(char *text, size_t tail, bool (*make)(const char *path)) {
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz012345";
    const size_t n = strlen(text);
    assert(n >= 6 + tail);
    for (int i = 0; i < 64; i++) {
        unsigned char bytes[6];
        if (!oq_os_random(bytes, sizeof bytes))
            return false;
        for (size_t k = 0; k < sizeof bytes; k++)
            text[n - tail - 6 + k] = letters[bytes[k] & 31];
        if (make(text))
            return true;
        if (errno != EEXIST)
            return false;
    }
    return false;
}

static bool make_file(const char *path) {
    const oq_handle h = open_path(path, GENERIC_WRITE, CREATE_NEW, FILE_ATTRIBUTE_NORMAL);
    if (h != OQ_NO_HANDLE)
        oq_os_close(h);
    return h != OQ_NO_HANDLE;
}

bool oq_os_make_temp_folder(char *text) {
    return make_temp(text, 0, oq_os_make_folder);
}

bool oq_os_make_temp_file(char *text, size_t tail) {
    return make_temp(text, tail, make_file);
}

const char *oq_os_temp_root(char room[OQ_PATH_MAX]) {
    const char *named = getenv("TMPDIR");
    wchar_t wide[MAX_PATH + 2];
    if (named != NULL && named[0] != '\0')
        return named;
    if (GetTempPathW(OQ_COUNT(wide), wide) == 0 || !oq_windows_text(wide, room, OQ_PATH_MAX))
        return ".";
    const size_t n = strlen(room);
    if (n > 3 && room[n - 1] == '/')
        room[n - 1] = '\0';
    return room;
}

struct oq_listing {
    HANDLE find;
    WIN32_FIND_DATAW data;
    bool first;
    char name[4 * MAX_PATH];
};

oq_listing *oq_os_list(const char *path) {
    const size_t n = strlen(path);
    oq_listing *l = malloc(sizeof *l);
    char *all = malloc(n + 3);
    wchar_t *wide = NULL;
    if (l != NULL && all != NULL) {
        memcpy(all, path, n);
        memcpy(all + n, "/*", 3);
        wide = oq_windows_path(all);
        *l = (oq_listing){.find = INVALID_HANDLE_VALUE, .first = true};
    }
    if (wide != NULL && (l->find = FindFirstFileW(wide, &l->data)) == INVALID_HANDLE_VALUE)
        oq_windows_failed();
    const int why = errno;
    const bool ok = wide != NULL && l->find != INVALID_HANDLE_VALUE;
    free(wide);
    free(all);
    if (!ok) {
        free(l);
        l = NULL;
    }
    errno = why;
    return l;
}

const char *oq_os_list_next(oq_listing *l) {
    for (;;) {
        if (!l->first && !FindNextFileW(l->find, &l->data)) {
            if (GetLastError() == ERROR_NO_MORE_FILES)
                errno = 0;
            else
                oq_windows_failed();
            return NULL;
        }
        l->first = false;
        const wchar_t *name = l->data.cFileName;
        if (wcscmp(name, L".") == 0 || wcscmp(name, L"..") == 0)
            continue;
        if (WideCharToMultiByte(CP_UTF8, 0, name, -1, l->name, (int)sizeof l->name, NULL, NULL) > 0)
            return l->name;
    }
}

void oq_os_list_close(oq_listing *l) {
    FindClose(l->find);
    free(l);
}

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
    const oq_handle h = open_to_ask(path, 0);
    oq_file_info info;
    if (h == OQ_NO_HANDLE || (oq_os_info(h, &info) && info.kind == OQ_IS_FOLDER))
        return h;
    oq_os_close(h);
    errno = ENOTDIR;
    return OQ_NO_HANDLE;
}

/* A name in the folder, or the path of something below it: heap. NULL with errno. */
static wchar_t *path_in(oq_handle folder, const char *name) {
    wchar_t *base = path_of(folder), *tail = base != NULL ? oq_windows_widen(name) : NULL;
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
    oq_handle h = wide != NULL
                      ? open_wide(wide, GENERIC_READ, OPEN_EXISTING, FILE_FLAG_BACKUP_SEMANTICS)
                      : OQ_NO_HANDLE;
    if (h != OQ_NO_HANDLE) {
        base = path_of(folder);
        real = path_of(h);
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
    const oq_handle h = wide != NULL ? open_wide(wide, access, how, flags) : OQ_NO_HANDLE;
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
    char room[OQ_PATH_MAX], path[OQ_PATH_MAX];
    const int n = snprintf(path, sizeof path, "%s/onq-XXXXXX", oq_os_temp_root(room));
    if (n < 0 || (size_t)n >= sizeof path || !oq_os_make_temp_file(path, 0))
        return OQ_NO_HANDLE;
    return open_path(path, GENERIC_READ | GENERIC_WRITE, OPEN_EXISTING,
                     FILE_ATTRIBUTE_TEMPORARY | FILE_FLAG_DELETE_ON_CLOSE);
}

int64_t oq_os_write(oq_handle h, const void *p, size_t n) {
    DWORD put = 0;
    if (WriteFile(handle_of(h), p, piece(n), &put, NULL))
        return put;
    oq_windows_failed();
    return -1;
}

/* Room on the disk; the size of the file stays as it is. */
bool oq_os_reserve(oq_handle h, uint64_t n) {
    FILE_ALLOCATION_INFO room = {.AllocationSize = {.QuadPart = (LONGLONG)n}};
    return SetFileInformationByHandle(handle_of(h), FileAllocationInfo, &room, sizeof room) ||
           oq_windows_failed();
}

bool oq_os_truncate(oq_handle h, uint64_t n) {
    FILE_END_OF_FILE_INFO end = {.EndOfFile = {.QuadPart = (LONGLONG)n}};
    return SetFileInformationByHandle(handle_of(h), FileEndOfFileInfo, &end, sizeof end) ||
           oq_windows_failed();
}

bool oq_os_sync(oq_handle h) {
    oq_file_info info;
    if (oq_os_info(h, &info) && info.kind == OQ_IS_FOLDER)
        return true; /* a folder needs none: NTFS writes its journal */
    return FlushFileBuffers(handle_of(h)) || oq_windows_failed();
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
        (void)remove_wide(aside);
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
    const bool ok = wide != NULL && remove_wide(wide);
    const int why = errno;
    free(wide);
    errno = why;
    return ok;
}

bool oq_os_random(void *p, size_t n) {
    return BCryptGenRandom(NULL, p, (ULONG)n, BCRYPT_USE_SYSTEM_PREFERRED_RNG) == 0;
}
