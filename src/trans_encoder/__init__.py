"""trans-encoder: a bi-encoder and a cross-encoder that teach each other, from unlabelled text.

The public names are loaded when they are first used, so that `import trans_encoder` and the command line start fast.
"""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trans_encoder.answers.audit import Audit
    from trans_encoder.answers.duplicates import find_duplicates
    from trans_encoder.answers.found import Duplicates
    from trans_encoder.answers.index import Index, build_index
    from trans_encoder.config import MemberConfig, RunConfig, TeacherConfig, load_config
    from trans_encoder.data import Corpus, PairSet, Task, TestSet, Text, load_task
    from trans_encoder.demo.run import run_demo
    from trans_encoder.distill.bootstrap import bootstrap
    from trans_encoder.distill.labels import PseudoLabels, label
    from trans_encoder.distill.run import Result
    from trans_encoder.encoders import BiEncoder, CrossEncoder, load_encoder
    from trans_encoder.errors import ConfigurationError, DataError, MissingExtraError, RunError, TransEncoderError
    from trans_encoder.evaluation.evaluate import Evaluation, evaluate
    from trans_encoder.evaluation.probe import ProbeResult, probe
    from trans_encoder.exporting import export
    from trans_encoder.mining.mine import mine
    from trans_encoder.paper.experiment import experiment
    from trans_encoder.pipelines.distil import distil
    from trans_encoder.pipelines.ensemble import ensemble_run
    from trans_encoder.pipelines.learn import learn
    from trans_encoder.pipelines.planning import plan_run
    from trans_encoder.report import write_report
    from trans_encoder.serve import serve_index

__version__ = version("trans-encoder")

_HOMES = {
    "Audit": "answers.audit",
    "BiEncoder": "encoders",
    "ConfigurationError": "errors",
    "Corpus": "data.corpus",
    "CrossEncoder": "encoders",
    "DataError": "errors",
    "Duplicates": "answers.found",
    "Evaluation": "evaluation.evaluate",
    "Index": "answers.index",
    "MemberConfig": "config",
    "MissingExtraError": "errors",
    "PairSet": "data.pairs",
    "ProbeResult": "evaluation.probe",
    "PseudoLabels": "distill.labels",
    "Result": "distill.run",
    "RunConfig": "config",
    "RunError": "errors",
    "Task": "data.tasks",
    "TeacherConfig": "config",
    "TestSet": "data.tasks",
    "Text": "data.text",
    "TransEncoderError": "errors",
    "bootstrap": "distill.bootstrap",
    "build_index": "answers.index",
    "distil": "pipelines.distil",
    "ensemble_run": "pipelines.ensemble",
    "evaluate": "evaluation.evaluate",
    "experiment": "paper.experiment",
    "export": "exporting",
    "find_duplicates": "answers.duplicates",
    "label": "distill.labels",
    "learn": "pipelines.learn",
    "load_config": "config",
    "load_encoder": "encoders",
    "load_task": "data.tasks",
    "mine": "mining",
    "plan_run": "pipelines.planning",
    "probe": "evaluation.probe",
    "run_demo": "demo.run",
    "serve_index": "serve",
    "write_report": "report",
}

__all__ = [
    "Audit",
    "BiEncoder",
    "ConfigurationError",
    "Corpus",
    "CrossEncoder",
    "DataError",
    "Duplicates",
    "Evaluation",
    "Index",
    "MemberConfig",
    "MissingExtraError",
    "PairSet",
    "ProbeResult",
    "PseudoLabels",
    "Result",
    "RunConfig",
    "RunError",
    "Task",
    "TeacherConfig",
    "TestSet",
    "Text",
    "TransEncoderError",
    "bootstrap",
    "build_index",
    "distil",
    "ensemble_run",
    "evaluate",
    "experiment",
    "export",
    "find_duplicates",
    "label",
    "learn",
    "load_config",
    "load_encoder",
    "load_task",
    "mine",
    "plan_run",
    "probe",
    "run_demo",
    "serve_index",
    "write_report",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
