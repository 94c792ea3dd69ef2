"""The configuration in a run folder: models that the run itself made are named relative to the folder."""

from pathlib import Path
from typing import Any

from trans_encoder.config import RunConfig
from trans_encoder.runs.layout import Layout
from trans_encoder.runs.run import Run


def settings_of(config: RunConfig, folder: Path) -> dict[str, Any]:
    """Return a configuration as a run folder keeps it: models in the folder itself are named from there."""
    settings = config.model_dump(mode="json")
    for member in settings["members"]:
        place = Path(member["bi"])
        if place.is_relative_to(folder):
            member["bi"] = place.relative_to(folder).as_posix()
    return settings


def config_of(folder: Path) -> RunConfig:
    """Read the configuration that a run folder keeps."""
    config = RunConfig.model_validate(Run.open(folder).config)
    layout = Layout(folder)
    members = (
        member.model_copy(update={"bi": str(folder / member.bi)}) if layout.is_from_text(member.bi) else member
        for member in config.members
    )
    return config.model_copy(update={"members": tuple(members)})
