"""The tables of the store as the newest migration leaves them, in types that both engines hold alike."""

import sqlalchemy as sa


class Text(sa.types.TypeDecorator[str]):
    """Text without what PostgreSQL or UTF-8 cannot hold. Its columns are ordered by code points (see the migrations)."""

    impl = sa.String
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: sa.Dialect) -> str | None:
        return None if value is None else storable(value)


def storable(text: str) -> str:
    """The text without NUL and lone surrogates, which come from foreign evidence and are no reason to fail."""
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode("utf-8")


TABLES = sa.MetaData()
INCIDENTS = sa.Table(
    "incidents",
    TABLES,
    sa.Column("id", Text, primary_key=True),
    sa.Column("job", Text, nullable=False, index=True),
    sa.Column("state", Text, nullable=False, index=True),
    sa.Column("began", sa.Float, nullable=False, index=True),
    sa.Column("changed", sa.Float, nullable=False, index=True),
    sa.Column("why", Text, nullable=False),
    sa.Column("note", Text, nullable=False),
    sa.Column("asked", sa.JSON, nullable=False),
    sa.Column("kind", Text, nullable=False),
    sa.Column("confidence", sa.Float, nullable=False),
    sa.Column("evict", sa.JSON, nullable=False),
    sa.Column("verdict", sa.Text, nullable=False),
    # what retention goes by: bytes of the captures that are there, of the verdict, and since when captures are removed (0: not)
    sa.Column("captured_bytes", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("verdict_bytes", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("pruned", sa.Float, nullable=False, server_default="0"),
    # what the looks before the latest came to, and for how long the job had stood when it was seen to go on (0: it was not)
    sa.Column("earlier", sa.JSON, nullable=False, server_default="[]"),
    sa.Column("went_on_s", sa.Float, nullable=False, server_default="0"),
    # by what later ones are compared with it (empty: it names no single machine), and whose job it was
    sa.Column("features", sa.JSON, nullable=False, server_default="{}"),
    sa.Column("owner", Text, nullable=False, server_default=""),
    # what people said that it turned out to be (empty: nobody did)
    sa.Column("settled", sa.JSON, nullable=False, server_default="{}"),
    # who has it, and whether people are done with it (empty: nobody did anything about it)
    sa.Column("response", sa.JSON, nullable=False, server_default="{}"),
    # all that a line of the list shows, so that none of the large rest is read for it; PostgreSQL keeps that beside its rows
    sa.Index(
        "ix_incidents_lines",
        "began",
        "id",
        "job",
        "state",
        "kind",
        "changed",
        "confidence",
        "evict",
        "why",
        "note",
        "owner",
        "went_on_s",
        "response",
        info={"engine": "sqlite"},
    ).ddl_if(dialect="sqlite"),
)
#: What people did about incidents, one row each; `key` is empty, or the same where the same came twice.
RESPONSES = sa.Table(
    "responses",
    TABLES,
    sa.Column("incident", Text, primary_key=True),
    sa.Column("number", sa.Integer, primary_key=True),
    sa.Column("what", Text, nullable=False),
    sa.Column("at", sa.Float, nullable=False),
    sa.Column("who", Text, nullable=False),
    sa.Column("text", Text, nullable=False),
    sa.Column("key", Text, nullable=False),
)
CAPTURES = sa.Table(
    "captures",
    TABLES,
    sa.Column("incident", sa.ForeignKey("incidents.id"), primary_key=True),
    sa.Column("machine", Text, primary_key=True),
    sa.Column("round", sa.Integer, primary_key=True),
    sa.Column("packed", sa.LargeBinary, nullable=False),
    # looks before it that show the same (`together.kept`); three rows for a machine of which two tell nothing cost the most
    sa.Column("before", sa.LargeBinary),
)
#: What agents recorded while no server was there, one row for each message that was acknowledged: its capture stands in
#: `captures`, and none is ever taken twice.
SPOOLED = sa.Table(
    "spooled",
    TABLES,
    sa.Column("machine", Text, primary_key=True),
    sa.Column("id", Text, primary_key=True),
    sa.Column("incident", sa.ForeignKey("incidents.id"), nullable=False, index=True),
    sa.Column("job", Text, nullable=False, index=True),
    sa.Column("stall", Text, nullable=False),
    sa.Column("began", sa.Float, nullable=False),
    sa.Column("round", sa.Integer, nullable=False),
    sa.Column("stated", sa.JSON, nullable=False),
)
#: Which server leads the incidents of a job, where agents reach it, and until when (Unix seconds of the database's clock).
LEASES = sa.Table(
    "leases",
    TABLES,
    sa.Column("job", Text, primary_key=True),
    sa.Column("holder", Text, nullable=False),
    sa.Column("address", Text, nullable=False),
    sa.Column("until", sa.Float, nullable=False),
)
#: What verdicts said of machines. It refers to no row of `incidents`: it outlives them.
LEDGER = sa.Table(
    "ledger",
    TABLES,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("machine", Text, nullable=False),
    sa.Column("incident", Text, nullable=False, index=True),
    sa.Column("job", Text, nullable=False),
    sa.Column("at", sa.Float, nullable=False, index=True),
    sa.Column("mention", Text, nullable=False),
    sa.Column("probability", sa.Float, nullable=False),
    sa.Column("among", sa.Integer, nullable=False),
    sa.Column("kind", Text, nullable=False),
    sa.Index("ix_ledger_machine_at", "machine", "at"),
)
#: Campaigns of diagnostics: `asked` is all that planning takes beside the launches, `report` what came of it.
CAMPAIGNS = sa.Table(
    "campaigns",
    TABLES,
    sa.Column("id", Text, primary_key=True),
    sa.Column("state", Text, nullable=False, index=True),
    sa.Column("began", sa.Float, nullable=False, index=True),
    sa.Column("changed", sa.Float, nullable=False, index=True),
    sa.Column("who", Text, nullable=False),
    sa.Column("why", Text, nullable=False),
    sa.Column("incident", Text, nullable=False),
    sa.Column("asked", sa.JSON, nullable=False),
    sa.Column("convicted", sa.JSON, nullable=False),
    sa.Column("note", Text, nullable=False),
    sa.Column("report", sa.Text, nullable=False),
)
#: Their launches, written before anybody is asked; `result` is empty while one is under way.
LAUNCHES = sa.Table(
    "launches",
    TABLES,
    sa.Column("campaign", sa.ForeignKey("campaigns.id"), primary_key=True),
    sa.Column("number", sa.Integer, primary_key=True),
    sa.Column("round", sa.Integer, nullable=False),
    sa.Column("test", Text, nullable=False),
    sa.Column("machines", sa.JSON, nullable=False),
    sa.Column("repetitions", sa.Integer, nullable=False),
    sa.Column("began", sa.Float, nullable=False),
    sa.Column("deadline_s", sa.Float, nullable=False),
    sa.Column("meet", Text, nullable=False),
    sa.Column("ended", sa.Float, nullable=False),
    sa.Column("result", Text, nullable=False),
    sa.Column("came", sa.JSON, nullable=False),
)
#: What each machine was tested for: it outlives its campaign. `parts` are what was in it, such as the UUIDs of GPUs.
TESTS = sa.Table(
    "tests",
    TABLES,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("machine", Text, nullable=False),
    sa.Column("campaign", Text, nullable=False),
    sa.Column("at", sa.Float, nullable=False, index=True),
    sa.Column("level", sa.Integer, nullable=False),
    sa.Column("test", Text, nullable=False),
    sa.Column("outcome", Text, nullable=False),
    sa.Column("repetitions", sa.BigInteger, nullable=False),
    sa.Column("says", Text, nullable=False),
    sa.Column("others", sa.JSON, nullable=False),
    sa.Index("ix_tests_machine_at", "machine", "at"),
)
#: In which machine each part was seen last, by its serial number or UUID.
PARTS = sa.Table(
    "parts",
    TABLES,
    sa.Column("part", Text, primary_key=True),
    sa.Column("machine", Text, nullable=False, index=True),
    sa.Column("at", sa.Float, nullable=False),
)
#: Whom campaigns convicted; `part` is empty where it was the machine as a whole.
CONVICTIONS = sa.Table(
    "convictions",
    TABLES,
    sa.Column("campaign", Text, primary_key=True),
    sa.Column("machine", Text, primary_key=True),
    sa.Column("part", Text, primary_key=True),
    sa.Column("at", sa.Float, nullable=False, index=True),
)
#: How far the date is believed, in one row with id 1 (`dates` has the rule): up to when, and in which run of the machine that
#: was, by how much the date is ahead of it, and for how long of running it has been so.
DATES = sa.Table(
    "dates",
    TABLES,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("believed", sa.Float, nullable=False),
    sa.Column("boot", Text, nullable=False),
    sa.Column("up_s", sa.Float, nullable=False),
    sa.Column("gap_s", sa.Float, nullable=False),
    sa.Column("held_s", sa.Float, nullable=False),
)
#: What is to be done to a machine for an incident, written before it is done, and what came of it. `at` is when it was
#: decided, `runs` what of the job ran there, by actor, before anything moved; `marked`: a mark of ours stands, or may.
INTENTS = sa.Table(
    "intents",
    TABLES,
    sa.Column("incident", Text, primary_key=True),
    sa.Column("machine", Text, primary_key=True),
    sa.Column("job", Text, nullable=False),
    sa.Column("domain", Text, nullable=False),
    sa.Column("state", Text, nullable=False, index=True),
    sa.Column("at", sa.Float, nullable=False, index=True),
    sa.Column("changed", sa.Float, nullable=False),
    sa.Column("reason", Text, nullable=False),
    sa.Column("message", Text, nullable=False),
    sa.Column("who", Text, nullable=False),
    sa.Column("evidence_at", sa.Float, nullable=False),
    sa.Column("boot", Text, nullable=False),
    sa.Column("serial", Text, nullable=False),
    sa.Column("marked", sa.Boolean, nullable=False),
    sa.Column("runs", sa.JSON, nullable=False),
    sa.Column("owner", Text, nullable=False, server_default=""),
    sa.Column("pods", sa.JSON, nullable=False, server_default="[]"),
    sa.Index("ix_intents_machine", "machine"),
)
#: The breaker, in one row with id 1: why it is open (empty: it is closed), since when it is so, and who closed it.
BREAKER = sa.Table(
    "breaker",
    TABLES,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("why", Text, nullable=False),
    sa.Column("since", sa.Float, nullable=False),
    sa.Column("who", Text, nullable=False),
)
#: What people are told of, one row for a message and a receiver, written before it is sent. Per subject and receiver they are
#: numbered; `mark` is the state of the subject that is told, so that the same one is not told twice in a row.
NOTICES = sa.Table(
    "notices",
    TABLES,
    sa.Column("subject", Text, primary_key=True),
    sa.Column("receiver", Text, primary_key=True),
    sa.Column("number", sa.Integer, primary_key=True),
    sa.Column("about", Text, nullable=False),
    sa.Column("mark", Text, nullable=False),
    sa.Column("message", sa.JSON, nullable=False),
    sa.Column("state", Text, nullable=False, index=True),
    sa.Column("noted", sa.Float, nullable=False, index=True),
    sa.Column("changed", sa.Float, nullable=False),
    sa.Column("due", sa.Float, nullable=False),
    sa.Column("tries", sa.Integer, nullable=False),
    sa.Column("unsure", sa.Boolean, nullable=False),
    sa.Column("outcome", Text, nullable=False),
)
#: Jobs as agents showed them without a break, from `began` to `until` (last known to be there); `start`: seen to begin.
SESSIONS = sa.Table(
    "sessions",
    TABLES,
    sa.Column("id", Text, primary_key=True),
    sa.Column("job", Text, nullable=False, index=True),
    sa.Column("began", sa.Float, nullable=False),
    sa.Column("until", sa.Float, nullable=False, index=True),
    sa.Column("start", sa.Boolean, nullable=False),
    sa.Column("state", Text, nullable=False, index=True),
)
#: When they stood still; `over` is empty where nobody saw them get on.
STALLS = sa.Table(
    "stalls",
    TABLES,
    sa.Column("session", sa.ForeignKey("sessions.id"), primary_key=True),
    sa.Column("number", sa.Integer, primary_key=True),
    sa.Column("since", sa.Float, nullable=False),
    sa.Column("noticed", sa.Float, nullable=False),
    sa.Column("over", sa.Float),
)
#: What jobs were seen to survive: by call site for how long others waited there. `seen`: when the job was last known to run.
PHASES = sa.Table(
    "phases",
    TABLES,
    sa.Column("job", Text, primary_key=True),
    sa.Column("owner", Text, nullable=False),
    sa.Column("seen", sa.Float, nullable=False, index=True),
    sa.Column("watched_s", sa.Float, nullable=False),
    sa.Column("longest", sa.JSON, nullable=False),
)
