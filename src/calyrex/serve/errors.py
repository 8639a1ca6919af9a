"""What the server answers when it cannot do what it is asked: one line, in OpenAI's shape."""

import json
from typing import Any

from pydantic import BaseModel, ValidationError
from starlette.responses import Response

_TYPES = {401: "authentication_error", 429: "rate_limit_error"}
_FIRST_SERVER_ERROR = 500
_MAX_MESSAGE = 500


class ApiError(Exception):
    """A request that cannot be answered.

    Attributes:
        status: HTTP status.
        message: what was expected, and what was given.
        param: the field to blame.
        code: OpenAI's short name of the mistake.
        headers: further headers of the answer.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = " ".join(message.split())[:_MAX_MESSAGE]
        self.param = param
        self.code = code
        self.headers = headers or {}

    def body(self) -> dict[str, Any]:
        """Return the error in OpenAI's shape."""
        kind = (
            "server_error" if self.status >= _FIRST_SERVER_ERROR else _TYPES.get(self.status, "invalid_request_error")
        )
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}}

    def response(self) -> Response:
        """Return the answer that says it."""
        return JsonResponse(self.body(), status_code=self.status, headers=self.headers)


class JsonResponse(Response):
    """A JSON answer on one line, in which half a character is escaped and nothing fails."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """Return the JSON text."""
        return to_json(content).encode()


def to_json(content: Any) -> str:
    """Return JSON on one line, in ASCII."""
    return json.dumps(content, separators=(",", ":"))


def from_validation(error: ValidationError, kind: type[BaseModel]) -> ApiError:
    """Say in one line what is wrong with a request's fields, without repeating what it holds."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    place = ".".join(str(part) for part in first["loc"])
    message = first["msg"][:1].lower() + first["msg"][1:]
    param = str(first["loc"][0]) if first["loc"] else None
    field = kind.model_fields.get(param or "")
    if field is not None and field.description:  # one of several forms, of which the message names the first only
        return ApiError(400, f"{param}: expected {field.description}", param=param)
    what = place or ("the body is no valid JSON" if first["type"] == "json_invalid" else "the body")
    return ApiError(400, f"{what}: {message}", param=param)


def queue_full() -> ApiError:
    """Return the error for more requests than can wait."""
    message = "too many requests wait for this server; try again in a moment"
    return ApiError(429, message, code="rate_limit_exceeded", headers={"Retry-After": "2"})


def stopping() -> ApiError:
    """Return the error for requests that come while the server stops."""
    headers = {"Retry-After": "10", "Connection": "close"}
    return ApiError(503, "this server stops and takes no new requests", code="unavailable", headers=headers)
