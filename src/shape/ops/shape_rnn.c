/*
 * shape_rnn.c — RNN, GRU, LSTM and the contrib DynamicQuantizeLSTM.
 */
#include "shape/sop.h"

void oq_rule_rnn(oq_rctx *c) {
    const oq_vtype *x = oq_r_shape(c, 0), *r = oq_r_shape(c, 2);
    oq_sdim directions = oq_sdim_unknown(), hidden = oq_sdim_unknown();
    oq_sdim seq = oq_sdim_unknown(), batch = oq_sdim_unknown();
    if (oq_r_str_is(c, "direction", "forward", "bidirectional"))
        directions = oq_sdim_num(2);
    else if (oq_r_str_is(c, "direction", "forward", "forward") ||
             oq_r_str_is(c, "direction", "forward", "reverse"))
        directions = oq_sdim_num(1);
    const int64_t size = oq_r_int(c, "hidden_size", -1);
    if (size > 0)
        hidden = oq_sdim_num(size);
    else if (!c->plain && r != NULL && r->rank == 3)
        hidden = r->dims[2];
    const bool batch_first = oq_r_int(c, "layout", 0) != 0 && c->opset >= 14;
    OQ_R_FAIL_IF(x != NULL && x->rank != 3, c, "the input must have rank 3");
    if (x != NULL) {
        seq = x->dims[batch_first ? 1 : 0];
        batch = x->dims[batch_first ? 0 : 1];
    }
    const oq_sdim y[2][4] = {{seq, directions, batch, hidden}, {batch, seq, directions, hidden}};
    const oq_sdim h[2][3] = {{directions, batch, hidden}, {batch, directions, hidden}};
    for (size_t o = 0; o < c->n_out && o < 3; o++)
        OQ_R_NEED(oq_r_pass_elem(c, 0, o));
    /* Before opset 7 onnx looked at output_sequence too; its absence means that Y is not given. */
    oq_r_set_shape(c, 0, y[batch_first], 4);
    for (size_t o = 1; o < c->n_out && o < 3; o++)
        oq_r_set_shape(c, o, h[batch_first], 3);
}
