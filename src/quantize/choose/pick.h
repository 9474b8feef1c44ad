/*
 * pick.h — lists of names as users write them: exact names and patterns (`re:^/layer1/`).
 *
 * Used for nodes_to_quantize, nodes_to_exclude and lists of operator types. Each entry remembers
 * whether it ever matched, so that one that never did can be reported with the nearest name there
 * is.
 */
#pragma once

#include "base/env.h"
#include "base/map.h"
#include "base/text/pattern.h"
#include "base/vec.h"
#include "onnx/codec/message.h"

typedef struct oq_pick_entry {
    oq_str text;       /* as given, "re:" included */
    oq_regex *pattern; /* or NULL */
    bool hit;
} oq_pick_entry;

typedef struct oq_pick {
    oq_arena *arena;
    oq_map names; /* exact ones -> index in entries */
    OQ_VEC(oq_pick_entry) entries;
    size_t n_patterns;
} oq_pick;

void oq_pick_init(oq_pick *p, oq_arena *arena);
/* Adds a name or pattern, which is copied. ONQ_E_OPTION for a pattern that is not valid. */
onq_code oq_pick_add(oq_pick *p, oq_str text, onq_error *err);
/* Adds a name, whatever it begins with: one from a file, which has no patterns. */
onq_code oq_pick_add_name(oq_pick *p, oq_str name, onq_error *err);
static inline bool oq_pick_is_empty(const oq_pick *p) {
    return p->entries.n == 0;
}
/* True if an entry matches. Marks all that do. */
bool oq_pick_has(oq_pick *p, oq_str name);

/* Warns of every entry that matched none of the graph's nodes, subgraphs included, with the nearest
 * node name; with `strict` the first one is an error instead. `option` is the list's name. */
onq_code oq_pick_report(oq_pick *p, const onq_env *env, oq_graph *g, const char *option,
                        bool strict, onq_error *err);
/* The same for a list of operator types. One that can be quantized, and is not in this model, is
 * well. */
onq_code oq_pick_report_types(oq_pick *p, const onq_env *env, oq_graph *g, const char *option,
                              bool strict, onq_error *err);
