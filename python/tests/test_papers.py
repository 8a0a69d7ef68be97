"""The pictures of scripts/papers mark all clipped values."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture
def draw() -> Any:
    spec = importlib.util.spec_from_file_location("draw", ROOT / "scripts/papers/draw.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def saved(draw: Any, tmp_path: Path, plot: Any) -> str:
    figure, axes = draw.plt.subplots()
    plot(axes)
    draw.save(figure, tmp_path / "picture.svg")
    return (tmp_path / "picture.svg").read_text()


def test_pictures_have_colors_for_a_dark_scheme(draw: Any, tmp_path: Path) -> None:
    svg = saved(draw, tmp_path, lambda axes: axes.plot([0, 1], [0, 1]))
    assert svg.count("(prefers-color-scheme:dark)") == 1
    # The rules name the colors of the background and of the axes as matplotlib writes them.
    assert 'style="fill: #ffffff"' in svg and 'style="stroke: #000000' in svg
    with pytest.raises(ValueError, match="no style sheet"):
        draw.with_dark_colors("<svg/>")


def test_values_beyond_an_axis_have_an_arrow_and_a_number(draw: Any, tmp_path: Path) -> None:
    def plot(axes: Any) -> None:
        axes.plot([0, 1, 2, 3], [5, 1234, 7, -40])
        axes.bar([2.5], [300])
        axes.set_ylim(0, 100)

    text = saved(draw, tmp_path, plot)
    assert text.count('id="beyond"') == 3
    assert all(number in text for number in ("1234", "300", "40"))


def test_values_on_the_axes_have_no_arrow(draw: Any, tmp_path: Path) -> None:
    def plot(axes: Any) -> None:
        axes.plot([0, 200], [0, 200], zorder=0)
        axes.plot([0, 1, 2], [5, 100, 7])
        axes.set_xlim(0, 2)
        axes.set_ylim(0, 100)

    assert "beyond" not in saved(draw, tmp_path, plot)


def test_no_curve_ends_before_its_data(draw: Any, tmp_path: Path) -> None:
    def plot(axes: Any) -> None:
        axes.plot([0, 1, 2], [5, 6, 7])
        axes.set_xlim(0, 1.5)

    with pytest.raises(ValueError, match="2 is not on the axis from 0 to 1.5"):
        saved(draw, tmp_path, plot)
