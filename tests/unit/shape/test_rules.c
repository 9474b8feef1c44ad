/*
 * test_rules.c — every row of sop.def by a case of cases.txt: one node, its inputs, what must come
 * out.
 *
 *     [domain.]Type@opset[,opset] ... : inputs [; attributes] -> outputs
 *
 * Domains: ms. com.microsoft, ml. ai.onnx.ml, train. ai.onnx.preview.training, preview.
 * ai.onnx.preview, aten. org.pytorch.aten. Types of elements: f float, h half, bf bfloat16, d
 * double, i8 u8 i16 u16 i32 u32 i64, b bool, s string.
 *   f[2,n,?]   a tensor; n a name, ? an open dimension          f     no shape
 *   i64{1,2}   a constant vector    i64(3)  a constant scalar   _     an input that is not given
 *   seq(T) opt(T) map(i64,T)
 *   name=3  name=[1,2]  name=1.5f  name=f[1,2.5]  name='text'  name=s['a','b']  name=t:f{1}
 *   name=tp:f[2]
 * An output is a type, or ? when nothing may be known about it. Empty lines and # comments are
 * skipped. The test fails by name for each row of sop.def that no case covers.
 */
#include "onnx/edit.h"
#include "shape/sop.h"
#include "testing.h"

#include <stdio.h>
#include <stdlib.h>

/* Rows with subgraphs, which a line cannot hold; test_infer.c has them. */
static const char *const elsewhere[] = {"If", "Loop", "Scan", "SequenceMap"};

typedef struct reader {
    const char *p;
    const char *line; /* for messages */
    oq_model *m;
} reader;

static void skip_blanks(reader *r) {
    while (*r->p == ' ')
        r->p++;
}

static bool accept(reader *r, const char *word) {
    skip_blanks(r);
    const size_t n = strlen(word);
    if (strncmp(r->p, word, n) != 0)
        return false;
    r->p += n;
    return true;
}

static void expect(reader *r, const char *word) {
    if (!accept(r, word))
        fail_msg("expected '%s' at '%s' in: %s", word, r->p, r->line);
}

static oq_str take_until(reader *r, const char *stops) {
    const char *at = r->p;
    int depth = 0;
    while (*r->p != 0 && (depth > 0 || strchr(stops, *r->p) == NULL)) {
        depth += *r->p == '(' ? 1 : *r->p == ')' ? -1 : 0;
        r->p++;
    }
    const oq_str s = oq_str_copy(&r->m->arena, (oq_str){at, (size_t)(r->p - at)});
    assert_non_null(s.p);
    return s;
}

static int32_t elem_type(reader *r) {
    static const struct {
        const char *name;
        int32_t type;
    } names[] = {{"bf", OQ_BFLOAT16}, {"f", OQ_FLOAT},    {"h", OQ_FLOAT16}, {"d", OQ_DOUBLE},
                 {"i8", OQ_INT8},     {"u8", OQ_UINT8},   {"i16", OQ_INT16}, {"u16", OQ_UINT16},
                 {"i32", OQ_INT32},   {"u32", OQ_UINT32}, {"i64", OQ_INT64}, {"b", OQ_BOOL},
                 {"s", OQ_STRING}};
    skip_blanks(r);
    for (size_t i = 0; i < OQ_COUNT(names); i++)
        if (accept(r, names[i].name))
            return names[i].type;
    fail_msg("no type at '%s' in: %s", r->p, r->line);
    return 0;
}

