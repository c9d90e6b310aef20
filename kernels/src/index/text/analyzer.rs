//! From texts to tokens: a base tokenizer and a chain of filters, of the crate that pylance's index is built with.

use super::json_tokens::Walk;
use crate::buffer::{Input, OwnedBuffer};
use crate::error::invalid;
use crate::gil;
use crate::room::{with_room, Grow};
use crate::sink::{too_long, Strings};
use crate::text::arguments::{checked_present, is_present, Arguments, Given, Held, Patience, Row, BYTES_PER_STEP};
use lance_tokenizer::{
    AsciiFoldingFilter, BoxTokenStream, CodeLexTokenizer, IcuTokenizer, Language, LowerCaser, NgramTokenizer,
    RawTokenizer, RemoveLongFilter, SimpleTokenizer, Stemmer, StopWordFilter, TextAnalyzer, TextAnalyzerBuilder,
    WhitespaceTokenizer, WordDelimiterFilter,
};
use pyo3::prelude::*;

/// The languages, by the names that details of an index have.
const LANGUAGES: [(&str, Language); 18] = [
    ("Arabic", Language::Arabic),
    ("Danish", Language::Danish),
    ("Dutch", Language::Dutch),
    ("English", Language::English),
    ("Finnish", Language::Finnish),
    ("French", Language::French),
    ("German", Language::German),
    ("Greek", Language::Greek),
    ("Hungarian", Language::Hungarian),
    ("Italian", Language::Italian),
    ("Norwegian", Language::Norwegian),
    ("Portuguese", Language::Portuguese),
    ("Romanian", Language::Romanian),
    ("Russian", Language::Russian),
    ("Spanish", Language::Spanish),
    ("Swedish", Language::Swedish),
    ("Tamil", Language::Tamil),
    ("Turkish", Language::Turkish),
];

/// `Analyzer` of `_kernels.pyi`.
#[pyclass(frozen, module = "lance_io._kernels")]
pub struct Analyzer {
    chain: TextAnalyzer,
    is_json: bool,
    /// Which letters make words, if the chain looks at each word by itself.
    words: Option<fn(char) -> bool>,
}

#[pymethods]
impl Analyzer {
    #[new]
    #[allow(clippy::too_many_arguments)]
    #[pyo3(signature = (base, *, is_json, language, length_limit_bytes, lower_case, stem, stop_words, custom_stop_words,
        ascii_folding, ngram_chars, prefix_only, split_identifiers, split_on_numerics, preserve_original, index_operators))]
    fn new(
        py: Python<'_>,
        base: &str,
        is_json: bool,
        language: &str,
        length_limit_bytes: Option<usize>,
        lower_case: bool,
        stem: bool,
        stop_words: bool,
        custom_stop_words: Option<Vec<String>>,
        ascii_folding: bool,
        ngram_chars: (usize, usize),
        prefix_only: bool,
        split_identifiers: bool,
        split_on_numerics: bool,
        preserve_original: bool,
        index_operators: bool,
    ) -> PyResult<Self> {
        let language = LANGUAGES.iter().find(|(name, _)| *name == language).map(|(_, language)| *language);
        let language = language.ok_or_else(|| invalid("no stemmer has this language"))?;
        py.detach(|| {
            let mut chain: TextAnalyzerBuilder = match base {
                "simple" => TextAnalyzer::builder(SimpleTokenizer::default()).dynamic(),
                "whitespace" => TextAnalyzer::builder(WhitespaceTokenizer::default()).dynamic(),
                "raw" => TextAnalyzer::builder(RawTokenizer::default()).dynamic(),
                "icu" => TextAnalyzer::builder(IcuTokenizer::default()).dynamic(),
                "icu/split" => TextAnalyzer::builder(IcuTokenizer::default().with_simple_split()).dynamic(),
                "code" => TextAnalyzer::builder(CodeLexTokenizer::new(index_operators)).dynamic(),
                "ngram" => {
                    let ngrams = NgramTokenizer::new(ngram_chars.0, ngram_chars.1, prefix_only);
                    TextAnalyzer::builder(ngrams.map_err(|error| invalid(error.to_string()))?).dynamic()
                }
                _ => return Err(invalid(format!("no base tokenizer is named {base}"))),
            };
            if split_identifiers {
                chain = chain.filter_dynamic(WordDelimiterFilter::new(preserve_original, split_on_numerics));
            }
            if let Some(limit) = length_limit_bytes {
                chain = chain.filter_dynamic(RemoveLongFilter::limit(limit));
            }
            if lower_case {
                chain = chain.filter_dynamic(LowerCaser);
            }
            if stem {
                chain = chain.filter_dynamic(Stemmer::new(language));
            }
            if stop_words {
                let words = match custom_stop_words {
                    Some(words) => Some(StopWordFilter::remove(words)),
                    None if base.starts_with("icu") => Some(StopWordFilter::all()), // it splits all languages
                    None => StopWordFilter::new(language),
                };
                chain = chain.filter_dynamic(words.ok_or_else(|| invalid("no stop words of this language"))?);
            }
            if ascii_folding {
                chain = chain.filter_dynamic(AsciiFoldingFilter);
            }
            let words: Option<fn(char) -> bool> = match base {
                "simple" if !is_json && !split_identifiers => Some(char::is_alphanumeric),
                "whitespace" if !is_json && !split_identifiers => Some(|letter| !letter.is_ascii_whitespace()),
                _ => None,
            };
            Ok(Analyzer { chain: chain.build(), is_json, words })
        })
    }

    /// `Analyzer.tokenize` of `_kernels.pyi`.
    #[pyo3(signature = (num_rows, texts, present, bytes_max, /))]
    fn tokenize(
        &self,
        py: Python<'_>,
        num_rows: usize,
        texts: Given<'_>,
        present: Option<&Bound<'_, PyAny>>,
        bytes_max: usize,
    ) -> PyResult<(OwnedBuffer, OwnedBuffer, OwnedBuffer, OwnedBuffer)> {
        let held = [Held::new(&texts)?];
        let arguments = Arguments::new(&held, num_rows)?;
        let present = present.map(Input::new).transpose()?;
        let present = checked_present(present.as_ref(), num_rows)?;
        let num_steps = num_rows + arguments.num_bytes / BYTES_PER_STEP;
        gil::release(py, num_steps, || self.tokenized(num_rows, &arguments, present, bytes_max))
    }
}

