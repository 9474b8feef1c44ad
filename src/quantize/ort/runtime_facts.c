/*
 * runtime_facts.c — see runtime_facts.h.
 */
#include "quantize/ort/runtime_facts.h"

#include "onnx/attr.h"
#include "onnx/operators.h"

#include <stdlib.h>

static const oq_runtime runtimes[] = {
#define OQ_RUNTIME(minor, version, opset, ir) {minor, version, opset, ir},
#include "quantize/ort/runtime.def"
};

typedef struct form_row {
    const char *name, *marks, *about;
} form_row;

static const form_row forms[] = {
#define OQ_CAN(name, marks, about) {#name, marks, about},
#include "quantize/ort/runtime.def"
};

/* What came with an opset: an operator; an attribute of it; inputs after the first `inputs`. */
typedef struct news_row {
    int64_t opset;
    const char *type, *attribute;
    size_t inputs;
} news_row;

static const news_row news[] = {
#define OQ_NEW_OPERATOR(opset, type)        {opset, type, NULL, 0},
#define OQ_NEW_ATTRIBUTE(opset, type, name) {opset, type, name, 0},
#define OQ_NEW_INPUTS(opset, type, n)       {opset, type, NULL, n},
#include "quantize/ort/runtime.def"
};

const oq_runtime *oq_runtime_find(const char *version) {
    char *end = NULL;
    if (strncmp(version, "1.", 2) != 0)
        return NULL;
    const unsigned long minor = strtoul(version + 2, &end, 10);
    if (end == version + 2 || (*end != '\0' && *end != '.'))
        return NULL;
    for (size_t i = 0; i < OQ_COUNT(runtimes); i++)
        if (runtimes[i].minor == minor)
            return &runtimes[i];
    return NULL;
}

const oq_runtime *oq_runtime_oldest(void) {
    return &runtimes[0];
}

const oq_runtime *oq_runtime_newest(void) {
    return &runtimes[OQ_COUNT(runtimes) - 1];
}

bool oq_runtime_can(const oq_runtime *r, oq_runtime_form form) {
    assert(r >= runtimes && r < runtimes + OQ_COUNT(runtimes));
    return form == OQ_CAN_COUNT || forms[form].marks[r - runtimes] == '+';
}

const char *oq_runtime_about(oq_runtime_form form) {
    return forms[form].about;
}

const oq_runtime *oq_runtime_since(oq_runtime_form form) {
    size_t i = OQ_COUNT(runtimes);
    while (i > 0 && oq_runtime_can(&runtimes[i - 1], form))
        i--;
    return i < OQ_COUNT(runtimes) ? &runtimes[i] : NULL;
}

oq_runtime_form oq_runtime_form_named(oq_str type) {
    for (size_t i = 0; i < OQ_COUNT(forms); i++)
        if (oq_str_is(type, forms[i].name))
            return (oq_runtime_form)i;
    return OQ_CAN_COUNT;
}

static bool has_news(const oq_node *n, const news_row *r) {
    if (r->attribute != NULL)
        return oq_attr_find(n, r->attribute) != NULL;
    return r->inputs == 0 || (n->input.n > r->inputs && n->input.v[r->inputs].n > 0);
}

int64_t oq_runtime_node_opset(const oq_node *n) {
    int64_t opset = 0;
    for (size_t i = 0; oq_domain_is_onnx(n->domain) && i < OQ_COUNT(news); i++)
        if (news[i].opset > opset && oq_str_is(n->op_type, news[i].type) && has_news(n, &news[i]))
            opset = news[i].opset;
    return opset;
}
