"""`taps serve`: predictions over HTTP, and a model that learns from the answers."""

from __future__ import annotations

import signal
import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from taps.cli.options import new_app, with_options
from taps.serve.options import Limits, ServeOptions
from taps.study.evaluate.options import Execution

if TYPE_CHECKING:
    from taps.model.clip import Clip

app = new_app()


@app.command()
@with_options
def serve(options: ServeOptions, limits: Limits) -> None:
    """Serve predictions over HTTP; uncertain images wait for an annotator, the model learns from the answers.

    Streams are made over HTTP (`docs/serve.md`). Everything acknowledged survives a crash.
    """
    from taps.cluster.connect import find_ray

    share = Execution(device=options.device, gpus_per_run=options.gpus_per_process)
    find_ray(options.ray, share)  # before the slow imports
    import torch

    from taps.model.clip import load_clip
    from taps.serve import telemetry
    from taps.serve.labelstudio import LabelStudio
    from taps.serve.run import make_server
    from taps.serve.service import Service
    from taps.serve.store import Store

    telemetry.set_up_logs()
    store = Store(options.store, options.files, anew=options.anew)
    studio = None
    if options.label_studio:
        studio = LabelStudio(options.label_studio, options.label_studio_token, options.image_hosts)
    if options.processes != 0 and options.ray is None:
        torch.set_num_threads(1)  # each process computes on one core
    clip = load_clip(options.model, pretrained=options.pretrained, device=options.device)
    with ExitStack() as stack:
        executors = executors_for(options, clip, stack, share)
        # Uvicorn stops at SIGTERM and then raises it once more, while learners are still being saved.
        signal.signal(signal.SIGTERM, lambda *_: None)  # after Ray, which would exit
        sys.setswitchinterval(0.001)  # a response does not wait 5 ms for another that is being made
        service = stack.enter_context(Service(store, clip, queue=limits.queue, executors=executors))
        make_server(
            service,
            host=options.host,
            port=options.port,
            limits=limits,
            hosts=options.allowed_host,
            studio=studio,
            ready=lambda url: print(f"Serving at {url}", flush=True),
        ).run()


def executors_for(options: ServeOptions, clip: Clip, stack: ExitStack, share: Execution) -> Any:
    """Where learners run: on a cluster, in processes of this machine, or (None) in this process."""
    if options.ray is None:
        from taps.serve.learners import Processes

        processes = options.processes_on(clip.device.type)
        return stack.enter_context(Processes(clip, processes)) if processes else None
    from taps.cluster.connect import connected
    from taps.cluster.executors import RayExecutors
    from taps.study.evaluate.jobs import ModelSpec

    ray = stack.enter_context(connected(options.ray, share))
    model = ModelSpec(options.model, options.pretrained)
    return stack.enter_context(RayExecutors(ray, model, options.processes, share))
