#!/usr/bin/python3
"""Writes the page's files as C arrays, plain and compressed: embed.py OUTPUT FILE…"""

import gzip
import hashlib
import os
import sys

TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


def array(name, data):
    lines = [", ".join(str(b) for b in data[i : i + 24]) for i in range(0, len(data), 24)]
    return f"static const unsigned char {name}[] = {{\n\t" + ",\n\t".join(lines) + ",\n};\n"


def main():
    output, *files = sys.argv[1:]
    text, rows = '#include "web/web_files.h"\n\n', []
    for i, path in enumerate(files):
        with open(path, "rb") as f:
            plain = f.read()
        packed = gzip.compress(plain, 9, mtime=0)
        name, kind = os.path.basename(path), os.path.splitext(path)[1]
        where = "/" if name == "index.html" else "/page/" + name
        tag = hashlib.sha256(plain).hexdigest()[:20]
        text += array(f"plain_{i}", plain) + array(f"packed_{i}", packed)
        rows.append(f'\t{{"{where}", "{TYPES[kind]}", "{tag}", plain_{i}, sizeof(plain_{i}), packed_{i}, sizeof(packed_{i})}},\n')
    text += f"\nconst struct web_file web_files[] = {{\n{''.join(rows)}}};\nconst size_t web_files_n = {len(rows)};\n"
    with open(output, "w", encoding="ascii") as f:
        f.write(text)


main()
