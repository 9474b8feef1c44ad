/*
 * onq.h — the whole public interface of libonq.
 *
 * A tour. Everything libonq does is a *command*: the same names and options as the program `onq`
 * (`onq ops`, `onq --help`). One call sets it up, one runs it:
 *
 *     onq_error err = ONQ_ERROR_INIT;
 *     onq_env *env = onq_env_new(NULL);
 *     onq_options *opts = NULL;
 *     onq_result *res = NULL;
 *     if (onq_options_new(env, "dynamic", &opts, &err) == ONQ_OK &&
 *         onq_options_set(opts, "input", "model.onnx", &err) == ONQ_OK &&
 *         onq_options_set(opts, "output", "model.int8.onnx", &err) == ONQ_OK &&
 *         onq_run(env, opts, &res, &err) == ONQ_OK)
 *         puts(onq_result_text(res));
 *     else
 *         fprintf(stderr, "%s\n", err.text);
 *     onq_result_free(res);
 *     onq_options_free(opts);
 *     onq_env_free(env);
 *
 * Every fallible call returns an onq_code (0 is success) and takes an onq_error last, which may be
 * NULL. Handles are made by onq_x_new/open and freed by onq_x_free; freeing NULL does nothing. Four
 * words say who owns what: *borrows* (uses your memory during the call, or as long as it says),
 * *copies*, *takes* (becomes owner), *returns owned* (you free it).
 *
 * Threads: an environment and its jobs belong to one thread at a time; different environments are
 * independent. No job changes what another one does, and the library leaves the environment
 * variables, signals, locale and working folder of the process alone. ONNX Runtime, which it loads
 * for some commands, collects events from then on unless the variable ORT_DISABLE_TELEMETRY is 1:
 * set it at the start of main if you do not want that. The program `onq` and the Python package do
 * so. OpenBLAS, where gptq and learned rounding find it, has one thread while such a job runs, and
 * as many as before when the last one ends.
 */
#ifndef ONQ_ONQ_H
#define ONQ_ONQ_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define ONQ_API __attribute__((visibility("default")))
#else
#define ONQ_API
#endif

#define ONQ_VERSION_MAJOR 0
#define ONQ_VERSION_MINOR 1
#define ONQ_VERSION_PATCH 0

/* ---- begin plain C (a binding may read the text between these two marks) ---- */

/* Result codes. Numbers are pinned, in families with gaps: 1 memory, 10 files, 20 malformed input,
 * 30 unsupported, 40 options, 50 the runtime. */
typedef enum onq_code {
    ONQ_OK = 0,
    ONQ_E_NOMEM = 1,        /* out of memory */
    ONQ_E_LIMIT = 2,        /* a limit on size, depth or count was passed */
    ONQ_E_CANCEL = 3,       /* the caller's callback asked to stop */
    ONQ_E_OPEN = 10,        /* a file cannot be opened */
    ONQ_E_READ = 11,        /* a file cannot be read, or changed while it was read */
    ONQ_E_WRITE = 12,       /* an output cannot be written */
    ONQ_E_PATH = 13,        /* a path that external data may not use */
    ONQ_E_MISSING = 14,     /* a file or folder that is not there */
    ONQ_E_MALFORMED = 20,   /* the bytes are not what they should be */
    ONQ_E_INVALID = 21,     /* well-formed, but not a valid model, tensor, sample or file */
    ONQ_E_UNSUPPORTED = 30, /* valid, but this cannot be done with it */
    ONQ_E_OPTION = 40,      /* unknown option or value, or options that cannot be used together */
    ONQ_E_CONFIG = 41,      /* an override, parameter or configuration file is wrong */
    ONQ_E_RUNTIME = 50,     /* ONNX Runtime is missing, too old, or refused */
    ONQ_E_INTERNAL = 60     /* a bug in onq */
} onq_code;

/* An error: the code and one line of text, context first (`file: node 'x' (Conv): what is
 * wrong`). `offset` is the byte in the file where it was found, or -1. Owned by the caller;
 * needs no free. */
typedef struct onq_error {
    onq_code code;
    int64_t offset;
    char text[1024];
} onq_error;

/* The library's version, "0.1.0". */
ONQ_API const char *onq_version(void);
/* The short name of a code, "malformed". Never NULL. */
ONQ_API const char *onq_code_name(onq_code code);

/* ---- environment: allocator, messages, threads ---- */

