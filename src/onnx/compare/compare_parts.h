/*
 * compare_parts.h — between the compare_*.c files. Read compare.h first.
 */
#pragma once

#include "onnx/codec/schema.h"
#include "onnx/compare/compare.h"
#include "onnx/graph.h"
#include "onnx/operators.h"

/* The names of a graph under comparison without names (compare_rename.c). */
typedef struct oq_cmp_scope oq_cmp_scope;

/* A comparison under way. */
typedef struct oq_cmp {
    const oq_compare *how;
    oq_arena *arena;
    oq_model *a, *b;
    oq_buf line; /* of the difference being reported */
    oq_str where;
    int depth;                             /* of graphs */
    uint64_t bytes_done, bytes_total;      /* of payloads */
    uint64_t bytes_dropped;                /* bytes_done when pages were last given back */
    const oq_cmp_scope *scope_a, *scope_b; /* of the graphs around, or NULL */
} oq_cmp;

/* Items of a list by key; items of equal keys are taken one after the other. */
typedef struct oq_chain {
    oq_map map;
    uint32_t *next;
} oq_chain;

bool oq_chain_init(oq_chain *h, oq_arena *a, size_t count);
/* Items are added last to first, so that the first is taken first. */
bool oq_chain_add(oq_chain *h, oq_str key, uint32_t item);
/* The next item of that key, which is taken out; OQ_MAP_NONE when there is none. */
uint32_t oq_chain_take(oq_chain *h, oq_str key);

/* Reports one difference; printf's text is cut at a few hundred bytes and escaped. */
onq_code oq_cmp_found(oq_cmp *c, onq_error *err, oq_diff_kind kind, oq_str name, const char *fmt,
                      ...) OQ_PRINTF(5, 6);

/* ---- compare_message.c: any message, by the schema table ---- */

/* Equal in all fields; an absent scalar or text equals its default. Unknown fields count. Fields
 * named in `but` (numbers, 0 at the end, or NULL) do not. */
bool oq_message_same(oq_schema_id id, const void *a, const void *b, const uint16_t *but);

/* What any message may say about itself. */
typedef struct oq_notes {
    oq_str doc_string;
    oq_entry *const *v; /* metadata_props */
    size_t n;
} oq_notes;
#define OQ_NOTES(m) ((oq_notes){(m)->doc_string, (m)->metadata_props.v, (m)->metadata_props.n})

/* Reports what differs; `what` is the kind of message. */
onq_code oq_cmp_notes(oq_cmp *c, oq_str name, const char *what, oq_notes a, oq_notes b,
                      onq_error *err);

/* ---- compare_tensor.c ---- */

/* Type, dims and values; differences of the first two are reported as `kind`, of values as
 * OQ_DIFF_VALUE (or as `kind`, when that is an attribute). `what` comes before the text, or is
 * "". */
onq_code oq_cmp_tensor(oq_cmp *c, oq_diff_kind kind, oq_str name, const char *what, oq_tensor *a,
                       oq_tensor *b, onq_error *err);
/* Two floats under the tolerance; bitwise without one. */
bool oq_cmp_real_same(const oq_cmp *c, double a, double b);

/* ---- compare_node.c ---- */

/* Nodes of two graphs, matched by the tensors they make. */
onq_code oq_cmp_nodes(oq_cmp *c, oq_node *const *a, size_t n, oq_node *const *b, size_t m,
                      onq_error *err);
/* Everything but inputs, outputs and name of two nodes. */
onq_code oq_cmp_operator(oq_cmp *c, const oq_node *a, const oq_node *b, onq_error *err);
onq_code oq_cmp_attributes(oq_cmp *c, oq_str owner, oq_attribute *const *a, size_t n,
                           oq_attribute *const *b, size_t m, onq_error *err);

/* ---- compare_rename.c ---- */

/* Graphs whose tensor names do not count. */
onq_code oq_cmp_renamed(oq_cmp *c, oq_graph *a, oq_graph *b, onq_error *err);

/* ---- compare.c ---- */

onq_code oq_cmp_graph(oq_cmp *c, oq_graph *a, oq_graph *b, onq_error *err);

/* How many names there are without the empty ones at the end, which mean nothing. */
static inline size_t oq_cmp_trimmed(const oq_strs *v) {
    size_t n = v->n;
    while (n > 0 && v->v[n - 1].n == 0)
        n--;
    return n;
}
