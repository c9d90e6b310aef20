"""No kernel ends the process for memory that is not there.

Rust's own `push`, `collect`, `vec!` ... do. Each line of the kernels that names one of them is refused, unless its size
is a constant, or a comment on the line or above it says why there is room: `// room: reserved`. What is used instead is
in `kernels/src/room.rs`.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[2] / "kernels" / "src"
# Heads of requests, a path and a few headers; and the allocator itself.
EXEMPT = ("io/http.rs", "memory.rs")

GROWS = re.compile(
    r"""
    \.(push|push_str|extend|extend_from_slice|extend_from_within|resize|resize_with|insert|or_insert|or_insert_with)\(
    | \.(collect|unzip|reserve|reserve_exact|split_off|splice|concat|to_vec|to_owned|into_owned|to_mut)\b
    | \.(clone|sort|sort_by|sort_by_key|sort_by_cached_key|write_all|write_fmt|into_boxed_slice)\(
    | \.(join|repeat)\([";]
    | \b(write|writeln)!\(
    | \b(Py(Bytes|ByteArray|String)::new|String::from|Vec::from|pod_collect_to_vec)\(
    | \b(Vec|String|HashMap|HashSet)::with_capacity\((?!(\d+|(\d+\ \*\ )?[A-Z][A-Z0-9_]*)\))
    | \bvec!\[[^\]]*;(?!\ (\d+|[A-Z][A-Z0-9_]*)\])
    """,
    re.VERBOSE,
)


def grows(line: str) -> bool:
    """Whether a line of Rust allocates, and does not say why there is room."""
    code, _, comment = line.partition("//")
    return bool(GROWS.search(code)) and "room:" not in comment


def growing_lines(text: str) -> list[tuple[int, str]]:
    """Numbered lines that allocate, without the tests at the end."""
    lines = text.partition("#[cfg(test)]")[0].splitlines()
    above = ["", *lines]
    return [
        (number, line.strip())
        for number, line in enumerate(lines, start=1)
        if grows(line) and not above[number - 1].strip().startswith("// room:")
    ]


def test_kernels_have_an_error_for_memory_that_is_not_there() -> None:
    found = []
    for path in sorted(SOURCES.rglob("*.rs")):
        name = path.relative_to(SOURCES).as_posix()
        if not name.startswith(EXEMPT):
            found += [f"{name}:{number}: {line}" for number, line in growing_lines(path.read_text())]
    assert not found, "\n".join(["use what kernels/src/room.rs has, or say why there is room:", *found])


@pytest.mark.parametrize(
    "line",
    [
        "out.push(byte);",
        "out.extend_from_slice(bytes);",
        "out.extend(values.iter().map(|value| value.byte(0)));",
        "out.resize(length, 0);",
        "let all: Vec<_> = rows.iter().collect();",
        "let all = rows.iter().collect::<Vec<_>>();",
        "let mut out = Vec::with_capacity(num_rows);",
        "let mut out = vec![0; num_rows];",
        "let copy = bytes.to_vec();",
        "let copy = bytes.clone();",
        "seen.insert(code);",
        "let bytes = PyBytes::new(py, &found);",
        "members.sort_by(|a, b| a.key.cmp(&b.key)); // by name",
    ],
)
def test_each_way_to_allocate_is_seen(line: str) -> None:
    assert grows(line)


@pytest.mark.parametrize(
    "line",
    [
        "out.try_push(byte)?;",
        "let mut out = vec_with_capacity(num_rows)?;",
        "let mut out = Vec::with_capacity(64);",
        "let mut out = Vec::with_capacity(FEW_ITEMS);",
        "let mut out = vec![0; FEW_ITEMS];",
        "let parts = vec![Part::Wide, Part::Bytes];",
        "members.sort_unstable_by(|a, b| a.key.cmp(&b.key));",
        "out.push(byte); // room: reserved",
        "/// Values that `push` adds.",
    ],
)
def test_what_cannot_fail_is_let_through(line: str) -> None:
    assert not grows(line)
