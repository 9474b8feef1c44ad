/*
 * ort.h — the engine that is ONNX Runtime, opened with dlopen.
 *
 * The library is looked for in this order, and the first place that is named or holds it decides:
 * `path` (a library, or a folder that holds one), the environment variable ONQ_ONNXRUNTIME, where
 * set-up puts it (runtime/ next to the program or the library in the build folder, ../lib/onq/ when
 * installed), the loader's own path. An error says where it was looked for and how to get it.
 */
#pragma once

#include "engine/engine.h"

/* `path` is --onnxruntime, or NULL. ONQ_E_RUNTIME if it is missing or too old. */
onq_code oq_ort_open(onq_env *env, const char *path, oq_engine **out, onq_error *err);

/* Version, path and providers of the runtime that oq_ort_open would open. */
onq_code oq_ort_query(onq_env *env, const char *path, onq_runtime_info *out, onq_error *err);

/* Loads a model file in the runtime and throws the session away: does the runtime take it? For
 * --verify. */
onq_code oq_engine_verify(oq_engine *e, oq_model *m, onq_error *err);

/* Whether an error of the runtime says that the model is wrong; else it is sound and beyond this
 * runtime: an operator of another domain, a type without a kernel, a version to come. */
bool oq_engine_calls_invalid(const onq_error *why);

/* The libraries that `path` names, added to `out`: itself, or all in a folder and the folders in
 * it, the oldest version first. ONQ_E_RUNTIME for a folder that has none. */
onq_code oq_ort_list(oq_arena *arena, const char *path, oq_strs *out, onq_error *err);
/* What a library is for: "x86-64", "aarch64", "Windows" ...; "": the file is no library; NULL: it
 * cannot be read. The second: what this program is for. */
const char *oq_library_machine(const char *path);
const char *oq_library_here(void);
/* Whether a library of Linux is as long as it says. The loader maps one that was cut short, and this
 * process would be ended by a signal. True for what cannot be read or is no such library. */
bool oq_library_is_whole(const char *path);
