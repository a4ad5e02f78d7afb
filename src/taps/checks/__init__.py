"""What every method must pass, a user's own too."""

from taps.checks.check import Report, check_method
from taps.checks.contract import ContractError

__all__ = ["ContractError", "Report", "check_method"]
