/*
 * model_tool.c — the model core on the command line, for the Python tests.
 *
 *     model_tool reencode IN OUT              decode, then encode field by field
 *     model_tool save IN OUT [OPTION...]      oq_model_save; see save_options below
 *     model_tool check IN                     structural check
 *     model_tool dump IN                      text to standard output
 *     model_tool sort IN OUT                  the reference's topological_sort
 *     model_tool prune IN OUT                 remove unused initializers as the reference does
 *     model_tool upgrade IN OUT OPSET         raise the opset
 *     model_tool message TYPE IN OUT          decode and encode a message, "NodeProto"
 *     model_tool schema -                     the codec's table of fields
 *
 * `model_tool -` reads such command lines from standard input, words separated by tabs, and answers
 * each with one line: "ok", or "error CODE OFFSET TEXT". The exit status of a single command is 0
 * or 1.
 */
#include "dump.h"
#include "onnx/check/check.h"
#include "onnx/codec/schema.h"
#include "onnx/edit.h"
#include "onnx/model.h"
#include "onnx/upgrade/upgrade.h"

#include <stdio.h>
#include <stdlib.h>

static onq_code write_file(const char *path, const void *p, size_t n, onq_error *err) {
    FILE *f = fopen(path, "wb");
    const bool ok = f != NULL && fwrite(p, 1, n, f) == n;
    if (f == NULL || fclose(f) != 0 || !ok)
        return oq_fail(err, ONQ_E_WRITE, "%s: cannot write", path);
    return ONQ_OK;
}

static onq_code encode_to(oq_model *m, const char *path, onq_error *err) {
    oq_buf out;
    oq_buf_init(&out, &m->env->alloc);
    onq_code rc = oq_model_encode(m, &out, err);
    if (rc == ONQ_OK)
        rc = write_file(path, out.p, out.n, err);
    oq_buf_release(&out);
    return rc;
}

static onq_code reencode(oq_model *m, int argc, char **argv, onq_error *err) {
    (void)argc;
    return encode_to(m, argv[0], err);
}

/* touch, one, each, attributes, location=NAME, threshold=N */
static onq_code save_options(oq_model *m, oq_save_options *o, const char *word, onq_error *err) {
    if (strcmp(word, "touch") == 0)
        oq_model_touch(m);
    else if (strcmp(word, "one") == 0)
        o->external = OQ_EXTERNAL_ONE;
    else if (strcmp(word, "each") == 0)
        o->external = OQ_EXTERNAL_EACH;
    else if (strcmp(word, "attributes") == 0)
        o->attributes = true;
    else if (strncmp(word, "location=", 9) == 0)
        o->location = word + 9;
    else if (strncmp(word, "threshold=", 10) == 0)
        o->threshold = strtoull(word + 10, NULL, 10);
    else
        return oq_fail(err, ONQ_E_OPTION, "unknown word '%s'", word);
    return ONQ_OK;
}

static onq_code save(oq_model *m, int argc, char **argv, onq_error *err) {
    oq_save_options o = {0};
    for (int i = 1; i < argc; i++)
        OQ_TRY(save_options(m, &o, argv[i], err));
    return oq_model_save(m, argv[0], &o, err);
}

static onq_code check(oq_model *m, int argc, char **argv, onq_error *err) {
    (void)argc;
    (void)argv;
    return oq_model_check(m, err);
}

static onq_code dump(oq_model *m, int argc, char **argv, onq_error *err) {
    (void)argc;
    (void)argv;
    oq_buf out;
    oq_buf_init(&out, &m->env->alloc);
    const onq_code rc = oq_dump_model(m, &out, err);
    if (rc == ONQ_OK)
        fwrite(out.p, 1, out.n, stdout);
    oq_buf_release(&out);
    return rc;
}

static onq_code sort(oq_model *m, int argc, char **argv, onq_error *err) {
    (void)argc;
    OQ_TRY(oq_topo_sort_reference(m, m->proto->graph, err));
    return encode_to(m, argv[0], err);
}

static onq_code prune(oq_model *m, int argc, char **argv, onq_error *err) {
    (void)argc;
    OQ_TRY(oq_graph_prune_inits(m, m->proto->graph, err));
    return encode_to(m, argv[0], err);
}

static onq_code upgrade(oq_model *m, int argc, char **argv, onq_error *err) {
    (void)argc;
    OQ_TRY(oq_model_upgrade(m, strtoll(argv[1], NULL, 10), err));
    return encode_to(m, argv[0], err);
}

/* ---- any message ---- */

static onq_code encode_message(oq_arena *a, oq_schema_id id, void *msg, const char *path,
                               onq_error *err) {
    oq_pieces pieces = {.arena = a};
    const uint64_t size = oq_encode_size(id, msg);
    OQ_TRY(oq_encode(&pieces, id, msg, err));
    oq_buf out;
    oq_buf_init(&out, a->alloc);
    for (size_t i = 0; i < pieces.list.n; i++)
        oq_buf_add(&out, pieces.list.v[i].p, pieces.list.v[i].n);
    onq_code rc = out.failed ? oq_fail_nomem(err) : ONQ_OK;
    if (rc == ONQ_OK && out.n != size)
        rc = oq_fail(err, ONQ_E_INTERNAL, "%zu bytes, %llu were announced", out.n,
                     (unsigned long long)size);
    if (rc == ONQ_OK)
        rc = write_file(path, out.p, out.n, err);
    oq_buf_release(&out);
    return rc;
}

