/*
 * api_ops.c — `onq ops`: the operators known, by mode and opset. Nothing is listed by hand: the
 * rows come from the tables of the quantizers (operators.def), of shape inference (sop.def) and of
 * the upgrader (upgrade.def).
 */
#include "api/options/command.h"
#include "onnx/upgrade/upgrade.h"
#include "quantize/legacy/legacy.h"
#include "quantize/rules.h"
#include "shape/sop.h"

/* One operator over all tables. */
typedef struct op_row {
    const char *domain, *type;
    int32_t since;  /* the first opset of its domain that has it */
    unsigned modes; /* bits of the modes below */
} op_row;

typedef OQ_VEC(op_row) op_rows;

enum { ANY = -1, QDQ, QOPERATOR, DYNAMIC, LISTED, LEGACY, SHAPE, N_MODES };

/* clang-format off */
#define MODES(ROW)                \
    ROW("qdq", QDQ)               \
    ROW("qoperator", QOPERATOR)   \
    ROW("dynamic", DYNAMIC)       \
    ROW("dynamic_listed", LISTED) \
    ROW("legacy", LEGACY)         \
    ROW("shape", SHAPE)
#define MODE_CHOICES(ROW) ROW("any", ANY) MODES(ROW)
/* clang-format on */

static const char *const mode_names[N_MODES] = {
#define ROW(text, mode) [mode] = text,
    MODES(ROW)
#undef ROW
};
static const char *const headings[N_MODES] = {
    [QDQ] = "QDQ",     [QOPERATOR] = "QOp", [DYNAMIC] = "dyn",
    [LISTED] = "list", [LEGACY] = "leg",    [SHAPE] = "shape",
};

static unsigned modes_of(const char *type, const char *domain) {
    const oq_operator *o = oq_operator_find(oq_str_of(type));
    unsigned bits = 1u << SHAPE;
    if (o != NULL && strcmp(o->domain, domain) == 0) {
        const unsigned known = oq_rules_quantized_in(oq_str_of(type));
        bits |= (known & OQ_QMODE_QDQ) != 0 ? 1u << QDQ : 0;
        bits |= (known & OQ_QMODE_QLINEAR) != 0 ? 1u << QOPERATOR : 0;
        bits |= (known & OQ_QMODE_INTEGER) != 0 ? 1u << DYNAMIC : 0;
        bits |= (known & OQ_QMODE_ASKED) != 0 ? 1u << LISTED : 0;
    }
    if (domain[0] == '\0' && oq_legacy_knows(oq_str_of(type)))
        bits |= 1u << LEGACY;
    return bits;
}

static bool is_asked_for(const oq_job *job, const char *type) {
    const size_t n = oq_opt_operand_count(job->opts);
    for (size_t i = 0; i < n; i++)
        if (oq_opt_same(oq_str_of(oq_opt_operand(job->opts, i)), oq_str_of(type)))
            return true;
    return n == 0;
}

static onq_code collect(oq_job *job, op_rows *out, onq_error *err) {
    const int mode = OQ_CHOSEN(job->opts, "mode", int, MODE_CHOICES);
    const int64_t opset = oq_opt_int(job->opts, "opset");
    for (size_t i = 0; i < oq_sop_count; i++) {
        const oq_sop *s = &oq_sops[i];
        if (i > 0 && strcmp(s->type, oq_sops[i - 1].type) == 0 &&
            strcmp(s->domain, oq_sops[i - 1].domain) == 0)
            continue; /* rows of one operator are adjacent, the oldest first */
        const op_row row = {s->domain, s->type, s->since, modes_of(s->type, s->domain)};
        if (!is_asked_for(job, s->type) || (mode != ANY && (row.modes >> mode & 1) == 0) ||
            (opset > 0 && (s->domain[0] != '\0' || s->since > opset)))
            continue;
        OQ_TRY_ALLOC(OQ_PUSH(&job->arena, out, row), err);
    }
    return ONQ_OK;
}

/* A name that is not an operator's: an error that names the nearest. */
static onq_code check_names(const oq_job *job, onq_error *err) {
    for (size_t i = 0; i < oq_opt_operand_count(job->opts); i++) {
        const char *name = oq_opt_operand(job->opts, i);
        oq_nearest near;
        char hint[200];
        bool known = false;
        oq_nearest_init(&near, oq_str_of(name));
        for (size_t k = 0; k < oq_sop_count; k++) {
            known = known || oq_opt_same(oq_str_of(name), oq_str_of(oq_sops[k].type));
            oq_nearest_offer(&near, oq_str_of(oq_sops[k].type));
        }
        if (known)
            continue;
        oq_nearest_text(&near, "", hint, sizeof hint);
        return oq_fail(err, ONQ_E_OPTION, "no operator is called '%.200s'%s", name, hint);
    }
    return ONQ_OK;
}

