"""Runs: equal to the program's, with custom classes, and their error messages."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT
from own_classes import AnyPath, Both, FailsLate, Leaves, Modest, NoStart, Nonsense, Rambles, Reno, ShortestWay, Timid

import sumlink_sim as sim
from sumlink_sim.__main__ import main


def test_the_program_and_the_package_agree_to_the_last_bit(program: Path, tmp_path: Path) -> None:
    file = ROOT / "scenarios/unequal-queue.toml"
    systems = ["alone", "mptcp", "sumlink:fbdt", "sumlink:minrtt+reno"]
    command = [program, "sim", "run", file, "--seeds", "2", "--systems", ",".join(systems), "--out", tmp_path]
    subprocess.run(command, check=True, capture_output=True)
    results = sim.run(file, systems, 2)
    assert len(results) == 8
    for run in results.raw:
        name = run["system"].replace(":", "-")
        written = json.loads((tmp_path / "unequal-queue" / f"seed-{run['seed']}" / f"{name}.json").read_text())
        assert written == run


@pytest.mark.nightly
def test_debug_and_optimized_builds_produce_the_same_events(program: Path) -> None:
    """The tests' program is a debug build, the package an optimized one; most runs use the
    engine."""
    assert sim._native.optimized and "debug" in program.parts, "otherwise the comparison is void"
    systems = ["alone", "mptcp", "sumlink:fbdt", "sumlink:minrtt+olia", "sumlink:blest+illinois+2"]
    for name in ("train", "selftest-10-10-1-25"):
        file = ROOT / f"scenarios/{name}.toml"
        command = [program, "sim", "run", file, "--seeds", "1", "--json", "--systems", ",".join(systems)]
        lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
        slow = [json.loads(line)["event_log"] for line in lines]
        fast = [run["outcome"]["event_log"] for run in sim.run(file, systems, 1).raw]
        assert slow == fast, name
        assert all(digest["entries"] > 1000 for digest in fast) and len({digest["hash"] for digest in fast}) == len(systems)


def test_the_same_seed_gives_the_same_run_at_any_parallelism(two: dict[str, Any]) -> None:
    one = sim.run(two, seeds=3, jobs=1)
    many = sim.run(two, seeds=3, jobs=4)
    assert one.raw == many.raw
    assert one.raw[0] != one.raw[2]
    assert sim.run(two, seeds=[3]).raw == one.raw[4:]


def test_frames_have_their_columns_and_agree_with_each_other(two: dict[str, Any]) -> None:
    results = sim.run(two)
    runs = results.runs
    assert list(runs["system"]) == ["alone", "sumlink:fbdt"] * 2 and list(runs["seed"]) == [1, 1, 2, 2]
    assert set(runs["outcome"]) == {"measured"}
    flows = results.flows.groupby(["system", "seed"])["goodput_bps"].sum()
    for row in runs.itertuples():
        assert math.isclose(flows[(row.system, row.seed)], row.goodput_bps)
    paths = results.paths.query("direction == 'down'").groupby(["system", "seed"])["share"].sum()
    assert ((paths - 1).abs() < 1e-9).all()
    series = results.series.query("of == 'run' and system == 'sumlink:fbdt' and seed == 1")
    measured = series[series["time_s"] >= 1]["bps"].mean()
    assert math.isclose(measured, runs["goodput_bps"][1], rel_tol=0.01)
    assert 12e6 < runs["goodput_bps"][1] < 15.5e6  # bytes held at the end of the warmup count too
    assert results.objects.empty and list(results.objects.columns[:3]) == ["scenario", "system", "seed"]


def test_objects_messages_and_missing_values(two: dict[str, Any]) -> None:
    files = {**two, "workload": {"kind": "files", "sizes": ["10kB", "100kB"], "count": 2, "gap": "100ms"}, "duration": "5s"}
    del files["warmup"]
    objects = sim.run(files, ["sumlink:fbdt"], 1).objects
    assert list(objects["size_bytes"]) == [10_000, 100_000] * 2 and (objects["duration_s"] > 0.01).all()
    asked = sim.run({**two, "workload": {"kind": "requests"}}, ["alone", "sumlink:fbdt"], 1).messages
    assert set(asked["link"].dropna()) == {"wifi", "lte"} and asked["delay_ms"].min() > 10
    skipped = sim.run(two, ["aggligator"], 1).runs
    assert skipped["outcome"][0] == "skipped" and "does not have" in skipped["reason"][0]


def test_a_scheduler_in_python_carries_both_links(two: dict[str, Any]) -> None:
    own = {"shortest": ShortestWay, "any": AnyPath}
    runs = sim.run(two, ["sumlink:shortest", "sumlink:any", "sumlink:fbdt:interactive=any"], 1, schedulers=own).runs
    assert (runs["goodput_bps"] > 9e6).all(), runs
    assert sim.run(two, ["sumlink:any"], 1, schedulers=own).raw == sim.run(two, ["sumlink:any"], 1, schedulers=own).raw


def test_repeats_are_counted_as_duplicates(two: dict[str, Any]) -> None:
    runs = sim.run(two, ["sumlink:both"], 1, schedulers={"both": Both}).runs
    assert runs["duplicates_bytes"][0] > 0.2 * runs["bytes"][0]


def test_the_base_class_is_reno_to_the_last_bit(two: dict[str, Any]) -> None:
    own = {"mine": Reno}
    mine, known = sim.run(two, ["sumlink:minrtt+mine", "sumlink:minrtt+reno"], 1, congestion_controls=own).raw
    assert mine["outcome"] == known["outcome"] and mine["outcome"]["retransmissions"] > 0
    files = {**two, "workload": {"kind": "requests", "load": True, "gap": "400ms"}, "duration": "4s"}
    for scenario in (two, files):
        mine = sim.run({**scenario, "congestion": "mine"}, ["alone"], 2, congestion_controls=own).raw
        known = sim.run({**scenario, "congestion": "reno"}, ["alone"], 2).raw
        assert [run["outcome"] for run in mine] == [run["outcome"] for run in known]


def test_windows_and_pacing_of_a_class_apply(two: dict[str, Any]) -> None:
    slow = sim.run({**two, "congestion": "timid"}, ["alone"], 1, congestion_controls={"timid": Timid}).flows
    assert (slow["goodput_bps"] < 100 * 1448 * 8 * 1.05).all(), slow


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("send", "answered 'send', which is neither None nor"),
        (("send", 0, 1), "answered ('send', 0, 1), which is"),
        (("send", 0, -5, 3), "answered ('send', 0, -5, 3), which is"),
        (("keep", 0, 0, 1), "answered ('keep', 0, 0, 1), which is"),
        (("send", 99, 0, 1), "bytes 0..1 of stream 99: the stream does not exist"),
        (("send", 0, 5, 5), "bytes 5..5 of stream 0: an empty range"),
        (("send", 0, 0, 1 << 40), "exceed the budget of"),
        (("send", 0, 1 << 40, (1 << 40) + 5), "are not all unsent"),
        (("send", 0, 0, 10**40), "answered ('send', 0, 0, 1000"),
        (("send", 0, math.nan, 5), "answered ('send', 0, nan, 5), which is"),
        (["send", 0, 0, 5], "answered ['send', 0, 0, 5], which is"),
        (True, "answered True, which is"),
        (("race", 0, 0, 5), "are not all sent and unacknowledged"),
    ],
)
def test_an_invalid_pick_is_reported_with_its_place(two: dict[str, Any], answer: Any, reason: str) -> None:
    own = type("Own", (Nonsense,), {"answer": answer})
    with pytest.raises(sim.RunError) as caught:
        sim.run(two, ["alone", "sumlink:odd"], [7, 8], schedulers={"odd": own}, jobs=1)
    message = str(caught.value)
    assert message.startswith("scenario two, seed 7, system sumlink:odd, at ") and "the scheduler odd, pick: " in message
    assert reason in message and "\n" not in message
    assert caught.value.results is not None and [run["system"] for run in caught.value.results.raw] == ["alone"]


def test_exceptions_of_a_class_are_reported_with_place_and_cause(two: dict[str, Any]) -> None:
    with pytest.raises(sim.RunError, match=r"seed 2, .* at 0\.\d+ s: the scheduler late, pick: RuntimeError: out of ideas") as caught:
        sim.run(two, ["sumlink:late"], [2], schedulers={"late": FailsLate})
    assert isinstance(caught.value.__cause__, RuntimeError) and "own_classes.py:" in str(caught.value)
    with pytest.raises(sim.RunError, match="the scheduler no, __init__: ValueError: not today"):
        sim.run(two, ["sumlink:no"], 1, schedulers={"no": NoStart})
    with pytest.raises(sim.RunError, match="the scheduler modest, __init__: ValueError: max_paths is 0; it must be a whole number"):
        sim.run(two, ["sumlink:modest"], 1, schedulers={"modest": Modest})
    nothing = type("Nothing", (sim.Scheduler,), {})
    with pytest.raises(sim.RunError, match="NotImplementedError: Nothing has no method pick"):
        sim.run(two, ["sumlink:nothing"], 1, schedulers={"nothing": nothing})


@pytest.mark.parametrize(
    ("attribute", "value", "reason"),
    [
        ("cwnd", math.nan, "set cwnd to nan; it must be a number of packets from 1 to 1e9"),
        ("cwnd", -1, "set cwnd to -1; "),
        ("cwnd", 10**400, "set cwnd to 1000"),
        ("cwnd", "ten", "set cwnd to 'ten'; "),
        ("ssthresh", None, "set ssthresh to None; it must be at least 1 packet, or math.inf"),
        ("pacing_rate", 0, "set pacing_rate to 0; it must be above 0 packets per second, or None"),
        ("pacing_rate", math.inf, "set pacing_rate to inf; "),
    ],
)
def test_an_invalid_window_is_reported_with_its_place(
    two: dict[str, Any], attribute: str, value: Any, reason: str
) -> None:
    own = type("Own", (Leaves,), {"attribute": attribute, "value": value})
    with pytest.raises(sim.RunError) as caught:
        sim.run(two, ["alone", "sumlink:fbdt+odd"], 1, congestion_controls={"odd": own}, jobs=1)
    message = str(caught.value)
    assert "system sumlink:fbdt+odd, at " in message and f"the congestion control odd, on_ack: {reason}" in message
    assert "\n" not in message and len(message) < 500
    assert caught.value.results is not None and len(caught.value.results) == 1


@pytest.mark.parametrize(
    ("attribute", "value", "reason"),
    [
        ("max_paths", True, "max_paths is True; it must be a whole number of at least 1, or None"),
        ("max_paths", "two", "max_paths is 'two'; "),
        ("repeats_all", "no", "repeats_all is 'no'; it must be True or False"),
        ("wants_flights", None, "wants_flights is None; it must be True or False"),
    ],
)
def test_invalid_attributes_are_errors(two: dict[str, Any], attribute: str, value: Any, reason: str) -> None:
    own = type("Own", (AnyPath,), {attribute: value})
    with pytest.raises(sim.RunError, match=f"the scheduler odd, __init__: ValueError: {reason}"):
        sim.run(two, ["sumlink:odd"], 1, schedulers={"odd": own})


@pytest.mark.parametrize("raised", [SystemExit(3), GeneratorExit()])
def test_a_class_that_exits_ends_only_its_run(two: dict[str, Any], raised: BaseException) -> None:
    def pick(*_: Any) -> None:
        raise raised

    own = type("Own", (sim.Scheduler,), {"pick": pick})
    with pytest.raises(sim.RunError, match=f"the scheduler odd, pick: {type(raised).__name__}") as caught:
        sim.run(two, ["alone", "sumlink:odd"], 1, schedulers={"odd": own}, jobs=1)
    assert caught.value.__cause__ is raised
    assert caught.value.results is not None and len(caught.value.results) == 1


RARELY_CALLED = {
    "paths_changed": "sumlink:odd",
    "stream_gone": "sumlink:odd",
    "on_loss": "sumlink:fbdt+odd",
    "on_timeout": "sumlink:fbdt+odd",
    "on_recovery_exit": "sumlink:fbdt+odd",
    "on_spurious_loss": "sumlink:fbdt+odd",
    "on_idle_end": "sumlink:fbdt+odd",
}


@pytest.mark.parametrize("method", RARELY_CALLED)
def test_every_method_that_raises_is_named(two: dict[str, Any], method: str) -> None:
    def fails(*_: Any) -> None:
        raise LookupError("out of ideas")

    base: type = AnyPath if RARELY_CALLED[method] == "sumlink:odd" else Reno
    own = {"odd": type("Own", (base,), {method: fails})}
    # One link is silent for a while, and objects end streams.
    silent = [{"at": "1.5s", "link": "lte", "rate": "0"}, {"at": "3s", "link": "lte", "rate": "5mbit"}]
    scenario = {**two, "duration": "6s", "event": silent}
    if method == "stream_gone":
        scenario = {**scenario, "workload": {"kind": "files", "sizes": ["10kB"], "count": 5}}
        del scenario["warmup"]
    with pytest.raises(sim.RunError, match=rf"at \d\.\d+ s: the .* odd, {method}: LookupError: out of ideas \(.*\.py:\d+\)$") as caught:
        if base is AnyPath:
            sim.run(scenario, ["alone", RARELY_CALLED[method]], 1, schedulers=own, jobs=1)
        else:
            sim.run(scenario, ["alone", RARELY_CALLED[method]], 1, congestion_controls=own, jobs=1)
    assert caught.value.results is not None and len(caught.value.results) == 1


def test_every_error_message_is_one_line(two: dict[str, Any]) -> None:
    with pytest.raises(sim.RunError, match=r"pick: ValueError: out of ideas and words .*\.\.\. \(.*own_classes.py:\d+\)$") as caught:
        sim.run(two, ["sumlink:rambles"], 1, schedulers={"rambles": Rambles})
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 600


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"systems": ["sumlink:fbtd"]}, "systems: sumlink has no scheduler 'fbtd'"),
        ({"systems": ["tcp"]}, "systems: there is no system 'tcp'"),
        ({"systems": "alone"}, r"systems: give a list, such as \['alone'\]"),
        ({"systems": []}, "systems: the list is empty"),
        ({"systems": ["alone", "alone"]}, "systems: 'alone' is repeated"),
        ({"systems": ["sumlink:fbdt+bbr"]}, "systems, sumlink:fbdt\\+bbr: the simulator has no congestion control 'bbr'"),
        ({"seeds": 0}, "seeds: 0, but must be a number from 1"),
        ({"seeds": []}, "seeds: the list is empty"),
        ({"jobs": 0}, "jobs: 0"),
        ({"schedulers": {"fbdt": AnyPath}}, "schedulers\\['fbdt'\\]: this name is built in"),
        ({"schedulers": {"a b": AnyPath}}, "1 to 15 letters"),
        ({"schedulers": {"mine": object}}, "give a class derived from sumlink_sim.Scheduler"),
        ({"congestion_controls": {"mine": Reno()}}, "give a class derived from sumlink_sim.CongestionControl"),
    ],
)
def test_invalid_arguments_are_errors_before_any_run(
    two: dict[str, Any], arguments: dict[str, Any], reason: str
) -> None:
    with pytest.raises(sim.ScenarioError, match=reason):
        sim.run(two, **arguments)


def test_a_trace_is_written_for_each_run(two: dict[str, Any], tmp_path: Path) -> None:
    sim.run(two, ["sumlink:fbdt"], 2, trace=tmp_path / "traces")
    lines = (tmp_path / "traces/two-seed-2-sumlink-fbdt.jsonl").read_text().splitlines()
    assert {json.loads(line)["event"] for line in lines} >= {"data", "held", "path", "read", "up"}
    sim.run(two, ["alone"], 1, trace=tmp_path / "none")
    assert not list((tmp_path / "none").iterdir()), "a system without trace data leaves no empty file"


def test_other_python_threads_run_during_a_simulation(two: dict[str, Any]) -> None:
    """The run lasts far longer than the other thread, which would be blocked if the lock were
    held."""
    counted, over = 0, threading.Event()

    def count() -> None:
        nonlocal counted
        while not over.is_set():
            counted += 1

    other = threading.Thread(target=count)
    other.start()
    from sumlink_sim import _native

    before = counted
    _native.run(sim.Scenario({**two, "duration": "60s"})._inner, "sumlink:fbdt", 1, {}, {})
    between = counted - before
    over.set()
    other.join()
    assert between > 1000


def interrupt(script: str, begun: str) -> None:
    """Runs a script until it prints a line, and ends it with Ctrl-C."""
    words = [sys.executable, "-c", script]
    pipe = subprocess.PIPE
    with subprocess.Popen(words, stdout=pipe, stderr=pipe, text=True, cwd=Path(__file__).parent) as running:
        try:
            assert running.stdout is not None and running.stdout.readline() == f"{begun}\n"
            os.kill(running.pid, signal.SIGINT)
            _, caught = running.communicate(timeout=60)
            assert running.returncode == -signal.SIGINT and "KeyboardInterrupt" in caught
        finally:
            running.kill()


def test_control_c_ends_a_run(two: dict[str, Any]) -> None:
    script = (
        "import sumlink_sim as sim, sys\n"
        f"scenario = sim.Scenario({dict(two, duration='1h')!r})\n"
        "print('begun', flush=True)\n"
        "sim._native.run(scenario._inner, 'sumlink:fbdt', 1, {}, {})\n"
    )
    interrupt(script, "begun")


def test_one_command_compares_a_custom_scheduler(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    readme = (ROOT / "python/README.md").read_text()
    (tmp_path / "mine.py").write_text(readme.split("<!-- mine.py -->\n```python\n")[1].split("```")[0])
    (tmp_path / "bad.py").write_text("import sumlink_sim as sim\n\nclass Bad(sim.Scheduler):\n    pass\n")
    monkeypatch.chdir(tmp_path)
    file = str(ROOT / "scenarios/unequal-queue.toml")
    assert main(["run", file, "--scheduler", "mine=mine:Mine", "--seeds", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    goodput = {line.split()[0]: float(line.split()[2]) for line in lines if line.startswith(("alone", "sumlink:"))}
    assert list(goodput)[0] == "sumlink:mine" and {"alone", "sumlink:fbdt"} < set(goodput)
    assert goodput["sumlink:mine"] > 50
    asked = ["--systems", "alone,sumlink:bad", "--seeds", "1", "--jobs", "1"]
    assert main(["run", file, "--scheduler", "bad=bad:Bad", *asked]) == 1
    caught = capsys.readouterr()
    assert "seed 1, system sumlink:bad, at 0." in caught.err and "Bad has no method pick" in caught.err
    assert caught.err.count("\n") == 1 and "\nalone " in caught.out, "completed runs are shown"
    for arguments, reason in [
        (["--systems", "sumlink:yours"], "systems: sumlink has no scheduler 'yours'"),
        (["--scheduler", "mine=mine:Yours"], "module 'mine' has no attribute 'Yours'"),
        (["--seeds", "0"], "seeds: 0, but must be a number from 1"),
        (["--jobs", "0"], "jobs: 0"),
    ]:
        assert main(["run", file, *arguments]) == 2, arguments
        caught = capsys.readouterr()
        assert reason in caught.err and caught.err.count("\n") == 1 and not caught.out


def test_an_unreadable_scenario_is_a_one_line_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bytes.toml").write_bytes(b"name = \xff")
    sweep = ["--grid", "duration=4s", "--out", str(tmp_path / "out")]
    for name, reason in [
        ("none.toml", "No such file or directory"),
        (".", "Is a directory"),
        ("bytes.toml", "not UTF-8 text (byte 7)"),
    ]:
        file = str(tmp_path / name)
        for arguments in (["run", file], ["sweep", file, *sweep]):
            assert main(arguments) == 2, arguments
            caught = capsys.readouterr().err
            assert reason in caught and file.removesuffix("/.") in caught and caught.count("\n") == 1, caught
            assert "Errno" not in caught, caught


def test_control_c_ends_a_class_that_never_returns(two: dict[str, Any]) -> None:
    script = (
        "import sumlink_sim as sim\nfrom own_classes import NeverAnswers\n"
        f"sim.run({two!r}, ['sumlink:mine'], 1, schedulers={{'mine': NeverAnswers}})\n"
    )
    interrupt(script, "thinking")


def test_the_example_of_the_readme_runs(capsys: pytest.CaptureFixture[str]) -> None:
    text = (ROOT / "python/README.md").read_text()
    example = text.split("```python\n")[1].split("```")[0]
    exec(compile(example, "README.md", "exec"), {"__name__": "readme"})
    printed = capsys.readouterr().out
    assert "sumlink:mine" in printed and "sumlink:fbdt" in printed
