/* report.js — the page of `onq debug -o`, over the data of report.c. */
const COLUMNS = ["kind", "name", "op", "type", "own", "qdq", "cross", "cosine", "max", "mean", "saturated", "lo", "hi", "qlo", "qhi", "reason", "excess", "rank", "position", "hist", "channels", "hot", "node", "effect", "value", "after", "felt", "perChannel"];
const [FAULT, HARMLESS, INHERITED, NODE, MASK] = [1, 2, 3, 4, 5]; /* reason_class of report.c */
const EXACT = 999, A = D.about || {options: [], samples: []}, S = D.search || null;
/* How it was made decides what can be tried: searches need pairs, dynamic ranges are measured nowhere. */
const way = (A.again || "onq static").split(" ")[1], searchable = way === "static";
const readRows = data => data.rows.map((r, i) => { const o = {id: i}; COLUMNS.forEach((c, k) => o[c] = r[k] === undefined ? null : r[k]); o.rawName = o.name; o.name = clean(o.name); o.op = clean(o.op); o.raw = o.node; o.node = clean(o.node); return o; });
const rows = readRows(D), why = r => D.reasons[r.reason], harmless = r => why(r)[2] === HARMLESS;
const STOPS = [[5, 178, 40, 40], [18, 226, 140, 50], [30, 212, 205, 160], [45, 52, 128, 160]];
function colour(v) {
  if (v === null || v === undefined) return null;
  let a = STOPS[0], b = STOPS[STOPS.length - 1];
  if (v <= a[0]) b = a; else if (v >= b[0]) a = b;
  else for (let i = 1; i < STOPS.length; i++) if (v <= STOPS[i][0]) { a = STOPS[i - 1]; b = STOPS[i]; break; }
  const t = a === b ? 0 : (v - a[0]) / (b[0] - a[0]);
  return `rgb(${[1, 2, 3].map(k => Math.round(a[k] + t * (b[k] - a[k]))).join()})`;
}
document.querySelectorAll(".ramp").forEach(e => e.style.background = `linear-gradient(90deg, ${STOPS.map(s => `rgb(${s.slice(1).join()}) ${(s[0] - 5) / 40 * 100}%`).join()})`);
let selected = -1, other = null;

/* ---- noise: what the outputs would keep without some of it ----
   Noise relative to the values passes on through a network about as it is, and that of several sources adds up. So the
   share of a tensor in the sum of all is a guess at its share of the outputs' noise; where --sensitivity measured the
   effect of its unit, that is divided among the tensors of the unit. */
/* States go back into the model and are no answers. */
const outputs = D.outputs.filter(o => o[1] !== null && !o[4]), /* As the runtime optimises the model, where it was run so. */
  judged = o => o[2] === null ? o[1] : o[2], now = outputs.length ? Math.min(...outputs.map(judged)) : null;
const power = v => v === null ? 1 : Math.min(1, 10 ** (-v / 10));
const unitSum = new Map(); rows.forEach(r => { if (!harmless(r) && r.effect !== null) unitSum.set(r.effect, (unitSum.get(r.effect) || 0) + power(r.felt)); });
rows.forEach(r => { r.noise = harmless(r) ? 0 : r.effect !== null ? power(r.effect) * power(r.felt) / unitSum.get(r.effect) : unitSum.size ? 0 : power(r.felt); });
const allNoise = rows.reduce((s, r) => s + r.noise, 0);
/* `less` is the noise that goes away; null when there is nothing to say. */
function expect(less) { if (way === "dynamic" || now === null || now >= 60 || !allNoise || !(less > 0)) return null; const left = Math.max(1 - less / allNoise, .01); return Math.min(now - 10 * Math.log10(left), 50); }
const removed = (r, db) => db === null ? 0 : r.noise * (1 - Math.min(1, power(db) / Math.max(power(r.felt), 1e-12)));

/* ---- verdict ---- */
const TONES = ["bad", "fair", "good", "good", "good"];
document.title = clean(`onq debug: ${D.quantized_model.split("/").pop()}`);
{ const p = $("models"); p.append(make("b", clean(D.quantized_model)), " against ", make("b", clean(D.float_model))); if (A.date) p.append(` \u00b7 ${A.date}`); }
function verdict() {
  const h = $("hero"), v = $("verdict"), m = $("meaning"), top = outputs.find(o => o[3] !== null), worst = outputs.find(o => judged(o) === now);
  if (!rows.length && !outputs.length) { v.textContent = "Nothing in this model is quantized"; m.textContent = "It has no QuantizeLinear, DequantizeLinear or integer operators that onq knows, so there is nothing to compare. Was it made by onq static or onq dynamic, and is it the file that was meant?"; return; }
  if (now === null) {
    const w = rows.filter(r => !r.kind && r.own !== null && !harmless(r)), low = w.length ? Math.min(...w.map(r => r.own)) : null;
    v.textContent = low === null ? `${plural(rows.length, "weight")} compared, all of them exact or harmless` : `The worst of ${plural(rows.length, "weight")} keeps ${dB(low)}`; m.textContent = "Weights only: with --data SAMPLES the activations and the outputs are measured too, and there is a verdict."; return;
  }
  h.style.setProperty("--tone", `var(--${TONES[D.grade]})`);
  v.append(make("em", D.grade_text[0].toUpperCase() + D.grade_text.slice(1)), now >= 250 ? ": the outputs are equal" : `: the output SQNR is ${dB(now)}${D.kl !== null ? `, the KL divergence ${D.kl.toFixed(4)}` : ""}`, ...(top ? [`, the same top-1 in ${percent(top[3])}`] : []));
  m.textContent = `${D.grade_meaning[0].toUpperCase() + D.grade_meaning.slice(1)}. Measured over ${plural(D.samples, "sample")}${outputs.length > 1 && worst ? `, of the worst of ${outputs.length} outputs, ${middle(clean(worst[0]), 50)}` : ""}. 6 dB is about one bit${D.bits === 8 ? "; 20 to 40 dB are usual for 8 bits" : ""}.`;
}
function cards() {
  const box = $("cards");
  const states = D.outputs.filter(o => o[4] && o[1] !== null); if (states.length) card(box, dB(Math.min(...states.map(o => o[1]))), `the worst of ${plural(states.length, "state")}, what each run adds to it`);
  for (const [name, plain, fast, top] of D.outputs.filter(o => !o[4]).slice(0, 3)) {
    const used = fast === null ? plain : fast;
    if (D.outputs.length > 1) card(box, dB(used), `output ${middle(clean(name), 40)}${top !== null ? `, same top-1 ${percent(top)}` : ""}`, used !== null && used < 10 ? "bad" : "");
    if (fast !== null && (D.kernel_loss || D.outputs.length === 1)) card(box, dB(plain), `${D.outputs.length > 1 ? "the same" : "outputs"} without the runtime's optimisations`, D.kernel_loss ? "bad" : "");
  }
  if (A.float_size) card(box, `${size(A.float_size)} \u2192 ${size(A.quantized_size)}`, A.float_size > A.quantized_size ? `size: ${(A.float_size / A.quantized_size).toFixed(1)} times smaller` : "size: not smaller");
  if (A.float_ms) { const f = A.float_ms / A.quantized_ms; card(box, `${ms(A.float_ms)} \u2192 ${ms(A.quantized_ms)}`, `one run on this machine: ${f >= 1.02 ? `${f.toFixed(2)} times faster` : f > .98 ? "as fast" : `${(1 / f).toFixed(2)} times slower`}`, f < .98 ? "bad" : ""); }
  const nw = rows.filter(r => !r.kind).length, faults = rows.filter(r => [FAULT, MASK].includes(why(r)[2]) && (r.own === null || r.own < 30)).length;
  card(box, `${nw} + ${rows.length - nw}`, "weights + activations compared");
  /* Where causes were looked for, they say what is at fault. */
  if (faults && !(A.causes && A.healthy)) card(box, faults, faults > 1 ? "tensors whose parameters do not fit" : "tensor whose parameters do not fit", "bad");
  if (D.unmatched.length) card(box, D.unmatched.length, "could not be matched (below)");
}

