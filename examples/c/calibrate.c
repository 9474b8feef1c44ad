/*
 * calibrate.c MODEL SAMPLES... — calibrates in a loop: each SAMPLES is a portion, and after each the
 * ranges so far are looked at.
 *
 * SAMPLES is whatever `onq calibrate --data` takes: a folder, an .npz file, random:8 ...
 */
#include <math.h>
#include <onq/onq.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The greatest magnitude among the ranges, and how many there are. */
static onq_code look(onq_calibrator *cal, size_t *n, float *most, onq_error *err) {
    onq_ranges *ranges = NULL;
    const onq_code rc = onq_calibrator_compute(cal, &ranges, err);
    if (rc != ONQ_OK)
        return rc;
    *n = onq_ranges_count(ranges);
    *most = 0;
    for (size_t i = 0; i < *n; i++) {
        const onq_range *r = onq_ranges_at(ranges, i);
        float low = 0, high = 0;
        if (r->lowest.dtype == 1 && r->highest.dtype == 1) { /* float; there is float16 too */
            memcpy(&low, r->lowest.data, sizeof low);
            memcpy(&high, r->highest.data, sizeof high);
        }
        *most = fmaxf(*most, fmaxf(fabsf(low), fabsf(high)));
    }
    onq_ranges_free(ranges);
    return ONQ_OK;
}

/* One portion. The calibrator takes its samples from --data, which is set anew each time. */
static onq_code collect(onq_calibrator *cal, onq_options *opts, const char *data, onq_error *err) {
    const onq_code rc = onq_options_set(opts, "data", data, err);
    return rc == ONQ_OK ? onq_calibrator_collect(cal, NULL, err) : rc;
}

int main(int argc, char **argv) {
    setenv("ORT_DISABLE_TELEMETRY", "1", 0); /* ONNX Runtime is not to collect events */
    onq_error err = ONQ_ERROR_INIT;
    onq_env *env = onq_env_new(NULL);
    onq_options *opts = NULL;
    onq_calibrator *cal = NULL;
    onq_code rc = ONQ_E_OPTION;
    if (env == NULL || argc < 3) {
        fprintf(stderr, "usage: calibrate MODEL SAMPLES...\n");
        onq_env_free(env);
        return 1;
    }
    rc = onq_options_new(env, "calibrate", &opts, &err);
    if (rc == ONQ_OK)
        rc = onq_options_set(opts, "input", argv[1], &err);
    if (rc == ONQ_OK)
        rc = onq_options_set(opts, "method", "entropy", &err);
    if (rc == ONQ_OK)
        rc = onq_calibrator_new(env, opts, &cal, &err);
    for (int i = 2; rc == ONQ_OK && i < argc; i++) {
        size_t n = 0;
        float most = 0;
        rc = collect(cal, opts, argv[i], &err);
        if (rc == ONQ_OK)
            rc = look(cal, &n, &most, &err);
        if (rc == ONQ_OK)
            printf("after %s: %zu ranges, the widest reaches %g\n", argv[i], n, (double)most);
    }
    if (rc != ONQ_OK)
        fprintf(stderr, "%s\n", err.text);
    onq_calibrator_free(cal);
    onq_options_free(opts);
    onq_env_free(env);
    return rc == ONQ_OK ? 0 : 1;
}
