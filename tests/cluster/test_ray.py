"""Evaluations and statistics on a real Ray cluster of this machine's cores."""

from __future__ import annotations

import logging
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from taps.data import Dataset, load_dataset
from taps.errors import DataError, SettingsError, StateError
from taps.model.clip import Clip, load_clip
from taps.model.prompts import Prompts
from taps.model.prompts.source import SourceStats, merge_stats
from taps.study.evaluate.evaluate import evaluate_jobs
from taps.study.evaluate.jobs import Job, ModelSpec, StreamSpec
from taps.study.evaluate.options import Execution
from taps.study.training.options import StatsCluster, StatsOptions
from taps.study.training.stats import collect_stats
from taps.types import PixelArray

ray = pytest.importorskip("ray", reason="needs the extra ray")

httpx = pytest.importorskip("httpx", reason="needs the extra serve")

from taps.cluster import connect  # noqa: E402
from taps.cluster.executors import RayExecutors  # noqa: E402
from taps.cluster.machines import Origin, Resources, origin, this_machine  # noqa: E402
from taps.cluster.runs import run_on_ray  # noqa: E402
from taps.cluster.stats import make_part, stats_on_ray  # noqa: E402
from taps.cluster.tasks import UNFIT, Tasks  # noqa: E402
from taps.serve.service import Service  # noqa: E402
from taps.serve.store import Store  # noqa: E402
from taps.streams.row import OPEN  # noqa: E402
from tests.cluster.test_executors import told  # noqa: E402
from tests.data.layouts import tar_of  # noqa: E402
from tests.serve.conftest import ASKING, CLASSES, png  # noqa: E402
from tests.serve.patient import LONG  # noqa: E402

TIMES = ("ms_", "_ms", "seconds", "overhead", "peak", "mb")
pytestmark = pytest.mark.filterwarnings("default")  # Ray has warnings of its own


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[Any]:
    """One cluster for all tests: they connect to it and leave it, as users do."""
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_memory_monitor_refresh_ms", "0")  # it kills workers where others use the memory
        made = Cluster(initialize_head=True, head_node_args={"num_cpus": 2})
        patch.setenv("RAY_ADDRESS", made.address)
        patch.setattr(connect, "PATIENCE", 60.0)
        yield made
        made.shutdown()


@dataclass(frozen=True)
class KillsOnce:
    """Kills the process at one image, the first time it is shown."""

    index: int
    marker: Path

    def __call__(self, pixels: PixelArray, index: int) -> PixelArray:
        if index == self.index and not self.marker.exists():
            self.marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return pixels


