"""`docker compose up` and the tests set up the same MinIO: bucket, policy, application user.

The scripts of `minio/` run without Docker, with an `mc` that writes down its arguments. The test compares these with
the state of the server that `servers` prepared.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from minio import Minio, MinioAdmin
from minio.credentials.providers import StaticProvider
from minio.error import S3Error

if TYPE_CHECKING:
    from tests.servers import S3Server

CHECKOUT = Path(__file__).resolve().parents[1]
FOLDER = CHECKOUT / "minio"

# Writes down host variable and arguments; refuses the first listings by the application user, and the first bucket.
MC = """#!/bin/sh
log=$(dirname "$0")/../mc.log
case $1 in
ls) grep -qs '^admin policy attach' "$log" || { echo "$MC_HOST_application" >"$log.application"; exit 1; } ;;
mb) echo "$MC_HOST_root" >"$log.root"
    [ -e "$log.up" ] || { : >"$log.up"; exit 1; } ;;
esac
echo "$@" >>"$log"
"""


def compose_service() -> dict[str, Any]:
    """The service `minio` of docker-compose.yml."""
    return yaml.safe_load((CHECKOUT / "docker-compose.yml").read_text())["services"]["minio"]


def variables() -> dict[str, str]:
    """What the container gets from the file that its service names."""
    lines = (CHECKOUT / compose_service()["env_file"]).read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if not line.startswith("#"))


@pytest.fixture
def container(tmp_path: Path) -> dict[str, str]:
    """The environment of the container: the variables, and a PATH with a shell and our `mc`."""
    programs = tmp_path / "bin"
    programs.mkdir()
    real = {"sh": "sh", "dirname": "dirname", "grep": "grep", "sleep": "true", "pause": "sleep"}
    for name, program in real.items():
        (programs / name).symlink_to(shutil.which(program))
    (programs / "mc").write_text(MC)
    (programs / "mc").chmod(0o755)
    return {**variables(), "PATH": str(programs)}


def run_script(name: str, container: dict[str, str]) -> list[list[str]]:
    """The commands of `mc` that worked, of one script."""
    subprocess.run(["/bin/sh", FOLDER / name], env=container, check=True, timeout=60)
    return [line.split() for line in (Path(container["PATH"]).parent / "mc.log").read_text().splitlines()]


def in_order(policy: dict[str, Any]) -> dict[str, Any]:
    """A policy with sorted actions and resources: the server keeps these as sets, and gives them in any order."""
    statements = [
        {name: sorted(value) if isinstance(value, list) else value for name, value in statement.items()}
        for statement in policy["Statement"]
    ]
    return {**policy, "Statement": statements}


def test_setup_asks_for_what_the_server_of_the_tests_has(s3: S3Server, container: dict[str, str]) -> None:
    commands = run_script("setup.sh", container)
    buckets = [command[-1].removeprefix("root/") for command in commands if command[0] == "mb"]
    ((policy, policy_file),) = (command[4:] for command in commands if command[:3] == ["admin", "policy", "create"])
    ((user, secret),) = (command[4:] for command in commands if command[:3] == ["admin", "user", "add"])
    attached = [command[4:] for command in commands if command[:3] == ["admin", "policy", "attach"]]
    assert attached == [[policy, "--user", user]]
    assert commands[-1] == ["ls", f"application/{s3.bucket}"]  # as the application user
    log = Path(container["PATH"]).parent / "mc.log"
    assert Path(f"{log}.application").read_text().strip() == f"http://{user}:{secret}@127.0.0.1:9000"
    assert Path(f"{log}.root").read_text().strip() == f"http://{s3.root_user}:{s3.root_secret}@127.0.0.1:9000"

    host = s3.endpoint.removeprefix("http://")
    root = Minio(host, access_key=s3.root_user, secret_key=s3.root_secret, region=s3.region, secure=False)
    admin = MinioAdmin(endpoint=host, credentials=StaticProvider(s3.root_user, s3.root_secret), secure=False)
    assert set(buckets) == {s3.bucket, s3.private_bucket} <= {bucket.name for bucket in root.list_buckets()}
    assert (user, secret) == (s3.user, s3.secret)
    assert json.loads(admin.user_info(user))["policyName"] == policy
    on_server = json.loads(admin.policy_info(policy))
    assert in_order(on_server.get("Policy", on_server)) == in_order(json.loads(Path(policy_file).read_text()))

    application = Minio(host, access_key=user, secret_key=secret, region=s3.region, secure=False)
    assert [*application.list_objects(buckets[0], prefix="no-such-key")] == []
    with pytest.raises(S3Error, match="AccessDenied"):
        [*application.list_objects(buckets[1])]


def test_a_second_setup_changes_nothing(container: dict[str, str]) -> None:
    commands = run_script("setup.sh", container)
    assert run_script("setup.sh", container)[len(commands) :] == [commands[-1]]


def test_the_container_sets_itself_up_and_ends_with_minio(container: dict[str, str], tmp_path: Path) -> None:
    server = Path(container["PATH"]) / "minio"
    server.write_text(
        f'#!/bin/sh\necho "$@" >{tmp_path}/arguments\ntrap "echo ended >{tmp_path}/end; exit 0" TERM\n'
        "while :; do pause 0.02; done\n"
    )
    server.chmod(0o755)
    service = compose_service()
    (mount,) = service["volumes"]
    source, target, mode = mount.split(":")
    assert (CHECKOUT / source).resolve() == FOLDER and mode == "ro"
    entrypoint = [part.replace(target, str(FOLDER)) for part in service["entrypoint"]]
    health = [part.replace(target, str(FOLDER)) for part in service["healthcheck"]["test"]]
    assert health[0] == "CMD"

    process = subprocess.Popen([*entrypoint, *service["command"].split()], env=container)
    try:
        while subprocess.run(health[1:], env=container).returncode != 0:  # until it is set up
            assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        process.wait(30)
    finally:
        process.kill()
    assert (tmp_path / "arguments").read_text().split() == service["command"].split()
    assert (tmp_path / "end").read_text() == "ended\n"


def test_the_scripts_need_nothing_that_the_container_lacks() -> None:
    for script in FOLDER.glob("*.sh"):
        assert subprocess.run(["sh", "-n", script], env=os.environ).returncode == 0
        used = {word for line in script.read_text().splitlines() for word in line.split() if not line.startswith("#")}
        assert not used & {"bash", "curl", "grep", "sed", "jq", "wget"}
