"""`holdfast demo`: train digits over Holdfast and over Gloo side by side, and show what came of it.

Both runs are up at the same time and take turns, one epoch each: a machine with few cores would otherwise measure how
the two disturb each other, and whatever else the machine does hits both alike. The runs report by lines of JSON on a
pipe. Results go to standard output, progress and errors to standard error.
"""

from __future__ import annotations

import importlib.util
import json
import os
import secrets
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console

TRANSPORTS = ("holdfast", "gloo")
EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "train_digits.py"
PICTURE, FIGURES = "demo.png", "demo.json"
TRAINING_FAILED, BAD_INPUT = 1, 2

START_LIMIT_S = 120.0  # importing torch in eight processes on two busy cores
EPOCH_LIMIT_S = 60.0
END_LIMIT_S = 60.0
STOP_LIMIT_S = 5.0
KEPT_LINES = 15
_MARK = "_HOLDFAST_DEMO_RUN"  # in the environment of every process of a run, so that none of them can be missed

# Okabe and Ito's palette: told apart by colour-blind eyes and on bad projectors.
_COLOURS = {"holdfast": "#0072B2", "gloo": "#D55E00"}
_NAMES = {"holdfast": "Holdfast", "gloo": "Gloo"}

Output = Annotated[Path, typer.Option("--output", "-o", help="Folder for the picture and the figures.")]
Ranks = Annotated[int, typer.Option(min=1, max=16, help="Processes per run.")]
Epochs = Annotated[int, typer.Option(min=2, max=1000, help="Epochs per run; the first is warm-up and not timed.")]
Seed = Annotated[int, typer.Option(help="Seed of the weights and of the order of the data.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the figures as JSON instead of the table.")]

_HELP = """Train digits over Holdfast and over Gloo side by side.

Same seed, same model, same data; the two take turns, epoch by epoch. Ends with a table and a picture. Takes about a
minute.

Example: holdfast demo --output demo-output
"""


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command(name="demo", help=_HELP)(demo_command)


def demo_command(
    output: Output = Path("demo-output"),
    ranks: Ranks = 4,
    epochs: Epochs = 30,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    _require(EXAMPLE, ("sklearn", "scikit-learn"), ("matplotlib", "matplotlib"))
    try:
        output.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="holdfast-demo-") as scratch, _ended_by_signal(), ExitStack() as stack:
            jobs = []
            for name in TRANSPORTS:
                jobs.append(_launch(name, output, Path(scratch), ranks, epochs, seed))
                stack.callback(jobs[-1].stop)
            _train(jobs, epochs)
        figures = {name: json.loads(_figures_file(output, name).read_text()) for name in TRANSPORTS}
        document = summarise(figures, output / PICTURE)
        draw(figures, document, output / PICTURE)
        (output / FIGURES).write_text(json.dumps(document, indent=2) + "\n")
    except RunError as failure:
        _fail(str(failure), TRAINING_FAILED)
    except OSError as error:
        _fail(f"cannot write to {output}: {error}. Try: another --output", BAD_INPUT)
    if as_json:
        sys.stdout.write(json.dumps(document) + "\n")
    else:
        _print_table(document)


# -- the two runs -----------------------------------------------------------------------------------------------------


class RunError(Exception):
    """A run did not do its part; the message says which, and ends with its last lines."""


