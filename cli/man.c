/*
 * man.c — man pages from the tables: `onq --man` and `onq --man COMMAND`.
 */
#include "pages.h"

#include <ctype.h>
#include <string.h>

/* Text with what troff would read as its own escaped; `line_start`: at the beginning of a line. */
static void troff(FILE *f, const char *p, size_t n, bool line_start) {
    for (size_t i = 0; i < n; i++) {
        const char c = p[i];
        if (line_start && (c == '.' || c == '\''))
            fputs("\\&", f);
        line_start = c == '\n';
        if (c == '\\')
            fputs("\\e", f);
        else if (c == '-')
            fputs("\\-", f);
        else if (c == '\'')
            fputs("\\(aq", f);
        else if (c == '`')
            fputs("\\(ga", f);
        else if (c == '^')
            fputs("\\(ha", f);
        else if (c == '~')
            fputs("\\(ti", f);
        else
            fputc(c, f);
    }
}

static void troffs(FILE *f, const char *text) {
    troff(f, text, strlen(text), false);
}

static void paragraphs(FILE *f, const char *text) {
    struct paragraph p;
    for (bool first = true; paragraph_next(&text, &p); first = false) {
        if (!first)
            fputs(".PP\n", f);
        if (p.example)
            fputs(".nf\n", f);
        troff(f, p.p, p.n, true);
        fputs(p.example ? "\n.fi\n" : "\n", f);
    }
}

static void head(FILE *f, const char *name) {
    fputs(".\\\" Made by onq --man from the option tables.\n.TH ", f);
    for (const char *p = name; *p != '\0'; p++)
        fputc(toupper((unsigned char)*p), f);
    fprintf(f, " 1 \"\" \"onq %s\" \"User Commands\"\n", onq_version());
    /* Names of options are copied from the page: none is cut at the end of a line. */
    fputs(".nh\n.ad l\n", f);
}

/* .B \-i \fR, .B \-\-input \fIFILE */
static void option(FILE *f, const onq_option_info *o) {
    char notes[600];
    fputs(".TP\n\\fB", f);
    if (o->letter != 0)
        fprintf(f, "\\-%c\\fR, \\fB", o->letter);
    fputs("\\-\\-", f);
    troffs(f, o->name);
    fputs("\\fR", f);
    if (o->word[0] != '\0') {
        fputs(" \\fI", f);
        troffs(f, o->word);
        fputs("\\fR", f);
    }
    if (o->type == ONQ_OPT_LIST)
        fputs(" ...", f);
    fputc('\n', f);
    troff(f, o->help, strlen(o->help), true);
    option_notes(o, notes, sizeof notes);
    troffs(f, notes);
    fputc('\n', f);
}

static void exit_status(FILE *f, const char *command) {
    fputs(".SH EXIT STATUS\n", f);
    for (const struct exit_status *s = pages_statuses; s->status != NULL; s++) {
        if (!status_of(s, command))
            continue;
        fprintf(f, ".TP\n%s\n", s->status);
        troffs(f, s->meaning);
        fputc('\n', f);
    }
}

static void examples(FILE *f, const char *command) {
    const onq_example *e;
    for (size_t i = 0; (e = onq_example_at(command, i)) != NULL; i++) {
        fputs(i == 0 ? ".SH EXAMPLES\n" : ".PP\n", f);
        troff(f, e->text, strlen(e->text), true);
        fputs("\n.PP\n.nf\n.RS\n", f);
        troff(f, e->line, strlen(e->line), true);
        fputs("\n.RE\n.fi\n", f);
    }
}

static void extras(FILE *f, const char *command) {
    const onq_option_info *key;
    for (size_t i = 0; (key = onq_extra_at(command, i)) != NULL; i++) {
        char meaning[400];
        extra_meaning(command, key, meaning, sizeof meaning);
        fputs(i == 0 ? ".RS\n.TP\n\\fB" : ".TP\n\\fB", f);
        troffs(f, key->name);
        fputs("\\fR=\\fI", f);
        troffs(f, key->word);
        fputs("\\fR\n", f);
        troffs(f, meaning);
        fputc('\n', f);
    }
    fputs(".RE\n", f);
}

void man_command(FILE *f, const onq_command_info *c) {
    char name[64], needs[200];
    snprintf(name, sizeof name, "onq-%s", c->name);
    head(f, name);
    fprintf(f, ".SH NAME\nonq\\-%s \\- ", c->name);
    troffs(f, c->summary);
    fprintf(f, "\n.SH SYNOPSIS\n\\fBonq %s\\fR ", c->name);
    command_needs(c, needs, sizeof needs);
    troffs(f, needs);
    fputs("[\\fIOPTIONS\\fR]\n", f);
    if (c->text[0] != '\0') {
        fputs(".SH DESCRIPTION\n", f);
        paragraphs(f, c->text);
    }
    fputs(".SH OPTIONS\n", f);
    struct option_walk w = {0};
    const char *heading = NULL;
    for (const onq_option_info *o; (o = option_next(&w, c->name, &heading)) != NULL;) {
        if (heading != NULL) {
            fputs(".SS ", f);
            troffs(f, heading);
            fputc('\n', f);
        }
        option(f, o);
        if (strcmp(o->name, "extra") == 0)
            extras(f, c->name);
    }
    exit_status(f, c->name);
    examples(f, c->name);
    fputs(".SH SEE ALSO\n\\fBonq\\fR(1) explains the conventions of the command line.\n", f);
}

void man_all(FILE *f) {
    head(f, "onq");
    fputs(".SH NAME\nonq \\- quantize ONNX models\n"
          ".SH SYNOPSIS\n\\fBonq\\fR \\fICOMMAND\\fR [\\fIOPTIONS\\fR]\n"
          ".SH DESCRIPTION\nONNX Runtime\\(aqs quantization tooling without Python.\n"
          ".SH COMMANDS\n",
          f);
    for (size_t i = 0; i < onq_command_count(); i++) {
        const onq_command_info *c = onq_command_at(i);
        fprintf(f, ".TP\n\\fBonq\\-%s\\fR(1)\n", c->name);
        troff(f, c->summary, strlen(c->summary), true);
        fputc('\n', f);
    }
    fputs(".SH CONVENTIONS\n", f);
    paragraphs(f, pages_conventions);
    fputs(".SH ENVIRONMENT\n.TP\n\\fBONQ_ONNXRUNTIME\\fR\nThe ONNX Runtime library to use.\n"
          ".TP\n\\fBNO_COLOR\\fR\nNo colour on a terminal; there is none elsewhere.\n",
          f);
    exit_status(f, NULL);
    fputs(".SH SEE ALSO\n", f);
    for (size_t i = 0; i < onq_command_count(); i++)
        fprintf(f, "%s\\fBonq\\-%s\\fR(1)", i > 0 ? ",\n" : "", onq_command_at(i)->name);
    fputc('\n', f);
}
