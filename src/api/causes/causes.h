/*
 * causes.h — why a quantized model loses accuracy, and the command that removes the cause.
 *
 * What is named was tried. The model is made again with the options that it shows; if that is much
 * better, the parameters in the file are at fault, and the tensors whose parameters differ say
 * where. Otherwise the rows of a table of remedies are made and measured one after another, within
 * a budget (budget.h). The remedy that gains most, or a simpler one that gains nearly as much, gives
 * the cause; others are tried on top of it.
 *
 * What takes other ranges or scales from the samples may fit just these. So it is made again, as the
 * model without it is, with every other sample, and both are judged on the samples between.
 *
 * A model that is good on the samples is calibrated again with every other one of them and judged on
 * those between. If that is poor, ranges depend on which samples calibrate: remedies are tried on
 * that model then, because on samples that calibrated nothing shows.
 */
#pragma once

#include "api/causes/again.h"
#include "api/causes/remake.h"
#include "debug/page/report.h"

/* One way to make the model that was tried. */
typedef struct oq_try {
    const char *cause; /* the name of the cause that it would prove: "per_channel" */
    oq_again how;
    const char *input; /* the file that its recipe read */
    size_t row;        /* of the remedies; their number: made as it is */
    double before;     /* dB of what it was put on */
    oq_remade made;
    /* dB on samples that calibrated neither it nor what it was put on, and of the latter there; NAN:
     * that was not measured, as for all that take nothing from the samples. */
    double apart, apart_before;
    bool dismissed; /* it fits its samples: others do not gain as much, or there are none */
} oq_try;

/* One reason for the loss; its remedy is put on top of those before it. */
typedef struct oq_cause {
    const char *cause;
    const char *text;    /* a sentence or two, with what shows it */
    const char *command; /* against it and those before it; one command a line */
    const char *floats;  /* the list of nodes that it leaves float, as an option has it; or NULL */
    uint32_t row;        /* of oq_debug that shows it: a weight, then activations; OQ_NO_ROW */
    double before;       /* dB of the worst output without the remedy */
    oq_remade made;      /* with it */
    double apart, apart_before; /* as of the try */
    bool also; /* a fault of the file beside others: their command removes it too */
} oq_cause;

/* Nodes to leave float where no cause was found. */
typedef struct oq_float_set {
    size_t units, of;    /* in it, and all; 0: none was found */
    const char *command; /* that makes it */
    oq_remade made;
} oq_float_set;

typedef struct oq_diagnosis {
    bool done;         /* false: there were no samples, or nothing can be made again */
    oq_graded judged;  /* the model as it is, over all samples, and ... */
    uint64_t n_judged; /* ... so many; ... */
    bool optimised;    /* ... as the runtime optimises it */
    oq_remade now;     /* over the first of them, as all that is made */
    bool healthy;      /* near enough to float that no remedy was looked for */
    bool late;         /* the budget ended before all remedies were tried */
    double seconds;
    double bare, limit, cpu; /* CPU seconds: bare inference, that may be taken, that were taken */
    size_t n_samples;
    OQ_VEC(oq_try) tries;
    oq_float_set set;
    oq_remade half; /* good as it is, poor when half of the samples calibrate; not made otherwise */
    size_t n_half;  /* samples that judge it, and what is made then: the others */
    double apart, apart_before; /* as of a try: of the command against all causes */
    OQ_VEC(oq_cause) causes;    /* the first gains most; none: no remedy gains much */
} oq_diagnosis;

/* Call after oq_debug_rank. Texts live in the job's arena. */
onq_code oq_debug_causes(struct oq_job *job, oq_debug *d, const oq_debug_run *run,
                         oq_diagnosis *out, onq_error *err);
/* The cause whose command is against all of them; NULL: none was found. */
const oq_cause *oq_diagnosis_last(const oq_diagnosis *x);
void oq_diagnosis_text(const oq_diagnosis *x, oq_buf *out);
/* The nodes that the command leaves float, one a line, as a file for --nodes_to_exclude; nothing
 * where it leaves none. */
void oq_diagnosis_floats(const oq_diagnosis *x, oq_buf *out);
void oq_diagnosis_json(const oq_diagnosis *x, oq_jw *w);
/* Fills what the page shows of it. */
onq_code oq_diagnosis_report(const oq_diagnosis *x, oq_arena *a, oq_debug_about *about,
                             onq_error *err);