/// Memory of a token beside its text: an offset and a position.
const TOKEN_BYTES: usize = 8;

impl Analyzer {
    /// A chain of its own for a caller: a stream changes it.
    pub fn chain(&self) -> TextAnalyzer {
        self.chain.clone() // room: a few boxes; lists of words are shared
    }

    /// Which letters make words; None unless the tokens of a text are those of its words, each by itself.
    pub fn words(&self) -> Option<fn(char) -> bool> {
        self.words
    }

    /// Call `each` with the tokens of a text, or of a stored JSON document, and their positions.
    #[inline]
    pub fn each_token(
        &self,
        chain: &mut TextAnalyzer,
        row: Row<'_, '_>,
        mut each: impl FnMut(&[u8], usize) -> PyResult<()>,
    ) -> PyResult<()> {
        if self.is_json {
            return Walk::new(chain, each).document(row.bytes(0)?);
        }
        let mut stream = chain.token_stream(row.text(0)?);
        while let Some((token, position)) = next_token(&mut stream)? {
            each(token.as_bytes(), position)?;
        }
        Ok(())
    }

    fn tokenized(
        &self,
        num_rows: usize,
        arguments: &Arguments<'_>,
        present: Option<&[u8]>,
        bytes_max: usize,
    ) -> PyResult<(OwnedBuffer, OwnedBuffer, OwnedBuffer, OwnedBuffer)> {
        let mut chain = self.chain();
        let mut rows: Vec<i32> = with_room(num_rows + 1);
        let mut tokens = Strings::<i32>::with_room(arguments.num_bytes / 8, arguments.num_bytes);
        let mut positions: Vec<i32> = with_room(arguments.num_bytes / 8);
        let mut patience = Patience::default();
        rows.try_push(0)?;
        for row in 0..num_rows {
            if is_present(present, row) {
                patience.spend(arguments.row(row).bytes(0)?.len() / BYTES_PER_STEP)?;
                self.each_token(&mut chain, arguments.row(row), |token, position| {
                    tokens.push_bytes(token)?;
                    tokens.end_value()?;
                    positions.try_push(i32::try_from(position).map_err(|_| too_many(position))?)?;
                    if tokens.data.len() + TOKEN_BYTES * positions.len() > bytes_max {
                        return Err(invalid(format!("the texts have more than {bytes_max} bytes of tokens")));
                    }
                    Ok(())
                })?;
            }
            let count = positions.len();
            rows.try_push(i32::try_from(count).map_err(|_| too_long::<i32>(count))?)?;
        }
        let [offsets, data] = tokens.into_buffers()?;
        Ok((rows.into(), offsets, data, positions.into()))
    }
}

fn too_many(position: usize) -> PyErr {
    invalid(format!("a text has more than {position} tokens"))
}

/// The next token and its position.
pub fn next_token<'a>(stream: &'a mut BoxTokenStream<'_>) -> PyResult<Option<(&'a str, usize)>> {
    let token = stream.try_next().map_err(invalid)?;
    Ok(token.map(|token| (token.text.as_str(), token.position)))
}
