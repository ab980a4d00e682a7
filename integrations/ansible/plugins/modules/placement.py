#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Ask Cotenant where instances should go."""

from __future__ import annotations

DOCUMENTATION = r"""
module: placement
short_description: Ask Cotenant where instances should go
version_added: 0.1.0
author: Cotenant's contributors (@cotenant)
description:
  - Asks a Cotenant service which hosts suit instances best, for them and for all instances there. Each instance counts
    for those after it, or all are placed together; see O(order).
  - Run it on the controller, before the task that makes the instances.
  - An instance that finds no host fails the task, unless O(allow_none=true).
options:
  url:
    description: The service. Without it, the environment variable E(COTENANT_SERVER) is used.
    type: str
    required: true
  token:
    description: A token. Without it and O(token_file), the environment variable E(COTENANT_TOKEN) is used.
    type: str
  token_file:
    description: A file that holds a token; refused where others may read or change it.
    type: path
  ca_path:
    description: A file of certificates in PEM that vouch for the service, beside the system's.
    type: path
  timeout:
    description: Seconds for which one try may wait. A service that is busy or away is asked up to four times.
    type: int
    default: 30
  instances:
    description: The instances to place, in the order in which they are answered; at most 200.
    type: list
    elements: dict
    required: true
    suboptions:
      id:
        description: Its id; it may be in the inventory already.
        type: str
        required: true
      vcpus:
        description: Virtual CPUs; 1 unless said.
        type: int
      memory_mb:
        description: Memory in MB.
        type: float
      disk_gb:
        description: Disk in GB.
        type: float
      like:
        description:
          - An instance of the inventory whose demand, workload and sensitivity it shares, and whose size where none is
            given.
        type: str
      workload:
        description: Name of a known workload.
        type: str
      load:
        description: Offered load as a fraction of what it can do alone; 1.0 unless said.
        type: float
      service:
        description: What it is sensitive to; V(throughput) unless said.
        type: str
        choices: [throughput, latency]
      min_throughput_ratio:
        description: The lowest part of its uncontended speed that it accepts, 0-1.
        type: float
      max_latency_ratio:
        description: The largest latency ratio that it accepts; 1.0 = as alone.
        type: float
      max_time_short:
        description: The part of the time, 0-1, in which it may be contended for CPU.
        type: float
      exclusive:
        description: It shares its host with no other instance.
        type: bool
      dedicated_vcpus:
        description: How many of its vCPUs have a physical CPU each that no other instance uses; 0 unless said.
        type: int
      labels:
        description: Free texts, such as class or project.
        type: dict
  hosts:
    description: Answer only these hosts; all unless said.
    type: list
    elements: str
  constraints:
    description: What a host must satisfy.
    type: dict
    suboptions:
      labels:
        description: Every one of these labels.
        type: dict
      exclude:
        description: None of these hosts.
        type: list
        elements: str
      affinity:
        description: Beside these instances.
        type: list
        elements: str
      anti_affinity:
        description: Apart from these instances.
        type: list
        elements: str
      kind:
        description: Only hosts of this hypervisor, such as V(kvm).
        type: str
      allow_stale:
        description: Hosts without fresh data may answer, too.
        type: bool
  objective:
    description: Best for the most affected, the combined score, limits, or the fewest hosts; V(worst) unless said.
    type: str
    choices: [worst, total, limits, pack]
  limit:
    description: Most candidates given for each instance; 1 unless said.
    type: int
  order:
    description:
      - With V(given) each instance is placed where it suits best after those before it; with V(joint) other orders and
        plans are tried, too, and the answers that harm least together are kept. V(given) unless said.
    type: str
    choices: [given, joint]
  time_limit_s:
    description: Seconds after which a joint search tries nothing more; 5 unless said.
    type: float
  hold:
    description:
      - Hold the hosts until the inventory shows the instances, or for the service's C(COTENANT_RESERVE_S), so that
        others who ask meanwhile count them.
      - Needs a token of scope write. Without it, read is enough.
    type: bool
    default: false
  allow_none:
    description: An instance that finds no host is not in RV(hosts), and the task goes on.
    type: bool
    default: false
attributes:
  check_mode:
    description: Can run in check mode; nothing is held then.
    support: full
  diff_mode:
    description: Shows what would change; nothing here has a before and after.
    support: none
"""

