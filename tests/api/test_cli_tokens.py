"""`token` and `audit`: a secret is shown once, and everything else about it as often as one likes."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from advisor.offline import load_inventory
from advisor.service import Advisor, acting
from advisor.settings import Settings
from tests.api.cli_runs import run

pytestmark = pytest.mark.usefixtures("_folder_with_tables")

CLOUD = str(Path(__file__).parent / "cloud.yaml")


def test_a_token_is_shown_alone_on_standard_output_and_works() -> None:
    made = run("token", "create", "--name", "agents", "--scope", "write", "--expires", "90d")
    assert made.exit_code == 0
    assert re.fullmatch(r"cot_[0-9a-f]{16}_[\w-]{43}\n", made.stdout)
    assert re.search(r"of scope write lasts until 20\d\d-\d\d-\d\d \d\d:\d\d UTC\. It is shown this once", made.stderr)
    with Advisor(Settings()) as advisor:
        advisor.access.tokens.refresh()
        caller = advisor.access.tokens.caller(made.stdout.strip())
    assert caller is not None
    assert caller.scope == "write"


def test_as_json_it_has_all_that_there_is_to_know() -> None:
    made = json.loads(run("token", "create", "--name", "a", "--expires", "never", "--json").stdout)
    listed = json.loads(run("token", "list", "--json").stdout)
    assert made.pop("token").startswith(f"cot_{made['id']}_")
    assert listed == [made]
    assert (made["scope"], made["state"], made["expires_at"], made["revoked_at"]) == ("read", "valid", None, None)


def test_a_revoked_token_stays_in_the_list_without_its_secret() -> None:
    text = run("token", "create", "--name", "old one", "--expires", "1s").stdout.strip()
    token_id = text.split("_")[1]
    assert run("token", "revoke", token_id).stdout == f"Token {token_id} (old one) is revoked.\n"
    shown = run("token", "list").stdout
    assert token_id in shown
    assert "revoked" in shown
    assert text.split("_", 2)[2] not in shown


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("create", "--name", ""), "1-255 printable characters"),
        (("create", "--name", "a", "--expires", "soon"), "--expires 'soon' is not a duration; write 12h, 90d or never"),
        (("create", "--name", "a", "--expires", "999999999d"), "a token lasts up to 3650 days, or never expires"),
        (("create", "--name", "a", "--expires", "0d"), "lasts up to"),
        (("create", "--name", "a", "--scope", "root"), "root"),
        (("create",), "--name"),
    ],
)
def test_what_makes_no_token_is_wrong_usage(arguments: tuple[str, ...], words: str) -> None:
    result = run("token", *arguments)
    assert result.exit_code == 2
    assert words in result.stderr


def test_a_token_in_a_file_is_accepted_and_not_shown(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(f"cot_{'0123456789abcdef'}_{'x' * 43}\n")
    file.chmod(0o644)
    words = ("token", "accept", str(file), "--name", "kube-scheduler", "--scope", "write")
    assert "others may read it" in run(*words).stderr
    file.chmod(0o440)
    accepted = run(*words)
    assert accepted.stdout == "Token 0123456789abcdef of kube-scheduler is accepted, scope write.\n"
    assert run(*words).exit_code == accepted.exit_code == 0


def test_revoking_what_does_not_exist_fails() -> None:
    result = run("token", "revoke", "0" * 16)
    assert result.exit_code == 1
    assert result.stderr == f"cotenant: there is no token {'0' * 16}\n"


def test_the_audit_log_says_who_has_the_token() -> None:
    token_id = run("token", "create", "--name", "agents on rack 7").stdout.split("_")[1]
    with Advisor(Settings()) as advisor, acting(f"token:{token_id}", ""):
        advisor.inventory.put(load_inventory(Path(CLOUD)), mode="replace", generation=None)
    assert f"token:{token_id} (agents on rack 7)" in run("audit", "--actor", f"token:{token_id}").stdout


def test_the_audit_log_tells_what_commands_did() -> None:
    run("sync", CLOUD)
    token_id = run("token", "create", "--name", "agents").stdout.split("_")[1]
    reported = json.loads(run("audit", "--json").stdout)
    assert [(one["actor"], one["operation"]) for one in reported] == [
        ("local", "token.create"),
        ("local", "inventory.put"),
    ]
    about = run("audit", "--object", token_id).stdout.splitlines()
    assert len(about) == 2
    assert "token.create" in about[1]
    assert len(run("audit", "--limit", "1").stdout.splitlines()) == 2
    assert json.loads(run("audit", "--actor", "token:x", "--json").stdout) == []
