from tests.cli.conftest import zoo

__all__ = ["zoo"]
