"""The contract's request and answer models. Unknown fields are refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal, Self

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, JsonValue, SecretStr, model_validator

from callsheet.kernel.new_jobs import MAX_PRIORITY
from callsheet.media.errors import InvalidOutput
from callsheet.media.spec import OutputSpec, check_spec

from .locations import S3, URL, Place, source_of, target_of

STRICT = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)
Format = Literal["mp3", "aac", "opus", "flac", "wav", "mp4", "webm", "hls"]
Word = Literal["queued", "claimed", "fetching", "processing", "uploading", "succeeded", "failed", "dead_letter"]
MAX_OUTPUTS = 20
MAX_ATTEMPTS = 20
CallbackUrl = Annotated[str, Field(min_length=1, max_length=2_048)]
KeyText = Annotated[str, Field(min_length=1, max_length=512)]
SealedText = Annotated[SecretStr, Field(min_length=1, max_length=8_192)]
EXAMPLE: dict[str, JsonValue] = {
    "source": "object:uploads/acme/0199f0c2-7f7a-7d51-b3cd-0d52b5f0f5b1/talk.wav",
    "output": "object:talks/1",
    "outputs": [{"key": "talk.mp3", "format": "mp3", "audio_kbps": 128, "loudness_lufs": -16}],
    "status_webhook_url": "https://hooks.example.org/transcode",
}


class Output(BaseModel):
    """A wanted output. Missing quality, size and rates are chosen from the source."""

    model_config = STRICT
    key: str = Field(description="Its name below the prefix; for HLS the name of its folder.")
    format: Format
    video_codec: Literal["", "h264", "vp9", "av1"] = ""
    video_kbps: int = Field(default=0, ge=0)
    audio_kbps: int = Field(default=0, ge=0)
    sample_rate_hz: int = Field(default=0, ge=0)
    channels: int = Field(default=0, ge=0)
    width: int = Field(default=0, ge=0, description="With `height`: a frame that the picture has to fit in.")
    height: int = Field(default=0, ge=0)
    upscale: bool = False
    fps: float = Field(default=0.0, ge=0)
    loudness_lufs: float | None = Field(default=None, description="EBU R128, such as -16.")
    start_s: float = Field(default=0.0, ge=0)
    end_s: float | None = None

    @model_validator(mode="after")
    def _can_be_made(self) -> Self:
        try:
            check_spec(self.spec)
        except InvalidOutput as error:
            raise ValueError(str(error)) from None
        return self

    @property
    def spec(self) -> OutputSpec:
        """Return the output as a media spec."""
        return OutputSpec(**self.model_dump())


class Storage(BaseModel):
    """An S3 service other than Amazon's default region."""

    model_config = STRICT
    endpoint: str = Field(default="", max_length=2_048, description="https://…; Amazon's own unless given.")
    region: str = Field(default="us-east-1", pattern=r"^[a-z0-9-]{1,64}$")


class Keys(BaseModel):
    """S3 access keys, preferably short-lived and restricted to this job."""

    model_config = STRICT
    access_key_id: KeyText
    secret_access_key: SealedText
    session_token: Annotated[SecretStr, Field(max_length=8_192)] = SecretStr("")
    expires_at: AwareDatetime | None = None

    def plain_keys(self) -> dict[str, Any]:
        """Return the keys in plain text, for the vault."""
        return {
            "access_key_id": self.access_key_id,
            "secret_access_key": self.secret_access_key.get_secret_value(),
            "session_token": self.session_token.get_secret_value(),
            "expires_at": self.expires_at.isoformat() if self.expires_at is not None else None,
        }


class Credentials(BaseModel):
    """Storage credentials: read access to the source, read and write access below the output prefix."""

    model_config = STRICT
    source: Keys | None = None
    output: Keys | None = None

    def fit(self, source: Place, output: Place) -> None:
        """Raise ValueError unless exactly the S3 locations have keys."""
        for name, keys, place in (("source", self.source, source), ("output", self.output, output)):
            if place.kind == S3 and keys is None:
                raise ValueError(f"credentials.{name}: an s3:// {name} needs keys")
            if place.kind != S3 and keys is not None:
                raise ValueError(f"credentials.{name}: the {name} is not in an S3, so it takes no keys")


def _checked_place(field: str, read: Callable[[], Place]) -> Place:
    """Return a location of a request; a ValueError names its field."""
    try:
        return read()
    except ValueError as error:
        raise ValueError(f"{field}: {error}") from None


