//! Objects that are kept in memory: files without a name, so that the kernel sends them without a copy of ours.

use std::collections::HashMap;
use std::fs::File;
use std::io::{Error, Write};
use std::sync::Arc;

use rustix::fs::{memfd_create, MemfdFlags};

/// One object as the server gave it.
pub struct Object {
    pub file: File,
    pub size_bytes: u64,
    /// Lines that every answer about it has, such as its ETag.
    pub headers: String,
}

impl Object {
    pub fn new(content: &[u8], lines: &str) -> Result<Self, Error> {
        let mut file = File::from(memfd_create("object", MemfdFlags::CLOEXEC)?);
        file.write_all(content)?;
        Ok(Self { file, size_bytes: content.len() as u64, headers: format!("{lines}Accept-Ranges: bytes\r\n") })
    }
}

struct Kept {
    object: Arc<Object>,
    used: u64,
}

/// Objects by key, within a number of bytes.
#[derive(Default)]
pub struct Objects {
    kept: HashMap<String, Kept>,
    size_bytes: u64,
    uses: u64,
    /// Counts changes of objects; what was fetched before the last change of its key may be old.
    changes: u64,
    changed: HashMap<String, u64>,
}

impl Objects {
    pub fn get(&mut self, key: &str) -> Option<Arc<Object>> {
        self.uses += 1;
        let kept = self.kept.get_mut(key)?;
        kept.used = self.uses;
        Some(kept.object.clone())
    }

    /// A fetch begins: what to give to `put` in the end.
    pub fn moment(&self) -> u64 {
        self.changes
    }

    /// Keep what was fetched since `moment`; not if the key has changed, or the object is larger than all that may be kept.
    pub fn put(&mut self, key: &str, object: Arc<Object>, moment: u64, size_bytes_max: u64) {
        let changed = self.changed.get(key).is_some_and(|change| *change > moment);
        if changed || object.size_bytes > size_bytes_max {
            return;
        }
        self.remove(key);
        self.size_bytes += object.size_bytes;
        while self.size_bytes > size_bytes_max {
            let oldest = self.kept.iter().min_by_key(|(_, kept)| kept.used).map(|(key, _)| key.clone());
            match oldest {
                Some(oldest) => self.remove(&oldest),
                None => break,
            }
        }
        self.uses += 1;
        self.kept.insert(key.to_owned(), Kept { object, used: self.uses });
    }

    /// Somebody changes this object.
    pub fn changed(&mut self, key: &str) {
        self.changes += 1;
        self.changed.insert(key.to_owned(), self.changes);
        self.remove(key);
    }

    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn remove(&mut self, key: &str) {
        if let Some(kept) = self.kept.remove(key) {
            self.size_bytes -= kept.object.size_bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(size: usize) -> Arc<Object> {
        Arc::new(Object::new(&vec![1; size], "ETag: \"e\"\r\n").unwrap())
    }

    #[test]
    fn the_least_recently_used_goes_first() {
        let mut objects = Objects::default();
        for key in ["a", "b"] {
            objects.put(key, object(40), objects.moment(), 100);
        }
        assert!(objects.get("a").is_some());
        objects.put("c", object(40), objects.moment(), 100);
        assert!(objects.get("b").is_none() && objects.get("a").is_some() && objects.get("c").is_some());
        objects.put("huge", object(101), objects.moment(), 100);
        assert!(objects.get("huge").is_none());
        assert_eq!(objects.size_bytes(), 80);
    }

    #[test]
    fn what_changed_while_it_was_fetched_is_not_kept() {
        let mut objects = Objects::default();
        let moment = objects.moment();
        objects.changed("a");
        objects.put("a", object(1), moment, 100);
        assert!(objects.get("a").is_none());
        objects.put("a", object(1), objects.moment(), 100);
        assert!(objects.get("a").is_some());
        objects.changed("a");
        assert!(objects.get("a").is_none());
        assert_eq!(objects.size_bytes(), 0);
    }
}
