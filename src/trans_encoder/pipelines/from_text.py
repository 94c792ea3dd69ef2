"""What precedes the cycles if the source is raw text: a first bi-encoder where there is none yet, and mined pairs.

Everything is in the run folder; what comes before the cycles is in a folder of its own there:

```
RUN/from-text/
  MEMBER/      stage 0 of a member that was a bare PLM (see `distill.bootstrap`)
  pairs/       the mined pairs: mined/pairs.arrow, mined/mining.json; text.arrow if later cycles mine again
```
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any, cast

import numpy as np

from trans_encoder.config import RunConfig, TeacherConfig
from trans_encoder.data import PairSet, Text
from trans_encoder.distill.bootstrap import ObjectiveName, bootstrap
from trans_encoder.distill.preparing import Miner
from trans_encoder.distill.team import assemble, check_models, resolve_members, settings_of
from trans_encoder.encoders import KNOWN, BiEncoder, is_sentence_encoder
from trans_encoder.files import atomic_folder, write_json
from trans_encoder.mining import DEFAULT_MIX, Mining, Mix, mine
from trans_encoder.progress import progress
from trans_encoder.ranks import is_first_rank
from trans_encoder.runs import (
    Layout,
    Run,
    check_begun,
    check_owned,
    check_trackers,
    mined_pairs,
    mining_counts,
    run_folder,
)
from trans_encoder.teachers import ModelRef, is_bi_encoder

MINED_PAIRS = 10_000
"""Pairs that are mined unless another number is given."""


@dataclass(frozen=True)
class TextOptions:
    """What is done before the cycles if the source is raw text."""

    pairs: int = MINED_PAIRS
    """How many pairs are mined."""
    mix: Mix | None = None
    """How similar the two texts of a pair are; None for the default."""
    remine: bool = False
    """Whether every later cycle mines new pairs, an equal share with each member's latest bi-encoder."""
    objective: ObjectiveName | None = None
    """How a model that does not embed sentences yet is tuned on the text; None for similarities where bi-encoders are
    among the teachers, else simcse."""


@dataclass(frozen=True)
class Prepared:
    """What a run needs and raw text does not have."""

    config: RunConfig
    """With members that embed sentences."""
    pairs: PairSet
    miner: Miner | None = None
    """Mines the pairs of later cycles, if that is wanted."""


def prepare(
    config: RunConfig,
    source: PairSet | Text,
    *,
    out: str | Path,
    options: TextOptions | None = None,
) -> Prepared:
    """Do what comes before the cycles: for text, a first bi-encoder for each member and mined pairs."""
    if isinstance(source, PairSet):
        return Prepared(config, source)
    text, options = source, options or TextOptions()
    check_trackers(config.trackers)
    folder = run_folder(out)
    if is_first_rank():
        check_owned(folder, config.model_dump())
    layout, bare = Layout(folder), config
    if not layout.from_text.exists():
        resolved, _ = resolve_members(bare)
        check_models(resolved, assemble(resolved))
    config = _with_first_bi_encoders(bare, layout)
    teachers = _bi_encoders(config)
    objective = options.objective or ("similarities" if teachers else "simcse")
    for member, ready in zip(bare.members, config.members, strict=True):
        if member != ready:
            bootstrap(
                text,
                member.bi,
                out=layout.bootstrap(str(member.name)).root,
                objective=objective,
                teachers=teachers if objective == "similarities" else [],
                seed=bare.seed,
                pooling=member.pooling,
                trust_remote_code=bare.trust_remote_code,
                device=bare.given_device,
                precision=bare.precision,
                trackers=bare.trackers,
                fast=bare.fast_option,
            )
    start = assemble(resolve_members(config)[0])[0].start
    mining = MinePairs(start, text, options.pairs, options.mix or DEFAULT_MIX, config.seed)
    mined = mining.done_in(layout.mining, keep_text=options.remine)
    return Prepared(config, mined, mining.again(layout.mining.text) if options.remine else None)


