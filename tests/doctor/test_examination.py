"""A good host is called good, and every way to spoil it is found, by the check that should find it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from doctor.hosts import CONFIG, PEER, host
from holdfast.config import Config
from holdfast.doctor.examination import gather, judge
from holdfast.doctor.facts import Choice, Facts, Peer, Plan, Rate, Route, TakenPort, TorchFacts, Trip
from holdfast.doctor.finding import Finding, Status, worst

PROBLEM, ADVICE = Status.PROBLEM, Status.ADVICE

# what is wrong with the host: (the check that says so, how bad, a word of what is found, a part of what to type)
SPOILED: dict[str, tuple[Facts, str, Status, str, str]] = {
    "extension without libcrypto": (
        host(system__extension_error="libcrypto.so.3: cannot open shared object file"),
        "extension", PROBLEM, "libcrypto", "apt-get install libssl3",
    ),
    "extension for a newer glibc": (
        host(system__extension_error="version `GLIBC_2.35' not found", system__libc="glibc 2.31"),
        "extension", PROBLEM, "GLIBC_2.35", "here is glibc 2.31",
    ),
    "kernel without precise waits": (host(system__kernel="5.4.0-150-generic"), "kernel", ADVICE, "5.4.0", "apt-get"),
    "kernel without GSO": (host(system__kernel="4.4.0"), "kernel", ADVICE, "4.4.0", "apt-get"),
    "no torch": (
        host(system__torch=TorchFacts(None, error="No module named 'torch'")),
        "torch", PROBLEM, "No module", "pip install 'torch>=2.9'",
    ),
    "old torch": (host(system__torch=TorchFacts("2.8.1", True)), "torch", PROBLEM, "2.8.1", "torch>=2.9"),
    "torch without Gloo": (host(system__torch=TorchFacts("2.13.0", False)), "torch", PROBLEM, "Gloo", "pip install"),
    "more ranks than cores": (host(ranks=9), "cores", ADVICE, "8 for 9 ranks", "--nproc-per-node 8"),
    "a share of the cores": (host(system__cpu_quota=5.5), "cores", ADVICE, "5.5 cores on 8", "--cpuset-cpus"),
    "clock runs backwards": (host(clock__num_backward=2), "clock", PROBLEM, "backwards 2", "current_clocksource"),
    "slow clock": (
        host(clock__source="hpet", clock__read_ns=1_400), "clock", ADVICE, "hpet: 1,400 ns", "echo tsc | sudo tee /sys/",
    ),
    "wall clock jumps": (host(clock__wall_jump_ms=750), "clock", ADVICE, "jumped by 750 ms", "timedatectl"),
    "late wake-ups": (host(clock__lateness_p99_us=2_600), "timers", ADVICE, "2.60 ms (p99)", "DEADLINE_FLOOR_MS=50"),
    "late wake-ups for a given deadline": (
        host(Config(deadline_ms=10, port=29_600, key_file="k"), clock__lateness_p99_us=1_300),
        "timers", ADVICE, "1.30 ms", "HOLDFAST_DEADLINE_MS=20",
    ),
    "no AVX2": (host(processor__instruction_set="portable"), "instructions", ADVICE, "no AVX2", "qemu -cpu host"),
    "another architecture": (host(processor__machine="aarch64"), "instructions", ADVICE, "aarch64", "make test"),
    "sealing slower than the link": (
        host(processor__rates={"encrypted": Rate(2e9, 2e9)}, network__choice__bits_per_s=25e9),
        "sealing", ADVICE, "encrypted 2.0 GB/s", "HOLDFAST_PROTECTION=authenticated",
    ),
    "no AES instructions, unknown link": (
        host(processor__rates={"encrypted": Rate(1e8, 1e8)}, processor__features=(), network__choice__bits_per_s=None),
        "sealing", ADVICE, "0.10 GB/s", "no AES instructions",
    ),
    "no such interface": (
        host(network__choice=Choice(error="interface 'ib0' has no address", what_to_try="one of lo, eth0")),
        "interface", PROBLEM, "ib0", "export HOLDFAST_INTERFACE=eth0",
    ),
    "loopback between hosts": (
        host(network__choice=Choice("127.0.1.1", "lo", "route to the master node1", is_loopback=True)),
        "interface", PROBLEM, "127.0.1.1 on lo", "export HOLDFAST_INTERFACE=eth0  # the way to 10.0.0.2",
    ),
    "interface is down": (host(network__choice__is_up=False), "interface", PROBLEM, "down", "ip link set dev eth0 up"),
    "unresolvable master": (
        host(network__routes=(Route("node1", "node1", is_master=True, error="cannot resolve 'node1'"), PEER)),
        "route", PROBLEM, "MASTER_ADDR node1: cannot resolve", "getent ahosts node1",
    ),
    "no route to a peer": (
        host(network__routes=(PEER, Route("10.9.9.9:7", "10.9.9.9", "10.9.9.9", error="Network is unreachable"))),
        "route", PROBLEM, "10.9.9.9:7: Network is unreachable", "ip route get 10.9.9.9",
    ),
    "peer of the other family": (
        host(network__routes=(PEER, replace(PEER, name="fd00::2", address="fd00::2", source="fd00::1"))),
        "route", PROBLEM, "fd00::2 from fd00::1", "HOLDFAST_INTERFACE=fd00::1",
    ),
    "peer behind another interface": (
        host(network__routes=(replace(PEER, interface="eth1"),)), "route", ADVICE, "on eth1", "HOLDFAST_INTERFACE=eth1",
    ),
    "MTU 576": (
        host(network__routes=(replace(PEER, mtu=576, datagram_bytes=548),)),
        "mtu", ADVICE, "576 bytes towards 10.0.0.2", "ip link set dev eth0 mtu 1500",
    ),
    "MTU too small for a datagram": (
        host(network__routes=(PEER, replace(PEER, name="far", mtu=283, datagram_bytes=255))),
        "mtu", PROBLEM, "283 bytes towards far", "mtu 1500",
    ),
    "datagrams set larger than the path": (
        host(Config(datagram_bytes=8_972, port=29_600, key_file="k")),
        "mtu", PROBLEM, "set to 8,972", "unset HOLDFAST_DATAGRAM_BYTES",
    ),
    "UDP does not pass": (host(network__plain_trip=Trip(8, 0, 0)), "udp", PROBLEM, "0 of 8", "nft list ruleset"),
    "UDP is refused": (
        host(network__plain_trip=Trip(8, 0, 0, "Operation not permitted")), "udp", PROBLEM, "not permitted", "nft",
    ),
    "segmentation off": (
        host(Config(segmentation=False, port=29_600, key_file="k")),
        "segmentation", ADVICE, "switched off", "unset HOLDFAST_SEGMENTATION",
    ),
    "no GSO": (host(network__socket__has_gso=False), "segmentation", ADVICE, "no UDP GSO", "uname -r"),
    "batches refused": (
        host(network__segmented_trip=Trip(8, 0, 0, "Invalid argument")), "segmentation", ADVICE, "refused", "dmesg",
    ),
    "batches lost": (
        host(network__segmented_trip=Trip(8, 1, 1)), "segmentation", PROBLEM, "1 of 8", "HOLDFAST_SEGMENTATION=false",
    ),
    "GRO joins nothing": (host(network__segmented_trip=Trip(8, 8, 8)), "segmentation", ADVICE, "GRO joins", "uname"),
    "tiny rmem_max": (
        host(network__socket__receive_bytes=212_992, network__socket__receive_limit=212_992),
        "receive_buffer", ADVICE, "208 KiB granted of 8 MiB", "sudo sysctl -w net.core.rmem_max=8388608",
    ),
    "tiny wmem_max": (
        host(network__socket__send_bytes=212_992), "send_buffer", ADVICE, "208 KiB", "sysctl -w net.core.wmem_max=8388608",
    ),
    # 2 x 50 Gb/s x (1 ms + 0.06 ms) = 13,250,000 bytes
    "buffer as asked, too small for the link": (
        host(network__choice__bits_per_s=50e9, processor__rates={}),
        "receive_buffer", ADVICE, "50 Gb/s needs 12.6 MiB", "HOLDFAST_RECEIVE_BUFFER_BYTES=13250000",
    ),
    "port taken": (
        host(network__taken_ports=(TakenPort(29_601, "Address already in use", "python, process 7"),)),
        "ports", PROBLEM, "29601: Address already in use (python, process 7)", "ss -ulpn 'sport >= :29600 and sport <= :29603'",
    ),
    "ports beyond the last": (
        host(Config(port=65_533, key_file="k")), "ports", PROBLEM, "no port above 65535", "HOLDFAST_PORT=29600",
    ),
    "ports the kernel may hand out": (
        host(Config(port=40_000, key_file="k"), network__ephemeral_ports=(40_000, 40_001)),
        "ports", ADVICE, "40000-40001 to any other program", "HOLDFAST_PORT=29600",
    ),
    "any port, through a firewall": (
        host(Config(key_file="k")), "firewall", ADVICE, "every UDP port", "ufw allow 29600:29603/udp",
    ),
    "insecure between hosts": (
        host(Config(protection="insecure", port=29_600)), "protection", PROBLEM, "insecure", "PROTECTION=authenticated",
    ),
    "insecure on one host": (
        host(Config(protection="insecure"), network__routes=()), "protection", ADVICE, "insecure", "authenticated",
    ),
    "no key file between hosts": (host(Config(port=29_600)), "protection", ADVICE, "Store", "openssl rand -hex 32"),
    "bad key file": (
        host(system__key_error="holds 16 bytes, not 32"), "protection", PROBLEM, "job.key holds 16", "openssl rand",
    ),
}  # fmt: skip


def not_ok(findings: list[Finding]) -> list[Finding]:
    return [finding for finding in findings if finding.status is not Status.OK]


def test_nothing_is_said_against_a_good_host() -> None:
    findings = judge(host())
    assert not_ok(findings) == []
    assert worst(findings) is Status.OK
    assert all(finding.found and not finding.to_do for finding in findings)


@pytest.mark.parametrize("name", SPOILED)
def test_what_is_wrong_is_found_with_its_consequence_and_what_to_type(name: str) -> None:
    facts, check, status, found, to_do = SPOILED[name]
    wrong = not_ok(judge(facts))
    assert [(finding.check, finding.status) for finding in wrong] == [(check, status)]
    assert found in wrong[0].found
    assert wrong[0].consequence
    assert to_do in wrong[0].to_do


@pytest.mark.parametrize(
    ("good", "facts"),
    [
        ("the oldest kernel that has everything", host(system__kernel="5.11.0")),
        ("a kernel whose name says nothing", host(system__kernel="custom")),
        ("as many ranks as cores", host(ranks=8)),
        ("the oldest torch", host(system__torch=TorchFacts("2.9.0", True))),
        ("a newer torch", host(system__torch=TorchFacts("2.14.0a0", True))),
        ("wake-ups just in time", host(clock__lateness_p99_us=2_500)),
        ("the smallest usual MTU", host(network__routes=(replace(PEER, mtu=1_280, datagram_bytes=1_232),))),
        ("OpenSSL instead of VAES", host(processor__seals_with_vector_instructions=False)),
        ("another protection is too slow", host(processor__rates={"authenticated": Rate(1e8, 1e8)})),
        ("a limit beyond which this process may go", host(network__socket__receive_limit=212_992)),
        ("limits that cannot be read", host(network__socket__receive_limit=None, network__socket__send_limit=None)),
        ("datagrams set smaller than the path", host(replace(CONFIG, datagram_bytes=1_200))),
        ("a peer that is this host", host(network__routes=(replace(PEER, is_this_host=True),))),
        ("one host and any port", host(Config(), network__routes=())),
    ],
    ids=lambda value: value.replace(" ", "-") if isinstance(value, str) else "",
)
def test_what_is_well_is_left_alone(good: str, facts: Facts) -> None:
    assert not_ok(judge(facts)) == [], good


def test_without_the_extension_the_rest_is_still_judged() -> None:
    spoiled = host(ranks=9, system__extension_error="undefined symbol")
    findings = judge(replace(spoiled, processor=None, network=None))
    assert [finding.check for finding in not_ok(findings)] == ["extension", "cores"]
    assert {"kernel", "torch", "clock", "timers"} <= {finding.check for finding in findings}


def test_without_an_address_nothing_is_said_about_its_socket() -> None:
    lost = host(
        network__choice=Choice(error="no route"),
        network__socket=None,
        network__plain_trip=None,
        network__segmented_trip=None,
    )
    checks = {finding.check for finding in judge(lost)}
    assert checks.isdisjoint({"mtu", "udp", "segmentation", "receive_buffer", "send_buffer", "ports"})


def test_this_machine_is_asked_and_judged() -> None:
    asked: list[Any] = []
    facts = gather(Plan(Config(), 1, (Peer("127.0.0.1"),)), asked.append)
    assert facts.processor is not None
    assert facts.network is not None
    assert len(asked) == 4
    findings = {finding.check: finding for finding in judge(facts)}
    assert findings["interface"].found.startswith("127.0.0.1 on lo")
    assert findings["route"].found == "127.0.0.1 is this host"
    assert findings["extension"].status is Status.OK
