#!/usr/bin/python3
"""Runs a program on a kernel that lies: one system call answers that it worked, and does nothing.

without.py CALL[:ARGUMENT=VALUE] PROGRAM…

CALL is a number; with ARGUMENT (0 to 5) and VALUE (32 bits) only calls with that argument are meant. The filter is passed
on to everything that the program starts, also into sandboxes.
"""
import ctypes
import os
import platform
import struct
import sys

ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}[platform.machine()]
LOAD, JUMP_EQUAL, RETURN = 0x20, 0x15, 0x06
ALLOW, ANSWER_ZERO = 0x7FFF0000, 0x00050000


def program(call, argument, value):
    checks = [(4, ARCH), (0, call)]
    if argument is not None:
        checks.append((16 + 8 * argument, value))
    code = []
    for i, (offset, wanted) in enumerate(checks):
        left = 2 * (len(checks) - i - 1) + 1  # instructions up to and with the one that answers zero
        code += [(LOAD, 0, 0, offset), (JUMP_EQUAL, 0, left, wanted)]
    return code + [(RETURN, 0, 0, ANSWER_ZERO), (RETURN, 0, 0, ALLOW)]


def load(code):
    data = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *line) for line in code))
    header = ctypes.create_string_buffer(struct.pack("@HP", len(code), ctypes.addressof(data)))
    libc = ctypes.CDLL(None, use_errno=True)
    # As root, and so without no_new_privs, which one of the tests is about.
    if libc.prctl(22, 2, header, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "PR_SET_SECCOMP")


def main():
    call, _, rest = sys.argv[1].partition(":")
    argument, _, value = rest.partition("=")
    load(program(int(call), int(argument) if rest else None, int(value) if rest else 0))
    os.execvp(sys.argv[2], sys.argv[2:])


if __name__ == "__main__":
    main()
