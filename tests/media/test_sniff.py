from __future__ import annotations

import os
import shutil
import struct
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from callsheet.media.errors import (
    CorruptInput,
    EmptyFile,
    InputTooLarge,
    MediaError,
    NotMedia,
    TruncatedInput,
    UnsupportedInput,
)
from callsheet.media.sniff import KINDS, kind_of, sniff
from tests.media.corpus import Corpus, list_in_avi

LISTS = {
    "hls": b"#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\nhttp://127.0.0.1/a.ts\n",
    "hls_with_mark": b"\xef\xbb\xbf#EXTM3U\n/etc/passwd\n",
    "hls_after_space": b"\n\n  #EXTM3U\n/etc/passwd\n",
    "hls_utf16": "#EXTM3U\n/etc/passwd\n".encode("utf-16"),
    "ffconcat": b"ffconcat version 1.0\nfile /etc/passwd\n",
    "concat": b"file '/etc/passwd'\n",
    "concat_address": b"concat:/etc/passwd|/etc/hosts",
    "subfile": b"subfile,,start,0,end,100,,:/etc/passwd",
    "dash": b'<?xml version="1.0"?>\n<MPD xmlns="urn:mpeg:dash:schema:mpd:2011"></MPD>',
    "smooth": b'<?xml version="1.0"?><SmoothStreamingMedia></SmoothStreamingMedia>',
    "sdp": b"v=0\no=- 0 0 IN IP4 127.0.0.1\nm=video 5004 RTP/AVP 96\n",
    "pls": b"[playlist]\nFile1=http://127.0.0.1/\n",
    "address": b"http://127.0.0.1/a.mp4",
}


@pytest.mark.parametrize(
    ("name", "kind", "demuxer"),
    [
        ("normal.mp4", "mp4", "mov"),
        ("normal.mkv", "matroska", "matroska"),
        ("normal.webm", "webm", "matroska"),
        ("normal.ts", "mpegts", "mpegts"),
        ("normal.avi", "avi", "avi"),
        ("normal.flv", "flv", "flv"),
        ("normal.mpg", "mpeg", "mpeg"),
        ("sound.mp3", "mp3", "mp3"),
        ("sound.wav", "wav", "wav"),
        ("sound.flac", "flac", "flac"),
        ("sound.ogg", "ogg", "ogg"),
        ("sound.aac", "aac", "aac"),
        ("picture.png", "png", "png_pipe"),
        ("picture.jpg", "jpeg", "jpeg_pipe"),
    ],
)
def test_a_file_is_known_by_its_bytes_whatever_its_name(
    corpus: Corpus, tmp_path: Path, name: str, kind: str, demuxer: str
) -> None:
    other = tmp_path / "list.m3u8"
    shutil.copy(corpus(name), other)
    sniffed_type = sniff(other)
    assert (sniffed_type.name, sniffed_type.demuxer) == (kind, demuxer)


@pytest.mark.parametrize("name", LISTS)
def test_a_list_of_other_files_is_refused_whatever_its_name(tmp_path: Path, name: str) -> None:
    path = tmp_path / "video.mp4"
    path.write_bytes(LISTS[name])
    with pytest.raises(UnsupportedInput) as excinfo:
        sniff(path)
    assert excinfo.value.code == "unsupported_input"
    assert not excinfo.value.retryable


def test_no_kind_is_read_by_a_demuxer_that_opens_other_files() -> None:
    assert not {kind.demuxer for kind in KINDS} & {"hls", "applehttp", "concat", "dash", "imf", "sdp", "rtsp", "image2"}


def test_text_and_archives_are_no_media(tmp_path: Path) -> None:
    for name, content in {
        "a.mp4": b"Dear Sir,\nplease find \xc3\xa4\n" * 9,
        "b.mp4": b"PK\x03\x04" + bytes(90),
    }.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(NotMedia) as excinfo:
            sniff(tmp_path / name)
        assert excinfo.value.code == "not_media"
        assert not excinfo.value.retryable


def test_zero_bytes_are_told_apart(tmp_path: Path) -> None:
    (tmp_path / "a.mp4").touch()
    with pytest.raises(EmptyFile) as excinfo:
        sniff(tmp_path / "a.mp4")
    assert excinfo.value.code == "empty_file"


def test_links_pipes_and_folders_are_not_opened(corpus: Corpus, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(corpus("normal.mp4"))
    os.mkfifo(tmp_path / "pipe")
    for name in ("link", "pipe", ".", "missing"):
        with pytest.raises(NotMedia):
            sniff(tmp_path / name)


@pytest.mark.parametrize("name", ["normal.mp4", "normal.mkv", "normal.avi", "sound.wav"])
def test_half_a_file_is_known_by_its_structure(corpus: Corpus, name: str) -> None:
    with pytest.raises(TruncatedInput) as excinfo:
        sniff(corpus.half(name))
    assert excinfo.value.code == "truncated_input"
    assert not excinfo.value.retryable


def test_an_mp4_without_an_index_is_not_whole(corpus: Corpus) -> None:
    head = b"\0\0\0\x10ftypisom\0\0\0\0"
    with pytest.raises(CorruptInput, match="no index"):
        sniff(corpus.made("no_index.mp4", head + struct.pack(">I4s", 0, b"mdat") + bytes(900)))


def test_a_file_of_a_terabyte_that_is_a_hole_is_refused_at_once(tmp_path: Path) -> None:
    path = tmp_path / "sparse.mp4"
    with path.open("wb") as file:
        file.write(b"\0\0\0\x10ftypisom\0\0\0\0" + struct.pack(">I4sQ", 1, b"mdat", 10**12 - 16))
        file.truncate(10**12)
    with pytest.raises(InputTooLarge):
        sniff(path)
    with pytest.raises(CorruptInput, match="no index"):
        sniff(path, max_bytes=10**13)


def test_a_playlist_inside_an_avi_is_an_avi_to_us() -> None:
    assert kind_of(list_in_avi(LISTS["hls"])).demuxer == "avi"


@given(st.binary(min_size=1, max_size=600))
@example(b"ID3\x04\0\0\0\0\0\0")
@example(b"\x1a\x45\xdf\xa3")
def test_any_bytes_are_a_kind_or_a_typed_error(head: bytes) -> None:
    try:
        assert kind_of(head) in KINDS
    except MediaError as error:
        assert not error.retryable  # noqa: PT017 - both ends are right
