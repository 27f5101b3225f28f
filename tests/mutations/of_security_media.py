"""Guards of what opens strangers' files: which ffmpeg, which calls, which formats."""

from __future__ import annotations

from tests.mutations.guard import Guard

BOX = "tests/security/test_sandbox.py"
FORMATS = "tests/security/test_formats_taken.py"


def media(name: str, file: str, before: str, after: str, test: str) -> Guard:
    return Guard("kernel", name, file, before, after, test)


SECURITY_MEDIA = [
    media(
        "calls that are not listed are refused",
        "sandbox/system_calls.py",
        "(AT_LEAST, 1, 0, NEWER), REFUSED, UNKNOWN, ALLOWED_STEP]",
        "(AT_LEAST, 1, 0, NEWER), ALLOWED_STEP, UNKNOWN, ALLOWED_STEP]",
        f"{BOX} -k every_call_that_is_not_listed",
    ),
    media(
        "newer calls are refused",
        "sandbox/system_calls.py",
        "UNKNOWN: Step = (ANSWER, 0, 0, FAIL | errno.ENOSYS)",
        "UNKNOWN: Step = (ANSWER, 0, 0, ALLOW)",
        f"{BOX} -k every_call_that_is_not_listed",
    ),
    media(
        "the second numbering of x86_64",
        "sandbox/system_calls.py",
        "(AT_LEAST, 0, 1, X32_CALLS), REFUSED]",
        "(AT_LEAST, 0, 1, X32_CALLS), ALLOWED_STEP]",
        f"{BOX} -k second_numbering",
    ),
    media(
        "calls of another machine",
        "sandbox/system_calls.py",
        "(EQUAL, 1, 0, number), (ANSWER, 0, 0, KILL)]",
        "(EQUAL, 1, 0, number), (ANSWER, 0, 0, ALLOW)]",
        f"{BOX} -k another_machine",
    ),
    media(
        "no process is begun",
        "sandbox/system_calls.py",
        "(ANY_BIT, 1, 0, CLONE_THREAD)]",
        "(ANY_BIT, 1, 1, CLONE_THREAD)]",
        f"{BOX} -k only_threads",
    ),
    media(
        "only itself is signalled",
        "sandbox/system_calls.py",
        "_one_of(0, (own_pid,))",
        "[ALLOWED_STEP]",
        f"{BOX} -k only_itself",
    ),
    media(
        "the filter is put in place",
        "sandbox/sandbox_launcher.py",
        '_forbid_calls(is_logged="log" in order)',
        "pass",
        f"{BOX} -k kernel_refuses",
    ),
    media(
        "no other program is started",
        "sandbox/sandbox_launcher.py",
        "AS_READ = READ | READ_FOLDER",
        "AS_READ = READ | READ_FOLDER | EXECUTE",
        f"{BOX} -k starts_no_other_program",
    ),
    media(
        "ffmpeg gets the list of decoders",
        "media/ffmpeg.py",
        'line += ["-codec_whitelist", WHITELIST]',
        "pass",
        f"{FORMATS} -k opens_no_decoder",
    ),
    media(
        "no demuxer that is not listed",
        "media/ffmpeg.py",
        "if source.demuxer not in DEMUXERS | OWN_DEMUXERS:",
        "if False:",
        f"{FORMATS} -k no_run_is_made",
    ),
    media(
        "a codec that is not listed is refused by name",
        "media/probe.py",
        "if main is not None and not is_codec_allowed(main.kind, main.codec):",
        "if False:",
        f"{FORMATS} -k refused_by_name",
    ),
    media(
        "frames are decoded by listed decoders",
        "media/sampling/decode.py",
        '"max_pixels": str(order.max_pixels), "codec_whitelist": WHITELIST}',
        '"max_pixels": str(order.max_pixels)}',
        f"{FORMATS} -k sampling_decodes_nothing",
    ),
    media(
        "a safe version by its branch",
        "media/binaries.py",
        "return branch in SAFE_BRANCHES and (*numbers, 0, 0)[2] >= SAFE_BRANCHES[branch]",
        "return branch in SAFE_BRANCHES",
        "tests/media/test_binaries.py -k safe_by_its_branch",
    ),
    media(
        "branches before the mend",
        "media/binaries.py",
        "if numbers >= SAFE_FROM:",
        "if numbers >= (7, 0):",
        "tests/media/test_binaries.py -k safe_by_its_branch",
    ),
    media(
        "an unsafe ffmpeg of the system is passed over",
        "media/binaries.py",
        "safe = [binary for binary in fit if binary.is_safe]",
        "safe = fit",
        "tests/media/test_binaries.py -k newest_safe_one_wins",
    ),
    Guard(
        "kernel",
        "a local model is the one that was pinned",
        "llm/embed.py",
        "if pinned_digest != digest:",
        "if False:",
        "tests/llm/test_embed.py -k pinned_by_its_content",
    ),
]
