/*
 * ort_query.c — what the runtime says of itself.
 */
#include "engine/ort.h"
#include "engine/ort_api.h"

static void list_providers(const oq_ort_api *api, char *text, size_t cap) {
    char **names = NULL;
    int n = 0;
    size_t used = 0;
    OrtStatus *s = api->GetAvailableProviders(&names, &n);
    for (int i = 0; s == NULL && i < n && used < cap; i++)
        used += (size_t)snprintf(text + used, cap - used, "%s%s", i > 0 ? "," : "", names[i]);
    if (s == NULL)
        s = api->ReleaseAvailableProviders(names, n);
    if (s != NULL)
        api->ReleaseStatus(s);
}

onq_code oq_ort_query(onq_env *env, const char *path, onq_runtime_info *out, onq_error *err) {
    oq_ort_api api = {0};
    OQ_SCRATCH(arena, &env->alloc);
    const onq_code rc = oq_ort_load(&arena, path, &api, err);
    if (rc == ONQ_OK) {
        snprintf(out->version, sizeof out->version, "%s", api.version);
        snprintf(out->path, sizeof out->path, "%s", api.path);
        list_providers(&api, out->providers, sizeof out->providers);
    }
    return rc;
}
