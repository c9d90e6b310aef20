"""`lance-io`: inspect Lance datasets and files, change them, and see the cost of reading them.

A failure with a cause outside of this program is one line, without a traceback: exit code 2 for a usage error, 1 for
everything else. `LANCE_IO_DEBUG=1` shows the traceback.
"""

import os
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from lance_io import __version__
from lance_io.cli import commands
from lance_io.cli.indices import index_commands
from lance_io.cli.tables import printable
from lance_io.errors import LanceError, UsageError

DEBUG = "LANCE_IO_DEBUG"
# errors from a wrong path, a missing permission, a damaged file or a missing extra; any other error is a bug of ours
# and shows its traceback
EXPECTED = (LanceError, OSError, ValueError, OverflowError, NotImplementedError, ModuleNotFoundError)


class FriendlyGroup(TyperGroup):
    """Runs a command, and prints its failures in one line."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:  # the reader of our output closed the pipe, as `head` does
            raise
        except EXPECTED as error:
            if os.environ.get(DEBUG, "") not in ("", "0"):
                raise
            typer.echo(f"error: {one_line(error)}", err=True)
            raise typer.Exit(2 if isinstance(error, UsageError) else 1) from None


def one_line(error: BaseException) -> str:
    """An error's message, on one line."""
    message = printable(" ".join(str(error).split()))
    if isinstance(error, LanceError) and message:
        return message
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


app = typer.Typer(
    name="lance-io",
    cls=FriendlyGroup,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,  # their tables of local variables would show storage options
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Inspect Lance datasets and files, change them, and see the cost of reading them.",
)
for command in (
    commands.info,
    commands.schema,
    commands.versions,
    commands.log,
    commands.fragments,
    commands.pages,
    commands.head,
    commands.search,
    commands.count,
    commands.write,
    commands.update,
    commands.merge,
    commands.delete,
    commands.add_column,
    commands.drop_column,
    commands.restore,
    commands.tag,
    commands.compact,
    commands.branch,
    commands.clone,
    commands.diff,
    commands.cleanup,
    commands.explain,
    commands.bench,
    commands.doctor,
):
    app.command()(command)
app.add_typer(index_commands.app)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"lance-io {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Inspect Lance datasets and files, change them, and see the cost of reading them."""


def main() -> None:
    """Entry point of the `lance-io` program."""
    app()


if __name__ == "__main__":
    main()
