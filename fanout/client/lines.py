"""Items as JSON Lines, wherever the lines come from: a file, a pipe or the body of a request."""

from fanout.client.items import Item, item_in
from fanout.encoding import UnstorableValue, decode
from fanout.errors import InvalidItem

BLANK = b" \t\r\n"
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
# A character of the payload takes at most six bytes in JSON, and a line holds a key, names and white space beside it.
_FACTOR = 6
_EXTRA_BYTES = 65_536


def line_limit(payload_limit: int) -> int:
    """The bytes that a line may have where a payload may have `payload_limit`."""
    return _FACTOR * payload_limit + _EXTRA_BYTES


def item_on(line: bytes, position: int, where: str) -> Item:
    """The item on a line that is not blank; raises InvalidItem, saying where the line stands."""
    try:
        # Not the bytes themselves: json would guess their encoding.
        value = decode(line.decode())
    except UnicodeDecodeError:
        raise InvalidItem(position, None, f"{where}: not UTF-8") from None
    except UnstorableValue as error:
        raise InvalidItem(position, None, f"{where}: {error}") from None
    return item_in(value, position, f"{where}: ")
