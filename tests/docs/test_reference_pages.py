"""Reference pages, links and snippets agree with the code."""

from __future__ import annotations

import dataclasses
import re
import runpy
from pathlib import Path

import pytest

from holdfast.outcome import Outcome, PeerOutcome

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(
    [*ROOT.glob("*.md"), *DOCS.rglob("*.md"), *(ROOT / "native").rglob("README.md"), ROOT / "tests/README.md"]
)


def _enumerators(header: str, name: str) -> list[str]:
    body = re.search(rf"enum class {name}\b[^{{]*{{(.*?)}};", header, re.DOTALL)
    assert body is not None, f"{name} has gone"
    without_comments = re.sub(r"//.*", "", body[1])
    names = [entry.split("=")[0].strip() for entry in without_comments.split(",")]
    return [entry for entry in names if entry and entry != "count_"]


def test_the_settings_page_is_what_the_settings_say() -> None:
    module = runpy.run_path(str(DOCS / "render_configuration.py"))
    page = (DOCS / "reference" / "configuration.md").read_text()
    assert page == module["render"](), "run `python docs/render_configuration.py --write`"


@pytest.mark.parametrize("name", ["PacketType", "Stage", "Drop"])
def test_the_wire_page_names_everything_the_header_file_names(name: str) -> None:
    page = (DOCS / "reference" / "wire-format.md").read_text()
    names = _enumerators((ROOT / "native/core/wire.h").read_text(), name)
    assert len(names) > 3
    assert [entry for entry in names if f"`{entry}`" not in page] == []


def test_the_wire_page_lays_the_header_out_without_gaps() -> None:
    page = (DOCS / "reference" / "wire-format.md").read_text()
    fields = [(int(at), int(size)) for at, size in re.findall(r"^\| (\d+) \| (\d+) \| \w", page, re.MULTILINE)]
    ends = [at + size for at, size in fields]
    assert [at for at, _ in fields] == [0, *ends[:-1]]
    declared = re.search(r"header_bytes = (\d+)", (ROOT / "native/core/wire.h").read_text())
    assert declared is not None
    assert ends[-1] == int(declared[1])


@pytest.mark.parametrize("kind", [Outcome, PeerOutcome])
def test_the_outcome_page_names_every_field(kind: type) -> None:
    page = (DOCS / "reference" / "outcome.md").read_text()
    assert dataclasses.is_dataclass(kind)
    assert [field.name for field in dataclasses.fields(kind) if f"`{field.name}`" not in page] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\(([^)\s]+)\)", page.read_text())
    local = [target.partition("#")[0] for target in targets if "://" not in target]
    assert [target for target in local if target and not (page.parent / target).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_snippet_that_names_its_file_is_that_file(page: Path) -> None:
    for name, snippet in re.findall(r"<!-- (examples/\S+) -->\n```python\n(.*?)```", page.read_text(), re.DOTALL):
        assert snippet == (ROOT / name).read_text(), f"{page.name} and {name} differ"
