/*
 * menu.c — see menu.h.
 */
#include "tune/units/menu.h"

#include "base/err.h"
#include "base/str.h"

#include <math.h>

#define WRONG     0.1 /* of the noise of a point: guesses that are wrong by more are corrected */
#define MAX_WRONG 10  /* times too much, at once */
#define FEW       3   /* where less than one of so many was guessed, noise just does not add up */

static oq_method fastest(const oq_menu *m) {
    oq_method best = OQ_METHOD_FLOAT;
    for (oq_method w = OQ_METHOD_FLOAT; w < OQ_METHODS; w++)
        if (m->rows[w].known && m->rows[w].gain > m->rows[best].gain)
            best = w;
    return best;
}

/* The change of one unit that takes the most noise away for the time it costs; false: there is
 * none. What costs no time at all comes first. */
static bool best_step(const oq_menus *m, const oq_method *now, oq_menu_step *out) {
    double best = -1;
    bool found = false;
    for (size_t i = 0; i < m->all.n; i++) {
        const oq_menu_row *from = &m->all.v[i].rows[now[i]];
        for (oq_method w = OQ_METHOD_FLOAT; w < OQ_METHODS; w++) {
            const oq_menu_row *to = &m->all.v[i].rows[w];
            const double less = from->noise - to->noise, cost = from->gain - to->gain;
            if (!to->known || w == now[i] || less < 0 || cost < 0 ||
                (less == 0 && w != OQ_METHOD_FLOAT))
                continue;
            const double worth = less / (cost > 0 ? cost : 1e-12);
            if (worth > best) {
                best = worth;
                found = true;
                *out = (oq_menu_step){.at = i, .to = w};
            }
        }
    }
    return found;
}

onq_code oq_menus_curve(oq_menus *m, oq_arena *a, onq_error *err) {
    oq_method *now = OQ_NEW_ARRAY(a, oq_method, m->all.n + 1);
    oq_menu_step step;
    m->first = OQ_NEW_ARRAY(a, oq_method, m->all.n + 1);
    OQ_TRY_ALLOC(m->first != NULL && now != NULL, err);
    m->noise = m->gain = 0;
    for (size_t i = 0; i < m->all.n; i++) {
        now[i] = m->first[i] = fastest(&m->all.v[i]);
        m->noise += m->all.v[i].rows[now[i]].noise;
        m->gain += m->all.v[i].rows[now[i]].gain;
    }
    m->steps.n = 0;
    while (best_step(m, now, &step)) {
        assert(step.at < m->all.n && step.to != now[step.at]);
        now[step.at] = step.to;
        step.noise = step.gain = 0;
        for (size_t i = 0; i < m->all.n; i++) {
            step.noise += m->all.v[i].rows[now[i]].noise;
            step.gain += m->all.v[i].rows[now[i]].gain;
        }
        OQ_TRY_ALLOC(OQ_PUSH(a, &m->steps, step), err);
    }
    return ONQ_OK;
}

void oq_menus_at(const oq_menus *m, size_t n_steps, oq_method *ways, double *noise) {
    for (size_t i = 0; i < m->all.n; i++)
        ways[i] = m->first[i];
    *noise = m->noise;
    for (size_t k = 0; k < n_steps && k < m->steps.n; k++) {
        ways[m->steps.v[k].at] = m->steps.v[k].to;
        *noise = m->steps.v[k].noise;
    }
}

bool oq_menus_correct(oq_menus *m, const oq_method *ways, double measured) {
    double predicted = 0, guessed = 0;
    size_t n = 0;
    for (size_t i = 0; i < m->all.n; i++) {
        const oq_menu_row *row = &m->all.v[i].rows[ways[i]];
        predicted += row->noise;
        guessed += row->guessed ? row->noise : 0;
        n += row->guessed;
    }
    const double right = fmax(guessed + measured - predicted, guessed / MAX_WRONG);
    if (n * FEW < m->all.n || !(guessed > 0) || !isfinite(measured) ||
        !(fabs(right - guessed) > WRONG * measured))
        return false;
    for (size_t i = 0; i < m->all.n; i++) {
        oq_menu_row *row = &m->all.v[i].rows[ways[i]];
        row->noise *= row->guessed ? right / guessed : 1;
    }
    return true;
}

static void add_name(oq_buf *b, const char *name, oq_method way) {
    if (b->n > 1)
        oq_buf_addc(b, ',');
    oq_buf_add_json(b, oq_str_of(name));
    oq_buf_addf(b, ":\"%s\"", oq_method_name(way));
}

const char *oq_menus_text(const oq_menus *m, const oq_method *ways, oq_arena *a) {
    oq_buf b;
    oq_buf_init(&b, a->alloc);
    oq_buf_addc(&b, '{');
    for (size_t i = 0; i < m->all.n; i++) {
        add_name(&b, m->all.v[i].node, ways[i]);
        /* The Relu or Clip of a unit goes with it; alone it would be quantized for nothing. */
        if (m->all.v[i].act != NULL && ways[i] == OQ_METHOD_FLOAT)
            add_name(&b, m->all.v[i].act, OQ_METHOD_FLOAT);
    }
    oq_buf_addc(&b, '}');
    const char *text = b.failed ? NULL : oq_arena_strdup(a, b.p, b.n);
    oq_buf_release(&b);
    return text;
}
