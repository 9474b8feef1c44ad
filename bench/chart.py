"""chart.py - the charts of the benchmarks as SVG: bars of two tools on a logarithmic scale, and lines of growth.

No fonts, scripts or images from elsewhere. Colours follow the reader's light or dark setting.
"""
import math
from html import escape

STYLE = """
  text { font: 13px system-ui, -apple-system, "Segoe UI", "Noto Sans", sans-serif; fill: #1f2328; }
  .title { font-size: 16px; font-weight: 600; }
  .small { font-size: 11px; fill: #59636e; }
  .value { font-size: 12px; font-variant-numeric: tabular-nums; }
  .grid { stroke: #d1d9e0; stroke-width: 1; }
  .a { fill: #0969da; stroke: #0969da; } .b { fill: #afb8c1; stroke: #afb8c1; }
  .line { fill: none; stroke-width: 2; } .ground { fill: #ffffff; }
  text.a { stroke: none; }
  @media (prefers-color-scheme: dark) {
    text { fill: #f0f6fc; } .small { fill: #9198a1; } .grid { stroke: #3d444d; } .ground { fill: #0d1117; }
    .a { fill: #4493f8; stroke: #4493f8; } .b { fill: #656c76; stroke: #656c76; }
  }
"""


def number(x, unit=""):
    """Short, as people write it: 0.036, 0.55, 2.6, 41."""
    if x >= 10:
        said = f"{x:.0f}"
    elif x >= 1:
        said = f"{x:.1f}"
    else:
        said = f"{x:.2g}"
    return said + unit


def ticks(low, high):
    return [10.0 ** e for e in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)]


def page(width, height, title, body):
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" '
            f'aria-label="{escape(title, quote=True)}">\n<style>{STYLE}</style>\n'
            f'<rect class="ground" width="{width}" height="{height}" rx="6"/>\n' + "\n".join(body) + "\n</svg>\n")


def bars(title, under, rows, names=("onq", "reference"), unit=" s"):
    """rows: (label, first value, second value or None). Logarithmic, the first tool above the second."""
    if not rows:
        raise ValueError("nothing to draw")
    width, left, right, top, step = 800, 290, 80, 74, 44
    values = [v for r in rows for v in r[1:] if v]
    marks = ticks(min(values), max(values))
    low, high = math.log10(marks[0]), math.log10(marks[-1])
    height = top + step * len(rows) + 40

    def x(v):
        return left + (width - left - right) * (math.log10(v) - low) / max(high - low, 1e-9)

    body = [f'<text class="title" x="20" y="28">{escape(title)}</text>',
            f'<text class="small" x="20" y="46">{escape(under)}</text>']
    for i, name in enumerate(names):
        at = left + 110 * i
        body.append(f'<rect class="{"ab"[i]}" x="{at}" y="54" width="11" height="11" rx="2"/>'
                    f'<text class="small" x="{at + 16}" y="64">{escape(name)}</text>')
    for m in marks:
        body.append(f'<line class="grid" x1="{x(m):.1f}" x2="{x(m):.1f}" y1="{top}" y2="{height - 30}"/>'
                    f'<text class="small" x="{x(m):.1f}" y="{height - 14}" text-anchor="middle">{number(m, unit)}</text>')
    for i, (label, *pair) in enumerate(rows):
        y = top + step * i + 6
        body.append(f'<text x="{left - 12}" y="{y + 20}" text-anchor="end">{escape(label)}</text>')
        for k, v in enumerate(pair):
            if not v:
                continue
            end = max(x(v), left + 2)
            body.append(f'<rect class="{"ab"[k]}" x="{left}" y="{y + 16 * k}" width="{end - left:.1f}" height="13" rx="2"/>'
                        f'<text class="value" x="{end + 6:.1f}" y="{y + 16 * k + 11}">{number(v, unit)}</text>')
    return page(width, height, title, body)


def lines(title, under, series, across, unit=" s"):
    """series: name -> (sizes, costs). Both axes logarithmic; a name stands at the end of its line."""
    if not series:
        raise ValueError("nothing to draw")
    width, height, left, right, top, foot = 760, 440, 60, 220, 64, 44
    sizes = [s for found, _ in series.values() for s in found]
    costs = [c for _, found in series.values() for c in found]
    xs, ys = ticks(min(sizes), max(sizes)), ticks(min(costs), max(costs))

    def at(v, marks, begin, length):
        low, high = math.log10(marks[0]), math.log10(marks[-1])
        return begin + length * (math.log10(v) - low) / max(high - low, 1e-9)

    def x(v):
        return at(v, xs, left, width - left - right)

    def y(v):
        return at(v, ys, height - foot, -(height - foot - top))

    body = [f'<text class="title" x="20" y="28">{escape(title)}</text>',
            f'<text class="small" x="20" y="46">{escape(under)}</text>']
    for m in ys:
        body.append(f'<line class="grid" x1="{left}" x2="{width - right}" y1="{y(m):.1f}" y2="{y(m):.1f}"/>'
                    f'<text class="small" x="{left - 6}" y="{y(m) + 4:.1f}" text-anchor="end">{number(m, unit)}</text>')
    for m in xs:
        body.append(f'<text class="small" x="{x(m):.1f}" y="{height - foot + 18}" text-anchor="middle">{m:,.0f}</text>')
    body.append(f'<text class="small" x="{left}" y="{height - 10}">{escape(across)}</text>')
    ends = sorted(((y(found[-1]), name) for name, (_, found) in series.items()), key=lambda e: e[0])
    free = top - 20
    places = {}
    for wanted, name in ends:  # names must not lie upon each other
        free = max(wanted, free + 15)
        places[name] = free
    over = max(0, free - (height - 8))
    for name, (found, cost) in series.items():
        kind = "b" if "floor" in name else "a"
        points = " ".join(f"{x(s):.1f},{y(c):.1f}" for s, c in zip(found, cost))
        end = x(found[-1])
        label = places[name] - over
        body.append(f'<polyline class="line {kind}" style="fill:none" points="{points}"/>'
                    f'<line class="grid" x1="{end:.1f}" y1="{y(cost[-1]):.1f}" x2="{end + 14:.1f}" y2="{label:.1f}"/>'
                    f'<text class="small" x="{end + 18:.1f}" y="{label + 4:.1f}">{escape(name)} {number(cost[-1], unit)}</text>')
    return page(width, height, title, body)