typedef struct onq_env onq_env;

typedef enum onq_log_level {
    ONQ_LOG_ALERT = -1, /* a warning not to be hidden: the result is not what was asked for */
    ONQ_LOG_ERROR = 0,
    ONQ_LOG_WARNING = 1,
    ONQ_LOG_INFO = 2,
    ONQ_LOG_DEBUG = 3,
    ONQ_LOG_NOTE = 4 /* worth knowing without asking; not a warning */
} onq_log_level;

/* Memory: one function, as realloc with sizes. (NULL, 0, n) allocates, (p, old, 0) frees.
 * Must be safe to call from several threads. */
typedef struct onq_allocator {
    void *(*resize)(void *ctx, void *p, size_t old_size, size_t new_size);
    void *ctx;
} onq_allocator;

/* Makes an environment. `alloc` is copied; NULL means the C library's. Returns NULL when out of
 * memory. */
ONQ_API onq_env *onq_env_new(const onq_allocator *alloc);
ONQ_API void onq_env_free(onq_env *env);
/* Messages go to `fn`; none are shown without one. `text` is borrowed during the call. */
ONQ_API void onq_env_set_log(onq_env *env,
                             void (*fn)(void *ctx, onq_log_level level, const char *text),
                             void *ctx);
/* Progress: `done` of `total` (0: unknown) steps of `what`. Return nonzero to cancel the job. */
ONQ_API void onq_env_set_progress(
    onq_env *env, int (*fn)(void *ctx, const char *what, uint64_t done, uint64_t total), void *ctx);
/* Worker threads; 0 (the default) means one for each core. Results never depend on it. */
ONQ_API void onq_env_set_threads(onq_env *env, unsigned n_threads);

/* ---- tensors, samples and files of the caller ---- */

/* A tensor in the caller's or the library's memory. `dtype` is ONNX's number of the element type
 * (TensorProto.DataType: 1 float, 10 float16, 11 double ...); the elements are laid out as in
 * raw_data, or, where a reader gives them, as `strides` says. */
typedef struct onq_tensor {
    const char *name; /* may be NULL where the call does not use names */
    int32_t dtype;
    size_t rank;
    const int64_t *dims;
    const void *data;
    size_t size;                /* bytes of data; not looked at with strides */
    const char *const *strings; /* dtype 8 (string): the texts; data is not looked at */
    const int64_t
        *strides; /* from a reader: bytes from one index of each axis to the next, negative
                             * ones too; `data` is the element of index 0. NULL: no gaps, last axis
                             * fastest. Types of whole bytes only */
} onq_tensor;

/* What `next` of a reader returns: there is none left; a sample by itself; a step that ends its
 * sequence; a step after which others of the same sequence come. Steps get the states that the
 * model gave in the step before (--carry). */
enum { ONQ_READER_END = 0, ONQ_READER_SAMPLE = 1, ONQ_READER_LAST = 2, ONQ_READER_STEP = 3 };

/* Samples from the caller. `next` gives the inputs of the next sample by name, in any order, as
 * *inputs and *n_inputs, which stay valid until the next call, and returns one of the numbers
 * above; anything else stops the job with ONQ_E_CANCEL. `rewind` goes back to the first sample: 0,
 * or anything else to stop. It may be NULL: then the library keeps what it must, within --memory,
 * and the job ends with ONQ_E_LIMIT when it would need a sample that it could not keep. They are
 * called one at a time, on any of the job's threads, and may use the library with another
 * environment. */
typedef struct onq_reader {
    int (*next)(void *ctx, const onq_tensor **inputs, size_t *n_inputs);
    void *ctx;
    int (*rewind)(void *ctx);
    uint64_t count; /* samples of one pass, when known; 0: not known */
} onq_reader;

/* A file in the caller's memory. */
typedef struct onq_bytes {
    const char *label; /* its name in messages and results; NULL: the option's name */
    const void *data;
    size_t size;
    /* Of a model, both may be NULL: the folder in which its external data lies, and a function that
     * gives external data by its location (0; anything else: there is none). What it gives must
     * stay as long as the bytes do. The function is asked first. */
    const char *folder;
    int (*open)(void *ctx, const char *location, const void **data, size_t *size);
    void *ctx;
} onq_bytes;

/* ---- commands and options ---- */

