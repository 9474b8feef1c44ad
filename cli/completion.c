/*
 * completion.c — completion for bash, zsh and fish, from the tables: `onq --completion SHELL`.
 *
 * The scripts hold commands, options, choices and keys. For the nodes and operators of the model on
 * the line and for the runtime's providers they ask `onq --complete` (complete.c). Names typed with -
 * are completed too (bash, zsh), since - and _ are both accepted.
 */
#include "pages.h"

#include <string.h>

/* Calls fn with each spelling: the name, then the aliases. */
static void each_name(FILE *f, const onq_option_info *o, void (*fn)(FILE *, const char *, size_t)) {
    fn(f, o->name, strlen(o->name));
    for (const char *p = o->aliases; *p != '\0';) {
        const size_t n = strcspn(p, " ");
        fn(f, p, n);
        p += n;
        p += strspn(p, " ");
    }
}

static void choices(FILE *f, const onq_option_info *o) {
    char choice[64];
    for (size_t i = 0; option_choice(o, i, choice, sizeof choice); i++)
        fprintf(f, "%s%s", i > 0 ? " " : "", choice);
}

static void extra_keys(FILE *f, const char *command) {
    const onq_option_info *key;
    for (size_t i = 0; (key = onq_extra_at(command, i)) != NULL; i++)
        fprintf(f, "%s%s=", i > 0 ? " " : "", key->name);
}

/* Options that the command takes without a use for them are not offered. */
static bool is_offered(const char *command, size_t i) {
    return onq_option_group(command, i)[0] != '\0';
}

static bool takes_value(const onq_option_info *o) {
    return o->type != ONQ_OPT_FLAG && o->word[0] != '[';
}

/* A text inside single quotes of a shell; `also` is escaped with a backslash (for zsh's specs). */
static void quoted(FILE *f, const char *text, const char *also) {
    for (; *text != '\0'; text++)
        if (*text == '\'')
            fputs("'\\''", f);
        else if (strchr(also, *text) != NULL)
            fprintf(f, "\\%c", *text);
        else
            fputc(*text, f);
}

/* ---- bash ---- */

static void bash_pattern(FILE *f, const char *name, size_t n) {
    fprintf(f, "|--%.*s", (int)n, name);
}

/* What may follow each option: $words, or a $kind. */
static void bash_values(FILE *f, const char *command) {
    for (size_t i = 0; i < onq_option_count(command); i++) {
        const onq_option_info *o = onq_option_at(command, i);
        if (!takes_value(o))
            continue;
        /* The letter, or "--", which ends the options and so stands before no value. */
        fprintf(f, "        -%c", o->letter != 0 ? o->letter : '-');
        each_name(f, o, bash_pattern);
        if (o->type == ONQ_OPT_ENUM) {
            fputs(") words='", f);
            choices(f, o);
            fputs("' ;;\n", f);
        } else if (o->type == ONQ_OPT_PAIRS && onq_extra_at(command, 0) != NULL) {
            fputs(") kind=key words='", f);
            extra_keys(f, command);
            fputs("' ;;\n", f);
        } else if (complete_kind(o) != NULL) {
            fprintf(f, ") kind=%s ;;\n", complete_kind(o));
        } else {
            const bool file = o->type == ONQ_OPT_PATH || o->type == ONQ_OPT_LIST;
            fprintf(f, ") kind=%s ;;\n", file ? "file" : "text");
        }
    }
}

/* A list may be several words: its option is some words before the one that is typed. */
static void bash_lists(FILE *f) {
    fputs("    if [ -z \"$words$kind\" ]; then\n"
          "        local i=$((COMP_CWORD - 1))\n"
          "        while [ \"$i\" -gt 1 ] && [[ ${COMP_WORDS[i]} != -* ]]; do i=$((i - 1)); done\n"
          "        local list=${COMP_WORDS[i]#--}\n"
          "        case ${list//-/_} in\n",
          f);
    static const char *const kinds[] = {"nodes", "types", "groups"};
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        fputs("        none", f);
        for (size_t c = 0; c < onq_command_count(); c++)
            for (size_t i = 0; i < onq_option_count(onq_command_at(c)->name); i++) {
                const onq_option_info *o = onq_option_at(onq_command_at(c)->name, i);
                const char *kind = complete_kind(o);
                if (kind != NULL && strcmp(kind, kinds[k]) == 0)
                    fprintf(f, "|%s", o->name);
            }
        fprintf(f, ") kind=%s ;;\n", kinds[k]);
    }
    fputs("        esac\n"
          "    fi\n",
          f);
}

