"""Reads from a trainer's command line what frameworks have people say there: its rank, its node, and the job's parallel sizes.

Single words mean nothing: `--rank 16` is a size of LoRA, too, and data is prepared by programs with a `--process_id`. So a rank is
believed only where the number of ranks and the place where they meet stand beside it.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from hangdog_models.ranks import MAX_RANK

#: Options as people write them, `-` for `_`, and behind the last dot (`--parallelism.tensor_parallel_degree`).
_RANK = ("process_id", "process_index", "rank", "global_rank")
_WORLD = ("num_processes", "process_count", "world_size", "num_procs")
_MEETING = frozenset(
    (
        "coordinator_address",
        "coordinator",
        "coordinator_addr",
        "master_addr",
        "master_address",
        "dist_url",
        "init_method",
    )
)
_NODE = ("node_rank", "machine_rank", "node_id", "node_index")
_NODES = ("nnodes", "num_nodes", "num_machines", "nodes")
#: Parallel sizes: of Megatron-Core and NeMo, DeepSpeed and NeoX, torchtitan, Transformers and what is built on them.
SIZES: Mapping[str, str] = {
    **dict.fromkeys(
        ("tensor_model_parallel_size", "tensor_parallel_size", "tensor_parallel_degree", "tp_size", "tp_degree"), "tp"
    ),
    **dict.fromkeys(
        ("model_parallel_size", "autotp_size", "megatron_lm_tp_degree", "parallelism_config_tp_size"), "tp"
    ),
    "megatron_lm_pp_degree": "pp",
    "parallelism_config_cp_size": "cp",
    **dict.fromkeys(("context_parallel_size", "context_parallel_degree", "cp_size", "cp_degree"), "cp"),
    **dict.fromkeys(("expert_model_parallel_size", "expert_parallel_size", "expert_parallel_degree", "ep_size"), "ep"),
    **dict.fromkeys(
        ("pipeline_model_parallel_size", "pipeline_parallel_size", "pipeline_parallel_degree", "pipe_parallel_size"),
        "pp",
    ),
    **dict.fromkeys(("pp_size", "pp_degree"), "pp"),
}
#: Sections about models beside the one that trains, as trainers by reinforcement have them: each has sizes of its own.
OTHER_MODELS = re.compile("rollout|vllm|sglang|inference|generat|eval|critic|reward|teacher|draft", re.ASCII)
#: Megatron's other order of ranks, which sizes alone do not tell.
_OTHER_ORDER = "use_tp_pp_dp_mapping"
#: Options that name a file with such sizes, and how its name ends: DeepSpeed's, torchtitan's, Megatron's, Lightning's.
_FILES = frozenset(("deepspeed", "deepspeed_config", "ds_config", "config_file", "yaml_cfg", "config"))
CONFIGS = (".json", ".toml", ".yaml", ".yml")
#: Hydra's two options for its main file: its folder, absolute or from that of the script, and its name.
_HYDRA_FOLDER, _HYDRA_NAME = ("--config-path", "-cp"), ("--config-name", "-cn")
#: Where that file is when the command line names it alone: the program says which folder, and these are what Hydra's own
#: examples, NeMo's and most templates say, from that of the script.
_HYDRA_FOLDERS = ("conf", "config", "configs", ".")
#: Files named by one command line that are looked at, and the longest path that the kernel takes.
_MOST_FILES, _LONGEST_PATH = 2, 4096
#: Arguments looked at: a generated command line has hundreds.
_MOST = 4096
#: Longest option that means anything here.
_LONGEST = 100


@dataclass(frozen=True, slots=True)
class CommandLine:
    """What a command line says; `rank` with the option that told it, `sizes` by dimension in the order written.

    `given` are the options that told the sizes. `contradicted` are dimensions that are given twice with different sizes.
    `configs` are paths of files that may say more of them. `candidates` are paths of which one may be such a file.
    """

    rank: int | None = None
    world_size: int = 0
    option: str = ""
    node: int | None = None
    nodes: int = 0
    sizes: Mapping[str, int] = field(default_factory=dict)
    given: tuple[str, ...] = ()
    contradicted: tuple[str, ...] = ()
    configs: tuple[str, ...] = ()
    candidates: tuple[str, ...] = ()


#: Of a process whose command line says nothing of all that: most.
SILENT = CommandLine()


def read(arguments: Sequence[str]) -> CommandLine:
    """Reads a whole command line, the program included."""
    values: dict[str, str] = {}
    sizes: dict[str, int] = {}
    given: list[str] = []
    contradicted: set[str] = set()
    meets = other_order = False
    for name, value in _options(arguments[1:_MOST]):
        meets = meets or name in _MEETING
        other_order = other_order or name == _OTHER_ORDER
        if name in SIZES and (size := number(value)):
            if sizes.setdefault(SIZES[name], size) != size:
                contradicted.add(SIZES[name])
            given.append(f"--{name}")
        else:
            values.setdefault(name, value)
    rank, option = _first(values, _RANK)
    world, _ = _first(values, _WORLD)
    node, _ = _first(values, _NODE)
    nodes, _ = _first(values, _NODES)
    if not meets or world is None or rank is None or rank >= world:
        rank, world, option = None, None, ""
    if other_order or contradicted:
        sizes = {}
    configs, candidates = _configs(arguments)
    if rank is None and node is None and not given and not configs and not candidates:
        return SILENT
    once, twice = tuple(dict.fromkeys(given)), tuple(sorted(contradicted))
    return CommandLine(rank, world or 0, option, node, nodes or 0, sizes, once, twice, configs, candidates)


def number(text: str) -> int | None:
    """A number that may be a rank or a count of ranks."""
    plausible = text.isascii() and text.isdigit() and len(text) <= len(str(MAX_RANK))
    return int(text) if plausible and int(text) <= MAX_RANK else None


def _first(values: Mapping[str, str], names: Sequence[str]) -> tuple[int | None, str]:
    found = ((number(values[name]), f"--{name}") for name in names if name in values)
    return next(((value, option) for value, option in found if value is not None), (None, ""))


def _configs(arguments: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The files that are named, and the candidates for one of which only the name is."""
    found: list[str] = []
    folder = name = ""
    for at, argument in enumerate(arguments[1:_MOST], 1):
        head, equals, value = argument.partition("=")
        if not equals:
            value = arguments[at + 1] if at + 1 < len(arguments) else ""
        if head in _HYDRA_FOLDER:
            folder = value
        elif head in _HYDRA_NAME:
            name = value
        elif head.startswith("--") and _name(head) in _FILES and value.lower().endswith(CONFIGS):
            found.append(value)
    candidates = [] if folder or not name else _of_hydra(arguments, _HYDRA_FOLDERS, name)
    if folder and name:
        found += _of_hydra(arguments, (folder,), name)
    short = [path for path in found if len(path) <= _LONGEST_PATH]
    return tuple(short[:_MOST_FILES]), tuple(path for path in candidates if len(path) <= _LONGEST_PATH)


def _of_hydra(arguments: Sequence[str], folders: Sequence[str], name: str) -> list[str]:
    """The path of Hydra's main file by folder; none where that is a package's, or of a module whose file nobody names."""
    first = next(
        (argument for argument in arguments[1:] if not argument.startswith("-")), ""
    )  # torchrun says `python -u`
    script = first if first.endswith(".py") else ""
    return [
        str(PurePosixPath(script).parent / folder / f"{name.removesuffix('.yaml')}.yaml")
        for folder in folders
        if "://" not in folder and (script or folder.startswith("/"))
    ]


def _name(head: str) -> str:
    return head[:_LONGEST].lstrip("-+").rpartition(".")[2].replace("-", "_")


def _options(arguments: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Name and value of `--name=value`, `--name value`, and of Hydra's `name=value`; the value is empty where none follows."""
    for at, argument in enumerate(arguments):
        head, equals, value = argument[: 4 * _LONGEST].partition("=")
        if not (equals or head.startswith("--")) or len(head) > _LONGEST:
            continue
        if not equals:
            value = arguments[at + 1][:_LONGEST] if at + 1 < len(arguments) else ""
        name = _name(head)
        if name not in SIZES or not OTHER_MODELS.search(head.lower()):
            yield name, value
