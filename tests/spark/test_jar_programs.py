"""Random programs over a table of the JAR's catalog and the same over DuckDB: equal rows after each statement.

Names come in upper and in lower case. Not drawn is what both compute differently, by the list `DIFFERENCES`.
`LANCE_IO_SPARK_PROGRAMS` says how many programs there are.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any, Final

import duckdb
import lance
import pytest
from pyspark.errors import PySparkException

import lance_io.spark
from tests.seeds import seed_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(900)

NUM_PROGRAMS: Final = int(os.environ.get("LANCE_IO_SPARK_PROGRAMS", "2"))
NUM_STATEMENTS: Final = 10
WORDS: Final = ("a", "B", "ab", "", "Zz", "x%", "it''s", "ä")
# An expression, or one for each, and its value in Spark and in DuckDB; an error is its class or a word of it.
DIFFERENCES: Final = {
    "NaN from a quotient": ("0.0D / 0.0D", "0.0::double / 0.0::double", "DIVIDE_BY_ZERO", "nan"),
    "division by zero": ("1 / 0", "1 / 0", "DIVIDE_BY_ZERO", "inf"),
    "case beyond ASCII": ("upper('ß')", "upper('ß')", "'SS'", "'ẞ'"),
    "decimals divided": (
        "cast(1 as decimal(9,2)) / cast(3 as decimal(9,2))",
        "cast(1 as decimal(9,2)) / cast(3 as decimal(9,2))",
        "Decimal('0.3333333333",
        "0.3333333333333333",
    ),
    "numbers cut": ("cast(1.5D as int)", "cast(1.5::double as int)", "1", "2"),
    "texts joined to null": ("concat('a', null)", "concat('a', null)", "None", "'a'"),
    "escapes of LIKE": ("'x%' like 'x\\\\%'", "'x%' like 'x\\%'", "True", "False"),
}


@dataclass
class Program:
    """Draws statements for the table `t`; each as Spark and DuckDB write it.

    columns  types by name, as the table has them now
    members  of the column `s`
    """

    random: Random
    columns: dict[str, str] = field(
        default_factory=lambda: {"id": "bigint", "n": "int", "w": "text", "p": "decimal(9,2)", "s": "struct"}
    )
    members: dict[str, str] = field(default_factory=lambda: {"a": "int", "b": "text"})
    num_added: int = 0

    def create(self) -> tuple[str, str]:
        """The first statement."""
        stable = self.random.choice(("true", "false"))
        columns = "id bigint, n int, w {text}, p decimal(9,2), s {struct}"
        spark = columns.format(text="string", struct="struct<a: int, b: string>")
        duck = columns.format(text="varchar", struct="struct(a int, b varchar)")
        properties = f"tblproperties ('lance.enable_stable_row_ids' = '{stable}')"
        return f"create table programs.{{t}} ({spark}) {properties}", f"create table {{t}} ({duck})"

    def statement(self) -> tuple[str, str | None]:
        """Some statement."""
        draw = self.random.choice
        kind = draw((self.insert, self.insert, self.copy, self.delete, self.update, self.merge, self.merge, self.alter))
        return ("call programs.system.compact('{t}')", None) if self.random.random() < 0.1 else kind()

    # -- values --------------------------------------------------------------------------------------------------------

    def value(self, dtype: str) -> tuple[str, str]:
        """A literal of a type, in both languages."""
        random = self.random
        if random.random() < 0.15:
            return "null", "null"
        if dtype == "text":
            word = random.choice(WORDS)
            return "'" + word.replace("''", "\\'") + "'", f"'{word}'"
        if dtype == "struct":
            values = {name: self.value(own) for name, own in self.members.items()}
            spark = ", ".join(f"'{name}', {own}" for name, (own, _) in values.items())
            duck = ", ".join(f"'{name}': {own}" for name, (_, own) in values.items())
            return f"named_struct({spark})", f"{{{{{duck}}}}}"
        if dtype.startswith("decimal"):
            text = f"cast({random.randrange(-999, 999)}.{random.randrange(100):02} as {dtype})"
            return text, text
        text = str(random.randrange(12))
        return text, text

    def predicate(self, alias: str = "", depth: int = 0) -> str:
        """A condition that both languages write alike."""
        random = self.random
        if depth < 2 and random.random() < 0.4:
            left, right = self.predicate(alias, depth + 1), self.predicate(alias, depth + 1)
            return random.choice((f"({left} and {right})", f"({left} or {right})", f"(not {left})"))
        types = {name: dtype for name, dtype in self.columns.items() if dtype != "struct"}
        types |= {f"s.{name}": dtype for name, dtype in self.members.items()}
        name = random.choice([*types])
        dtype, column = types[name], f"{alias}{self.cased(name)}"
        if random.random() < 0.15:
            return f"{column} is {random.choice(('', 'not '))}null"
        if dtype == "text":
            return random.choice(
                (f"{column} like 'a%'", f"{column} = 'B'", f"{column} in ('', 'ab')", f"{column} < 'b'")
            )
        if random.random() < 0.2:
            return f"{column} in (1, 2, {random.randrange(12)})"
        return f"{column} {random.choice(('=', '<>', '<', '>=', '>'))} {random.randrange(12)}"

    def cased(self, name: str) -> str:
        """The name, sometimes in upper case: it is the same column."""
        return name.upper() if self.random.random() < 0.2 else name

    def rows(self, ids: list[int | None], names: list[str]) -> tuple[str, str]:
        """VALUES of some columns, the first of which is `id`."""
        both: list[list[str]] = [[], []]
        for id in ids:
            values = [self.value(self.columns[name]) for name in names[1:]]
            for texts, own in zip(both, zip(*values, strict=True) if values else ((), ()), strict=True):
                texts.append("(" + ", ".join(["null" if id is None else str(id), *own]) + ")")
        return ", ".join(both[0]), ", ".join(both[1])

    # -- statements ----------------------------------------------------------------------------------------------------

    def insert(self) -> tuple[str, str]:
        ids = [self.random.choice((*range(12), None)) for _ in range(self.random.randrange(1, 6))]
        spark, duck = self.rows(ids, list(self.columns))
        return f"insert into programs.{{t}} values {spark}", f"insert into {{t}} values {duck}"

    def copy(self) -> tuple[str, str]:
        names = ", ".join(["id + 5", *[name for name in self.columns if name != "id"]])
        query = f"select {names} from {{table}} where {self.predicate()}"
        return (
            "insert into programs.{t} " + query.replace("{table}", "programs.{t}"),
            "insert into {t} " + query.replace("{table}", "{t}"),
        )

    def delete(self) -> tuple[str, str]:
        where = self.predicate()
        return f"delete from programs.{{t}} where {where}", f"delete from {{t}} where {where}"

    def assignments(self, alias: str = "") -> tuple[str, str]:
        names = self.random.sample([name for name in self.columns if name != "id"], self.random.randrange(1, 3))
        values = [self.value(self.columns[name]) for name in names]
        if "n" in names and self.random.random() < 0.5:
            values[names.index("n")] = (f"{alias}n % 5 + 1",) * 2
        if "w" in names and self.random.random() < 0.5:
            values[names.index("w")] = (self.random.choice(("upper", "lower")) + f"({alias}w)",) * 2
        names = [self.cased(name) for name in names]
        pairs = [
            [f"{name} = {own}" for name, own in zip(names, texts, strict=True)] for texts in zip(*values, strict=True)
        ]
        return ", ".join(pairs[0]), ", ".join(pairs[1])

    def member(self) -> tuple[str, str]:
        """A new value of one member. DuckDB assigns whole structs."""
        name = self.random.choice([*self.members])
        spark, duck = self.value(self.members[name])
        whole = ", ".join(f"'{own}': {duck if own == name else f's.{own}'}" for own in self.members)
        return f"s.{name} = {spark}", f"s = {{{{{whole}}}}}"

    def update(self) -> tuple[str, str]:
        (spark, duck), where = self.assignments(), self.predicate()
        if self.random.random() < 0.25:
            spark, duck = self.member()
        return f"update programs.{{t}} set {spark} where {where}", f"update {{t}} set {duck} where {where}"

    def merge(self) -> tuple[str, str]:
        random = self.random
        names = ["id", *random.sample([name for name in self.columns if name != "id"], 2)]
        rows = self.rows(random.sample(range(14), random.randrange(1, 6)), names)
        shown = ", ".join(names)
        heads = (
            f"merge into programs.{{t}} o using (select * from values {rows[0]} as v({shown})) s on o.id = s.id",
            f"merge into {{t}} as o using (select * from (values {rows[1]}) v({shown})) s on o.id = s.id",
        )
        both = [[head] for head in heads]

        def add(clause: str, spark: str = "", duck: str = "") -> None:
            both[0].append(clause.replace("{set}", spark))
            both[1].append(clause.replace("{set}", duck))

        sets = ", ".join(f"{name} = s.{name}" for name in names[1:])
        if random.random() < 0.4:
            add(f"when matched and {self.predicate('o.')} then delete")
        if random.random() < 0.8:
            add(f"when matched then update set {sets}")
        if random.random() < 0.4:
            add("when not matched and s.id % 2 = 0 then insert (id) values (s.id)")
        if random.random() < 0.8 or len(both[0]) == 1:
            columns = ", ".join(names)
            add(f"when not matched then insert ({columns}) values ({', '.join(f's.{name}' for name in names)})")
        if random.random() < 0.3:
            add(f"when not matched by source and {self.predicate('o.')} then delete")
        if random.random() < 0.3:
            spark, duck = self.assignments("o.")
            add(f"when not matched by source and {self.predicate('o.')} then update set {{set}}", spark, duck)
        return " ".join(both[0]), " ".join(both[1])

    def alter(self) -> tuple[str, str]:
        """A column, or a member of `s`, is added, dropped, renamed or, if it is a column, made wider."""
        prefix, types = self.random.choice((("", self.columns), ("", self.columns), ("s.", self.members)))
        own = [name for name in types if name.startswith("x")]
        choice = self.random.randrange(3 if prefix else 4) if own else 0
        new = f"x{self.num_added}"
        if choice == 0:
            self.num_added += 1
            text = f"add column {prefix}{new} int"
            types[new] = "int"
        elif choice == 1:
            text = f"drop column {prefix}{own[0]}"
            del types[own[0]]
        elif choice == 2:
            self.num_added += 1
            text = f"rename column {prefix}{own[0]} to {new}"
            renamed = {(new if name == own[0] else name): dtype for name, dtype in types.items()}
            types.clear()
            types.update(renamed)
        else:
            text = f"alter column {own[0]} type bigint"
            types[own[0]] = "bigint"
        return f"alter table programs.{{t}} {text}", f"alter table {{t}} {text}"


def comparable(rows: list[tuple[Any, ...]]) -> list[str]:
    return sorted(map(repr, rows))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Path:
    """The folder of the catalog `programs`. A session keeps a catalog under its name."""
    path = tmp_path_factory.mktemp("programs")
    lance_io.spark.enable(spark, catalog="programs", path=str(path))
    return path


def test_the_list_of_differences_is_true(spark: SparkSession) -> None:
    peer = duckdb.connect()

    def shown(query: Callable[[], Any]) -> str:
        try:
            return repr(query())
        except (PySparkException, duckdb.Error) as error:
            return str(error)

    for what, (ours, theirs, in_spark, in_duckdb) in DIFFERENCES.items():
        assert in_spark in shown(lambda text=ours: spark.sql(f"select {text}").collect()[0][0]), what
        assert in_duckdb in shown(lambda text=theirs: peer.execute(f"select {text}").fetchall()[0][0]), what


@pytest.mark.parametrize("number", range(NUM_PROGRAMS))
def test_programs_give_the_rows_of_duckdb(spark: SparkSession, folder: Path, number: int) -> None:
    program = Program(Random(seed_of(f"spark program {number}")))
    table, peer = f"t{number}", duckdb.connect()
    history = [program.create()]
    history += [program.insert() for _ in range(2)]
    history += [("", "")] * NUM_STATEMENTS
    for position, (ours, theirs) in enumerate(history):
        ours, theirs = (ours, theirs) if ours else program.statement()
        history[position] = (ours, theirs)
        spark.sql(ours.replace("{t}", table).replace("{{", "{").replace("}}", "}")).collect()
        if theirs is not None:
            peer.execute(theirs.replace("{t}", table).replace("{{", "{").replace("}}", "}"))
        data = lance.dataset(str(folder / f"{table}.lance"))
        mine = [tuple(row.values()) for row in data.to_table().to_pylist()]
        others = peer.execute(f"select * from {table}").fetchall()
        assert comparable(mine) == comparable(others), history[: position + 1]
        data.validate()
    names = ", ".join(program.columns)
    read = [
        tuple(row.asDict(recursive=True).values())
        for row in spark.sql(f"select {names} from programs.{table}").collect()
    ]
    assert comparable(read) == comparable(mine)
