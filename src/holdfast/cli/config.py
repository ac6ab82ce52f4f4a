"""`holdfast config`: every setting, its value, and where the value came from."""

from __future__ import annotations

import dataclasses
import json
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from holdfast.config import field_documentation, resolve


def register(app: typer.Typer) -> None:
    app.command(name="config", help="Print the resolved settings and where each came from.")(_config)


def _config(
    explain: Annotated[bool, typer.Option("--explain", help="Also print what each setting does and costs.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    resolved = resolve()
    values = dataclasses.asdict(resolved.config)
    documentation = field_documentation()
    if as_json:
        rows = [
            {"name": name, "value": value, "origin": resolved.origins[name], "documentation": documentation[name]}
            for name, value in values.items()
        ]
        typer.echo(json.dumps(rows, indent=2))
        return
    table = Table("setting", "value", "from", *(["meaning"] if explain else []))
    for name, value in values.items():
        shown = "measured" if value is None and name == "deadline_ms" else "-" if value is None else str(value)
        table.add_row(name, shown, resolved.origins[name], *([documentation[name]] if explain else []))
    Console().print(table)
