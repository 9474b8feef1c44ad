/*
 * command.c — the command table, and onq_run: checks, the job, its result.
 */
#include "api/command.h"

#include "api/outputs.h"

static const oq_command *const commands[] = {
#define OQ_COMMAND(name) &oq_command_##name,
#include "api/command.def"
#undef OQ_COMMAND
};

struct onq_result {
    onq_allocator alloc;
    oq_buf text, json;
    int status;
};

/* ---- the table ---- */

size_t onq_command_count(void) {
    return OQ_COUNT(commands);
}

const onq_command_info *onq_command_at(size_t i) {
    return i < OQ_COUNT(commands) ? &commands[i]->info : NULL;
}

const oq_command *oq_command_find(const char *name) {
    for (size_t i = 0; i < OQ_COUNT(commands); i++)
        if (strcmp(commands[i]->info.name, name) == 0)
            return commands[i];
    return NULL;
}

const onq_option_info *oq_command_row(const oq_command *c, size_t i, const oq_opt_group **group) {
    for (size_t g = 0; g < OQ_OPT_GROUPS && c->groups[g] != NULL; g++) {
        if (i < c->groups[g]->n) {
            if (group != NULL)
                *group = c->groups[g];
            return &c->groups[g]->rows[i];
        }
        i -= c->groups[g]->n;
    }
    return NULL;
}

size_t onq_option_count(const char *command) {
    const oq_command *c = oq_command_find(command);
    size_t n = 0;
    while (c != NULL && oq_command_row(c, n, NULL) != NULL)
        n++;
    return n;
}

const onq_option_info *onq_option_at(const char *command, size_t i) {
    const oq_command *c = oq_command_find(command);
    return c != NULL ? oq_command_row(c, i, NULL) : NULL;
}

const char *onq_option_group(const char *command, size_t i) {
    const oq_command *c = oq_command_find(command);
    const oq_opt_group *g = NULL;
    return c != NULL && oq_command_row(c, i, &g) != NULL ? g->title : NULL;
}

/* ---- checks before the job ---- */

/* How many operands the words of info.operands ask for: "A B", "MODEL [MODEL...]". */
static void operand_range(const char *words, size_t *least, size_t *most) {
    *least = *most = 0;
    for (const char *p = words; *p != '\0';) {
        const size_t n = strcspn(p, " ");
        if (p[0] != '[')
            ++*least;
        ++*most;
        if (memmem(p, n, "...", 3) != NULL)
            *most = SIZE_MAX / 2;
        p += n;
        p += strspn(p, " ");
    }
}

static bool takes_input(const onq_options *o) {
    return oq_str_starts(oq_str_of(o->command->info.operands), OQ_S("MODEL")) &&
           oq_opt_has(o, "input");
}

static onq_code check_operands(const onq_options *o, onq_error *err) {
    size_t least, most;
    operand_range(o->command->info.operands, &least, &most);
    size_t n = oq_opt_operand_count(o);
    const size_t as_option = takes_input(o) && oq_opt_is_set(o, "input") ? 1 : 0;
    if (n + as_option < least)
        return oq_fail(err, ONQ_E_OPTION, "'%s' needs %s", o->command->info.name,
                       o->command->info.operands);
    if (n + as_option > most) {
        const bool option = oq_opt_has(o, "input") && most == 0;
        return oq_fail(err, ONQ_E_OPTION, "unexpected argument '%.200s'%s",
                       oq_opt_operand(o, most - as_option),
                       option ? " (the model is given with --input)" : "");
    }
    return ONQ_OK;
}

static onq_code check_required(const onq_options *o, onq_error *err) {
    for (const char *p = o->command->required; p != NULL && *p != '\0';) {
        const size_t n = strcspn(p, " ");
        char name[64];
        if (n >= sizeof name)
            return oq_fail(err, ONQ_E_INTERNAL, "the table's required options");
        memcpy(name, p, n);
        name[n] = '\0';
        if (!oq_opt_is_set(o, name))
            return oq_fail(err, ONQ_E_OPTION, "'%s' needs --%s %s", o->command->info.name, name,
                           oq_opt_get(o, name)->row->word);
        p += n;
        p += strspn(p, " ");
    }
    return ONQ_OK;
}

