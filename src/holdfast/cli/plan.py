"""`holdfast plan`: plan a pipeline round dead workers, or replay a trace of availability.

Everything is imported when the command runs, so that `holdfast --help` stays fast. Results go to standard output,
progress and errors to standard error.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

    from holdfast.reroute.normalise import Normalisation
    from holdfast.reroute.planner import Plan
    from holdfast.reroute.profile import Profile
    from holdfast.reroute.replay import Replay
    from holdfast.reroute.shape import Job

BAD_INPUT = 2
BROKEN_PLAN = 1
# rerouted_best, decoupled, staggered, and the last two without failures
NUM_SEARCHES = 5

Stages = Annotated[int | None, typer.Option(help="Stages of each pipeline (pipeline-parallel degree).")]
Pipelines = Annotated[int | None, typer.Option(help="Pipelines (data-parallel degree).")]
Microbatches = Annotated[int | None, typer.Option(help="Micro-batches per pipeline and iteration.")]
Failed = Annotated[str, typer.Option(help="Dead workers as pipeline:stage from 0, comma list: 1:2,0:3.")]
Times = Annotated[
    str | None,
    typer.Option(help="Ticks F,I,W,O[,transfer], such as 10,11,9,8,1; per stage F=10/12/10/10,I=11. Default 1,1,1,3."),
]
ProfileOption = Annotated[str | None, typer.Option("--profile", help="Profile file, or paper, slow-middle, uneven.")]
Memory = Annotated[
    int | None,
    typer.Option(help="Memory limit per worker: micro-batches held at once, or the profile's unit. Default none."),
]
Normalise = Annotated[bool, typer.Option("--normalise", help="First move healthy workers to where they help most.")]
Seconds = Annotated[float, typer.Option("--solve-seconds", help="Limit of the exact solver per schedule; 0: off.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of the table.")]
Save = Annotated[Path | None, typer.Option(help="Write the JSON to this file too.")]
Html = Annotated[Path | None, typer.Option(help="Write a picture page: the schedules, or the replay.")]
TraceFile = Annotated[Path | None, typer.Option("--trace", help="Write a trace for ui.perfetto.dev.")]
Text = Annotated[bool, typer.Option("--text", help="Print the plan in torch's text form: 0F0,2I0,2W0.")]
Check = Annotated[Path | None, typer.Option(help="Validate a plan file (from --save or --json) and do nothing else.")]
Prepare = Annotated[int | None, typer.Option(help="Prepare plans for 1..N failures and write them to --store.")]
Store = Annotated[Path | None, typer.Option(help="Plan store: written with --prepare, else looked up for --failed.")]
ReplayTrace = Annotated[
    str | None, typer.Option("--replay", help="Play an availability trace through five policies: a CSV, or spot-24.")
]
Seed = Annotated[int, typer.Option(help="Which workers die in a replay.")]


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command(name="plan", help=_HELP)(plan_command)


_HELP = """Plan a pipeline round dead workers, in the bubbles of its schedule.

Example: holdfast plan --stages 4 --pipelines 3 --microbatches 6 --failed 1:2 --html plan.html

