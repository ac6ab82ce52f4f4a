"""All verbs of the `holdfast` command together."""

from __future__ import annotations

import sys

import typer
from rich.console import Console
from rich.markup import escape

from holdfast import __version__
from holdfast.cli import bench, config, demo, doctor, lab, plan, race
from holdfast.errors import HoldfastError

app = typer.Typer(
    name="holdfast",
    help="PyTorch training that keeps its pace when the network and the machines do not keep theirs.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"holdfast {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(False, "--version", callback=_print_version, is_eager=True, help="Print the version."),
) -> None:
    pass


for verb in (bench, config, demo, doctor, lab, plan, race):
    verb.register(app)


def run() -> None:
    """Runs the command; errors a user can act on are one paragraph, not a traceback."""
    try:
        app()
    except HoldfastError as error:
        Console(stderr=True).print(
            f"[bold red]{type(error).__name__}[/]: {escape(str(error))}", highlight=False, soft_wrap=True
        )
        sys.exit(2)
