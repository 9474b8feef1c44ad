/*
 * near_path.h — "did you mean" for a file or folder that is not there: names in the same folder
 * that are nearly the same, or begin like it and end alike (`ef.onnx`, efficientnet.onnx).
 */
#pragma once

#include "base/arena.h"

/* " (did you mean a.onnx or b.onnx?)" with the folder before each name; "" when nothing is near. */
void oq_near_path_text(oq_arena *scratch, const char *path, char *out, size_t out_size);
