"""ping's words become round trips and silences. Real round trips: `tests/cli/test_calibrate.py`."""

from __future__ import annotations

import pytest

from holdfast.errors import LabError
from holdfast.lab.calibrate.ping import parse, ping
from holdfast.lab.cloud import Cloud
from lab.calibrate.instruments import needs_ping, recorded
from lab.lab_processes import needs_lab


def test_round_trips_and_the_silence_of_a_host_that_was_frozen() -> None:
    echoes = parse(recorded("ping-frozen-for-a-while.txt"))
    assert echoes.num_sent == 14
    assert len(echoes.rtt_ms) == len(echoes.came_at_s) == 13
    assert echoes.rtt_ms[:2] == (0.433, 0.400)
    assert max(echoes.rtt_ms) == 66.1
    # Number 6 was lost and 7 to 11 came together: silent from the answer to 5 to the answer to 7.
    assert echoes.longest_silence_ms == pytest.approx(1e3 * (34.058256 - 33.956530), abs=0.01)


@pytest.mark.parametrize("output", ["", "PING 10.77.0.2 56 data bytes\n64 bytes from 10.77.0.2: seq=0 ttl=64"])
def test_output_of_another_ping_is_named(output: str) -> None:
    with pytest.raises(LabError, match="not that of iputils"):
        parse(output)


@needs_lab
@needs_ping
def test_a_ping_that_cannot_be_is_an_error_with_its_words(cloud: Cloud) -> None:
    with pytest.raises(LabError, match=r"ping in host 0 ended with code \d: .*-1"):
        ping(cloud, 0, 1, seconds=-1)
