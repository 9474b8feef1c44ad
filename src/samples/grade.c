/*
 * grade.c — see grade.h.
 */
#include "samples/grade.h"

#include <math.h>

/* The least part of rows that have the same class in a good result. */
#define GOOD_AGREEMENT 0.9

/* What a text must have: at most that divergence (in nats), at least that part of tokens that both
 * models prefer. A divergence of 0.1 raises perplexity by about a tenth, one of 0.3 by a quarter. */
static const struct {
    oq_grade grade;
    double kl, top1;
} by_text[] = {
    {OQ_GRADE_CLOSE, 0.02, 0.90}, {OQ_GRADE_GOOD, 0.10, 0.75}, {OQ_GRADE_FAIR, 0.30, 0.60}};

oq_grade oq_grade_of_language(double kl, double top1) {
    for (size_t i = 0; i < OQ_COUNT(by_text); i++)
        if (kl <= by_text[i].kl && top1 >= by_text[i].top1)
            return by_text[i].grade;
    return OQ_GRADE_POOR;
}

bool oq_grade_of_text(const oq_lm_score *text, oq_grade *out) {
    if (text == NULL || text->rows == 0 || text->differs)
        return false;
    *out = oq_grade_of_language(text->wrecked ? (double)NAN : oq_lm_kl(text), oq_lm_top1(text));
    return true;
}

static oq_grade by_noise(double sqnr, double floor) {
    const double above = sqnr - floor;
    return above >= 20   ? OQ_GRADE_CLOSE
           : above >= 10 ? OQ_GRADE_GOOD
           : above >= 0  ? OQ_GRADE_FAIR
                         : OQ_GRADE_POOR; /* NAN, too */
}

oq_grade oq_grade_of(const oq_graded *g) {
    oq_grade grade;
    assert(g->same <= g->rows);
    if (g->sqnr >= OQ_GRADE_EQUAL)
        return OQ_GRADE_SAME;
    if (oq_grade_of_text(g->text, &grade))
        return grade;
    grade = by_noise(g->sqnr, g->floor);
    const bool change = (double)g->same < GOOD_AGREEMENT * (double)g->rows;
    return change && grade > OQ_GRADE_FAIR ? OQ_GRADE_FAIR : grade;
}

const char *oq_grade_text(oq_grade g) {
    static const char *const texts[] = {"poor", "fair", "good", "close to float",
                                        "the same as float"};
    assert((size_t)g < OQ_COUNT(texts));
    return texts[g];
}

const char *oq_grade_meaning(oq_grade g) {
    static const char *const texts[] = {"expect wrong answers", "some answers will change",
                                        "most answers stay the same",
                                        "hardly a difference will show", "bit for bit"};
    assert((size_t)g < OQ_COUNT(texts));
    return texts[g];
}

/* Each bit is 6 dB; what is left of 48 dB after a deep model of 8 bits is seldom below 10. */
double oq_grade_floor(unsigned bits) {
    const double floor = 6.0 * bits - 38.0;
    return floor < 0 ? 0 : floor > 30 ? 30 : floor;
}
