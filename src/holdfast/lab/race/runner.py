"""A race from start to end: all peers are up at once and take turns, some seconds each, in an order that turns round.

Whatever else the machine does then hits all of them alike, and in its k-th turn every peer meets the same freezes,
bursts and neighbours, drawn anew from the race's seed and k. Only one peer trains at any time, and its seconds are
those of its own steps: the slowest rank's, added up.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from multiprocessing.connection import Connection, Pipe
from pathlib import Path

from holdfast.errors import LabError
from holdfast.lab.cloud import Cloud
from holdfast.lab.launch import Workers
from holdfast.lab.peer import Peer
from holdfast.lab.priority import ahead_of_ranks
from holdfast.lab.race.contender import BrokeOff, Contender
from holdfast.lab.race.crew import Crew, LoopbackCrew
from holdfast.lab.race.entry import Entry, Standing
from holdfast.lab.race.orders import Start
from holdfast.lab.race.plan import Plan
from holdfast.lab.race.result import LOOPBACK, RaceResult
from holdfast.lab.race.tasks import pretraining
from holdfast.lab.race.trouble import Trouble

LOGS = "logs"
_LAST_LINES = 12

OnStanding = Callable[[Standing], None]


def run(plan: Plan, output: Path, on_standing: OnStanding = lambda _standing: None) -> RaceResult:
    """`output`: a folder for the ranks' logs, and for what a task prepares once. `on_standing` hears of every turn."""
    if plan.task.pretrained:
        pretraining.ensure(output, plan.seed, lambda share: on_standing(Standing("pre-training", f"{share:.0%} done")))
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="holdfast-race-")))
        cloud = None
        if plan.profile is not None:
            cloud = stack.enter_context(Cloud(plan.num_hosts, plan.profile, seed=plan.seed))
        parameters, entries = 0, {}
        # A host keeps what its TCP was set to: whoever takes what a host has connects before it is set.
        for peer in sorted(plan.peers, key=lambda peer: peer.tcp is not None):
            on_standing(Standing(peer.name, "starting"))
            contender = stack.enter_context(_contender(plan, peer, cloud, scratch / f"{peer.name}.store", output))
            trouble = _trouble(plan, contender)
            parameters = _wait_ready(contender, output)
            entries[peer.name] = Entry(plan, contender, cloud, trouble)
            on_standing(entries[peer.name].standing())
        in_order = [entries[peer.name] for peer in plan.peers]
        if cloud is not None:
            stack.enter_context(ahead_of_ranks())
        _take_turns(in_order, on_standing)
        return _result(plan, in_order, parameters, None if cloud is None else cloud.bits_per_s)


def _take_turns(entries: Sequence[Entry], on_standing: OnStanding) -> None:
    for entry in entries:
        entry.begin()
        on_standing(entry.standing())
    forwards = True
    while any(not entry.finished for entry in entries):
        for entry in entries if forwards else reversed(entries):
            if not entry.finished:
                entry.take_turn()
                on_standing(entry.standing())
        forwards = not forwards


def _trouble(plan: Plan, contender: Contender) -> Trouble | None:
    if not plan.faults and plan.schedule is None:
        return None
    assert isinstance(contender.crew, Workers)
    trouble = Trouble(contender.crew, plan.faults, plan.schedule, contender.record.note)
    trouble.enter_network(0.0)
    return trouble


@contextmanager
def _contender(plan: Plan, peer: Peer, cloud: Cloud | None, store: Path, output: Path) -> Iterator[Contender]:
    start = Start(plan.task.name, peer.name, plan.seed, store, output, in_lab=cloud is not None)
    with ExitStack() as stack:
        # Memory without a name, so that nothing of it stays whatever becomes of this process.
        parameters = [os.memfd_create(f"rank-{rank}") for rank in range(plan.num_hosts)]
        for memory in parameters:
            stack.callback(os.close, memory)
        pairs = [Pipe() for _ in parameters]
        ours, theirs = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
        try:
            crew = _crew(peer, cloud, theirs, parameters, output / LOGS / peer.name)
        finally:
            for end in theirs:
                end.close()
        contender = Contender(peer, crew, ours, parameters, start)
        stack.callback(contender.close)
        yield contender


def _crew(peer: Peer, cloud: Cloud | None, orders: Sequence[Connection], parameters: Sequence[int], logs: Path) -> Crew:
    inherited = {rank: (end.fileno(), parameters[rank]) for rank, end in enumerate(orders)}

    def command(rank: int) -> list[str]:
        program = [sys.executable, "-m", "holdfast.lab.race.rank"]
        return [*program, f"--orders={inherited[rank][0]}", f"--parameters={inherited[rank][1]}"]

    if cloud is None:
        return LoopbackCrew(len(orders), command, inherited, logs)
    if peer.tcp is not None:
        cloud.set_tcp(congestion_control=peer.tcp.congestion_control, rto_min_us=peer.tcp.rto_min_us)
    return Workers(cloud, command, logs=logs, inherited=inherited)


def _wait_ready(contender: Contender, output: Path) -> int:
    try:
        return contender.wait_ready()
    except BrokeOff as reason:
        logs = output / LOGS / contender.peer.name
        raise LabError(
            f"{contender.peer.name} did not start: {reason}{_last_lines(logs)}", what_to_try=f"the logs in {logs}"
        ) from reason


def _last_lines(logs: Path) -> str:
    """Of whichever rank said most."""
    said = max((path.read_text(errors="replace").splitlines() for path in logs.iterdir()), key=len, default=[])
    return "".join(["; last lines:", *(f"\n  {line}" for line in said[-_LAST_LINES:])]) if said else ""


def _result(plan: Plan, entries: Sequence[Entry], parameters: int, bits_per_s: float | None) -> RaceResult:
    profile = plan.profile
    return RaceResult(
        task=plan.task.name,
        task_title=plan.task.title,
        metric=plan.task.metric,
        higher_is_better=plan.task.higher_is_better,
        target=plan.target,
        profile=LOOPBACK if profile is None else profile.name,
        profile_models="Processes of one machine: nothing is lost." if profile is None else profile.models,
        hosts=plan.num_hosts,
        bits_per_s=bits_per_s,
        seed=plan.seed,
        parameters=parameters,
        runs=tuple(entry.run() for entry in entries),
    )
