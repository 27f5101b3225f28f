"""Aura: the contract of composed videos, whose readers see stages and phases with ranges in percent."""

from __future__ import annotations

from callsheet.kernel.lifecycle import Lifecycle, Phase, pairs, words

PLAN = Phase("plan", 0, 15)
TTS = Phase("tts", 15, 35)
VISUALS = Phase("visuals", 35, 65)
COMPOSE = Phase("compose", 65, 85)
RENDER = Phase("render", 85, 100)
COMPLETE = Phase("complete", 100, 100)

PHASES = {
    **dict.fromkeys(("initialization", "queued", "script", "planning", "brief"), PLAN),
    **dict.fromkeys(("tts", "audio", "voice"), TTS),
    **dict.fromkeys(("visuals", "images", "assets"), VISUALS),
    **dict.fromkeys(("composition", "timeline", "compose"), COMPOSE),
    **dict.fromkeys(("rendering", "render", "encode"), RENDER),
    **dict.fromkeys(("complete", "done"), COMPLETE),
}

RESUMABLE_STAGES = frozenset({"script", "voice", "visuals"})

AURA = Lifecycle(
    name="aura",
    words=words("Queued", "Running", "Done", "Failed", "Failed", "Canceled"),
    moves=pairs("""
        Queued > Running | Canceled
        Running > Done | Failed | Canceled
    """),
    running_once_started=True,
    route="POST /api/jobs",
    tasks=("compose",),
    phases=(PLAN, TTS, VISUALS, COMPOSE, RENDER),
    phase_by_stage=PHASES,
    resumable=True,
)
