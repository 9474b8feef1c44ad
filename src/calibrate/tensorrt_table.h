/*
 * tensorrt_table.h — TensorRT's calibration tables, as write_calibration_table writes them.
 *
 * Three files in a folder: calibration.json (the ranges, as in the cache), calibration.cache (a
 * line of name and greatest value for each tensor, sorted by name) and calibration.flatbuffers (the
 * same pairs, in the layout the reference's flatbuffers library gives them, byte for byte).
 */
#pragma once

#include "calibrate/ranges.h"

#define OQ_TABLE_FILES 3

/* Opens and fills the three outputs; the caller commits them together with the rest, or aborts
 * them. The folder is made when it is not there. ONQ_E_UNSUPPORTED for ranges by channel. */
onq_code oq_table_write(const oq_ranges *r, const onq_env *env, const char *folder,
                        oq_out outs[OQ_TABLE_FILES], onq_error *err);
