"""Write `lance_io/proto/*_pb2.py` and `*_pb2.pyi` from `protos/`, or check that they are up to date.

    python scripts/generate_protos.py            regenerate in place
    python scripts/generate_protos.py --check    exit 1 and name the files that differ

The repository contains the generated code, so that neither users nor builds need a protobuf compiler. The proto files
are at `protos/lance_io/proto/`, because that path becomes their name in the process-wide descriptor pool, which must be
unique, and the import path of the generated modules.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from importlib import resources
from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ROOT / "protos"
GENERATED = ROOT / "lance_io" / "proto"


def compile_protos(out: Path) -> None:
    """Run protoc over every file of `protos/`, writing below `out`."""
    well_known = resources.files("grpc_tools") / "_proto"
    names = sorted(path.relative_to(SOURCES).as_posix() for path in SOURCES.rglob("*.proto"))
    plugin = Path(sys.executable).with_name("protoc-gen-mypy")
    status = protoc.main(
        [
            "protoc",
            f"-I{SOURCES}",
            f"-I{well_known}",
            f"--plugin=protoc-gen-mypy={plugin}",
            f"--python_out={out}",
            f"--mypy_out={out}",
            *names,
        ]
    )
    if status:
        raise SystemExit(status)


def stale_files(fresh: Path) -> list[str]:
    """Names in `lance_io/proto` that are missing, differ from `fresh`, or have no source any more."""
    expected = {path.name: path.read_bytes() for path in fresh.iterdir()}
    present = {path.name: path.read_bytes() for path in GENERATED.glob("*_pb2.py*")}
    return sorted(name for name in expected.keys() | present.keys() if expected.get(name) != present.get(name))


def main() -> int:
    """Generate or check; the exit status is 1 when a check finds a difference."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    check = parser.parse_args().check
    with tempfile.TemporaryDirectory() as scratch:
        compile_protos(Path(scratch))
        fresh = Path(scratch) / "lance_io" / "proto"
        stale = stale_files(fresh)
        if check:
            for name in stale:
                print(f"lance_io/proto/{name} does not match protos/; run: python scripts/generate_protos.py")
            return 1 if stale else 0
        for name in stale:
            target = GENERATED / name
            if (fresh / name).exists():
                target.write_bytes((fresh / name).read_bytes())
            else:
                target.unlink()
            print(f"updated lance_io/proto/{name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
