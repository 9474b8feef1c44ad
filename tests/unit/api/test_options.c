/* test_options.c — the tables of all commands are sound; values of every type; --extra;
 * suggestions. */
#include "api/options/choices.h"
#include "api/options/command.h"
#include "scratch.h"
#include "testing.h"

#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- a command of our own with an option of every kind ---- */

static onq_code run_nothing(oq_job *job, onq_error *err) {
    (void)err;
    oq_buf_adds(&job->text, "done\n");
    oq_jw_int(&job->json, "threads", (int64_t)job->env->n_threads);
    return ONQ_OK;
}

/* A job with a slip of the pen in the name of an option. */
static onq_code run_misreading(oq_job *job, onq_error *err) {
    (void)err;
    oq_jw_bool(&job->json, "x", oq_opt_flag(job->opts, "per_chanel"));
    return ONQ_OK;
}

static const onq_option_info rows[] = {
    OQ_FLAG("per_channel", 'c', "channelwise", "A flag."),
    OQ_FLAG_ON("quantize_bias", 0, "", "A flag that is on."),
    OQ_FLAG("disable_quantize_bias", 0, "", "Its opposite."),
    OQ_INT("bits", 'b', "", "4", "2..8", "N", "A number in a range."),
    OQ_REAL("minimum_real_range", 0, "", "0.0001", "", "X", "A number."),
    OQ_SIZE("memory", 'm', "", "1g", "", "A size."),
    OQ_TEXT("word", 0, "", "", "TEXT", "A text."),
    OQ_PATH("input", 'i', "input_model input_model_path", "FILE", "A path."),
    OQ_ENUM("weight_type", 0, "", "qint8", OQ_CHOICES(OQ_TYPE_CHOICES), "TYPE", "A choice."),
    OQ_LIST("nodes_to_exclude", 0, "", "NAME", "A list."),
    OQ_LIST("op_per_channel_axis", 0, "", "OP AXIS", "A map."),
    OQ_PAIRS("dim", 0, "", "NAME=VALUE", "Pairs."),
};
static const oq_opt_group group = OQ_GROUP("All kinds", rows);
static const oq_command fake = {
    .info = {"fake", "MODEL [MODEL...]", "for this test", ""},
    .required = "word",
    .extra_keys = "ActivationSymmetric DefaultTensorType",
    .groups = {&group, &oq_group_extra, &oq_group_general, &oq_group_verify_idle},
    .run = run_nothing,
};

typedef struct fixture {
    onq_env *env;
    onq_options *o;
    onq_error err;
    char log[2000];
} fixture;

static void on_log(void *ctx, onq_log_level level, const char *text) {
    fixture *f = ctx;
    const size_t n = strlen(f->log);
    snprintf(f->log + n, sizeof f->log - n, "%d %s\n", (int)level, text);
}

static int setup(void **state) {
    fixture *f = calloc(1, sizeof *f);
    f->env = onq_env_new(NULL);
    onq_env_set_log(f->env, on_log, f);
    assert_ok(oq_options_make(f->env, &fake, &f->o, &f->err), f->err);
    *state = f;
    return 0;
}

static int teardown(void **state) {
    fixture *f = *state;
    onq_options_free(f->o);
    onq_env_free(f->env);
    free(f);
    return 0;
}

#define SET(name, value) assert_ok(onq_options_set(f->o, name, value, &f->err), f->err)
#define REFUSED(name, value, part)                                                                 \
    assert_fails(onq_options_set(f->o, name, value, &f->err), ONQ_E_OPTION, f->err, part)

static void assert_list(const onq_options *o, const char *name, const char *wanted) {
    char got[500] = "";
    size_t n, w = 0;
    const oq_str *v = oq_opt_list(o, name, &n);
    for (size_t i = 0; i < n; i++)
        w += (size_t)snprintf(got + w, sizeof got - w, "<%.*s>", (int)v[i].n, v[i].p);
    assert_string_equal(got, wanted);
}

/* ---- values ---- */

