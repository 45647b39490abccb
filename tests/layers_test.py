#!/usr/bin/env python3
"""Fails where a source file breaks a rule of the layout (docs/contributing.md, "Layers").

Usage: layers_test.py SRC. The rules are first tried on planted faults, so that a rule that has stopped finding
anything fails as well.
"""

import re
import sys
from pathlib import Path

# A folder may include from itself and from folders further right.
LAYERS = ("apps server engine convert text models exec shard graph ops comm formats gguf simd tensor "
          "base").split()

# Names of instruction sets and their intrinsics; allowed in simd/ and in micro-kernels (files named *_kernels*).
INSTRUCTION_SETS = re.compile(
    r"(?:avx|neon|vnni)(?![a-z])|\b(?:sse\d\w*|amx_\w+|sve\d?|_mm\d*_\w+|__m(?:128|256|512)[id]?|immintrin|"
    r"x86intrin|arm_neon|(?:float|u?int)\d+x\d+_t)\b", re.IGNORECASE)

# Folders where the name of an architecture is also the name of something else: tokenizers and templates in files are
# called "llama" or "qwen2" whatever model they come with.
ARCHITECTURE_NAMES_ALLOWED = {"text"}

TOKENS = re.compile(r"""
    (?P<comment>//[^\n]*|/\*.*?\*/)
  | (?P<raw>R"(?P<mark>[^()\\\s]{0,16})\(.*?\)(?P=mark)")
  | (?P<string>"(?:\\.|[^"\\\n])*")
  | (?P<character>'(?:\\.|[^'\\\n])+')
""", re.VERBOSE | re.DOTALL)


def without_comments(text):
    """The text with comments blanked, lines kept."""
    def blank(match):
        return re.sub(r"[^\n]", " ", match.group()) if match.group("comment") else match.group()
    return TOKENS.sub(blank, text)


def is_test(path):
    return re.search(r"_(test|fuzz|bench)(_\w+)?\.\w+$", path) is not None or "/testdata/" in path


def check_includes(path, lines):
    layer = path.split("/")[0]
    if layer not in LAYERS:
        yield 1, f"folder '{layer}' is no layer"
        return
    for number, line in enumerate(lines, 1):
        match = re.match(r"\s*#\s*include\s*([<\"])([^>\"]*)[>\"]", line)
        if not match:
            continue
        target = match.group(2).split("/")[0]
        if target in LAYERS and "/" in match.group(2):
            if LAYERS.index(target) < LAYERS.index(layer):
                yield number, f"{layer}/ includes from {target}/, which is above it"
        elif match.group(1) == '"':
            yield number, f"include of '{match.group(2)}', which names no layer"


def check_instruction_sets(path, lines):
    if path.startswith("simd/") or "_kernels" in path.split("/")[-1]:
        return
    for number, line in enumerate(lines, 1):
        match = INSTRUCTION_SETS.search(line)
        if match:
            yield number, f"instruction set '{match.group()}' outside simd/ and *_kernels*"


def architectures(files):
    """{name: file of models/ that owns it}: string literals that start with their file's stem ("qwen3" and
    "qwen3moe" in models/qwen3.cc). Files without such a literal are shared code, files named *table* list all."""
    names = {}
    for path, text in files.items():
        match = re.fullmatch(r"models/([a-z0-9_]+)\.cc", path)
        if not match or is_test(path) or "table" in path:
            continue
        stem = match.group(1).replace("_", "-")
        for literal in re.findall(r'"([a-z0-9.-]+)"', without_comments(text)):
            if literal.startswith(stem) or literal.startswith(stem.replace("-", "")):
                names.setdefault(literal, path)
    return names


def check_architectures(path, lines, names):
    layer = path.split("/")[0]
    if layer in ARCHITECTURE_NAMES_ALLOWED or is_test(path) or re.match(r"models/\w*table", path):
        return
    for number, line in enumerate(lines, 1):
        for literal in re.findall(r'"([^"\\]*)"', line):
            owner = names.get(literal)
            if owner and Path(owner).stem != Path(path).stem:
                yield number, f"architecture '{literal}' outside {owner}"


def check(files):
    """Faults of {path below src/: text}, as lines "path:line: what"."""
    names = architectures(files)
    faults = []
    for path, text in sorted(files.items()):
        lines = without_comments(text).split("\n")
        for found in (check_includes(path, lines), check_instruction_sets(path, lines),
                      check_architectures(path, lines, names)):
            faults += [f"{path}:{number}: {what}" for number, what in found]
    return faults


GOOD = {
    "base/error.h": "#include <string>\n",
    "ops/matmul.h": '#include "base/error.h"\n#include "ops/matmul.h"\n// faster with AVX2 than before\n',
    "simd/avx2.h": "#include <immintrin.h>\n__m256 f();\n",
    "formats/gemm_kernels.cc": '#include "simd/avx2.h"\nauto x = _mm256_setzero_ps();\n',
    "models/flint.cc": 'const char* names[] = {"flint", "flint-moe"};\n',
    "models/graph_parts.cc": 'const char* part = "norm";\n',
    "models/table.cc": 'Row rows[] = {{"flint"}};\n',
    "models/flint_test.cc": 'Load("flint");\n',
    "text/pre_tokenizer.cc": 'Row rows[] = {{"flint", R"(\\s+"//)"}};\n',
    "exec/run.cc": "bool lavxer = true; /* neon */ int sharpen;\nchar c = '\"'; // \"flint\"\n",
}

PLANTED = [
    ("base/file.h", '#include "gguf/reader.h"\n', "above it"),
    ("ops/norm.cc", '\n#  include "engine/engine.h"\n', "above it"),
    ("ops/norm.cc", '#include <exec/run.h>\n', "above it"),
    ("tensor/shape.h", '#include "simd/isa.h"\n', "above it"),
    ("base/log.h", '#include "utils/strings.h"\n', "names no layer"),
    ("base/log.h", '#include "error.h"\n', "names no layer"),
    ("utils/strings.h", "", "no layer"),
    ("ops/softmax.cc", "#include <immintrin.h>\n", "instruction set"),
    ("exec/compile.cc", "if (HasAvx512()) {}\n", "instruction set"),
    ("ops/softmax.cc", "auto x = _mm512_add_ps(a, b);\n", "instruction set"),
    ("ops/softmax.cc", "__m256i x;\n", "instruction set"),
    ("formats/gemm.cc", "vaddq(); using F = float32x4_t;\n", "instruction set"),
    ("exec/run.cc", 'if (arch == "flint") {}\n', "architecture"),
    ("models/shared.cc", 'if (arch == "flint-moe") {}\n', "architecture"),
    ("convert/convert.cc", 'auto s = "http://x"; Use("flint");\n', "architecture"),
]


def self_check():
    assert check(GOOD) == [], check(GOOD)
    for path, text, expected in PLANTED:
        faults = check({**GOOD, path: text})
        assert len(faults) == 1 and faults[0].startswith(path) and expected in faults[0], (path, text, faults)


def main():
    self_check()
    root = Path(sys.argv[1])
    files = {str(p.relative_to(root)): p.read_text(encoding="utf-8")
             for p in sorted(root.rglob("*")) if p.suffix in {".h", ".cc"}}
    faults = check(files)
    print("\n".join(faults) if faults else f"{len(files)} files keep the rules")
    return 1 if faults or not files else 0


if __name__ == "__main__":
    sys.exit(main())
