"""Texts of twelve scripts, and parameters of tokenizers, for comparisons with pylance."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import random

SCRIPTS: Final = {
    "Latin": (
        "The Running cats' naïve façade, œuvre & Straße; coöperate: don't e-mail x_y v2.0",
        "Größe Čeština ñandú İstanbul",
    ),
    "Cyrillic": ("Быстрая коричневая лиса прыгает", "Привет, ёжик! Українська мова"),
    "Greek": ("Η γρήγορη καφέ αλεπού", "Ελληνικά γλώσσα και ΟΔΥΣΣΕΥΣ"),
    "Arabic": ("الثعلب البني السريع يقفز", "مرحبا بالعالم، كتاب"),
    "Hebrew": ("השועל החום המהיר", "שָׁלוֹם עולם"),
    "Devanagari": ("तेज भूरी लोमड़ी", "नमस्ते दुनिया क्षत्रिय"),
    "Tamil": ("விரைவான பழுப்பு நரி", "வணக்கம் உலகம்"),
    "Thai": ("สุนัขจิ้งจอกสีน้ำตาล", "สวัสดีชาวโลก ภาษาไทย"),
    "Han": ("敏捷的棕色狐狸跳过懒狗", "你好，世界！中文分詞"),
    "Kana": ("すばやい茶色の狐", "こんにちは世界カタカナ語"),
    "Hangul": ("빠른 갈색 여우가", "안녕하세요 세계 한국어"),
    "Georgian": ("სწრაფი ყავისფერი მელა", "გამარჯობა მსოფლიო"),
}
ODD: Final = (
    "",
    " ",
    "a" * 45,
    "b" * 39,
    "c" * 40,
    "ﬁne ﬀ Ⅻ ½ ①",
    "a\u0301e\u0301 Å Å",
    "🦊 fox👍🏽",
    "getUserName2HTTP snake_case a::b==c",
    "\x00 nul\x00l",
    "1,000.5 3.14e-10",
)

PARAMETERS: Final[tuple[dict[str, Any], ...]] = (
    {},
    {"stem": False},
    {"remove_stop_words": False},
    {"lower_case": False},
    {"ascii_folding": False},
    {"max_token_length": None},
    {"max_token_length": 4},
    {"custom_stop_words": ["cat", "狐狸", "run"]},
    {"base_tokenizer": "whitespace"},
    {"base_tokenizer": "whitespace", "stem": False, "remove_stop_words": False, "ascii_folding": False},
    {"base_tokenizer": "raw"},
    {"base_tokenizer": "raw", "max_token_length": None, "lower_case": False},
    {"base_tokenizer": "ngram"},
    {"base_tokenizer": "ngram", "min_ngram_length": 1, "max_ngram_length": 4, "prefix_only": True},
    {"base_tokenizer": "ngram", "min_ngram_length": 2, "max_ngram_length": 2, "stem": True},
    {"base_tokenizer": "icu"},
    {"base_tokenizer": "icu/split"},
    {"base_tokenizer": "icu", "stem": False, "remove_stop_words": False, "ascii_folding": False},
    {"analyzer": "code"},
    {"analyzer": "code", "split_identifiers": True, "index_operators": True},
    {"analyzer": "code", "split_identifiers": True, "split_on_numerics": False, "preserve_original": False},
    {"analyzer": "code", "stem": True, "remove_stop_words": True},
    *(
        {"language": language}
        for language in (
            "Arabic", "Danish", "Dutch", "Finnish", "French", "German", "Greek", "Hungarian", "Italian", "Norwegian",
            "Portuguese", "Romanian", "Russian", "Spanish", "Swedish", "Tamil", "Turkish",
        )
    ),
)  # fmt: skip


def all_texts() -> list[str]:
    """The texts of all scripts, and odd ones."""
    return [*(text for texts in SCRIPTS.values() for text in texts), *ODD]


def random_text(rng: random.Random) -> str:
    """A text of random words and characters of some scripts."""
    words = []
    for _ in range(rng.randint(1, 12)):
        source = rng.choice(rng.choice([*SCRIPTS.values(), ODD]))
        start = rng.randint(0, max(len(source) - 1, 0))
        words.append(source[start : start + rng.randint(1, 14)])
    return rng.choice((" ", "", "-", "_", "、", ". ")).join(words)
