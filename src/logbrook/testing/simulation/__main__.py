"""Run random schedules of simulated brokers, and print those that break a promise to clients."""

import argparse
import logging
import os
import sys
from functools import partial
from pathlib import Path

from logbrook.testing.simulation import campaign, cluster_plan
from logbrook.testing.simulation.campaign import SimulationRun
from logbrook.testing.simulation.cluster_campaign import ClusterSimulationRun
from logbrook.testing.simulation.runner import CampaignProgress, SimulationCampaign


def main(arguments: list[str] | None = None) -> int:
    options = _parse(arguments)
    earlier = None if options.campaign is None else CampaignProgress.load(options.campaign)
    if options.seed is None:
        options.seed = 0 if earlier is None else earlier.next_seed
    kind = ClusterSimulationRun if options.cluster else SimulationRun
    default_s = cluster_plan.SECONDS if options.cluster else campaign.SECONDS
    simulation = SimulationCampaign(
        partial(kind, seconds=options.seconds or default_s),
        options.seed,
        options.seeds,
        options.jobs,
        _print,
        keep_going=options.keep_going,
        file=options.campaign,
        earlier=earlier,
    )
    # Brokers that are killed again and again, and whose disks fail, have much to report.
    logger = logging.getLogger("logbrook")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        simulation.run()
    except KeyboardInterrupt:
        _print("interrupted")
    finally:
        logger.setLevel(level)
    _print(simulation.summary())
    progress = simulation.progress
    if progress.failed_seeds:
        _print(f"seeds that failed: {', '.join(map(str, progress.failed_seeds))}")
    elif progress.schedules:
        _print(f"no failure: fewer than {3 / progress.schedules:.1e} of such schedules fail (95 %)")
    _print(f"continue with SEED={progress.next_seed}")
    return 1 if simulation.tally.failures else 0


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m logbrook.testing.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=100, metavar="N", help="number of schedules (100)")
    parser.add_argument(
        "--seed", type=int, metavar="N", help="the first seed (0, or where the campaign file says that it ended)"
    )
    parser.add_argument(
        "--seconds",
        type=float,
        metavar="S",
        help=f"simulated time of faults ({campaign.SECONDS:.0f}, with --cluster {cluster_plan.SECONDS:.0f})",
    )
    parser.add_argument("--cluster", action="store_true", help="three replicated brokers instead of one")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, metavar="N", help="processes (%(default)s)")
    parser.add_argument("--keep-going", action="store_true", help="go on after a schedule that fails")
    parser.add_argument(
        "--campaign", type=Path, metavar="FILE", help="keep totals and the next seed in this file, over several runs"
    )
    return parser.parse_args(arguments)


def _print(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
