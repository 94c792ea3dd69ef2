"""Pseudo-labels are a saved object: make them, look at where two teachers disagree, use them elsewhere.

python examples/pseudo_labels.py TEACHER TEACHER pairs.jsonl labels.parquet
"""

import sys
from pathlib import Path

import numpy as np

from trans_encoder import PairSet, PseudoLabels, label, load_encoder

*teachers, file, out = map(Path, sys.argv[1:])

label(PairSet.read(file), [load_encoder(teacher) for teacher in teachers]).save(out)

labels = PseudoLabels.open(out)
scores = np.stack(list(labels.by_teacher.values()))
for place in np.argsort(np.ptp(scores, axis=0))[::-1][:5]:
    ((left, right, _),) = labels.pairs.take([place]).rows()
    print(f"{np.round(scores[:, place], 3)}  {left}  |  {right}")
