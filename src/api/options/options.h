/*
 * options.h — the option tables and the values set through them.
 *
 * A command's options are groups of rows (onq_option_info, the public struct, filled by the macros
 * below). The rows feed everything: parsing, --help, man pages, completion and every binding. An
 * onq_options holds one value per row, already typed: text is parsed when it is set, so that a job
 * reads values that fit. All errors here are ONQ_E_OPTION.
 */
#pragma once

#include "base/env.h"
#include "base/str.h"
#include "base/text/nearest.h"
#include "base/vec.h"

/* ---- rows: what an option is ---- */

/* clang-format off */
#define OQ_BOOL(name, letter, aliases, fallback, help) \
    {name, aliases, letter, ONQ_OPT_FLAG, fallback, "", "", help}
#define OQ_FLAG(name, letter, aliases, help) OQ_BOOL(name, letter, aliases, "false", help)
#define OQ_FLAG_ON(name, letter, aliases, help) OQ_BOOL(name, letter, aliases, "true", help)
#define OQ_INT(name, letter, aliases, fallback, range, word, help) \
    {name, aliases, letter, ONQ_OPT_INT, fallback, range, word, help}
#define OQ_REAL(name, letter, aliases, fallback, range, word, help) \
    {name, aliases, letter, ONQ_OPT_REAL, fallback, range, word, help}
#define OQ_SIZE(name, letter, aliases, fallback, range, help) \
    {name, aliases, letter, ONQ_OPT_SIZE, fallback, range, "SIZE", help}
#define OQ_TEXT(name, letter, aliases, fallback, word, help) \
    {name, aliases, letter, ONQ_OPT_STRING, fallback, "", word, help}
#define OQ_PATH(name, letter, aliases, word, help) \
    {name, aliases, letter, ONQ_OPT_PATH, "", "", word, help}
#define OQ_ENUM(name, letter, aliases, fallback, choices, word, help) \
    {name, aliases, letter, ONQ_OPT_ENUM, fallback, choices, word, help}
#define OQ_LIST(name, letter, aliases, word, help) \
    {name, aliases, letter, ONQ_OPT_LIST, "", "", word, help}
#define OQ_PAIRS(name, letter, aliases, word, help) \
    {name, aliases, letter, ONQ_OPT_PAIRS, "", "", word, help}
/* clang-format on */

/* The choices of an OQ_ENUM row, from a list of ROW(text, value); `text` may have other spellings
 * after commas. */
#define OQ_CHOICES(LIST)            (&("" LIST(OQ_CHOICE_TEXT))[1])
#define OQ_CHOICE_TEXT(text, value) "|" text
/* The value that was chosen from the list, whose values are of `type`. */
#define OQ_CHOSEN(o, name, type, LIST)                                                             \
    (((const type[]){LIST(OQ_CHOICE_VALUE)})[oq_opt_enum(o, name)])
#define OQ_CHOICE_VALUE(text, value) value,

typedef struct oq_opt_group {
    const char *title; /* the heading in help; "": not shown, for the command has no use for it */
    const onq_option_info *rows;
    size_t n;
} oq_opt_group;
#define OQ_GROUP(title, rows)                                                                      \
    { title, rows, OQ_COUNT(rows) }

/* Groups that several commands have (option_groups.c). */
extern const oq_opt_group oq_group_general;      /* quiet verbose json threads help */
extern const oq_opt_group oq_group_verify;       /* verify no_verify check target */
extern const oq_opt_group oq_group_input;        /* input data_root */
extern const oq_opt_group oq_group_output;       /* output use_external_data_format for_runtime */
extern const oq_opt_group oq_group_data;         /* data limit dim image_* */
extern const oq_opt_group oq_group_resources;    /* memory jobs fast, of a calibration */
extern const oq_opt_group oq_group_jobs;         /* memory jobs, of other runs */
extern const oq_opt_group oq_group_runtime;      /* onnxruntime provider custom_ops isolate... */
extern const oq_opt_group oq_group_runtime_rest; /* without onnxruntime */
extern const oq_opt_group oq_group_plan;         /* plan dry_run from_plan */
extern const oq_opt_group oq_group_select;       /* op_types_to_quantize nodes_to_* strict */
extern const oq_opt_group oq_group_rewrite;      /* rewrite */
extern const oq_opt_group oq_group_extra;        /* extra */
/* Every command takes the options of `general` and `verify`. For those that have no use for some of
 * them: general without threads; groups that are accepted and not shown; --verify alone. */
