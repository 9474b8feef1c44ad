"""test_report.py - the pages of `onq debug -o`, `onq inspect -o` and `onq auto --report` in headless Chromium: they load
without errors; sorting, filtering, clicking, ticking, folding, comparing and both themes work; names from a model stay text; nothing is
empty without a word why; a model of 5,000 nodes opens at once.

A script is added after the page's own and leaves what it saw in the document, which --dump-dom prints.
"""
import html
import json
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from common import ROOT
from quantcase import ONQ
from test_debug import need, onq, quantize, samples_of

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(BROWSER is None,
                                reason="no Chromium (Debian: chromium): the report is not looked at")

WATCH = """<script>window.seen = {errors: []};
addEventListener("error", e => seen.errors.push(String(e.message)));
addEventListener("unhandledrejection", e => seen.errors.push(String(e.reason)));
addEventListener("securitypolicyviolation", e => seen.errors.push("policy: " + e.violatedDirective));
for (const k of ["error", "warn"]) { const old = console[k]; console[k] = (...a) => { seen.errors.push(a.join(" ")); old(...a); }; }</script>"""
LEAVE = """<script>(async () => { try { %s } catch (e) { seen.errors.push("test: " + e.message + e.stack); }
const out = document.createElement("pre"); out.id = "seen"; out.textContent = JSON.stringify(seen); document.body.append(out); })();</script>"""
TOOLS = """
seen.ready = performance.now();
const canvasBox = $("graph").getBoundingClientRect(), clickGraph = it => { const canvasBox = $("graph").getBoundingClientRect(), e = {clientX: canvasBox.left + (it.x + 20) * G.view.s + G.view.x, clientY: canvasBox.top + (it.y + 10) * G.view.s + G.view.y, pointerId: 1}; $("graph").onpointerdown(e); $("graph").onpointerup(e); return e; };
$("graph").setPointerCapture = () => {};
const pixel = id => { const c = $(id), d = c.getContext("2d").getImageData(0, 0, c.width, c.height).data; let n = 0; for (let i = 3; i < d.length; i += 4) n += d[i] > 0; return n; };
"""
BOTH = """
seen.items = G.items.length; seen.inside = G.items.every(it => it.x * G.view.s + G.view.x >= 0 && (it.x + NW) * G.view.s + G.view.x <= canvasBox.width && it.y * G.view.s + G.view.y >= 0 && (it.y + NH) * G.view.s + G.view.y <= canvasBox.height);
const places = G.items.map(it => [it.x, it.y]); seen.apart = new Set(places.map(String)).size === places.length;
const button = text => [...document.querySelectorAll("#graph-tools button")].find(b => b.textContent === text);
seen.folds = !!button("Fold all"); if (seen.folds) { button("Fold all").click(); seen.folded = G.items.length; const block = G.items.find(it => it.block); clickGraph(block); seen.block = $("detail").textContent; [...document.querySelectorAll("#detail button")].find(b => b.textContent === "Unfold").click(); seen.unfolded = G.items.length;
  const t = performance.now(); button("Unfold all").click(); seen.all = G.items.length; seen.unfold_ms = performance.now() - t; button("Fold all").click(); seen.again = G.items.length; }
seen.drawn_graph = pixel("graph"); const e = clickGraph(G.items[0]), before = G.view.x; $("graph").onpointerdown(e); $("graph").onpointermove({...e, clientX: e.clientX + 50}); $("graph").onpointerup(e); seen.panned = G.view.x - before; button("Fit").click();
const look = () => getComputedStyle(document.body).backgroundColor; const light = look(); $("theme").click(); seen.themes = [light, look()];
seen.scripts = document.scripts.length; seen.overflow = document.documentElement.scrollWidth - innerWidth;
"""
REPORT = """
const names = () => [...document.querySelectorAll("#body tr")].map(tr => tr.querySelector(".name").title.split("\\n")[0].replace(/^(weight|activation) /, ""));
const column = key => document.querySelector(`#head button[data-key=${key}]`), cells = key => { const at = head().findIndex(h => h[0] === key); return [...document.querySelectorAll("#body tr")].map(tr => tr.cells[at].firstChild && tr.cells[at].lastChild.tagName === "SMALL" ? tr.cells[at].childNodes[1].textContent : tr.cells[at].textContent); };
seen.rows = rows.length; seen.first = names(); seen.at_fault = atFault === undefined ? null : rows[atFault].name; seen.chosen = document.querySelector("#detail h2").textContent;
seen.verdict = $("verdict").textContent; seen.steps = [...document.querySelectorAll("#steps li")].map(li => li.textContent); seen.cards = [...document.querySelectorAll("#cards > div")].map(c => c.textContent); seen.effect = $("effect").textContent; seen.about = $("about").textContent;
seen.hints = [...document.querySelectorAll("#head button")].every(b => b.title.length > 10);
column("name").click(); seen.by_name = names(); column("name").click(); seen.by_name_down = names();
column("own").click(); seen.by_own = cells("own"); column("rank").click();
$("filter").value = "WEIGHT"; $("filter").oninput(); seen.filtered = names(); seen.count = $("count").textContent;
$("filter").value = "no such tensor"; $("filter").oninput(); seen.none = names().length; seen.none_says = $("table-empty").hidden ? "" : $("table-empty").textContent;
$("filter").value = ""; $("kind").value = "1"; $("kind").onchange(); seen.activations = names();
document.querySelectorAll("#body tr")[1].querySelector(".name").click(); seen.clicked = [names()[1], document.querySelector("#detail h2").textContent];
seen.figures = document.querySelectorAll("#detail svg").length;
$("kind").value = "0"; $("kind").onchange(); document.querySelector("#body tr .name").click(); seen.weight_figures = document.querySelectorAll("#detail svg").length;
const plotted = points[0], box = $("plot").getBoundingClientRect();
$("plot").onclick({clientX: box.left + plotted[0], clientY: box.top + plotted[1]}); seen.plot_click = selected === plotted[2]; seen.drawn_plot = pixel("plot");
$("kind").value = ""; $("kind").onchange(); seen.basket_hidden = $("basket").hidden;
const boxes = [...document.querySelectorAll("#body input[data-node]")], ticked = [boxes[0], boxes.find(b => b.dataset.node !== boxes[0].dataset.node)]; ticked.forEach(b => b.click());
seen.ticked = ticked.map(b => b.dataset.node); seen.basket = document.querySelector("#basket code").textContent; seen.basket_text = $("basket-text").textContent;
$("basket-form").value = "list"; $("basket-form").onchange(); seen.list = document.querySelector("#basket code").textContent;
$("basket-form").value = "wide"; $("basket-form").onchange(); seen.wide = JSON.parse(document.querySelector("#basket code").textContent); $("basket-clear").click(); seen.cleared = $("basket").hidden;
{ const it = G.items.find(it => !it.block && it.nodes[0].rows.length); if (it) { clickGraph(it); seen.graph_click = selected >= 0 && it.nodes[0].rows.some(r => r.id === selected); } else seen.graph_click = true; }
"""


sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))  # causes_held


def visit(page, script, size="1400,1000", tools=TOOLS):
    text = page.read_text()
    head = text.index("<style>")
    end = text.rindex("</body>")
    test = page.with_suffix(".test.html")
    test.write_text(text[:head] + WATCH + text[head:end] + LEAVE % (tools + script) + text[end:])
    done = subprocess.run([BROWSER, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-quic",
                           "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync",
                           f"--window-size={size}", f"--user-data-dir={page.parent / 'profile'}", "--virtual-time-budget=5000",
                           "--dump-dom", test.as_uri()], capture_output=True, text=True, timeout=120)
    found = re.search(r'<pre id="seen">(.*?)</pre>', done.stdout, re.S)
    assert found, done.stderr[-2000:]
    return json.loads(html.unescape(found.group(1)))


def check_graph(seen):
    assert seen["errors"] == []
    assert seen["inside"] and seen["apart"] and abs(seen["panned"] - 50) < .01
    if seen["folds"]:
        assert seen["folded"] <= seen["items"] and seen["folded"] < seen["unfolded"] <= seen["all"]
        assert seen["again"] == seen["folded"] and "nodes" in seen["block"]
    assert seen["drawn_graph"] > 300 and len(set(seen["themes"])) == 2
    assert seen["overflow"] <= 0


def check(seen):
    check_graph(seen)
    assert seen["by_name"] == sorted(seen["by_name"]) and seen["by_name_down"][0] >= seen["by_name_down"][-1]
    own = [float(v) for v in seen["by_own"] if v not in ("", "exact")]
    assert own == sorted(own) and len(own) > 2
    assert seen["chosen"] == (seen["at_fault"] or seen["first"][0]) and seen["none"] == 0 and seen["filtered"] and seen["activations"]
    assert "No tensor matches" in seen["none_says"] and seen["hints"]
    assert seen["clicked"][0] == seen["clicked"][1] and seen["figures"] == 1 and seen["weight_figures"] >= 1
    assert seen["plot_click"] and seen["graph_click"] and seen["drawn_plot"] > 300
    assert seen["verdict"] and seen["steps"] and "dB" in seen["verdict"]
    assert seen["basket_hidden"] and seen["cleared"] and seen["wide"]
    assert seen["basket"].startswith("--nodes_to_exclude ") and seen["basket"].endswith(" --keep_excluded_float")
    assert all(v[0]["quant_type"] in ("QInt16", "QUInt16") for v in seen["wide"].values())


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    """The bundled model and two quantized ones."""
    folder = tmp_path_factory.mktemp("digits")
    path = need("digits_cnn")
    samples = samples_of(path, 2)
    return path, quantize(path, folder / "q.onnx", samples, per_channel=True), quantize(path, folder / "p.onnx", samples)


