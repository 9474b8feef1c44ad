/*
 * sop.c — the operator table and its lookup.
 */
#include "shape/sop.h"

#include "onnx/operators.h"

#define OQ_SOP(domain, type, since, onnx, rule)                                                    \
    {domain, type, since, OQ_SOP_ONNX_##onnx, oq_rule_##rule, NULL},
#define OQ_SOPF(domain, type, since, onnx, rule, fold)                                             \
    {domain, type, since, OQ_SOP_ONNX_##onnx, oq_rule_##rule, oq_fold_##fold},
const oq_sop oq_sops[] = {
#include "shape/sop.def"
};
#undef OQ_SOP
#undef OQ_SOPF

const size_t oq_sop_count = OQ_COUNT(oq_sops);

const oq_sop *oq_sop_find(oq_str domain, oq_str type, int64_t version) {
    domain = oq_domain_plain(domain);
    /* The first row after all rows of (domain, type) with since <= version. */
    size_t lo = 0, hi = oq_sop_count;
    while (lo < hi) {
        const size_t mid = lo + (hi - lo) / 2;
        const oq_sop *op = &oq_sops[mid];
        int cmp = oq_str_cmp(oq_str_of(op->domain), domain);
        cmp = cmp != 0 ? cmp : oq_str_cmp(oq_str_of(op->type), type);
        if (cmp < 0 || (cmp == 0 && op->since <= version))
            lo = mid + 1;
        else
            hi = mid;
    }
    if (lo == 0)
        return NULL;
    const oq_sop *op = &oq_sops[lo - 1];
    assert(op->rule != NULL &&
           !(oq_str_is(domain, op->domain) && oq_str_is(type, op->type) && op->since > version));
    return oq_str_is(domain, op->domain) && oq_str_is(type, op->type) ? op : NULL;
}
