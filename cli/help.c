/*
 * help.c — `onq --help` and `onq COMMAND --help`, in 80 columns; and the text that all pages share.
 */
#include "pages.h"

#include "style.h"

#include <string.h>

#define WIDTH       79
#define HELP_COLUMN 30

const char *const pages_conventions =
    "In option names, - and _ are the same: --per-channel is --per_channel. A flag needs no value "
    "but may have one: --per_channel, --per_channel=true, --per_channel False. Values of "
    "enumerations may be written in any case, and as onnxruntime.quantization spells them "
    "(QuantType.QInt8).\n\nThe items of a list are separated by commas, or follow each other as "
    "words, or the option is repeated. A list may also be written as in JSON or Python ([\"Conv\", "
    "\"MatMul\"]). A comma inside a name is written \\,; @FILE reads a file with one name per "
    "line. A size is a number of bytes and may end in k, m, g or t. -- ends the "
    "options.\n\nResults go to standard output, messages to standard error. An output file appears "
    "whole or not at all; the same input and options give the same bytes, whatever the number of "
    "threads.\n";

const struct exit_status pages_statuses[] = {
    {"0", "Done.", NULL},
    {"1", "The job failed: a bad model, bad samples, no space left.", NULL},
    {"1", "The models differ (onq diff).", "diff"},
    {"2",
     "The command line is wrong: an unknown option or value, or options that cannot be used "
     "together.",
     NULL},
    {"130, 143",
     "Stopped by Ctrl-C or by a request to end (128 and the signal's number). Nothing was "
     "written.",
     NULL},
    {NULL, NULL, NULL},
};

bool status_of(const struct exit_status *s, const char *command) {
    return command == NULL || s->command == NULL || strcmp(s->command, command) == 0;
}

const onq_command_info *pages_command(const char *name) {
    for (size_t i = 0; i < onq_command_count(); i++)
        if (strcmp(onq_command_at(i)->name, name) == 0)
            return onq_command_at(i);
    return NULL;
}

bool paragraph_next(const char **text, struct paragraph *out) {
    const char *p = *text;
    while (*p == '\n')
        p++;
    if (*p == '\0')
        return false;
    const char *end = strstr(p, "\n\n");
    const size_t n = end != NULL ? (size_t)(end - p) : strlen(p);
    *out = (struct paragraph){p, n, p[0] == ' ' && p[1] == ' '};
    while (out->n > 0 && out->p[out->n - 1] == '\n')
        out->n--;
    *text = p + n;
    return true;
}

const onq_option_info *option_next(struct option_walk *w, const char *command,
                                   const char **heading) {
    for (const onq_option_info *o; (o = onq_option_at(command, w->i)) != NULL;) {
        const char *group = onq_option_group(command, w->i++);
        if (group[0] == '\0')
            continue;
        *heading = w->group == NULL || strcmp(group, w->group) != 0 ? group : NULL;
        w->group = group;
        return o;
    }
    return NULL;
}

bool option_choice(const onq_option_info *o, size_t i, char *b, size_t n) {
    const char *p = o->choices;
    for (; i > 0; i--) {
        p = strchr(p, '|');
        if (p == NULL)
            return false;
        p++;
    }
    if (*p == '\0')
        return false;
    snprintf(b, n, "%.*s", (int)strcspn(p, "|,"), p);
    return true;
}

void option_head(const onq_option_info *o, char *b, size_t n) {
    char letter[8] = "    ";
    if (o->letter != 0)
        snprintf(letter, sizeof letter, "-%c, ", o->letter);
    const bool many = o->type == ONQ_OPT_LIST;
    snprintf(b, n, "%s--%s%s%s%s", letter, o->name, o->word[0] != '\0' ? " " : "", o->word,
             many ? " ..." : "");
}

static size_t add(char *b, size_t n, size_t at, const char *before, const char *text) {
    if (at >= n)
        return at;
    const int k = snprintf(b + at, n - at, "%s%s", before, text);
    return k > 0 ? at + (size_t)k : at;
}

