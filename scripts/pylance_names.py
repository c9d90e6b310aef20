"""Compare every public name of pylance with ours, and write `docs/from-pylance.md` from it.

    python scripts/pylance_names.py            write the page
    python scripts/pylance_names.py --check    exit 1 if the page differs from the packages

The script walks both packages: modules, the names that they define or list in `__all__`, and the public members of
classes. Only the remarks below are written by hand. A test makes the page again and compares.
"""

from __future__ import annotations

import argparse
import inspect
import pkgutil
import re
import sys
import warnings
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import lance

from scripts.pylance_calls import Caller

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE: Final = Path(__file__).resolve().parents[1] / "docs" / "from-pylance.md"
_THEIRS: Final = "lance"
_OURS: Final = "lance_io"
_GONE: Final = object()  # stands for a name that we do not have

# modules of pylance that no program imports by name: its native part, its own tools
PRIVATE: Final = re.compile(r"lance\.(lance|conftest|dependencies|_\w+)(\.|$)")
SHOWN: Final = ("lance._dataset.sharded_batch_iterator",)

_INDEX: Final = "`create_index`, `index_statistics` and `describe_indices` build and describe indices"
_LOG: Final = "the write-ahead log in memory (MemWAL) is not read or written here"
_TORCH: Final = "for PyTorch: take batches of a sampler and make tensors of them (`torch.from_numpy`, DLPack)"
_DATAGEN: Final = "makes data for benchmarks of pylance"

ABSENT: Final = (  # why names are not here: a pattern, from the start of the full name, and the reason
    (r"lance\.query\.MinHashQuery\b", "similarity of texts by MinHash is not searched here"),
    (r"lance\.query\b", "`lance_io.query` builds queries, which say of themselves what they are"),
    (r"lance\.indices\b", _INDEX),
    (r"lance\.dataset\.(Index\w*|VectorIndexReader|VectorSearchQuery)\b", _INDEX),
    (r"lance\.util\.(HNSW|KMeans|validate_vector_index)", "models of vectors are trained by `create_index`"),
    (r"lance\.vector\.", "models of vectors are trained by `create_index`"),
    (r"lance\.(mem_wal)\b", _LOG),
    (r"lance\.torch\b", _TORCH),
    (r"lance\.cuvs\b", "trains on GPUs, which builds here do not use"),
    (r"lance\.(datagen|_datagen)\b", _DATAGEN),
    (r"lance\.download\b", "fetches language models for full-text indices"),
    (r"lance\.namespace\b", "catalogues of tables; give the table's URI"),
    (r"lance\.hf\b", "`write_dataset` takes datasets of Hugging Face"),
    (r"lance\.otel\b", "`lance_io.metrics.instrument` gives ours to OpenTelemetry"),
    (r"lance\.pydantic\b", "`write_dataset` takes lists of pydantic models"),
    (r"lance\.dataset\.serialize_row_addrs", "for `ScannerBuilder.row_addr_prefilter`, which is not offered"),
    (r"lance\.blob\.(BlobArray|BlobIterator|BlobType)", "`blob_array` makes such arrays; `lance_io.types.BlobType`"),
    (r"lance\.bitmap\b", "sets of fragment ids are lists and ranges here"),
    (r"lance\.file\.LanceFileSession\.open_\w+_blob_writer", "`write_dataset` writes blobs"),
    (r"lance\.udf\.BatchUDFCheckpoint", "`checkpoint_file=` names the file, which `add_columns` keeps and removes"),
    (r"lance\.udf\.normalize_transform", "`add_columns` takes all of its forms"),
    (r"lance\.sampler\.PrioritizedItem", "a part of how pylance samples"),
    (r"lance\.io\b", "`lance_io.IoScheduler` and `storage_options` say how much is read at once"),
)

REMARKS: Final = {  # differences of names with the same parameters
    "lance.dataset.SqlQueryBuilder": "the dialect is DuckDB's: [Coming from pylance](pylance.md)",
    "lance.dataset": "more ways to name a version; `timeout=`: [Coming from pylance](pylance.md)",
    "lance.arrow.BFloat16": "is a `float`, with which one can compute",
    "lance.arrow.BFloat16Array.from_numpy": "takes arrays of floats, too, and needs no `ml_dtypes`",
    "lance.arrow.ImageURIArray.from_uris": 'None stays null; pylance makes the text "None" of it',
    "lance.arrow.cast": "needs no `ml_dtypes`; takes chunked arrays",
    "lance.sampler.ShardedBatchSampler": "an epoch has an order of its own; with a filter other orders than pylance's",
    "lance.sampler.ShardedFragmentSampler": "an epoch has an order of its own",
    "lance.sampler.maybe_sample": "a filter works; other rows, as they are chosen at random",
    "lance.udf.BatchUDF": "its checkpoint file is bound to the version of the table, and no other is taken",
    "lance.progress.FileSystemFragmentWriteProgress": "files of complete fragments say what these have become",
    "lance.debug.list_transactions": "operations have our names of their parts",
    "lance.tracing.capture_trace_events": "also again; gives what ends it; the events: [Seeing it run](operations.md)",
    "lance.tracing.trace_to_chrome": "traces calls, not functions; gives what ends it",
    "lance.log.set_logger": "writes messages of the logger `lance_io`",
}


