"""What ranks tell each other: it comes back as it was, and nothing else is taken for it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.bridge.replica_notes import (
    Content,
    Corruption,
    Message,
    Portion,
    Refusal,
    Report,
    Standing,
    Verdict,
    Where,
    decode,
)

STANDING = Standing(2**40, 2**32 - 1, 17)
NOTES: list[Message] = [
    STANDING,
    Report(STANDING, 0xFFFFFFFF, True, 9, 2**33, (0, 2**64 - 1)),
    Report(STANDING, 1, False, 0, 0, ()),
    Report(STANDING, 1, True, 3, 4, (5,), Portion(2, 7)),
    Content(3, 4, b"content"),
    Content(3, 4, b""),
    Verdict(5, 6, 7, 8),
    Refusal(5, sure=True, withdrew=False, equal=True),
    Refusal(6, sure=False, withdrew=True, equal=False),
    Corruption(9, 3, (1, 2, 3)),
    Where(),
]


@pytest.mark.parametrize("note", NOTES, ids=lambda note: type(note).__name__)
def test_a_note_comes_back_as_it_was(note: Message) -> None:
    assert decode(note.encode()) == note


@pytest.mark.parametrize("note", NOTES, ids=lambda note: type(note).__name__)
def test_a_note_that_was_cut_or_grew_is_none(note: Message) -> None:
    octets = note.encode()
    for length in range(len(octets)):
        shorter = decode(octets[:length])
        assert shorter is None or isinstance(note, Content)  # whose length only the block knows
    if not isinstance(note, Content):
        assert decode(octets + b"x") is None


@pytest.mark.parametrize("portion", [Portion(1, 1), Portion(0, 0)])
def test_a_portion_that_there_is_not_is_asked_for_by_nobody(portion: Portion) -> None:
    assert decode(Report(STANDING, 1, True, 0, 0, (), portion).encode()) is None


@given(st.binary(max_size=200))
def test_any_bytes_are_a_note_or_none(octets: bytes) -> None:
    message = decode(octets)
    assert message is None or decode(message.encode()) == message