void command_needs(const onq_command_info *c, char *b, size_t n) {
    const onq_option_info *o;
    size_t at = 0;
    b[0] = '\0';
    if (c->operands[0] != '\0')
        at = add(b, n, add(b, n, at, "", c->operands), " ", "");
    for (size_t i = 0; (o = onq_required_at(c->name, i)) != NULL; i++) {
        at = add(b, n, at, "--", o->name);
        at = add(b, n, add(b, n, at, " ", o->word), " ", "");
    }
}

/* "1..64" as " (1 to 64", "0.." as " (at least 0". */
static size_t add_range(char *b, size_t n, size_t at, const char *range) {
    const char *dots = strstr(range, "..");
    char low[64];
    snprintf(low, sizeof low, "%.*s", dots != NULL ? (int)(dots - range) : 0, range);
    if (dots == NULL)
        return at;
    if (low[0] == '\0')
        return add(b, n, at, " (at most ", dots + 2);
    at = add(b, n, at, dots[2] == '\0' ? " (at least " : " (", low);
    return dots[2] == '\0' ? at : add(b, n, at, " to ", dots + 2);
}

void option_notes(const onq_option_info *o, char *b, size_t n) {
    size_t at = 0;
    char choice[64];
    b[0] = '\0';
    if (o->type == ONQ_OPT_ENUM)
        for (size_t i = 0; option_choice(o, i, choice, sizeof choice); i++)
            at = add(b, n, at, i == 0 ? " (one of " : ", ", choice);
    else if (o->choices[0] != '\0')
        at = add_range(b, n, at, o->choices);
    const bool plain = strcmp(o->fallback, "") == 0 || strcmp(o->fallback, "false") == 0;
    if (!plain)
        at = add(b, n, at, at == 0 ? " (default " : "; default ", o->fallback);
    const char *p = o->aliases;
    for (bool first = true; *p != '\0'; first = false) {
        char name[100];
        const size_t k = strcspn(p, " ");
        snprintf(name, sizeof name, "--%.*s", (int)k, p);
        at = add(b, n, at, !first ? ", " : at == 0 ? " (also " : "; also ", name);
        p += k;
        p += strspn(p, " ");
    }
    if (at > 0)
        add(b, n, at, "", ")");
}

void extra_meaning(const char *command, const onq_option_info *key, char *b, size_t n) {
    size_t at = 0;
    for (size_t i = 0; i < onq_option_count(command); i++) {
        const onq_option_info *o = onq_option_at(command, i);
        const char *found = strstr(key->aliases, o->name);
        if (found == NULL || (found > key->aliases && found[-1] != ' '))
            continue;
        const char after = found[strlen(o->name)];
        if (after == '\0' || after == ' ')
            at = add(b, n, at, at == 0 ? "--" : ", --", o->name);
    }
    if (at == 0)
        snprintf(b, n, "%s", key->help);
}

/* Words of text[0..n) from `column` on, broken before WIDTH and indented; ends the line. */
static void wrap(FILE *f, const char *text, size_t n, int indent, int column) {
    bool begun = false;
    for (size_t i = 0; i < n;) {
        while (i < n && (text[i] == ' ' || text[i] == '\n'))
            i++;
        size_t k = 0;
        while (i + k < n && text[i + k] != ' ' && text[i + k] != '\n')
            k++;
        if (k == 0)
            break;
        if (begun && column + 1 + (int)k > WIDTH) {
            fprintf(f, "\n%*s", indent, "");
            column = indent;
        } else if (begun) {
            fputc(' ', f);
            column++;
        }
        fwrite(text + i, 1, k, f);
        column += (int)k;
        begun = true;
        i += k;
    }
    fputc('\n', f);
}

static void paragraphs(FILE *f, const char *text) {
    struct paragraph p;
    while (paragraph_next(&text, &p)) {
        fputc('\n', f);
        if (p.example)
            fprintf(f, "%.*s\n", (int)p.n, p.p);
        else
            wrap(f, p.p, p.n, 0, 0);
    }
}

/* A name, and from HELP_COLUMN on what it means. */
static void entry(FILE *f, const char *name, const char *text) {
    int column = fprintf(f, "  %s", name);
    if (column > HELP_COLUMN - 2) {
        fputc('\n', f);
        column = 0;
    }
    fprintf(f, "%*s", HELP_COLUMN - column, "");
    wrap(f, text, strlen(text), HELP_COLUMN, HELP_COLUMN);
}

