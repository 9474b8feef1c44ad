/*
 * command.h — commands: what they are called, which options they have, and the function that does
 * the job. `onq_run` (job.c) is the only caller.
 *
 * To add a command: one file and a few rows.
 *
 *   1. src/api/commands/api_hello.c:
 *
 *        #include "api/options/command.h"
 *
 *        static const onq_option_info rows[] = {
 *            OQ_INT("times", 'n', "repeat", "1", "1..100", "N", "Say it N times."),
 *            OQ_FLAG("loud", 0, "", "Say it in capitals."),
 *        };
 *        static const oq_opt_group own = OQ_GROUP("Greeting", rows);
 *
 *        static onq_code run_hello(oq_job *job, onq_error *err) {
 *            oq_model *m = NULL;
 *            OQ_TRY(oq_job_open(job, oq_job_input(job), &m, err));
 *            for (int64_t i = 0; i < oq_opt_int(job->opts, "times"); i++)
 *                oq_buf_addf(&job->text, "hello, %s\n", m->path);
 *            oq_jw_int(&job->json, "times", oq_opt_int(job->opts, "times"));
 *            oq_model_free(m);
 *            return ONQ_OK;
 *        }
 *
 *        const oq_command oq_command_hello = {
 *            .info = {"hello", "MODEL", "greet a model", "Longer text for the man page."},
 *            .groups = {&own, &oq_group_input, &oq_group_general, &oq_group_verify_idle},
 *            .run = run_hello,
 *        };
 *
 *   2. command.def: OQ_COMMAND(hello), where help should list it.
 *
 *   3. example.def: an example or two.
 *
 * The program, --help, the man page, shell completion, docs/CLI.md and the tests that loop over all
 * commands follow from the tables.
 *
 * To add an option: one row in the command's table, read with oq_opt_*. When several commands have
 * it, the row is in shared_rows.h and their tables name it. Names are written with underscores; a
 * row's default is text and goes through the same parser as what a user gives, so a wrong default
 * fails the unit test.
 */
#pragma once

#include "api/options/options.h"
#include "base/text/json.h"
#include "onnx/model.h"
#include "samples/tape.h"

/* What a run function works with. */
typedef struct oq_job {
    onq_env *env;
    const onq_options *opts;
    oq_arena arena;   /* scratch, released when the job ends */
    oq_buf text;      /* the result for a person; whole lines */
    oq_jw json;       /* the result as JSON: the top object is open, add keys */
    oq_buf json_text; /* (what `json` writes to) */
    int status;       /* 1 when the answer is "no" */
    bool told_of_images, told_of_random, told_of_samples, told_of_carry; /* said once of samples */
    bool samples_are_constant;  /* figures that they give say nothing */
    oq_tape *tape;              /* samples of a reader or a stream, once they were asked for */
    struct oq_job_steps *steps; /* samples as steps of sequences (api/sequences.c), or NULL */
    uint64_t begun, late;       /* texts of those that were closed; of these: they bring a past */
    onq_ranges *ranges;         /* what a calibration found, for the result; or NULL */
    struct oq_given *given;     /* the plan of --from_plan (quantize/plan_read.h); or NULL */
    oq_files files;             /* outputs that stay in memory */
    OQ_VEC(const char *) file_options; /* for each of them the option that asked for it */
} oq_job;

#define OQ_OPT_GROUPS 13

typedef struct oq_command {
    onq_command_info info;
    const char *required;   /* options it cannot do without, separated by spaces, or NULL; "a|b":
                             * the second does in place of the first, which usage shows */
    const char *extra_keys; /* keys of --extra it reads with oq_extra_find, separated by spaces, or
                             * NULL. Keys that set one of its options need not be named. */
    const oq_opt_group *groups[OQ_OPT_GROUPS]; /* in the order of help; NULL after the last */
    const oq_opt_group *decides[2]; /* groups of its own that say how a model is quantized */
    /* Does the job. An error leaves no output. Checks of options against each other come first and
     * fail with ONQ_E_OPTION. */
    onq_code (*run)(oq_job *job, onq_error *err);
} oq_command;

#define OQ_COMMAND(name) extern const oq_command oq_command_##name;
#include "api/options/command.def"
#undef OQ_COMMAND

/* NULL if no command has that name. */
const oq_command *oq_command_find(const char *name);
/* Row i over all groups, or NULL; *group (may be NULL) gets the row's group. */
const onq_option_info *oq_command_row(const oq_command *c, size_t i, const oq_opt_group **group);

/* Operands, required options and what excludes each other; ONQ_E_OPTION. */
onq_code oq_command_check(const onq_options *o, onq_error *err);

/* The model of a command with a MODEL operand: --input, or the first operand. Never NULL inside a
 * run function of a command that requires one of them. */
const char *oq_job_input(const oq_job *job);
/* Opens a model, from its file or the caller's memory, with the job's --data_root. The caller frees
 * it. */
onq_code oq_job_open(oq_job *job, const char *path, oq_model **out, onq_error *err);
/* The same for a model that is to be rewritten: checked, operands of known operators too, and nodes
 * put after what they read. The runtime takes them in any order; steps that rewrite them do not. */
onq_code oq_job_open_sound(oq_job *job, const char *path, oq_model **out, onq_error *err);
/* Gives nodes of one name, which ONNX Runtime refuses, names of their own, and warns of it. */
onq_code oq_job_name_apart(oq_job *job, oq_model *m, onq_error *err);
/* The code `rc` of a job whose model was opened. The model is named in its error unless that is
 * about another file. */
onq_code oq_job_blame(const oq_job *job, onq_code rc, onq_error *err);
/* Writes a model to where `option` says: a file, or memory of the result. *size (may be NULL) is
 * what it takes, external data included. */
onq_code oq_job_save(oq_job *job, const char *option, oq_model *m, const oq_save_options *o,
                     uint64_t *size, onq_error *err);
/* The same for a text. */
onq_code oq_job_save_text(oq_job *job, const char *option, const oq_buf *text, onq_error *err);
/* Counts files of the result, from the first new one, as `option`'s. */
onq_code oq_job_own_files(oq_job *job, const char *option, onq_error *err);
/* A path in the folder where temporary files of the job may lie: next to its output, next to its
 * input, or in the temporary folder. NULL when out of memory. */
const char *oq_job_near(oq_job *job);
