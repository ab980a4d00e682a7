#!/usr/bin/env python3
"""Stands for OpenNebula's own placer in tests: reads what place.cc reads and writes what Plan.cc reads.

Each virtual machine goes to the last host of its list that still has its memory, on the first datastore of its list.
Appends each document to the file named in COTENANT_TEST_SEEN.
"""

import base64
import os
import sys
from pathlib import Path
from xml.etree import ElementTree

word = sys.stdin.read().split()[0]
with Path(os.environ["COTENANT_TEST_SEEN"]).open("a", encoding="ascii") as seen:
    seen.write(word + "\n")
root = ElementTree.fromstring(base64.b64decode(word, validate=True))
memory = {one.findtext("ID"): float(one.findtext("TEMPLATE/MEMORY", "")) for one in root.iterfind("VM_POOL/VM")}
free = {
    one.findtext("ID"): (
        float(one.findtext("HOST_SHARE/MAX_MEM", "")) - float(one.findtext("HOST_SHARE/MEM_USAGE", ""))
    )
    / 1024
    for one in root.iterfind("HOST_POOL/HOST")
}
plan = ElementTree.Element("PLAN")
ElementTree.SubElement(plan, "ID").text = "-1"
for wanted in root.iterfind("REQUIREMENTS/VM"):
    number = wanted.findtext("ID")
    fit = [one.text for one in wanted.iterfind("HOSTS/ID") if free[one.text] >= memory[number]]
    if not fit:
        print(f"ERROR: {number} Cannot dispatch VM", file=sys.stderr)
        continue
    free[fit[-1]] -= memory[number]
    action = ElementTree.SubElement(plan, "ACTION")
    for name, value in (("VM_ID", number), ("OPERATION", "deploy"), ("HOST_ID", fit[-1]),
                        ("DS_ID", wanted.findtext("DATASTORES/ID"))):  # fmt: skip
        ElementTree.SubElement(action, name).text = value
sys.stdout.write(ElementTree.tostring(plan, encoding="unicode"))
