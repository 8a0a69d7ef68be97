"""The notebook runs, and reproduces its stored outputs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).resolve().parents[1] / "notebooks/first-steps.ipynb"


def figures(notebook: Any) -> list[list[tuple[str, str]]]:
    """Outputs of the cells; pictures only by type, since fonts differ."""
    cells: list[list[tuple[str, str]]] = []
    for cell in notebook.cells:
        said: list[tuple[str, str]] = []
        for output in cell.get("outputs", []):
            if output.output_type == "stream":
                said.append(("stream", output.text))
            elif "image/png" in output.data:
                said.append(("image/png", ""))
            else:
                said.append(("text/plain", output.data["text/plain"]))
        cells.append(said)
    return cells


@pytest.mark.nightly
def test_the_notebook_reproduces_its_outputs() -> None:
    stored = nbformat.read(NOTEBOOK, as_version=4)
    executed = nbformat.from_dict(stored)
    NotebookClient(executed, timeout=300, kernel_name="python3").execute()
    if os.environ.get("WRITE_NOTEBOOK"):
        for cell in executed.cells:
            cell.metadata.pop("execution", None)
        nbformat.write(executed, NOTEBOOK)
        stored = nbformat.read(NOTEBOOK, as_version=4)
    new, old = figures(executed), figures(stored)
    assert any(kind == "image/png" for cell in new for kind, _ in cell)
    for number, (cell, before) in enumerate(zip(new, old, strict=True)):
        assert cell == before, f"cell {number} has different output; check it, then update it with WRITE_NOTEBOOK=1"
