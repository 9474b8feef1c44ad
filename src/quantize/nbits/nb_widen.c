/*
 * nb_widen.c — packed weights: small in the file, and what MatMulNBits has fast kernels for when the
 * model is loaded. The nodes here read constants only, so the runtime computes them once.
 *
 *     scales, offsets   float16; Cast makes them float
 *     integers of 2, 3  the first bits of integers of 4 bits, whose next bit is set: v becomes
 *                       v * 4 + 2 or v * 2 + 1, less 8 the values -6, -2, 2, 6 or -7, -5 ... 7. No
 *                       integer is wasted on an end without an opposite.
 *
 * 2 bits: byte i holds what counts (0xcc) of the wide bytes i and i + n / 2, the second in the bits
 * between. 3 bits: three rows of n / 4 bytes hold what counts (0xee) of as many wide ones; the three
 * bits of each integer of the fourth quarter lie where these three have nothing (0x11).
 */
#include "quantize/nbits/nb_panel.h"
#include "quantize/nbits/nb_run.h"

uint64_t oq_nb_wide_size(const oq_nb_task *t) {
    return t->size[OQ_NB_Q] / t->bits * t->wide;
}

void oq_nb_pack(const uint8_t *wide, uint64_t n, unsigned bits, uint8_t *out) {
    assert(n % 4 == 0 && (bits == 2 || bits == 3));
    const uint64_t part = n / (bits == 2 ? 2 : 4);
    for (uint64_t i = 0; bits == 2 && i < part; i++)
        out[i] = (uint8_t)((wide[i] & 0xcc) | (wide[part + i] & 0xcc) >> 2);
    for (uint64_t i = 0; bits == 3 && i < part; i++)
        for (unsigned k = 0; k < 3; k++)
            out[k * part + i] =
                (uint8_t)((wide[k * part + i] & 0xee) | (wide[3 * part + i] >> (k + 1) & 0x11));
}

/* ---- nodes ---- */

typedef struct maker {
    oq_nb_state *r;
    oq_nb_scope *s;
    oq_str prefix; /* of names */
    bool failed;
} maker;

/* Appends a node of one output, which it gives. */
static oq_str add(maker *m, const char *type, oq_str a, oq_str b, const char *suffix,
                  oq_node **made) {
    oq_nb_state *r = m->r;
    const oq_str in[] = {a, b}, out = oq_fresh_tensor(&r->names, m->prefix, suffix);
    oq_node *n = oq_node_make(r->arena, type, (oq_str){0}, in, b.p != NULL ? 2 : 1, &out, 1);
    m->failed |= n == NULL || r->names.failed || !OQ_PUSH(r->scratch, &m->s->out, n);
    if (made != NULL)
        *made = n;
    return out;
}

static oq_str shift(maker *m, oq_str a, oq_str by, const char *suffix) {
    oq_node *n = NULL;
    const oq_str out = add(m, "BitShift", a, by, suffix, &n);
    m->failed = m->failed || !oq_attr_set_str(m->r->arena, n, OQ_S("direction"), OQ_S("LEFT"));
    return out;
}

/* A constant of bytes, n x 1; n 0: one for all. */
static oq_str bytes(maker *m, const char *suffix, const uint8_t *v, size_t n) {
    const int64_t dims[] = {(int64_t)n, 1};
    oq_nb_state *r = m->r;
    const oq_str name = oq_fresh_tensor(&r->names, m->prefix, suffix);
    oq_tensor *t = oq_tensor_new(r->arena, name, OQ_UINT8, dims, n > 0 ? 2 : 0);
    m->failed |= r->names.failed || t == NULL || !oq_graph_add_init(r->arena, m->s->graph, t) ||
                 oq_tensor_set_raw(r->arena, t, v, n > 0 ? n : 1, NULL) != ONQ_OK;
    return name;
}

