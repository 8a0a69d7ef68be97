"""Workers that perform the runs of a sweep: threads, processes, or a Dask cluster."""

from __future__ import annotations

import functools
import multiprocessing
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from typing import Any, NamedTuple

import cloudpickle

from . import _native
from .errors import RunError, ScenarioError
from .results import Run
from .running import Own, run_one
from .scenario import Scenario

DASK_TIMEOUT = 30
"""Seconds to wait for an answer from a cluster."""


class Payload(NamedTuple):
    """A run to be performed by a worker."""

    id: str
    scenario: Scenario
    system: str
    seed: int
    classes: bytes
    """Pickled custom schedulers and congestion controls."""

    @property
    def place(self) -> str:
        """Description for messages."""
        return f"scenario {self.scenario.name}, seed {self.seed}, system {self.system}"


@functools.lru_cache(maxsize=4)
def _unpickled(classes: bytes) -> Own:
    return Own(*cloudpickle.loads(classes))


def work(payload: Payload) -> tuple[str, Run]:
    """Performs a run in the current worker."""
    return payload.id, run_one(payload.scenario, payload.system, payload.seed, _unpickled(payload.classes))


def on_threads(todo: list[Payload], jobs: int) -> Iterator[tuple[str, Run]]:
    """For runs without Python classes: the simulator releases Python's lock, so threads use all
    cores."""
    return _gather(ThreadPoolExecutor(jobs), todo)


def on_processes(todo: list[Payload], jobs: int) -> Iterator[tuple[str, Run]]:
    """For runs with Python classes, which hold the lock."""
    context = multiprocessing.get_context("spawn")
    return _gather(ProcessPoolExecutor(min(jobs, len(todo)), mp_context=context), todo)


def _gather(pool: Executor, todo: list[Payload]) -> Iterator[tuple[str, Run]]:
    """Results as they complete. After a failure, runs in progress complete and are included."""
    futures = [pool.submit(work, payload) for payload in todo]
    left = set(futures)
    try:
        for future in as_completed(futures):
            left.discard(future)
            yield future.result()
    except (RunError, BrokenProcessPool) as error:
        pool.shutdown(wait=True, cancel_futures=True)
        for future in left:
            if not future.cancelled() and future.exception() is None:
                yield future.result()
        if isinstance(error, BrokenProcessPool):
            raise RunError(f"a worker process died: {error}") from error
        raise
    except KeyboardInterrupt:
        _native.interrupt()
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def client_of(address: str) -> tuple[Any, Any]:
    """The package `distributed`, and a client of an existing cluster."""
    try:
        import distributed as package
    except ImportError as error:
        raise ScenarioError("dask: the package distributed is missing; pip install 'sumlink-sim[dask]'") from error
    distributed: Any = package  # some of it has no types
    try:
        # A client created with an invalid address would block the program's exit for a minute.
        distributed.comm.get_address_host_port(address)
    except (TypeError, ValueError) as error:
        raise ScenarioError(f"dask: {address!r} is not an address such as tcp://host:8786: {error}") from None
    try:
        return distributed, distributed.Client(address, timeout=DASK_TIMEOUT, set_as_default=False)
    except (OSError, ValueError) as error:
        raise ScenarioError(f"dask: no cluster answers at {address}: {error}") from error


def on_dask(todo: list[Payload], address: str) -> Iterator[tuple[str, Run]]:
    """For an existing cluster, which assigns the runs and lost results of a dead worker to another
    one."""
    distributed, client = client_of(address)
    with client:
        by_key = {f"sumlink-{payload.id}": payload for payload in todo}
        futures = [client.submit(work, payload, key=key, pure=True) for key, payload in by_key.items()]
        with client.as_current():
            waiting = distributed.as_completed(futures, loop=client.loop)
        del futures
        try:
            for future in waiting:
                try:
                    yield future.result()
                except Exception as error:
                    for other in list(waiting.futures):
                        if other.status == "finished":
                            yield other.result()
                    if isinstance(error, RunError):
                        raise
                    died = isinstance(error, distributed.KilledWorker)
                    raise RunError(f"{by_key[future.key].place}: {_reason(error, died)}") from error
                # The result is saved, so the cluster need not keep it.
                future.release()
        finally:
            client.cancel([future for future in waiting.futures], force=True)


def _reason(error: Exception, died: bool) -> str:
    """Why the cluster has no result, in one line."""
    if died:
        return f"its worker died, and so did those that retried: {error}"
    if isinstance(error, ModuleNotFoundError):
        return f"a worker lacks a module: {error}"
    # For example a lost cluster, or a recording that its workers lack.
    return f"the cluster has no result: {type(error).__name__}: {' '.join(str(error).split())}"