/* ---- the result ---- */

static void show_text(oq_buf *b, const op_rows *rows) {
    size_t wide = 8;
    for (size_t i = 0; i < rows->n; i++) {
        const size_t n = strlen(rows->v[i].type);
        wide = n > wide ? n : wide;
    }
    oq_buf_addf(b, "%-*s since", (int)wide, "operator");
    for (int m = 0; m < N_MODES; m++)
        oq_buf_addf(b, "  %s", headings[m]);
    oq_buf_adds(b, "  changed\n");
    const char *domain = "";
    for (size_t i = 0; i < rows->n; i++) {
        const op_row *r = &rows->v[i];
        if (strcmp(domain, r->domain) != 0)
            oq_buf_addf(b, "%s:\n", domain = r->domain);
        oq_buf_addf(b, "%-*s %5d", (int)wide, r->type, r->since);
        for (int m = 0; m < N_MODES; m++)
            oq_buf_addf(b, "  %*s", (int)strlen(headings[m]), r->modes >> m & 1 ? "x" : "-");
        const char *between = "  ";
        for (int64_t v = r->since + 1; r->domain[0] == '\0' && v <= OQ_OPSET_NEWEST; v++) {
            if (!oq_opset_changed(oq_str_of(r->type), v))
                continue;
            oq_buf_addf(b, "%s%lld", between, (long long)v);
            between = " ";
        }
        oq_buf_addc(b, '\n');
    }
    oq_buf_addf(b, "%zu operator%s\n", rows->n, OQ_NOUN_S(rows->n));
}

static void show_json(oq_jw *w, const op_rows *rows) {
    oq_jw_begin_array(w, "operators");
    for (size_t i = 0; i < rows->n; i++) {
        const op_row *r = &rows->v[i];
        oq_jw_begin_object(w, NULL);
        oq_jw_cstr(w, "type", r->type);
        oq_jw_cstr(w, "domain", r->domain);
        oq_jw_int(w, "since", r->since);
        oq_jw_begin_array(w, "changed");
        for (int64_t v = r->since + 1; r->domain[0] == '\0' && v <= OQ_OPSET_NEWEST; v++)
            if (oq_opset_changed(oq_str_of(r->type), v))
                oq_jw_int(w, NULL, v);
        oq_jw_end_array(w);
        for (int m = 0; m < N_MODES; m++)
            oq_jw_bool(w, mode_names[m], r->modes >> m & 1);
        oq_jw_end_object(w);
    }
    oq_jw_end_array(w);
}

/* ---- the command ---- */

static onq_code run_ops(oq_job *job, onq_error *err) {
    op_rows found = {0};
    OQ_TRY(check_names(job, err));
    OQ_TRY(collect(job, &found, err));
    show_text(&job->text, &found);
    show_json(&job->json, &found);
    return ONQ_OK;
}

static const onq_option_info rows[] = {
    OQ_ENUM(
        "mode", 'm', "", "any", OQ_CHOICES(MODE_CHOICES), "MODE",
        "List only operators that this mode quantizes by default. `dynamic_listed` are operators "
        "that `onq dynamic` quantizes only if --op_types_to_quantize lists them. With QDQ that "
        "option may list any operator; its float inputs and outputs are then quantized."),
    /* Own sense: no model is raised. */
    OQ_INT("opset", 0, "", "0", "0..", "N",
           "List only operators of the default domain that opset N has; 0 lists all."),
};
static const oq_opt_group own = OQ_GROUP("Selection", rows);

const oq_command oq_command_ops = {
    .info =
        {
            "ops",
            "[OPERATOR...]",
            "list the supported operators by mode and opset",
            "Lists operators with the opset that introduced them, the modes that quantize them, "
            "whether their shapes are inferred, and the opsets from 8 on that changed them (which "
            "`onq preprocess --opset` takes a model across).\n"
            "\n"
            "Columns: QDQ and QOp are `onq static` in its two formats, dyn is `onq dynamic`, list "
            "is "
            "what `onq dynamic` quantizes only when --op_types_to_quantize names it, leg is `onq "
            "legacy`, shape is shape inference. A mode may still leave a node float: its type, its "
            "inputs or an option decide (`--plan` gives the reason).\n",
        },
    .groups = {&own, &oq_group_general_one_thread, &oq_group_threads_idle, &oq_group_verify_idle},
    .run = run_ops,
};