extern const oq_opt_group oq_group_general_one_thread, oq_group_threads_idle;
extern const oq_opt_group oq_group_verify_idle;
extern const oq_opt_group oq_group_verify_only, oq_group_verify_rest_idle;

/* ---- values ---- */

typedef struct oq_opt_value {
    const onq_option_info *row;
    bool is_set;  /* by the caller; otherwise this is the default */
    bool is_none; /* --extra KEY=none */
    bool pinned;  /* by --extra, which wins over the option's own name */
    bool flag;
    int64_t i;   /* INT; ENUM: which of the choices, from 0 */
    double real; /* REAL; INT too */
    uint64_t size;
    oq_str text;         /* STRING, PATH; ENUM: the choice as the table spells it. NUL-terminated */
    OQ_VEC(oq_str) list; /* LIST, PAIRS. Each NUL-terminated */
} oq_opt_value;

struct oq_command;

/* What the jobs of one search (`onq auto`) have in common, beside their options: work that one of
 * them did and others need not do again. All zero for a job that a user starts. */
typedef struct oq_shared {
    struct oq_tape *tape;               /* the samples, in place of --data */
    struct oq_job_steps *steps;         /* the same as steps of sequences, if they are */
    struct oq_channel_memory *channels; /* what was found about the channels of the model */
    struct oq_extent_memory *extents;   /* of tensors of the model, as it is given */
    struct oq_mean_memory *means;       /* of layers of the float model, as it is given */
    struct oq_learn_memory *learned;    /* integers of its weights, if it stays as it is */
    bool own_cache; /* --calibration_cache has the ranges of the model that the options make */
    bool bounds;    /* of --calibration_cache nobody reads more than the ends of the ranges */
    const char *unchanged;   /* a file with the minmax ranges of the model before its channels are
                            * scaled, where others follow from those of channels; or NULL */
    const uint64_t *numbers; /* only these samples calibrate; NULL: all that the options say */
    size_t n_numbers;
} oq_shared;

struct onq_options {
    onq_env *env;
    const struct oq_command *command;
    oq_arena arena;
    oq_opt_value *values; /* one per row, in order; one more that unknown names read */
    size_t n_values;
    OQ_VEC(oq_opt_value) extras; /* keys of --extra that set no option of this command */
    OQ_VEC(oq_str) operands;
    OQ_VEC(onq_bytes) given;     /* models in memory; a label is the value of the option */
    OQ_VEC(const char *) wanted; /* labels of outputs that stay in memory */
    onq_reader reader;
    const onq_ranges *ranges; /* in place of samples; or NULL */
    oq_shared shared;         /* with other jobs of a search */
    const char *reader_label; /* what --data is while the reader gives the samples; NULL: none */
};

/* Options of a command that need not be in the table. */
onq_code oq_options_make(onq_env *env, const struct oq_command *c, onq_options **out,
                         onq_error *err);
/* The same values in a set of their own; `o` must live as long. onq_options_free frees it. */
onq_code oq_options_copy(const onq_options *o, onq_options **out, onq_error *err);
/* Parses `text` by the row into *v; the strings go to the arena. Lists and pairs append. */
onq_code oq_opt_parse(oq_arena *a, const onq_option_info *row, const char *text, oq_opt_value *v,
                      onq_error *err);
/* What the text of a list or of its file begins with; a name that does so has a backslash before
 * it. */
