/*
 * option_groups.c — the options that several commands share, as groups of rows.
 *
 * A command takes a whole group by naming it (command.h). What an option named after a parameter of
 * onnxruntime.quantization means, and its default, are the reference's.
 */
#include "api/options/options.h"
#include "api/options/shared_rows.h"

/* Options that every command takes. A group without a title is for commands that have no use for
 * them: they are accepted and not shown. */
/* clang-format off */
#define GENERAL                                                                                    \
    OQ_FLAG("quiet", 'q', "", "Print only errors, and the warning that nothing was quantized."),    \
    OQ_INT("verbose", 'v', "", "0", "0..3", "[N]", "Print more: 1 shows the steps, 2 also " \
                                                   "details."),        \
    OQ_FLAG("json", 0, "", "Print the result as one JSON object."),                                \
    OQ_FLAG("help", 'h', "", "Show this help.")
#define THREADS                                                                                    \
    OQ_INT("threads", 0, "", "0", "0..1024", "N",                                                  \
           "Worker threads; 0 means one for each core. Results do not depend on it.")
/* clang-format on */

static const onq_option_info general[] = {THREADS, GENERAL};
static const onq_option_info short_general[] = {GENERAL};
static const onq_option_info threads[] = {THREADS};
const oq_opt_group oq_group_general = OQ_GROUP("General", general);
const oq_opt_group oq_group_general_one_thread = OQ_GROUP("General", short_general);
const oq_opt_group oq_group_threads_idle = OQ_GROUP("", threads);

static const onq_option_info verify[] = {
    OQ_FLAG("verify", 0, "",
            "Always load the result in ONNX Runtime and run it on samples before it is kept. By "
            "default this happens only if it costs little."),
    OQ_FLAG("no_verify", 0, "", "Keep the result without loading and running it."),
    OQ_INT("check", 0, "", "4", "0..1000000", "N",
           "Compare the outputs with the float model's on the first N samples and give a verdict; "
           "0 means no comparison."),
    /* The last: commands that do not quantize have no use for it. */
    OQ_ROW_TARGET("How near to float the result must be, as a gate for scripts: agreement=PERCENT "
                  "(the same class), sqnr=DB or cosine=X. The outputs are compared on the first 64 "
                  "samples, or as --check says. If a target is not reached, the result is written "
                  "and the status is 1; with --strict nothing is written."),
};
#define VERIFY_IDLE (OQ_COUNT(verify) - 1)
const oq_opt_group oq_group_verify = OQ_GROUP("Verification", verify);
const oq_opt_group oq_group_verify_idle = {"", verify, VERIFY_IDLE};
/* The first of them has a use without the others. */
const oq_opt_group oq_group_verify_only = {"Verification", verify, 1};
const oq_opt_group oq_group_verify_rest_idle = {"", verify + 1, VERIFY_IDLE - 1};

static const onq_option_info input[] = {
    OQ_PATH("input", 'i', "input_model input_model_path model_input", "FILE",
            "The model to read; - reads it from standard input."),
    OQ_ROW_DATA_ROOT,
};
const oq_opt_group oq_group_input = OQ_GROUP("Input", input);

static const onq_option_info output[] = {
    OQ_ROW_OUTPUT(
        "output_model output_model_path output_quantized_model_path model_output", "FILE",
        "The file to write. It appears whole or not at all. - writes it to standard output and "
        "the summary to standard error."),
    OQ_FLAG("force", 0, "", "Allow the output to replace the model that is read."),
    OQ_FLAG("use_external_data_format", 0, "",
            "Write the weights to a separate file next to the model. Above 2 GB this happens "
            "automatically."),
    OQ_TEXT("for_runtime", 0, "", "", "VERSION",
            "Write what this version of ONNX Runtime can run, such as 1.20: an older opset and IR, "
            "and weights of few bits in another form, from a table of what versions 1.19 to 1.31 "
            "can run. A model that has no such form is refused, with the node and the reason."),
};
const oq_opt_group oq_group_output = OQ_GROUP("Output", output);

static const onq_option_info resources[] = {
    OQ_ROW_MEMORY("", "running several samples at once, beyond that of one run, and for "
                      "activations that histograms need again (default: 48m). Samples that do not "
                      "fit run twice if a later one widens a range; the result is the same."),
    OQ_ROW_JOBS,
    OQ_FLAG("fast", 0, "",
            "Calibrate the optimised model and skip tensors whose Relu or Clip is removed; ranges "
            "may differ in the last digits."),
};
const oq_opt_group oq_group_resources = OQ_GROUP("Resources", resources);

static const onq_option_info job_rows[] = {
    OQ_ROW_MEMORY("512m", "running several samples at once, beyond that of one run."),
    OQ_ROW_JOBS,
};
const oq_opt_group oq_group_jobs = OQ_GROUP("Resources", job_rows);

