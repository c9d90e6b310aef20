"""The page on pylance's names is what both packages are now, and no name is absent without a reason."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pytest

ROOT = Path(__file__).resolve().parents[2]


def load_script() -> Any:
    spec = importlib.util.spec_from_file_location("pylance_names", ROOT / "scripts" / "pylance_names.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_the_page_is_what_was_found() -> None:
    script = load_script()
    page = script.made_page()
    assert "NO REASON GIVEN" not in page
    assert page == script.PAGE.read_text(), "run scripts/pylance_names.py, and look at what changed"


def test_the_same_is_what_was_called_with_the_same_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    script = load_script()
    from scripts import pylance_calls

    calls = {
        "same": "ds.to_table(['a'], nearest=near)",
        "different": "L.dataset.__module__",
        "not offered": "list(ds.scanner().scan_batches())",
        "uncalled": "ds.no_such_name",
    }
    monkeypatch.setattr(pylance_calls, "CALLS", {name: call for name, call in calls.items()})
    with script.Caller() as caller:
        assert [caller.verdict(name)[0] for name in calls] == [*calls]
        assert caller.verdict("nowhere") == ("uncalled", "")
        found = script.Found()
        for name in calls:
            script.note(found, name, name, script.section, script.section, caller)
    assert (found.same, found.uncalled) == (["same"], ["uncalled"])
    assert [verdict for _, verdict, _ in found.rest] == ["different", "not offered"]


def test_what_the_script_tells_apart() -> None:
    script = load_script()

    def theirs(a: int, b: int = 1, *, c: str | None = None) -> None: ...

    def more(a: int, b: int = 1, *, c: str | None = None, d: int = 0) -> None: ...

    def less(a: int, b: int = 2) -> None: ...

    def any_of_them(a: int, **others: object) -> None: ...

    assert script.compare("x", theirs, theirs) == ("same", "")
    assert script.compare("x", theirs, more) == ("different", "also takes `d`")
    assert script.compare("x", theirs, less) == ("different", "without `c`; other defaults of `b`")
    assert script.compare("x", theirs, any_of_them) == ("same", "")
    verdict, text = script.compare("x", theirs, script.load("lance_io").LanceDataset.initialize_mem_wal)
    assert verdict == "not offered" and "write-ahead log" in text
    found = script.Found()
    script.note(found, "lance.query.Nothing", "Nothing", theirs, script._GONE, None)
    assert found.rest[0][1] == "absent" and "NO REASON" not in found.rest[0][2]
