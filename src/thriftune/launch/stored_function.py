"""Store the training function of a script with its study, and load it when the study is resumed by its name."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from thriftune.engines import pickled
from thriftune.errors import SettingError
from thriftune.launch.changed_code import check_code
from thriftune.launch.fingerprint import changes, of_function, of_imported
from thriftune.launch.project_archive import script_folder
from thriftune.space.objectives import join_with_and
from thriftune.state.spec import Spec, Target
from thriftune.state.stored_settings import ChangePolicy
from thriftune.store.protocol import Store
from thriftune.store.study_files import StudyFiles


def store_function(spec: Spec, files: StudyFiles, function: bytes) -> Spec:
    """Write a pickled function into the study's folder. Return the spec with the target that runs it."""
    pickled.write(files.function, function)
    pickled.check_owner(files.function)
    paths = tuple(str(Path(entry or ".").absolute()) for entry in sys.path)
    return replace(spec, target=Target("pickled", folder=str(Path.cwd()), paths=paths, project=script_folder()))


def load_function(spec: Spec, files: StudyFiles) -> dict[str, Any]:
    """Return what is stored with a study of a script: `train`, `searcher`, `stopper`, `system`.

    Workers load it too. Loading it here first gives one clear error before the study starts.
    """
    pickled.check_owner(files.function)
    sys.path += [path for path in spec.target.paths if path not in sys.path]
    arguments = sys.argv
    try:
        pickled.set_arguments(files.function)
        return pickled.load(files.function)
    except SettingError:
        raise
    except Exception as error:
        raise SettingError(
            f"the training function of study {spec.name!r}, stored in {files.function}, cannot be loaded here "
            f"({type(error).__name__}: {error}); run the script that began the study again instead"
        ) from error
    finally:
        sys.argv = arguments


def with_current_imports(
    store: Store, spec: Spec, train: Any, on_change: ChangePolicy, say: Callable[[str], object]
) -> Spec:
    """Return the spec with the fingerprint of the code that a stored function imports now, after check_code().

    The function itself is the stored one, whatever its script says now.
    """
    imported = of_imported(train)
    now = replace(spec, code={**spec.code, **imported})
    check_code(store, spec, now, on_change, say)
    of_script = {key: digest for key, digest in of_function(train).items() if key not in imported}
    if changed := changes(spec.code, of_script).code:
        say(
            f"study {spec.name!r} goes on with its stored function, although in its script "
            f"{join_with_and(changed)}; run the script instead to use the changed code"
        )
    return now
