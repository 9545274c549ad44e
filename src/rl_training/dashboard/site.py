"""The pages and the data of a dashboard as a web application. Every answer is read from run directories."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rl_training.analysis.run_plot import DEFAULT_METRIC
from rl_training.dashboard.checkpoint_verdicts import CheckpointVerdicts
from rl_training.dashboard.group_curves import compare_groups, read_groups
from rl_training.dashboard.metric_names import HIDDEN, SECTIONS, describe
from rl_training.dashboard.page import ASSETS, asset_bytes, page_html
from rl_training.dashboard.run_facts import checkpoints, read_video, run_facts
from rl_training.dashboard.run_shelf import RunShelf
from rl_training.text import clean_text

LOCAL_NAMES = frozenset({"127.0.0.1", "localhost", "[::1]"})
METHODS = ("GET", "HEAD")
LARGEST_NUMBER = 10**15
HEADERS = {
    # Scripts and styles come from this server alone. Plotly sets styles of its own, and shows pictures from memory.
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}

Handler = Callable[[Request], Awaitable[Response]]


class LocalOnly:
    """Refuses everything but GET from this machine's own pages. A foreign page can make a browser send requests here,
    but under its own name: so the Host header is checked."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":  # the start of the application; there is no route for anything else
            await self.app(scope, receive, send)
            return
        host = dict(scope["headers"]).get(b"host", b"").decode("latin-1")
        refusal: Response | None = None
        if scope["method"] not in METHODS:
            refusal = PlainTextResponse("only GET\n", 405, {"allow": ", ".join(METHODS)})
        elif host_name(host) not in LOCAL_NAMES:
            refusal = PlainTextResponse("open the dashboard as http://127.0.0.1 or http://localhost\n", 421)
        app = self.app if refusal is None else refusal

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                pairs = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
                message = {**message, "headers": [*message.get("headers", []), *pairs]}
            await send(message)

        await app(scope, receive, send_with_headers)


def host_name(header: str) -> str:
    """The name in a Host header, without its port."""
    name, colon, port = header.rpartition(":")
    return (name if colon and port.isdecimal() else header).lower()


def make_site(shelf: RunShelf) -> Starlette:
    """The application for the runs of a shelf."""
    verdicts = CheckpointVerdicts()
    main_page = page_html(mode="live", title="Runs").encode()

    async def page(request: Request) -> Response:
        return Response(main_page, media_type="text/html; charset=utf-8")

    async def run_page(request: Request) -> Response:
        found = shelf.run(request.path_params["name"]) is not None
        return Response(main_page, 200 if found else 404, media_type="text/html; charset=utf-8")

    async def asset(request: Request) -> Response:
        name = request.path_params["name"]
        if name not in ASSETS:
            return _not_found("no such file")
        keep = "public, max-age=86400" if name == "plotly.min.js" else "no-cache"
        return Response(asset_bytes(name), media_type=ASSETS[name], headers={"cache-control": keep})

    async def runs(request: Request) -> Response:
        return _json({**shelf.rows(_number(request, "after")), "folder": clean_text(str(shelf.output_dir), 300)})

    async def run(request: Request) -> Response:
        stored = shelf.run(request.path_params["name"])
        if stored is None:
            return _not_found("no such run")
        return _json({"row": shelf.row(request.path_params["name"]), "facts": run_facts(stored), "sections": SECTIONS})

    async def metrics(request: Request) -> Response:
        name = request.path_params["name"]
        stored = shelf.run(name)
        if stored is None:
            return _not_found("no such run")
        stream = shelf.stream(stored)
        complete = stream.follow()
        answer = stream.since(request.query_params.get("from", ""))
        new = {metric: describe(metric) for metric in answer["series"] if metric not in HIDDEN}
        answer["series"] = {metric: {**new[metric], **answer["series"][metric]} for metric in new}
        return _json({**answer, "complete": complete, "findings": stream.findings(), "row": shelf.row(name)})

    async def checkpoint_list(request: Request) -> Response:
        stored = shelf.run(request.path_params["name"])
        if stored is None:
            return _not_found("no such run")
        found = await run_in_threadpool(checkpoints, stored.path, verdicts)
        return _json({"checkpoints": found})

    async def compare(request: Request) -> Response:
        names = request.query_params.getlist("run")
        metric = request.query_params.get("metric") or DEFAULT_METRIC
        answer, streams = read_groups(shelf, names, metric)
        if answer["read"] < answer["of"]:
            return _json(answer)
        if request.query_params.get("state") == answer["state"] and answer["state"]:
            return _json({"same": True, **answer})
        return _json(compare_groups(answer, streams))

    async def media(request: Request) -> Response:
        stored = shelf.run(request.path_params["name"])
        found = None if stored is None else read_video(stored.path, request.path_params["file"])
        if found is None:
            return _not_found("no such file")
        return Response(found[0], media_type=found[1])

    routes = [
        Route("/", page),
        Route("/run/{name}", run_page),
        Route("/compare", page),
        Route("/static/{name}", asset),
        Route("/api/runs", runs),
        Route("/api/compare", compare),
        Route("/api/run/{name}", run),
        Route("/api/run/{name}/metrics", metrics),
        Route("/api/run/{name}/checkpoints", checkpoint_list),
        Route("/media/{name}/{file}", media),
    ]
    return Starlette(routes=routes, middleware=[Middleware(LocalOnly)])


def _number(request: Request, name: str) -> int:
    text = request.query_params.get(name, "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= 15 else 0


def _json(answer: dict[str, Any]) -> Response:
    content = json.dumps(answer, allow_nan=False, separators=(",", ":"))
    return Response(content, media_type="application/json", headers={"cache-control": "no-store"})


def _not_found(text: str) -> Response:
    return PlainTextResponse(f"{text}\n", 404)
