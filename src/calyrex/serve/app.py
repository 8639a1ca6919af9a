"""The application: which path does what."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

from fastapi import FastAPI
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, Response

from calyrex.serve.asking import Asking, Limits
from calyrex.serve.calling import takes_tools
from calyrex.serve.checking import check_rules
from calyrex.serve.completing import answer_chat, answer_text
from calyrex.serve.engine import Engine
from calyrex.serve.errors import ApiError, JsonResponse
from calyrex.serve.exchange import LeftError
from calyrex.serve.gate import CLIENT_LEFT, Gate, Rules
from calyrex.serve.listening import listen
from calyrex.serve.metrics import Metrics
from calyrex.serve.options import ServeOptions, is_loopback
from calyrex.serve.replies import describe_model
from calyrex.serve.responding import respond
from calyrex.serve.schema import CheckRequest
from calyrex.serve.served import Served
from calyrex.serve.state import State, read_body

PAGE = Path(__file__).parent / "page"
_PAGE_FILES = {"/": "index.html"} | {f"/playground.{kind}": f"playground.{kind}" for kind in ("css", "js", "svg")}
_LOCAL_NAMES = ("localhost", "127.0.0.1", "::1")
_METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_ANSWERS = {
    "/v1/chat/completions": answer_chat,
    "/v1/completions": answer_text,
    "/v1/responses": respond,
    "/v1/calyrex/listen": listen,
}
_PATHS = frozenset((*_PAGE_FILES, *_ANSWERS, "/v1/calyrex/check", "/v1/models", "/health", "/metrics"))

Endpoint = Callable[[State, Request], Awaitable[Response]]


def build_state(served: Served, options: ServeOptions) -> State:
    """Start the engine of some models, and return it with what the endpoints share."""
    served.context = min(served.context, options.max_batch_tokens)
    engine = Engine(
        served,
        max_batch=options.max_batch,
        max_batch_tokens=options.max_batch_tokens,
        max_waiting=options.max_waiting,
    )
    limits = Limits(options.max_new_tokens, min(options.max_batch, options.max_waiting), options.max_batch_tokens)
    asking = Asking(served, limits)
    state = State(served, engine, asking, Metrics(engine), takes_tools(served.tokenizer), options.log_messages)
    engine.start()
    return state


def build_app(state: State, options: ServeOptions) -> Gate:
    """Build the application behind its gate.

    Raises:
        CalyrexError: the options ask for a key that is not set, or for an address that needs one.
    """
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)
    for path, answer in _ANSWERS.items():
        app.add_api_route(path, _bind(answer, state), methods=["POST"])
    app.add_api_route("/v1/calyrex/check", _bind(_check, state), methods=["POST"])
    shown: dict[str, Endpoint] = {path: partial(_show_file, file) for path, file in _PAGE_FILES.items()}
    shown |= {"/v1/models": _list_models, "/v1/models/{name:path}": _show_model}
    shown |= {"/health": _show_health, "/metrics": _show_metrics}
    for path, show in shown.items():
        app.add_api_route(path, _bind(show, state), methods=["GET", "HEAD"])
    app.add_exception_handler(ApiError, _say_error)
    app.add_exception_handler(LeftError, _say_nothing)
    app.add_exception_handler(HTTPException, _say_http_error)
    app.add_exception_handler(Exception, _say_failure)
    key = options.api_key()
    is_local = key is None and is_loopback(options.host)
    names = tuple(dict.fromkeys((*_LOCAL_NAMES, options.host))) if is_local else None
    rules = Rules(key, options.max_body, names)

    def count(path: str, status: int, seconds: float) -> None:
        name = path if path in _PATHS else "other"
        state.metrics.requests.labels(name, str(status)).inc()
        state.metrics.seconds.labels(name).observe(seconds)

    return Gate(app, rules, lambda: state.is_draining, count)


def _bind(endpoint: Endpoint, state: State) -> Callable[[Request], Awaitable[Response]]:
    async def bound(request: Request) -> Response:
        return await endpoint(state, request)

    return bound


async def _check(state: State, request: Request) -> Response:
    fields = await read_body(request, CheckRequest)
    rules = await run_in_threadpool(check_rules, fields.system, fields.question, fields.answer)
    return JsonResponse({"rules": rules})


async def _list_models(state: State, request: Request) -> Response:
    entries = [describe_model(model, state.served.base) for model in state.served.models.values()]
    return JsonResponse({"object": "list", "data": entries})


async def _show_model(state: State, request: Request) -> Response:
    model = state.asking.find_model(request.path_params["name"])
    return JsonResponse(describe_model(model, state.served.base))


async def _show_health(state: State, request: Request) -> Response:
    status = "stopping" if state.is_draining else "ok" if state.engine.is_alive else "failed"
    return JsonResponse({"status": status}, status_code=200 if status == "ok" else 503)


async def _show_metrics(state: State, request: Request) -> Response:
    return Response(await asyncio.to_thread(state.metrics.render), headers={"Content-Type": _METRICS_TYPE})


async def _show_file(name: str, state: State, request: Request) -> Response:
    file = PAGE / name
    if not file.is_file():
        raise ApiError(404, f"this installation has no {name}", code="not_found")
    return FileResponse(file)


async def _say_error(request: Request, error: Exception) -> Response:
    return error.response() if isinstance(error, ApiError) else _failure()


async def _say_nothing(request: Request, error: Exception) -> Response:
    return Response(status_code=CLIENT_LEFT)


async def _say_http_error(request: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException):
        return _failure()
    method, path = request.method[:20], request.url.path[:80]
    if error.status_code == 405:
        message, code = f"{path} does not take {method}", "method_not_allowed"
    else:
        message, code = f"there is nothing at {path}", "not_found"
    return ApiError(error.status_code, message, code=code, headers=dict(error.headers or {})).response()


async def _say_failure(request: Request, error: Exception) -> Response:
    return _failure()


def _failure() -> Response:
    return ApiError(500, "the server failed; its log says why").response()
