"""How long a user waits before anything happens: `import attentrim` and `attentrim --help`, in fresh processes.

python benchmarks/start_up.py
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time

COMMANDS = {
    "python alone": "pass",
    "import attentrim": "import attentrim",
    "attentrim --help": "import sys; sys.argv = ['attentrim', '--help']; from attentrim.cli import main; main()",
    "attentrim train --help": "from attentrim.cli import main; main(['train', '--help'])",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=11)
    args = parser.parse_args()
    seconds: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(args.repeats):
        for name, code in COMMANDS.items():
            start = time.perf_counter()
            subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)
            seconds[name].append(time.perf_counter() - start)
    for name, times in seconds.items():
        print(
            json.dumps({"what": name, "seconds_median": round(statistics.median(times), 3), "repeats": args.repeats})
        )


if __name__ == "__main__":
    main()
