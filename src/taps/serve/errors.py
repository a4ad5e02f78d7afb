"""What the service refuses, with the HTTP status that says so."""

from __future__ import annotations

from taps.errors import TapsError


class ServiceError(TapsError):
    """A request that is refused; the message is one sentence that says what to do."""

    status = 400

    def __init__(self, message: str, *, retry_after: int | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class SignInError(ServiceError):
    """No token, or one that does not count."""

    status = 401


class ForbiddenError(ServiceError):
    """A token that counts, for something else."""

    status = 403


class NotFoundError(ServiceError):
    """There is no such stream, prediction or question."""

    status = 404


class SlowError(ServiceError):
    """A body that did not arrive in time."""

    status = 408


class ConflictError(ServiceError):
    """It contradicts what is there already."""

    status = 409


class GoneError(ServiceError):
    """It was there and is no more: a question past its deadline, an image past its retention."""

    status = 410


class TooLargeError(ServiceError):
    """A body or an image over the limit."""

    status = 413


class FormatError(ServiceError):
    """An image of a format that is not on the list."""

    status = 415


class UnusableError(ServiceError):
    """It was understood and makes no sense."""

    status = 422


class TooManyError(ServiceError):
    """More than the service takes at a time; try again after a while."""

    status = 429


class StoreDownError(ServiceError):
    """The store cannot be written (or read) now. It heals by itself."""

    status = 503
