"""How often a promise of an audit is broken, over simulated audits of rankings whose truth is known.

    python benchmarks/audits.py --audits 200 --checked 100 --precision 0.9 --confidence 0.9

Each corpus is a curve: how likely the pair at each rank is right. The worst ones for a promise lie just below it.
"""

import argparse
import json

import numpy as np

from trans_encoder.answers.promises import draw_pairs, keep_promise

RANKED = 3000
CURVES = {
    "good": lambda rank: 0.99 - 0.3 * rank**4,
    "slope": lambda rank: 1 - 0.45 * rank,
    "step": lambda rank: np.where(rank < 0.5, 0.97, 0.4),
    "just below": lambda rank: np.full_like(rank, 0.895),
    "just below, uneven": lambda rank: np.where((rank * 10).astype(int) % 2 == 0, 1.0, 0.79),
    "worse where sure": lambda rank: 0.85 + 0.1 * rank,
    "bad": lambda rank: np.full_like(rank, 0.6),
}


def simulate(curve, *, audits, checked, precision, confidence):
    """Return how many audits made a promise, how many broke it, and the mean share of pairs that were kept."""
    made = broken = 0
    kept = []
    for seed in range(audits):
        truth = np.random.default_rng(seed).random(RANKED) < curve(np.arange(RANKED) / RANKED)
        draw = draw_pairs(RANKED, checked, seed=seed)
        right = [0] * draw.bands
        for band, rank in draw.order:
            right[band] += bool(truth[rank])
        promise = keep_promise(right, len(draw.order) // draw.bands, precision=precision, confidence=confidence)
        kept.append(promise.bands / draw.bands)
        if promise.bands:
            made += 1
            broken += bool(truth[: promise.bands * draw.band_size].mean() < precision)
    return {"promises": made, "broken": broken, "broken_share": broken / audits, "kept": float(np.mean(kept))}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--audits", type=int, default=200)
    parser.add_argument("--checked", type=int, default=100)
    parser.add_argument("--precision", type=float, default=0.9)
    parser.add_argument("--confidence", type=float, default=0.9)
    options = vars(parser.parse_args())
    print(
        json.dumps(
            {**options, "corpora": {name: simulate(curve, **options) for name, curve in CURVES.items()}}, indent=2
        )
    )


if __name__ == "__main__":
    main()
