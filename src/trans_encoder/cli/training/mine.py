"""`trans-encoder mine`: pairs from raw text."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from trans_encoder.cli.options import Json, Loading, PromptOptions, SkipBad, TrustRemoteCode
from trans_encoder.cli.output import print_result
from trans_encoder.cli.reading import MixOption, TextPath, TextReading
from trans_encoder.progress import show_progress

if TYPE_CHECKING:
    from trans_encoder.encoders import BiEncoder


def mine(
    text: TextPath,
    out: Annotated[Path, typer.Option(metavar="FILE", help="Write pairs: .jsonl, .csv or .parquet.")],
    pairs: Annotated[int, typer.Option(metavar="N", min=1, help="How many pairs to mine.")] = 10_000,
    model: Annotated[str | None, typer.Option(metavar="BI", help="A bi-encoder, to mine dense neighbours too.")] = None,
    *,
    prompts: PromptOptions,
    method: Annotated[
        list[str] | None, typer.Option(help="Find neighbours by lexical or dense search; repeatable. By default both.")
    ] = None,
    mix: MixOption = None,
    max_per_sentence: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="A sentence is in at most N pairs.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Decides which pairs are drawn.")] = 0,
    layout: TextReading,
    skip_bad: SkipBad = False,
    trust_remote_code: TrustRemoteCode = False,
    json: Json = False,
) -> None:
    """Mine pairs over the whole range of similarity from raw text.

    By default a pair is two parts of one sentence, alike to any degree. `--mix` also asks for pairs of sentences:
    neighbours that are near (ranks 1-10 of a search), middle (11-100) or far (101-1000), and random ones.

    Example: `trans-encoder mine --text corpus.txt --out pairs.jsonl --mix 4,2,2,2,0`
    """
    from trans_encoder.data import write_pairs, writer_of
    from trans_encoder.errors import ConfigurationError
    from trans_encoder.mining import DEFAULT_MIX, Mix
    from trans_encoder.mining import mine as run
    from trans_encoder.mining.search import Method

    writer_of(out)
    shares = DEFAULT_MIX if mix is None else Mix.parse(mix)
    if model and not shares.has_neighbours:
        raise ConfigurationError("--model finds neighbours, but the mix has none; give a mix such as --mix 4,2,2,2,0")
    if not model and any(vars(prompts).values()):
        raise ConfigurationError(
            "prompts are for the bi-encoder that finds neighbours; give --model, or leave them out"
        )
    loading = Loading("bi", prompts=prompts, trust_remote_code=trust_remote_code)
    with show_progress():
        encoder = cast("BiEncoder", loading.load_encoders([model])[0]) if model else None
        mined = run(
            layout.read(text, skip_bad=skip_bad),
            pairs=pairs,
            encoder=encoder,
            methods=cast("list[Method] | None", method or None),
            mix=shares,
            seed=seed,
            max_per_sentence=max_per_sentence,
        )
        write_pairs(mined.pairs, out)
    parts = [f"{count:,} {band} ({method})" for band, by in mined.counts.items() for method, count in by.items()]
    shown = f"{out}: {len(mined.pairs):,} pairs of {mined.sentences:,} sentences: {', '.join(parts)}"
    print_result({**mined.to_dict(), "out": str(out)}, as_json=json, shown=shown)
