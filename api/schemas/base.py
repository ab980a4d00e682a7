"""What all schemas share: strict fields, times, names, isolation settings, pages of listings, errors."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import wraps
from typing import Annotated, Any, Generic, ParamSpec, Self, TypeVar

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    PlainSerializer,
)
from pydantic_core import CoreSchema, core_schema

from advisor.errors import InvalidInput, own_words
from profiler.observed import MAX_CPUS, MAX_WEIGHT, IsolationSettings, NetMode, NetworkSettings, Pinning

P = ParamSpec("P")
R = TypeVar("R")

# Ids and names of workloads are steps of paths, where `.` and `..` mean something else and a `/` ends the step. The
# patterns use no look-ahead, which pydantic's engine does not know.
ID_PATTERN = r"^(\.{0,2}[A-Za-z0-9_:-][A-Za-z0-9._:-]*|\.{3}[A-Za-z0-9._:-]*)$"
STEP_PATTERN = r"^(\.{0,2}[^\x00-\x1f\x7f/.][^\x00-\x1f\x7f/]*|\.{3}[^\x00-\x1f\x7f/]*)$"
# No control characters: names and labels end up in terminals, log lines and databases that refuse NUL.
TEXT_PATTERN = r"^[^\x00-\x1f\x7f]*$"
_PATTERN_IN_WORDS: Mapping[str, str] = {
    ID_PATTERN: "it takes letters, digits and ._:- and is neither . nor ..",
    STEP_PATTERN: "it takes no / and no control characters, and is neither . nor ..",
    TEXT_PATTERN: "it takes no control characters",
}
TIME_PATTERN = r"^(19[7-9][0-9]|[2-8][0-9]{3}|9[0-8][0-9]{2}|99[0-8][0-9]|999[0-8])-"  # the years 1970-9998
_RFC3339 = re.compile(r"\d{4}-\d{2}-\d{2}[Tt ]\d{2}:\d{2}:\d{2}(\.\d{1,9})?([Zz]|[+-]\d{2}:\d{2})\Z")
MOST_FIELDS = 100  # of one object: more than any has
_LARGEST = 1e15  # above every real memory, rate or counter, and small enough that sums of them stay finite


def in_words(error: Mapping[str, Any]) -> str:
    """What one of pydantic's errors says, of a pattern what it takes."""
    return _PATTERN_IN_WORDS.get(error.get("ctx", {}).get("pattern", "")) or own_words(str(error["msg"]))


def _bound(schema: Any) -> None:
    """Bound every list and mapping of a core schema, in place, and each once: pydantic reuses parts of schemas."""
    if isinstance(schema, list | tuple):
        for part in schema:
            _bound(part)
    if not isinstance(schema, dict) or _is_bounded(schema):
        return
    for part in schema.values():
        _bound(part)
    if schema.get("type") == "list":
        schema["fail_fast"] = True
    if schema.get("type") == "dict" and "max_length" in schema:
        inner = dict(schema)
        schema.clear()
        schema.update(core_schema.no_info_before_validator_function(_Few(inner["max_length"]), inner))


def _is_bounded(schema: Mapping[str, Any]) -> bool:
    return schema.get("type") == "function-before" and isinstance(schema["function"]["function"], _Few)


@dataclass(frozen=True, slots=True)
class _Few:
    """Refuses a mapping of more than `most` entries before anything in it is looked at."""

    most: int

    def __call__(self, value: Any) -> Any:
        if isinstance(value, dict) and len(value) > self.most:
            raise ValueError(f"has {len(value)} entries, at most {self.most} are taken")
        return value


class Schema(BaseModel):
    """Base of all schemas: unknown fields are refused, numbers are finite, values do not change.

    Of a list only the first wrong item is reported, and of a mapping that is too large only its size. Pydantic would
    report every error: 2 MB of zeros in the place of samples took 1.8 GB and nine seconds.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """The schema as pydantic makes it, with the two bounds put in."""
        schema = handler(source)
        _bound(schema)
        # The outermost part must have the name, or every description would repeat the schema instead of naming it.
        inner: Any = {key: part for key, part in schema.items() if key != "ref"}
        return core_schema.no_info_before_validator_function(_Few(MOST_FIELDS), inner, ref=schema.get("ref"))


def examples(*bodies: dict[str, Any], **rules: Any) -> ConfigDict:
    """Configuration of a schema that shows these bodies in the OpenAPI document; a test sends every one.

    `rules` are keywords of JSON Schema that say what holds between fields.
    """
    return ConfigDict(json_schema_extra={"examples": list(bodies), **rules})


class AnswerBody(BaseModel):
    """Base of answers: later versions may add fields, so clients must let unknown ones pass."""

    model_config = ConfigDict(extra="allow", frozen=True)

    @classmethod
    def like(cls, value: object) -> Self:
        """From a domain value whose fields have the same names."""
        return cls.model_validate(value, from_attributes=True)


def _whole(value: Any) -> Any:
    """JSON and its schemas know one kind of number: 2.0 is as whole as 2."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _rfc3339(value: Any) -> Any:
    if isinstance(value, datetime):
        return value
    if not isinstance(value, str) or not _RFC3339.match(value):
        raise ValueError("is not an RFC 3339 time with a zone, such as 2026-01-31T12:00:00Z")
    return value


