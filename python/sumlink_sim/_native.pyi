"""The Rust part. Units are seconds, bytes and bytes per second unless stated otherwise."""

from typing import Any, final

__all__ = [
    "Ack",
    "Experiment",
    "Flight",
    "Path",
    "Scenario",
    "Stream",
    "View",
    "access_names",
    "check_system",
    "congestion_names",
    "good_beams",
    "heat_map",
    "interrupt",
    "optimized",
    "run",
    "scheduler_names",
    "version",
]

version: str
"""Version of the simulator."""

optimized: bool
"""Whether this is an optimized build, as in packages."""

@final
class Scenario:
    """A valid scenario."""

    def __new__(cls, text: str, file: str) -> Scenario:
        """Parses text as if read from `file`. A ValueError's argument is a list of (file, line,
        reason)."""

    @property
    def name(self) -> str:
        """Name of the scenario."""

    @property
    def about(self) -> str:
        """Description in one sentence."""

    @property
    def sha256(self) -> str:
        """Hexadecimal digest of its text and recordings."""

    @property
    def systems(self) -> list[str]:
        """Names of the systems to compare."""

    @property
    def seeds(self) -> int:
        """Default number of seeds."""

    @property
    def congestion(self) -> str:
        """Name of the congestion control of all connections."""

    @property
    def duration(self) -> float:
        """Duration of a run in seconds, including the warm-up."""

    @property
    def warmup(self) -> float:
        """Length of the warm-up in seconds, which is not measured."""

    @property
    def links(self) -> list[tuple[str, float, float]]:
        """For each link: name, and initial rates down and up in bit/s."""

@final
class Path:
    """A path of a session (one connection over one link) at the time of a decision."""

    @property
    def id(self) -> int:
        """Number of the path; a link that returns gets a new one."""

    @property
    def is_backup(self) -> bool:
        """Carries data only while no other path delivers."""

    @property
    def srtt(self) -> float:
        """Smoothed round-trip time in seconds (RFC 6298); 0.1 if unknown."""

    @property
    def rttvar(self) -> float:
        """Round-trip time variation in seconds."""

    @property
    def min_rtt(self) -> float:
        """Minimum round-trip time of the last minutes in seconds; 0 if unknown."""

    @property
    def mss(self) -> int:
        """Segment size in bytes."""

    @property
    def cwnd(self) -> int:
        """Congestion window in bytes."""

    @property
    def ssthresh(self) -> int | None:
        """Slow start threshold in bytes; None before the first loss."""

    @property
    def loss(self) -> str:
        """`open`, `recovery` (losses are being repaired) or `timeout`."""

    @property
    def in_flight(self) -> int:
        """Bytes sent and not acknowledged by TCP."""

    @property
    def unsent(self) -> int:
        """Bytes in the socket that TCP has not sent yet."""

    @property
    def local_queue(self) -> int:
        """Bytes queued below TCP; 0 in the simulator."""

    @property
    def full(self) -> bool:
        """The connection cannot take data now."""

    @property
    def delivery_rate(self) -> int:
        """Bytes per second measured by TCP; 0 without a measurement."""

    @property
    def rate(self) -> float:
        """Bytes per second that the path delivers: measured, or else the rate that its window
        allows."""

    @property
    def delay(self) -> float:
        """Seconds until a byte sent now reaches the peer: half a round trip plus queueing."""

    @property
    def segments(self) -> int:
        """Segments sent since the connection started."""

    @property
    def retransmitted(self) -> int:
        """Segments sent again since the connection started."""

    @property
    def is_late(self) -> bool:
        """An acknowledgment is overdue."""

    @property
    def flights(self) -> list[Flight]:
        """Stream data in flight, in sending order; empty unless the scheduler has
        `wants_flights`."""

@final
class Flight:
    """Bytes of a stream in flight on a path."""

    @property
    def stream(self) -> int:
        """Number of the stream."""

    @property
    def start(self) -> int:
        """Offset of the first byte in the stream."""

    @property
    def end(self) -> int:
        """Offset after the last byte."""

    @property
    def sent_at(self) -> float:
        """When they were given to the path, on the clock of `View.now`."""

    @property
    def expected_at(self) -> float:
        """When their acknowledgment is due, on the clock of `View.now`."""

    @property
    def repeated(self) -> bool:
        """Whether another path has repeated them."""

