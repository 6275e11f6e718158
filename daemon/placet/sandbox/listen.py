"""Listen on loopback in the box, pass the listener out, and become the command.

Run in the box as `python -I -S -c SOURCE PAIR PORT PROGRAM ARG…`, before the command. PAIR is a
socket whose other end `proxy` has. Nothing of this stays in the box.
"""

# `signal`, `socket` and `os` would double the start.
import _signal  # type: ignore[import-not-found]
import _socket
import posix
import sys

if __name__ == "__main__":
    pair = _socket.socket(fileno=int(sys.argv[1]))
    listener = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
    listener.bind(("127.0.0.1", int(sys.argv[2])))
    listener.listen(128)
    passed = listener.fileno().to_bytes(4, sys.byteorder)
    pair.sendmsg([b"x"], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, passed)])
    for number in (_signal.SIGPIPE, _signal.SIGXFSZ):  # the interpreter ignores them
        _signal.signal(number, _signal.SIG_DFL)
    pair.close()
    posix.execv(sys.argv[3], sys.argv[3:])