static void defaults(void **state) {
    const fixture *f = *state;
    assert_false(oq_opt_flag(f->o, "per_channel"));
    assert_true(oq_opt_flag(f->o, "quantize_bias"));
    assert_int_equal(oq_opt_int(f->o, "bits"), 4);
    assert_true(oq_opt_real(f->o, "minimum_real_range") == 0.0001);
    assert_int_equal(oq_opt_size(f->o, "memory"), 1 << 30);
    assert_null(oq_opt_str(f->o, "word"));
    assert_int_equal(oq_opt_enum(f->o, "weight_type"), 0);
    assert_string_equal(oq_opt_str(f->o, "weight_type"), "qint8");
    assert_false(oq_opt_is_set(f->o, "bits"));
    assert_true(oq_opt_has(f->o, "bits"));
    assert_false(oq_opt_has(f->o, "bit"));
    assert_null(oq_opt_reader(f->o)); /* it has no samples */
}

static void flags(void **state) {
    fixture *f = *state;
    static const char *const yes[] = {"true", "True", "TRUE", "yes", "on", "1"};
    static const char *const no[] = {"false", "False", "no", "Off", "0"};
    for (size_t i = 0; i < OQ_COUNT(yes); i++) {
        SET("per_channel", "false");
        SET("per_channel", yes[i]);
        assert_true(oq_opt_flag(f->o, "per_channel"));
    }
    for (size_t i = 0; i < OQ_COUNT(no); i++) {
        SET("per_channel", "true");
        SET("per_channel", no[i]);
        assert_false(oq_opt_flag(f->o, "per_channel"));
    }
    REFUSED("per_channel", "maybe", "--per_channel: 'maybe' is not true or false");
    REFUSED("per_channel", "", "is not true or false");
}

static void names(void **state) {
    fixture *f = *state;
    SET("per-channel", "true");
    assert_true(oq_opt_flag(f->o, "per_channel"));
    SET("PER_CHANNEL", "false");
    SET("channelwise", "true");
    SET("c", "true");
    assert_string_equal(onq_options_find(f->o, "input-model-path")->name, "input");
    assert_string_equal(onq_options_find(f->o, "i")->name, "input");
    assert_null(onq_options_find(f->o, "I"));
    assert_null(onq_options_find(f->o, "nothing"));
    REFUSED("per_chanel", "x", "unknown option '--per_chanel' (did you mean --per_channel?)");
    REFUSED("channel", "x", "--per_channel");
    REFUSED("zzz", "x", "unknown option '--zzz'");
    assert_null(strstr(f->err.text, "did you mean"));
    REFUSED("Z", "x", "unknown option '-Z'");
    REFUSED("no-xyzzyplugh", "x", "unknown option '--no-xyzzyplugh'");
    REFUSED("calib_perc", "x",
            "unknown option '--calib_perc'"); /* another command has more of it */
    REFUSED("", "x", "unknown option '--'");
    assert_int_equal(onq_options_is_set(f->o, "nothing"), 0);
}

static void numbers(void **state) {
    fixture *f = *state;
    SET("bits", "8");
    assert_int_equal(oq_opt_int(f->o, "bits"), 8);
    SET("bits", "+2");
    assert_int_equal(oq_opt_int(f->o, "bits"), 2);
    REFUSED("bits", "9", "--bits: 9 is out of range (2 to 8)");
    REFUSED("bits", "-1", "out of range");
    REFUSED("bits", "3.5", "is not a whole number");
    REFUSED("bits", "", "is not a whole number");
    REFUSED("bits", "4x", "is not a whole number");
    REFUSED("bits", "99999999999999999999", "is too large a number");
    REFUSED("bits", "-", "is not a whole number");
    assert_int_equal(oq_opt_int(f->o, "bits"), 2); /* a refused value changes nothing */
    SET("minimum_real_range", "1e-5");
    assert_true(oq_opt_real(f->o, "minimum_real_range") == 1e-5);
    SET("minimum_real_range", "-.5");
    assert_true(oq_opt_real(f->o, "minimum_real_range") == -0.5);
    REFUSED("minimum_real_range", "nan", "is not a number");
    REFUSED("minimum_real_range", "inf", "is not a number");
    REFUSED("minimum_real_range", "1e999", "is not a number");
    REFUSED("minimum_real_range", "0x10", "is not a number");
    REFUSED("minimum_real_range", "1,5", "is not a number");
}

