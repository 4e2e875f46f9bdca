"""Runs the tkc program: finding it, asking it for signatures and instances, running kernels on the CPU."""
import json
import os
import shutil
import subprocess


class CompileError(Exception):
    """What the compiler says of a source file."""


def binary():
    """The path of tkc: the environment variable TKC, else PATH, else build/tkc beside the folder `python`."""
    named = os.environ.get("TKC")
    if named:
        if os.access(named, os.X_OK):
            return named
        raise FileNotFoundError(f"TKC={named} is no program")
    found = shutil.which("tkc")
    if found:
        return found
    here = os.path.dirname(os.path.abspath(__file__))
    built = os.path.normpath(os.path.join(here, "..", "..", "build", "tkc"))
    if os.access(built, os.X_OK):
        return built
    raise FileNotFoundError(f"the program tkc is not found: set TKC, or put it into PATH, or build it as {built}")


def run(arguments):
    done = subprocess.run([binary(), *arguments], capture_output=True, text=True)
    if done.returncode != 0:
        raise CompileError(f"tkc {arguments[0]} {arguments[1]} ends with {done.returncode}:\n{done.stderr.strip()}")
    return done.stdout


def setting(value):
    """A compile-time parameter as -P takes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def settings(params, absent):
    words = []
    for name, value in params.items():
        words += ["-P", f"{name}={setting(value)}"]
    for name in absent:
        words += ["-P", f"{name}=none"]
    return words


def signatures(file, kernel):
    """What --emit signatures says: a list of entries."""
    words = ["compile", file, "--emit", "signatures"]
    if kernel:
        words += ["-k", kernel]
    return json.loads(run(words))["entries"]


def compile_json(file, kernel, arch, params, absent):
    """The JSON of one instance, with the PTX in it."""
    return json.loads(
        run(["compile", file, "-k", kernel, "--arch", arch, *settings(params, absent), "--emit", "json"]))
