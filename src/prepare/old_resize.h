/*
 * old_resize.h — Resize and Upsample of models below opset 11, after the opset was raised.
 */
#pragma once

#include "onnx/model.h"

/* Before opset 11 coordinates were asymmetric, and nearest took the value before when it made an
 * axis larger, the value after when it made it smaller. Since then the node says so. onnx's
 * converter forgets it, which changes the result; this writes it into every Resize of a model that
 * was raised past 10. A Resize that computes the same either way (nearest, by whole factors or by a
 * half) is left as the converter leaves it. One that makes some axes larger and others smaller
 * becomes two nodes, the smaller axes first; ONQ_E_UNSUPPORTED names one for which even that is not
 * the same. */
onq_code oq_keep_old_resize(oq_model *m, onq_error *err);
