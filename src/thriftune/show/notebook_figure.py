"""A matplotlib figure that notebooks display without a backend. Needs the extra `plot`."""

from __future__ import annotations

from io import BytesIO

from matplotlib.figure import Figure


class NotebookFigure(Figure):
    """A figure outside matplotlib's global state, which a notebook displays as a PNG."""

    def _repr_png_(self) -> bytes:
        png = BytesIO()
        self.savefig(png, format="png")
        return png.getvalue()
