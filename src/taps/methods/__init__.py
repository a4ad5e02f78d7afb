"""One small file per named system, a registry, and the contract that all of them keep."""

from taps.methods.check import Report, check_method
from taps.methods.contract.run import ContractError

__all__ = ["ContractError", "Report", "check_method"]
