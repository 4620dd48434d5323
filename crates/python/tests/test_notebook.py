"""The notebook runs from start to end."""

import pytest


def test_the_notebook_runs(root):
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    notebook = nbformat.read(root / "examples/search.ipynb", as_version=4)
    nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(root)}}).execute()
    printed = "".join(
        output.get("text", "") for cell in notebook.cells for output in cell.get("outputs", [])
    )
    assert "Galbraith" in printed and "The tower of Ashby is 41 metres high." in printed
    assert "mean" in printed and "PLACE_OF_BIRTH London" in printed
