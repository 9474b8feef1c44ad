/*
 * plan_file.c — plans as files.
 */
#include "api/quantizing/plan_file.h"

/* True for an option about how the model is quantized. */
static bool decides(const oq_command *c, const oq_opt_value *v, const oq_opt_group *group) {
    if (!v->is_set || v->pinned || strcmp(v->row->name, "strict") == 0)
        return false;
    return group == c->decides[0] || group == c->decides[1] || group == &oq_group_select ||
           group == &oq_group_rewrite || group == &oq_group_extra ||
           strcmp(v->row->name, "use_external_data_format") == 0;
}

static void add_value(oq_jw *w, oq_arena *a, const oq_opt_value *v) {
    const char *name = v->row->name, *text = oq_opt_text(a, v, 0);
    if (v->row->type != ONQ_OPT_LIST && v->row->type != ONQ_OPT_PAIRS) {
        oq_jw_cstr(w, name, text != NULL ? text : "");
        return;
    }
    oq_jw_begin_array(w, name);
    for (size_t i = 1; text != NULL; i++) {
        oq_jw_cstr(w, NULL, text);
        text = oq_opt_text(a, v, i);
    }
    oq_jw_end_array(w);
}

onq_code oq_plan_file_write(oq_job *job, const oq_plan *plan, const char *format, onq_error *err) {
    assert(format != NULL && format[0] != '\0');
    const char *path = oq_opt_str(job->opts, "plan");
    const onq_options *o = job->opts;
    oq_jw w;
    if (path == NULL || path[0] == '\0')
        return ONQ_OK;
    OQ_SCRATCH(scratch, &job->env->alloc);
    OQ_SCRATCH_BUF(text, &job->env->alloc);
    oq_jw_init(&w, &text, true);
    oq_jw_begin_object(&w, NULL);
    oq_jw_cstr(&w, "model", oq_job_input(job));
    oq_jw_cstr(&w, "command", o->command->info.name);
    oq_jw_cstr(&w, "format", format);
    oq_jw_begin_object(&w, "options");
    for (size_t i = 0; i < o->n_values; i++) {
        const oq_opt_group *group = NULL;
        oq_command_row(o->command, i, &group);
        if (decides(o->command, &o->values[i], group))
            add_value(&w, &scratch, &o->values[i]);
    }
    oq_jw_end_object(&w);
    oq_plan_json(plan, &w);
    oq_jw_end_object(&w);
    oq_buf_addc(&text, '\n');
    return oq_job_save_text(job, "plan", &text, err);
}

/* Reads the plan, and into *options the job's options with those of the plan where the job has
 * none. */
static onq_code read_plan(oq_job *job, const char *path, onq_options **options, onq_error *err) {
    const char *command = job->opts->command->info.name;
    oq_given *g = OQ_NEW(&job->arena, oq_given);
    OQ_TRY_ALLOC(g != NULL, err);
    OQ_TRY(oq_given_read(g, &job->arena, &job->env->alloc, path, err));
    if (g->command.n > 0 && !oq_str_is(g->command, command))
        return oq_fail(err, ONQ_E_CONFIG, "%s: it is a plan of `onq %.*s`, not of `onq %s`", path,
                       OQ_STR(g->command), command);
    OQ_TRY(oq_options_copy(job->opts, options, err));
    for (size_t i = 0; i + 1 < g->options.n; i += 2) {
        const char *name = g->options.v[i].p;
        if (!oq_opt_has(job->opts, name))
            return oq_fail(err, ONQ_E_CONFIG, "%s: there is no option '%s'", path, name);
        if (!oq_opt_is_set(job->opts, name))
            OQ_TRY(onq_options_set(*options, name, g->options.v[i + 1].p, err));
    }
    job->given = g;
    return ONQ_OK;
}

onq_code oq_plan_file_run(oq_job *job, onq_error *err) {
    const onq_options *own = job->opts;
    const char *path = oq_opt_has(own, "from_plan") ? oq_opt_str(own, "from_plan") : NULL;
    onq_options *planned = NULL;
    if (path == NULL || path[0] == '\0')
        return own->command->run(job, err);
    onq_code rc = read_plan(job, path, &planned, err);
    if (rc == ONQ_OK) {
        job->opts = planned;
        rc = own->command->run(job, err);
    }
    job->opts = own;
    onq_options_free(planned);
    return rc;
}
