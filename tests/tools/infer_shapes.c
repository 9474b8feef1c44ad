/*
 * infer_shapes.c — prints what shape inference finds, one line of JSON for each model; for
 * tests/parity/test_shape.py.
 *
 *     infer_shapes [--plain] [--data_prop] [--auto_merge] [--guess] [--write FOLDER] MODEL...
 *
 * {"file": ..., "ms": time, "graphs": [{name: [kind, elem_type, [dims] or null]}],
 * "no_rule": ["domain::Type"], "full": n, "partial": n, "none": n}, or
 * {"file": ..., "error": text}. Graphs come in the order of
 * oq_walk_graphs, outermost first; a dimension is a number, a text, or null. With --write the
 * results are written into FOLDER/<number>.onnx too.
 */
#include "onnx/graph.h"
#include "shape/shape.h"
#include "shape/sop.h"

#include <stdio.h>
#include <time.h>

typedef struct job {
    oq_shapes *shapes;
    oq_buf *out;
    bool first_graph;
} job;

static void add_type(oq_buf *b, const oq_vtype *t) {
    static const char *const kinds[] = {"none",     "tensor", "sparse", "sequence",
                                        "optional", "map",    "opaque"};
    if (t == NULL) {
        oq_buf_adds(b, "null");
        return;
    }
    oq_buf_addf(b, "[\"%s\", %d, ", kinds[t->kind], t->elem_type);
    if (t->kind == OQ_V_SEQUENCE || t->kind == OQ_V_OPTIONAL || t->kind == OQ_V_MAP) {
        add_type(b, t->inner);
    } else if (!t->has_shape) {
        oq_buf_adds(b, "null");
    } else {
        oq_buf_addc(b, '[');
        for (uint32_t i = 0; i < t->rank; i++) {
            oq_buf_adds(b, i > 0 ? ", " : "");
            if (oq_sdim_is_num(t->dims[i])) {
                oq_buf_addf(b, "%lld", (long long)t->dims[i].n);
            } else if (oq_sdim_is_unknown(t->dims[i])) {
                oq_buf_adds(b, "null");
            } else {
                oq_buf text;
                oq_buf_init(&text, b->alloc);
                oq_sdim_print(&text, t->dims[i]);
                oq_buf_add_json(b, (oq_str){text.p, text.n});
                oq_buf_release(&text);
            }
        }
        oq_buf_addc(b, ']');
    }
    oq_buf_addc(b, ']');
}

static void add_value(job *j, const oq_graph *g, oq_str name, bool *first) {
    if (name.n == 0)
        return;
    oq_buf_adds(j->out, *first ? "" : ", ");
    *first = false;
    oq_buf_add_json(j->out, name);
    oq_buf_adds(j->out, ": ");
    add_type(j->out, oq_shapes_find(j->shapes, g, name));
}

static onq_code print_graph(void *ctx, oq_graph *g, onq_error *err) {
    job *j = ctx;
    bool first = true;
    (void)err;
    oq_buf_adds(j->out, j->first_graph ? "{" : ", {");
    j->first_graph = false;
    for (size_t i = 0; i < g->input.n; i++)
        add_value(j, g, g->input.v[i]->name, &first);
    for (size_t i = 0; i < g->node.n; i++)
        for (size_t k = 0; k < g->node.v[i]->output.n; k++)
            add_value(j, g, g->node.v[i]->output.v[k], &first);
    oq_buf_addc(j->out, '}');
    return ONQ_OK;
}

typedef struct rules {
    const oq_model *model;
    oq_buf *out;
    bool first;
} rules;

static onq_code print_unknown(void *ctx, oq_graph *g, onq_error *err) {
    rules *r = ctx;
    (void)err;
    for (size_t i = 0; i < g->node.n; i++) {
        const oq_node *n = g->node.v[i];
        if (oq_sop_find(n->domain, n->op_type, oq_model_opset(r->model, n->domain)) == NULL) {
            oq_buf_addf(r->out, "%s\"%.*s::%.*s\"", r->first ? "" : ", ", OQ_STR(n->domain),
                        OQ_STR(n->op_type));
            r->first = false;
        }
    }
    return ONQ_OK;
}

