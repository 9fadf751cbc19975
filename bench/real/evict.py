"""Fill a redis server that has a --maxmemory limit with values whose sizes change from phase to phase.

    evict.py SOCKET PID [--scale N]

The sequence of values is always the same. The script prints the resident MiB of the server after each phase and two
seconds after FLUSHALL, and the CPU seconds that the server used.
"""

import argparse
import os
import random
import socket
import time

# Number of values, minimum and maximum size in bytes.
PHASES = [(700_000, 20, 120), (200_000, 300, 900), (40_000, 2000, 6000), (700_000, 20, 120), (300_000, 100, 500)]
KEYS = 3_000_000
PIPELINE = 500


def resident(pid: int) -> float:
    with open(f"/proc/{pid}/statm", encoding="ascii") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


def cpu_seconds(pid: int) -> float:
    with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
        fields = stat.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def request(*words: bytes) -> bytes:
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)


def exchange(server: socket.socket, requests: list[bytes]) -> None:
    server.sendall(b"".join(requests))
    left = len(requests)
    while left:
        left -= server.recv(1 << 16).count(b"\r\n")  # each reply takes one line


def feed(server: socket.socket, dice: random.Random, count: int, least: int, most: int) -> None:
    text = b"x" * most
    for start in range(0, count, PIPELINE):
        batch = min(PIPELINE, count - start)
        exchange(
            server, [request(b"SET", b"k%d" % dice.randrange(KEYS), text[: dice.randint(least, most)]) for _ in range(batch)]
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("socket")
    parser.add_argument("pid", type=int)
    parser.add_argument("--scale", type=int, default=1, help="use 1/N of the values")
    options = parser.parse_args()
    dice = random.Random(11)
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(options.socket)
        for count, least, most in PHASES:
            feed(server, dice, count // options.scale, least, most)
            print(f"{resident(options.pid):.0f}", end=" ", flush=True)
        exchange(server, [request(b"FLUSHALL")])
        time.sleep(2)
        print(f"flushed {resident(options.pid):.0f} cpu {cpu_seconds(options.pid):.2f}", flush=True)


if __name__ == "__main__":
    main()
