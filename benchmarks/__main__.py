"""`python -m benchmarks [NAME …] [--pairs N] [--items N]`: one JSON line each on stdout, all else on stderr.

Ends with 0 when every promise is kept, 1 when one is not, 2 for a wrong call.
"""

import argparse
import asyncio
import json
import os
import signal
from collections.abc import Callable, Sequence

from benchmarks import __doc__ as description
from benchmarks import live, million, noop, pixel, recovery, slow
from benchmarks.result import Case, Options, line, read_facts
from benchmarks.rig import say
from benchmarks.stack import forget_settings, open_rig, own_stack
from fanout.devstack import Stack
from fanout.exits import leave

BENCHMARKS: dict[str, Callable[[Options], list[Case]]] = {
    "noop": noop.cases,
    "slow": slow.cases,
    "recovery": recovery.cases,
    "million": million.cases,
    "live": live.cases,
    "pixel": pixel.cases,
}


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(BENCHMARKS)}; all of them by default")
    parser.add_argument("--pairs", type=_positive, metavar="N", help="how often each is repeated")
    parser.add_argument("--items", type=_positive, metavar="N", help="another number of items")
    options = parser.parse_args(arguments)
    if unknown := set(options.names) - set(BENCHMARKS):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(BENCHMARKS)}")
    return options


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be 1 or more")
    return number


async def run(stack: Stack, cases: Sequence[Case]) -> int:
    """Runs the cases one after another; 1 when a promise was not kept."""
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, _current_task().cancel)
    code = 0
    for case in cases:
        say(f"== {case.title}")
        async with open_rig(stack) as rig:
            load = os.getloadavg()
            found = line(await case.measure(rig), load, await read_facts(rig))
        print(json.dumps(found), flush=True)
        code = code if found["kept"] else 1
    return code


def _current_task() -> asyncio.Task[object]:
    task = asyncio.current_task()
    assert task is not None
    return task


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs what the command line names on a stack of its own."""
    options = parse(arguments)
    chosen = Options(options.pairs, options.items)
    cases = [case for name in options.names or BENCHMARKS for case in BENCHMARKS[name](chosen)]
    forget_settings()
    with own_stack() as stack:
        return asyncio.run(run(stack, cases))


if __name__ == "__main__":
    leave(main())