static void numbers_do_not_depend_on_the_locale(void **state) {
    fixture *f = *state;
    /* Where the machine has one with a decimal comma. */
    static const char *const names_of[] = {"de_DE.UTF-8", "fr_FR.UTF-8", "de_DE", "fr_FR"};
    for (size_t i = 0; i < OQ_COUNT(names_of); i++)
        if (setlocale(LC_NUMERIC, names_of[i]) != NULL)
            break;
    SET("minimum_real_range", "0.25");
    assert_true(oq_opt_real(f->o, "minimum_real_range") == 0.25);
    setlocale(LC_NUMERIC, "C");
}

static void sizes(void **state) {
    fixture *f = *state;
    static const struct {
        const char *text;
        uint64_t size;
    } good[] = {
        {"4096", 4096},       {"0", 0},         {"512k", 512 << 10}, {"1.5G", 3ull << 29},
        {"2GiB", 2ull << 30}, {"3mb", 3 << 20}, {"1T", 1ull << 40},  {"10b", 10},
    };
    for (size_t i = 0; i < OQ_COUNT(good); i++) {
        SET("memory", good[i].text);
        assert_int_equal(oq_opt_size(f->o, "memory"), good[i].size);
    }
    static const char *const bad[] = {"", "k", "-1", "1x", "1kk", "1 g", "1ib", "."};
    for (size_t i = 0; i < OQ_COUNT(bad); i++)
        REFUSED("memory", bad[i], "is not a size");
    REFUSED("memory", "99999999T", "is too large a size");
    REFUSED("memory", "20000000000000000000000", "is too large a size");
}

static void choices(void **state) {
    fixture *f = *state;
    SET("weight_type", "QUInt8");
    assert_int_equal(oq_opt_enum(f->o, "weight_type"), 1);
    assert_string_equal(oq_opt_str(f->o, "weight_type"), "quint8");
    SET("weight_type", "QuantType.QInt16");
    assert_string_equal(oq_opt_str(f->o, "weight_type"), "qint16");
    SET("weight_type", "quantization.QuantType.QInt8");
    assert_string_equal(oq_opt_str(f->o, "weight_type"), "qint8");
    REFUSED("weight_type", "Nonsense.QInt8", "is not one of");
    SET("weight_type", "float8e4m3fn");
    assert_string_equal(oq_opt_str(f->o, "weight_type"), "qfloat8e4m3fn");
    REFUSED("weight_type", "qint9", "'qint9' is not one of qint8, quint8, qint16, quint16");
    assert_non_null(strstr(f->err.text, "did you mean qint8"));
    REFUSED("weight_type", "", "is not one of");
}

static void paths(void **state) {
    fixture *f = *state;
    SET("input", "a b/c.onnx");
    assert_string_equal(oq_opt_str(f->o, "input"), "a b/c.onnx");
    REFUSED("input", "", "path is empty");
}

static void lists(void **state) {
    fixture *f = *state;
    SET("nodes_to_exclude", "a,b");
    SET("nodes_to_exclude", "c");
    assert_list(f->o, "nodes_to_exclude", "<a><b><c>");
    SET("nodes_to_exclude", "x\\,y,re:^/l\\.1/,\\@home,mid@dle,\\d,,e\\");
    assert_list(f->o, "nodes_to_exclude", "<a><b><c><x,y><re:^/l\\.1/><@home><mid@dle><\\d><e\\>");
    /* What is read back can be set, and is one item. */
    static const char *const texts[] = {"a",       "b",       "c",   "x\\,y", "re:^/l\\.1/",
                                        "\\@home", "mid@dle", "\\d", "e\\"};
    for (size_t i = 0; i < OQ_COUNT(texts); i++)
        assert_string_equal(onq_options_get(f->o, "nodes_to_exclude", i), texts[i]);
    assert_null(onq_options_get(f->o, "nodes_to_exclude", OQ_COUNT(texts)));
}

