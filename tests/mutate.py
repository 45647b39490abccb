#!/usr/bin/env python3
"""Breaks the models one constant, norm, bias, scale or flag at a time, and counts what the kept goldens notice.

    tests/mutate.py BUILD [--sample N] [--seed N] [--only SUBSTRING] [--list]

BUILD is a build folder in which the tests named below are up to date. Every mutant is one source of src/models with one place changed by a
row of the table below; it is compiled by itself, linked before the libraries and run. A mutant that does not compile is none. Exit
status 1 where fewer than --least percent are caught.
"""

import argparse
import json
import pathlib
import random
import re
import shlex
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Programs and what is run of them, the quick ones first; "{}": of the source's family.
TESTS = [("kept_goldens_test", "*GivesTheReference*/*{}*"), ("kept_goldens_test", "*GivesTheReference*"),
         ("layouts_test", "*"), ("architectures_test", "*"),
         ("goldens_test", "*DependsOnEveryNumber*/*{}*")]


def end_of(text, at):
    """The place behind the bracket that closes the one at `at`."""
    depth = 0
    for i in range(at, len(text)):
        depth += text[i] in "([{"
        depth -= text[i] in ")]}"
        if depth == 0:
            return i + 1
    raise ValueError("unbalanced")


def arguments_of(text, at):
    """Places (begin, end) of the arguments of the call or list whose bracket is at `at`."""
    places, begin, depth = [], at + 1, 0
    for i in range(at, end_of(text, at)):
        if text[i] in "([{":
            depth += 1
        elif text[i] in ")]}":
            depth -= 1
        if (text[i] == "," and depth == 1) or depth == 0:
            places.append((begin, i))
            begin = i + 1
    return places


def calls(text, pattern):
    """(begin, end, arguments) of calls whose name, with the bracket, matches `pattern`."""
    for match in re.finditer(pattern, text):
        at = match.end() - 1
        yield match.start(), end_of(text, at), [text[b:e].strip() for b, e in arguments_of(text, at)]


def without_call(pattern, argument):
    """Replaces a call by one of its arguments."""
    def mutants(text):
        for begin, end, given in calls(text, pattern):
            if len(given) > argument:
                yield begin, end, given[argument]
    return mutants


def without_operation(makers, operand):
    """Replaces Apply of an operation by one of its operands."""
    def mutants(text):
        for begin, end, given in calls(text, r"(?:parts_?\.|build_?\.)Apply\("):
            if len(given) != 3 or not re.match(rf"Make(?:{makers})\(", given[1]):
                continue
            if not given[2].startswith("{"):
                continue
            operands = [given[2][b:e].strip() for b, e in arguments_of(given[2], 0)]
            if len(operands) > operand:
                yield begin, end, operands[operand]
    return mutants


def replaced(pattern, replacement):
    def mutants(text):
        for match in re.finditer(pattern, text, re.MULTILINE):
            yield match.start(), match.end(), match.expand(replacement)
    return mutants


# What is broken, and how: (begin, end, text) of every place of a source.
MUTATIONS = {
    "norm left out": without_call(r"parts_?\.(?:Plain)?Norm\(", 1),
    "scale left out": without_call(r"parts_?\.Scale\(", 1),
    "operation left out": without_operation(
        "AddBias|SoftCap|Scale|Activate|PositionScale|MulEach|MulHeads|MulColumns|Mul|L2Norm|Rope|Root"
        "|MulRow|AddOne|Softmax", 0),
    "gate left out": without_operation("ActivateGated", 1),
    "key not read": replaced(r"source_?\.FloatOr\(\"[^\"]*\", ([^()]*)\)", r"static_cast<float>(\1)"),
    "flag turned": replaced(r"source_?\.BoolOr\(", r"!source.BoolOr("),
    "setting left out": replaced(
        r"^( +)(?:spec|layer|moe|latent|indexer|hyper|attention|shared|settings|form|delta|conv|conv_|all|plain"
        r"|compressed_|gathered)[\w.\->]*\.[\w.]+ = [^;{}]*;$", r"\1;"),
    "setting turned": replaced(r"(\.\w+ = )true\b", r"\1false"),
    "setting turned on": replaced(r"(\.\w+ = )false\b", r"\1true"),
    "factor changed": replaced(r"(?<![\w.\"])((?:\d+\.\d+|[1-9]\d*(?=f))f?)(?![\w.\"])",
                               r"(1.25f * \1)"),
    "epsilon changed": replaced(r"(?<![\w.\"])([1-9]\d*e-\d+f?)(?![\w.\"])", r"(1e4f * \1)"),
    "root changed": replaced(r"\b1 / std::sqrt\(", r"1.25 / std::sqrt("),
    "period changed": replaced(r"(SetWindowPattern\(source, )(\d+)", r"\1 1 + \2"),
    "default changed": replaced(r"(ReadRopeOptions|WindowedRope)(\([^;]*?), (\d{4,})\)", r"\1\2, 2 * \3)"),
}