def is_begun(config: RunConfig, *, out: str | Path) -> bool:
    """Return whether a run from text has been begun in a folder; refuse one with other settings, and write nothing."""
    folder = run_folder(out)
    resolved, _ = resolve_members(_with_first_bi_encoders(config, Layout(folder)))
    return check_begun(folder, config=settings_of(resolved, folder), origin=None)


def _with_first_bi_encoders(config: RunConfig, layout: Layout) -> RunConfig:
    """Return the configuration with members that embed sentences: their own models, or the results of stage 0."""
    members = (
        member
        if member.bi in KNOWN or is_sentence_encoder(member.bi)
        else member.model_copy(
            update={
                "bi": str(layout.bootstrap(str(member.name)).trained("bi")),
                "plm": member.plm or member.bi,
                "pooling": None,
            }
        )
        for member in config.members
    )
    return config.model_copy(update={"members": tuple(members)})


def _bi_encoders(config: RunConfig) -> list[TeacherConfig]:
    """Return the bi-encoders among the teachers."""
    models = [teacher for teacher in config.teachers if teacher.names_model]
    return [teacher for teacher in models if is_bi_encoder(teacher.spec)]


@dataclass(frozen=True)
class MinePairs:
    """The work of mining: pairs over the whole range of similarity, saved with an account of where they came from."""

    encoder: ModelRef
    text: Text
    pairs: int
    mix: Mix
    seed: int

    def done_in(self, layout: Layout, *, keep_text: bool) -> PairSet:
        """Return the mined pairs of a folder, mined now unless they have been already."""
        config = {"pairs": self.pairs, "mix": self.mix.model_dump(), "seed": self.seed}
        origin = {
            "text": {"sentences": len(self.text), "hash": self.text.hash},
            "encoder": self.encoder.fingerprint(),
        }
        with (
            progress("mining", total=2 if keep_text else 1) as advance,
            Run.claim(layout.root, config=config, origin=origin) as mining,
        ):
            stages = [mining.stage(layout.mined, {**config, **origin}, self, by="owner")]
            if keep_text:
                stages.append(mining.stage(layout.text, {"text": origin["text"]}, self.text.save, by="owner"))
            mining.complete(stages, advance=advance)
        return PairSet.open(mined_pairs(layout.mined))

    def __call__(self, path: Path) -> None:
        """Mine, and write the pairs and the account."""
        mined = _mined(self.text, self.encoder, pairs=self.pairs, mix=self.mix, seed=self.seed)
        with atomic_folder(path) as temporary:
            mined.pairs.save(mined_pairs(temporary))
            write_json(mining_counts(temporary), mined.to_dict())

    def again(self, text: Path) -> "TextMiner":
        """Return what mines as many pairs with other encoders from the same text, kept at this place."""
        return TextMiner(text, self.text.hash, self.pairs, self.mix, self.seed)


@dataclass(frozen=True)
class TextMiner:
    """Mines the pairs of later cycles: with each member's bi-encoder its share, drawn again in every cycle."""

    text: Path
    text_hash: str
    pairs: int
    mix: Mix
    seed: int

    @property
    def fingerprint(self) -> Mapping[str, Any]:
        """The text by its hash, and the settings."""
        return {"text": self.text_hash, "pairs": self.pairs, "mix": self.mix.model_dump(), "seed": self.seed}

    def __call__(self, encoders: Sequence[ModelRef], *, cycle: int) -> PairSet:
        """Mine with one encoder after the other; a pair that two of them found counts once."""
        text = Text.open(self.text)
        mined = []
        for index, encoder in enumerate(encoders):
            share = max(1, (self.pairs + index) // len(encoders))
            seed = int(np.random.SeedSequence([self.seed, cycle, index]).generate_state(1)[0])
            mined.append(_mined(text, encoder, pairs=share, mix=self.mix, seed=seed).pairs)
        return reduce(PairSet.concat, mined).deduplicated()


def _mined(text: Text, encoder: ModelRef, *, pairs: int, mix: Mix, seed: int) -> Mining:
    """Mine, with the encoder if the mix has neighbours to look for."""
    loaded = cast(BiEncoder, encoder.load()) if mix.has_neighbours else None
    return mine(text, pairs=pairs, encoder=loaded, mix=mix, seed=seed)