typedef enum onq_option_type {
    ONQ_OPT_FLAG = 0,   /* true or false */
    ONQ_OPT_INT = 1,    /* a whole number */
    ONQ_OPT_REAL = 2,   /* a number */
    ONQ_OPT_STRING = 3, /* text */
    ONQ_OPT_PATH = 4,   /* a file or folder */
    ONQ_OPT_ENUM = 5,   /* one of `choices`, any case */
    ONQ_OPT_LIST = 6,   /* texts; setting it again appends */
    ONQ_OPT_SIZE = 7,   /* bytes, with k, m, g or t after the number */
    ONQ_OPT_PAIRS = 8   /* texts "key=value"; setting it again appends */
} onq_option_type;

/* One row of a command's option table. All texts are static. */
typedef struct onq_option_info {
    const char *name;    /* canonical name, with underscores */
    const char *aliases; /* other spellings, separated by spaces, "" when none */
    char letter;         /* one-letter form, 0 when none */
    onq_option_type type;
    const char *fallback; /* the default as text, "" when none */
    const char *choices; /* ENUM: the values, separated by '|'; other spellings of a value follow it
                           * with commas ("qint8,int8|quint8,uint8"). INT, REAL, SIZE: the range,
                           * "1..64", "0..", or "" */
    const char *word;    /* the placeholder of the value in help: FILE, N, ...; "[N]": it may be
                           * left out and is 1 then */
    const char *help;
} onq_option_info;

typedef struct onq_command_info {
    const char *name;
    const char *operands; /* what follows the options: "MODEL", "A B", "" */
    const char *summary;  /* one line */
    const char *text;     /* more, for the man page; may be "" */
} onq_command_info;

ONQ_API size_t onq_command_count(void);
ONQ_API const onq_command_info *onq_command_at(size_t i); /* NULL past the end */
ONQ_API size_t onq_option_count(const char *command);     /* 0 for an unknown command */
ONQ_API const onq_option_info *onq_option_at(const char *command, size_t i);
/* The heading under which help shows option i; options of one heading are adjacent. "": the command
 * takes the option, as every command does, and has no use for it; help does not show it. */
ONQ_API const char *onq_option_group(const char *command, size_t i);
/* Option i that the command cannot do without, NULL past the end: what a line on its usage
 * shows. */
ONQ_API const onq_option_info *onq_required_at(const char *command, size_t i);
/* Key i of the option `extra` that the command has a use for, NULL past the end. Its word is what
 * the value looks like, its help says what it sets. */
ONQ_API const onq_option_info *onq_extra_at(const char *command, size_t i);

/* An example of a command, which help shows. */
typedef struct onq_example {
    const char *text; /* what it does */
    const char *line; /* the command line */
} onq_example;
ONQ_API const onq_example *onq_example_at(const char *command, size_t i); /* NULL past the end */

typedef struct onq_options onq_options;

/* Options of one command, all at their defaults. An unknown command is ONQ_E_OPTION; the message
 * names the nearest known one. */
ONQ_API onq_code onq_options_new(onq_env *env, const char *command, onq_options **out,
                                 onq_error *err);
ONQ_API void onq_options_free(onq_options *opts);
/* Sets one option by its name (- and _ alike, aliases too) from text, which it copies. Lists and
 * pairs append. Operands of the command are set as "operand". An unknown name or a value that
 * does not fit is ONQ_E_OPTION; the message names the nearest known one. */
ONQ_API onq_code onq_options_set(onq_options *opts, const char *name, const char *value,
                                 onq_error *err);
/* The row of `name` in the options' command, or NULL. Names as in onq_options_set; one character
 * is an option's letter. */
ONQ_API const onq_option_info *onq_options_find(const onq_options *opts, const char *name);
/* Appends one item to a list (or an operand) as it is: no commas, no @file, no pattern. */
ONQ_API onq_code onq_options_add(onq_options *opts, const char *name, const char *item,
                                 onq_error *err);
/* Takes back what was set: the option has its default again. */
ONQ_API onq_code onq_options_clear(onq_options *opts, const char *name, onq_error *err);
/* Text i of an option's value, set or default, in a form that onq_options_set takes; lists, pairs
 * and operands have several. NULL past the last, and for an unknown name. Valid until the options
 * are changed. */
ONQ_API const char *onq_options_get(onq_options *opts, const char *name, size_t i);
/* 1 if the caller set it. */
ONQ_API int onq_options_is_set(const onq_options *opts, const char *name);

