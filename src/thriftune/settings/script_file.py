"""Read a Python script without a study file: its training function, with a configuration of its space."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from thriftune.errors import SettingError, SpaceError
from thriftune.settings.make_spec import make_spec
from thriftune.settings.table import Settings
from thriftune.space.space import Space
from thriftune.state.spec import Spec, Target

_SPACES = ("space", "SPACE")


def read_script(path: Path, function: str, metric: str, max_steps: int, engine: str = "local") -> Spec:
    """Return the spec of a study with one trial of the function in that file.

    The file is run as by an import: code below `if __name__ == "__main__":` is not run.
    """
    try:
        names = _run(path)
        if not callable(names.get(function)):
            raise SettingError(f"has no function {function}; name another one with --function NAME")
        space = next((names[name] for name in _SPACES if name in names), None)
        if not isinstance(space, (Space, Mapping)):
            raise SettingError('has no space; write space = {"lr": tt.Float(1e-4, 1e-1, log=True)}')
        where = path.absolute()
        name = "".join(each if each.isalnum() else "-" for each in path.stem).strip("-") or "script"
        settings = Settings(
            minimize=metric,
            searcher="random",
            stopping="none",
            seed=0,
            trials=1,
            max_steps=max_steps,
            engine=engine,
        )
        target = Target("function", where=f"{where.name}:{function}", folder=str(where.parent))
        return make_spec(space, settings, target=target, name=name)
    except (SettingError, SpaceError) as error:
        raise SettingError(f"{path}: {error}") from None


def _run(path: Path) -> dict[str, Any]:
    """Run the file. Return what it defines."""
    if not path.is_file():
        raise SettingError("does not exist")
    folder = str(path.absolute().parent)
    before, arguments = list(sys.path), sys.argv
    sys.path.insert(0, folder)  # as in the workers that import the file
    sys.argv = [str(path.absolute())]  # as in workers; this process has other arguments
    try:
        return runpy.run_path(str(path), run_name=path.stem)
    except (Exception, SystemExit) as error:
        raise SettingError(f"cannot be imported: {type(error).__name__}: {error}") from error
    finally:
        sys.path[:], sys.argv = before, arguments