static void lists_from_files(void **state) {
    fixture *f = *state;
    scratch s;
    scratch_init(&s);
    static const char text[] = "one,two\r\n\n  three\nfour";
    const char *path = scratch_file(&s, "names.txt", text, sizeof text - 1);
    const char *empty = scratch_file(&s, "empty.txt", "", 0);
    char at[500];
    snprintf(at, sizeof at, "@%s", path);
    SET("nodes_to_exclude", at);
    assert_list(f->o, "nodes_to_exclude", "<one,two><  three><four>");
    snprintf(at, sizeof at, "@%s", empty);
    SET("nodes_to_exclude", at);
    REFUSED("nodes_to_exclude", "@/no/such/file", "--nodes_to_exclude: /no/such/file");
    snprintf(at, sizeof at, "@%s", s.dir);
    REFUSED("nodes_to_exclude", at, "--nodes_to_exclude");
    assert_list(f->o, "nodes_to_exclude", "<one,two><  three><four>");
    scratch_remove(&s);
}

static void pairs(void **state) {
    fixture *f = *state;
    SET("dim", "batch=1");
    SET("dim", "seq=a,b=c");
    assert_list(f->o, "dim", "<batch=1><seq=a,b=c>");
    assert_string_equal(onq_options_get(f->o, "dim", 1), "seq=a,b=c");
    assert_null(onq_options_get(f->o, "dim", 2));
    assert_int_equal(onq_options_is_set(f->o, "dim"), 1);
    REFUSED("dim", "batch", "--dim: 'batch' is not NAME=VALUE");
    REFUSED("dim", "=1", "is not NAME=VALUE");
}

static void maps(void **state) {
    fixture *f = *state;
    oq_arena a;
    oq_arena_init(&a, &f->env->alloc);
    oq_opt_axis *v;
    size_t n;
    SET("op_per_channel_axis", "MatMul");
    SET("op_per_channel_axis", "1");
    SET("op_per_channel_axis", "Gemm:0,Conv=-1");
    SET("op_per_channel_axis", "MatMul:2");
    assert_ok(oq_opt_axes(f->o, "op_per_channel_axis", &a, &v, &n, &f->err), f->err);
    assert_int_equal(n, 3);
    assert_true(oq_str_is(v[0].key, "MatMul") && v[0].value == 2);
    assert_true(oq_str_is(v[1].key, "Gemm") && v[1].value == 0);
    assert_true(oq_str_is(v[2].key, "Conv") && v[2].value == -1);
    REFUSED("op_per_channel_axis", "{\"Gemm\": \"0\"}", "cannot be read: items of another kind");
    SET("op_per_channel_axis", "Alone");
    assert_fails(oq_opt_axes(f->o, "op_per_channel_axis", &a, &v, &n, &f->err), ONQ_E_OPTION,
                 f->err, "no number after 'Alone'");
    SET("op_per_channel_axis", "x");
    assert_fails(oq_opt_axes(f->o, "op_per_channel_axis", &a, &v, &n, &f->err), ONQ_E_OPTION,
                 f->err, "'x' of 'Alone' is not a whole number");
    oq_arena_release(&a);
}

/* ---- --extra ---- */

static void extra_sets_the_named_option_and_wins(void **state) {
    fixture *f = *state;
    SET("extra", "MinimumRealRange=0.5");
    SET("minimum_real_range", "0.25");
    assert_true(oq_opt_real(f->o, "minimum_real_range") == 0.5);
    REFUSED("minimum_real_range", "x", "is not a number"); /* still checked */
    SET("extra", "MinimumRealRange=none");
    assert_true(oq_opt_is_none(f->o, "minimum_real_range"));
    assert_false(oq_opt_is_set(f->o, "minimum_real_range"));
    assert_string_equal(onq_options_get(f->o, "minimum_real_range", 0), "none");
    assert_null(onq_options_get(f->o, "minimum_real_range", 1));
    SET("extra", "QDQOpTypePerChannelSupportToAxis=MatMul:1,Gemm:0");
    assert_ok(onq_options_add(f->o, "op_per_channel_axis", "Conv:1", &f->err), f->err);
    assert_list(f->o, "op_per_channel_axis", "<MatMul:1><Gemm:0>");
}

