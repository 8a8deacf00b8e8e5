"""Writes the software bill of materials of a binary as CycloneDX 1.5: `sbom.py PACKAGE > sbom.cdx.json`.

Lists the packages of `cargo metadata` that the binary links on this platform (without build and test dependencies),
with the checksums of Cargo.lock. The same sources produce the same bytes.
"""

import json
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

Json = dict[str, Any]


def metadata(target: str) -> Json:
    command = ["cargo", "metadata", "--locked", "--format-version", "1", "--filter-platform", target]
    parsed: Json = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    return parsed


def linked(nodes: dict[str, Json], root: str) -> dict[str, list[str]]:
    """The direct and indirect runtime dependencies of `root`, each with its own dependencies."""
    found: dict[str, list[str]] = {}
    open_ids = [root]
    while open_ids:
        package = open_ids.pop()
        if package in found:
            continue
        needs = [dep["pkg"] for dep in nodes[package]["deps"] if any(kind["kind"] is None for kind in dep["dep_kinds"])]
        found[package] = sorted(needs)
        open_ids += needs
    return found


def checksums(lock: Path) -> dict[tuple[str, str], str]:
    """The checksums of all packages from a registry, in Cargo's format of one line per field."""
    entry = re.compile(r'^name = "(.+)"\nversion = "(.+)"\nsource = ".+"\nchecksum = "([0-9a-f]{64})"$', re.M)
    return {(name, version): checksum for name, version, checksum in entry.findall(lock.read_text())}


def component(package: Json, hashes: dict[tuple[str, str], str]) -> Json:
    name, version = package["name"], package["version"]
    url = f"pkg:cargo/{name}@{version}"
    described: Json = {"type": "library", "bom-ref": url, "name": name, "version": version, "purl": url}
    if package["license"]:
        # Cargo used to accept a slash instead of OR.
        described["licenses"] = [{"expression": package["license"].replace("/", " OR ")}]
    if (name, version) in hashes:
        described["hashes"] = [{"alg": "SHA-256", "content": hashes[name, version]}]
    return described


def document(name: str, packages: Iterable[Json], resolve: Iterable[Json], hashes: dict[tuple[str, str], str]) -> Json:
    by_id = {package["id"]: package for package in packages}
    root = next((package["id"] for package in by_id.values() if package["name"] == name), None)
    if root is None:
        raise SystemExit(f"no package is named {name}")
    needs = linked({node["id"]: node for node in resolve}, root)
    described = {package: component(by_id[package], hashes) for package in needs}
    top = described.pop(root) | {"type": "application"}
    ref = {package: component(by_id[package], hashes)["bom-ref"] for package in needs}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": top},
        "components": sorted(described.values(), key=lambda found: str(found["bom-ref"])),
        "dependencies": [
            {"ref": ref[package], "dependsOn": sorted({ref[need] for need in needs[package]})}
            for package in sorted(needs, key=lambda package: ref[package])
        ],
    }


def main() -> None:
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    command = ["rustc", "-vV"]
    host = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    target = next(line.removeprefix("host: ") for line in host.splitlines() if line.startswith("host: "))
    found = metadata(target)
    lock = Path(found["workspace_root"]) / "Cargo.lock"
    whole = document(sys.argv[1], found["packages"], found["resolve"]["nodes"], checksums(lock))
    sys.stdout.write(json.dumps(whole, indent=1) + "\n")


if __name__ == "__main__":
    main()
