"""Damaged folders of models, of ensembles and of finished runs: they are loaded or refused by name."""

import atexit
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from random import Random
from tempfile import mkdtemp

from conftest import graded, save_model, shape, wordpiece
from fuzz.mutation import damage
from fuzz.reading import Surprise, Target, quietly
from trans_encoder.encoders import BiEncoder, CrossEncoder, load_encoder
from trans_encoder.evaluation.ensembles import Ensemble, Voter, save_ensemble

_PAIRS = graded(4, seed=1)


@cache
def _sound_models() -> Path:
    """Make a bi-encoder, a cross-encoder and the ensemble of both, once for all cases."""
    root = Path(mkdtemp(prefix="fuzz-models-"))
    atexit.register(shutil.rmtree, root, ignore_errors=True)
    texts = [*_PAIRS.sentence1.to_pylist(), *_PAIRS.sentence2.to_pylist()]
    tokenizer = wordpiece(texts)
    save_model(root / "plm", shape("bert", width=8, tokenizer=tokenizer), tokenizer)
    encoders = {"bi": BiEncoder.load(root / "plm", pooling="mean"), "cross": CrossEncoder.load(root / "plm", seed=1)}
    for kind, encoder in encoders.items():
        encoder.save(root / kind)
    save_ensemble([Voter(kind, encoder) for kind, encoder in encoders.items()], _PAIRS, out=root / "ensemble")
    return root


def _damaged(name: str, use: Callable[[Path], object]) -> Target:
    """Damage one file of a folder; those of an ensemble's models are the business of the other targets."""

    def target(random: Random, folder: Path) -> Surprise:
        place = folder / name
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(_sound_models() / name, place)
        files = sorted(path for path in place.rglob("*") if path.is_file() and path.name != "README.md")
        if name == "ensemble":
            files = [place / "ensemble.json"]
        file = random.choice(files)
        damage(random, file)
        return quietly(lambda: use(place), name=place)

    return target


damaged_bi = _damaged("bi", lambda place: load_encoder(place, device="cpu").score(_PAIRS))
damaged_cross = _damaged("cross", lambda place: load_encoder(place, device="cpu").score(_PAIRS))
damaged_ensemble = _damaged("ensemble", lambda place: Ensemble.open(place).score(_PAIRS))