static const onq_option_info data[] = {
    OQ_PATH(
        "data", 0, "calibrate_dataset calibration_dataset", "SOURCE",
        "Samples: a folder of test_data_set_*, of images or of .npz files, an .npz, .npy or "
        ".tar file, exec:COMMAND (the output of a program), - (standard input), or "
        "random:N[:SEED]. Default where samples are needed: the test_data_set_* folders next to "
        "the model."),
    OQ_INT("limit", 0, "", "", "1..", "N", "Stop after N samples."),
    OQ_INT("hold_out", 0, "", "", "2..", "N", "Leave out every Nth sample."),
    OQ_ROW_DIM(""),
    OQ_LIST("carry", 0, "", "OUT=IN",
            "An output that goes into an input at the next step of a sequence: a state. OUT is a "
            "regular expression for whole names, IN a name with \\1 to \\9 for its groups. By "
            "default onq finds states by the names that common exporters give them (present, "
            "past_key_values, hn, h0, stateN ...)."),
    OQ_FLAG("no_carry", 0, "", "Samples have all inputs, and no state goes from one to the next."),
    OQ_INT("steps_axis", 0, "", "", "0..63", "N",
           "The axis of arrays along which the steps of a sequence lie: an axis that the input "
           "does not have, or one of the input's own, which is cut into steps."),
    OQ_INT("generate", 0, "", "", "1..1000000", "N",
           "After each sample, let a decoder with states generate N more tokens, each time the "
           "most likely one."),
    OQ_ENUM("image_layout", 0, "", "", OQ_CHOICES(OQ_LAYOUT_CHOICES), "LAYOUT",
            "Order of the axes of images; read from the model by default."),
    OQ_TEXT("image_size", 0, "", "", "HxW",
            "Height and width of images; read from the model by default."),
    OQ_LIST("image_mean", 0, "", "X",
            "Mean to subtract from each channel after scaling (ImageNet's by default)."),
    OQ_LIST("image_std", 0, "", "X",
            "Standard deviation to divide each channel by (ImageNet's by default)."),
    OQ_REAL(
        "image_scale", 0, "", "", "", "X",
        "Factor for the pixel values 0..255, before the mean is subtracted (1/255 by default)."),
    OQ_ENUM("image_color", 0, "", "rgb", OQ_CHOICES(OQ_COLOR_CHOICES), "ORDER",
            "Order of the colour channels of images."),
    OQ_ENUM("image_resize", 0, "", "stretch", OQ_CHOICES(OQ_RESIZE_CHOICES), "HOW",
            "How to fit an image of another size."),
};
const oq_opt_group oq_group_data = OQ_GROUP("Samples", data);

static const onq_option_info runtime[] = {
    OQ_PATH("onnxruntime", 0, "", "FILE",
            "The ONNX Runtime library to use. Default: $ONQ_ONNXRUNTIME, then the one that was "
            "set up with onq, then the loader's path."),
    OQ_TEXT("provider", 0, "", "", "PROVIDER",
            "Execution provider that runs the model: CPU, CUDA, ... as far as the runtime has it "
            "(CPU by default)."),
    OQ_LIST("custom_ops", 0, "", "FILE", "Libraries of custom operators that the model needs."),
    OQ_FLAG("isolate", 0, "",
            "Do the job in a separate process with limits on memory, time, files and network; a "
            "crash there becomes an error message. Use it for models that you do not trust."),
    OQ_SIZE("isolate_memory", 0, "", "", "1m..",
            "With --isolate: memory of that process (default: three quarters of the machine's)."),
    OQ_INT("isolate_time", 0, "", "3600", "1..", "S",
           "With --isolate: seconds after which that process is terminated."),
};
const oq_opt_group oq_group_runtime = OQ_GROUP("Runtime", runtime);
/* For `verify`, which takes several libraries. */
const oq_opt_group oq_group_runtime_rest = {"Runtime", runtime + 1, OQ_COUNT(runtime) - 1};

static const onq_option_info plan_rows[] = {
    OQ_ROW_PLAN,
    OQ_ROW_DRY_RUN,
    OQ_PATH("from_plan", 0, "", "FILE",
            "Take every decision from a file that --plan wrote. The file may have been edited."),
};
const oq_opt_group oq_group_plan = OQ_GROUP("Plan", plan_rows);

static const onq_option_info select_rows[] = {
    OQ_ROW_OP_TYPES("", "Operator types to quantize; `all` means every operator of the model."),
    OQ_ROW_NODES_TO_QUANTIZE,
    OQ_ROW_NODES_TO_EXCLUDE,
    OQ_ROW_STRICT,
};
const oq_opt_group oq_group_select = OQ_GROUP("What to quantize", select_rows);

static const onq_option_info extra[] = {
    OQ_PAIRS("extra", 0, "extra_options", "KEY=VALUE",
             "Set a key of extra_options of onnxruntime.quantization by its own name; the key "
             "overrides the option that it corresponds to. Values may also be written as in JSON "
             "or Python: True, None, [\"Conv\"], {\"Gemm\": 0}. The keys follow."),
};
const oq_opt_group oq_group_extra = OQ_GROUP("Further", extra);

static const onq_option_info rewrite_rows[] = {
    OQ_LIST("rewrite", 0, "", "NAME",
            "Rewrite parts of the float model without changing its results: constants (fold "
            "constants after Conv, MatMul and Gemm into their weights), hardswish (use "
            "HardSigmoid and Mul), fastgelu (turn Gelu by Tanh into one operator of "
            "com.microsoft), onehot (turn a one-hot MatMul into Gather), conv1d (turn a Conv over "
            "one axis into MatMul), all or none."),
};
const oq_opt_group oq_group_rewrite = OQ_GROUP("Rewriting", rewrite_rows);