# What no test can notice: factors above 0 of scores that are only compared.
WITHOUT_EFFECT = ["1 / std::sqrt(static_cast<double>(indexer.heads))", "1 / std::sqrt(static_cast<double>(indexer.d))",
                  "1 / std::sqrt(static_cast<double>(spec_.indexer.heads))",
                  "1 / std::sqrt(static_cast<double>(spec_.indexer.d))", "1 / std::sqrt(static_cast<double>(index.d))", "index_weights_scaled", "most_rows"]


def is_code(text, begin):
    line = text[text.rfind("\n", 0, begin) + 1:begin]
    return "//" not in line and not line.lstrip().startswith("#")


def mutants_of(path):
    text = path.read_text()
    found = []
    for kind, places in MUTATIONS.items():
        for begin, end, replacement in places(text):
            line_end = text.find("\n", max(end, begin + 60))
            if any(idle in text[text.rfind("\n", 0, begin) + 1:line_end] for idle in WITHOUT_EFFECT):
                continue
            if not is_code(text, begin) or text[begin:end] == replacement:
                continue
            found.append((path, kind, begin, end, replacement))
    return found


class Build:
    """How one source is compiled and the test linked, as the build folder does it."""

    def __init__(self, folder, scratch):
        self.folder, self.scratch = folder, scratch
        commands = json.loads((folder / "compile_commands.json").read_text())
        self.compile = {command["file"]: command for command in commands}
        self.links = {test: self.link_of(test) for test, _ in TESTS}
        self.made = scratch / "mutant.o"

    def link_of(self, test):
        ninja = ["ninja", "-C", str(self.folder), "-t", "commands", test]
        lines = subprocess.run(ninja, capture_output=True, text=True, check=True).stdout.splitlines()
        return shlex.split(lines[-1].split("&&")[1] if "&&" in lines[-1] else lines[-1])

    def compiles(self, path, text):
        """Whether a source still does, with `text` in its place."""
        source = self.scratch / path.name
        source.write_text(text)
        entry = self.compile[str(path)]
        command = shlex.split(entry["command"])
        command[command.index("-o") + 1] = str(self.made)
        command[-1] = str(source)
        done = subprocess.run(command + ["-w"], cwd=entry["directory"], capture_output=True, check=False)
        return done.returncode == 0

    def program(self, test):
        """The test with what was compiled last."""
        program, link = self.scratch / "mutant", list(self.links[test])
        link[link.index("-o") + 1] = str(program)
        at = next(i for i, word in enumerate(link) if word.endswith(".o"))
        link.insert(at, str(self.made))
        subprocess.run(link, cwd=self.folder, capture_output=True, check=True)
        return program


def notices(program, names):
    command = [str(program), f"--gtest_filter={names}", "--gtest_fail_fast", "--gtest_brief=1"]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, timeout=600, check=False)
    except subprocess.TimeoutExpired:
        return True
    return done.returncode != 0


def is_caught(build, path):
    stem = re.sub(r"[^a-z0-9]", "", path.stem)[:5]
    return any(notices(build.program(test), names.format(stem)) for test, names in TESTS)


def parse_arguments():
    parser = argparse.ArgumentParser(description="Breaks the models and counts what is noticed.")
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--sample", type=int, help="so many mutants (default: all)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="sources whose name holds this")
    parser.add_argument("--list", action="store_true", help="print mutants, make none")
    parser.add_argument("--least", type=float, default=95, help="percent to be caught")
    return parser.parse_args()


def main():
    arguments = parse_arguments()
    mutants = [mutant for path in sorted((ROOT / "src" / "models").glob("*.cc"))
               if arguments.only in path.name and not path.name.endswith("_test.cc")
               for mutant in mutants_of(path)]
    if arguments.sample and arguments.sample < len(mutants):
        mutants = random.Random(arguments.seed).sample(mutants, arguments.sample)
    with tempfile.TemporaryDirectory() as scratch:
        build = None if arguments.list else Build(arguments.build.resolve(), pathlib.Path(scratch))
        caught, made = 0, 0
        for path, kind, begin, end, replacement in mutants:
            text = path.read_text()
            line = text.count("\n", 0, begin) + 1
            place = f"{path.name}:{line}: {kind}: {' '.join(text[begin:end].split())[:100]}"
            if build is None:
                print(place)
                continue
            if not build.compiles(path, text[:begin] + replacement + text[end:]):
                continue
            made += 1
            noticed = is_caught(build, path)
            caught += noticed
            print("caught  " if noticed else "survived", place, flush=True)
    if made:
        print(f"{caught} of {made} caught, {100 * caught / made:.1f} %")
        sys.exit(100 * caught / made < arguments.least)


if __name__ == "__main__":
    main()