#define OQ_OPT_BEGINS "@[({"
/* Appends the items of a list, or of a map as "key:number", written as in JSON or Python.
 * ONQ_E_CONFIG says why the text is none; *v is unchanged then. */
onq_code oq_opt_items(oq_arena *a, const char *text, bool map, oq_opt_value *v, onq_error *err);
/* Does `given` spell this row: name, alias, or its letter; - and _ alike. */
bool oq_opt_row_is(const onq_option_info *row, const char *given);
/* Same text, any case, - and _ alike. */
bool oq_opt_same(oq_str a, oq_str b);

/* What a job reads. `name` is the canonical name and must be one of the command's rows: a job that
 * reads another one fails with ONQ_E_INTERNAL in the end (an assert stops at once). */
const oq_opt_value *oq_opt_get(const onq_options *o, const char *name);
bool oq_opt_has(const onq_options *o, const char *name); /* true if it is a row of this command */
bool oq_options_misread(const onq_options *o);           /* true if another name was read */
bool oq_opt_is_set(const onq_options *o, const char *name);
bool oq_opt_is_none(const onq_options *o, const char *name);
bool oq_opt_flag(const onq_options *o, const char *name);
int64_t oq_opt_int(const onq_options *o, const char *name);
double oq_opt_real(const onq_options *o, const char *name);
uint64_t oq_opt_size(const onq_options *o, const char *name);
/* Number of the choice, from 0, in the order of the row's `choices`; see OQ_CHOSEN. */
int oq_opt_enum(const onq_options *o, const char *name);
/* NULL when neither set nor given a default. */
const char *oq_opt_str(const onq_options *o, const char *name);
/* The texts of a list or pairs; *n may be 0. */
const oq_str *oq_opt_list(const onq_options *o, const char *name, size_t *n);
/* Splits "key=value" or "key:value" at the first of these; false if there is none. */
bool oq_opt_split(oq_str item, oq_str *key, oq_str *value);
/* A list read as a map of integers, however it was written: `MatMul 1`, `MatMul:1,Gemm:1`,
 * `MatMul=1`. Keys and values go to the arena; the last of equal keys wins. */
typedef struct oq_opt_axis {
    oq_str key;
    int64_t value;
} oq_opt_axis;
onq_code oq_opt_axes(const onq_options *o, const char *name, oq_arena *a, oq_opt_axis **out,
                     size_t *n, onq_error *err);
/* The value of `name` (aliases too), or ONQ_E_OPTION with the nearest known one. */
onq_code oq_opt_value_find(const onq_options *o, const char *name, oq_opt_value **out,
                           onq_error *err);
/* Text i of a value, which onq_options_set would take; NULL past the last, or out of memory. */
const char *oq_opt_text(oq_arena *a, const oq_opt_value *v, size_t i);
size_t oq_opt_operand_count(const onq_options *o);
/* NULL past the end. */
const char *oq_opt_operand(const onq_options *o, size_t i);

/* ---- files in memory ---- */

/* `path` is what oq_opt_str or oq_opt_operand gave. Its bytes, when the caller gave them; else
 * NULL. */
const onq_bytes *oq_opt_bytes_of(const onq_options *o, const char *path);
/* True if that output is to stay in memory. */
bool oq_opt_is_wanted(const onq_options *o, const char *path);
/* The reader that stands for --data, or NULL. */
const onq_reader *oq_opt_reader(const onq_options *o);

/* ---- --extra KEY=VALUE: the keys of the reference's extra_options (extra.def) ---- */

/* Sets one; a key that corresponds to an option of the command sets (and pins) that option. */
onq_code oq_extra_set(onq_options *o, const char *pair, onq_error *err);
/* The value of a key that sets no option of the command; NULL when not set. is_none says `none`. */
const oq_opt_value *oq_extra_find(const onq_options *o, const char *key);
/* The value of a flag among them, or the fallback when not set or none. */
bool oq_extra_flag(const onq_options *o, const char *key, bool fallback);
/* Warns about each key set that the command has no use for. */
void oq_extra_warn_unused(const onq_options *o);