@final
class Stream:
    """A stream with unsent bytes. Offsets are in bytes from its start."""

    @property
    def id(self) -> int:
        """Number of the stream, as used in a pick."""

    @property
    def traffic_class(self) -> str:
        """`conversational`, `streaming`, `interactive` or `background`."""

    @property
    def unsent(self) -> list[tuple[int, int]]:
        """Written bytes that no path carries, as ascending ranges (start, end)."""

    @property
    def sendable_end(self) -> int:
        """Offset up to which credit permits sending now."""

    @property
    def acknowledged(self) -> int:
        """Offset below which the peer has received all data."""

    @property
    def written(self) -> int:
        """Offset after the last byte written so far."""

    @property
    def highest_sent(self) -> int:
        """Offset after the highest byte given to a path."""

    @property
    def is_finished(self) -> bool:
        """Whether the program has written its last byte."""

@final
class View:
    """A scheduler's view of the session, as a copy."""

    @property
    def now(self) -> float:
        """Seconds since the start of the simulation, which precedes the run: paths are created
        first."""

    @property
    def paths(self) -> list[Path]:
        """Paths that deliver; backups only while no other path does."""

    @property
    def streams(self) -> list[Stream]:
        """Streams with unsent bytes; the next in turn is first."""

    @property
    def repeat_budget(self) -> int:
        """Bytes that may be duplicated now although no delivery waits for them."""

    @property
    def race_budget(self) -> int:
        """Bytes that may be duplicated now because a delivery waits for them."""

    @property
    def memory(self) -> int:
        """Bytes that the session may buffer at either end."""

    def lowest_unsent(self, budget: int) -> tuple[str, int, int, int] | None:
        """The first unsent bytes within credit, at most `budget`; for schedulers that choose only
        the path."""

@final
class Ack:
    """An acknowledgment of new data."""

    @property
    def now(self) -> float:
        """Seconds since the start of the simulation."""

    @property
    def acked(self) -> int:
        """Packets that this acknowledgment covers first."""

    @property
    def rtt(self) -> float | None:
        """Round-trip time sample in seconds; None if not measurable."""

    @property
    def srtt(self) -> float:
        """Smoothed round-trip time in seconds including the sample; 0 before the first one."""

    @property
    def acknowledged(self) -> int:
        """All bytes before this position of the connection are acknowledged."""

    @property
    def sent(self) -> int:
        """Position of the next byte to be sent for the first time, in bytes."""

    @property
    def cwnd_limited(self) -> bool:
        """Whether the window limits the flow."""

def check_system(name: str, schedulers: list[str]) -> None:
    """Raises ValueError for an unknown system, with the list of systems."""

def interrupt() -> None:
    """Ends all runs of this process, as Ctrl-C does in the main thread; classes get
    KeyboardInterrupt."""

def scheduler_names() -> list[str]:
    """Names of the built-in schedulers."""

def congestion_names() -> list[str]:
    """Names of the simulator's congestion controls."""

def run(
    scenario: Scenario,
    system: str,
    seed: int,
    schedulers: dict[str, Any],
    congestion: dict[str, Any],
    trace: str | None = None,
) -> tuple[str, str | None, BaseException | None]:
    """The run as JSON, the reason if a custom class ended it, and the exception that it raised."""

@final
class Experiment:
    """A valid experiment about cells of 60 GHz Wi-Fi."""

    def __new__(cls, text: str, file: str) -> Experiment:
        """Parses text as if read from `file`. A ValueError's argument is a list of (file, line,
        reason)."""

    @property
    def tasks(self) -> list[tuple[str, float]]:
        """Every combination of an access scheme and a varied value."""

    @property
    def seeds(self) -> tuple[int, int]:
        """The first and the last seed."""

    def point(self, task: int, seeds: tuple[int, int]) -> dict[str, Any]:
        """Results by name of a task, over a range of seeds."""

def heat_map(gamma: float | None, sectors: int, room: str, draws: int, seed: int) -> list[list[float]]:
    """Competition index of a client in each cell of an office map, nearest row first."""

def good_beams(gamma: float | None, sectors: int, room: str, draws: int, seed: int) -> list[int]:
    """Number of audible sectors of each client in an office."""

def access_names() -> list[str]:
    """Names of the access schemes."""
