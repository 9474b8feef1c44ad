/*
 * samples_tell.c — what a job says of its samples: what was done to images, and that the samples
 * say little about the model. See samples.h.
 */
#include "api/samples.h"

#include "onnx/operators.h"

/* Fewer rows than that find ranges that the next sample goes beyond. */
#define FEW_ROWS 8
/* Pixels that nobody scaled reach about so far at least. */
#define BRIGHT 64

static void tell_images(oq_job *job, const oq_source *source, const oq_overview *w) {
    const char *about = oq_source_about(source);
    if (about == NULL)
        return;
    oq_note(job->env, "images: %s; input %.4g..%.4g", about, w->inputs[0].least,
            w->inputs[0].greatest);
}

static void warn_of_copies(const oq_job *job, const oq_overview *w) {
    if (w->constant > 1 && 2 * w->constant >= w->samples)
        oq_warn(job->env, "%llu of %llu samples hold the same value everywhere",
                (unsigned long long)w->constant, (unsigned long long)w->samples);
    else if (w->distinct == 1 && w->samples > 1 && w->samples == w->compared)
        oq_warn(job->env, "all %llu samples are equal; they say no more than one of them",
                (unsigned long long)w->samples);
    else if (2 * w->distinct <= w->compared)
        oq_warn(job->env, "only %llu of %llu samples differ from each other",
                (unsigned long long)w->distinct, (unsigned long long)w->compared);
}

/* True if a Conv reads the tensor as it is: nothing in the model scales it first. */
static bool feeds_conv(const oq_graph *g, oq_str name, unsigned depth) {
    for (size_t i = 0; i < g->node.n; i++) {
        const oq_node *n = g->node.v[i];
        if (n->input.n == 0 || !oq_str_eq(n->input.v[0], name))
            continue;
        if (oq_op_traits_of(n->op_type)->product == OQ_CONV)
            return true;
        const bool moves = oq_str_is(n->op_type, "Transpose") || oq_str_is(n->op_type, "Pad") ||
                           oq_str_is(n->op_type, "Identity");
        if (moves && depth > 0 && n->output.n > 0 && feeds_conv(g, n->output.v[0], depth - 1))
            return true;
    }
    return false;
}

static onq_code warn_of_pixels(oq_job *job, const oq_model *m, const oq_overview *w,
                               onq_error *err) {
    oq_ios in;
    OQ_TRY(oq_model_inputs(m, &job->arena, &in, err));
    for (size_t i = 0; i < in.n && i < OQ_OVERVIEW_INPUTS; i++) {
        const oq_sight *s = &w->inputs[i];
        if (oq_dtype_is_float(in.v[i].dtype) && s->whole && s->least >= 0 && s->greatest > BRIGHT &&
            s->greatest <= 255 && feeds_conv(m->proto->graph, in.v[i].name, 2))
            oq_warn(job->env,
                    "input '%.*s' holds whole numbers from %g to %g, as pixels that were not "
                    "scaled do, and the model does not scale them itself; if it was trained on "
                    "0..1 or -1..1, the result is wrong",
                    OQ_STR(in.v[i].name), s->least, s->greatest);
    }
    return ONQ_OK;
}

onq_code oq_job_tell_samples(oq_job *job, const oq_model *m, const oq_source *source,
                             bool find_ranges, onq_error *err) {
    const oq_overview *w = oq_source_overview(source);
    if (w == NULL || w->samples == 0 || job->told_of_samples)
        return ONQ_OK;
    job->told_of_samples = true;
    tell_images(job, source, w);
    if (oq_source_is_random(source))
        return ONQ_OK;
    if (oq_overview_is_constant(w)) {
        oq_warn(job->env,
                "the samples hold nothing but %g: what is found with them says nothing about real "
                "data",
                w->inputs[0].least);
        job->samples_are_constant = true;
        return ONQ_OK;
    }
    warn_of_copies(job, w);
    if (find_ranges && w->rows < FEW_ROWS)
        oq_warn(job->env,
                "%llu sample%s %s few: other data will go beyond the ranges that are found (32 to "
                "200 are usual)",
                (unsigned long long)w->rows, OQ_NOUN_S(w->rows), w->rows == 1 ? "is" : "are");
    return warn_of_pixels(job, m, w, err);
}