@dataclass(frozen=True)
class KillingStream(StreamSpec):
    """A data set whose worker dies in the middle, once."""

    marker: str = ""

    def load(self) -> Dataset:
        dataset = super().load()
        return replace(dataset, transforms=(KillsOnce(len(dataset) // 2, Path(self.marker)),))


def without_times(found: Any) -> Any:
    if isinstance(found, list):
        return [without_times(each) for each in found]
    if not isinstance(found, dict):
        return found
    kept = [name for name in found if not any(part in name for part in TIMES)]
    return {name: without_times(found[name]) for name in kept}


def test_runs_on_a_cluster_end_as_here_though_a_worker_is_lost(
    tmp_path: Path, make_job: Callable[..., Job]
) -> None:
    jobs = [make_job("zero_shot"), make_job(), make_job(seed=2), make_job("coop")]
    marker = tmp_path / "killed"
    stream = KillingStream(**{**vars(jobs[1].stream), "marker": str(marker)})
    said: list[tuple[str, int]] = []

    def watcher(left: Any) -> Any:
        return lambda what, index, value: said.append((what, index))

    killed = [replace(job, stream=stream) for job in jobs]
    there = evaluate_jobs(killed, tmp_path / "there", Execution(ray="auto"), run=run_on_ray, watcher=watcher)
    here = evaluate_jobs(jobs, tmp_path / "here")
    assert marker.exists()  # a worker was lost, and its run went on elsewhere
    assert without_times(there.rows) == without_times(here.rows)
    assert [run["method"] for run in there.unfinished] == ["coop"]  # it has no trained prompts
    assert there.unfinished == here.unfinished
    for index in range(3):
        assert [what for what, who in said if who == index and what != "progress"] == ["start", "done"]
    for job in jobs[:3]:
        folders = [job.folder(tmp_path / out) for out in ("here", "there")]
        names = [sorted(path.name for path in folder.iterdir()) for folder in folders]
        assert names[0] == names[1]


@dataclass(frozen=True)
class OnlyHere(StreamSpec):
    """A data set that other machines, here other processes, do not have."""

    process: int = 0

    def load(self) -> Dataset:
        if os.getpid() != self.process:
            raise DataError("There is no such data set.")
        return super().load()


def test_machines_that_can_carry_out_no_run_are_said(tmp_path: Path, make_job: Callable[..., Job]) -> None:
    job = make_job("zero_shot")
    job = replace(job, stream=OnlyHere(**vars(job.stream), process=os.getpid()))
    with pytest.raises(SettingsError, match=r"machine [\d.]+ .* work: There is no such data set"):
        evaluate_jobs([job], tmp_path, Execution(ray="auto"), run=run_on_ray)
    assert evaluate_jobs([job], tmp_path, Execution(resume=True)).unfinished == []


def test_a_machine_with_another_disk_or_another_version_is_refused(tmp_path: Path) -> None:
    with origin(tmp_path) as here:
        here.check()
    with pytest.raises(SettingsError, match=f"does not see {tmp_path} as the command does"):
        here.check()
    with pytest.raises(SettingsError, match=r"given with 0\.1; install the same"):
        replace(here, version="0.1").check()


def test_time_that_is_up_leaves_runs_for_later(
    cluster: Any, tmp_path: Path, make_job: Callable[..., Job]
) -> None:
    how = Execution(ray=cluster.address, minutes=0)
    outcome = evaluate_jobs([make_job("zero_shot")], tmp_path, how, run=run_on_ray)
    assert "time was up" in outcome.unfinished[0]["why"]
    assert evaluate_jobs([make_job("zero_shot")], tmp_path, Execution(resume=True)).unfinished == []


def as_tars(images: Dataset, folder: Path) -> Path:
    """The same images, in a tar for each class."""
    for label, name in enumerate(images.classes):
        own = [index for index, one in enumerate(images.labels) if one == label]
        tar_of(folder / f"{name}.tar", {f"{index:04}.png": images.read(index) for index in own})
    return folder


def test_parts_of_statistics_merge_to_those_of_the_whole(
    tmp_path: Path, make_job: Callable[..., Job], maple_prompts: Prompts
) -> None:
    images = load_dataset(as_tars(make_job().stream.load(), tmp_path / "tars"))
    maple_prompts.save_pretrained(tmp_path / "prompts")
    options = StatsOptions("tiny", None, str(tmp_path / "prompts"), True, "0,1", 4, "cpu")
    cluster = StatsCluster("auto", parts=3)
    parts = tmp_path / "parts"
    found = stats_on_ray(cluster, images, options, parts)
    whole = collect_stats(load_clip("tiny"), maple_prompts, make_job().stream.load(), per_class=True)
    assert found.count == whole.count == len(images)
    assert found.classes == whole.classes
    for name in ("mean", "variance", "class_means", "class_variances"):
        one, other = getattr(found, name), getattr(whole, name)
        assert float((one - other).abs().max()) <= 1e-6 * float(other.abs().max())
    files = sorted(parts.glob("*.safetensors"))
    assert len(files) == 3
    files[0].unlink()  # an interrupted pass makes what is missing, and only that
    kept = {file: file.stat().st_mtime_ns for file in files[1:]}
    again = stats_on_ray(cluster, images, options, parts)
    assert {file: file.stat().st_mtime_ns for file in files[1:]} == kept
    assert again.fingerprint == found.fingerprint
    loaded = [SourceStats.load(file) for file in files]
    with pytest.raises(StateError, match="twice"):
        merge_stats([*loaded, loaded[0]])
    with pytest.raises(StateError, match="another batch"):
        stats_on_ray(cluster, images, replace(options, batch=5), parts)


def test_a_damaged_tar_is_left_out_and_counted(
    tmp_path: Path,
    make_job: Callable[..., Job],
    maple_prompts: Prompts,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def made_here(parts: Any, images: Any, options: Any, folder: Any, cluster: Any) -> Any:
        for part in parts:
            file = folder / f"{part.start}-{part.stop}.safetensors"
            assert make_part(images.take(part), False, options, file, Origin(tmp_path)) == ("done", None)
            yield part

    monkeypatch.setattr("taps.cluster.stats._made_parts", made_here)
    monkeypatch.chdir(tmp_path)
    images = load_dataset(as_tars(make_job().stream.load(), tmp_path / "tars"))
    maple_prompts.save_pretrained(tmp_path / "prompts")
    options = StatsOptions("tiny", prompts=str(tmp_path / "prompts"), device="cpu")
    first, *others = sorted((tmp_path / "tars").iterdir())
    lost = images.labels.count(0)
    first.write_bytes(bytes(first.stat().st_size))
    assert stats_on_ray(StatsCluster(parts=4), images, options, tmp_path / "half").count == len(images) - lost
    assert f"{lost} images could not be read" in caplog.text
    for other in others:
        other.write_bytes(bytes(other.stat().st_size))
    with pytest.raises(DataError, match="no readable image"):
        stats_on_ray(StatsCluster(parts=4), images, options, tmp_path / "none")


def test_images_that_only_some_machines_have_are_not_left_out(
    tmp_path: Path, make_job: Callable[..., Job], maple_prompts: Prompts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    images = load_dataset(as_tars(make_job().stream.load(), tmp_path / "tars"))
    maple_prompts.save_pretrained(tmp_path / "prompts")
    options = StatsOptions("tiny", prompts=str(tmp_path / "prompts"), device="cpu")
    with origin(tmp_path) as here:
        given = images.take(range(12)), True, options, tmp_path / "part.safetensors", here
        (tmp_path / "tars").rename(tmp_path / "elsewhere")
        what, (machine, why) = make_part(*given)
        assert (what, machine) == (UNFIT, this_machine())
        assert ".tar" in why
    assert "does not see" in make_part(*given)[1][1]


@dataclass(frozen=True)
class NotThere:
    """Images that one machine cannot read; until it has tried, others wait.

    Attributes:
        marker: Of a try.
        process: Which does not wait.
    """

    marker: Path
    process: int = field(default_factory=os.getpid)

    def __call__(self, pixels: PixelArray, index: int) -> PixelArray:
        if this_machine() == OTHER:
            self.marker.touch()
            raise DataError("There is no such image.")
        end = time.monotonic() + LONG
        while os.getpid() != self.process and not self.marker.exists():
            assert time.monotonic() < end
            time.sleep(0.05)
        return pixels


OTHER = "127.0.0.2"


@pytest.mark.slow
def test_statistics_leave_out_a_machine_that_cannot_make_a_part(
    cluster: Any,
    tmp_path: Path,
    make_job: Callable[..., Job],
    maple_prompts: Prompts,
    caplog: pytest.LogCaptureFixture,
) -> None:
    maple_prompts.save_pretrained(tmp_path / "prompts")
    options = StatsOptions("tiny", prompts=str(tmp_path / "prompts"), device="cpu")
    images = make_job().stream.load()
    unseen = replace(images, transforms=(NotThere(tmp_path / "tried"),))
    other = cluster.add_node(num_cpus=1, node_ip_address=OTHER)
    try:
        found = stats_on_ray(StatsCluster("auto", parts=6), unseen, options, tmp_path / "parts")
    finally:
        cluster.remove_node(other)
    assert found.count == len(images)
    [said] = [message for message in caplog.messages if "machine" in message]
    assert re.match(rf"The machine {OTHER} .*: There is no such image\. Others carry on", said)


class TwoMachines:
    """As much of Ray as tasks need: machines "two" and "one", of which the first that is allowed does a task.

    Args:
        unfit: Those that cannot do it.
        begins: Whether they say so themselves, or cannot even import what the task is.
    """

    exceptions = ray.exceptions

    def __init__(self, unfit: set[str], *, begins: bool) -> None:
        self.unfit, self.begins, self.tried = unfit, begins, list[tuple[str, int]]()

    def nodes(self) -> list[dict[str, Any]]:
        each = {"Alive": True, "Resources": {"CPU": 1.0}}
        return [each | {"NodeID": name, "NodeManagerAddress": name} for name in ("two", "one")]

    def remote(self, function: Any) -> Any:
        def options(*, label_selector: Any, **_: Any) -> Any:
            free = [node for node in ("two", "one") if node not in str(label_selector)]
            return SimpleNamespace(remote=lambda *args: partial(self._do, free[0], function, args))

        return SimpleNamespace(options=options)

    def wait(self, references: list[Any], timeout: float) -> tuple[list[Any], list[Any]]:
        return references[:1], references[1:]

    def get(self, reference: Any) -> Any:
        return reference()

    def _do(self, machine: str, function: Any, args: Any) -> Any:
        self.tried.append((machine, args[0]))
        if machine not in self.unfit:
            return function(*args)
        if self.begins:
            return UNFIT, (machine, f"No images on {machine}.")
        import_failed = "The remote function failed to import on the worker."
        raise ray.exceptions.RayError(f"(pid=1, ip={machine})\n{import_failed}\nNo images on {machine}.")


@pytest.mark.parametrize("begins", [True, False])
def test_tasks_that_a_machine_cannot_do_go_to_others(begins: bool) -> None:
    fake = TwoMachines({"two"}, begins=begins)
    tasks = Tasks(
        Resources(fake, Execution(), logging.getLogger("taps")), lambda n: ("done", n * n), [(3,), (4,)]
    )
    ended: dict[int, Any] = {}
    while tasks.running:
        ended |= dict(tasks.ended())
    assert ended == {0: ("done", 9), 1: ("done", 16)}
    assert sorted(fake.tried) == [("one", 3), ("one", 4), ("two", 3), ("two", 4)]


@pytest.mark.parametrize("begins", [True, False])
def test_parts_that_no_machine_can_make_leave_nothing(
    tmp_path: Path, make_job: Callable[..., Job], monkeypatch: pytest.MonkeyPatch, begins: bool
) -> None:
    fake = TwoMachines({"one", "two"}, begins=begins)
    monkeypatch.setattr("taps.cluster.stats.connected", lambda *given: nullcontext(fake))
    images, folder = make_job().stream.load(), tmp_path / "parts"
    with pytest.raises(SettingsError, match=r"The machine one .*: No images on one"):
        stats_on_ray(StatsCluster("auto", parts=3), images, StatsOptions(), folder)
    assert not folder.exists()


def test_a_task_whose_worker_is_lost_too_often_is_given_up() -> None:
    def lose(number: int) -> tuple[str, Any]:
        raise ray.exceptions.WorkerCrashedError

    fake = TwoMachines(set(), begins=True)
    tasks = Tasks(Resources(fake, Execution(), logging.getLogger("taps")), lose, [(1,)])
    ended: list[Any] = []
    while tasks.running:
        ended += tasks.ended()
    [(index, (what, why))] = ended
    assert (index, what, len(fake.tried)) == (0, "lost", 4)
    assert "worker died" in why


@pytest.mark.slow
def test_streams_go_on_at_a_machine_that_joined_when_theirs_is_lost(
    cluster: Any, tmp_path: Path, tiny: Clip
) -> None:
    first = cluster.add_node(num_cpus=4)
    with (
        connect.connected("auto") as ray,
        RayExecutors(ray, ModelSpec("tiny"), how=Execution(cpus_per_run=3)) as places,
    ):
        [actor] = places.actors

        def seen(number: int) -> bool:
            """Another machine joins, the first one is lost, and the streams go on for three rounds."""
            if number == 3:
                assert len(actor.streams) == 4
                cluster.add_node(num_cpus=4)
                cluster.remove_node(first, allow_graceful=False)
                with suppress(ray.exceptions.RayActorError):  # its process ends a moment later
                    while True:
                        ray.get(actor.handle.__ray_ready__.remote(), timeout=LONG)
                        time.sleep(0.05)
            return number == 6

        there = told(tmp_path / "there", tiny, places, seen)
        assert actor not in places.actors
    assert there == told(tmp_path / "here", tiny, None, lambda number: number == 6)
    assert any(state == OPEN for *_, state in there)


def test_a_service_whose_machines_cannot_load_the_model_says_so(tmp_path: Path) -> None:
    with connect.connected("auto") as ray:
        with pytest.raises(SettingsError, match=rf"machine [\d.]+ of the Ray cluster .*{tmp_path}") as caught:
            RayExecutors(ray, ModelSpec(str(tmp_path / "none.pt")))
        assert "\n" not in str(caught.value)


def actors_of(cluster: Any) -> list[int]:
    """The processes that compute for a service on this cluster, and on no other."""
    raylets = {node.all_processes["raylet"][0].process.pid for node in cluster.list_all_nodes()}
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            above = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            if above in raylets and (entry / "cmdline").read_bytes().startswith(b"ray::Computing"):
                found.append(int(entry.name))
    return found


@pytest.mark.slow
def test_a_service_whose_actor_is_killed_goes_on_and_stops_with_everything_saved(
    cluster: Any, tmp_path: Path, tiny: Clip
) -> None:
    command = [
        sys.executable,
        "-m",
        "taps",
        "serve",
        "--model",
        "tiny",
        "--port",
        "0",
        "--store",
        str(tmp_path),
    ]
    command += ["--processes", "1", "--ray", cluster.address]
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process,
        httpx.Client(timeout=LONG, trust_env=False) as http,
    ):
        try:
            assert process.stdout is not None
            url = process.stdout.readline().removeprefix("Serving at ").strip()
            assert url, process.stderr and process.stderr.read()
            body = {"name": "pets", "classes": CLASSES, "method": "taps", "settings": ASKING}
            http.post(f"{url}/v1/streams", json=body).raise_for_status()
            acknowledged = []
            for number in range(6):
                if number == 3:
                    [pid] = actors_of(cluster)
                    os.kill(pid, signal.SIGKILL)
                answer = http.post(f"{url}/v1/streams/pets/predict", content=png(number))
                acknowledged.append(answer.raise_for_status().json()["id"])
        finally:
            process.terminate()
        said = process.communicate(timeout=LONG)[1]
    assert process.returncode == 0, said
    assert said.count("A computing actor was lost") == 1
    assert "Traceback" not in said
    assert acknowledged == list(range(6))
    with Service(Store(str(tmp_path)), tiny) as service:
        rows = service.store.predictions(service.stream("pets").id)
        assert [row.id for row in rows] == acknowledged
        assert not service.worker("pets").session.learner_log.unsaved()
