#!/usr/bin/env bash
# test_adding.sh — docs/ADDING_AN_OPERATOR.md is true: HardSwish is a row in operators.def and a case in quant_ops.txt.
# Without a case the test of operators fails and names it. It also fails with a rule for QOperator format, for which ONNX
# Runtime has no such operator.
set -u
root=${ONQ_ROOT:?} build=${ONQ_BUILD:?}
[ -f "$build/libonq_harness.a" ] || exit 77
mkdir -p tree/src/onnx tree/tests/ops

# Only the files that read the table are compiled again; the rest is the library as it is.
flags=(-std=c17 -D_GNU_SOURCE -D_FILE_OFFSET_BITS=64 -DONQ_BUILDING -Itree/src "-I$root/src" "-I$root/include" "-I$root/tests/harness")
read -ra libs < <(pkg-config --libs cmocka jansson libjpeg spng zlib)

# add_row RULES: the row in its place, before the first type that comes after it.
add_row() {
    cp "$root/tests/ops/quant_ops.txt" tree/tests/ops/
    awk -v row="OQ_OPERATOR(\"\", \"HardSwish\", $1, OQ_NO_TRAITS)" '
        /^OQ_OPERATOR/ { split($0, part, "\""); if (!done && part[4] > "HardSwish") { print row; done = 1 } }
        { print }' "$root/src/onnx/operators.def" >tree/src/onnx/operators.def
    grep -q HardSwish tree/src/onnx/operators.def || { echo "the row was not put in"; exit 1; }
    cc "${flags[@]}" -o test_ops "$root"/src/onnx/operators.c "$root"/src/quantize/rules.c \
        "$root"/tests/unit/quantize/test_quant_ops.c "$build"/libonq_harness.a "$build"/libonq_dump.a "$build"/libonq.a \
        "${libs[@]}" -lm -lpthread -ldl || { echo "one row does not build"; exit 1; }
}

# add_case MODE
add_case() {
    printf '\n== HardSwish %s 14\ninput x 1,8\nnode HardSwish x -> y\noutput y\n--\n' "$1" >>tree/tests/ops/quant_ops.txt
}

add_row 'plain, none, none'
ONQ_ROOT=$PWD/tree ./test_ops >out 2>&1 && { echo "an operator without a case passes"; exit 1; }
grep -q "HardSwish has no case for qdq" out || { echo "the missing case is not named:"; cat out; exit 1; }
add_case qdq
ONQ_ROOT=$PWD/tree ONQ_ACCEPT=1 ./test_ops >out 2>&1 || { cat out; exit 1; }
grep -q '^HardSwish x_DequantizeLinear_Output -> y_QuantizeLinear_Input' tree/tests/ops/quant_ops.txt ||
    { echo "QDQ does not quantize it"; exit 1; }

add_row 'plain, pool, none'
add_case qdq
add_case qlinear
ONQ_ROOT=$PWD/tree ONQ_ACCEPT=1 ./test_ops >out 2>&1 && { echo "an operator that no runtime has is accepted"; exit 1; }
grep -q "the operator QLinearHardSwish, which src/shape/sop.def does not have" out || { cat out; exit 1; }