static onq_code message(int argc, char **argv, onq_error *err) {
    size_t id = 0;
    while (id < OQ_SCHEMA_COUNT && strcmp(oq_schemas[id].name, argv[1]) != 0)
        id++;
    if (argc < 4 || id == OQ_SCHEMA_COUNT)
        return oq_fail(err, ONQ_E_OPTION, "no message '%s'", argv[1]);
    oq_arena a;
    oq_arena_init(&a, oq_alloc_default());
    oq_str text;
    void *msg = NULL, *copy = NULL;
    onq_code rc = oq_file_read_all(&a, argv[2], 1u << 30, &text, err);
    if (rc == ONQ_OK)
        rc = oq_decode(&a, (oq_schema_id)id, (const uint8_t *)text.p, text.n, 0, &msg, err);
    /* A clone must say the same as what it was made from. */
    if (rc == ONQ_OK && (copy = oq_message_clone(&a, (oq_schema_id)id, msg)) == NULL)
        rc = oq_fail_nomem(err);
    if (rc == ONQ_OK)
        rc = encode_message(&a, (oq_schema_id)id, copy, argv[3], err);
    oq_arena_release(&a);
    return rc;
}

static onq_code schema(void) {
    static const char *const kinds[] = {"I64", "I32", "F32", "STR", "STRS", "I64S", "F32S",
                                        "PV",  "P4",  "P8",  "PAY", "MSG",  "MSGS"};
    for (size_t i = 0; i < OQ_SCHEMA_COUNT; i++) {
        for (size_t k = 0; k < oq_schemas[i].n_fields; k++) {
            const oq_field *f = &oq_schemas[i].fields[k];
            const bool sub = f->kind == OQ_K_MSG || f->kind == OQ_K_MSGS;
            printf("%s %u %s %s %s %u\n", oq_schemas[i].name, f->number, f->name, kinds[f->kind],
                   sub ? oq_schemas[f->sub].name : "-", f->group);
        }
    }
    return ONQ_OK;
}

static const struct {
    const char *name;
    int least; /* words after the input */
    onq_code (*run)(oq_model *m, int argc, char **argv, onq_error *err);
} commands[] = {
    {"reencode", 1, reencode}, {"save", 1, save},   {"check", 0, check},     {"dump", 0, dump},
    {"sort", 1, sort},         {"prune", 1, prune}, {"upgrade", 2, upgrade},
};

static onq_code run(int argc, char **argv, onq_error *err) {
    if (argc >= 2 && strcmp(argv[0], "message") == 0)
        return message(argc, argv, err);
    if (argc >= 1 && strcmp(argv[0], "schema") == 0)
        return schema();
    for (size_t i = 0; argc >= 2 && i < OQ_COUNT(commands); i++) {
        if (strcmp(argv[0], commands[i].name) != 0)
            continue;
        if (argc - 2 < commands[i].least)
            return oq_fail(err, ONQ_E_OPTION, "%s: too few words", argv[0]);
        onq_env *env = onq_env_new(NULL);
        oq_model *m = NULL;
        onq_code rc = env != NULL ? oq_model_open(env, argv[1], NULL, &m, err) : oq_fail_nomem(err);
        if (rc == ONQ_OK)
            rc = commands[i].run(m, argc - 2, argv + 2, err);
        oq_model_free(m);
        onq_env_free(env);
        return rc;
    }
    return oq_fail(err, ONQ_E_OPTION, "usage: model_tool COMMAND IN [OUT] ...");
}

static void report(onq_code rc, const onq_error *err) {
    if (rc == ONQ_OK)
        printf("ok\n");
    else
        printf("error %d %lld %s\n", (int)rc, (long long)err->offset, err->text);
    fflush(stdout);
}

static int serve(void) {
    char *line = NULL;
    size_t size = 0;
    ssize_t n;
    while ((n = getline(&line, &size, stdin)) > 0) {
        char *words[32];
        int count = 0;
        if (line[n - 1] == '\n')
            line[n - 1] = '\0';
        for (char *p = line; p != NULL && count < 32; count++) {
            words[count] = p;
            p = strchr(p, '\t');
            if (p != NULL)
                *p++ = '\0';
        }
        onq_error err = ONQ_ERROR_INIT;
        const onq_code rc = run(count, words, &err);
        report(rc, &err);
    }
    free(line);
    return 0;
}

int main(int argc, char **argv) {
    if (argc == 2 && strcmp(argv[1], "-") == 0)
        return serve();
    onq_error err = ONQ_ERROR_INIT;
    const onq_code rc = run(argc - 1, argv + 1, &err);
    if (rc != ONQ_OK)
        report(rc, &err);
    return rc == ONQ_OK ? 0 : 1;
}