/* ---- what to do next ---- */
const again = more => { const base = A.again || "onq static", has = base.split(" "); const flags = more.split(" ").filter(f => f !== "--per_channel" || !has.includes(f)).join(" "); return `${base} ${flags}`.trim(); };
function step(text, line, gain) {
  const li = make("li"), d = make("div"), p = prose("p", text);
  if (gain !== undefined) { const better = gain !== null && gain - now >= .5; p.append(" ", make("span", gain === null ? "What it gains is not known before it is tried." : better ? `Expected: about ${dB(gain)} (now ${dB(now)}).` : "Expected: hardly a difference.", "gain" + (better ? "" : " none"))); }
  d.append(p); if (line) d.append(command(line)); li.append(d); $("steps").append(li); return li;
}
/* What shows a cause: the outputs before and after the remedy, and the tensor at fault, its values or its channels. */
function evidence(before, after, row, apart) {
  const box = make("div", undefined, "evidence"), r = rows[row], f = make("figure"), W = 360, s = svg("svg", {viewBox: `0 0 ${W} 44`, role: "img", "aria-label": `Output SQNR: ${dB(before)} before, ${dB(after)} after`});
  [["now", before, 0], ["remedy", after, 23]].forEach(([name, v, y]) => { const w = Math.max(2, Math.min(60, Math.max(0, v ?? 0)) / 60 * (W - 130));
    s.append(svg("text", {x: 0, y: y + 14, fill: "var(--soft)", "font-size": 12}, name), svg("rect", {x: 52, y: y + 3, width: w, height: 14, rx: 3, fill: colour(v) || "var(--line)"}), svg("text", {x: 58 + w, y: y + 14, fill: "var(--ink)", "font-size": 12}, dB(v))); });
  f.append(make("figcaption", `Output SQNR, made and measured on ${apart ? "samples that did not calibrate" : plural(A.cause_samples, "sample")}`), s); box.append(f);
  if (r && (r.hist || r.channels)) {
    const g = r.channels && !r.kind && r.perChannel !== null ? channels(r) : r.hist ? histogram(r) : channels(r), b = make("button", middle(r.name, 40), "link"), cap = make("p", undefined, "soft");
    b.type = "button"; b.onclick = () => { select(row); $("detail").scrollIntoView({block: "nearest"}); };
    cap.append(`${r.kind ? "activation" : "weight"} `, b, r.qlo !== null ? `: values ${num(r.lo)} to ${num(r.hi)}, range ${num(r.qlo)} to ${num(r.qhi)}` : ""); g.append(cap); box.append(g);
  }
  return box;
}
/* The options of this run that say what the samples are. */
const sampleOptions = () => A.options.filter(([k]) => k === "data" || k === "dim" || k.startsWith("image_")).map(([k, v]) => `--${k} ${word(v)}`).join(" ");
const nodesOf = list => [...new Set(list.map(r => r.raw).filter(Boolean))];
const exclude = names => `--nodes_to_exclude ${names.map(item).join(" ")}${searchable ? " --keep_excluded_float" : ""}`;
/* Weights of few bits: twice as many are 6 dB a bit better. */
const bitsNow = +(/--bits (\d+)/.exec(A.again || "") || [0, 0])[1], moreBits = way === "nbits" && bitsNow < 8 ? A.again.replace(`--bits ${bitsNow}`, `--bits ${2 * bitsNow}`) : "";
function advise() {
  const total = G.nodes.reduce((s, n) => s + n.macs, 0);
  const all = [];
  /* Causes were found by making the model again: each builds on those before it, so the last command has them all. It
     stands with the first, where it is seen. A set of nodes that was asked for comes before them. */
  const causes = () => (A.causes || []).forEach(([text, , before, after, row, apart], i, all) => { const more = all.length - 1, li = step(`${i ? "And" : "Cause"}: ${text}${!i && more ? ` One command against ${more > 1 ? `this and the ${more} causes below` : "this and the cause below"}:` : ""}`, i ? "" : all[more][1]); li.classList.add("cause"); li.append(evidence(before, after, row, apart)); });
  if (A.half !== undefined) step(A.half);
  if (!S || !S.bisected) causes();
  if (A.none !== undefined) step(A.none);
  /* What a search made goes first where a target was asked for; the worst unit alone is one way among others. */
  if (S && S.made !== undefined && (S.bisected || S.made - now >= 1)) all.push({order: S.bisected ? Infinity : S.made, text: `Made and measured: with ${S.bisected ? "the nodes that were found" : `the worst ${S.grouped ? "group" : "unit"}`} left float the output SQNR is ${dB(S.made)} over ${plural(S.made_samples, "sample")}${S.macs === undefined ? "" : `, and ${percent(S.macs)} of the multiply-accumulates stay in integers`}${S.bisected && !S.reached ? "; the target is not reached" : ""}.`, line: again(S.options)});
  if (D.kernel_loss) step("The runtime's kernels saturate on this CPU: larger scales for the weights concerned avoid it.", again(searchable && !A.again.includes("qoperator") ? "--saturation_safe" : "--reduce_range"));
  const groups = new Map();
  rows.filter(r => why(r)[1] && ![HARMLESS, INHERITED].includes(why(r)[2]) && (r.own === null || r.own < 30)).forEach(r => groups.set(r.reason, [...(groups.get(r.reason) || []), r]));
  const steps = A.causes ? [] : [...groups].map(([k, list]) => {
    const [text, advice, cls, option] = D.reasons[k], w = list.filter(r => !r.kind).length, a = list.length - w, names = nodesOf(list);
    /* A scale for each channel changes every weight, not only those that need it most. */
    const rest = option === "--per_channel" ? rows.filter(r => r.perChannel !== null) : list, after = r => option === "--per_channel" ? r.perChannel : moreBits && cls === NODE ? r.felt + 6 * bitsNow : r.after, goes = cls >= NODE && !moreBits;
    const known = rest.filter(r => after(r) !== null || goes), gain = !known.length ? null : expect(known.reduce((s, r) => s + (goes ? r.noise : removed(r, after(r))), 0));
    const cost = cls === NODE && total ? G.nodes.filter(n => names.includes(n.raw)).reduce((s, n) => s + n.macs, 0) / total : 0;
    const who = [w ? plural(w, "weight") : "", a ? plural(a, "activation") : ""].filter(Boolean).join(" and ");
    const line = cls === NODE && moreBits ? moreBits : option && (way === "static" || (way === "dynamic" && option === "--per_channel")) ? again(option) : cls === NODE && names.length <= 40 ? again(exclude(names)) : "";
    return {gain, rank: Math.min(...list.map(r => r.rank)), text: `${who}: ${text}. ${advice[0].toUpperCase() + advice.slice(1)}${cost ? ` (${names.length === 1 ? "it has" : "they have"} ${percent(cost)} of the work)` : ""}.`, line};
  });
  steps.sort((a, b) => (b.gain ?? -99) - (a.gain ?? -99) || a.rank - b.rank).slice(0, 5).forEach(s => all.push({order: s.gain ?? -99, ...s}));
  all.sort((a, b) => b.order === a.order ? 0 : b.order - a.order).forEach(s => step(s.text, s.line, now === null || !("gain" in s) ? undefined : s.gain));
  if (S && S.bisected) causes();
  if (!S && searchable && now !== null && D.grade < 3 && A.command) step("Measure which nodes the outputs lose most by; the report then has them beside what they cost.", `${A.command} --sensitivity`);
  else if (S && !S.bisected && D.grade < 3 && A.command) step("Find the least set of nodes to leave float for a target.", `${A.command.replace(" --sensitivity", "")} --bisect --target_sqnr ${Math.max(20, Math.ceil(now) + 5)} --exclude_list float.txt`);
  if (now !== null && D.grade < 2 && A.data) step("Or let onq try the ways to quantize and take the fastest that is accurate enough.", `onq auto -i ${word(D.float_model)} -o better.onnx ${sampleOptions()}`);
  if (A.float_ms && A.quantized_ms > 1.02 * A.float_ms && A.data) step("It is slower than float here. See what makes it slow:", `onq bench ${word(D.float_model)} ${word(D.quantized_model)} ${sampleOptions()}`);
  if (now === null && A.command) step("Measure activations and outputs too.", `${A.command} --data SAMPLES`);
  if (!$("steps").children.length) { step(rows.length ? "Nothing: no tensor loses what matters." : "Check that the models are the ones that were meant."); }
}

