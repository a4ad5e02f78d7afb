"""Errors for users. Each message says in one sentence what is wrong and what to do."""


class TapsError(Exception):
    """Base of every error raised on purpose; the command line prints it and exits with code 2."""


class ImageError(TapsError):
    """An image that cannot be decoded. The stream goes on without it."""


class WeightsError(TapsError):
    """Weights that are missing, or do not fit the architecture."""


class SettingsError(TapsError):
    """A setting that is unknown, out of range, or contradicts another."""


class ClassNameError(TapsError):
    """A list of class names that cannot be used."""


class UnknownClassError(ClassNameError):
    """A name that is none of the classes. Its arguments are what is wrong, and the name."""

    def __str__(self) -> str:
        what, name = self.args
        return f"{what}; if it is a new one, add it with `add_class({name!r})`."


class PromptsError(TapsError):
    """Learned prompts that do not belong to this model, or are damaged."""


class QueryError(TapsError):
    """An answer to a question that was not asked, or was answered before."""


class DataError(TapsError):
    """A data set that is missing, incomplete or mislabelled."""


class StateError(TapsError):
    """A saved state that does not fit the learner it is loaded into."""


class DamagedError(StateError):
    """A saved file that does not hold what was written into it."""
