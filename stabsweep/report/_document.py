"""What all pages share: one self-contained HTML document, its look, its tables, escaped text.

Everything that comes from a config, a record or an error is escaped; the policy in the head
allows nothing but the page's own style and embedded pictures, so there is no script at all.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Mapping
from html import escape
from pathlib import Path
from typing import Any

from stabsweep.report.style import STYLES, clean

STYLE = """
:root { color-scheme: light dark; --ink: #1a1a1a; --quiet: #5a5a5a; --line: #d5d5d5;
  --paper: #fff; --box: #f4f6f8; --warn: #fff3cd; --warn-ink: #5c4400; }
@media (prefers-color-scheme: dark) { :root { --ink: #e8e8e8; --quiet: #a5a5a5; --line: #444;
  --paper: #16181b; --box: #22262b; --warn: #43370d; --warn-ink: #ffe9a8; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.5rem 1rem 4rem; max-width: 76rem; color: var(--ink);
  background: var(--paper); font: 1rem/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.6rem; line-height: 1.25; margin: 0 0 .5rem; }
h2 { font-size: 1.15rem; margin: 2.2rem 0 .5rem; }
p { margin: .4rem 0; max-width: 52rem; }
.quiet { color: var(--quiet); }
.warn { background: var(--warn); color: var(--warn-ink); padding: .5rem .8rem;
  border-radius: .4rem; }
pre { background: var(--box); padding: .7rem .9rem; border-radius: .4rem; overflow-x: auto;
  user-select: all; white-space: pre-wrap; margin: .4rem 0; }
figure { margin: 1rem 0; }
img { width: 100%; height: auto; background: #fff; border-radius: .4rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .92rem; }
th, td { text-align: left; padding: .25rem .7rem .25rem 0; border-bottom: 1px solid var(--line);
  vertical-align: top; white-space: nowrap; }
td.text { white-space: normal; min-width: 18rem; }
tr.pick td { font-weight: 700; }
.chip { display: inline-block; min-width: 1.5em; text-align: center; border-radius: .25rem;
  border: 1px solid var(--line); }
""" + "\n".join(
    f".{name} {{ background: {style.colour}; color: {style.ink}; }}"
    for name, style in STYLES.items()
)


def document(title: str, body: str) -> str:
    """The page as text.

    Args:
        title: any text.
        body: HTML, in which everything that was given from outside is escaped, see `escaped`.
    """
    digest = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode("ascii")
    policy = (
        f"default-src 'none'; img-src data:; style-src 'sha256-{digest}'; base-uri 'none'; "
        "form-action 'none'"
    )
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escaped(title)}</title>\n<style>{STYLE}</style>\n</head>\n"
        f"<body>\n<main>\n{body}\n</main>\n</body>\n</html>\n"
    )


def save_page(folder: str | Path, page: str) -> Path:
    """Writes the page as `report.html` and returns its path."""
    path = Path(folder) / "report.html"
    # A lone surrogate, from a file name that is not UTF-8, must not stop the report.
    path.write_text(page, encoding="utf-8", errors="replace", newline="\n")
    return path


def picture(png: bytes, alt: str) -> str:
    """A picture with the words that stand for it."""
    image = base64.b64encode(png).decode("ascii")
    return f'<figure><img alt="{escaped(alt)}" src="data:image/png;base64,{image}"></figure>'


def table(head: Iterable[str], body: Iterable[str]) -> list[str]:
    """A table whose rows are HTML."""
    cells = "".join(f'<th scope="col">{escaped(name)}</th>' for name in head)
    return [
        f'<div class="wide"><table><thead><tr>{cells}</tr></thead><tbody>',
        *body,
        "</tbody></table></div>",
    ]


def chip(name: str) -> str:
    """An outcome with its glyph on its colour, a key of `STYLES`."""
    return f'<span class="chip {name}">{STYLES[name].glyph}</span> {STYLES[name].label}'


def given(values: Mapping[str, Any], heading: str) -> list[str]:
    """What a reader may want to read word by word: heading -> text or mapping."""
    found = [f"<h2>{escaped(heading)}</h2>"] if values else []
    for name, value in values.items():
        shown = "\n".join(_lines(value)) if isinstance(value, Mapping) else _multiline(value)
        found.append(f"<p>{escaped(name)}</p><pre>{escape(shown)}</pre>")
    return found


def escaped(value: object) -> str:
    """Any text as HTML that shows it and does nothing."""
    return escape(clean(value), quote=True)


def _lines(values: Mapping[str, Any], indent: str = "") -> Iterable[str]:
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            yield f"{indent}{clean(key)}:"
            yield from _lines(value, indent + "  ")
        else:
            yield f"{indent}{clean(key)}: {clean(value)}"


def _multiline(value: Any) -> str:
    return "\n".join(clean(line) for line in str(value).splitlines())
