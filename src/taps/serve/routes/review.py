"""For the review page: what is believed of every image, predictions accepted, more questions wanted."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, Field

from taps.serve import schemas as s
from taps.serve.errors import ConflictError, NotFoundError
from taps.serve.folder import Folder
from taps.serve.review import COLUMNS, Belief, accept, alike_to, as_zip, beliefs_of, csv_text, learner_zip
from taps.serve.routes.export import archived, attached, in_chunks
from taps.serve.routes.given import ADMINISTERS, ANNOTATES, Annotator, Here, Worker
from taps.serve.routes.queries import Id
from taps.serve.service import Service

router = APIRouter(prefix="/v1/streams/{stream}", tags=["review"])


async def _folder(worker: Worker, state: Here) -> Folder:
    folder = state.service.folders.get(worker.stream.name)
    if folder is None:
        name = worker.stream.name
        raise NotFoundError(f"The images of stream {name!r} come from no folder; `taps label` begins such.")
    return folder


Fed = Annotated[Folder, Depends(_folder)]


class Reviewed(BaseModel):
    """What is believed of an image."""

    id: int
    name: str
    image: str = Field(description="SHA-256 of the file.")
    has_image: bool
    state: str
    label: str = Field(description="Its class; empty where a person said that it is of none.")
    probability: float
    by: str = Field(description="person; model, which predicted it again; or first, which did not.")
    first: str = Field(description="What was predicted when it came.")
    accepted_by: str | None
    accepted_above: float | None

    @classmethod
    def of(cls, belief: Belief) -> Reviewed:
        row, accepted = belief.row, belief.accepted
        return cls(
            id=row.id,
            name=row.name,
            image=row.image,
            has_image=row.kept,
            state=row.state,
            label=belief.label,
            probability=belief.probability,
            by=belief.by,
            first=row.label,
            accepted_by=None if accepted is None else accepted.who,
            accepted_above=None if accepted is None else accepted.above,
        )


class Accept(s.Input):
    """Predictions of one class, taken as they are."""

    label: Annotated[str, Field(min_length=1, max_length=200)]
    above: Annotated[float, Field(ge=0, le=1, description="Those at least so probable.")]
    ids: Annotated[list[int], Field(min_length=1, max_length=100_000)]


class AlikeImages(BaseModel):
    """Images that one answer may label."""

    ids: list[int] = Field(description="The image, then those alike, where that saves time.")
    seconds: float = Field(description="What labelling all at once takes: a question, and glances.")
    singly: float = Field(description="What as many questions take.")


class Accepted(BaseModel):
    accepted: int


class More(s.Input):
    questions: Annotated[int, Field(ge=1, le=10_000)]


class FolderStatus(BaseModel):
    """How far the labelling of a folder is."""

    phase: str = Field(description="encoding, asking, predicting or done.")
    done: int = Field(description="Images that this is done for.")
    images: int
    answered: int
    wanted: int = Field(description="Answers that are wanted.")
    files: str = Field(description="Where labels.csv and predictions.csv are when all is done.")
    learner: str = Field(description="The command that predicts other images with what was learned.")


@router.get("/review", dependencies=ANNOTATES)
def review(stream: str, state: Here) -> list[Reviewed]:
    """What is believed of every image now, the least sure first."""
    found = believed(state.service, stream)
    return [Reviewed.of(each) for each in sorted(found, key=lambda each: (each.probability, each.row.id))]


def believed(service: Service, stream: str) -> Any:
    feeds = service.folders.get(stream)
    return beliefs_of(service, stream) if feeds is None else feeds.beliefs()


@router.get("/predictions/{id}/alike", dependencies=ANNOTATES)
def alike(stream: str, id: Id, state: Here) -> AlikeImages:
    """The nearest images without an answer that are predicted as the same class, to be labelled at once."""
    return AlikeImages(**asdict(state.service.send(stream, partial(alike_to, id=id)).result()))


@router.post("/accept")
def accept_predictions(stream: str, body: Accept, state: Here, token: Annotator) -> Accepted:
    """Take predictions as they are; refused where one is believed to be something else by now."""
    service, wanted, label = state.service, set(body.ids), body.label
    same = {each.row.id for each in believed(service, stream) if each.label == label and each.by != "person"}
    if not wanted <= same:
        raise ConflictError(
            f"{len(wanted - same)} of these images are no longer predicted as {label!r}; look at them again."
        )
    act = partial(accept, label=label, above=body.above, ids=sorted(wanted), who=token.name)
    service.send(stream, act).result()
    return Accepted(accepted=len(wanted))


@router.get(
    "/result",
    dependencies=ADMINISTERS,
    response_class=Response,
    responses={200: {"content": {"text/csv": {}, "application/zip": {}}}},
)
def result(
    stream: str, state: Here, format: Annotated[Literal["csv", "zip", "learner"], Query()] = "csv"
) -> Response:
    """Take the result home: the table of all images, the images by class, or the learner."""
    service = state.service
    if format == "csv":
        lines = [each.cells() for each in believed(service, stream)]
        headers = attached(f"{stream}-predictions.csv")
        return Response(csv_text(COLUMNS, lines), media_type="text/csv; charset=utf-8", headers=headers)
    if format == "zip":
        made = archived(service.store, lambda path: as_zip(service, believed(service, stream), path))
    else:
        made = archived(
            service.store, lambda path: service.send(stream, partial(learner_zip, path=path)).result()
        )
    headers = attached(f"{stream}-{'images' if format == 'zip' else 'learner'}.zip")
    return StreamingResponse(in_chunks(made), media_type="application/zip", headers=headers)


@router.get("/folder", dependencies=ANNOTATES)
def folder_status(folder: Fed) -> FolderStatus:
    """How far the labelling of a folder is (`taps label`)."""
    return FolderStatus(**folder.status())


@router.post("/folder/questions", dependencies=ANNOTATES)
def ask_more(body: More, folder: Fed) -> FolderStatus:
    """Ask about so many images more."""
    folder.more(body.questions)
    return FolderStatus(**folder.status())
