"""A figure with its text: how every plot of the project looks, and how it is saved.

Colours are Okabe and Ito's colour-blind-safe set, and a marker, hatch or line style says the same as
the colour. Files come out the same byte for byte from the same record and package versions.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
from matplotlib.figure import Figure
from matplotlib.font_manager import fontManager

from memstrat.storage import storage_error
from memstrat.wording import check_language, word

SIZE_IN = (10.0, 5.2)
FONT_PT, SMALL_PT, TITLE_PT = 10.5, 9.5, 12.5
GATE_COLOUR, GOOD_COLOUR, WARNING_COLOUR = "#444444", "#009E73", "#D55E00"
CJK_FONTS = ("Noto Sans CJK SC", "Source Han Sans SC", "Source Han Sans CN", "Noto Sans SC", "Microsoft YaHei",
             "PingFang SC", "Hiragino Sans GB", "WenQuanYi Micro Hei", "WenQuanYi Zen Hei", "SimHei",
             "Noto Sans CJK JP")
_DPI = 150


class Look(NamedTuple):
    """How a strategy is drawn."""

    colour: str
    marker: str
    hatch: str
    dashes: tuple[float, ...] | str


_LOOKS = {
    "baseline": Look("#000000", "o", "", "solid"),
    "checkpoint": Look("#0072B2", "s", "//", "dashed"),
    "offload": Look("#E69F00", "^", "\\\\", "dashdot"),
    "hybrid": Look("#009E73", "D", "xx", "dotted"),
}
_OTHER_LOOKS = (Look("#CC79A7", "P", "..", (0, (5, 1))), Look("#56B4E9", "X", "++", (0, (3, 1, 1, 1))),
                Look("#D55E00", "v", "oo", (0, (1, 1))), Look("#7F7F7F", "*", "--", (0, (8, 2))))


def looks_of(names: list[str]) -> dict[str, Look]:
    """A look per strategy: the core ones always the same, others by the order they come in."""
    others = [name for name in dict.fromkeys(names) if name not in _LOOKS]
    return _LOOKS | {name: _OTHER_LOOKS[index % len(_OTHER_LOOKS)] for index, name in enumerate(others)}


class Canvas(NamedTuple):
    """An empty figure in the style, and the language its labels are really in."""

    figure: Figure
    language: str
    note: str  # why the labels are not in the language asked for, or ""


@contextmanager
def canvas(language: str, size_in: tuple[float, float] = SIZE_IN) -> Iterator[Canvas]:
    """Draw inside this block: fonts, sizes and language are set there.

    Raises:
        UnknownNameError: the language is neither en nor zh.
    """
    check_language(language)
    fonts, note = ["DejaVu Sans"], ""
    if language == "zh":
        known = {font.name for font in fontManager.ttflist}
        chinese = next((name for name in CJK_FONTS if name in known), None)
        if chinese is None:
            note, language = word("no_font"), "en"
        else:
            fonts = [chinese, *fonts]
    style = {"font.family": fonts, "font.size": FONT_PT, "axes.titlesize": TITLE_PT, "axes.labelsize": FONT_PT,
             "xtick.labelsize": SMALL_PT, "ytick.labelsize": SMALL_PT, "legend.fontsize": SMALL_PT,
             "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "grid.color": "#E3E3E3",
             "axes.axisbelow": True, "hatch.linewidth": 0.6, "axes.unicode_minus": False}
    with matplotlib.rc_context(style):
        figure = Figure(figsize=size_in, layout="constrained", facecolor="white")
        figure.get_layout_engine().set(w_pad=0.09, h_pad=0.09)
        yield Canvas(figure, language, note)


@dataclass(frozen=True)
class Drawing:
    """A figure, the same in words, and the table it was drawn from (raw values, nothing rounded)."""

    name: str
    figure: Figure
    text: str
    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]

    def save(self, folder: str | Path, stem: str | None = None) -> list[Path]:
        """Write PNG, SVG, the text alternative (.txt) and the table (.csv, .md); returns the paths.

        Raises:
            StorageError, InputError: the folder cannot be written.
        """
        base = Path(folder) / (stem or self.name)
        try:
            base.parent.mkdir(parents=True, exist_ok=True)
            contents = {".png": self._image("png"), ".svg": self._image("svg"), ".txt": (self.text + "\n").encode(),
                        ".csv": self._csv().encode(), ".md": self._markdown().encode()}
            paths = []
            for suffix, content in contents.items():
                path = base.with_name(base.name + suffix)
                path.write_bytes(content)
                paths.append(path)
        except OSError as error:
            raise storage_error(base.parent, error) from None
        return paths

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        """The picture inline in a notebook, with its text alternative."""
        return ({"image/png": self._image("png"), "text/plain": self.text},
                {"image/png": {"alt": self.text}})

    def _image(self, kind: str) -> bytes:
        buffer = io.BytesIO()
        metadata: Mapping[str, Any] = {"Date": None, "Creator": None} if kind == "svg" else {"Software": None}
        with matplotlib.rc_context({"svg.hashsalt": "memstrat", "svg.fonttype": "path"}):
            self.figure.savefig(buffer, format=kind, dpi=_DPI, metadata=metadata)
        return buffer.getvalue()

    def _csv(self) -> str:
        buffer = io.StringIO(newline="")
        writer = csv.writer(buffer, lineterminator="\n")
        writer.writerows([self.columns, *self.rows])
        return buffer.getvalue()

    def _markdown(self) -> str:
        lines = [self.columns, ["---"] * len(self.columns), *([_shown(cell) for cell in row] for row in self.rows)]
        return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines) + "\n"


def _shown(cell: Any) -> str:
    if cell is None:
        return "-"
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    return f"{cell:,.3f}" if isinstance(cell, float) else str(cell)