@pytest.mark.parametrize("size", ["1400,1000", "500,900"])
def test_page(size, digits, tmp_path):
    path, quantized, _ = digits
    page = tmp_path / "page.html"
    onq("--float_model", path, "--qdq_model", quantized, "--data", path.parent, "--limit", 2, "-o", page)
    text = page.read_text()
    assert page.stat().st_size < 130_000 and "INCLUDE" not in text
    assert not re.search(r'(src|href)="(?!data:)', text)
    seen = visit(page, REPORT + BOTH, size)
    check(seen)
    assert seen["basket"].split()[1:3] == seen["ticked"] and seen["list"].split("\n") == seen["ticked"]
    assert any("times smaller" in c for c in seen["cards"]) and any("one run" in c for c in seen["cards"])
    assert "Not measured" in seen["effect"] and "--sensitivity" in seen["effect"]
    for part in ("ONNX Runtime", "test_data_set_0", "--limit 2", "CPU"):
        assert part in seen["about"], part
    if size.startswith("1400"):
        assert seen["rows"] == len(json.loads(onq("--float_model", path, "--qdq_model", quantized, "--data", path.parent,
                                                  "--limit", 2, "--json").stdout)["ranking"])


def test_search_in_page(digits, tmp_path):
    """What --bisect found and what every unit does to the outputs stands beside what it costs, with a ready command."""
    path, quantized, _ = digits
    page = tmp_path / "page.html"
    done = json.loads(onq("--float_model", path, "--qdq_model", quantized, "--data", path.parent, "--limit", 2, "--bisect",
                          "--target_sqnr", 36, "-o", page, "--json").stdout)
    seen = visit(page, REPORT + BOTH + """
seen.units = [...document.querySelectorAll("#bars tr")].map(tr => [tr.cells[1].title, tr.cells[2].textContent, tr.cells[4].textContent, tr.cells[1].textContent]);
document.querySelector("#bars input").click(); seen.unit_ticked = document.querySelector("#basket code").textContent;""")
    check(seen)
    units = done["sensitivity"]
    assert [u[0] for u in seen["units"]] == [u.get("name", u.get("node")) for u in units][:len(seen["units"])]
    assert any("in the set that was found" in u[3] for u in seen["units"])
    assert "Made and measured" in seen["steps"][0] and "--nodes_to_exclude" in seen["steps"][0] and "onq static" in seen["steps"][0]
    assert seen["units"][0][0] in seen["unit_ticked"]


def test_samples_in_page(digits, tmp_path):
    """Every sample by what its outputs keep, worst first, under its name; the figures are those of plain runs."""
    path, quantized, _ = digits
    page = tmp_path / "page.html"
    done = json.loads(onq("--float_model", path, "--qdq_model", quantized, "--data", path.parent, "--limit", 5, "-o", page,
                          "--json").stdout)
    plain = onnxruntime.SessionOptions()
    plain.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    sessions = [onnxruntime.InferenceSession(str(m), plain, providers=["CPUExecutionProvider"]) for m in (path, quantized)]
    wanted = {}
    for k, feed in enumerate(samples_of(path, 5)):
        x, y = (s.run(None, feed)[0] for s in sessions)
        wanted[f"test_data_set_{k}"] = (20 * np.log10(np.linalg.norm(x) / np.linalg.norm(x - y)), np.mean(x.argmax(1) == y.argmax(1)))
    found = done["worst_samples"]
    assert [s["name"] for s in found] == sorted(wanted, key=lambda n: wanted[n][0])
    for s in found:
        assert s["name"] == f"test_data_set_{s['number']}"
        assert (s["sqnr"], s["top1_agreement"]) == pytest.approx(wanted[s["name"]], rel=1e-4)
    seen = visit(page, """
seen.samples = [...document.querySelectorAll("#sample-body tr")].map(tr => [...tr.cells].map(c => c.textContent)); seen.text = $("sample-text").textContent;
seen.bars = document.querySelectorAll("#sample-plot rect").length; seen.tips = [...document.querySelectorAll("#samples th")].every(t => t.title.length > 10);""")
    assert seen["errors"] == [] and seen["tips"] and "5 samples" in seen["text"] and 1 <= seen["bars"] <= 5
    assert [(row[0], row[1]) for row in seen["samples"]] == [(s["name"], f"{s['sqnr']:.1f} dB") for s in found]
    text = onq("--float_model", path, "--qdq_model", quantized, "--data", path.parent, "--limit", 5).stdout
    assert f"worst samples: {found[0]['name']} {found[0]['sqnr']:.1f} dB, {found[1]['name']} " in text
    hot = [float(v) for v in re.findall(r"([0-9.]+) % of the pairs", text)]  # layers that can saturate: those that do most
    assert len(hot) > 1 and hot == sorted(hot, reverse=True)


