"""commands.py - the table of commands that meet hostile cases.

m.onnx is the model, good.onnx a sound one, p.json sound parameters, SAMPLES what the case or its lack says. `slots` says which
kinds of bad input a row is for, `writes` what may be there afterwards when the status is 0.
"""
import dataclasses


@dataclasses.dataclass
class Row:
    words: str
    slots: tuple = ("model", "output")
    writes: tuple = ("out.onnx",)
    reads: tuple = ()  # other files that a refusal may name
    model: bool = True  # out.onnx is a model, to load and run


QUANTIZE = "-i m.onnx -o out.onnx"
DATA = "--data random:2"
SAMPLES = ("model", "samples", "output")

COMMANDS = {
    "inspect": Row("inspect m.onnx", ("model",), ()),
    "inspect-json": Row("inspect m.onnx --json --verbose 2", ("model",), ()),
    "inspect-page": Row("inspect m.onnx -o page.html", ("model",), ("page.html",), model=False),
    "diff": Row("diff m.onnx good.onnx", ("model",), ()),
    "diff-back": Row("diff good.onnx m.onnx --ignore names", ("model",), ()),
    "diff-form": Row("diff good.onnx m.onnx --ignore form", ("model",), ()),
    "dynamic": Row(f"dynamic {QUANTIZE}"),
    "dynamic-channels": Row(f"dynamic {QUANTIZE} --per_channel --enable_subgraph --weight_type qint8"),
    "static": Row(f"static {QUANTIZE} --data SAMPLES", SAMPLES),
    "static-qoperator": Row(f"static {QUANTIZE} --data SAMPLES --quant_format qoperator --per_channel", SAMPLES),
    "static-entropy": Row(f"static {QUANTIZE} --data SAMPLES --method entropy --enable_subgraph --op_types_to_quantize all", SAMPLES),
    "static-16": Row(f"static {QUANTIZE} --data SAMPLES --activation_type quint16 --preset qnn --optimize_model", ("model",)),
    "overrides": Row(f"static {QUANTIZE} {DATA} --tensor_quant_overrides o.json", ("overrides",)),
    "overrides-qoperator": Row(f"static {QUANTIZE} {DATA} --tensor_quant_overrides o.json --quant_format qoperator", ("overrides",)),
    "overrides-channels": Row(f"static {QUANTIZE} {DATA} --tensor_quant_overrides o.json --per_channel --preset qnn", ("overrides",)),
    "encodings": Row(f"static {QUANTIZE} {DATA} --encodings s.json", ("settings",)),
    "cache": Row(f"static {QUANTIZE} {DATA} --calibration_cache s.json", ("settings",), ("out.onnx", "s.json")),
    "from-plan": Row(f"static {QUANTIZE} --from_plan s.json", ("settings",)),
    "dynamic-from-plan": Row(f"dynamic {QUANTIZE} --from_plan s.json", ("settings",)),
    "nbits-from-plan": Row(f"nbits {QUANTIZE} --from_plan s.json", ("settings",)),
    "legacy-from-plan": Row(f"legacy {QUANTIZE} --from_plan s.json", ("settings",)),
    "node-methods": Row(f"static {QUANTIZE} {DATA} --node_methods s.json", ("settings",)),
    "unit-costs": Row(f"static {QUANTIZE} {DATA} --op_set pays --unit_costs s.json", ("settings",)),
    "resume": Row(f"auto {QUANTIZE} {DATA} --time_limit 1 --limit 2 --resume s.json", ("settings",), ("out.onnx", "s.json")),
    "checkpoint": Row(f"calibrate -i m.onnx -o ranges.json {DATA} --checkpoint s.json", ("settings",), ("ranges.json", "s.json"), model=False),
    "qat": Row(f"qat {QUANTIZE}"),
    "qat-qdq": Row(f"qat {QUANTIZE} --quant_format qdq", ("model",)),
    "legacy": Row(f"legacy {QUANTIZE}"),
    "legacy-qlinear": Row(f"legacy {QUANTIZE} --quantization_mode QLinearOps_Static --input_quantization_params p.json --output_quantization_params p.json", ("model",),
                          reads=("p.json",)),
    "legacy-params": Row(f"legacy {QUANTIZE} --quantization_mode QLinearOps_Static --input_quantization_params s.json --output_quantization_params s.json",
                         ("settings",)),
    "preprocess": Row(f"preprocess {QUANTIZE}"),
    "preprocess-builtin": Row(f"preprocess {QUANTIZE} --optimizer builtin", ("model",)),
    "preprocess-shapes": Row(f"preprocess {QUANTIZE} --skip_optimization", ("model",)),
    "preprocess-opset": Row(f"preprocess {QUANTIZE} --optimizer none --opset 21 --qnn", ("model",)),
    "nbits": Row(f"nbits {QUANTIZE} --op_types_to_quantize all"),
    "nbits-qdq": Row(f"nbits {QUANTIZE} --quant_format QDQ --all_weights", ("model",)),
    "nbits-2": Row(f"nbits {QUANTIZE} --bits 2 --block_size 16 --symmetric false --op_types_to_quantize all --all_weights", ("model",)),
    "nbits-hqq": Row(f"nbits {QUANTIZE} --quant_method hqq", ("model",)),
    "nbits-k_quant": Row(f"nbits {QUANTIZE} --quant_method k_quant", ("model",)),
    "nbits-target": Row(f"nbits {QUANTIZE} --target_bits 20 --op_types_to_quantize all", ("model",)),
    "nbits-gptq": Row(f"nbits {QUANTIZE} --quant_method gptq --data SAMPLES", SAMPLES),
    "nbits-awq": Row(f"nbits {QUANTIZE} --quant_method awq --data SAMPLES", SAMPLES),
    "node-config": Row(f"nbits {QUANTIZE} --quant_method rtn --node_config s.json", ("settings",)),
    "nbits-gguf": Row(f"nbits {QUANTIZE} --weights w.gguf", ("gguf",), reads=("w.gguf",)),
    "nbits-gguf-anew": Row(f"nbits {QUANTIZE} --weights w.gguf --quant_method hqq", ("gguf",), reads=("w.gguf",)),
    "convert": Row(f"convert {QUANTIZE} --to float"),
    "convert-qdq": Row(f"convert {QUANTIZE} --to qdq --lossy", ("model",)),
    "convert-qoperator": Row(f"convert {QUANTIZE} --to qoperator", ("model",)),
    "convert-float32": Row(f"convert {QUANTIZE} --to float32", ("model",)),
    "convert-float16": Row(f"convert {QUANTIZE} --to float16", ("model",)),
    "convert-nbits": Row(f"convert {QUANTIZE} --to nbits", ("model",)),
    "dequantize": Row(f"dequantize {QUANTIZE} --clips all --ranges ranges.json", ("model",), ("out.onnx", "ranges.json")),
    "kvcache": Row(f"kvcache {QUANTIZE} --data SAMPLES", SAMPLES),
    "bnb4": Row(f"bnb4 {QUANTIZE}"),
    "bnb4-fp4": Row(f"bnb4 {QUANTIZE} --quant_type fp4 --block_size 16", ("model",)),
    "calibrate": Row("calibrate -i m.onnx -o ranges.json --data SAMPLES", ("model", "samples"), ("ranges.json",), model=False),
    "calibrate-percentile": Row("calibrate -i m.onnx -o ranges.json --data SAMPLES --method percentile", ("model", "samples"), ("ranges.json",), model=False),
    "merge": Row("calibrate --merge s.json -o ranges.json", ("settings",), ("ranges.json",), model=False),
    "debug": Row("debug --float_model m.onnx --qdq_model good.onnx --data SAMPLES -o report.html", ("model", "samples"), ("report.html",), model=False),
    "debug-weights": Row("debug --float_model good.onnx --qdq_model m.onnx", ("model",), (), model=False),
    "debug-data": Row(f"debug --float_model good.onnx --qdq_model m.onnx {DATA}", ("model",), (), model=False),
    "run": Row("run m.onnx --data SAMPLES -o outputs", ("model", "samples"), ("outputs",), model=False),
    "verify": Row("verify m.onnx --data SAMPLES", ("model", "samples"), (), model=False),
    "verify-float": Row("verify good.onnx --float_model m.onnx --data random:2", ("model",), (), model=False),
    "for-runtime": Row(f"convert {QUANTIZE} --for_runtime 1.20", ("model",)),
    "bench": Row("bench m.onnx good.onnx --data SAMPLES --runs 1", ("model", "samples"), (), model=False),
    "auto": Row(f"auto {QUANTIZE} --data SAMPLES --time_limit 3 --limit 4", SAMPLES),
    "command line": Row("", ("words",), ("out.onnx", "out.onnx.data", "ranges.json", "outputs", "report.html"), model=False),
}

# What a command needs for itself when options are given to it.
BARE = {
    "inspect": "m.onnx", "diff": "m.onnx good.onnx", "dynamic": QUANTIZE, "static": f"{QUANTIZE} {DATA}", "qat": QUANTIZE, "legacy": QUANTIZE,
    "preprocess": QUANTIZE, "nbits": QUANTIZE, "bnb4": QUANTIZE, "kvcache": f"{QUANTIZE} {DATA}", "convert": f"{QUANTIZE} --to float", "dequantize": QUANTIZE, "calibrate": f"-i m.onnx -o ranges.json {DATA}",
    "debug": "--float_model m.onnx --qdq_model good.onnx", "run": f"m.onnx {DATA}", "verify": f"m.onnx {DATA}", "bench": f"m.onnx {DATA} --runs 1", "auto": f"{QUANTIZE} {DATA} --time_limit 1",
    "ops": "",
}


def words_of(row, case):
    if case.slot == "words":
        command, option = case.content
        return [command, *BARE[command].split(), option]
    samples = case.slot.split()[1] if case.slot.startswith("samples") else "random:2"
    return row.words.replace("SAMPLES", samples).split()


def takes(row, case):
    return case.slot.split()[0] in row.slots
