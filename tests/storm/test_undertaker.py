"""Nothing of a storm outlives its conductor, however that ends."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.running_worker import until
from tests.storm.history import FOLDER
from tests.storm.undertaker import marked

ROOT = Path(__file__).parents[2]
CONDUCTOR = """
import sys, time
from pathlib import Path
from tests.storm.processes import House, Part
with House(Path(sys.argv[1]), {}) as house:
    house.add(Part("sleeper", ["timeit", "-n", "1", "-r", "1", "import time; time.sleep(600)"]))
    print("ready", flush=True)
    time.sleep(600)
"""


def test_a_killed_conductor_leaves_no_process_behind(tmp_path: Path) -> None:
    variables = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}", FOLDER: str(tmp_path)}
    command = [sys.executable, "-c", CONDUCTOR, str(tmp_path)]
    with subprocess.Popen(command, env=variables, stdout=subprocess.PIPE) as conductor:
        assert conductor.stdout is not None
        assert conductor.stdout.readline() == b"ready\n"
        asyncio.run(until(lambda: bool(marked(tmp_path))))
        conductor.send_signal(signal.SIGKILL)
    asyncio.run(until(lambda: not marked(tmp_path)))
