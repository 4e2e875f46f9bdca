#!/usr/bin/env python3
"""Includes point backwards in the flow of the folders, or to the folder itself. `ops` may be declared to earlier folders
only through ir/op_def.h."""
import pathlib
import re
import sys

ORDER = ["support", "syntax", "layout", "ir", "sema", "passes", "interp", "codegen", "ops", "emu", "runtime", "driver", "cli"]
ROOT = pathlib.Path(__file__).resolve().parent.parent / "src"
bad = 0
for path in sorted(ROOT.rglob("*")):
    if path.suffix not in (".h", ".cpp"):
        continue
    folder = path.relative_to(ROOT).parts[0]
    for number, line in enumerate(path.read_text().splitlines(), 1):
        found = re.match(r'\s*#include "(\w+)/', line)
        if found and found.group(1) in ORDER and ORDER.index(found.group(1)) > ORDER.index(folder):
            print(f"{path.relative_to(ROOT)}:{number}: {folder} includes {found.group(1)}, which comes later")
            bad += 1
sys.exit(1 if bad else 0)
