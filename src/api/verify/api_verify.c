/*
 * api_verify.c — `onq verify MODEL [--float_model F] [--data S] [--onnxruntime LIB ...]`: does a model
 * load, run and compute the same thing in every runtime that its users have?
 *
 * Each runtime gets a process of its own (verify_apart.c). Inside of an isolated process, which may
 * not start others, they take turns.
 */
#include "api/options/shared_rows.h"
#include "api/verify/verify_here.h"

#include "base/text/json.h"
#include "debug/verify.h"
#include "engine/ort.h"
#include "onnx/check/check.h"

static const onq_option_info rows[] = {
    /* Own sense: in `debug` it is the model that is read. */
    OQ_PATH("float_model", 0, "float", "FILE",
            "The model before quantization; the outputs are compared with its."),
    /* Own sense: several libraries. */
    OQ_LIST(
        "onnxruntime", 0, "", "FILE",
        "The ONNX Runtime libraries to try. A folder means every libonnxruntime.so* in it and in "
        "the folders inside, such as an unpacked wheel. Default: $ONQ_ONNXRUNTIME, then the one "
        "that was set up with onq, then the loader's path."),
    OQ_TEXT("run_with", 0, "", "", "COMMAND",
            "The beginning of a command line that runs an onq built for another CPU or system, for "
            "libraries built for it: 'qemu-aarch64 onq-aarch64' for those of 64-bit Arm, 'wine "
            "onq.exe' for those of Windows."),
};
static const oq_opt_group own = OQ_GROUP("Verifying", rows);

typedef struct verifying {
    oq_job *job;
    oq_strs libraries; /* one that is empty: the runtime that other commands take */
    json_t *found;     /* an array, a row for each */
    size_t n_opened;
    onq_error first; /* why the first that could not be opened could not */
} verifying;

/* ---- one runtime after another ---- */

/* A row for a runtime that gave none itself. */
static onq_code add_failure(verifying *v, const char *library, const onq_error *why,
                            onq_error *err) {
    json_t *row = json_pack("{s:s, s:b, s:b, s:b, s:s}", "runtime", library, "good", 0, "loads", 0,
                            "runs", 0, "why", why->text);
    return row != NULL && json_array_append_new(v->found, row) == 0 ? ONQ_OK : oq_fail_nomem(err);
}

static onq_code here(verifying *v, const char *library, json_t **row, onq_error *err) {
    oq_jw w;
    OQ_SCRATCH_BUF(text, &v->job->env->alloc);
    oq_jw_init(&w, &text, false);
    OQ_TRY(oq_verify_here(v->job, library, &w, err));
    OQ_TRY_ALLOC(!text.failed, err);
    return oq_json_parse("verify", (oq_str){text.p, text.n}, row, err);
}

/* A library that this program cannot load because it is another machine's. */
static bool is_foreign(const char *library) {
    const char *machine = library != NULL ? oq_library_machine(library) : NULL;
    return machine != NULL && machine[0] != '\0' && strcmp(machine, oq_library_here()) != 0;
}

static onq_code try_foreign(verifying *v, const char *library, json_t **row, onq_error *err) {
    if (oq_opt_is_set(v->job->opts, "run_with"))
        return oq_verify_there(v->job, library, row, err);
    return oq_fail(
        err, ONQ_E_RUNTIME,
        "--onnxruntime: '%s' cannot be loaded: it is a library for %s, and this onq is for %s "
        "(--run_with starts an onq for it)",
        library, oq_library_machine(library), oq_library_here());
}

