"""test_report.py - the page of `onq debug -o` in headless Chromium: it loads without errors, and sorting, filtering,
clicking and both themes work; names from a model stay text; a model of 5,000 nodes opens at once.

A script is added after the page's own and leaves what it saw in the document, which --dump-dom prints.
"""
import html
import json
import re
import shutil
import subprocess
import time

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from quantcase import ONQ
from test_debug import need, onq, quantize, samples_of

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(BROWSER is None,
                                reason="no Chromium (Debian: chromium): the report is not looked at")

WATCH = """<script>window.seen = {errors: []};
addEventListener("error", e => seen.errors.push(String(e.message)));
addEventListener("securitypolicyviolation", e => seen.errors.push("policy: " + e.violatedDirective));
for (const k of ["error", "warn"]) { const old = console[k]; console[k] = (...a) => { seen.errors.push(a.join(" ")); old(...a); }; }</script>"""
LEAVE = """<script>try { %s } catch (e) { seen.errors.push("test: " + e.message); }
const out = document.createElement("pre"); out.id = "seen"; out.textContent = JSON.stringify(seen); document.body.append(out);</script>"""
LOOK = """
seen.ready = performance.now();
const names = () => [...document.querySelectorAll("#body tr")].map(tr => tr.cells[1].textContent);
const column = key => document.querySelector(`#head button[data-key=${key}]`);
seen.rows = rows.length; seen.first = names();
seen.chosen = document.querySelector("#detail h2").textContent;
column("name").click(); seen.by_name = names(); column("name").click(); seen.by_name_down = names();
column("own").click(); seen.by_own = [...document.querySelectorAll("#body tr")].map(tr => tr.cells[2].textContent);
column("rank").click();
$("filter").value = "WEIGHT"; $("filter").oninput(); seen.filtered = names(); seen.count = $("count").textContent;
$("filter").value = "no such tensor"; $("filter").oninput(); seen.none = names().length;
$("filter").value = ""; $("kind").value = "1"; $("kind").onchange(); seen.activations = names();
document.querySelectorAll("#body tr")[1].click(); seen.clicked = [names()[1], document.querySelector("#detail h2").textContent];
seen.figures = document.querySelectorAll("#detail svg").length;
$("kind").value = "0"; $("kind").onchange(); document.querySelector("#body tr").click(); seen.weight_figures = document.querySelectorAll("#detail svg").length;
const plotted = points[0], box = $("plot").getBoundingClientRect();
$("plot").onclick({clientX: box.left + plotted[0], clientY: box.top + plotted[1]}); seen.plot_click = selected === plotted[2];
$("fit").click(); const node = show.find(n => n.item >= 0), gb = $("graph").getBoundingClientRect();
const at = {clientX: gb.left + (node.x + 20) * view.s + view.x, clientY: gb.top + (node.y + 10) * view.s + view.y, pointerId: 1};
$("graph").setPointerCapture = () => {}; $("graph").onpointerdown(at); $("graph").onpointerup(at); seen.graph_click = selected === node.item;
const before = view.x; $("graph").onpointerdown(at); $("graph").onpointermove({...at, clientX: at.clientX + 50}); $("graph").onpointerup(at); seen.panned = view.x - before;
const pixel = (id) => { const c = $(id), d = c.getContext("2d").getImageData(0, 0, c.width, c.height).data; let n = 0; for (let i = 3; i < d.length; i += 4) n += d[i] > 0; return n; };
seen.drawn = [pixel("plot"), pixel("graph")];
const look = () => getComputedStyle(document.body).backgroundColor; const light = look(); $("theme").click(); seen.themes = [light, look()];
seen.scripts = document.scripts.length; seen.overflow = document.documentElement.scrollWidth - innerWidth;
"""


