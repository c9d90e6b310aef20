"""Texts of nineteen kinds, any number of them, made column by column: a million take seconds.

Most have a frame that repeats, and numbers, words or noise within it. A kind's texts depend on nothing but its name,
the seed and their number.
"""

from __future__ import annotations

import zlib
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

Dice: TypeAlias = np.random.Generator
MakeTexts: TypeAlias = "Callable[[Dice, int], pa.Array]"

VOCABULARY: Final = (
    "the of and to in is that for it as was with on be by at this from are or an which you not have had they one "
    "but time people year way day thing man world life hand part child eye woman place work week case point "
    "government company number group problem fact river mountain harbour winter summer morning evening garden "
    "window bridge market letter paper music colour silver copper engine railway station captain soldier doctor "
    "teacher farmer painter small large early young important public private national political economic possible "
    "certain different general natural said made found gave told asked worked seemed felt tried left called "
    "became remained carried followed wandered"
).split()
FIRST_NAMES: Final = (
    "Anna Bruno Carla David Elena Felix Greta Hugo Irene Jonas Karin Louis Maria Niklas Olga Pavel Quentin Rosa "
    "Simon Teresa Ulrich Vera Walter Xenia Yusuf Zoe Amara Bilal Chen Dmitri Emeka Fatima Gabriel Hiroshi Ingrid "
    "Jamal Kofi"
).split()
LAST_NAMES: Final = (
    "Smith Johnson Williams Brown Jones Garcia Miller Davis Rodriguez Martinez Hernandez Lopez Gonzalez Wilson "
    "Anderson Thomas Taylor Moore Jackson Martin Schneider Fischer Weber Meyer Wagner Becker Hoffmann Novak "
    "Kowalski Nguyen Tanaka Suzuki Watanabe Ivanov Petrov Okafor Mensah Haddad Khan Singh Patel Rossi Bianchi "
    "Dubois Laurent Silva Santos"
).split()
SITES: Final = "shop news wiki photos maps travel cooking garden cinema music books science weather sports".split()
COUNTRIES: Final = "com org net de fr it co.uk io eu".split()
SERVICES: Final = "orders payments search login mailer catalogue stock billing".split()
LEVELS: Final = "INFO INFO INFO INFO DEBUG WARN ERROR".split()
SCRIPTS: Final = (
    "東京 大阪 北京 上海 서울 부산 Москва Киев Αθήνα القاهرة תל-אביב दिल्ली मुंबई กรุงเทพ München Zürich São-Paulo "
    "København Łódź Malmö İzmir Reykjavík naïve café 🙂 🚀 price größer straße niño élève 猫 犬 鳥 花 山 川 空 海"
).split()
CODE_LINES: Final = (
    "def {a}(self, {b}: int) -> {c}:",
    "    return self._{a}.{b}({c})",
    "    if {a} is None or not {b}:",
    "        raise ValueError(f'{a}: expected {b}, found {{{c}}}')",
    "    for {a} in range({n}):",
    "        {a}[{n}] = {b} + {c}",
    "import {a}.{b} as {c}",
    "    assert {a} == {n}, {b}",
    "        self.{a} = {b}({c}, {n})",
    "    # {a} of the {b} before its {c}",
    "    with open({a}, encoding='utf-8') as {b}:",
    "class {a}({b}):",
)


# -- parts ------------------------------------------------------------------------------------------------------------


def _joined(parts: Iterable[Any], separator: str = "") -> pa.Array:
    return pc.binary_join_element_wise(*parts, separator)


def _digits(numbers: Any, width: int = 0) -> pa.Array:
    """Numbers as text, with leading zeros up to `width`."""
    text = pa.array(numbers).cast(pa.string())
    return pc.utf8_lpad(text, width, "0") if width else text


def _below(dice: Dice, num_values: int, limit: int, width: int = 0) -> pa.Array:
    return _digits(dice.integers(0, limit, num_values), width)


def _one_of(dice: Dice, num_values: int, items: Iterable[str]) -> pa.Array:
    known = pa.array(list(items))
    return known.take(dice.integers(0, len(known), num_values))


