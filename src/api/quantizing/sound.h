/*
 * sound.h — models that ONNX Runtime itself calls wrong are refused before they are written.
 *
 * onq checks what it reads (onnx/check/check.h, shape/operands.h), but it does not know every
 * attribute of every operator. Where a runtime is at hand and the model is small it is asked: a
 * command that has no other use for it would pass on what no runtime takes.
 */
#pragma once

#include "api/options/command.h"
#include "engine/engine.h"

/* Models up to this size are shown to a runtime unasked, where nothing else needs one. */
#define OQ_MAX_UNASKED ((uint64_t)32 << 20)
/* True for a graph that is too large to be shown unasked. The time that the runtime needs to load
 * it grows with the square of the number of initializers, of quantized inputs of one node and of
 * readers of one quantized tensor, and nearly so with that of nodes: seconds at this limit, minutes
 * at ten times as many. */
onq_code oq_graph_is_long(const oq_model *m, bool *yes, onq_error *err);
/* True for a model that makes a tensor of more than 256 MiB, whatever its inputs. It is not shown
 * unasked either: a file of a few bytes may ask for that much, and a runtime computes what is
 * constant when it loads the model. */
onq_code oq_model_swells(oq_model *m, bool *yes, onq_error *err);

/* Fails where the runtime calls the model wrong. It is no failure that a model is beyond this
 * runtime (an operator of another domain, a type without a kernel) or that there is no runtime, and
 * --no_verify asks none. An engine that had to be opened is left in *engine for the caller to
 * close. */
onq_code oq_job_check_sound(oq_job *job, oq_engine **engine, oq_model *m, onq_error *err);

/* The runtime's words on a model, without the name of its file in front of them. */
const char *oq_words_of(const oq_model *m, const onq_error *why);
/* The refusal, with those words. */
onq_code oq_refuse_unsound(const oq_model *m, const onq_error *why, onq_error *err);
