"""The door to the command line: `python starter.py --help`."""

import os
import signal

if __name__ == "__main__":
    # Until the command line takes over, an interrupt ends the process quietly: it has not done anything yet.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: os._exit(130))

from fanout.cli import main

if __name__ == "__main__":
    main()
