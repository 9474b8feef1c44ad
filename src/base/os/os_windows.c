/*
 * os_windows.c — files and folders of Windows. See os.h; the rest is in the files of os_windows.h.
 *
 * Paths are UTF-8 above this file and UTF-16 below it. Files are opened so that others may read,
 * write, rename and delete them meanwhile, as on other systems.
 */
#include "base/os/os_windows.h"

#include <bcrypt.h>
#include <io.h>
#include <wchar.h>

static const DWORD share_all = FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE;

/* INVALID_HANDLE_VALUE is OQ_NO_HANDLE. */
static oq_handle given(HANDLE h) {
    if (h == INVALID_HANDLE_VALUE)
        oq_windows_failed();
    return (oq_handle)h;
}

/* ---- paths ---- */

wchar_t *oq_windows_path_of(oq_handle h) {
    wchar_t *path = malloc(OQ_WIDE_MAX * sizeof *path);
    const DWORD n = path != NULL ? GetFinalPathNameByHandleW(oq_windows_handle(h), path,
                                                             OQ_WIDE_MAX, FILE_NAME_NORMALIZED)
                                 : 0;
    if (n > 0 && n < OQ_WIDE_MAX)
        return path;
    if (path != NULL)
        oq_windows_failed();
    free(path);
    return NULL;
}

oq_handle oq_windows_open(const wchar_t *path, DWORD access, DWORD how, DWORD flags) {
    return given(CreateFileW(path, access, share_all, NULL, how, flags, NULL));
}

oq_handle oq_windows_open_path(const char *path, DWORD access, DWORD how, DWORD flags) {
    wchar_t *wide = oq_windows_path(path);
    const oq_handle h = wide != NULL ? oq_windows_open(wide, access, how, flags) : OQ_NO_HANDLE;
    const int why = errno;
    free(wide);
    errno = why;
    return h;
}

oq_handle oq_windows_open_to_ask(const char *path, DWORD more) {
    return oq_windows_open_path(path, FILE_READ_ATTRIBUTES, OPEN_EXISTING,
                                FILE_FLAG_BACKUP_SEMANTICS | more);
}

bool oq_os_real_path(const char *path, char out[OQ_PATH_MAX]) {
    const oq_handle h = oq_windows_open_to_ask(path, 0);
    wchar_t *wide = h != OQ_NO_HANDLE ? oq_windows_path_of(h) : NULL;
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
    return oq_windows_open_path(path, GENERIC_READ, OPEN_EXISTING, FILE_FLAG_BACKUP_SEMANTICS);
}

bool oq_os_info(oq_handle h, oq_file_info *out) {
    BY_HANDLE_FILE_INFORMATION i;
    const DWORD type = GetFileType(oq_windows_handle(h));
    *out = (oq_file_info){.mode = 0666, .links = 1};
    if (type != FILE_TYPE_DISK) {
        out->kind = type == FILE_TYPE_PIPE   ? OQ_IS_FIFO
                    : type == FILE_TYPE_CHAR ? OQ_IS_DEVICE
                                             : OQ_IS_OTHER;
        return true;
    }
    if (!GetFileInformationByHandle(oq_windows_handle(h), &i))
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
    const oq_handle h = oq_windows_open_to_ask(path, 0);
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
    const oq_handle h = oq_windows_open_to_ask(path, FILE_FLAG_OPEN_REPARSE_POINT);
    if (h == OQ_NO_HANDLE)
        return false;
    const bool link =
        GetFileInformationByHandleEx(oq_windows_handle(h), FileAttributeTagInfo, &tag,
                                     sizeof tag) &&
        (tag.FileAttributes & FILE_ATTRIBUTE_REPARSE_POINT) != 0 &&
        (tag.ReparseTag == IO_REPARSE_TAG_SYMLINK || tag.ReparseTag == IO_REPARSE_TAG_MOUNT_POINT);
    oq_os_close(h);
    return link;
}

int64_t oq_os_read(oq_handle h, void *p, size_t n) {
    DWORD got = 0;
    if (ReadFile(oq_windows_handle(h), p, oq_windows_piece(n), &got, NULL))
        return got;
    /* The other end of a pipe was closed: that is its end. */
    if (GetLastError() == ERROR_BROKEN_PIPE || GetLastError() == ERROR_HANDLE_EOF)
        return 0;
    oq_windows_failed();
    return -1;
}

bool oq_os_rewind(oq_handle h) {
    const LARGE_INTEGER start = {.QuadPart = 0};
    return SetFilePointerEx(oq_windows_handle(h), start, NULL, FILE_BEGIN) || oq_windows_failed();
}

int64_t oq_os_read_at(oq_handle h, void *p, size_t n, uint64_t at) {
    OVERLAPPED place = {.Offset = (DWORD)at, .OffsetHigh = (DWORD)(at >> 32)};
    DWORD got = 0;
    if (ReadFile(oq_windows_handle(h), p, oq_windows_piece(n), &got, &place))
        return got;
    if (GetLastError() == ERROR_HANDLE_EOF)
        return 0;
    oq_windows_failed();
    return -1;
}

static void *map_view(oq_handle h, uint64_t n, DWORD protection, DWORD access) {
    HANDLE section = CreateFileMappingW(oq_windows_handle(h), NULL, protection, 0, 0, NULL);
    void *p = section != NULL ? MapViewOfFile(section, access, 0, 0, n) : NULL;
    if (p == NULL)
        oq_windows_failed();
    const int why = errno;
    if (section != NULL)
        CloseHandle(section); /* the view keeps it */
    errno = why;
    return p;
}

const uint8_t *oq_os_map(oq_handle h, uint64_t n) {
    return map_view(h, n, PAGE_READONLY, FILE_MAP_READ);
}

void *oq_os_map_shared(oq_handle h, uint64_t n) {
    return map_view(h, n, PAGE_READWRITE, FILE_MAP_WRITE);
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
    const oq_handle h =
        oq_windows_open_path(path, access, OPEN_EXISTING, FILE_FLAG_BACKUP_SEMANTICS);
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
    const oq_handle h =
        oq_windows_open_path(path, GENERIC_WRITE, CREATE_NEW, FILE_ATTRIBUTE_NORMAL);
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

bool oq_os_random(void *p, size_t n) {
    return BCryptGenRandom(NULL, p, (ULONG)n, BCRYPT_USE_SYSTEM_PREFERRED_RNG) == 0;
}
