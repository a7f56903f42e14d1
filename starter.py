"""The door to the command line: `python starter.py --help`."""

from fanout.cli import main

if __name__ == "__main__":
    main()