static oq_type *read_type(reader *r) {
    oq_arena *a = &r->m->arena;
    oq_type *t = OQ_NEW(a, oq_type);
    const bool seq = accept(r, "seq("), opt = !seq && accept(r, "opt("), map = accept(r, "map(");
    if (seq || opt) {
        oq_sequence_type *s = OQ_NEW(a, oq_sequence_type);
        s->elem_type = read_type(r);
        *(seq ? &t->sequence_type : &t->optional_type) = s;
        expect(r, ")");
        return t;
    }
    if (map) {
        t->map_type = OQ_NEW(a, oq_map_type);
        t->map_type->key_type = OQ_I32(elem_type(r));
        expect(r, ",");
        t->map_type->value_type = read_type(r);
        expect(r, ")");
        return t;
    }
    t->tensor_type = OQ_NEW(a, oq_tensor_type);
    t->tensor_type->elem_type = OQ_I32(elem_type(r));
    if (*r->p != '[')
        return t;
    r->p++;
    t->tensor_type->shape = OQ_NEW(a, oq_shape);
    while (!accept(r, "]")) {
        skip_blanks(r);
        oq_dim *d = OQ_NEW(a, oq_dim);
        const oq_str s = take_until(r, ",]");
        int64_t n;
        if (oq_str_to_i64(s, &n))
            d->dim_value = OQ_I64(n);
        else if (!oq_str_is(s, "?"))
            d->dim_param = s;
        assert_true(OQ_PUSH(a, &t->tensor_type->shape->dim, d));
        accept(r, ",");
    }
    return t;
}

/* {1, 2} or (3) after a type: a constant. */
static oq_tensor *read_constant(reader *r, int32_t type, oq_str name) {
    const bool vector = *r->p == '{';
    const char close = vector ? '}' : ')';
    double reals[64];
    int64_t ints[64], dim;
    size_t n = 0;
    r->p++;
    while (*r->p != close) {
        char *end;
        assert_true(n < 64);
        reals[n] = strtod(r->p, &end);
        if (end == r->p)
            fail_msg("no number at '%s' in: %s", r->p, r->line);
        ints[n] = strtoll(r->p, NULL, 10);
        n++;
        r->p = end;
        accept(r, ",");
        skip_blanks(r);
    }
    r->p++;
    dim = (int64_t)n;
    oq_tensor *t = oq_tensor_new(&r->m->arena, name, (oq_dtype)type, &dim, vector ? 1 : 0);
    assert_non_null(t);
    const oq_dtype_info *info = oq_dtype_find(type);
    const onq_code rc = info->cls == OQ_CLASS_REAL
                            ? oq_tensor_set_typed_f(&r->m->arena, t, reals, n, NULL)
                            : oq_tensor_set_typed_i(&r->m->arena, t, ints, n, NULL);
    assert_int_equal(rc, ONQ_OK);
    return t;
}

static void read_inputs(reader *r, oq_node *node) {
    oq_arena *a = &r->m->arena;
    oq_graph *g = r->m->proto->graph;
    for (;;) {
        skip_blanks(r);
        if (*r->p == ';' || strncmp(r->p, "->", 2) == 0 || *r->p == 0)
            return;
        const oq_str name = oq_str_format(a, "x%zu", node->input.n);
        if (accept(r, "_")) {
            assert_true(oq_node_add_input(a, node, OQ_S("")));
            continue;
        }
        assert_true(oq_node_add_input(a, node, name));
        const char *start = r->p;
        oq_type *t = read_type(r);
        if (t->tensor_type != NULL && (*r->p == '{' || *r->p == '(')) {
            assert_true(
                oq_graph_add_init(a, g, read_constant(r, t->tensor_type->elem_type.v, name)));
            continue;
        }
        assert_ptr_not_equal(start, r->p);
        oq_value_info *vi = OQ_NEW(a, oq_value_info);
        vi->name = name;
        vi->type = t;
        assert_true(OQ_PUSH(a, &g->input, vi));
    }
}

static oq_str read_quoted(reader *r) {
    expect(r, "'");
    const oq_str s = take_until(r, "'");
    expect(r, "'");
    return s;
}

static void read_list(reader *r, oq_attribute *at, bool reals) {
    at->type = OQ_I32(reals ? OQ_ATTR_FLOATS : OQ_ATTR_INTS);
    while (!accept(r, "]")) {
        char *end;
        const double v = strtod(r->p, &end);
        if (end == r->p)
            fail_msg("no number at '%s' in: %s", r->p, r->line);
        if (reals)
            assert_true(OQ_PUSH(&r->m->arena, &at->floats, (float)v));
        else
            assert_true(OQ_PUSH(&r->m->arena, &at->ints, (int64_t)v));
        r->p = end;
        accept(r, ",");
    }
}

