/*
 * auto_show.c — what text and JSON of the answer have in common, and the commands that make it again.
 */
#include "api/auto/auto_job.h"

#include "base/system/file.h"

/* ---- facts ---- */

oq_metric oq_auto_shown(const oq_auto *a) {
    return a->tune.targets.n > 0 ? a->tune.targets.v[0].metric : OQ_METRIC_SQNR;
}

oq_grade oq_auto_grade(const oq_score *s) {
    return oq_grade_of_language(oq_score_of(s, OQ_METRIC_KL),
                                oq_score_of(s, OQ_METRIC_AGREEMENT) / 100);
}

/* What the targets are about, by the name of the metric: figures, and what other samples keep, for
 * which float needs no samples. */
const char *oq_auto_reason(const oq_auto *a, const oq_candidate *c) {
    const char *text = c->why_not, *end = NULL;
    if (a->folder != NULL && oq_str_starts(oq_str_of(text), oq_str_of(a->folder)))
        end = strstr(text, ".onnx: ");
    return end != NULL ? end + strlen(".onnx: ") : text;
}

const oq_candidate *oq_auto_point(const oq_auto *a, const oq_candidate *c) {
    const char *ways = oq_recipe_get(&c->recipe, "node_methods");
    for (size_t i = 0; ways != NULL && i < a->tune.all.n; i++) {
        const oq_candidate *p = a->tune.all.v[i];
        const char *same = oq_recipe_get(&p->recipe, "node_methods");
        if (p->floats.n > 0 && same != NULL && strcmp(ways, same) == 0)
            return p;
    }
    return NULL;
}

double oq_auto_prefill_speed(const oq_auto *a, const oq_candidate *c) {
    return 1e3 * (double)a->choose.decoding.length / c->prefill_ms;
}

bool oq_auto_had_no_turn(const oq_auto *a, oq_way way) {
    return (a->tune.missed & ~a->tune.turned) & 1U << way;
}

static const char *input_path(const oq_auto *a) {
    return oq_job_input(a->job);
}

static const char *output_path(const oq_auto *a) {
    return oq_opt_str(a->job->opts, "output");
}

/* ---- commands ---- */

/* Where a model on the way goes: next to the result. NULL when out of memory. */
static const char *path_on_the_way(const oq_auto *a, const char *what) {
    static const char ending[] = ".onnx";
    oq_str path = oq_str_of(output_path(a));
    (void)oq_str_cut_end(&path, ending);
    return oq_str_format(&a->job->arena, "%.*s.%s%s", (int)path.n, path.p, what, ending).p;
}

/* The commands of a recipe, one a line; the last line is not ended. */
static void add_commands(const oq_auto *a, const oq_recipe *r, const char *output, oq_buf *out) {
    const char *input = r->after == NULL     ? input_path(a)
                        : r->after->prepares ? path_on_the_way(a, "prepared")
                                             : path_on_the_way(a, "quantized");
    if (input == NULL) {
        out->failed = true;
        return;
    }
    if (r->after != NULL) {
        add_commands(a, r->after, input, out);
        oq_buf_addc(out, '\n');
    }
    oq_recipe_text(r, input, output, out);
}

static void add_copy(const oq_auto *a, oq_buf *out, const char *from, const char *to) {
    const bool rewritten = oq_opt_is_set(a->job->opts, "for_runtime");
    oq_buf_adds(out, rewritten ? "onq convert -i " : "cp ");
    oq_buf_add_exact_word(out, oq_str_of(from));
    oq_buf_adds(out, rewritten ? " -o " : " ");
    oq_buf_add_exact_word(out, oq_str_of(to));
}

void oq_auto_commands(const oq_auto *a, const oq_candidate *c, oq_buf *out) {
    const bool copied = c->recipe.command == NULL || c == a->tune.rival_found;
    if (copied)
        add_copy(a, out, c == a->tune.rival_found ? a->tune.rival : input_path(a), output_path(a));
    else
        add_commands(a, &c->recipe, output_path(a), out);
    if (!copied && oq_opt_flag(a->job->opts, "use_external_data_format"))
        oq_buf_adds(out, " --use_external_data_format");
    if (oq_opt_is_set(a->job->opts, "for_runtime"))
        oq_buf_addf(out, " --for_runtime %s", oq_opt_str(a->job->opts, "for_runtime"));
    oq_buf_addc(out, '\n');
}

onq_code oq_auto_write_recipe(const oq_auto *a, const char *path, onq_error *err) {
    oq_buf text;
    oq_buf_init(&text, &a->job->env->alloc);
    oq_auto_commands(a, a->chosen, &text);
    const onq_code rc =
        text.failed ? oq_fail_nomem(err) : oq_out_text(&a->job->env->alloc, path, &text, err);
    oq_buf_release(&text);
    return rc;
}
