"""The schema of a store in SQLite."""

from __future__ import annotations

APPLICATION_ID = 0x74687266
"""Marks a database as a store of thriftune ("thrf"). Databases of other programs are never changed."""

VERSION = 1
"""The version of the schema. A store of a later version is refused."""

# AUTOINCREMENT ensures that the id of a deleted study is never used again. A process that still has the id thus
# cannot reach another study. SQLite writes whole rows, and every append changes a row of `heads`. Therefore this
# table does not contain the spec, which is long and rarely changes.
SCHEMA = f"""
CREATE TABLE studies (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL UNIQUE,
    created_at REAL NOT NULL,
    spec TEXT NOT NULL
);
CREATE TABLE heads (
    study INTEGER PRIMARY KEY REFERENCES studies(id) ON DELETE CASCADE,
    entries INTEGER NOT NULL DEFAULT 0,
    summary TEXT NOT NULL DEFAULT '{{}}'
);
CREATE TABLE log (
    study INTEGER NOT NULL REFERENCES studies(id) ON DELETE CASCADE,
    number INTEGER NOT NULL,
    kind TEXT NOT NULL,
    trial INTEGER,
    at REAL NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (study, number)
) WITHOUT ROWID;
CREATE TABLE requests (
    id INTEGER PRIMARY KEY,
    study INTEGER NOT NULL REFERENCES studies(id) ON DELETE CASCADE,
    what TEXT NOT NULL,
    at REAL NOT NULL
);
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {VERSION};
"""

CREATE_SHIPPED = """
CREATE TABLE IF NOT EXISTS shipped (
    study INTEGER PRIMARY KEY REFERENCES studies(id) ON DELETE CASCADE,
    drive TEXT NOT NULL
)"""
"""A table that only stores with studies in object stores have. Versions that do not know it ignore it."""
