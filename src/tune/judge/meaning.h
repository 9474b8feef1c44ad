/*
 * meaning.h — what the outputs of a model are, and what people measure them by.
 */
#pragma once

#include "onnx/model.h"
#include "samples/datum.h"
#include "samples/language.h"

typedef enum oq_metric {
    OQ_METRIC_AGREEMENT,        /* percent of rows with float's class */
    OQ_METRIC_SAMPLE_AGREEMENT, /* percent of sequences all of whose rows have it */
    OQ_METRIC_TEXT_AGREEMENT,   /* percent of texts that are float's, as CTC reads them (text.h) */
    OQ_METRIC_SQNR,             /* dB, of the worst output */
    OQ_METRIC_COSINE,           /* of the worst output */
    OQ_METRIC_NEIGHBOURS,       /* percent of embeddings with float's nearest other one */
    OQ_METRIC_IOU,              /* percent: intersection over union of the first output above 0.5 */
    OQ_METRIC_DETECTIONS,       /* percent: F1 of the boxes that float detects */
    OQ_METRIC_KL,               /* divergence from float's distribution, a mean over rows */
    OQ_METRIC_PERPLEXITY_RISE,  /* percent, of a language model on its own samples */
    OQ_METRIC_ACCURACY_DROP,    /* percent points of right answers lost, by labels */
    OQ_METRIC_METRIC,           /* of the user's program */
    OQ_METRICS
} oq_metric;

typedef struct oq_metric_info {
    const char *name;
    const char *what; /* for people */
    bool less;        /* is better */
    bool percent;
    double least, most; /* values that a target can have */
    double slack;       /* by which a bound may miss a target */
} oq_metric_info;

const oq_metric_info *oq_metric_of(oq_metric m);
/* false if there is no such metric. */
bool oq_metric_find(oq_str name, oq_metric *out);

/* What an output went through last. */
typedef enum oq_link { OQ_LINK_NONE = 0, OQ_LINK_SOFTMAX, OQ_LINK_SIGMOID } oq_link;

/* The value before the link, as far as it is known. Probabilities below `least` are that. */
double oq_link_before(oq_link link, double v, double least);
/* The step of float32 next to 1, for a Sigmoid, and a bit more: of probabilities below it nothing is
 * known. */
#define OQ_LEAST_SCORE 1e-7

typedef struct oq_meaning {
    const oq_link *links;    /* of the outputs, in their order */
    const char *const *whys; /* each may hold scores of classes, for people; NULL: it does not */
    size_t n;
    size_t classes;    /* the first output that holds scores of classes; n: none does */
    const char *why;   /* it does, for people; NULL: none does */
    bool is_text;      /* its rows are read as a text (text.h), as far as somebody looked */
    uint64_t blank;    /* then: the class that is no character */
    bool scores_alone; /* each class has a Sigmoid of its own: only rows of a matrix count */
    size_t decides;  /* the first output that comes from a Sigmoid and is no state; n: none does */
    bool decision;   /* `classes` is it, and a row of it is one number: which side of one half it
                         * is on */
    bool both_sides; /* float's numbers are: a tenth of them on each, at least */
    const char *numbers; /* why an output of a linear operator holds no classes; NULL: none */
    const bool *states;  /* outputs that go back into the model, which are no answers */
    oq_language language;
    const struct oq_detector *detector; /* detect.h; NULL: it detects nothing */
    bool wanted[OQ_METRICS];
} oq_meaning;

/* A decision for a probability of more than this. */
#define OQ_DECIDED_AT 0.5

/* Classes come after a Softmax or LogSoftmax, also where it is written out (Exp, ReduceSum, Div),
 * come from a linear operator, or from one with a Sigmoid, or are numbers from an ArgMax. `roles` may
 * be NULL: then names tell which outputs are states. In the arena. */
onq_code oq_meaning_find(oq_model *m, const oq_roles *roles, oq_arena *a, oq_meaning *out,
                         onq_error *err);

/* A linear operator gives scores of classes, but also coordinates and grades. Looks at float's
 * outputs of all samples, and takes numbers of the second kind for no classes. */
onq_code oq_meaning_look(oq_meaning *m, const oq_datum *const *samples, size_t n_samples,
                         oq_arena *a, onq_error *err);

/* Where no operator shows that an output holds classes, it holds them if it is a matrix of which each
 * row adds up to one: a mean of several Softmax results, for example. */
onq_code oq_meaning_find_parts(oq_meaning *m, const oq_datum *const *samples, size_t n_samples,
                               oq_arena *a, onq_error *err);

bool oq_meaning_is_state(const oq_meaning *m, size_t output);
/* Looks at float's outputs of all samples: an output of one probability is a decision, and the rows
 * of it are the ones that count. Where the model has classes, boxes or any other output that is no
 * probability and no state, nothing changes. */
void oq_meaning_decide(oq_meaning *m, const oq_datum *const *samples, size_t n_samples);

/* The target that is taken where none is given, from the outputs of one sample, and why. */
typedef struct oq_default_target {
    oq_metric metric;
    double value;
    const char *why;
} oq_default_target;
oq_default_target oq_meaning_target(const oq_meaning *m, const oq_datum *outputs, size_t n_outputs,
                                    int64_t batch);
/* How many sequences of rows an output has: one for each of the batch if its first axis is that. */
uint64_t oq_sequences_of(const oq_datum *d, int64_t batch);
