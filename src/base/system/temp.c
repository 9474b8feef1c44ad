/*
 * temp.c — see temp.h.
 */
#include "base/system/temp.h"

#include "base/str.h"

#include <ftw.h>

const char *oq_temp_root(void) {
    const char *root = getenv("TMPDIR");
    return root != NULL && root[0] != '\0' ? root : "/tmp";
}

onq_code oq_temp_make(oq_arena *a, const char **path, onq_error *err) {
    const oq_str name = oq_str_format(a, "%s/onq-XXXXXX", oq_temp_root());
    char *made = name.p != NULL ? oq_arena_strdup(a, name.p, name.n) : NULL;
    OQ_TRY_ALLOC(made != NULL, err);
    if (mkdtemp(made) == NULL)
        return oq_fail_errno(err, ONQ_E_WRITE, errno,
                             "%s: no temporary folder can be made (TMPDIR names another place)",
                             oq_temp_root());
    *path = made;
    return ONQ_OK;
}

static int remove_one(const char *path, const struct stat *st OQ_UNUSED, int kind OQ_UNUSED,
                      struct FTW *ftw OQ_UNUSED) {
    (void)remove(path);
    return 0;
}

void oq_temp_remove(const char *path) {
    if (path != NULL)
        nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}