/* ---- effect beside cost ---- */
function effects() {
  if (!S) { $("effect-box").hidden = true; $("effect-text").replaceChildren(); const p = make("p", !searchable ? "Not measured: --sensitivity and --bisect work on models with QuantizeLinear and DequantizeLinear around their nodes (QDQ)." : now === null ? "Not measured: this needs samples (--data) and --sensitivity." : "Not measured. --sensitivity quantizes each unit alone and measures the outputs: what a tensor loses by itself is only a guess at that.", "empty"); $("effect").append(p); if (A.command && searchable && (now === null || D.grade > 2)) $("effect").append(command(`${A.command}${now === null ? " --data SAMPLES" : ""} --sensitivity`)); return; }
  $("unit-title").textContent = S.grouped ? "Group" : "Unit";
  $("effect-text").textContent = `each ${S.grouped ? "group" : "unit"} quantized alone, ${plural(S.samples, "sample")}; all of them together: ${dB(S.whole ?? null)}. Much loss and little work is cheap to leave float.`;
  const most = Math.max(.001, ...S.units.map(u => u[3]));
  const body = document.createDocumentFragment();
  for (const [name, op, v, macs, out, nodes] of S.units.slice(0, 300)) {
    const tr = make("tr"), meter = (part, fill) => { const td = make("td", undefined, "meter wide"), t = make("div", undefined, "track"), b = make("div", undefined, "bar"); b.style.width = `${100 * part}%`; b.style.background = fill; t.append(b); td.append(t); return td; };
    const label = make("td", undefined, "name"), td = make("td", undefined, "tick"), box = make("input"); box.type = "checkbox"; box.setAttribute("aria-label", "Leave float"); box.of = nodes; box.onchange = () => tick(nodes, box.checked); td.append(box);
    label.append(middle(clean(name), 64)); label.title = clean(name); label.append(make("small", [op && op !== name ? clean(op) : "", out ? (S.bisected ? "in the set that was found" : "the worst") : ""].filter(Boolean).join(", ")));
    tr.append(td, label, make("td", v === null ? "not measured" : dB(v), "n"), meter(v === null ? 0 : 1 - Math.min(Math.max(v, 0), 60) / 60, colour(v) || "none"), make("td", percent(macs), "n"), meter(macs / most, "var(--float)")); body.append(tr);
  }
  $("bars").append(body);
  if (!S.units.length) { $("effect-box").hidden = true; $("effect").append(make("p", "No unit could be tried: only nodes of the main graph with QuantizeLinear and DequantizeLinear around them are.", "empty")); }
}

