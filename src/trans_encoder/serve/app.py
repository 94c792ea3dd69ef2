"""The server's addresses: OpenAI's embeddings, TEI's rerank, our own search, same and compare, and the page."""

import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version
from importlib.resources import files
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints

from trans_encoder.answers.audit import Answer
from trans_encoder.errors import MissingExtraError, TransEncoderError
from trans_encoder.serve.guard import App, Guard, Limits
from trans_encoder.serve.queueing import BusyError, WorkQueue
from trans_encoder.serve.service import Service

try:
    from fastapi import FastAPI, Query, Request, Response
    from fastapi.exceptions import RequestValidationError
    from fastapi.responses import JSONResponse
    from starlette.exceptions import HTTPException
except ModuleNotFoundError:
    raise MissingExtraError("fastapi", extra="serve") from None

LIMITS = Limits()


def _encodable(text: str) -> str:
    """Refuse halves of surrogate pairs, which JSON can hold but no tokenizer can read."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("the text holds half a surrogate pair, which is not a character") from None
    return text


AnyText = Annotated[str, StringConstraints(max_length=LIMITS.characters), AfterValidator(_encodable)]
SomeText = Annotated[AnyText, StringConstraints(min_length=1, pattern=r"\S")]
Texts = Annotated[list[SomeText], Field(min_length=1, max_length=LIMITS.texts)]
Top = Annotated[int, Field(ge=1, le=LIMITS.top)]


class _Body(BaseModel):
    """Fields that other servers know and this one does not are ignored."""

    model_config = ConfigDict(strict=True)


class EmbeddingsRequest(_Body):
    """OpenAI's form."""

    input: SomeText | Texts
    model: AnyText | None = None
    encoding_format: Literal["float", "base64"] = "float"


class RerankRequest(_Body):
    """TEI's form."""

    query: SomeText
    texts: Texts
    return_text: bool = False


class SearchRequest(_Body):
    """What to search for."""

    text: SomeText
    top: Top = 10
    where: AnyText | None = None


class SameRequest(_Body):
    """A text that may be here already."""

    text: SomeText
    top: Top = 3


class CompareRequest(_Body):
    """Two texts."""

    text1: SomeText
    text2: SomeText


class AnswerRequest(_Body):
    """What someone said about a pair of the audit."""

    number: Annotated[int, Field(ge=0, lt=1 << 31)]
    answer: Answer


def make_app(service: Service, *, token: str | None = None, hosts: frozenset[str], capacity: int = 256) -> App:
    """Return the ASGI application."""
    queue = WorkQueue(service.handlers, capacity=capacity)

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        queue.start()
        yield
        await queue.stop()

    # FastAPI's own pages of documentation load scripts from elsewhere, so there are none.
    app = FastAPI(title="trans-encoder", lifespan=lifespan, docs_url=None, redoc_url=None)
    _add_errors(app)
    _add_page(app)
    _add_models(app, service, queue)
    _add_answers(app, queue)
    return Guard(app, limits=LIMITS, token=token, hosts=hosts)


def _add_errors(app: FastAPI) -> None:
    @app.exception_handler(HTTPException)
    async def http_error(_request: Request, error: HTTPException) -> JSONResponse:
        return JSONResponse({"error": str(error.detail)}, status_code=error.status_code, headers=error.headers)

    @app.exception_handler(RequestValidationError)
    async def invalid(_request: Request, error: RequestValidationError) -> JSONResponse:
        # What was sent is not sent back: it may hold what JSON cannot.
        problems = [f"{'.'.join(str(part) for part in one['loc'])}: {one['msg']}" for one in error.errors()[:10]]
        readable = "; ".join(problems).encode("utf-8", "replace").decode()
        return JSONResponse({"error": readable}, status_code=422)

    @app.exception_handler(TransEncoderError)
    async def refused(_request: Request, error: TransEncoderError) -> JSONResponse:
        return JSONResponse({"error": str(error)}, status_code=400 if error.exit_code == 2 else 500)

    @app.exception_handler(BusyError)
    async def busy(_request: Request, _error: BusyError) -> JSONResponse:
        return JSONResponse(
            {"error": "too many requests wait; try again"}, status_code=429, headers={"retry-after": "1"}
        )


def _add_page(app: FastAPI) -> None:
    folder = files("trans_encoder.serve") / "page"

    def serve_file(path: str, name: str, kind: str) -> None:
        content = (folder / name).read_bytes()

        @app.get(path, include_in_schema=False)
        async def file() -> Response:
            return Response(content, media_type=kind)

    serve_file("/", "page.html", "text/html; charset=utf-8")
    serve_file("/page.css", "page.css", "text/css; charset=utf-8")
    serve_file("/page.js", "page.js", "text/javascript; charset=utf-8")


def _add_models(app: FastAPI, service: Service, queue: WorkQueue) -> None:
    name = " + ".join(service.index.manifest.models)

    @app.get("/health")
    async def health() -> dict[str, Any]:
        return {"status": "ok", "version": version("trans-encoder"), "rows": len(service.index), "waiting": len(queue)}

    @app.post("/v1/embeddings")
    async def embeddings(request: EmbeddingsRequest) -> dict[str, Any]:
        texts = [request.input] if isinstance(request.input, str) else request.input
        vectors = await queue.submit("embed", texts)
        shown = [_base64(vector) for vector in vectors] if request.encoding_format == "base64" else vectors
        data = [{"object": "embedding", "index": place, "embedding": vector} for place, vector in enumerate(shown)]
        words = sum(len(text.split()) for text in texts)  # words, because tokens differ from model to model
        usage = {"prompt_tokens": words, "total_tokens": words}
        return {"object": "list", "data": data, "model": name, "usage": usage}

    @app.post("/rerank")
    async def rerank(request: RerankRequest) -> list[dict[str, Any]]:
        scores = await queue.submit("rerank", (request.query, request.texts))
        order = sorted(range(len(scores)), key=lambda place: -scores[place])
        texts = request.texts if request.return_text else None
        return [{"index": at, "score": scores[at], **({"text": texts[at]} if texts else {})} for at in order]

    @app.post("/compare")
    async def compare(request: CompareRequest) -> list[dict[str, Any]]:
        answers: list[dict[str, Any]] = await queue.submit("compare", (request.text1, request.text2))
        return answers


def _add_answers(app: FastAPI, queue: WorkQueue) -> None:
    @app.post("/search")
    async def search(request: SearchRequest) -> dict[str, Any]:
        return {"hits": await queue.submit("search", request.model_dump())}

    @app.post("/same")
    async def same(request: SameRequest) -> dict[str, Any]:
        return dict(await queue.submit("same", request.model_dump()))

    @app.get("/groups")
    async def groups(
        offset: Annotated[int, Query(ge=0, lt=1 << 31)] = 0, limit: Annotated[int, Query(ge=1, le=LIMITS.top)] = 20
    ) -> dict[str, Any]:
        return dict(await queue.submit("groups", (offset, limit)))

    @app.get("/audit")
    async def next_pair() -> dict[str, Any]:
        return dict(await queue.submit("queue", None))

    @app.post("/audit/answer")
    async def answer(request: AnswerRequest) -> dict[str, Any]:
        return dict(await queue.submit("answer", (request.number, request.answer)))

    @app.post("/audit/undo")
    async def undo() -> dict[str, Any]:
        return dict(await queue.submit("undo", None))


def _base64(vector: list[float]) -> str:
    return base64.b64encode(np.asarray(vector, dtype="<f4").tobytes()).decode()
