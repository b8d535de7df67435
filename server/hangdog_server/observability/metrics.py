"""Counts what the server tells of itself, in the form Prometheus scrapes; docs/metrics.md names every metric.

Children are made at the start: counting is one look into a dictionary, what never happened is there as 0, so that its first
time is seen as a change, and nobody outside can make a series.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from enum import StrEnum

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, ProcessCollector, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from hangdog_models.incident import IncidentState
from hangdog_models.verdict import Kind
from hangdog_server.cluster.fleet import Fleet
from hangdog_server.protocol.rejections import AgentRejected, Denial, RejectedCapture
from hangdog_server.telemetry import Agent, Delay, IncidentStage, Notified, Origin, Recorded, RequestCount, WentOn

#: What is counted, by whose member happened: the metric, its help and its one label.
COUNTED: dict[type[StrEnum], tuple[str, str, str]] = {
    Agent: ("hangdog_streams", "Streams of agents that began or ended.", "event"),
    Denial: ("hangdog_agents_refused", "Agents turned away, or put out.", "reason"),
    AgentRejected: ("hangdog_requests_refused", "Requests refused to whoever asked.", "reason"),
    RequestCount: ("hangdog_looks_asked", "Looks asked of machines: each look at each machine.", "kind"),
    RejectedCapture: ("hangdog_looks_answered", "Answers of machines, each to one look.", "outcome"),
    Recorded: ("hangdog_looks_recorded", "Looks agents took while no server was there, handed over.", "outcome"),
    IncidentState: ("hangdog_incidents", "Incidents that reached a state.", "state"),
    Kind: ("hangdog_verdicts", "Verdicts stored.", "kind"),
    WentOn: ("hangdog_incidents_went_on", "Incidents whose job was seen to go on.", "how"),
    Notified: ("hangdog_notices", "Messages to people, each to one receiver.", "outcome"),
}
#: Seconds to a verdict: 15 s from the onset to the suspicion and 20 s from there to the verdict are promised, so there
#: are bounds at both and close around them; beyond, light looks and patience end within two minutes.
PROMISED_S = (0.5, 1, 2, 3, 4, 5, 6, 8, 10, 12.5, 15, 17.5, 20, 25, 30, 45, 60, 120, 300)
#: Seconds of one stage: asking 16,384 machines takes some 0.1 s, judging 131,072 ranks some seconds.
STAGE_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 7.5, 10, 15, 20, 30, 60, 120)
#: Seconds of one transaction: a synced write takes 1 to 30 ms, a busy database is waited for 5 s.
STORE_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
#: Seconds the event loop is late: a heartbeat is 5 s, an agent is given up after 12.5 s.
LAG_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
#: Machines whose certificates are told one by one, the soonest to end: a series for each of 16,384 is more than anybody reads.
SOONEST = 100
#: When each series began, which the library writes beside it: twice the series, and Prometheus learns nothing from them.
_CREATED = re.compile(rb"^(?:# \w+ )?hangdog_\w+_created[ {].*\n", re.MULTILINE)


class Metrics:
    """A Telemetry that counts, into the registry given."""

    def __init__(self, registry: CollectorRegistry, version: str) -> None:
        self._registry = registry
        self._counters = {
            events: {event: counter.labels(event.value) for event in events}
            for events, (name, what, label) in COUNTED.items()
            if (counter := Counter(name, what, [label], registry=registry))
        }
        verdict = self._histogram("verdict", "From the suspicion, or the question, to the stored verdict.", PROMISED_S)
        suspicion = self._histogram("suspicion_age", "How long a job had stood still when suspected.", PROMISED_S, "")
        loop = self._histogram("event_loop_lag", "How much later than it asked for the event loop woke.", LAG_S, "")
        self._lasted: dict[StrEnum, Histogram] = {origin: verdict.labels(origin.value) for origin in Origin}
        self._lasted |= {Delay.SUSPICION: suspicion, Delay.LOOP: loop}
        stages = self._histogram("stage", "How long a stage of an incident took.", STAGE_S, "stage")
        self._stages = {stage: stages.labels(stage.value) for stage in IncidentStage}
        self._running = Gauge("hangdog_incidents_running", "Incidents that are being led.", registry=registry)
        self._steps = self._histogram("store", "How long a transaction waited and took.", STORE_S, "step")
        self._failed = Counter("hangdog_store_failures", "Transactions that failed.", registry=registry)
        self._store: dict[str, Histogram] = {}
        Info("hangdog_build", "The server's version.", registry=registry).info({"version": version})
        ProcessCollector(registry=registry)

    def watch(
        self, fleet: Fleet, clock: Callable[[], float], certificate_left_s: Callable[[], float | None] = lambda: None
    ) -> None:
        """Tells of the fleet what is so at the moment of the scrape; `clock` is the one the fleet runs on."""
        self._registry.register(_Gauges(fleet, clock))
        self._registry.register(_Certificates(fleet, clock, certificate_left_s))

    def text(self) -> bytes:
        """All metrics as Prometheus reads them."""
        return _CREATED.sub(b"", generate_latest(self._registry))

    def count(self, event: StrEnum, by: int = 1) -> None:
        self._counters[type(event)][event].inc(by)

    def lasted(self, what: Delay | Origin, seconds: float) -> None:
        self._lasted[what].observe(seconds)

    @contextmanager
    def incident(self, name: str, job: str) -> Iterator[None]:
        with self._running.track_inprogress():
            yield

    @contextmanager
    def stage(self, stage: IncidentStage) -> Iterator[None]:
        with self._stages[stage].time():
            yield

    @contextmanager
    def stored(self, step: str) -> Iterator[None]:
        if step not in self._store:  # there are as many as there are functions of ours
            self._store[step] = self._steps.labels(step)
        with self._store[step].time(), self._failed.count_exceptions():
            yield

    def _histogram(self, name: str, what: str, buckets: Iterable[float], label: str = "origin") -> Histogram:
        labels = [label] if label else []
        return Histogram(f"hangdog_{name}_seconds", what, labels, registry=self._registry, buckets=tuple(buckets))


class _Gauges(Collector):
    """How the fleet stands, read when it is asked for: nothing is counted up and down meanwhile."""

    def __init__(self, fleet: Fleet, clock: Callable[[], float]) -> None:
        self._fleet = fleet
        self._clock = clock

    def collect(self) -> Iterator[GaugeMetricFamily]:
        agents = GaugeMetricFamily("hangdog_agents", "Machines by the state of their agent.", labels=["state"])
        for state, number in self._fleet.counts(self._clock()).items():
            agents.add_metric([state], number)
        yield agents
        jobs = len(self._fleet.jobs())
        yield GaugeMetricFamily("hangdog_jobs", "Jobs that run on connected machines.", value=jobs)


class _Certificates(Collector):
    """How long certificates last, read when it is asked for.

    Names of machines are certificates' own words, so that nobody can make a series who was not given a certificate. A
    large cluster has the soonest to end alone.
    """

    def __init__(self, fleet: Fleet, clock: Callable[[], float], own_left_s: Callable[[], float | None]) -> None:
        self._fleet = fleet
        self._clock = clock
        self._own_left_s = own_left_s

    def collect(self) -> Iterator[GaugeMetricFamily]:
        own = GaugeMetricFamily("hangdog_certificate_left_seconds", "Until the server's own certificate ends.")
        if (left := self._own_left_s()) is not None:
            own.add_metric([], left)
        yield own
        what = "Until the certificate of a connected machine ends, of the soonest to end."
        machines = GaugeMetricFamily("hangdog_machine_certificate_left_seconds", what, labels=["machine"])
        for left, machine in self._fleet.certificates.soonest(self._clock())[:SOONEST]:
            machines.add_metric([machine], left)
        yield machines
