/*
 * bench_flight.h — `onq bench --throughput`: runs of a model per second, several at once.
 */
#pragma once

#include "api/options/command.h"
#include "engine/engine.h"
#include "samples/source.h"

typedef struct oq_bench_flight {
    unsigned jobs;       /* runs at once; 0: not measured */
    uint64_t runs;       /* of each measurement */
    double one, many;    /* runs per second: one after the other, `jobs` at once */
    oq_session *session; /* for it alone */
} oq_bench_flight;

/* Opens a session like `how`, whose threads sleep between nodes: those of other runs want the
 * cores. Runs that depend on those before them are measured one by one. */
onq_code oq_bench_flight_open(oq_bench_flight *f, oq_engine *e, const oq_session_options *how,
                              unsigned jobs, onq_error *err);
/* One round: at least `runs` runs one after the other, then `jobs` at once, on samples that are in
 * memory (at most the first 64). The best round counts. */
onq_code oq_bench_flight_round(oq_bench_flight *f, oq_source *source, uint64_t runs,
                               onq_error *err);
void oq_bench_flight_close(oq_bench_flight *f);
/* Members of the open object; a line of a table. */
void oq_bench_flight_json(const oq_bench_flight *f, oq_jw *w);
void oq_bench_flight_text(const oq_bench_flight *f, oq_buf *out);
