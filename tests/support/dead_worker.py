"""A pytest plugin: the death of one of xdist's processes ends the run, as a failure.

Left to itself, xdist starts another process and gives it the files of the dead one. Under --dist
loadfile it may then wait for ever for files that are done already (pytest-xdist, issues 784 and
1378). With --max-worker-restart=0 the other process still finishes all that it was given, which may
be most of the tests.
"""

import pytest


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: object, error: object) -> None:
    """Leave pytest, which ends the other processes within ten seconds."""
    if error:
        given = node.config.pluginmanager.getplugin("dsession").sched.assigned_work.get(node, {})
        running = next(
            (test for tests in given.values() for test, is_done in tests.items() if not is_done),
            "no test",
        )
        pytest.exit(
            f"{node.gateway.id} died ({error}) in {running}",
            returncode=pytest.ExitCode.TESTS_FAILED,
        )
