"""cotenant-run-queue: a BPF program that watches the CPU scheduler, and the program in C that loads it and prints JSON.

`make run-queue` builds both into one file that needs nothing on the host but a kernel with BTF.
"""

PROGRAM = "cotenant-run-queue"
