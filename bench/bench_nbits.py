"""bench_nbits.py - 4-bit weights of large models beside the reference and the floor of any quantizer.

The floor reads the input once and writes as much as the output has, to the disk. Budgets: at most twice the floor, under
300 MiB, a third of the reference's CPU, both cores used; bnb4 a fifth of the reference's CPU. hqq is timed too; it and gptq
beside the reference's on minilm where torch is there, for the reference needs it (budget: a tenth of its CPU).
"""
import importlib.util
import os
import shutil

import big_models
from measure import BUILD, MODELS, ONQ, PYTHON, Budgets, figure, once, rounds

ROUNDS = int(os.environ.get("ONQ_ROUNDS", "3"))
SCRIPT = """
import logging, sys
import onnx
logging.disable(logging.CRITICAL)
from onnxruntime.quantization import matmul_nbits_quantizer as M
model, out, how, sample = sys.argv[1:]
if how == "hqq":
    c = M.HQQWeightOnlyQuantConfig(block_size=32)
elif how == "gptq":
    from onnxruntime.quantization.static_quantize_runner import OnnxModelCalibrationDataReader
    c = M.GPTQWeightOnlyQuantConfig(calibration_data_reader=OnnxModelCalibrationDataReader(sample), block_size=32)
else:
    c = M.DefaultWeightOnlyQuantConfig(block_size=32, is_symmetric=True)
q = M.MatMulNBitsQuantizer(onnx.load(model), algo_config=c)
q.process()
q.model.save_model_to_file(out, True)
"""
BNB4 = """
import logging, sys
import onnx
logging.disable(logging.CRITICAL)
from onnxruntime.quantization import matmul_bnb4_quantizer as B
q = B.MatMulBnb4Quantizer(onnx.load(sys.argv[1]), quant_type=B.MatMulBnb4Quantizer.NF4, block_size=64)
q.process()
q.model.save_model_to_file(sys.argv[2], True)
"""


def bench(name, n, external, budgets):
    folder = BUILD / "bench" / "nbits"
    folder.mkdir(parents=True, exist_ok=True)
    model = big_models.make(folder / "model.onnx", n, external)
    out = folder / "out.onnx"
    written = n * big_models.SIDE ** 2 * 5 // 8  # bytes: 4 bits, and a float32 for every 32 of them

    def before():
        big_models.remove(out)
        (folder / "floor").unlink(missing_ok=True)
        os.sync()

    big_models.cache(model)
    floor = ["sh", "-c", f"cat {' '.join(big_models.files(model))} >/dev/null && "
             f"head -c {written} {big_models.files(model)[-1]} | dd of={folder}/floor bs=1M conv=fsync iflag=fullblock"]
    onq = [ONQ, "nbits", "-i", model, "-o", out, "--no_verify"]
    got = rounds({"floor": floor, "onq nbits": onq}, ROUNDS, before)
    before()
    got["onq nbits hqq"] = once(onq + ["--quant_method", "hqq"])
    before()
    got["onq bnb4"] = once([ONQ, "bnb4", "-i", model, "-o", out, "--no_verify"])
    before()
    got["reference"] = once([PYTHON, "-c", SCRIPT, model, out, "default", ""])
    before()
    got["reference bnb4"] = once([PYTHON, "-c", BNB4, model, out])
    print(f"{name}: {sum(os.path.getsize(p) for p in big_models.files(model)) / 1e9:.2f} GB")
    for k, c in got.items():
        print(f"  {k:14s} {c}")
    size = big_models.size(n)
    for job, ours, theirs, most in (("nbits", "onq nbits", "reference", 1 / 3), ("bnb4", "onq bnb4", "reference bnb4", 0.2)):
        figure(f"{job}, {size}", "onq", got[ours])
        figure(f"{job}, {size}", "reference", got[theirs])
        budgets.check(f"{size}, {job}: peak memory", got[ours].peak, 300, "MiB")
        if got[theirs].status == 0:
            budgets.check(f"{size}, {job}: CPU / reference", got[ours].cpu / got[theirs].cpu, most, "x")
    budgets.check(f"{size}, nbits: wall / floor", got["onq nbits"].wall / got["floor"].wall, 2.0, "x")
    if len(os.sched_getaffinity(0)) > 1:
        budgets.check(f"{size}, nbits: wall / CPU", got["onq nbits"].wall / got["onq nbits"].cpu, 0.75, "x")
    shutil.rmtree(folder)


def bench_learned(budgets):
    """hqq and gptq on a real model, beside the reference's."""
    model = MODELS / "minilm" / "model.onnx"
    if not model.exists():
        print(f"hqq, gptq: no minilm in {MODELS}")
        return
    folder = BUILD / "bench" / "nbits"
    folder.mkdir(parents=True, exist_ok=True)
    out = folder / "out.onnx"
    has_torch = importlib.util.find_spec("torch") is not None
    for how in ("hqq", "gptq"):
        data = ["--data", model.parent] if how == "gptq" else []
        ours = once([ONQ, "nbits", "-i", model, "-o", out, "--no_verify", "--quant_method", how, *data])
        print(f"minilm, {how}\n  onq        {ours}")
        figure(f"{how}: minilm", "onq", ours)
        if not has_torch:
            print("  reference  not measured: it needs torch, which is not installed")
            continue
        theirs = once([PYTHON, "-c", SCRIPT, model, out, how, model])
        print(f"  reference  {theirs}")
        if theirs.status == 0:
            figure(f"{how}: minilm", "reference", theirs)
            budgets.check(f"minilm, {how}: CPU / reference", ours.cpu / theirs.cpu, 0.1, "x")
    shutil.rmtree(folder)


def main():
    budgets = Budgets()
    bench("12 MatMuls inline", 12, False, budgets)
    bench("48 MatMuls, external data", 48, True, budgets)
    bench_learned(budgets)
    budgets.close()


if __name__ == "__main__":
    main()
