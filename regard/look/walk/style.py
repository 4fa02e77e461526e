"""How a walk looks on a page: light or dark as the reader has it, and on paper."""

from __future__ import annotations

from regard.look.colors import GLOW, INK, Color, color, hexadecimal, ink_on
from regard.look.walk.shades import signed

LEVELS = 16  # shades from nothing to the most, of each sign
WEIGHTS_DARK: tuple[Color, ...] = ((27, 33, 39), *GLOW[2:8:2], (150, 232, 240))

BASE = """
.walk { --text: #1d2329; --quiet: #5b646c; --line: #dde2e7; --ground: #fff; --shade: #f4f6f8; --accent: #0b5c96;
  background: var(--ground); color: var(--text); font: 17px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans",
  "DejaVu Sans", sans-serif; padding: 2.4rem 1.5rem 4rem; }
.walk * { box-sizing: border-box; }
.walk > div { max-width: 68rem; margin: 0 auto; }
.walk h1 { font-size: 1.9rem; line-height: 1.2; margin: 0 0 .6rem; overflow-wrap: anywhere; }
.walk h2 { font-size: 1.3rem; line-height: 1.3; margin: 0 0 .5rem; }
.walk p { margin: .5rem 0; max-width: 48rem; overflow-wrap: anywhere; }
.walk .summary { font-size: 1.1rem; color: var(--quiet); }
.walk nav ol { list-style: none; margin: 1.4rem 0 0; padding: .9rem 1.1rem; background: var(--shade); border-radius: 8px;
  columns: 20rem; column-gap: 2rem; font-size: .95rem; }
.walk nav li { break-inside: avoid; padding: .1rem 0; }
.walk a { color: var(--accent); text-decoration: none; }
.walk a:hover { text-decoration: underline; }
.walk section { border-top: 1px solid var(--line); margin-top: 2.2rem; padding-top: 1.5rem; }
.walk code { font: 1em/1.5 ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; overflow-wrap: anywhere; }
.walk .formula { font-size: 1.05rem; background: var(--shade); border-left: 4px solid var(--accent); padding: .45rem .8rem;
  border-radius: 0 6px 6px 0; max-width: none; }
.walk .line { font-size: .92rem; max-width: none; }
.walk .scroll { overflow-x: auto; margin: .3rem 0 0; }
.walk table { border-collapse: separate; border-spacing: 1px; font-size: .86rem; font-variant-numeric: tabular-nums; }
.walk th, .walk td { padding: .18rem .42rem; text-align: right; white-space: nowrap; font-weight: 400; }
.walk th { color: var(--quiet); }
.walk tbody th { text-align: left; position: sticky; left: 0; background: var(--ground); color: var(--text); }
.walk tr.here th { font-weight: 700; }
.walk td.why { color: var(--quiet); text-align: left; }
.walk td.gap { min-width: .8rem; }
.walk td.masked { color: var(--quiet); background: repeating-linear-gradient(45deg, var(--shade), var(--shade) 4px,
  var(--line) 4px, var(--line) 6px); }
.walk .arrays { display: flex; flex-wrap: wrap; gap: 0 2.6rem; align-items: flex-start; }
.walk .arrays > * { min-width: 0; max-width: 100%; }
.walk .arrays > p, .walk .arrays > .one, .walk .arrays > details, .walk .arrays > img { flex: 0 0 100%; }
.walk .end { position: sticky; right: 0; box-shadow: -.6rem 0 .5rem -.3rem var(--ground); }
.walk th.end { background: var(--ground); }
.walk h3 { font-size: .92rem; margin: 1.3rem 0 0; font-weight: 600; }
.walk .legend { font-size: .8rem; color: var(--quiet); margin: .25rem 0 0; }
.walk .legend span { white-space: nowrap; margin-right: 1.2rem; }
.walk .legend i { display: inline-block; width: 7rem; height: .75em; vertical-align: -.05em; border-radius: 2px; }
.walk details { margin: .8rem 0 0; font-size: .92rem; }
.walk summary { cursor: pointer; color: var(--accent); }
.walk .note { color: var(--quiet); font-size: .9rem; }
.walk img { display: block; width: 100%; max-width: 52rem; height: auto; margin-top: .8rem; background: #fff;
  border-radius: 6px; }
"""
DARK = """
.walk { --text: #e4e8ec; --quiet: #a0aab4; --line: #353d45; --ground: #14181c; --shade: #1f262d; --accent: #7cc0f2; }
"""
SMALL = """
@media (max-width: 36rem) { .walk { padding: 1.2rem .9rem 3rem; font-size: 16px; } .walk h1 { font-size: 1.5rem; } }
@media print { .walk { padding: 0; font-size: 10.5pt; --shade: #f4f6f8; } .walk > div { max-width: none; }
  .walk .scroll { overflow: visible; } .walk table { font-size: 7pt; } .walk tbody th { position: static; }
  .walk h2, .walk h3, .walk .formula { break-after: avoid; } .walk tr, .walk img { break-inside: avoid; }
  .walk .wide table, .walk .wide tbody, .walk .wide tr { display: block; } .walk .wide thead { display: none; }
  .walk .wide td, .walk .wide tbody th { display: inline-block; min-width: 5em; } .walk .wide td.gap { min-width: 1em; }
  .walk .wide tbody th { font-weight: 700; } .walk .end { box-shadow: none; position: static; }
  .walk details { display: none; } .walk td { print-color-adjust: exact; -webkit-print-color-adjust: exact; } }
"""


def style() -> str:
    """All rules, under one class, so that a notebook around it keeps its own."""
    dark = "@media screen and (prefers-color-scheme: dark) {" + DARK + _shades(dark=True) + "}"
    return BASE + _shades(dark=False) + dark + SMALL


def level(share: float) -> int:
    """The shade of a number at `share` of the most."""
    return min(max(round(share * (LEVELS - 1)), 0), LEVELS - 1)


def _shades(dark: bool) -> str:
    """Cells a0 .. (above zero), b0 .. (below) and w0 .. (weights), and the bars of their legends."""
    each = [step / (LEVELS - 1) for step in range(LEVELS)]
    ramps = {
        "a": [signed(share, dark) for share in each],
        "b": [signed(-share, dark) for share in each],
        "w": [color(WEIGHTS_DARK if dark else INK, share) for share in each],
    }
    rules = [
        f".walk .{name}{step} {{ background: {hexadecimal(ground)}; color: {hexadecimal(ink_on(ground))}; }}"
        for name, ramp in ramps.items()
        for step, ground in enumerate(ramp)
    ]
    both = [*ramps["b"][::-1], *ramps["a"]]
    rules += [_bar("signed", both), _bar("weight", ramps["w"])]
    return "\n".join(rules) + "\n"


def _bar(name: str, ramp: list[Color]) -> str:
    colors = ", ".join(hexadecimal(each) for each in ramp)
    return f".walk i.{name} {{ background: linear-gradient(to right, {colors}); print-color-adjust: exact; }}"