def test_compare(digits, tmp_path):
    """Another report, chosen in the page, is set beside this one; what is no report is refused in words. The clock of the
    page runs ahead while a file is read: only work takes real time."""
    path, *both = digits
    pages = [tmp_path / "one.html", tmp_path / "two.html"]
    for q, page in zip(both, pages):
        onq("--float_model", path, "--qdq_model", q, "--data", path.parent, "--limit", 2, "-o", page)
    text = json.dumps(pages[1].read_text()).replace("<", "\\u003c")
    seen = visit(pages[0], f"const theirs = {text}; let busy = 1;" + """
const give = async (content, name) => { const d = new DataTransfer(); d.items.add(new File([content], name)); $("file").files = d.files; $("file").onchange(); for (let i = 0; i < 200 && ($("compare").hidden || !$("compare-title").textContent.includes(name)); i++) { await new Promise(r => setTimeout(r, 10)); for (let k = 0; k < 2e7; k++) busy = (busy * 31 + k) | 0; } };
await give("nothing", "no.html"); seen.refused = $("compare-title").textContent + $("compare-text").textContent;
await give(theirs, "two.html"); seen.title = $("compare-title").textContent; seen.table = [...document.querySelectorAll("#compare-body tr")].map(tr => [...tr.cells].map(c => c.textContent));
seen.column = !!document.querySelector("#head button[data-key=change]"); seen.changes = rows.filter(r => r.change !== null).length;
$("compare-close").click(); seen.closed = $("compare").hidden && !document.querySelector("#head button[data-key=change]");""")
    assert seen["errors"] == []
    assert "cannot be compared" in seen["refused"] and seen["title"] == "Compared with two.html"
    found = {row[0]: row for row in seen["table"]}
    assert "dB" in found["output logits"][1] and "q.onnx" in found["quantized model"][1] and "p.onnx" in found["quantized model"][2]
    assert seen["column"] and seen["changes"] > 5 and seen["closed"]


def test_nothing_is_empty_without_a_word(digits, tmp_path):
    """Weights only; and a model that matches nothing that is quantized."""
    path, quantized, _ = digits
    page = tmp_path / "weights.html"
    onq("--float_model", path, "--qdq_model", quantized, "-o", page)
    seen = visit(page, """seen.verdict = $("verdict").textContent + $("meaning").textContent; seen.effect = $("effect").textContent; $("measure").value = "cross"; $("measure").onchange(); seen.plot = $("plot-empty").hidden ? "" : $("plot-empty").textContent; seen.about = $("about").textContent;""")
    assert seen["errors"] == [] and "Weights only" in seen["verdict"] and "--data" in seen["effect"]
    assert "needs samples" in seen["plot"] and "not measured: no samples" in seen["about"]
    page = tmp_path / "none.html"
    onq("--float_model", path, "--qdq_model", path, "-o", page)
    seen = visit(page, """seen.verdict = $("verdict").textContent; seen.steps = $("steps").textContent; seen.table = $("table-empty").textContent; seen.plot = $("plot-empty").textContent; seen.detail = $("detail").textContent;""")
    assert seen["errors"] == [] and "Nothing in this model is quantized" in seen["verdict"]
    assert all(seen[k] for k in ("steps", "table", "plot", "detail"))


@pytest.mark.parametrize("how", ["dynamic", "nbits", "qoperator"])
def test_other_ways(how, tmp_path):
    """Nodes have the names of the float model, which options take, and no search is proposed that cannot be done."""
    path = tmp_path / "m.onnx"
    hostile = hostile_model(path)
    out = tmp_path / "q.onnx"
    more = {"dynamic": ["dynamic"], "nbits": ["nbits", "--block_size", "16"],
            "qoperator": ["static", "--quant_format", "qoperator", "--data", "random:2:1"]}[how]
    subprocess.run([ONQ, more[0], "-q", "-i", path, "-o", out, *more[1:]], check=True, capture_output=True)
    page = tmp_path / "page.html"
    onq("--float_model", path, "--qdq_model", out, "--data", "random:2:1", "-o", page)
    seen = visit(page, """seen.nodes = rows.filter(r => !r.kind).map(r => r.raw); seen.effect = $("effect").textContent; seen.next = $("next").textContent;""")
    assert hostile and seen["errors"] == [] and set(seen["nodes"]) <= {f"n{b}" for b in BAD} and seen["nodes"]
    assert ("--sensitivity and --bisect work on" in seen["effect"]) == (how != "qoperator")
    assert how == "qoperator" or "--sensitivity" not in seen["next"]


