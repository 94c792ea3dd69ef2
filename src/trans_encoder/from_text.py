"""From raw text to two models: a first bi-encoder where there is none yet, mined pairs, then the cycles.

Everything is in the run folder; what comes before the cycles is in a folder of its own there:

```
RUN/from-text/
  MEMBER/      stage 0 of a member that was a bare PLM (see `bootstrapping`)
  pairs/       the mined pairs: mined/pairs.arrow, mined/mining.json
```
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trans_encoder.bootstrapping import bootstrap
from trans_encoder.bootstrapping.plan import ObjectiveName
from trans_encoder.config import MemberConfig, RunConfig, make_config
from trans_encoder.data.pairs import PairSet
from trans_encoder.data.tasks import TestSet
from trans_encoder.data.text import Text
from trans_encoder.distill.known import KNOWN
from trans_encoder.distill.manifest import PREPARED, RunFolder, Stage, one_by_one
from trans_encoder.distill.run import Result, run
from trans_encoder.distill.selection import DevJudge
from trans_encoder.distill.team import ModelRef
from trans_encoder.encoders import BiEncoder
from trans_encoder.encoders.loading import is_sentence_encoder
from trans_encoder.files import atomic_folder, write_json
from trans_encoder.mining import Mix, mine
from trans_encoder.progress import progress

MINED_PAIRS = 10_000
"""Pairs that are mined unless another number is given."""
_PAIRS = "pairs.arrow"


def distil_text(
    text: Text,
    models: str | MemberConfig | Sequence[str | MemberConfig],
    *,
    out: str | Path,
    pairs: int = MINED_PAIRS,
    mix: Mix | None = None,
    objective: ObjectiveName = "simcse",
    preset: str = "small",
    dev: TestSet | PairSet | None = None,
    **overrides: Any,
) -> Result:
    """Make a bi-encoder and a cross-encoder from raw text and one or more models; the same call continues.

    A model that does not embed sentences yet is tuned contrastively first and stays the PLM of its cross-encoders.
    Pairs are mined lexically and with the first member's bi-encoder. Overrides are fields of RunConfig.
    """
    given = [models] if isinstance(models, str | MemberConfig) else list(models)
    config = make_config(given, preset=preset, overrides=overrides)
    config, mined = prepare(config, text, out=out, pairs=pairs, mix=mix, objective=objective)
    test = TestSet("dev", dev) if isinstance(dev, PairSet) else dev
    return run(config, mined, out=out, judge=None if test is None else DevJudge(test))


def prepare(
    config: RunConfig,
    text: Text,
    *,
    out: str | Path,
    pairs: int = MINED_PAIRS,
    mix: Mix | None = None,
    objective: ObjectiveName = "simcse",
) -> tuple[RunConfig, PairSet]:
    """Do what comes before the cycles: return the configuration with members that embed sentences, and mined pairs."""
    prepared = Path(out).absolute() / PREPARED
    members = [_with_first_bi_encoder(member, text, prepared, objective, config.seed) for member in config.members]
    mining = MinePairs(members[0].bi, text, pairs, mix or Mix(), config.seed)
    return config.model_copy(update={"members": tuple(members)}), mining.done_in(prepared / "pairs")


def _with_first_bi_encoder(
    member: MemberConfig, text: Text, prepared: Path, objective: ObjectiveName, seed: int
) -> MemberConfig:
    """Return the member with a model that embeds sentences: its own, or one made of it in stage 0."""
    if member.bi in KNOWN or is_sentence_encoder(member.bi):
        return member
    place = prepared / str(member.name)
    bootstrap(text, member.bi, out=place, objective=objective, seed=seed, pooling=member.pooling)
    return member.model_copy(update={"bi": str(place / "bi"), "plm": member.plm or member.bi, "pooling": None})


@dataclass(frozen=True)
class MinePairs:
    """The work of mining: pairs over the whole range of similarity, saved with an account of where they came from."""

    encoder: str
    text: Text
    pairs: int
    mix: Mix
    seed: int

    def done_in(self, folder: Path) -> PairSet:
        """Return the mined pairs of a folder, mined now unless they have been already."""
        config = {"pairs": self.pairs, "mix": self.mix.model_dump(), "seed": self.seed}
        origin = {
            "text": {"sentences": len(self.text), "hash": self.text.hash},
            "encoder": ModelRef("encoder", "bi", self.encoder, max_tokens=512).fingerprint(),
        }
        with (
            progress("mining", total=1) as advance,
            RunFolder.open(folder, config=config, origin=origin, engine=one_by_one, advance=advance) as mining,
        ):
            mining.complete([Stage("mined", {**config, **origin}, self)])
        return PairSet.open(folder / "mined" / _PAIRS)

    def __call__(self, path: Path) -> None:
        """Mine, and write the pairs and the account."""
        encoder = BiEncoder.load(self.encoder)
        mined = mine(self.text, pairs=self.pairs, encoder=encoder, mix=self.mix, seed=self.seed)
        with atomic_folder(path) as temporary:
            mined.pairs.save(temporary / _PAIRS)
            write_json(temporary / "mining.json", mined.to_dict())
