/*
 * recipe_run.h — runs the command of a recipe inside another job, quietly: its options are those of
 * the command line, so what a recipe says is what is done, and the same command makes the same
 * bytes for the user.
 */
#pragma once

#include "api/options/command.h"
#include "tune/recipe.h"

typedef struct oq_recipe_run {
    const oq_job *job;  /* whose runtime, provider and data folders it has */
    onq_env *env;       /* without messages */
    oq_shared shared;   /* work that other runs did */
    const char *cache;  /* ranges: read if the file exists, else written; NULL: none */
    onq_result *result; /* of the run; the caller frees it. Set when it worked. */
} oq_recipe_run;

/* Runs the last command of the recipe on the model `in`. The result is written, not verified:
 * whoever tries recipes measures what they make. With --strict, except for a model that is only
 * prepared: a model that nothing was done to is no result. */
onq_code oq_recipe_do(oq_recipe_run *run, const oq_recipe *r, const char *in, const char *out,
                      onq_error *err);