static void extra_inverts(void **state) {
    fixture *f = *state;
    SET("extra", "QuantizeBias=false");
    SET("quantize_bias", "true");
    assert_false(oq_opt_flag(f->o, "quantize_bias"));
    assert_true(oq_opt_flag(f->o, "disable_quantize_bias"));
    SET("extra", "QuantizeBias=True");
    assert_true(oq_opt_flag(f->o, "quantize_bias"));
    assert_false(oq_opt_flag(f->o, "disable_quantize_bias"));
}

static void extra_keys_without_an_option(void **state) {
    fixture *f = *state;
    assert_null(oq_extra_find(f->o, "ActivationSymmetric"));
    assert_true(oq_extra_flag(f->o, "ActivationSymmetric", true));
    SET("extra", "ActivationSymmetric=true");
    SET("extra", "ActivationSymmetric=false");
    assert_false(oq_extra_flag(f->o, "ActivationSymmetric", true));
    SET("extra", "WeightSymmetric=none");
    assert_true(oq_extra_find(f->o, "WeightSymmetric")->is_none);
    assert_true(oq_extra_flag(f->o, "WeightSymmetric", true));
    SET("extra", "extra.Sigmoid.nnapi=1");
    assert_true(oq_extra_flag(f->o, "extra.Sigmoid.nnapi", false));
    SET("extra", "DefaultTensorType=none"); /* a text may be anything */
    assert_string_equal(oq_extra_find(f->o, "DefaultTensorType")->text.p, "none");
}

static void extra_takes_json_and_python(void **state) {
    fixture *f = *state;
    SET("extra", "QDQOpTypePerChannelSupportToAxis={\"MatMul\": 1, 'Gemm': 0}");
    assert_list(f->o, "op_per_channel_axis", "<MatMul:1><Gemm:0>");
    SET("extra", "QDQOpTypePerChannelSupportToAxis={}");
    assert_list(f->o, "op_per_channel_axis", "");
    SET("extra", "OpTypesToExcludeOutputQuantization=[\"Conv\", 'Mat,Mul']");
    const oq_opt_value *v = oq_extra_find(f->o, "OpTypesToExcludeOutputQuantization");
    assert_true(v->list.n == 2 && oq_str_is(v->list.v[1], "Mat,Mul"));
    SET("extra", "OpTypesToExcludeOutputQuantization='Conv'");
    v = oq_extra_find(f->o, "OpTypesToExcludeOutputQuantization");
    assert_true(v->list.n == 1 && oq_str_is(v->list.v[0], "Conv"));
    SET("extra", "OpTypesToExcludeOutputQuantization=");
    v = oq_extra_find(f->o, "OpTypesToExcludeOutputQuantization");
    assert_int_equal(v->list.n, 0);
    SET("extra", "TensorQuantOverrides={'x': [{'symmetric': True}]}");
    assert_string_equal(oq_extra_find(f->o, "TensorQuantOverrides")->text.p,
                        "{\"x\":[{\"symmetric\":true}]}");
    SET("extra", "MinimumRealRange=None");
    assert_true(oq_opt_is_none(f->o, "minimum_real_range"));
    REFUSED("extra", "OpTypesToExcludeOutputQuantization=[\"Conv\"",
            "(expected: Conv,MatMul or [\"Conv\", \"MatMul\"])");
    REFUSED("extra", "OpTypesToExcludeOutputQuantization=[3]", "items of another kind");
    REFUSED("extra", "OpTypesToExcludeOutputQuantization={\"Conv\": 1}", "items of another kind");
    REFUSED("extra", "QDQOpTypePerChannelSupportToAxis={\"Gemm\": \"0\"}",
            "(expected: MatMul:1,Gemm:0 or {\"MatMul\": 1, \"Gemm\": 0})");
    REFUSED("extra", "TensorQuantOverrides={\"x\"",
            "(expected: FILE.json or {\"tensor\": [{...}]})");
}

