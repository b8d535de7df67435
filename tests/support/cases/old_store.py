"""A store's file as hangdog 0.1 left it, before there were migrations."""

import sqlite3
from pathlib import Path

#: The tables as hangdog 0.1 made them before there were migrations, with one incident of each kind.
OLD = """
CREATE TABLE incidents (id VARCHAR NOT NULL, job VARCHAR NOT NULL, state VARCHAR NOT NULL, began FLOAT NOT NULL,
    changed FLOAT NOT NULL, why VARCHAR NOT NULL, note VARCHAR NOT NULL, asked JSON NOT NULL, kind VARCHAR NOT NULL,
    confidence FLOAT NOT NULL, evict JSON NOT NULL, verdict TEXT NOT NULL, PRIMARY KEY (id));
CREATE INDEX ix_incidents_began ON incidents (began);
CREATE INDEX ix_incidents_job ON incidents (job);
CREATE INDEX ix_incidents_state ON incidents (state);
CREATE TABLE captures (incident VARCHAR NOT NULL, machine VARCHAR NOT NULL, round INTEGER NOT NULL,
    packed BLOB NOT NULL, PRIMARY KEY (incident, machine, round), FOREIGN KEY(incident) REFERENCES incidents (id));
INSERT INTO incidents VALUES ('0a', 'llama', 'judged', 1.5, 9.0, 'page', '', '{"rounds": 2}', 'machine', 0.97,
    '["a"]', '{"schema": "hangdog.verdict/1"}');
INSERT INTO incidents VALUES ('0b', 'qwen', 'recorded', 2.5, 2.5, 'recorded', '', '{}', '', 0.0, '[]', '');
INSERT INTO captures VALUES ('0a', 'a', 0, X'00FF'), ('0b', 'b', 0, X'01');
"""
SPOOLED = """
CREATE TABLE spooled (machine VARCHAR NOT NULL, id VARCHAR NOT NULL, incident VARCHAR NOT NULL, job VARCHAR NOT NULL,
    standstill VARCHAR NOT NULL, began FLOAT NOT NULL, round INTEGER NOT NULL, told JSON NOT NULL,
    PRIMARY KEY (machine, id), FOREIGN KEY(incident) REFERENCES incidents (id));
CREATE INDEX ix_spooled_incident ON spooled (incident);
CREATE INDEX ix_spooled_job ON spooled (job);
INSERT INTO spooled VALUES ('b', '1', '0b', 'qwen', 's', 2.5, 0, '{"local": {"job": "qwen", "ranks": [0],
    "world_size": 1, "topology": ""}, "last": true, "more": false, "rounds": 1, "interval_s": 2.0, "why": "", "refused": 0}');
"""

#: Takes back what versions since then added, and what version 0013 renamed.
BEFORE_0013 = (
    "DROP INDEX IF EXISTS ix_incidents_lines",
    "DROP TABLE phases",
    "DROP TABLE responses",
    "ALTER TABLE incidents DROP COLUMN response",
    "ALTER TABLE incidents DROP COLUMN features",
    "ALTER TABLE incidents DROP COLUMN owner",
    "ALTER TABLE incidents DROP COLUMN settled",
    "ALTER TABLE incidents DROP COLUMN earlier",
    "ALTER TABLE incidents DROP COLUMN went_on_s",
    "ALTER TABLE ledger RENAME COLUMN mention TO standing",
    "ALTER TABLE spooled RENAME COLUMN stall TO standstill",
    "ALTER TABLE spooled RENAME COLUMN stated TO told",
    "ALTER TABLE intents RENAME COLUMN reason TO because",
    "ALTER TABLE intents RENAME COLUMN message TO words",
    "ALTER TABLE notices RENAME COLUMN outcome TO words",
    "ALTER TABLE stalls RENAME TO standstills",
)


def old(path: Path, script: str, version: int = 1) -> Path:
    """A file as an older hangdog left it, in the journal mode it used."""
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.executescript(script)
    connection.execute(f"PRAGMA user_version = {version}")
    connection.close()
    return path
