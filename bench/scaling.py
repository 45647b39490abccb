#!/usr/bin/env python3
"""What `lockstep plan` says of large models over 1 to 64 ranks: the tables and the plot of docs/scaling.md.

    bench/scaling.py [--lockstep PROGRAM]

Writes files of true shape without weights (`lockstep synth --hollow`), plans each over ranks that are a machine each, and
puts tables between the marks of docs/scaling.md and the plot into docs/scaling.svg. Runs no model; takes a minute or two.
"""

import argparse
import json
import math
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
RANKS = [1, 2, 4, 8, 16, 32, 64]
CONTEXT = 16384
MODELS = [
    ("deepseek2", "671b", "q4_k_m", "DeepSeek-V3, 671B, mixture of 256 experts, latent attention"),
    ("qwen3", "32b", "q4_k_m", "Qwen3 32B, dense, 8 KV heads"),
]
# One socket: 12 channels of DDR5, some 60 cores with 8-bit dot products; half of the peak of each is what programs reach.
MACHINE = ["--bandwidth", "300", "--peak", "20000", "--barrier-latency", "2"]
# No more stages than layers of either model.
MOST_STAGES = 60
LINKS = [
    ("100 Gbit/s, 5 us", ["--link-bandwidth", "12.5", "--link-latency", "5"]),
    ("10 Gbit/s, 30 us", ["--link-bandwidth", "1.25", "--link-latency", "30"]),
]
MODES = [
    ("tensor", ["-sm", "tensor"]),
    ("tensor, whole experts", ["-sm", "tensor", "--expert-split", "whole"]),
    ("layer", ["-sm", "layer"]),
]


def plan(program, file, ranks, options):
    command = [program, "plan", "-m", str(file), "--ranks", str(ranks), "--machines", str(ranks)]
    command += ["-c", str(CONTEXT), "--json", *MACHINE, *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"scaling: {done.stderr.strip()}")
    return json.loads(done.stdout)


def speed(result, what):
    return next(s for s in result["speeds"] if s["what"].startswith(what))


def limit(cost):
    """The greatest part of a cost, and its share."""
    keys = {"memory": "memory", "products": "compute", "collectives": "collective", "barriers": "barrier"}
    parts = {name: cost[f"{key}_seconds"] for name, key in keys.items()}
    name = max(parts, key=parts.get)
    return f"{name} {100 * parts[name] / cost['seconds']:.0f} %"


def row(ranks, results):
    """One line of a table, from the results over all links."""
    first = results[0]
    heaviest = max(first["ranks"], key=lambda rank: rank["weight_bytes"])
    cells = [str(ranks), f"{heaviest['weight_bytes'] / 1e9:.1f}",
             f"{max(rank['kv_bytes_1k'] for rank in first['ranks']) / 1e6:.1f}",
             str(first["reductions"] + first["gathers"] + first["sends"]),
             f"{first['collective_bytes_per_token'] / 1e6:.2f}"]
    for result in results:
        decode, prompt = speed(result, "decode at depth 8192"), speed(result, "prompt")
        cells += [f"{decode['tokens_per_s']:.1f}", limit(decode),
                  f"{prompt['tokens_per_s']:.0f}", limit(prompt)]
    return "| " + " | ".join(cells) + " |\n"


def table(mode, rows):
    head = ["ranks", "weights, GB", "K/V of 1k, MB", "collectives", "MB a token"]
    for link, _ in LINKS:
        head += [f"decode, {link}", "limit", "prompt of 512", "limit"]
    text = f"\n**{mode}**\n\n| " + " | ".join(head) + " |\n|" + "---|" * len(head) + "\n"
    return text + "".join(row(ranks, results) for ranks, results in rows)