static onq_code check_verify(const onq_options *o, onq_error *err) {
    return oq_opt_flag(o, "verify") && oq_opt_flag(o, "no_verify")
               ? oq_fail(err, ONQ_E_OPTION, "--verify and --no_verify cannot be used together")
               : ONQ_OK;
}

/* ---- jobs and results ---- */

const char *oq_job_input(const oq_job *job) {
    const char *path = oq_opt_has(job->opts, "input") ? oq_opt_str(job->opts, "input") : NULL;
    return path != NULL ? path : oq_opt_operand(job->opts, 0);
}

onq_code oq_job_open(oq_job *job, const char *path, oq_model **out, onq_error *err) {
    const oq_open_options open = {
        .data_root = oq_opt_has(job->opts, "data_root") ? oq_opt_str(job->opts, "data_root") : NULL,
    };
    return oq_model_open(job->env, path, &open, out, err);
}

static onq_code take_result(oq_job *job, onq_result **out, onq_error *err) {
    onq_result *r = oq_calloc(&job->env->alloc, 1, sizeof *r);
    if (r == NULL || job->text.failed || job->json_text.failed) {
        oq_free(&job->env->alloc, r, sizeof *r);
        return oq_fail_nomem(err);
    }
    r->alloc = job->env->alloc;
    r->text = job->text;
    r->json = job->json_text;
    r->text.alloc = r->json.alloc = &r->alloc;
    r->status = job->status;
    oq_buf_init(&job->text, &job->env->alloc);
    oq_buf_init(&job->json_text, &job->env->alloc);
    *out = r;
    return ONQ_OK;
}

onq_code onq_run(onq_env *env, const onq_options *opts, onq_result **out, onq_error *err) {
    *out = NULL;
    OQ_TRY(check_operands(opts, err));
    OQ_TRY(check_required(opts, err));
    OQ_TRY(check_verify(opts, err));
    OQ_TRY(oq_outputs_check(opts, &env->alloc, err));
    oq_extra_warn_unused(opts);

    oq_job job = {.env = env, .opts = opts};
    oq_arena_init(&job.arena, &env->alloc);
    oq_buf_init(&job.text, &env->alloc);
    oq_buf_init(&job.json_text, &env->alloc);
    oq_jw_init(&job.json, &job.json_text, true);
    const unsigned threads_before = env->n_threads;
    if (oq_opt_is_set(opts, "threads"))
        env->n_threads = (unsigned)oq_opt_int(opts, "threads");

    oq_jw_begin_object(&job.json, NULL);
    onq_code rc = opts->command->run(&job, err);
    if (rc == ONQ_OK && oq_options_misread(opts))
        rc = oq_fail(err, ONQ_E_INTERNAL, "%s read an option that it does not have",
                     opts->command->info.name);
    if (rc == ONQ_OK) {
        oq_jw_end_object(&job.json);
        oq_buf_addc(&job.json_text, '\n');
        rc = take_result(&job, out, err);
    }

    env->n_threads = threads_before;
    oq_buf_release(&job.text);
    oq_buf_release(&job.json_text);
    oq_arena_release(&job.arena);
    return rc;
}

void onq_result_free(onq_result *res) {
    if (res == NULL)
        return;
    const onq_allocator alloc = res->alloc;
    oq_buf_release(&res->text);
    oq_buf_release(&res->json);
    oq_free(&alloc, res, sizeof *res);
}

const char *onq_result_text(const onq_result *res) {
    return res->text.p != NULL ? res->text.p : "";
}

const char *onq_result_json(const onq_result *res) {
    return res->json.p != NULL ? res->json.p : "";
}

int onq_result_status(const onq_result *res) {
    return res->status;
}