def visit(page, size="1400,1000"):
    text = page.read_text()
    head = text.index("<style>")
    end = text.rindex("</body>")
    test = page.with_suffix(".test.html")
    test.write_text(text[:head] + WATCH + text[head:end] + LEAVE % LOOK + text[end:])
    done = subprocess.run([BROWSER, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                           f"--window-size={size}", f"--user-data-dir={page.parent / 'profile'}", "--dump-dom",
                           test.as_uri()], capture_output=True, text=True, timeout=120)
    found = re.search(r'<pre id="seen">(.*?)</pre>', done.stdout, re.S)
    assert found, done.stderr[-2000:]
    return json.loads(html.unescape(found.group(1)))


def check(seen):
    assert seen["errors"] == []
    assert seen["by_name"] == sorted(seen["by_name"]) and seen["by_name_down"][0] >= seen["by_name_down"][-1]
    own = [float(v) for v in seen["by_own"] if v not in ("", "exact")]
    assert own == sorted(own)
    assert seen["chosen"] == seen["first"][0] and seen["none"] == 0 and seen["filtered"] and seen["activations"]
    assert seen["clicked"][0] == seen["clicked"][1] and seen["figures"] == 1 and seen["weight_figures"] >= 1
    assert seen["plot_click"] and seen["graph_click"] and seen["panned"] == 50
    assert min(seen["drawn"]) > 300 and len(set(seen["themes"])) == 2
    assert seen["overflow"] <= 0


@pytest.mark.parametrize("size", ["1400,1000", "500,900"])
def test_page(size, tmp_path):
    path = need("digits_cnn")
    quantized = quantize(path, tmp_path / "q.onnx", samples_of(path, 2), per_channel=True)
    page = tmp_path / "page.html"
    onq("--float_model", path, "--qdq_model", quantized, "--data", path.parent, "--limit", 2, "-o", page)
    assert "http://www.w3.org/2000/svg" in page.read_text() and page.stat().st_size < 100_000
    assert not re.search(r'(src|href)="(?!data:)', page.read_text())
    seen = visit(page, size)
    check(seen)
    assert seen["rows"] == len(json.loads(onq("--float_model", path, "--qdq_model", quantized, "--data", path.parent,
                                              "--limit", 2, "--json").stdout)["ranking"])


def test_hostile_names(tmp_path):
    """Names that would be markup, scripts or the end of the data are shown as they are."""
    bad = ["</script><script>seen.errors.push('run')</script>", "<img src=x onerror=seen.errors.push(1)>", "<!--<script>",
           "a\u2028b\u202e\x01\"'`${1}"]
    rng = np.random.default_rng(3)
    nodes, inits, x = [], [], "x"
    for i, name in enumerate(bad):
        w = f"w{name}"
        inits.append(numpy_helper.from_array(rng.normal(size=(8, 8)).astype(np.float32), w))
        nodes.append(helper.make_node("MatMul", [x, w], [name], name=f"n{name}"))
        x = name
    model = helper.make_model(helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 8])],
        [helper.make_tensor_value_info(x, TensorProto.FLOAT, [2, 8])], inits),
        opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    path = tmp_path / "m.onnx"
    onnx.save(model, path)
    quantized = quantize(path, tmp_path / "q.onnx", [{"x": rng.normal(size=(2, 8)).astype(np.float32)} for _ in range(2)])
    page = tmp_path / "page.html"
    onq("--float_model", path, "--qdq_model", quantized, "--data", "random:2:1", "-o", page)
    seen = visit(page)
    check(seen)
    assert seen["scripts"] == 4  # the data, the page's, and two of this test
    hidden = "[\x00-\x1f\u2028-\u202e]"  # shown as what they are
    assert {re.sub(hidden, lambda m: f"\\u{ord(m.group(0)):04x}", b) for b in bad} <= set(seen["first"])


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
    seen = visit(page)
    print(f"opened in {seen['ready']:.0f} ms")
    check(seen)
    assert seen["rows"] == 7500
    assert seen["ready"] < 2000


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
