"""NVML as the agent reads it, on this machine: each answer, what the checks make of a sound device idle and under load, and the raw texts."""

import json
import stat
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from gpu.families import nvml_here, nvml_raw
from gpu.families.nvml_here import NvmlHere
from gpu.kit import Measured, Part, Stand
from hangdog_agent.checks.check_paths import CheckPaths
from hangdog_agent.checks.check_result import CheckResult, CheckVerdict, Moment
from hangdog_agent.checks.check_state import Notes
from hangdog_agent.checks.gpus.gpu import Gpus
from hangdog_agent.checks.gpus.gpu_thresholds import DOES_NOT_APPLY
from hangdog_agent.checks.gpus.nvml_client import Sweeper
from hangdog_agent.checks.kmsg import Kmsg
from hangdog_agent.checks.settings import CheckSettings
from hangdog_agent.machine_tests.members import Ended, GroupMember
from hangdog_agent.machine_tests.run_members import run

_SWEEPS = 10
#: Under load the trainer multiplies for so long, and is waited for so long until it begins. Seconds.
_LOAD_S, _START_S = 5.0, 40.0
_CALLS_S = 20.0
_BYTES = 8 << 20
#: Records of the kernel log that are looked through, and lines of the driver that are shown.
_RECORDS, _SHOWN = 200_000, 6


