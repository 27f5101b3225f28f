"""The allow-list of containers and codecs from strangers. Formats outside these lists are never opened.

ffmpeg has some 350 demuxers and 500 decoders; rare formats have most of the security holes. ffmpeg
(`-format_whitelist`, `-codec_whitelist`) and PyAV get these lists wherever a file is opened. Lists of other files
(HLS, DASH, concat, SDP, numbered pictures) are no containers here and must not become any.
"""

from __future__ import annotations

# ffmpeg's demuxer names; `sniff.py` detects their formats
DEMUXERS = frozenset({
    "aac", "ac3", "aiff", "amr", "asf", "avi", "caf", "flac", "flv", "gif", "ivf", "jpeg_pipe", "matroska", "mov",
    "mp3", "mpeg", "mpegts", "mxf", "ogg", "png_pipe", "w64", "wav", "webp_pipe", "yuv4mpegpipe",
})  # fmt: skip
OWN_DEMUXERS = frozenset({"rawvideo"})  # for our own files: the frames of a composed video

# a codec, and the decoders that may read it; builds of ffmpeg differ in which of them they have
VIDEO: dict[str, tuple[str, ...]] = {
    "av1": ("libdav1d", "libaom-av1", "av1"),
    "flv1": ("flv",),
    "msmpeg4v3": ("msmpeg4",),
    "vp8": ("vp8", "libvpx"),
    "vp9": ("vp9", "libvpx-vp9"),
    "webp": ("webp", "webp_anim"),
}
AUDIO: dict[str, tuple[str, ...]] = {
    "amr_nb": ("amrnb", "libopencore_amrnb"),
    "amr_wb": ("amrwb", "libopencore_amrwb"),
    "dts": ("dca",),
    "mp2": ("mp2float", "mp2"),
    "mp3": ("mp3float", "mp3"),
    "opus": ("opus", "libopus"),
    "vorbis": ("vorbis", "libvorbis"),
}
# codecs whose only decoder has the same name
VIDEO |= {codec: (codec,) for codec in (
    "dnxhd", "dvvideo", "ffv1", "gif", "h263", "h264", "hevc", "mjpeg", "mpeg1video", "mpeg2video", "mpeg4", "png",
    "prores", "rawvideo", "theora", "vc1", "wmv1", "wmv2", "wmv3",
)}  # fmt: skip
AUDIO |= {codec: (codec,) for codec in (
    "aac", "ac3", "adpcm_ima_qt", "adpcm_ima_wav", "adpcm_ms", "alac", "eac3", "flac", "wmav1", "wmav2",
)}  # fmt: skip
PCM = (
    "alaw", "mulaw", "u8", "s8", "s16le", "s16be", "s24le", "s24be", "s32le", "s32be",
    "f32le", "f32be", "f64le", "f64be", "bluray", "dvd",
)  # fmt: skip
AUDIO |= {f"pcm_{form}": (f"pcm_{form}",) for form in PCM}
CODECS = {"video": VIDEO, "audio": AUDIO}
DECODERS = tuple(sorted({name for codecs in CODECS.values() for names in codecs.values() for name in names}))
WHITELIST = ",".join(DECODERS)


def is_codec_allowed(kind: str, codec: str) -> bool:
    """Whether a stream of this kind ("video", "audio") may be decoded."""
    return codec in CODECS.get(kind, {})


def why_refused(kind: str, codec: str) -> str:
    """Return a message that names the refused codec and the accepted ones."""
    codecs = [name for name in CODECS[kind] if not name.startswith(("pcm_", "adpcm_"))]
    more = ", PCM and ADPCM" if kind == "audio" else ""
    return f"its {kind} is coded as {codec}, which is not taken; send one of {', '.join(codecs)}{more}"
