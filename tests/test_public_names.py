"""The public list is kept, costs no torch, and imports point one way."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import holdfast

PACKAGE = Path(holdfast.__file__).parent
PUBLIC = ["Config", "Handle", "HoldfastError", "OptiReduce", "Outcome", "PeerOutcome", "Summary", "attach"]

# STYLE.md: bridge -> reduce -> link, codec, control; reroute -> roster, link. Rooms at the top are free to all.
MAY_IMPORT = {
    "bridge": {"bridge", "reduce", "link", "codec", "control", "telemetry", "roster"},
    "reduce": {"reduce", "link", "codec", "control"},
    "link": {"link"},
    "codec": {"codec"},
    "control": {"control"},
    "reroute": {"reroute", "roster", "link"},
    "roster": {"roster", "link"},
    "doctor": {"doctor", "link"},
}
FREE = {"config", "errors", "key_file", "outcome", "strategy", "telemetry", "_native"}


def test_the_public_names_are_these() -> None:
    assert sorted(holdfast.__all__) == PUBLIC
    for name in PUBLIC:
        assert getattr(holdfast, name).__doc__, name


def test_other_names_do_not_exist() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        holdfast.no_such_name  # noqa: B018


@pytest.mark.parametrize("statement", ["import holdfast", "import holdfast.config, holdfast.errors, holdfast.outcome"])
def test_importing_it_does_not_import_torch(statement: str) -> None:
    script = f"import sys; {statement}; assert 'torch' not in sys.modules; assert 'numpy' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def imported_rooms(path: Path) -> set[str]:
    """First name below `holdfast` of everything a module imports, also inside functions, but not for typing only."""
    rooms = set()
    tree = ast.parse(path.read_text())
    typing_only = {
        id(node)
        for block in ast.walk(tree)
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING"
        for node in ast.walk(block)
    }
    for node in ast.walk(tree):
        if id(node) in typing_only:
            continue
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names = [node.module or ""]
            if node.module == "holdfast":
                names = [f"holdfast.{alias.name}" for alias in node.names]
        rooms |= {name.split(".")[1] for name in names if name.startswith("holdfast.")}
    return rooms


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_one_way(path: Path) -> None:
    room = path.relative_to(PACKAGE).parts[0]
    imported = imported_rooms(path)
    if room != "cli":
        assert "cli" not in imported
    if room not in ("bridge", "lab", "cli", "__init__.py"):
        assert "bridge" not in imported
    if room in MAY_IMPORT:
        assert imported <= MAY_IMPORT[room] | FREE
    elif room.removesuffix(".py") in FREE:
        assert imported <= FREE


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_torch_is_met_only_where_it_may_be(path: Path) -> None:
    room = path.relative_to(PACKAGE).parts[0]
    if room not in (
        "link",
        "reduce",
        "control",
        "config.py",
        "errors.py",
        "key_file.py",
        "outcome.py",
        "telemetry",
        "__init__.py",
    ):
        return
    names = {
        alias.name if isinstance(node, ast.Import) else node.module
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    assert not any(name is not None and name.split(".")[0] == "torch" for name in names)


def test_every_room_opens_with_a_docstring() -> None:
    for path in modules():
        text = path.read_text()
        if text.strip():
            assert ast.get_docstring(ast.parse(text)), path
