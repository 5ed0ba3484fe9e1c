"""The first tables."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    _session()
    _candidate()
    op.create_table(
        "verdict",
        sa.Column("candidate", sa.String(), sa.ForeignKey("candidate.id"), primary_key=True),
        sa.Column("ok", sa.Boolean(), nullable=False),
        sa.Column("stage", sa.String(), nullable=False),
        sa.Column("code", sa.String(), nullable=False),
        sa.Column("line", sa.Integer(), nullable=False),
        sa.Column("seconds", sa.Float(), nullable=False),
        sa.Column("detail", sa.JSON(), nullable=False),
    )
    for name in ("prediction", "measurement"):
        op.create_table(
            name,
            sa.Column("candidate", sa.String(), sa.ForeignKey("candidate.id"), primary_key=True),
            sa.Column("device", sa.String(), nullable=False),
            sa.Column("seconds", sa.Float(), nullable=False),
            sa.Column("low", sa.Float(), nullable=False),
            sa.Column("high", sa.Float(), nullable=False),
            sa.Column("detail", sa.JSON(), nullable=False),
        )
    _failure()
    op.create_table(
        "commit",
        sa.Column("action", sa.String(), primary_key=True),
        sa.Column("session", sa.String(), sa.ForeignKey("session.id"), nullable=False, index=True),
        sa.Column("candidate", sa.String(), sa.ForeignKey("candidate.id"), nullable=False),
        sa.Column("branch", sa.String(), nullable=False),
        sa.Column("sha", sa.String(), nullable=False),
    )
    op.create_table(
        "event",
        sa.Column("action", sa.String(), primary_key=True),
        sa.Column("session", sa.String(), sa.ForeignKey("session.id"), nullable=False, index=True),
        sa.Column("step", sa.Integer(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("detail", sa.JSON(), nullable=False),
    )


def _session() -> None:
    words = ("created", "task", "arch", "device", "backend", "proposer", "shape", "base", "version", "start")
    op.create_table(
        "session",
        sa.Column("id", sa.String(), primary_key=True),
        *(sa.Column(word, sa.String(), nullable=False) for word in words),
        sa.Column("dims", sa.JSON(), nullable=False),
        sa.Column("seed", sa.Integer(), nullable=False),
        sa.Column("candidates", sa.Integer(), nullable=False),
        sa.Column("seconds", sa.Float(), nullable=True),
        sa.Column("reason", sa.String(), nullable=False),
    )


def _candidate() -> None:
    op.create_table(
        "candidate",
        sa.Column("id", sa.String(), primary_key=True),
        sa.Column("session", sa.String(), sa.ForeignKey("session.id"), nullable=False, index=True),
        sa.Column("step", sa.Integer(), nullable=False),
        sa.Column("parent", sa.String(), sa.ForeignKey("candidate.id"), nullable=True),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("lineage", sa.String(), nullable=False),
        sa.Column("proposer", sa.String(), nullable=False),
        sa.Column("move", sa.String(), nullable=False),
        sa.Column("notes", sa.JSON(), nullable=False),
        sa.Column("text", sa.String(), nullable=False),
        sa.Column("hash", sa.String(), nullable=False),
        sa.UniqueConstraint("session", "step"),
        sa.UniqueConstraint("session", "hash"),
    )


def _failure() -> None:
    op.create_table(
        "failure",
        sa.Column("signature", sa.String(), primary_key=True),
        sa.Column("stage", sa.String(), nullable=False),
        sa.Column("code", sa.String(), nullable=False),
        sa.Column("primitive", sa.String(), nullable=False),
        sa.Column("cause", sa.String(), nullable=False),
    )
    op.create_table(
        "sighting",
        sa.Column("candidate", sa.String(), sa.ForeignKey("candidate.id"), primary_key=True),
        sa.Column("signature", sa.String(), sa.ForeignKey("failure.signature"), nullable=False, index=True),
        sa.Column("lineage", sa.String(), nullable=False),
    )


def downgrade() -> None:
    for name in (
        "event",
        "commit",
        "sighting",
        "failure",
        "measurement",
        "prediction",
        "verdict",
        "candidate",
        "session",
    ):
        op.drop_table(name)
