"""What the pages need beside reStructuredText: drawings, labels in the cells of tables, code that is not broken."""

from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

FOLDER = Path(__file__).resolve().parent
SHORT = 16
"""Characters of code that are not broken."""


class Drawing(SphinxDirective):
    """An SVG of this folder, put into the page itself, so that it has the colours of the page, light or dark."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        path = FOLDER / f"{self.arguments[0]}.svg"
        self.env.note_dependency(str(path))
        return [nodes.raw("", f'<figure class="drawing">{path.read_text()}</figure>', format="html")]


def label_cells(app: Sphinx, tree: nodes.document, name: str) -> None:
    """Put the name of its column into each cell of a table of three columns or more: narrow screens show it there."""
    for table in tree.findall(nodes.table):
        heads = [entry.astext() for head in table.findall(nodes.thead) for entry in head.findall(nodes.entry)]
        for row in (row for body in table.findall(nodes.tbody) for row in body.findall(nodes.row)):
            cells = list(row.findall(nodes.entry))
            for head, cell in list(zip(heads, cells, strict=False))[1 : len(heads) if len(heads) > 2 else 0]:
                cell.insert(0, nodes.paragraph("", head, classes=["cell-label"]))


def mark_short(app: Sphinx, tree: nodes.document, name: str) -> None:
    """Mark code of a word or two, which is to stay in one line."""
    for code in tree.findall(nodes.literal):
        if len(code.astext()) <= SHORT:
            code["classes"].append("short")


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("drawing", Drawing)
    app.connect("doctree-resolved", label_cells)
    app.connect("doctree-resolved", mark_short)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
