"""What all pages share: one self-contained HTML document, its look, its tables, escaped text.

Everything that comes from a config, a record or an error is escaped; the policy in the head
allows nothing but the page's own style and script, by their hashes, and embedded pictures.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Mapping
from html import escape
from pathlib import Path
from typing import Any

from stabsweep.report.style import DARK, INK, STYLES, clean


def _chips() -> str:
    """The colours of the outcomes: white and black change sides where the paper is dark."""
    plain = "".join(
        f".{name} {{ background: {style.colour}; color: {style.ink}; }}\n"
        if not style.hatch
        else f".{name} {{ background: var(--paper); color: var(--ink); }}\n"
        for name, style in STYLES.items()
    )
    dark = "".join(
        f".{name} {{ background: {DARK[style.colour]}; color: {INK}; }} "
        for name, style in STYLES.items()
        if style.colour in DARK
    )
    return f"{plain}@media screen and (prefers-color-scheme: dark) {{ {dark}}}\n"


STYLE = Path(__file__).with_name("look.css").read_text(encoding="utf-8") + _chips()


def document(title: str, body: str, data: str = "", script: str = "") -> str:
    """The page as text.

    Args:
        title: any text.
        body: HTML, in which everything that was given from outside is escaped, see `escaped`.
        data: JSON for the script, in which no element can end, see `page_data.as_json`.
        script: ours; without it a page has none, and its policy allows none.
    """
    policy = [
        "default-src 'none'",
        "img-src data:",
        f"style-src '{_digest(STYLE)}'",
        f"script-src '{_digest(script)}'" if script else "",
        "base-uri 'none'",
        "form-action 'none'",
    ]
    scripts = ""
    if script:
        scripts = f'<script type="application/json" id="data">{data}</script>\n'
        scripts += f"<script>{script}</script>\n"
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta http-equiv="Content-Security-Policy" '
        f'content="{"; ".join(rule for rule in policy if rule)}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escaped(title)}</title>\n<style>{STYLE}</style>\n</head>\n"
        f"<body>\n<main>\n{body}\n</main>\n{scripts}</body>\n</html>\n"
    )


def _digest(text: str) -> str:
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii")
    return f"sha256-{digest}"


def save_page(folder: str | Path, page: str, name: str = "report") -> Path:
    """Writes the page as `report.html` and returns its path."""
    path = Path(folder) / f"{name}.html"
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
