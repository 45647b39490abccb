#!/usr/bin/env python3
"""What `lockstep plan` predicts beside what ranks do: collectives and bytes of a token, speeds.

    bench/ranks.py [--lockstep PROGRAM] [--ranks 1,2,3] [-t N] MODEL.gguf...

Each model is planned and run over teams of this process. Counts and bytes have to agree, and the program ends with 1 where
they do not; speeds are printed beside each other, the best of some rounds, since a plan gives upper bounds. Wants a quiet
machine with a core for each rank.
"""

import argparse
import json
import pathlib
import re
import subprocess
import sys

TOKENS = 16
TRACE = re.compile(r"rank (\d+): .* (\d+) collectives.*, ran (\d+): ([\d.]+) us and (\d+) bytes each")


def run(command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"ranks: {' '.join(command)}: code {done.returncode} {done.stderr.strip()}")
    return done


def machine(program, model, threads, rounds):
    """Options that give plans the speeds of this machine, the best that some rounds found."""
    plans = [json.loads(run([program, "plan", "-m", model, "--json", "--ranks", "1", "-t", threads]).stdout)
             for _ in range(rounds)]
    best = {key: max(plan[key] for plan in plans) for key in ("bytes_per_s", "ops_per_s")}
    return ["--bandwidth", str(best["bytes_per_s"] / 1e9), "--peak", str(best["ops_per_s"] / 1e9),
            "--link-bandwidth", str(best["bytes_per_s"] / 1e9),
            "--link-latency", str(1e6 * min(plan["link_seconds"] for plan in plans))]


def traced(program, model, options):
    """Collectives of a token, and of them on average: bytes that the rank with the most receives, rows, microseconds."""
    command = [program, "run", "-m", model, "-p", "a", "-n", str(TOKENS), "--ignore-eos", "--trace", *options]
    messages = run(command).stderr
    ranks = [match.groups() for match in TRACE.finditer(messages)]
    if not ranks:
        return 0, 0, 1, 0.0
    count, steps = int(ranks[0][1]), int(ranks[0][2]) / int(ranks[0][1])
    prompt = int(re.search(r"prompt (\d+) tokens", messages)[1])
    return count, max(int(rank[4]) for rank in ranks), (steps - 1 + prompt) / steps, min(float(rank[3]) for rank in ranks)


def measured(program, model, options, rounds):
    """Tokens per second of prompt and decode, the best of the rounds."""
    command = [program, "bench", "-m", model, "-p", "512", "-n", "32", "-r", str(rounds), "--output", "json", *options]
    results = json.loads(run(command).stdout)["results"]
    best = {result["test"]: max(result["samples_tokens_per_s"]) for result in results}
    return best["pp512"], best["tg32"]


def main():
    parser = argparse.ArgumentParser(description="Plans beside runs.")
    root = pathlib.Path(__file__).resolve().parent.parent
    parser.add_argument("models", nargs="+", metavar="MODEL.gguf")
    parser.add_argument("--lockstep", metavar="PROGRAM", default=str(root / "build/release/src/apps/lockstep"))
    parser.add_argument("--ranks", default="1,2,3", metavar="N,...")
    parser.add_argument("-t", "--threads", default="2", metavar="N", help="threads in all")
    parser.add_argument("--rounds", type=int, default=3, metavar="N")
    arguments = parser.parse_args()
    program, agree = arguments.lockstep, True
    print("| model | ranks | collectives | predicted | bytes each | predicted | us each | decode/s | predicted | prompt/s | predicted |")
    print("|" + "---|" * 11)
    speeds_here = machine(program, arguments.models[0], arguments.threads, arguments.rounds)
    for model in arguments.models:
        for ranks in arguments.ranks.split(","):
            options = ["--ranks", ranks, "-t", str(max(int(arguments.threads), int(ranks)))]
            plan = json.loads(run([program, "plan", "-m", model, "--json", *options, *speeds_here]).stdout)
            speeds = {speed["what"]: speed["tokens_per_s"] for speed in plan["speeds"]}
            count, size, rows, microseconds = traced(program, model, options)
            prompt, decode = measured(program, model, options, arguments.rounds)
            expected = plan["reductions"] + plan["gathers"]
            # The prompt's batch has more rows; results are of one.
            of_token = plan["collective_bytes_per_token"] + (rows - 1) * plan["collective_bytes_per_prompt_row"]
            mean = of_token / expected if expected else 0
            # The last layer reduces only those rows of a prompt whose results are asked for.
            agree &= count == expected and 0.99 * mean - 1 <= size <= mean + 1
            print(f"| {pathlib.Path(model).stem} | {ranks} | {count} | {expected} | {size} | {mean:.0f} | "
                  f"{microseconds:.1f} | {decode:.1f} | {speeds['decode at depth 0']:.1f} | {prompt:.0f} | "
                  f"{speeds['prompt of 512']:.0f} |", flush=True)
    return 0 if agree else 1


if __name__ == "__main__":
    sys.exit(main())
