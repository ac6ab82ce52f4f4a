"""The whole visit: gather the facts, then judge them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from holdfast.doctor import path_checks, processor_checks, protection_checks, socket_checks, system_checks
from holdfast.doctor.facts import Facts, NetworkFacts, Plan, ProcessorFacts
from holdfast.doctor.finding import Finding
from holdfast.doctor.system_probe import probe_clock, probe_system

# Where no path is known: what an Ethernet MTU and a tunnel leave.
_USUAL_DATAGRAM_BYTES = 1_372


def gather(plan: Plan, notice: Callable[[str], None] = lambda what: None) -> Facts:
    """Asks this host. Takes a few seconds, most of them to import torch; `notice` is told what is being asked."""
    notice("kernel and torch")
    system = probe_system(plan.config.key_file)
    notice("clock")
    clock = probe_clock()
    if system.extension_error:
        return Facts(plan, system, clock)
    # Only now: these load the native module.
    from holdfast.doctor.network_probe import probe_network
    from holdfast.doctor.processor_probe import probe_processor

    notice("network")
    network = probe_network(plan)
    notice("speed of sealing")
    return Facts(plan, system, clock, probe_processor(network.datagram_bytes or _USUAL_DATAGRAM_BYTES), network)


def judge(facts: Facts) -> list[Finding]:
    """What the facts mean. Pure."""
    findings = [
        system_checks.check_extension(facts),
        system_checks.check_kernel(facts),
        system_checks.check_torch(facts),
        system_checks.check_cores(facts),
        system_checks.check_clock(facts),
        system_checks.check_timers(facts),
    ]
    if facts.processor is not None and facts.network is not None:
        findings += _judge_processor(facts.processor, facts.network, facts.plan)
        findings += _judge_network(facts.network, facts)
    return findings


def _judge_processor(processor: ProcessorFacts, network: NetworkFacts, plan: Plan) -> Iterator[Finding]:
    yield processor_checks.check_instructions(processor)
    yield processor_checks.check_openssl(processor)
    yield from processor_checks.check_sealing(processor, plan.config.protection, network.choice.bits_per_s)


def _judge_network(network: NetworkFacts, facts: Facts) -> Iterator[Finding]:
    plan = facts.plan
    yield path_checks.check_interface(network)
    yield from path_checks.check_routes(network)
    of_an_address = (
        path_checks.check_mtu(network, plan.config),
        socket_checks.check_udp(network),
        socket_checks.check_segmentation(network, plan),
        socket_checks.check_receive_buffer(network, plan, facts.clock.lateness_p50_us),
        socket_checks.check_send_buffer(network, plan),
        socket_checks.check_ports(network, plan),
        socket_checks.check_firewall(network, plan),
    )
    yield from (finding for finding in of_an_address if finding is not None)
    yield protection_checks.check_protection(plan, facts.system.key_error, network.spans_hosts)
