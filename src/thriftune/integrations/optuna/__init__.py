"""How do users of Optuna come by this search? `ThriftuneSampler`.

Optuna is needed here only, and comes with the extra `optuna`.
"""

from thriftune.errors import MissingExtra

try:
    import optuna as _optuna  # noqa: F401
except ImportError:
    raise MissingExtra("ThriftuneSampler needs optuna; install it with: pip install 'thriftune[optuna]'") from None

from thriftune.integrations.optuna.sampler import ThriftuneSampler

__all__ = ["ThriftuneSampler"]