EXAMPLES = r"""
- name: Ask where the web servers should go
  cotenant.cloud.placement:
    url: https://cotenant.example
    token_file: ~/.config/cotenant/token
    # of each host of the group, such as {id: "{{ inventory_hostname }}", vcpus: 2, memory_mb: 4096}
    instances: "{{ groups['web'] | map('extract', hostvars, 'instance') }}"
    hold: true
  delegate_to: localhost
  run_once: true
  register: advice

- name: Make each of them there
  openstack.cloud.server:
    name: "{{ inventory_hostname }}"
    availability_zone: "nova:{{ advice.hosts[inventory_hostname] }}"
    flavor: m1.medium
    image: debian-13
  delegate_to: localhost
"""

RETURN = r"""
hosts:
  description: The host that is advised, by the id of the instance.
  returned: success
  type: dict
  sample: {web-1: h3, web-2: h1}
placements:
  description: The answer in short, by the id of the instance, as RecommendationSummary in the reference of REST.
  returned: always, unless the service was not asked or refused
  type: dict
  contains:
    candidates:
      description: Hosts that can take it, best first, with score, throughput_ratio, headroom and pinning.
      type: list
      elements: dict
    rejected:
      description: Why hosts cannot take it; by code and sentence.
      type: list
      elements: dict
"""

import ipaddress
import json
import os
import re
import stat
import uuid
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit

from ansible.module_utils.api import generate_jittered_backoff, retry_with_delays_and_condition
from ansible.module_utils.basic import AnsibleModule, env_fallback
from ansible.module_utils.urls import open_url

TRIES = 4
BUSY = (429, 502, 503, 504)
MOST_BYTES = 64 * 2**20
TOKEN = re.compile(r"[\x21-\x7e]{1,4096}\Z")

text = {"type": "str"}
number = {"type": "float"}
flag = {"type": "bool"}
texts = {"type": "list", "elements": "str"}
mapping = {"type": "dict"}
INSTANCE = {
    "id": {"type": "str", "required": True},
    "vcpus": {"type": "int"},
    "memory_mb": number,
    "disk_gb": number,
    "like": text,
    "workload": text,
    "load": number,
    "service": {"type": "str", "choices": ["throughput", "latency"]},
    "min_throughput_ratio": number,
    "max_latency_ratio": number,
    "max_time_short": number,
    "exclusive": flag,
    "dedicated_vcpus": {"type": "int"},
    "labels": mapping,
}
CONSTRAINTS = {
    "labels": mapping,
    "exclude": texts,
    "affinity": texts,
    "anti_affinity": texts,
    "kind": text,
    "allow_stale": flag,
}
ARGUMENTS = {
    "url": {"type": "str", "required": True, "fallback": (env_fallback, ["COTENANT_SERVER"])},
    "token": {"type": "str", "no_log": True, "fallback": (env_fallback, ["COTENANT_TOKEN"])},
    "token_file": {"type": "path", "no_log": False},
    "ca_path": {"type": "path"},
    "timeout": {"type": "int", "default": 30},
    "instances": {"type": "list", "elements": "dict", "required": True, "options": INSTANCE},
    "hosts": texts,
    "constraints": {"type": "dict", "options": CONSTRAINTS},
    "objective": {"type": "str", "choices": ["worst", "total", "limits", "pack"]},
    "limit": {"type": "int"},
    "order": {"type": "str", "choices": ["given", "joint"]},
    "time_limit_s": number,
    "hold": {"type": "bool", "default": False},
    "allow_none": {"type": "bool", "default": False},
}


def set_options(options):
    """The options that the task sets; the service has defaults for the others."""
    return {name: value for name, value in options.items() if value is not None}


def body_of(params, check_mode):
    """The body of POST /v1/placements:batch."""
    body = set_options({name: params[name] for name in ("hosts", "objective", "limit", "order", "time_limit_s")})
    body["instances"] = [set_options(instance) for instance in params["instances"]]
    for labelled in [*body["instances"], params["constraints"] or {}]:
        if labelled.get("labels"):  # YAML reads 1 and true as numbers and flags, not as texts
            labelled["labels"] = {str(name): as_text(value) for name, value in labelled["labels"].items()}
    if params["constraints"]:
        body["constraints"] = set_options(params["constraints"])
    body["dry_run"] = check_mode or not params["hold"]
    return body