static onq_code try_runtime(verifying *v, const char *library, onq_error *err) {
    onq_error why = ONQ_ERROR_INIT;
    json_t *row = NULL;
    const onq_options *o = v->job->opts;
    const bool refused = oq_opt_is_set(o, "isolate") && !oq_opt_flag(o, "isolate");
    const bool alone = v->job->env->isolated || library == NULL || refused;
    const bool foreign = is_foreign(library);
    onq_code rc = foreign ? try_foreign(v, library, &row, &why)
                  : alone ? here(v, library, &row, &why)
                          : oq_verify_apart(v->job, library, &row, &why);
    if (rc == ONQ_E_UNSUPPORTED && !alone)
        rc = here(v, library, &row, &why);
    if (rc == ONQ_E_RUNTIME || rc == ONQ_E_LIMIT) {
        if (v->first.text[0] == '\0') {
            v->first = why;
            if (library != NULL && strstr(why.text, oq_path_last(library)) == NULL)
                oq_error_in(&v->first, rc, "ONNX Runtime '%s'", library); /* it ended a process */
        }
        return add_failure(v, library != NULL ? library : "", &why, err);
    }
    if (rc != ONQ_OK)
        return oq_error_give(err, rc, &why);
    v->n_opened++;
    return json_array_append_new(v->found, row) == 0 ? ONQ_OK : oq_fail_nomem(err);
}

static onq_code list_runtimes(verifying *v, onq_error *err) {
    size_t n = 0;
    const oq_str *said = oq_opt_list(v->job->opts, "onnxruntime", &n);
    for (size_t i = 0; i < n; i++)
        OQ_TRY(oq_ort_list(&v->job->arena, said[i].p, &v->libraries, err));
    if (n == 0) { /* a process of its own needs its path */
        onq_runtime_info info;
        OQ_TRY(oq_ort_query(v->job->env, NULL, &info, err));
        OQ_TRY(oq_ort_list(&v->job->arena, info.path, &v->libraries, err));
    }
    return ONQ_OK;
}

/* A bad model is an error, whatever the runtimes are. */
static onq_code check_models(oq_job *job, onq_error *err) {
    const char *const paths[] = {oq_job_input(job), oq_opt_str(job->opts, "float_model")};
    for (size_t i = 0; i < OQ_COUNT(paths); i++) {
        oq_model *m = NULL;
        if (paths[i] == NULL)
            continue;
        OQ_TRY(oq_job_open(job, paths[i], &m, err));
        const onq_code rc = oq_model_check(m, err);
        oq_model_free(m);
        OQ_TRY(rc);
    }
    return ONQ_OK;
}

static onq_code try_all(verifying *v, onq_error *err) {
    const onq_options *o = v->job->opts;
    const bool stream = oq_opt_is_set(o, "data") && strcmp(oq_opt_str(o, "data"), "-") == 0;
    OQ_TRY(list_runtimes(v, err));
    if (stream && v->libraries.n > 1)
        return oq_fail(err, ONQ_E_OPTION,
                       "--data -: standard input can be read only once, and there are %zu runtimes",
                       v->libraries.n);
    OQ_TRY(check_models(v->job, err));
    for (size_t i = 0; i < v->libraries.n; i++) {
        const bool silent = oq_env_silence(v->job->env, i > 0 || v->job->env->silent);
        const onq_code rc = try_runtime(v, v->libraries.v[i].p, err);
        oq_env_silence(v->job->env, silent);
        OQ_TRY(rc);
    }
    return v->n_opened > 0 || v->libraries.n > 1 ? ONQ_OK
                                                 : oq_error_give(err, ONQ_E_RUNTIME, &v->first);
}

/* ---- the answer ---- */

static const char *text_of(const json_t *row, const char *key) {
    const char *text = json_string_value(json_object_get(row, key));
    return text != NULL ? text : "";
}

static void add_figure(oq_buf *b, const json_t *row, const char *key, const char *unit) {
    const json_t *j = json_object_get(row, key);
    if (!json_is_number(j))
        oq_buf_addf(b, "  %11s", "-");
    else if (json_number_value(j) >= OQ_GRADE_EQUAL && strcmp(unit, "dB") == 0)
        oq_buf_addf(b, "  %11s", "equal");
    else
        oq_buf_addf(b, "  %8.*f %s", strcmp(unit, "ms") == 0 ? 3 : 1, json_number_value(j), unit);
}

/* "1.31.1", with the machine if that is another one. */
static void add_name(oq_buf *b, const json_t *row) {
    const char *version = text_of(row, "version"), *machine = text_of(row, "machine");
    const bool foreign = machine[0] != '\0' && strcmp(machine, oq_library_here()) != 0;
    oq_buf_addf(b, "%s%s%s", version[0] != '\0' ? version : text_of(row, "runtime"),
                foreign ? " " : "", foreign ? machine : "");
}

