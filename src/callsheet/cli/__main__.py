"""`python -m callsheet.cli`: the same as `callsheet`."""

from callsheet.cli import main

main()
