"""How do users of Optuna use thriftune's search? With `ThriftuneSampler`.

Only this package imports Optuna, which the extra `optuna` installs.
"""

from thriftune.errors import MissingExtra

try:
    import optuna as _optuna  # noqa: F401
except ImportError:
    raise MissingExtra("ThriftuneSampler needs optuna; install it with: pip install 'thriftune[optuna]'") from None

from thriftune.integrations.optuna.sampler import ThriftuneSampler

__all__ = ["ThriftuneSampler"]
