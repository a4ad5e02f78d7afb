"""Errors of the service, each with its HTTP status."""

from __future__ import annotations

from typing import ClassVar

from taps.errors import TapsError


class ServiceError(TapsError):
    """A refused request; the message is one sentence that says what to do."""

    status: ClassVar[int] = 400

    def __init_subclass__(cls, status: int) -> None:
        cls.status = status

    def __init__(self, message: str, *, retry_after: int | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after

    @property
    def headers(self) -> dict[str, str]:
        """Headers of the response."""
        headers = {} if self.retry_after is None else {"Retry-After": str(self.retry_after)}
        return headers | ({"WWW-Authenticate": "Bearer"} if self.status == 401 else {})


class SignInError(ServiceError, status=401):
    """No token, or one that is not active."""


class ForbiddenError(ServiceError, status=403):
    """An active token without the right to this."""


class NotFoundError(ServiceError, status=404):
    """No such stream, prediction or question."""


class ConflictError(ServiceError, status=409):
    """It contradicts what is recorded."""


class GoneError(ServiceError, status=410):
    """A question past its deadline, or an image past its retention."""


class TooLargeError(ServiceError, status=413):
    """A body or an image over the limit."""


class FormatError(ServiceError, status=415):
    """An image of a format that is not on the list."""


class MisdirectedError(ServiceError, status=421):
    """A `Host` that is not a name of this service."""


class UnusableError(ServiceError, status=422):
    """A well-formed request that cannot be done."""


class TooManyError(ServiceError, status=429):
    """More requests than the service takes at a time."""


class StoreDownError(ServiceError, status=503):
    """The store cannot be written (or read) now; it is tried again."""


class LostError(ServiceError, status=503):
    """The process of a learner has ended; the learner is restored from snapshot and log."""