/* ---- models with states: figures by their place in the sequence ---- */
function sequences() {
  const a = D.along; $("along").hidden = !a; if (!a) return;
  const kl = a.figure === "kl", ways = [["forced", "var(--float)"], ["free", "var(--quantized)"]].filter(w => a[w[0]]), n = a.free.length, all = ways.flatMap(w => a[w[0]]).filter(v => v !== null), w = 960, h = 190;
  $("along-text").textContent = `${clean(a.output)}: ${kl ? "divergence from float (KL), low is good" : "signal to noise in dB, high is good"}, by ${a.place}`; if (!all.length) return;
  let low = Math.min(...all, kl ? 0 : Infinity), high = Math.max(...all); if (low === high) { low -= 1; high += 1; }
  const s = svg("svg", {viewBox: `0 0 ${w} ${h + 20}`, role: "img", "aria-label": "Figures by place in the sequence"}), x = i => n > 1 ? 46 + i * (w - 50) / (n - 1) : 46, y = v => 6 + (h - 8) * (1 - (v - low) / (high - low)), show = v => kl ? num(v) : dB(v);
  for (const v of [low, high]) s.append(svg("line", {x1: 46, x2: w, y1: y(v), y2: y(v), stroke: "var(--line)"}), svg("text", {x: 40, y: y(v) + (v === high ? 10 : 0), fill: "var(--soft)", "font-size": 12, "text-anchor": "end"}, show(v)));
  for (const [name, colour] of ways) { let path = ""; a[name].forEach((v, i) => { if (v !== null) path += `${path && a[name][i - 1] !== null ? "L" : "M"}${x(i).toFixed(1)} ${y(v).toFixed(1)}`; }); const p = svg("path", {d: path, fill: "none", stroke: colour, "stroke-width": 2}); p.append(svg("title", {}, name === "free" ? "with its own states" : "with float's states")); s.append(p); }
  s.append(svg("text", {x: 46, y: h + 16, fill: "var(--soft)", "font-size": 12}, `${a.place} 1`), svg("text", {x: w, y: h + 16, fill: "var(--soft)", "font-size": 12, "text-anchor": "end"}, `${n}`)); $("along-plot").append(s);
}

/* ---- samples: how they are spread, and the worst by name ---- */
function samples() {
  const worst = D.worst_samples || [], spread = D.spread || [], n = spread.reduce((s, b) => s + b[1], 0); $("samples").hidden = !D.samples;
  if (!n) { $("samples").append(make("p", "Not measured: the outputs of the two models cannot be compared.", "empty")); $("sample-box").hidden = true; return; }
  let seen = 0; const half = spread.find(b => (seen += b[1]) * 2 >= n)[0], low = worst[0][2] ?? -Infinity;
  $("sample-text").textContent = n === 1 ? "one sample was measured" : `${plural(n, "sample")}; half of them keep ${half + 1 > 60 ? "60 dB or more" : `less than ${half + 1} dB`}`;
  if (n > 3 && half - low >= 5) $("sample-box").before(prose("p", `${clean(worst[0][0])} keeps much less than the others. Its values may lie outside the ranges that calibration saw: look at it, and calibrate with samples like it.`, "why-box"));
  const body = document.createDocumentFragment();
  for (const [name, number, v, top] of worst) { const tr = make("tr"), td = make("td", middle(clean(name), 48), "name"); td.title = `sample ${number + 1}: ${clean(name)}`; const d = make("span", "", "dot"); d.style.background = colour(v) || "var(--bad)"; const k = make("td", undefined, "n"); k.append(d, v === null ? "NaN" : dB(v)); tr.append(td, k, make("td", top === null ? "" : top === 1 ? "same" : top === 0 ? "changed" : `${percent(top)} same`, "n")); if (top !== null && top < 1) tr.lastChild.classList.add("worse"); body.append(tr); }
  $("sample-body").append(body); if (worst.every(w => w[3] === null)) $("sample-top").hidden = true;
  if (n < 2) { $("sample-plot").remove(); return; }
  const from = spread[0][0], to = spread[spread.length - 1][0], bars = to - from + 1, most = Math.max(...spread.map(b => b[1])), w = 460, h = 150, s = svg("svg", {viewBox: `0 0 ${w} ${h + 18}`, role: "img", "aria-label": "Samples by dB"}), each = Math.min(w / bars, 46);
  for (const [at, count] of spread) { const b = svg("rect", {x: (at - from) * each + 1, y: h - h * count / most, width: Math.max(each - 2, 1), height: h * count / most, rx: 2, fill: colour(at + .5)}); b.append(svg("title", {}, `${at} dB: ${plural(count, "sample")}`)); s.append(b); }
  s.append(svg("line", {x1: 0, x2: bars * each, y1: h + .5, y2: h + .5, stroke: "var(--line)"}), svg("text", {x: 1, y: h + 15, fill: "var(--soft)", "font-size": 12}, `${from} dB`)); if (bars > 2) s.append(svg("text", {x: bars * each, y: h + 15, fill: "var(--soft)", "font-size": 12, "text-anchor": "end"}, `${to + 1} dB`));
  $("sample-plot").append(s);
}

/* ---- ticked nodes become options ---- */
const basket = new Set();
function tick(nodes, on) { nodes.forEach(n => on ? basket.add(n) : basket.delete(n)); showBasket(); }
function overrides(names) { const o = {}; rows.forEach(r => { if (!names.includes(r.raw) || r.type === "INT32" || (r.kind && !r.type)) return; o[r.kind ? r.rawName : r.rawName] = [{quant_type: r.kind ? "QUInt16" : "QInt16"}]; }); return JSON.stringify(o, null, 1); }
function showBasket() {
  const names = [...basket], total = G.nodes.reduce((s, n) => s + n.macs, 0), form = $("basket-form").value;
  document.querySelectorAll("input[data-node]").forEach(b => b.checked = basket.has(b.dataset.node)); document.querySelectorAll("#bars input").forEach(b => b.checked = b.of.every(n => basket.has(n)));
  $("basket").hidden = !names.length; if (!names.length) return;
  const mine = rows.filter(r => basket.has(r.raw)), gain = expect(mine.reduce((s, r) => s + r.noise, 0)), cost = total ? G.nodes.filter(n => basket.has(n.raw)).reduce((s, n) => s + n.macs, 0) / total : 0;
  $("basket-title").textContent = `${plural(names.length, "node")} ticked`;
  $("basket-text").textContent = [total ? `${percent(cost)} of the work` : "", gain !== null ? `left float, about ${dB(gain)} expected (now ${dB(now)})` : ""].filter(Boolean).join("; ");
  const text = form === "exclude" ? exclude(names) : form === "list" ? names.join("\n") : overrides(names);
  $("basket-out").replaceChildren(command(text));
  if (form !== "exclude") $("basket-out").append(make("small", form === "list" ? `save as float.txt, then: --nodes_to_exclude @float.txt${way === "static" ? " --keep_excluded_float" : ""}` : "save as overrides.json, then: --tensor_quant_overrides overrides.json (16 bits are slower than float on most CPUs)"));
}
$("basket-form").onchange = showBasket; $("basket-clear").onclick = () => { basket.clear(); showBasket(); };

