"""`python -m thriftune`: the command line, where the command is not on the path."""

from thriftune.cli import main

main()
