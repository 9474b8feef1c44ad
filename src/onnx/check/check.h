/*
 * check.h — is it a valid model? Structure, not operators.
 *
 * Unique tensor names, names in UTF-8, one producer for each tensor, inputs available (outer scopes
 * counted), branches and bodies of control flow, no cycle, payload size = dims x type, known data
 * types, opset imports present, IR version sane, function calls that do not recurse. One error,
 * naming the place.
 */
#pragma once

#include "onnx/graph.h"
#include "onnx/model.h"

onq_code oq_model_check(oq_model *m, onq_error *err);
/* The same. Gives out the index of the main graph, made in `arena`, for callers that look at the
 * model before it is edited: building one takes as long as checking. */
onq_code oq_model_check_index(oq_model *m, oq_arena *arena, oq_index *out, onq_error *err);

/* Fails where two imports give one domain two versions: which of them counts, nobody says. */
onq_code oq_imports_agree(const oq_opset *a, const oq_opset *b, onq_error *err);

/* After each step that edits a model: names are made once, and what is read is made. (Opset imports
 * and payloads may come with a later step.) Nothing where asserts are off. */
#ifdef NDEBUG
#define OQ_ASSERT_VALID(m) ((void)0)
#else
void oq_assert_valid(oq_model *m, const char *who);
#define OQ_ASSERT_VALID(m) oq_assert_valid((m), __func__)
#endif

/* How many nodes the model has, inner graphs and functions included, and how many it would have in
 * its graph with functions in place of their calls (UINT64_MAX: or more). That grows like a power
 * of two where each function calls the one before it twice. */
onq_code oq_model_expanded(const oq_model *m, uint64_t *stored, uint64_t *expanded, onq_error *err);
