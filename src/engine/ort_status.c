/*
 * ort_status.c — the runtime's errors as ours, and its element types as ours.
 *
 * The runtime's texts are long and full of its own source places:
 *   "Non-zero status code returned while running Add node. Name:'add1' Status Message: /onnx..."
 * One line remains: the node, then what is wrong.
 */
#include "engine/ort.h"
#include "engine/ort_api.h"

#include <stdarg.h>

/* A word that is a place in the runtime's sources: "/onnxruntime_src/.../x.cc:12" or "x.h:530". */
static bool is_source_place(const char *p, size_t n) {
    if (n > 17 && strncmp(p, "/onnxruntime_src/", 17) == 0)
        return true;
    for (size_t i = 0; i + 2 < n; i++)
        if (p[i] == '.' && (strncmp(p + i, ".cc:", 4) == 0 || strncmp(p + i, ".h:", 3) == 0))
            return true;
    return false;
}

/* Appends word by word, with single blanks, leaving out source places. */
static void copy_words(char *out, size_t cap, const char *text) {
    size_t n = 0;
    const char *p = text;
    while (*p != '\0') {
        const size_t blank = strspn(p, " \t\r\n");
        p += blank;
        const size_t word = strcspn(p, " \t\r\n");
        if (word > 0 && !is_source_place(p, word)) {
            if (n > 0 && n + 1 < cap)
                out[n++] = ' ';
            for (size_t i = 0; i < word && n + 1 < cap; i++)
                out[n++] = p[i];
        }
        p += word;
    }
    out[n] = '\0';
}

/* "... running Add node. Name:'add1' Status Message: X" -> "node 'add1' (Add): X"; X may be of that
 * form again, for a node in a subgraph. */
static void lift_nodes(char *out, size_t cap, const char *text) {
    static const char head[] = "Non-zero status code returned while running ";
    size_t n = 0;
    while (strncmp(text, head, sizeof head - 1) == 0 && n < cap) {
        const char *op = text + sizeof head - 1;
        const char *op_end = strstr(op, " node. Name:'");
        const char *name = op_end != NULL ? op_end + sizeof " node. Name:'" - 1 : NULL;
        const char *name_end = name != NULL ? strstr(name, "' Status Message:") : NULL;
        if (name_end == NULL)
            break;
        n += (size_t)snprintf(out + n, cap - n, "node '%.*s' (%.*s): ", (int)(name_end - name),
                              name, (int)(op_end - op), op);
        text = name_end + sizeof "' Status Message:" - 1;
        text += strspn(text, " ");
    }
    if (n < cap)
        snprintf(out + n, cap - n, "%s", text);
}

/* An error that the runtime threw on begins with the C++ function that threw; its own words come
 * after a mark and a number: "...Graph::Graph(...) [ONNXRuntimeError] : 10 : INVALID_GRAPH :
 * Unsupported". */
static const char *inner_words(const char *message) {
    static const char mark[] = "[ONNXRuntimeError] : ";
    const char *at = strstr(message, mark);
    if (at == NULL)
        return message;
    at += sizeof mark - 1;
    return at + strspn(at, "0123456789 :");
}

/* What the machine lacks says nothing of the model: nobody must change it for that. */
static onq_code code_of(const char *text) {
    if (strstr(text, "bad_alloc") != NULL || strstr(text, "Failed to allocate memory") != NULL)
        return ONQ_E_NOMEM;
    if (strstr(text, "pthread_create failed") != NULL)
        return ONQ_E_LIMIT;
    return strstr(text, "Protobuf serialization failed") != NULL ? ONQ_E_WRITE : ONQ_E_RUNTIME;
}

onq_code oq_ort_check(const oq_ort_api *api, OrtStatus *s, onq_error *err, const char *fmt, ...) {
    if (s == NULL)
        return ONQ_OK;
    char what[256], words[900], text[900];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    const char *message = api->GetErrorMessage(s);
    copy_words(words, sizeof words, message != NULL ? inner_words(message) : "");
    lift_nodes(text, sizeof text, words);
    api->ReleaseStatus(s);
    return oq_fail(err, code_of(text), "%s: %s (ONNX Runtime %s)", what, text, api->version);
}

/* The status has a code too, but "failed" stands for both. */
bool oq_engine_calls_invalid(const onq_error *why) {
    static const char *const words[] = {
        "This is an invalid model",
        "Invalid model.",
        "[ShapeInferenceError]",
        "[TypeInferenceError]",
        "Type Error:",
        "protobuf parsing failed",
        "Failed to load model with error:", /* a type that says nothing */
        "INVALID_GRAPH :",
    };
    /* An operator that ONNX itself does not have is wrong: `In Node, ("name", Op, "", -1)`. */
    if (why->code != ONQ_E_RUNTIME || (strstr(why->text, "No Op registered for") != NULL &&
                                       strstr(why->text, ", \"\", -1)") == NULL))
        return false;
    for (size_t i = 0; i < OQ_COUNT(words); i++)
        if (strstr(why->text, words[i]) != NULL)
            return true;
    return false;
}

/* The runtime numbers its types as ONNX does up to FLOAT4E2M1. */
static const oq_dtype late_types[] = {OQ_UINT2, OQ_INT2, OQ_FLOAT8E8M0};
#define LATE_FIRST 24

oq_dtype oq_ort_dtype(int number) {
    if (number > 0 && number < LATE_FIRST)
        return (oq_dtype)number;
    if (number >= LATE_FIRST && (size_t)(number - LATE_FIRST) < OQ_COUNT(late_types))
        return late_types[number - LATE_FIRST];
    return OQ_UNDEFINED;
}

int oq_ort_dtype_number(oq_dtype dt) {
    if ((int)dt < LATE_FIRST)
        return (int)dt;
    for (size_t i = 0; i < OQ_COUNT(late_types); i++)
        if (late_types[i] == dt)
            return LATE_FIRST + (int)i;
    return 0;
}
