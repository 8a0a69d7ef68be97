"""Radio links of the WhiteHaul dissertation's room: from power and distance to rate and retries.

Free space, the receiver's noise, the sender's error vector, and what leaks in from another channel give
an SINR, which gives a coding scheme and its frame error ratio. Distances, noise figure and leakage are ours.
"""

import dataclasses
import math

# GHz of WH-2 (section 3.2); WH-1 differs by a decibel.
FREQUENCY = 5.41
# Meters between the two machines (section 3.2), and from the interferer to the receiver.
LINK = 2.5
INTERFERER = 0.5
# dB: noise figure, SNR that a sender's error vector allows, interferer's power in the channel beside its own.
NOISE_FIGURE = 10
ERROR_VECTOR = 35
LEAKAGE = -37
# The interferer's power in dBm, and the Mbit/s that it sends (section 3.4).
INTERFERER_POWER = 17
INTERFERER_RATE = 20

# IEEE 802.11ac, 80 MHz, two streams, short guard interval: PHY Mbit/s, and the least sensitivity in dBm of
# each scheme, which assumes 10 dB of noise figure and 5 dB of implementation margin.
PHY = [65, 130, 195, 260, 390, 520, 585, 650, 780, 866.7]
SENSITIVITY = [-76, -73, -71, -68, -64, -60, -59, -58, -53, -51]
# The frame error ratio at the sensitivity, and the dB that make it ten times less.
ERRORS = 0.1
DECADE = 2.0


@dataclasses.dataclass
class Radio:
    """A link at a power: SINR in dB without and with the interferer, scheme, frame error ratio while the
    interferer sends, and the part of the rate of the best scheme."""

    clean: float
    disturbed: float
    scheme: int
    frame_error: float
    part: float


def loss(distance):
    """Free-space loss in dB."""
    return 20 * math.log10(distance * FREQUENCY * 1e9 * 4 * math.pi / 299_792_458)


def watts(dbm):
    return 10 ** (dbm / 10)


def noise():
    return -174 + 10 * math.log10(80e6) + NOISE_FIGURE


def sinr(power, interfered):
    """SINR in dB at a transmission power in dBm."""
    signal = power - loss(LINK)
    other = watts(noise()) + watts(signal - ERROR_VECTOR)
    if interfered:
        other += watts(INTERFERER_POWER - loss(INTERFERER) + LEAKAGE)
    return signal - 10 * math.log10(other)


def required(scheme):
    """SNR in dB at the sensitivity: without the noise and the margin that the standard assumes."""
    return SENSITIVITY[scheme] - (-174 + 10 * math.log10(80e6) + 10) - 5


def frame_errors(scheme, level):
    return min(1.0, ERRORS * 10 ** ((required(scheme) - level) / DECADE))


# Share of the air time that is not payload at the fastest scheme: preambles, back-off, acknowledgments.
OVERHEAD = 0.5


def rate(scheme):
    """Rate as a part of the fastest scheme's, with an overhead that does not shrink."""
    return 1 / (OVERHEAD + (1 - OVERHEAD) * PHY[-1] / PHY[scheme])


# Bytes and seconds of a frame of the interferer, whose constant rate is too low for aggregates, with preamble
# and acknowledgment.
FRAME = 1470
FRAME_TIME = 100e-6


def occupancy():
    """Share of the time for which the interferer sends."""
    return INTERFERER_RATE * 1e6 / (8 * FRAME) * (FRAME_TIME + 8 * FRAME / (PHY[-1] * 1e6))


def radio(power, interfered):
    """The link that rate control settles on: the scheme of most goodput, retries included."""
    clean, disturbed = sinr(power, False), sinr(power, interfered)
    busy = occupancy() if interfered else 0

    def goodput(scheme):
        arrived = (1 - busy) * (1 - frame_errors(scheme, clean)) + busy * (1 - frame_errors(scheme, disturbed))
        return rate(scheme) * arrived

    scheme = max(range(len(PHY)), key=goodput)
    part = rate(scheme) * (1 - frame_errors(scheme, clean))
    return Radio(round(clean, 1), round(disturbed, 1), scheme, round(frame_errors(scheme, disturbed), 3), round(part, 3))
