"""The record of sessions: SQLModel tables in `.cake/cake.db`, migrated on opening."""