static void read_attribute(reader *r, oq_node *node) {
    oq_arena *a = &r->m->arena;
    oq_attribute *at = OQ_NEW(a, oq_attribute);
    skip_blanks(r);
    at->name = take_until(r, "=");
    expect(r, "=");
    if (accept(r, "[")) {
        read_list(r, at, false);
    } else if (accept(r, "f[")) {
        read_list(r, at, true);
    } else if (accept(r, "s[")) {
        at->type = OQ_I32(OQ_ATTR_STRINGS);
        while (!accept(r, "]")) {
            assert_true(OQ_PUSH(a, &at->strings, read_quoted(r)));
            accept(r, ",");
        }
    } else if (*r->p == '\'') {
        at->type = OQ_I32(OQ_ATTR_STRING);
        at->s = read_quoted(r);
    } else if (accept(r, "tp:")) {
        at->type = OQ_I32(OQ_ATTR_TYPE_PROTO);
        at->tp = read_type(r);
    } else if (accept(r, "t:")) {
        at->type = OQ_I32(OQ_ATTR_TENSOR);
        const int32_t type = elem_type(r);
        at->t = read_constant(r, type, OQ_S(""));
    } else {
        char *end;
        const double v = strtod(r->p, &end);
        if (end == r->p)
            fail_msg("no value at '%s' in: %s", r->p, r->line);
        r->p = end;
        if (accept(r, "f")) {
            at->type = OQ_I32(OQ_ATTR_FLOAT);
            at->f = OQ_F32((float)v);
        } else {
            at->type = OQ_I32(OQ_ATTR_INT);
            at->i = OQ_I64((int64_t)v);
        }
    }
    assert_true(OQ_PUSH(a, &node->attribute, at));
}

static void print_type(oq_buf *b, const oq_vtype *t) {
    static const char *const names[] = {"?", "f", "u8", "i8",  "u16", "i16", "i32",  "i64", "s",
                                        "b", "h", "d",  "u32", "u64", "c64", "c128", "bf"};
    if (t == NULL) {
        oq_buf_addc(b, '?');
        return;
    }
    if (t->kind == OQ_V_SEQUENCE || t->kind == OQ_V_OPTIONAL || t->kind == OQ_V_MAP) {
        oq_buf_adds(b, t->kind == OQ_V_SEQUENCE   ? "seq("
                       : t->kind == OQ_V_OPTIONAL ? "opt("
                                                  : "map(");
        if (t->kind == OQ_V_MAP)
            oq_buf_addf(b, "%s,", names[t->elem_type]);
        print_type(b, t->inner);
        oq_buf_addc(b, ')');
        return;
    }
    assert_true(t->elem_type >= 0 && (size_t)t->elem_type < OQ_COUNT(names));
    oq_buf_adds(b, names[t->elem_type]);
    if (!t->has_shape)
        return;
    oq_buf_addc(b, '[');
    for (uint32_t i = 0; i < t->rank; i++) {
        oq_buf_adds(b, i > 0 ? "," : "");
        oq_sdim_print(b, t->dims[i]);
    }
    oq_buf_addc(b, ']');
}

/* "f[2, n] f[3]" as print_type would write it: blanks only between outputs and inside
 * expressions. */
static void normal(oq_buf *b, const char *text) {
    for (; *text != 0; text++) {
        const bool glued = *text == ' ' && (text[1] == ']' || text[1] == 0 || text[-1] == '[');
        if (!glued)
            oq_buf_addc(b, *text);
    }
}

static oq_str domain_of(oq_str *type) {
    static const struct {
        const char *prefix, *domain;
    } domains[] = {{"ms.", "com.microsoft"},
                   {"ml.", "ai.onnx.ml"},
                   {"train.", "ai.onnx.preview.training"},
                   {"preview.", "ai.onnx.preview"},
                   {"aten.", "org.pytorch.aten"}};
    for (size_t i = 0; i < OQ_COUNT(domains); i++) {
        const oq_str prefix = oq_str_of(domains[i].prefix);
        if (oq_str_starts(*type, prefix)) {
            *type = (oq_str){type->p + prefix.n, type->n - prefix.n};
            return oq_str_of(domains[i].domain);
        }
    }
    return OQ_S("");
}

