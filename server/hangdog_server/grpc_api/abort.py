"""Ends a request with one of our errors, as a status code of gRPC."""

from typing import Any, NoReturn

import grpc

from hangdog_models.errors import HangdogError
from hangdog_proto.client import errors

Context = grpc.aio.ServicerContext[Any, Any]


async def refuse(context: Context, error: HangdogError) -> NoReturn:
    """Says what is wrong, and what to do."""
    code, words, metadata = errors.to_grpc(error)
    await context.abort(code, words, metadata)
