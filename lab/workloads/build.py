"""A C compiler on one small source file, again and again: short processes, page faults and files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

from lab.fields import Fields
from lab.workloads.base import LocalWorkload, Progress, Site, WorkloadResult, program, report_of

# Without headers: reading them would be most of the time, and units of work should be short.
_SOURCE = """\
void *calloc(unsigned long, unsigned long);
struct node {{ struct node *left, *right; int key; }};
{functions}
"""
_FUNCTION = """\
static struct node *insert{0}(struct node *at, int key) {{
  if (!at) {{ at = calloc(1, sizeof *at); at->key = key; return at; }}
  if (key < at->key) at->left = insert{0}(at->left, key * {0} + 1); else at->right = insert{0}(at->right, key + {0});
  return at;
}}
int sum{0}(struct node *at, int key) {{
  at = insert{0}(at, key);
  return at ? at->key + (at->left ? sum{0}(at->left, key - 1) : 0) : 0;
}}
"""


@dataclass(frozen=True, slots=True)
class BuildWorkload(LocalWorkload):
    """Compiles a file of `functions` pairs of functions by `gcc -O1 -S`, one process after the other."""

    kind: ClassVar[str] = "build"
    unit: ClassVar[str] = "files/s"
    takes_rate: ClassVar[bool] = False
    progress: ClassVar[Progress] = "counted"
    tools: ClassVar[tuple[str, ...]] = ("gcc",)

    functions: int = 1

    @classmethod
    def of(cls, fields: Fields, /) -> Self:
        return cls(fields.whole("functions", 1, most=1000))

    def prepare(self, site: Site, /) -> None:
        source = _SOURCE.format(functions="".join(_FUNCTION.format(number) for number in range(1, self.functions + 1)))
        (site.directory / "source.c").write_text(source, encoding="ascii")

    def work(self, _site: Site, seconds: float, _rate: float | None, /) -> list[str]:
        return program("repeat", seconds, "gcc", "-O1", "-S", "-o", "source.s", "source.c")

    def read(self, output: str, _rate: float | None, /) -> WorkloadResult:
        with report_of(output, "the compiler's loop") as report:
            return WorkloadResult(report["runs"] / report["seconds"])
