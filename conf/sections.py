"""What the sections of the settings are made of: their base, and the kinds of values they hold."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

NotEmpty = Annotated[str, Field(min_length=1)]
Count = Annotated[int, Field(ge=1)]
CountOrNone = Annotated[int, Field(ge=0)]
Milliseconds = Annotated[int, Field(ge=0)]
Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Name = Annotated[
    str,
    Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$",
        description="a name of letters, digits, '-' and '_' that begins with a letter or digit",
    ),
]


class Section(BaseModel):
    """What all sections have in common: no unknown keys, exact types, no change after loading."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, hide_input_in_errors=True)
