/*
 * command.c — the command table, and what is checked before a job begins.
 */
#include "api/options/command.h"

static const oq_command *const commands[] = {
#define OQ_COMMAND(name) &oq_command_##name,
#include "api/options/command.def"
#undef OQ_COMMAND
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
    for (size_t g = 0; c != NULL && g < OQ_OPT_GROUPS && c->groups[g] != NULL; g++)
        n += c->groups[g]->n;
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

/* Cuts the next of `marks` words off a list; false at its end. */
static bool next_name(const char **list, const char *marks, char name[64]) {
    const char *p = *list + strspn(*list, marks);
    const size_t n = strcspn(p, marks);
    assert(n < 64);
    if (n == 0)
        return false;
    snprintf(name, 64, "%.*s", (int)n, p);
    *list = p + n;
    return true;
}

static const onq_option_info *find_row(const oq_command *c, const char *name) {
    const onq_option_info *row = NULL;
    for (size_t i = 0; (row = oq_command_row(c, i, NULL)) != NULL; i++)
        if (strcmp(row->name, name) == 0)
            break;
    return row;
}

static const onq_option_info *required_at(const oq_command *c, size_t i) {
    const char *list = c->required != NULL ? c->required : "";
    char names[64], name[64];
    while (next_name(&list, " ", names))
        if (i-- == 0) {
            const char *first = names;
            return next_name(&first, "|", name) ? find_row(c, name) : NULL;
        }
    return NULL;
}

const onq_option_info *onq_required_at(const char *command, size_t i) {
    const oq_command *c = oq_command_find(command);
    return c != NULL ? required_at(c, i) : NULL;
}

static const struct {
    const char *command;
    onq_example example;
} examples[] = {
#define OQ_EXAMPLE(command, text, line) {#command, {text, line}},
#include "api/options/example.def"
#undef OQ_EXAMPLE
};

const onq_example *onq_example_at(const char *command, size_t i) {
    for (size_t k = 0; k < OQ_COUNT(examples); k++)
        if (strcmp(examples[k].command, command) == 0 && i-- == 0)
            return &examples[k].example;
    return NULL;
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
        if (oq_str_contains((oq_str){p, n}, OQ_S("...")))
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
    assert(least <= most);
    size_t n = oq_opt_operand_count(o);
    const size_t as_option = takes_input(o) && oq_opt_is_set(o, "input") ? 1 : 0;
    if (n + as_option < least)
        return oq_fail(err, ONQ_E_OPTION, "'%s' needs %s", o->command->info.name,
                       o->command->info.operands);
    if (n + as_option > most) {
        const bool option = oq_opt_has(o, "input") && most == 0;
        return oq_fail(err, ONQ_E_OPTION, "unexpected argument '%.200s'%s%s%s",
                       oq_opt_operand(o, most - as_option),
                       option ? " (models are given with --" : "",
                       option ? (oq_opt_has(o, "qdq_model") ? "float_model and --qdq_model"
                                 : oq_opt_has(o, "output")  ? "input and --output"
                                                            : "input")
                              : "",
                       option ? ")" : "");
    }
    return ONQ_OK;
}

static bool is_given(const onq_options *o, const char *name) {
    const oq_opt_value *v = oq_opt_get(o, name);
    return v->row->type == ONQ_OPT_FLAG ? v->flag : v->is_set;
}

static onq_code check_required(const onq_options *o, onq_error *err) {
    const oq_command *c = o->command;
    const char *list = c->required != NULL ? c->required : "";
    char names[64], name[64];
    for (size_t i = 0; next_name(&list, " ", names); i++) {
        const char *rest = names;
        bool given = false;
        while (next_name(&rest, "|", name))
            given |= is_given(o, name);
        const onq_option_info *row = given ? NULL : required_at(c, i);
        if (row != NULL)
            return oq_fail(err, ONQ_E_OPTION, "'%s' needs --%s %s", c->info.name, row->name,
                           row->word);
    }
    return ONQ_OK;
}

static onq_code check_verify(const onq_options *o, onq_error *err) {
    return oq_opt_flag(o, "verify") && oq_opt_flag(o, "no_verify")
               ? oq_fail(err, ONQ_E_OPTION, "--verify and --no_verify cannot be used together")
               : ONQ_OK;
}

onq_code oq_command_check(const onq_options *o, onq_error *err) {
    OQ_TRY(check_operands(o, err));
    OQ_TRY(check_required(o, err));
    return check_verify(o, err);
}
