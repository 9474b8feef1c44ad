/*
 * bench_units.h — `onq bench --units MODEL`.
 */
#pragma once

#include "api/options/command.h"

/* Times the units of the model in float and in integers; prints a table, and the file of `onq
 * static --unit_costs` as JSON. */
onq_code oq_bench_units(oq_job *job, const char *path, onq_error *err);
