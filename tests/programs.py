"""Programs of the system that tests need: found, or installed as Debian's package where that may be done."""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Program:
    """`names` are looked for on the PATH; `variable` of the environment names another one. `purpose` is a sentence."""

    title: str
    package: str
    variable: str
    names: tuple[str, ...]
    purpose: str

    def find(self) -> str | None:
        """Its path; None when there is none."""
        named = os.environ.get(self.variable)
        if named:
            return named if os.access(named, os.X_OK) else None
        return next((path for name in self.names if (path := shutil.which(name))), None)

    def install(self) -> bool:
        """Debian's package, when this may be done here: as root, with apt. No service is started."""
        if not shutil.which("apt-get") or os.geteuid() != 0:
            return False
        environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
        for arguments in (["update", "-qq"], ["install", "-y", "-qq", "--no-install-recommends", self.package]):
            done = subprocess.run(["apt-get", *arguments], env=environment, stdout=subprocess.DEVNULL, check=False)
            if done.returncode:
                return False
        return True

    def main(self) -> int:
        """The exit code of a command that sees to it that the program is there, or says how to get it."""
        if self.find():
            return 0
        sys.stderr.write(f"{self.purpose} Installing Debian's package.\n")
        if self.install() and self.find():
            return 0
        sys.stderr.write(
            f"{self.title} is missing and could not be installed. Install it (Debian, Ubuntu: `apt-get install {self.package}` "
            f"as root), or set {self.variable} to its path.\n"
        )
        return 1
