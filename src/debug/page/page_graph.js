/* page_graph.js — draws a model: blocks that fold, shapes on the edges, columns that fill the canvas.

   graphView(canvas, data, {colour(item), pick(item)}) with the data of page_graph.c. Nodes that compute constants are
   not drawn, nor are QuantizeLinear and DequantizeLinear, whose type stands on the edge instead. An item is what is
   drawn: a node, or a block that is folded, {nodes, block, name, title, sub}. */
const NW = 152, NH = 44, GX = 26, GY = 34, GC = 84;
const [CONVERT, OTHER] = [4, 5];

/* Shapes in few letters: names of dimensions that are long become letters, and a division that rounds up is written so. */
function shortShapes(shapes) {
  const short = new Map(), taken = new Set(), names = s => s.match(/[A-Za-z_][\w.:]*/g) || [], known = new Set(["floor", "ceil", "min", "max", "Min", "Max"]);
  shapes.forEach(s => names(s).forEach(n => taken.add(n)));
  for (const n of taken) if (n.length > 8 && !known.has(n)) { const free = [..."abcdefghijklmnopqrstuvwxyz"].find(c => !taken.has(c) && ![...short.values()].includes(c)); if (free) short.set(n, free); }
  const ceil = s => s.replace(/floor\(([^()]+?)\/(\d+) \+ (\d+)\/(\d+)\)/g, (all, x, n, up, of) => n === of && +up === n - 1 ? `\u2308${x}/${n}\u2309` : all);
  const text = s => { let t = s.replace(/[A-Za-z_][\w.:]*/g, n => short.get(n) || n); for (let before = ""; before !== t;) { before = t; t = ceil(t); } return t; };
  return {text, legend: [...short].map(([n, c]) => `${c} = ${n}`).join(", ")};
}

function graphNodes(data) {
  const values = data.values.map(([name, type, shape, bytes, what, quantized], i) => ({i, name: clean(name), raw: name, type: clean(type), shape: shape === null ? null : clean(shape), bytes, constant: (what & 1) > 0, input: (what & 2) > 0, output: (what & 4) > 0, quantized: clean(quantized), from: -1, live: false, readers: []}));
  const nodes = data.nodes.map(([op, name, owner, compute, macs, weights, ins, outs], i) => ({i, op: clean(op), raw: name, name: clean(name), owner, compute, macs, weights, ins, outs, live: false}));
  for (const n of nodes) { for (const v of n.outs) values[v].from = n.i; for (const v of n.ins) values[v].readers.push(n.i); }
  for (const v of values) v.live = v.from < 0 && !v.constant;
  for (const n of nodes) { n.live = n.ins.some(v => values[v].live) || (n.op !== "Constant" && !n.ins.length); if (n.live) for (const v of n.outs) values[v].live = true; }
  /* What an inner graph gives goes to the node that holds it. */
  for (const n of nodes) if (n.owner >= 0 && n.live) nodes[n.owner].live = true;
  return [nodes, values];
}

