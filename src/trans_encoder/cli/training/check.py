"""`trans-encoder check`: validate everything a run needs, print its plan and a time estimate, train nothing."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rich.table import Table

from trans_encoder.cli.groups import JobOptions
from trans_encoder.cli.output import Shown, print_result
from trans_encoder.progress import duration, show_progress

if TYPE_CHECKING:
    from trans_encoder.cli.jobs import Job
    from trans_encoder.pipelines.planning import Plan, PlannedStage


def check(options: JobOptions) -> None:
    """Check what `train` would be given: files, models, settings; print the plan and how long it would take.

    Takes the same arguments as `train`, of which `--out` may be left out. The time is measured on a few batches;
    nothing is trained or written.

    Example: `trans-encoder check run.toml`
    """
    from trans_encoder.cli.jobs import placeholder_pairs, read_job
    from trans_encoder.data import Text
    from trans_encoder.distill.judges import DevJudge
    from trans_encoder.distill.run import is_begun
    from trans_encoder.pipelines.from_text import is_begun as is_begun_from_text
    from trans_encoder.pipelines.planning import plan_run

    with show_progress():
        job = read_job(options)
        if isinstance(job.source, Text):
            text, pairs = job.source, placeholder_pairs(job.source, count=job.count)
            begun = job.out is not None and is_begun_from_text(job.config, out=job.out)
        else:
            text, pairs = None, job.source
            judge = DevJudge(job.dev) if job.dev else None
            begun = job.out is not None and is_begun(job.config, pairs, out=job.out, judge=judge)
        remined = text if job.mining.remine else None
        plan = plan_run(job.config, pairs, dev=job.dev, remined=remined, mix=job.mining.mix)
    if text is not None:
        untimed = "the time before the cycles is not counted: mining, and tuning where a model needs it"
        plan = replace(plan, notes=(*plan.notes, untimed))
    print_result(_as_dict(job, plan, begun=begun), as_json=options.json, shown=_shown(job, plan, begun=begun))


def _as_dict(job: "Job", plan: "Plan", *, begun: bool) -> dict[str, Any]:
    return {
        "pairs": {"source": job.origin, "count": job.count},
        "dev": {"name": job.dev.name, "count": len(job.dev.pairs), "metric": job.dev.metric} if job.dev else None,
        "tests": {name: len(test.pairs) for name, test in job.tests.items()},
        "out": job.out,
        "begun": begun,
        "config": plan.config,
        "notes": plan.notes,
        "stages": plan.stages,
        "lengths": plan.lengths,
        "seconds": plan.seconds,
    }


def _shown(job: "Job", plan: "Plan", *, begun: bool) -> Shown:
    config = plan.config
    cycles = f"{config.cycles} cycle{'' if config.cycles == 1 else 's'}"
    table = Table("member", "each cycle", title_justify="left", caption_justify="left")
    table.add_column("pairs", justify="right")
    table.add_column("steps", justify="right")
    table.add_column("time", justify="right")
    for stage in plan.stages:
        steps = f"{stage.steps:,}" if stage.steps else ""
        name = stage.name + _when(stage, cycles=config.cycles)
        table.add_row(stage.member, name, f"{stage.pairs:,}", steps, duration(stage.seconds))
    facts = [
        f"{job.count:,} pairs from {job.origin}",
        f"Up to {cycles}, preset {config.preset}, strategy {config.strategy}; {_choice(job)}",
        *(
            f"{member.name}: bi-encoder {member.bi}" + (f", cross-encoder from {member.plm}" if member.plm else "")
            for member in config.members
        ),
        *(f"Lengths: {length}" for length in plan.lengths),
        *(f"Note: {note}" for note in plan.notes),
    ]
    if job.out is not None:
        facts.append(f"Run folder: {job.out}" + (" (begun already: the run would continue)" if begun else ""))
    return [*facts, table, f"Everything is in order. About {duration(plan.seconds)} for {cycles}."]


def _when(stage: "PlannedStage", *, cycles: int) -> str:
    """Say in which cycles something is done, if not in all."""
    if stage.first > 1:
        return f", from cycle {stage.first} on"
    return "" if stage.cycles == cycles else ", once"


def _choice(job: "Job") -> str:
    """Say what chooses the models."""
    if job.dev is not None:
        return f"checkpoints chosen by {job.dev.metric} on {len(job.dev.pairs):,} pairs of {job.dev.name}"
    compared = "; cycles compared without labels, on held-out pairs" if job.config.selection == "label-free" else ""
    return f"the last checkpoints are kept{compared}"
