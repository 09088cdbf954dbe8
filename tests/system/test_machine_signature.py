"""The signature of a machine."""

from __future__ import annotations

import os

from thriftune.system.machine_signature import _processor_in, signature


def test_the_signature_has_processor_cores_and_memory() -> None:
    assert signature() == signature()
    assert f", {os.cpu_count()} core" in signature()
    assert signature().endswith(" GiB")


def test_processors_by_model_or_numbers() -> None:
    x86 = "processor\t: 0\nmodel name\t: Some CPU @ 2.00GHz\n\nprocessor\t: 1\nmodel name\t: Other\n"
    assert _processor_in(x86) == "Some CPU @ 2.00GHz"
    arm = _processor_in("processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd0c\n")
    assert arm.endswith(" 0x41 0xd0c")
    assert _processor_in("") == arm.split()[0]
