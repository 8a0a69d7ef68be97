"""What all pictures have in common."""

import matplotlib

matplotlib.use("svg")

import matplotlib.pyplot as plt  # noqa: E402  (the backend comes first)

# Letters stay letters, and the same data is the same file.
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

# Okabe and Ito's colours, which stay apart for most eyes; an algorithm has the same one in all pictures.
COLOURS = {
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


def save(figure, path):
    """Writes a picture as SVG."""
    figure.savefig(path, format="svg", bbox_inches="tight", metadata={"Date": None})
    plt.close(figure)
    # matplotlib leaves spaces at the ends of lines.
    path.write_text("\n".join(line.rstrip() for line in path.read_text().splitlines()) + "\n")


def bars(axes, groups, series, low=None, high=None, form="{:.2f}"):
    """Bars in groups: `series` has a label, a colour and a value for each group."""
    width = 0.8 / len(series)
    for number, (label, colour, values) in enumerate(series):
        places = [index - 0.4 + width * (number + 0.5) for index in range(len(groups))]
        drawn = axes.bar(places, values, width * 0.92, color=colour, label=label)
        if form:
            axes.bar_label(drawn, labels=[form.format(value) for value in values], fontsize=6.5, padding=1)
    axes.set_xticks(range(len(groups)), groups)
    axes.grid(axis="x", visible=False)
    axes.axhline(0, color="#333333", linewidth=0.8)
    if low is not None or high is not None:
        axes.set_ylim(low, high)
