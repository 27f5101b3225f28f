"""What can go wrong with objects. `retryable` says whether trying again may help. No message carries a secret or a URL.

ObjectsError
├── InvalidKey            a key that no store takes
├── KeyConflict           the key is a folder of another key, or below one; a folder cannot hold both
├── UnknownObjects        an objects URL that nothing serves, or one with a setting missing
├── ObjectNotFound
├── ObjectExists          `only_if_absent`, and it is there
├── ObjectChanged         it is not the version that was asked for
├── ObjectTooLarge        more bytes than allowed
├── UploadNotFound        a multipart upload that is unknown, ended or aborted
├── UploadIncomplete      parts are missing or of the wrong size
├── UploadBusy            a part is still being written
├── LinkRefused           a signed URL that is not ours
│   └── LinkExpired
├── ObjectsForbidden      the storage said no; `provider_code` is its word
│   ├── ObjectNotOwned    the key belongs to another requester than the job's
│   ├── CredentialsExpired
│   └── ClockSkewed       its clock is another, so no signature of ours counts: also an Outage
└── ObjectsUnavailable    the storage cannot be reached now: an Outage, which jobs wait for
    └── ObjectsFailing    it answered, and said that it cannot serve
"""

from __future__ import annotations

from callsheet.kernel.errors import CallsheetError, InvalidInput, Outage


class ObjectsError(CallsheetError):
    """Root of this tree. `provider_code` is the storage's own error code, '' where it gave none."""

    code = "objects_error"
    retryable = False

    def __init__(self, message: str, *, provider_code: str = "") -> None:
        super().__init__(message)
        self.provider_code = provider_code


class InvalidKey(ObjectsError, InvalidInput):
    """A key that no store takes."""

    code = "invalid_key"


class KeyConflict(ObjectsError):
    """One of two keys is a folder of the other."""

    code = "key_conflict"


class UnknownObjects(ObjectsError, InvalidInput):
    """An objects URL that nothing serves."""

    code = "unknown_objects"
    public = "a storage that this server needs is not set up; its operator finds out more in the log"


class ObjectNotFound(ObjectsError):
    """No object under this key."""

    code = "object_not_found"


class ObjectExists(ObjectsError):
    """There is an object under this key already."""

    code = "object_exists"


class ObjectChanged(ObjectsError):
    """The object is not the version that was asked for."""

    code = "object_changed"


class ObjectTooLarge(ObjectsError):
    """More bytes than allowed."""

    code = "object_too_large"


class UploadNotFound(ObjectsError):
    """No such upload, or not any more."""

    code = "upload_not_found"


class UploadIncomplete(ObjectsError):
    """Parts are missing, or are not those that were sent."""

    code = "upload_incomplete"


class UploadBusy(ObjectsError):
    """A part is still being written."""

    code = "upload_busy"
    retryable = True


class LinkRefused(ObjectsError):
    """A signed URL whose signature is not ours, or that was changed."""

    code = "link_refused"


class LinkExpired(LinkRefused):
    """A signed URL whose time is over."""

    code = "link_expired"


class ObjectsForbidden(ObjectsError):
    """The storage refuses these credentials."""

    code = "objects_forbidden"


class ObjectNotOwned(ObjectsForbidden):
    """A job's task named a key that does not belong to the job's requester."""

    code = "object_not_owned"


class CredentialsExpired(ObjectsForbidden):
    """The credentials were good once: new ones are needed."""

    code = "credentials_expired"
    retryable = True


class ClockSkewed(ObjectsForbidden, Outage):
    """This machine's clock is not the storage's, so no signature of it counts: other credentials would not help."""

    code = "clock_skewed"
    waits_for = "the right time"
    retryable = True


class ObjectsUnavailable(ObjectsError, Outage):
    """The storage cannot be reached now; trying again later is right."""

    code = "objects_unavailable"
    waits_for = "storage"
    retryable = True


class ObjectsFailing(ObjectsUnavailable):
    """The storage answered that it cannot serve now."""
