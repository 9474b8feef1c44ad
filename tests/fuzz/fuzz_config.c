/*
 * fuzz_config.c — every file that says how a model is to be quantized: overrides, ranges, plans,
 * methods of nodes, costs, parameters of the first tool, configurations of nodes; and the state of
 * a search and labels. The file is refused with a message, or the model that comes out is valid.
 *
 * Input: one byte that chooses the row of `jobs`, two for the length of the file, the file, a
 * model.
 */
#include "api/bench/labels.h"
#include "tune/state.h"

#include "fuzz.h"
#include "model_mutator.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The command, the option that names the file, and further options with their values. */
static const struct {
    const char *command, *option;
    const char *more[9];
} jobs[] = {
    {"static", "tensor_quant_overrides", {"no_verify", "true", "check", "0"}},
    {"static",
     "tensor_quant_overrides",
     {"no_verify", "true", "check", "0", "quant_format", "qoperator", "per_channel", "true"}},
    {"static", "from_plan", {"no_verify", "true", "check", "0"}},
    {"static", "node_methods", {"no_verify", "true", "check", "0"}},
    {"static", "unit_costs", {"no_verify", "true", "check", "0", "op_set", "pays"}},
    {"static", "calibration_cache", {"no_verify", "true", "check", "0"}},
    {"static",
     "calibration_cache",
     {"no_verify", "true", "check", "0", "calibrate_method", "percentile"}},
    {"nbits", "node_config", {"no_verify", "true", "all_weights", "true"}},
    {"legacy", "input_quantization_params", {"quantization_mode", "IntegerOps_Static"}},
    {"legacy", "output_quantization_params", {"quantization_mode", "QLinearOps_Dynamic"}},
};
enum { STATE = OQ_COUNT(jobs), LABELS, KINDS };
#define FILE_NAME "file.json"

/* A range for every value of the model, so that no sample is needed. */
static onq_ranges *some_ranges(onq_env *env) {
    static const float bounds[] = {-1.0f, 1.5f};
    onq_error err = ONQ_ERROR_INIT;
    onq_ranges *r = NULL;
    onq_model *m = NULL;
    const onq_value *v;
    MUST(onq_ranges_new(env, "MinMax", &r, &err) == ONQ_OK);
    if (onq_model_open(env, fuzz_path("in.onnx"), NULL, &m, &err) != ONQ_OK)
        return r;
    for (size_t i = 0; (v = onq_model_value(m, i)) != NULL; i++) {
        const onq_range range = {.name = v->name,
                                 .lowest = {.dtype = 1, .data = &bounds[0], .size = 4},
                                 .highest = {.dtype = 1, .data = &bounds[1], .size = 4},
                                 .bare = 3};
        (void)onq_ranges_set(r, &range, &err);
    }
    onq_model_free(m);
    return r;
}

static void run(onq_env *env, size_t job) {
    onq_error err = ONQ_ERROR_INIT;
    const bool given = strcmp(jobs[job].command, "static") == 0 &&
                       strcmp(jobs[job].option, "calibration_cache") != 0;
    onq_ranges *ranges = given ? some_ranges(env) : NULL;
    onq_options *o = fuzz_options(env, jobs[job].command, jobs[job].more);
    MUST(onq_options_set(o, jobs[job].option, fuzz_path(FILE_NAME), &err) == ONQ_OK);
    MUST(!given || onq_options_set_ranges(o, ranges, &err) == ONQ_OK);
    fuzz_run(env, o);
    onq_options_free(o);
    onq_ranges_free(ranges);
}

static void read_state(onq_env *env) {
    onq_error err = ONQ_ERROR_INIT;
    oq_tune_state s;
    const onq_code rc = oq_state_open(&s, env, fuzz_path(FILE_NAME), "a job", &err);
    MUST_EXPLAIN(rc, err);
    if (rc == ONQ_OK) {
        oq_state_row row;
        (void)oq_state_find(&s, "a", &row);
        row = (oq_state_row){.ms = 1.5, .size = 7};
        MUST(oq_state_put(&s, "a", &row, &err) == ONQ_OK && oq_state_find(&s, "a", &row));
        MUST(row.ms == 1.5 && row.size == 7);
    }
    oq_state_close(&s);
}

static void read_labels(onq_env *env) {
    static const float scores[] = {0.5f, 2.0f, 1.0f, 0.0f, 0.0f, 3.0f};
    static const int64_t dims[] = {2, 3};
    onq_error err = ONQ_ERROR_INIT;
    oq_labels l;
    oq_arena a;
    uint64_t seen = 0, right = 0;
    oq_arena_init(&a, &env->alloc);
    onq_code rc = oq_labels_read(&l, &a, &env->alloc, fuzz_path(FILE_NAME), &err);
    if (rc == ONQ_OK) {
        const oq_datum d = {.kind = OQ_DATUM_TENSOR,
                            .dtype = OQ_FLOAT,
                            .rank = 2,
                            .dims = dims,
                            .count = 6,
                            .data = scores,
                            .size_bytes = sizeof scores};
        rc = oq_labels_count(&l, &d, &seen, &right, &err);
        MUST(rc != ONQ_OK || (seen == 2 && right <= 2));
    }
    if (rc == ONQ_OK)
        rc = oq_labels_end(&l, seen, &err);
    MUST_EXPLAIN(rc, err);
    oq_arena_release(&a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 3)
        return 0;
    const size_t job = data[0] % KINDS;
    size_t n = (size_t)data[1] | ((size_t)data[2] << 8);
    n = n > size - 3 ? size - 3 : n;
    fuzz_write(FILE_NAME, data + 3, n);
    fuzz_write("in.onnx", data + 3 + n, size - 3 - n);
    onq_env *env = onq_env_new(NULL);
    onq_env_set_threads(env, 1);
    if (job == STATE)
        read_state(env);
    else if (job == LABELS)
        read_labels(env);
    else
        run(env, job);
    onq_env_free(env);
    return 0;
}

/* Mostly the file, now and then the model. */
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned seed) {
    if (size < 4 || max < 16)
        return LLVMFuzzerMutate(data, size, max);
    size_t n = (size_t)data[1] | ((size_t)data[2] << 8);
    n = n > size - 3 ? size - 3 : n;
    if (seed % 4 == 0)
        return mutate_model(data, size, max, seed, 3 + n);
    /* The file alone grows and shrinks; the model moves. */
    uint8_t *copy = malloc(max);
    if (copy == NULL)
        return size;
    const size_t rest = size - 3 - n, most = max - 3 - rest < 65535 ? max - 3 - rest : 65535;
    memcpy(copy, data + 3, n);
    const size_t made = LLVMFuzzerMutate(copy, n < most ? n : most, most);
    memmove(data + 3 + made, data + 3 + n, rest);
    memcpy(data + 3, copy, made);
    data[1] = (uint8_t)made;
    data[2] = (uint8_t)(made >> 8);
    free(copy);
    return 3 + made + rest;
}
