/*
 * pages.h — everything that is written from the command and option tables: help, man pages, the
 * reference in Markdown, shell completion. All go to standard output.
 */
#pragma once

#include <onq/onq.h>
#include <stdbool.h>
#include <stdio.h>

/* ---- help.c ---- */
void help_all(FILE *f);
void help_command(FILE *f, const onq_command_info *c);
/* NULL when there is none. */
const onq_command_info *pages_command(const char *name);

/* ---- man.c, markdown.c ---- */
void man_all(FILE *f);
void man_command(FILE *f, const onq_command_info *c);
void markdown_all(FILE *f);
void markdown_command(FILE *f, const onq_command_info *c);

/* ---- completion.c ---- */
/* False for a shell that is not bash, zsh or fish. */
bool completion(FILE *f, const char *shell);

/* ---- complete.c ---- */
/* Prints the names of a kind that begin so; words are those of the line, the command first. */
void complete(FILE *f, const char *kind, const char *beginning, int n, char **words);
/* The kind of names that may follow an option: "nodes", "types", "groups", "providers"; or NULL. */
const char *complete_kind(const onq_option_info *o);

/* ---- text they share (help.c) ---- */

/* One paragraph of a command's text. Paragraphs are separated by an empty line; one whose lines
 * begin with two spaces is an example. Advances *text; false at the end. */
struct paragraph {
    const char *p;
    size_t n;
    bool example;
};
bool paragraph_next(const char **text, struct paragraph *out);
/* The options that a page of the command shows, one after the other; begin with a zeroed walk. NULL
 * at the end. *heading is that of the group which begins with the option, or NULL inside one. */
struct option_walk {
    size_t i;
    const char *group;
};
const onq_option_info *option_next(struct option_walk *w, const char *command,
                                   const char **heading);
/* What follows a command's name: operands and the options it cannot do without, "--input FILE ".
 * Ends in a space unless it is empty. */
void command_needs(const onq_command_info *c, char *b, size_t n);
/* "-i, --input FILE" into b. */
void option_head(const onq_option_info *o, char *b, size_t n);
/* What help says after the text: choices, range, default, other spellings; "" or " (...)". */
void option_notes(const onq_option_info *o, char *b, size_t n);
/* The first spelling of choice i of an enumeration; false past the end. */
bool option_choice(const onq_option_info *o, size_t i, char *b, size_t n);
/* "--name" of the options of the command that a key of --extra sets, else what the key means. */
void extra_meaning(const char *command, const onq_option_info *key, char *b, size_t n);
/* The conventions of the command line, as paragraphs. */
extern const char *const pages_conventions;
/* What the exit status says; a status of NULL ends the list. */
struct exit_status {
    const char *status, *meaning;
    const char *command; /* that alone has it; NULL: all */
};
extern const struct exit_status pages_statuses[];
/* Whether the page of a command (NULL: the page of all) shows it. */
bool status_of(const struct exit_status *s, const char *command);