MADE_BY_OTHERS: Final = frozenset(  # classes whose objects users get but do not construct
    (
        *("BlobFile", "Branches", "BufferDescriptor", "CleanupExplanation", "CleanupStats", "ColumnMetadata"),
        *("CommitConflictError", "DatasetDelta", "FileMetadata", "FileStatistics", "FragmentSession"),
        *("LanceSchema", "LanceStats", "PageMetadata", "RowDatasetVersionMeta", "RowIdMeta", "ScanStatistics"),
        *("SqlQuery", "SqlQueryBuilder", "Tags"),
    )
)


@dataclass
class Found:
    """The results for the names of one module, or of one class.

    same      names with the same parameters and the same answer to a call
    uncalled  names with the same parameters that the script does not call
    rest      other names, each with a verdict and a remark
    """

    same: list[str] = field(default_factory=list)
    uncalled: list[str] = field(default_factory=list)
    rest: list[tuple[str, str, str]] = field(default_factory=list)


def modules() -> list[str]:
    """The public modules of pylance."""
    walked = pkgutil.walk_packages(lance.__path__, f"{_THEIRS}.", onerror=lambda _: None)
    return [_THEIRS, *(info.name for info in walked if info.name in SHOWN or not PRIVATE.match(info.name))]


def load(name: str) -> Any:
    """A module; None if its import fails, or if it is one for PyTorch, which may be installed or not."""
    if name.startswith("lance.torch."):
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return import_module(name)
    except ImportError:
        return None


def public_names(module: Any) -> list[str]:
    """The public names of a module: its `__all__`, and its own definitions."""
    listed = {*getattr(module, "__all__", ())}
    for name, value in vars(module).items():
        home = getattr(value, "__module__", None)
        is_own = home == module.__name__ and (inspect.isclass(value) or callable(value))
        if is_own and not name.startswith("_") and module.__name__ != _THEIRS and type(value).__name__ != "TypeVar":
            listed.add(name)
    return sorted(
        name for name in listed if not name.startswith("__") and not inspect.ismodule(getattr(module, name, None))
    )


def members(cls: type) -> list[str]:
    """Public members of a class, with those that it inherits from classes of pylance."""
    names: set[str] = set()
    for base in cls.__mro__:
        if base.__module__.partition(".")[0] == _THEIRS:
            names |= {name for name in vars(base) if not name.startswith("_")}
    return sorted(names)


def member_of(cls: Any, name: str) -> Any:
    """A member of the class itself; a text for a field that only objects have."""
    fields = getattr(cls, "__dataclass_fields__", {})
    return inspect.getattr_static(cls, name, "a field" if name in fields else _GONE)


def compare(full_name: str, theirs: Any, ours: Any) -> tuple[str, str]:
    """The verdict on two values of one name, "same", "different" or "not offered", and a remark."""
    refusal = refusal_of(ours)
    if refusal is not None:
        return "not offered", refusal
    text = differing_parameters(theirs, ours)
    remark = REMARKS.get(full_name, "")
    if text or remark:
        return "different", "; ".join(part for part in (text, remark) if part)
    return "same", ""


def refusal_of(ours: Any) -> str | None:
    """The advice of a name that is not offered; None for other names."""
    text = getattr(ours, "__doc__", None) or ""
    if not text.startswith("Not offered: "):
        return None
    return text.removeprefix("Not offered: ").partition(" is not offered by this release: ")[2].rstrip(".")


def parameters(value: Any) -> dict[str, inspect.Parameter] | None:
    """The parameters of a callable, without the object; None if they are unknown."""
    if isinstance(value, property) or not callable(value) or getattr(value, "__name__", "") in MADE_BY_OTHERS:
        return None
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return None
    return {name: each for name, each in signature.parameters.items() if name not in ("self", "cls")}


def differing_parameters(theirs: Any, ours: Any) -> str:
    """Parameters that only one of the two has, and other defaults."""
    expected, actual = parameters(theirs), parameters(ours)
    if expected is None or actual is None:
        return ""
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    mine_takes_any, theirs_takes_any = (
        any(p.kind is inspect.Parameter.VAR_KEYWORD for p in each.values()) for each in (actual, expected)
    )
    missing = [name for name, p in expected.items() if p.kind not in kinds and name not in actual]
    missing = [] if mine_takes_any else [name for name in missing if not name.startswith("_")]
    added = [] if theirs_takes_any else [n for n, p in actual.items() if p.kind not in kinds and n not in expected]
    both = {name: (p.default, actual[name].default) for name, p in expected.items() if name in actual}
    other = [name for name, defaults in both.items() if is_other_default(*defaults)]
    parts = []
    if missing:
        parts.append(f"without {quoted(missing)}")
    if added:
        parts.append(f"also takes {quoted(added)}")
    if other:
        parts.append(f"other defaults of {quoted(other)}")
    return "; ".join(parts)


