/*
 * temp.c — see temp.h.
 */
#include "base/system/temp.h"

#include "base/str.h"

onq_code oq_temp_make(oq_arena *a, const char **path, onq_error *err) {
    char room[OQ_PATH_MAX];
    const char *root = oq_os_temp_root(room);
    const oq_str name = oq_str_format(a, "%s/onq-XXXXXX", root);
    char *made = name.p != NULL ? oq_arena_strdup(a, name.p, name.n) : NULL;
    OQ_TRY_ALLOC(made != NULL, err);
    if (!oq_os_make_temp_folder(made))
        return oq_fail_errno(err, ONQ_E_WRITE, errno,
                             "%s: no temporary folder can be made (TMPDIR names another place)",
                             root);
    *path = made;
    return ONQ_OK;
}

/* `path` has room for the names of what is in it. */
static void remove_all(char *path, size_t n) {
    oq_listing *list = oq_os_is_link(path) ? NULL : oq_os_list(path);
    if (list == NULL) {
        (void)oq_os_remove(path);
        return;
    }
    for (const char *name = oq_os_list_next(list); name != NULL; name = oq_os_list_next(list)) {
        const size_t more = strlen(name);
        if (n + 1 + more + 1 > OQ_PATH_MAX)
            continue;
        path[n] = '/';
        memcpy(path + n + 1, name, more + 1);
        remove_all(path, n + 1 + more);
        path[n] = '\0';
    }
    oq_os_list_close(list);
    (void)oq_os_remove_folder(path);
}

void oq_temp_remove(const char *path) {
    char room[OQ_PATH_MAX];
    const size_t n = path != NULL ? strlen(path) : OQ_PATH_MAX;
    if (n >= sizeof room)
        return;
    memcpy(room, path, n + 1);
    remove_all(room, n);
}

/* A disk without room would end the process when the memory is written; one that cannot reserve any
 * is trusted. */
static bool has_room(oq_handle h, uint64_t n) {
    errno = 0;
    return (oq_os_reserve(h, n) || errno != ENOSPC) && oq_os_truncate(h, n);
}

onq_code oq_temp_memory_make(oq_temp_memory *m, uint64_t n, onq_error *err) {
    char room[OQ_PATH_MAX];
    assert(n > 0);
    *m = (oq_temp_memory){.n = n, .file = oq_os_make_scratch()};
    if (m->file != OQ_NO_HANDLE && has_room(m->file, n))
        m->p = oq_os_map_shared(m->file, n);
    if (m->p != NULL)
        return ONQ_OK;
    const int why = errno;
    if (m->file != OQ_NO_HANDLE)
        oq_os_close(m->file);
    *m = (oq_temp_memory){0};
    return oq_fail_errno(err, ONQ_E_WRITE, why,
                         "%s: no temporary file of %llu bytes can be made (TMPDIR names another "
                         "place)",
                         oq_os_temp_root(room), (unsigned long long)n);
}

void oq_temp_memory_release(oq_temp_memory *m) {
    if (m->p == NULL)
        return;
    oq_os_unmap(m->p, m->n);
    oq_os_close(m->file);
    *m = (oq_temp_memory){0};
}