static void bash(FILE *f) {
    fputs("# Completion of onq for bash; made by onq --completion bash.\n"
          "# Names of the model on the line. They are data: none is expanded by the shell.\n"
          "_onq_names() {\n"
          "    local head= name\n"
          "    [[ $cur == *,* ]] && head=${cur%,*},\n"
          "    while IFS= read -r name; do\n"
          "        printf -v name %q \"$name\"\n"
          "        COMPREPLY+=(\"$head$name\")\n"
          "    done < <(\"${COMP_WORDS[0]}\" --complete \"$1\" \"${cur##*,}\" "
          "\"${COMP_WORDS[@]:1:COMP_CWORD-1}\" 2>/dev/null)\n"
          "}\n"
          "_onq() {\n"
          "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]}\n"
          "    local command=${COMP_WORDS[1]} words= kind= options=\n"
          "    COMPREPLY=()\n"
          "    # --name=value comes as three words\n"
          "    if [ \"$cur\" = '=' ]; then\n"
          "        cur=\n"
          "    elif [ \"$prev\" = '=' ]; then\n"
          "        prev=${COMP_WORDS[COMP_CWORD-2]}\n"
          "    fi\n"
          "    if [ \"$COMP_CWORD\" -le 1 ]; then\n"
          "        words='",
          f);
    for (size_t i = 0; i < onq_command_count(); i++)
        fprintf(f, "%s ", onq_command_at(i)->name);
    fputs("help --help --version --list-commands --man --markdown --completion'\n"
          "        COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n"
          "        return\n"
          "    fi\n"
          "    # - and _ are alike in names\n"
          "    local name=${prev#--}\n"
          "    [[ $prev == --* ]] && prev=--${name//-/_}\n"
          "    case $command in\n"
          "    help|--help|--man|--markdown) COMPREPLY=($(compgen -W '",
          f);
    for (size_t i = 0; i < onq_command_count(); i++)
        fprintf(f, "%s ", onq_command_at(i)->name);
    fputs("' -- \"$cur\")); return ;;\n"
          "    --completion) COMPREPLY=($(compgen -W 'bash zsh fish' -- \"$cur\")); return ;;\n",
          f);
    for (size_t c = 0; c < onq_command_count(); c++) {
        const char *name = onq_command_at(c)->name;
        fprintf(f, "    %s)\n        options='", name);
        for (size_t i = 0; i < onq_option_count(name); i++)
            if (is_offered(name, i))
                fprintf(f, "%s--%s", i > 0 ? " " : "", onq_option_at(name, i)->name);
        fputs("'\n        case $prev in\n", f);
        bash_values(f, name);
        fputs("        esac ;;\n", f);
    }
    fputs("    *) return ;;\n"
          "    esac\n",
          f);
    bash_lists(f);
    fputs("    if [ -n \"$words\" ]; then\n"
          "        COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n"
          "        [ \"$kind\" != key ] || compopt -o nospace 2>/dev/null\n"
          "    elif [[ $cur == -* ]]; then\n"
          "        [[ ${cur#--} == *-* ]] && options=${options//_/-}\n"
          "        COMPREPLY=($(compgen -W \"$options\" -- \"$cur\"))\n"
          "    elif [[ $kind =~ ^(nodes|types|groups|providers)$ ]]; then\n"
          "        _onq_names \"$kind\"\n"
          "    elif [ \"$kind\" = text ]; then\n"
          "        compopt +o default +o bashdefault 2>/dev/null\n"
          "    fi\n"
          "}\n"
          "complete -o bashdefault -o default -F _onq onq\n",
          f);
}

/* ---- zsh ---- */

static void zsh_option(FILE *f, const char *command, const onq_option_info *o) {
    const bool list = o->type == ONQ_OPT_LIST; /* may come again, and takes several words */
    fputs("            '", f);
    if (o->letter != 0 && list)
        fprintf(f, "*'{-%c,--%s}'", o->letter, o->name);
    else if (o->letter != 0)
        fprintf(f, "(-%c --%s)'{-%c,--%s}'", o->letter, o->name, o->letter, o->name);
    else
        fprintf(f, "%s--%s", list ? "*" : "", o->name);
    if (takes_value(o))
        fputs(o->letter != 0 ? "" : "=", f);
    fputc('[', f);
    quoted(f, o->help, "[]:\\");
    fputc(']', f);
    if (takes_value(o)) {
        fputs(list ? ":*-*:" : ":", f);
        quoted(f, o->word, "[]:\\");
        fputc(':', f);
        if (o->type == ONQ_OPT_ENUM) {
            fputc('(', f);
            choices(f, o);
            fputc(')', f);
        } else if (o->type == ONQ_OPT_PAIRS && onq_extra_at(command, 0) != NULL) {
            fputs("{compadd -S \"\" -- ", f);
            extra_keys(f, command);
            fputc('}', f);
        } else if (complete_kind(o) != NULL) {
            fprintf(f, "{_onq_names %s}", complete_kind(o));
        } else if (o->type == ONQ_OPT_PATH || o->type == ONQ_OPT_LIST) {
            fputs("_files", f);
        }
    }
    fputs("' \\\n", f);
}