/* ---- table ---- */
const measured = rows.some(r => r.effect !== null), sorting = {key: "rank", up: true}; const first = innerWidth <= 960 ? 15 : 200, room = innerWidth <= 640 ? 20 : innerWidth < 1500 ? 33 : 46; let shown = [], limit = first;
const head = () => [["tick", "", 0, 0, ""], ["rank", "#", 1, 1, "Order: by the effect on the outputs where it was measured, else by what is lost here. 1 is the worst."], ["name", "Tensor and node", 0, 0, "The weight or activation, and below it the node that uses or makes it: the name that --nodes_to_exclude takes. Tick it to build the options."],
  ["own", "Here dB", 1, 0, "What this quantizer alone makes of the float model's values. Good: 40 and more. Much is lost below 20. 6 dB is about one bit."],
  ...(measured ? [["effect", "Effect dB", 1, 0, "Signal to noise of the outputs when the unit of this node is all that is quantized. Good: 40 and more; the lowest decide the result."]] : []),
  ...(other ? [["change", "Change dB", 1, 0, "Here, in this report, less what it is in the other one. Above 0 is better."]] : []),
  ["macs", "Work", 1, 1, "Share of the model's multiply-accumulates that the node has: what leaving it float costs. Little is good."],
  ["reason", "Likely reason", 0, 1, "Choose the row for what to try"],
  ["cross", "Cross dB", 1, 1, "Against the float model: what came in from the layers before counts too. Good: 20 and more near the outputs."], ["qdq", "QDQ dB", 1, 2, "Before and after quantization, inside the quantized model. Good: 30 and more."], ["saturated", "Clipped %", 1, 2, "Values outside of the range. Good: 0, or a few in a thousand with entropy and percentile."], ["op", "Operator", 0, 2, "The operator that makes or uses it"], ["type", "Type", 0, 2, "Type of the integers"]];
const value = (r, key) => key === "reason" ? why(r)[0] : r[key] ?? null;
function draw() {
  const words = $("filter").value.toLowerCase().split(/\s+/).filter(Boolean), kind = $("kind").value;
  shown = rows.filter(r => (kind === "" || r.kind === +kind) && words.every(w => r.text.includes(w)));
  shown.sort(order(r => value(r, sorting.key), sorting.up, (a, b) => a.rank - b.rank));
  tableHead($("head"), head(), sorting, draw);
  const body = document.createDocumentFragment(); for (const r of shown.slice(0, limit)) body.append(line(r)); $("body").replaceChildren(body);
  $("more").hidden = shown.length <= limit; $("count").textContent = `${shown.length} of ${rows.length}`;
  $("table-empty").hidden = shown.length > 0; $("table-empty").textContent = rows.length ? "No tensor matches the filter." : D.unmatched.length ? "No quantized tensor has a counterpart in the float model: see at the end why." : "The quantized model has no quantized tensors.";
}
function line(r) {
  const tr = make("tr", undefined, "pickable" + (r.id === selected ? " on" : "")); tr.dataset.id = r.id; tr.tabIndex = 0;
  for (const [key, , n, wide] of head()) {
    const td = make("td", undefined, (n ? "n" : "") + (wide ? WIDE[wide] : ""));
    if (key === "tick") { td.className = "tick"; if (r.raw) { const b = make("input"); b.type = "checkbox"; b.dataset.node = r.raw; b.checked = basket.has(r.raw); b.title = "Leave this node float, or give it 16 bits"; b.setAttribute("aria-label", `Tick ${r.node}`); td.append(b); } }
    else if (key === "name") { td.className = "name"; td.title = `${r.kind ? "activation" : "weight"} ${r.name}\nnode ${r.node}`; const t = make("div", undefined, "tensor"); t.append(make("span", r.kind ? "\u25cf " : "\u25a0 ", "soft"), middle(r.name, room)); td.append(t); if (r.node && r.node !== r.name) td.append(make("small", middle(r.node, room + 4))); td.append(make("small", why(r)[0], "narrow")); }
    else if (key === "own") { const d = make("span", "", "dot"); d.style.background = harmless(r) ? "var(--line)" : colour(r.felt) || "var(--line)"; td.append(d, db(r.own)); if (r.felt !== null && r.own - r.felt >= 3 && !harmless(r)) { const s = make("small", `channels ${db(r.felt)}`, "wide"); s.title = "The mean of its channels, which ranks: small channels beside large ones lose most, and their outputs weigh as much as the others'"; td.append(make("br"), s); } }
    else if (key === "change") { td.textContent = r.change === null ? "" : (r.change > 0 ? "+" : "") + r.change.toFixed(1); td.classList.toggle("better", r.change > .5); td.classList.toggle("worse", r.change < -.5); }
    else if (["effect", "qdq", "cross"].includes(key)) td.textContent = db(r[key]);
    else if (key === "macs") td.textContent = r.macs ? percent(r.macs) : "";
    else if (key === "saturated") td.textContent = r.saturated ? (100 * r.saturated).toPrecision(3) : "";
    else if (key === "reason") { td.className = "why wide"; td.textContent = why(r)[0]; }
    else td.textContent = r[key];
    tr.append(td);
  }
  return tr;
}
$("filter").oninput = $("kind").onchange = () => { limit = first; draw(); };
$("more").onclick = () => { limit += innerWidth <= 960 ? 50 : 1000; draw(); };
const pickRow = e => { if (e.target.matches("input")) { tick([e.target.dataset.node], e.target.checked); return; } const tr = e.target.closest("tr"); if (tr) select(+tr.dataset.id); };
$("body").onclick = pickRow; $("body").onkeydown = e => { if (e.key === "Enter") pickRow(e); };

