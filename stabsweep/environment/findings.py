"""All that a check of an environment finds, worst first."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from stabsweep.environment import accelerator, conda, installation, lock, runtimes
from stabsweep.environment.finding import LEVELS, Finding
from stabsweep.environment.lookup import Snapshot, look, look_text

CHECKS = (installation, conda, runtimes, accelerator, lock)
"""What each finds is a function of a snapshot alone, so that another machine's can be checked."""


@dataclass(frozen=True)
class Findings:
    """What was found in a snapshot.

    Attributes:
        subject: what was checked.
        findings: worst first.
    """

    subject: str
    findings: tuple[Finding, ...]

    @property
    def is_ok(self) -> bool:
        """Whether there is no error."""
        return all(finding.level != "error" for finding in self.findings)

    def as_dict(self) -> dict[str, Any]:
        """Plain values for YAML and JSON."""
        return {
            "subject": self.subject,
            "ok": self.is_ok,
            "findings": [finding.as_dict() for finding in self.findings],
        }

    def summary(self) -> str:
        """The findings as text, one line each, and what they come to."""
        counts = [
            (level, sum(finding.level == level for finding in self.findings)) for level in LEVELS
        ]
        told = ", ".join(
            f"{n} {level}{'s' * (n > 1)}" for level, n in counts if n and level != "info"
        )
        end = "not ok" if not self.is_ok else "ok"
        return "\n".join(
            [self.subject, *map(str, self.findings), f"{end}: {told or 'nothing to mend'}"]
        )


def find(snapshot: Snapshot, more: Iterable[Finding] = ()) -> Findings:
    """What is wrong with the environment that a snapshot tells of, and what is good to know.

    It misleads about an old snapshot (format 1), which tells of neither distributions nor runtimes:
    what was not recorded is not found, and that is said.

    Args:
        snapshot: what `snapshot.take` returned, here or elsewhere.
        more: findings of other checks, to be sorted in.

    >>> find({"format": 2, "lock": []}).findings[0].what
    'lock'
    """
    found = [finding for check in CHECKS for finding in check.find(snapshot)]
    if "distributions" not in snapshot:
        form = look(snapshot, "format")
        found.append(
            Finding(
                "info", "snapshot",
                f"of format {form}: it tells of no distributions and no runtimes, so neither was "
                "checked", "take it again with `stabsweep env snapshot`",
            )
        )  # fmt: skip
    found += more
    python, torch = look_text(snapshot, "python.version"), look_text(snapshot, "torch.version")
    subject = f"Python {python or '?'}, torch {torch or '?'}, {look_text(snapshot, 'cpu.model')}"
    return Findings(subject, tuple(sorted(found, key=lambda f: LEVELS.index(f.level))))
