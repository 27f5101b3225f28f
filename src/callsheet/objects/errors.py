"""The errors of object storage. `retryable` marks errors that a retry may cure. No message contains a secret or a URL.

ObjectsError
├── InvalidKey            a key that no store takes
├── KeyConflict           the key is a folder of another key, or is below an object's key; a folder cannot hold both
├── UnknownObjects        an objects URL of an unknown kind, or a missing setting
├── ObjectNotFound
├── ObjectExists          `only_if_absent` was set, and the key has an object
├── ObjectChanged         the object's etag is not the requested version
├── ObjectTooLarge        more bytes than allowed
├── UploadNotFound        a multipart upload that is unknown, ended or aborted
├── UploadIncomplete      parts are missing or of the wrong size
├── UploadBusy            a part is still being written
├── LinkRefused           a signed URL with an invalid signature
│   └── LinkExpired
├── ObjectsForbidden      the storage refused; `provider_code` is its error code
│   ├── ObjectNotOwned    the key belongs to another requester than the job's
│   ├── CredentialsExpired
│   └── ClockSkewed       its clock differs from ours, so our signatures are invalid: also an Outage
└── ObjectsUnavailable    the storage cannot be reached now: an Outage, whose end jobs wait for
    └── ObjectsFailing    the storage answered that it cannot serve
"""

from __future__ import annotations

from callsheet.kernel.errors import CallsheetError, InvalidInput, Outage


class ObjectsError(CallsheetError):
    """Base class of these errors. `provider_code` is the storage's own error code, '' if unknown."""

    code = "objects_error"
    retryable = False

    def __init__(self, message: str, *, provider_code: str = "") -> None:
        super().__init__(message)
        self.provider_code = provider_code


class InvalidKey(ObjectsError, InvalidInput):
    """The key is malformed: no storage accepts it."""

    code = "invalid_key"


class KeyConflict(ObjectsError):
    """The key is a folder of an existing key, or an existing object's key is a folder of the key."""

    code = "key_conflict"


class UnknownObjects(ObjectsError, InvalidInput):
    """The objects URL has an unknown scheme or lacks a setting."""

    code = "unknown_objects"
    public = "a storage that this server needs is not set up; its operator finds out more in the log"


class ObjectNotFound(ObjectsError):
    """The key names no stored object."""

    code = "object_not_found"


class ObjectExists(ObjectsError):
    """The key already has an object."""

    code = "object_exists"


class ObjectChanged(ObjectsError):
    """The object's etag is not the requested version."""

    code = "object_changed"


class ObjectTooLarge(ObjectsError):
    """The object has more bytes than allowed."""

    code = "object_too_large"


class UploadNotFound(ObjectsError):
    """The multipart upload is unknown, completed or aborted."""

    code = "upload_not_found"


class UploadIncomplete(ObjectsError):
    """Parts of the upload are missing, or their etags or sizes differ."""

    code = "upload_incomplete"


class UploadBusy(ObjectsError):
    """Another request is writing a part of the upload, or completing the upload."""

    code = "upload_busy"
    retryable = True


class LinkRefused(ObjectsError):
    """The signed URL has an invalid signature or was changed."""

    code = "link_refused"


class LinkExpired(LinkRefused):
    """The signed URL has expired."""

    code = "link_expired"


class ObjectsForbidden(ObjectsError):
    """The storage refuses these credentials."""

    code = "objects_forbidden"


class ObjectNotOwned(ObjectsForbidden):
    """A job's task named a key that does not belong to the job's requester."""

    code = "object_not_owned"


class CredentialsExpired(ObjectsForbidden):
    """The credentials have expired: new credentials are needed."""

    code = "credentials_expired"
    retryable = True


class ClockSkewed(ObjectsForbidden, Outage):
    """The clocks of this machine and the storage differ, so signatures are invalid; new credentials would not help."""

    code = "clock_skewed"
    waits_for = "the right time"
    retryable = True


class ObjectsUnavailable(ObjectsError, Outage):
    """The storage cannot be reached now; retry later."""

    code = "objects_unavailable"
    waits_for = "storage"
    retryable = True


class ObjectsFailing(ObjectsUnavailable):
    """The storage answered that it cannot serve now."""
