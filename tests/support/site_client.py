"""Ask a web application as a server would: the path goes to it as it is, without a client that tidies it up."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlencode


@dataclass
class Answer:
    status_code: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    content: bytes = b""

    @property
    def text(self) -> str:
        return self.content.decode("utf-8")

    def json(self) -> Any:
        return json.loads(self.content)


class SiteClient:
    """GET and other requests to an ASGI application in this process."""

    def __init__(self, app: Any, host: str = "127.0.0.1:8777") -> None:
        self.app, self.host = app, host

    def get(self, path: str, **options: Any) -> Answer:
        return self.request("GET", path, **options)

    def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        place, _, query = path.partition("?")
        query = query if params is None else urlencode(params)
        sent = {"host": self.host, **(headers or {})}
        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": "http",
            "path": unquote(place), "raw_path": place.encode(), "query_string": query.encode(), "root_path": "",
            "headers": [(name.encode(), value.encode()) for name, value in sent.items()],
            "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 8777),
        }  # fmt: skip
        answer = Answer()

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: Mapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                answer.status_code = message["status"]
                answer.headers = {name.decode(): value.decode() for name, value in message["headers"]}
            else:
                answer.content += message.get("body", b"")

        asyncio.run(self.app(scope, receive, send))
        return answer
