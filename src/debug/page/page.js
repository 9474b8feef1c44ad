/* page.js — what the scripts of all pages share. Included in each of them when it is built (cmake/embed.cmake).
   Names come from a model and may hold anything: they become text of elements, never markup. */
"use strict";
const $ = id => document.getElementById(id);
const D = JSON.parse($("data").textContent);
/* Characters that are invisible or reverse the line are shown as \uXXXX. */
const clean = s => s.replace(/[\u0000-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g, c => "\\u" + c.charCodeAt(0).toString(16).padStart(4, "0"));
const make = (tag, text, cls) => { const e = document.createElement(tag); if (text !== undefined && text !== null) e.textContent = text; if (cls) e.className = cls; return e; };
const svg = (tag, attrs, text) => { const e = document.createElementNS("http://www.w3.org/2000/svg", tag); for (const k in attrs) e.setAttribute(k, attrs[k]); if (text !== undefined) e.textContent = text; return e; };
const plural = (n, word) => `${n.toLocaleString("en")} ${word}${n === 1 ? "" : "s"}`;
const num = v => v === null || v === undefined ? "" : v === 0 ? "0" : Math.abs(v) >= 1e5 || Math.abs(v) < 1e-3 ? v.toExponential(3) : String(+v.toPrecision(5));
function scaled(v, units) { let u = 0; while (v >= 999.5 && u + 1 < units.length) { v /= 1000; u++; } return (u && v < 99.95 ? v.toFixed(1) : Math.round(v)) + units[u]; }
const size = v => scaled(v, [" bytes", " kB", " MB", " GB", " TB", " PB"]);
const work = v => scaled(v, ["", " k", " M", " G", " T", " P"]);
const percent = v => (100 * v).toFixed(v > 0 && v < .0995 ? (v < .001 ? 2 : 1) : v > .9995 || v === 0 ? 0 : 1) + " %";
const db = v => v === null || v === undefined ? "" : v >= 250 ? "exact" : v <= -999 ? "NaN or infinity" : v.toFixed(1); /* more than 250 is noise of 2^-52 */
const dB = v => db(v) + (v === null || v >= 250 || v <= -999 ? "" : " dB");
const ms = v => v >= 100 ? v.toFixed(0) + " ms" : v >= 10 ? v.toFixed(1) + " ms" : v.toFixed(2) + " ms";
/* Of a long name both ends: that is where names differ. */
const middle = (s, n) => s.length <= n ? s : s.slice(0, Math.floor(n * .38)) + "\u2026" + s.slice(s.length - Math.ceil(n * .62) + 1);
/* A word of a command line. */
const word = s => /^[A-Za-z0-9_.\/:+@=,-]+$/.test(s) ? s : "'" + s.replaceAll("'", "'\\''") + "'";
/* An item of a list of names: a comma is written with a backslash. */
const item = s => word(s.replaceAll("\\", "\\\\").replaceAll(",", "\\,"));
/* Text whose options stay whole at the end of a line. */
function prose(tag, text, cls) { const e = make(tag, undefined, cls); text.split(/( --[a-z_]+)/).forEach(w => e.append(...(w.startsWith(" --") ? [" ", make("span", w.slice(1), "whole")] : [w]))); return e; }
function copy(button, code, text) {
  const done = () => { button.textContent = "Copied"; setTimeout(() => button.textContent = "Copy", 1500); };
  const mark = () => { getSelection().selectAllChildren(code); button.textContent = "Press Ctrl+C"; };
  navigator.clipboard ? navigator.clipboard.writeText(text).then(done, mark) : mark();
}
function command(text) {
  const line = make("div", undefined, "command"), code = make("code"), shown = text.split("\n").map(clean).join("\n"), b = make("button", "Copy");
  /* A line ends between words, not after the hyphens of an option. */
  if (shown.length > 4000) code.textContent = shown; else shown.split(/( +|\n)/).forEach(w => code.append(w.startsWith("-") && w.length < 40 ? make("span", w, "whole") : w));
  b.type = "button"; b.onclick = e => { e.stopPropagation(); copy(b, code, text); }; line.append(code, b); return line;
}
/* ---- a list of facts ---- */
function facts(list) { const dl = make("dl"); for (const [k, v] of list) if (v !== "" && v !== null && v !== undefined) dl.append(make("dt", k), make("dd", v)); return dl; }
function card(box, value, title, tone) { const c = make("div"), b = make("b", value); if (tone) b.style.color = `var(--${tone})`; c.append(b, make("span", title)); box.append(c); return c; }
/* ---- tables: columns [key, title, is a number, how wide a screen it needs (0 to 2), what it means] ---- */
const WIDE = ["", " wide", " widest"];
function tableHead(row, columns, state, draw) {
  row.replaceChildren(...columns.map(([key, title, n, wide, hint]) => {
    const th = make("th", undefined, (n ? "n" : "") + WIDE[wide]), on = state.key === key;
    th.scope = "col"; if (!title) return th;
    const b = make("button", title + (on ? (state.up ? " \u25b2" : " \u25bc") : "")); b.type = "button"; b.dataset.key = key; b.title = hint;
    th.setAttribute("aria-sort", on ? (state.up ? "ascending" : "descending") : "none");
    b.onclick = () => { state.up = state.key === key ? !state.up : !n || key !== "macs" && key !== "weights"; state.key = key; draw(); };
    th.append(b); return th;
  }));
}
const order = (value, up, tie) => (a, b) => { const x = value(a), y = value(b); if (x === null || y === null) return (x === null) - (y === null) || tie(a, b); const c = typeof x === "string" ? (x < y ? -1 : x > y ? 1 : 0) : x - y; return (up ? c : -c) || tie(a, b); };
/* ---- canvases and colours ---- */
let vars = {};
const getVar = n => vars[n] || (vars[n] = getComputedStyle(document.documentElement).getPropertyValue(n).trim());
function canvas(c) { const k = devicePixelRatio || 1, w = c.clientWidth, h = c.clientHeight; if (c.width !== Math.round(w * k) || c.height !== Math.round(h * k)) { c.width = Math.round(w * k); c.height = Math.round(h * k); } const g = c.getContext("2d"); g.setTransform(k, 0, 0, k, 0, 0); g.clearRect(0, 0, w, h); return [g, w, h]; }
const repaint = [];
function theme(t) { document.documentElement.dataset.theme = t; vars = {}; $("theme").textContent = t === "dark" ? "Light" : "Dark"; repaint.forEach(f => f()); }
theme(matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
$("theme").onclick = () => theme(document.documentElement.dataset.theme === "dark" ? "light" : "dark");
addEventListener("resize", () => repaint.forEach(f => f()));
