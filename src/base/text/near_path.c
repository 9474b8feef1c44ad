/*
 * near_path.c — see near_path.h.
 */
#include "base/text/near_path.h"

#include "base/keyed.h"
#include "base/os.h"
#include "base/text/nearest.h"
#include "base/vec.h"

#include <stdlib.h>

#define MAX_NAMES 10000 /* of a folder with more, these are looked at */

/* The names of a folder in their order: what a system gives first is an accident. */
typedef OQ_VEC(const char *) names;

static void list(oq_arena *a, const char *folder, names *out) {
    oq_listing *l = oq_os_list(folder);
    if (l == NULL)
        return;
    for (const char *name; out->n < MAX_NAMES && (name = oq_os_list_next(l)) != NULL;) {
        const char *copy = name[0] != '.' ? oq_arena_strdup(a, name, strlen(name)) : NULL;
        if (copy != NULL)
            (void)OQ_PUSH(a, out, copy);
    }
    oq_os_list_close(l);
    if (out->n > 1)
        qsort(out->v, out->n, sizeof *out->v, oq_by_text);
}

/* Begins with what stands before the last dot of `wanted`, and ends as it does. */
static bool extends(oq_str wanted, oq_str name) {
    size_t stem = wanted.n;
    while (stem > 0 && wanted.p[stem - 1] != '.')
        stem--;
    if (stem < 2)
        return false;
    const oq_str begin = {wanted.p, stem - 1}, end = {wanted.p + stem - 1, wanted.n - stem + 1};
    return oq_str_starts(name, begin) && oq_str_ends(name, end);
}

void oq_near_path_text(oq_arena *a, const char *path, char *out, size_t out_size) {
    const size_t head = (size_t)(oq_path_last(path) - path);
    const oq_str wanted = oq_str_of(path + head);
    const char *prefix = oq_arena_strdup(a, path, head);
    oq_nearest near;
    names all = {0};
    out[0] = '\0';
    if (prefix == NULL || wanted.n == 0)
        return;
    list(a, head > 0 ? prefix : ".", &all);
    oq_nearest_init(&near, wanted);
    for (size_t i = 0; i < all.n; i++)
        oq_nearest_offer(&near, oq_str_of(all.v[i]));
    const bool found = near.n > 0;
    for (size_t i = 0; i < all.n && !found && near.n < OQ_COUNT(near.best); i++)
        if (extends(wanted, oq_str_of(all.v[i])))
            near.best[near.n++] = oq_str_of(all.v[i]);
    oq_nearest_text(&near, prefix, out, out_size);
}
