"""How does a notebook show a figure? As a PNG, whatever matplotlib's backend is. Needs the extra `plot`."""

from __future__ import annotations

from io import BytesIO

from matplotlib.figure import Figure


class NotebookFigure(Figure):
    """A figure that belongs to no window and no global state, and that a notebook shows by itself."""

    def _repr_png_(self) -> bytes:
        picture = BytesIO()
        self.savefig(picture, format="png")
        return picture.getvalue()
