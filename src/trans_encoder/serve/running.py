"""Starting the server: which address, and who may use it."""

import ipaddress
import logging
from pathlib import Path

from trans_encoder.errors import ConfigurationError, import_extra

logger = logging.getLogger(__name__)

_LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]"})
_SHORTEST_TOKEN = 16


def serve_index(
    index: str | Path,
    *,
    cross: str | None = None,
    duplicates: str | Path | None = None,
    host: str = "127.0.0.1",
    port: int = 8000,
    token: str | None = None,
    names: frozenset[str] = frozenset(),
    trust_remote_code: bool = False,
) -> None:
    """Serve an index until the process is stopped: a page, and an API (see docs/how-to/serve-an-index.md).

    Any `host` but this machine's own address needs a `token` of at least 16 characters; `names` are the names by which
    browsers and programs know the server then.
    """
    check_access(host, token)
    uvicorn = import_extra("uvicorn", extra="serve")
    import_extra("fastapi", extra="serve")
    from trans_encoder.answers.index import Index
    from trans_encoder.encoders import load_encoder
    from trans_encoder.serve.app import make_app
    from trans_encoder.serve.service import Service

    second = load_encoder(cross, kind="cross", trust_remote_code=trust_remote_code) if cross else None
    opened = Index.open(index, trust_remote_code=trust_remote_code)
    service = Service(opened, second, None if duplicates is None else Path(duplicates))
    service.warm_up()
    hosts = _LOOPBACK | {name.lower() for name in names} | {_bracketed(host)}
    shown = f"http://{_bracketed(host)}:{port}/" + ("#token=TOKEN" if token else "")
    logger.info("serving %s rows at %s; stop it with Ctrl-C", f"{len(opened):,}", shown)
    # Longer than proxies and clients keep a connection (60 seconds and less): the side that sends should close it.
    settings = {"log_level": "warning", "access_log": False, "server_header": False, "timeout_keep_alive": 75}
    uvicorn.run(make_app(service, token=token, hosts=hosts), host=host, port=port, **settings)


def check_access(host: str, token: str | None) -> None:
    """Refuse to be reached from other machines without a token."""
    if token is not None and len(token) < _SHORTEST_TOKEN:
        raise ConfigurationError(
            f"the token has {len(token)} characters; give at least {_SHORTEST_TOKEN}, such as the output of: "
            'python -c "import secrets; print(secrets.token_urlsafe())"'
        )
    if token is None and not _is_loopback(host):
        raise ConfigurationError(
            f"{host} can be reached from other machines, so a token is needed; set TRANS_ENCODER_TOKEN, or leave out "
            "--host to serve this machine alone"
        )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host.lower()
