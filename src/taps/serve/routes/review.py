"""Review of all images, accepted predictions, similar images, and more questions about a folder."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from fastapi import APIRouter, Depends
from pydantic import BaseModel, Field

from taps.serve import schemas as s
from taps.serve.dependencies import ANNOTATES, Annotator, Here, Id, Worker
from taps.serve.errors import ConflictError, NotFoundError
from taps.serve.folder import Folder, FolderStatus
from taps.serve.review import AlikeImages, Belief, accept, alike_to, beliefs_of

router = APIRouter(prefix="/v1/streams/{stream}", tags=["review"], dependencies=[ANNOTATES])


async def _folder(worker: Worker, state: Here) -> Folder:
    name = worker.stream.name
    if name not in state.service.folders:
        raise NotFoundError(f"The images of stream {name!r} come from no folder; `taps label` begins such.")
    return state.service.folders[name]


OfFolder = Annotated[Folder, Depends(_folder)]


class Reviewed(BaseModel):
    """The current label of an image."""

    id: int
    name: str
    image: str = Field(description="SHA-256 of the file.")
    has_image: bool
    state: str
    label: str = Field(description="Its class; empty where a person said that it is none.")
    probability: float
    by: str = Field(description="person; model, which predicted it again; first, where it did not.")
    first: str = Field(description="The first prediction.")
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
            accepted_above=None if accepted is None else accepted.value["above"],
        )


class Accept(s.Input):
    """Predictions of one class to accept."""

    label: Annotated[str, Field(min_length=1, max_length=200)]
    above: Annotated[float, Field(ge=0, le=1, description="Those at least so probable.")]
    ids: Annotated[list[int], Field(min_length=1, max_length=100_000)]


class Accepted(BaseModel):
    accepted: int


class More(s.Input):
    questions: Annotated[int, Field(ge=1, le=10_000)]


@router.get("/review")
def review(stream: str, state: Here) -> list[Reviewed]:
    """The current label of every image, the least sure first."""
    found = sorted(beliefs_of(state.service, stream), key=lambda each: (each.probability, each.row.id))
    return [Reviewed.of(each) for each in found]


@router.get("/predictions/{id}/alike")
def alike(stream: str, id: Id, state: Here) -> AlikeImages:
    """The nearest images without an answer that are predicted as the same class, to be labelled at once."""
    return state.service.send(stream, partial(alike_to, id=id)).result()


@router.post("/accept")
def accept_predictions(stream: str, body: Accept, state: Here, token: Annotator) -> Accepted:
    """Accept predictions; refused where one of them has changed."""
    ids, label = set(body.ids), body.label
    found = beliefs_of(state.service, stream)
    same = {each.row.id for each in found if each.label == label and each.by != "person"}
    if not ids <= same:
        raise ConflictError(
            f"{len(ids - same)} of these images are no longer predicted as {label!r}; look at them again."
        )
    act = partial(accept, label=label, above=body.above, ids=sorted(ids), who=token.name)
    state.service.send(stream, act).result()
    return Accepted(accepted=len(ids))


@router.get("/folder")
def folder_status(folder: OfFolder) -> FolderStatus:
    """How far the labelling of a folder is (`taps label`)."""
    return folder.status()


@router.post("/folder/questions")
def ask_more(body: More, folder: OfFolder) -> FolderStatus:
    """Ask so many questions more."""
    folder.more(body.questions)
    return folder.status()
