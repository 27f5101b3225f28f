"""The guide's manifests are valid YAML and reference existing names: probes, ports, variables, metrics, times."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

from callsheet.cli import cli
from callsheet.http.health import router
from callsheet.kernel.durations import seconds
from tests.telemetry.test_docs import created
from tools.pages import OTHERS
from tools.reference import commands

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "guides" / "kubernetes.md").read_text("utf-8")
OF_A_WORKER = {"/livez", "/readyz", "/metrics"}


def manifests() -> list[dict[str, Any]]:
    blocks = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    return [item for block in blocks for item in yaml.safe_load_all(block)]


def containers() -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Yield each container with its pod's specification."""
    for item in manifests():
        if item["kind"] in {"Deployment", "Job"}:
            pod = item["spec"]["template"]["spec"]
            yield from ((pod, container) for container in pod["containers"])


def test_every_manifest_has_a_kind_and_a_name() -> None:
    assert {item["kind"] for item in manifests()} >= {"Deployment", "Service", "Job", "PodMonitor", "ScaledObject"}
    assert all(item["apiVersion"] and item["metadata"]["name"] for item in manifests())


def test_probes_ask_for_paths_that_are_served_on_ports_that_are_open() -> None:
    routes_there = {"serve": {str(getattr(route, "path", "")) for route in router.routes}, "worker": OF_A_WORKER}
    seen = 0
    for _, container in containers():
        for probe in ("readinessProbe", "livenessProbe"):
            if probe in container:
                request = container[probe]["httpGet"]
                assert request["path"] in routes_there[container["command"][1]]
                assert request["port"] in {port["name"] for port in container["ports"]}
                seen += 1
    assert seen == 4


def test_a_pod_has_time_to_drain() -> None:
    for pod, container in containers():
        command = container["command"]
        if "--drain" in command:
            assert pod["terminationGracePeriodSeconds"] >= seconds(command[command.index("--drain") + 1]) + 20


def test_every_variable_is_a_setting() -> None:
    known_names = set(OTHERS)
    for _, command in commands(cli):
        for option in command.params:
            known_names |= {option.envvar} if isinstance(option.envvar, str) else set(option.envvar or ())
    variables = set(re.findall(r"\b(?:CALLSHEET|S3)_[A-Z_]+\b", PAGE))
    assert variables <= known_names


def test_the_metrics_that_it_scales_by_are_there() -> None:
    metrics_named = set(re.findall(r"\bcallsheet_[a-z_]+", PAGE))
    assert metrics_named
    assert metrics_named <= set(created().values())
