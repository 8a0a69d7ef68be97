"""Sweeps: every run exactly once, whatever happens to the workers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from conftest import ROOT
from own_classes import AnyPath, DiesOnce, FailsOnLongLinks

import sumlink_sim as sim
from sumlink_sim.__main__ import main
from sumlink_sim.journal import JOURNAL

GRID = {"link.wifi.rate": ["2mbit", "10mbit"], "link.wifi.loss": ["0", "1%"]}


def journal(directory: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (directory / JOURNAL).read_text().splitlines()]


def check_whole(directory: Path, tasks: int) -> None:
    """Every run exists exactly once."""
    ids = Counter(line["task"] for line in journal(directory))
    assert len(ids) == tasks and set(ids.values()) == {1}
    runs = sim.Sweep(directory).runs
    grid = list(runs.columns[3 : list(runs.columns).index("outcome")])
    assert len(runs) == tasks and not runs.duplicated(["system", "seed", *grid]).any()


def test_a_sweep_has_every_combination_and_its_figures(two: dict[str, Any], tmp_path: Path) -> None:
    reports: list[tuple[int, int]] = []
    done = sim.sweep(two, GRID, seeds=2, out=tmp_path / "out", progress=lambda n, of: reports.append((n, of)))
    check_whole(tmp_path / "out", 16)
    assert reports[-1] == (16, 16) and len(done) == 16
    runs = done.runs
    assert list(runs.columns[:5]) == ["scenario", "system", "seed", "link.wifi.rate", "link.wifi.loss"]
    single = sim.run(sim.Scenario(two).set({"link.wifi.rate": "2mbit", "link.wifi.loss": "1%"}), ["sumlink:fbdt"], [2]).runs
    same = runs[(runs["link.wifi.rate"] == "2mbit") & (runs["link.wifi.loss"] == "1%")]
    same = same[(same["system"] == "sumlink:fbdt") & (same["seed"] == 2)]
    assert same["goodput_bps"].item() == single["goodput_bps"].item()
    for name in ("flows", "paths", "series"):
        assert not done.frame(name).empty, name
    assert done.objects.empty and done.messages.empty
    assert (done.paths.groupby(["system", "seed", "link.wifi.rate", "link.wifi.loss"]).size() == 4).all()


def test_an_interrupted_sweep_continues(two: dict[str, Any], tmp_path: Path) -> None:
    whole = sim.sweep(two, GRID, seeds=2, out=tmp_path / "whole", jobs=1).frame("series")
    out = tmp_path / "cut"
    out.mkdir()
    lines = (tmp_path / "whole" / JOURNAL).read_bytes().splitlines(keepends=True)
    # The last line was interrupted while being written.
    (out / JOURNAL).write_bytes(b"".join(lines[:5]) + lines[5][: len(lines[5]) // 2])
    reports: list[int] = []
    again = sim.sweep(two, GRID, seeds=2, out=out, progress=lambda n, _: reports.append(n))
    assert reports == list(range(6, 17))
    check_whole(out, 16)
    pd.testing.assert_frame_equal(again.frame("series"), whole)
    sim.sweep(two, GRID, seeds=2, out=out, progress=lambda n, _: reports.append(n))
    assert len(reports) == 11, "no run is left"
    other = sim.sweep({**two, "warmup": "0.5s"}, GRID, seeds=2, out=out)
    assert len(other) == 16 and len(journal(out)) == 32, "another scenario has its own runs"


def test_python_classes_run_in_processes_and_a_failure_keeps_completed_runs(two: dict[str, Any], tmp_path: Path) -> None:
    out = tmp_path / "out"
    own = {"mine": FailsOnLongLinks}
    grid = {"link.wifi.delay": ["5ms", "6ms", "300ms"]}
    with pytest.raises(sim.RunError) as caught:
        sim.sweep(two, grid, ["sumlink:mine"], 2, out=out, schedulers=own, jobs=1)
    message = str(caught.value)
    assert "scenario two, seed 1, system sumlink:mine, at " in message and "too long" in message
    assert f"(4 of 6 runs are kept in {out})" in message, message
    assert len(sim.Sweep(out)) == 4
    with pytest.raises(sim.ScenarioError, match="it has no runs.parquet"):
        sim.Sweep(tmp_path)


def test_a_cluster_reports_exceptions_and_keeps_completed_runs(two: dict[str, Any], tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed")
    out = tmp_path / "out"
    grid = {"link.wifi.delay": ["5ms", "6ms", "300ms"]}
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, processes=True, dashboard_address=":0", host="127.0.0.1"
    ) as cluster:
        with pytest.raises(sim.RunError, match=r"seed 1, system sumlink:mine, at .* too long .*\(4 of 6 runs are kept"):
            own = {"mine": FailsOnLongLinks}
            sim.sweep(two, grid, ["sumlink:mine"], 2, out=out, schedulers=own, dask=cluster.scheduler_address)
    assert len(sim.Sweep(out)) == 4


def test_a_dead_process_is_reported_and_the_next_call_continues(two: dict[str, Any], tmp_path: Path) -> None:
    own = {"mine": type("Own", (DiesOnce,), {"marker": str(tmp_path / "marker")})}
    arguments = (two, {"congestion": ["cubic", "reno"]}, ["sumlink:mine"], 2)
    with pytest.raises(sim.RunError, match=r"a worker process died: .* of 4 runs are kept"):
        sim.sweep(*arguments, out=tmp_path / "out", schedulers=own, jobs=2)
    sim.sweep(*arguments, out=tmp_path / "out", schedulers=own, jobs=2)
    check_whole(tmp_path / "out", 4)


@pytest.mark.parametrize(
    ("grid", "arguments", "reason"),
    [
        ({}, {}, "grid: empty"),
        ([("duration", ["2s"])], {}, "grid: give values by key, such as .*, not "),
        ({3: ["1mbit"]}, {}, "grid, 3: a key must be text"),
        ({"link.wifi.rate": []}, {}, "grid, link.wifi.rate: no values"),
        ({"link.wifi.rate": "10mbit"}, {}, "grid, link.wifi.rate: give a list"),
        ({"link.wifi.rate": ["1mbit", "1mbit"]}, {}, "grid, link.wifi.rate: a value is repeated"),
        ({"link.wifi.rate": ["1mbit", "-1mbit"]}, {}, "two with link.wifi.rate=-1mbit: link.wifi.rate: "),
        ({"link.wifi.rate": ["900gbit"]}, {}, "two with link.wifi.rate=900gbit: link.wifi.rate: "),
        ({"link.wimax.rate": ["1mbit"]}, {}, "no link.wimax"),
        ({"congestion": ["cubik"]}, {}, "grid, congestion=cubik: the simulator has no congestion control 'cubik'"),
        ({"seed": [1, 2]}, {}, "grid, seed: a column of the results has this name"),
        (GRID, {"systems": ["sumlink:fbtd"]}, "systems: sumlink has no scheduler 'fbtd'"),
        (GRID, {"jobs": 0}, "jobs: 0"),
        (GRID, {"jobs": 1.5}, "jobs: 1.5, but must be a whole number of at least 1"),
        (GRID, {"seeds": 1.5}, "seeds: 1.5, but must be a number from 1 to 100000"),
        (GRID, {"seeds": True}, "seeds: True, but must be a number from 1 to 100000"),
        (GRID, {"seeds": [True]}, "seeds: True is not a whole number"),
    ],
)
def test_an_invalid_sweep_is_an_error_before_any_run(
    two: dict[str, Any], tmp_path: Path, grid: Any, arguments: dict[str, Any], reason: str
) -> None:
    with pytest.raises(sim.ScenarioError, match=reason):
        sim.sweep(two, grid, out=tmp_path / "out", **arguments)
    assert not (tmp_path / "out").exists()


def test_an_unwritable_directory_is_an_error(two: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    for out in (file, file / "below"):
        with pytest.raises(sim.ScenarioError, match=f"out: cannot write to {out}: "):
            sim.sweep(two, GRID, out=out)
    with pytest.raises(sim.ScenarioError, match=f"trace: cannot write to {file}: "):
        sim.run(two, trace=file)


@pytest.mark.parametrize("address", ["", "cluster", "tcp://127.0.0.1", "tcp://127.0.0.1:port", "http://127.0.0.1:8786"])
def test_an_invalid_cluster_address_is_an_immediate_error(two: dict[str, Any], tmp_path: Path, address: str) -> None:
    pytest.importorskip("distributed")
    script = f"import sumlink_sim as sim\nsim.sweep({two!r}, {GRID!r}, out={str(tmp_path / 'out')!r}, dask={address!r})\n"
    # Much sooner than an existing Dask client gives up.
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=50)
    last = done.stderr.splitlines()[-1]
    assert last.startswith(f"sumlink_sim.errors.ScenarioError: dask: {address!r} is not an address such as tcp://host:8786: "), last


def test_two_sweeps_do_not_write_into_one_directory(two: dict[str, Any], tmp_path: Path) -> None:
    def second(done: int, _: int) -> None:
        if done == 1:
            with pytest.raises(sim.ScenarioError, match="another sweep is writing"):
                sim.sweep(two, GRID, seeds=1, out=tmp_path)

    sim.sweep(two, GRID, seeds=1, out=tmp_path, progress=second)
    (tmp_path / JOURNAL).write_text("something else\n")
    with pytest.raises(sim.ScenarioError, match="journal.jsonl:1: not a line of a sweep's journal"):
        sim.sweep(two, GRID, seeds=1, out=tmp_path)


def test_a_worker_with_another_version_is_an_error(two: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sumlink_sim._native.version", "9.9.9")
    with pytest.raises(sim.RunError, match=r"a worker has version .* but this is 9.9.9 \(0 of 16 runs are kept"):
        sim.sweep(two, GRID, seeds=2, out=tmp_path)


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    file = str(ROOT / "scenarios/unequal-queue.toml")
    monkeypatch.chdir(Path(__file__).parent)
    out = str(tmp_path / "out")
    common = ["sweep", file, "--seeds", "1", "--out", out]
    own = ["--scheduler", "mine=own_classes:AnyPath", "--systems", "sumlink:fbdt,sumlink:mine"]
    assert main([*common, *own, "--grid", "link.slow.rate=1mbit,5mbit", "--grid", "duration=4s"]) == 0
    printed = capsys.readouterr().out
    assert "sumlink:mine" in printed and "median goodput in Mbit/s; 4 measured" in printed
    for arguments, reason in [
        (["--grid", "link.slow.rate=fast"], "sumlink-sim: unequal-queue with link.slow.rate=fast: link.slow.rate: "),
        (["--grid", "link.slow.rate"], "--grid link.slow.rate: use KEY=V1,V2"),
        (["--grid", "link.slow.rate="], "grid, link.slow.rate: no values"),
        ([], "grid: empty"),
        (["--scheduler", "mine=nowhere:Mine", "--grid", "duration=4s"], "No module named 'nowhere'"),
        (["--dask", "tcp://127.0.0.1:1", "--grid", "duration=4s"], "dask: no cluster answers at tcp://127.0.0.1:1"),
    ]:
        monkeypatch.setattr("sumlink_sim.workers.DASK_TIMEOUT", 1)
        assert main([*common, *arguments]) == 2, arguments
        caught = capsys.readouterr().err
        assert reason in caught and caught.count("\n") == 1, caught


def test_one_of_two_dask_workers_is_killed_midway(two: dict[str, Any], tmp_path: Path) -> None:
    """Every run exists exactly once, with the results of one machine."""
    distributed = pytest.importorskip("distributed")
    # A Python class makes runs long enough to interrupt, and has to be transferred.
    own = {"mine": AnyPath}
    longer = {**two, "duration": "10s"}
    arguments = (longer, GRID, ["sumlink:mine", "sumlink:fbdt"], 4)
    cluster = distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0", host="127.0.0.1"
    )
    with cluster, distributed.Client(cluster, set_as_default=False) as observer:
        victim = cluster.workers[min(cluster.workers)]
        pid, address = victim.pid, victim.worker_address
        before = set(observer.scheduler_info()["workers"])
        assert len(before) == 2 and address in before
        lost: dict[str, int] = {}

        def kill(done: int, of: int) -> None:
            if done >= of // 2 and not lost:
                # Otherwise no result would be lost with the worker.
                lost.update(done=done, doing=len(observer.processing()[address]))
                os.kill(pid, signal.SIGKILL)

        remote = sim.sweep(*arguments, out=tmp_path / "dask", schedulers=own, dask=cluster.scheduler_address, progress=kill)
        assert lost["done"] == 16 and lost["doing"] > 0, f"it was killed midway, during a run: {lost}"
        assert address not in observer.scheduler_info()["workers"], "the cluster noticed its death"
    check_whole(tmp_path / "dask", 32)
    here = sim.sweep(*arguments, out=tmp_path / "here", schedulers=own)
    for name in ("runs", "flows", "paths", "series"):
        pd.testing.assert_frame_equal(remote.frame(name), here.frame(name))


def test_a_lost_cluster_is_reported_and_completed_runs_are_kept(two: dict[str, Any], tmp_path: Path) -> None:
    pytest.importorskip("distributed")
    out, file = tmp_path / "out", tmp_path / "scheduler.json"
    common = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": tmp_path}
    dask = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", "0"]
    scheduler = subprocess.Popen([*dask, "--dashboard-address", ":0", "--scheduler-file", str(file)], **common)
    dask = [sys.executable, "-m", "distributed.cli.dask_worker", "--scheduler-file", str(file), "--nthreads", "1"]
    worker = subprocess.Popen([*dask, "--no-dashboard", "--death-timeout", "60"], **common)
    try:
        while not (file.exists() and file.stat().st_size):
            assert scheduler.poll() is None
            time.sleep(0.05)
        address = json.loads(file.read_text())["address"]

        def kill(done: int, _: int) -> None:
            if done == 3:
                scheduler.kill()

        own = {"mine": AnyPath}
        longer = {**two, "duration": "10s"}
        with pytest.raises(sim.RunError, match=r"scenario two, seed \d, system sumlink:mine: the cluster has no result: .* runs are kept") as caught:
            sim.sweep(longer, GRID, ["sumlink:mine"], 4, out=out, schedulers=own, dask=address, progress=kill)
        assert "\n" not in str(caught.value)
        assert 3 <= len(sim.Sweep(out)) < 16
    finally:
        for process in (scheduler, worker):
            process.kill()
            process.wait()


def test_a_killed_sweep_keeps_all_reported_runs(two: dict[str, Any], tmp_path: Path) -> None:
    out = tmp_path / "out"
    script = (
        "import sumlink_sim as sim\n"
        f"sim.sweep({two!r}, {GRID!r}, seeds=50, out={str(out)!r}, jobs=1, progress=lambda n, _: print(n, flush=True))\n"
    )
    running = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert running.stdout is not None
    for line in running.stdout:
        if int(line) >= 20:
            break
    running.send_signal(signal.SIGKILL)
    running.wait()
    kept = len([line for line in (out / JOURNAL).read_bytes().splitlines(keepends=True) if line.endswith(b"\n")])
    assert kept >= 20
    done = sim.sweep(two, GRID, seeds=50, out=out)
    check_whole(out, 400)
    assert len(done) == 400


def test_control_c_keeps_completed_runs(two: dict[str, Any], tmp_path: Path) -> None:
    out = tmp_path / "out"

    def interrupt(done: int, _: int) -> None:
        if done == 5:
            os.kill(os.getpid(), signal.SIGINT)
            # The signal is handled between two steps of the interpreter.
            time.sleep(0)

    with pytest.raises(KeyboardInterrupt):
        sim.sweep(two, GRID, seeds=20, out=out, jobs=1, progress=interrupt)
    assert 5 <= len(sim.Sweep(out)) < 160