def test_outputs_that_are_not_finite_are_not_called_equal(tmp_path):
    import test_causes
    given, made, data = test_causes.probabilities_that_vanish(tmp_path)
    page = tmp_path / "page.html"
    onq("--float_model", given, "--qdq_model", made, "--data", data, "-o", page)
    seen = visit(page, """seen.verdict = $("verdict").textContent; seen.cards = $("cards").textContent;""")
    assert seen["errors"] == [] and "the output SQNR is NaN or infinity" in seen["verdict"] and "equal" not in seen["verdict"]
    assert "exact" not in seen["cards"]


@pytest.mark.parametrize("size", ["1280,900", "390,900"])
def test_the_cause_has_a_picture(size, tmp_path):
    """The first screen: verdict, cause, the outputs before and after, the tensor that shows it, and the command."""
    import causes_held as held
    c = held.SECOND["Log (conv1d)"](str(tmp_path))
    page = tmp_path / "page.html"
    onq("--float_model", c.given, "--qdq_model", c.made, "--data", c.data, "-o", page)
    seen = visit(page, """const first = document.querySelector("#steps li"), box = first.querySelector(".evidence"); seen.text = first.textContent; seen.pictures = box.querySelectorAll("svg").length;
seen.top = first.getBoundingClientRect().top; seen.overflow = document.documentElement.scrollWidth - innerWidth; box.querySelector("button").click(); seen.chosen = document.querySelector("#detail h2").textContent;""", size)
    assert seen["errors"] == [] and seen["text"].startswith("Cause: Log ") and "onq static" in seen["text"]
    assert seen["pictures"] == 2 and "remedy" in seen["text"] and seen["chosen"] in seen["text"]
    assert seen["top"] < 700 and seen["overflow"] <= 0


def test_long_names_are_wrapped_and_the_cause_is_chosen(tmp_path):
    """At 390 pixels the sentence of the cause stays inside of the page, and its tensor is the one that is shown."""
    import causes_held as held
    given = held.build(str(tmp_path), held.conv1d, 119, trouble=held.t_log, strength=4)[0]
    model = onnx.load(given)
    for n in model.graph.node:
        n.name = f"/backbone/encoder/layer.0/attention/output/{n.name}"
    onnx.save(model, given)
    data = held.save_samples(str(tmp_path), "samples", held.SHAPES[held.conv1d], held.normal, 8, 1)
    made, page = held.static(str(tmp_path), given, data, ["--per_channel"]), tmp_path / "page.html"
    onq("--float_model", given, "--qdq_model", made, "--data", data, "-o", page)
    seen = visit(page, """document.documentElement.style.width = "390px"; await new Promise(done => setTimeout(done, 100));
const first = document.querySelector("#steps li"); seen.text = first.textContent; seen.cut = first.scrollWidth - first.clientWidth;
seen.shows = first.querySelector(".evidence button").textContent; seen.chosen = document.querySelector("#detail h2").textContent;""", "500,1200", tools="")
    assert seen["errors"] == [] and "/backbone/encoder/" in seen["text"] and seen["cut"] <= 0
    assert seen["shows"] == seen["chosen"]


def test_long_shapes_are_short(tmp_path):
    path = tmp_path / "m.onnx"
    rows = "a_very_long_name_of_a_dimension"
    half = helper.make_node("Conv", ["x", "w"], ["y"], "c", pads=[1, 1, 1, 1], strides=[2, 2])
    graph = helper.make_graph([half, helper.make_node("Relu", ["y"], ["z"], "r")], "g",
                              [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 2, rows, rows])],
                              [helper.make_tensor_value_info("z", TensorProto.FLOAT, None)],
                              [numpy_helper.from_array(np.ones((3, 2, 3, 3), np.float32), "w")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    ready, page = tmp_path / "p.onnx", tmp_path / "m.html"
    subprocess.run([ONQ, "preprocess", "-q", "-i", path, "-o", ready], check=True, capture_output=True)
    subprocess.run([ONQ, "inspect", ready, "-o", page], check=True, capture_output=True)
    seen = visit(page, """seen.shapes = G.values.map(v => G.short.text(v.shape || "")); seen.legend = $("legend").textContent; seen.detail = $("detail").textContent;""")
    assert "1, 3, \u2308a/2\u2309, \u2308a/2\u2309" in seen["shapes"] and f"a = {rows}" in seen["legend"]
    assert "x FLOAT[1, 2, a, a]" in re.sub(r"\s+", " ", seen["detail"])


BAD = ["</script><script>seen.errors.push('run')</script>", "<img src=x onerror=seen.errors.push(1)>", "<!--<script>",
       "a\u2028b\u202e\x01\"'`${1}"]


def hostile_model(path):
    rng = np.random.default_rng(3)
    nodes, inits, x = [], [], "x"
    for i, name in enumerate(BAD):
        w = f"w{name}"
        inits.append(numpy_helper.from_array(rng.normal(size=(8, 8)).astype(np.float32), w))
        nodes.append(helper.make_node("MatMul", [x, w], [name], name=f"n{name}"))
        x = name
    model = helper.make_model(helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 8])],
        [helper.make_tensor_value_info(x, TensorProto.FLOAT, [2, 8])], inits),
        opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.save(model, path)
    return [{"x": rng.normal(size=(2, 8)).astype(np.float32)} for _ in range(2)]


