/* test_decode.c — values of one field that come in several pieces are one list. */
#include "onnx/codec/message.h"
#include "onnx/codec/schema.h"
#include "testing.h"

/* int32_data of a TensorProto: packed (tag 0x2a, a length) or one by one (tag 0x28). */
static void packed_in_pieces(void **state) {
    (void)state;
    static const struct {
        uint8_t in[16];
        size_t n;
        const char *values;
    } rows[] = {
        {{0x2a, 2, 1, 2}, 4, "\1\2"},
        {{0x2a, 0}, 2, ""},
        {{0x2a, 0, 0x2a, 2, 1, 2}, 6, "\1\2"}, /* nothing, then some */
        {{0x2a, 2, 1, 2, 0x2a, 0}, 6, "\1\2"},
        {{0x2a, 1, 1, 0x28, 2, 0x2a, 2, 3, 4, 0x28, 5}, 11, "\1\2\3\4\5"},
    };
    oq_arena a;
    onq_error err = ONQ_ERROR_INIT;
    oq_arena_init(&a, oq_alloc_default());
    for (size_t i = 0; i < OQ_COUNT(rows); i++) {
        void *message = NULL;
        assert_ok(oq_decode(&a, OQ_SCHEMA_tensor, rows[i].in, rows[i].n, 0, &message, &err), err);
        const oq_packed *got = &((const oq_tensor *)message)->int32_data;
        assert_int_equal(got->n, strlen(rows[i].values));
        assert_memory_equal(got->p, rows[i].values, got->n);
    }
    oq_arena_release(&a);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(packed_in_pieces)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