typedef struct results {
    bool *covered; /* a flag for each row */
    size_t n_cases, n_bad;
} results;

/* The outputs of the case's node, as text. */
static void infer_case(reader *r, const oq_node *node, bool symbolic, oq_buf *got) {
    oq_shapes *s = NULL;
    onq_error err = ONQ_ERROR_INIT;
    const oq_shape_options opts = {.symbolic = symbolic};
    if (oq_shapes_infer(r->m, &opts, &s, &err) != ONQ_OK)
        fail_msg("%s in: %s", err.text, r->line);
    for (size_t o = 0; o < node->output.n; o++) {
        oq_buf_adds(got, o > 0 ? " " : "");
        print_type(got, oq_shapes_find(s, NULL, node->output.v[o]));
    }
    oq_shapes_free(s);
}

static size_t count_outputs(const char *text) {
    size_t n = 0;
    int depth = 0;
    bool inside = false;
    for (; *text != 0 && *text != '\n'; text++) {
        depth += *text == '[' || *text == '(' ? 1 : *text == ']' || *text == ')' ? -1 : 0;
        if (*text == ' ' && depth == 0) {
            inside = false;
        } else if (!inside) {
            inside = true;
            n++;
        }
    }
    return n;
}

static void run_case(onq_env *env, const char *line, oq_str type, int64_t version, results *res) {
    oq_model *m = NULL;
    const oq_str domain = domain_of(&type);
    assert_int_equal(oq_model_new(env, 8, domain.n == 0 ? version : 17, &m, NULL), ONQ_OK);
    if (domain.n > 0)
        assert_int_equal(oq_model_set_opset(m, domain, version, NULL), ONQ_OK);
    oq_node *node = oq_node_new(&m->arena, "", OQ_S("node"));
    node->op_type = oq_str_copy(&m->arena, type);
    node->domain = domain;
    reader r = {strchr(line, ':') + 1, line, m};
    read_inputs(&r, node);
    if (accept(&r, ";"))
        while (skip_blanks(&r), strncmp(r.p, "->", 2) != 0)
            read_attribute(&r, node);
    expect(&r, "->");
    skip_blanks(&r);
    const size_t n_out = count_outputs(r.p);
    for (size_t o = 0; o < n_out; o++)
        assert_true(oq_node_add_output(&m->arena, node, oq_str_format(&m->arena, "y%zu", o)));
    assert_true(oq_graph_add_node(&m->arena, m->proto->graph, node));
    oq_buf got, plain, want;
    oq_buf_init(&got, oq_alloc_default());
    oq_buf_init(&plain, oq_alloc_default());
    oq_buf_init(&want, oq_alloc_default());
    normal(&want, r.p);
    infer_case(&r, node, true, &got);
    infer_case(&r, node, false, &plain);
    res->n_cases++;
    const oq_sop *op = oq_sop_find(domain, type, version);
    if (op == NULL || strcmp(got.p, want.p) != 0) {
        res->n_bad++;
        print_error("%.*s@%lld: got %s\n    in: %s\n", OQ_STR(type), (long long)version,
                    op == NULL ? "no rule" : got.p, line);
    }
    if (op != NULL) {
        res->covered[op - oq_sops] = true;
        /* Where onnx has no rule, plain mode knows nothing. */
        if (op->onnx == OQ_SOP_ONNX_NO && strspn(plain.p, "? ") != plain.n) {
            res->n_bad++;
            print_error("%.*s@%lld: plain mode knows %s\n", OQ_STR(type), (long long)version,
                        plain.p);
        }
    }
    oq_buf_release(&got);
    oq_buf_release(&plain);
    oq_buf_release(&want);
    oq_model_free(m);
}

