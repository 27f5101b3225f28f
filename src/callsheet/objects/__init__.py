"""Object storage by key in a folder, an S3 bucket or memory, behind one interface."""

from .credentials import Credentials, HeldCredentials
from .errors import (
    ClockSkewed,
    CredentialsExpired,
    InvalidKey,
    KeyConflict,
    LinkExpired,
    LinkRefused,
    ObjectChanged,
    ObjectExists,
    ObjectNotFound,
    ObjectNotOwned,
    ObjectsError,
    ObjectsFailing,
    ObjectsForbidden,
    ObjectsUnavailable,
    ObjectTooLarge,
    UnknownObjects,
    UploadBusy,
    UploadIncomplete,
    UploadNotFound,
)
from .face import Objects
from .opening import objects_from_url, open_objects
from .owned import OwnedObjects
from .records import Fetched, ObjectInfo, Part, Signed, Upload
from .signing import Signer, signer_of

__all__ = [
    "ClockSkewed",
    "Credentials",
    "CredentialsExpired",
    "Fetched",
    "HeldCredentials",
    "InvalidKey",
    "KeyConflict",
    "LinkExpired",
    "LinkRefused",
    "ObjectChanged",
    "ObjectExists",
    "ObjectInfo",
    "ObjectNotFound",
    "ObjectNotOwned",
    "ObjectTooLarge",
    "Objects",
    "ObjectsError",
    "ObjectsFailing",
    "ObjectsForbidden",
    "ObjectsUnavailable",
    "OwnedObjects",
    "Part",
    "Signed",
    "Signer",
    "UnknownObjects",
    "Upload",
    "UploadBusy",
    "UploadIncomplete",
    "UploadNotFound",
    "objects_from_url",
    "open_objects",
    "signer_of",
]
