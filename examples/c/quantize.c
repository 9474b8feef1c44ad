/*
 * quantize.c MODEL OUTPUT — quantizes a model in memory, with samples from a function.
 *
 * The model is read and written by the program itself; onq sees bytes. Samples are made up here: a
 * program of yours gives the images or texts that it has in memory anyway.
 */
#include "../common.h"

#define SAMPLES 16
#define FLOAT   1 /* as ONNX numbers types */

/* ---- samples ---- */

struct samples {
    int next;         /* the number of the next one */
    onq_tensor input; /* what is given for it */
    float *values;
    size_t count;
};

/* onq asks for the next sample: 1, or 0 when there are no more. */
static int give(void *ctx, const onq_tensor **inputs, size_t *n_inputs) {
    struct samples *s = ctx;
    if (s->next == SAMPLES)
        return 0;
    srand((unsigned)s->next++);
    for (size_t i = 0; i < s->count; i++)
        s->values[i] = (float)rand() / (float)RAND_MAX;
    *inputs = &s->input;
    *n_inputs = 1;
    return 1;
}

/* Methods with histograms look at the samples twice. */
static int begin_again(void *ctx) {
    ((struct samples *)ctx)->next = 0;
    return 0;
}

/* A tensor for the model's input; what the model leaves open is 1. */
static int make_input(struct samples *s, const onq_value *v) {
    int64_t *dims = calloc(v->rank + 1, sizeof *dims);
    if (dims == NULL)
        return 0;
    s->count = 1;
    for (size_t i = 0; i < v->rank; i++) {
        dims[i] = v->dims[i] > 0 ? v->dims[i] : 1;
        s->count *= (size_t)dims[i];
    }
    s->values = calloc(s->count, sizeof *s->values);
    s->input = (onq_tensor){.name = v->name,
                            .dtype = v->dtype,
                            .rank = v->rank,
                            .dims = dims,
                            .data = s->values,
                            .size = s->count * sizeof *s->values};
    return s->values != NULL;
}

/* ---- the job ---- */

static onq_code quantize(onq_env *env, const onq_bytes *model, struct samples *s, onq_result **out,
                         onq_error *err) {
    const onq_reader reader = {.next = give, .ctx = s, .rewind = begin_again};
    onq_options *opts = NULL;
    onq_code rc = onq_options_new(env, "static", &opts, err);
    if (rc == ONQ_OK)
        rc = onq_options_set_bytes(opts, "input", model, err);
    if (rc == ONQ_OK)
        rc = onq_options_want_bytes(opts, "output", "quantized.onnx", err);
    if (rc == ONQ_OK)
        rc = onq_options_set_reader(opts, &reader, err);
    if (rc == ONQ_OK)
        rc = onq_options_set(opts, "per_channel", "true", err);
    if (rc == ONQ_OK)
        rc = onq_run(env, opts, out, err);
    onq_options_free(opts);
    return rc;
}

int main(int argc, char **argv) {
    setenv("ORT_DISABLE_TELEMETRY", "1", 0); /* ONNX Runtime is not to collect events */
    onq_error err = ONQ_ERROR_INIT;
    if (argc != 3) {
        fprintf(stderr, "usage: quantize MODEL OUTPUT\n");
        return 1;
    }
    onq_env *env = onq_env_new(NULL);
    onq_bytes model = {.label = argv[1]};
    onq_model *listed = NULL;
    onq_result *result = NULL;
    struct samples s = {0};
    int status = 1;
    void *bytes = read_file(argv[1], &model.size);
    if (env == NULL || bytes == NULL)
        goto done;
    model.data = bytes;
    if (onq_model_open(env, NULL, &model, &listed, &err) != ONQ_OK) {
        fprintf(stderr, "%s\n", err.text);
        goto done;
    }
    const onq_value *first = onq_model_value(listed, 0);
    if (first == NULL || first->dtype != FLOAT || !make_input(&s, first)) {
        fprintf(stderr, "the samples of this program are floats, for the first input\n");
        goto done;
    }
    if (quantize(env, &model, &s, &result, &err) != ONQ_OK) {
        fprintf(stderr, "%s\n", err.text);
        goto done;
    }
    fputs(onq_result_text(result), stdout);
    for (size_t i = 0; onq_result_warning(result, i) != NULL; i++)
        fprintf(stderr, "warning: %s\n", onq_result_warning(result, i));
    status = write_file(argv[2], onq_result_file(result, 0)) ? 0 : 1;
done:
    onq_result_free(result);
    onq_model_free(listed);
    onq_env_free(env);
    free(s.values);
    free((void *)(uintptr_t)s.input.dims);
    free(bytes);
    return status;
}