def as_text(value):
    """A label's value as people write it in YAML."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def read_token(params):
    """The token, None = there is none; ValueError says what is wrong, without the token itself."""
    token = params["token"]
    if params["token_file"]:
        with Path(params["token_file"]).open(encoding="ascii", errors="replace") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            if mode & 0o026:  # the group may read the token but not write it: who writes it chooses who asks
                raise ValueError(
                    f"token_file {params['token_file']} is refused because others may read or change it "
                    f"(mode {mode:03o}); chmod 640 it"
                )
            token = file.read(2**16)
    if token is None:
        return None
    token = token.strip()
    if not TOKEN.match(token):
        raise ValueError("the token is empty or holds blanks, line ends or other than ASCII characters")
    if not may_carry_token(params["url"]):
        raise ValueError(
            f"the token is not sent to {params['url']}: use https, a service on this machine, or "
            "COTENANT_TOKEN_OVER_HTTP=1 where no other machine can listen"
        )
    return token


def may_carry_token(url):
    """Whether a token may be sent there: over plain HTTP only to this machine, unless a variable allows it."""
    parts = urlsplit(url)
    if parts.scheme == "https" or parts.hostname == "localhost" or os.environ.get("COTENANT_TOKEN_OVER_HTTP") == "1":
        return True
    try:
        return ipaddress.ip_address(parts.hostname or "").is_loopback
    except ValueError:
        return False


def is_passing(error):
    """Whether asking again may help."""
    return error.code in BUSY if isinstance(error, HTTPError) else isinstance(error, (URLError, OSError))


def ask(params, body, token):
    """The answers, in the order of the instances. ValueError and OSError say what is wrong.

    A question that holds hosts carries a key, so that asking again after a lost answer holds nothing twice.
    """
    headers = {"Content-Type": "application/json"}
    if token is not None:
        headers["Authorization"] = f"Bearer {token}"
    if not body["dry_run"]:
        headers["Idempotency-Key"] = str(uuid.uuid4())
    backoff = generate_jittered_backoff(retries=TRIES - 1, delay_base=1, delay_threshold=8)

    @retry_with_delays_and_condition(backoff, is_passing)
    def once():
        with open_url(
            params["url"].rstrip("/") + "/v1/placements:batch?summary=true",
            data=json.dumps(body),
            headers=headers,
            method="POST",
            timeout=params["timeout"],
            ca_path=params["ca_path"],
            use_proxy=False,
            use_netrc=False,
            follow_redirects="none",  # a redirect would carry the question, and maybe the token, to somewhere else
        ) as answer:
            return answer.read(MOST_BYTES)

    try:
        answers = json.loads(once())["answers"]
    except HTTPError as error:
        raise ValueError(problem_of(error)) from None
    except (KeyError, TypeError, ValueError, RecursionError):
        raise ValueError("its answer is not one of a Cotenant service") from None
    if len(answers) != len(body["instances"]):
        raise ValueError(f"it answers for {len(answers)} of {len(body['instances'])} instances")
    return answers


def problem_of(error):
    """The service's own sentence about what is wrong."""
    try:
        problem = json.loads(error.read())
        return f"{problem['detail']} ({problem['code']})"
    except (KeyError, TypeError, ValueError, RecursionError):
        return f"it answers with status {error.code}"


def without_host(placements):
    """A sentence for each instance that finds no host."""
    for name, answer in placements.items():
        if not answer["candidates"]:
            yield f"no host can take {name}: " + "; ".join(reason["reason"] for reason in answer["rejected"][:5])


def main():
    """Ask, and give what was answered."""
    module = AnsibleModule(ARGUMENTS, supports_check_mode=True)
    params = module.params
    url = urlsplit(params["url"])
    if url.scheme not in ("http", "https") or not url.hostname or url.username or url.query or url.fragment:
        module.fail_json(msg="url is no URL such as https://cotenant.example without user, query and fragment")
    body = body_of(params, module.check_mode)
    try:
        answers = ask(params, body, read_token(params))
    except (OSError, ValueError) as error:
        module.fail_json(msg=f"Cotenant did not say where the instances should go: {error}")
    placements = {instance["id"]: answer for instance, answer in zip(body["instances"], answers)}
    if (nowhere := list(without_host(placements))) and not params["allow_none"]:
        module.fail_json(msg=". ".join(nowhere), placements=placements)
    hosts = {name: answer["candidates"][0]["host"] for name, answer in placements.items() if answer["candidates"]}
    module.exit_json(changed=params["hold"] and bool(hosts), hosts=hosts, placements=placements)


if __name__ == "__main__":
    main()