/* Gives a model that an option (or "operand") names from memory. Copies the struct and its texts,
 * borrows the bytes until the options are freed. (Where an option names a file of JSON, the JSON
 * itself can be set in its place: it begins with a brace.) */
ONQ_API onq_code onq_options_set_bytes(onq_options *opts, const char *name, const onq_bytes *bytes,
                                       onq_error *err);
/* Keeps a file that an option names, the "output" of a command, in the result (onq_result_file)
 * instead of writing it. `label` is its name, as in external data (LABEL.data); NULL: the option's
 * name. */
ONQ_API onq_code onq_options_want_bytes(onq_options *opts, const char *name, const char *label,
                                        onq_error *err);
/* Samples from a reader in place of --data. Copies the struct. */
ONQ_API onq_code onq_options_set_reader(onq_options *opts, const onq_reader *reader,
                                        onq_error *err);

typedef struct onq_result onq_result;

/* Does the job. On success *out is owned by the caller. On failure no output file was made or
 * changed and *out is NULL. */
ONQ_API onq_code onq_run(onq_env *env, const onq_options *opts, onq_result **out, onq_error *err);
ONQ_API void onq_result_free(onq_result *res);
/* What the program onq does when it is started as the worker of an isolated job (--isolate): speaks
 * with the caller over the socket `fd`, does the job, and returns the exit status. `stop` says
 * whether the process was asked to stop. Others have no use for it. */
ONQ_API int onq_worker_run(int fd, int (*stop)(void));
/* What to show a person (may be empty, ends with a newline otherwise). */
ONQ_API const char *onq_result_text(const onq_result *res);
/* The same and more as one JSON object. */
ONQ_API const char *onq_result_json(const onq_result *res);
/* 0, or 1 when the command's answer is "no" (`diff` found differences). */
ONQ_API int onq_result_status(const onq_result *res);
/* Warning i of the run, or NULL past the last. They went to the environment's log as well. */
ONQ_API const char *onq_result_warning(const onq_result *res, size_t i);

/* A file that the result holds. */
typedef struct onq_file {
    const char *option; /* which asked for it: "output" */
    const char *name;   /* its label; of external data the location in the model */
    const void *data;
    size_t size;
} onq_file;

/* File i of what onq_options_want_bytes asked for, or NULL past the last: a model, then its
 * external data. Valid until the result is freed. */
ONQ_API const onq_file *onq_result_file(const onq_result *res, size_t i);

/* ---- ranges ----
 *
 * What a calibration finds: TensorsData of onnxruntime.quantization. */

typedef struct onq_ranges onq_ranges;

/* One tensor of it, TensorData there. Attributes that a method does not have are of dtype 0; ranges
 * are float or float16, counts int64 (or float, as the reference keeps some). */
typedef struct onq_range {
    const char *name;
    onq_tensor lowest, highest, avg, std, hist, hist_edges, bins;
    unsigned bare; /* which of these are a number of numpy's and not an array: 1 << place, from 0 */
} onq_range;

/* An empty set. `method` is "MinMax", "Entropy", "Percentile" or "Distribution", any case. */
ONQ_API onq_code onq_ranges_new(onq_env *env, const char *method, onq_ranges **out, onq_error *err);
/* Reads what save_tensors_data or `onq calibrate` wrote. ONQ_E_MISSING: there is no such file. */
ONQ_API onq_code onq_ranges_load(onq_env *env, const char *path, onq_ranges **out, onq_error *err);
/* Writes it so, whole or not at all. */
ONQ_API onq_code onq_ranges_save(const onq_ranges *ranges, const char *path, onq_error *err);
/* Writes TensorRT's calibration.json, calibration.cache and calibration.flatbuffers to a folder. */
ONQ_API onq_code onq_ranges_save_table(const onq_ranges *ranges, const char *folder,
                                       onq_error *err);
