"""Judges the processor: its instructions, and whether sealing keeps up with the link."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.doctor.facts import ProcessorFacts
from holdfast.doctor.finding import Finding, advice, ok
from holdfast.doctor.quantities import bits_per_second, gigabytes_per_second, readable

# A virtual interface does not say how fast it is. Machines that train on several hosts mostly have this or more.
ASSUMED_BITS_PER_S = 10e9
_JUMBO_BYTES = 8_000


def check_instructions(processor: ProcessorFacts) -> Finding:
    if processor.machine != "x86_64":
        return advice(
            "instructions",
            f"{processor.machine}: portable code",
            "gradients are summed by portable code, and Holdfast is tested on x86-64 only",
            "make test  # in Holdfast's source tree: tells whether it works here",
            "holdfast bench allreduce  # what it costs",
        )
    if processor.instruction_set == "portable":
        return advice(
            "instructions",
            "no AVX2 (with F16C)",
            "gradients are summed by portable code, which costs the I/O thread more time per byte",
            "lscpu | grep -o -w -e avx2 -e f16c -e vaes  # what there is",
            "# a virtual machine may hide them: qemu -cpu host; in a cloud: a newer machine type",
        )
    if processor.seals_with_vector_instructions:
        return ok("instructions", "AVX2 for sums, VAES for sealing")
    return ok("instructions", "AVX2 for sums; no VAES, so OpenSSL seals")


def check_openssl(processor: ProcessorFacts) -> Finding:
    work = "derives keys" if processor.seals_with_vector_instructions else "derives keys and seals"
    return ok("openssl", f"{processor.openssl} {work}")


def check_sealing(processor: ProcessorFacts, protection: str, bits_per_s: float | None) -> Iterator[Finding]:
    """One finding per kind of protection; only the one that is set can be too slow."""
    for name, rate in processor.rates.items():
        found = (
            f"{name} {gigabytes_per_second(rate.seal)} GB/s sealed, {gigabytes_per_second(rate.open)} opened "
            f"({readable(processor.datagram_bytes)} bytes)"
        )
        link = ASSUMED_BITS_PER_S if bits_per_s is None else bits_per_s
        if name != protection or rate.both * 8 >= link:
            yield ok("sealing", found)
            continue
        kind = "an assumed link of" if bits_per_s is None else "the link's"
        yield advice(
            "sealing",
            found,
            f"one I/O thread seals and opens {bits_per_second(rate.both * 8)}, less than {kind} "
            f"{bits_per_second(link)}: the processor is the bottleneck",
            *_faster_sealing(processor, protection),
        )


def _faster_sealing(processor: ProcessorFacts, protection: str) -> Iterator[str]:
    if processor.machine == "x86_64" and "aes" not in processor.features:
        yield "# this CPU has no AES instructions, or a virtual machine hides them: qemu -cpu host"
    if protection == "encrypted":
        yield "export HOLDFAST_PROTECTION=authenticated  # on all ranks; gradients can then be read on the way"
    if processor.datagram_bytes < _JUMBO_BYTES:
        yield "# larger datagrams seal faster: an MTU of 9,000 on all hosts and switches, where they can"
