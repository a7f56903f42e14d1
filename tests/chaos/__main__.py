"""`python -m tests.chaos --runs 200 --seed S`: a campaign on servers of its own."""

import argparse
import asyncio
import json
import logging
import random
import sys
import tempfile
from pathlib import Path

from temporalio.runtime import LoggingConfig, Runtime, TelemetryConfig

from fanout.exits import leave
from tests.chaos.campaign import campaign, summary


def main() -> int:
    """Runs a campaign; 1 if anything was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description="Random faults against random batches.")
    parser.add_argument("--runs", type=int, default=200, metavar="N", help="how many runs (default: 200)")
    parser.add_argument("--seed", type=int, metavar="S", help="the first run's seed; the others count on from it")
    parser.add_argument("--parallel", type=int, default=2, metavar="P", help="runs at once, each on its own servers")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write every line to this file")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep servers' data and workers' logs here")
    # Its pools say at length that a server is away.
    logging.getLogger("asyncpg").setLevel(logging.CRITICAL)
    Runtime.set_default(Runtime(telemetry=TelemetryConfig(logging=LoggingConfig(filter="ERROR"))))
    options = parser.parse_args()
    seed = random.SystemRandom().randrange(1_000_000) if options.seed is None else options.seed
    print(f"SEED={seed}", flush=True)

    def tell(line: str) -> None:
        print(line, flush=True)
        if options.json is not None:
            with options.json.open("a") as file:
                file.write(line + "\n")

    with tempfile.TemporaryDirectory(prefix="fanout-chaos-", ignore_cleanup_errors=True) as folder:
        place = options.keep or Path(folder)
        runs = asyncio.run(campaign(place, [seed + n for n in range(options.runs)], options.parallel, tell))
    told = summary(runs)
    tell(json.dumps(told))
    return 1 if told["bad_seeds"] else 0


if __name__ == "__main__":
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    leave(main())