def _in_our_age(value: datetime) -> datetime:
    # Outside these years the conversion to UTC or to seconds since the epoch can overflow datetime.
    if not 1970 <= value.year <= 9998:
        raise ValueError("is outside the years 1970-9998")
    return value.astimezone(UTC)


def _write_time(value: datetime) -> str:
    return value.astimezone(UTC).isoformat().replace("+00:00", "Z")


Id = Annotated[str, Field(pattern=ID_PATTERN, min_length=1, max_length=255)]
Name = Annotated[str, Field(pattern=TEXT_PATTERN, min_length=1, max_length=255)]
WorkloadName = Annotated[str, Field(pattern=STEP_PATTERN, min_length=1, max_length=255)]  # datasets use blanks
Platform = Annotated[str, Field(pattern=TEXT_PATTERN, max_length=255)]
Text = Annotated[str, Field(pattern=TEXT_PATTERN, max_length=1000)]
Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Amount = Annotated[float, Field(strict=True, allow_inf_nan=False, ge=0, le=_LARGEST)]
Positive = Annotated[float, Field(strict=True, allow_inf_nan=False, gt=0, le=_LARGEST)]
Ratio = Annotated[float, Field(strict=True, allow_inf_nan=False, gt=0, le=1)]
Share = Annotated[float, Field(strict=True, allow_inf_nan=False, ge=0, le=1)]
PartOfTime = Annotated[float, Field(strict=True, allow_inf_nan=False, ge=0, lt=1)]
Times = Annotated[float, Field(strict=True, allow_inf_nan=False, ge=1, le=1e6)]  # of a latency over that alone
WHOLE = BeforeValidator(_whole)  # last in an annotation, or the description would lack the bounds
Cpus = Annotated[int, Field(strict=True, ge=1, le=MAX_CPUS), WHOLE]
Cpu = Annotated[int, Field(strict=True, ge=0, lt=MAX_CPUS), WHOLE]
Flag = Annotated[bool, Field(strict=True)]
Time = Annotated[
    AwareDatetime,
    Field(json_schema_extra={"pattern": TIME_PATTERN}),
    BeforeValidator(_rfc3339),
    AfterValidator(_in_our_age),
    PlainSerializer(_write_time, return_type=str, when_used="json"),
]
Labels = Annotated[dict[Name, Annotated[str, Field(pattern=TEXT_PATTERN, max_length=255)]], Field(max_length=100)]
Metrics = Annotated[dict[Id, Amount], Field(max_length=1000)]


def same_name(body_name: str | None, path_name: str) -> str:
    """The name in the path; ValueError when the body has another one."""
    if body_name not in {None, path_name}:
        raise ValueError(f"the body says {body_name}, the path says {path_name}")
    return path_name


