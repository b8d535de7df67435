"""Ends a request with one of our errors, as a status code of gRPC."""

import functools
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, NoReturn, TypeVar

import grpc

from hangdog_models.errors import HangdogError
from hangdog_proto.client import errors

Context = grpc.aio.ServicerContext[Any, Any]
Service = TypeVar("Service")
Request = TypeVar("Request")
Answer = TypeVar("Answer")


async def refuse(context: Context, error: HangdogError) -> NoReturn:
    """Says what is wrong, and what to do."""
    code, words, metadata = errors.to_grpc(error)
    await context.abort(code, words, metadata)


def refusing(
    method: Callable[[Service, Request, Context], Awaitable[Answer]],
) -> Callable[[Service, Request, Context], Coroutine[Any, Any, Answer]]:
    """A method of a service, of one answer, whose request ends with what it raises."""

    @functools.wraps(method)
    async def answered(service: Service, request: Request, context: Context) -> Answer:
        try:
            return await method(service, request, context)
        except HangdogError as error:
            await refuse(context, error)

    return answered
