/*
 * report.h — pages: the page of `onq debug -o` as bytes (the build makes them, cmake/embed.cmake),
 * how data gets into a page, and the graph that pages draw.
 *
 * A page is markup with its script (report.html, report.js); what pages share is included in them
 * when they are built: page_head.html with page.css, page_data.html with page.js, and
 * page_graph.js, which draws what oq_page_graph writes.
 */
#pragma once

#include "base/text/json.h"
#include "quantize/cost/profile.h"

extern const unsigned char oq_report_page[];
extern const size_t oq_report_page_size;

/* A cause that was found, with what it was made and measured with. */
typedef struct oq_report_cause {
    const char *text, *command;
    uint32_t row;         /* of the table that shows it; UINT32_MAX: none */
    double before, after; /* dB of the worst output ... */
    bool apart;           /* ... on samples that did not calibrate */
} oq_report_cause;

/* What a report says about the run it is of. Texts are borrowed; NULL, 0 and NAN: not known. */
typedef struct oq_debug_about {
    const char *onq, *runtime, *cpu, *date;
    uint64_t float_size, quantized_size; /* bytes, external data included */
    double float_ms, quantized_ms;       /* of one run in a default session, side by side */
    const char *data;                    /* --data */
    const char *const *samples;          /* their names, the first of them */
    size_t n_samples;
    OQ_VEC(oq_str) options; /* name, value, name, value ... as they were set */
    const char *again;      /* the command that makes such a model again, to add options to */
    const char *command;    /* the command that made this report */
    oq_unit_sizes sizes;    /* of the inputs, to count work for */
    bool diagnosed;         /* causes were looked for by making the model again ... */
    size_t n_cause_samples; /* ... and measuring so many samples */
    bool healthy;           /* and nothing is wrong */
    const char *none;       /* what is said where no cause was found; NULL: one was */
    const char *half;       /* the sentence about too few samples; or NULL */
    OQ_VEC(oq_report_cause) causes;
} oq_debug_about;

/* A page with JSON in its place for data. `html` ends in a NUL, which size does not count. */
onq_code oq_report_fill(const unsigned char *html, size_t size, const oq_buf *json, oq_buf *out,
                        onq_error *err);

/* "graph": nodes and values of a model, for page_graph.js. */
void oq_page_graph(const oq_profile *p, oq_jw *w);
