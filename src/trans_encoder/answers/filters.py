"""Filters on the columns of an index: `status == "open" and year >= 2020`, read safely, answered by Arrow."""

import ast
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from trans_encoder.errors import ConfigurationError

_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: pc.equal,
    ast.NotEq: pc.not_equal,
    ast.Lt: pc.less,
    ast.LtE: pc.less_equal,
    ast.Gt: pc.greater,
    ast.GtE: pc.greater_equal,
}
_SHOWN = 200
_HELP = (
    'write conditions such as status == "open" and year >= 2020, language in ["en", "de"], not (priority < 3); '
    'a column whose name is not a plain word is col("its name")'
)


def matching(table: pa.Table, condition: str) -> npt.NDArray[np.bool_]:
    """Tell for each row whether it meets a condition; a missing value meets none."""
    shown = condition if len(condition) <= _SHOWN else f"{condition[:_SHOWN]}..."  # as messages quote it
    try:
        with warnings.catch_warnings(action="ignore"):
            tree = ast.parse(condition.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ConfigurationError(f"the filter {shown!r} cannot be read; {_HELP}") from None
    try:
        flags = _evaluate(tree, table, shown)
    except (pa.ArrowException, TypeError, ValueError, OverflowError, RecursionError) as error:  # 80-bit numbers
        raise ConfigurationError(f"the filter {shown!r} cannot be answered: {error}; {_HELP}") from error
    return np.asarray(pc.fill_null(flags, False).to_numpy(zero_copy_only=False), dtype=bool)


def _evaluate(node: ast.expr, table: pa.Table, condition: str) -> Any:
    match node:
        case ast.BoolOp(op=operator, values=values):
            join = pc.and_ if isinstance(operator, ast.And) else pc.or_
            found = [pc.fill_null(_evaluate(value, table, condition), False) for value in values]
            flags = found[0]
            for other in found[1:]:
                flags = join(flags, other)
            return flags
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return pc.invert(_evaluate(operand, table, condition))
        case ast.Compare(left=left, ops=[operator], comparators=[right]):
            column = _column(left, table, condition)
            return _compared(column, operator, _constant(right, condition), condition)
    raise ConfigurationError(f"the filter {condition!r} cannot be used; {_HELP}")


def _compared(column: Any, operator: ast.cmpop, value: Any, condition: str) -> Any:
    if isinstance(operator, ast.In | ast.NotIn):
        if not isinstance(value, list):
            raise ConfigurationError(f"the filter {condition!r}: `in` needs a list, such as ['a', 'b']; {_HELP}")
        values = [_as_typed(column, one)[1] for one in value]
        found = pc.is_in(_as_typed(column, value[0])[0] if value else column, value_set=pa.array(values))
        return found if isinstance(operator, ast.In) else pc.invert(found)
    if type(operator) not in _COMPARE or isinstance(value, list):
        raise ConfigurationError(f"the filter {condition!r} cannot be used; {_HELP}")
    left, right = _as_typed(column, value)
    return _COMPARE[type(operator)](left, right)


def _as_typed(column: Any, value: Any) -> tuple[Any, Any]:
    """Bring a column and a value to one type: a CSV file's numbers are texts, and a number may be compared with one."""
    is_text = pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
    if is_text and isinstance(value, int | float) and not isinstance(value, bool):
        return column.cast(pa.float64()), float(value)
    return column, value


def _column(node: ast.expr, table: pa.Table, condition: str) -> Any:
    match node:
        case ast.Name(id=name):
            pass
        case ast.Call(func=ast.Name(id="col"), args=[ast.Constant(value=str(name))], keywords=[]):
            pass
        case _:
            raise ConfigurationError(f"the filter {condition!r}: expected a column before the comparison; {_HELP}")
    if name not in table.column_names:
        known = ", ".join(repr(column[:40]) for column in table.column_names[:12])
        raise ConfigurationError(f"the filter {condition!r} names the column {name[:40]!r}; the index has: {known}")
    return table[name]


def _constant(node: ast.expr, condition: str) -> Any:
    try:
        value = ast.literal_eval(node)
    except (ValueError, TypeError, MemoryError, RecursionError):
        value = None
    if isinstance(value, tuple | set):
        value = list(value)
    if not isinstance(value, str | int | float | bool | list):
        raise ConfigurationError(
            f"the filter {condition!r}: expected a text, a number or a list to compare with; {_HELP}"
        )
    return value
