"""Another process of the tests of known work: `python -m tests.system.adding PATH NAME ADDS WORKS COUNTERS`.

Says that it is ready and waits for a word. Then adds that many pieces of work at a time, so many times, each of
them numbered, and says after each time which was the last.
"""

from __future__ import annotations

import sys
from pathlib import Path

from thriftune.system.known_work import KnownWork, Work


def numbered(name: str, number: int, counters: int = 3) -> Work:
    profile = {f"counter_{counter}": 0.1 + counter for counter in range(counters)}
    return Work({name: float(number), **profile}, {'{"threads":1}': 0.9})


def main() -> None:
    path, name = Path(sys.argv[1]), sys.argv[2]
    adds, works, counters = map(int, sys.argv[3:])
    print("ready", flush=True)
    sys.stdin.readline()
    for add in range(adds):
        batch = [numbered(name, add * works + work, counters) for work in range(works)]
        problem = KnownWork(path).add("machine", batch)
        assert problem is None, problem
        print((add + 1) * works - 1, flush=True)


if __name__ == "__main__":
    main()
