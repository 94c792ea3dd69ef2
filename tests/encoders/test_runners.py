"""The runner of a model, with and without the folder of speed-ups."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import trans_encoder

SOURCE = Path(trans_encoder.__file__).parent
SCRIPT = """
import sys
from pathlib import Path
from trans_encoder import BiEncoder, CrossEncoder, PairSet, distil

model, out = sys.argv[1:]
encoder = BiEncoder.load(model)
assert type(encoder.runner).__name__ == "PlainRunner"
assert encoder.encode(["one", "two"]).shape == (2, 32)
assert not any(name.startswith("trans_encoder.fast") for name in sys.modules)
texts = [f"a {one} near a {two}" for one in ("cat", "dog", "man") for two in ("house", "tree", "car")]
settings = {"cycles": 1, "selection": "last", "device": "cpu", "bi": {"epochs": 1}, "cross": {"epochs": 1}}
result = distil(PairSet.from_lists(texts, texts[::-1]), model, out=out, **settings)
assert isinstance(CrossEncoder.load(result.folder / "best" / "cross"), CrossEncoder)
"""


def test_the_folder_fast_can_be_deleted(bert, tmp_path):
    shutil.copytree(SOURCE, tmp_path / "src" / SOURCE.name, ignore=shutil.ignore_patterns("fast", "__pycache__"))
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "src"), "TRANS_ENCODER_FAST": "1"}
    command = [sys.executable, "-c", SCRIPT, str(bert), str(tmp_path / "run")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