def _letters(dice: Dice, num_values: int, width: int, alphabet: bytes) -> pa.Array:
    """Texts of `width` random letters."""
    letters = np.frombuffer(alphabet, np.uint8)[dice.integers(0, len(alphabet), num_values * width)]
    ends = np.arange(num_values + 1) * width
    large = pa.LargeStringArray.from_buffers(num_values, pa.py_buffer(ends), pa.py_buffer(letters))
    return large.cast(pa.string())


def _words(
    dice: Dice, num_values: int, lengths: Any, items: Iterable[str] = VOCABULARY, steep: float = 0.0
) -> pa.Array:
    """Sentences of so many words each; with `steep` the first of `items` come more often, as in Zipf's law."""
    known = pa.array(list(items))
    shares = 1 / np.arange(1, len(known) + 1) ** steep
    ends = np.concatenate([np.zeros(1, np.int32), np.cumsum(np.broadcast_to(lengths, num_values), dtype=np.int32)])
    picked = dice.choice(len(known), int(ends[-1]), p=shares / shares.sum())
    return pc.binary_join(pa.ListArray.from_arrays(ends, known.take(picked)), " ")


def _moments(dice: Dice, num_values: int, step_s: float) -> Any:
    seconds = 1_700_000_000 + np.cumsum(dice.exponential(step_s, num_values))
    return (seconds * 1000).astype(np.int64).view("datetime64[ms]")


def _stamps(moments: Any, form: str = "%Y-%m-%dT%H:%M:%S") -> pa.Array:
    return pc.strftime(pa.array(moments), format=form)


# -- kinds ------------------------------------------------------------------------------------------------------------