static void extra_refuses(void **state) {
    fixture *f = *state;
    REFUSED("extra", "WeightSymetric=true",
            "unknown key 'WeightSymetric' (did you mean WeightSymmetric?)");
    REFUSED("extra", "weightsymmetric=true", "did you mean WeightSymmetric?");
    REFUSED("extra", "Nonsense=1", "--extra: unknown key 'Nonsense'");
    REFUSED("extra", "WeightSymmetric", "is not KEY=VALUE");
    REFUSED("extra", "=1", "is not KEY=VALUE");
    REFUSED("extra", "WeightSymmetric=perhaps", "WeightSymmetric: 'perhaps' is not true or false");
    REFUSED("extra", "CalibPercentile=101", "out of range (0 to 100)");
    assert_non_null(onq_extra_at("static", 0));
    assert_null(onq_extra_at("inspect", 0));
    assert_null(onq_extra_at("nothing", 0));
}

/* ---- running ---- */

static void running_checks_first(void **state) {
    fixture *f = *state;
    onq_result *r = NULL;
    assert_fails(onq_run(f->env, f->o, &r, &f->err), ONQ_E_OPTION, f->err, "'fake' needs MODEL");
    SET("input", "m.onnx"); /* stands for the first MODEL */
    assert_fails(onq_run(f->env, f->o, &r, &f->err), ONQ_E_OPTION, f->err,
                 "'fake' needs --word TEXT");
    SET("word", "x");
    SET("threads", "3");
    SET("operand", "n.onnx");
    SET("operand", "o.onnx");
    assert_ok(onq_run(f->env, f->o, &r, &f->err), f->err);
    assert_string_equal(onq_result_text(r), "done\n");
    assert_string_equal(onq_result_json(r), "{\n  \"threads\": 3,\n  \"warnings\": []\n}\n");
    assert_int_equal(onq_result_status(r), 0);
    assert_int_equal(f->env->n_threads, 0); /* for this run only */
    onq_result_free(r);
}

static void unused_extra_keys_are_told(void **state) {
    fixture *f = *state;
    onq_result *r = NULL;
    SET("operand", "m.onnx");
    SET("word", "x");
    SET("extra", "ActivationSymmetric=true");
    SET("extra", "BlockSize=4");
    assert_ok(onq_run(f->env, f->o, &r, &f->err), f->err);
    assert_string_equal(f->log, "1 --extra BlockSize has no effect on 'fake'\n");
    onq_result_free(r);
}

static void unknown_commands(void **state) {
    fixture *f = *state;
    onq_options *o = NULL;
    assert_fails(onq_options_new(f->env, "inspct", &o, &f->err), ONQ_E_OPTION, f->err,
                 "unknown command 'inspct' (did you mean inspect?)");
    assert_null(o);
    assert_int_equal(onq_option_count("nothing"), 0);
    assert_null(onq_option_at("nothing", 0));
    assert_null(onq_option_group("nothing", 0));
    assert_null(onq_command_at(onq_command_count()));
    onq_options_free(NULL);
    onq_result_free(NULL);
}

/* ---- the tables of all commands ---- */

static bool is_name(const char *p, size_t n) {
    for (size_t i = 0; i < n; i++) {
        const bool ok = (p[i] >= 'a' && p[i] <= 'z') || (p[i] >= '0' && p[i] <= '9') || p[i] == '_';
        if (!ok)
            return false;
    }
    return n > 1;
}

/* How many of the command's rows a spelling finds. */
static size_t found_by(const char *command, const char *spelling) {
    size_t hits = 0;
    for (size_t i = 0; i < onq_option_count(command); i++)
        hits += oq_opt_row_is(onq_option_at(command, i), spelling);
    return hits;
}

static void check_row(const char *command, size_t i) {
    const onq_option_info *o = onq_option_at(command, i);
    if (!is_name(o->name, strlen(o->name)))
        fail_msg("%s: '%s' is not a name", command, o->name);
    if (found_by(command, o->name) != 1)
        fail_msg("%s: --%s occurs twice", command, o->name);
    const char letter[2] = {o->letter, '\0'};
    if (o->letter != 0 && found_by(command, letter) != 1)
        fail_msg("%s: -%s occurs twice", command, letter);
    for (const char *p = o->aliases; *p != '\0';) {
        const size_t n = strcspn(p, " ");
        char alias[100];
        snprintf(alias, sizeof alias, "%.*s", (int)n, p);
        if (!is_name(p, n) || found_by(command, alias) != 1)
            fail_msg("%s: --%s: alias '%s'", command, o->name, alias);
        p += n;
        p += strspn(p, " ");
    }
    const size_t h = strlen(o->help);
    if (h == 0 || o->help[h - 1] != '.')
        fail_msg("%s: --%s: help is a sentence with a full stop", command, o->name);
    if (o->type != ONQ_OPT_FLAG && o->word[0] == '\0')
        fail_msg("%s: --%s: no word for its value", command, o->name);
    if (o->type == ONQ_OPT_ENUM && o->choices[0] == '\0')
        fail_msg("%s: --%s: no choices", command, o->name);
    assert_non_null(onq_option_group(command, i));
}

