/*
 * run.c MODEL DATA OUT — quantize() of the first tool: a model goes in, a model comes out, both in
 * memory, in its four modes. The parameters that three of them want ([zero point, scale] for each
 * tensor) come from a calibration over DATA, whose ranges never become a file either.
 */
#include "../common.h"

#include <math.h>
#include <string.h>

static double number(const onq_tensor *t) {
    float f = 0;
    memcpy(&f, t->data, sizeof f);
    return (double)f;
}

/* The ranges as JSON: {"tensor": [zero point, scale], ...}, for 8 bits without sign. */
static char *parameters(const onq_ranges *ranges) {
    const onq_range *r = NULL;
    size_t room = 3, used = 1;
    for (size_t i = 0; (r = onq_ranges_at(ranges, i)) != NULL; i++)
        room += strlen(r->name) + 64;
    char *json = malloc(room);
    if (json == NULL)
        return NULL;
    strcpy(json, "{");
    for (size_t i = 0; (r = onq_ranges_at(ranges, i)) != NULL; i++) {
        const double low = fmin(number(&r->lowest), 0), high = fmax(number(&r->highest), 0);
        const double scale = high > low ? (high - low) / 255 : 1;
        used += (size_t)snprintf(json + used, room - used, "%s\"%s\": [%d, %.17g]",
                                 i > 0 ? ", " : "", r->name, (int)rint(-low / scale), scale);
    }
    snprintf(json + used, room - used, "}");
    return json;
}

static const struct {
    const char *mode;
    int inputs, outputs; /* which parameters it wants */
} modes[] = {
    {"IntegerOps_Dynamic", 0, 0},
    {"IntegerOps_Static", 1, 0},
    {"QLinearOps_Dynamic", 0, 1},
    {"QLinearOps_Static", 1, 1},
};

static int quantize(onq_env *env, const onq_bytes *model, size_t which, const char *params,
                    const char *out) {
    const char *pairs[7] = {"quantization_mode", modes[which].mode};
    size_t n = 2;
    char path[4096];
    if (modes[which].inputs) {
        pairs[n++] = "input_quantization_params";
        pairs[n++] = params;
    }
    if (modes[which].outputs) {
        pairs[n++] = "output_quantization_params";
        pairs[n++] = params;
    }
    snprintf(path, sizeof path, "%s/%s.onnx", out, modes[which].mode);
    onq_result *result = job_in_memory(env, "legacy", model, pairs);
    const int done = result != NULL && write_file(path, onq_result_file(result, 0));
    onq_result_free(result);
    return done;
}

int main(int argc, char **argv) {
    if (argc != 4) {
        fprintf(stderr, "usage: run MODEL DATA OUT\n");
        return 1;
    }
    onq_env *env = onq_env_new(NULL);
    onq_bytes model = {.label = argv[1]};
    void *bytes = read_file(argv[1], &model.size);
    const char *const samples[] = {"data", argv[2], NULL};
    onq_result *found = NULL;
    model.data = bytes;
    if (env != NULL && bytes != NULL)
        found = job_in_memory(env, "calibrate", &model, samples);
    char *params = found != NULL ? parameters(onq_result_ranges(found)) : NULL;
    int done = params != NULL;
    for (size_t i = 0; i < sizeof modes / sizeof *modes && done; i++)
        done = quantize(env, &model, i, params, argv[3]);
    free(params);
    onq_result_free(found);
    free(bytes);
    onq_env_free(env);
    return done ? 0 : 1;
}
