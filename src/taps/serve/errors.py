"""What the service refuses, with the HTTP status that says so."""

from __future__ import annotations

from typing import ClassVar

from taps.errors import TapsError


class ServiceError(TapsError):
    """A request that is refused; the message is one sentence that says what to do."""

    status: ClassVar[int] = 400

    def __init_subclass__(cls, status: int) -> None:
        cls.status = status

    def __init__(self, message: str, *, retry_after: int | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after

    @property
    def headers(self) -> dict[str, str]:
        """What goes with the answer."""
        found = {} if self.retry_after is None else {"Retry-After": str(self.retry_after)}
        return {**found, "WWW-Authenticate": "Bearer"} if self.status == 401 else found


class SignInError(ServiceError, status=401):
    """No token, or one that does not count."""


class ForbiddenError(ServiceError, status=403):
    """An active token, for something else."""


class NotFoundError(ServiceError, status=404):
    """There is no such stream, prediction or question."""


class ConflictError(ServiceError, status=409):
    """It contradicts what is there already."""


class GoneError(ServiceError, status=410):
    """It was there and is no more: a question past its deadline, an image past its retention."""


class TooLargeError(ServiceError, status=413):
    """A body or an image over the limit."""


class FormatError(ServiceError, status=415):
    """An image of a format that is not on the list."""


class MisdirectedError(ServiceError, status=421):
    """A request for a name that the service is not called by."""


class UnusableError(ServiceError, status=422):
    """It was understood and makes no sense."""


class TooManyError(ServiceError, status=429):
    """More than the service takes at a time; try again after a while."""


class StoreDownError(ServiceError, status=503):
    """The store cannot be written (or read) now. It heals by itself."""


class LostError(ServiceError, status=503):
    """A learner is no more where it lived: its process ended. It is made anew from snapshot and log."""
