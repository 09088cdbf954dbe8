"""What of a Python script can be tried without a study file? Its training function, with a configuration of its
space."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from thriftune.errors import SettingError, SpaceError
from thriftune.launch.drive import make_spec
from thriftune.space.space import Space
from thriftune.state.spec import Spec, Target

_SPACES = ("space", "SPACE")


def read_script(path: Path, function: str, metric: str, max_steps: int, engine: str = "local") -> Spec:
    """A study of the function in that file. The file is run, as by an import: what stands below
    `if __name__ == "__main__":` is not."""
    try:
        names = _run(path)
        if not callable(names.get(function)):
            raise SettingError(f"there is no function {function}; name another one with --function NAME")
        found = next((names[name] for name in _SPACES if name in names), None)
        if not isinstance(found, (Space, Mapping)):
            raise SettingError('there is no space; write space = {"lr": tt.Float(1e-4, 1e-1, log=True)}')
        where = path.absolute()
        return make_spec(
            found,
            name="".join(each if each.isalnum() else "-" for each in path.stem).strip("-") or "script",
            minimize=metric,
            maximize=None,
            searcher="random",
            stopping="none",
            seed=0,
            target=Target("function", where=f"{where.name}:{function}", folder=str(where.parent)),
            trials=1,
            max_steps=max_steps,
            engine=engine,
        )
    except (SettingError, SpaceError) as error:
        raise SettingError(f"{path}: {error}") from None


def _run(path: Path) -> dict[str, Any]:
    """What the file defines."""
    if not path.is_file():
        raise SettingError("there is no such file")
    folder = str(path.absolute().parent)
    before, arguments = list(sys.path), sys.argv
    sys.path.insert(0, folder)  # where workers that import it have it, too
    sys.argv = [str(path.absolute())]  # as workers have it: the arguments of this process are not the script's
    try:
        return runpy.run_path(str(path), run_name=path.stem)
    except (Exception, SystemExit) as error:
        raise SettingError(f"cannot be imported: {type(error).__name__}: {error}") from error
    finally:
        sys.path[:], sys.argv = before, arguments