/* Edges between nodes that are drawn; pairs of conversions are looked through. */
function graphEdges(nodes, values) {
  const edges = [], drawn = n => n.live && n.compute !== CONVERT;
  const source = (v, type) => { for (let k = 0; k < 6; k++) { const f = values[v].from; if (f < 0) return [-1, v, type]; const n = nodes[f]; if (n.compute !== CONVERT || !n.ins.length) return [f, v, type]; type = type || (n.op === "DequantizeLinear" ? values[n.ins[0]].type.replace(/\[.*/, "") : ""); v = n.ins[0]; } return [-1, v, type]; };
  for (const n of nodes) {
    if (!drawn(n)) continue;
    for (const v of n.ins) { if (!values[v].live) continue; const [f, at, type] = source(v, ""); if (f >= 0 && nodes[f].live && f !== n.i) edges.push([f, n.i, at, type]); }
    if (n.owner >= 0 && !n.outs.some(v => values[v].readers.length)) edges.push([n.i, n.owner, n.outs[0], ""]);
  }
  return edges;
}

/* Blocks by the parts of names; where names have none, or say the operator only (Conv_12, model.Conv.12), runs of nodes
   that end where few tensors pass. */
function graphTree(nodes, edges, most_items) {
  const show = nodes.filter(n => n.live && n.compute !== CONVERT), at = new Map(show.map((n, k) => [n.i, k]));
  /* model.layers.0.mlp/MatMul: a dot parts names as a slash does, but for the one before a number. */
  const split = n => n.name.split(n.name.includes("/") ? /\/|\.(?!\d+(?:[.\/]|$))/ : ".").filter(Boolean);
  function build(paths) {
    const root = {name: "", path: "", children: new Map(), nodes: [], parent: null, open: true, depth: 0};
    for (const n of show) {
      let path = paths(n); if (n.owner >= 0) path = [...(nodes[n.owner].path || [nodes[n.owner].name]), ...path];
      n.path = path; n.last = path[path.length - 1] || n.name; let b = root;
      for (const p of path.slice(0, -1).slice(0, 12)) { let next = b.children.get(p); if (!next) { next = {name: p, path: b.path + "/" + p, children: new Map(), nodes: [], parent: b, open: false, depth: b.depth + 1}; b.children.set(p, next); } b = next; }
      b.nodes.push(n); n.block = b;
    }
    const count = b => b.count = b.nodes.length + [...b.children.values()].reduce((s, c) => s + count(c), 0); count(root);
    return root;
  }
  /* Nodes of a block stand together in a graph. */
  const scattered = root => { let bad = 0; (function walk(b) { b.children.forEach(walk); if (b === root || b.nodes.length < 3) return; const k = b.nodes.map(n => at.get(n.i)); if (Math.max(...k) - Math.min(...k) + 1 > 4 * b.count + 8) bad += b.nodes.length; })(root); return bad * 3 > show.length; };
  const named = show.filter(n => split(n).length > 1).length; let root = build(named * 2 >= show.length ? split : n => [n.name]);
  if (show.length > most_items && (named * 2 < show.length || scattered(root))) {
    const cut = new Array(show.length + 1).fill(0); for (const [f, t] of edges) { const a = at.get(f), b = at.get(t); if (a === undefined || b === undefined) continue; cut[Math.min(a, b) + 1]++; cut[Math.max(a, b) + 1]--; } for (let k = 1; k < cut.length; k++) cut[k] += cut[k - 1];
    const most = Math.max(5, Math.min(Math.round(Math.sqrt(show.length) * 1.3), Math.ceil(1.2 * show.length / most_items))), run = []; let from = 0;
    while (from < show.length) { let to = Math.min(from + most, show.length); if (to < show.length) for (let k = from + Math.ceil(most * .6); k <= Math.min(from + Math.floor(most * 1.3), show.length - 1); k++) if (cut[k] < cut[to] || (cut[k] === cut[to] && Math.abs(k - from - most) < Math.abs(to - from - most))) to = k; for (let k = from; k < to; k++) run[k] = `nodes ${from + 1} to ${to}`; from = to; }
    root = build(n => n.owner >= 0 ? [n.name] : [run[at.get(n.i)], n.name]); root.runs = true;
  }
  const levels = []; (function walk(b) { (levels[b.depth] = levels[b.depth] || []).push(b); b.children.forEach(walk); })(root);
  /* A block of one node says no more than the node. */
  levels.flat().forEach(b => { if (b.count <= 1) b.open = true; });
  const shown = b => b.nodes.length + [...b.children.values()].reduce((s, c) => s + (c.open ? shown(c) : 1), 0);
  for (let d = 1; d < levels.length; d++) { const now = levels[d].filter(b => !b.open); now.forEach(b => b.open = true); if (shown(root) > most_items) { now.forEach(b => b.open = false); break; } }
  return [root, levels.flat()];
}

function graphView(c, data, {colour, pick}) {
  const [nodes, values] = graphNodes(data), short = shortShapes(values.map(v => v.shape || "")), edges = graphEdges(nodes, values), [root, blocks] = graphTree(nodes, edges, Math.max(24, c.clientWidth * c.clientHeight / ((NW + GX) * (NH + GY)) * 1.1));
  const G = {nodes, values, short, root, blocks, items: [], links: [], view: {x: 0, y: 0, s: 1}, selected: null, moved: false};
  const gather = b => { const out = [...b.nodes]; b.children.forEach(k => out.push(...gather(k))); return out; };

  /* "Conv_3" says no more than its operator does: the part before it does. */
  const calls = n => n.last.replace(/_\d+$/, "") !== n.op ? n.last : n.path.length > 1 ? n.path[n.path.length - 2] : n.last === n.op ? "" : n.last;
  const main = list => { const ops = new Map(); list.forEach(n => ops.set(n.op, (ops.get(n.op) || 0) + 1)); return [...ops].sort((a, b) => b[1] - a[1]).slice(0, 2).map(([o, k]) => `${o} ${k}`).join(", "); };
  /* What is drawn now: folded blocks and nodes, each with its edges. */
  function collect() {
    const items = [], of = new Map();
    (function walk(b) { b.children.forEach(k => { if (k.open) return walk(k); const list = gather(k); const it = {block: k, nodes: list, name: k.path, title: k.name, sub: root.runs ? main(list) : (k.parent.name ? k.parent.name + " \u00b7 " : "") + plural(list.length, "node")}; items.push(it); list.forEach(n => of.set(n.i, it)); });
      b.nodes.forEach(n => { const it = {block: null, nodes: [n], name: n.name, title: n.op, sub: calls(n)}; items.push(it); of.set(n.i, it); }); })(root);
    items.forEach(it => { it.first = Math.min(...it.nodes.map(n => n.i)); it.from = new Map(); it.to = new Map(); it.layer = 0; });
    items.sort((a, b) => a.first - b.first);
    const links = new Map();
    for (const [f, t, v, type] of edges) { const a = of.get(f), b = of.get(t); if (!a || !b || a === b) continue; const key = a.first * 1e7 + b.first; if (!links.has(key)) links.set(key, {a, b, values: []}); const l = links.get(key); if (!l.values.some(x => x[0] === v)) l.values.push([v, type]); }
    G.items = items; G.of = of;
    /* Folding may close a circle: what points back to an item that comes first is drawn, but does not order. */
    G.links = [...links.values()]; for (const l of G.links) { l.back = false; }
    const state = new Map(), next = new Map(items.map(it => [it, []])); for (const l of G.links) next.get(l.a).push(l);
    for (const start of items) { if (state.get(start)) continue; const stack = [[start, 0]]; state.set(start, 1);
      while (stack.length) { const top = stack[stack.length - 1], l = next.get(top[0])[top[1]++]; if (!l) { state.set(top[0], 2); stack.pop(); } else if (state.get(l.b) === 1) l.back = true; else if (!state.get(l.b)) { state.set(l.b, 1); stack.push([l.b, 0]); } } }
    for (const l of G.links) if (!l.back) { l.a.to.set(l.b, l); l.b.from.set(l.a, l); }
  }

  function layer() {
    const wait = new Map(G.items.map(it => [it, it.from.size])), queue = G.items.filter(it => !it.from.size);
    for (let q = 0; q < queue.length; q++) for (const t of queue[q].to.keys()) { t.layer = Math.max(t.layer, queue[q].layer + 1); wait.set(t, wait.get(t) - 1); if (!wait.get(t)) queue.push(t); }
    for (const it of [...queue].reverse()) if (!it.from.size && it.to.size) it.layer = Math.max(0, Math.min(...[...it.to.keys()].map(t => t.layer)) - 1);
    const layers = []; for (const it of G.items) (layers[it.layer] = layers[it.layer] || []).push(it);
    const full = layers.filter(Boolean);
    full.forEach((l, y) => l.forEach((it, k) => { it.layer = y; it.x = (k - (l.length - 1) / 2) * (NW + GX); }));
    for (let round = 0; round < 6; round++) {
      const down = round % 2 === 0;
      for (const l of down ? full : [...full].reverse()) {
        for (const it of l) { const near = [...(down ? it.from : it.to).keys()]; it.want = near.length ? near.reduce((s, k) => s + k.x, 0) / near.length : it.x; }
        l.sort((a, b) => a.want - b.want); let x = -Infinity, off = 0;
        for (const it of l) { it.x = Math.max(it.want, x + NW + GX); x = it.x; off += it.x - it.want; }
        off /= l.length; for (const it of l) it.x -= off;
      }
    }
    return full;
  }

  /* Layers in columns side by side, as many as let the picture be largest; a column ends where few edges are cut. */
  function place() {
    const full = layer(), n = full.length; if (!n) return;
    const left = full.map(l => Math.min(...l.map(it => it.x))), right = full.map(l => Math.max(...l.map(it => it.x + NW)));
    const cut = new Array(n + 1).fill(0); for (const l of G.links) if (!l.back) for (let k = l.a.layer + 1; k <= Math.min(l.b.layer, l.a.layer + 60); k++) cut[k]++;
    const w = Math.max(c.clientWidth, 200) - 24, h = Math.max(c.clientHeight, 200) - 24; let best = null;
    for (let k = 1; k <= Math.min(n, 80); k++) {
      const cols = [], per = n / k; let from = 0;
      for (let i = 1; i <= k && from < n; i++) { let to = i === k ? n : Math.round(i * per); if (i < k) { let pickAt = to; for (let d = -2; d <= 2; d++) { const t = to + d; if (t > from && t < n && (cut[t] < cut[pickAt] || (cut[t] === cut[pickAt] && Math.abs(d) < Math.abs(pickAt - to)))) pickAt = t; } to = Math.max(from + 1, pickAt); } cols.push([from, to]); from = to; }
      const widths = cols.map(([a, b]) => { let x0 = Infinity, x1 = -Infinity; for (let i = a; i < b; i++) { x0 = Math.min(x0, left[i]); x1 = Math.max(x1, right[i]); } return [x0, x1]; });
      const W = widths.reduce((s, [a, b]) => s + b - a, 0) + GC * (cols.length - 1), H = Math.max(...cols.map(([a, b]) => b - a)) * (NH + GY) - GY, s = Math.min(w / (W + GC), h / H, 1.25);
      if (!best || s > best.s * 1.02) best = {s, cols, widths, W, H};
      if (k > 4 && s < best.s * .6) break;
    }
    let x = 0; best.cols.forEach(([a, b], k) => { const [x0, x1] = best.widths[k]; const top = (best.H + GY - (b - a) * (NH + GY)) * (best.cols.length > 1 ? 0 : .5); for (let i = a; i < b; i++) for (const it of full[i]) { it.x += x - x0; it.y = top + (i - a) * (NH + GY); it.col = k; } x += x1 - x0 + GC; });
    G.extent = [best.W + GC, best.H]; /* labels of the last column stand beside it */
  }

  G.fit = () => { if (!G.items.length) return; const [W, H] = G.extent, s = Math.min((c.clientWidth - 24) / W, (c.clientHeight - 24) / H, 1.25); G.view = {s: Math.max(s, .01), x: (c.clientWidth - W * s) / 2, y: (c.clientHeight - H * s) / 2}; G.paint(); };
  G.layout = () => { collect(); place(); G.fit(); };

  function label(l, room) { const all = l.values.map(([v, type]) => { const x = values[v]; return (x.shape === null ? "?" : x.shape === "" ? "scalar" : short.text(x.shape).replaceAll(", ", "\u00d7")) + (type ? " " + type : ""); }); return middle(all[0], Math.max(6, room)) + (all.length > 1 ? ` +${all.length - 1}` : ""); }
  function line(g, l, s, x, y) {
    const a = l.a, b = l.b, ax = a.x * s + x, ay = a.y * s + y, bx = b.x * s + x, by = b.y * s + y, w = NW * s, h = NH * s;
    g.beginPath();
    if (a.col === b.col && b.y > a.y) {
      const far = b.layer - a.layer > 1 ? Math.min(1.4, .35 + .12 * (b.layer - a.layer)) * w : 0, side = far && Math.abs(ax - bx) < w * .7 ? far : 0, d = (by - ay - h) / 2;
      g.moveTo(ax + w / 2, ay + h); side ? g.bezierCurveTo(ax + w / 2 + side, ay + h + d * .4, bx + w / 2 + side, by - d * .4, bx + w / 2, by) : g.bezierCurveTo(ax + w / 2, ay + h + d, bx + w / 2, by - d, bx + w / 2, by);
      g.stroke(); return [(ax + bx) / 2 + w / 2 + side * .72 + 4, (ay + h + by) / 2, bx + w / 2, by, 0];
    }
    const d = Math.max(30 * s, Math.abs(bx - ax - w) / 2), to = bx > ax ? 1 : -1;
    g.moveTo(ax + (to > 0 ? w : 0), ay + h / 2); g.bezierCurveTo(ax + (to > 0 ? w + d : -d), ay + h / 2, bx + (to > 0 ? -d : w + d), by + h / 2, bx + (to > 0 ? 0 : w), by + h / 2); g.stroke();
    return [null, 0, bx + (to > 0 ? 0 : w), by + h / 2, to];
  }
  const ink = f => { const m = /(\d+)\D+(\d+)\D+(\d+)/.exec(f); return m && .299 * m[1] + .587 * m[2] + .114 * m[3] < 140 ? "#fff" : "#1b2124"; };
  G.paint = () => {
    const [g, w, h] = canvas(c), {x, y, s} = G.view, soft = getVar("--soft"), text = getVar("--ink"), plain = getVar("--card"), border = getVar("--line"), on = G.selected;
    const out = it => it.y * s + y > h + 40 || (it.y + NH) * s + y < -40;
    const marks = []; g.lineWidth = Math.max(.5, Math.min(1.2, s * 1.4)); g.strokeStyle = soft; g.fillStyle = soft; g.globalAlpha = .6;
    for (const l of G.links) { if (out(l.a) && out(l.b) && (l.a.y < l.b.y ? l.a.y * s + y > h || l.b.y * s + y < 0 : true)) continue; const hot = on && (l.a === on || l.b === on); if (hot) { g.globalAlpha = 1; g.strokeStyle = getVar("--accent"); }
      const [lx, ly, ex, ey, to] = line(g, l, s, x, y); if (s > .3) { g.beginPath(); const t = 5 * Math.min(1, s * 1.3); to === 0 ? (g.moveTo(ex, ey), g.lineTo(ex - t * .7, ey - t), g.lineTo(ex + t * .7, ey - t)) : (g.moveTo(ex, ey), g.lineTo(ex - t * to, ey - t * .7), g.lineTo(ex - t * to, ey + t * .7)); g.fillStyle = g.strokeStyle; g.fill(); }
      if (hot) { g.globalAlpha = .6; g.strokeStyle = soft; } if (lx !== null && s > .62 && (hot || l.b.layer - l.a.layer === 1)) marks.push([lx, ly, l, hot ? 1 : 0]); }
    g.globalAlpha = 1; g.textBaseline = "middle"; g.textAlign = "left";
    /* Where labels of edges meet, the first is written; those of the chosen node come first. */
    if (marks.length) { g.font = `${Math.max(9, 10.5 * s)}px system-ui, sans-serif`; g.fillStyle = soft; G.labels = [];
      for (const [lx, ly, l] of marks.sort((a, b) => b[3] - a[3])) { const t = label(l, Math.floor((NW / 2 + (l.b.layer - l.a.layer > 1 ? 0 : GC) - 14) * s / (Math.max(9, 10.5 * s) * .53))), m = g.measureText(t).width;
        if (G.labels.some(([u, v, n]) => Math.abs(v - ly) < 12 && lx + 3 < u + n + 4 && u < lx + 7 + m)) continue; G.labels.push([lx + 3, ly, m]); g.fillText(t, lx + 3, ly); } }
    for (const it of G.items) {
      const X = it.x * s + x, Y = it.y * s + y, W = NW * s, H = NH * s; if (X > w || X + W < 0 || Y > h || Y + H < 0) continue;
      const f = colour(it) || plain, r = 7 * Math.min(s, 1.1);
      const box = (dx, dy) => { g.beginPath(); g.roundRect ? g.roundRect(X + dx, Y + dy, W, H, r) : g.rect(X + dx, Y + dy, W, H); };
      g.strokeStyle = f === plain ? border : f; g.lineWidth = 1;
      if (it.block && s > .2) { box(3 * s, 3 * s); g.fillStyle = f; g.globalAlpha = .45; g.fill(); g.globalAlpha = 1; g.strokeStyle = border; g.stroke(); g.strokeStyle = f === plain ? border : f; }
      box(0, 0); g.fillStyle = f; g.fill(); g.stroke();
      if (it === on) { g.strokeStyle = text; g.lineWidth = 2.5; box(0, 0); g.stroke(); }
      if (s < .24) continue;
      const color = f === plain ? text : ink(f), room = W - (it.block ? 26 : 12) * s, fs = 12.5 * s, two = it.sub && s > .5;
      g.fillStyle = color; g.font = `600 ${fs}px system-ui, sans-serif`; const cut = (t, f) => { const most = Math.floor(room / (f * .54)); return middle(t, Math.max(4, most)); };
      g.fillText(cut(it.block ? it.title : s > .5 || !it.sub ? it.title : it.title, fs), X + 8 * s, Y + H * (two ? .34 : .5), room);
      if (two) { g.font = `${10.5 * s}px system-ui, sans-serif`; g.globalAlpha = .8; g.fillText(cut(it.sub, 10.5 * s), X + 8 * s, Y + H * .72, room); g.globalAlpha = 1; }
      if (it.block) { g.font = `600 ${15 * s}px system-ui, sans-serif`; g.textAlign = "center"; g.fillText("+", X + W - 11 * s, Y + H / 2); g.textAlign = "left"; }
    }
  };

  /* ---- folding and choosing ---- */
  G.itemOf = i => G.of.get(i);
  G.fold = b => { b.open = false; (function shut(k) { k.children.forEach(x => { if (x.count > 1) x.open = false; shut(x); }); })(b); G.layout(); G.select(G.items.find(it => it.block === b) || null); };
  G.unfold = b => { b.open = true; G.layout(); const first = G.items.find(it => it.nodes.length && it.nodes.every(n => { for (let k = n.block; k; k = k.parent) if (k === b) return true; return false; })); G.select(first || null); };
  G.all = open => { blocks.forEach(b => { if (b !== root) b.open = open || b.count <= 1; }); G.selected = null; G.layout(); };
  G.select = it => { G.selected = it; G.paint(); if (it) pick(it); };
  /* Shows a node, whatever is folded, without telling the page. */
  G.show = i => { const it = G.of.get(i); G.selected = it || null; if (it) { const {x, y, s} = G.view, X = it.x * s + x, Y = it.y * s + y; if (X < 0 || Y < 0 || X + NW * s > c.clientWidth || Y + NH * s > c.clientHeight) { G.view.x = c.clientWidth / 2 - (it.x + NW / 2) * s; G.view.y = c.clientHeight / 2 - (it.y + NH / 2) * s; } } G.paint(); };
  G.zoom = (f, cx, cy) => { cx = cx ?? c.clientWidth / 2; cy = cy ?? c.clientHeight / 2; const v = G.view, s = Math.min(4, Math.max(.01, v.s * f)); v.x = cx - (cx - v.x) * s / v.s; v.y = cy - (cy - v.y) * s / v.s; v.s = s; G.paint(); };
  G.at = (px, py) => { const X = (px - G.view.x) / G.view.s, Y = (py - G.view.y) / G.view.s; for (let i = G.items.length - 1; i >= 0; i--) { const it = G.items[i]; if (X >= it.x && X <= it.x + NW && Y >= it.y && Y <= it.y + NH) return [it, X - it.x]; } return [null, 0]; };

  /* ---- pointers: drag pans, two fingers zoom, a click chooses, its + unfolds ---- */
  const held = new Map(); let start = null;
  const where = e => { const b = c.getBoundingClientRect(); return [e.clientX - b.left, e.clientY - b.top]; };
  const span = () => { const [a, b] = [...held.values()]; return {x: (a[0] + b[0]) / 2, y: (a[1] + b[1]) / 2, d: Math.hypot(a[0] - b[0], a[1] - b[1])}; };
  c.onpointerdown = e => { held.set(e.pointerId, where(e)); G.moved = held.size > 1; start = held.size === 2 ? {...span(), view: {...G.view}} : {p: where(e), view: {...G.view}}; if (c.setPointerCapture) c.setPointerCapture(e.pointerId); c.style.cursor = "grabbing"; };
  c.onpointermove = e => {
    if (!held.has(e.pointerId) || !start) return; held.set(e.pointerId, where(e)); const v = start.view;
    if (held.size === 2 && start.d) { const n = span(), s = Math.min(4, Math.max(.01, v.s * n.d / start.d)); G.view = {s, x: n.x - (start.x - v.x) * s / v.s, y: n.y - (start.y - v.y) * s / v.s}; }
    else if (start.p) { const [px, py] = where(e), dx = px - start.p[0], dy = py - start.p[1]; if (Math.abs(dx) + Math.abs(dy) > 4) G.moved = true; if (!G.moved) return; G.view = {s: v.s, x: v.x + dx, y: v.y + dy}; }
    requestAnimationFrame(G.paint);
  };
  c.onpointerup = e => { const at = where(e); held.delete(e.pointerId); c.style.cursor = ""; start = null; if (G.moved) return; const [it, x] = G.at(...at); if (it && it.block && x > NW - 24) G.unfold(it.block); else if (it) G.select(it); };
  c.onpointercancel = e => { held.delete(e.pointerId); start = null; };
  c.ondblclick = e => { const [it] = G.at(...where(e)); if (it && it.block) G.unfold(it.block); };
  c.addEventListener("wheel", e => { if (!e.ctrlKey && document.activeElement !== c) return; e.preventDefault(); G.zoom(Math.exp(-e.deltaY * .0015), ...where(e)); }, {passive: false});
  c.onkeydown = e => {
    const k = {ArrowLeft: [60, 0], ArrowRight: [-60, 0], ArrowUp: [0, 60], ArrowDown: [0, -60]}[e.key];
    if (k) { e.preventDefault(); G.view.x += k[0]; G.view.y += k[1]; G.paint(); } else if (e.key === "+") G.zoom(1.25); else if (e.key === "-") G.zoom(.8); else if (e.key === "Enter" && G.selected && G.selected.block) G.unfold(G.selected.block);
  };
  G.layout();
  /* Boxes too small to read: the innermost blocks are folded, until they are not, or the top is reached. */
  for (let d = Math.max(...blocks.map(b => b.depth)); d > 0 && G.view.s < .5; d--) { const fold = blocks.filter(b => b.depth === d && b.open && b.count > 1); fold.forEach(b => b.open = false); if (fold.length) G.layout(); }
  repaint.push(() => { if (c.clientWidth !== G.width) { G.width = c.clientWidth; place(); G.fit(); } else G.paint(); }); G.width = c.clientWidth;
  return G;
}

/* The buttons above a graph. */
function graphButtons(box, G, c) {
  const b = (text, hint, f) => { const e = make("button", text); e.type = "button"; e.title = hint; e.onclick = f; box.append(e); return e; };
  b("Fit", "Show all of it", G.fit); b("+", "Zoom in", () => G.zoom(1.35)); b("\u2212", "Zoom out", () => G.zoom(1 / 1.35));
  if (G.blocks.some(k => k !== G.root && k.count > 1)) { b("Fold all", "One box for each block at the top", () => G.all(false)); b("Unfold all", "Every node", () => G.all(true)); }
  box.append(make("small", "drag to pan, click it and turn the wheel to zoom, + unfolds a block", "widest"));
}
/* What a node or block is, for the panel at the side: facts, tensors, and the blocks it is in. */
function graphDetail(G, it, computes) {
  const out = [], macs = G.nodes.reduce((s, n) => s + n.macs, 0), sum = k => it.nodes.reduce((s, n) => s + n[k], 0), n = it.nodes[0];
  if (it.block) {
    const ops = new Map(); it.nodes.forEach(k => ops.set(k.op, (ops.get(k.op) || 0) + 1)); const how = new Map(); it.nodes.forEach(k => { if (k.macs) how.set(k.compute, (how.get(k.compute) || 0) + k.macs); });
    out.push(facts([["nodes", it.nodes.length], ["operators", [...ops].sort((a, b) => b[1] - a[1]).slice(0, 8).map(([o, k]) => `${o} ${k}`).join(", ")], ["multiply-accumulates", sum("macs") ? `${work(sum("macs"))} (${percent(sum("macs") / macs)})` : ""], ["weights", sum("weights") ? size(sum("weights")) : ""], ["computed in", [...how].map(([k, v]) => `${computes[k]} ${percent(v / sum("macs"))}`).join(", ")]]));
    const b = make("button", "Unfold"); b.type = "button"; b.onclick = () => G.unfold(it.block); out.push(b);
  } else {
    out.push(facts([["operator", n.op], ["computes in", computes[n.compute]], ["multiply-accumulates", n.macs ? `${work(n.macs)} (${percent(n.macs / macs)})` : ""], ["weights", n.weights ? size(n.weights) : ""]]));
    const list = (title, ids) => { if (!ids.length) return; const ul = make("ul"); ids.slice(0, 40).forEach(i => { const v = G.values[i], li = make("li", middle(v.name, 60)); li.title = v.name; li.title = `${v.name}: ${v.type}`; const more = [G.short.text(v.type), v.constant ? "constant" : "", v.bytes ? size(v.bytes) : "", v.quantized].filter(Boolean).join(", "); li.append(document.createElement("br"), make("small", more)); ul.append(li); }); out.push(make("h3", title), ul); };
    list("Inputs", n.ins); list("Outputs", n.outs);
  }
  const around = []; for (let b = it.block ? it.block.parent : n.block; b && b.parent; b = b.parent) if (b.count > 1) around.push(b);
  if (around.length) { const p = make("p", "In ", "soft"); around.reverse().forEach((b, k) => { const e = make("button", b.name, "link"); e.type = "button"; e.title = "Fold this block"; e.onclick = () => G.fold(b); p.append(k ? " / " : "", e); }); p.append(" (choose one to fold it)"); out.push(p); }
  return out;
}
