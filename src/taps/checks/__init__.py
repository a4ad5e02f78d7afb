"""What every method must pass, from here or from outside: `check_method`.

Read first: `check.py`.
Must not know: any method by name.
"""

from taps.checks.check import Report, check_method
from taps.checks.contract import ContractError

__all__ = ["ContractError", "Report", "check_method"]
