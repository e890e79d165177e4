"""The command of one rank: check, measure the catalogue's layers of so many ranks, write what there is.

Ranks end together: one that fails says which it is and why, and exits; torchrun then ends the others. A process that is
told to end ends at once, even one that waits for others inside a library, for the file is rewritten after every layer.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from hyscale_calibration.benches.arguments import UsageError
from hyscale_calibration.benches.operation import CheckFailed
from hyscale_calibration.benches.record import write
from hyscale_calibration.collectives import Ranks, launched
from hyscale_calibration.layers.facts import across_ranks, values_of

COMMAND = "torchrun --nproc-per-node 2 -m hyscale_calibration.layers --cp"
# Nothing is begun that would end later: two minutes with what it takes to start.
MAX_SECONDS = 100.0
# A layer of twice the tokens has twice the queries, each of which scores twice the keys.
GROWTH = 2.0


def run(options: Any, record: Callable[[Any, list[dict[str, Any]], list[str]], dict[str, Any]]) -> NoReturn:
    """Run on this rank, and end its process with its exit status.

    Args:
        options: of the command line.
        record: what is written of a GPU, rows and failures.

    Raises:
        UsageError: this process is no rank, there is no GPU to time, or no layer of the catalogue has so many ranks.
    """
    began = time.perf_counter()
    if not launched():
        raise UsageError(f"context parallelism needs a process for each GPU: {COMMAND}")
    # At once, for a handler would wait until a library returns.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    ranks = Ranks.open(first=True)
    try:
        _run(options, ranks, began, record)
        ranks.close()
    except UsageError:
        raise
    except BaseException as error:
        kind = "check failed" if isinstance(error, CheckFailed) else type(error).__name__
        print(f"error: rank {ranks.rank} of {ranks.ranks}: {kind}: {error}", file=sys.stderr, flush=True)
        # Leaving the group would wait for ranks that wait for this one.
        os._exit(1)
    # Threads of collectives that are left over can abort a process that ends in the usual way.
    sys.stdout.flush()
    os._exit(0)


def _run(options: Any, ranks: Ranks, began: float, record: Callable[..., dict[str, Any]]) -> None:
    from hyscale_calibration.layers.across.check import check_ranks

    def say(line: str) -> None:
        if ranks.rank == 0:
            print(line, flush=True)

    rows = [row for row in across_ranks()["rows"] if row["cp"] == ranks.ranks]
    if not options.check_only:
        if ranks.device != "cuda":
            raise UsageError("timing needs a CUDA GPU for each process; --check-only compares without one")
        if not rows:
            known = sorted({row["cp"] for row in across_ranks()["rows"]})
            raise UsageError(f"no layer of the catalogue is of {ranks.ranks} ranks, there are {known}")
    if not options.unchecked:
        for line in check_ranks(ranks.device, options.system):
            say(line)
    if options.check_only:
        return
    from hyscale_calibration.benches.device import Gpu

    Measuring(ranks, Gpu(), options, began, record, say).all(rows)


class Measuring:
    """Rows as they come, and their file, which rank 0 writes."""

    def __init__(
        self,
        ranks: Ranks,
        gpu: Any,
        options: Any,
        began: float,
        record: Callable[..., dict[str, Any]],
        say: Callable[[str], None],
    ) -> None:
        self._ranks, self._gpu, self._options, self._began = ranks, gpu, options, began
        self._record, self._say = record, say
        self._rows: list[dict[str, Any]] = []
        self._left_out: list[str] = []
        self._wrong: list[str] = []

    def all(self, rows: list[dict[str, Any]]) -> None:
        """Measure rows of the catalogue as every variant, as far as time allows."""
        from hyscale_calibration.layers.across.check import Shared, variants
        from hyscale_calibration.layers.across.measure import measured, named
        from hyscale_calibration.layers.layer import Options
        from hyscale_calibration.layers.sizes import DsaSizes

        took: dict[str, tuple[int, float]] = {}
        for row in rows:
            for system in variants():
                if self._options.system and system.name not in self._options.system:
                    continue
                sizes = DsaSizes.of(values_of("models", row["model"]))
                shared = Shared(row["sequence_length"], sizes, system, Options(), self._ranks.device)
                name = named(shared, row["model"], self._ranks.ranks)
                if not self._time_for(shared.length, took.get(system.name)):
                    self._left_out.append(f"{shared.length} {system.name}, gathers {system.cp_overlap}: no time left")
                    self._say(f"left out: {self._left_out[-1]}; give more with --max-seconds")
                    continue
                start = time.perf_counter()
                found = name | measured(shared, self._options.samples, self._gpu)
                took[system.name] = shared.length, time.perf_counter() - start
                self._rows.append(found)
                self._say(told(found))
                # Of equal scores torch.topk may take any, so those of tables are counted, not demanded.
                alike = found["selected_as_one_process"]
                if alike < 1 and system.selection == "hytopk":
                    where = f"of {shared.length} tokens as {system.name}"
                    self._wrong.append(f"{where} {alike:.4%} of a rank's queries select what one process selects")
                self._write(complete=False)
                gc.collect()
        self._write(complete=True)
        if self._wrong:
            raise CheckFailed("; ".join(self._wrong))

    def _time_for(self, length: int, last: tuple[int, float] | None) -> bool:
        """Whether rank 0 has time for another layer, by how long the system's last one took; told to every rank."""
        expected = last[1] * (length / last[0]) ** GROWTH if last else 0.0
        left = self._options.max_seconds - (time.perf_counter() - self._began)
        return self._ranks.first_says(expected <= left)

    def _write(self, *, complete: bool) -> None:
        if self._ranks.rank or not self._options.json:
            return
        import torch

        path: Path = self._options.json
        found = self._record(self._gpu, self._rows, self._left_out)
        library = self._ranks.library()
        group = {
            "ranks": self._ranks.ranks,
            "backend": library["backend"],
            "nccl": library["version"],
            "nvls": library["nvls"],
            "peer_access": torch.cuda.device_count() > 1 and torch.cuda.can_device_access_peer(0, 1),
            "seconds": time.perf_counter() - self._began,
            "complete": complete,
        }
        partial = path.with_name(f"{path.name}.partial")
        write(partial, {**found, "group": group})
        partial.replace(path)


def told(row: dict[str, Any]) -> str:
    """A row for people."""
    shape, shown, lost = row["shape"], row["communication"], row["contention"]
    beside = [] if lost is None else [f"selection loses {lost['lost_per_s']:.1%} of the time of a gather beside it"]
    parts = [
        f"{row['median_ms']:.2f} ms",
        f"exposed {shown['exposed_transfer_ms']:.3f} ms of {sum(shown['transfer_ms'].values()):.3f}",
        f"hidden {shown['hidden_ms']:.3f}",
        f"waiting {shown['waiting_ms']:.3f}",
        *beside,
        f"{row['peak_bytes'] / 2**30:.2f} GiB",
    ]
    return f"{row['model']} {shape['L']}/{shape['ranks']} {row['system']}, {row['cp_overlap']}: {', '.join(parts)}"