static onq_code infer(onq_env *env, const char *path, const oq_shape_options *opts,
                      const char *save_as, oq_buf *out, onq_error *err) {
    oq_model *m = NULL;
    job j = {NULL, out, true};
    onq_code rc = oq_model_open(env, path, NULL, &m, err);
    if (rc != ONQ_OK)
        return rc;
    struct timespec a, b;
    clock_gettime(CLOCK_MONOTONIC, &a);
    OQ_GO(oq_shapes_infer(m, opts, &j.shapes, err));
    clock_gettime(CLOCK_MONOTONIC, &b);
    oq_shape_report rep;
    oq_shapes_report(j.shapes, &rep);
    oq_buf_addf(out,
                ", \"ms\": %.3f, \"full\": %zu, \"partial\": %zu, \"none\": %zu, \"merged\": %zu",
                (double)(b.tv_sec - a.tv_sec) * 1e3 + (double)(b.tv_nsec - a.tv_nsec) / 1e6,
                rep.n_full, rep.n_partial, rep.n_none, rep.n_merged);
    oq_buf_adds(out, ", \"graphs\": [");
    OQ_GO(oq_walk_graphs(m->proto->graph, print_graph, &j, err));
    oq_buf_adds(out, "], \"no_rule\": [");
    rules r = {m, out, true};
    OQ_GO(oq_walk_graphs(m->proto->graph, print_unknown, &r, err));
    oq_buf_addc(out, ']');
    if (save_as != NULL) {
        OQ_GO(oq_shapes_write(j.shapes, m, err));
        oq_shapes_free(j.shapes);
        j.shapes = NULL;
        OQ_GO(oq_model_save(m, save_as, NULL, err));
    }
done:
    oq_shapes_free(j.shapes);
    oq_model_free(m);
    return rc;
}

int main(int argc, char **argv) {
    oq_shape_options opts = {.symbolic = true};
    const char *folder = NULL;
    onq_env *env = onq_env_new(NULL);
    if (env == NULL)
        return 1;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--plain") == 0) {
            opts.symbolic = false;
        } else if (strcmp(argv[i], "--data_prop") == 0) {
            opts.data_prop = true;
        } else if (strcmp(argv[i], "--auto_merge") == 0) {
            opts.auto_merge = true;
        } else if (strcmp(argv[i], "--guess") == 0) {
            opts.guess_output_rank = true;
        } else if (strcmp(argv[i], "--strict") == 0) {
            opts.strict = true;
        } else if (strcmp(argv[i], "--write") == 0 && i + 1 < argc) {
            folder = argv[++i];
        } else {
            onq_error err = ONQ_ERROR_INIT;
            oq_buf out;
            char save_as[4096];
            oq_buf_init(&out, oq_alloc_default());
            snprintf(save_as, sizeof save_as, "%s/%d.onnx", folder != NULL ? folder : "", i);
            const onq_code rc =
                infer(env, argv[i], &opts, folder != NULL ? save_as : NULL, &out, &err);
            oq_buf name;
            oq_buf_init(&name, oq_alloc_default());
            oq_buf_add_json(&name, oq_str_of(argv[i]));
            if (rc != ONQ_OK) {
                oq_buf text;
                oq_buf_init(&text, oq_alloc_default());
                oq_buf_add_json(&text, oq_str_of(err.text));
                printf("{\"file\": %s, \"number\": %d, \"error\": %s}\n", name.p, i, text.p);
                oq_buf_release(&text);
            } else {
                printf("{\"file\": %s, \"number\": %d%s}\n", name.p, i, out.p);
            }
            oq_buf_release(&name);
            oq_buf_release(&out);
        }
    }
    onq_env_free(env);
    return 0;
}
