"""Settings: a value that cannot be used is refused by its name, and no form of a password is ever shown."""

import pytest

from fanout.errors import InvalidSetting
from fanout.settings import Settings, hide_password

SPANS = [name for name, field in Settings.model_fields.items() if field.annotation is float]


@pytest.mark.parametrize("name", SPANS)
@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "1e300", "-1", "soon"])
def test_a_time_that_is_none_is_refused(name: str, value: str) -> None:
    variable = f"FANOUT_{name.upper()}"
    with pytest.raises(InvalidSetting, match=variable):
        Settings.from_environment({variable: value})


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://host/name", "postgresql://host/name"),
        ("postgresql://me@host/name", "postgresql://me@host/name"),
        ("postgresql://me:secret@host/name", "postgresql://me:***@host/name"),
        ("postgresql://me:sec:r@e/t@host/name", "postgresql://me:***@host/name"),
        ("postgresql://host/name?user=me&password=secret&ssl=on", "postgresql://host/name?user=me&password=***&ssl=on"),
        ("postgresql://host/name?sslpassword=secret", "postgresql://host/name?sslpassword=***"),
        ("host=there password=secret user=me", "host=there password=*** user=me"),
    ],
)
def test_a_password_is_not_shown_wherever_it_stands(url: str, shown: str) -> None:
    assert hide_password(url) == shown
