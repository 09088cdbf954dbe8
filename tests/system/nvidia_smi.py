"""A stand-in for nvidia-smi: a program that answers as it does, for GPUs that are lines in a file."""

from __future__ import annotations

import json
import sys
from pathlib import Path

NVIDIA_SMI = """#!{python}
import json, sys
from pathlib import Path
state = Path({state!r})
gpus = json.loads(state.read_text())
arguments = sys.argv[1:]
names = list(gpus)
if "-i" in arguments:
    which = arguments[arguments.index("-i") + 1]
    if which.isdigit() and int(which) < len(names):
        names = [names[int(which)]]
    elif which in gpus:
        names = [which]
    else:
        print("No devices were found")
        sys.exit(6)
if "-pl" in arguments:
    watts = float(arguments[arguments.index("-pl") + 1])
    for name in names:
        if gpus[name]["fixed"]:
            print(f"Changing power management limit is not supported for GPU: {{name}}.")
            print("Treating as warning and moving on.\\nAll done.")
            sys.exit(0)
        if not 200 <= watts <= 700:
            print(f"Provided power limit {{watts:.2f}} W is not a valid power limit which should be between "
                  f"200.00 W and 700.00 W for GPU {{name}}\\nTerminating early due to previous errors.")
            sys.exit(2)
        gpus[name]["watts"] = watts
    state.write_text(json.dumps(gpus))
    print("All done.")
else:
    fields = next(a for a in arguments if a.startswith("--query-gpu="))[len("--query-gpu="):].split(",")
    assert fields == ["uuid", "power.limit"] and "--format=csv,noheader,nounits" in arguments
    for name in names:
        watts = gpus[name]["watts"]
        print(name, "[N/A]" if watts is None else f"{{watts:.2f}}", sep=", ")
"""


class Gpus:
    """A stand-in for nvidia-smi, and what it would have done."""

    def __init__(self, folder: Path, **watts: float | None) -> None:
        self._state, self._log = folder / "gpus.json", folder / "calls"
        self._state.write_text(
            json.dumps({name: {"watts": value, "fixed": False} for name, value in watts.items()})
        )
        script = folder / "nvidia-smi"
        text = NVIDIA_SMI.format(python=sys.executable, state=str(self._state), log=str(self._log))
        script.write_text(text)
        script.chmod(0o755)

    def fix(self, name: str) -> None:
        """Its limit cannot be changed any more."""
        gpus = json.loads(self._state.read_text())
        gpus[name]["fixed"] = True
        self._state.write_text(json.dumps(gpus))

    def watts(self) -> list[float | None]:
        return [gpu["watts"] for gpu in json.loads(self._state.read_text()).values()]