static void zsh(FILE *f) {
    fputs("#compdef onq\n"
          "# Completion of onq for zsh; made by onq --completion zsh.\n"
          "_onq_names() {\n"
          "    local -a names\n"
          "    compset -P '*,'\n"
          "    names=(${(f)\"$($onq_program --complete $1 '' $words 2>/dev/null)\"})\n"
          "    (( $#names )) && compadd -a names\n"
          "}\n"
          "_onq() {\n"
          "    local -a commands\n"
          "    commands=(\n",
          f);
    for (size_t i = 0; i < onq_command_count(); i++) {
        const onq_command_info *c = onq_command_at(i);
        fprintf(f, "        '%s:", c->name);
        quoted(f, c->summary, ":\\");
        fputs("'\n", f);
    }
    fputs(
        "        'help:show the options of a command'\n"
        "    )\n"
        "    if (( CURRENT == 2 )); then\n"
        "        _describe -t commands command commands\n"
        "        _values 'option' --help --version --list-commands --man --markdown --completion\n"
        "        return\n"
        "    fi\n"
        "    local command=$words[2] onq_program=$words[1]\n"
        "    shift words\n"
        "    (( CURRENT-- ))\n"
        "    case $command in\n"
        "    help|--help|--man|--markdown) _describe -t commands command commands ;;\n"
        "    --completion) _values shell bash zsh fish ;;\n",
        f);
    for (size_t c = 0; c < onq_command_count(); c++) {
        const char *name = onq_command_at(c)->name;
        fprintf(f, "    %s)\n        _arguments -s -M 'm:{-_}={_-} r:|[_-]=* r:|=*' \\\n", name);
        for (size_t i = 0; i < onq_option_count(name); i++)
            if (is_offered(name, i))
                zsh_option(f, name, onq_option_at(name, i));
        fputs("            '*:file:_files' ;;\n", f);
    }
    fputs("    esac\n"
          "}\n"
          "if [ \"$funcstack[1]\" = _onq ]; then\n"
          "    _onq \"$@\"\n"
          "else\n"
          "    compdef _onq onq\n"
          "fi\n",
          f);
}

/* ---- fish ---- */

static void fish_name(FILE *f, const char *name, size_t n) {
    fprintf(f, " -l %.*s", (int)n, name);
}

static void fish(FILE *f) {
    fputs("# Completion of onq for fish; made by onq --completion fish.\n"
          "complete -c onq -e\n"
          "function __onq_names\n"
          "    set -l words (commandline -opc)\n"
          "    $words[1] --complete $argv[1] '' $words[2..] 2>/dev/null\n"
          "end\n",
          f);
    for (size_t i = 0; i < onq_command_count(); i++) {
        const onq_command_info *c = onq_command_at(i);
        fprintf(f, "complete -c onq -f -n __fish_use_subcommand -a %s -d '", c->name);
        quoted(f, c->summary, "");
        fputs("'\n", f);
    }
    fputs("complete -c onq -f -n __fish_use_subcommand -a help -d 'show the options of a command'\n"
          "complete -c onq -n __fish_use_subcommand -l help -s h\n"
          "complete -c onq -n __fish_use_subcommand -l version\n"
          "complete -c onq -n __fish_use_subcommand -l list-commands\n"
          "complete -c onq -n __fish_use_subcommand -l markdown\n"
          "complete -c onq -n __fish_use_subcommand -l man\n"
          "complete -c onq -x -n __fish_use_subcommand -l completion -a 'bash zsh fish'\n",
          f);
    for (size_t c = 0; c < onq_command_count(); c++) {
        const char *name = onq_command_at(c)->name;
        for (size_t i = 0; i < onq_option_count(name); i++) {
            const onq_option_info *o = onq_option_at(name, i);
            if (!is_offered(name, i))
                continue;
            fprintf(f, "complete -c onq -n '__fish_seen_subcommand_from %s'", name);
            each_name(f, o, fish_name);
            if (o->letter != 0)
                fprintf(f, " -s %c", o->letter);
            const char *kind = complete_kind(o);
            const bool file = o->type == ONQ_OPT_PATH || (o->type == ONQ_OPT_LIST && kind == NULL);
            if (takes_value(o))
                fputs(file ? " -r" : " -x", f);
            if (kind != NULL)
                fprintf(f, " -a '(__fish_complete_list , \"__onq_names %s\")'", kind);
            if (o->type == ONQ_OPT_PAIRS && onq_extra_at(name, 0) != NULL) {
                fputs(" -a '", f);
                extra_keys(f, name);
                fputc('\'', f);
            }
            if (o->type == ONQ_OPT_ENUM) {
                fputs(" -a '", f);
                choices(f, o);
                fputc('\'', f);
            }
            fputs(" -d '", f);
            quoted(f, o->help, "");
            fputs("'\n", f);
        }
    }
}

bool completion(FILE *f, const char *shell) {
    if (strcmp(shell, "bash") == 0)
        bash(f);
    else if (strcmp(shell, "zsh") == 0)
        zsh(f);
    else if (strcmp(shell, "fish") == 0)
        fish(f);
    else
        return false;
    return true;
}
