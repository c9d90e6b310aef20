//! Decodes selected rows of a mini-block page, in two passes over their chunks: levels first, which determine the
//! selected items of each chunk, then values.

use crate::decode::dictionary::Items;
use crate::error::invalid;
use crate::levels::layers::unravel;
use crate::levels::leaf::LeafParts;
use crate::miniblock::page::Page;
use crate::miniblock::select::{in_chunk, select_flat, select_nested, Selection};
use crate::miniblock::tables::{locate, Chunk, Tables};
use crate::miniblock::values::Values;
use crate::room::{vec_with_capacity, Gather};
use crate::sink::{count, Pick};
use pyo3::PyResult;

impl Page {
    /// Decode the selected rows of a page.
    pub fn decode(
        &self,
        tables: &Tables<'_>,
        bytes: &[u8],
        num_rows: usize,
        items: Option<Items<'_>>,
    ) -> PyResult<LeafParts> {
        let mut chunks = locate(tables, bytes)?;
        let Selection { picks, levels } = match self.rep {
            Some(_) => select_nested(self, tables, &mut chunks)?,
            None => select_flat(self, tables, &mut chunks, num_rows)?,
        };
        let num_items = count(&picks);
        let values = self.decode_values(&chunks, &picks, num_items)?;
        let layers = unravel(&self.layers, levels.rep, levels.def, num_items, num_rows)?;
        let buffers = match (items, values.fixed_bytes()) {
            (None, _) => values.into_buffers()?,
            (Some(items), Some((indices, size))) => items.look_up(indices, size)?.into_iter().map(Some).try_vec()?,
            (Some(_), None) => return Err(invalid("dictionary indices are fixed-width values")),
        };
        Ok((num_items, buffers, layers))
    }

    fn decode_values(&self, chunks: &[Chunk<'_>], picks: &[Pick], num_items: usize) -> PyResult<Values<'_>> {
        // An estimate for the bytes of variable-width values: their share of the chunks.
        let fetched: usize = chunks.iter().map(|chunk| chunk.bytes.len()).sum();
        let all: usize = chunks.iter().map(|chunk| chunk.num_items).sum();
        let share = (fetched as u128 * num_items as u128 / all.max(1) as u128) as usize;
        let mut values = Values::new(&self.values, num_items, share)?;
        let mut buffers = vec_with_capacity(self.num_buffers)?;
        for chunk in chunks {
            let picks = &picks[chunk.picks.0..chunk.picks.1];
            if picks.is_empty() {
                continue;
            }
            let decoded = self.header(chunk.bytes).and_then(|header| {
                self.value_buffers(chunk.bytes, &header, &mut buffers)?;
                values.chunk(&buffers, chunk.num_items, picks)
            });
            decoded.map_err(in_chunk(chunk.id))?;
        }
        Ok(values)
    }
}
