"""The build backend of the package (PEP 517): CMake makes libonq and the program, and they are zipped with the modules.

The wheel is py3-none-PLATFORM: the package calls libonq through ctypes, so one wheel serves every version of Python.
Libraries that are not part of every Linux go into it, and PLATFORM is the manylinux of the oldest glibc that serves. What was
built for another system (tools/wheels.sh) is whole already; ONQ_WHEEL_PLATFORM names the system then.
"""

from __future__ import annotations

import base64
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib

HERE = Path(__file__).resolve().parent.parent
# Where the C sources are: above this folder, or inside a source distribution.
ROOT = HERE / "csrc" if (HERE / "csrc").is_dir() else HERE.parent
SOURCES = ("CMakeLists.txt", "CMakePresets.json", "LICENSE", "cmake", "include", "src", "cli", "cli-mpi")

# Libraries that every manylinux has (PEP 600).
SYSTEM = re.compile(r"^(ld-linux|libc|libm|libdl|librt|libpthread|libgcc_s|libz|linux-vdso)([-.].*)?\.so")


# ---- what the wheel says of itself


def _project() -> dict:
    text = (HERE / "pyproject.toml").read_text()
    if sys.version_info >= (3, 11):
        return tomllib.loads(text)["project"]
    # Enough for the one file there is.
    body = text[text.index("[project]") :]
    project: dict = {}
    for key, value in re.findall(r"^(\S+) = (.+)$", body, re.M):
        value = re.sub(r"(\w+) =", r'"\1":', value) if value.startswith("{") else value
        project[key] = eval(value, {"__builtins__": {}})  # noqa: S307 - our own file
    return project


def _version() -> str:
    header = (ROOT / "include/onq/onq.h").read_text()
    return ".".join(re.search(rf"#define ONQ_VERSION_{part} (\d+)", header)[1] for part in ("MAJOR", "MINOR", "PATCH"))


def _metadata() -> str:
    project = _project()
    lines = [
        "Metadata-Version: 2.1",
        f"Name: {project['name']}",
        f"Version: {_version()}",
        f"Summary: {project['description']}",
        f"License: {project['license']}",
        f"Requires-Python: {project['requires-python']}",
        *(f"Requires-Dist: {name}" for name in project["dependencies"]),
        "Description-Content-Type: text/markdown",
    ]
    for extra, names in project["optional-dependencies"].items():
        lines += [f"Provides-Extra: {extra}", *(f'Requires-Dist: {name}; extra == "{extra}"' for name in names)]
    return "\n".join(lines) + "\n\n" + (HERE / "README.md").read_text()


def _info_name() -> str:
    return f"{_project()['name']}-{_version()}.dist-info"


# ---- the libraries


def _run(*words: str | os.PathLike) -> str:
    try:
        done = subprocess.run([os.fspath(w) for w in words], check=True, capture_output=True, text=True)
    except FileNotFoundError:
        packages = "cmake ninja-build gcc pkg-config libjansson-dev libjpeg62-turbo-dev libspng-dev zlib1g-dev"
        raise SystemExit(f"onq: {words[0]} is needed to build the package (Debian: apt install {packages})") from None
    except subprocess.CalledProcessError as e:
        raise SystemExit(f"onq: {' '.join(map(str, words))} failed:\n{e.stdout[-4000:]}{e.stderr[-4000:]}") from None
    return done.stdout


def _compile(folder: Path) -> tuple[Path, Path]:
    """Builds libonq and the program, unless they were built already (tools/wheel.sh)."""
    built = os.environ.get("ONQ_BUILT_FOLDER")
    if built:
        return _built(Path(built))
    jobs = os.environ.get("JOBS") or str(os.cpu_count() or 1)
    generator = ["-G", "Ninja"] if shutil.which("ninja") else []
    # The program finds the library by its own run path; the library finds what is put next to it by this one. CMake
    # writes it for its generator: given as a flag of the linker, $ORIGIN became nothing in the shell that ninja starts.
    settings = {
        "CMAKE_BUILD_TYPE": "RelWithDebInfo",
        "ONQ_TESTS": "OFF",
        "ONQ_DOCS": "OFF",
        "CMAKE_INSTALL_LIBDIR": "lib",
        "CMAKE_INSTALL_RPATH": "$ORIGIN",
    }
    _run("cmake", "-S", ROOT, "-B", folder, *generator, *(f"-D{k}={v}" for k, v in settings.items()))
    _run("cmake", "--build", folder, "--parallel", jobs, "--target", "onq_shared", "onq")
    return _built(folder)


def _built(folder: Path) -> tuple[Path, Path]:
    if (folder / "onq.dll").is_file():
        return folder / "onq.dll", folder / "onq.exe"
    if (folder / "libonq.dylib").is_file():
        return folder / "libonq.dylib", folder / "onq"
    return next(p for p in folder.glob("libonq.so.*") if not p.is_symlink()), folder / "onq"


def _name_of(library: Path) -> str:
    """What the library is called in the wheel: what the program asks for."""
    return library.name if library.suffix in (".dll", ".dylib") else ".".join(library.name.split(".")[:3])  # libonq.so.0


def _needed(file: Path) -> list[tuple[str, Path]]:
    """The libraries that a file needs and not every Linux has."""
    found = re.findall(r"^\s*(\S+) => (\S+) ", _run("ldd", file), re.M)
    return [(name, Path(path)) for name, path in found if not SYSTEM.match(name) and not name.startswith("libonq")]


