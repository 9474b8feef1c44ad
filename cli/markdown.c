/*
 * markdown.c — the reference of the command line in Markdown, from the tables: `onq --markdown` is
 * docs/CLI.md, `onq --markdown COMMAND` is docs/commands/COMMAND.md (tools/update-docs.sh writes
 * them).
 */
#include "pages.h"

#include <string.h>

/* Text of a table cell. */
static void cell(FILE *f, const char *text) {
    for (; *text != '\0'; text++) {
        if (*text == '|' || *text == '<')
            fputc('\\', f);
        fputc(*text, f);
    }
}

static void paragraphs(FILE *f, const char *text) {
    struct paragraph p;
    while (paragraph_next(&text, &p))
        if (p.example)
            fprintf(f, "```\n%.*s\n```\n\n", (int)p.n, p.p);
        else
            fprintf(f, "%.*s\n\n", (int)p.n, p.p);
}

static void option(FILE *f, const onq_option_info *o) {
    char notes[600];
    fputs("| `", f);
    if (o->letter != 0)
        fprintf(f, "-%c`, `", o->letter);
    fprintf(f, "--%s%s%s%s` | ", o->name, o->word[0] != '\0' ? " " : "", o->word,
            o->type == ONQ_OPT_LIST ? " ..." : "");
    option_notes(o, notes, sizeof notes);
    cell(f, o->help);
    cell(f, notes);
    fputs(" |\n", f);
}

void markdown_command(FILE *f, const onq_command_info *c) {
    fprintf(f, "# onq %s%s%s\n\n", c->name, c->operands[0] != '\0' ? " " : "", c->operands);
    fprintf(f, "onq-%s: %s. The conventions are in [CLI.md](../CLI.md).\n\n", c->name, c->summary);
    paragraphs(f, c->text);
    fputs("| option | meaning |\n|---|---|\n", f);
    const char *group = "";
    for (size_t i = 0; i < onq_option_count(c->name); i++) {
        const char *title = onq_option_group(c->name, i);
        if (strcmp(title, group) != 0) {
            fputs("| **", f);
            cell(f, title);
            fputs("** | |\n", f);
        }
        group = title;
        option(f, onq_option_at(c->name, i));
    }
}

void markdown_all(FILE *f) {
    fputs("# The command line of onq\n\n"
          "This page and the pages it links to are generated from the option tables in src/api/; "
          "`tools/update-docs.sh` rewrites them.\n\n"
          "`onq COMMAND [OPTIONS]`\n\n"
          "| command | does |\n|---|---|\n",
          f);
    for (size_t i = 0; i < onq_command_count(); i++) {
        const onq_command_info *c = onq_command_at(i);
        fprintf(f, "| [`%s`](commands/%s.md) | ", c->name, c->name);
        cell(f, c->summary);
        fputs(" |\n", f);
    }
    fputs("\n## Conventions\n\n", f);
    paragraphs(f, pages_conventions);
    fputs("Exit status: 0 done; 1 the job failed, or `diff` found differences; 2 the command line "
          "is wrong.\n",
          f);
}
