from __future__ import annotations

import pytest

from holdfast.errors import BrokenTrace
from holdfast.reroute.availability import load_trace, parse_trace, seeded_trace


def test_the_shipped_trace_is_the_seeded_one_and_like_the_papers() -> None:
    trace = load_trace("spot-24")
    assert trace.samples == seeded_trace().samples
    counts = [available for _, available in trace.samples]
    assert (len(counts), counts[0], min(counts), counts[-1]) == (159, 24, 15, 15)
    assert trace.seconds == 6 * 3600
    assert 21.3 < sum(counts) / len(counts) < 22.1


def test_the_text_of_a_trace_reads_back() -> None:
    trace = seeded_trace(seed=3)
    assert parse_trace(trace.text(), "it").samples == trace.samples


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "header"),
        ("time,workers\n0,1\n", "header"),
        ("seconds,available\n0,4\n", "fewer than two"),
        ("seconds,available\n0,4\n10,3\n5,2\n", "backwards"),
        ("seconds,available\n0,4\n0,3\n", "backwards"),
        ("seconds,available\n0,4\n1,-1\n", "-1 workers"),
        ("seconds,available\n0,4\n1,x\n", "Line 3"),
        ("seconds,available\n0,4\n1\n", "Line 3"),
        ("seconds,available\n0,4\nnan,3\n", "Line 3"),
    ],
)
def test_broken_traces_are_named(text: str, complaint: str) -> None:
    with pytest.raises(BrokenTrace, match=complaint) as caught:
        parse_trace(text, "it")
    assert caught.value.what_to_try


def test_a_missing_trace_names_the_shipped_one() -> None:
    with pytest.raises(BrokenTrace, match="spot-24"):
        load_trace("/nowhere.csv")