def svg(curves):
    """Decode speed over ranks, both axes logarithmic: one panel a model, one line a mode and link."""
    width, height, left, top, wide, high = 900, 420, 60, 60, 340, 260
    colours = ["#4c78a8", "#f58518", "#54a24b"]
    text = (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
            f'height="{height}" font-family="sans-serif" font-size="12">\n'
            f'<rect width="{width}" height="{height}" fill="white"/>\n'
            '<text x="16" y="24" font-size="16">Predicted decode speed at depth 8192, tokens/s, over ranks '
            '(one a machine)</text>\n')
    levels = [1, 2, 5, 10, 20, 50, 100, 200]
    log = math.log2
    for panel, (title, lines) in enumerate(curves):
        x0, y0 = left + panel * (wide + 90), top + high
        x = lambda ranks: x0 + wide * log(ranks) / log(RANKS[-1])
        y = lambda value: y0 - high * log(max(value, 1)) / log(levels[-1])
        text += f'<text x="{x0}" y="{top - 12}">{title.split(",")[0]}</text>\n'
        for ranks in RANKS:
            text += (f'<line x1="{x(ranks):.1f}" x2="{x(ranks):.1f}" y1="{top}" y2="{y0}" stroke="#ddd"/>'
                     f'<text x="{x(ranks):.1f}" y="{y0 + 16}" text-anchor="middle">{ranks}</text>\n')
        for level in levels:
            text += (f'<line x1="{x0}" x2="{x0 + wide}" y1="{y(level):.1f}" y2="{y(level):.1f}" stroke="#ddd"/>'
                     f'<text x="{x0 - 6}" y="{y(level) + 4:.1f}" text-anchor="end">{level}</text>\n')
        for mode, link, points in lines:
            dash = "" if link == 0 else ' stroke-dasharray="5 4"'
            path = " ".join(f"{x(ranks):.1f},{y(value):.1f}" for ranks, value in points)
            text += (f'<polyline points="{path}" fill="none" stroke="{colours[mode]}" stroke-width="2"{dash}/>\n')
    for i, (name, _) in enumerate(MODES):
        text += (f'<line x1="{left + 200 * i}" x2="{left + 200 * i + 24}" y1="{height - 44}" y2="{height - 44}" '
                 f'stroke="{colours[i]}" stroke-width="2"/><text x="{left + 200 * i + 30}" y="{height - 40}">{name}</text>\n')
    text += (f'<text x="{left}" y="{height - 16}">full lines: {LINKS[0][0]}; dashed: {LINKS[1][0]}</text>\n</svg>\n')
    return text


def main():
    parser = argparse.ArgumentParser(description="Plans of large models over ranks.")
    parser.add_argument("--lockstep", metavar="PROGRAM",
                        default=str(ROOT / "build" / "release" / "src" / "apps" / "lockstep"))
    program = parser.parse_args().lockstep
    tables, curves = "", []
    with tempfile.TemporaryDirectory() as folder:
        for architecture, size, kind, title in MODELS:
            file = pathlib.Path(folder) / f"{architecture}.gguf"
            subprocess.run([program, "synth", "--arch", architecture, "--size", size, "--type", kind,
                            "--hollow", "-o", str(file)], check=True, capture_output=True)
            tables += f"\n### {title} ({kind})\n"
            lines = []
            for mode, (name, options) in enumerate(MODES):
                if "whole" in name and "experts" not in title:
                    continue
                rows = [(ranks, [plan(program, file, ranks, options + link) for _, link in LINKS])
                        for ranks in RANKS if name != "layer" or ranks <= MOST_STAGES]
                tables += table(name, rows)
                for link in range(len(LINKS)):
                    lines.append((mode, link, [(ranks, speed(results[link], "decode at depth 8192")["tokens_per_s"])
                                               for ranks, results in rows]))
            curves.append((title, lines))
    (ROOT / "docs" / "scaling.svg").write_text(svg(curves))
    page = ROOT / "docs" / "scaling.md"
    text = re.sub(r"(<!-- tables -->\n).*(<!-- end of tables -->)", lambda m: m[1] + tables + "\n" + m[2],
                  page.read_text(), flags=re.S)
    page.write_text(text)


if __name__ == "__main__":
    main()
