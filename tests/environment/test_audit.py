from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from stabsweep.environment import audit

REPORT = {
    "dependencies": [
        {"name": "numpy", "version": "2.0.1", "vulns": []},
        {
            "name": "torch",
            "version": "2.4.1",
            "vulns": [
                {
                    "id": "PYSEC-2025-41",
                    "fix_versions": ["2.6.0"],
                    "aliases": ["CVE-2025-32434", "GHSA-53q9-r3pm-6pq6"],
                    "description": "remote code execution\nby torch.load",
                },
                {"id": "PYSEC-2024-9", "fix_versions": ["1.13.1", "2.10.0"]},
                {"id": "PYSEC-2024-8", "fix_versions": []},
            ],
        },
        {
            "name": "left",
            "version": "1.0",
            "vulns": [{"id": "GHSA-1", "fix_versions": []}],
        },
        {"name": "mine", "skip_reason": "Dependency not found on the index"},
    ],
    "fixes": [],
}


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Puts a program in the place of pip-audit, which would ask a service."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(audit, "_beside", lambda: tmp_path / "none")

    def put(body: str) -> None:
        path = tmp_path / "pip-audit"
        path.write_text(f"#!{sys.executable}\nimport json, os, sys, time\n{body}\n")
        path.chmod(0o755)

    return put


def test_not_installed_is_a_line_with_the_cure(tool: Any) -> None:
    (finding,) = audit.find()
    assert str(finding).startswith("warning  pip-audit: is not installed")
    assert "pip install pip-audit" in finding.cure


@pytest.mark.parametrize("told", [REPORT, REPORT["dependencies"]], ids=["now", "before 2.4"])
def test_what_it_finds_becomes_findings(tool: Any, told: Any, tmp_path: Path) -> None:
    tool(
        f"open({str(tmp_path / 'asked')!r}, 'w').write(json.dumps([sys.argv[1:], "
        f"os.environ['PIPAPI_PYTHON_LOCATION']]))\n"
        f"print({json.dumps(told)!r})\nprint('Found 2 known', file=sys.stderr)\nsys.exit(1)"
    )
    torch, left, whole = audit.find()
    assert (torch.level, torch.what) == ("warning", "torch")
    assert torch.message == "2.4.1 has 3 known: CVE-2025-32434, PYSEC-2024-9, PYSEC-2024-8"
    assert torch.cure == "pip install 'torch>=2.10.0', which mends 2 of them"
    assert left.message.endswith("GHSA-1") and left.cure == "no version mends it yet"
    assert whole.level == "info"
    assert whole.message == "audited 3 packages, 2 with findings; not audited: mine"
    words, python = json.loads((tmp_path / "asked").read_text())
    assert words == ["--format", "json", "--progress-spinner", "off"]
    assert python == sys.executable


def test_a_tool_that_fails_or_hangs_is_a_warning(
    tool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool("print('no network', file=sys.stderr); sys.exit(2)")
    (finding,) = audit.find()
    assert finding.level == "warning" and finding.message == "failed: no network"
    tool("print('[3]')")
    assert "exit code 0" in audit.find()[0].message
    monkeypatch.setattr(audit, "TIMEOUT_SECONDS", 0.2)
    tool("time.sleep(60)")
    assert "TimeoutExpired" in audit.find()[0].message