class TranscodeRequest(BaseModel):
    """A new transcoding job."""

    model_config = ConfigDict(**STRICT, json_schema_extra={"examples": [EXAMPLE]})
    source: SealedText = Field(description="object:KEY, s3://BUCKET/KEY, or a signed https:// URL.")
    source_storage: Storage | None = None
    output: Annotated[str, Field(max_length=1_024)] = Field(
        default="", description="object:PREFIX or s3://BUCKET/PREFIX; a folder of our own storage unless given."
    )
    output_storage: Storage | None = None
    outputs: Annotated[list[Output], Field(min_length=1, max_length=MAX_OUTPUTS)]
    credentials: Credentials | None = None
    refresh_url: CallbackUrl | None = None
    status_webhook_url: CallbackUrl | None = None
    priority: int = Field(default=0, ge=-MAX_PRIORITY, le=MAX_PRIORITY)
    max_attempts: int | None = Field(default=None, ge=1, le=MAX_ATTEMPTS)
    metadata: dict[Annotated[str, Field(max_length=64)], Annotated[str, Field(max_length=256)]] = Field(
        default_factory=dict, max_length=16, description="Your own; it comes back with every callback."
    )

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        source = _checked_place("source", lambda: self.source_place)
        output = _checked_place("output", lambda: self.output_place)
        names = [one.key for one in self.outputs]
        if len(set(names)) < len(names):
            raise ValueError("outputs: two of them have the same key")
        for name, place, storage in (
            ("source", source, self.source_storage),
            ("output", output, self.output_storage),
        ):
            if storage is not None and place.kind != S3:
                raise ValueError(f"{name}_storage: the {name} is not in an S3")
        (self.credentials or Credentials()).fit(source, output)
        if self.refresh_url and not self.sealed_parts:
            raise ValueError("refresh_url: this job has no credentials and no signed URL to refresh")
        return self

    @property
    def source_place(self) -> Place:
        """Return the parsed source location."""
        return source_of(self.source.get_secret_value())

    @property
    def output_place(self) -> Place:
        """Return the parsed output location."""
        return target_of(self.output or "object:")

    @property
    def sealed_parts(self) -> dict[str, Any]:
        """Return the secrets that must be stored encrypted; empty without secrets."""
        keys = self.credentials or Credentials()
        url = self.source.get_secret_value() if self.source_place.kind == URL else None
        return sealed_parts(keys, url)

    def payload(self, output: Place) -> dict[str, Any]:
        """Return the job's payload without secrets."""
        body = self.model_dump(mode="json", exclude={"credentials", "priority", "max_attempts"}, exclude_none=True)
        return {**body, "source": str(self.source_place), "output": str(output)}


class CredentialsRequest(BaseModel):
    """Newer credentials for a job. `expected_version` is the version to replace."""

    model_config = STRICT
    source: Keys | None = None
    output: Keys | None = None
    source_url: SealedText | None = None
    expected_version: int | None = Field(default=None, ge=1)

    def parts(self, source: Place, output: Place) -> dict[str, Any]:
        """Return the credentials for the vault; raises ValueError if they do not fit the job."""
        keys = Credentials(source=self.source, output=self.output)
        keys.fit(source, output)
        if (self.source_url is not None) != (source.kind == URL):
            raise ValueError("source_url: goes with a job whose source is a URL, and with no other")
        url = self.source_url.get_secret_value() if self.source_url is not None else None
        if url is not None and str(source_of(url)) != source.host:
            raise ValueError("source_url: the new URL leads to another host than the job's")
        return sealed_parts(keys, url)


class CredentialsReceipt(BaseModel):
    """The newer credentials are stored."""

    job_id: str
    credential_version: int


class TranscodeReceipt(BaseModel):
    """The job is stored durably."""

    job_id: str
    status: Word
    status_url: str


class MadeOutput(BaseModel):
    """A finished output."""

    key: str
    location: str = Field(description="object:KEY or s3://BUCKET/KEY; of HLS its index.")
    format: Format
    mime: str
    codec: str
    bytes: int
    duration_s: float
    sha256: str = Field(description="Of the file; of HLS that of its index.")
    width: int
    height: int
    url: str | None = Field(default=None, description="A signed URL, where the object is in our own storage.")


class ErrorBody(BaseModel):
    """The error of the last attempt."""

    code: str
    message: str
    retryable: bool | None = None


class TranscodeStatus(BaseModel):
    """The job's present state. Times are milliseconds since the epoch."""

    job_id: str
    replay_of: str | None = Field(description="The dead letter that this job is a replay of.")
    status: Word
    progress: float
    attempt_count: int
    max_attempts: int
    refresh_count: int
    credential_version: int
    created_at: int
    updated_at: int
    started_at: int | None
    ended_at: int | None
    metadata: dict[str, str]
    outputs: list[MadeOutput]
    error: ErrorBody | None


def sealed_parts(keys: Credentials, url: str | None) -> dict[str, Any]:
    """Return keys and signed URL in the vault's form; empty without keys and URL."""
    parts: dict[str, Any] = {
        name: part.plain_keys() for name, part in (("source", keys.source), ("output", keys.output)) if part is not None
    }
    return parts if url is None else {**parts, "source_url": url}