def is_other_default(theirs: Any, ours: Any) -> bool:
    """Whether two defaults differ, if they are of types that can be compared."""
    plain = (bool, int, float, str, bytes, type(None))
    return isinstance(theirs, plain) and isinstance(ours, plain) and theirs != ours


def quoted(names: list[str]) -> str:
    """Names for a sentence."""
    return ", ".join(f"`{name}`" for name in names)


def reason(full_name: str) -> str | None:
    """The reason why we do not have a name."""
    return next((text for pattern, text in ABSENT if re.match(pattern, full_name)), None)


def compare_module(name: str, caller: Caller) -> Iterator[tuple[str, Found]]:
    """The results for a module, and for each of its classes."""
    theirs, ours = load(name), load(name.replace(_THEIRS, _OURS, 1))
    if theirs is None:
        yield name, Found(rest=[("*", "absent", reason(name) or missing_reason(name))])
        return
    results = Found()
    classes: list[tuple[str, type, Any]] = []
    for each in public_names(theirs):
        full_name, value = f"{name}.{each}", getattr(theirs, each)
        mine = _GONE if ours is None else getattr(ours, each, _GONE)
        note(results, full_name, each, value, mine, caller)
        if inspect.isclass(value) and mine is not _GONE and refusal_of(mine) is None and name != _THEIRS:
            classes.append((each, value, mine))
    yield name, results
    for each, value, mine in classes:
        inner = Found()
        for member in members(value):
            theirs_member, mine_member = member_of(value, member), member_of(mine, member)
            theirs_bound, mine_bound = (getattr(each, "__func__", each) for each in (theirs_member, mine_member))
            note(inner, f"{name}.{each}.{member}", member, theirs_bound, mine_bound, caller)
        yield f"{name}.{each}", inner


def note(results: Found, full_name: str, shown: str, theirs: Any, ours: Any, caller: Caller) -> None:
    """Add the result for a name: "same" requires a call with the same answer."""
    if ours is _GONE:
        results.rest.append((shown, "absent", reason(full_name) or missing_reason(full_name)))
        return
    verdict, text = compare(full_name, theirs, ours)
    if verdict == "same":
        verdict, text = caller.verdict(full_name)
    if verdict == "same":
        results.same.append(shown)
    elif verdict == "uncalled":
        results.uncalled.append(shown)
    else:
        results.rest.append((shown, verdict, text))


def missing_reason(full_name: str) -> str:
    """A text in place of a reason that is missing; a test finds it."""
    return f"NO REASON GIVEN for {full_name}"


INTRODUCTION: Final = """# Every name of pylance

This page compares each public name of pylance {version} with lance_io. `scripts/pylance_names.py` writes it from both
packages, and a test compares again. [Coming from pylance](pylance.md) describes how behaviour differs, and how to
exchange tables.

A name is the **same** if lance_io has it with the same parameters, names and defaults, and a call of it with data
gives the same in both packages (`scripts/pylance_calls.py` has the calls; the test repeats them). An **uncalled**
name has the same parameters. **Different** says how; a name that is **not offered** raises an error with an
alternative; lance_io does not have an **absent** name.
Asynchronous twins have the same names and parameters as the methods of `LanceDataset`, `LanceFragment`, scanners and
files.
"""


def section(title: str, results: Found) -> str:
    """A module or class on the page."""
    lines = [f"{'###' if title.rpartition('.')[2][:1].isupper() else '##'} {title}", ""]
    if results.same:
        lines += [f"Same: {quoted(results.same)}.", ""]
    if results.uncalled:
        lines += [f"Uncalled: {quoted(results.uncalled)}.", ""]
    if results.rest:
        lines += ["| name | here | |", "| --- | --- | --- |"]
        lines += [
            f"| `{name}` | {verdict} | {text.replace('|', chr(92) + '|')} |" for name, verdict, text in results.rest
        ]
        lines.append("")
    return "\n".join(lines)


def made_page() -> str:
    """The page for the present packages."""
    parts = [INTRODUCTION.format(version=lance.__version__)]
    total = {"same": 0, "uncalled": 0, "different": 0, "not offered": 0, "absent": 0}
    sections = []
    with Caller() as caller:
        compared = [each for name in modules() for each in compare_module(name, caller)]
    for title, results in compared:
        total["same"] += len(results.same)
        total["uncalled"] += len(results.uncalled)
        for _, verdict, _ in results.rest:
            total[verdict] += 1
        if results.same or results.uncalled or results.rest:
            sections.append(section(title, results))
    parts.append("".join(f"- {verdict}: {count}\n" for verdict, count in total.items()))
    return "\n".join([*parts, *sections]).rstrip("\n") + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    page = made_page()
    if not arguments.check:
        PAGE.write_text(page)
    elif page != PAGE.read_text():
        sys.exit(f"{PAGE} differs from the packages: run scripts/pylance_names.py, and look at the changes")


if __name__ == "__main__":
    main()
