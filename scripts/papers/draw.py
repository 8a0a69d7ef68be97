"""Common parts of all pictures."""

import math

import matplotlib

matplotlib.use("svg")

import matplotlib.pyplot as plt  # noqa: E402  (the backend comes first)

# Keeps text as text, and the output reproducible.
plt.rcParams.update(
    {
        "svg.fonttype": "none",
        "svg.hashsalt": "sumlink",
        "font.family": "sans-serif",
        "font.size": 9,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "grid.color": "#e3e3e3",
        "axes.axisbelow": True,
        "legend.frameon": False,
    }
)

# The colors of Okabe and Ito, distinguishable for most readers; an algorithm has the same color in
# all pictures.
COLORS = {
    "cubic": "#0072b2",
    "lia": "#e69f00",
    "whitehaul": "#d55e00",
    "edinburgh": "#009e73",
    "minrtt": "#0072b2",
    "blest": "#e69f00",
    "ecf": "#009e73",
    "simultaneous": "#999999",
    "alone": "#000000",
}
SUBFLOWS = ["#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9", "#999999", "#8c6d1f"]

NAMES = {
    "cubic": "CUBIC",
    "lia": "LIA",
    "whitehaul": "WhiteHaul",
    "edinburgh": "Edinburgh",
    "minrtt": "minRTT",
    "blest": "BLEST",
    "ecf": "ECF",
    "simultaneous": "simultaneous TCP",
    "alone": "each link alone",
}


# Colors for readers who prefer a dark color scheme; matplotlib writes colors as inline styles.
DARK = """@media screen and (prefers-color-scheme:dark){text{fill:#e6e9ed}
[style*="fill: #ffffff"]{fill:#14181d!important}[style*="stroke: #000000"]{stroke:#e6e9ed!important}
[style*="stroke: #333333"]{stroke:#cbd2d9!important}[style*="stroke: #e3e3e3"]{stroke:#353d47!important}
[style*="fill: #f3e6d8"]{fill:#3a2f24!important}[style*="stroke: #f3e6d8"]{stroke:#3a2f24!important}}"""


def with_dark_colors(svg):
    """The picture with a style sheet for a dark color scheme."""
    head, found, rest = svg.partition("</style>")
    if not found:
        raise ValueError("the picture has no style sheet")
    return f"{head}\n{DARK}{found}{rest}"


def save(figure, path):
    """Writes a picture as SVG; values beyond an axis get an arrow with their number."""
    for axes in figure.axes:
        mark_beyond(axes)
    figure.savefig(path, format="svg", bbox_inches="tight", metadata={"Date": None})
    plt.close(figure)
    # matplotlib writes trailing spaces.
    text = "\n".join(line.rstrip() for line in path.read_text().splitlines()) + "\n"
    path.write_text(with_dark_colors(text))


# Minimum distance between a curve's arrows, as a share of the axis; among closer ones the farthest
# is marked.
APART = 0.12
# Width of a number as a share of the axis.
ROOM = 0.25


def mark_beyond(axes):
    """Marks points of curves, bars and scatters above or below the axis; raises for points beside
    it."""
    low, high = sorted(axes.get_ylim())
    left, right = sorted(axes.get_xlim())
    found = []
    for points, color in drawn(axes):
        points = [(x, y) for x, y in points if math.isfinite(x) and math.isfinite(y)]
        hair = 1e-6 * (right - left)
        beside = [x for x, _ in points if not left - hair <= x <= right + hair]
        if beside:
            raise ValueError(f"{axes.get_title() or axes.get_ylabel()}: {beside[0]:g} is not on the axis from {left:g} to {right:g}")
        for edge, sign in ((high, 1), (low, -1)):
            out = [(x, y) for x, y in points if sign * (y - edge) > 1e-9 * (high - low)]
            found += [(x, edge, y, sign, color) for x, y in peaks(out, sign, APART * (right - left))]
    # Numbers of arrows that are close together are stacked.
    rows = []
    for x, edge, value, sign, color in sorted(found, key=lambda one: one[:3]):
        row = sum(side == sign and abs(x - other) < ROOM * (right - left) for other, side in rows)
        rows.append((x, sign))
        arrow(axes, x, edge, value, sign, color, row)


def drawn(axes):
    """The data points with their color; grid lines are below all of them (zorder 0)."""
    for line in axes.lines:
        if line.get_transform() == axes.transData and line.get_zorder() > 0:
            yield list(zip(map(float, line.get_xdata()), map(float, line.get_ydata()))), line.get_color()
    for bars_ in axes.containers:
        for bar in bars_:
            if hasattr(bar, "get_height"):
                yield [(bar.get_x() + bar.get_width() / 2, bar.get_y() + bar.get_height())], bar.get_facecolor()
    for marks in axes.collections:
        if marks.get_offset_transform() == axes.transData:
            edges = marks.get_edgecolor()
            yield [(float(x), float(y)) for x, y in marks.get_offsets()], edges[0] if len(edges) else "black"


def peaks(points, sign, apart):
    """The farthest points, at a minimum distance from each other."""
    kept = []
    for x, y in sorted(points, key=lambda point: -sign * point[1]):
        if all(abs(x - other) >= apart for other, _ in kept):
            kept.append((x, y))
    return kept


def arrow(axes, x, edge, value, sign, color, row):
    axes.plot([x], [edge], marker="^" if sign > 0 else "v", markersize=4, color=color, clip_on=False, zorder=5, gid="beyond")
    place = {"xytext": (3, -sign * (3 + 6.5 * row)), "textcoords": "offset points", "va": "top" if sign > 0 else "bottom"}
    axes.annotate(f"{value:.4g}", (x, edge), fontsize=6, color=color, gid="beyond-number", **place)


def bars(axes, groups, series, low=None, high=None, form="{:.2f}"):
    """Grouped bars: `series` has a label, a color and one value per group."""
    width = 0.8 / len(series)
    for number, (label, color, values) in enumerate(series):
        # A value that is not a number has no bar.
        shown = [(index - 0.4 + width * (number + 0.5), value) for index, value in enumerate(values) if not math.isnan(value)]
        places, heights = [place for place, _ in shown], [value for _, value in shown]
        drawn = axes.bar(places, heights, width * 0.92, color=color, label=label)
        if form:
            axes.bar_label(drawn, labels=[form.format(value) for value in heights], fontsize=6.5, padding=1)
    axes.set_xticks(range(len(groups)), groups)
    axes.grid(axis="x", visible=False)
    axes.axhline(0, color="#333333", linewidth=0.8)
    if low is not None or high is not None:
        axes.set_ylim(low, high)
