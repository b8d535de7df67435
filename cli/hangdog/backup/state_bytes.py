"""A rank's state dict as bytes and back: raw tensors behind a JSON header, never a pickle; torch is loaded when asked.

Bytes come back into a state dict of the same form, as DCP loads: a copy decides no type and makes no object.
"""

import json
import struct
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from hangdog.backup.wire import BackupFailed
from hangdog_models.errors import WrongUse

_LENGTH = struct.Struct(">Q")
#: Tensors begin at multiples of this, which suits every type.
_ALIGNED = 64
_PLAIN = (int, float, str, bool, type(None))

Entry = dict[str, Any]


def pack(state: Mapping[str, Any], room: Callable[[int], bytearray]) -> memoryview:
    """The bytes of a state, in a buffer that `room` gives; raises WrongUse for what is neither tensor nor plain value."""
    import torch

    leaves = list(_leaves(state, ()))
    header = json.dumps([_entry(path, leaf) for path, leaf in leaves]).encode()
    at = _aligned(_LENGTH.size + len(header))
    places = []
    for _, leaf in leaves:
        size = _size(leaf)
        places.append((at, size))
        at = _aligned(at + size)
    body = room(at)
    body[: _LENGTH.size + len(header)] = _LENGTH.pack(len(header)) + header
    for (_, leaf), (offset, size) in zip(leaves, places, strict=True):
        if size and _is_tensor(leaf):
            target = torch.frombuffer(body, dtype=torch.uint8, count=size, offset=offset)
            target.copy_(_local(leaf).detach().reshape(-1).view(torch.uint8))
        elif size:
            body[offset : offset + size] = leaf
    return memoryview(body)[:at]


def fitting(body: memoryview, state: Mapping[str, Any]) -> Callable[[], None]:
    """What puts the bytes into a state, once they were found to fit it; raises BackupFailed where they do not."""
    leaves = list(_leaves(state, ()))
    try:
        (length,) = _LENGTH.unpack_from(body)
        entries = json.loads(bytes(body[_LENGTH.size : _LENGTH.size + length]))
        wanted = [_form(_entry(path, leaf)) for path, leaf in leaves]
        if [_form(entry) for entry in entries] != wanted:
            raise BackupFailed("the state has other tensors than the copy", code="different-state")
        at = _aligned(_LENGTH.size + length)
        writes: list[Callable[[], None]] = []
        for entry, (path, leaf) in zip(entries, leaves, strict=True):
            size = entry.get("size", 0)
            if at + size > len(body):
                raise BackupFailed("the copy is shorter than its tensors", code="damaged-backup")
            writes.append(_write(state, path, leaf, entry, body[at : at + size]))
            at = _aligned(at + size)
    except (ValueError, TypeError, KeyError, AttributeError, struct.error) as error:
        raise BackupFailed(f"the copy is no state dict: {error}", code="damaged-backup") from None

    def apply() -> None:
        for write in writes:
            write()

    return apply


def _write(state: Any, path: tuple[Any, ...], leaf: Any, entry: Entry, data: memoryview) -> Callable[[], None]:
    if _is_tensor(leaf):
        return lambda: _copy(_local(leaf), data)
    value: Any = bytes(data) if "bytes" in entry else entry["value"]
    if entry.get("tuple"):
        value = tuple(value)

    def store() -> None:
        parent = state
        for part in path[:-1]:
            parent = parent[part]
        parent[path[-1]] = value

    return store


def _copy(target: Any, data: memoryview) -> None:
    import torch

    if target.numel():
        with torch.no_grad():
            target.copy_(torch.frombuffer(data, dtype=target.dtype, count=target.numel()).reshape(target.shape))


def _leaves(value: Any, path: tuple[Any, ...]) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Everything that is no dict and no list, in the order of the state."""
    if isinstance(value, Mapping):
        for key, below in value.items():
            if not isinstance(key, str | int):
                raise WrongUse(
                    f"{_name(path)} has a key of type {type(key).__name__}",
                    "keys are texts or numbers",
                    code="unsupported-state",
                )
            yield from _leaves(below, (*path, key))
    elif isinstance(value, list):
        for at, below in enumerate(value):
            yield from _leaves(below, (*path, at))
    else:
        yield path, value


def _entry(path: tuple[Any, ...], leaf: Any) -> Entry:
    if _is_tensor(leaf):
        local = _local(leaf)
        entry = {"path": path, "dtype": str(local.dtype), "shape": list(local.shape), "size": _size(leaf)}
        if local is not leaf:
            entry |= {"whole": list(leaf.shape), "placements": str(leaf.placements)}
        return entry
    if isinstance(leaf, bytes | bytearray):
        return {"path": path, "bytes": True, "size": len(leaf)}
    if isinstance(leaf, _PLAIN):
        return {"path": path, "value": leaf}
    if isinstance(leaf, tuple) and all(isinstance(one, _PLAIN) for one in leaf):
        return {"path": path, "value": leaf, "tuple": True}
    raise WrongUse(
        f"{_name(path)} is a {type(leaf).__name__}",
        "a backup holds tensors, bytes, numbers, texts, lists and dicts",
        code="unsupported-state",
    )


def _form(entry: Entry) -> object:
    """What must be alike in the copy and in the state it comes back to; values and lengths of bytes may differ."""
    kept = {name: value for name, value in entry.items() if name not in ("value", "tuple", "bytes", "path")}
    if "dtype" not in entry:
        kept.pop("size", None)
    return list(entry["path"]), kept


def _is_tensor(leaf: Any) -> bool:
    import torch

    return isinstance(leaf, torch.Tensor)


def _local(leaf: Any) -> Any:
    """A DTensor's own part; a plain tensor itself."""
    return leaf.to_local() if hasattr(leaf, "to_local") else leaf


def _size(leaf: Any) -> int:
    if _is_tensor(leaf):
        local = _local(leaf)
        return int(local.numel() * local.element_size())
    return len(leaf) if isinstance(leaf, bytes | bytearray) else 0


def _aligned(at: int) -> int:
    return -(-at // _ALIGNED) * _ALIGNED


def _name(path: tuple[Any, ...]) -> str:
    return ".".join(map(str, path)) or "the state"
