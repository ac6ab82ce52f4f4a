"""Asks the processor: which instructions it has, and how fast datagrams are sealed with them."""

from __future__ import annotations

import platform

from holdfast import _native
from holdfast.doctor.facts import ProcessorFacts, Rate

SECONDS_PER_RUN = 0.05
NUM_RUNS = 3  # apart in time, so that one busy moment does not spoil them all
_SMALLEST_MEASURED_BYTES = 256  # smaller datagrams are refused at join


def probe_processor(datagram_bytes: int) -> ProcessorFacts:
    datagram_bytes = max(datagram_bytes, _SMALLEST_MEASURED_BYTES)
    return ProcessorFacts(
        machine=platform.machine(),
        features=tuple(_native.cpu_features()),
        instruction_set=_native.instruction_set(),
        seals_with_vector_instructions=_native.seals_with_vector_instructions(),
        openssl=_native.openssl_version(),
        datagram_bytes=datagram_bytes,
        rates={
            "encrypted": _best_rate(datagram_bytes, authenticate_only=False),
            "authenticated": _best_rate(datagram_bytes, authenticate_only=True),
        },
    )


def _best_rate(datagram_bytes: int, *, authenticate_only: bool) -> Rate:
    runs = [_native.sealing_rate(datagram_bytes, authenticate_only, SECONDS_PER_RUN) for _ in range(NUM_RUNS)]
    return Rate(max(seal for seal, _ in runs), max(open_ for _, open_ in runs))
