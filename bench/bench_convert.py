"""bench_convert.py - a weight-only file of 3.2 GB in other forms, beside `cp`.

MatMulNBits of 4 bits becomes DequantizeLinear in blocks, and these become MatMulNBits again: 3.2 GB are read and written each
time. For float, 0.5 GB become 3.2. The floor is `cp` of a file of the size that is written, and a sync of that file, for onq
also waits until its result is on the disk. Budgets: twice the floor, under 100 MiB.

The first round is not counted: memory that nobody used before comes slowly on a virtual machine, and it would fall to whoever
writes first. Of the others the best counts, for each of the two; what they wrote before is gone when they begin.
"""
import os
import shutil

import numpy as np
from onnx import TensorProto, helper

import big_models
from measure import BUILD, ONQ, Budgets, best, figure, rounds

ROUNDS = int(os.environ.get("ONQ_ROUNDS", "5"))
SIDE, BLOCK = big_models.SIDE, 32


def make(path, n):
    """n MatMulNBits; the bytes of all weights are the same random ones, each with a place of its own in the file."""
    rng = np.random.default_rng(0)
    parts = {"w": rng.integers(0, 256, (SIDE, SIDE // BLOCK, BLOCK // 2), dtype=np.uint8),
             "s": rng.random((SIDE, SIDE // BLOCK), dtype=np.float32) * np.float32(0.01)}
    nodes, inits = [], []
    with open(f"{path}.data", "wb") as f:
        for i in range(n):
            for k, v in parts.items():
                t = TensorProto(name=f"{k}{i}", data_type=helper.np_dtype_to_tensor_dtype(v.dtype), dims=v.shape,
                                data_location=TensorProto.EXTERNAL)
                for key, value in (("location", path.name + ".data"), ("offset", f.tell()), ("length", v.nbytes)):
                    t.external_data.add(key=key, value=str(value))
                f.write(v.tobytes())
                inits.append(t)
            nodes.append(helper.make_node("MatMulNBits", [f"x{i}", f"w{i}", f"s{i}"], [f"x{i + 1}"], f"mm{i}", domain="com.microsoft",
                                          K=SIDE, N=SIDE, bits=4, block_size=BLOCK))
    graph = helper.make_graph(nodes, "big", *([helper.make_tensor_value_info(k, TensorProto.FLOAT, ["n", SIDE])] for k in ("x0", f"x{n}")), inits)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)], ir_version=10)
    path.write_bytes(model.SerializeToString())


def bench(what, to, source, folder, budgets):
    """One edge, in turn with a copy of what it writes; the result stays as `to`.onnx."""
    out, copy = folder / f"{to}.onnx", folder / "copy"
    onq = [ONQ, "convert", "--to", to, "-i", source, "-o", out, "--use_external_data_format", "--no_verify"]
    jobs = {"onq convert": onq, "cp": ["sh", "-c", f"cp {out}.data {copy} && sync {copy}"]}

    def before():
        if copy.exists():  # the next is onq: both are gone
            for path in (copy, out, folder / f"{out.name}.data"):
                path.unlink()
        big_models.cache(out if out.exists() else source)
        os.sync()

    rounds(jobs, 1, before)
    got = rounds(jobs, ROUNDS, before, best)
    size = os.path.getsize(f"{out}.data") / 1e9
    print(f"{what}: {size:.1f} GB written")
    for k, c in got.items():
        print(f"  {k:14s} {c}")
    name = f"convert, {what}, {size:.1f} GB"
    figure(name, "onq", got["onq convert"])
    budgets.check(f"{name}: peak memory", got["onq convert"].peak, 100, "MiB")
    budgets.check(f"{name}: wall / cp", got["onq convert"].wall / got["cp"].wall, 2.0, "x")
    print(f"  CPU / cp's: {got['onq convert'].cpu / got['cp'].cpu:.2f}")
    copy.unlink(missing_ok=True)
    return out


def main():
    budgets = Budgets()
    folder = BUILD / "bench" / "convert"
    folder.mkdir(parents=True, exist_ok=True)
    source = folder / "model.onnx"
    make(source, 305)
    pairs = bench("nbits to qdq", "qdq", source, folder, budgets)
    bench("qdq to nbits", "nbits", pairs, folder, budgets)
    make(source, 48)
    bench("nbits to float", "float", source, folder, budgets)
    shutil.rmtree(folder)
    budgets.close()


if __name__ == "__main__":
    main()
