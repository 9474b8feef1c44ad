/*
 * npz_write.h — data as an .npz file: arrays by name in an uncompressed zip archive, as numpy.savez
 * writes.
 */
#pragma once

#include "samples/datum.h"

/* Appends the archive of n tensors to `out`. ONQ_E_UNSUPPORTED for what numpy has no arrays of. */
onq_code oq_npz_write(oq_buf *out, const oq_datum *d, const oq_io *names, size_t n, onq_error *err);