static void heading(FILE *f, const char *title) {
    fputc('\n', f);
    style_print(f, STYLE_HEADING, title);
    style_print(f, STYLE_HEADING, ":");
    fputc('\n', f);
}

static void help_option(FILE *f, const onq_option_info *o) {
    char head[160], notes[600], text[2400];
    option_head(o, head, sizeof head);
    option_notes(o, notes, sizeof notes);
    snprintf(text, sizeof text, "%s%s", o->help, notes);
    entry(f, head, text);
}

static void help_extras(FILE *f, const char *command) {
    const onq_option_info *key;
    for (size_t i = 0; (key = onq_extra_at(command, i)) != NULL; i++) {
        char name[160], meaning[400];
        if (i == 0)
            heading(f, "Keys of --extra, and the options they set");
        snprintf(name, sizeof name, "%s=%s", key->name, key->word);
        extra_meaning(command, key, meaning, sizeof meaning);
        entry(f, name, meaning);
    }
}

static void help_examples(FILE *f, const char *command) {
    const onq_example *e;
    for (size_t i = 0; (e = onq_example_at(command, i)) != NULL; i++) {
        if (i == 0)
            heading(f, "Examples");
        fputs("  ", f);
        wrap(f, e->text, strlen(e->text), 2, 2);
        for (const char *p = e->line; *p != '\0';) {
            const size_t n = strcspn(p, "\n");
            fprintf(f, "    %.*s\n", (int)n, p);
            p += n + (p[n] == '\n');
        }
    }
}

static void help_statuses(FILE *f, const char *command) {
    heading(f, "Exit status");
    for (const struct exit_status *s = pages_statuses; s->status != NULL; s++) {
        if (!status_of(s, command))
            continue;
        const int column = fprintf(f, "  %-10s ", s->status);
        wrap(f, s->meaning, strlen(s->meaning), column, column);
    }
}

void help_command(FILE *f, const onq_command_info *c) {
    char needs[200];
    command_needs(c, needs, sizeof needs);
    style_print(f, STYLE_HEADING, "usage:");
    fprintf(f, " onq %s %s[OPTIONS]\n\n", c->name, needs);
    wrap(f, c->summary, strlen(c->summary), 0, 0);
    paragraphs(f, c->text);
    help_examples(f, c->name);
    struct option_walk w = {0};
    const char *title = NULL;
    for (const onq_option_info *o; (o = option_next(&w, c->name, &title)) != NULL;) {
        if (title != NULL)
            heading(f, title);
        help_option(f, o);
        if (strcmp(o->name, "extra") == 0)
            help_extras(f, c->name);
    }
    help_statuses(f, c->name);
}

void help_all(FILE *f) {
    style_print(f, STYLE_HEADING, "usage:");
    fputs(" onq COMMAND [OPTIONS]\n"
          "\n"
          "ONNX Runtime's quantization tooling without Python.\n",
          f);
    heading(f, "To begin with");
    fputs("  onq preprocess -i model.onnx -o infer.onnx\n"
          "  onq static -i infer.onnx -o int8.onnx --data samples --per_channel\n"
          "  onq bench infer.onnx int8.onnx --data samples\n",
          f);
    heading(f, "Commands");
    for (size_t i = 0; i < onq_command_count(); i++) {
        const onq_command_info *c = onq_command_at(i);
        const int column = fprintf(f, "  %-12s ", c->name);
        wrap(f, c->summary, strlen(c->summary), column, column);
    }
    heading(f, "Also");
    fputs("  onq COMMAND --help         options of a command (or: onq help COMMAND)\n"
          "  onq --version [--verbose]  the version; the runtime and the processor too\n"
          "  onq --list-commands        the names of the commands, one per line\n"
          "  onq --man [COMMAND]        a man page (onq --man static | man -l -)\n"
          "  onq --markdown [COMMAND]   the same for docs/, in Markdown\n"
          "  onq --completion SHELL     completion for bash, zsh or fish\n",
          f);
    paragraphs(f, pages_conventions);
    help_statuses(f, NULL);
}