ONQ_API void onq_ranges_free(onq_ranges *ranges);
ONQ_API const char *onq_ranges_method(const onq_ranges *ranges);
ONQ_API size_t onq_ranges_count(const onq_ranges *ranges);
/* NULL past the end. Valid until this range is set or the set is freed. */
ONQ_API const onq_range *onq_ranges_at(const onq_ranges *ranges, size_t i);
/* NULL when there is none. */
ONQ_API const onq_range *onq_ranges_find(const onq_ranges *ranges, const char *name);
/* Adds or replaces the range of its name. Copies all of it. */
ONQ_API onq_code onq_ranges_set(onq_ranges *ranges, const onq_range *range, onq_error *err);
/* Whether they were found after SmoothQuant; a file keeps it. */
ONQ_API int onq_ranges_smooth_quant(const onq_ranges *ranges);
ONQ_API void onq_ranges_set_smooth_quant(onq_ranges *ranges, int smooth_quant);

/* Ranges for `static` in place of samples and of a calibration cache. Borrows them until the
 * options are freed. */
ONQ_API onq_code onq_options_set_ranges(onq_options *opts, const onq_ranges *ranges,
                                        onq_error *err);
/* The ranges that `calibrate` or `static` found or was given; NULL for other commands. What
 * `static` found by a histogram method has `lowest` and `highest` only, unless it wrote a
 * calibration cache. Valid until the result is freed. */
ONQ_API const onq_ranges *onq_result_ranges(const onq_result *res);

/* Calibration in portions: create_calibrator, collect_data again and again, compute_data. */
typedef struct onq_calibrator onq_calibrator;

/* `opts` are options of the command `calibrate`: input and the options of the method, of samples
 * and of the runtime. Borrows the environment and the options until it is freed. */
ONQ_API onq_code onq_calibrator_new(onq_env *env, const onq_options *opts, onq_calibrator **out,
                                    onq_error *err);
ONQ_API void onq_calibrator_free(onq_calibrator *cal);
/* The model with the outputs by which the reference collects: ReduceMin and ReduceMax of each
 * tensor (T_ReduceMin, T_ReduceMax), for the methods with histograms the tensors themselves. Valid
 * until the calibrator is freed. */
ONQ_API onq_code onq_calibrator_augmented(onq_calibrator *cal, const void **data, size_t *size,
                                          onq_error *err);
/* Runs one portion of samples, which counts as one call of collect_data. Without a reader they come
 * from --data, which may be set anew for each portion. No sample at all is ONQ_E_INVALID. */
ONQ_API onq_code onq_calibrator_collect(onq_calibrator *cal, const onq_reader *reader,
                                        onq_error *err);
/* The ranges of all portions so far; returns owned. More may be collected after it. */
ONQ_API onq_code onq_calibrator_compute(onq_calibrator *cal, onq_ranges **out, onq_error *err);

/* ---- what a model holds ---- */

typedef struct onq_model onq_model;

typedef struct onq_node {
    const char *name, *op_type, *domain; /* "" where the model has none */
    const char *const *inputs, *const *outputs;
    size_t n_inputs, n_outputs;
    size_t graph; /* 0: the main graph; others: graphs inside of nodes, in their order */
} onq_node;

enum { ONQ_VALUE_INPUT = 1, ONQ_VALUE_OUTPUT = 2, ONQ_VALUE_INITIALIZER = 4 };

typedef struct onq_value {
    const char *name;
    unsigned kind; /* ONQ_VALUE_ bits; 0: made by a node */
    size_t graph;
    int32_t dtype;              /* 0: not known */
    size_t rank;                /* ONQ_NONE: not known */
    const int64_t *dims;        /* -1: not a number */
    const char *const *symbols; /* names of such dims, "" for those without */
    /* Quantized numbers, read by a DequantizeLinear, or a float tensor, read by a QuantizeLinear,
     * have its parameters; else scale is NULL. */
    const char *scale, *zero_point; /* zero_point: NULL when the node has none */
    int64_t axis, block_size; /* as the node's attributes; axis 1 and block_size 0 by default */
    int32_t quantized;        /* the type of the quantized numbers; 0: not known */
} onq_value;

/* Lists a model, from a path or, when `bytes` is not NULL, from memory that it borrows until it is
 * freed. Types and shapes that the model does not tell are inferred. */
ONQ_API onq_code onq_model_open(onq_env *env, const char *path, const onq_bytes *bytes,
                                onq_model **out, onq_error *err);
ONQ_API void onq_model_free(onq_model *model);
/* The version of an opset ("": onnx's own), 0 when it is not imported. */
ONQ_API int64_t onq_model_opset(const onq_model *model, const char *domain);
/* NULL past the end. */
ONQ_API const onq_node *onq_model_node(const onq_model *model, size_t i);
ONQ_API const onq_value *onq_model_value(const onq_model *model, size_t i);
/* The elements of value i, an initializer; valid until the model is freed. */
ONQ_API onq_code onq_model_data(onq_model *model, size_t i, onq_tensor *out, onq_error *err);