Shows four schedules: fault-free 1F1B, re-routed to live peers, with the backward pass split where it pays, and with
every stage stepping its optimizer by itself. With --replay, compares five ways to live with lost workers over time.
"""


def plan_command(
    stages: Stages = None,
    pipelines: Pipelines = None,
    microbatches: Microbatches = None,
    failed: Failed = "",
    times: Times = None,
    profile: ProfileOption = None,
    memory: Memory = None,
    normalise: Normalise = False,
    solve_seconds: Seconds = 10.0,
    as_json: AsJson = False,
    save: Save = None,
    html: Html = None,
    trace: TraceFile = None,
    text: Text = False,
    check: Check = None,
    prepare: Prepare = None,
    store: Store = None,
    replay: ReplayTrace = None,
    seed: Seed = 0,
) -> None:
    from holdfast.errors import HoldfastError

    output = _Output(as_json, save, html, trace, text)
    try:
        if check is not None:
            _check(check, as_json)
            return
        loaded = _profile(times, profile, stages)
        if replay is not None:
            _replay(replay, loaded, (stages, pipelines, microbatches), memory, seed, output)
            return
        job = _job(loaded, (stages, pipelines, microbatches), memory, failed)
        if prepare is not None:
            _prepare(job, prepare, store, solve_seconds)
        elif store is not None:
            _look_up(job, store, as_json)
        else:
            _plan(job, loaded, normalise, solve_seconds, output)
    except HoldfastError as error:
        _consoles()[1].print(f"[bold red]{type(error).__name__}[/]: {_plain(str(error))}", soft_wrap=True)
        raise typer.Exit(BAD_INPUT) from error
    except OSError as error:
        _consoles()[1].print(f"[bold red]Cannot write[/]: {_plain(str(error))}. Try: another path.", soft_wrap=True)
        raise typer.Exit(BAD_INPUT) from error


class _Output:
    """Where the results go."""

    def __init__(self, as_json: bool, save: Path | None, html: Path | None, trace: Path | None, text: bool) -> None:
        self.as_json = as_json
        self.save = save
        self.html = html
        self.trace = trace
        self.text = text

    def write(self, path: Path, content: str) -> None:
        path.write_text(content)
        _consoles()[1].print(f"wrote {_plain(str(path))}", soft_wrap=True)


def _consoles() -> tuple[Console, Console]:
    """Results, and everything else."""
    from rich.console import Console

    return Console(), Console(stderr=True)


def _plain(text: str) -> str:
    from rich.markup import escape

    return escape(text)


def _profile(times: str | None, profile: str | None, stages: int | None) -> Profile:
    from holdfast.errors import BrokenProfile
    from holdfast.reroute.notation import parse_times
    from holdfast.reroute.profile import Profile, load_profile

    if times is not None and profile is not None:
        raise BrokenProfile("Both --times and --profile were given.", what_to_try="keep one of them.")
    if profile is not None:
        return load_profile(profile)
    if times is not None:
        per_stage = parse_times(times, stages if stages is not None and stages > 0 else 1)
        return Profile(per_stage)
    return load_profile("paper")


def _job(profile: Profile, sizes: tuple[int | None, int | None, int | None], memory: int | None, failed: str) -> Job:
    from dataclasses import replace

    from holdfast.errors import ImpossibleShape
    from holdfast.reroute.notation import parse_workers
    from holdfast.reroute.shape import Job, Shape

    stages, pipelines, microbatches = sizes
    if stages is None and len(profile.costs) > 1:
        stages = len(profile.costs)
    if stages is None or pipelines is None or microbatches is None:
        raise ImpossibleShape(
            "A plan needs --stages, --pipelines and --microbatches.",
            what_to_try="holdfast plan --stages 4 --pipelines 3 --microbatches 6 --failed 1:2",
        )
    shape = Shape(stages, pipelines, microbatches)
    costs = profile.for_stages(shape.stages)
    if memory is not None:
        costs = tuple(replace(cost, memory_limit=memory) for cost in costs)
    return Job(shape, costs, parse_workers(failed))


def _plan(job: Job, profile: Profile, normalise: bool, seconds: float, output: _Output) -> None:
    from holdfast.reroute.document import plan_document
    from holdfast.reroute.normalise import normalise as spread_failures
    from holdfast.reroute.planner import plan
    from holdfast.reroute.solver import Effort

    advice = spread_failures(job) if job.failed else None
    if normalise and advice is not None:
        job = job.with_failed(advice.failed)
    with _searching(seconds) as notice:
        made = plan(job, Effort(seconds=max(0.0, seconds)), notice)
    applied = advice if normalise else None
    if output.as_json or output.save is not None:
        encoded = json.dumps(plan_document(made, advice))
        if output.save is not None:
            output.write(output.save, encoded + "\n")
        if output.as_json:
            sys.stdout.write(encoded + "\n")
    if output.text:
        from holdfast.reroute.action_text import action_text

        sys.stdout.write(action_text(made.staggered))
    elif not output.as_json:
        _print_plan(made, advice, applied)
    if output.html is not None:
        from holdfast.reroute.gantt import gantt_html

        output.write(output.html, gantt_html(made))
    if output.trace is not None:
        from holdfast.reroute.perfetto import perfetto_trace

        output.write(output.trace, json.dumps(perfetto_trace(made.steps, profile.tick_ns)))


@contextmanager
def _searching(seconds: float) -> Iterator[Any]:
    """A progress bar over the searches of a plan; yields the planner's `notice`."""
    with _progress() as progress:
        task = progress.add_task("planning", total=NUM_SEARCHES)
        seen: list[str] = []

        def notice(name: str, elapsed: float, best: int, bound: int) -> None:
            if name not in seen:
                seen.append(name)
            found = f"best {best}, bound {bound}" if best else f"bound {bound}"
            label = f"{name.replace('_', ' ')}: {found}, solver limit {seconds:g} s"
            progress.update(task, completed=len(seen) - 1, description=label)

        yield notice
        progress.update(task, completed=NUM_SEARCHES)