def as_input(convert: Callable[P, R]) -> Callable[P, R]:
    """Decorate a conversion to a domain type: a ValueError of the type becomes InvalidInput."""

    @wraps(convert)
    def converted(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return convert(*args, **kwargs)
        except ValueError as error:
            raise InvalidInput(str(error)) from error

    return converted


# Schemas of answers that are no resource: pages of a listing, problem documents, health.

T = TypeVar("T")


class PageOut(AnswerBody, Generic[T]):
    """A slice of a listing; `next_cursor` null = the end."""

    items: list[T] = Field(description="what is on this page")
    next_cursor: str | None = Field(default=None, description="give it as `cursor` to get what follows")


class FieldError(AnswerBody):
    """One thing that is wrong in the input."""

    field: str = Field(description="where: path of the field, dots between the steps")
    code: str = Field(description="what kind of error")
    detail: str = Field(description="what is wrong, as a sentence")


class Problem(AnswerBody):
    """An RFC 9457 problem document; `code` is stable, `detail` is for people."""

    type: str = Field(description="where the code is explained, relative to the service")
    title: str = Field(description="the code in words")
    status: int = Field(description="the HTTP status")
    detail: str = Field(description="what is wrong, as a sentence")
    code: str = Field(description="see docs/reference/errors.md")
    request_id: str = Field(description="as in the answer's X-Request-ID and in the log")
    field: str | None = Field(default=None, description="the part of the input that is wrong, where there is one")
    errors: list[FieldError] = Field(default=[], description="every field that is wrong, at most 20")


class Health(AnswerBody):
    """The process is alive."""

    status: str = Field(description="ok")


class Readiness(AnswerBody):
    """The service can answer questions. Where tokens are needed, `status` is all that it says."""

    status: str = Field(description="ready")
    database: str = Field(default="", description="the kind of database")
    generation: int = Field(default=0, description="of the inventory")
    model: str = Field(default="", description="the version that answers")
    degraded: bool = Field(default=False, description="the active model cannot be read and the analytic model answers")
    snapshot_age_s: float = Field(default=0.0, description="age of the snapshot that answers")
    hosts: int = Field(default=0, description="hosts in the inventory")


# Schemas of what holds an instance back: pinning, CPU cap and weight, network class, disk limit.


def _read_pinning(given: Any) -> Any:
    """A pinning as text, such as `0:2|1:3` in files, as the mapping; anything else as it is."""
    return pinning_map(Pinning.parse(given)) if isinstance(given, str) else given


PinningMap = Annotated[
    dict[Annotated[str, Field(pattern=r"^(0|[1-9][0-9]{0,3})$")], Annotated[list[Cpu], Field(max_length=MAX_CPUS)]],
    Field(
        max_length=MAX_CPUS,
        description="vCPU → the pCPUs it may run on; an empty list means any; also as text: `0:2|1:3`",
        examples=[{"0": [2], "1": [3]}],
    ),
    BeforeValidator(_read_pinning),
]


class Network(Schema):
    """How tc treats an instance: `shared` may borrow up to `ceil_mbit`, `dedicated` keeps to `rate_mbit`."""

    model_config = ConfigDict(
        json_schema_extra={
            "if": {"required": ["mode"], "properties": {"mode": {"enum": ["shared", "dedicated"]}}},
            "then": {"required": ["rate_mbit"], "properties": {"rate_mbit": {"type": "number"}}},
        }
    )

    mode: NetMode = Field(default="none", description="shared, dedicated or none")
    rate_mbit: Positive | None = Field(default=None, description="the rate it is guaranteed, in Mbit/s")
    ceil_mbit: Positive | None = Field(default=None, description="the rate it may borrow up to, in Mbit/s")


class Isolation(Schema):
    """CPU, network and disk settings; null = leave as is."""

    cap_percent: Positive | None = Field(default=None, description="CPU cap, 100 = one whole pCPU")
    weight: Annotated[int, Field(strict=True, ge=1, le=MAX_WEIGHT), WHOLE] | None = Field(
        default=None, description="CPU weight on Xen's scale, 256 = default"
    )
    network: Network | None = Field(default=None, description="its traffic class")
    disk_limit_mb_s: Positive | None = Field(default=None, description="read plus write")

    @classmethod
    def of(cls, settings: IsolationSettings) -> Isolation:
        """Everything but the pinning, which is a field of its own."""
        network = settings.network
        shown = None
        if network is not None:
            shown = Network.model_construct(mode=network.mode, rate_mbit=network.rate_mbit, ceil_mbit=network.ceil_mbit)
        return cls.model_construct(
            cap_percent=settings.cap_percent,
            weight=settings.weight,
            network=shown,
            disk_limit_mb_s=settings.disk_limit_mb_s,
        )


def pinning_map(pinning: Pinning | None) -> dict[str, list[int]] | None:
    """A pinning as JSON: vCPU number → list of pCPUs."""
    return None if pinning is None else {str(vcpu): list(cpus) for vcpu, cpus in enumerate(pinning.cpus)}


@as_input
def _checked_settings(isolation: Isolation, pinning: dict[str, list[int]] | None) -> IsolationSettings:
    return to_settings(isolation, pinning)


def to_settings(isolation: Isolation | None, pinning: dict[str, list[int]] | None) -> IsolationSettings:
    """The domain's settings from the two fields of the API; ValueError when vCPUs are not numbered without gaps."""
    fields = dict(isolation or Isolation())
    network = None if fields["network"] is None else NetworkSettings(**dict(fields["network"]))
    return IsolationSettings(**{**fields, "pinning": _to_pinning(pinning), "network": network})


def given_settings(isolation: Isolation, pinning: dict[str, list[int]] | None) -> dict[str, Any]:
    """Only those of the settings that a caller sent, as fields of IsolationSettings; InvalidInput as to_settings."""
    whole = _checked_settings(isolation, pinning)
    given = {name: getattr(whole, name) for name in isolation.model_fields_set}
    return given if pinning is None else {**given, "pinning": whole.pinning}


def _to_pinning(pinning: dict[str, list[int]] | None) -> Pinning | None:
    if not pinning:
        return None
    vcpus = sorted(int(vcpu) for vcpu in pinning)
    if vcpus != list(range(len(vcpus))):
        raise ValueError("pinning: vCPUs are not numbered from 0 without gaps")
    return Pinning(tuple(tuple(sorted(set(pinning[str(vcpu)]))) for vcpu in vcpus))