/* ---- numbers ---- */

/* Scale and zero point of a range, computed as compute_scale_zp does for ranges of this dtype (1,
 * 10 or 11). `min_real_range` may be NULL. ONQ_E_INVALID unless qmin <= 0 <= qmax. */
ONQ_API onq_code onq_scale_zero_point(double rmin, double rmax, int32_t dtype, double qmin,
                                      double qmax, int symmetric, const double *min_real_range,
                                      double *scale, double *zero_point, onq_error *err);
/* Quantizes float, float16 or double elements to `dtype` (an integer type, or float 8), as
 * quantize_nparray does: into `out`, one for each element of x, 4- and 2-bit types in a byte each.
 * Scale and zero point have one element; or one for each index of `axis`; or, with block_size, one
 * for each block along it. zero_point may be NULL. Results stay within low and high, where they are
 * not NaN. */
ONQ_API onq_code onq_quantize(const onq_tensor *x, const onq_tensor *scale,
                              const onq_tensor *zero_point, int64_t axis, int64_t block_size,
                              double low, double high, int32_t dtype, void *out, size_t size,
                              onq_error *err);

/* ---- the runtime ---- */

/* Texts that are lists have commas between their items. */
typedef struct onq_runtime_info {
    char version[32];    /* "1.31.1" */
    char path[1024];     /* of the library */
    char providers[512]; /* "CUDAExecutionProvider,CPUExecutionProvider" */
    char cpu[256];       /* features that decide what kernels run: "avx2,avx512f,avx512_vnni" */
} onq_runtime_info;

/* Finds and opens ONNX Runtime as the commands do; `library` is their --onnxruntime, or NULL. The
 * CPU's features are filled in also when there is none (ONQ_E_RUNTIME). */
ONQ_API onq_code onq_runtime_query(onq_env *env, const char *library, onq_runtime_info *out,
                                   onq_error *err);

/* ---- debugging, call by call ----
 *
 * The command `debug` finds where accuracy goes and keeps no activations. These calls are the
 * functions of onnxruntime.quantization.qdq_loss_debug, for callers that want the tensors
 * themselves:
 *
 *     modify_model_output_intermediate_tensors     onq_debug_modify_model
 *     collect_activations                          onq_activations_collect
 *     create_activation_matching                   onq_activation_match_new
 *     compute_activation_error                     onq_activation_match_error
 *     create_weight_matching                       onq_weight_match_new
 *     compute_weight_error                         onq_weight_match_error
 *     compute_signal_to_quantization_noice_ratio   onq_sqnr */

/* Writes `output`: the model with every float and float16 tensor at its nodes as a further output
 * NAME_ReshapedSavedOutput of one axis. With op_types, tensors at nodes of these operators only.
 * `external`: weights go to a file next to it. Outputs are in the order of first use
 * (onnxruntime.quantization: in any order). */
ONQ_API onq_code onq_debug_modify_model(onq_env *env, const char *input, const char *output,
                                        const char *const *op_types, size_t n_op_types,
                                        int external, onq_error *err);

/* Tensors by name, one for each sample. */
typedef struct onq_activations onq_activations;

/* An empty set, to be filled with onq_activations_add. It must not outlive the environment. */
ONQ_API onq_code onq_activations_new(onq_env *env, onq_activations **out, onq_error *err);
/* Appends a sample to `name`. Copies the name and the dims, borrows the data until the set is
 * freed. */
ONQ_API onq_code onq_activations_add(onq_activations *set, const char *name,
                                     const onq_tensor *tensor, onq_error *err);
/* Runs an augmented model and keeps its outputs NAME_ReshapedSavedOutput as NAME. `opts` are
 * options of the command `run`: input, data, limit, onnxruntime, provider, custom_ops, threads;
 * optimization is "none" unless set. The samples come from the reader if there is one, else from
 * data. No sample at all is ONQ_E_INVALID. */
ONQ_API onq_code onq_activations_collect(onq_env *env, const onq_options *opts,
                                         const onq_reader *reader, onq_activations **out,
                                         onq_error *err);