static void show_row(oq_job *job, const json_t *row) {
    const char *why = text_of(row, "why");
    oq_buf *b = &job->text;
    OQ_SCRATCH_BUF(name, &job->env->alloc);
    add_name(&name, row);
    oq_buf_addf(b, "%-15.*s  %-4s", (int)name.n, name.p != NULL ? name.p : "",
                json_is_true(json_object_get(row, "good")) ? "good" : "BAD");
    add_figure(b, row, "sqnr", "dB");
    add_figure(b, row, "sqnr_unoptimised", "dB");
    add_figure(b, row, "optimised_sqnr", "dB");
    add_figure(b, row, "milliseconds", "ms");
    oq_buf_addc(b, '\n');
    if (why[0] != '\0') {
        oq_buf_adds(b, "    ");
        oq_buf_add_safe(b, oq_str_of(why));
        oq_buf_addc(b, '\n');
    }
    if (text_of(row, "float_model")[0] != '\0') {
        oq_buf_adds(b, "    the float model does not run there: ");
        oq_buf_add_safe(b, oq_str_of(text_of(row, "float_model")));
        oq_buf_addc(b, '\n');
    }
    if (text_of(row, "helps")[0] != '\0')
        oq_buf_addf(b, "    what helps, tried there: %s\n    %s\n", text_of(row, "helps"),
                    text_of(row, "command"));
}

/* Rows have no objects and arrays in them. */
static void copy_row(oq_jw *w, json_t *row) {
    const char *key;
    json_t *j;
    oq_jw_begin_object(w, NULL);
    json_object_foreach(row, key, j) {
        if (json_is_string(j))
            oq_jw_cstr(w, key, json_string_value(j));
        else if (json_is_boolean(j))
            oq_jw_bool(w, key, json_is_true(j));
        else if (json_is_integer(j))
            oq_jw_int(w, key, json_integer_value(j));
        else
            oq_jw_real(w, key, json_number_value(j));
    }
    oq_jw_end_object(w);
}

static void show(verifying *v) {
    oq_job *job = v->job;
    size_t n_good = 0, i;
    json_t *row;
    oq_jw_cstr(&job->json, "model", oq_job_input(job));
    oq_jw_begin_array(&job->json, "runtimes");
    oq_buf_addf(&job->text, "%-15s  %-4s  %11s  %11s  %11s  %11s\n", "ONNX Runtime", "", "to float",
                "unoptimised", "between", "time");
    json_array_foreach(v->found, i, row) {
        show_row(job, row);
        copy_row(&job->json, row);
        n_good += json_is_true(json_object_get(row, "good"));
    }
    oq_jw_end_array(&job->json);
    oq_jw_bool(&job->json, "good", n_good == v->libraries.n);
    oq_buf_addf(&job->text,
                "%zu of %zu runtime%s load it, run it and compute the same with and "
                "without their optimisations\n",
                n_good, v->libraries.n, OQ_NOUN_S(v->libraries.n));
    job->status = n_good == v->libraries.n ? 0 : 1;
}

static onq_code run_verify(oq_job *job, onq_error *err) {
    verifying v = {.job = job, .first = ONQ_ERROR_INIT, .found = json_array()};
    onq_code rc = v.found != NULL ? try_all(&v, err) : oq_fail_nomem(err);
    if (rc == ONQ_OK)
        show(&v);
    json_decref(v.found);
    return rc;
}

const oq_command oq_command_verify = {
    .info = {"verify", "MODEL", "load and run a model in several versions of ONNX Runtime",
             "Loads MODEL in each runtime of --onnxruntime and runs it over samples, with the "
             "runtime's optimisations and without. Shows how far the outputs are from those of "
             "--float_model, how far optimised outputs are from unoptimised ones, and the time "
             "of a run. The status is 1 if the model does not load or run in one of the runtimes, "
             "gives NaN there, or computes something else when it is optimised; if a rewritten "
             "model works there, the command that makes it is shown. Each runtime has a process of "
             "its own, so a crash becomes a row like any other."},
    .groups = {&own, &oq_group_input, &oq_group_data, &oq_group_runtime_rest, &oq_group_general,
               &oq_group_verify_idle},
    .run = run_verify,
};