static oq_str widen_2(maker *m, oq_str q) {
    static const uint8_t by[] = {0, 2}, counts = 0xcc, half = 0x22;
    const oq_str both = shift(m, q, bytes(m, "_by", by, 2), "_both");
    const oq_str value = add(m, "BitwiseAnd", both, bytes(m, "_mask", &counts, 0), "_values", NULL);
    return add(m, "BitwiseOr", value, bytes(m, "_half", &half, 0), "_wide", NULL);
}

/* The three rows that Split makes of x, or-ed. */
static oq_str join_rows(maker *m, oq_str x) {
    oq_nb_state *r = m->r;
    const oq_str out[] = {oq_fresh_tensor(&r->names, m->prefix, "_row_0"),
                          oq_fresh_tensor(&r->names, m->prefix, "_row_1"),
                          oq_fresh_tensor(&r->names, m->prefix, "_row_2")};
    oq_node *n = oq_node_make(r->arena, "Split", (oq_str){0}, &x, 1, out, 3);
    m->failed |= n == NULL || r->names.failed ||
                 !oq_attr_set_int(r->arena, n, OQ_S("num_outputs"), 3) ||
                 !OQ_PUSH(r->scratch, &m->s->out, n);
    return add(m, "BitwiseOr", add(m, "BitwiseOr", out[0], out[1], "_rows_01", NULL), out[2],
               "_last", NULL);
}

static oq_str widen_3(maker *m, oq_str q) {
    static const uint8_t by[] = {1, 2, 3}, half = 0x11;
    oq_node *join = NULL;
    const oq_str mask = bytes(m, "_half", &half, 0);
    const oq_str spare = add(m, "BitwiseAnd", q, mask, "_spare", NULL);
    const oq_str last = join_rows(m, shift(m, spare, bytes(m, "_by", by, 3), "_moved"));
    const oq_str all = add(m, "Concat", q, last, "_all", &join);
    m->failed = m->failed || !oq_attr_set_int(m->r->arena, join, OQ_S("axis"), 0);
    return add(m, "BitwiseOr", all, mask, "_wide", NULL);
}

static oq_str widen_integers(maker *m, const oq_nb_task *t, oq_str q, onq_error *err) {
    const int64_t dims[] = {(int64_t)t->n, (int64_t)t->blocks, (int64_t)(t->block * t->wide / 8)};
    const oq_str wide = t->bits == 2 ? widen_2(m, q) : widen_3(m, q);
    const oq_str shape = oq_nb_add_ints(m->r, m->s, m->prefix, "_shape", dims, 3, err);
    m->failed |= shape.p == NULL;
    return add(m, "Reshape", wide, shape, "_blocks", NULL);
}

onq_code oq_nb_widen(oq_nb_state *r, oq_nb_scope *s, oq_nb_done *d, onq_error *err) {
    const oq_nb_task *t = oq_nb_lazy_task(d->lazy);
    maker m = {r, s, d->part[OQ_NB_Q]->name, false};
    if (d->read_in == s)
        return ONQ_OK;
    d->read_in = s;
    for (unsigned i = 0; i < OQ_NB_PARTS; i++) {
        if (d->part[i] == NULL)
            continue;
        d->wide[i] = d->part[i]->name;
        if (i == OQ_NB_Q && oq_nb_is_centred(t))
            d->wide[i] = widen_integers(&m, t, d->wide[i], err);
        if (i == OQ_NB_Q || t->stored == t->real || d->part[i]->data_type.v != (int32_t)t->stored)
            continue;
        oq_node *cast = NULL;
        m.prefix = d->part[i]->name;
        d->wide[i] = add(&m, "Cast", d->wide[i], (oq_str){0}, "_float", &cast);
        m.failed = m.failed || !oq_attr_set_int(r->arena, cast, OQ_S("to"), (int64_t)t->real);
    }
    return m.failed ? oq_fail_nomem(err) : ONQ_OK;
}
