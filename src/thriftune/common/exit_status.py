"""The exit statuses of the command line, and of a script whose study was stopped."""

from __future__ import annotations

ERROR = 1
"""An error, or no trial has a value that meets the constraints. Click itself ends with 2 after a wrong option."""

TRIAL_MUST_END = 3
"""`thriftune report` asks the trial's command to save its state and to exit."""

INTERRUPTED = 130
"""An interruption. Shells use it for a program that Ctrl-C has ended."""