def _progress() -> Progress:
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), BarColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    return Progress(*columns, console=_consoles()[1], transient=True)


def _print_plan(made: Plan, advice: Normalisation | None, applied: Normalisation | None) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from holdfast.reroute.bound import is_hidden
    from holdfast.reroute.gantt import TITLES

    console, shape = _consoles()[0], made.job.shape
    dead = ", ".join(str(worker) for worker in sorted(made.job.failed)[:16]) or "none"
    if len(made.job.failed) > 16:
        dead += f" and {len(made.job.failed) - 16} more"
    title = f"{shape.stages} stages x {shape.pipelines} pipelines x {shape.microbatches} micro-batches, dead: {dead}"
    table = Table(title=title, box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for heading in ("schedule", "slots", "of 1F1B", "period", "splits", "memory", "found by"):
        table.add_column(heading, justify="left" if heading in ("schedule", "found by") else "right", no_wrap=True)
    names = dict(TITLES) | {"rerouted_best": "Re-routed, solver", "fault_free_staggered": "Fault-free, zero-bubble"}
    order = ("fault_free", "rerouted", "rerouted_best", "decoupled", "staggered", "fault_free_staggered")
    for name in order:
        schedule, search = made.schedules[name], made.searches.get(name)
        table.add_row(
            names[name],
            str(schedule.slots),
            f"{schedule.slots / made.fault_free.slots:.0%}",
            str(schedule.period),
            str(schedule.num_split),
            str(max(schedule.peak_memory.values())),
            search.label if search is not None else "rule",
            style="bold" if name == "staggered" else None,
        )
    console.print(table)
    console.print("Slots: ticks without the optimizer; memory: most held by a worker; * no shorter one exists.")
    hidden = "hidden in 1F1B's bubbles" if is_hidden(made.job) else "more than 1F1B's bubbles hold"
    console.print(
        f"Lower bound {made.limits.work}; throughput {made.throughput_ratio:.3f} of fault-free 1F1B, "
        f"{made.best_throughput_ratio:.3f} of the best fault-free schedule. Re-routed work: {hidden}."
    )
    if applied is not None and applied.moves:
        console.print("Moves made first:", _moves(applied))
    elif advice is not None and advice.bound_after < advice.bound_before and applied is None:
        console.print(
            f"Moving {_moves(advice)} would lower the bound from {advice.bound_before} to {advice.bound_after}: "
            "see --normalise."
        )


def _moves(advice: Normalisation) -> str:
    moves = [f"{move.worker} to the place of {move.takes_place_of}" for move in advice.moves]
    more = f" and {len(moves) - 6} more" if len(moves) > 6 else ""
    return ", ".join(moves[:6]) + more


def _check(path: Path, as_json: bool) -> None:
    from holdfast.errors import InvalidPlan
    from holdfast.reroute.document import check_plan

    try:
        document = json.loads(path.read_text())
    except (OSError, ValueError, RecursionError) as error:
        raise InvalidPlan(f"Cannot read {path}: {error}.", what_to_try="give a file written by --save.") from error
    found = [str(violation) for violation in check_plan(document)]
    if as_json:
        sys.stdout.write(json.dumps({"valid": not found, "violations": found}) + "\n")
    else:
        console = _consoles()[0]
        for line in found:
            console.print(_plain(line))
        console.print("[green]valid[/]" if not found else f"[red]{len(found)} rules broken[/]")
    if found:
        raise typer.Exit(BROKEN_PLAN)


def _prepare(job: Job, count: int, store: Path | None, seconds: float) -> None:
    from holdfast.errors import NoPlanStored
    from holdfast.reroute.solver import Effort
    from holdfast.reroute.store import PlanStore

    if store is None or count < 1:
        raise NoPlanStored(
            "--prepare needs a count of 1 or more and --store.", what_to_try="--prepare 3 --store plans.json"
        )
    with _progress() as progress:
        task = progress.add_task("planning", total=count)

        def notice(failures: int, plans: int) -> None:
            progress.update(task, completed=failures - 1, description=f"{failures} failures: {plans} plans")

        made = PlanStore.prepare(job, count, Effort(seconds=max(0.0, seconds)), notice=notice)
    made.save(store)
    console = _consoles()[0]
    for failures, plans in made.plans.items():
        best = min(plan.period for plan in plans)
        console.print(f"{failures} failures: {len(plans)} plans, period {best} and up")
    console.print(f"wrote {_plain(str(store))}", soft_wrap=True)


def _look_up(job: Job, store: Path, as_json: bool) -> None:
    from holdfast.reroute.store import PlanStore

    found = PlanStore.load(store).place(job.failed)
    if as_json:
        document = {
            "period": found.plan.period,
            "moves": [[list(move.worker), list(move.takes_place_of)] for move in found.moves],
            "permutation": [list(row) for row in found.permutation],
            "seats": {str(place): list(worker) for place, worker in found.seats.items()},
        }
        sys.stdout.write(json.dumps(document) + "\n")
        return
    console = _consoles()[0]
    console.print(f"Period {found.plan.period}; plan for dead {', '.join(map(str, sorted(found.plan.job.failed)))}.")
    for move in found.moves:
        console.print(f"Move {move.worker} to the place of {move.takes_place_of}.")
    changed = [f"{place} is {worker}" for place, worker in found.seats.items() if place != worker]
    console.print("Places that change hands: " + (", ".join(changed) or "none") + ".")


def _replay(
    name: str,
    profile: Profile,
    sizes: tuple[int | None, int | None, int | None],
    memory: int | None,
    seed: int,
    output: _Output,
) -> None:
    from holdfast.reroute.availability import load_trace
    from holdfast.reroute.policies import PolicyCosts
    from holdfast.reroute.replay import replay

    trace = load_trace(name)
    stages = sizes[0] if sizes[0] is not None else max(len(profile.costs), 4) if len(profile.costs) != 1 else 4
    pipelines = sizes[1] if sizes[1] is not None else max(1, -(-trace.num_workers // max(1, stages)))
    job = _job(profile, (stages, pipelines, sizes[2] if sizes[2] is not None else 5), memory, "")
    costs = PolicyCosts() if profile.tick_ns is None else PolicyCosts(tick_s=profile.tick_ns / 1e9)
    with _progress() as progress:
        task = progress.add_task("replaying", total=5)
        played = replay(
            trace, job, costs, seed, lambda policy: progress.update(task, advance=1, description=f"replaying {policy}")
        )
    encoded = json.dumps(played.document())
    if output.save is not None:
        output.write(output.save, encoded + "\n")
    if output.as_json:
        sys.stdout.write(encoded + "\n")
    else:
        _print_replay(played)
    if output.html is not None:
        from holdfast.reroute.replay_picture import replay_html

        output.write(output.html, replay_html(played))


def _print_replay(played: Replay) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    console, shape = _consoles()[0], played.job.shape
    title = (
        f"{played.trace.name}: {shape.stages} stages x {shape.pipelines} pipelines x {shape.microbatches} "
        f"micro-batches, {played.trace.seconds / 3600:.1f} h, seed {played.seed}"
    )
    table = Table(title=title, box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for heading in ("policy", "mean", "Holdfast is", "lowest", "stopped", "work lost"):
        table.add_column(heading, justify="left" if heading == "policy" else "right", no_wrap=True)
    best = played.runs[0].mean
    for run in played.runs:
        table.add_row(
            run.name,
            f"{run.mean:.3f}",
            f"{best / run.mean:.2f}x" if run.mean else "-",
            f"{run.lowest:.3f}",
            f"{run.paused_s / 60:.0f} min",
            f"{run.lost_s / 60:.0f} min",
        )
    console.print(table)
    console.print(f"Throughput relative to fault-free 1F1B. Mean share of workers alive: {played.mean_available:.3f}.")
    for run in played.runs:
        console.print(f"[bold]{run.name}[/]: {_plain(run.model)}.")
