"""Processes of their own, for what a process cannot undo, and for what it counts from its first thread on."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from typing import Any

# What the bodies may use. It is imported first: one that has become another user may not read modules any more.
PREFACE = """
import ctypes, json, os, resource, shutil, struct, subprocess, sys, threading, time
from pathlib import Path
sys.modules["pynvml"] = None  # this machine's own cards stay out of it
from thriftune.system.counters import Counters
from thriftune.system.energy import Energy
from thriftune.system.perf_events import Events

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

def forbid_perf():
    "The kernel refuses perf_event_open from now on, as in a container."
    number = {"x86_64": 298, "aarch64": 241}[os.uname().machine]
    load, equal, answer, errno_eperm, allow = 0x20, 0x15, 0x06, 0x50000 | 1, 0x7FFF0000
    steps = [(load, 0, 0, 0), (equal, 0, 1, number), (answer, 0, 0, errno_eperm), (answer, 0, 0, allow)]
    code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *step) for step in steps))
    program = struct.pack("@HP", len(steps), ctypes.addressof(code))
    libc = ctypes.CDLL(None, use_errno=True)
    no_new_privileges, set_filter, mode_filter = 38, 22, 2
    assert libc.prctl(no_new_privileges, 1, 0, 0, 0) == 0
    assert libc.prctl(set_filter, mode_filter, program, 0, 0) == 0, ctypes.get_errno()
"""


def alone(body: str, *arguments: object) -> Any:
    """What `answer` is at the end of the body, which finds the arguments as texts in sys.argv."""
    code = f"{PREFACE}\n{textwrap.dedent(body)}\nprint(json.dumps(answer))"
    command = [sys.executable, "-c", code, *map(str, arguments)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)
