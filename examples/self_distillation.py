"""One bi-encoder and one cross-encoder teach each other on unlabelled pairs.

    python examples/self_distillation.py MODEL pairs.jsonl runs/self

MODEL is a bi-encoder that was made without labels, a folder or a hub name such as
princeton-nlp/unsup-simcse-bert-base-uncased; pairs.jsonl has a sentence1 and a sentence2 on each line.
"""

import sys

from trans_encoder import PairSet, distil

model, file, out = sys.argv[1:]

pairs = PairSet.read(file).deduplicated()
result = distil(pairs, model, out=out, cycles=1)

print(result.summary)
print("one embedding each:", result.bi.encode(["a cat on the mat", "a kitten on a rug"]).shape)
print("one score a pair:", result.cross.score(PairSet.from_lists(["a cat on the mat"], ["a kitten on a rug"])))
