"""Processes of their own, for what a process cannot undo, and for what it counts from its first thread on."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from typing import Any

# What the bodies may use. It is imported first: one that has become another user may not read modules any more.
PREFACE = """
import json, os, subprocess, sys, threading, time
from pathlib import Path
from thriftune.system.counters import Counters
from thriftune.system.energy import EnergyMeter

def burn(cpu_seconds):
    "Uses that much CPU time of this process."
    until = time.process_time() + cpu_seconds
    while time.process_time() < until:
        pass

def started(code):
    "A Python process that runs this, once it has printed a line."
    child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    child.stdout.readline()
    return child

# Works as long as there is somebody to rival.
RIVAL = "import os; parent = os.getppid(); print(flush=True)\\nwhile os.getppid() == parent: pass"

def become_nobody():
    os.setgroups([])
    os.setresgid(65534, 65534, 65534)
    os.setresuid(65534, 65534, 65534)
"""


def alone(body: str, *arguments: object) -> Any:
    """What `answer` is at the end of the body, which finds the arguments as texts in sys.argv."""
    code = f"{PREFACE}\n{textwrap.dedent(body)}\nprint(json.dumps(answer))"
    command = [sys.executable, "-c", code, *map(str, arguments)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)
