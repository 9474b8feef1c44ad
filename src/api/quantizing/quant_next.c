/*
 * quant_next.c — commands that may follow a quantization, in words that work as they are printed:
 * with the samples and the runtime of this job.
 */
#include "api/quantizing/quantization.h"

#include "base/system/file.h"
#include "samples/language.h"

/* Another command can read both models: each is in a file, and they are two. */
static bool are_files(const oq_quant *q) {
    const onq_options *o = q->job->opts;
    const char *in = oq_job_input(q->job), *out = oq_opt_str(o, "output");
    return !oq_opt_flag(o, "dry_run") && out != NULL && oq_opt_bytes_of(o, in) == NULL &&
           !oq_opt_is_wanted(o, out) && !oq_file_is_same(in, out);
}

/* Where the samples of this job can be read again; "": nowhere. */
static oq_str data_word(const oq_quant *q) {
    const onq_options *o = q->job->opts;
    const char *said = oq_opt_has(o, "data") ? oq_opt_str(o, "data") : NULL;
    if (q->record.generated || oq_opt_reader(o) != NULL || (said != NULL && strcmp(said, "-") == 0))
        return OQ_S("");
    return said != NULL ? oq_str_of(said) : oq_path_folder(oq_job_input(q->job));
}

static void add_option(oq_buf *b, const char *name, oq_str value) {
    oq_buf_addf(b, " --%s ", name);
    oq_buf_add_word(b, value);
}

/* A name that begins with a dash would be read as an option. */
static void add_path(oq_buf *b, const char *path) {
    oq_buf_adds(b, path[0] == '-' ? " ./" : " ");
    oq_buf_add_word(b, oq_str_of(path));
}

/* Options of the group that were given; with `only`, that one. */
static void add_given(const oq_quant *q, const oq_opt_group *g, const char *only, oq_buf *b) {
    for (size_t i = 0; i < g->n; i++) {
        const char *name = g->rows[i].name, *text;
        /* --data is written already, and auto holds samples out itself. */
        const bool wanted = only != NULL
                                ? strcmp(name, only) == 0
                                : strcmp(name, "data") != 0 && strcmp(name, "hold_out") != 0;
        if (!wanted || !oq_opt_has(q->job->opts, name) || !oq_opt_is_set(q->job->opts, name))
            continue;
        const oq_opt_value *v = oq_opt_get(q->job->opts, name);
        for (size_t k = 0; (text = oq_opt_text(&q->job->arena, v, k)) != NULL; k++)
            add_option(b, name, oq_str_of(text));
    }
}

/* The samples as this job took them; where there are none, what `otherwise` makes, or none. */
static void add_samples(const oq_quant *q, const char *otherwise, oq_buf *b) {
    const oq_str data = data_word(q);
    if (data.n == 0 && otherwise == NULL)
        return;
    add_option(b, "data", data.n > 0 ? data : oq_str_of(otherwise));
    add_given(q, &oq_group_data, data.n > 0 ? NULL : "dim", b);
}

bool oq_quant_decodes(const oq_quant *q) {
    const oq_roles *r = q->record.roles;
    return r != NULL && r->language.is && r->carry.n > 0;
}

bool oq_quant_add_next(const oq_quant *q, oq_quant_next which, oq_buf *b) {
    const char *in = oq_job_input(q->job), *out = oq_opt_str(q->job->opts, "output");
    if (!are_files(q) || (which == OQ_NEXT_AUTO && data_word(q).n == 0))
        return false;
    switch (which) {
    case OQ_NEXT_AUTO:
        oq_buf_adds(b, "onq auto -i");
        add_path(b, in);
        oq_buf_adds(b, " -o");
        add_path(b, out);
        add_samples(q, NULL, b);
        break;
    case OQ_NEXT_DEBUG:
        oq_buf_adds(b, "onq debug --float_model");
        add_path(b, in);
        oq_buf_adds(b, " --qdq_model");
        add_path(b, out);
        add_samples(q, NULL, b);
        break;
    case OQ_NEXT_BENCH:
        oq_buf_adds(b, "onq bench");
        add_path(b, in);
        add_path(b, out);
        add_samples(q, "random:8", b);
        if (oq_quant_decodes(q) && data_word(q).n > 0)
            oq_buf_adds(b, " --decode");
        break;
    case OQ_NEXT_END:
        return false;
    }
    add_given(q, &oq_group_input, "data_root", b);
    add_given(q, &oq_group_runtime, NULL, b);
    return true;
}
