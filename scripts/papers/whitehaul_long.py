"""The WhiteHaul dissertation in runs of a minute and more, in the simulator: a row for each of its figures and tables."""

import json

import whitehaul_long_pictures as pictures
import whitehaul_long_runs as experiments
import whitehaul_long_tables as tables
from simulator import Simulator

# The page that has the tables, and the file with the data.
PAGE = "whitehaul"
NAME = "whitehaul-long"

# Each row: figures and tables of the dissertation, the experiments that make its data, its tables by the
# names of their marks, and its pictures.
ROWS = {
    "figure-4.6": ("figures 4.1, 4.2 and 4.6 to 4.8: controls in nine pairs", [experiments.pairs], tables.of_pairs, pictures.of_pairs),
    "figure-4.9": ("figures 4.9 and 4.10: windows over time", [experiments.windows], tables.of_windows, pictures.of_windows),
    "sweep": ("section 4.4: WhiteHaul's budget and advertised window", [experiments.sweep], tables.of_sweep, pictures.of_sweep),
    "figure-5.5": ("figures 5.5 and 5.6: Edinburgh, each change alone", [experiments.pairs, experiments.changes], tables.of_changes, pictures.of_changes),
    "table-4.1": ("table 4.1: 20-80", [experiments.table_4_1], tables.of_table_4_1, None),
    "figure-5.1": ("figure 5.1: WH-2 starts and stops", [experiments.on_and_off], tables.of_on_and_off, pictures.of_on_and_off),
    "table-5.1": ("table 5.1: 80-80, WhiteHaul", [lambda sim: experiments.fitted(sim, "table_5_1")], tables.of_table_5_1, None),
    "table-5.2": ("table 5.2: 80-80, CUBIC", [lambda sim: experiments.fitted(sim, "table_5_2")], tables.of_table_5_2, None),
    "table-5.3": ("table 5.3: transmission power", [experiments.power], tables.of_power, None),
    "figure-4.11": ("figure 4.11: a file of 300 MB", [experiments.files], tables.of_files, None),
    "figure-4.3": ("figures 4.3 to 4.5: schedulers", [experiments.pairs, experiments.schedulers], tables.of_schedulers, pictures.of_schedulers),
    "figure-5.2": ("figures 5.2 and 5.3, bounds 5.1 to 5.3", [experiments.pairs, experiments.simultaneous], tables.of_bounds, pictures.of_bounds),
    "fbdt": ("sumlink's default beside them", [experiments.pairs, experiments.fbdt], tables.of_fbdt, None),
}

# The data that a row needs; a row without data keeps its table.
KEYS = {
    "figure-4.6": {"pairs", "alone"},
    "figure-4.9": {"windows"},
    "sweep": {"sweep"},
    "figure-5.5": {"changes", "alone"},
    "table-4.1": {"table_4_1"},
    "figure-5.1": {"on_and_off"},
    "table-5.1": {"table_5_1"},
    "table-5.2": {"table_5_2"},
    "table-5.3": {"power"},
    "figure-4.11": {"files"},
    "figure-4.3": {"schedulers", "alone"},
    "figure-5.2": {"simultaneous", "pairs", "alone"},
    "fbdt": {"fbdt", "pairs"},
}


def rows():
    """The names that `--only` takes, with descriptions."""
    return {name: row[0] for name, row in ROWS.items()}


def measure(bench, only=None, kept=None, again=False, seeds=None):
    """The data of all rows, or of one row added to the data kept."""
    sim = Simulator.beside(bench, again, seeds or experiments.MOST_SEEDS)
    data = dict(kept or {})
    for name, (_, parts, *_) in ROWS.items():
        if only in (None, name):
            for part in parts:
                data.update(part(sim))
    return data


def write(data, folder, only=None):
    """Writes data and pictures; returns the tables by their marks."""
    (folder / f"{NAME}.json").write_text(json.dumps(data, separators=(",", ":")) + "\n")
    found = {}
    for name, (_, _, table, picture) in ROWS.items():
        if only in (None, name) and KEYS[name] <= data.keys():
            if picture:
                picture(data, folder)
            found |= table(data)
    return found
