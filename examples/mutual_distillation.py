"""A team of two: every member learns from the mean of what all of them say.

    python examples/mutual_distillation.py MODEL MODEL pairs.jsonl dev.jsonl runs/team

dev.jsonl holds labelled pairs (sentence1, sentence2, score); they choose the checkpoints, nothing is trained on them.
"""

import sys

from trans_encoder import PairSet, TestSet, distil, evaluate

first, second, file, labelled, out = sys.argv[1:]

dev = TestSet.read(labelled)
result = distil(PairSet.read(file), [first, second], dev=dev, out=out, cycles=1)

for name, member in result.members.items():
    print(f"{name}: start {member.start_score:.2f}, bi-encoder {member.bi.score:.2f}")
print("all cross-encoders together:", evaluate(list(result.crosses.values()), dev).scores)
