"""The part in Rust. Times are seconds, sizes and windows bytes, rates bytes per second, unless said otherwise."""

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
    "optimised",
    "run",
    "scheduler_names",
    "version",
]

version: str
"""Version of the simulator."""

optimised: bool
"""It was built with optimisation, as packages are."""

@final
class Scenario:
    """A scenario that was read and found right."""

    def __new__(cls, text: str, file: str) -> Scenario:
        """Reads a text as if it stood in that file. The argument of the ValueError is a list of (file, line, reason)."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def about(self) -> str:
        """What it shows, in a sentence."""

    @property
    def sha256(self) -> str:
        """Digest of its text and of the recordings that it names, in hexadecimal."""

    @property
    def systems(self) -> list[str]:
        """Names of the systems that it compares."""

    @property
    def seeds(self) -> int:
        """How many seeds it asks for."""

    @property
    def congestion(self) -> str:
        """Name of everyone's congestion control."""

    @property
    def duration(self) -> float:
        """Seconds that a run takes, warm-up included."""

    @property
    def warmup(self) -> float:
        """Seconds of that which are not measured."""

    @property
    def links(self) -> list[tuple[str, float, float]]:
        """For each link its name and its rates when a run begins, down and up, in bit/s."""

@final
class Path:
    """A path of a session (one connection over one link) when a scheduler was asked."""

    @property
    def id(self) -> int:
        """Its number; a link that comes back gets a new one."""

    @property
    def is_backup(self) -> bool:
        """It gets work only while no other path delivers."""

    @property
    def srtt(self) -> float:
        """Smoothed round-trip time in seconds (RFC 6298); 0.1 while unknown."""

    @property
    def rttvar(self) -> float:
        """Round-trip time variation in seconds."""

    @property
    def min_rtt(self) -> float:
        """Least round-trip time of the last minutes in seconds; 0 while unknown."""

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
        """Bytes that wait below TCP; 0 in the simulator."""

    @property
    def full(self) -> bool:
        """The connection takes nothing at this moment."""

    @property
    def delivery_rate(self) -> int:
        """Bytes per second as TCP measured; 0 without a measurement."""

    @property
    def rate(self) -> float:
        """Bytes per second that the path delivers: as measured, else what its window allows."""

    @property
    def delay(self) -> float:
        """Seconds until a byte handed over now is at the peer: half a round trip and what waits before it."""

    @property
    def segments(self) -> int:
        """Segments sent since the connection began."""

    @property
    def retransmitted(self) -> int:
        """Segments sent again since the connection began."""

    @property
    def is_late(self) -> bool:
        """Something on it should have been confirmed by now."""

    @property
    def flights(self) -> list[Flight]:
        """Stream data on its way, in the order sent; empty unless the scheduler has `wants_flights`."""

@final
class Flight:
    """Bytes of a stream on their way over a path."""

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
        """When they were given to the path, in seconds as `View.now`."""

    @property
    def expected_at(self) -> float:
        """When they should be confirmed, in seconds as `View.now`."""

    @property
    def repeated(self) -> bool:
        """Another path has repeated them."""

@final
class Stream:
    """A stream that has something unsent. Offsets are bytes since its beginning."""

    @property
    def id(self) -> int:
        """Its number, as a pick names it."""

    @property
    def traffic_class(self) -> str:
        """`conversational`, `streaming`, `interactive` or `background`."""

    @property
    def unsent(self) -> list[tuple[int, int]]:
        """Written bytes that are on no path, as ranges (start, end), ascending."""

    @property
    def sendable_end(self) -> int:
        """Offset up to which credit lets it send now."""

    @property
    def acknowledged(self) -> int:
        """Offset below which the peer has everything."""

    @property
    def written(self) -> int:
        """Offset after the last byte written so far."""

    @property
    def highest_sent(self) -> int:
        """Offset after the highest byte that has been given to a path."""

    @property
    def is_finished(self) -> bool:
        """The program has written its last byte."""

@final
class View:
    """What a scheduler sees: a copy."""

    @property
    def now(self) -> float:
        """Seconds since the simulation began (before the run: paths are made first)."""

    @property
    def paths(self) -> list[Path]:
        """Those that deliver; backups only while no other path does."""

    @property
    def streams(self) -> list[Stream]:
        """Those with unsent bytes, the one whose turn it is first."""

    @property
    def repeat_budget(self) -> int:
        """Bytes that may be sent twice now where nobody waits for them."""

    @property
    def race_budget(self) -> int:
        """Bytes that may be sent twice now where somebody waits for them."""

    @property
    def memory(self) -> int:
        """Bytes that the session may buffer on either side."""

    def lowest_unsent(self, budget: int) -> tuple[str, int, int, int] | None:
        """The first unsent bytes within credit, at most `budget`: what schedulers send that choose only the path."""

@final
class Ack:
    """An acknowledgement of new data."""

    @property
    def now(self) -> float:
        """Seconds since the simulation began."""

    @property
    def acked(self) -> int:
        """Packets that it is the first to acknowledge."""

    @property
    def rtt(self) -> float | None:
        """Round-trip time measured with it in seconds; None if it could not be measured."""

    @property
    def srtt(self) -> float:
        """Smoothed round-trip time in seconds with that sample in it; 0 before the first one."""

    @property
    def acknowledged(self) -> int:
        """All bytes before this position of the connection are acknowledged."""

    @property
    def sent(self) -> int:
        """Position of the next byte to be sent for the first time, in bytes."""

    @property
    def cwnd_limited(self) -> bool:
        """The window is what keeps the flow from sending more."""

def check_system(name: str, schedulers: list[str]) -> None:
    """ValueError if there is no such system, with what there is."""

def interrupt() -> None:
    """Ends all runs of this process, as Ctrl-C does those of the main thread: classes are left with KeyboardInterrupt."""

def scheduler_names() -> list[str]:
    """The engine's schedulers."""

def congestion_names() -> list[str]:
    """The congestion controls of the simulator."""

def run(
    scenario: Scenario,
    system: str,
    seed: int,
    schedulers: dict[str, Any],
    congestion: dict[str, Any],
    trace: str | None = None,
) -> tuple[str, str | None, BaseException | None]:
    """The run as JSON, why a class of the caller's own ended it (None if none did), and what it raised."""

@final
class Experiment:
    """An experiment about cells of 60 GHz Wi-Fi that was read and found right."""

    def __new__(cls, text: str, file: str) -> Experiment:
        """Reads a text as if it stood in that file. The argument of the ValueError is a list of (file, line, reason)."""

    @property
    def tasks(self) -> list[tuple[str, float]]:
        """Every access scheme with every value of what is varied."""

    @property
    def seeds(self) -> tuple[int, int]:
        """The first seed and the last."""

    def point(self, task: int, seeds: tuple[int, int]) -> dict[str, Any]:
        """Figures by name of the task of that number over the seeds from the first to the last."""

def heat_map(gamma: float | None, sectors: int, room: str, draws: int, seed: int) -> list[list[float]]:
    """Competition index of a client in each part of an office against one near the access point, nearest row first."""

def good_beams(gamma: float | None, sectors: int, room: str, draws: int, seed: int) -> list[int]:
    """How many sectors of each client of an office are heard."""

def access_names() -> list[str]:
    """Names of the access schemes."""
