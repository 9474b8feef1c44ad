/*
 * recipe.h — how a candidate is made: an `onq` command with its options, or some of them in a row.
 *
 * A recipe is what the search tries, what the report shows and what the user runs again; the same
 * options go to the command in process and to the text. The model it reads and the file it writes
 * are not in it.
 */
#pragma once

#include "base/text/json.h"
#include "base/vec.h"
#include "quantize/choose/node_method.h"

typedef struct oq_recipe_option {
    const char *name;  /* with underscores */
    const char *value; /* NULL: a flag */
} oq_recipe_option;

typedef struct oq_recipe {
    const char *command; /* "static", "dynamic", "preprocess"; NULL: the model as it was given */
    bool prepares;       /* preprocessing that leaves the model float */
    OQ_VEC(oq_recipe_option) options;
    bool drops_shapes; /* --drop_shapes: what it writes says no shapes inside the graph */
    uint32_t methods;  /* those in the option node_methods: bit m is oq_method m */
    const struct oq_recipe *after; /* whose model it reads; NULL: the one that was given */
} oq_recipe;

/* What --allow calls a recipe, by its last command. */
typedef enum oq_way {
    OQ_WAY_FLOAT,
    OQ_WAY_STATIC,
    OQ_WAY_DYNAMIC,
    OQ_WAY_QOPERATOR,
    OQ_WAY_FLOAT16,
    OQ_WAY_NBITS,
    OQ_WAYS
} oq_way;
oq_way oq_recipe_way(const oq_recipe *r);
const char *oq_way_name(oq_way way);

/* Adds an option; name and value are borrowed (literals or in the arena). ONQ_E_NOMEM. */
onq_code oq_recipe_add(oq_recipe *r, oq_arena *a, const char *name, const char *value,
                       onq_error *err);
/* Takes an option out. */
void oq_recipe_drop(oq_recipe *r, const char *name);
/* The same options in a recipe of its own, to add to. */
onq_code oq_recipe_copy(const oq_recipe *from, oq_arena *a, oq_recipe *to, onq_error *err);
bool oq_recipe_equal(const oq_recipe *a, const oq_recipe *b);
/* True if `b` has this option besides those of `a`, and no other. */
bool oq_recipe_adds(const oq_recipe *a, const oq_recipe *b, const char *option);
/* The value of an option of its last command ("" of a flag), or NULL. */
const char *oq_recipe_get(const oq_recipe *r, const char *name);

/* Does the last command's node_methods give some node this method. */
bool oq_recipe_has_method(const oq_recipe *r, oq_method m);

/* `onq COMMAND -i INPUT -o OUTPUT --options` as words that a shell takes apart again; of the last
 * command. */
void oq_recipe_text(const oq_recipe *r, const char *input, const char *output, oq_buf *out);
/* True if samples decide what it makes. */
bool oq_recipe_calibrates(const oq_recipe *r);
/* The command and its options as an object, with what comes before it as "after" unless that only
 * prepares; the command of what is float is "float". */
void oq_recipe_json(const oq_recipe *r, oq_jw *w, const char *key);
