/*
 * os_program.h — what differs between systems for the program `onq` alone: arguments, signals, the
 * terminal, inputs that shrink. These files are part of the programs and not of the library, which
 * changes nothing that the whole process shares.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* First of all: arguments become UTF-8, and the standard streams carry bytes. */
void oq_program_begin(int *argc, char ***argv);
/* Sets a variable of the environment, unless it is set. */
void oq_program_set_variable(const char *name, const char *value);

/* Calls `stop` with the number of the signal when the user or the system asks the program to end;
 * asked twice, it ends at once. A reader that goes away, and a limit on the size of files, are
 * failed writes and not death in the middle of a job. */
void oq_program_catch(void (*stop)(int number));
/* When a library calls abort, the process ends with this status and leaves the text, which must
 * stay, on standard error. */
void oq_program_catch_abort(const char *text, int status);
/* Ends the process as that signal does, so that the shell sees it. */
void oq_program_end_by(int number);
/* Whether a write to standard output that failed with this errno has lost its reader. */
bool oq_program_reader_left(int why);
/* Ends the process as the signal for that does. */
void oq_program_end_by_pipe(void);

/* Columns of the terminal that standard error goes to; 0: unknown. */
int oq_program_columns(void);
bool oq_program_is_terminal(FILE *f);
/* Bytes of standard input, 0 at the end, negative with errno. */
int64_t oq_program_read_input(void *p, size_t n);

/* Lets an input that shrinks while it is read be an error and not a crash. */
void oq_program_guard(void);
/* The input that has shrunk, or NULL. */
const char *oq_program_shrunk(void);