/* ---- one tensor ---- */
const bytes = s => Uint8Array.from(atob(s), c => c.charCodeAt(0));
function histogram(r) {
  const [lo, hi, data] = r.hist, v = bytes(data), n = v.length / 2, f = make("figure"), cap = make("figcaption", undefined, "key");
  const W = 360, H = 130, s = svg("svg", {viewBox: `0 0 ${W} ${H + 18}`, role: "img", "aria-label": "Histogram of float and quantized values"});
  const key = (c, t) => { const s = make("span"), i = make("i"); i.style.background = `var(${c})`; s.append(i, t); cap.append(" ", s); };
  cap.append("Values (log counts)"); key("--float", "float"); key("--quantized", "quantized"); if (r.qlo !== null) key("--range", "range");
  const bw = W / n;
  for (let i = 0; i < n; i++) {
    const a = v[i] / 255 * H, b = v[n + i] / 255 * H;
    if (a) s.append(svg("rect", {x: i * bw, y: H - a, width: bw * .92, height: a, fill: "var(--float)", opacity: .55}));
    if (b) s.append(svg("rect", {x: i * bw + bw * .25, y: H - b, width: bw * .42, height: b, fill: "var(--quantized)", opacity: .8}));
  }
  const at = x => (x - lo) / (hi - lo) * W;
  if (r.qlo !== null) for (const x of [r.qlo, r.qhi]) if (at(x) >= -1 && at(x) <= W + 1) s.append(svg("line", {x1: Math.min(W - 1, Math.max(1, at(x))), x2: Math.min(W - 1, Math.max(1, at(x))), y1: 0, y2: H, stroke: "var(--range)", "stroke-width": 2, "stroke-dasharray": "5 3"}));
  s.append(svg("text", {x: 0, y: H + 13, fill: "var(--soft)", "font-size": 11}, num(lo)), svg("text", {x: W, y: H + 13, fill: "var(--soft)", "font-size": 11, "text-anchor": "end"}, num(hi)));
  f.append(cap, s); return f;
}
function channels(r) {
  const [total, worst, data] = r.channels, v = bytes(data), n = v.length / 2, f = make("figure"), W = 360, H = 110;
  const s = svg("svg", {viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": "Range of each channel"}), bw = W / n, mark = Math.floor(worst * n / total);
  for (let i = 0; i < n; i++) { const a = v[2 * i] / 255 * H, b = v[2 * i + 1] / 255 * H;
    s.append(svg("rect", {x: i * bw, y: H - b, width: Math.max(bw * .8, .4), height: Math.max(b - a, 1), fill: i === mark ? "var(--quantized)" : "var(--float)"})); }
  const zero = H + r.lo / (r.hi - r.lo || 1) * H;
  if (zero >= 0 && zero <= H) s.append(svg("line", {x1: 0, x2: W, y1: zero, y2: zero, stroke: "var(--soft)", "stroke-width": .5}));
  f.append(make("figcaption", `Ranges of ${total} channels; channel ${worst} ${why(r)[3] === "--per_channel" ? "stretches the range of all" : "loses most"}`), s); return f;
}
function select(id, quiet) {
  selected = id; const r = rows[id], p = $("detail"); if (!r) return;
  const list = facts([["kind", (r.kind ? "activation" : "weight") + (r.op ? `, ${r.op}` : "")], ["type", r.type], ["rank", `${r.rank} of ${rows.length}`], ["outputs, its unit alone quantized", r.effect === null ? "" : dB(r.effect)],
    ["kept here", dB(r.own)], ["its channels, on the average", r.own - r.felt >= 1 ? dB(r.felt) : ""], ["lost beyond what its type must", r.excess > .05 ? r.excess.toFixed(1) + " dB" : ""], ["after the remedy, about", r.after !== null && r.after > (r.own ?? -99) + .5 ? dB(r.after) : ""], ["before and after quantization", r.qdq === null ? "" : dB(r.qdq)], ["against the float model", r.cross === null ? "" : dB(r.cross)],
    ["in the other report", r.change === null || r.change === undefined ? "" : dB(r.own - r.change)], ["cosine", r.cosine === null ? "" : r.cosine.toFixed(6)], ["largest error", num(r.max)], ["mean error", num(r.mean)], ["clipped", (100 * r.saturated).toPrecision(3) + " %"], ["used range", `${num(r.lo)} to ${num(r.hi)}`], ["quantized range", r.qlo === null ? "" : `${num(r.qlo)} to ${num(r.qhi)}`],
    ["work of its node", r.macs ? percent(r.macs) : ""], ["shape", r.value >= 0 ? G.short.text(G.values[r.value].type) : ""], ["pairs that can pass 16 bits", r.hot ? (100 * r.hot).toFixed(2) + " %" : ""]]);
  const box = make("div", undefined, "why-box"); box.append(make("b", why(r)[0])); if (why(r)[1]) box.append(prose("div", why(r)[1]));
  if (r.node) box.append(command(exclude([r.raw])));
  p.replaceChildren(make("h2", r.name), ...(r.node && r.node !== r.name ? [make("p", `node ${r.node}`, "soft at")] : []), box, list); if (r.hist) p.append(histogram(r)); if (r.channels) p.append(channels(r));
  document.querySelectorAll("#body tr").forEach(tr => tr.classList.toggle("on", +tr.dataset.id === id));
  if (!quiet && innerWidth <= 960) p.scrollIntoView({block: "nearest"});
  const n = G.nodes.find(n => n.raw === r.raw && n.live) || (r.value >= 0 && G.nodes[G.values[r.value].from]); if (n) G.show(n.i);
  plot();
}
/* A node or block of the graph: its worst tensor, or what it is. */
function pickItem(it) {
  const list = it.nodes.flatMap(n => n.rows).sort((a, b) => a.rank - b.rank), p = $("detail");
  if (!it.block && list.length) { select(list[0].id); p.append(make("h3", "The node"), ...graphDetail(G, it, D.graph.computes)); return; }
  selected = -1; p.replaceChildren(make("h2", it.name || it.title), ...graphDetail(G, it, D.graph.computes));
  if (list.length) { const ul = make("ul"); list.slice(0, 12).forEach(r => { const li = make("li"), b = make("button", middle(r.name, 44), "link"); b.type = "button"; b.onclick = () => select(r.id); li.append(b, ` ${dB(r.own)}`); ul.append(li); }); p.append(make("h3", `Its ${plural(list.length, "tensor")}, worst first`), ul); } else p.append(make("p", "Nothing of it is quantized.", "empty"));
  document.querySelectorAll("#body tr.on").forEach(tr => tr.classList.remove("on")); plot();
}

/* ---- plot ---- */
let points = [];
const along = [...rows].sort((a, b) => a.position - b.position);
function plot() {
  const [g, w, h] = canvas($("plot")), m = $("measure").value, L = 40, B = 18;
  const of = m === "own" ? r => r.felt : r => r[m], list = along.filter(r => of(r) !== null && of(r) < EXACT && !harmless(r) && !(r.type === "INT32" && of(r) > 60)); /* biases that lose nothing would set the scale */
  $("plot-empty").hidden = list.length > 0; $("plot").style.display = list.length ? "" : "none";
  if (!list.length) { $("plot-empty").textContent = m !== "own" && !D.samples ? "Not measured: this needs samples (--data)." : rows.length ? "No tensor has such a figure: all are exact, or could not be compared." : "Nothing to draw: no tensor was compared."; points = []; return; }
  let lo = 0, hi = 50; for (const r of list) { if (of(r) > hi) hi = Math.min(of(r), 70); if (of(r) < lo) lo = Math.max(of(r), -30); }
  const X = i => L + 6 + (w - L - 14) * (list.length > 1 ? i / (list.length - 1) : .5), Y = v => 6 + (h - B - 8) * (1 - (Math.min(hi, Math.max(lo, v)) - lo) / (hi - lo));
  g.font = "11px system-ui, sans-serif"; g.fillStyle = getVar("--soft"); g.strokeStyle = getVar("--line"); g.lineWidth = 1;
  for (let v = Math.ceil(lo / 10) * 10; v <= hi; v += 10) { g.beginPath(); g.moveTo(L, Y(v)); g.lineTo(w, Y(v)); g.stroke(); g.fillText(v + " dB", 0, Y(v) + 4); }
  g.fillText("first", L, h - 4); g.fillText("last", w - 24, h - 4);
  points = list.map((r, i) => [X(i), Y(of(r)), r.id]);
  const trace = (key, dash, alpha) => { g.strokeStyle = getVar("--soft"); g.globalAlpha = alpha; g.setLineDash(dash); g.beginPath(); let first = true; list.forEach((r, i) => { const v = key(r); if (v === null || !r.kind) return; first ? g.moveTo(X(i), Y(v)) : g.lineTo(X(i), Y(v)); first = false; }); g.stroke(); g.setLineDash([]); g.globalAlpha = 1; };
  trace(of, [], .5); if (other && m === "own") { trace(r => r.their, [5, 4], .9); g.strokeStyle = getVar("--soft"); g.lineWidth = 1; list.forEach((r, i) => { if (!r.kind && r.their !== null && Math.abs(r.their - r.felt) > .5) g.strokeRect(X(i) - 2.5, Y(r.their) - 2.5, 5, 5); }); }
  const dot = list.length > 1500 ? 1.6 : 3;
  list.forEach((r, i) => { g.fillStyle = colour(of(r)); const x = X(i), y = Y(of(r)); g.beginPath(); if (r.kind) g.arc(x, y, dot, 0, 7); else g.rect(x - dot, y - dot, 2 * dot, 2 * dot); g.fill(); });
  const on = points.find(p => p[2] === selected); if (on) { g.strokeStyle = getVar("--ink"); g.lineWidth = 2; g.beginPath(); g.arc(on[0], on[1], 7, 0, 7); g.stroke(); }
}
$("measure").onchange = plot; repaint.push(plot);
$("plot").onclick = e => { const b = $("plot").getBoundingClientRect(), x = e.clientX - b.left, y = e.clientY - b.top; let best = null, d = 900; for (const p of points) { const q = (p[0] - x) ** 2 + (p[1] - y) ** 2; if (q < d) { d = q; best = p; } } if (best) select(best[2]); };
$("plot").onkeydown = e => { const step = {ArrowRight: 1, ArrowLeft: -1}[e.key]; if (!step || !points.length) return; e.preventDefault(); const at = points.findIndex(p => p[2] === selected); select(points[Math.min(points.length - 1, Math.max(0, at + step))][2], true); };

/* ---- graph: a node has the rows of its outputs and of the constants it reads ---- */
const byValue = new Map(); rows.forEach(r => { if (r.value >= 0) byValue.set(r.value, r); });
const worstOf = it => { let worst = null; for (const n of it.nodes) for (const r of n.rows) if (!harmless(r) && r.felt !== null && (worst === null || r.felt < worst)) worst = r.felt; return worst; };
const attach = nodes => nodes.forEach(n => { n.rows = [...n.outs, ...n.ins].map(v => byValue.get(v)).filter(r => r && (n.outs.includes(r.value) || !r.kind)); });
let G = null;
{
  const data = D.graph, wrap = {colour: it => it.nodes[0].rows ? colour(worstOf(it)) : null, pick: it => pickItem(it)};
  G = graphView($("graph"), data, wrap); attach(G.nodes); graphButtons($("graph-tools"), G, $("graph"));
  /* Integer operators have names of their own; options take those of the float model. */
  const known = new Set(G.nodes.map(n => n.raw)); rows.forEach(r => { if (r.kind || r.value < 0 || known.has(r.raw) || !G.values[r.value].readers.length) return; const n = G.nodes[G.values[r.value].readers[0]]; r.raw = n.raw; r.node = n.name; });
  const total = G.nodes.reduce((s, n) => s + n.macs, 0), macs = new Map(G.nodes.map(n => [n.raw, n.macs])); rows.forEach(r => { r.macs = total ? (macs.get(r.raw) || 0) / total : 0; r.change = null; });
}

/* ---- the end of the page ---- */
function about() {
  const left = facts([["quantized model", clean(D.quantized_model)], ["its size", A.quantized_size ? size(A.quantized_size) : ""], ["float model", clean(D.float_model)], ["its size", A.float_size ? size(A.float_size) : ""], ["time of one run", A.float_ms ? `float ${ms(A.float_ms)}, quantized ${ms(A.quantized_ms)} (least of several, default session, first sample)` : D.samples ? "not measured (--no_kernel_check, or the runtime refuses a model)" : "not measured: no samples"], ["samples", D.samples ? `${D.samples}${A.data ? ` of ${clean(A.data)}` : ""}` : "none"], ["onq", A.onq], ["runtime", A.runtime ? clean(A.runtime) : D.samples ? "" : "not used"], ["CPU", A.cpu ? A.cpu.replaceAll(",", ", ") : ""], ["made", A.date]]);
  const right = make("div"); if (A.command) right.append(make("div", "Made by", "soft"), command(A.command));
  if (A.samples.length) { const d = make("details"), ul = make("ul", undefined, "long"); d.append(make("summary", `Samples${A.samples.length < D.samples ? `, the first ${A.samples.length}` : ""}`)); A.samples.forEach(s => ul.append(make("li", clean(s)))); d.append(ul); d.style.marginTop = "10px"; right.append(d); }
  right.append($("rest")); $("about").append(left, right);
  if (D.unmatched.length) { $("rest").hidden = false; $("rest-title").textContent = `${plural(D.unmatched.length, "tensor")} could not be matched`; D.unmatched.slice(0, 2000).forEach(([n, w]) => $("rest-list").append(make("li", `${clean(n)}: ${w}`))); }
  const hot = rows.filter(r => r.hot > 0).sort((a, b) => b.hot - a.hot); if (!hot.length) return;
  if (!D.kernel_loss) $("about").parentElement.before($("kernel"));
  $("kernel").hidden = false; $("kernel").classList.toggle("warn", D.kernel_loss); $("kernel-title").textContent = D.kernel_loss ? "Kernel saturation, not quantization" : "On other CPUs";
  $("kernel-text").textContent = !D.kernel_loss ? "On x86 CPUs without VNNI (AVX2, AVX-512 before Cascade Lake; not ARM) the runtime's integer kernels may lose more than is shown here: the sum of two u8 x s8 products saturates at 16 bits. --saturation_safe avoids it, and so does --reduce_range, which takes a bit from all weights." : "The runtime's integer kernels lose more than the arithmetic of the model does: on x86 CPUs without VNNI (AVX2, AVX-512 before Cascade Lake; not ARM) the sum of two u8 x s8 products saturates at 16 bits. Quantize with --saturation_safe, or with --reduce_range.";
  $("kernel-list").previousElementSibling.textContent = `${plural(hot.length, "layer")} whose sums of two products can pass 16 bits`; hot.slice(0, 200).forEach(r => $("kernel-list").append(make("li", `${r.name} (${r.op}): ${(100 * r.hot).toFixed(2)} % of the pairs`)));
}

/* ---- another report beside this one ---- */
function readReport(text) {
  const start = text.indexOf('id="data">'), from = start < 0 ? 0 : start + 10, to = start < 0 ? text.length : text.indexOf("</scr" + "ipt>", from);
  const data = JSON.parse(text.slice(from, to)); if (data.page !== "onq debug" || !Array.isArray(data.rows)) throw new Error("it is not a report of onq debug"); return data;
}
function compare(text, name) {
  let data; try { data = readReport(text); } catch (e) { $("compare").hidden = false; $("compare-title").textContent = `${clean(name)} cannot be compared`; $("compare-text").textContent = `Choose a report that onq debug -o wrote (${clean(e.message)}).`; $("compare-body").replaceChildren(); return; }
  other = data; const theirs = new Map(readRows(data).map(r => [r.kind + r.name, r])), B = data.about || {options: [], samples: []}, body = document.createDocumentFragment();
  rows.forEach(r => { const o = theirs.get(r.kind + r.name); r.their = o && o.felt !== null && o.felt < EXACT ? o.felt : null; r.change = o && o.own !== null && r.own !== null && o.own < EXACT && r.own < EXACT ? r.own - o.own : null; });
  const add = (what, mine, their, change, good) => { const tr = make("tr"), td = make("td", change, "n"); if (good) td.classList.add(good > 0 ? "better" : "worse"); tr.append(make("td", what), make("td", mine, "n"), make("td", their, "n"), td); body.append(tr); };
  const figure = (what, a, b, show, up, slack) => { if (a === undefined || a === null || b === undefined || b === null) return; const d = a - b, tell = Math.abs(d) > slack ? (up ? d : -d) : 0; add(what, show(a), show(b), tell ? (d > 0 ? "+" : "\u2212") + show(Math.abs(d)) : "", tell); };
  if (D.quantized_model !== data.quantized_model) add("quantized model", clean(D.quantized_model), clean(data.quantized_model), ""); if (D.float_model !== data.float_model) add("float model", clean(D.float_model), clean(data.float_model), "");
  for (const [n, v, , top] of D.outputs.slice(0, 8)) { const o = data.outputs.find(x => x[0] === n); if (!o) continue; figure(`output ${middle(clean(n), 40)}`, v, o[1], dB, true, .05); figure("same top-1", top, o[3], percent, true, 1e-9); }
  figure("size", A.quantized_size, B.quantized_size, size, false, 0); figure("time of one run", A.quantized_ms, B.quantized_ms, ms, false, .02 * (B.quantized_ms || 0));
  figure("tensors compared", rows.length, data.rows.length, v => String(v), true, Infinity); figure("samples", D.samples, data.samples, v => String(v), true, Infinity);
  const opts = o => { const m = new Map(); o.options.forEach(([k, v]) => m.set(k, [...(m.get(k) || []), v])); return m; }, mine = opts(A), their = opts(B);
  for (const k of new Set([...mine.keys(), ...their.keys()])) { if (["output", "qdq_model", "float_model"].includes(k)) continue; const a = (mine.get(k) || ["not set"]).join(", "), b = (their.get(k) || ["not set"]).join(", "); if (a !== b) add(`--${clean(k)}`, middle(clean(a), 60), middle(clean(b), 60), ""); }
  if (A.onq !== B.onq) add("onq", A.onq || "", B.onq || "", ""); if (A.runtime !== B.runtime && A.runtime && B.runtime) add("runtime", clean(A.runtime), clean(B.runtime), "");
  const moved = rows.filter(r => r.change !== null && Math.abs(r.change) >= .5), up = moved.filter(r => r.change > 0).length;
  [...moved].sort((a, b) => Math.abs(b.change) - Math.abs(a.change)).slice(0, 6).forEach(r => add(middle(r.name, 50), dB(r.own), dB(r.own - r.change), (r.change > 0 ? "+" : "\u2212") + dB(Math.abs(r.change)), r.change));
  $("compare").hidden = false; $("compare-title").textContent = `Compared with ${clean(name)}`; $("compare-text").textContent = `${plural(up, "tensor")} better, ${moved.length - up} worse by half a dB or more; ${plural(rows.filter(r => r.change === null).length, "tensor")} not in both. The table has a column for it, the plot a dashed line and hollow squares.`;
  $("compare-body").replaceChildren(body); draw(); plot();
}
const load = f => { if (f) f.text().then(t => compare(t, f.name)); };
$("open").onclick = () => $("file").click(); $("file").onchange = () => { load($("file").files[0]); $("file").value = ""; };
$("compare-close").onclick = () => { other = null; rows.forEach(r => r.change = null); $("compare").hidden = true; draw(); plot(); };
addEventListener("dragover", e => { e.preventDefault(); document.body.classList.add("drop"); }); addEventListener("dragleave", e => { if (!e.relatedTarget) document.body.classList.remove("drop"); });
addEventListener("drop", e => { e.preventDefault(); document.body.classList.remove("drop"); load(e.dataTransfer.files[0]); });

rows.forEach(r => r.text = [r.name, r.node, r.op, r.type, r.kind ? "activation" : "weight", why(r)[0]].join(" ").toLowerCase());
verdict(); cards(); advise(); effects(); samples(); sequences(); draw(); about(); showBasket(); plot(); G.paint();
/* What shows the cause is chosen first, or else the worst. */
const atFault = (A.causes || []).map(c => c[4]).find(row => rows[row]);
if (rows.length) select(atFault ?? [...rows].sort((a, b) => a.rank - b.rank)[0].id, true);
