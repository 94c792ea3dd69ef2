"""`trans-encoder serve`: a page and an API for an index."""

import os
from pathlib import Path
from typing import Annotated

import typer

from trans_encoder.cli.answers.index import CrossOption, IndexPlace
from trans_encoder.cli.options import TrustRemoteCode


def serve(
    index: IndexPlace,
    duplicates: Annotated[
        Path | None,
        typer.Option("--duplicates", metavar="FOLDER", help="Show the groups of this folder, and audit its pairs."),
    ] = None,
    cross: CrossOption = None,
    host: Annotated[str, typer.Option("--host", help="The address to listen on; others than this need a token.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option("--port", min=1, max=65535, help="The port to listen on.")] = 8000,
    name: Annotated[
        list[str] | None, typer.Option("--name", metavar="NAME", help="A name by which others know this server.")
    ] = None,
    trust_remote_code: TrustRemoteCode = False,
) -> None:
    """Serve an index: a page to search, compare, walk through duplicates and audit, and an API.

    The API: `/v1/embeddings` (OpenAI's form), `/rerank` (TEI's form), `/search`, `/same`, `/compare`, `/health`. Only
    this machine can reach it unless --host says otherwise; then set a token in TRANS_ENCODER_TOKEN, which clients send
    as `Authorization: Bearer TOKEN`, and browsers as `#token=TOKEN` behind the address.

    Example: `trans-encoder serve tickets.index --duplicates duplicates`
    """
    from trans_encoder.serve import serve_index

    serve_index(
        index,
        cross=cross,
        duplicates=duplicates,
        host=host,
        port=port,
        token=os.environ.get("TRANS_ENCODER_TOKEN") or None,
        names=frozenset(name or ()),
        trust_remote_code=trust_remote_code,
    )
