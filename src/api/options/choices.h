/*
 * choices.h — the choices of enumerations that several commands offer: ROW(text, value) for each.
 *
 * A list feeds the text of an option's row (OQ_CHOICES) and the reading of it (OQ_CHOSEN), so that
 * a choice and its value are one row. Lists of one command are in its file.
 */
#pragma once

#include "api/options/options.h"
#include "calibrate/method/method.h"
#include "engine/engine.h"
#include "onnx/dtype.h"
#include "samples/source.h"

/* clang-format off */
#define OQ_8BIT_CHOICES(ROW)                        \
    ROW("qint8,int8", OQ_INT8)                      \
    ROW("quint8,uint8", OQ_UINT8)

#define OQ_TYPE_CHOICES(ROW)                        \
    OQ_8BIT_CHOICES(ROW)                            \
    ROW("qint16,int16", OQ_INT16)                   \
    ROW("quint16,uint16", OQ_UINT16)                \
    ROW("qint4,int4", OQ_INT4)                      \
    ROW("quint4,uint4", OQ_UINT4)                   \
    ROW("qfloat8e4m3fn,float8e4m3fn", OQ_FLOAT8E4M3FN)

#define OQ_LEVEL_CHOICES(ROW)                       \
    ROW("none,disable,disable_all,off", OQ_OPT_NONE) \
    ROW("basic", OQ_OPT_BASIC)                      \
    ROW("extended", OQ_OPT_EXTENDED)                \
    ROW("all", OQ_OPT_ALL)

#define OQ_LAYOUT_CHOICES(ROW) ROW("nchw", OQ_IMAGE_NCHW) ROW("nhwc", OQ_IMAGE_NHWC)
#define OQ_COLOR_CHOICES(ROW) \
    ROW("rgb", OQ_IMAGE_RGB) ROW("bgr", OQ_IMAGE_BGR) ROW("gray,grey", OQ_IMAGE_GRAY)
#define OQ_RESIZE_CHOICES(ROW) \
    ROW("stretch", OQ_IMAGE_STRETCH) ROW("crop", OQ_IMAGE_CROP) ROW("pad", OQ_IMAGE_PAD)
/* clang-format on */

/* The rows of method.def: choice i is oq_cal_method i. */
#define OQ_METHOD_CHOICES (&oq_cal_method_choices[1])
