"""Arguments whose bytes are no UTF-8, which Python passes on as halves of surrogate pairs: a usage error names them."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pytest
import typer
from typer.testing import CliRunner

from lance_io.cli.indices import index_commands
from lance_io.cli.main import app
from lance_io.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Command = Callable[..., None]

HALF = "a\udcffb"
TOLD = "expected Unicode text, found half of a surrogate pair, U+DCFF, at character"


def arguments() -> Iterator[tuple[Command, Any, bool]]:
    """The commands, and each argument of theirs that is a text, as typer sees it, and whether it is a list of them."""
    for group in (app, index_commands.app):
        made: Any = typer.main.get_command(group)
        for declared in group.registered_commands:
            run = declared.callback
            assert run is not None
            seen = made.commands[declared.name or run.__name__.replace("_", "-")].params
            texts = {name: str(form) for name, form in run.__annotations__.items() if "str" in str(form)}
            yield from [(run, one, "list[str]" in texts[one.name]) for one in seen if one.name in texts]


ARGUMENTS = [*arguments()]


@pytest.mark.parametrize(
    ("run", "argument", "is_list"), ARGUMENTS, ids=[f"{run.__name__}-{one.name}" for run, one, _ in ARGUMENTS]
)
def test_each_text_is_refused_before_the_command_runs(run: Command, argument: Any, is_list: bool) -> None:
    with pytest.raises(UsageError) as caught:
        run(**{argument.name: ["fine", HALF] if is_list else HALF})
    shown = argument.opts[0] if argument.opts[0].startswith("-") else argument.metavar or argument.name.upper()
    assert str(caught.value).startswith(f"{shown}: {TOLD} 1")
    assert str(caught.value).encode()


def test_all_commands_are_covered() -> None:
    assert {"info", "write", "merge", "clone", "doctor", "create", "drop"} <= {run.__name__ for run, _, _ in ARGUMENTS}
    assert len(ARGUMENTS) > 90


@pytest.fixture
def table(tmp_path: Path) -> lance.LanceDataset:
    return lance.write_dataset(pa.table({"id": range(5), "t": ["x"] * 5}), tmp_path / "t")


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["info", "TABLE\udcff"], "URI"),
        (["head", "TABLE", "-f", "t = '\udcff'"], "--filter"),
        (["count", "TABLE", "--tag", "\udcff"], "--tag"),
        (["head", "TABLE", "-c", "id", "-c", "\udcff"], "--columns"),
        (["info", "TABLE", "-o", "aws_secret_access_key=key\udcff"], "--storage-option"),
        (["write", "TABLE\udcff.csv", "TABLE"], "SOURCE"),
        (["write", "TABLE.csv", "TABLE", "--commit-message", "\udcff"], "--commit-message"),
        (["add-column", "TABLE", "\udcff", "--type", "int64"], "NAME"),
        (["index", "create", "TABLE", "id", "--name", "\udcff"], "--name"),
        (["index", "drop", "TABLE", "\udcff"], "NAME"),
    ],
)
def test_a_command_tells_in_one_line(table: lance.LanceDataset, words: list[str], shown: str) -> None:
    done = CliRunner().invoke(app, [word.replace("TABLE", table.uri) for word in words])
    assert done.exit_code == 2
    assert done.output.startswith(f"error: {shown}")
    assert TOLD in done.output
    assert "key" not in done.output
    assert done.output.count("\n") == 1
    assert lance.dataset(table.uri).version == 1


@pytest.mark.parametrize(
    "words",
    [
        [b"count", b"t\xff"],
        [b"count", b"t", b"-f", b"\xff"],
        [b"\xff"],
        [b"count", b"t", b"--\xff"],
        [b"log", b"t", b"-n\xff"],
    ],
)
@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_bytes_on_a_real_command_line(words: list[bytes], encoding: str) -> None:
    program = [sys.executable, "-m", "lance_io.cli.main", *words]
    environment = os.environ | {"PYTHONIOENCODING": encoding, "PYTHONUTF8": "1"}
    done = subprocess.run(program, check=False, capture_output=True, timeout=60, env=environment)
    assert done.returncode == 2
    assert b"Traceback" not in done.stderr
    assert b"UnicodeEncodeError" not in done.stderr
    assert not done.stdout