static void tables_are_sound(void **state) {
    fixture *f = *state;
    assert_true(onq_command_count() > 0);
    for (size_t c = 0; c < onq_command_count(); c++) {
        const onq_command_info *info = onq_command_at(c);
        onq_options *o;
        /* The defaults go through the parser. */
        assert_ok(onq_options_new(f->env, info->name, &o, &f->err), f->err);
        const oq_command *command = oq_command_find(info->name);
        for (size_t i = 0; i < onq_option_count(info->name); i++)
            check_row(info->name, i);
        /* Every command has the common ones. */
        static const char *const common[] = {"quiet",  "verbose",   "json",  "threads",
                                             "verify", "no_verify", "check", "help"};
        for (size_t i = 0; i < OQ_COUNT(common); i++)
            assert_true(oq_opt_has(o, common[i]));
        /* What it cannot do without are options it has. */
        for (const char *p = command->required; p != NULL && *p != '\0';) {
            char name[64];
            const size_t n = strcspn(p, " |");
            snprintf(name, sizeof name, "%.*s", (int)n, p);
            if (!oq_opt_has(o, name))
                fail_msg("%s requires --%s, which it does not have", info->name, name);
            p += n;
            p += strspn(p, " |");
        }
        for (size_t k = 0; k < c; k++)
            assert_string_not_equal(onq_command_at(k)->name, info->name);
        assert_true(info->summary[0] != '\0' && info->summary[0] >= 'a');
        /* Examples, and keys of --extra that it really takes. */
        const onq_example *e = onq_example_at(info->name, 0);
        assert_true(e != NULL && e->text[0] != '\0' && strncmp(e->line, "onq ", 4) == 0);
        const onq_option_info *key;
        for (size_t i = 0; (key = onq_extra_at(info->name, i)) != NULL; i++) {
            assert_true(key->word[0] != '\0' && (key->aliases[0] != '\0' || key->help[0] != '\0'));
            assert_true(oq_opt_has(o, "extra"));
        }
        onq_options_free(o);
    }
}

/* It stops at the assert, or where asserts are off fails in the end; it is never a zero. */
static void names_that_do_not_exist(void **state) {
    fixture *f = *state;
    oq_command misreading = fake;
    misreading.info.operands = "";
    misreading.required = "";
    misreading.run = run_misreading;
    fflush(NULL);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        onq_options *o = NULL;
        onq_result *r = NULL;
        signal(SIGABRT, SIG_DFL);
        if (oq_options_make(f->env, &misreading, &o, &f->err) != ONQ_OK)
            _exit(2);
        _exit(onq_run(f->env, o, &r, &f->err) == ONQ_E_INTERNAL ? 0 : 1);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) ? WTERMSIG(status) == SIGABRT : WEXITSTATUS(status) == 0);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(defaults),
        TEST(flags),
        TEST(names),
        TEST(numbers),
        TEST(numbers_do_not_depend_on_the_locale),
        TEST(sizes),
        TEST(choices),
        TEST(paths),
        TEST(lists),
        TEST(lists_from_files),
        TEST(pairs),
        TEST(maps),
        TEST(extra_sets_the_named_option_and_wins),
        TEST(extra_inverts),
        TEST(extra_keys_without_an_option),
        TEST(extra_takes_json_and_python),
        TEST(extra_refuses),
        TEST(running_checks_first),
        TEST(unused_extra_keys_are_told),
        TEST(unknown_commands),
        TEST(names_that_do_not_exist),
        TEST(tables_are_sound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
