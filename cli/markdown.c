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

static void examples(FILE *f, const char *command) {
    const onq_example *e;
    for (size_t i = 0; (e = onq_example_at(command, i)) != NULL; i++)
        fprintf(f, "%s%s\n\n```sh\n%s\n```\n\n", i == 0 ? "## Examples\n\n" : "", e->text, e->line);
}

static void extras(FILE *f, const char *command) {
    const onq_option_info *key;
    for (size_t i = 0; (key = onq_extra_at(command, i)) != NULL; i++) {
        char meaning[400];
        if (i == 0)
            fputs("\n## Keys of `--extra`\n\n| key and value | sets |\n|---|---|\n", f);
        extra_meaning(command, key, meaning, sizeof meaning);
        fprintf(f, "| `%s=", key->name);
        cell(f, key->word);
        fputs("` | ", f);
        cell(f, meaning);
        fputs(" |\n", f);
    }
}

void markdown_command(FILE *f, const onq_command_info *c) {
    char needs[200];
    fprintf(f, "# onq %s%s%s\n\n", c->name, c->operands[0] != '\0' ? " " : "", c->operands);
    fprintf(f, "onq-%s: %s. The conventions are in [CLI.md](../CLI.md).\n\n", c->name, c->summary);
    command_needs(c, needs, sizeof needs);
    fprintf(f, "    onq %s %s[OPTIONS]\n\n", c->name, needs);
    paragraphs(f, c->text);
    examples(f, c->name);
    fputs("## Options\n\n| option | meaning |\n|---|---|\n", f);
    struct option_walk w = {0};
    const char *heading = NULL;
    for (const onq_option_info *o; (o = option_next(&w, c->name, &heading)) != NULL;) {
        if (heading != NULL) {
            fputs("| **", f);
            cell(f, heading);
            fputs("** | |\n", f);
        }
        option(f, o);
    }
    extras(f, c->name);
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
    fputs("## Exit status\n\n| status | meaning |\n|---|---|\n", f);
    for (const struct exit_status *s = pages_statuses; s->status != NULL; s++) {
        fprintf(f, "| %s | ", s->status);
        cell(f, s->meaning);
        fputs(" |\n", f);
    }
}
