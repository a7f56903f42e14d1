"""The store's fixture: a migrated database for each test, without Temporal."""

from tests.store.conftest import url

__all__ = ["url"]
