"""What a built C core lacks of its protections, by binutils, which come with every gcc."""

import subprocess
from pathlib import Path


def faults_of(core: Path) -> list[str]:
    """Return the protections that the shared object `core` lacks, and its run paths."""

    def lines(*words: str) -> list[str]:
        done = subprocess.run([*words, str(core)], capture_output=True, text=True, timeout=60, check=True)
        return done.stdout.splitlines()

    dynamic, segments = lines("readelf", "-dW"), lines("readelf", "-lW")
    wanted = {line.split()[-1].partition("@")[0] for line in lines("nm", "-D", "--undefined-only")}
    has = {
        "a stack protector": "__stack_chk_fail" in wanted,
        "FORTIFY": any(name.endswith("_chk") for name in wanted),
        "GNU_RELRO": any(line.split()[:1] == ["GNU_RELRO"] for line in segments),
        "BIND_NOW": any("BIND_NOW" in line or "Flags: NOW" in line for line in dynamic),
        "a stack without execution": any(
            line.split()[:1] == ["GNU_STACK"] and " RWE " not in line for line in segments
        ),
    }
    run_paths = [line.strip() for line in dynamic if "(RPATH)" in line or "(RUNPATH)" in line]
    return [name for name, is_there in has.items() if not is_there] + run_paths
