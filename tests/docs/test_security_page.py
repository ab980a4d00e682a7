"""SECURITY.md speaks of this version and of the scopes that there are, and each of its promises is held by a test."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from advisor.domain import TOKEN_SCOPES
from profiler.cli import _parser

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
PRODUCT = ("advisor", "api", "models", "profiler", "cotenant_client")
# What each promise begins with, and the tests that hold it: a function, or a sentence of a conversation.
PROMISES: dict[str, tuple[str, ...]] = {
    # a tenant in a VM
    "It reaches neither service nor agent: both listen on loopback at first": (
        "tests/packaging/test_service_unit.py::test_it_reaches_this_machine_only_until_an_administrator_says_more",
        "tests/docs/test_security_page.py::test_the_agent_listens_on_loopback_at_first",
        "tests/api/test_api_auth_gate.py::test_what_agents_report_is_escaped_on_every_page",
        "tests/api/test_api_fuzz.py::test_no_generated_question_breaks_the_service_or_its_description",
        "tests/conversations/announcements.yaml::a name that no path could hold is left out",
    ),
    "A Keystone token of a tenant's own project gives no access": (
        "tests/api/test_api_auth_keystone.py::test_roles_count_in_our_own_project_and_in_the_system_only",
    ),
    # a stranger on the network
    "Without a token the service answers loopback only": (
        "tests/api/test_api_auth_gate.py::test_without_a_token_no_remote_caller_is_answered_whatever_it_sends",
        "tests/api/test_api_auth.py::test_these_names_may_mean_another_one",
    ),
    "With one, 401 comes before path, method and body are read": (
        "tests/api/test_api_auth_gate.py::test_without_a_valid_token_every_path_gives_the_same_answer",
        "tests/advisor/store/test_tokens.py::"
        "test_an_expired_token_stays_so_where_the_clock_steps_back_here_and_after_a_restart",
    ),
    "Tokens have 256 random bits and are compared in constant time": (
        "tests/advisor/store/test_tokens.py::test_an_unknown_id_costs_the_same_work_as_a_wrong_secret",
        "tests/advisor/store/test_tokens.py::test_a_token_is_distinguished_from_forgeries_of_it",
        "tests/api/test_web_sessions.py::test_a_wrong_token_is_refused_and_audited_and_too_many_wait",
        "tests/api/test_api_auth_keystone.py::test_forged_tokens_hold_up_neither_valid_ones_of_keystone_nor_ours",
    ),
    "Bodies, depth, time, connections and queues are bounded": (
        "tests/api/test_api_envelope.py::test_a_body_that_grows_over_the_limit_is_cut_off_while_it_comes",
        "tests/api/test_api_large_bodies.py::"
        "test_a_second_large_body_is_refused_while_the_first_is_worked_on_and_small_ones_are_taken",
        "tests/conversations/refusals.yaml::the JSON of the body is nested too deeply",
        "tests/faults/test_http_connections.py::test_a_body_that_trickles_is_refused_although_it_never_stops",
        "tests/faults/test_http_connections.py::test_the_connection_that_is_idle_longest_makes_room",
        "tests/api/test_api_lanes.py::test_who_finds_the_queue_full_is_refused_and_the_others_are_answered",
        "tests/api/test_api_lanes.py::test_a_request_that_would_wait_too_long_is_refused_at_once_with_a_time_to_retry",
    ),
    "Browsers: `SameSite=Strict` sessions": (
        "tests/api/test_web_sessions.py::test_who_signs_in_reads_pages_and_who_signs_out_does_not_any_more",
        "tests/api/test_web_sessions.py::test_a_form_counts_only_from_a_page_of_ours",
        "tests/api/test_web_sessions.py::test_a_form_counts_only_in_the_session_that_it_was_made_for",
        "tests/api/test_web_sessions.py::test_a_page_of_another_site_changes_nothing_by_the_api",
    ),
    # a holder of a read token
    "It changes nothing, may not read the audit log": (
        "tests/api/test_api_auth_gate.py::"
        "test_a_scope_below_is_refused_before_anything_is_looked_up_and_the_scope_itself_is_not",
        "tests/api/test_api_auth_gate.py::test_every_route_needs_the_scope_of_what_it_does",
        "tests/api/test_api_auth_gate.py::test_a_caller_that_asks_too_often_waits_and_no_other_does",
    ),
    "The recommendations to it are in the audit log": (
        "tests/advisor/service/test_audited.py::"
        "test_every_recommendation_is_an_event_with_instance_host_and_whether_that_is_held",
        "tests/api/test_locked_database.py::test_every_dry_run_is_answered_and_kept_once_the_lock_is_free",
    ),
    # a holder of an agent's token
    "It is sent over https or to loopback only": (
        "tests/profiler/test_push.py::test_tokens_travel_only_over_https_or_inside_this_machine",
        "tests/profiler/test_push.py::test_the_token_is_never_shown",
        "tests/profiler/test_secret_file.py::test_a_file_that_others_may_read_or_write_is_refused_in_one_sentence",
        "tests/api/test_api_auth_process.py::test_no_secret_is_in_logs_answers_metrics_or_the_audit_log",
    ),
    "The audit log names it": ("tests/conversations/auth.yaml::the sender of samples is logged once for all of them",),
    "A revoked token ends within a second": (
        "tests/advisor/store/test_tokens.py::"
        "test_a_token_is_known_and_ends_when_it_is_revoked_at_once_here_and_within_a_second_elsewhere",
    ),
    "It cannot make tokens or activate models": (
        "tests/api/test_api_auth_gate.py::test_every_route_needs_the_scope_of_what_it_does",
        "tests/conversations/auth.yaml::it changes no model",
    ),
    "A token made with `--host` speaks for its own host and the instances there": (
        "tests/api/test_api_auth_gate.py::test_the_token_of_a_hosts_agent_opens_three_routes_and_no_page",
        "tests/advisor/service/test_host_tokens.py::"
        "test_samples_of_an_instance_on_another_host_are_dropped_and_teach_nothing",
        "tests/advisor/service/test_host_tokens.py::test_samples_and_probes_speak_for_the_own_host_only",
        "tests/advisor/service/test_host_tokens.py::test_an_instance_that_was_written_down_on_another_host_stays_there",
        "tests/advisor/service/test_host_tokens.py::test_a_silent_hosts_guest_is_taken_over_by_its_uuid_only",
        "tests/advisor/service/test_host_tokens.py::test_a_stopped_guest_is_not_taken_over_by_its_name_alone",
        "tests/profiler/test_xen_backend.py::"
        "test_guests_are_announced_with_the_uuid_by_which_another_host_may_take_them_over",
        "tests/advisor/service/test_host_tokens.py::test_reserved_labels_of_hosts_and_instances_are_dropped",
    ),
    "What two hosts claim is shown": (
        "tests/advisor/service/test_host_tokens.py::test_nor_does_it_leave_the_host_whose_agent_reports_it",
        "tests/api/test_api_auth_gate.py::test_what_two_hosts_claim_is_on_the_page_in_the_metrics_and_said_by_doctor",
    ),
    # agents that change settings
    "It gets the orders of its own host and opens nothing else": (
        "tests/api/test_api_orders.py::test_the_agent_of_a_host_gets_its_orders_until_it_reports",
        "tests/api/test_api_orders.py::test_no_other_token_gets_an_order",
        "tests/api/test_api_orders.py::test_its_token_opens_nothing_else",
    ),
    "An order or report without the signature of that host's key is none": (
        "tests/profiler/test_acting.py::test_what_is_not_signed_for_this_host_changes_nothing_and_gets_no_report",
        "tests/advisor/service/test_orders.py::test_a_report_that_another_key_signed_is_none",
    ),
    "It changes weights, caps, pins and interface limits of the instances that a file of root on that host names": (
        "tests/profiler/test_acting_domains.py::test_bounds_hold_for_domains",
        "tests/profiler/test_acting.py::test_who_has_the_key_changes_no_more_than_the_file_of_the_host_allows",
        "tests/profiler/test_acting.py::test_changes_of_an_hour_are_bounded_and_the_way_back_is_not",
        "tests/profiler/test_acting.py::test_no_text_of_the_service_ends_the_agent",
    ),
    "What it names is compared with the instances that the agent itself finds": (
        "tests/profiler/test_acting.py::test_who_has_the_key_changes_instances_that_are_allowed_and_nothing_else",
    ),
    "An order counts once, on one host, for at most five minutes": (
        "tests/profiler/test_acting.py::test_an_order_counts_once",
        "tests/profiler/test_acting.py::test_an_order_that_is_over_or_of_a_time_to_come_is_refused",
        "tests/profiler/test_acting.py::test_a_memory_that_is_damaged_lets_no_order_count",
    ),
    "A file that other users could change allows nothing": (
        "tests/profiler/test_acting.py::test_a_file_that_other_users_may_change_is_refused",
    ),
    "Its report proves nothing": (
        "tests/advisor/service/test_orders.py::test_an_agent_that_only_says_so_is_found_out_by_the_windows",
    ),
    # who gives you a model or dataset
    "Nothing is unpickled or executed": (
        "tests/docs/test_security_page.py::test_nothing_that_was_stored_is_executed",
        "tests/models/test_models_artifact.py::test_an_artifact_is_text_and_json_and_never_pickle",
        "tests/models/test_models_artifact.py::test_a_byte_that_changed_is_noticed_in_every_file",
        "tests/models/test_models_trees.py::test_no_damage_ends_the_process_that_reads_it",
        "tests/models/test_models_smoke_test.py::test_a_library_that_dies_or_hangs_stops_nothing_else",
    ),
    "Datasets, inventories and traces are read strictly": (
        "tests/models/test_models_dataset.py::test_a_broken_description_is_refused",
        "tests/advisor/inventories/test_static_files.py::test_a_good_file_with_one_place_spoilt_is_read_or_refused",
        "tests/advisor/replay/test_replay_traces.py::test_a_broken_trace_is_refused_with_row_column_and_reason",
        "tests/docs/test_security_page.py::test_nothing_that_was_stored_is_executed",
    ),
    "The gate compares a model with the one that answers": (
        "tests/advisor/service/test_models_life.py::"
        "test_a_candidate_is_judged_again_by_who_answers_when_it_is_activated",
    ),
    # who has taken over the service, or an agent
    "No root, no capability, no other user's files": (
        "tests/packaging/test_service_unit.py::test_it_is_little_exposed_and_what_is_open_is_known",
        "tests/packaging/test_service_unit.py::test_it_reaches_this_machine_only_until_an_administrator_says_more",
        "tests/image/test_image.py::test_a_container_runs_as_an_unprivileged_user_without_capabilities_on_a_read_only_root",
    ),
    "Two capabilities to look, `/proc` and `/sys` read-only": (
        "tests/packaging/test_agent_unit.py::test_it_is_little_exposed_and_what_is_open_is_known",
        "tests/packaging/test_agent_unit.py::test_it_reaches_this_machine_only_and_writes_to_no_process",
        "tests/docs/test_security_page.py::test_the_agents_unit_bounds_what_it_may_take",
    ),
}
# Outside the table of attackers.
ALSO: dict[str, tuple[str, ...]] = {
    "**The service carries nothing out**": (
        "tests/docs/test_security_page.py::test_only_these_modules_start_programs",
    ),
    "where the mode is not the default `advise`": (
        "tests/advisor/changes/test_guard.py::test_the_default_mode_carries_nothing_out",
        "tests/advisor/changes/test_changes_control_groups.py::test_a_path_that_leads_out_of_the_hierarchy_is_refused",
        "tests/advisor/changes/test_changes_control_groups.py::test_a_ledger_that_was_edited_gets_no_further_than_a_rendered_command",
        "tests/advisor/changes/test_changes_libvirt.py::test_a_ledger_that_was_edited_gets_no_further",
        "tests/api/test_api_changes.py::test_approvals_and_the_end_of_a_freeze_need_an_administrator",
    ),
    "Who steals one approves rollouts of stored plans": (
        "tests/advisor/service/test_rollouts.py::test_the_default_mode_advises_only",
        "tests/advisor/service/test_autopilot.py::test_it_stays_within_the_guard_rails",
        "tests/advisor/changes/test_guard.py::test_the_default_mode_carries_nothing_out",
    ),
    "Agents change nothing unless an administrator of the host starts": (
        "tests/packaging/test_acting_agent_unit.py::"
        "test_it_is_root_without_any_capability_and_writes_control_groups_and_its_state_alone",
        "tests/api/test_api_orders.py::test_without_any_token_there_are_no_orders",
    ),
    "| tokens, sessions | database | SHA-256": (
        "tests/advisor/store/test_tokens.py::test_what_is_stored_admits_no_caller",
        "tests/api/test_web_sessions.py::test_a_token_of_keystone_signs_in_too_and_is_asked_about_again",
    ),
    "files that others may not read (`clouds.yaml`": (
        "tests/advisor/inventories/test_clouds_file.py::test_a_file_that_tells_no_secret_to_others_is_taken",
        "tests/advisor/inventories/account_cases.py::"
        "test_an_account_is_a_section_of_a_private_file_and_its_secret_is_never_shown",
    ),
    "what the service asks others with": (
        "tests/advisor/test_promql.py::test_the_secret_comes_from_a_file_and_is_never_shown",
        "tests/advisor/test_promql.py::test_settings_that_cannot_work_are_refused",
        "tests/api/test_cells.py::test_a_token_is_neither_read_by_all_nor_sent_unencrypted",
    ),
    "for the service's user only": ("tests/advisor/store/test_engine.py::test_only_its_owner_may_read_a_new_database",),
}


def test_the_newest_version_is_the_supported_one() -> None:
    (supported,) = re.findall(r"^\| (\d+\.\d+), .* \| yes \|$", PAGE, re.MULTILINE)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["version"].startswith(f"{supported}.")


def test_every_scope_and_where_it_leads_is_named() -> None:
    for scope in TOKEN_SCOPES:
        assert re.search(rf"`{scope}`|holder of a {scope} token", PAGE), scope


def test_every_sentence_of_what_holds_is_a_promise_that_tests_hold() -> None:
    rows = [line.split(" | ") for line in PAGE.splitlines() if line.startswith("| **")]
    sentences = [text for row in rows for text in re.split(r"(?<=[a-z)`])\. (?=[A-Z])", row[1])]
    assert len(rows) == 10
    assert [text for text in sentences if not any(text.startswith(promise) for promise in PROMISES)] == []
    assert [promise for promise in [*PROMISES, *ALSO] if promise not in PAGE] == []


@pytest.mark.parametrize("test", sorted({test for tests in (PROMISES | ALSO).values() for test in tests}))
def test_the_test_of_a_promise_is_there(test: str) -> None:
    file, _, name = test.partition("::")
    text = (ROOT / file).read_text(encoding="utf-8")
    assert (f"def {name}(" if file.endswith(".py") else name) in text


@cache
def _names_by_file() -> dict[str, set[str]]:
    return {
        str(path.relative_to(ROOT)): set(_names(ast.parse(path.read_text(encoding="utf-8"))))
        for package in PRODUCT
        for path in sorted((ROOT / package).rglob("*.py"))
    }


def _names(tree: ast.AST) -> Iterator[str]:
    """What is imported, called and named as an attribute."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from (each.name for each in names)
            case ast.ImportFrom(module=module, names=names):
                yield from (f"{module}.{each.name}" for each in names)
            case ast.Call(func=ast.Name(id=name)):
                yield f"{name}()"
            case ast.Call(func=ast.Attribute(value=ast.Name(id=owner), attr=name)):
                yield f"{owner}.{name}()"
            case ast.keyword(arg="shell" | "allow_pickle" as name, value=ast.Constant(value=True)):
                yield f"{name}=True"


