/*
 * rewriting.c — the words of `--rewrite`, and what is said of it.
 */
#include "api/quantizing/rewriting.h"

onq_code oq_rewriting_sets(const oq_job *job, unsigned *sets, onq_error *err) {
    size_t n = 0;
    const oq_str *words = oq_opt_list(job->opts, "rewrite", &n);
    *sets = 0;
    for (size_t i = 0; i < n; i++) {
        unsigned set;
        if (!oq_rewrite_word(words[i], &set))
            return oq_fail(err, ONQ_E_OPTION,
                           "--rewrite: '%.*s' is not all, none, constants, hardswish, fastgelu, "
                           "onehot or conv1d",
                           OQ_STR(words[i]));
        *sets |= set;
    }
    return ONQ_OK;
}

void oq_rewriting_tell(oq_job *job, const oq_rewrite_report *r) {
    for (int i = 0; i < OQ_REWRITE_ROW_COUNT; i++) {
        const char *what = oq_rewrite_what((oq_rewrite_id)i);
        if (r->counts[i] == 0)
            continue;
        oq_jw_begin_object(&job->json, NULL);
        oq_jw_cstr(&job->json, "what", what);
        oq_jw_uint(&job->json, "count", r->counts[i]);
        oq_jw_end_object(&job->json);
        oq_info(job->env, "%zu times: %s", r->counts[i], what);
    }
}