def shown(name):
    return re.sub("[\x00-\x1f\u2028-\u202e]", lambda m: f"\\u{ord(m.group(0)):04x}", name)  # as what they are


def test_hostile_names(tmp_path):
    """Names that would be markup, scripts or the end of the data are shown as they are."""
    path = tmp_path / "m.onnx"
    quantized = quantize(path, tmp_path / "q.onnx", hostile_model(path))
    page = tmp_path / "page.html"
    onq("--float_model", path, "--qdq_model", quantized, "--data", "random:2:1", "-o", page)
    seen = visit(page, REPORT + BOTH)
    check(seen)
    assert seen["scripts"] == 4  # the data, the page's, and two of this test
    assert {shown(b) for b in BAD} <= set(seen["first"])
    page = tmp_path / "model.html"
    subprocess.run([ONQ, "inspect", path, "-o", page], check=True, capture_output=True)
    seen = visit(page, BOTH + 'seen.names = [...document.querySelectorAll("#body td.name")].map(td => td.title);')
    check_graph(seen)
    assert seen["scripts"] == 4 and {shown(f"n{b}") for b in BAD} == set(seen["names"])


def large_models(folder, n):
    """A chain of n nodes, and its QDQ twin written by hand."""
    rng = np.random.default_rng(5)
    info = lambda s: helper.make_tensor_value_info(s, TensorProto.FLOAT, [1, 16])  # noqa: E731
    nodes, inits, q_nodes, q_inits, x, qx = [], [], [], [], "x", "x"
    q_inits += [numpy_helper.from_array(np.float32(8 / 255), "as"), numpy_helper.from_array(np.uint8(128), "az"),
                numpy_helper.from_array(np.int8(0), "wz")]
    for i in range(n):
        y = f"layer.{i // 10}/block/t{i}"
        if i % 2:
            nodes.append(helper.make_node("Tanh", [x], [y], name=f"tanh{i}"))
            q_nodes.append(helper.make_node("Tanh", [qx], [y], name=f"tanh{i}"))
        else:
            w = rng.normal(size=(16,)).astype(np.float32)
            s = np.float32(np.abs(w).max() / 127)
            inits.append(numpy_helper.from_array(w, f"w{i}"))
            q_inits += [numpy_helper.from_array(np.round(w / s).astype(np.int8), f"w{i}_quantized"),
                        numpy_helper.from_array(s, f"w{i}_scale")]
            nodes.append(helper.make_node("Add", [x, f"w{i}"], [y], name=f"add{i}"))
            q_nodes += [helper.make_node("DequantizeLinear", [f"w{i}_quantized", f"w{i}_scale", "wz"], [f"w{i}_dq"]),
                        helper.make_node("Add", [qx, f"w{i}_dq"], [y], name=f"add{i}")]
        q_nodes += [helper.make_node("QuantizeLinear", [y, "as", "az"], [y + "_QuantizeLinear_Output"]),
                    helper.make_node("DequantizeLinear", [y + "_QuantizeLinear_Output", "as", "az"],
                                     [y + "_DequantizeLinear_Output"])]
        x, qx = y, y + "_DequantizeLinear_Output"
    out = []
    for name, body, tensors, last in (("f", nodes, inits, x), ("q", q_nodes, q_inits, qx)):
        body.append(helper.make_node("Identity", [last], ["out"]))
        model = helper.make_model(helper.make_graph(body, "g", [info("x")], [info("out")], tensors),
                                  opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
        onnx.save(model, folder / f"{name}.onnx")
        out.append(folder / f"{name}.onnx")
    return out


def test_large(tmp_path):
    path, quantized = large_models(tmp_path, 5000)
    page = tmp_path / "page.html"
    begin = time.monotonic()
    onq("--float_model", path, "--qdq_model", quantized, "--data", "random:2:1", "--no_kernel_check", "-o", page)
    print(f"made in {time.monotonic() - begin:.1f} s, {page.stat().st_size / 1e6:.2f} MB")
    assert page.stat().st_size < 20e6
    seen = visit(page, REPORT + BOTH)
    print(f"opened in {seen['ready']:.0f} ms, all nodes laid out and drawn in {seen['unfold_ms']:.0f} ms")
    check(seen)
    assert seen["rows"] == 7500 and seen["items"] < 120 and seen["all"] == 5001


@pytest.mark.parametrize("size", ["1400,1000", "500,900"])
def test_inspect_page(size, digits, tmp_path):
    """The graph of a quantized model: pairs are on the edges, the list says what every node computes in."""
    _, quantized, _ = digits
    page = tmp_path / "model.html"
    subprocess.run([ONQ, "inspect", quantized, "-o", page], check=True, capture_output=True)
    assert page.stat().st_size < 100_000 and not re.search(r'(src|href)="(?!data:)', page.read_text())
    seen = visit(page, BOTH + """
seen.ops = G.items.map(it => it.title); seen.cards = $("cards").textContent; seen.rows = document.querySelectorAll("#body tr").length; $("which").value = "all"; $("which").onchange(); seen.all_rows = document.querySelectorAll("#body tr").length;
const conv = [...document.querySelectorAll("#body tr")].find(tr => tr.cells[1].textContent === "Conv"); conv.click(); seen.conv = $("detail").textContent; seen.computes = conv.cells[2].textContent;
document.querySelector("#head button[data-key=macs]").click(); seen.most = document.querySelector("#body tr").cells[1].textContent; $("filter").value = "zzz"; $("filter").oninput(); seen.none = $("empty").textContent; $("shade").value = "work"; $("shade").onchange(); seen.legend = $("legend").textContent;
seen.types = [...new Set(graphEdges(G.nodes, G.values).map(e => e[3]).filter(Boolean))];""", size)
    check_graph(seen)
    count = len(onnx.load(quantized).graph.node)
    assert seen["all_rows"] == count and 5 < seen["rows"] < count
    assert not {"QuantizeLinear", "DequantizeLinear"} & set(seen["ops"]) and "Conv" in seen["ops"] and seen["types"] == ["UINT8"]
    assert "INT8 per channel" in seen["conv"] or "FLOAT[" in seen["conv"]
    assert seen["computes"] == "integer (QDQ)" and seen["most"] == "Conv" and "No node matches" in seen["none"]
    assert "multiply-accumulates" in seen["cards"] and "in integers" in seen["cards"] and "most" in seen["legend"]


def test_auto_page_with_a_lower_target(digits, tmp_path):
    """The page says what a lower target would give, as the answer does; nothing where there is no such line."""
    path, *_ = digits
    page = tmp_path / "auto.html"
    done = subprocess.run([ONQ, "auto", "-i", path, "-o", tmp_path / "best.onnx", "--data", path.parent, "--report", page], check=True,
                          capture_output=True, text=True)
    text = page.read_text()
    found = json.loads(re.search(r'id="data">(.*?)</script>', text, re.S)[1])
    if found["target_reached"] and found["chosen"]["options"]["command"] in ("float", "preprocess"):  # why it stays float is true
        faster = [c for c in found["candidates"] if c["options"]["command"] in ("static", "dynamic") and c.get("latency_ms")
                  and c["latency_ms"] < 0.97 * found["chosen"]["latency_ms"]]
        assert ("no quantized model that reaches the target saves 4 % of the time" if faster else "kept float") in done.stdout
    look = 'seen.hidden = $("cheaper").hidden; seen.said = $("cheaper").textContent; seen.float = F.latency_ms;'
    seen = visit(page, look, tools="")
    assert seen["errors"] == [] and seen["hidden"] == ('"with_lower_target"' not in text) and (seen["said"] == "") == seen["hidden"]
    lower = {"label": "op_set <pays>", "target": {"agreement": 96}, "latency_ms": seen["float"] / 2}
    page.write_text(re.sub(r'"target_reached":', lambda m: f'"with_lower_target":{json.dumps(lower)},{m[0]}'.replace("<", "\\u003c"), text, count=1))
    seen = visit(page, look, tools="")
    assert seen["errors"] == [] and not seen["hidden"]
    assert seen["said"] == ("A lower target is much faster: op_set <pays> takes 0.50 of float's time, and agreement is at least 96 % "
                            "(--target agreement=96).")


def test_auto_page_knows_every_metric():
    """A metric without words of its own would stand on the page as its name, and its figure without a unit."""
    said = subprocess.run([ONQ, "auto", "-i", "a", "-o", "b", "--target", "x=1"], capture_output=True, text=True, check=False).stderr
    metrics = re.findall(r"\w+", re.search(r"METRIC=VALUE with (.*) or", said)[1])
    page = (ROOT / "src" / "tune" / "auto_page.html").read_text()
    assert len(metrics) > 10
    for metric in metrics:
        assert f"{metric}: v =>" in page, metric


@pytest.mark.parametrize("size", ["1400,1000", "500,900"])
def test_auto_page(size, digits, tmp_path):
    """Verdict, chart and table of a search; a point or row shows its commands, titles sort, nothing overflows."""
    path, *_ = digits
    page = tmp_path / "auto.html"
    done = subprocess.run([ONQ, "auto", "-i", path, "-o", tmp_path / "best.onnx", "--data", path.parent, "--time_limit", "30",
                           "--report", page, "--json"], check=True, capture_output=True, text=True)
    found = json.loads(done.stdout)
    text = page.read_text()
    assert page.stat().st_size < 60_000 and "INCLUDE" not in text and not re.search(r'(src|href)="(?!data:)', text)
    seen = visit(page, """
const rowsNow = () => [...document.querySelectorAll("#body tr[data-i]")], commands = () => $("commands").querySelector("code").textContent;
seen.verdict = $("verdict").textContent; seen.meaning = $("meaning").textContent; seen.cards = $("cards").textContent; seen.rows = rowsNow().map(tr => tr.cells[0].firstChild.textContent);
seen.points = document.querySelectorAll("#chart circle").length; seen.wide = [...document.querySelectorAll("#chart circle")].every(c => +c.getAttribute("cx") > 0 && +c.getAttribute("cx") < $("chart").clientWidth);
seen.chosen = [$("picked").textContent, commands()]; rowsNow()[2].click(); seen.picked = [$("picked").textContent, commands()];
document.querySelector("#head button[data-key=sqnr]").click(); seen.sorted = rowsNow().map(tr => tr.cells[3].textContent); seen.hints = [...document.querySelectorAll("#head button")].every(b => b.title.length > 10);
const look = () => getComputedStyle(document.body).backgroundColor, light = look(); $("theme").click(); seen.themes = [light, look()]; seen.overflow = document.documentElement.scrollWidth - innerWidth;""", size, tools="")
    made = [c for c in found["candidates"] if "why_not" not in c]
    assert seen["errors"] == [] and seen["overflow"] <= 0 and len(set(seen["themes"])) == 2 and seen["hints"]
    assert seen["rows"] == ["float", *(c["label"] for c in made)] and seen["verdict"] and "\u2192" in seen["cards"]
    assert "the same class as float in 99 %" in seen["meaning"] and "{" not in seen["meaning"]
    assert seen["points"] == sum(c["options"]["command"] != "float" for c in made) and seen["wide"]
    assert seen["chosen"] == [f"{found['chosen']['label']} (chosen)", "\n".join(found["chosen"]["commands"])]
    assert seen["picked"][1] == "\n".join(made[1]["commands"])
    numbers = [float(v) for v in seen["sorted"] if v != "same"]
    assert numbers == sorted(numbers) and seen["sorted"][-1] == "same"


def test_output(tmp_path):
    """An existing report survives a failure, and a folder that is not there is refused."""
    path = need("digits_cnn")
    page = tmp_path / "page.html"
    page.write_text("old")
    onq("--float_model", path, "--qdq_model", tmp_path / "none.onnx", "-o", page, status=1)
    assert page.read_text() == "old" and [p.name for p in tmp_path.iterdir()] == ["page.html"]
    done = subprocess.run([ONQ, "debug", "--float_model", path, "--qdq_model", path, "-o", tmp_path / "no" / "p.html"],
                          capture_output=True, text=True)
    assert done.returncode == 1 and len(done.stderr.splitlines()) <= 2


NARROW = """
document.documentElement.style.width = "390px"; document.documentElement.style.overflow = "hidden"; dispatchEvent(new Event("resize"));
await new Promise(done => setTimeout(done, 300));
seen.cut = [...document.querySelectorAll(".scroll")].filter(e => e.clientWidth > 0 && e.scrollWidth > e.clientWidth + 2).map(e => e.textContent.slice(0, 60));
seen.shown = document.querySelectorAll(".scroll tr").length;"""


@pytest.mark.parametrize("kind", ["debug", "inspect", "auto"])
def test_no_column_is_cut_on_a_telephone(tmp_path, kind):
    """At 390 pixels every column of every table is inside of its box. (Chromium's windows are wider: the page is made so.)"""
    digits = Path(__file__).parents[2] / "examples" / "digits_cnn"
    model, made, page = digits / "model.onnx", tmp_path / "q.onnx", tmp_path / "page.html"
    jobs = {"debug": [["static", "-i", model, "-o", made, "--data", digits],
                      ["debug", "--float_model", model, "--qdq_model", made, "--data", digits, "--sensitivity", "-o", page]],
            "inspect": [["inspect", model, "-o", page]],
            "auto": [["auto", "-i", model, "-o", made, "--data", digits, "--time_limit", "4", "--report", page]]}
    for words in jobs[kind]:
        done = subprocess.run([ONQ, *words, "-q"], capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
    seen = visit(page, NARROW, "500,1200", tools="")
    assert seen["errors"] == [] and seen["cut"] == [] and seen["shown"] > 0
