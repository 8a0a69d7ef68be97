"""Compared configurations and metrics of the WhiteHaul dissertation's figures."""

import itertools

from metrics import benefit, mean

WIDTHS = (20, 40, 80)
PAIRS = [f"{a}-{b}" for a, b in itertools.product(WIDTHS, WIDTHS)]
QUALITIES = ("clean", "interference")
LINKS = ["wh1", "wh2"]

CONTROLS = ["whitehaul", "cubic", "lia"]
SCHEDULERS = ["minrtt", "blest", "ecf"]
# The pairs, of nine, used to compare schedulers: equal links, and both orders of unequal ones.
SCHEDULED = ["20-80", "80-20", "80-80"]
# The pairs with a short round trip and long queues.
NEAR = ["20-80", "80-80"]
# Congestion controls with drawn windows, under 80-80 and with the spike.
WINDOWS = ["cubic", "lia", "whitehaul", "edinburgh"]
# Runs of each of the three congestion controls with each pair; the dissertation has five.
SEEDS = 2

# How far a throughput may exceed its bound before it counts as a violation.
SLACK = 0.02


def alone(data, pair, quality="clean"):
    a, b = pair.split("-")
    return [data["capacity"][quality]["wh1"][a], data["capacity"][quality]["wh2"][b]]


def benefits(data, pair, quality, row):
    return benefit(mean(row["mbit"]), alone(data, pair))


def edinburgh_row(data, quality, name):
    return data["edinburgh"][quality] if name == "edinburgh" else data["pairs"]["80-80"][quality][name]
