"""What is read of a process's environment: names on a list, and nothing else; most say which rank it is, of which job."""

SLURM_RANK = "SLURM_PROCID"
#: Where a rank and the number of ranks stand, the most trustworthy first: torch's and JAX's own, then those of PaddlePaddle, Horovod
#: and MindSpore. Then come the MPIs' and what starts their ranks (Open MPI, MVAPICH 2 and 4, IBM's JSM, PMIx, MPICH and Intel MPI, Cray's PALS, Flux), then Slurm's.
PLACES = (
    ("RANK", "WORLD_SIZE"),
    ("JAX_PROCESS_ID", "JAX_NUM_PROCESSES"),
    ("PADDLE_TRAINER_ID", "PADDLE_TRAINERS_NUM"),
    ("HOROVOD_RANK", "HOROVOD_SIZE"),
    ("RANK_ID", "RANK_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"),
    ("MVP_COMM_WORLD_RANK", "MVP_COMM_WORLD_SIZE"),
    ("JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE"),
    ("PMIX_RANK", ""),
    ("PMI_RANK", "PMI_SIZE"),
    ("PALS_RANKID", ""),
    ("FLUX_TASK_RANK", "FLUX_JOB_SIZE"),
    (SLURM_RANK, "SLURM_NTASKS"),
)
#: A batch script has task 0's number, too, and this only its steps: what `srun` started.
STEP = "SLURM_STEP_ID"
#: Where a job's name stands. `none` is what torchrun says when nobody named the run.
JOB_NAMES = ("HANGDOG_JOB", "TORCHELASTIC_RUN_ID", "SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID")
#: What a job is called that nobody named.
UNNAMED = "default"
#: Where the ranks of a job meet; it keeps two jobs apart that nobody named, and two sets of ranks under one name.
MEETING, PORT = "MASTER_ADDR", "MASTER_PORT"
TOPOLOGY = "HANGDOG_TOPOLOGY"
#: Where a trainer shows that it gets on: its log, which of its lines tell a step, and a file touched at each step. Read here
#: only, and never sent.
LOG, STEP_PATTERN, HEARTBEAT = "HANGDOG_LOG", "HANGDOG_STEP_PATTERN", "HANGDOG_HEARTBEAT"
#: Where torch's `@record` writes the exception that a trainer ends with. Read here only, and never sent.
ERROR_FILE = "TORCHELASTIC_ERROR_FILE"
#: Where PyTorch's flight recorder and worker server, and NCCL's RAS, are to be asked; HOME and XDG_CACHE_HOME tell where
#: the recorder writes when nothing else does. They are read here only, and never sent.
_DOORS = (
    *("TORCH_NCCL_DEBUG_INFO_PIPE_FILE", "TORCH_FR_DEBUG_INFO_PIPE_FILE"),
    *("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE", "XDG_CACHE_HOME", "HOME"),
    *("TORCH_WORKER_SERVER_SOCKET", "NCCL_RAS_ADDR"),
)
#: Where hangdog's NCCL profiler plug-in keeps its ring. Read here only, and never sent.
RING_FOLDER = "HANGDOG_PROFILER_DIR"
#: Whether NCCL Inspector writes what operations completed, and how often, in microseconds. Read here only, and never sent.
INSPECTOR, INSPECTOR_INTERVAL = "NCCL_INSPECTOR_ENABLE", "NCCL_INSPECTOR_DUMP_THREAD_INTERVAL_MICROSECONDS"
#: Names the members of a test of this machine (`hangdog test`): they carry ranks, and no job hangs with them.
DIAGNOSIS = "HANGDOG_DIAGNOSIS"
#: What a program that starts its ranks itself gives them, in the order of `Started`.
SELF_STARTED = ("LOCAL_RANK", "NODE_RANK", "WORLD_SIZE")
#: How often torchrun had started its ranks again when it started this one.
RESTARTS = "TORCHELASTIC_RESTART_COUNT"
#: Where a task's machine hangs in the network, from the top down to itself, and of what kind each part is.
SWITCHES, SWITCH_KINDS = "SLURM_TOPOLOGY_ADDR", "SLURM_TOPOLOGY_ADDR_PATTERN"
#: Names that mean a rank only where the number of ranks stands beside them.
WITH_SIZE = frozenset(("RANK_ID",))
#: What TensorFlow reads its cluster from: JSON with the workers, and the process's own place among them. Read here only, and
#: never sent.
TF_CONFIG = "TF_CONFIG"
#: Whoever carries one of these was given a rank by somebody else.
OWN_RANKS = frozenset((*(rank for rank, _ in PLACES), TF_CONFIG))
#: Where it stands which node of how many a program runs on that starts its ranks itself.
_NODES = ("NNODES", "GROUP_RANK")
#: All that is ever kept of an environment.
ALLOWED = frozenset(name for pair in PLACES for name in pair if name) | {
    *(
        *JOB_NAMES,
        *_DOORS,
        MEETING,
        PORT,
        TOPOLOGY,
        LOG,
        STEP_PATTERN,
        HEARTBEAT,
        RING_FOLDER,
        INSPECTOR,
        INSPECTOR_INTERVAL,
        ERROR_FILE,
        *SELF_STARTED,
        *_NODES,
        STEP,
        RESTARTS,
        SWITCHES,
        SWITCH_KINDS,
        DIAGNOSIS,
        TF_CONFIG,
    ),
}
