"""The child process of a probe: `probe_child.py site-packages file demuxer decoders most-streams`, JSON on stdout.

It runs in the sandbox, since a hostile file can crash or take over a demuxer. It imports no module of Callsheet, only
PyAV, from the given folder.
"""

from __future__ import annotations

import json
import sys
from fractions import Fraction
from itertools import pairwise
from typing import Any

ATTACHED_PICTURE = 0x400
LIE = Fraction(1, 50)  # tolerated share of the declared frame rate
UNEVEN = Fraction(1, 5)  # of the usual distance between frames


def main(packages: str, path: str, demuxer: str, decoders: str, most_streams: str) -> None:
    """Print the file's content as JSON, or the error."""
    sys.path.append(packages)
    import av  # noqa: PLC0415 - from the folder above

    av.logging.set_level(None)
    try:
        answer: dict[str, Any] = {"media": _read(av, path, demuxer, decoders, int(most_streams))}
    except MemoryError:
        answer = {"error": "memory"}
    except (av.FFmpegError, ValueError) as error:
        answer = {"error": "data", "text": getattr(error, "strerror", None) or str(error)}
    sys.stdout.write(json.dumps(answer))


def _read(av: Any, path: str, demuxer: str, decoders: str, most_streams: int) -> dict[str, Any]:
    options = {"protocol_whitelist": "file", "format_whitelist": demuxer, "codec_whitelist": decoders}
    options["max_streams"] = str(most_streams)
    with av.open(f"file:{path}", format=demuxer, options=options) as container:
        for stream in container.streams:
            if stream.codec_context is not None:  # the container's options do not reach its decoders
                stream.codec_context.options = {"codec_whitelist": decoders}
        media_streams = [stream for stream in container.streams if stream.type in ("video", "audio")]
        timing = _timing(container, media_streams)
        return {
            "duration_s": _seconds(container.duration, Fraction(1, 1_000_000)),
            "start_s": _seconds(container.start_time, Fraction(1, 1_000_000)),
            "bit_rate": container.bit_rate or 0,
            "streams": [_stream(av, container, stream, timing) for stream in container.streams],
        }


def _stream(av: Any, container: Any, stream: Any, timing_by_stream: dict[int, Any]) -> dict[str, Any]:
    timing = timing_by_stream.get(stream.index, {})
    context = stream.codec_context
    facts: dict[str, Any] = {
        "number": stream.index,
        "kind": stream.type or "unknown",
        "codec": context.codec.canonical_name if context is not None else "unknown",
        "start_s": _seconds(stream.start_time, stream.time_base),
        "duration_s": _longer(_seconds(stream.duration, stream.time_base) or timing.get("duration_s"), timing),
        "language": stream.language or "",
    }
    if context is None:  # no decoder of this build knows it
        return facts
    if stream.type == "video":
        facts |= _video(stream, context, timing)
        if facts["pixels"] and not facts["is_cover"]:
            facts["rotation"], facts["transfer"] = _first_frame(av, container, stream, context)
    elif stream.type == "audio":
        facts |= {"sample_rate_hz": context.sample_rate, "channels": context.channels}
    return facts


def _longer(duration_s: float | None, timing: dict[str, Any]) -> float | None:
    """Return the stream's own length, or the time until its last picture ends if that is later."""
    return duration_s and max(duration_s, timing.get("shown_s") or 0.0)


def _video(stream: Any, context: Any, timing: dict[str, Any]) -> dict[str, Any]:
    aspect = stream.sample_aspect_ratio
    return {
        "width": context.width,
        "height": context.height,
        "pixels": context.width * context.height,
        "aspect": float(aspect) if aspect else 1.0,
        "fps": float(stream.average_rate or stream.guessed_rate or 0),
        "is_variable": timing.get("is_variable", False),
        "longest_s": timing.get("longest_s", 0.0),
        "pix_fmt": context.pix_fmt or "",
        "transfer": int(context.color_trc),
        "is_cover": bool(int(stream.disposition) & ATTACHED_PICTURE),
    }


def _first_frame(av: Any, container: Any, stream: Any, context: Any) -> tuple[int, int]:
    """Return rotation and transfer function of the first frame; some files declare both only in frames."""
    transfer = int(context.color_trc)
    try:
        container.seek(0)
        context.thread_count = 1
        for frame in container.decode(stream):
            return round(frame.rotation) % 360, int(frame.color_trc) or transfer
    except (av.FFmpegError, ValueError):  # a broken first frame does not spoil the other facts
        pass
    return 0, transfer


def _timing(container: Any, streams: list[Any]) -> dict[int, Any]:
    """Return frame times: from MP4's index if it is complete, else by reading all packets."""
    pictures = (stream for stream in streams if stream.type == "video")
    video = next((stream for stream in pictures if not int(stream.disposition) & ATTACHED_PICTURE), None)
    times = _index_times(video)
    search = any(stream.duration is None for stream in streams) or (video is not None and not times)
    ends: dict[int, tuple[int, int]] = {}
    for packet in container.demux(streams) if search else ():
        if packet.pts is None:
            continue
        index, last = packet.stream_index, packet.pts + (packet.duration or 0)
        low, high = ends.get(index, (packet.pts, last))
        ends[index] = (min(low, packet.pts), max(high, last))
        if video is not None and index == video.index:
            times.append(packet.pts)
    timing: dict[int, Any] = {
        stream.index: {"duration_s": _seconds(ends[stream.index][1] - ends[stream.index][0], stream.time_base)}
        for stream in streams
        if stream.index in ends
    }
    if video is not None:
        times.sort()
        end = (video.start_time or 0) + video.duration if video.duration else ends.get(video.index, (0, 0))[1]
        longest = max((after - before for before, after in pairwise([*times, max([end, *times[-1:]])])), default=0)
        rate = Fraction(video.average_rate or video.guessed_rate or 0) * video.time_base
        is_variable = _is_uneven(times, rate)
        about = {"is_variable": is_variable, "longest_s": _seconds(longest, video.time_base) or 0.0}
        if is_variable and not search:
            until = _last_end(container, video, times[-1])
            about["shown_s"] = _seconds(until - (video.start_time or 0), video.time_base) or 0.0
        timing.setdefault(video.index, {}).update(about)
    return timing


def _last_end(container: Any, video: Any, last: int) -> int:
    """Return when the last picture ends. Indexes and headers give decoding order, which ends before."""
    container.seek(last, stream=video)
    ends = [(packet.pts, packet.duration or 0) for packet in container.demux(video) if packet.pts is not None]
    return sum(max(ends, default=(0, 0)))


def _index_times(video: Any) -> list[int]:
    """Return the times in the file's own index, if that lists every frame."""
    entries = getattr(video, "index_entries", ()) if video is not None else ()
    return [entry.timestamp for entry in entries] if video is not None and 0 < video.frames == len(entries) else []


def _is_uneven(times: list[int], rate: Fraction) -> bool:
    """Whether frame distances vary, or contradict the declared rate (in frames per tick)."""
    steps = sorted(after - before for before, after in pairwise(times))
    if len(steps) < 2:  # noqa: PLR2004
        return False
    usual = steps[len(steps) // 2]
    lies = bool(rate) and abs(usual * rate - 1) > max(LIE, rate)
    return lies or max(steps[-1] - usual, usual - steps[0]) > max(Fraction(2), UNEVEN * usual)


def _seconds(value: int | None, unit: Fraction | None) -> float | None:
    return None if value is None or unit is None else round(float(value * unit), 6)


if __name__ == "__main__":
    main(*sys.argv[1:6])