def test_nothing_that_was_stored_is_executed() -> None:
    wrong = re.compile(
        r"(pickle|cPickle|marshal|shelve|dill|joblib|cloudpickle)(\.|$)|(eval|exec)\(\)|os\.(system|popen)\(\)|shell=True"
        r"|allow_pickle=True|yaml\.(load|unsafe_load|full_load|load_all)\(\)|yaml\.(Unsafe|Full|C?)Loader$"
    )
    found = {(file, name) for file, names in _names_by_file().items() for name in names if wrong.match(name)}
    assert found == set()


def test_whoever_reads_documents_of_others_refuses_one_that_is_nested_too_deeply() -> None:
    """A thousand brackets raise RecursionError, which is no ValueError: a stranger would end whoever catches only that.

    Looked at are the places that expect a document to be none at all.
    """
    found = set()
    for package in (*PRODUCT, "integrations"):
        for path in (path for path in sorted((ROOT / package).rglob("*.py")) if "tests" not in path.parts):
            for block in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(block, ast.Try) and _reads_a_document(block.body):
                    caught = {name for handler in block.handlers for name in _caught(handler)}
                    if caught & REFUSALS and not caught & {"RecursionError", "Exception", "BaseException"}:
                        found.add(f"{path.relative_to(ROOT)}:{block.lineno}")
    assert found == set()