class Job:
    """One run: a process that says by lines of JSON how far it is, and waits for its turn before every epoch."""

    def __init__(self, name: str, command: Sequence[str], turns: Path) -> None:
        self.name = name
        self.epochs_done = 0
        self.ready = False
        self.last: dict[str, Any] = {}
        self._turns = turns
        self._run = f"{_MARK}={secrets.token_hex(8)}"
        self._unfinished = b""
        self._tail: deque[str] = deque(maxlen=KEPT_LINES)
        self.allow(0)
        mark, value = self._run.split("=")
        self.process = subprocess.Popen(
            command,
            env={**os.environ, mark: value, "OMP_NUM_THREADS": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C reaches this process only, which then ends the run in order
        )
        assert self.process.stdout is not None
        self.pipe = self.process.stdout
        os.set_blocking(self.pipe.fileno(), False)

    def allow(self, epochs: int) -> None:
        """Lets the run go on until it has done this many epochs."""
        fresh = self._turns.with_suffix(".fresh")
        fresh.write_text(str(epochs))
        fresh.replace(self._turns)

    def read(self) -> bool:
        """Takes in what the run has written. False at its end."""
        chunk = self.pipe.read()
        if chunk is None:
            return True
        *lines, self._unfinished = (self._unfinished + chunk).split(b"\n")
        for line in lines:
            self._take(line.decode(errors="replace").rstrip())
        return chunk != b""

    def _take(self, line: str) -> None:
        try:
            said = json.loads(line)
        except ValueError:
            said = None
        if not isinstance(said, dict):
            self._tail.append(line)
            return
        self.last.update(said)
        self.ready = self.ready or "ready" in said
        self.epochs_done = int(said.get("epoch", self.epochs_done))

    def failed(self, what: str) -> RunError:
        said = "\n".join(f"  {line}" for line in self._tail) or "  (nothing)"
        return RunError(f"the run over {_NAMES.get(self.name, self.name)} {what}. Its last lines:\n{said}")

    def processes(self) -> list[int]:
        """Every living process of the run, also those that the launcher has orphaned."""
        found = []
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and self._run.encode() in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
            except OSError:
                continue  # ended meanwhile, or of another user
        return found

    def stop(self) -> None:
        """Ends every process of the run: by the launcher if it can, else one by one."""
        try:
            if self.process.poll() is None:
                self.process.terminate()
                _wait_until(lambda: not self.processes(), STOP_LIMIT_S)
        finally:
            for process in self.processes():
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            self.process.wait(STOP_LIMIT_S)
            _wait_until(lambda: not self.processes(), STOP_LIMIT_S)  # a kill takes a moment, and orphans are not ours
            self.pipe.close()


def _launch(name: str, output: Path, scratch: Path, ranks: int, epochs: int, seed: int) -> Job:
    turns, figures = scratch / f"{name}.turns", _figures_file(output, name)
    figures.unlink(missing_ok=True)
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    script = [str(EXAMPLE), "--transport", name, "--epochs", str(epochs), "--seed", str(seed)]
    return Job(name, [*launcher, *script, "--json", str(figures), "--progress", "json", "--turns", str(turns)], turns)


def take_turns(jobs: Sequence[Job], epochs: int, on_progress: Callable[[Job], None]) -> None:
    """Brings all jobs to the start, lets them train an epoch each in turn, and sees them end. Every wait is bounded."""
    with selectors.DefaultSelector() as selector:
        for job in jobs:
            selector.register(job.pipe, selectors.EVENT_READ, job)

        def pump(is_there: Callable[[], bool], limit_s: float, waiting_for: Job | None, what: str) -> None:
            ends = time.monotonic() + limit_s
            while not is_there():
                if time.monotonic() > ends:
                    late = waiting_for or next(job for job in jobs if not job.ready or job.pipe in selector.get_map())
                    raise late.failed(f"{what} within {limit_s:g} s")
                for key, _ in selector.select(0.2):
                    job: Job = key.data
                    if not job.read():
                        selector.unregister(job.pipe)
                        if job.process.wait(END_LIMIT_S) != 0 or job.epochs_done < epochs:
                            raise job.failed(f"ended with code {job.process.returncode}")
                    on_progress(job)

        pump(lambda: all(job.ready for job in jobs), START_LIMIT_S, None, "did not start")
        for epoch in range(1, epochs + 1):
            for job in jobs if epoch % 2 else reversed(jobs):
                job.allow(epoch)
                pump(partial(_has_done, job, epoch), EPOCH_LIMIT_S, job, "did not train an epoch")
        for job in jobs:
            job.allow(epochs + 1)
        pump(lambda: not selector.get_map(), END_LIMIT_S, None, "did not end")


def _has_done(job: Job, epoch: int) -> bool:
    return job.epochs_done >= epoch


def _train(jobs: Sequence[Job], epochs: int) -> None:
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description:<8}"),
        BarColumn(bar_width=None),
        TextColumn("epoch {task.completed}/{task.total}"),
        TextColumn("{task.fields[state]:<30}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=_consoles()[1], expand=True) as progress:
        bars = {job.name: progress.add_task(_NAMES[job.name], total=epochs, state="starting") for job in jobs}
        take_turns(jobs, epochs, lambda job: progress.update(bars[job.name], **_progress_of(job)))


def _progress_of(job: Job) -> dict[str, Any]:
    if job.epochs_done == 0:
        return {"state": "ready" if job.ready else "starting"}
    state = f"accuracy {job.last.get('accuracy', 0):.1%}, loss {job.last.get('loss', 0):.4f}"
    return {"completed": job.epochs_done, "state": state}


# -- what came of it --------------------------------------------------------------------------------------------------


def summarise(figures: Mapping[str, Mapping[str, Any]], picture: Path) -> dict[str, Any]:
    """The closing table as data. Step times leave the first epoch out: bucket rebuild, warm-up, cold caches."""
    rows = []
    for name, run in figures.items():
        ascending = sorted(timed_steps(run))
        told = run["holdfast"]
        rows.append(
            {
                "transport": name,
                "accuracy": run["accuracy"],
                "test_loss": run["test_loss"][-1],
                "steps": len(ascending),
                "step_p50_ms": percentile(ascending, 0.50),
                "step_p99_ms": percentile(ascending, 0.99),
                # Gloo runs over TCP: it delivers everything, or nothing at all.
                "delivered_ratio": told["delivered_ratio"] if told else 1.0,
                "deadline_ms": told["deadline_ms"] if told else None,
                "ended_at_bound": told["ended_at_bound"] if told else None,
                "explain": told["explain"] if told else [],
            }
        )
    first = next(iter(figures.values()))
    agreed = {key: first[key] for key in ("ranks", "epochs", "seed", "parameters")}
    return {**agreed, "rows": rows, "picture": str(picture)}


def timed_steps(run: Mapping[str, Any]) -> list[float]:
    steps: list[float] = run["step_ms"]
    return steps[run["steps_per_epoch"] :]


def percentile(ascending: Sequence[float], share: float) -> float:
    return ascending[min(len(ascending) - 1, int(share * len(ascending)))]


def draw(figures: Mapping[str, Mapping[str, Any]], document: Mapping[str, Any], path: Path) -> None:
    """Loss on the left; on the right the distribution of step times, one transport above the other."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    style: dict[Any, Any] = {"font.size": 15, "axes.spines.top": False, "axes.spines.right": False}
    rows = {row["transport"]: row for row in document["rows"]}
    with pyplot.rc_context(style):
        figure = pyplot.figure(figsize=(13.3, 6.6), dpi=120, layout=ConstrainedLayoutEngine(w_pad=0.15, h_pad=0.1))
        grid = figure.add_gridspec(len(figures), 2, width_ratios=(1, 1.25))
        figure.suptitle(
            f"Training digits on {document['ranks']} ranks: Holdfast delivered "
            f"{_share(rows['holdfast']['delivered_ratio'])} of the gradients",
            x=0.012,
            ha="left",
            fontweight="bold",
        )
        _draw_losses(figure.add_subplot(grid[:, 0]), figures, rows)
        _draw_steps([figure.add_subplot(grid[index, 1]) for index in range(len(figures))], figures, rows)
        figure.savefig(path)
        pyplot.close(figure)


def _draw_losses(axes: Any, figures: Mapping[str, Mapping[str, Any]], rows: Mapping[str, Mapping[str, Any]]) -> None:
    # Runs that agree lie on top of each other: a wide pale line under a thin dark one shows both.
    looks = {"holdfast": {"linewidth": 2.5, "zorder": 2}, "gloo": {"linewidth": 9, "alpha": 0.4, "zorder": 1}}
    for name, run in figures.items():
        epochs = range(1, len(run["test_loss"]) + 1)
        label = f"{_NAMES[name]}, accuracy {rows[name]['accuracy']:.1%}"
        axes.plot(epochs, run["test_loss"], color=_COLOURS[name], label=label, solid_capstyle="round", **looks[name])
    axes.set(xlabel="epoch", yscale="log")
    axes.set_title("Loss on the test set", loc="left")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.legend(frameon=False, loc="upper right")
    axes.grid(axis="y", alpha=0.3)


def _draw_steps(panels: Sequence[Any], figures: Mapping[str, Mapping[str, Any]], rows: Mapping[str, Any]) -> None:
    # One stalled step must not squeeze all others into a corner: what lies far out counts in the last bar.
    slowest = max(max(timed_steps(run)) for run in figures.values())
    limit = min(slowest, 1.5 * max(row["step_p99_ms"] for row in rows.values()))
    edges = [limit * index / 50 for index in range(51)]
    highest = 0.0
    for axes, (name, run) in zip(panels, figures.items(), strict=True):
        shown = [min(step, limit) for step in timed_steps(run)]
        heights, _, _ = axes.hist(shown, bins=edges, color=_COLOURS[name], alpha=0.75)
        highest = max(highest, *heights)
        axes.set(xlim=(0, limit), ylabel="steps")
        axes.set_title(f"Step time over {_NAMES[name]}", loc="left")
    for axes, row in zip(panels, rows.values(), strict=True):
        axes.set_ylim(0, highest * 1.45)
        for share, height in (("p50", 1.43), ("p99", 1.23)):
            value = row[f"step_{share}_ms"]
            side = "left" if value < 0.72 * limit else "right"
            axes.axvline(value, color="black", linewidth=1.5, linestyle="--")
            axes.text(value, highest * height, f" {share} {value:.1f} ms ", ha=side, va="top")
    panels[0].tick_params(labelbottom=False)
    panels[-1].set_xlabel("milliseconds" + (f"; the last bar holds all up to {slowest:.0f}" if slowest > limit else ""))


def _print_table(document: Mapping[str, Any]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    console = _consoles()[0]
    title = f"Digits, {document['ranks']} ranks, {document['epochs']} epochs in turns, seed {document['seed']}"
    table = Table(title=title, box=SIMPLE_HEAD, title_justify="left")
    for heading in ("transport", "accuracy", "step p50", "step p99", "delivered", "deadline"):
        table.add_column(heading, justify="left" if heading == "transport" else "right", no_wrap=True)
    for row in document["rows"]:
        table.add_row(
            _NAMES[row["transport"]],
            f"{row['accuracy']:.2%}",
            f"{row['step_p50_ms']:.1f} ms",
            f"{row['step_p99_ms']:.1f} ms",
            _share(row["delivered_ratio"]),
            "none" if row["deadline_ms"] is None else f"{row['deadline_ms']:.0f} ms",
        )
    console.print(table)
    for row in document["rows"]:
        for line in row["explain"]:
            if line.startswith("bound: "):
                console.print(f"One all-reduce ends within {line.removeprefix('bound: ')}.", markup=False)
    console.print("Loopback loses nothing, so this shows that training is the same, not that it is faster.")
    console.print(f"Picture: {document['picture']}", markup=False, soft_wrap=True)


def _share(ratio: float) -> str:
    """Never rounded up to 100%: a loss is to be seen."""
    return "100%" if ratio == 1 else f"{int(ratio * 1e5) / 1e3:.3f}%"


# -- the surroundings -------------------------------------------------------------------------------------------------


def _require(script: Path, *packages: tuple[str, str]) -> None:
    missing = [name for module, name in packages if importlib.util.find_spec(module) is None]
    if missing:
        _fail(f"the demo needs {' and '.join(missing)}. Try: pip install 'holdfast[demo]'", BAD_INPUT)
    if not script.is_file():
        _fail(f"the demo trains {script.name} from the examples folder of a source checkout. Try: make demo", BAD_INPUT)


def _figures_file(output: Path, name: str) -> Path:
    return output / f"{name}.json"


def _wait_until(condition: Callable[[], bool], limit_s: float) -> None:
    ends = time.monotonic() + limit_s
    while not condition() and time.monotonic() < ends:
        time.sleep(0.05)


@contextmanager
def _ended_by_signal() -> Iterator[None]:
    """SIGTERM ends the demo as Ctrl-C does: in order, with nothing left behind."""

    def end(number: int, _frame: object) -> None:
        raise SystemExit(128 + number)

    try:
        before = signal.signal(signal.SIGTERM, end)
    except ValueError:  # not the main thread: whoever runs us keeps the signals
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _fail(message: str, code: int) -> None:
    _consoles()[1].print(f"holdfast demo: {message}", markup=False, highlight=False, soft_wrap=True, style="red")
    raise typer.Exit(code)


def _consoles() -> tuple[Console, Console]:
    from rich.console import Console

    return Console(), Console(stderr=True)
