"""SOAP 1.1 envelopes of Citrix's Workload Balancing as XAPI writes and reads them (workload_balancing.ml)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from xml.etree import ElementTree  # it only writes here: what comes in is read by defusedxml

from defusedxml.common import DefusedXmlException  # type: ignore[import-untyped] # it brings no types
from defusedxml.ElementTree import fromstring  # type: ignore[import-untyped]

ENVELOPE = "http://schemas.xmlsoap.org/soap/envelope/"
DWM = "http://schemas.citrix.com/DWM"
MEDIA_TYPE = "text/xml"
MEDIA_TYPES = (MEDIA_TYPE, "application/xml")  # that are read
_METHOD = re.compile(r"[A-Za-z][A-Za-z0-9]{0,63}\Z")
_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

Record = Mapping[str, str]


class MalformedEnvelopeError(ValueError):
    """The bytes are no envelope with one method in it; the sentence says why."""


@dataclass(frozen=True, slots=True)
class Call:
    """A method and its parameters: the texts of the elements below `request`."""

    method: str
    parameters: Mapping[str, str]


def read_call(raw: bytes) -> Call:
    """Read an envelope; MalformedEnvelopeError for anything else. DTDs and entities are refused."""
    try:
        root = fromstring(raw, forbid_dtd=True)
    except DefusedXmlException as error:
        raise MalformedEnvelopeError("the body has a DTD or entities, which are not read") from error
    except Exception as error:  # expat's, and what decoding bytes can raise
        raise MalformedEnvelopeError(f"the body is no plain XML: {error}"[:200]) from error
    body = root.find(f"{{{ENVELOPE}}}Body")
    if root.tag != f"{{{ENVELOPE}}}Envelope" or body is None or len(body) != 1:
        raise MalformedEnvelopeError("the body is no SOAP 1.1 envelope with one method in it")
    namespace, _, method = body[0].tag.rpartition("}")
    if namespace != f"{{{DWM}" or not _METHOD.match(method):
        raise MalformedEnvelopeError(f"the method is not one of {DWM}")
    request = body[0].find(f"{{{DWM}}}request")
    parameters: dict[str, str] = {}
    for element in () if request is None else request:
        parameters[str(element.tag).rpartition("}")[2]] = "" if len(element) else (element.text or "").strip()
    return Call(method, parameters)


def answer(method: str, values: Record, records: Mapping[str, Iterable[Record]] | None = None) -> bytes:
    """The envelope that answers a method: texts, and lists such as `Recommendations` with one element per record.

    There is no blank between elements and no prefix before their names: XAPI's parser compares names as they are, and
    takes an element that holds nothing but text for a leaf.
    """
    envelope = ElementTree.Element("Envelope", {"xmlns": ENVELOPE})
    outer = ElementTree.SubElement(ElementTree.SubElement(envelope, "Body"), f"{method}Response", {"xmlns": DWM})
    result = ElementTree.SubElement(outer, f"{method}Result")
    _fill(result, values)
    for name, rows in (records or {}).items():
        listed = ElementTree.SubElement(result, name)
        for row in rows:
            _fill(ElementTree.SubElement(listed, "Recommendation"), row)
    text: bytes = ElementTree.tostring(envelope, encoding="utf-8", xml_declaration=True)
    return text


def describe(methods: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """The envelope in OpenAPI's words: one of these methods with the parameters that it reads."""
    body = {
        **_element(ENVELOPE, {name: _described_method(parameters) for name, parameters in methods.items()}),
        "minProperties": 1,
        "maxProperties": 1,
    }
    envelope = _element(ENVELOPE, {"Body": body}, required=["Body"])
    return {**envelope, "xml": {"name": "Envelope", "namespace": ENVELOPE}}


def _described_method(parameters: Sequence[str]) -> dict[str, Any]:
    texts = {name: {"type": "string", "minLength": 1, "xml": {"namespace": DWM}} for name in parameters}
    return _element(DWM, {"request": _element(DWM, texts, required=list(parameters))}, required=["request"])


def _element(namespace: str, children: Mapping[str, Any], required: Sequence[str] = ()) -> dict[str, Any]:
    return {
        "type": "object",
        "xml": {"namespace": namespace},
        "properties": dict(children),
        "required": list(required),
        "additionalProperties": False,
    }


def _fill(element: ElementTree.Element, values: Record) -> None:
    for name, value in values.items():
        ElementTree.SubElement(element, name).text = _NOT_XML.sub("\ufffd", value)
