"""Compared configurations of the WhiteHaul dissertation's figures."""

import itertools

WIDTHS = (20, 40, 80)
PAIRS = [f"{a}-{b}" for a, b in itertools.product(WIDTHS, WIDTHS)]
QUALITIES = ("clean", "interference")
LINKS = ["wh1", "wh2"]

CONTROLS = ["whitehaul", "cubic", "lia"]
# The pairs measured in the laboratory; the simulator has all nine.
LABORATORY = ["20-80", "80-80"]
# Congestion controls of the laboratory's pairs, and of the spike.
WINDOWS = ["cubic", "lia", "whitehaul", "edinburgh"]

# How far a throughput may exceed its bound before it counts as a violation.
SLACK = 0.02
