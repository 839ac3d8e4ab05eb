"""Windows and macOS: nothing that only Linux or POSIX has is needed to import attentrim."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import attentrim
from attentrim.machine import peak_memory

PACKAGE = Path(attentrim.__file__).parent
MODULES = ("crypt", "fcntl", "grp", "nis", "ossaudiodev", "posix", "pty", "pwd", "readline", "resource", "spwd")
MODULES += ("syslog", "termios", "tty")
ATTRIBUTES = {
    "os": "O_CLOEXEC O_DIRECTORY O_NOFOLLOW O_NONBLOCK WNOHANG chown chroot fchown fork forkpty getegid geteuid "
    "getgid getloadavg getpgid getsid getuid killpg lchown mkfifo mknod nice openpty pread preadv pwrite pwritev "
    "sched_getaffinity sched_setaffinity sendfile setegid seteuid setgid setpgid setsid setuid statvfs sysconf "
    "uname wait wait3 wait4",
    "signal": "ITIMER_REAL SIGALRM SIGCHLD SIGCONT SIGHUP SIGKILL SIGPIPE SIGQUIT SIGSTOP SIGTSTP SIGUSR1 SIGUSR2 "
    "alarm getitimer pause pthread_kill pthread_sigmask setitimer siginterrupt sigpending sigwait",
}
"""What Windows lacks."""
IMPORT_ALL = f"""
import builtins, importlib, pkgutil
given = builtins.__import__

def without_posix(name, globals=None, *rest, **more):
    if name in {MODULES} and (globals or {{}}).get("__name__", "").startswith("attentrim"):
        raise ModuleNotFoundError(f"no {{name}} here")
    return given(name, globals, *rest, **more)

builtins.__import__ = without_posix
import attentrim
for module in pkgutil.walk_packages(attentrim.__path__, "attentrim."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
        print(module.name)
"""


def test_every_module_can_be_imported_without_modules_of_posix():
    done = subprocess.run([sys.executable, "-c", IMPORT_ALL], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    files = [path for path in PACKAGE.rglob("*.py") if path.name not in ("__init__.py", "__main__.py")]
    assert len(done.stdout.split()) >= len(files)


def posix_only(source):
    """`os.fork` and the like, but for what the same file asks about with hasattr."""
    nodes = list(ast.walk(ast.parse(source)))
    calls = [node for node in nodes if isinstance(node, ast.Call) and ast.unparse(node.func) == "hasattr"]
    asked = {".".join(ast.unparse(part).strip("'") for part in call.args) for call in calls}
    used = {ast.unparse(node) for node in nodes if isinstance(node, ast.Attribute)}
    used |= {f"{node.module}.{name.name}" for node in nodes if isinstance(node, ast.ImportFrom) for name in node.names}
    return (used - asked) & {f"{module}.{name}" for module, names in ATTRIBUTES.items() for name in names.split()}


def test_no_module_uses_what_windows_lacks():
    found = {path.name: names for path in PACKAGE.rglob("*.py") if (names := posix_only(path.read_text("utf-8")))}
    assert found == {}


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import os\nos.fork()", {"os.fork"}),
        ("import os\nif hasattr(os, 'fork'):\n    os.fork()", set()),
        ("from signal import SIGKILL", {"signal.SIGKILL"}),
        ("import os\nos.getpid()", set()),
    ],
)
def test_the_check_itself(source, found):
    assert posix_only(source) == found


def test_peak_memory_is_unknown_where_the_system_does_not_tell(monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    if sys.platform != "win32":
        assert peak_memory() > 0
    monkeypatch.setitem(sys.modules, "resource", None)
    assert peak_memory() is None