@dataclass(slots=True)
class NvmlProof:
    """Figures as they come; what one look meets does not cost the others."""

    stand: Stand
    nvml: NvmlHere
    figures: dict[str, Any] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)

    def attempt(self, name: str, look: Any) -> None:
        began = time.monotonic()
        try:
            look()
        except Exception as error:  # noqa: BLE001 - see above; the words stand in the report
            self.figures[name] = f"failed: {type(error).__name__}: {error}"[:400]
            self.wrong.append(f"{name}: {self.figures[name]}")
        self.figures["seconds of each"] = {
            **self.figures.get("seconds of each", {}),
            name: round(time.monotonic() - began, 1),
        }

    def program(self, name: str, *command: str, deadline_s: float = _CALLS_S) -> Ended:
        """Runs to its end, or to the deadline, with all that it starts."""
        words = (str(self.stand.python), *command)
        return run([GroupMember(name, words, self.nvml.environ)], deadline_s, _BYTES).members[0]

    def sweeps(self) -> None:
        """The agent's own sweep by its own child, as it starts and as it goes on."""
        sweeper = Sweeper(CheckSettings(), environ=self.nvml.environ)
        try:
            began = time.monotonic()
            first = sweeper.ask(full=True)
            self.figures["first sweep s"] = round(time.monotonic() - began, 2)
            if not first.document:
                raise RuntimeError(f"no document: {first.why}")
            (self.stand.out / "nvml-sweep.json").write_text(json.dumps(first.document, indent=1), encoding="utf-8")
            for name, full in (("full", True), ("light", False)):
                took = []
                for _ in range(_SWEEPS):
                    began = time.monotonic()
                    sweeper.ask(full)
                    took.append(1000 * (time.monotonic() - began))
                self.figures[f"{name} sweep ms, median and worst"] = [round(median(took), 1), round(max(took), 1)]
        finally:
            sweeper.close()
        gpus = first.document.get("gpus", [])
        self.figures["driver"] = first.document.get("driver")
        self.figures["values"] = [gpu.get("values") for gpu in gpus]
        self.figures["questions without an answer"] = [gpu.get("errors") for gpu in gpus]
        odd = {name: code for gpu in gpus for name, code in gpu.get("errors", {}).items() if code not in DOES_NOT_APPLY}
        if odd:
            self.wrong.append(f"the agent's sweep meets codes that are more than 'does not apply': {odd}")

    def calls(self) -> None:
        """Each call by itself."""
        ended = self.program("calls", "-m", "gpu.families.nvml_calls", "all")
        if not ended.well:
            raise RuntimeError(f"{ended.words}: {' | '.join(ended.last(4))}")
        (self.stand.out / "nvml-calls.json").write_text(ended.stdout, encoding="utf-8")
        found = json.loads(ended.stdout)
        rows = [row for gpu in found["gpus"] for row in gpu]
        answered = [row for row in rows if row["code"] == 0]
        self.figures["calls answered"] = f"{len(answered)} of {len(rows)}"
        self.figures["calls refused"] = {f"{row['call']}{row['arguments']}": row["code"] for row in rows if row["code"]}
        self.figures["slowest calls ms"] = {
            row["call"]: row["ms"] for row in sorted(rows, key=lambda row: -row.get("ms", 0.0))[:4]
        }
        self.figures["events offered and registered"] = found["events"]
        if found["events"].get("0x8") != 0:
            self.wrong.append("Xid events cannot be registered with NVML here")
        self.wrong += [f"{row['call']}: {row['error']}" for row in rows if row.get("error")]

    def idle(self) -> None:
        """What the checks make of the device while nobody uses it."""
        self._judged("idle", self._looks(2, 0.3))
        self.figures["idle"] = self._medians(self._watched(1.0))

    def load(self) -> None:
        """The same while a trainer keeps it busy."""
        device, seconds = ("cpu", 2.0) if self.stand.dry else ("cuda:0", _LOAD_S)
        ended: list[Ended] = []
        log = self.stand.folder("load") / "began"
        shell = 'exec "$0" -u -m gpu.trainers.burn "$1" "$2" > "$3"'
        command = ("/bin/sh", "-c", shell, str(self.stand.python), device, str(seconds), str(log))
        deadline_s = _START_S + seconds
        burn = threading.Thread(
            target=lambda: ended.extend(
                run([GroupMember("load", command, self.nvml.environ)], deadline_s, _BYTES).members
            )
        )
        burn.start()
        until = time.monotonic() + _START_S
        while burn.is_alive() and time.monotonic() < until and not (log.exists() and log.stat().st_size):
            time.sleep(0.05)
        samples: list[Mapping[str, Any]] = []
        beside = (
            threading.Thread(target=lambda: samples.extend(self._watched(seconds - 0.5))),
            threading.Thread(target=lambda: nvml_raw.keep(self.stand, self.nvml.environ, under_load=True)),
        )
        for thread in beside:
            thread.start()
        results = self._looks(3, 0.8)
        for thread in (*beside, burn):
            thread.join()
        self.figures["load"] = self._medians(samples)
        said = log.read_text(encoding="utf-8").splitlines() if log.exists() else []
        self.figures["load trainer"] = said[-1] if len(said) > 1 else f"{ended[0].words} {' | '.join(ended[0].last(3))}"
        if not ended[0].well:
            raise RuntimeError(f"the load: {ended[0].words}")
        self._judged("load", results)

    def log(self) -> None:
        """Whether the kernel's log can be read, and what of the driver's stands in it."""
        kmsg = Kmsg(self.nvml.kmsg)
        if why := kmsg.open():
            self.figures["kernel log"] = why
            return
        try:
            records = list(kmsg.records(_RECORDS))
        finally:
            kmsg.close()
        driver = [one.text for one in records if "NVRM" in one.text or "nvidia" in one.text.lower()]
        path = self.nvml.kmsg
        kind = "device" if stat.S_ISCHR(path.stat().st_mode) else "file"
        self.figures["kernel log"] = f"{path} ({kind}): {len(records)} records, {len(driver)} of the driver"
        self.figures["last lines of the driver"] = [text[:200] for text in driver[-_SHOWN:]]

    def raw(self) -> None:
        """What the driver's own programs print, and what our readers make of it."""
        nvml_raw.keep(self.stand, self.nvml.environ)
        figures, wrong = nvml_raw.read_again(self.stand)
        self.figures |= figures
        self.wrong += wrong

    def doctor(self) -> None:
        ended = self.program("doctor", "-m", "hangdog", "doctor", "--format", "json", deadline_s=60.0)
        (self.stand.out / "doctor.json").write_text(ended.stdout, encoding="utf-8")
        found = json.loads(ended.stdout)
        self.figures["doctor: works"] = found["works"]
        self.figures["doctor says"] = [
            f"{one['health']}: {one['name']}: {one['what']}"[:200] for one in found["findings"] if one["health"] != "ok"
        ]

    def _looks(self, times: int, apart_s: float) -> list[CheckResult]:
        """Looks of the agent's check, each a full sweep."""
        settings = CheckSettings(gpu_full_s=0.0)
        boot = CheckPaths().boot()
        check = Gpus(settings, Notes(None, boot), Sweeper(settings, environ=self.nvml.environ))
        try:
            if why := check.supported():
                raise RuntimeError(f"the check does not apply here: {why}")
            found: list[CheckResult] = []
            for _ in range(times):
                found += check.look(Moment(time.monotonic(), time.time(), boot))  # noqa: TID251 - the clock of a bench
                time.sleep(apart_s)
            self.figures["power share and busy"] = {gpu: list(pair) for gpu, pair in check.power().items()}
            return found
        finally:
            check.close()

    def _judged(self, when: str, results: Sequence[CheckResult]) -> None:
        """A sound device is nobody's suspect."""
        said = dict.fromkeys(f"{one.kind}: {one.words}" for one in results)
        self.figures[f"checks say, {when}"] = list(said)
        against = dict.fromkeys(one.words for one in results if one.kind is not CheckVerdict.TELEMETRY)
        self.wrong += [f"a check speaks against a sound device ({when}): {words}" for words in against]

    def _watched(self, seconds: float) -> list[Mapping[str, Any]]:
        ended = self.program("watch", "-m", "gpu.families.nvml_calls", "watch", str(seconds))
        found: list[Mapping[str, Any]] = json.loads(ended.stdout)
        return found

    @staticmethod
    def _medians(samples: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Of each value over the samples; reasons of clocks are told as they came."""
        found: dict[str, Any] = {}
        for name in samples[0] if samples else ():
            values = [one[name] for one in samples if one.get(name) is not None]
            values = [value["gpu"] if isinstance(value, dict) else value for value in values]
            if name == "clock reasons":
                found[name] = sorted({f"{value:#x}" for value in values})
            elif values:
                found[name] = [min(values), median(values), max(values)]
        return found


def parts(stand: Stand) -> Iterator[Part]:
    yield Part("nvml/device", 45.0, measure)


def measure(stand: Stand) -> Measured:
    proof = NvmlProof(stand, nvml_here.here(stand))
    for name, look in (
        ("sweeps", proof.sweeps),
        ("calls", proof.calls),
        ("kernel log", proof.log),
        ("checks idle", proof.idle),
        ("checks under load", proof.load),
        ("nvidia-smi", proof.raw),
        ("doctor", proof.doctor),
    ):
        proof.attempt(name, look)
    return Measured(proof.figures, proof.wrong)
