#!/usr/bin/env bash
# Converts the reference checkpoints to GGUF files, for goldens_test.
#   tests/oracles/make_golden_ggufs.sh OUT_FOLDER [GOLDENS_FOLDER]
# Files newer than checkpoint and script stay. $LOCKSTEP_PYTHON: a Python with gguf and numpy, by
# default python3. Says so in one line and ends with 0 where there are no checkpoints or no such
# Python: the test then skips.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
out=${1:?usage: make_golden_ggufs.sh OUT_FOLDER [GOLDENS_FOLDER]}
goldens=${2:-$here/../../../shared/goldens}
python=${LOCKSTEP_PYTHON:-python3}

if [ ! -d "$goldens" ]; then
  echo "make_golden_ggufs: no reference checkpoints at $goldens"
  exit 0
fi
if ! "$python" -c 'import gguf, numpy' 2>/dev/null; then
  echo "make_golden_ggufs: $python lacks gguf 0.19 or numpy; LOCKSTEP_PYTHON may name one that has both"
  exit 0
fi

mkdir -p "$out"
for name in llama llama-bias llama-256 qwen2 qwen3 gemma2 gemma3 phi3 mistral3 granite; do
  file=$out/$name.gguf
  if [ ! "$file" -nt "$goldens/$name/model.safetensors" ] ||
     [ ! "$file" -nt "$here/golden_to_gguf.py" ]; then
    "$python" "$here/golden_to_gguf.py" "$goldens/$name" "$file"
  fi
done