def _image_paths(dice: Dice, num_values: int) -> pa.Array:
    number = np.arange(num_values)
    return _joined(["/data/train/", _digits(number // 1000, 5), "/img_", _digits(number, 8), ".jpg"])


def _timestamps(dice: Dice, num_values: int) -> pa.Array:
    return _joined([_stamps(_moments(dice, num_values, 20.0)), "Z"])


def _keys(dice: Dice, num_values: int) -> pa.Array:
    return _joined(["user-", _digits(np.arange(num_values), 8), "-", _below(dice, num_values, 100, 2)])


def _urls(dice: Dice, num_values: int) -> pa.Array:
    site, country = _one_of(dice, num_values, SITES), _one_of(dice, num_values, COUNTRIES)
    folder, page = _one_of(dice, num_values, VOCABULARY), _one_of(dice, num_values, VOCABULARY)
    host = _joined(["https://www.", site, ".", country, "/"])
    return _joined(
        [host, folder, "/", page, "?id=", _below(dice, num_values, 10**6), "&page=", _below(dice, num_values, 20)]
    )


def _templates(dice: Dice, num_values: int) -> pa.Array:
    name, number = _one_of(dice, num_values, FIRST_NAMES), _below(dice, num_values, 10**6)
    place, days = _one_of(dice, num_values, SITES), _below(dice, num_values, 30)
    head = _joined(["Dear ", name, ", your order number ", number, " from our department ", place])
    return _joined([head, " has been shipped and will arrive within ", days, " days. Thank you for your purchase!"])


def _objects(dice: Dice, num_values: int) -> pa.Array:
    kind, name = _one_of(dice, num_values, SERVICES), _one_of(dice, num_values, FIRST_NAMES)
    head = _joined(['{"id": ', _digits(np.arange(num_values)), ', "type": "', kind, '", "user": {"name": "', name])
    score = _joined([_below(dice, num_values, 100), ".", _below(dice, num_values, 1000, 3)])
    active = _one_of(dice, num_values, ["true", "false"])
    return _joined(
        [head, '", "score": ', score, '}, "active": ', active, ', "tags": ["', _words(dice, num_values, 1), '"]}']
    )


def _documents(dice: Dice, num_values: int) -> pa.Array:
    """Of about 1,000 bytes."""
    parts: list[Any] = ['{"order": ', _below(dice, num_values, 10**9), ', "items": [']
    for number in range(8):
        sku, price = _letters(dice, num_values, 12, b"0123456789abcdef"), _below(dice, num_values, 10**5)
        parts += [', {"sku": "' if number else '{"sku": "', sku, '", "price": ', price, ', "note": "']
        parts += [_words(dice, num_values, dice.integers(6, 14, num_values)), '"}']
    return _joined([*parts, "]}"])


def _sentences(dice: Dice, num_values: int) -> pa.Array:
    words = _words(dice, num_values, dice.integers(6, 15, num_values), VOCABULARY[:60])
    return _joined([pc.utf8_capitalize(words), "."])


def _mails(dice: Dice, num_values: int) -> pa.Array:
    first, last = (
        pc.utf8_lower(_one_of(dice, num_values, FIRST_NAMES)),
        pc.utf8_lower(_one_of(dice, num_values, LAST_NAMES)),
    )
    host = _one_of(dice, num_values, ["gmail.com", "yahoo.com", "outlook.com", "example.org", "web.de", "mail.ru"])
    return _joined([first, ".", last, _below(dice, num_values, 100), "@", host])


def _log_lines(dice: Dice, num_values: int) -> pa.Array:
    when = _stamps(_moments(dice, num_values, 0.7))
    head = _joined([when, " ", _one_of(dice, num_values, LEVELS), " [", _one_of(dice, num_values, SERVICES), "-"])
    request = _letters(dice, num_values, 8, b"0123456789abcdef")
    tail = ["] request ", request, " from 10.", _below(dice, num_values, 256), ".", _below(dice, num_values, 256)]
    return _joined([head, _below(dice, num_values, 16), *tail, " took ", _below(dice, num_values, 3000), " ms"])


def _uuids(dice: Dice, num_values: int) -> pa.Array:
    return _joined([_letters(dice, num_values, width, b"0123456789abcdef") for width in (8, 4, 4, 4, 12)], "-")


def _decimals(dice: Dice, num_values: int) -> pa.Array:
    return _joined([_below(dice, num_values, 10**6), ".", _below(dice, num_values, 100, 2)])


def _names(dice: Dice, num_values: int) -> pa.Array:
    middle = _joined([_letters(dice, num_values, 1, b"ABCDEFGHJKLMNPRSTW"), "."])
    return _joined([_one_of(dice, num_values, FIRST_NAMES), middle, _one_of(dice, num_values, LAST_NAMES)], " ")


def _source_code(dice: Dice, num_values: int) -> pa.Array:
    lines: list[Any] = []
    for _ in range(6):
        names = [dice.integers(0, len(VOCABULARY), num_values) for _ in range(3)]
        forms = dice.integers(0, len(CODE_LINES), num_values)
        numbers = dice.integers(0, 100, num_values)
        rows = zip(forms.tolist(), numbers.tolist(), *(name.tolist() for name in names), strict=True)
        lines.append(
            pa.array(
                CODE_LINES[form].format(a=VOCABULARY[a], b=VOCABULARY[b], c=VOCABULARY[c], n=n)
                for form, n, a, b, c in rows
            )
        )
    return _joined(lines, "\n")


def _mixed_scripts(dice: Dice, num_values: int) -> pa.Array:
    return _words(dice, num_values, dice.integers(3, 9, num_values), SCRIPTS)


KINDS: Final[dict[str, MakeTexts]] = {
    "image-paths": _image_paths,
    "timestamps-as-text": _timestamps,
    "keys": _keys,
    "urls": _urls,
    "templates": _templates,
    "json-objects": _objects,
    "json-1k": _documents,
    "sentences": _sentences,
    "mails": _mails,
    "log-lines": _log_lines,
    "uuids": _uuids,
    "hex": partial(_letters, width=32, alphabet=b"0123456789abcdef"),
    "dna": partial(_letters, width=60, alphabet=b"ACGT"),
    "prose-8": partial(_words, lengths=8, steep=0.8),
    "prose-60": partial(_words, lengths=60, steep=0.8),
    "code": _source_code,
    "names": _names,
    "decimals-as-text": _decimals,
    "mixed-scripts": _mixed_scripts,
}


def texts(kind: str, num_values: int, seed: int = 0) -> pa.Array:
    """So many texts of a kind."""
    return KINDS[kind](np.random.default_rng([zlib.crc32(kind.encode()), seed]), num_values)
