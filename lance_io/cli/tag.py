"""`tag`: names for versions."""

from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from lance_io.cli.options import DatasetUri, Json, StorageOptions
from lance_io.cli.output import show, table
from lance_io.cli.target import change, open_table
from lance_io.errors import UsageError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from lance_io.dataset.version.state import DatasetState

Action = Literal["list", "create", "update", "delete"]


def tag(
    uri: DatasetUri,
    action: Annotated[Action, typer.Argument(help="What to do.", show_default=False)],
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="Of the tag.", show_default=False)] = None,
    version: Annotated[
        int | None, typer.Option("--version", "-v", min=0, help="What create and update name; the newest by default.")
    ] = None,
    storage_option: StorageOptions = None,
    as_json: Json = False,
) -> None:
    """List, create, update and delete tags. A version with a tag survives `cleanup`."""
    if action == "list" and name is not None:
        raise UsageError("tag list takes no name")
    if action != "list" and name is None:
        raise UsageError(f"tag {action} needs the name of a tag")
    if action in ("list", "delete") and version is not None:
        raise UsageError(f"tag {action} takes no --version")
    state = open_table(uri, options=storage_option)
    if name is None:
        show(_list(state), as_json, _show_list)
    else:
        show(_change(state, action, name, version), as_json, _show_change)


def _list(state: "DatasetState") -> dict[str, Any]:
    from lance_io.dataset.version.tags_and_branches import list_tags

    return {"tags": [{"name": name, **entry} for name, entry in change(state, list_tags(state)).items()]}


def _change(state: "DatasetState", action: str, name: str, version: int | None) -> dict[str, Any]:
    from lance_io.dataset.changes.change_tags import create_tag, delete_tag, update_tag
    from lance_io.dataset.version.open_version import tag_of

    if action == "delete":
        named: int | None = change(state, tag_of(state.root, name)).version
        change(state, delete_tag(state, name))
    else:
        named = state.manifest.version if version is None else version
        change(state, (create_tag if action == "create" else update_tag)(state, name, named))
    return {"action": action, "tag": name, "version": named}


def _show_list(report: dict[str, Any]) -> "RenderableType":
    rows = [
        (one["name"], one["version"], one["branch"], one["created_at"], one["updated_at"]) for one in report["tags"]
    ]
    return table(["tag", ">version", "branch", "created (UTC)", "updated (UTC)"], rows) if rows else "no tags"


def _show_change(report: dict[str, Any]) -> "RenderableType":
    done = {"create": "names", "update": "now names", "delete": "is gone; it named"}[report["action"]]
    return f"tag {report['tag']} {done} version {report['version']}"
