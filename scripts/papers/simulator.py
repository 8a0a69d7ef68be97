"""Runs of scenario files in the simulator, cached on disk."""

import dataclasses
import hashlib
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import time

from runs import TimeIsOver


@dataclasses.dataclass
class Simulator:
    """The program sumlink-lab, the folders of scenarios and results, and the (monotonic) deadline
    for starting runs."""

    program: str
    scenarios: pathlib.Path
    out: pathlib.Path
    deadline: float
    # Repeat completed runs once, too.
    again: bool = False
    # Most seeds of a run.
    most: int = 1000
    repeated: set = dataclasses.field(default_factory=set)

    @classmethod
    def beside(cls, bench, again=False, most=1000):
        """With the program and the folders of the laboratory's bench."""
        return cls(bench.program, bench.scenarios, bench.out / "simulated", bench.deadline, again, most)

    def run(self, name, systems, label, changes, seeds):
        """The outcomes of systems under a variant of a scenario: for each system a list with one
        per seed.

        `label` names the variant. `changes` are values of the scenario's own keys, or under `queue`
        that of all links; under `text` a function of the whole text.
        """
        seeds = min(seeds, self.most)
        file, digest = self._variant(name, label, changes)
        missing = [system for system in systems if not all(self._is_done(file.stem, system, seed, digest) for seed in range(1, seeds + 1))]
        if missing:
            self._simulate(file, missing, seeds, digest)
        return {system: [self._read(file.stem, system, seed) for seed in range(1, seeds + 1)] for system in systems}

    def trace(self, name, system, label, changes, keep):
        """What `keep` makes of the lines of the trace of the first seed of a system."""
        file, digest = self._variant(name, label, changes)
        path = self._file(file.stem, f"{system}-trace", 1)
        if not self._is_done(file.stem, f"{system}-trace", 1, digest):
            self._may_begin(file.stem, [f"{system}, traced"])
            folder = self.out / "traces"
            self._call(["--systems", system, "--seeds", "1", "--trace", str(folder)], file)
            [lines] = folder.glob("*.jsonl")
            with lines.open() as opened:
                kept = keep(json.loads(line) for line in opened)
            for trace in folder.iterdir():
                trace.unlink()
            self._write(path, {"digest": digest, "kept": kept})
        return json.loads(path.read_text())["kept"]

    def _variant(self, name, label, changes):
        """A changed copy of a scenario, and the digest of its text."""
        source = self.scenarios / f"{name}.toml"
        changes = {"name": f"{source.stem}-{label}", **changes}
        text = source.read_text()
        for key, value in changes.items():
            if key == "text":
                text = value(text)
            elif key == "queue":
                text = re.sub(r'^queue = ".*"$', f'queue = "{value}"', text, flags=re.MULTILINE)
            else:
                text = with_key(text, key, value)
        file = self.out / "scenarios" / f"{changes['name']}.toml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file, hashlib.sha256(text.encode()).hexdigest()

    def _file(self, scenario, system, seed):
        return self.out / scenario / f"{system.replace(':', '-')}-{seed}.json"

    def _is_done(self, scenario, system, seed, digest):
        if self.again and (scenario, system, seed) not in self.repeated:
            return False
        file = self._file(scenario, system, seed)
        return file.exists() and json.loads(file.read_text())["digest"] == digest

    def _may_begin(self, scenario, systems):
        if time.monotonic() >= self.deadline:
            raise TimeIsOver
        print(f"papers: simulating {scenario}, {', '.join(systems)}", file=sys.stderr)

    def _call(self, flags, file):
        """Runs the simulator and returns the results that it has written."""
        with tempfile.TemporaryDirectory(dir=self.out) as folder:
            command = [self.program, "sim", "run", str(file), *flags, "--jobs", "1", "--out", folder, "--json"]
            done = subprocess.run(command, stdout=subprocess.DEVNULL, check=False)
            if done.returncode != 0:
                sys.exit(f"{' '.join(command)}: exit code {done.returncode}")
            return [json.loads(path.read_text()) for path in pathlib.Path(folder).glob("*/seed-*/*.json")]

    def _simulate(self, file, systems, seeds, digest):
        self._may_begin(file.stem, systems)
        for run in self._call(["--systems", ",".join(systems), "--seeds", str(seeds)], file):
            if run["outcome"]["kind"] != "measured":
                sys.exit(f"{file.stem}, {run['system']}: {run['outcome']['kind']}: {run['outcome']['reason']}")
            self._write(self._file(file.stem, run["system"], run["seed"]), {"digest": digest, "outcome": run["outcome"]})
            self.repeated.add((file.stem, run["system"], run["seed"]))

    def _write(self, path, found):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(found))

    def _read(self, scenario, system, seed):
        return json.loads(self._file(scenario, system, seed).read_text())["outcome"]


def with_key(text, key, value):
    """The scenario with a value for one of its own keys, replaced or added before the first
    block."""
    line = f'{key} = "{value}"' if isinstance(value, str) else f"{key} = {value}"
    head, found, blocks = text.partition("\n[")
    changed, count = re.subn(rf"^{key} = .*$", line, head, flags=re.MULTILINE, count=1)
    return (changed if count else f"{head.rstrip()}\n{line}\n") + found + blocks