ONQ_API void onq_activations_free(onq_activations *set);
ONQ_API size_t onq_activations_count(const onq_activations *set);
/* NULL past the end. */
ONQ_API const char *onq_activations_name(const onq_activations *set, size_t i);
/* The samples of name i, *n of them; valid until the set is freed or added to. */
ONQ_API const onq_tensor *onq_activations_at(const onq_activations *set, size_t i, size_t *n);

/* Where one activation is found: indices of names in the sets that were matched. */
typedef struct onq_activation_row {
    const char *name;
    size_t pre_qdq, post_qdq; /* in the quantized model's set */
    size_t flt;               /* "float": in the float model's set; ONQ_NONE: not there */
} onq_activation_row;

typedef struct onq_activation_match onq_activation_match;

/* Pairs the tensors before and after quantization by name: X with X_DequantizeLinear_Output or
 * X_DequantizeLinear_Output_1, X_QuantizeLinear_Input with X; and those of the float model. `flt`
 * may be NULL. Borrows both sets until it is freed. */
ONQ_API onq_code onq_activation_match_new(const onq_activations *qdq, const onq_activations *flt,
                                          onq_activation_match **out, onq_error *err);
ONQ_API void onq_activation_match_free(onq_activation_match *match);
ONQ_API size_t onq_activation_match_count(const onq_activation_match *match);
/* NULL past the end. */
ONQ_API const onq_activation_row *onq_activation_match_at(const onq_activation_match *match,
                                                          size_t i);
/* Signal to noise of row i in dB: before against after quantization, and the float model against
 * after. Without a float tensor *xmodel_err is NaN (onnxruntime.quantization raises KeyError). */
ONQ_API onq_code onq_activation_match_error(const onq_activation_match *match, size_t i,
                                            double *qdq_err, double *xmodel_err, onq_error *err);

/* A weight and what the quantized model keeps of it. */
typedef struct onq_weight_row {
    const char *name;
    onq_tensor flt;         /* "float" in qdq_loss_debug */
    onq_tensor dequantized; /* of numpy's type: float, double for int32 weights, ... */
} onq_weight_row;

typedef struct onq_weight_match onq_weight_match;

/* Finds the weights of a quantized model in the float model. extended 0: those that feed a
 * DequantizeLinear and are named W_quantized, with the values onnxruntime.quantization computes (w
 * - zero_point wraps around in the weight's own type). 1: all that `onq debug` knows: integer
 * operators, dynamic and weight-only models, other names; without wrapping. A warning names each
 * weight that is not found. */
ONQ_API onq_code onq_weight_match_new(onq_env *env, const char *float_model, const char *qdq_model,
                                      int extended, onq_weight_match **out, onq_error *err);
/* The same for options of the command `debug`: float_model and qdq_model, which may be in memory.
 * Borrows the bytes until it is freed. */
ONQ_API onq_code onq_weight_match_new_from(onq_env *env, const onq_options *opts, int extended,
                                           onq_weight_match **out, onq_error *err);
ONQ_API void onq_weight_match_free(onq_weight_match *match);
ONQ_API size_t onq_weight_match_count(const onq_weight_match *match);
/* NULL past the end. */
ONQ_API const char *onq_weight_match_name(const onq_weight_match *match, size_t i);
/* Row i, computed when it is first asked for and valid until the match is freed. */
ONQ_API onq_code onq_weight_match_at(onq_weight_match *match, size_t i, const onq_weight_row **out,
                                     onq_error *err);
/* Signal to noise of row i in dB; keeps nothing in memory. */
ONQ_API onq_code onq_weight_match_error(onq_weight_match *match, size_t i, double *sqnr,
                                        onq_error *err);

/* 20 log10(|x| / |x - y|) over all elements of the tensors together, norms at least 2^-52, in the
 * precision numpy computes it: for float, float16 and double tensors. ONQ_E_INVALID when there are
 * not as many tensors or elements on both sides. */
ONQ_API onq_code onq_sqnr(const onq_tensor *x, size_t n_x, const onq_tensor *y, size_t n_y,
                          double *out, onq_error *err);

/* ---- end plain C ---- */

#define ONQ_ERROR_INIT                                                                             \
    {                                                                                              \
        ONQ_OK, -1, {                                                                              \
            0                                                                                      \
        }                                                                                          \
    }
#define ONQ_NONE SIZE_MAX /* no index */

#ifdef __cplusplus
}
#endif

#endif
