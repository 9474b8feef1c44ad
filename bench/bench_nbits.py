"""bench_nbits.py - 4-bit weights of large models beside the reference and the floor of any quantizer.

The floor reads the input once and writes as much as the output has, to the disk. Budgets: at most twice the floor, under
300 MiB. hqq is timed too; beside the reference's where torch is there (budget: 20 times as fast), on a small model, for
that takes minutes.
"""
import importlib.util
import os
import pathlib
import shutil

import big_models
from measure import Budgets, once, rounds

BUILD = pathlib.Path(os.environ.get("ONQ_BUILD", "build"))
ONQ = os.environ.get("ONQ", str(BUILD / "onq"))
PYTHON = str(BUILD / "venv" / "bin" / "python")
ROUNDS = int(os.environ.get("ONQ_ROUNDS", "3"))
SCRIPT = ("import sys, onnx, logging; logging.disable(logging.CRITICAL); "
          "from onnxruntime.quantization import matmul_nbits_quantizer as M; "
          "c = M.HQQWeightOnlyQuantConfig(block_size=32) if sys.argv[3] == 'hqq' else "
          "M.DefaultWeightOnlyQuantConfig(block_size=32, is_symmetric=True); "
          "q = M.MatMulNBitsQuantizer(onnx.load(sys.argv[1]), algo_config=c); q.process(); "
          "q.model.save_model_to_file(sys.argv[2], True)")


def cached(path):
    for p in big_models.files(path):
        with open(p, "rb") as f:
            while f.read(1 << 24):
                pass


def bench(name, n, external, budgets):
    folder = BUILD / "bench" / "nbits"
    folder.mkdir(parents=True, exist_ok=True)
    model = big_models.make(folder / "model.onnx", n, external)
    out = folder / "out.onnx"
    written = n * big_models.SIDE ** 2 * 5 // 8

    def before():
        big_models.remove(out)
        (folder / "floor").unlink(missing_ok=True)
        os.sync()

    cached(model)
    floor = ["sh", "-c", f"cat {' '.join(big_models.files(model))} >/dev/null && "
             f"head -c {written} {big_models.files(model)[-1]} | dd of={folder}/floor bs=1M conv=fsync iflag=fullblock"]
    onq = [ONQ, "nbits", "-i", model, "-o", out, "--no_verify"]
    got = rounds({"floor": floor, "onq nbits": onq}, ROUNDS, before)
    before()
    got["onq nbits hqq"] = once(onq + ["--quant_method", "hqq"])
    before()
    got["onq bnb4"] = once([ONQ, "bnb4", "-i", model, "-o", out, "--no_verify"])
    before()
    got["reference"] = once([PYTHON, "-c", SCRIPT, model, out, "default"])
    print(f"{name}: {sum(os.path.getsize(p) for p in big_models.files(model)) / 1e9:.2f} GB")
    for k, c in got.items():
        print(f"  {k:14s} {c}")
    budgets.check("wall / floor", got["onq nbits"].wall / got["floor"].wall, 2.0, "x")
    budgets.check("peak memory", got["onq nbits"].peak, 300, "MiB")
    print(f"  CPU / reference {got['onq nbits'].cpu / got['reference'].cpu:.3f}, CPU / floor "
          f"{got['onq nbits'].cpu / got['floor'].cpu:.3f}")
    shutil.rmtree(folder)


def bench_hqq(budgets):
    if importlib.util.find_spec("torch") is None:
        print("hqq beside the reference's: skipped, there is no torch")
        return
    folder = BUILD / "bench" / "nbits"
    folder.mkdir(parents=True, exist_ok=True)
    model = big_models.make(folder / "model.onnx", 2, False)
    ours = once([ONQ, "nbits", "-i", model, "-o", folder / "out.onnx", "--no_verify", "--quant_method", "hqq"])
    theirs = once([PYTHON, "-c", SCRIPT, model, folder / "out.onnx", "hqq"])
    print(f"hqq, 2 MatMuls\n  onq nbits hqq  {ours}\n  reference hqq  {theirs}")
    budgets.check("hqq, wall / reference", ours.wall / theirs.wall, 0.05, "x")
    shutil.rmtree(folder)


def main():
    budgets = Budgets()
    bench("12 MatMuls inline", 12, False, budgets)
    bench("48 MatMuls, external data", 48, True, budgets)
    bench_hqq(budgets)
    budgets.close()


if __name__ == "__main__":
    main()