def _glibc(files: list[Path]) -> tuple[int, int]:
    """The oldest version of glibc that has all symbols that the files use."""
    versions = {(2, 17)}
    for file in files:
        found = re.findall(r"\bGLIBC_(\d+)\.(\d+)", _run("readelf", "-V", file))
        versions |= {(int(a), int(b)) for a, b in found}
    return max(versions)


def _tag(files: list[Path]) -> str:
    if named := os.environ.get("ONQ_WHEEL_PLATFORM"):
        return f"py3-none-{named}"
    machine = platform.machine()
    if platform.libc_ver()[0] != "glibc":
        return f"py3-none-linux_{machine}"
    return "py3-none-manylinux_{}_{}_{}".format(*_glibc(files), machine)


def _native(stage: Path) -> list[Path]:
    """Puts library, program and what they need into `stage`."""
    keep = os.environ.get("ONQ_BUILD_FOLDER")  # kept from one build to the next
    with tempfile.TemporaryDirectory(prefix="onq-build.") as temporary:
        library, program = _compile(Path(keep or temporary))
        (stage / "lib").mkdir(parents=True)
        (stage / "bin").mkdir()
        files = [stage / "lib" / _name_of(library), stage / "bin" / program.name]
        shutil.copy2(library, files[0])
        shutil.copy2(program, files[1])
        if library.suffix == ".dll":  # Windows looks for libraries in the program's own folder
            files.append(stage / "bin" / library.name)
            shutil.copy2(library, files[-1])
        if "ONQ_WHEEL_PLATFORM" in os.environ:
            return files
        for file in files:
            _run("strip", "--strip-debug", file)
        for name, path in _needed(library):
            files.append(stage / "lib" / name)
            shutil.copy2(path, files[-1])
    return files


def _notices() -> dict[str, bytes]:
    """The licences of what is in the wheel."""
    texts = {"LICENSE": (ROOT / "LICENSE").read_bytes()}
    bundled = os.environ.get("ONQ_NOTICES_FOLDER")
    if bundled:
        return texts | {p.name: p.read_bytes() for p in sorted(Path(bundled).iterdir())}
    for package in ("libjansson4", "libjpeg62-turbo", "libspng0"):
        notice = Path("/usr/share/doc", package, "copyright")
        if notice.is_file():
            texts[f"{package}.copyright"] = notice.read_bytes()
    return texts


# ---- the archive


class _Wheel:
    """A zip file that keeps a record of what is in it."""

    def __init__(self, path: Path):
        self._zip = zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED)
        self._record: list[str] = []

    def add(self, name: str, data: bytes, mode: int = 0o644) -> None:
        info = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))  # the same files give the same wheel
        info.external_attr = (0o100000 | mode) << 16
        info.compress_type = zipfile.ZIP_DEFLATED
        self._zip.writestr(info, data)
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        self._record.append(f"{name},sha256={digest},{len(data)}")

    def close(self, info: str) -> None:
        record = "\n".join([*self._record, f"{info}/RECORD,,"]) + "\n"
        self.add(f"{info}/RECORD", record.encode())
        self._zip.close()


def _modules() -> list[Path]:
    return sorted(p for p in (HERE / "onq").rglob("*") if p.is_file() and p.suffix in (".py", ".typed"))


def _entry_points() -> str:
    entries = "".join(f"{script} = {target}\n" for script, target in _project()["scripts"].items())
    return f"[console_scripts]\n{entries}"


def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None) -> str:
    """Writes what the wheel will say of itself, without building anything."""
    folder = Path(metadata_directory) / _info_name()
    folder.mkdir()
    (folder / "METADATA").write_text(_metadata())
    (folder / "entry_points.txt").write_text(_entry_points())
    return folder.name


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None) -> str:
    """Makes the wheel and returns its name."""
    info, project = _info_name(), _project()
    with tempfile.TemporaryDirectory(prefix="onq-wheel.") as temporary:
        files = _native(Path(temporary) / "_native")
        tag = _tag(files)
        name = f"{project['name']}-{_version()}-{tag}.whl"
        wheel = _Wheel(Path(wheel_directory) / name)
        for module in _modules():
            wheel.add(module.relative_to(HERE).as_posix(), module.read_bytes())
        for file in files:
            wheel.add(f"onq/{file.relative_to(temporary).as_posix()}", file.read_bytes(), 0o755)
    wheel.add(f"{info}/METADATA", _metadata().encode())
    wheel.add(f"{info}/entry_points.txt", _entry_points().encode())
    wheel.add(f"{info}/WHEEL", f"Wheel-Version: 1.0\nGenerator: onq_build\nRoot-Is-Purelib: false\nTag: {tag}\n".encode())
    for notice, text in _notices().items():
        wheel.add(f"{info}/licenses/{notice}", text)
    wheel.close(info)
    return name


def build_sdist(sdist_directory, config_settings=None) -> str:
    """Makes the source distribution, with the C sources in csrc/, and returns its name."""
    base = f"{_project()['name']}-{_version()}"
    with tarfile.open(Path(sdist_directory) / f"{base}.tar.gz", "w:gz") as tar:
        for module in [*_modules(), HERE / "pyproject.toml", HERE / "README.md", Path(__file__).resolve()]:
            tar.add(module, f"{base}/{module.relative_to(HERE).as_posix()}")
        for source in SOURCES:
            tar.add(ROOT / source, f"{base}/csrc/{source}")
        with tempfile.NamedTemporaryFile("w") as f:
            f.write(_metadata())
            f.flush()
            tar.add(f.name, f"{base}/PKG-INFO")
    return f"{base}.tar.gz"


if __name__ == "__main__":  # make wheel
    print(os.path.join(sys.argv[1], build_wheel(sys.argv[1])))