/* One line: each operator at each version named before the colon. */
static void run_line(onq_env *env, const char *line, results *res) {
    const char *p = line, *colon = strchr(line, ':');
    if (colon == NULL)
        fail_msg("no colon in: %s", line);
    while (p < colon) {
        while (*p == ' ')
            p++;
        if (p == colon)
            break;
        const char *at = strchr(p, '@');
        if (at == NULL || at > colon)
            fail_msg("no version in: %s", line);
        const oq_str type = {p, (size_t)(at - p)};
        for (p = at; *p == '@' || *p == ',';) {
            char *end;
            const long version = strtol(p + 1, &end, 10);
            run_case(env, line, type, version, res);
            p = end;
        }
    }
}

static void every_row_has_a_case(void **state) {
    (void)state;
    FILE *f = fopen("tests/unit/shape/cases.txt", "r");
    if (f == NULL)
        fail_msg("tests/unit/shape/cases.txt cannot be read; run in the project's root");
    onq_env *env = onq_env_new(NULL);
    results res = {calloc(oq_sop_count, sizeof(bool)), 0, 0};
    assert_non_null(env);
    assert_non_null(res.covered);
    char line[1024];
    while (fgets(line, sizeof line, f) != NULL) {
        line[strcspn(line, "\n")] = 0;
        if (line[0] != 0 && line[0] != '#')
            run_line(env, line, &res);
    }
    fclose(f);
    size_t n_missing = 0;
    for (size_t i = 0; i < oq_sop_count; i++) {
        bool other = false;
        for (size_t k = 0; k < OQ_COUNT(elsewhere); k++)
            other = other || strcmp(oq_sops[i].type, elsewhere[k]) == 0;
        if (!res.covered[i] && !other) {
            n_missing++;
            print_error("no case: %s::%s@%d\n", oq_sops[i].domain, oq_sops[i].type,
                        oq_sops[i].since);
        }
    }
    print_message("%zu cases, %zu rows\n", res.n_cases, oq_sop_count);
    free(res.covered);
    onq_env_free(env);
    assert_int_equal(res.n_bad, 0);
    assert_int_equal(n_missing, 0);
}

static void table_is_in_order(void **state) {
    (void)state;
    for (size_t i = 1; i < oq_sop_count; i++) {
        const oq_sop *a = &oq_sops[i - 1], *b = &oq_sops[i];
        int cmp = strcmp(a->domain, b->domain);
        cmp = cmp != 0 ? cmp : strcmp(a->type, b->type);
        if (cmp > 0 || (cmp == 0 && a->since >= b->since)) {
            fail_msg("%s::%s@%d comes before %s::%s@%d", a->domain, a->type, a->since, b->domain,
                     b->type, b->since);
        }
    }
}

static void every_row_is_found(void **state) {
    (void)state;
    for (size_t i = 0; i < oq_sop_count; i++) {
        const oq_sop *op = &oq_sops[i];
        const oq_str d = oq_str_of(op->domain), t = oq_str_of(op->type);
        assert_ptr_equal(oq_sop_find(d, t, op->since), op);
        const bool first = i == 0 || strcmp(oq_sops[i - 1].type, op->type) != 0 ||
                           strcmp(oq_sops[i - 1].domain, op->domain) != 0;
        assert_ptr_equal(oq_sop_find(d, t, op->since - 1), first ? NULL : op - 1);
    }
    assert_ptr_equal(oq_sop_find(OQ_S("ai.onnx"), OQ_S("Conv"), 17),
                     oq_sop_find(OQ_S(""), OQ_S("Conv"), 17));
    assert_null(oq_sop_find(OQ_S("some.where"), OQ_S("Conv"), 17));
    assert_null(oq_sop_find(OQ_S(""), OQ_S("Con"), 17));
    assert_null(oq_sop_find(OQ_S(""), OQ_S(""), 17));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(table_is_in_order),
        cmocka_unit_test(every_row_is_found),
        cmocka_unit_test(every_row_has_a_case),
    };
    return cmocka_run_group_tests_name("rules", tests, NULL, NULL);
}
