"""Who PostgreSQL runs as: never root, which it refuses, and somebody with a name, which `initdb` asks for."""

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from fanout.errors import StackFailed

_NOBODY = 65534
_AS_NOBODY = (
    "setpriv",
    f"--reuid={_NOBODY}",
    f"--regid={_NOBODY}",
    "--clear-groups",
    # Changing the user clears the tie to the parent, unless it is asked for again.
    "--pdeathsig=keep",
)


@dataclass(frozen=True)
class Account:
    """How to start a program as the account, and the owner that its files then need."""

    prefix: tuple[str, ...]
    owner: int

    def can_use(self, program: Path, folder: Path) -> bool:
        """Whether the account has a name, can start the program, and may enter the folder."""
        try_it = ["sh", "-c", 'id -un && cd "$1" && exec "$0" --version', str(program), str(folder)]
        try:
            return subprocess.run([*self.prefix, *try_it], capture_output=True, check=False).returncode == 0
        except FileNotFoundError:
            return False

    def own(self, path: Path) -> None:
        """Hands the file or folder over to the account, with all in it, if it is not its own."""
        if path.stat().st_uid == self.owner:
            return
        os.chown(path, self.owner, self.owner)
        for folder, folders, files in os.walk(path):
            for name in (*folders, *files):
                os.chown(Path(folder, name), self.owner, self.owner, follow_symlinks=False)


def accounts() -> list[Account]:
    """What may work here, best first.

    Ourselves, where we are not root. A user namespace, in which we go by the name of nobody; it changes nothing
    outside, and many containers forbid it. Nobody indeed, with the one capability to enter root's folders too.
    Nobody without it, whom every folder on the way has to let pass.
    """
    me = os.geteuid()
    namespace = Account(("unshare", "--user", f"--map-user={_NOBODY}", f"--map-group={_NOBODY}", "--"), me)
    if me != 0:
        return [Account((), me), namespace]
    entering = ("--inh-caps=+dac_override", "--ambient-caps=+dac_override")
    return [namespace, Account((*_AS_NOBODY, *entering, "--"), _NOBODY), Account((*_AS_NOBODY, "--"), _NOBODY)]


def choose_account(program: Path, folder: Path) -> Account:
    """The account to run PostgreSQL as, with its data in `folder`. Raises StackFailed if there is none."""
    for account in accounts():
        if account.can_use(program, folder):
            return account
    raise StackFailed(
        folder,
        "PostgreSQL needs an account that is not root, has a name, may enter the folder and can start "
        f"{program}, and neither `unshare` nor `setpriv` gives it one here; run this as an ordinary user",
    )
