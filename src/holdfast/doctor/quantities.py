"""Numbers with units, as people read them."""

from __future__ import annotations


def readable(number: float) -> str:
    return f"{number:,.0f}"


def mebibytes(num_bytes: float) -> str:
    """KiB below one MiB, so that a small buffer does not read 0."""
    return f"{num_bytes / 2**20:.3g} MiB" if num_bytes >= 2**20 else f"{num_bytes / 2**10:.0f} KiB"


def gigabytes_per_second(bytes_per_s: float) -> str:
    """Without the unit: figures stand side by side."""
    return f"{bytes_per_s / 1e9:.2f}" if bytes_per_s < 1e9 else f"{bytes_per_s / 1e9:.1f}"


def bits_per_second(bits_per_s: float) -> str:
    return f"{bits_per_s / 1e9:.3g} Gb/s" if bits_per_s >= 1e9 else f"{bits_per_s / 1e6:.3g} Mb/s"