REFUSALS = {"ValueError", "json.JSONDecodeError", "tomllib.TOMLDecodeError"}


def _reads_a_document(body: list[ast.stmt]) -> bool:
    calls = (node.func for part in body for node in ast.walk(part) if isinstance(node, ast.Call))
    return any(ast.unparse(call) in {"json.load", "json.loads", "tomllib.load", "tomllib.loads"} for call in calls)


def _caught(handler: ast.ExceptHandler) -> list[str]:
    match handler.type:
        case None:
            return ["BaseException"]
        case ast.Tuple(elts=several):
            return [ast.unparse(each) for each in several]
        case one:
            return [ast.unparse(one)]


def test_only_these_modules_start_programs() -> None:
    """`virsh` that only reads, `tc` by which `cotenant apply` changes classes, the demonstration's containers, and the
    trial of a model; the agent and its probes read what hypervisors say. None of them gets an answer's commands."""
    starting = re.compile(r"subprocess(\.|$)|os\.(exec|spawn|posix_spawn|fork)\w*\(\)|pty(\.|$)")
    found = {file for file, names in _names_by_file().items() if any(starting.match(name) for name in names)}
    of_the_service = {file for file in found if not file.startswith("profiler/")}
    assert of_the_service == {
        "advisor/changes/traffic.py",
        "advisor/inventories/libvirt.py",
        "api/cli/living_demo.py",
        "models/learning/artifact.py",
    }
    assert not any("render" in file for file in found)


def test_the_agent_listens_on_loopback_at_first() -> None:
    assert _parser().parse_args(["run"]).listen == ("127.0.0.1", 9405)
    assert _parser().parse_args(["probe", "serve"]).listen == ("127.0.0.1", None)


def test_the_agents_unit_bounds_what_it_may_take() -> None:
    unit = (ROOT / "packaging" / "cotenant-profiler.service").read_text(encoding="utf-8")
    for line in ("CPUQuota=20%", "MemoryMax=128M", "ReadOnlyPaths=/proc /sys"):
        assert re.search(rf"^{line}$", unit, re.MULTILINE), line
