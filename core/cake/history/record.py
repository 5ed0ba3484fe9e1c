"""A session as one JSON document: all that is needed to judge its proposals again elsewhere."""

from __future__ import annotations

import json
from typing import Any

from cake.store.store import Store

SCHEMA = 1
"""Version of the document's form; readers refuse what they do not know."""


def session_record(store: Store, session: str) -> dict[str, Any]:
    """What was asked, every candidate with text and verdict, and the loop's decisions, in order."""
    row = store.session(session)
    return {
        "schema": SCHEMA,
        "session": row.model_dump(),
        "candidates": [
            {
                **entry.candidate.model_dump(exclude={"session"}),
                "verdict": entry.verdict.as_json() if entry.verdict else None,
            }
            for entry in store.entries(session)
        ],
        "events": [event.model_dump(exclude={"session"}) for event in store.events(session)],
    }


def dump(record: dict[str, Any]) -> str:
    """The document's text: stable order, one field a line, so that git shows what changed."""
    return json.dumps(record, indent=1, ensure_ascii=False) + "\n"
